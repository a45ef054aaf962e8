// Inside of the timeline: where each thing is concerned.
//
// Included by the files that answer questions about it (timeline*.cpp), and by no other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lessons/words.hpp"
#include "viewer/episodes.hpp"
#include "viewer/timeline.hpp"
#include "viewer/variables.hpp"

namespace viewer {

// All lists hold events, in ascending order.
using Events = std::vector<std::size_t>;

// The last event of a sorted list before `cut`; the first at or after it.
inline std::optional<std::size_t> last_before(const Events& list, std::size_t cut) {
  auto at = std::lower_bound(list.begin(), list.end(), cut);
  return at == list.begin() ? std::nullopt : std::optional(*std::prev(at));
}
inline std::optional<std::size_t> first_from(const Events& list, std::size_t cut) {
  auto at = std::lower_bound(list.begin(), list.end(), cut);
  return at == list.end() ? std::nullopt : std::optional(*at);
}

// Where a tensor was made among the ops of one source line, for its name. A *run* is an unbroken
// row of ops on one line; a composed op, or all of a network that is called there, counts as one
// *unit* of it.
struct OnLine {
  Line line;
  std::size_t run = 0;
  int unit = 0;                                    // its place in the run, from 0
  int output = 0;                                  // which of the op's results
  bool used_in_run = false, used_in_unit = false;  // by a later op of the same run or unit
};

struct TensorTrack {
  Seen first;
  std::vector<std::pair<std::size_t, Seen>> moved;  // to other memory, as by net.to(float64)
  const Seen& at(std::size_t cut) const;            // where it is before this event
  std::size_t born = 0;  // from the event after this one on it exists, if `birth_seen`
  bool birth_seen = false;
  Events makers;  // ops that it results from; more than one if it is written in place
  std::string given_name;
  Id gradient_of = 0;
  bool of_gradients = false;  // it is one, or is computed from one without being recorded
  OnLine on_line;
  std::vector<Use> uses;
  Events arrivals, hooks;
  Events settled;  // landed and let go
  Events roots;    // passes that begin at it
  bool asked_for = false;
};

inline const Seen& TensorTrack::at(std::size_t cut) const {
  auto next =
      std::find_if(moved.begin(), moved.end(), [cut](const auto& m) { return m.first >= cut; });
  return next == moved.begin() ? first : std::prev(next)->second;
}

struct StorageTrack {
  struct Version {
    std::size_t event;
    std::int64_t version;
    std::int64_t before;  // what it was until then
  };
  std::vector<Version> versions;
};

struct NodeTrack {
  std::size_t op = 0;
  Events arrivals;
};

struct PassTrack {
  std::size_t begin = 0;
  std::optional<std::size_t> end;
};

struct ScopeTrack {
  ScopeOpens opens;
  Id parent = 0;
  Id box = 0;  // the outermost scope around it, or itself, that is closed by default; or 0
  std::size_t opened = 0;
  std::optional<std::size_t> last_step;
};

struct ChartTrack {
  std::size_t begin = 0, last = 0;  // events
  std::vector<Curve> curves = {};
};

struct Timeline::Index {
  explicit Index(Timeline& timeline) : owner(&timeline) {}

  Timeline* owner;
  std::size_t unread = 0;  // the first event that has not been read
  EpisodeRule rule;
  std::unordered_map<Id, TensorTrack> tensors;
  std::unordered_map<Id, StorageTrack> storages;
  std::unordered_map<Id, NodeTrack> nodes;
  std::unordered_map<Id, ScopeTrack> scopes;
  std::map<std::int64_t, PassTrack> passes;
  Events ops, failures, makings, words, pass_begins, pauses, pictures;
  std::vector<ChartTrack> charts;
  std::map<std::pair<std::string, int>, Events> lines;    // ops on a source line
  std::vector<std::pair<std::size_t, std::size_t>> gaps;  // events of episodes that were not kept
  std::string printed;
  std::vector<std::pair<std::size_t, std::size_t>> printed_until;  // event, length
  bool over_budget = false;
  std::optional<std::size_t> ended;

  // For the names of the tensors on the line that is being executed.
  OnLine current;
  std::uint64_t current_unit = 0;
  mutable std::map<std::pair<std::string, int>, Assignment> assignments;

  const Event* event(std::size_t i) const {
    const auto& events = owner->trace_->events;
    return i < events.size() ? events[i].get() : nullptr;
  }
  template <class What>
  const What* get(std::size_t i) const {
    const Event* found = event(i);
    return found == nullptr ? nullptr : std::get_if<What>(&found->what);
  }
  const TensorTrack* track(Id tensor) const {
    auto found = tensors.find(tensor);
    return found == tensors.end() || tensor == 0 ? nullptr : &found->second;
  }

