#include "viewer/canvas.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace viewer {

namespace {

constexpr double fit_margin = 16;    // points around a graph that fits
constexpr double fit_at_most = 1.5;  // a small graph is not blown up further
constexpr float click_slack = 4;     // pixels that a hand may tremble in a click

Rect world_frame(Frame frame) { return {frame.left, frame.top, frame.width(), frame.height()}; }

bool touches(const Stroke& line, Item item) {
  return item.kind != Item::Kind::none && (line.from == item || line.to == item);
}

// Draws one scene through one camera.
class Brush {
 public:
  Brush(const Paint& paint, const Camera& camera, const Desk& desk, const Shown& shown)
      : paint_(paint), camera_(camera), desk_(desk), shown_(shown) {}

  void scene(const Scene& scene) const {
    for (const Box& scope : scene.scopes) box(scope);
    for (const Stroke& line : scene.lines) stroke(line);
    for (const Box& one : scene.boxes) box(one);
    for (const Stroke& line : scene.lines)
      if (line.label) label(*line.label);
  }

 private:
  const Paint& paint_;
  const Camera& camera_;
  const Desk& desk_;
  const Shown& shown_;

  ImVec2 at(Point p) const {
    const Point s = camera_.to_screen(p);
    return {static_cast<float>(s.x), static_cast<float>(s.y)};
  }
  float length(double points) const { return static_cast<float>(points * camera_.zoom()); }
  ImU32 color(Role role) const { return color_of(paint_.theme, role); }

  // Lines stay visible when the graph is far away, and never become bars when it is near.
  float thickness(double points) const {
    return std::clamp(length(points), paint_.px(0.75f), paint_.px(static_cast<float>(points) * 2));
  }

  bool lit(Item item) const {
    if (item == desk_.pointed_before.item) return true;
    const Line& line = desk_.pointed_before.line;
    return line.number != 0 && shown_.line_of(item) == line;
  }

  void box(const Box& box) const {
    const ImVec2 low = at({box.rect.x, box.rect.y});
    const ImVec2 high = at({box.rect.x + box.rect.width, box.rect.y + box.rect.height});
    const Frame frame{low.x, low.y, high.x, high.y};
    const bool bright = lit(box.item);
    const ImU32 ground = color(box.fill);
    shape(box, frame, bright ? blended(ground, paint_.theme.text, 0.10f) : ground, 0);
    const ImU32 rim = color(box.outline);
    shape(box, frame, bright ? blended(rim, paint_.theme.text, 0.35f) : rim,
          thickness(box.outline_width));
    if (desk_.selected.kind != Item::Kind::none && box.item == desk_.selected) {
      const float gap = paint_.px(4);
      Box ring = box;
      ring.dashed = false;
      ring.rounding += gap / std::max(0.01, camera_.zoom());
      shape(ring, {low.x - gap, low.y - gap, high.x + gap, high.y + gap},
            faded(paint_.theme.text, 0.7f), paint_.px(1.25f));
    }
    for (const Text& text : box.texts) words(text);
  }

  // Filled when `line` is 0, else outlined with that thickness.
  void shape(const Box& box, Frame frame, ImU32 color, float line) const {
    ImDrawList& list = Paint::list();
    const float rounding = std::min(length(box.rounding), frame.height() / 2);
    if (box.round)
      ellipse(frame);
    else
      list.PathRect(frame.low(), frame.high(), rounding);
    if (line == 0)
      list.PathFillConvex(color);
    else if (box.dashed)
      dash(true, color, line);
    else
      list.PathStroke(color, ImDrawFlags_Closed, line);
  }

  static void ellipse(Frame frame) {
    const float radius_x = frame.width() / 2, radius_y = frame.height() / 2;
    const int parts = std::clamp(static_cast<int>(radius_x + radius_y), 24, 96);
    for (int i = 0; i < parts; ++i) {
      const float angle =
          2 * std::numbers::pi_v<float> * static_cast<float>(i) / static_cast<float>(parts);
      Paint::list().PathLineTo({frame.middle() + radius_x * std::cos(angle),
                                (frame.top + frame.bottom) / 2 + radius_y * std::sin(angle)});
    }
  }

  // Strokes the current path in dashes, and clears it.
  void dash(bool closed, ImU32 color, float line) const {
    ImDrawList& list = Paint::list();
    std::vector<ImVec2> path(list._Path.begin(), list._Path.end());
    list.PathClear();
    if (closed && !path.empty()) path.push_back(path.front());
    const float period = std::max(length(9), 4.0f), drawn = period * 0.6f;
    float walked = 0;
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      const ImVec2 from = path[i], to = path[i + 1];
      const float size = std::hypot(to.x - from.x, to.y - from.y);
      float done = 0;
      while (done < size) {
        const float phase = std::fmod(walked + done, period);
        const bool on = phase < drawn;
        const float part = std::max(std::min((on ? drawn : period) - phase, size - done), 0.1f);
        if (on) {
          const float a = done / size, b = std::min(1.0f, (done + part) / size);
          list.AddLine({from.x + (to.x - from.x) * a, from.y + (to.y - from.y) * a},
                       {from.x + (to.x - from.x) * b, from.y + (to.y - from.y) * b}, color, line);
        }
        done += part;
      }
      walked += size;
    }
  }

