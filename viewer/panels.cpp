#include "viewer/panels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "lessons/words.hpp"

namespace viewer {

// ---- The bar at the top --------------------------------------------------------------------------

namespace {

struct PhaseColors {
  ImU32 text, pill, dim;  // dim: of the timeline
};
PhaseColors colors_of(const Theme& theme, Phase phase) {
  switch (phase) {
    case Phase::backward:
      return {theme.gradient, theme.pill_backward, theme.gradient_dim};
    case Phase::update:
      return {theme.leaf, theme.pill_update, theme.leaf_dim};
    case Phase::forward:
      break;
  }
  return {theme.value, theme.pill_forward, theme.value_dim};
}

// Answers where it ends.
float step_and_phase(const Paint& paint, Frame frame, float middle, const Shown& shown,
                     const Desk& desk) {
  const Timeline& timeline = shown.timeline;
  if (timeline.steps().empty()) return frame.left;
  const std::int64_t steps = timeline.episode(desk.cursor.episode).steps;
  const bool kept = timeline.episode(desk.cursor.episode).kept;
  const std::string where =
      kept ? "step " + timeline.label(desk.cursor) + " of " + std::to_string(steps) : "no steps";
  const Ink ink{Face::sans, 14, paint.theme.faint};
  const float words = paint.width(ink, where), gap = paint.px(13), pill = paint.px(84);
  const float left = std::round(middle - (words + gap + pill) / 2);
  const float base = frame.top + paint.px(28);
  paint.text({left, base}, ink, where);
  if (timeline.step(desk.cursor) == nullptr) return left + words;
  const Phase phase = timeline.phase(desk.cursor);
  const PhaseColors colors = colors_of(paint.theme, phase);
  const Frame shape{left + words + gap, frame.top + paint.px(12), left + words + gap + pill,
                    frame.top + paint.px(34)};
  paint.fill(shape, colors.pill, 11);
  paint.outline(shape, colors.text, 11);
  paint.text_middle({shape.middle(), base}, {Face::sans, 13, colors.text}, word_for(phase));
  return shape.right;
}

}  // namespace

void draw_place(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk) {
  const Pane pane(paint, "place", frame, paint.theme.panel);
  step_and_phase(paint, frame, frame.middle(), shown, desk);
}

void draw_top_bar(const Paint& paint, Frame frame, float middle, const Shown& shown, Desk& desk) {
  const Pane pane(paint, "top", frame, paint.theme.panel);
  const float base = frame.top + paint.px(28);
  const Ink plain{Face::sans, 16, paint.theme.text};
  paint.text({frame.left + paint.px(18), base}, {Face::bold, 16, paint.theme.text}, "minitensor");
  const float title = frame.left + paint.px(132);
  paint.text({title, base}, plain, paint.cut(plain, shown.title, middle - paint.px(120) - title));
  const float end = step_and_phase(paint, frame, middle, shown, desk);

  struct Button {
    const char* words;
    Act act;
    bool on;
  };
  const std::array<Button, 4> buttons{{{"?  keys", Act::keys, desk.keys_shown},
                                       {"Theme  T", Act::theme, false},
                                       {"Export  E", Act::export_figure, false},
                                       {"Present  P", Act::present, desk.presenting}}};
  float right = frame.right - paint.px(10);
  for (const Button& one : buttons) {
    Ink ink{Face::sans, 13, paint.theme.faint};
    const float width = paint.width(ink, one.words) + paint.px(20);
    const Frame place{right - width, frame.top + paint.px(8), right, frame.bottom - paint.px(8)};
    if (place.left < end) break;  // a narrow window: the keys do the same
    const Paint::Press press = Paint::press(one.words, place);
    if (press.hovered || one.on) {
      paint.fill(place, paint.theme.button_hovered, 5);
      ink.color = paint.theme.text;
    }
    paint.text({place.left + paint.px(10), base}, ink, one.words);
    if (press.clicked) desk.asked.push_back(one.act);
    right = place.left - paint.px(10);
  }
}

// ---- Lessons, words, output ----------------------------------------------------------------------

static constexpr float row_pitch = 28;

static constexpr float around_rows = 30;

float LessonList::height(const Paint& paint, const Shown& shown) const {
  const std::size_t rows = shown.options.lessons.size();
  return paint.px(row_pitch * static_cast<float>(rows) + around_rows);
}

float LessonList::height_in(float room, const Paint& paint, const Shown& shown) const {
  const float above = 16, most = room / 2;
  const float rows = std::floor((most - paint.px(above)) / paint.px(row_pitch));
  const float whole = height(paint, shown);
  return whole <= most ? whole : paint.px(row_pitch * std::max(rows, 1.0f) + above);
}

ImVec2 LessonList::place_of(std::size_t lesson) const {
  return {first_row_.x, first_row_.y + pitch_ * static_cast<float>(lesson)};
}

void LessonList::draw(const Paint& paint, Frame frame, const Shown& shown, Desk& desk) {
  const Pane pane(paint, "lessons", frame, paint.theme.panel);
  const float left = frame.left + paint.px(10), right = frame.right - paint.px(10);
  pitch_ = paint.px(row_pitch);
  first_row_ = {frame.left + paint.px(60), pane.origin().y + paint.px(13) + pitch_ / 2};
  for (std::size_t i = 0; i < shown.options.lessons.size(); ++i) {
    const LessonEntry& lesson = shown.options.lessons[i];
    const float top = pane.origin().y + paint.px(14) + pitch_ * static_cast<float>(i);
    const Frame row{left, top, right, top + paint.px(26)};
    const bool chosen = desk.lesson == i;
    const Paint::Press press = Paint::press(lesson.id.c_str(), row);
    if (chosen || press.hovered)
      paint.fill(row, chosen ? paint.theme.chosen : paint.theme.hovered, 5);
    const Ink ink{Face::sans, 14, chosen ? paint.theme.text : paint.theme.faint};
    const std::string words = lesson.number + "  " + lesson.title;
    paint.text({left + paint.px(12), top + paint.px(18)}, ink,
               paint.cut(ink, words, row.width() - paint.px(24)));
    if (press.clicked) desk.lesson_asked = i;
  }
  pane.grows(height(paint, shown));
  if (desk.lesson == revealed_) return;
  revealed_ = desk.lesson;
  if (desk.lesson)
    pane.scroll_to_show(pitch_ * static_cast<float>(*desk.lesson),
                        pitch_ * static_cast<float>(*desk.lesson + 2));
}

namespace {

// What the lesson said last, up to the cursor, and whether it said so at this very step.
struct Words {
  std::string text;
  bool fresh = false;
};
Words last_words(const Timeline& timeline, Cursor cursor) {
  const std::vector<std::string> all = timeline.said(cursor);
  if (all.empty()) return {};
  // The number of words never falls from step to step: the step of the last ones is bisected.
  const std::size_t first = timeline.start(cursor.episode).position;
  std::size_t low = first, high = cursor.position;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (timeline.said({cursor.episode, middle}).size() == all.size())
      high = middle;
    else
      low = middle + 1;
  }
  const std::size_t before = low == first ? 0 : timeline.said({cursor.episode, low - 1}).size();
  Words words{"", low == cursor.position};
  for (std::size_t i = before; i < all.size(); ++i)
    words.text += (i > before ? "\n\n" : "") + all[i];
  return words;
}

// The step in words, with its formula on a line of its own (Paint::prose makes it yellow).
std::string step_in_words(const Timeline& timeline, Cursor cursor) {
  const std::string prose = timeline.prose(cursor);
  const Step* step = timeline.step(cursor);
  const auto event = step == nullptr ? nullptr : timeline.trace().events[step->event];
  if (event == nullptr) return prose;
  const std::string indent = "\n    ";
  if (std::holds_alternative<Op>(event->what) && prose.find(" = ") != std::string::npos)
    return indent.substr(1) + prose.substr(0, prose.find_last_not_of('.') + 1);
  const auto* arrived = std::get_if<Arrived>(&event->what);
  if (arrived == nullptr) return prose;
  const std::string receives = " receives ";
  const std::size_t begin = prose.find(receives);
  const std::size_t end = std::min(prose.find(" from "), prose.find(", summed over"));
  if (begin == std::string::npos || end == std::string::npos || end < begin) return prose;
  const std::size_t formula = begin + receives.size();
  std::string rest = prose.substr(end);
  rest.erase(0, rest.find_first_not_of(", "));
  return prose.substr(0, formula - 1) + "\n" + indent + prose.substr(formula, end - formula) +
         "\n\n" + rest;
}

bool is_covered(const Desk& desk, const Timeline& timeline) {
  const Item about = subject(timeline, desk.cursor);
  return desk.view.cover_gradients && timeline.phase(desk.cursor) == Phase::backward &&
         about.kind == Item::Kind::tensor && !desk.view.uncovered.contains(about.id);
}

}  // namespace

