// Values and gradients at a cursor, and how far a pass has come.
#include <algorithm>
#include <optional>
#include <set>

#include "viewer/timeline_index.hpp"

namespace viewer {

bool Timeline::Index::gap_between(std::size_t begin, std::size_t end) const {
  auto gap = std::lower_bound(gaps.begin(), gaps.end(), begin,
                              [](const auto& g, std::size_t at) { return g.second <= at; });
  return gap != gaps.end() && gap->first < end;
}

// The version of a storage when the events before `cut` have happened. Where events in between are
// not kept, what comes next tells more than what was seen last.
std::int64_t Timeline::Index::version_at(Id storage, std::size_t cut) const {
  auto found = storages.find(storage);
  if (found == storages.end() || found->second.versions.empty()) return 0;
  const auto& versions = found->second.versions;
  auto next = std::lower_bound(versions.begin(), versions.end(), cut,
                               [](const auto& v, std::size_t at) { return v.event < at; });
  const bool known = next != versions.begin();
  if (known && (next == versions.end() || !gap_between(std::prev(next)->event, cut)))
    return std::prev(next)->version;
  return next->before;
}

bool Timeline::exists(Cursor cursor, Id tensor) const {
  const TensorTrack* track = index_->track(tensor);
  if (track == nullptr) return false;
  return !track->birth_seen || track->born < cut_at(*this, clamp(cursor).position);
}

Value Timeline::value(const Seen& seen) const { return read_window(seen, trace_->find(seen)); }

Value Timeline::value(Cursor cursor, Id tensor) const {
  const Seen* window = seen(cursor, tensor);
  if (window == nullptr) return unknown({}, "not yet");
  if (!exists(cursor, tensor)) return unknown(*window, "not yet");
  Seen now = *window;
  now.version = index_->version_at(now.storage, cut_at(*this, clamp(cursor).position));
  return value(now);
}

std::pair<Events::const_iterator, Events::const_iterator> Timeline::Index::in_pass(
    const Events& list, std::int64_t pass) const {
  auto found = passes.find(pass);
  if (found == passes.end()) return {list.end(), list.end()};
  auto begin = std::lower_bound(list.begin(), list.end(), found->second.begin);
  auto next = std::next(found);  // passes do not overlap
  auto end =
      next == passes.end() ? list.end() : std::lower_bound(begin, list.end(), next->second.begin);
  return {begin, end};
}

// What a pass begins with, for its root.
std::optional<Value> Timeline::Index::seed(const TensorTrack& tensor, std::int64_t pass) const {
  auto [begin, end] = in_pass(tensor.roots, pass);
  if (begin == end) return std::nullopt;
  const PassBegins* begins = get<PassBegins>(*begin);
  if (begins == nullptr) return std::nullopt;
  std::optional<Value> sum;
  for (std::size_t i = 0; i < std::min(begins->roots.size(), begins->seeds.size()); ++i)
    if (begins->roots[i].tensor == tensor.first.tensor) add_to(sum, owner->value(begins->seeds[i]));
  return sum;
}

// The sum of what has arrived at a tensor in a pass; none if nothing has.
std::optional<Value> Timeline::Index::sum(const TensorTrack& tensor, std::int64_t pass,
                                          std::size_t cut) const {
  auto [hook, last_hook] = in_pass(tensor.hooks, pass);
  std::optional<Value> sum;
  for (; hook != last_hook && *hook < cut; ++hook)
    if (const Hooked* hooked = get<Hooked>(*hook)) sum = owner->value(hooked->after);
  if (sum) return sum;
  sum = seed(tensor, pass);
  auto [begin, end] = in_pass(tensor.arrivals, pass);
  for (auto i = begin; i != end && *i < cut; ++i)
    if (const Arrived* arrived = get<Arrived>(*i)) add_to(sum, owner->value(arrived->given));
  return sum;
}

// Uses whose contributions may still come in a pass that is not over.
std::vector<Use> Timeline::Index::still_expected(const TensorTrack& tensor, std::size_t begin,
                                                 std::size_t end, std::int64_t pass) const {
  std::set<std::pair<std::size_t, int>> arrived;
  auto [first, last] = in_pass(tensor.arrivals, pass);
  for (auto i = first; i != last; ++i)
    if (const Arrived* a = get<Arrived>(*i))
      if (auto node = nodes.find(a->node); node != nodes.end())
        arrived.insert({node->second.op, a->slot});
  std::vector<Use> expected;
  auto use = std::lower_bound(tensor.uses.begin(), tensor.uses.end(), begin,
                              [](const Use& u, std::size_t at) { return u.op < at; });
  for (; use != tensor.uses.end() && use->op < end; ++use)
    if (owner->op(use->op).node != 0 && !arrived.contains({use->op, use->slot}))
      expected.push_back(*use);
  return expected;
}

bool Timeline::Index::more_to_come(const TensorTrack& tensor, std::int64_t pass,
                                   std::size_t cut) const {
  auto [begin, end] = in_pass(tensor.arrivals, pass);
  if (begin != end && *std::prev(end) >= cut) return true;
  const PassTrack& track = passes.at(pass);
  if (track.end) return false;
  // The pass is not over in the trace. A result whose own op has been reached has all it gets.
  for (std::size_t maker : tensor.makers)
    if (auto node = nodes.find(owner->op(maker).node); node != nodes.end()) {
      auto [reached, none] = in_pass(node->second.arrivals, pass);
      if (reached != none) return false;
    }
  return !still_expected(tensor, 0, track.begin, pass).empty();
}

// What grad() holds; none if it is not defined.
std::optional<Value> Timeline::Index::held(const TensorTrack& tensor, std::size_t cut) const {
  const std::optional<std::size_t> last = last_before(tensor.settled, cut);
  const std::optional<std::size_t> next = first_from(tensor.settled, cut);
  if (last && gap_between(*last, cut) && next) {  // what happened in between is not kept
    const Landed* landed = get<Landed>(*next);
    return landed != nullptr && landed->had_before ? std::optional(owner->value(landed->before))
                                                   : std::nullopt;
  }
  const Landed* landed = last ? get<Landed>(*last) : nullptr;
  if (landed == nullptr) return std::nullopt;
  const TensorTrack* own = track(landed->after.tensor);
  Seen now = own == nullptr ? landed->after : own->at(cut);
  now.version = std::max(now.version, version_at(now.storage, cut));
  return owner->value(now);
}

Gradient Timeline::Index::gradient(Id id, std::size_t cut, std::optional<std::int64_t> pass) const {
  using State = Gradient::State;
  const TensorTrack* tensor = track(id);
  if (tensor == nullptr) return {};
  const std::optional<std::size_t> arrival = last_before(tensor->arrivals, cut);
  const std::optional<std::size_t> root = last_before(tensor->roots, cut);
  const std::optional<std::size_t> settled = last_before(tensor->settled, cut);
  const std::optional<std::size_t> running = std::max(arrival, root);  // none is less than any
  std::optional<Value> before = held(*tensor, cut);
  if (!running || settled > running || gap_between(*running, cut)) {
    if (before) return {State::landed, std::move(*before), {}};
    const std::optional<std::size_t> end = pass ? passes.at(*pass).end : std::nullopt;
    const bool cleared = end && settled && *settled > *end && get<LetGo>(*settled) != nullptr;
    return {cleared ? State::cleared : State::not_yet, {}, {}};
  }

  const std::optional<std::size_t> begin = last_before(pass_begins, *running + 1);
  const PassBegins* begins = begin ? get<PassBegins>(*begin) : nullptr;
  if (begins == nullptr) return {};
  const std::int64_t its_pass = begins->pass;
  const bool leaf = tensor->first.is_leaf;
  if (pass && its_pass != *pass && !leaf) {  // another pass runs, and has not come here yet
    auto [first, last] = in_pass(tensor->arrivals, *pass);
    if (first != last) return {};
  }
  std::optional<Value> value = sum(*tensor, its_pass, cut);
  if (!value) return {};
  const std::optional<std::size_t> end = passes.at(its_pass).end;
  const bool over = end && *end < cut;
  if (over || (!leaf && !more_to_come(*tensor, its_pass, cut)))
    return {State::complete, std::move(*value), std::move(before)};
  return {State::so_far, std::move(*value), std::move(before)};
}

Gradient Timeline::gradient(Cursor cursor, Id tensor) const {
  cursor = clamp(cursor);
  return index_->gradient(tensor, cut_at(*this, cursor.position), pass(cursor));
}

std::optional<std::int64_t> Timeline::pass(Cursor cursor) const {
  cursor = clamp(cursor);
  const std::optional<std::size_t> begin =
      last_before(index_->pass_begins, cut_at(*this, cursor.position));
  if (!begin || *begin < episode(cursor.episode).event_begin) return std::nullopt;
  const PassBegins* begins = index_->get<PassBegins>(*begin);
  return begins == nullptr ? std::nullopt : std::optional(begins->pass);
}

bool Timeline::of_grad(std::int64_t pass) const {
  auto begun = index_->passes.find(pass);
  if (begun == index_->passes.end()) return false;
  const PassBegins* begins = index_->get<PassBegins>(begun->second.begin);
  return begins != nullptr && !begins->asked.empty();
}

Progress Timeline::forward(Cursor cursor, std::size_t op) const {
  cursor = clamp(cursor);
  if (op >= cut_at(*this, cursor.position)) return Progress::pending;
  const Step* step = this->step(cursor);
  return step != nullptr && step->event == op ? Progress::active : Progress::done;
}

Progress Timeline::backward(Cursor cursor, std::size_t op) const {
  cursor = clamp(cursor);
  const std::optional<std::int64_t> pass = this->pass(cursor);
  auto node = index_->nodes.find(this->op(op).node);
  if (!pass || node == index_->nodes.end()) return Progress::pending;
  auto [begin, end] = index_->in_pass(node->second.arrivals, *pass);
  if (begin == end || *begin >= cut_at(*this, cursor.position)) return Progress::pending;
  const Step* step = this->step(cursor);
  const bool now = step != nullptr && std::binary_search(begin, end, step->event);
  return now ? Progress::active : Progress::done;
}

std::optional<std::size_t> Timeline::Index::arrival(std::optional<std::int64_t> pass,
                                                    std::size_t op, int slot) const {
  const auto node = nodes.find(owner->op(op).node);
  if (!pass || node == nodes.end()) return std::nullopt;
  const auto [begin, end] = in_pass(node->second.arrivals, *pass);
  const auto found = std::find_if(
      begin, end, [&](std::size_t event) { return get<Arrived>(event)->slot == slot; });
  return found == end ? std::nullopt : std::optional(*found);
}

Progress Timeline::edge_backward(Cursor cursor, std::size_t op, int slot) const {
  cursor = clamp(cursor);
  const std::optional<std::size_t> arrival = index_->arrival(pass(cursor), op, slot);
  if (!arrival || *arrival >= cut_at(*this, cursor.position)) return Progress::pending;
  const Step* step = this->step(cursor);
  return step != nullptr && step->event == *arrival ? Progress::active : Progress::done;
}

std::string Timeline::edge_numbers(Cursor cursor, std::size_t op, int slot) const {
  const std::optional<std::size_t> arrival = index_->arrival(pass(cursor), op, slot);
  if (!arrival || *arrival >= cut_at(*this, clamp(cursor).position)) return "";
  return index_->numbers(*arrival, {});
}

}  // namespace viewer
