// What is known when the cursor stands somewhere in a run: a pure function of (trace, cursor).
//
// The timeline reads each event once, when it comes, and notes where each tensor, storage and node
// is concerned. A question about the state at a cursor is then a binary search in those short
// sorted lists, never a walk over the run. That is why stepping forwards and backwards always
// reverse each other: there is no state to be carried along.
//
// Words: an *event* is a row of the trace; a *step* is a place where the cursor can stand; a *pass*
// is one backward() or grad(); an *episode* is what is on the screen together; a *slot* is the
// number of an input of an op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/trace.hpp"
#include "viewer/value.hpp"

namespace viewer {

// Scopes that the reader has switched from their default: composed ops start closed, modules and
// users' scopes open.
using Toggled = std::set<Id>;

// Where the reader stands: after the first `position` steps of the whole run, looking at an
// episode. At an episode's first position none of its own steps have happened yet (its "step 0").
struct Cursor {
  int episode = 1;           // from 1
  std::size_t position = 0;  // steps of the run that have happened
  bool operator==(const Cursor&) const = default;
};

// An update is what comes of the gradients: an optimiser's step, or what a program does in its
// stead.
enum class Phase : std::uint8_t { forward, backward, update };
std::string_view word_for(Phase);

// A step is an event that changes the state of tensors or gradients. Words, plots and scopes after
// it, up to the next step's event, belong to it. `number` counts within the episode, from 1, with
// every box in its default state. A step hidden in a box that is closed by default has the number
// of the step before it, and `inner` counts on from 1; for all others `inner` is 0.
struct Step {
  std::size_t event = 0;  // into Trace::events
  int episode = 1;        // from 1
  std::int64_t number = 0;
  std::int64_t inner = 0;
  Phase phase = Phase::forward;
};

struct Episode {
  std::size_t first = 0;        // position before its first step
  std::size_t last = 0;         // position after its last step, so far
  std::size_t event_begin = 0;  // its events; event_end of the last episode grows
  std::size_t event_end = 0;
  std::int64_t steps = 0;  // numbered steps: the N of "step 13 of N"
  bool ended = false;      // nothing can be added any more
  bool kept = true;        // false: of its events only a few are left, by the keeping schedule
};

// The gradient of a tensor at a cursor.
struct Gradient {
  enum class State : std::uint8_t {
    not_yet,   // nothing has arrived: never shown as 0
    so_far,    // the sum of what has arrived; more is to come, or it has not landed yet
    complete,  // all contributions of the pass are in (a result, or what grad() was asked for)
    landed,    // what grad() holds
    cleared    // grad() held something in this episode, and zero_grad() has let go of it
  };
  State state = State::not_yet;
  Value value;                  // unless not_yet or cleared
  std::optional<Value> before;  // so_far, complete: what grad() held before the pass
};

// One row of the ledger: what one op hands (or will hand) one tensor through one of its slots.
struct Contribution {
  std::int64_t pass = 0;  // 0: of a pass that has not begun in the trace
  std::size_t op = 0;     // the op's event
  int slot = 0;
  std::string from;     // "c = x · y"
  std::string formula;  // "dy · b"
  // "1 × 3": with numbers put in. Only for scalars, or for the hovered element.
  std::string numbers;
  bool arrived = false;
  bool active = false;  // the step at the cursor is this arrival
  // From here on: when arrived. `folded` are the axes that were summed because the input was
  // broadcast along them, `sum` is the running sum up to and with this row.
  Shape shape_before, shape_given;
  std::vector<std::int64_t> folded;
  Value given, sum;
};

// A use of a tensor by an op.
struct Use {
  std::size_t op = 0;  // the op's event
  int slot = 0;
};

enum class Progress : std::uint8_t { pending, active, done };

// What was plotted under one name, in the order in which it was plotted.
struct Curve {
  struct Point {
    double x = 0, y = 0;
    std::size_t event = 0;
  };
  std::string name;
  std::vector<Point> points = {};  // of the whole run so far, also those after the cursor
  bool to_the_right = true;  // one y for each x, from left to right: a line; else it is points
};

// What an episode consists of, in the order of its events: independent of the cursor.
struct EpisodeGraph {
  std::vector<std::size_t> ops;     // events of ops
  std::vector<std::size_t> failed;  // events of ops that threw, and are not among `ops`
  std::vector<Id> tensors;          // made in it, used in it or resulting from it, each once
};

class Timeline {
 public:
  Timeline();
  ~Timeline();
  Timeline(Timeline&&) noexcept;
  Timeline& operator=(Timeline&&) noexcept;

  // Reads the events that are new: cheap. The trace must be a later state of the same run.
  void extend(std::shared_ptr<const Trace> trace);
  const Trace& trace() const { return *trace_; }
  const std::shared_ptr<const Trace>& shared_trace() const { return trace_; }
  // Whether snapshots are statistics only, because the run's budget is used up.
  bool over_budget() const;
  const Ended* ended() const;  // how the run ended; null while it still runs

  // ---- Steps and episodes

  std::span<const Step> steps() const { return steps_; }
  std::span<const Episode> episodes() const { return episodes_; }  // at least one
  const Episode& episode(int number) const {
    return episodes_.at(static_cast<std::size_t>(number - 1));
  }