  // ---- Reading events

  void read_new();
  void read(std::size_t i, const Event& event);
  void read(std::size_t i, const Event& event, const Made& made);
  void read(std::size_t i, const Event& event, const Op& op);
  void read(std::size_t i, const Event& event, const Failed&);
  void read(std::size_t i, const Event& event, const PassBegins& begins);
  void read(std::size_t i, const Event& event, const PassEnds& ends);
  void read(std::size_t i, const Event& event, const Arrived& arrived);
  void read(std::size_t i, const Event& event, const Hooked& hooked);
  void read(std::size_t i, const Event& event, const Landed& landed);
  void read(std::size_t i, const Event& event, const Wrote& wrote);
  void read(std::size_t i, const Event& event, const LetGo& let_go);
  void read(std::size_t i, const Event& event, const Named& named);
  void read(std::size_t i, const Event& event, const ScopeOpens& opens);
  void read(std::size_t i, const Event& event, const ScopeCloses& closes);
  void read(std::size_t i, const Event& event, const Said& said);
  void read(std::size_t i, const Event& event, const Asked& asked);
  void read(std::size_t i, const Event& event, const Plotted& plotted);
  void read(std::size_t i, const Event& event, const Printed& text);
  void read(std::size_t i, const Event& event, const Ended& how);
  void read(std::size_t i, const Event& event, const Paused& paused);
  void read(std::size_t i, const Event& event, const Pictured& picture);

  TensorTrack& see(std::size_t i, const Seen& seen);
  void see_version(std::size_t i, const Seen& seen, std::optional<std::int64_t> before = {});
  void born(std::size_t i, const Event& event, const Seen& seen, int output);
  void enter_line(std::size_t i, const Event& event);
  Id call_on_line(const Event& event) const;
  bool pass_runs() const;
  void begin_episode(std::size_t at);
  void settle(Episode& episode);
  void add_step(std::size_t i, const Event& event, bool visible);
  void number(Step& step, bool visible);
  Phase phase_of(const Event& event) const;  // of a step that is about to be added
  void end_box(const ScopeTrack& scope);

  // ---- Questions

  Id box_of(Id scope) const;
  bool is_open(Id scope, const Toggled& toggled) const;
  std::optional<Id> closed_around(Id scope, const Toggled& toggled) const;
  std::optional<Id> hidden_in(Id tensor, const Toggled& toggled) const;
  bool word_between(std::size_t begin, std::size_t end) const;
  bool gap_between(std::size_t begin, std::size_t end) const;
  std::int64_t version_at(Id storage, std::size_t cut) const;
  const Assignment& assignment(const Line& line) const;
  std::optional<std::string> variable(const TensorTrack& tensor) const;
  std::string name(Id tensor, int depth) const;
  std::string expression(std::size_t op, int depth) const;
  std::string end_of_pass(const Step& step) const;
  words::Letters names_of_inputs(const Op& op, int depth) const;

  std::pair<Events::const_iterator, Events::const_iterator> in_pass(const Events& list,
                                                                    std::int64_t pass) const;
  // When, in that pass, a gradient goes back through a slot of an op; none if none does.
  std::optional<std::size_t> arrival(std::optional<std::int64_t> pass, std::size_t op,
                                     int slot) const;
  std::optional<Value> seed(const TensorTrack& tensor, std::int64_t pass) const;
  std::optional<Value> sum(const TensorTrack& tensor, std::int64_t pass, std::size_t cut) const;
  bool more_to_come(const TensorTrack& tensor, std::int64_t pass, std::size_t cut) const;
  std::optional<Value> held(const TensorTrack& tensor, std::size_t cut) const;
  Gradient gradient(Id tensor, std::size_t cut, std::optional<std::int64_t> pass) const;
  std::optional<double> letter(const Op& op, const Arrived& arrived, std::size_t i,
                               std::string_view name, std::size_t element) const;
  std::string numbers(std::size_t i, std::optional<std::size_t> element) const;
  Contribution row(std::size_t op, int slot, std::int64_t pass) const;
  std::vector<Use> still_expected(const TensorTrack& tensor, std::size_t begin, std::size_t end,
                                  std::int64_t pass) const;
};

// The first event that has not happened yet when the cursor stands at `position`.
inline std::size_t cut_at(const Timeline& timeline, std::size_t position) {
  const auto steps = timeline.steps();
  return position < steps.size() ? steps[position].event : timeline.trace().events.size();
}

}  // namespace viewer
