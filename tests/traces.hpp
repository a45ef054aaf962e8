// Traces for tests, without the header and without a process: a small machine that computes with
// floats, differentiates, and writes the events that the Recorder would write.
//
//   Machine m;
//   Id x = m.leaf("x", {2});
//   Id y = m.pow(x, 2);
//   m.backward(y);
//   timeline.extend(m.share());
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "viewer/trace.hpp"

namespace traces {

using namespace viewer;

class Machine {
 public:
  Machine() {
    fact({"add", "+", "a + b", {"dy", "dy"}, ""});
    fact({"mul", "*", "a * b", {"dy * b", "dy * a"}, ""});
    fact({"pow", "^n", "a^n", {"dy * n * a^(n - 1)"}, "n"});
    fact({"sum", "sum", "sum of a", {"dy broadcast to the shape of a"}, ""});
  }

  int line = 0;  // of the events to come
  std::string file = "program.cpp";
  const Trace& trace() const { return trace_; }
  const std::vector<Record>& records() const { return records_; }  // all that was added, in order
  std::shared_ptr<const Trace> share() const { return std::make_shared<Trace>(trace_); }
  void source(const std::string& text) { write_down(std::pair(file, text)); }

  // A leaf: a scalar if it has one value, else a vector.
  Id leaf(const std::string& name, const std::vector<float>& values, bool requires_grad = true) {
    Tensor made;
    made.seen = seen_new(values, requires_grad, true);
    made.values = values;
    const Id id = keep(std::move(made));
    add(Made{tensors_[id].seen});
    if (!name.empty()) named(id, name);
    return id;
  }
  void named(Id id, const std::string& name) {
    tensors_[id].seen.name = name;
    add(Named{id, name});
  }

  Id add_(Id a, Id b) {
    return binary("add", a, b, [](float p, float q) { return p + q; });
  }
  Id mul(Id a, Id b) {
    return binary("mul", a, b, [](float p, float q) { return p * q; });
  }
  Id pow(Id a, double n) {
    std::vector<float> y;
    for (float value : tensors_[a].values) y.push_back(std::pow(value, static_cast<float>(n)));
    return record("pow", {a}, {{n}, {}}, y);
  }
  Id sum(Id a) {
    float total = 0;
    for (float value : tensors_[a].values) total += value;
    return record("sum", {a}, {}, {total});
  }

  void backward(Id root, bool create_graph = false, std::optional<Id> asked = {}) {
    begin_pass(root, create_graph, asked);
    // Nodes and leaves together, by falling number: all that hands to a thing has a greater one.
    std::map<Id, std::vector<float>> gradients;
    std::map<Id, Id> turns;  // node or leaf -> tensor
    const auto receive = [&](Id tensor, const std::vector<float>& given) {
      std::vector<float>& sum = gradients[tensor];
      if (sum.empty())
        sum = given;
      else
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += given[i];
      turns[tensors_[tensor].node != 0 ? tensors_[tensor].node : tensor] = tensor;
    };
    receive(root, std::vector<float>(tensors_[root].values.size(), 1.0F));
    while (!turns.empty()) {
      const Id tensor = turns.rbegin()->second;
      turns.erase(std::prev(turns.end()));
      if (tensors_[tensor].node != 0)
        hand_on(tensors_[tensor], gradients[tensor], receive);
      else if (!asked)
        land(tensor, gradients[tensor]);
    }
    add(PassEnds{pass_});
  }

  void let_go(Id leaf) {
    tensors_[leaf].gradient = Seen{};
    add(LetGo{leaf});
  }
  // w.grad().zero_(): the same tensor, with other elements.
  void zero_gradient(Id leaf) {
    Tensor& tensor = tensors_[leaf];
    const std::int64_t before = tensor.gradient.version++;
    tensor.gradient_values.assign(tensor.values.size(), 0.0F);
    snapshot(tensor.gradient, tensor.gradient_values);
    add(Wrote{tensor.gradient, before, "zero_", 0});
  }
  // In place, and not recorded: an optimiser's step.
  void write(Id id, const std::vector<float>& values) {
    Tensor& tensor = tensors_[id];
    const std::int64_t before = tensor.seen.version++;
    tensor.values = values;
    snapshot(tensor.seen, values);
    add(Wrote{tensor.seen, before, "sub_", 0});
  }
  // Its grad(), as an input of an op.
  Id gradient_of(Id leaf) {
    Tensor gradient;
    gradient.seen = tensors_[leaf].gradient;
    gradient.values = tensors_[leaf].gradient_values;
    return keep(std::move(gradient));
  }
  // Another tensor upon the same storage, without a gradient: made, for the trace.
  Id element_of(Id id, std::int64_t i) {
    Tensor view;
    view.seen = tensors_[id].seen;
    view.seen.tensor = ++ids_;
    view.seen.offset += i;
    view.seen.shape = view.seen.strides = {};
    view.seen.name = "";
    view.seen.requires_grad = false;
    view.values = {tensors_[id].values[static_cast<std::size_t>(i)]};
    const Id made = keep(std::move(view));
    add(Made{tensors_[made].seen});
    return made;
  }

