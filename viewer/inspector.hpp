// One thing looked at closely: a tensor with its value, its gradient and the ledger of where the
// gradient comes from; or an operation with its formula and derivatives; or a box.
#pragma once

#include "viewer/desk.hpp"
#include "viewer/paint.hpp"

namespace viewer {

void draw_inspector(const Paint& paint, Frame frame, const Shown& shown, Desk& desk);

// Numbers in columns, points above points; exposed for tests. Each text is split before its point
// (or exponent), and padded with blanks to the widest part on either side.
std::vector<std::string> aligned(const std::vector<std::string>& numbers);

}  // namespace viewer
