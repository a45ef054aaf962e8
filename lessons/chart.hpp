// Curves in a terminal: a chart of characters, and one sentence a curve.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "lessons/words.hpp"

namespace lesson {

class Chart {
 public:
  void add(const std::string& curve, double x, double y) {
    auto found = std::find_if(curves_.begin(), curves_.end(),
                              [&](const Curve& one) { return one.name == curve; });
    if (found == curves_.end()) found = curves_.insert(curves_.end(), Curve{curve, {}});
    found->points.emplace_back(x, y);
  }

  bool empty() const { return curves_.empty(); }

  // The curves as a picture, the first one drawn last: it shows where they meet.
  void draw(std::ostream& out) const {
    const Range across = range([](const Point& point) { return point.first; });
    const Range up = range([](const Point& point) { return point.second; });
    std::vector<std::string> rows(height, std::string(width, ' '));
    for (std::size_t i = curves_.size(); i-- > 0;)
      for (const Point& point : curves_[i].points)
        if (std::isfinite(point.first) && std::isfinite(point.second))
          rows[height - 1 - up.cell(point.second, height)][across.cell(point.first, width)] =
              mark(i);
    for (std::size_t row = 0; row < height; ++row) {
      std::string label = row == 0            ? words::number(up.high, 4)
                          : row == height - 1 ? words::number(up.low, 4)
                                              : "";
      out << std::string(label.size() < 11 ? 11 - label.size() : 0, ' ') << label << " |"
          << rows[row].substr(0, rows[row].find_last_not_of(' ') + 1) << '\n';
    }
    const std::string left = words::number(across.low, 4);
    const std::string right = words::number(across.high, 4);
    const std::size_t gap =
        width > left.size() + right.size() ? width - left.size() - right.size() : 1;
    out << std::string(12, ' ') << '+' << std::string(width, '-') << '\n'
        << std::string(13, ' ') << left << std::string(gap, ' ') << right << '\n';
  }

  // "loss (o): 100 points, from 5.3 at 1 to 0.009 at 100"
  void tell(std::ostream& out) const {
    for (std::size_t i = 0; i < curves_.size(); ++i) {
      const auto& [first, last] = std::pair(curves_[i].points.front(), curves_[i].points.back());
      out << "  " << curves_[i].name << " (" << mark(i) << "): " << curves_[i].points.size()
          << " points, from " << words::number(first.second) << " at " << words::number(first.first)
          << " to " << words::number(last.second) << " at " << words::number(last.first) << '\n';
    }
  }

 private:
  static constexpr std::size_t width = 60, height = 12;
  using Point = std::pair<double, double>;
  struct Curve {
    std::string name;
    std::vector<Point> points;
  };
  struct Range {
    double low = 0, high = 0;
    std::size_t cell(double value, std::size_t cells) const {
      if (!(high > low)) return 0;
      const double share = (value / 2 - low / 2) / (high / 2 - low / 2);  // halves never overflow
      return static_cast<std::size_t>(share * static_cast<double>(cells - 1) + 0.5);
    }
  };

  static char mark(std::size_t curve) { return "o.x+*#"[curve % 6]; }

  // Over the finite values of all curves.
  template <class Coordinate>
  Range range(Coordinate coordinate) const {
    Range result{INFINITY, -INFINITY};
    for (const Curve& curve : curves_)
      for (const Point& point : curve.points)
        if (std::isfinite(coordinate(point))) {
          result.low = std::min(result.low, coordinate(point));
          result.high = std::max(result.high, coordinate(point));
        }
    return result;
  }

  std::vector<Curve> curves_;
};

}  // namespace lesson
