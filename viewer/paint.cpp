#include "viewer/paint.hpp"

#include <algorithm>
#include <cmath>

namespace viewer {

float Paint::width(Ink ink, std::string_view text) const {
  return fonts_.width(ink.face, px(ink.size), text);
}

float Paint::text(ImVec2 at, Ink ink, std::string_view text) const {
  fonts_.draw(list(), ink.face, px(ink.size), at, ink.color, text);
  return width(ink, text);
}

float Paint::text_middle(ImVec2 at, Ink ink, std::string_view text) const {
  return this->text({at.x - width(ink, text) / 2, at.y}, ink, text);
}

float Paint::text_right(ImVec2 at, Ink ink, std::string_view text) const {
  return this->text({at.x - width(ink, text), at.y}, ink, text);
}

std::string Paint::cut(Ink ink, std::string_view text, float room) const {
  if (width(ink, text) <= room) return std::string(text);
  const float left = room - width(ink, "…");
  std::string_view rest = text;
  float used = 0;
  std::size_t kept = 0;
  while (!rest.empty()) {
    const std::size_t before = text.size() - rest.size();
    next_character(rest);
    const std::size_t after = text.size() - rest.size();
    used += width(ink, text.substr(before, after - before));
    if (used > left) break;
    kept = after;
  }
  return std::string(text.substr(0, kept)) + "…";
}

// How many bytes of `line` fit into `room`, broken at a blank if there is one.
static std::size_t fitting(const Paint& paint, Ink ink, std::string_view line, float room) {
  std::size_t end = 0;
  while (end < line.size()) {
    const std::size_t next = std::min(line.find(' ', end + 1), line.size());
    if (paint.width(ink, line.substr(0, next)) > room) break;
    end = next;
  }
  if (end > 0) return end;
  // One long word: as many characters as fit, but at least one.
  std::string_view rest = line;
  do {
    end = line.size() - rest.size();
    next_character(rest);
  } while (!rest.empty() && paint.width(ink, line.substr(0, line.size() - rest.size())) <= room);
  return end > 0 ? end : line.size() - rest.size();
}

float Paint::prose(ImVec2 top_left, float room, float pitch, Ink ink, std::string_view text) const {
  return wrapped(top_left, room, pitch, ink, {ink.face, ink.size + 1, theme.now}, true, text);
}

float Paint::output(ImVec2 top_left, float room, float pitch, Ink ink,
                    std::string_view text) const {
  return wrapped(top_left, room, pitch, ink, ink, false, text);
}

float Paint::wrapped(ImVec2 top_left, float room, float pitch, Ink plain, Ink formula, bool hanging,
                     std::string_view text) const {
  float y = top_left.y;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const Ink ink = !line.empty() && line.front() == ' ' ? formula : plain;
    float indent = 0;
    if (hanging) {  // a formula goes on below its beginning
      const std::size_t blanks = std::min(line.find_first_not_of(' '), line.size());
      indent = std::min(width(ink, line.substr(0, blanks)), room / 2);
      line.remove_prefix(blanks);
    }
    if (line.empty()) y += px(pitch);
    while (!line.empty()) {
      const std::size_t fits = fitting(*this, ink, line, room - indent);
      y += px(pitch);
      this->text({top_left.x + indent, y - px(pitch * 0.29f)}, ink, line.substr(0, fits));
      line.remove_prefix(fits);
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    }
  }
  return y - top_left.y;
}

void Paint::fill(Frame frame, ImU32 color, float rounding) const {
  list().AddRectFilled(frame.low(), frame.high(), color, px(rounding));
}

void Paint::outline(Frame frame, ImU32 color, float rounding, float thickness) const {
  list().AddRect(frame.low(), frame.high(), color, px(rounding), 0, px(thickness));
}

void Paint::rule(float left, float right, float y) const {
  const float row = std::round(y);
  list().AddRectFilled({left, row}, {right, row + std::max(1.0f, std::round(scale_))}, theme.line);
}

