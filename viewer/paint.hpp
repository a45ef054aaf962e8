// Words, rules and buttons of the window, in the sizes of the design (points), at the scale of the
// screen. Places are in ImGui's units; sizes of text and of `px` are in points.
#pragma once

#include <imgui.h>

#include <string>
#include <string_view>

#include "viewer/fonts.hpp"
#include "viewer/theme.hpp"

namespace viewer {

struct Ink {
  Face face = Face::sans;
  float size = 14;
  ImU32 color = 0;
};

// A rectangle of the screen. (viewer::Rect lives in the world of the graph.)
struct Frame {
  float left = 0, top = 0, right = 0, bottom = 0;
  float width() const { return right - left; }
  float height() const { return bottom - top; }
  float middle() const { return (left + right) / 2; }
  ImVec2 low() const { return {left, top}; }
  ImVec2 high() const { return {right, bottom}; }
  bool holds(ImVec2 p) const { return p.x >= left && p.x < right && p.y >= top && p.y < bottom; }
  bool empty() const { return right <= left || bottom <= top; }
};

class Paint {
 public:
  Paint(Fonts& fonts, const Theme& colors, float scale)
      : theme(colors), fonts_(fonts), scale_(scale) {}

  const Theme& theme;

  float px(float points) const { return points * scale_; }
  float scale() const { return scale_; }
  static ImDrawList& list() { return *ImGui::GetWindowDrawList(); }

  // ---- Text; each answers the width of what it drew. `at` is on the baseline.
  float width(Ink ink, std::string_view text) const;
  float text(ImVec2 at, Ink ink, std::string_view text) const;
  float text_middle(ImVec2 at, Ink ink, std::string_view text) const;
  float text_right(ImVec2 at, Ink ink, std::string_view text) const;
  std::string cut(Ink ink, std::string_view text, float room) const;  // with an ellipsis

  // Text wrapped at `room`, lines `pitch` points apart, from the top left corner. In prose, lines
  // that begin with blanks are formulas: they stand in yellow. Both answer the height.
  float prose(ImVec2 top_left, float room, float pitch, Ink ink, std::string_view text) const;
  float output(ImVec2 top_left, float room, float pitch, Ink ink, std::string_view text) const;

  // ---- Shapes
  void fill(Frame frame, ImU32 color, float rounding = 0) const;
  void outline(Frame frame, ImU32 color, float rounding = 0, float thickness = 1) const;
  void rule(float left, float right, float y) const;         // a hairline
  void upright(float x, float top, float bottom) const;      // likewise
  void dot(ImVec2 center, float radius, ImU32 color) const;  // radius in points

  // ---- Things to press
  struct Press {
    bool clicked = false, hovered = false;
    bool begun = false, held = false,
         ended = false;  // the button went down on it, is down, was let go
  };
  static Press press(const char* name, Frame frame);  // an area that answers, and draws nothing
  bool button(const char* name, Frame frame, std::string_view label, bool on = true) const;

 private:
  float wrapped(ImVec2 top_left, float room, float pitch, Ink plain, Ink formula, bool hanging,
                std::string_view text) const;

  Fonts& fonts_;
  float scale_;
};

// A part of the window with its own clipping and scrolling, from construction to destruction. What
// is drawn inside starts at origin(), and grows(height) says how tall it has become.
class Pane {
 public:
  enum class Kind {
    part,
    above,
    untouchable
  };  // of the window; over it; that, and deaf to the mouse
  Pane(const Paint& paint, const char* name, Frame frame, ImU32 ground, Kind kind = Kind::part);
  ~Pane();
  Pane(const Pane&) = delete;
  Pane& operator=(const Pane&) = delete;

  ImVec2 origin() const { return origin_; }  // on the screen, moved by scrolling
  Frame frame() const { return frame_; }
  void grows(float height) const;
  void scroll_to_show(float top, float bottom) const;  // distances from the origin
  float scrolled() const;                              // how far, as this frame began
  bool at_end() const;                                 // likewise
  void scroll_to_end(float height) const;  // of all that it has grown to, from the next frame on
  void fade(ImU32 ground, float height) const;  // at an edge beyond which there is more

 private:
  Frame frame_;
  Kind kind_;
  ImVec2 origin_;
};

}  // namespace viewer
