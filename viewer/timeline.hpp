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

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "viewer/trace.hpp"

namespace viewer {

using Shape = std::vector<std::int64_t>;

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

enum class Phase : std::uint8_t { forward, backward };

struct Step {
  std::size_t event =
      0;  // into Trace::events; the words after it, up to the next step's event, belong to it
  int episode = 1;  // from 1
  std::int64_t number =
      0;  // within its episode, from 1, counted with every box in its default state
  std::int64_t inner =
      0;  // 0; or the n-th step after `number` that is hidden in a box closed by default
  Phase phase = Phase::forward;
};

struct Episode {
  std::size_t first = 0;        // position before its first step
  std::size_t last = 0;         // position after its last step, so far
  std::size_t event_begin = 0;  // its events; event_end of the last episode grows
  std::size_t event_end = 0;
  std::int64_t steps = 0;  // numbered steps: the N of "step 13 of N"
  bool ended = false;      // nothing can be added any more
  bool kept = true;        // false: by the keeping schedule only its number and its plots are left
};

// What is known of a tensor's elements.
struct Value {
  enum class Kept : std::uint8_t { nothing, statistics, in_full };
  Kept kept = Kept::nothing;
  DType dtype = DType::float32;
  Shape shape;
  std::vector<std::byte> bytes;    // in full: row-major, as the program held them
  Statistics statistics;           // statistics: of the whole storage
  std::string note;                // nothing: why, in words ("changed, not kept")
  std::int64_t count() const;      // elements by the shape
  double at(std::size_t i) const;  // in full only
  std::string text(std::size_t i,
                   int room = 14) const;  // the i-th element as a box shows it: "3.0", "7", "true"
  bool operator==(const Value&) const;
};

// The gradient of a tensor at a cursor.
struct Gradient {
  enum class State : std::uint8_t {
    not_yet,   // nothing has arrived: never shown as 0
    so_far,    // the sum of what has arrived in the running pass; more is to come, or it has not
               // landed yet
    complete,  // all contributions of the pass are in (a result, not a leaf)
    landed     // what grad() holds
  };
  State state = State::not_yet;
  Value value;                  // unless not_yet
  std::optional<Value> before;  // so_far: what grad() held before the running pass
};

// One row of the ledger: what one op hands (or will hand) one tensor through one of its slots.
struct Contribution {
  std::int64_t pass = 0;  // 0: of a pass that has not begun in the trace
  std::size_t op = 0;     // the op's event
  int slot = 0;
  std::string from;     // "c = x · y"
  std::string formula;  // "dy · b"
  std::string numbers;  // "1 × 3": with numbers put in, when there is one factor of each or an
                        // element is hovered
  bool arrived = false;
  bool active = false;  // the step at the cursor is this arrival
  Shape shape_before, shape_given;
  std::vector<std::int64_t>
      folded;   // the axes that were summed, because the input was broadcast along them
  Value given;  // when arrived
  Value sum;    // the running sum up to and with this row, when arrived
};

// A use of a tensor by an op.
struct Use {
  std::size_t op = 0;  // the op's event
  int slot = 0;
};

enum class Progress : std::uint8_t { pending, active, done };

// What an episode consists of, in the order of its events: independent of the cursor.
struct EpisodeGraph {
  std::vector<std::size_t> ops;  // events of ops, failed ones among them
  std::vector<Id> tensors;       // made in it, used in it or resulting from it, each once
};

class Timeline {
 public:
  // Reads the events that are new. The trace must be a later state of the same run. Cheap: O(new
  // events).
  void extend(std::shared_ptr<const Trace> trace);
  const Trace& trace() const { return *trace_; }
  const std::shared_ptr<const Trace>& shared_trace() const { return trace_; }

  // ---- Steps and episodes
  // --------------------------------------------------------------------------------------
  std::span<const Step> steps() const { return steps_; }
  std::span<const Episode> episodes() const { return episodes_; }  // at least one
  const Episode& episode(int number) const {
    return episodes_.at(static_cast<std::size_t>(number - 1));
  }

  Cursor start(int episode) const;
  Cursor end(int episode) const;
  Cursor at(int episode,
            std::int64_t number) const;  // after step `number`; the nearest that exists
  Cursor latest() const { return end(static_cast<int>(episodes_.size())); }
  Cursor clamp(Cursor) const;  // the nearest that exists
  // One step on or back that changes something visible; stays at the ends of the episode.
  Cursor next(Cursor, const Toggled& = {}) const;
  Cursor previous(Cursor, const Toggled& = {}) const;
  bool visible(std::size_t step,
               const Toggled& = {}) const;  // whether something on the screen changes in it

