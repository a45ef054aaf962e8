#include "viewer/plots.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lessons/words.hpp"
#include "viewer/cells.hpp"
#include "viewer/chart.hpp"

namespace viewer {

namespace {

constexpr std::size_t most_legend = 6, most_pictures = 12;
constexpr float chart_height = 184, least_chart_height = 110, legend_pitch = 22;  // points
constexpr float picture_height = 156, tile_height = 96, tile_gap = 12;

// Left and right as in the inspector, below which it stands.
float left_of(const Paint& paint, Frame frame) { return frame.left + paint.px(20); }
float right_of(const Paint& paint, Frame frame) { return frame.right - paint.px(16); }

// ---- A chart -------------------------------------------------------------------------------------

class ChartPanel {
 public:
  ChartPanel(const Paint& paint, Frame frame, const Shown& shown, Desk& desk)
      : paint_(paint),
        theme_(paint.theme),
        timeline_(shown.timeline),
        desk_(desk),
        curves_(shown.timeline.chart(desk.cursor)),
        frame_(frame) {}

  void draw() {
    legend();
    axes_ = axes_of(curves_, static_cast<int>(frame_.width() / px(70)),
                    static_cast<int>(frame_.height() / px(34)));
    scales();
    Paint::list().PushClipRect({body_.left - px(6), body_.top - px(6)},
                               {body_.right + px(6), body_.bottom + px(6)}, true);
    for (std::size_t i = curves_.size(); i-- > 0;) curve(i);  // the first one lies above the others
    for (std::size_t i = curves_.size(); i-- > 0;) present(i);
    Paint::list().PopClipRect();
    pointed();
  }

 private:
  const Paint& paint_;
  const Theme& theme_;
  const Timeline& timeline_;
  Desk& desk_;
  std::span<const Curve> curves_;
  Frame frame_, body_;  // what is left of the panel; of it, where the curves are
  Axes axes_;

  float px(float points) const { return paint_.px(points); }
  ImU32 color(std::size_t curve) const { return theme_.curves[curve % theme_.curves.size()]; }
  std::size_t plotted(const Curve& curve) const { return timeline_.plotted(desk_.cursor, curve); }

  ImVec2 at(const Curve::Point& point) const {
    return {body_.left + body_.width() * static_cast<float>(axes_.across.part(point.x)),
            body_.bottom - body_.height() * static_cast<float>(axes_.up.part(point.y))};
  }

  // "loss   0.352 at 12", "velocity   24 points"
  void legend() {
    for (std::size_t i = 0; i < std::min(curves_.size(), most_legend); ++i) {
      const Curve& curve = curves_[i];
      const std::size_t count = plotted(curve);
      const float base = frame_.top + px(15), middle = base - px(5);
      if (curve.to_the_right)
        paint_.fill({frame_.left, middle - px(1.5f), frame_.left + px(16), middle + px(1.5f)},
                    color(i), 1.5f);
      else
        paint_.dot({frame_.left + px(8), middle}, 4, color(i));
      const Ink name{Face::sans, 13, theme_.text};
      Ink value{Face::mono, 13, count == 0 ? theme_.faint : color(i)};
      const std::string words = reading(curve, count);
      if (count > 0 && !std::isfinite(curve.points[count - 1].y)) value.color = theme_.warning;
      const float left = frame_.left + px(26);
      const float room = frame_.right - paint_.width(value, words) - px(14) - left;
      paint_.text({left, base}, name, paint_.cut(name, words::clean(curve.name), room));
      paint_.text_right({frame_.right, base}, value, words);
      frame_.top += px(legend_pitch);
    }
    if (curves_.size() <= most_legend) return;
    paint_.text({frame_.left + px(26), frame_.top + px(15)}, {Face::sans, 12, theme_.faint},
                "and " + std::to_string(curves_.size() - most_legend) + " more");
    frame_.top += px(legend_pitch);
  }