void Paint::upright(float x, float top, float bottom) const {
  const float column = std::round(x);
  list().AddRectFilled({column, top}, {column + std::max(1.0f, std::round(scale_)), bottom},
                       theme.line);
}

void Paint::dot(ImVec2 center, float radius, ImU32 color) const {
  list().AddCircleFilled(center, px(radius), color, 40);
}

Paint::Press Paint::press(const char* name, Frame frame) {
  if (frame.empty()) return {};
  ImGui::SetCursorScreenPos(frame.low());
  Press press;
  press.clicked = ImGui::InvisibleButton(name, {frame.width(), frame.height()});
  press.hovered = ImGui::IsItemHovered();
  press.begun = ImGui::IsItemActivated();
  press.held = ImGui::IsItemActive();
  press.ended = ImGui::IsItemDeactivated();
  return press;
}

bool Paint::button(const char* name, Frame frame, std::string_view label, bool on) const {
  const Press pressed = on ? press(name, frame) : Press{};
  fill(frame, pressed.hovered ? theme.button_hovered : theme.button, 5);
  outline(frame, pressed.held ? theme.faint : theme.line, 5);
  const Ink ink{Face::sans, 13, on ? theme.text : theme.pending_text};
  text_middle({frame.middle(), (frame.top + frame.bottom) / 2 + px(5)}, ink, label);
  return pressed.clicked;
}

Pane::Pane(const Paint& paint, const char* name, Frame frame, ImU32 ground, Kind kind)
    : frame_(frame), kind_(kind) {
  // ImGui has no windows without extent: in a minimised window each part gets a pixel.
  const ImVec2 size{std::max(1.0f, frame.width()), std::max(1.0f, frame.height())};
  if (kind == Kind::part) {
    paint.fill(frame, ground);
    ImGui::SetCursorScreenPos(frame.low());
    ImGui::BeginChild(name, size, false, ImGuiWindowFlags_NoBackground);
  } else {
    ImGui::SetNextWindowPos(frame.low());
    ImGui::SetNextWindowSize(size);
    ImGuiWindowFlags flags = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                             ImGuiWindowFlags_NoBackground | ImGuiWindowFlags_NoNav;
    if (kind == Kind::untouchable) flags |= ImGuiWindowFlags_NoInputs;
    ImGui::Begin(name, nullptr, flags);
    paint.fill(frame, ground);
  }
  origin_ = ImGui::GetCursorScreenPos();
}

Pane::~Pane() {
  if (kind_ == Kind::part)
    ImGui::EndChild();
  else
    ImGui::End();
}

void Pane::grows(float height) const {
  ImGui::SetCursorScreenPos(origin_);
  ImGui::Dummy({1, height});
}

void Pane::scroll_to_show(float top, float bottom) const {
  const float from = ImGui::GetScrollY();
  if (top < from) ImGui::SetScrollY(top);
  if (bottom > from + frame_.height()) ImGui::SetScrollY(bottom - frame_.height());
}

float Pane::scrolled() const { return ImGui::GetScrollY(); }

// One pixel is nothing: ImGui scrolls by whole ones.
bool Pane::at_end() const { return ImGui::GetScrollY() >= ImGui::GetScrollMaxY() - 1; }

// ImGui knows only in the next frame how far that is, and takes the most that there is.
void Pane::scroll_to_end(float height) const { ImGui::SetScrollY(height); }

void Pane::fade(ImU32 ground, float height) const {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImU32 clear = faded(ground, 0);
  const float right = frame_.right - ImGui::GetStyle().ScrollbarSize;
  if (ImGui::GetScrollY() < ImGui::GetScrollMaxY() - 1)
    list.AddRectFilledMultiColor({frame_.left, frame_.bottom - height}, {right, frame_.bottom},
                                 clear, clear, ground, ground);
  if (ImGui::GetScrollY() > 1)
    list.AddRectFilledMultiColor({frame_.left, frame_.top}, {right, frame_.top + height}, ground,
                                 ground, clear, clear);
}

}  // namespace viewer