float draw_words(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk) {
  const Pane pane(paint, "words", frame, paint.theme.panel);
  const float room = frame.width() - paint.px(40);
  const ImVec2 start{frame.left + paint.px(20), pane.origin().y + paint.px(15)};
  ImVec2 at = start;
  const Ink ink{Face::sans, 14, paint.theme.text};
  const auto write = [&](ImU32 color, std::string_view text) {
    if (text.empty()) return;
    at.y += paint.prose(at, room, 24, {ink.face, ink.size, color}, text) + paint.px(14);
  };
  const Timeline& timeline = shown.timeline;
  const bool covered = is_covered(desk, timeline);
  const std::optional<std::size_t> failed = timeline.failure(desk.cursor);
  const Failed* failure = failed ? failed_at(timeline, *failed) : nullptr;
  const Step* step = timeline.step(desk.cursor);
  const bool fails_now = step != nullptr && failed_at(timeline, step->event) != nullptr;
  if (covered)
    write(paint.theme.faint,
          "The gradient is covered. A click on its box, or on its row on the right, uncovers it; "
          "H uncovers all.");
  else
    write(fails_now ? paint.theme.warning : ink.color, step_in_words(timeline, desk.cursor));
  const Words words = last_words(timeline, desk.cursor);
  if (!covered) write(words.fresh ? ink.color : paint.theme.faint, words.text);
  if (!timeline.episode(desk.cursor.episode).kept)
    write(paint.theme.faint,
          "Of a long run some episodes are kept with all their steps, and this one is not. ↑ and ↓ "
          "go to the others.");
  else if (step == nullptr && !timeline.steps().empty())
    write(paint.theme.faint, "Step with → and ←.");
  const bool said = failure != nullptr && shown.status.find(failure->text) != std::string::npos;
  if (shown.failed && !said && !timeline.steps().empty()) write(paint.theme.warning, shown.status);
  const float height = at.y - pane.origin().y + paint.px(10);
  pane.grows(height);
  pane.fade(paint.theme.panel, paint.px(28));
  return height;
}