  const Step* step(Cursor) const;     // the one taken last; null at the start of an episode
  std::int64_t number(Cursor) const;  // of that step; 0 at the start
  std::string label(Cursor) const;    // "13"; inside a box "13.2"
  Phase phase(Cursor) const;
  Line line(Cursor) const;  // the source line of the step; of an arrival: the line of its op
  std::string prose(Cursor) const;              // "x receives dy · b = 1 × 3 = 3 from mul."
  std::vector<std::string> said(Cursor) const;  // of the lesson, up to the cursor, in this episode
  std::string printed(
      Cursor) const;           // by the program, up to the cursor, from the beginning of the run
  const Ended* ended() const;  // how the run ended; null while it still runs
  const Failed* failure(
      Cursor) const;  // the failed op at or before the cursor, in this episode; null if none

  // ---- The graph
  // -----------------------------------------------------------------------------------------------
  EpisodeGraph graph(int episode) const;
  const Op& op(std::size_t event) const;  // of an op's event
  const OpFacts* facts(const std::string& op) const;
  Line line_of(std::size_t event) const;
  std::optional<std::size_t> maker(
      Id tensor) const;  // event of the op it is a result of; none for a leaf
  std::optional<std::size_t> op_of_node(Id node) const;
  std::span<const Use> uses(Id tensor) const;  // over the whole run
  std::vector<std::size_t> ops_on_line(int episode, const Line&) const;
  const Seen* seen(Id tensor) const;  // as it was first seen; null if never
  bool is_leaf(Id tensor) const;
  // Scopes from the outermost to the innermost one around an event.
  std::vector<Id> scopes_around(std::size_t event) const;
  const ScopeOpens* scope(Id) const;
  bool is_open(Id scope, const Toggled&) const;
  std::optional<Id> closed_around(std::size_t event,
                                  const Toggled&) const;  // the outermost closed one
  std::optional<Id> hidden_in(Id tensor,
                              const Toggled&) const;  // the closed scope that it never leaves

  // What a tensor is called: by named(), else after the variable on its source line, else after its
  // facts.
  std::string name(Id tensor) const;
  bool is_named(Id tensor) const;                    // false: shown in italics
  std::string describe_op(std::size_t event) const;  // "c = x · y"
  std::string circle(std::size_t event) const;       // "x²", "×"

  // ---- The state at a cursor
  // -----------------------------------------------------------------------------------
  bool exists(Cursor, Id tensor) const;
  Value value(Cursor, Id tensor) const;
  Value value(const Seen&) const;  // of a window as an event saw it
  Gradient gradient(Cursor, Id tensor) const;
  std::vector<Contribution> ledger(Cursor, Id tensor,
                                   std::optional<std::size_t> hovered_element = {}) const;
  Progress forward(Cursor, std::size_t op) const;
  Progress backward(Cursor,
                    std::size_t op) const;  // in the last pass begun; pending if it takes no part
  std::optional<std::int64_t> pass(Cursor) const;  // the last pass begun in this episode
  // The edge from an op back to the tensor in its slot, in the last pass begun.
  Progress edge_backward(Cursor, std::size_t op, int slot) const;
  bool edge_takes_part(Cursor, std::size_t op, int slot) const;      // in that pass, now or later
  std::string edge_numbers(Cursor, std::size_t op, int slot) const;  // "1 × 3", when it has arrived
  // The tensors whose numbers stand in the formula of the step at the cursor, if it is an arrival.
  std::vector<Id> factors(Cursor) const;

 private:
  struct Index;
  std::shared_ptr<const Trace> trace_ = std::make_shared<Trace>();
  std::vector<Step> steps_;
  std::vector<Episode> episodes_{Episode{}};
  std::shared_ptr<Index> index_;
};

// Keeps a trace within bounds while it is collected: episodes that have ended stay by a fixed
// schedule, and past the budget new snapshots are statistics only. Used by whoever adds records to
// a trace; knows no cursor but the episode that the reader stands in.
class Keeper {
 public:
  explicit Keeper(std::size_t budget_bytes = std::size_t{256} << 20);
  ~Keeper();
  // As viewer::add, and thins the trace where an episode has just ended. Event indices never
  // change: what is not kept becomes a null pointer in Trace::events.
  void add(Trace&, Record&&);
  void stand_in(int episode) { standing_ = episode; }        // from any thread
  bool statistics_only() const { return statistics_only_; }  // from any thread

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::atomic<int> standing_{1};
  std::atomic<bool> statistics_only_{false};
};

// Whether the schedule keeps episode `number` in full: all up to 64, then 32 a doubling.
bool schedule_keeps(int number);

}  // namespace viewer
