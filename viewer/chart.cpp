#include "viewer/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "lessons/words.hpp"

namespace viewer {

// Beyond these the length of an axis would no longer be a number.
static constexpr double largest = 1e300;

std::size_t Axis::ticks() const {
  return static_cast<std::size_t>(std::lround((high - low) / step)) + 1;
}

double Axis::tick(std::size_t i) const {
  const double number = low + static_cast<double>(i) * step;
  return std::abs(number) < step / 2 ? 0 : number;  // sums of 0.1 miss it narrowly
}

std::string Axis::label(std::size_t i) const {
  const double size = std::max(std::abs(low), std::abs(high)) / step;
  return words::number(tick(i), static_cast<int>(std::clamp(std::log10(size) + 2, 6.0, 15.0)));
}

double Axis::part(double number) const { return (number - low) / (high - low); }

// The smallest of 1, 2, 5, 10, 20, ... that is not below `least`.
static double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

Axis axis_over(double low, double high, int most) {
  if (low > high) return {};
  low = std::clamp(low, -largest, largest);
  high = std::clamp(high, -largest, largest);
  // A single number stands in the middle; differences that no double can tell apart are none.
  const double size = std::max(std::abs(low), std::abs(high));
  const double least = size > 0 ? std::max(size * 1e-9, 1e-300) : 1;
  if (high - low < least) {
    const double half = high > low ? least : size > 0 ? size / 2 : 1;
    low -= half, high += half;
  }
  Axis axis;
  axis.step = round_step((high - low) / most);
  const auto fit = [&] {
    axis.low = std::floor(low / axis.step + 1e-9) * axis.step;
    axis.high = std::ceil(high / axis.step - 1e-9) * axis.step;
  };
  fit();
  if (axis.ticks() <= static_cast<std::size_t>(most) + 1) return axis;
  axis.step = round_step(axis.step * 1.5);  // both ends were rounded: one step too many
  fit();
  return axis;
}

bool can_be_drawn(const Curve::Point& point) {
  return std::abs(point.x) <= largest && std::abs(point.y) <= largest;
}

std::string reading(const Curve& curve, std::size_t count) {
  if (count == 0) return "not yet";
  const Curve::Point& last = curve.points[count - 1];
  std::string words = std::to_string(count) + (count == 1 ? " point" : " points");
  if (curve.to_the_right) words = words::number(last.y, 4) + " at " + words::number(last.x, 6);
  const auto end = curve.points.begin() + static_cast<std::ptrdiff_t>(count);
  const auto hidden = std::count_if(curve.points.begin(), end, [](const Curve::Point& point) {
    return !std::isfinite(point.x) || !std::isfinite(point.y);
  });
  return hidden == 0 ? words : words + ", " + std::to_string(hidden) + " not finite";
}

Axes axes_of(std::span<const Curve> curves, int most_across, int most_up) {
  const double none = std::numeric_limits<double>::infinity();
  double left = none, right = -none, low = none, high = -none;
  for (const Curve& curve : curves)
    for (const Curve::Point& point : curve.points) {
      if (!can_be_drawn(point)) continue;
      left = std::min(left, point.x), right = std::max(right, point.x);
      low = std::min(low, point.y), high = std::max(high, point.y);
    }
  return {axis_over(left, right, most_across), axis_over(low, high, most_up)};
}

std::vector<std::size_t> needed_for_a_line(std::span<const Curve::Point> points, const Axes& axes,
                                           double width) {
  std::vector<std::size_t> needed;
  std::array<std::size_t, 4> column{};  // first, lowest, highest, last
  double at = -1;
  const auto flush = [&] {
    if (at < 0) return;
    std::sort(column.begin(), column.end());
    needed.insert(needed.end(), column.begin(), std::unique(column.begin(), column.end()));
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!can_be_drawn(points[i])) continue;
    const double here = std::floor(axes.across.part(points[i].x) * width);
    if (here != at) {
      flush();
      column.fill(i);
      at = here;
    }
    if (points[i].y < points[column[1]].y) column[1] = i;
    if (points[i].y > points[column[2]].y) column[2] = i;
    column[3] = i;
  }
  flush();
  return needed;
}

}  // namespace viewer