// The end of a long text, from the beginning of a line: laying out megabytes anew for each frame
// would make the window slow. The terminal has had it all.
static std::string_view tail(std::string_view text) {
  constexpr std::size_t most = 20000;
  if (text.size() <= most) return text;
  text.remove_prefix(text.size() - most);
  text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  return text;
}

void OutputPane::draw(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk) {
  const Pane pane(paint, "output", frame, paint.theme.panel);
  // New lines and a smaller pane move the end away; only a reader moves the text down.
  if (pane.at_end())
    follows_ = true;
  else if (pane.scrolled() < scrolled_ - 1)
    follows_ = false;
  scrolled_ = pane.scrolled();
  const std::string printed = words::printed(tail(shown.timeline.printed(desk.cursor)));
  const float top = pane.origin().y + paint.px(21);
  paint.text({frame.left + paint.px(20), top + paint.px(17)}, {Face::bold, 13, paint.theme.faint},
             "Output");
  const ImVec2 at{frame.left + paint.px(20), top + paint.px(29)};
  const float height = paint.output(at, frame.width() - paint.px(36), 20,
                                    {Face::mono, 13, paint.theme.text}, printed) +
                       paint.px(60);
  pane.grows(height);
  pane.fade(paint.theme.panel, paint.px(28));
  if (follows_) pane.scroll_to_end(height);
  shows_end_ = scrolled_ + frame.height() >= height - 1;
}

