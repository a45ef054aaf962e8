#include "viewer/canvas.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace viewer {

namespace {

constexpr double fit_margin = 16;      // points around a graph that fits
constexpr double fit_at_most = 1.5;    // a small graph is not blown up further
constexpr float overview_gap = 10;     // points around the overview
constexpr float gliding_time = 0.09f;  // seconds in which two thirds of the way are gone
constexpr float click_slack = 4;       // pixels that a hand may tremble in a click

// At which zooms texts in boxes are read with ease. A graph that would be smaller than `whole` as a
// whole is seen in part: at `most` where its height fits, else smaller, but never below `least`.
struct Ease {
  double whole, least, most;
};
constexpr Ease in_the_window{0.8, 0.85, 1};
// Here all is larger, and what the step is about stands beside the graph: more of it may be seen.
constexpr Ease presenting{0.58, 0.72, 0.72};

Rect world_frame(Frame frame) { return {frame.left, frame.top, frame.width(), frame.height()}; }

Rect seen_in(const Camera& camera, Frame frame) {
  const Point low = camera.to_world({frame.left, frame.top});
  const Point high = camera.to_world({frame.right, frame.bottom});
  return {low.x, low.y, high.x - low.x, high.y - low.y};
}

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

void Canvas::follow_steps() {
  look_ = Look::following;
  at_once_ = true;
  goal_ = camera_;
}

void Canvas::whole_or_following() {
  if (look_ == Look::whole) {
    goal_ = before_whole_;
    look_ = Look::following;
  } else {
    before_whole_ = goal_;
    look_ = Look::whole;
  }
}

// The box of an item. What is in a closed scope has none of its own.
static const Box* box_of(const Shown& shown, const Desk& desk, Item item) {
  const Box* box = shown.scene->find(item);
  if (box != nullptr || item.kind != Item::Kind::op) return box;
  const std::optional<Id> closed = shown.timeline.closed_around(item.id, desk.view.toggled);
  return closed ? shown.scene->find({Item::Kind::scope, *closed}) : nullptr;
}

// A box, with the operation that hands it a gradient if both can be seen well.
static Rect with_giver(const Scene& scene, const Box& box, Rect room, double zoom) {
  Rect all = box.rect;
  for (const Stroke& line : scene.lines) {
    const bool gives = line.role == Role::active_edge && line.from == box.item;
    const Box* op = gives ? scene.find(line.to) : nullptr;
    if (op != nullptr) all = around(all, op->rect);
  }
  const bool fits = all.width * zoom < room.width / 2 && all.height * zoom < room.height / 2;
  return fits ? all : box.rect;
}

// What stands beside the overview.
static constexpr std::string_view hint = "F  the whole graph";
static constexpr float hint_gap = 10;  // points before it
static Ink hint_ink(const Paint& paint) { return {Face::sans, 12, paint.theme.faint}; }

void Canvas::place_overview(const Paint& paint, Frame frame, Rect bounds) {
  const float gap = paint.px(overview_gap), rim = paint.px(4);
  const float most = std::min(paint.px(72), frame.height() * 0.2f);
  const float beside = paint.width(hint_ink(paint), hint) + paint.px(hint_gap) + 2 * (gap + rim);
  const float widest = std::max(1.0f, std::min(frame.width() * 0.5f, frame.width() - beside));
  small_.fit(bounds, {0, 0, widest, most}, 0, 1);
  const float width = static_cast<float>(bounds.width * small_.zoom()) + 2 * rim;
  const float height = static_cast<float>(bounds.height * small_.zoom()) + 2 * rim;
  overview_ = {frame.left + gap, frame.bottom - gap - height, frame.left + gap + width,
               frame.bottom - gap};
  small_.fit(bounds, world_frame(overview_), rim, 1);
}

// The part of the frame that the graph has: the overview has a strip below it.
Frame Canvas::graph_in(const Paint& paint, Frame frame) const {
  if (!overview_.empty()) frame.bottom = std::round(overview_.top - paint.px(overview_gap));
  return frame;
}

// Decides where the view is to be.
void Canvas::aim(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk) {
  const Rect bounds = shown.scene->bounds;
  Camera whole;
  whole.fit(bounds, world_frame(frame), paint.px(fit_margin), fit_at_most * paint.scale());
  const Ease& ease = desk.presenting ? presenting : in_the_window;
  const bool fits = look_ == Look::whole || whole.zoom() >= ease.whole * paint.scale();
  const bool stepped = desk.cursor != followed_, chosen = desk.selected != selected_;
  if (stepped || about_.kind == Item::Kind::none) about_ = subject(shown.timeline, desk.cursor);
  if (chosen && desk.selected.kind != Item::Kind::none) about_ = desk.selected;
  followed_ = desk.cursor;
  selected_ = desk.selected;
  const Box* const box = box_of(shown, desk, about_);
  const Rect seen = seen_in(goal_, frame);
  const bool all_seen = look_ == Look::by_hand ? around(seen, bounds) == seen : fits;
  overview_ = {};
  if (!all_seen) place_overview(paint, frame, bounds);
  const Rect room = world_frame(graph_in(paint, frame));
  if (look_ == Look::by_hand) {
    if ((stepped || chosen) && box != nullptr) goal_.reveal(box->rect, room, paint.px(24));
  } else if (fits) {
    at_once_ = at_once_ || goal_ != whole;
    goal_ = whole;
  } else {
    const double of_its_height =
        (room.height - 2 * paint.px(fit_margin)) / std::max(1.0, bounds.height);
    const double zoom = std::clamp(of_its_height / paint.scale(), ease.least, ease.most);
    goal_.zoom_about({room.x, room.y}, zoom * paint.scale() / goal_.zoom());
    const Rect start{bounds.x, bounds.center().y, 0, 0};
    const Rect focus = box ? with_giver(*shown.scene, *box, room, goal_.zoom()) : start;
    goal_.follow(focus, bounds, room, paint.px(fit_margin));
  }
  const float passed = std::min(ImGui::GetIO().DeltaTime, 1.0f / 30);
  const bool gliding = !at_once_ && shown.options.shot.empty();
  camera_.go_to(goal_, gliding ? 1 - std::exp(-passed / gliding_time) : 1);
  if (shown.scene->settled) at_once_ = false;
}

// A click or a drag in the overview: the view goes there.
void Canvas::overview_moves_view(Frame graph) {
  const Paint::Press press = Paint::press("overview", overview_);
  if (press.hovered || press.held) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  if (!press.held) return;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const Point wanted = goal_.to_screen(small_.to_world({mouse.x, mouse.y}));
  goal_.pan({graph.middle() - wanted.x, (graph.top + graph.bottom) / 2 - wanted.y});
  camera_ = goal_;
  look_ = Look::by_hand;
}

Paint::Press Canvas::move(Frame graph) {
  const ImGuiIO& io = ImGui::GetIO();
  Paint::Press ground = Paint::press("canvas", graph);
  const auto by_hand = [this] {
    goal_ = camera_;
    look_ = Look::by_hand;
  };
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
      by_hand();
    }
  }
  if (ground.hovered && io.MouseWheel != 0) {
    camera_.zoom_about({io.MousePos.x, io.MousePos.y}, std::pow(1.15, io.MouseWheel));
    by_hand();
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

// All boxes without their texts, and which part of them the view shows.
void Canvas::draw_overview(const Paint& paint, Frame frame, const Scene& scene) const {
  const Theme& theme = paint.theme;
  const auto small = [&](Rect rect) {
    const Point low = small_.to_screen({rect.x, rect.y});
    const Point high = small_.to_screen({rect.x + rect.width, rect.y + rect.height});
    return Frame{static_cast<float>(low.x), static_cast<float>(low.y), static_cast<float>(high.x),
                 static_cast<float>(high.y)};
  };
  paint.rule(frame.left, frame.right, graph_in(paint, frame).bottom);
  paint.fill(overview_, theme.panel, 4);
  Paint::list().PushClipRect(overview_.low(), overview_.high(), true);
  for (const Box& scope : scene.scopes) paint.outline(small(scope.rect), theme.scope_outline, 2);
  for (const Box& box : scene.boxes)
    paint.fill(small(box.rect),
               box.progress == Progress::active    ? theme.now_line
               : box.progress == Progress::pending ? theme.pending_outline
                                                   : theme.edge,
               1);
  Frame seen = small(seen_in(camera_, graph_in(paint, frame)));
  seen = {std::max(seen.left, overview_.left + 1), std::max(seen.top, overview_.top + 1),
          std::min(seen.right, overview_.right - 1), std::min(seen.bottom, overview_.bottom - 1)};
  paint.fill(seen, faded(theme.text, 0.08f), 3);
  paint.outline(seen, theme.faint, 3);
  Paint::list().PopClipRect();
  paint.outline(overview_, theme.line, 4);
  paint.text({overview_.right + paint.px(hint_gap), overview_.bottom - paint.px(4)},
             hint_ink(paint), hint);
}

void Canvas::draw(const Paint& paint, Frame frame, const Shown& shown, Desk& desk) {
  const Pane pane(paint, "graph", frame, paint.theme.canvas);
  overview_moves_view(graph_in(paint, frame));  // before the ground, which lies below it
  const Paint::Press ground = move(graph_in(paint, frame));
  aim(paint, frame, shown, desk);
  react(shown, desk, ground);
  const Frame graph = graph_in(paint, frame);
  Paint::list().PushClipRect(graph.low(), graph.high(), true);
  Brush(paint, camera_, desk, shown).scene(*shown.scene);
  Paint::list().PopClipRect();
  if (!overview_.empty()) draw_overview(paint, frame, *shown.scene);
}

}  // namespace viewer
