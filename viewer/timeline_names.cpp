// What tensors and operations are called.
#include <algorithm>

#include "viewer/facts.hpp"
#include "viewer/timeline_index.hpp"

namespace viewer {

// How many formulas may stand inside each other in a name; deeper ones show only their op.
static constexpr int deepest_name = 3;

const Assignment& Timeline::Index::assignment(const Line& line) const {
  static const Assignment none;
  auto source = owner->trace_->sources.find(line.file);
  if (source == owner->trace_->sources.end() || line.number <= 0) return none;
  auto [found, fresh] = assignments.try_emplace({line.file, line.number});
  if (fresh) found->second = assignment_on(line_of_text(source->second, line.number));
  return found->second;
}

// The variable that a tensor was assigned to: the result of the last op of its line.
std::optional<std::string> Timeline::Index::variable(const TensorTrack& tensor) const {
  const OnLine& place = tensor.on_line;
  if (!tensor.birth_seen || place.used_in_unit) return std::nullopt;
  const Assignment& assigned = assignment(place.line);
  // In `h = h * w + x` an earlier result on the line is used by a later one in either case: within
  // the statement, or in the next turn of the loop. The number of ops tells them apart.
  const bool last = assigned.uses_itself ? (place.unit + 1) % std::max(assigned.operations, 1) == 0
                                         : !place.used_in_run;
  const auto output = static_cast<std::size_t>(place.output);
  if (!last || output >= assigned.names.size()) return std::nullopt;
  return assigned.names[output];
}

std::string Timeline::Index::name(Id id, int depth) const {
  std::string ending;
  const TensorTrack* tensor = track(id);
  for (int i = 0; tensor != nullptr && tensor->gradient_of != 0 && tensor->given_name.empty() &&
                  i < deepest_name;
       ++i) {
    ending += ".grad";
    tensor = track(tensor->gradient_of);
  }
  if (tensor == nullptr) return "tensor" + ending;
  if (!tensor->given_name.empty()) return tensor->given_name + ending;
  if (std::optional<std::string> found = variable(*tensor)) return *found + ending;
  if (tensor->makers.empty()) return "tensor" + ending;
  return expression(tensor->makers.front(), depth) + ending;
}

words::Letters Timeline::Index::names_of_inputs(const Op& op, int depth) const {
  words::Letters names;
  for (std::size_t slot = 0; slot < op.inputs.size(); ++slot)
    if (std::string letter = input_letter(slot); !letter.empty())
      names[letter] = name(op.inputs[slot].tensor, depth);
  return names;
}

std::string Timeline::Index::expression(std::size_t event, int depth) const {
  const Op& op = owner->op(event);
  const OpFacts* facts = owner->facts(op.op);
  // What leaves a box is its result, however it is made inside.
  if (const auto box = owner->closed_around(event, {}); box && !op.outputs.empty())
    if (!hidden_in(op.outputs[0].tensor, {})) return scopes.at(*box).opens.name + "(…)";
  if (depth == 0) return plain_name(op.op, facts);
  words::Letters letters = names_of_inputs(op, depth - 1);
  std::string arguments;
  for (const Seen& input : op.inputs)
    arguments += (arguments.empty() ? "" : ", ") + name(input.tensor, depth - 1);
  if (facts != nullptr) {
    letters.merge(numbers_of(op, facts));
    std::string text = words::put_in(facts->formula, letters);
    if (!text.empty()) return text;
  }
  return plain_name(op.op, facts) + "(" + arguments + ")";
}

std::string Timeline::name(Id tensor) const { return index_->name(tensor, deepest_name); }

std::string Timeline::lacks(int episode, std::string_view tensor) const {
  constexpr std::size_t most = 8;
  std::vector<std::string> names;
  for (const Id id : graph(episode).tensors) {
    const std::string name = this->name(id);
    if (name == tensor) return "";
    const bool known = std::find(names.begin(), names.end(), name) != names.end();
    if (!known && !hidden_in(id, {})) names.push_back(name);
  }
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
    list += (i == 0 ? "" : ", ") + words::clean(names[i]);
  if (names.size() > most) list += " and " + std::to_string(names.size() - most) + " more";
  return "no tensor is called \"" + std::string(tensor) + "\": episode " + std::to_string(episode) +
         " has " + list;
}

bool Timeline::is_named(Id tensor) const {
  const TensorTrack* track = index_->track(tensor);
  return track != nullptr && !track->given_name.empty();
}

std::string Timeline::describe_op(std::size_t event) const {
  const Op& op = this->op(event);
  const std::string text = index_->expression(event, deepest_name);
  if (op.outputs.empty()) return text;
  const Id output = op.outputs[0].tensor;
  const bool in_place = std::any_of(op.inputs.begin(), op.inputs.end(),
                                    [&](const Seen& input) { return input.tensor == output; });
  const std::string result = name(output);
  return in_place || result == text ? text : result + " = " + text;
}

std::string Timeline::circle(std::size_t event) const {
  const Op& op = this->op(event);
  const OpFacts* facts = this->facts(op.op);
  if (facts == nullptr) return op.op;
  return words::circle(op.op, facts->symbol, facts->formula, index_->names_of_inputs(op, 1),
                       numbers_of(op, facts));
}

}  // namespace viewer
