// Reads the events of a run, each once, into the index.
#include "viewer/timeline_index.hpp"

namespace viewer {

void Timeline::Index::read_new() {
  const std::size_t size = owner->trace_->events.size();
  for (; unread < size; ++unread) {
    const Event* event = this->event(unread);
    if (std::optional<std::size_t> begin = rule.read(unread, event)) begin_episode(*begin);
    if (event != nullptr) read(unread, *event);
  }
  Episode& episode = owner->episodes_.back();
  episode.event_end = size;
  episode.last = owner->steps_.size();
  episode.ended = ended.has_value();
}

void Timeline::Index::read(std::size_t i, const Event& event) {
  std::visit([&](const auto& what) { read(i, event, what); }, event.what);
}

// Closes the current episode where the new one begins. Steps that have been read already are in the
// box with which it begins, and move into it.
void Timeline::Index::begin_episode(std::size_t at) {
  auto& steps = owner->steps_;
  std::size_t first = steps.size();
  while (first > 0 && steps[first - 1].event >= at) --first;
  Episode& last = owner->episodes_.back();
  for (std::size_t i = first; i < steps.size(); ++i) last.steps -= steps[i].inner == 0;
  last.last = first;
  last.event_end = at;
  last.ended = true;
  settle(last);
  Episode begun;
  begun.first = begun.last = first;
  begun.event_begin = begun.event_end = at;
  owner->episodes_.push_back(begun);
  const std::vector<Step> moved(steps.begin() + static_cast<std::ptrdiff_t>(first), steps.end());
  steps.resize(first);
  for (const Step& step : moved) {
    steps.push_back(step);
    number(steps.back(), step.inner == 0);
  }
}

// An episode that the Keeper has thinned can only be looked at as a whole.
void Timeline::Index::settle(Episode& episode) {
  for (std::size_t i = episode.event_begin; i < episode.event_end && episode.kept; ++i)
    episode.kept = event(i) != nullptr;
  if (episode.kept) return;
  gaps.emplace_back(episode.event_begin, episode.event_end);
  episode.last = episode.first;
}

void Timeline::Index::number(Step& step, bool visible) {
  Episode& episode = owner->episodes_.back();
  const std::size_t before = owner->steps_.size() - 1;  // `step` is the last one
  const bool first = before == episode.first;
  step.episode = static_cast<int>(owner->episodes_.size());
  step.number = visible ? ++episode.steps : episode.steps;
  step.inner = visible ? 0 : first ? 1 : owner->steps_[before - 1].inner + 1;
  episode.last = owner->steps_.size();
}

// A write to a parameter that no gradient has reached yet only gives it its start. What lets go of
// a gradient belongs to the update before it.
Phase Timeline::Index::phase_of(const Event& event) const {
  if (rule.in_pass()) return Phase::backward;
  bool update = false;
  if (const auto* op = std::get_if<Op>(&event.what))
    for (const Seen& output : op->outputs)
      if (const TensorTrack* made = track(output.tensor)) update |= made->of_gradients;
  if (const auto* wrote = std::get_if<Wrote>(&event.what))
    if (const TensorTrack* written = track(wrote->tensor.tensor))
      update = written->of_gradients || !written->settled.empty();
  const Episode& episode = owner->episodes_.back();
  if (std::holds_alternative<LetGo>(event.what) && episode.last > episode.first)
    update = owner->steps_.back().phase == Phase::update;
  return update ? Phase::update : Phase::forward;
}

void Timeline::Index::add_step(std::size_t i, const Event& event, bool visible) {
  auto& steps = owner->steps_;
  const Phase phase = phase_of(event);
  steps.emplace_back();
  steps.back().event = i;
  steps.back().phase = phase;
  number(steps.back(), visible);
  for (Id scope = event.scope; scope != 0;) {
    auto found = scopes.find(scope);
    if (found == scopes.end()) break;
    found->second.last_step = steps.size() - 1;
    scope = found->second.parent;
  }
}

// The last step in a box that is closed by default is the one that is seen.
void Timeline::Index::end_box(const ScopeTrack& scope) {
  auto& steps = owner->steps_;
  if (steps.empty() || scope.last_step != steps.size() - 1 || steps.back().inner == 0) return;
  number(steps.back(), true);
}

TensorTrack& Timeline::Index::see(std::size_t i, const Seen& seen) {
  if (seen.tensor != 0) see_version(i, seen);  // 0: an optional input that was left out
  auto [found, fresh] = tensors.try_emplace(seen.tensor);
  TensorTrack& tensor = found->second;
  if (fresh) tensor.first = seen;
  if (seen.storage != tensor.at(i + 1).storage) tensor.moved.emplace_back(i, seen);
  if (!seen.name.empty()) tensor.given_name = seen.name;
  return tensor;
}

void Timeline::Index::see_version(std::size_t i, const Seen& seen,
                                  std::optional<std::int64_t> before) {
  auto& versions = storages[seen.storage].versions;
  if (!versions.empty() && versions.back().version >= seen.version) return;
  versions.push_back({i, seen.version, before.value_or(seen.version)});
}

void Timeline::Index::born(std::size_t i, const Event& event, const Seen& seen, int output) {
  const bool fresh = !tensors.contains(seen.tensor);
  TensorTrack& tensor = see(i, seen);
  if (!fresh) return;  // written in place
  tensor.born = i;
  tensor.birth_seen = true;
  if (pass_runs()) return;
  tensor.on_line = current;
  tensor.on_line.line = event.line;
  tensor.on_line.output = output;
}

// The outermost scope around an event that its own line has opened: a composed op, or a network.
Id Timeline::Index::call_on_line(const Event& event) const {
  Id call = box_of(event.scope);
  for (Id scope = event.scope; scope != 0;) {
    auto found = scopes.find(scope);
    if (found == scopes.end()) break;
    const Event* opens = this->event(found->second.opened);
    if (opens != nullptr && opens->line == event.line) call = scope;
    scope = found->second.parent;
  }
  return call;
}

// What a pass computes has the line of the operation that it goes back through, and no variable.
bool Timeline::Index::pass_runs() const {
  const PassBegins* begins = pass_begins.empty() ? nullptr : get<PassBegins>(pass_begins.back());
  return begins != nullptr && !passes.at(begins->pass).end;
}

void Timeline::Index::enter_line(std::size_t i, const Event& event) {
  if (pass_runs()) return;
  const Id call = call_on_line(event);
  const std::uint64_t unit = call != 0 ? call : std::uint64_t{i} | (std::uint64_t{1} << 63);
  if (!(current.line == event.line)) {
    current = OnLine{};
    current.line = event.line;
    current.run = i + 1;
  } else if (unit != current_unit) {
    ++current.unit;
  }
  current_unit = unit;
}

void Timeline::Index::read(std::size_t i, const Event& event, const Made& made) {
  enter_line(i, event);
  born(i, event, made.tensor, 0);
  makings.push_back(i);
  add_step(i, event, box_of(event.scope) == 0);
}

void Timeline::Index::read(std::size_t i, const Event& event, const Op& op) {
  enter_line(i, event);
  bool of_gradients = false;
  for (std::size_t slot = 0; slot < op.inputs.size(); ++slot) {
    TensorTrack& input = see(i, op.inputs[slot]);
    of_gradients |= op.node == 0 && input.of_gradients;
    input.uses.push_back({i, static_cast<int>(slot)});
    if (input.on_line.run == current.run && current.run != 0 && !pass_runs()) {
      input.on_line.used_in_run = true;
      input.on_line.used_in_unit |= input.on_line.unit == current.unit;
    }
  }
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    const Seen& output = op.outputs[k];
    born(i, event, output, static_cast<int>(k));
    tensors[output.tensor].makers.push_back(i);
    tensors[output.tensor].of_gradients |= of_gradients;
    const Snapshot* snapshot = owner->trace_->find(output);
    over_budget |=
        snapshot != nullptr && !snapshot->in_full() && snapshot->count <= Snapshot::kept_in_full;
  }
  if (op.node != 0) nodes[op.node].op = i;
  ops.push_back(i);
  lines[{event.line.file, event.line.number}].push_back(i);
  add_step(i, event, box_of(event.scope) == 0);
}

