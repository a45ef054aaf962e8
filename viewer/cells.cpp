#include "viewer/cells.hpp"

namespace viewer {

ImU32 heat(const Theme& theme, double number, double largest, ImU32 color) {
  if (!std::isfinite(number)) return theme.warning;
  if (largest == 0) return theme.button;
  const ImU32 end = number < 0 ? theme.negative : color;
  return blended(theme.button, end, static_cast<float>(std::min(1.0, std::abs(number) / largest)));
}

ImU32 grey(const Theme& theme, double part) {
  if (!std::isfinite(part)) return theme.warning;
  return blended(IM_COL32_BLACK, IM_COL32_WHITE, static_cast<float>(std::clamp(part, 0.0, 1.0)));
}

}  // namespace viewer
