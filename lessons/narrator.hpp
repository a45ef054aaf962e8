// An observer that tells in a terminal what happens, forwards and backwards.
//
// Every sentence about an operation is made from the event and from the facts that the header
// states about that operation, so the narrator knows no operation by name.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lessons/chart.hpp"
#include "lessons/lesson.hpp"
#include "lessons/words.hpp"
#include "minitensor.hpp"

namespace lesson {

// `text` in lines of at most `width` characters. Its own line breaks stay.
inline std::string wrapped(const std::string& text, std::size_t width = 78) {
  std::string result;
  std::istringstream paragraphs(text);
  for (std::string paragraph; std::getline(paragraphs, paragraph); result += '\n') {
    std::size_t used = 0;
    std::istringstream in_paragraph(paragraph);
    for (std::string word; in_paragraph >> word; result += word) {
      const bool fits = used + 1 + words::length(word) <= width;
      if (used > 0) result += fits ? ' ' : '\n';
      used = words::length(word) + (used > 0 && fits ? used + 1 : 0);
    }
  }
  return result;
}

// The numbers of a tensor, short enough for a sentence.
inline std::string in_words(const mt::Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  if (x.dim() == 0) return words::number(values[0]);
  std::string text = "[";
  if (x.dim() == 1 && values.size() <= 6) {
    for (double value : values) text += (text.size() > 1 ? ", " : "") + words::number(value);
    return text + "]";
  }
  std::ostringstream shape;
  shape << x.shape();
  if (values.empty()) return shape.str() + ", no numbers";
  auto [low, high] = std::minmax_element(values.begin(), values.end());
  return shape.str() + ", from " + words::number(*low + 0.0) + " to " +
         words::number(*high + 0.0);  // + 0.0 makes -0 to 0
}

class Narrator : public mt::Observer {
 public:
  // `brief` leaves the prose out. Where there is a `person`, questions wait for an answer.
  Narrator(std::ostream& out, bool brief, bool person)
      : out_(out), brief_(brief), person_(person) {}

  // ---- Forwards ----

  void made(const mt::Tensor& x, mt::Loc line) override {
    arrive_at(line);
    const std::string variable = x.name().empty() ? variable_of_next_operation() : x.name();
    if (variable.empty() || !telling_) return;
    names_[x.id()] = variable;
    tell(variable + " = " + in_words(x));
  }

  void named(const mt::Tensor& x) override {
    const bool is_news = !names_.contains(x.id());
    names_[x.id()] = x.name();
    if (telling_ && is_news) tell(x.name() + " = " + in_words(x));
  }

  void op(const mt::Node* node, const mt::Facts& facts, const mt::Given& given,
          mt::Span<const mt::Tensor*> inputs, mt::Span<mt::Tensor> outputs, mt::Loc line) override {
    if (!scopes_.empty() && scopes_.back().composed) return op_inside(node, inputs, outputs);
    arrive_at(line);
    if (!telling_) return;
    Told told;
    told.letters = letters_of(facts, given, inputs, outputs);
    told.expression = words::put_in(facts.formula, told.letters.names);
    if (told.expression.empty()) {
      std::vector<mt::Tensor> handles;
      for (const mt::Tensor* input : inputs) handles.push_back(*input);
      told.expression = call_of(facts.plain_name(), handles);
    }
    finish(node, outputs, told, words::put_in(facts.formula, told.letters.numbers));
  }

  void scope_opens(mt::Id, const char* name, bool composed, mt::Loc line) override {
    const bool inside = !scopes_.empty() && scopes_.back().composed;
    if (composed && !inside) arrive_at(line);
    if (scopes_.empty()) {
      net_line_ = {line.path(), line.line()};
      net_is_news_ = !lines_told_.contains(net_line_);
      net_layers_ = 0;
    }
    if (scopes_.size() == 1 && !composed && !inside) ++net_layers_;
    scopes_.push_back({name, composed || inside, composed && !inside, {}, {}, {}, {}});
  }

  void scope_closes(mt::Id) override {
    if (scopes_.empty()) return;
    const OpenScope closed = std::move(scopes_.back());
    scopes_.pop_back();
    if (closed.is_box && !closed.outputs.empty()) close_box(closed);
    if (scopes_.empty() && net_layers_ > 0 && last_output_.defined()) close_net();
  }