// What it was given is not what its line was to assign.
void Timeline::Index::read(std::size_t i, const Event& event, const Failed& failed) {
  for (const Id id : failed.inputs)
    if (auto input = tensors.find(id); input != tensors.end() && current.line == event.line)
      input->second.on_line.used_in_run |= input->second.on_line.run == current.run;
  failures.push_back(i);
  add_step(i, event, true);
}

void Timeline::Index::read(std::size_t i, const Event& event, const PassBegins& begins) {
  current = OnLine{};
  passes[begins.pass].begin = i;
  pass_begins.push_back(i);
  for (const Seen& root : begins.roots) {
    Events& roots = see(i, root).roots;
    if (roots.empty() || roots.back() != i) roots.push_back(i);
  }
  for (const Seen& asked : begins.asked) see(i, asked).asked_for = true;
  add_step(i, event, true);
}

void Timeline::Index::read(std::size_t i, const Event&, const PassEnds& ends) {
  passes[ends.pass].end = i;
}

void Timeline::Index::read(std::size_t i, const Event& event, const Arrived& arrived) {
  nodes[arrived.node].arrivals.push_back(i);
  tensors[arrived.to].arrivals.push_back(i);
  add_step(i, event, !hidden_in(arrived.to, {}));
}

void Timeline::Index::read(std::size_t i, const Event& event, const Hooked& hooked) {
  tensors[hooked.tensor].hooks.push_back(i);
  add_step(i, event, !hidden_in(hooked.tensor, {}));
}