void draw_no_graph(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk) {
  const Pane pane(paint, "no graph", frame, paint.theme.canvas);
  const std::string printed = words::printed(tail(shown.timeline.printed(desk.cursor)));
  const Ink big{Face::sans, 16, shown.failed ? paint.theme.warning : paint.theme.faint};
  if (printed.empty() || !shown.failed) {
    paint.text_middle({frame.middle(), (frame.top + frame.bottom) / 2}, big,
                      paint.cut(big, shown.status, frame.width() - paint.px(40)));
    return;
  }
  const ImVec2 at{frame.left + paint.px(24), pane.origin().y + paint.px(16)};
  const float room = frame.width() - paint.px(48);
  float height = paint.output(at, room, 26, big, shown.status) + paint.px(10);
  height +=
      paint.output({at.x, at.y + height}, room, 20, {Face::mono, 13, paint.theme.text}, printed);
  pane.grows(height + paint.px(40));
}

// ---- The source ----------------------------------------------------------------------------------

void SourcePane::split(const std::string& text) {
  lines_.clear();
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string line;
    for (const char c : text.substr(start, end - start))
      if (c == '\t')
        line.append(4 - line.size() % 4, ' ');
      else if (c != '\r')
        line += c;
    lines_.push_back(std::move(line));
    start = end + 1;
  }
}

std::vector<std::size_t> answers_in(const std::vector<std::string>& lines) {
  constexpr std::string_view call = "ask(";
  std::vector<std::size_t> answers;
  int depth = 0;  // of brackets, from that of the call
  bool question = false, quoted = false;
  for (const std::string& line : lines) {
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    std::size_t from = depth > 0 && !question ? begin : std::string::npos, i = begin;
    if (depth == 0 && std::string_view(line).substr(begin).starts_with(call)) {
      depth = 1;
      question = true;
      i += call.size();
    }
    for (; i < line.size() && depth > 0; ++i) {
      const char c = line[i];
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = !quoted;
      else if (quoted)
        continue;
      else if (c == '(' || c == '{')
        ++depth;
      else if (c == ')' || c == '}')
        --depth;
      else if (c == ',' && question) {
        question = depth > 1;
        from = question ? from : i + 1;
      }
    }
    answers.push_back(from);
  }
  return answers;
}

static Ink number_ink(const Paint& paint) { return {Face::mono, 13, paint.theme.faint}; }

