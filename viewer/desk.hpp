// What lies on the reader's desk: where the cursor stands, what is selected, and what was asked
// for.
//
// The panels read Shown, and change Desk. What they ask of the whole window (another lesson, a
// figure) they leave as an Act; keys leave the same acts, so each thing has one way of being done.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "viewer/options.hpp"
#include "viewer/scene.hpp"
#include "viewer/timeline.hpp"

namespace viewer {

enum class Act {
  none,
  next,
  previous,
  first,
  last,
  play,
  faster,
  slower,
  next_episode,
  previous_episode,
  fit,
  present,
  cover,
  export_figure,
  copy_command,
  theme,
  keys,
  stop,
  leave  // presenting, the list of keys, or the selection: whichever there is
};

// The keys, as the window shows them and as it understands them. `letter` is what the keyboard
// types, so that a key is where its letter is; other keys have none and are found in app.cpp.
struct Key {
  std::string_view keys, does;
  char letter;
  Act act;
};
inline constexpr std::array<Key, 19> all_keys{{
    {"→   Page down", "one step on", 0, Act::next},
    {"←   Page up", "one step back", 0, Act::previous},
    {"Space", "play, pause", ' ', Act::play},
    {"Home", "to the beginning of the episode", 0, Act::first},
    {"End", "to its end, and follow a run that goes on", 0, Act::last},
    {"↑   ↓", "the episode before, the next one", 0, Act::previous_episode},
    {"+   −", "play faster, slower", '+', Act::faster},
    {"F", "the whole graph; again: with the steps", 'f', Act::fit},
    {"H", "cover gradients; a click uncovers one", 'h', Act::cover},
    {"P", "present: large, on white, without the rest", 'p', Act::present},
    {"T", "dark or light", 't', Act::theme},
    {"E", "export a figure of this step", 'e', Act::export_figure},
    {"Ctrl + C", "copy the command that opens this very step", 0, Act::copy_command},
    {"Esc", "let go of the selection; back to the window", 0, Act::leave},
    {"?", "these keys", '?', Act::keys},
    {"drag", "move the graph", 0, Act::none},
    {"wheel", "zoom about the pointer", 0, Act::none},
    {"click", "select; in a chart: go to that step", 0, Act::none},
    {"double click", "open or close a box", 0, Act::none},
}};

struct Desk {
  std::optional<std::size_t> lesson;  // into AppOptions::lessons; none: a program's own file
  Cursor cursor;
  bool following = false;  // the cursor stays at the end of a run that goes on
  bool playing = false;
  double speed = 1;  // 1: two steps a second
  View view;
  Item selected;  // none: what the step is about
  bool light = false, presenting = false, keys_shown = false;

  std::vector<Act> asked;  // in this frame
  std::optional<std::size_t> lesson_asked;

  // What the pointer is on. Written while a frame is drawn, and read by the next one, so that the
  // same thing lights up wherever it is shown.
  struct Pointed {
    Item item;
    Line line;
    std::optional<std::size_t> element;  // of the inspected tensor
    bool operator==(const Pointed&) const = default;
  };
  Pointed pointed, pointed_before;

  void stand(Cursor at) {  // the reader's own step: the run is no longer followed
    cursor = at;
    following = playing = false;
  }
};

// The events that made the leaves: where in the source a tensor comes from that no operation made.
using MadeAt = std::unordered_map<Id, std::size_t>;

struct Shown {
  const AppOptions& options;
  std::string title;  // "05  The chain rule"
  std::string file;   // of the lesson or program, as a reader knows it
  const Timeline& timeline;
  const MadeAt& made_at;
  std::shared_ptr<const Scene> scene;
  std::string status;  // "running", "finished", "crashed: SIGSEGV"
  bool running = false;
  bool failed = false;  // the status is bad news

  Item inspected(const Desk& desk) const;  // what is selected, else what the step is about
  Line line_of(Item item) const;           // the source line that made it; number 0 if unknown
};

// What a step is about: the tensor that it makes, or that a gradient reaches.
Item subject(const Timeline& timeline, Cursor cursor);

// The operation that threw in this event; null if none did.
const Failed* failed_at(const Timeline& timeline, std::size_t event);

// A line of the source that the trace keeps, without the line's end; empty if it keeps none.
std::string_view source_line(const Trace& trace, const Line& line);

// The last part of a path.
std::string_view last_part(std::string_view path);

}  // namespace viewer
