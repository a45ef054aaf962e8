#include "viewer/camera.hpp"

#include <algorithm>
#include <cmath>

namespace viewer {

Point Camera::to_screen(Point world) const {
  return {world.x * zoom_ + shift_.x, world.y * zoom_ + shift_.y};
}

Point Camera::to_world(Point screen) const {
  return {(screen.x - shift_.x) / zoom_, (screen.y - shift_.y) / zoom_};
}

void Camera::pan(Point by_pixels) {
  shift_.x += by_pixels.x;
  shift_.y += by_pixels.y;
}

void Camera::zoom_about(Point screen, double factor) {
  const Point held = to_world(screen);
  // What was fitted may be smaller already than a hand may make it.
  zoom_ = std::clamp(zoom_ * factor, std::min(zoom_, smallest_zoom), largest_zoom);
  shift_ = {screen.x - held.x * zoom_, screen.y - held.y * zoom_};
}

void Camera::fit(Rect world, Rect screen, double margin, double at_most) {
  const double room_x = screen.width - 2 * margin;
  const double room_y = screen.height - 2 * margin;
  if (world.width <= 0 || world.height <= 0 || room_x <= 0 || room_y <= 0) return;
  const double wanted = std::min(room_x / world.width, room_y / world.height);
  zoom_ = std::min({wanted, at_most, largest_zoom});
  const Point middle = world.center();
  shift_ = {screen.center().x - middle.x * zoom_, screen.center().y - middle.y * zoom_};
}

// How far an interval must move to lie in another one; its start comes first when it does not fit.
static double shift_into(double low, double high, double room_low, double room_high) {
  if (low < room_low || high - low > room_high - room_low) return room_low - low;
  return high > room_high ? room_high - high : 0;
}

void Camera::reveal(Rect world, Rect screen, double margin) {
  const Point low = to_screen({world.x, world.y});
  const Point high = to_screen({world.x + world.width, world.y + world.height});
  pan({shift_into(low.x, high.x, screen.x + margin, screen.x + screen.width - margin),
       shift_into(low.y, high.y, screen.y + margin, screen.y + screen.height - margin)});
}

// How far an interval must move to fill a room; it stands in the middle of one that is larger.
static double shift_to_fill(double low, double high, double room_low, double room_high) {
  if (high - low <= room_high - room_low) return (room_low + room_high - low - high) / 2;
  return std::max(std::min(0.0, room_low - low), room_high - high);
}

void Camera::follow(Rect focus, Rect world, Rect screen, double margin) {
  constexpr double rim = 0.12;  // of the screen: what stands there is about to leave it
  const Point wanted = to_screen(focus.center());
  const double half_width = focus.width * zoom_ / 2, half_height = focus.height * zoom_ / 2;
  const Point middle = screen.center();
  if (std::abs(wanted.x - middle.x) + half_width > screen.width * (0.5 - rim))
    pan({middle.x - wanted.x, 0});
  if (std::abs(wanted.y - middle.y) + half_height > screen.height * (0.5 - rim))
    pan({0, middle.y - wanted.y});
  const Point low = to_screen({world.x, world.y});
  const Point high = to_screen({world.x + world.width, world.y + world.height});
  pan({shift_to_fill(low.x, high.x, screen.x + margin, screen.x + screen.width - margin),
       shift_to_fill(low.y, high.y, screen.y + margin, screen.y + screen.height - margin)});
}

void Camera::go_to(const Camera& goal, double part) {
  const double far = std::abs(goal.shift_.x - shift_.x) + std::abs(goal.shift_.y - shift_.y);
  if (part >= 1 || (far < 0.5 && std::abs(goal.zoom_ / zoom_ - 1) < 1e-3)) {
    *this = goal;
    return;
  }
  zoom_ += (goal.zoom_ - zoom_) * part;
  shift_.x += (goal.shift_.x - shift_.x) * part;
  shift_.y += (goal.shift_.y - shift_.y) * part;
}

}  // namespace viewer