void SourcePane::row(const Paint& paint, const Pane& pane, int number, const Shown& shown,
                     Desk& desk) {
  const Frame frame = pane.frame();
  const float top = pane.origin().y + paint.px(26 * static_cast<float>(number - 1));
  const Frame row{frame.left + paint.px(4), top, frame.right - paint.px(4), top + paint.px(26)};
  if (row.bottom < frame.top || row.top > frame.bottom) return;
  const Line line{path_, number};
  const Paint::Press press = Paint::press(std::to_string(number).c_str(), row);
  const std::vector<std::size_t> ops = press.hovered
                                           ? shown.timeline.ops_on_line(desk.cursor.episode, line)
                                           : std::vector<std::size_t>{};
  if (press.hovered) desk.pointed.line = line;
  if (press.clicked && !ops.empty()) {
    const Op& op = shown.timeline.op(ops.front());
    desk.selected = op.outputs.empty() ? Item{Item::Kind::op, ops.front()}
                                       : Item{Item::Kind::tensor, op.outputs.front().tensor};
  }
  const bool now = line == now_;
  if (now) place_ = {row.left + paint.px(120), (row.top + row.bottom) / 2};
  if (now)
    paint.fill(row, paint.theme.source_now);
  else if (line == linked_ || press.hovered)
    paint.fill(row, line == linked_ ? paint.theme.source_linked : paint.theme.hovered);
  if (now || line == linked_)
    paint.fill({row.left, row.top, row.left + paint.px(4), row.bottom},
               now ? paint.theme.now_line : paint.theme.value_dim);
  paint.text_right({numbers_right_, top + paint.px(18)}, number_ink(paint), std::to_string(number));
  Paint::list().PushClipRect(row.low(), {row.right - paint.px(8), row.bottom}, true);
  std::string text = lines_[static_cast<std::size_t>(number - 1)];
  const std::size_t answer = answers_[static_cast<std::size_t>(number - 1)];
  if (desk.lesson && !press.hovered && answer < text.size())
    text = text.substr(0, answer) + " // … covered: point here";  // faint, as comments are
  const std::size_t comment = std::min(text.find("//"), text.size());
  const ImVec2 at{numbers_right_ + paint.px(18), top + paint.px(18)};
  const Ink code{Face::mono, 14, paint.theme.text};
  const float used = paint.text(at, code, std::string_view(text).substr(0, comment));
  paint.text({at.x + used, at.y}, {Face::mono, 14, paint.theme.faint},
             std::string_view(text).substr(comment));
  Paint::list().PopClipRect();
}

void SourcePane::draw(const Paint& paint, Frame frame, const Shown& shown, Desk& desk) {
  paint.fill(frame, paint.theme.desk);
  // The file's name has a strip of its own, so that it covers no code. Below it, whole rows only:
  // half a line of code at an edge looks like an accident.
  const float top = frame.top + paint.px(22);
  const float rows = std::floor((frame.bottom - top) / paint.px(26));
  const Frame shown_rows{frame.left, top, frame.right, top + paint.px(26) * std::max(rows, 1.0f)};
  const Timeline& timeline = shown.timeline;
  now_ = timeline.line(desk.cursor);
  linked_ = shown.line_of(
      desk.pointed_before.item.kind != Item::Kind::none ? desk.pointed_before.item : desk.selected);
  Line wanted = now_;
  if (wanted.number == 0 && !timeline.steps().empty())  // step 0: where it will begin
    wanted = timeline.line(timeline.next(timeline.start(desk.cursor.episode)));
  if (wanted.number == 0)  // an episode without steps: where its first operation stands
    if (const auto ops = timeline.graph(desk.cursor.episode).ops; !ops.empty())
      wanted = timeline.line_of(ops.front());
  const auto& sources = timeline.trace().sources;
  const auto source = sources.find(wanted.number != 0 || path_.empty() ? wanted.file : path_);
  if (source == sources.end()) return;
  if (source->first != path_ || source->second.size() != length_) {
    path_ = source->first;
    length_ = source->second.size();
    split(source->second);
    answers_ = answers_in(lines_);
  }
  paint.text_right({frame.right - paint.px(24), frame.top + paint.px(16)},
                   {Face::sans, 12, paint.theme.faint}, last_part(path_));
  const Pane pane(paint, "source", shown_rows, paint.theme.desk);
  const std::string digits = std::to_string(std::max<std::size_t>(lines_.size(), 100));
  numbers_right_ =
      frame.left + paint.px(14) + paint.width(number_ink(paint), std::string(digits.size(), '0'));
  const int count = static_cast<int>(lines_.size());
  for (int number = 1; number <= count; ++number) row(paint, pane, number, shown, desk);
  pane.grows(paint.px(26 * static_cast<float>(count)));

  if (wanted == revealed_ || wanted.number == 0) return;
  revealed_ = wanted;
  const float above = std::floor(rows / 2);
  ImGui::SetScrollY(std::max(0.0f, paint.px(26) * (static_cast<float>(wanted.number - 1) - above)));
}

