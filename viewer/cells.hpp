// A matrix as a grid of coloured cells.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "viewer/paint.hpp"

namespace viewer {

// From the theme's colour for the most negative number over the ground at 0 to `color`; `largest`
// is the greatest distance from 0. What is no number is a warning.
ImU32 heat(const Theme& theme, double number, double largest, ImU32 color);

// From black at 0 to white at 1, as in a photograph, in either theme.
ImU32 grey(const Theme& theme, double part);

struct Plane {
  std::size_t rows = 1, columns = 1;
};

struct CellsDrawn {
  float width = 0, height = 0;
  std::optional<std::size_t> hovered;  // the cell under the pointer, counted row by row
};

// Cells of equal size, in at most so much room. `color(row, column)` is asked for each.
template <class Color>
CellsDrawn draw_cells(const Paint& paint, ImVec2 top_left, float most_width, float most_height,
                      Plane plane, Color color) {
  most_width = std::max(most_width, paint.px(1));
  const float columns = static_cast<float>(plane.columns), rows = static_cast<float>(plane.rows);
  const float cell =
      std::max(paint.px(1), std::min({most_width / columns, most_height / rows, paint.px(22)}));
  // A few long rows or columns would be a hair; they are no picture that this could distort.
  const auto at_least = [&](std::size_t count, float most) {
    return count <= 4 ? std::max(cell, std::min(most, paint.px(12))) : cell;
  };
  const float wide = at_least(plane.columns, most_width / columns);
  const float tall = at_least(plane.rows, most_height / rows);
  // More cells than pixels: draw one of several.
  const auto stride_x = static_cast<std::size_t>(std::ceil(columns * cell / most_width));
  const auto stride_y = static_cast<std::size_t>(std::ceil(rows * cell / most_height));
  const float gap = cell > paint.px(6) ? paint.px(1) : 0;
  CellsDrawn drawn;
  Frame pointed;
  float y = top_left.y;
  for (std::size_t row = 0; row < plane.rows; row += stride_y, y += tall) {
    float x = top_left.x;
    for (std::size_t column = 0; column < plane.columns; column += stride_x, x += wide) {
      const Frame frame{x, y, x + wide - gap, y + tall - gap};
      paint.fill(frame, color(row, column));
      if (!ImGui::IsWindowHovered() || !frame.holds(ImGui::GetIO().MousePos)) continue;
      drawn.hovered = row * plane.columns + column;
      pointed = frame;
    }
    drawn.width = x - top_left.x;
  }
  drawn.height = y - top_left.y;
  if (drawn.hovered) paint.outline(pointed, paint.theme.text, 0, 1.5f);
  return drawn;
}

}  // namespace viewer
