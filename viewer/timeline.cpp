#include "viewer/timeline.hpp"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include "viewer/timeline_index.hpp"

namespace viewer {

Timeline::Timeline() : index_(std::make_unique<Index>(*this)) {}
Timeline::~Timeline() = default;
Timeline::Timeline(Timeline&& other) noexcept
    : trace_(std::move(other.trace_)),
      steps_(std::move(other.steps_)),
      episodes_(std::move(other.episodes_)),
      index_(std::move(other.index_)) {
  index_->owner = this;
}
Timeline& Timeline::operator=(Timeline&& other) noexcept {
  trace_ = std::move(other.trace_);
  steps_ = std::move(other.steps_);
  episodes_ = std::move(other.episodes_);
  index_ = std::move(other.index_);
  index_->owner = this;
  return *this;
}

void Timeline::extend(std::shared_ptr<const Trace> trace) {
  if (trace == nullptr || trace == trace_) return;
  trace_ = std::move(trace);
  index_->read_new();
}

bool Timeline::over_budget() const { return index_->over_budget; }

const Ended* Timeline::ended() const {
  return index_->ended ? index_->get<Ended>(*index_->ended) : nullptr;
}

// ---- Steps and episodes --------------------------------------------------------------------------

Cursor Timeline::start(int episode) const { return clamp({episode, 0}); }

Cursor Timeline::end(int episode) const {
  return clamp({episode, std::numeric_limits<std::size_t>::max()});
}

Cursor Timeline::clamp(Cursor cursor) const {
  cursor.episode = std::clamp(cursor.episode, 1, static_cast<int>(episodes_.size()));
  const Episode& episode = this->episode(cursor.episode);
  cursor.position = std::clamp(cursor.position, episode.first, episode.last);
  return cursor;
}

Cursor Timeline::at(int episode, std::int64_t number) const {
  Cursor cursor = clamp({episode, 0});
  const Episode& found = this->episode(cursor.episode);
  const auto begin = steps_.begin() + static_cast<std::ptrdiff_t>(found.first);
  const auto end = steps_.begin() + static_cast<std::ptrdiff_t>(found.last);
  // Hidden steps follow the one whose number they have, so the first of a number is the seen one.
  auto step = std::lower_bound(begin, end, std::max<std::int64_t>(number, 0),
                               [](const Step& s, std::int64_t n) { return s.number < n; });
  if (number <= 0) return cursor;
  cursor.position = static_cast<std::size_t>(step - steps_.begin()) + (step == end ? 0 : 1);
  return cursor;
}

std::string Timeline::lacks(int episode, std::int64_t number) const {
  const std::size_t episodes = episodes_.size();
  if (episode < 1 || static_cast<std::size_t>(episode) > episodes)
    return "there is no episode " + std::to_string(episode) + ": this run has " +
           std::to_string(episodes);
  const std::int64_t steps = this->episode(episode).steps;
  if (number <= steps) return "";
  return "there is no step " + std::to_string(number) + ": episode " + std::to_string(episode) +
         " has " + std::to_string(steps);
}

bool Timeline::visible(std::size_t step, const Toggled& toggled) const {
  if (toggled.empty()) return steps_[step].inner == 0;
  const Event* event = index_->event(steps_[step].event);
  if (event == nullptr) return false;
  if (auto* arrived = std::get_if<Arrived>(&event->what)) return !hidden_in(arrived->to, toggled);
  if (auto* hooked = std::get_if<Hooked>(&event->what)) return !hidden_in(hooked->tensor, toggled);
  if (auto* landed = std::get_if<Landed>(&event->what)) return !hidden_in(landed->tensor, toggled);
  if (std::holds_alternative<Failed>(event->what)) return true;
  const std::optional<Id> closed = index_->closed_around(event->scope, toggled);
  return !closed || index_->scopes.at(*closed).last_step == step;
}

Cursor Timeline::next(Cursor cursor, const Toggled& toggled) const {
  cursor = clamp(cursor);
  const std::size_t end = episode(cursor.episode).last;
  for (std::size_t step = cursor.position; step < end; ++step)
    if (visible(step, toggled)) return {cursor.episode, step + 1};
  return {cursor.episode, end};
}

Cursor Timeline::previous(Cursor cursor, const Toggled& toggled) const {
  cursor = clamp(cursor);
  const std::size_t begin = episode(cursor.episode).first;
  // Back over the step that was taken last, to the end of the one before it that is seen.
  for (std::size_t position = cursor.position; position > begin + 1; --position)
    if (visible(position - 2, toggled)) return {cursor.episode, position - 1};
  return {cursor.episode, begin};
}

const Step* Timeline::step(Cursor cursor) const {
  cursor = clamp(cursor);
  return cursor.position == episode(cursor.episode).first ? nullptr : &steps_[cursor.position - 1];
}

std::int64_t Timeline::number(Cursor cursor) const {
  const Step* step = this->step(cursor);
  return step == nullptr ? 0 : step->number;
}

std::string Timeline::label(Cursor cursor) const {
  const Step* step = this->step(cursor);
  if (step == nullptr) return "0";
  const std::string number = std::to_string(step->number);
  return step->inner == 0 ? number : number + "." + std::to_string(step->inner);
}

std::string_view word_for(Phase phase) {
  switch (phase) {
    case Phase::backward:
      return "backward";
    case Phase::update:
      return "update";
    case Phase::forward:
      break;
  }
  return "forward";
}

Phase Timeline::phase(Cursor cursor) const {
  const Step* step = this->step(cursor);
  return step == nullptr ? Phase::forward : step->phase;
}

Line Timeline::line_of(std::size_t event) const {
  const Event* found = index_->event(event);
  return found == nullptr ? Line{} : found->line;
}

Line Timeline::line(Cursor cursor) const {
  const Step* step = this->step(cursor);
  if (step == nullptr) return {};
  const Event* event = index_->event(step->event);
  if (event == nullptr) return {};
  if (auto* arrived = std::get_if<Arrived>(&event->what))
    if (std::optional<std::size_t> op = op_of_node(arrived->node)) return line_of(*op);
  if (event->line.number != 0) return event->line;
  // A gradient lands on the line where its pass began.
  std::optional<std::size_t> begin = last_before(index_->pass_begins, step->event);
  return step->phase == Phase::backward && begin ? line_of(*begin) : event->line;
}

std::vector<std::string> Timeline::said(Cursor cursor) const {
  cursor = clamp(cursor);
  const std::size_t cut = cut_at(*this, cursor.position);
  std::vector<std::string> texts;
  auto word = std::lower_bound(index_->words.begin(), index_->words.end(),
                               episode(cursor.episode).event_begin);
  for (; word != index_->words.end() && *word < cut; ++word) {
    if (auto* said = index_->get<Said>(*word)) texts.push_back(said->text);
    if (auto* asked = index_->get<Asked>(*word)) texts.push_back(asked->text);
  }
  return texts;
}

std::string_view Timeline::printed(Cursor cursor) const {
  const std::size_t cut = cut_at(*this, clamp(cursor).position);
  const auto& until = index_->printed_until;
  auto after =
      std::lower_bound(until.begin(), until.end(), std::pair<std::size_t, std::size_t>(cut, 0));
  if (after == until.begin()) return {};
  return std::string_view(index_->printed).substr(0, std::prev(after)->second);
}

std::optional<std::size_t> Timeline::failure(Cursor cursor) const {
  cursor = clamp(cursor);
  const std::optional<std::size_t> last =
      last_before(index_->failures, cut_at(*this, cursor.position));
  return last && *last >= episode(cursor.episode).event_begin ? last : std::nullopt;
}

bool Timeline::pauses(Cursor from, Cursor to) const {
  from = clamp(from), to = clamp(to);
  if (from.position >= to.position) return false;
  const std::optional<std::size_t> last = last_before(index_->pauses, cut_at(*this, to.position));
  return last && *last > steps_[from.position].event;
}

// ---- The graph -----------------------------------------------------------------------------------

EpisodeGraph Timeline::graph(int number) const {
  const Episode& episode = this->episode(number);
  EpisodeGraph graph;
  std::unordered_set<Id> met;
  const auto meet_tensor = [&](Id tensor) {
    if (tensor != 0 && met.insert(tensor).second) graph.tensors.push_back(tensor);
  };
  const auto meet = [&](const Seen& seen) { meet_tensor(seen.tensor); };
  for (std::size_t i = episode.event_begin; i < episode.event_end; ++i) {
    if (auto* made = index_->get<Made>(i)) meet(made->tensor);
    if (auto* failed = index_->get<Failed>(i)) {
      if (!op_that_failed(i)) graph.failed.push_back(i);
      for (const Id input : failed->inputs)
        if (seen(input) != nullptr) meet_tensor(input);
    }
    auto* op = index_->get<Op>(i);
    if (op == nullptr) continue;
    graph.ops.push_back(i);
    for (const Seen& input : op->inputs) meet(input);
    for (const Seen& output : op->outputs) meet(output);
  }
  return graph;
}

const Op& Timeline::op(std::size_t event) const {
  static const Op none;
  const Op* found = index_->get<Op>(event);
  return found == nullptr ? none : *found;
}

const OpFacts* Timeline::facts(const std::string& op) const {
  auto found = trace_->facts.find(op);
  return found == trace_->facts.end() ? nullptr : &found->second;
}

std::optional<std::size_t> Timeline::maker(Id tensor) const {
  const TensorTrack* track = index_->track(tensor);
  if (track == nullptr || track->makers.empty()) return std::nullopt;
  const std::size_t first = track->makers.front();
  return index_->event(first) == nullptr ? std::nullopt : std::optional(first);
}

std::optional<std::size_t> Timeline::op_of_node(Id node) const {
  auto found = index_->nodes.find(node);
  if (node == 0 || found == index_->nodes.end()) return std::nullopt;
  return index_->get<Op>(found->second.op) == nullptr ? std::nullopt
                                                      : std::optional(found->second.op);
}

std::optional<std::size_t> Timeline::op_that_failed(std::size_t event) const {
  const Failed* failed = index_->get<Failed>(event);
  const std::optional<std::size_t> op = failed == nullptr ? std::nullopt : op_of_node(failed->node);
  if (!op) return std::nullopt;
  const auto after =
      std::upper_bound(episodes_.begin(), episodes_.end(), event,
                       [](std::size_t e, const Episode& one) { return e < one.event_begin; });
  return *op >= std::prev(after)->event_begin ? op : std::nullopt;
}

std::vector<Use> Timeline::uses(Id tensor) const {
  std::vector<Use> kept;
  if (const TensorTrack* track = index_->track(tensor))
    for (const Use& use : track->uses)
      if (index_->event(use.op) != nullptr) kept.push_back(use);
  return kept;
}

std::vector<std::size_t> Timeline::ops_on_line(int number, const Line& line) const {
  auto found = index_->lines.find({line.file, line.number});
  if (found == index_->lines.end()) return {};
  const Episode& episode = this->episode(number);
  const Events& all = found->second;
  return {std::lower_bound(all.begin(), all.end(), episode.event_begin),
          std::lower_bound(all.begin(), all.end(), episode.event_end)};
}

const Seen* Timeline::seen(Id tensor) const {
  const TensorTrack* track = index_->track(tensor);
  return track == nullptr || track->first.tensor == 0 ? nullptr : &track->first;
}

const Seen* Timeline::seen(Cursor cursor, Id tensor) const {
  const TensorTrack* track = index_->track(tensor);
  return track == nullptr || track->first.tensor == 0
             ? nullptr
             : &track->at(cut_at(*this, clamp(cursor).position));
}

bool Timeline::is_leaf(Id tensor) const {
  const Seen* found = seen(tensor);
  return found == nullptr || found->is_leaf;
}

std::vector<Id> Timeline::scopes_around(std::size_t event) const {
  std::vector<Id> around;
  const Event* found = index_->event(event);
  for (Id scope = found == nullptr ? 0 : found->scope; scope != 0;) {
    auto track = index_->scopes.find(scope);
    if (track == index_->scopes.end()) break;
    around.push_back(scope);
    scope = track->second.parent;
  }
  std::reverse(around.begin(), around.end());
  return around;
}

const ScopeOpens* Timeline::scope(Id scope) const {
  auto found = index_->scopes.find(scope);
  return found == index_->scopes.end() ? nullptr : &found->second.opens;
}

Id Timeline::Index::box_of(Id scope) const {
  auto found = scopes.find(scope);
  return found == scopes.end() ? 0 : found->second.box;
}

bool Timeline::Index::is_open(Id scope, const Toggled& toggled) const {
  auto found = scopes.find(scope);
  const bool open = found == scopes.end() || !found->second.opens.composed;
  return open != toggled.contains(scope);
}

std::optional<Id> Timeline::Index::closed_around(Id scope, const Toggled& toggled) const {
  std::optional<Id> closed;
  while (scope != 0) {
    auto found = scopes.find(scope);
    if (found == scopes.end()) break;
    if (!is_open(scope, toggled)) closed = scope;
    scope = found->second.parent;
  }
  return closed;
}

// What is used nowhere but in the box where it was made, and is not the box's last result.
std::optional<Id> Timeline::Index::hidden_in(Id id, const Toggled& toggled) const {
  const TensorTrack* tensor = track(id);
  if (tensor == nullptr) return std::nullopt;
  // Places and masks that an operation has found for itself come without a birth.
  const bool wants_none =
      tensor->first.dtype == DType::int64 || tensor->first.dtype == DType::boolean;
  if (!tensor->birth_seen && (!wants_none || tensor->uses.empty())) return std::nullopt;
  const auto closed_at = [&](std::size_t i) {
    const Event* found = event(i);
    return found == nullptr ? std::nullopt : closed_around(found->scope, toggled);
  };
  const std::optional<Id> box = closed_at(tensor->birth_seen ? tensor->born : tensor->uses[0].op);
  if (!box || !tensor->roots.empty() || tensor->asked_for) return std::nullopt;
  if (tensor->uses.empty()) {
    const std::optional<std::size_t> last = scopes.at(*box).last_step;
    return last && owner->steps_[*last].event == tensor->born ? std::nullopt : box;
  }
  for (const Use& use : tensor->uses)
    if (closed_at(use.op) != box) return std::nullopt;
  return box;
}

bool Timeline::is_open(Id scope, const Toggled& toggled) const {
  return index_->is_open(scope, toggled);
}

std::optional<Id> Timeline::closed_around(std::size_t event, const Toggled& toggled) const {
  const Event* found = index_->event(event);
  return found == nullptr ? std::nullopt : index_->closed_around(found->scope, toggled);
}

std::optional<Id> Timeline::hidden_in(Id tensor, const Toggled& toggled) const {
  return index_->hidden_in(tensor, toggled);
}

}  // namespace viewer