// ---- The timeline --------------------------------------------------------------------------------

static constexpr float side_margin = 30;

float TimelineBar::height(const Shown& shown) {
  return shown.timeline.episodes().size() > 1 ? 150 : 118;
}

void TimelineBar::read_phases(const Timeline& timeline, int episode) {
  const Episode& about = timeline.episode(episode);
  if (episode != episode_ || read_ > about.last) {
    episode_ = episode;
    phases_.clear();
    read_ = about.first;
  }
  for (; read_ < about.last; ++read_) {
    const Step& step = timeline.steps()[read_];
    if (step.inner == 0 && step.number == static_cast<std::int64_t>(phases_.size()) + 1)
      phases_.push_back(step.phase);
  }
}

float TimelineBar::tick(std::size_t number) const {
  const float count = static_cast<float>(std::max<std::size_t>(phases_.size(), 1));
  return bar_.left + bar_.width() * static_cast<float>(number) / count;
}

// One stroke a step while there is room for strokes; then the bar itself takes the colours.
void TimelineBar::ticks(const Paint& paint, std::int64_t now) const {
  const Theme& theme = paint.theme;
  const auto color = [&](std::size_t number) {
    if (static_cast<std::int64_t>(number) > now) return theme.tick_ahead;
    return number == 0 ? theme.value_dim : colors_of(theme, phases_[number - 1]).dim;
  };
  const float middle = (bar_.top + bar_.bottom) / 2;
  if (tick(1) - tick(0) >= paint.px(6)) {
    for (std::size_t number = 0; number <= phases_.size(); ++number) {
      const float x = std::round(tick(number) - paint.px(1.5f));
      paint.fill({x, middle - paint.px(11), x + paint.px(3), middle + paint.px(11)}, color(number));
    }
    return;
  }
  std::size_t run = 1;  // the first step of a run of one colour
  for (std::size_t number = 2; number <= phases_.size() + 1; ++number) {
    if (number <= phases_.size() && color(number) == color(run)) continue;
    paint.fill({tick(run - 1), middle - paint.px(5), tick(number - 1), middle + paint.px(5)},
               color(run));
    run = number;
  }
}

void TimelineBar::phase_labels(const Paint& paint) const {
  const float base = bar_.top - paint.px(18);
  float free = bar_.left;
  for (std::size_t number = 1; number <= phases_.size(); ++number) {
    const bool begins = number == 1 || phases_[number - 1] != phases_[number - 2];
    if (!begins) continue;
    const Phase phase = phases_[number - 1];
    const float x = number == 1 && phase == Phase::forward ? tick(0) : tick(number);
    const Ink ink{Face::sans, 12, colors_of(paint.theme, phase).dim};
    const std::string_view words = word_for(phase);
    if (x < free || x + paint.width(ink, words) > bar_.right + paint.px(16)) continue;
    free = x + paint.text({x, base}, ink, words) + paint.px(12);
  }
}

