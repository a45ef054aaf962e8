// What to draw: boxes, circles, lines and texts with the *roles* of their colours. Knows no colour,
// font file, ImGui or GL: the window's canvas and the exporter both draw this, each with its own
// palette.
//
// Two halves. A Diagram says which boxes and lines an episode has, given which scopes are open: it
// does not depend on the cursor, and its Structure is what the layout needs. A Scene is the
// diagram, placed, as it looks at one cursor.
//
//   Diagram diagram = make_diagram(timeline, cursor.episode, view.toggled);
//   Placement placement = place(diagram.structure);               // or Layouts::request, which
//   never waits Scene scene = make_scene(timeline, cursor, diagram, placement, view);
//
// The window asks a Stage, which does all of this, remembers what has not changed and eases a
// renewed layout into place.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "viewer/layout.hpp"
#include "viewer/timeline.hpp"

namespace viewer {

// What a box stands for. `id`: a tensor's or scope's number; for an op and a line group an event's
// index.
struct Item {
  enum class Kind : std::uint8_t { none, tensor, op, scope, line };
  Kind kind = Kind::none;
  std::uint64_t id = 0;
  auto operator<=>(const Item&) const = default;
};

// What a colour is for. The window's theme and the exporter's palette have one colour for each.
enum class Role : std::uint8_t {
  canvas,           // the ground
  box,              // fill of a tensor's box
  circle,           // fill of an op's circle
  pending_fill,     // fill of what has not happened yet
  closed_scope,     // fill of a closed scope's box
  open_scope,       // fill behind an open scope
  outline,          // of boxes and circles
  pending_outline,  // of what has not happened yet
  scope_outline,
  active,         // outline of what the step is about (yellow in the picture)
  factor,         // outline of the tensors whose values stand in the step's formula (green)
  failed,         // what went wrong
  name,           // names of tensors, symbols of ops
  faint,          // shapes, "leaf", "not yet", titles of scopes
  pending_text,   // any text of what has not happened yet
  value,          // blue
  gradient,       // orange
  edge,           // a line that has been walked forwards
  pending_edge,   // not yet
  backward_edge,  // a line along which a gradient has come (dim orange)
  active_edge,    // the line along which one comes now, and its label (bright orange)
  forward_edge,   // the lines into the op of a forward step
  count           // how many roles there are
};

enum class Font : std::uint8_t { regular, bold, italic, mono };
enum class Align : std::uint8_t { left, middle, right };

struct Text {
  std::string text;
  Point at;  // on the baseline, at the left end, the middle or the right end
  double size = 12;
  Font font = Font::regular;
  Align align = Align::left;
  Role role = Role::name;
};

struct Box {
  Item item;
  Rect rect;
  bool round = false;  // an ellipse that fills `rect`; else corners rounded by `rounding`
  double rounding = 8;
  Role fill = Role::box;
  Role outline = Role::outline;
  double outline_width = 1.5;
  bool dashed = false;  // not recorded
  Progress progress = Progress::done;
  std::vector<Text> texts;
};

struct Stroke {        // a line of the drawing
  Item from, to;       // the tail (left) and the head (right) of the forward edge
  std::size_t op = 0;  // the op's event, and which slot; slot -1: from the op to its result
  int slot = 0;
  std::vector<Point> curve;  // Bezier, 1 + 3n points, already shortened where the arrow stands
  std::vector<Point> arrow;  // a filled triangle
  bool reversed = false;     // the arrow points at `from`: a gradient has come this way
  Role role = Role::edge;
  double width = 2;
  bool dashed = false;
  std::optional<Text> label;  // "1 × 3"
};

struct Scene {
  Rect bounds;
  std::vector<Box>
      scopes;  // open scopes, outermost first; drawn first, then lines, boxes, labels of lines
  std::vector<Stroke> lines;
  std::vector<Box> boxes;  // the same order in every frame of an episode
  bool settled = true;     // false: a layout is being made or is easing into place; draw again soon

  const Box* find(Item) const;
  // The topmost box under a point, the innermost open scope if there is no box, or null.
  const Box* hit(Point) const;
};

// How the reader looks at it. Not part of the trace, not part of the cursor.
struct View {
  Toggled toggled;
  bool cover_gradients = false;  // H: gradients read "?" ...
  std::set<Id> uncovered;        // ... but for these tensors
};

struct Diagram {
  struct Node {
    Item item;
    std::vector<std::size_t> ops;  // an op: itself; a closed scope or a line: all that are in it
    int cluster = -1;
    std::string title,
        detail;           // a tensor's name and shape, an op's symbol, a scope's name and size
    bool named = false;   // by named(), and so not in italics
    bool dashed = false;  // not recorded
  };
  struct Edge {
    int from = 0, to = 0;    // nodes
    std::vector<Use> parts;  // ops and slots that it stands for; slot -1: from an op to its result
  };
  int episode = 1;
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<Id> clusters;         // the open scopes
  std::vector<std::string> titles;  // of them
  Structure structure;
};

// Sizes that structure alone decides.
inline constexpr std::size_t longest_name =
    24;                                  // characters; a longer name is cut with an ellipsis
inline constexpr int number_field = 14;  // monospaced characters
inline constexpr std::size_t most_boxes = 1000;  // beyond, the ops of one source line share a box

Diagram make_diagram(const Timeline&, int episode, const Toggled& = {});
Scene make_scene(const Timeline&, Cursor, const Diagram&, const Placement&, const View& = {});

// The text of a value in a box: "2.0", "[1.0, 2.0]", "-0.3 … 2.1" (from the least to the greatest),
// at most `room` characters.
std::string in_a_box(const Value&, int room = number_field);

// For the window: one call a frame. Lays out on a worker, at most twice a second while an episode
// grows, and eases boxes from their old places to their new ones.
class Stage {
 public:
  // `now` in seconds, from any clock that never goes back. Never waits for a layout: until the
  // first one is there the scene is empty and not settled. Equal questions get the same scene back.
  std::shared_ptr<const Scene> look(const Timeline&, Cursor, const View&, double now);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace viewer
