// The geometry of a chart: round numbers along its axes, and no more points than a screen can show.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "viewer/timeline.hpp"

namespace viewer {

// From one round number to another, with round numbers in between.
struct Axis {
  double low = 0, high = 1;  // multiples of `step`
  double step = 1;

  std::size_t ticks() const;               // at least two
  double tick(std::size_t i) const;        // its number
  std::string label(std::size_t i) const;  // in as many digits as tell it from its neighbours
  double part(double number) const;        // where it lies: 0 at `low`, 1 at `high`
};

// An axis that holds the numbers from `low` to `high`, with at most `most` steps. Without any
// numbers (low > high) it goes from 0 to 1.
Axis axis_over(double low, double high, int most);

struct Axes {
  Axis across, up;
};

// Room for all points of all curves, also of those still to come: so nothing moves while one steps.
Axes axes_of(std::span<const Curve> curves, int most_across, int most_up);

bool can_be_drawn(const Curve::Point& point);  // neither NaN nor beyond all axes

// What the legend says of the first `count` points of a curve: "0.352 at 12", "24 points", and how
// many of them are not finite, because those are not drawn.
std::string reading(const Curve& curve, std::size_t count);

// The points, by number, that a line of so many pixels needs: of those that fall on one column of
// pixels the first, the lowest, the highest and the last.
std::vector<std::size_t> needed_for_a_line(std::span<const Curve::Point> points, const Axes& axes,
                                           double width);

}  // namespace viewer
