// Where the reader looks at the graph from: a place and a magnification, and nothing else. Pure
// mathematics.
#pragma once

#include "viewer/layout.hpp"

namespace viewer {

// screen = world * zoom + shift
class Camera {
 public:
  static constexpr double smallest_zoom = 0.02;
  static constexpr double largest_zoom = 12;

  double zoom() const { return zoom_; }
  Point to_screen(Point world) const;
  Point to_world(Point screen) const;

  void pan(Point by_pixels);

  // What lies under `screen` stays under it.
  void zoom_about(Point screen, double factor);

  // Shows all of `world` in the middle of `screen`, with `margin` pixels around it, and never
  // larger than `at_most` times: a graph of three boxes should not fill a wall. An empty area on
  // either side changes nothing.
  void fit(Rect world, Rect screen, double margin, double at_most);

  // Moves as little as possible so that `world` lies inside `screen`; where it is larger, its top
  // left corner does.
  void reveal(Rect world, Rect screen, double margin);

  // Keeps `focus` in sight: moves only when it comes near the rim of `screen`, and then brings it
  // to the middle. Shows no empty ground beyond `world` where there is more of it on the other
  // side.
  void follow(Rect focus, Rect world, Rect screen, double margin);

  // Goes that part of the way to where another camera stands; the last half pixel at once.
  void go_to(const Camera& goal, double part);

  bool operator==(const Camera&) const = default;

 private:
  double zoom_ = 1;
  Point shift_;
};

}  // namespace viewer
