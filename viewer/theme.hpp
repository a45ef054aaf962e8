// The colours of the window. Blue is a value and the forward pass, orange a gradient and the
// backward pass, yellow what happens now, green a leaf that waits for its gradient, and its update.
#pragma once

#include <imgui.h>

#include <array>

#include "viewer/scene.hpp"

namespace viewer {

struct Theme {
  ImU32 canvas;          // behind the graph
  ImU32 panel;           // left, right and top
  ImU32 desk;            // behind source and timeline
  ImU32 line;            // hairlines between parts
  ImU32 text, faint;     // faint: secondary words, still readable on a projector
  ImU32 chosen;          // the row of the lesson list
  ImU32 hovered;         // any row under the pointer
  ImU32 card, card_now;  // a ledger row that is still to come or past, and the one of this step
  ImU32 button, button_hovered;

  ImU32 value, gradient, now, leaf, warning;
  ImU32 now_line;  // `now` where it is no text: outlines, the bar beside the source line
  ImU32 negative;  // the far end of a heat map, below zero
  ImU32 value_dim, gradient_dim, leaf_dim;  // ticks of the timeline
  ImU32 walked_back;                        // lines along which a gradient has come
  ImU32 pill_forward, pill_backward, pill_update;

  ImU32 box, circle, outline;                         // tensors and operations
  ImU32 pending_fill, pending_outline, pending_text;  // what has not happened yet
  ImU32 edge, pending_edge;
  ImU32 scope, scope_closed, scope_outline;

  ImU32 source_now,
      source_linked;  // the line of this step; lines that belong to what is hovered or selected
  ImU32 track, track_done, tick_ahead, knob;
  std::array<ImU32, 6> curves;  // of a chart; none of them means anything elsewhere but the first
};

extern const Theme dark_theme, light_theme;

// The colour for what a scene draws.
ImU32 color_of(const Theme& theme, Role role);

// `color` with its opacity multiplied.
ImU32 faded(ImU32 color, float opacity);

// `part` of the way from one colour to another.
ImU32 blended(ImU32 from, ImU32 to, float part);

}  // namespace viewer
