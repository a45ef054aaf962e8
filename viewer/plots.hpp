// What a lesson plots and pictures, up to the cursor: curves with their axes, and matrices as
// images.
#pragma once

#include "viewer/desk.hpp"
#include "viewer/paint.hpp"

namespace viewer {

// 0 if there is nothing to be shown at the cursor.
float plots_height(const Paint& paint, float width, const Shown& shown, const Desk& desk);
void draw_plots(const Paint& paint, Frame frame, const Shown& shown, Desk& desk);

}  // namespace viewer
