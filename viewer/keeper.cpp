#include "viewer/keeper.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "viewer/episodes.hpp"

namespace viewer {

bool schedule_keeps(int number) {
  int every = 1;
  while (number / every >= 64) every *= 2;
  return number % every == 0;
}

struct Keeper::State {
  EpisodeRule rule;
  int episode = 1;
  std::size_t begin = 0;  // of the current episode
  // Snapshots that only episodes that may go have used so far, and how many had come at that time.
  std::map<SnapshotKey, std::int64_t> loose;
  std::vector<SnapshotKey> used;  // those of them that the current episode has used
  std::int64_t snapshots = 0;     // how many have come

  void came(const Trace& trace, const Snapshot& snapshot);
  void use(const Event& event);
  void settle(Trace& trace, std::size_t end, bool keep);
  void forget_events(Trace& trace, std::size_t end) const;
  void forget_snapshots(Trace& trace);
};

namespace {
// The tensors that an event shows.
template <class Visit>
void for_each_seen(const Event& event, Visit visit) {
  auto all = [&visit](const std::vector<Seen>& list) {
    for (const Seen& seen : list) visit(seen);
  };
  if (auto* made = std::get_if<Made>(&event.what)) visit(made->tensor);
  if (auto* wrote = std::get_if<Wrote>(&event.what)) visit(wrote->tensor);
  if (auto* op = std::get_if<Op>(&event.what)) {
    all(op->inputs);
    all(op->outputs);
    for (const auto& [letter, seen] : op->saved) visit(seen);
  }
  if (auto* pass = std::get_if<PassBegins>(&event.what)) {
    all(pass->roots);
    all(pass->seeds);
    all(pass->asked);
  }
  if (auto* arrived = std::get_if<Arrived>(&event.what))
    visit(arrived->before), visit(arrived->given);
  if (auto* hooked = std::get_if<Hooked>(&event.what)) visit(hooked->before), visit(hooked->after);
  if (auto* landed = std::get_if<Landed>(&event.what)) visit(landed->before), visit(landed->after);
}

// What stays of an episode that is not kept: its first op, what was plotted, pictured, printed and
// named, and what else later ones need.
bool stays(const Event& event) {
  return std::holds_alternative<Plotted>(event.what) ||
         std::holds_alternative<Pictured>(event.what) ||
         std::holds_alternative<Printed>(event.what) || std::holds_alternative<Named>(event.what) ||
         std::holds_alternative<ScopeOpens>(event.what) ||
         std::holds_alternative<ScopeCloses>(event.what);
}
}  // namespace

Keeper::Keeper() : state_(std::make_unique<State>()) {}
Keeper::~Keeper() = default;

void Keeper::add(Trace& trace, Record&& record) {
  if (auto* snapshot = std::get_if<Snapshot>(&record)) state_->came(trace, *snapshot);
  const bool is_event = std::holds_alternative<Event>(record);
  viewer::add(trace, std::move(record));
  if (!is_event) return;
  const std::size_t last = trace.events.size() - 1;
  const Event& event = *trace.events[last];
  if (const std::optional<std::size_t> begin = state_->rule.read(last, &event)) {
    const bool keep = schedule_keeps(state_->episode) || state_->episode == standing_;
    state_->settle(trace, *begin, keep);
    ++state_->episode;
    state_->begin = *begin;
  }
  state_->use(event);
}

void Keeper::State::came(const Trace& trace, const Snapshot& snapshot) {
  ++snapshots;
  const SnapshotKey key{snapshot.storage, snapshot.version};
  const bool there = trace.snapshots.find(key) != nullptr;  // and not loose: it stays anyway
  if (!there || loose.contains(key)) loose[key] = snapshots;
}

void Keeper::State::use(const Event& event) {
  for_each_seen(event, [this](const Seen& seen) {
    auto found = loose.find({seen.storage, seen.version});
    if (found == loose.end()) return;
    found->second = snapshots;
    used.push_back(found->first);
  });
}

void Keeper::State::settle(Trace& trace, std::size_t end, bool keep) {
  if (keep)
    for (const SnapshotKey& key : used) loose.erase(key);
  else
    forget_events(trace, end);
  used.clear();
  if (loose.size() >= 2 * Snapshot::sent_again_after) forget_snapshots(trace);
}

void Keeper::State::forget_events(Trace& trace, std::size_t end) const {
  bool first_op = true;
  std::size_t forget = begin;  // [forget, i) goes
  for (std::size_t i = begin; i < end; ++i) {
    const bool op = std::holds_alternative<Op>(trace.events[i]->what);
    if (!stays(*trace.events[i]) && !(op && std::exchange(first_op, false))) continue;
    trace.events.forget(forget, i);
    forget = i + 1;
  }
  trace.events.forget(forget, end);
}

// Those that have not been used for so long that the program would send them again.
void Keeper::State::forget_snapshots(Trace& trace) {
  std::set<SnapshotKey> gone;
  for (const auto& [key, used_at] : loose)
    if (snapshots - used_at > Snapshot::sent_again_after) gone.insert(gone.end(), key);
  for (const SnapshotKey& key : gone) loose.erase(key);
  trace.snapshots.erase_if([&gone](const Snapshot& snapshot) {
    return gone.contains({snapshot.storage, snapshot.version});
  });
}

}  // namespace viewer
