#include "viewer/camera.hpp"

#include <algorithm>

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
  zoom_ = std::clamp(zoom_ * factor, smallest_zoom, largest_zoom);
  shift_ = {screen.x - held.x * zoom_, screen.y - held.y * zoom_};
}

void Camera::fit(Rect world, Rect screen, double margin, double at_most) {
  const double room_x = screen.width - 2 * margin;
  const double room_y = screen.height - 2 * margin;
  if (world.width <= 0 || world.height <= 0 || room_x <= 0 || room_y <= 0) return;
  const double wanted = std::min(room_x / world.width, room_y / world.height);
  zoom_ = std::clamp(std::min(wanted, at_most), smallest_zoom, largest_zoom);
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

}  // namespace viewer