  void wrote(const mt::Tensor& x, std::int64_t, const char* by, const mt::Node*,
             mt::Loc line) override {
    arrive_at(line, false);
    if (std::string_view(by) == "to") return;  // a network of other numbers is the same to a reader
    if (telling_) tell(name_of(x) + " is now " + in_words(x) + " (" + by + ")");
  }

  void let_go(const mt::Tensor& leaf, mt::Loc) override {
    if (has_let_go_.insert(leaf.id()).second && names_.contains(leaf.id()))
      tell(name_of(leaf) + ".grad is let go");
  }

  // ---- Backwards ----

  void pass_begins(const mt::PassSeen& pass) override {
    arrive_at(pass.line);
    received_.clear();
    for (std::size_t i = 0; i < pass.roots.size(); ++i) {
      Sum& sum = received_[pass.roots[i].id()];
      sum.add(pass.seeds[i]);
      if (telling_)
        tell("backwards from " + name_of(pass.roots[i]) + ", which receives " +
             in_words(pass.seeds[i]));
    }
  }

  void arrived(std::int64_t, const mt::Node& node, int slot, const mt::Tensor&,
               const mt::Shape& folded_axes, const mt::Tensor& given) override {
    if (!telling_) return;
    const mt::Id target = node.input_id(slot);
    Sum& sum = received_[target];
    const double before = sum.value;
    sum.add(given);
    const auto told = told_.find(node.id());
    if (told == told_.end() || !names_.contains(target)) return;

    std::string how = reckoned(node, slot, told->second);
    if (!folded_axes.empty())
      how += (how.empty() ? "summed over " : " summed over ") +
             words::axes(std::vector<std::int64_t>(folded_axes.begin(), folded_axes.end()));
    tell(names_[target] + " receives " + how + (how.empty() ? "" : " = ") + in_words(given) +
         " from " + told->second.name_and_expression());
    if (sum.count == 1) return;
    std::string text = "  its " + words::ordinal(sum.count) + " contribution";
    if (sum.is_number)
      text += ": " + words::number(before) + " + " + words::number(given.item()) + " = " +
              words::number(sum.value);
    tell(text);
  }

  void hooked(std::int64_t, mt::Id tensor, const mt::Tensor& before,
              const mt::Tensor& after) override {
    if (telling_ && names_.contains(tensor))
      tell("a hook changes the gradient of " + names_[tensor] + " from " + in_words(before) +
           " to " + in_words(after));
  }

  void landed(std::int64_t, const mt::Tensor& leaf, const mt::Tensor& before,
              const mt::Tensor& after) override {
    if (!telling_ || !names_.contains(leaf.id())) return;
    names_[after.id()] = name_of(leaf) + ".grad";
    tell(names_[after.id()] + " = " + in_words(after) +
         (before.defined() ? ", it was " + in_words(before) : ""));
  }

  // ---- The lesson's own words ----

  void note(const char* kind, const std::string& text, mt::Span<double> numbers) override {
    const std::string what = kind;
    if (what == "plotted") return chart_.add(text, numbers[0], numbers[1]);
    if (what == "pictured") {
      out_ << detail::in_characters(text, numbers);
      return;
    }
    if (what == "hint") return hints_.push_back(text);
    finish_chart();
    if (what == "paused" && person_) wait_for_person();
    if (what == "said") say_aloud(text);
    if (what == "asked") question(text, numbers[0]);
  }

  // Curves are drawn when the next word is said, or now.
  void finish_chart() {
    if (chart_.empty()) return;
    if (!brief_) {
      out_ << '\n';
      chart_.draw(out_);
    }
    chart_.tell(out_);
    chart_ = Chart();
  }

