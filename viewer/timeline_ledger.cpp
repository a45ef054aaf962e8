// The ledger: where a gradient comes from, with its numbers.
#include <algorithm>

#include "viewer/facts.hpp"
#include "viewer/timeline_index.hpp"

namespace viewer {

namespace {
// A tensor that is never let go can have received thousands of passes: the ledger shows the last.
constexpr std::size_t most_passes = 8;

// Whether all elements are known to be 0.
bool is_zero(const std::optional<Value>& value) {
  if (!value || value->kept == Value::Kept::nothing) return false;
  if (value->kept == Value::Kept::statistics)
    return value->statistics.min == 0 && value->statistics.max == 0 && value->statistics.nan == 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(value->count()); ++i)
    if (value->at(i) != 0) return false;
  return true;
}

// Which element of a tensor of shape `small` an element of the shape `large` is made of when the
// smaller one is broadcast.
std::optional<std::size_t> broadcast_element(std::size_t i, const Shape& large,
                                             const Shape& small) {
  if (small.size() > large.size()) return std::nullopt;
  std::size_t result = 0, stride = 1;
  for (std::size_t back = 1; back <= large.size(); ++back) {
    const auto size = static_cast<std::size_t>(large[large.size() - back]);
    if (size == 0) return std::nullopt;
    const std::size_t index = i % size;
    i /= size;
    if (back > small.size()) continue;
    const auto small_size = static_cast<std::size_t>(small[small.size() - back]);
    if (small_size != size && small_size != 1) return std::nullopt;
    if (small_size != 1) result += index * stride;
    stride *= small_size;
  }
  return result;
}
}  // namespace

// What a letter of a derivative's formula stands for, at one element of the gradient.
std::optional<double> Timeline::Index::letter(const Op& op, const Arrived& arrived, std::size_t i,
                                              std::string_view name, std::size_t element) const {
  Value value;
  if (name == "dy" && !op.outputs.empty()) {
    const TensorTrack* output = track(op.outputs[0].tensor);
    std::optional<Value> gradient =
        output == nullptr ? std::nullopt : sum(*output, arrived.pass, i);
    if (!gradient) return std::nullopt;
    value = std::move(*gradient);
  } else if (name == "y" && !op.outputs.empty()) {
    value = owner->value(op.outputs[0]);
  } else {
    std::size_t slot = 0;
    while (slot < op.inputs.size() && input_letter(slot) != name) ++slot;
    if (slot == op.inputs.size()) return std::nullopt;
    value = owner->value(op.inputs[slot]);
  }
  // The result of a sum over an axis has elements that belong to no single one of the gradient's.
  const bool result = name == "dy" || name == "y";
  if (result && value.count() != 1 && value.shape != arrived.before.shape) return std::nullopt;
  const std::optional<std::size_t> place =
      broadcast_element(element, arrived.before.shape, value.shape);
  if (value.kept != Value::Kept::in_full || !place) return std::nullopt;
  return value.at(*place);
}

// The formula of an arrival with its numbers put in: for a scalar, or for one element.
std::string Timeline::Index::numbers(std::size_t i, std::optional<std::size_t> element) const {
  const Arrived* arrived = get<Arrived>(i);
  auto node = arrived == nullptr ? nodes.end() : nodes.find(arrived->node);
  if (node == nodes.end() || !arrived->folded.empty()) return "";
  const Op& op = owner->op(node->second.op);
  const OpFacts* facts = owner->facts(op.op);
  const std::string_view formula = derivative(facts, arrived->slot);
  const std::optional<std::int64_t> count = small_count(arrived->before.shape);
  if (count == 1) element = 0;
  if (!count || !element || *element >= static_cast<std::size_t>(*count)) return "";
  words::Letters letters = numbers_of(op, facts);
  for (const std::string& name : words::letters_of(formula)) {
    if (letters.contains(name)) continue;
    const std::optional<double> value = letter(op, *arrived, i, name, *element);
    if (!value) return "";
    letters[name] = words::number(*value);
  }
  return words::is_elementwise(formula) ? words::put_in(formula, letters) : "";
}

Contribution Timeline::Index::row(std::size_t op, int slot, std::int64_t pass) const {
  Contribution row;
  row.pass = pass;
  row.op = op;
  row.slot = slot;
  row.from = owner->describe_op(op);
  row.formula = words::pretty(derivative(owner->facts(owner->op(op).op), slot));
  return row;
}