  // Where the curves may be drawn, with the numbers below and to the left of it.
  void scales() {
    const Ink ink{Face::sans, 12, theme_.faint};
    float widest = 0;
    for (std::size_t i = 0; i < axes_.up.ticks(); ++i)
      widest = std::max(widest, paint_.width(ink, axes_.up.label(i)));
    body_ = {std::round(frame_.left + widest + px(10)), std::round(frame_.top + px(12)),
             std::round(frame_.right - px(6)), std::round(frame_.bottom - px(22))};
    for (std::size_t i = 0; i < axes_.up.ticks(); ++i) {
      const float y = at({axes_.across.low, axes_.up.tick(i)}).y;
      paint_.rule(body_.left, body_.right, y);
      paint_.text_right({body_.left - px(10), y + px(4)}, ink, axes_.up.label(i));
    }
    float free = frame_.left;
    for (std::size_t i = 0; i < axes_.across.ticks(); ++i) {
      const float x = at({axes_.across.tick(i), axes_.up.low}).x;
      paint_.upright(x, body_.bottom, body_.bottom + px(4));
      const std::string label = axes_.across.label(i);
      const float width = paint_.width(ink, label);
      const float left = std::min(x - width / 2, frame_.right - width);
      if (left < free) continue;
      free = left + paint_.text({left, body_.bottom + px(18)}, ink, label) + px(8);
    }
  }

  // What has not happened yet is pale.
  void curve(std::size_t i) const {
    const Curve& curve = curves_[i];
    const std::size_t count = plotted(curve);
    const ImU32 pale = faded(color(i), 0.25f);
    if (!curve.to_the_right) {
      dots(std::span(curve.points).subspan(count), pale);
      dots(std::span(curve.points).first(count), color(i));
      return;
    }
    line(std::span(curve.points).subspan(count == 0 ? 0 : count - 1), pale, 1.5f);
    line(std::span(curve.points).first(count), color(i), 2);
  }

  void line(std::span<const Curve::Point> points, ImU32 ink, float thickness) const {
    std::vector<ImVec2> places;
    for (const std::size_t i : needed_for_a_line(points, axes_, body_.width())) {
      const ImVec2 place = at(points[i]);
      // ImGui has no direction for a line between two points that coincide.
      const bool same = !places.empty() && std::abs(place.x - places.back().x) < 0.5f &&
                        std::abs(place.y - places.back().y) < 0.5f;
      if (!same) places.push_back(place);
    }
    Paint::list().AddPolyline(places.data(), static_cast<int>(places.size()), ink, 0,
                              px(thickness));
  }

  // One for each few pixels: more cannot be told apart.
  void dots(std::span<const Curve::Point> points, ImU32 ink) const {
    const float size = px(2);
    const auto columns = static_cast<std::size_t>(std::max(1.0f, body_.width() / size)) + 2;
    const auto rows = static_cast<std::size_t>(std::max(1.0f, body_.height() / size)) + 2;
    std::vector<bool> taken(columns * rows);
    for (const Curve::Point& point : points) {
      if (!can_be_drawn(point)) continue;
      const ImVec2 place = at(point);
      const auto column = static_cast<std::size_t>(std::max(0.0f, (place.x - body_.left) / size));
      const auto row = static_cast<std::size_t>(std::max(0.0f, (place.y - body_.top) / size));
      const std::size_t cell = std::min(row, rows - 1) * columns + std::min(column, columns - 1);
      if (taken[cell]) continue;
      taken[cell] = true;
      Paint::list().AddCircleFilled(place, px(3), ink, 12);
    }
  }

  // The point at which a line has arrived.
  void present(std::size_t i) const {
    const Curve& curve = curves_[i];
    const std::size_t count = plotted(curve);
    if (count == 0 || !curve.to_the_right || !can_be_drawn(curve.points[count - 1])) return;
    const ImVec2 place = at(curve.points[count - 1]);
    paint_.dot(place, 6, theme_.panel);
    paint_.dot(place, 4.5f, theme_.knob);
  }