  void stroke(const Stroke& line) const {
    if (line.curve.empty()) return;
    ImDrawList& list = Paint::list();
    const Item pointed = desk_.pointed_before.item;
    const bool bright = touches(line, pointed) || touches(line, desk_.selected);
    const ImU32 color =
        bright ? blended(this->color(line.role), paint_.theme.text, 0.35f) : this->color(line.role);
    list.PathLineTo(at(line.curve[0]));
    for (std::size_t i = 1; i + 2 < line.curve.size(); i += 3)
      list.PathBezierCubicCurveTo(at(line.curve[i]), at(line.curve[i + 1]), at(line.curve[i + 2]));
    if (line.dashed)
      dash(false, color, thickness(line.width));
    else
      list.PathStroke(color, 0, thickness(line.width));
    if (line.arrow.size() >= 3) {
      for (const Point& corner : line.arrow) list.PathLineTo(at(corner));
      list.PathFillConvex(color);
    }
  }

  void words(const Text& text) const {
    const float size = length(text.size) / paint_.scale();
    if (size * paint_.scale() < 4.5f) return;  // too small to be read
    const Face face = text.font == Font::bold     ? Face::bold
                      : text.font == Font::italic ? Face::bold_oblique
                      : text.font == Font::mono   ? Face::mono
                                                  : Face::sans;
    const Ink ink{face, size, color(text.role)};
    if (text.align == Align::left) paint_.text(at(text.at), ink, text.text);
    if (text.align == Align::middle) paint_.text_middle(at(text.at), ink, text.text);
    if (text.align == Align::right) paint_.text_right(at(text.at), ink, text.text);
  }

  // A label has the ground's colour around it: lines may pass beneath.
  void label(const Text& text) const {
    const float size = length(text.size) / paint_.scale();
    if (size * paint_.scale() < 4.5f) return;
    const float width = paint_.width({Face::sans, size, 0}, text.text);
    const float pad = length(3);
    ImVec2 left = at(text.at);
    if (text.align == Align::middle) left.x -= width / 2;
    if (text.align == Align::right) left.x -= width;
    paint_.fill({left.x - pad, left.y - length(text.size), left.x + width + pad, left.y + pad},
                faded(paint_.theme.canvas, 0.85f), 3);
    words(text);
  }
};

}  // namespace

ImVec2 Canvas::place_of(Point point) const {
  const Point place = camera_.to_screen(point);
  return {static_cast<float>(place.x), static_cast<float>(place.y)};
}

Paint::Press Canvas::move(const Paint& paint, Frame frame, const Shown& shown) {
  const ImGuiIO& io = ImGui::GetIO();
  Paint::Press ground = Paint::press("canvas", frame);
  if (ground.begun) {
    dragged_ = 0;
    dragged_from_ = io.MousePos;
  }
  if (ground.held || ground.ended) {
    const ImVec2 by{io.MousePos.x - dragged_from_.x, io.MousePos.y - dragged_from_.y};
    dragged_ = std::max(dragged_, std::hypot(by.x, by.y));
    if (dragged_ > click_slack && (by.x != 0 || by.y != 0)) {
      camera_.pan({by.x, by.y});
      dragged_from_ = io.MousePos;
      touched_ = true;
    }
  }
  if (ground.hovered && io.MouseWheel != 0) {
    camera_.zoom_about({io.MousePos.x, io.MousePos.y}, std::pow(1.15, io.MouseWheel));
    touched_ = true;
  }
  const Rect room = world_frame(frame);
  if (!touched_ && !(fitted_scene_ == shown.scene->bounds && fitted_frame_ == room)) {
    camera_.fit(shown.scene->bounds, room, paint.px(fit_margin), fit_at_most * paint.scale());
    fitted_scene_ = shown.scene->bounds;
    fitted_frame_ = room;
  }
  if (dragged_ > click_slack) ground.clicked = false;
  return ground;
}

void Canvas::react(const Shown& shown, Desk& desk, Paint::Press ground) {
  const ImGuiIO& io = ImGui::GetIO();
  if (!ground.hovered) return;
  const Box* box = shown.scene->hit(camera_.to_world({io.MousePos.x, io.MousePos.y}));
  if (box != nullptr) {
    desk.pointed.item = box->item;
    ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  }
  if (io.MouseDoubleClicked[0] && box != nullptr && box->item.kind == Item::Kind::scope) {
    if (desk.view.toggled.erase(box->item.id) == 0) desk.view.toggled.insert(box->item.id);
    return;
  }
  if (!ground.clicked) return;
  desk.selected = box == nullptr ? Item{} : box->item;
  if (desk.view.cover_gradients && box != nullptr && box->item.kind == Item::Kind::tensor)
    desk.view.uncovered.insert(box->item.id);
}

// Where the reader has zoomed in, a step brings what it is about into view.
void Canvas::follow(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk) {
  if (desk.cursor == followed_) return;
  followed_ = desk.cursor;
  const Box* box = shown.scene->find(subject(shown.timeline, desk.cursor));
  if (touched_ && box != nullptr) camera_.reveal(box->rect, world_frame(frame), paint.px(24));
}

void Canvas::draw(const Paint& paint, Frame frame, const Shown& shown, Desk& desk) {
  const Pane pane(paint, "graph", frame, paint.theme.canvas);
  react(shown, desk, move(paint, frame, shown));
  follow(paint, frame, shown, desk);
  Brush(paint, camera_, desk, shown).scene(*shown.scene);
}

}  // namespace viewer