void TimelineBar::steps(const Paint& paint, const Timeline& timeline, Desk& desk) {
  read_phases(timeline, desk.cursor.episode);
  const std::int64_t now = timeline.number(desk.cursor);
  const float knob = tick(static_cast<std::size_t>(now));
  const Frame reach{bar_.left - paint.px(12), bar_.top - paint.px(12), bar_.right + paint.px(12),
                    bar_.bottom + paint.px(12)};
  const Paint::Press press = Paint::press("steps", reach);
  paint.fill(bar_, paint.theme.track, 3);
  paint.fill({bar_.left, bar_.top, knob, bar_.bottom}, paint.theme.track_done, 3);
  ticks(paint, now);
  phase_labels(paint);
  const ImVec2 center{knob, (bar_.top + bar_.bottom) / 2};
  paint.dot(center, press.hovered || press.held ? 11.0f : 10.0f, paint.theme.knob);
  if ((!press.held && !press.ended) || phases_.empty() || bar_.width() <= 0) return;
  const float part = (ImGui::GetIO().MousePos.x - bar_.left) / bar_.width();
  const float nearest =
      std::round(std::clamp(part, 0.0f, 1.0f) * static_cast<float>(phases_.size()));
  if (const auto wanted = static_cast<std::int64_t>(nearest); wanted != now)
    desk.stand(timeline.at(desk.cursor.episode, wanted));
}

void TimelineBar::episodes(const Paint& paint, Frame bar, const Timeline& timeline,
                           Desk& desk) const {
  const std::size_t count = timeline.episodes().size();
  const auto place = [&](std::size_t index) {
    return bar.left + bar.width() * static_cast<float>(index) / static_cast<float>(count - 1);
  };
  const Frame reach{bar.left - paint.px(8), bar.top - paint.px(9), bar.right + paint.px(8),
                    bar.bottom + paint.px(9)};
  const Paint::Press press = Paint::press("episodes", reach);
  const float knob = place(static_cast<std::size_t>(desk.cursor.episode - 1));
  paint.fill(bar, paint.theme.track, 2);
  paint.fill({bar.left, bar.top, knob, bar.bottom}, paint.theme.track_done, 2);
  const float middle = (bar.top + bar.bottom) / 2;
  if (place(1) - place(0) >= paint.px(5)) {
    for (std::size_t i = 0; i < count; ++i) {
      const bool kept = timeline.episodes()[i].kept;
      const float half = paint.px(kept ? 6.0f : 3.0f), x = std::round(place(i) - paint.px(1));
      paint.fill({x, middle - half, x + paint.px(2), middle + half}, paint.theme.tick_ahead);
    }
  }
  paint.dot({knob, middle}, press.hovered || press.held ? 8.0f : 7.0f, paint.theme.faint);
  if ((!press.held && !press.ended) || bar.width() <= 0) return;
  const float part = std::clamp((ImGui::GetIO().MousePos.x - bar.left) / bar.width(), 0.0f, 1.0f);
  const int wanted = 1 + static_cast<int>(std::lround(part * static_cast<float>(count - 1)));
  if (wanted == desk.cursor.episode) return;
  // The same step of the other episode: so a parameter can be watched through a training.
  desk.stand(timeline.at(wanted, timeline.number(desk.cursor)));
}

void TimelineBar::buttons(const Paint& paint, Frame row, const Shown& shown, Desk& desk) {
  struct Button {
    const char* name;
    const char* words;
    Act act;
  };
  const std::array<Button, 5> all{{{"first", "|<", Act::first},
                                   {"previous", "<", Act::previous},
                                   {"play", desk.playing ? "pause" : "play", Act::play},
                                   {"next", ">", Act::next},
                                   {"last", ">|", Act::last}}};
  places_.clear();
  const auto button = [&](const Button& one, float left, float width) {
    const Frame place{left, row.top, left + width, row.bottom};
    places_.emplace_back(one.name, ImVec2{place.middle(), (place.top + place.bottom) / 2});
    if (paint.button(one.name, place, one.words)) desk.asked.push_back(one.act);
  };
  float x = row.left;
  for (const Button& one : all) {
    button(one, x, paint.px(46));
    x += paint.px(53);
  }
  x += paint.px(16);
  const Ink ink{Face::sans, 12, paint.theme.faint};
  const float base = row.top + paint.px(19);
  std::array<char, 32> speed{};
  std::snprintf(speed.data(), speed.size(), desk.speed < 0.5 ? "speed %.2fx" : "speed %.1fx",
                desk.speed);
  const Frame pace{x - paint.px(6), row.top, x + paint.px(84), row.bottom};
  const Paint::Press press = Paint::press("speed", pace);
  if (press.hovered) paint.fill(pace, paint.theme.button_hovered, 5);
  if (press.clicked) desk.asked.push_back(Act::faster);
  paint.text({x, base}, ink, speed.data());
  x += paint.px(92);
  const std::string episode = "episode " + std::to_string(desk.cursor.episode) + " of " +
                              std::to_string(shown.timeline.episodes().size());
  if (paint.width(ink, episode) <= row.right - x)  // in a narrow window the bar above shows it
    x += paint.text({x, base}, ink, episode) + paint.px(20);

  float right = row.right;
  if (shown.running) {
    button({"stop", "Stop", Act::stop}, right - paint.px(58), paint.px(58));
    right -= paint.px(70);
  }
  const Ink state{Face::sans, 12, shown.failed ? paint.theme.warning : paint.theme.faint};
  const bool stands_above = shown.timeline.steps().empty();  // in the place of the graph
  if (right > x && !stands_above)
    paint.text_right({right, base}, state, paint.cut(state, shown.status, right - x));
}