  Id open(const std::string& name, bool composed) {
    const Id scope = ++ids_;
    add(ScopeOpens{scope, name, composed});
    open_.push_back(scope);
    return scope;
  }
  void close() {
    const Id scope = open_.back();
    open_.pop_back();
    add(ScopeCloses{scope});
  }
  bool any_open() const { return !open_.empty(); }

  void add(What what) {
    write_down(Event{std::move(what), {file, line}, open_.empty() ? 0 : open_.back()});
  }
  const Seen& seen(Id id) { return tensors_[id].seen; }
  Id node(Id id) { return tensors_[id].node; }  // of which it is the result
  std::vector<float> values(Id id) { return tensors_[id].values; }
  std::vector<float> gradient(Id id) { return tensors_[id].gradient_values; }
  bool has_gradient(Id id) { return tensors_[id].gradient.tensor != 0; }
  bool recording = true;
  std::size_t size(Id id) { return tensors_[id].values.size(); }

 private:
  struct Tensor {
    Seen seen;
    std::vector<float> values;
    Id node = 0;
    std::string op;
    double n = 0;
    std::vector<Id> inputs;
    std::vector<std::vector<float>> inputs_then;
    Seen gradient;
    std::vector<float> gradient_values;
  };

  void write_down(Record record) {
    records_.push_back(record);
    viewer::add(trace_, std::move(record));
  }
  void fact(OpFacts facts) { write_down(std::move(facts)); }
  Id keep(Tensor&& tensor) {
    const Id id = tensor.seen.tensor;
    tensors_[id] = std::move(tensor);
    return id;
  }
  void snapshot(const Seen& seen, const std::vector<float>& values) {
    Snapshot kept;
    kept.storage = seen.storage;
    kept.version = seen.version;
    kept.count = static_cast<std::int64_t>(values.size());
    kept.bytes.resize(values.size() * sizeof(float));
    if (!values.empty()) std::memcpy(kept.bytes.data(), values.data(), kept.bytes.size());
    write_down(std::move(kept));
  }
  Seen seen_new(const std::vector<float>& values, bool requires_grad, bool leaf) {
    Seen seen;
    seen.tensor = ++ids_;
    seen.storage = ++ids_;
    if (values.size() != 1) {
      seen.shape = {static_cast<std::int64_t>(values.size())};
      seen.strides = {1};
    }
    seen.requires_grad = requires_grad;
    seen.is_leaf = leaf;
    snapshot(seen, values);
    return seen;
  }

  template <class F>
  Id binary(const std::string& op, Id a, Id b, F f) {
    const std::vector<float>&p = tensors_[a].values, &q = tensors_[b].values;
    std::vector<float> y(std::max(p.size(), q.size()));
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = f(p[p.size() == 1 ? 0 : i], q[q.size() == 1 ? 0 : i]);
    return record(op, {a, b}, {}, y);
  }

  Id record(const std::string& name, const std::vector<Id>& inputs, Attributes attributes,
            const std::vector<float>& y) {
    Op op;
    op.op = name;
    op.attributes = attributes;
    bool recorded = false;
    Tensor result;
    for (Id input : inputs) {
      op.inputs.push_back(tensors_[input].seen);
      recorded |= tensors_[input].seen.requires_grad;
      result.inputs_then.push_back(tensors_[input].values);
    }
    recorded &= recording;
    if (recorded) op.node = result.node = ++ids_;
    result.seen = seen_new(y, recorded, !recorded);
    result.values = y;
    result.op = name;
    result.n = attributes.numbers.empty() ? 0 : attributes.numbers[0];
    result.inputs = inputs;
    op.outputs = {result.seen};
    add(std::move(op));
    return keep(std::move(result));
  }