void Timeline::Index::read(std::size_t i, const Event& event, const Landed& landed) {
  tensors[landed.tensor].settled.push_back(i);
  const bool fresh = !tensors.contains(landed.after.tensor);
  TensorTrack& gradient = see(i, landed.after);
  gradient.gradient_of = landed.tensor;
  gradient.of_gradients = true;
  if (fresh) {
    gradient.born = i;
    gradient.birth_seen = true;
  }
  add_step(i, event, !hidden_in(landed.tensor, {}));
}

void Timeline::Index::read(std::size_t i, const Event& event, const Wrote& wrote) {
  see_version(i, wrote.tensor, wrote.version_before);
  see(i, wrote.tensor);
  if (wrote.node == 0) add_step(i, event, box_of(event.scope) == 0);
}

void Timeline::Index::read(std::size_t i, const Event& event, const LetGo& let_go) {
  tensors[let_go.tensor].settled.push_back(i);
  add_step(i, event, box_of(event.scope) == 0);
}

void Timeline::Index::read(std::size_t, const Event&, const Named& named) {
  tensors[named.tensor].given_name = named.name;
}

void Timeline::Index::read(std::size_t i, const Event&, const ScopeOpens& opens) {
  auto [found, fresh] = scopes.try_emplace(opens.scope);
  if (!fresh) return;
  const auto open = rule.open();  // with this one at its end
  const Id parent = open.size() > 1 ? open[open.size() - 2].scope : 0;
  const Id outer_box = box_of(parent);
  const Id own_box = opens.composed ? opens.scope : 0;
  found->second = {opens, parent, outer_box != 0 ? outer_box : own_box, i, {}};
}

void Timeline::Index::read(std::size_t, const Event&, const ScopeCloses& closes) {
  auto found = scopes.find(closes.scope);
  if (found != scopes.end() && found->second.box == closes.scope) end_box(found->second);
}

void Timeline::Index::read(std::size_t i, const Event&, const Said&) { words.push_back(i); }
void Timeline::Index::read(std::size_t i, const Event&, const Asked&) { words.push_back(i); }
void Timeline::Index::read(std::size_t i, const Event&, const Paused&) { pauses.push_back(i); }
void Timeline::Index::read(std::size_t i, const Event&, const Pictured&) { pictures.push_back(i); }

void Timeline::Index::read(std::size_t i, const Event&, const Plotted& plotted) {
  if (charts.empty() || word_between(charts.back().last, i)) charts.push_back({.begin = i});
  ChartTrack& chart = charts.back();
  chart.last = i;
  auto curve = std::find_if(chart.curves.begin(), chart.curves.end(),
                            [&](const Curve& one) { return one.name == plotted.series; });
  if (curve == chart.curves.end())
    curve = chart.curves.insert(chart.curves.end(), {.name = plotted.series});
  if (!curve->points.empty()) {
    const Curve::Point& before = curve->points.back();
    curve->to_the_right &= plotted.x > before.x || (plotted.x == before.x && plotted.y == before.y);
  }
  curve->points.push_back({plotted.x, plotted.y, i});
}

void Timeline::Index::read(std::size_t i, const Event&, const Printed& text) {
  printed += text.text;
  printed_until.emplace_back(i, printed.size());
}

void Timeline::Index::read(std::size_t i, const Event&, const Ended&) {
  ended = i;
  for (const EpisodeRule::Opened& open : rule.open()) {
    const ScopeTrack& scope = scopes[open.scope];
    if (scope.box == open.scope) end_box(scope);
  }
}

}  // namespace viewer