  Cursor start(int episode) const;
  Cursor end(int episode) const;
  Cursor latest() const { return end(static_cast<int>(episodes_.size())); }
  // These two answer the nearest cursor that exists: after step `number`, and to a cursor.
  Cursor at(int episode, std::int64_t number) const;
  Cursor clamp(Cursor) const;
  // Why there is no such cursor, "there is no step 99: episode 1 has 18"; empty if there is.
  std::string lacks(int episode, std::int64_t number) const;
  // Why no tensor of the episode is called so, with some that there are; empty if one is.
  std::string lacks(int episode, std::string_view tensor) const;
  // One step on or back that changes something visible; stays at the ends of the episode.
  Cursor next(Cursor, const Toggled& = {}) const;
  Cursor previous(Cursor, const Toggled& = {}) const;
  bool visible(std::size_t step, const Toggled& = {}) const;

  const Step* step(Cursor) const;     // the one taken last; null at the start of an episode
  std::int64_t number(Cursor) const;  // of that step; 0 at the start
  std::string label(Cursor) const;    // "13"; inside a box "13.2"
  Phase phase(Cursor) const;
  Line line(Cursor) const;          // the step's line in the source; an arrival has its op's
  std::string prose(Cursor) const;  // "x receives dy · b = 1 × 3 = 3 from mul."
  // What the lesson said and asked in this episode, up to the cursor.
  std::vector<std::string> said(Cursor) const;
  // What the program printed from its beginning up to the cursor; valid until the next extend().
  std::string_view printed(Cursor) const;
  // The last failure before the cursor in this episode: an event.
  std::optional<std::size_t> failure(Cursor) const;
  // Whether the lesson asks for a pause on the way from one cursor to a later one.
  bool pauses(Cursor from, Cursor to) const;

  // ---- Plots and pictures

  // The curves of the chart that was begun last before the cursor; none if nothing was plotted.
  // Curves that are plotted without a word in between share a chart.
  std::span<const Curve> chart(Cursor) const;
  std::size_t plotted(Cursor, const Curve&) const;  // how many of its points
  // The pictures that were shown last before the cursor without a word in between. A later step's
  // picture takes the place of one with the same title.
  std::vector<const Pictured*> pictures(Cursor) const;
  Cursor after(std::size_t event) const;  // the first cursor at which it has happened

  // ---- The graph

  EpisodeGraph graph(int episode) const;
  const Op& op(std::size_t event) const;  // of an op's event; without content for any other
  const OpFacts* facts(const std::string& op) const;
  Line line_of(std::size_t event) const;
  std::optional<std::size_t> maker(Id tensor) const;  // the op it results from; none for a leaf
  std::optional<std::size_t> op_of_node(Id node) const;
  // The op whose rule failed in this event, if that is shown in the same episode.
  std::optional<std::size_t> op_that_failed(std::size_t event) const;
  std::vector<Use> uses(Id tensor) const;  // over the whole run
  std::vector<std::size_t> ops_on_line(int episode, const Line&) const;
  const Seen* seen(Id tensor) const;          // as it was first seen; null if never
  const Seen* seen(Cursor, Id tensor) const;  // where it is at this step
  bool is_leaf(Id tensor) const;

  std::vector<Id> scopes_around(std::size_t event) const;  // from the outermost to the innermost
  const ScopeOpens* scope(Id) const;
  bool is_open(Id scope, const Toggled&) const;
  // The outermost closed scope around an event.
  std::optional<Id> closed_around(std::size_t event, const Toggled&) const;
  // The closed scope that a tensor never leaves: then it is not drawn.
  std::optional<Id> hidden_in(Id tensor, const Toggled&) const;

  // What a tensor is called: by named(), else after the variable on its source line, else after its
  // facts ("x · y"). Only names given by named() stand upright, others in italics.
  std::string name(Id tensor) const;
  bool is_named(Id tensor) const;
  std::string describe_op(std::size_t event) const;  // "c = x · y"
  std::string circle(std::size_t event) const;       // "x²", "×"

  // ---- The state at a cursor

  bool exists(Cursor, Id tensor) const;
  Value value(Cursor, Id tensor) const;
  Value value(const Seen&) const;  // of a window as an event saw it
  Gradient gradient(Cursor, Id tensor) const;
  // Since the tensor's last let go, and of the pass to come if none has begun.
  std::vector<Contribution> ledger(Cursor, Id tensor,
                                   std::optional<std::size_t> hovered_element = {}) const;
  Progress forward(Cursor, std::size_t op) const;

  bool of_grad(std::int64_t pass) const;           // begun by grad(), which leaves x.grad() alone
  std::optional<std::int64_t> pass(Cursor) const;  // the last one begun in this episode
  // In that pass: an op (pending if it takes no part), and the line from it back to the tensor in
  // one of its slots.
  Progress backward(Cursor, std::size_t op) const;
  Progress edge_backward(Cursor, std::size_t op, int slot) const;
  std::string edge_numbers(Cursor, std::size_t op, int slot) const;  // "1 × 3", once arrived
  // The tensors whose numbers stand in the formula of the step, if it is an arrival.
  std::vector<Id> factors(Cursor) const;

 private:
  struct Index;
  std::shared_ptr<const Trace> trace_ = std::make_shared<Trace>();
  std::vector<Step> steps_;
  std::vector<Episode> episodes_{Episode{}};
  std::unique_ptr<Index> index_;
};

}  // namespace viewer