std::vector<Contribution> Timeline::ledger(Cursor cursor, Id id,
                                           std::optional<std::size_t> hovered) const {
  cursor = clamp(cursor);
  const TensorTrack* tensor = index_->track(id);
  if (tensor == nullptr) return {};
  const std::size_t cut = cut_at(*this, cursor.position);
  const Step* step = this->step(cursor);

  // The passes since the last let go that have begun; else the next one, if this episode has it.
  std::size_t since = 0;
  for (std::size_t i : tensor->settled)
    if (i < cut && index_->get<LetGo>(i) != nullptr) since = i;
  std::vector<std::int64_t> passes;
  for (std::size_t i : tensor->arrivals) {
    const Arrived* arrived = index_->get<Arrived>(i);
    if (arrived == nullptr || i < since) continue;
    auto begun = index_->passes.find(arrived->pass);
    if (begun == index_->passes.end()) continue;
    const bool to_come = begun->second.begin >= cut;
    if (to_come && (!passes.empty() || i >= episode(cursor.episode).event_end)) break;
    if (passes.empty() || passes.back() != arrived->pass) passes.push_back(arrived->pass);
  }
  // The sum of a grad() is one by itself.
  if (!passes.empty() && of_grad(passes.back()))
    passes = {passes.back()};
  else
    std::erase_if(passes, [this](std::int64_t pass) { return of_grad(pass); });
  if (passes.size() > most_passes)
    passes.erase(passes.begin(), passes.end() - static_cast<std::ptrdiff_t>(most_passes));
  // w.grad().zero_() lets go of nothing, and yet what came before is no part of the sum.
  for (std::size_t k = passes.size(); k-- > 0;) {
    const std::size_t begin = index_->passes.at(passes[k]).begin;
    if (begin >= cut || !is_zero(index_->held(*tensor, begin))) continue;
    passes.erase(passes.begin(), passes.begin() + static_cast<std::ptrdiff_t>(k));
    break;
  }

  std::vector<Contribution> rows;
  for (std::int64_t pass : passes) {
    std::optional<Value> sum = index_->seed(*tensor, pass);
    auto [begin, end] = index_->in_pass(tensor->arrivals, pass);
    for (auto i = begin; i != end; ++i) {
      const Arrived* arrived = index_->get<Arrived>(*i);
      const std::optional<std::size_t> op = op_of_node(arrived->node);
      if (!op) continue;
      Contribution row = index_->row(*op, arrived->slot, pass);
      row.arrived = *i < cut;
      row.active = step != nullptr && step->event == *i;
      if (row.arrived) {
        row.numbers = index_->numbers(*i, hovered);
        row.shape_before = arrived->before.shape;
        row.shape_given = arrived->given.shape;
        row.folded = arrived->folded;
        row.given = value(arrived->given);
        add_to(sum, row.given);
        row.sum = *sum;
      }
      rows.push_back(std::move(row));
    }
  }

  // What the trace does not know yet: the rest of a running pass, or all of one that may come.
  const bool running = !passes.empty() && !index_->passes.at(passes.back()).end;
  const bool cleared = gradient(cursor, id).state == Gradient::State::cleared;
  if ((passes.empty() && tensor->first.requires_grad && !cleared) || running) {
    const Episode& episode = this->episode(cursor.episode);
    const std::int64_t pass = passes.empty() ? 0 : passes.back();
    for (const Use& use :
         index_->still_expected(*tensor, episode.event_begin, episode.event_end, pass))
      rows.push_back(index_->row(use.op, use.slot, pass));
  }
  return rows;
}

std::vector<Id> Timeline::factors(Cursor cursor) const {
  const Step* step = this->step(cursor);
  const Arrived* arrived = step == nullptr ? nullptr : index_->get<Arrived>(step->event);
  const std::optional<std::size_t> event =
      arrived == nullptr ? std::nullopt : op_of_node(arrived->node);
  if (!event) return {};
  const Op& op = this->op(*event);
  std::vector<Id> found;
  for (const std::string& letter : words::letters_of(derivative(facts(op.op), arrived->slot))) {
    if (letter == "y" && !op.outputs.empty()) found.push_back(op.outputs[0].tensor);
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      if (input_letter(i) == letter) found.push_back(op.inputs[i].tensor);
  }
  return found;
}

}  // namespace viewer
