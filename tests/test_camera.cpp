// The camera over the graph: pan, zoom about the pointer, fit, reveal.
#include "tests/catch.hpp"
#include "viewer/camera.hpp"

using viewer::Camera;
using viewer::Point;
using viewer::Rect;

static void check_same(Point a, Point b) {
  CHECK(a.x == Approx(b.x).margin(1e-9));
  CHECK(a.y == Approx(b.y).margin(1e-9));
}

TEST_CASE("to_world undoes to_screen after any pan and zoom") {
  Camera camera;
  camera.pan({17, -40});
  camera.zoom_about({300, 200}, 1.7);
  camera.pan({-3.5, 8});
  check_same(camera.to_world(camera.to_screen({12.25, -7})), {12.25, -7});
}

TEST_CASE("a pan moves every point by the same pixels, whatever the zoom is") {
  Camera camera;
  camera.zoom_about({0, 0}, 3);
  const Point before = camera.to_screen({5, 6});
  camera.pan({10, -20});
  check_same(camera.to_screen({5, 6}), {before.x + 10, before.y - 20});
}

TEST_CASE("zooming keeps what is under the pointer under it, also at the limits") {
  Camera camera;
  camera.pan({31, 12});
  const Point pointer{640, 333};
  const Point held = camera.to_world(pointer);
  for (double factor : {1.1, 2.0, 0.3, 1e9, 1e-12}) {
    camera.zoom_about(pointer, factor);
    check_same(camera.to_world(pointer), held);
  }
  CHECK(camera.zoom() == Camera::smallest_zoom);
}

TEST_CASE("zooming in and out by the same factor comes back to the same picture") {
  Camera camera;
  camera.zoom_about({100, 50}, 1.25);
  camera.zoom_about({100, 50}, 1 / 1.25);
  check_same(camera.to_screen({0, 0}), {0, 0});
  CHECK(camera.zoom() == Approx(1));
}

TEST_CASE("fit shows the whole graph in the middle, with the margin asked for") {
  Camera camera;
  const Rect screen{300, 44, 746, 578};
  camera.fit({-100, -50, 2000, 500}, screen, 16, 5);
  check_same(camera.to_screen({900, 200}), {673, 333});
  CHECK(camera.to_screen({-100, 0}).x == Approx(316));
  CHECK(camera.to_screen({1900, 0}).x == Approx(1030));
  CHECK(camera.to_screen({0, 450}).y < 606);
}

TEST_CASE("fit shows all of a graph that is smaller then than a hand may make it") {
  Camera camera;
  const Rect screen{0, 0, 300, 100};
  camera.fit({0, 0, 300000, 50000}, screen, 0, 1);
  CHECK(camera.to_screen({0, 0}).x == Approx(0).margin(1e-9));
  CHECK(camera.to_screen({300000, 0}).x == Approx(300));
  CHECK(camera.zoom() < Camera::smallest_zoom);
  const double before = camera.zoom();
  camera.zoom_about({0, 0}, 0.5);
  CHECK(camera.zoom() == before);
  camera.zoom_about({0, 0}, 1.5);
  CHECK(camera.zoom() == Approx(1.5 * before));
}

TEST_CASE("fit does not magnify a small graph beyond the limit given") {
  Camera camera;
  camera.fit({0, 0, 10, 10}, {0, 0, 1000, 1000}, 0, 1.5);
  CHECK(camera.zoom() == 1.5);
  check_same(camera.to_screen({5, 5}), {500, 500});
}

TEST_CASE("fit leaves the camera alone when the window is minimised or the graph is empty") {
  Camera camera;
  camera.pan({3, 4});
  camera.fit({0, 0, 10, 10}, {0, 0, 0, 0}, 16, 2);
  camera.fit({0, 0, 0, 0}, {0, 0, 800, 600}, 16, 2);
  check_same(camera.to_screen({0, 0}), {3, 4});
  CHECK(camera.zoom() == 1);
}

TEST_CASE("reveal moves only as far as a box outside the window asks") {
  Camera camera;
  camera.reveal({10, 10, 10, 10}, {0, 0, 100, 100}, 5);
  check_same(camera.to_screen({0, 0}), {0, 0});
  camera.reveal({150, 10, 10, 10}, {0, 0, 100, 100}, 5);
  check_same(camera.to_screen({160, 10}), {95, 10});
  camera.reveal({-500, -500, 1000, 1000}, {0, 0, 100, 100}, 5);
  check_same(camera.to_screen({-500, -500}), {5, 5});
}

TEST_CASE("the view follows what comes near its rim, and brings it to the middle") {
  const Rect world{0, 0, 3000, 400}, screen{300, 50, 700, 500};
  Camera camera;
  camera.follow({20, 200, 100, 60}, world, screen, 16);
  check_same(camera.to_screen({0, 200}), {316, 300});  // at the left end, level in the middle
  const Camera at_the_start = camera;
  camera.follow({450, 200, 100, 60}, world, screen, 16);
  CHECK(camera == at_the_start);  // still well in sight: nothing moves
  camera.follow({900, 200, 100, 60}, world, screen, 16);
  check_same(camera.to_screen({950, 200}), {650, 300});
  camera.follow({2900, 200, 100, 60}, world, screen, 16);
  check_same(camera.to_screen({3000, 200}), {984, 300});  // no empty ground behind the right end
  const Camera at_the_end = camera;
  camera.follow({2900, 200, 100, 60}, world, screen, 16);
  CHECK(camera == at_the_end);
}

TEST_CASE("the view follows upwards and downwards in a graph that is higher than the screen") {
  const Rect world{-50, 0, 100, 4000}, screen{0, 0, 700, 500};
  Camera camera;
  camera.follow({-20, 2000, 40, 20}, world, screen, 16);
  check_same(camera.to_screen({0, 2010}), {350, 250});
}

TEST_CASE("a camera glides to another one and arrives") {
  Camera camera, goal;
  goal.zoom_about({100, 100}, 0.5);
  goal.pan({-800, 30});
  camera.go_to(goal, 0.5);
  CHECK(camera.zoom() == Approx(0.75));
  CHECK(camera != goal);
  for (int i = 0; i < 20; ++i) camera.go_to(goal, 0.5);
  CHECK(camera == goal);
  Camera other;
  other.go_to(goal, 1);
  CHECK(other == goal);
}
