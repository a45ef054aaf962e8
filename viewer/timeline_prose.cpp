// A step in one sentence.
#include <algorithm>
#include <cmath>

#include "viewer/facts.hpp"
#include "viewer/timeline_index.hpp"

namespace viewer {

namespace {

// "20 numbers", "[20, 30] numbers".
std::string elements(const Value& value) {
  std::string shape;
  for (std::int64_t size : value.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  if (value.shape.size() != 1) shape = "[" + shape + "]";
  return shape + (value.dtype == DType::boolean ? " truth values" : " numbers");
}

// " (-2 … 2)": from the least to the greatest, where they are known and there are any.
std::string range(const Value& value) {
  double min = value.statistics.min, max = value.statistics.max;
  bool known = value.kept == Value::Kept::statistics;
  if (value.kept == Value::Kept::in_full)
    for (std::size_t i = 0; i < static_cast<std::size_t>(value.count()); ++i) {
      const double element = value.at(i);
      if (std::isnan(element)) return " (with nan)";
      min = known ? std::min(min, element) : element;
      max = known ? std::max(max, element) : element;
      known = true;
    }
  if (!known || value.dtype == DType::boolean) return "";
  if (value.statistics.nan > 0) return " (with nan)";
  return " (" + words::number(min, 4) + " … " + words::number(max, 4) + ")";
}

// A value in a sentence: 3, or [1, 2], or "20 numbers (-2 … 2)".
std::string in_prose(const Value& value) {
  constexpr std::int64_t few = 4;
  const auto one = [&](std::size_t i) {
    if (value.dtype == DType::boolean || value.dtype == DType::int64) return value.text(i, 20);
    return words::number(value.at(i));
  };
  const bool full = value.kept == Value::Kept::in_full;
  if (full && value.shape.empty()) return one(0);
  if (full && value.shape.size() == 1 && value.count() <= few) {
    std::string list;
    for (std::size_t i = 0; i < static_cast<std::size_t>(value.count()); ++i)
      list += (i == 0 ? "" : ", ") + one(i);
    return "[" + list + "]";
  }
  return elements(value) + range(value);
}

bool is_number(const Value& value) {
  return value.kept == Value::Kept::in_full && value.shape.empty();
}

// " = 1 × 3": the middle part of a chain of equations, unless it only repeats what follows.
std::string equals(const std::string& middle, const std::string& result) {
  return middle.empty() || middle == result ? "" : " = " + middle;
}

// One sentence about a step.
class Sentence {
 public:
  Sentence(const Timeline& timeline, Cursor cursor) : timeline_(timeline), cursor_(cursor) {}

  std::string operator()(const Made& made) const {
    const std::string kind = made.tensor.requires_grad ? ", a leaf that wants a gradient" : "";
    return name(made.tensor.tensor) + " = " + in_prose(timeline_.value(made.tensor)) + kind + ".";
  }
  std::string operator()(const Op& op) const {
    const std::size_t event = timeline_.step(cursor_)->event;
    const std::string recorded = op.node == 0 ? " (not recorded)" : "";
    if (op.outputs.empty()) return timeline_.describe_op(event) + recorded + ".";
    const std::string result = in_prose(timeline_.value(op.outputs[0]));
    return timeline_.describe_op(event) + equals(with_numbers(op), result) + " = " + result +
           recorded + ".";
  }
  std::string operator()(const Failed& failed) const {
    const bool says_which = failed.text.starts_with(failed.op + ":");
    return says_which ? failed.text : failed.op + " failed: " + failed.text;
  }
  std::string operator()(const PassBegins& begins) const {
    if (begins.roots.empty()) return "A pass begins.";
    const std::string root = name(begins.roots[0].tensor);
    std::string text = "The pass begins at " + root;
    if (begins.seeds.empty()) return text + ".";
    const Value seed = timeline_.value(begins.seeds[0]);
    text += is_number(seed) && seed.at(0) == 1
                ? ": the gradient of " + root + " with respect to itself is "
                : ", with the gradient ";
    return text + in_prose(seed) + ".";
  }
  std::string operator()(const Arrived& arrived) const {
    const std::optional<std::size_t> event = timeline_.op_of_node(arrived.node);
    const Value given = timeline_.value(arrived.given);
    std::string text = name(arrived.to) + " receives ";
    if (event) {
      const std::string& op = timeline_.op(*event).op;
      text += words::pretty(derivative(timeline_.facts(op), arrived.slot));
      text += equals(timeline_.edge_numbers(cursor_, *event, arrived.slot), in_prose(given));
      text += " = " + in_prose(given) + " from " + plain_name(op, timeline_.facts(op)) +
              box_around(*event);
    } else {
      text += in_prose(given);
    }
    if (!arrived.folded.empty())
      text += ", summed over " + words::axes(arrived.folded) + ", along which it was broadcast";
    return text + place_in_sum(arrived) + ".";
  }
  std::string operator()(const Hooked& hooked) const {
    return "A hook changes the gradient of " + name(hooked.tensor) + " from " +
           in_prose(timeline_.value(hooked.before)) + " to " +
           in_prose(timeline_.value(hooked.after)) + ".";
  }
  std::string operator()(const Landed& landed) const {
    const std::string after = in_prose(timeline_.value(landed.after));
    if (!landed.had_before)
      return "All contributions to " + name(landed.tensor) + " are in: " + name(landed.tensor) +
             ".grad = " + after + ".";
    return name(landed.tensor) + ".grad held " + in_prose(timeline_.value(landed.before)) +
           " already; this pass is added: " + after + ".";
  }
  std::string operator()(const Wrote& wrote) const {
    const std::string after = in_prose(timeline_.value(wrote.tensor));
    if (timeline_.phase(cursor_) != Phase::update)
      return name(wrote.tensor.tensor) + " is changed in place by " + wrote.by + ": " + after + ".";
    const Value before =
        timeline_.value({cursor_.episode, cursor_.position - 1}, wrote.tensor.tensor);
    const std::string from = is_number(before) ? "from " + in_prose(before) + " " : "";
    return wrote.by + " updates " + name(wrote.tensor.tensor) + " in place, " + from + "to " +
           after + ".";
  }
  std::string operator()(const LetGo& let_go) const {
    return name(let_go.tensor) + " lets go of its gradient.";
  }
  template <class Other>
  std::string operator()(const Other&) const {
    return "";
  }

 private:
  std::string name(Id tensor) const { return timeline_.name(tensor); }

  // " in softmax", for an op inside a box that is closed unless the reader opens it.
  std::string box_around(std::size_t op) const {
    const std::optional<Id> box = timeline_.closed_around(op, {});
    const ScopeOpens* opens = box ? timeline_.scope(*box) : nullptr;
    return opens == nullptr ? "" : " in " + opens->name;
  }

  // "2 × 3", when all inputs are numbers.
  std::string with_numbers(const Op& op) const {
    const OpFacts* facts = timeline_.facts(op.op);
    if (facts == nullptr) return "";
    words::Letters letters = numbers_of(op, facts);
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const Value value = timeline_.value(op.inputs[i]);
      if (!is_number(value)) return "";
      letters[input_letter(i)] = words::number(value.at(0));
    }
    return words::put_in(facts->formula, letters);
  }

  // ", its second contribution: 4 + 3 = 7"
  std::string place_in_sum(const Arrived& arrived) const {
    std::vector<Contribution> rows = timeline_.ledger(cursor_, arrived.to);
    std::erase_if(rows, [&](const Contribution& row) { return row.pass != arrived.pass; });
    std::int64_t place = 0;
    const Contribution* before = nullptr;
    for (const Contribution& row : rows) {
      ++place;
      if (!row.active) {
        before = &row;
        continue;
      }
      std::string text = ", its " + words::ordinal(place) + " contribution";
      if (place == 1) return rows.size() == 1 ? "" : text;
      if (is_number(row.sum) && is_number(row.given))
        text +=
            ": " + in_prose(before->sum) + " + " + in_prose(row.given) + " = " + in_prose(row.sum);
      return text;
    }
    return "";
  }

  const Timeline& timeline_;
  Cursor cursor_;
};

}  // namespace

// What happens at the end of a pass has no step of its own.
std::string Timeline::Index::end_of_pass(const Step& step) const {
  if (step.phase != Phase::backward || get<Failed>(step.event) != nullptr) return "";
  std::size_t i = step.event + 1;
  while (get<ScopeCloses>(i) != nullptr) ++i;
  const PassEnds* ends = get<PassEnds>(i);
  const auto pass = ends == nullptr ? passes.end() : passes.find(ends->pass);
  const PassBegins* begins = pass == passes.end() ? nullptr : get<PassBegins>(pass->second.begin);
  if (begins == nullptr) return "";
  if (begins->retain_graph || begins->create_graph)
    return " The pass is over, and the graph keeps what it has saved: another pass may come.";
  return " The pass is over, and the graph lets go of what it has saved.";
}

std::string Timeline::prose(Cursor cursor) const {
  cursor = clamp(cursor);
  const Step* step = this->step(cursor);
  const Event* event = step == nullptr ? nullptr : index_->event(step->event);
  if (event == nullptr) return "";
  return std::visit(Sentence(*this, cursor), event->what) + index_->end_of_pass(*step);
}

}  // namespace viewer
