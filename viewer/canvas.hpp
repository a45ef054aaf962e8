// The graph: draws the scene, and lets the reader move over it, select and open boxes.
#pragma once

#include "viewer/camera.hpp"
#include "viewer/desk.hpp"
#include "viewer/paint.hpp"

namespace viewer {

class Canvas {
 public:
  void draw(const Paint& paint, Frame frame, const Shown& shown, Desk& desk);

  // Shows the whole graph, now and whenever it or the window changes, until the reader moves it.
  void fit() {
    touched_ = false;
    fitted_scene_ = {};
  }

  // Where a point of the graph is on the screen; for tests that click on it.
  ImVec2 place_of(Point point) const;

 private:
  // Answers what the mouse did on the ground; a drag is no click.
  Paint::Press move(const Paint& paint, Frame frame, const Shown& shown);
  void react(const Shown& shown, Desk& desk, Paint::Press ground);
  void follow(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk);

  Camera camera_;
  Cursor followed_;
  bool touched_ = false;
  Rect fitted_scene_, fitted_frame_;
  ImVec2 dragged_from_;  // where the hand took the graph
  float dragged_ = 0;    // how far it has come: a click is not a drag
};

}  // namespace viewer
