#include "viewer/theme.hpp"

#include <cmath>

namespace viewer {

// 0xRRGGBB as the picture files write it.
static constexpr ImU32 rgb(unsigned hex) {
  return IM_COL32((hex >> 16) & 255, (hex >> 8) & 255, hex & 255, 255);
}

const Theme dark_theme{
    .canvas = rgb(0x12151a),
    .panel = rgb(0x1a1e25),
    .desk = rgb(0x161a20),
    .line = rgb(0x2a303a),
    .text = rgb(0xdfe3ea),
    .faint = rgb(0x8a93a3),
    .chosen = rgb(0x26303d),
    .hovered = rgb(0x202731),
    .card = rgb(0x1c2129),
    .card_now = rgb(0x33291a),
    .button = rgb(0x232a34),
    .button_hovered = rgb(0x2d3643),
    .value = rgb(0x79c0ff),
    .gradient = rgb(0xffab57),
    .now = rgb(0xffd479),
    .leaf = rgb(0x7ee0a1),
    .warning = rgb(0xff8a80),
    .now_line = rgb(0xffd479),
    .negative = rgb(0xd16ba5),
    .value_dim = rgb(0x5b8fc7),
    .gradient_dim = rgb(0xb9793a),
    .leaf_dim = rgb(0x4f9c6d),
    .walked_back = rgb(0x8a5a2c),
    .pill_forward = rgb(0x16293a),
    .pill_backward = rgb(0x3a2a14),
    .pill_update = rgb(0x16301f),
    .box = rgb(0x202630),
    .circle = rgb(0x2a303b),
    .outline = rgb(0x6d7a90),
    .pending_fill = rgb(0x171b21),
    .pending_outline = rgb(0x4d5767),
    .pending_text = rgb(0x858fa0),
    .edge = rgb(0x7d8aa2),
    .pending_edge = rgb(0x4d5767),
    .scope = rgb(0x161a20),
    .scope_closed = rgb(0x26303d),
    .scope_outline = rgb(0x39424f),
    .source_now = rgb(0x2b2a1c),
    .source_linked = rgb(0x1d2733),
    .track = rgb(0x2a303a),
    .track_done = rgb(0x4a5568),
    .tick_ahead = rgb(0x4d5767),
    .knob = rgb(0xffd479),
    .curves = {rgb(0x79c0ff), rgb(0xc79bf2), rgb(0x5fd3c6), rgb(0xf28fb1), rgb(0xb8c27a),
               rgb(0xa3adbd)},
};

// The same meanings on white: hues kept, darkened until each text has at least 4.5 times the
// contrast of its ground.
const Theme light_theme{
    .canvas = rgb(0xffffff),
    .panel = rgb(0xf4f5f7),
    .desk = rgb(0xf9fafb),
    .line = rgb(0xd5dae1),
    .text = rgb(0x1c2128),
    .faint = rgb(0x5c6675),
    .chosen = rgb(0xdde6f1),
    .hovered = rgb(0xe9edf2),
    .card = rgb(0xffffff),
    .card_now = rgb(0xfff0dc),
    .button = rgb(0xe6e9ee),
    .button_hovered = rgb(0xd8dee6),
    .value = rgb(0x0b5cad),
    .gradient = rgb(0xb54a00),
    .now = rgb(0x8a5d00),
    .leaf = rgb(0x1b7a41),
    .warning = rgb(0xb3261e),
    .now_line = rgb(0xe5a800),
    .negative = rgb(0xa8327a),
    .value_dim = rgb(0x3f7fbf),
    .gradient_dim = rgb(0xc98542),
    .leaf_dim = rgb(0x4c9a6b),
    .walked_back = rgb(0xd9a066),
    .pill_forward = rgb(0xe2effb),
    .pill_backward = rgb(0xfdebd6),
    .pill_update = rgb(0xe0f4e8),
    .box = rgb(0xf7f8fa),
    .circle = rgb(0xe9edf2),
    .outline = rgb(0x6b7789),
    .pending_fill = rgb(0xfcfcfd),
    .pending_outline = rgb(0x9aa5b4),
    .pending_text = rgb(0x626d7d),
    .edge = rgb(0x6b7789),
    .pending_edge = rgb(0x9aa5b4),
    .scope = rgb(0xf6f8fa),
    .scope_closed = rgb(0xe4ebf4),
    .scope_outline = rgb(0xc3cad4),
    .source_now = rgb(0xfff4cf),
    .source_linked = rgb(0xe4effa),
    .track = rgb(0xdce1e8),
    .track_done = rgb(0x9aa5b4),
    .tick_ahead = rgb(0x9aa5b4),
    .knob = rgb(0xe8a500),
    .curves = {rgb(0x0b5cad), rgb(0x7a3fb8), rgb(0x0b7a70), rgb(0xb02e66), rgb(0x626b12),
               rgb(0x5c6675)},
};

ImU32 color_of(const Theme& theme, Role role) {
  switch (role) {
    case Role::canvas:
      return theme.canvas;
    case Role::box:
      return theme.box;
    case Role::circle:
      return theme.circle;
    case Role::pending_fill:
      return theme.pending_fill;
    case Role::closed_scope:
      return theme.scope_closed;
    case Role::open_scope:
      return theme.scope;
    case Role::outline:
      return theme.outline;
    case Role::pending_outline:
      return theme.pending_outline;
    case Role::scope_outline:
      return theme.scope_outline;
    case Role::active:
      return theme.now_line;
    case Role::factor:
      return theme.leaf;
    case Role::failed:
      return theme.warning;
    case Role::name:
      return theme.text;
    case Role::faint:
      return theme.faint;
    case Role::pending_text:
      return theme.pending_text;
    case Role::value:
      return theme.value;
    case Role::gradient:
      return theme.gradient;
    case Role::edge:
      return theme.edge;
    case Role::pending_edge:
      return theme.pending_edge;
    case Role::backward_edge:
      return theme.walked_back;
    case Role::active_edge:
      return theme.gradient;
    case Role::forward_edge:
      return theme.value;
    case Role::count:
      break;
  }
  return theme.text;
}

ImU32 faded(ImU32 color, float opacity) {
  const auto old = static_cast<float>((color >> IM_COL32_A_SHIFT) & 255);
  const auto alpha = static_cast<ImU32>(std::lround(old * opacity));
  return (color & ~IM_COL32_A_MASK) | (alpha << IM_COL32_A_SHIFT);
}

ImU32 blended(ImU32 from, ImU32 to, float part) {
  ImU32 answer = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const auto a = static_cast<float>((from >> shift) & 255);
    const auto b = static_cast<float>((to >> shift) & 255);
    answer |= static_cast<ImU32>(std::lround(a + (b - a) * part)) << shift;
  }
  return answer;
}

}  // namespace viewer
