// The graph: draws the scene, and lets the reader move over it, select and open boxes.
#pragma once

#include "viewer/camera.hpp"
#include "viewer/desk.hpp"
#include "viewer/paint.hpp"

namespace viewer {

class Canvas {
 public:
  void draw(const Paint& paint, Frame frame, const Shown& shown, Desk& desk);

  // From now on the graph is seen whole if it can be read then; else the view goes with the steps,
  // and a small overview shows which part it is. So it stays until the reader moves it.
  void follow_steps();
  // The whole graph, however small; or back to following the steps.
  void whole_or_following();

  bool settled() const { return camera_ == goal_; }  // false: gliding; draw again soon

  // Where a point of the graph is on the screen; for tests that click on it.
  ImVec2 place_of(Point point) const;
  Frame overview() const { return overview_; }  // empty while there is none

 private:
  enum class Look { following, whole, by_hand };

  void aim(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk);
  void place_overview(const Paint& paint, Frame frame, Rect bounds);
  void overview_moves_view(Frame graph);
  Frame graph_in(const Paint& paint, Frame frame) const;
  // Answers what the mouse did on the ground; a drag is no click.
  Paint::Press move(Frame graph);
  void react(const Shown& shown, Desk& desk, Paint::Press ground);
  void draw_overview(const Paint& paint, Frame frame, const Scene& scene) const;

  Look look_ = Look::following;
  Camera camera_, goal_;  // where the view is, and where it glides to
  Camera before_whole_;   // where it was when the whole graph was asked for
  bool at_once_ = true;   // it does not glide there
  Cursor followed_;
  Item selected_;  // what was selected then
  Item about_;     // what is kept in sight: what the step is about, or what was selected since
  Frame overview_;
  Camera small_;         // through which the overview is seen
  ImVec2 dragged_from_;  // where the hand took the graph
  float dragged_ = 0;    // how far it has come: a click is not a drag
};

}  // namespace viewer