void TimelineBar::draw(const Paint& paint, Frame frame, const Shown& shown, Desk& desk) {
  const Pane pane(paint, "timeline", frame, paint.theme.desk);
  const float left = frame.left + paint.px(side_margin), right = frame.right - paint.px(36);
  const float bottom = frame.bottom;
  bar_ = {left, bottom - paint.px(76), right, bottom - paint.px(70)};
  if (shown.timeline.episodes().size() > 1)
    episodes(paint, {left, bottom - paint.px(122), right, bottom - paint.px(118)}, shown.timeline,
             desk);
  steps(paint, shown.timeline, desk);
  buttons(paint, {left, bottom - paint.px(48), right, bottom - paint.px(20)}, shown, desk);
}

// ---- Over everything -----------------------------------------------------------------------------

void draw_keys(const Paint& paint, Frame window, Desk& desk) {
  const float wide = paint.px(520), high = paint.px(76 + 27 * static_cast<float>(all_keys.size()));
  const float left = std::round(window.middle() - wide / 2);
  const float top = std::round(std::max(window.top, (window.top + window.bottom - high) / 2));
  const Pane pane(paint, "keys", window, faded(paint.theme.canvas, 0.75f), Pane::Kind::above);
  const Frame card{left, top, left + wide, top + high};
  paint.fill(card, paint.theme.panel, 10);
  paint.outline(card, paint.theme.outline, 10);
  paint.text({left + paint.px(28), top + paint.px(38)}, {Face::bold, 16, paint.theme.text}, "Keys");
  float y = top + paint.px(72);
  for (const Key& key : all_keys) {
    paint.text({left + paint.px(28), y}, {Face::mono, 13, paint.theme.now}, key.keys);
    paint.text({left + paint.px(190), y}, {Face::sans, 13, paint.theme.text}, key.does);
    y += paint.px(27);
  }
  if (Paint::press("close", window).clicked) desk.keys_shown = false;
}

void draw_notice(const Paint& paint, Frame canvas, std::string_view words) {
  const Pane pane(paint, "notice",
                  {canvas.left + paint.px(16), canvas.bottom - paint.px(50),
                   canvas.right - paint.px(16), canvas.bottom - paint.px(14)},
                  0, Pane::Kind::untouchable);
  const Ink ink{Face::sans, 13, paint.theme.text};
  const std::string shown = paint.cut(ink, words, pane.frame().width() - paint.px(28));
  Frame card = pane.frame();
  card.right = card.left + paint.width(ink, shown) + paint.px(28);
  paint.fill(card, paint.theme.button, 8);
  paint.outline(card, paint.theme.outline, 8);
  paint.text({card.left + paint.px(14), card.top + paint.px(23)}, ink, shown);
}

}  // namespace viewer