 private:
  // What stands for the letters of a formula.
  struct Letters {
    words::Letters names, numbers;
  };
  // An operation that was told; its arrivals will be.
  struct Told {
    std::string name, expression;  // "c", "x · y"
    Letters letters;
    mt::Id output = 0;
    bool is_box = false;  // made of others, whose own rules stay inside
    std::string name_and_expression() const {
      return name.empty() ? expression : name + " = " + expression;
    }
  };
  struct OpenScope {
    std::string name;
    bool composed = false;  // it, or one around it, is an operation made of others
    bool is_box = false;    // it is one, and none is around it
    std::vector<mt::Id> nodes;
    std::vector<mt::Tensor> inputs, outputs;
    std::set<mt::Id> made_inside;
  };
  struct Sum {
    long count = 0;
    double value = 0.0;
    bool is_number = false;
    void add(const mt::Tensor& given) {
      ++count;
      is_number = given.numel() == 1;
      if (is_number) value += given.item();
    }
  };

  // A loop is told once: a line that is reached again, after another one, is passed over in
  // silence. So is a line that goes on and on. `makes`: what happens there has a result.
  void arrive_at(mt::Loc line, bool makes = true) {
    const std::pair<std::string, int> here(line.path(), line.line());
    if (here != line_) {
      line_ = here;
      operations_on_line_ = events_on_line_ = 0;
      telling_ = lines_told_.insert(here).second;
    }
    operations_on_line_ += makes ? 1 : 0;
    if (++events_on_line_ > 12) telling_ = false;
  }

  // `auto z = (x + y) * w;` calls the second of its operations z; `auto y = net(x);` none of those
  // of its layers, but what comes out in the end.
  std::string variable_of_next_operation() const {
    if (!scopes_.empty() && net_layers_ > 0 && line_ == net_line_) return "";
    const Naming naming = naming_on(source_line(line_.first, line_.second));
    return naming.operations == operations_on_line_ ? naming.variable : "";
  }

  bool is_known(const mt::Tensor& x) const { return !x.name().empty() || names_.contains(x.id()); }
  std::string name_of(const mt::Tensor& x) const {
    if (!x.name().empty()) return x.name();
    auto known = names_.find(x.id());
    return known != names_.end() ? known->second : "a tensor";
  }

