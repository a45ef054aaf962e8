// Where the reader looks at the graph from: a place and a magnification, and nothing else. Pure mathematics.
#pragma once

namespace viewer {

struct Spot {
  double x = 0, y = 0;
  bool operator==(const Spot&) const = default;
};

struct Area {
  double left = 0, top = 0, right = 0, bottom = 0;
  double width() const { return right - left; }
  double height() const { return bottom - top; }
  bool holds(Spot p) const { return p.x >= left && p.x < right && p.y >= top && p.y < bottom; }
  bool operator==(const Area&) const = default;
};

// screen = world * zoom + shift
class Camera {
 public:
  static constexpr double smallest_zoom = 0.02;
  static constexpr double largest_zoom = 12;

  double zoom() const { return zoom_; }
  Spot to_screen(Spot world) const;
  Spot to_world(Spot screen) const;

  void pan(Spot by_pixels);

  // What lies under `screen` stays under it.
  void zoom_about(Spot screen, double factor);

  // Shows all of `world` in the middle of `screen`, with `margin` pixels around it, and never larger than
  // `at_most` times: a graph of three boxes should not fill a wall. An empty area on either side changes nothing.
  void fit(Area world, Area screen, double margin, double at_most);

  // Moves as little as possible so that `world` lies inside `screen`; where it is larger, its top left corner does.
  void reveal(Area world, Area screen, double margin);

 private:
  double zoom_ = 1;
  Spot shift_;
};

}  // namespace viewer