  void begin_pass(Id root, bool create_graph, std::optional<Id> asked) {
    PassBegins begins;
    begins.pass = ++pass_;
    begins.roots = {tensors_[root].seen};
    begins.seeds = {seen_new(std::vector<float>(size(root), 1.0F), false, true)};
    begins.create_graph = create_graph;
    if (asked) begins.asked = {tensors_[*asked].seen};
    add(std::move(begins));
  }

  template <class Receive>
  void hand_on(const Tensor& y, const std::vector<float>& dy, Receive receive) {
    for (std::size_t slot = 0; slot < y.inputs.size(); ++slot) {
      const Id input = y.inputs[slot];
      if (!tensors_[input].seen.requires_grad) continue;
      std::vector<float> given(std::max(dy.size(), y.inputs_then[slot].size()));
      for (std::size_t i = 0; i < given.size(); ++i)
        given[i] = dy[dy.size() == 1 ? 0 : i] * slope(y, slot, i);
      Arrived arrived;
      arrived.pass = pass_;
      arrived.node = y.node;
      arrived.slot = static_cast<int>(slot);
      arrived.to = input;
      arrived.before = seen_new(given, false, true);
      if (given.size() > 1 && y.inputs_then[slot].size() == 1) {
        float total = 0;
        for (float g : given) total += g;
        given = {total};
        arrived.folded = {0};
      }
      arrived.given = seen_new(given, false, true);
      add(std::move(arrived));
      receive(input, given);
    }
  }
  float slope(const Tensor& y, std::size_t slot, std::size_t i) {
    const auto of = [&](std::size_t k) {
      const std::vector<float>& v = y.inputs_then[k];
      return v[v.size() == 1 ? 0 : i];
    };
    if (y.op == "mul") return of(1 - slot);
    if (y.op == "pow") return static_cast<float>(y.n * std::pow(double(of(0)), y.n - 1));
    return 1;
  }

  void land(Id leaf, const std::vector<float>& given) {
    Tensor& tensor = tensors_[leaf];
    Landed landed;
    landed.pass = pass_;
    landed.tensor = leaf;
    landed.had_before = tensor.gradient.tensor != 0;
    if (landed.had_before) {
      landed.before = tensor.gradient;
      ++tensor.gradient.version;
      for (std::size_t i = 0; i < given.size(); ++i) tensor.gradient_values[i] += given[i];
      snapshot(tensor.gradient, tensor.gradient_values);
    } else {
      tensor.gradient = seen_new(given, false, true);
      tensor.gradient_values = given;
    }
    landed.after = tensor.gradient;
    add(std::move(landed));
  }

  Trace trace_;
  std::vector<Record> records_;
  Id ids_ = 0;
  std::int64_t pass_ = 0;
  std::vector<Id> open_;
  std::map<Id, Tensor> tensors_;
};

// Lesson 05: z = x² + y³ + x · y at x = 2, y = 3, as the program of the lesson runs it.
inline Machine chain_rule() {
  Machine m;
  m.file = "05_chain_rule.cpp";
  m.source(
      "auto x = tensor(2.0, {.requires_grad = true}).named(\"x\");\n"
      "auto y = tensor(3.0, {.requires_grad = true}).named(\"y\");\n"
      "auto a = x.pow(2);\n"
      "auto b = y.pow(3);\n"
      "auto c = x * y;\n"
      "auto s = a + b;\n"
      "auto z = s + c;\n"
      "z.backward();\n");
  m.add(Said{"How fast does z grow?"});
  m.line = 1;
  const Id x = m.leaf("x", {2});
  m.line = 2;
  const Id y = m.leaf("y", {3});
  m.line = 3;
  const Id a = m.pow(x, 2);
  m.line = 4;
  const Id b = m.pow(y, 3);
  m.line = 5;
  const Id c = m.mul(x, y);
  m.line = 6;
  const Id s = m.add_(a, b);
  m.line = 7;
  const Id z = m.add_(s, c);
  m.add(Printed{"z = 37\n"});
  m.line = 8;
  m.backward(z);
  m.add(Said{"7 and 29, as on paper."});
  m.add(Ended{});
  return m;
}

}  // namespace traces