  // The point under the pointer, its numbers, and the step at which it was plotted.
  void pointed() {
    const Frame reach{body_.left - px(8), body_.top - px(8), body_.right + px(8),
                      body_.bottom + px(8)};
    const Paint::Press press = Paint::press("chart", reach);
    if (!press.hovered) return;
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    const Curve::Point* nearest = nullptr;
    float distance = px(14) * px(14);
    for (const Curve& curve : curves_)
      for (const Curve::Point& point : curve.points) {
        if (!can_be_drawn(point)) continue;
        const ImVec2 place = at(point);
        const float dx = place.x - mouse.x, dy = place.y - mouse.y;
        if (dx * dx + dy * dy >= distance) continue;
        distance = dx * dx + dy * dy;
        nearest = &point;
      }
    if (nearest == nullptr) return;
    const ImVec2 place = at(*nearest);
    Paint::list().AddCircle(place, px(6), theme_.text, 24, px(1.5f));
    const Ink ink{Face::mono, 12, theme_.text};
    const std::string words = words::number(nearest->x, 6) + ", " + words::number(nearest->y, 6);
    const float width = paint_.width(ink, words) + px(16), height = px(24);
    const float left = std::clamp(place.x - width / 2, frame_.left, frame_.right - width);
    const float top =
        place.y - px(12) - height < frame_.top ? place.y + px(12) : place.y - px(12) - height;
    paint_.fill({left, top, left + width, top + height}, theme_.button, 5);
    paint_.outline({left, top, left + width, top + height}, theme_.outline, 5);
    paint_.text({left + px(8), top + px(16)}, ink, words);
    if (press.clicked) desk_.stand(timeline_.after(nearest->event));
  }
};

// ---- Pictures ------------------------------------------------------------------------------------

// One picture has the room for itself and its numbers below it; several are tiles in rows.
struct Tiles {
  std::size_t shown = 0, in_a_row = 1;
  float width = 0, height = 0;  // of one image
};
Tiles tiles_for(const Paint& paint, std::size_t count, float room) {
  if (count <= 1) return {count, 1, room, paint.px(picture_height)};
  Tiles tiles{std::min(count, most_pictures), 1, 0, paint.px(tile_height)};
  const float gap = paint.px(tile_gap);
  tiles.in_a_row = static_cast<std::size_t>(std::clamp((room + gap) / (paint.px(tile_height) + gap),
                                                       1.0f, static_cast<float>(tiles.shown)));
  const auto in_a_row = static_cast<float>(tiles.in_a_row);
  tiles.width = (room - gap * (in_a_row - 1)) / in_a_row;
  return tiles;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
};
Range range_of(const Pictured& picture) {
  Range range;
  for (const float number : picture.numbers) {
    if (!std::isfinite(number)) continue;
    range.low = std::min<double>(range.low, number);
    range.high = std::max<double>(range.high, number);
  }
  return range;
}

float title_height(const Paint& paint, const Pictured& picture) {
  return picture.title.empty() ? 0 : paint.px(22);
}

// Answers the height. Numbers on both sides of 0 are a heat map about it, others a grey image.
float draw_picture(const Paint& paint, ImVec2 top_left, float width, float height, bool alone,
                   const Pictured& picture) {
  const float above = title_height(paint, picture);
  const Ink title{Face::sans, 13, paint.theme.text};
  if (above > 0)
    paint.text({top_left.x, top_left.y + paint.px(14)}, title,
               paint.cut(title, words::clean(picture.title), width));
  const Range range = range_of(picture);
  const bool both_sides = range.low < 0 && range.high > 0;
  const Plane plane{static_cast<std::size_t>(picture.rows),
                    static_cast<std::size_t>(picture.columns)};
  const auto number = [&](std::size_t i) { return static_cast<double>(picture.numbers[i]); };
  const CellsDrawn drawn = draw_cells(
      paint, {top_left.x, top_left.y + above}, width, height, plane,
      [&](std::size_t row, std::size_t column) {
        const double here = number(row * plane.columns + column);
        if (both_sides)
          return heat(paint.theme, here, std::max(-range.low, range.high), paint.theme.value);
        const double extent = range.high - range.low;
        return grey(paint.theme, extent > 0 ? (here - range.low) / extent : here - range.low);
      });
  float used = above + drawn.height;
  if (!alone) return used;
  const auto field = [](double value) { return words::field(value, true, 9); };
  std::string caption;
  if (drawn.hovered)
    caption = "[" + std::to_string(*drawn.hovered / plane.columns) + ", " +
              std::to_string(*drawn.hovered % plane.columns) + "]  " +
              field(number(*drawn.hovered));
  else if (range.low <= range.high)
    caption = "from " + field(range.low) + " to " + field(range.high);
  paint.text({top_left.x, top_left.y + used + paint.px(17)}, {Face::mono, 12, paint.theme.faint},
             caption);
  return used + paint.px(24);
}

// Calls `draw` with each picture and its place; it answers a height, and so does this, of them all.
template <class Draw>
float for_each_tile(const Paint& paint, const std::vector<const Pictured*>& pictures, float room,
                    Draw draw) {
  const Tiles tiles = tiles_for(paint, pictures.size(), room);
  float y = 0, row = 0;
  for (std::size_t i = 0; i < tiles.shown; ++i) {
    const Pictured& picture = *pictures[pictures.size() - tiles.shown + i];  // the last ones
    const std::size_t column = i % tiles.in_a_row;
    if (column == 0 && i > 0) y += row + paint.px(tile_gap);
    if (column == 0) row = 0;
    const float x = (tiles.width + paint.px(tile_gap)) * static_cast<float>(column);
    row = std::max(row, draw(x, y, tiles, picture));
  }
  return y + row;
}

float height_of(const Paint& paint, const Tiles& tiles, const Pictured& picture) {
  const float columns = static_cast<float>(picture.columns),
              rows = static_cast<float>(picture.rows);
  const float cell = std::min({tiles.width / columns, tiles.height / rows, paint.px(22)});
  return title_height(paint, picture) + std::max(cell, paint.px(1)) * rows +
         (tiles.shown == 1 ? paint.px(24) : 0);
}

float legend_height(const Paint& paint, std::size_t curves) {
  return paint.px(legend_pitch * static_cast<float>(std::min(curves, most_legend + 1)));
}

}  // namespace

float plots_height(const Paint& paint, float width, const Shown& shown, const Desk& desk) {
  const std::span<const Curve> curves = shown.timeline.chart(desk.cursor);
  const std::vector<const Pictured*> pictures = shown.timeline.pictures(desk.cursor);
  if (curves.empty() && pictures.empty()) return 0;
  float height = paint.px(14);
  if (!curves.empty()) height += legend_height(paint, curves.size()) + paint.px(chart_height + 14);
  if (pictures.empty()) return height;
  return height + paint.px(26) +
         for_each_tile(paint, pictures, width - paint.px(36),
                       [&](float, float, const Tiles& tiles, const Pictured& picture) {
                         return height_of(paint, tiles, picture);
                       });
}

void draw_plots(const Paint& paint, Frame frame, const Shown& shown, Desk& desk) {
  const Pane pane(paint, "plots", frame, paint.theme.panel);
  const float left = left_of(paint, frame), right = right_of(paint, frame);
  float y = pane.origin().y + paint.px(14);
  const std::span<const Curve> curves = shown.timeline.chart(desk.cursor);
  if (!curves.empty()) {
    // Where room is short the chart gives way before anything has to be scrolled.
    const float missing = plots_height(paint, frame.width(), shown, desk) - frame.height();
    const float height = std::max(paint.px(least_chart_height), paint.px(chart_height) - missing);
    const float bottom = y + legend_height(paint, curves.size()) + height;
    ChartPanel(paint, {left, y, right, bottom}, shown, desk).draw();
    y = bottom + paint.px(14);
  }
  const std::vector<const Pictured*> pictures = shown.timeline.pictures(desk.cursor);
  if (!pictures.empty())
    y += paint.px(26) +
         for_each_tile(paint, pictures, right - left,
                       [&](float x, float down, const Tiles& tiles, const Pictured& picture) {
                         return draw_picture(paint, {left + x, y + down}, tiles.width, tiles.height,
                                             tiles.shown == 1, picture);
                       });
  pane.grows(y - pane.origin().y);
}

}  // namespace viewer