  // "mse_loss(guess, y)"
  std::string call_of(const std::string& operation, const std::vector<mt::Tensor>& inputs) const {
    std::vector<std::string> names;
    for (const mt::Tensor& input : inputs) {
      const std::string name = name_of(input);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    if (text.empty()) text = "a tensor";
    return operation + "(" + text + ")";
  }

  Letters letters_of(const mt::Facts& facts, const mt::Given& given,
                     mt::Span<const mt::Tensor*> inputs, mt::Span<mt::Tensor> outputs) const {
    Letters letters;
    const char* letter[] = {"a", "b", "c"};
    for (std::size_t i = 0; i < inputs.size() && i < 3; ++i) {
      letters.names[letter[i]] = name_of(*inputs[i]);
      if (inputs[i]->dim() == 0) letters.numbers[letter[i]] = words::number(inputs[i]->item());
    }
    if (outputs.size() == 1 && outputs[0].dim() == 0)
      letters.numbers["y"] = words::number(outputs[0].item());
    if (std::string(facts.attributes) == "n")
      letters.names["n"] = letters.numbers["n"] = words::number(given.n);
    return letters;
  }

  // "dy · b = 1 × 3 = ": the rule, and the numbers in it when all of them are single ones. Only the
  // rule's value is left to be said.
  std::string reckoned(const mt::Node& node, int slot, const Told& told) const {
    const char* formula = node.facts().derivative(slot);
    if (told.is_box || formula == nullptr || *formula == '\0') return "";
    const auto dy = received_.find(told.output);
    words::Letters numbers = told.letters.numbers;
    if (dy != received_.end() && dy->second.is_number)
      numbers["dy"] = words::number(dy->second.value);
    const std::string with_numbers = words::put_in(formula, numbers);
    const bool says_more = with_numbers.find_first_of(" /(") != std::string::npos;
    return words::pretty(formula) + (says_more ? " = " + with_numbers : "");
  }

  // Inside of an operation made of others nothing is told; what it gives in the end is its own. Nor
  // are inputs told that nobody has heard of: the operation made them for itself.
  void op_inside(const mt::Node* node, mt::Span<const mt::Tensor*> inputs,
                 mt::Span<mt::Tensor> outputs) {
    OpenScope& box = *std::find_if(scopes_.begin(), scopes_.end(),
                                   [](const OpenScope& scope) { return scope.is_box; });
    for (const mt::Tensor* input : inputs)
      if (!box.made_inside.contains(input->id()) && is_known(*input)) box.inputs.push_back(*input);
    for (const mt::Tensor& output : outputs) box.made_inside.insert(output.id());
    if (node != nullptr) box.nodes.push_back(node->id());
    box.outputs.assign(outputs.begin(), outputs.end());
  }

  void close_box(const OpenScope& box) {
    if (!telling_) return;
    Told told;
    told.is_box = true;
    told.expression = call_of(box.name, box.inputs);
    finish(nullptr, box.outputs, told, "");
    told.name = variable_of_next_operation();
    for (mt::Id node : box.nodes) told_[node] = told;
  }

  void close_net() {
    const Naming naming = naming_on(source_line(net_line_.first, net_line_.second));
    lines_told_.insert(net_line_);
    std::string& name = names_[last_output_.id()];
    if (naming.operations != 1 || naming.variable.empty() || name == naming.variable) return;
    name = naming.variable;
    if (net_is_news_) tell(naming.variable + " = " + in_words(last_output_));
  }

  // Names the results of an operation, and tells it.
  void finish(const mt::Node* node, mt::Span<mt::Tensor> outputs, Told told,
              const std::string& with_numbers) {
    if (outputs.empty()) return;
    last_output_ = outputs[0];
    told.name = variable_of_next_operation();
    for (const mt::Tensor& output : outputs)
      names_[output.id()] = told.name.empty() ? told.expression : told.name;
    told.output = outputs[0].id();
    if (node != nullptr) told_[node->id()] = told;
    std::string text = told.name_and_expression();
    if (!with_numbers.empty()) text += " = " + with_numbers;
    tell(text + " = " + in_words(outputs[0]));
  }

  void tell(const std::string& text) {
    finish_chart();
    if (!brief_ && after_prose_) out_ << '\n';
    after_prose_ = false;
    out_ << "  " << text << '\n';
  }

  void say_aloud(const std::string& text) {
    if (brief_) return;
    out_ << '\n' << wrapped(text);
    after_prose_ = true;
  }

  void question(const std::string& text, double answer) {
    say_aloud(text);
    const std::vector<std::string> hints = std::exchange(hints_, {});
    for (std::size_t wrong = 0; person_ && wrong <= hints.size(); ++wrong) {
      const std::optional<double> reply = number_from_person();
      if (!reply) break;
      if (std::abs(*reply - answer) <= 1e-4 * std::max(1.0, std::abs(answer))) {
        out_ << "Right.\n";
        break;
      }
      if (wrong < hints.size()) out_ << wrapped("Not quite. Hint: " + hints[wrong]);
    }
    out_ << "Answer: " << words::number(answer) << '\n';
  }

  void wait_for_person() {
    out_ << "[Enter] " << std::flush;
    std::string ignored;
    std::getline(std::cin, ignored);
  }

  // None when nobody is there any more.
  std::optional<double> number_from_person() {
    for (std::string reply; out_ << "> " << std::flush, std::getline(std::cin, reply);) {
      const std::optional<double> number = detail::number_in(detail::trimmed(reply));
      if (number) return number;
      out_ << "A number, please.\n";
    }
    return std::nullopt;
  }

  std::ostream& out_;
  bool brief_, person_;
  bool after_prose_ = false;

  std::pair<std::string, int> line_;
  int operations_on_line_ = 0, events_on_line_ = 0;
  bool telling_ = true;
  std::set<std::pair<std::string, int>> lines_told_;

  std::map<mt::Id, std::string> names_;  // of tensors, by id
  std::map<mt::Id, Told> told_;          // by the node's id
  std::map<mt::Id, Sum> received_;       // in this pass, by the tensor's id
  std::set<mt::Id> has_let_go_;
  std::vector<OpenScope> scopes_;
  std::pair<std::string, int> net_line_;  // of the outermost module that runs
  bool net_is_news_ = false;
  int net_layers_ = 0;  // modules inside of it so far
  mt::Tensor last_output_;
  std::vector<std::string> hints_;  // for the next question
  Chart chart_;
};

}  // namespace lesson
