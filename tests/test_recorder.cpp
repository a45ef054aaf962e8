// From tensors to a trace and back: what the recorder writes down is what the program held, bit for
// bit, and being watched changes nothing.
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "minitensor.hpp"
#include "tests/catch.hpp"
#include "viewer/keeper.hpp"
#include "viewer/recorder.hpp"
#include "viewer/timeline.hpp"
#include "viewer/trace.hpp"

using namespace viewer;
namespace mt = minitensor;
using mt::Tensor;

namespace {

// Everything that happens on this thread while it lives goes into a trace, by way of the bytes that
// would cross a pipe.
class Watching {
 public:
  Watching() : before_(mt::observe(&recorder_)) {}
  ~Watching() { mt::observe(before_); }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  const Trace& trace() const { return trace_; }
  std::size_t messages() const { return messages_; }
  template <class What>
  std::vector<What> all() const {
    std::vector<What> found;
    for (const auto& event : trace_.events)
      if (const What* what = std::get_if<What>(&event->what)) found.push_back(*what);
    return found;
  }
  Timeline timeline() const {
    Timeline timeline;
    timeline.extend(std::make_shared<const Trace>(trace_));
    return timeline;
  }

 private:
  void take(std::vector<Record>&& records) {
    ++messages_;
    for (const Record& record : records) {
      std::string bytes = encode(record);
      add(trace_, decode(bytes.data(), bytes.size()));
    }
  }

  Trace trace_;
  std::size_t messages_ = 0;
  Recorder recorder_{[this](std::vector<Record>&& records) { take(std::move(records)); }};
  mt::Observer* before_;
};

// The elements of a tensor in the order of its shape, as the program holds them.
std::vector<std::byte> bytes_of(const Tensor& tensor) {
  auto copy = [](const auto& elements) {
    std::vector<std::byte> bytes(elements.size() * sizeof(elements[0]));
    if (!bytes.empty()) std::memcpy(bytes.data(), elements.data(), bytes.size());
    return bytes;
  };
  const Tensor plain = tensor.detach();
  if (plain.dtype() == mt::float32) return copy(plain.to_vector<float>());
  if (plain.dtype() == mt::float64) return copy(plain.to_vector<double>());
  if (plain.dtype() == mt::int64) return copy(plain.to_vector<std::int64_t>());
  std::vector<std::byte> bytes;
  for (bool element : plain.to_vector<bool>()) bytes.push_back(std::byte{element});
  return bytes;
}

double first_element(const Trace& trace, const Seen& seen) {
  const Snapshot* snapshot = trace.find(seen);
  REQUIRE(snapshot);
  REQUIRE(seen.dtype == DType::float32);
  float element;
  std::memcpy(&element, snapshot->bytes.data() + seen.offset * 4, sizeof element);
  return element;
}

// The kinds of the events, in their order.
std::string kinds(const Trace& trace) {
  static const char* const names[] = {
      "made",   "op",      "failed",  "pass begins", "pass ends",   "arrived",      "hooked",
      "landed", "wrote",   "let go",  "named",       "scope opens", "scope closes", "said",
      "asked",  "plotted", "printed", "ended",       "paused",      "pictured"};
  std::string text;
  for (const auto& event : trace.events) {
    if (!text.empty()) text += ", ";
    text += names[event->what.index()];
  }
  return text;
}

// ---- What is written down -----------------------------------------------------------------------

TEST_CASE("a small program leaves its events in the order in which they happened") {
  Watching watching;
  const int line = __LINE__ + 1;
  Tensor x = mt::tensor(3.0, {.requires_grad = true}).named("x");
  Tensor z = x.pow(2);
  z.backward();
  const Trace& trace = watching.trace();
  CHECK(kinds(trace) == "made, named, op, pass begins, arrived, landed, pass ends");

  const Made made = watching.all<Made>()[0];
  CHECK(made.tensor.tensor == x.id());
  CHECK(made.tensor.requires_grad);
  CHECK(made.tensor.is_leaf);
  CHECK(made.tensor.dtype == DType::float32);
  CHECK(first_element(trace, made.tensor) == 3);
  CHECK(trace.events[0]->line == Line{__FILE__, line});
  CHECK(watching.all<Named>()[0].name == "x");

  const Op op = watching.all<Op>()[0];
  CHECK(op.op == "pow_number");
  CHECK(op.node == z.grad_fn()->id());
  CHECK(op.attributes.numbers == std::vector<double>{2});
  REQUIRE(op.inputs.size() == 1);
  CHECK(op.inputs[0].tensor == x.id());
  CHECK(op.inputs[0].name == "x");
  REQUIRE(op.outputs.size() == 1);
  CHECK(op.outputs[0].tensor == z.id());
  CHECK_FALSE(op.outputs[0].is_leaf);
  CHECK(first_element(trace, op.outputs[0]) == 9);
  REQUIRE(op.saved.size() == 1);
  CHECK(op.saved[0].first == "a");
  CHECK(op.saved[0].second.storage == x.storage_id());

  const PassBegins pass = watching.all<PassBegins>()[0];
  REQUIRE(pass.roots.size() == 1);
  CHECK(pass.roots[0].tensor == z.id());
  CHECK(watching.all<PassEnds>()[0].pass == pass.pass);
  const Landed landed = watching.all<Landed>()[0];
  CHECK(landed.tensor == x.id());
  CHECK(landed.pass == pass.pass);
  CHECK_FALSE(landed.had_before);
  CHECK(first_element(trace, landed.after) == 6);
}

TEST_CASE("facts are written down once, as the header states them") {
  Watching watching;
  Tensor x = mt::tensor({1.0, 2.0}, {.requires_grad = true});
  Tensor y = x * x;
  Tensor z = y * x;
  REQUIRE(watching.trace().facts.count("mul") == 1);
  const OpFacts facts = watching.trace().facts.at("mul");
  CHECK(facts.name == "mul");
  CHECK(facts.formula == "a * b");
  CHECK(facts.derivatives == std::vector<std::string>{"dy * b", "dy * a"});
}

TEST_CASE("the source text of a file that is named is written down") {
  Watching watching;
  Tensor x = mt::tensor(1.0);
  REQUIRE(watching.trace().sources.count(__FILE__) == 1);
  CHECK(watching.trace().sources.at(__FILE__).find("is written down\") {") != std::string::npos);
}

TEST_CASE("one event is one message, with all that it needs before it") {
  Watching watching;
  Tensor x = mt::tensor({1.0, 2.0}, {.requires_grad = true});
  Tensor y = (x * 2).sum();
  y.backward();
  CHECK(watching.messages() == watching.trace().events.size());
}

TEST_CASE("a snapshot belongs to a storage: views share it, and a write makes the next one") {
  Watching watching;
  Tensor x = mt::tensor({{1.0, 2.0}, {3.0, 4.0}});
  Tensor row = x[1];
  Tensor across = x.t();
  CHECK(watching.trace().snapshots.size() == 1);
  row.add_(10.0);
  CHECK(watching.trace().snapshots.size() == 2);
  const Wrote wrote = watching.all<Wrote>().back();
  CHECK(wrote.tensor.storage == x.storage_id());
  CHECK(wrote.version_before + 1 == wrote.tensor.version);
  const Snapshot* before = watching.trace().snapshots.find({x.storage_id(), wrote.version_before});
  const Snapshot* after = watching.trace().find(wrote.tensor);
  REQUIRE((before && after));
  const float old_elements[] = {1, 2, 3, 4}, new_elements[] = {1, 2, 13, 14};
  CHECK(std::memcmp(before->bytes.data(), old_elements, sizeof old_elements) == 0);
  CHECK(std::memcmp(after->bytes.data(), new_elements, sizeof new_elements) == 0);
}

TEST_CASE("storages are kept in full up to 4,096 elements, and as statistics beyond") {
  Watching watching;
  Tensor full = mt::arange(4096, {.dtype = mt::float64});
  Tensor large = mt::arange(4097, {.dtype = mt::float32});
  const Snapshot* kept = watching.trace().snapshots.find({full.storage_id(), full.version()});
  const Snapshot* statistics =
      watching.trace().snapshots.find({large.storage_id(), large.version()});
  REQUIRE((kept && statistics));
  CHECK(kept->in_full());
  CHECK(kept->bytes == bytes_of(full));
  CHECK_FALSE(statistics->in_full());
  CHECK(statistics->count == 4097);
  CHECK(statistics->statistics.min == 0);
  CHECK(statistics->statistics.max == 4096);
  CHECK(statistics->statistics.mean == 2048);
  CHECK(statistics->statistics.columns == 64);
}

TEST_CASE("every dtype, no element and no dimension are written down") {
  Watching watching;
  const Tensor tensors[] = {mt::tensor({1, -2, 3}), mt::tensor({true, false}), mt::tensor(2.5),
                            mt::zeros({0, 3}), mt::tensor({1.0, 2.0}, {.dtype = mt::float64})};
  for (const Tensor& tensor : tensors) {
    const Snapshot* snapshot =
        watching.trace().snapshots.find({tensor.storage_id(), tensor.version()});
    REQUIRE(snapshot);
    CHECK(snapshot->in_full());
    CHECK(snapshot->bytes == bytes_of(tensor));
  }
}

TEST_CASE("events stand in the innermost open scope") {
  Watching watching;
  Tensor x = mt::tensor(1.0);
  {
    mt::Scope outer("outer");
    Tensor y = x + 1;
    {
      mt::Scope inner("inner");
      Tensor z = x + 2;
    }
    Tensor last = x + 3;
  }
  Tensor outside = x + 4;
  std::vector<Id> scopes;
  for (const auto& event : watching.trace().events)
    if (std::holds_alternative<Op>(event->what)) scopes.push_back(event->scope);
  const std::vector<ScopeOpens> opened = watching.all<ScopeOpens>();
  REQUIRE(opened.size() == 2);
  CHECK(scopes == std::vector<Id>{opened[0].scope, opened[1].scope, opened[0].scope, 0});
  CHECK(opened[1].name == "inner");
}

TEST_CASE("words, questions, plots and pictures of a lesson are written down") {
  Watching watching;
  mt::observer()->note("said", "hello", {});
  mt::observer()->note("asked", "what is x.grad?", {7});
  mt::observer()->note("plotted", "loss", {1, 0.5});
  mt::observer()->note("pictured", "digits", {3, 1, 2, 3, 4, 5, 6});  // three columns
  mt::observer()->note("paused", "", {});
  CHECK(kinds(watching.trace()) == "said, asked, plotted, pictured, paused");
  CHECK(watching.all<Asked>()[0].answer == 7);
  CHECK(watching.all<Plotted>()[0].y == 0.5);
  const Pictured digits = watching.all<Pictured>()[0];
  CHECK(digits.title == "digits");
  CHECK(digits.rows == 2);
  CHECK(digits.columns == 3);
  CHECK(digits.numbers == std::vector<float>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a large picture is written down in block means") {
  Watching watching;
  std::vector<double> numbers = {1024};
  for (int i = 0; i < 1024; ++i) numbers.push_back(i);
  mt::observer()->note("pictured", "", numbers);
  const Pictured picture = watching.all<Pictured>()[0];
  CHECK(picture.rows == 1);
  CHECK(picture.columns == 256);
  CHECK(picture.numbers[1] == 5.5f);  // of 4, 5, 6, 7
}

TEST_CASE("a failed operation is written down with its text") {
  Watching watching;
  const Tensor a = mt::ones({2, 3}), b = mt::ones({4, 5});
  CHECK_THROWS_AS(mt::matmul(a, b), mt::Error);
  REQUIRE(watching.all<Failed>().size() == 1);
  const Failed failed = watching.all<Failed>()[0];
  CHECK(failed.op == "matmul");
  CHECK(failed.inputs == std::vector<Id>{a.id(), b.id()});
  CHECK(failed.text.find("inner sizes differ") != std::string::npos);
  CHECK(failed.node == 0);
}

TEST_CASE("a gradient that is let go has the line that said so") {
  const Tensor x = mt::tensor({1.0, 2.0}, {.requires_grad = true});
  x.sum().backward();
  mt::optim::SGD walk({x}, {.lr = 0.1});
  Watching watching;
  walk.zero_grad();
  const int line = __LINE__ - 1;
  REQUIRE(kinds(watching.trace()) == "let go");
  CHECK(watching.trace().events[0]->line == Line{__FILE__, line});
}

TEST_CASE("a pass that fails is written down with the node whose rule failed") {
  Watching watching;
  const Tensor x = mt::tensor({1.0, 2.0}, {.requires_grad = true});
  const Tensor y = x * 2, z = y * y, loss = z.sum();
  y.mul_(3);
  CHECK_THROWS_AS(loss.backward(), mt::Error);
  REQUIRE(watching.all<Failed>().size() == 1);
  CHECK(watching.all<Failed>()[0].node == z.grad_fn()->id());
  CHECK(watching.trace().facts.at("mul_number").called == "mul");
}

TEST_CASE("printing, asking for numbers and comparing gradients are not events") {
  Tensor x = mt::tensor({1.0, 2.0}, {.requires_grad = true});
  Tensor y = x.sum();
  Watching watching;
  std::ostringstream text;
  text << x << y;
  CHECK(y.item() == 3);
  CHECK(static_cast<float>(y) == 3);
  CHECK(x.to_vector<float>().size() == 2);
  CHECK(kinds(watching.trace()) == "");
}

TEST_CASE("a storage is written down anew only after it has long not been asked for") {
  const Id half = Snapshot::sent_again_after / 2;
  Remembered remembered;
  CHECK(remembered.add(1, 0));
  CHECK_FALSE(remembered.add(1, 0));
  CHECK(remembered.add(1, 1));
  CHECK_FALSE(remembered.add(1, 1));
  CHECK(remembered.add(2, 0));
  for (Id storage = 1000; storage < 1000 + 4 * half; ++storage) {
    REQUIRE(remembered.add(storage, 0));
    REQUIRE_FALSE(remembered.add(1, 1));  // one that is used again and again is never forgotten
  }
  CHECK_FALSE(remembered.add(1000 + 4 * half - half / 2, 0));
  CHECK(remembered.add(2, 0));  // memory is bounded
  CHECK(remembered.add(1000, 0));
}

// ---- Long runs ------------------------------------------------------------------------------------

TEST_CASE("of a long run only a part is kept, and all that a kept episode shows is there") {
  Trace trace;
  Keeper keeper;
  Recorder recorder([&](std::vector<Record>&& records) {
    for (Record& record : records) keeper.add(trace, std::move(record));
  });
  mt::Observer* before = mt::observe(&recorder);
  Tensor w = mt::tensor(0.0, {.requires_grad = true}).named("w");
  Tensor rare;  // made in an episode that is not kept, used in some that are
  constexpr int episodes = 4000;
  for (int i = 1; i <= episodes; ++i) {
    if (i == 70) rare = mt::tensor(3.0);
    Tensor p = w * 2.0;
    Tensor e = p - (i > 70 && i % 64 == 0 ? rare : mt::tensor(1.0));
    Tensor loss = e * e;
    loss.backward();
    {
      mt::NoGrad guard;
      w -= 0.01 * w.grad();
    }
    w.zero_grad();
  }
  mt::observe(before);

  Timeline timeline;
  timeline.extend(std::make_shared<const Trace>(trace));
  REQUIRE(timeline.episodes().size() == episodes);
  int kept = 0;
  for (const Episode& episode : timeline.episodes()) {
    if (!episode.kept) continue;
    ++kept;
    for (std::size_t i = episode.event_begin; i < episode.event_end; ++i)
      if (const Op* op = std::get_if<Op>(&trace.events[i]->what))
        for (const auto* list : {&op->inputs, &op->outputs})
          for (const Seen& seen : *list) REQUIRE(trace.find(seen) != nullptr);
  }
  CHECK(kept < 300);
  CHECK(trace.snapshots.size() < 10000);  // of about 60,000
}

// ---- Random programs ----------------------------------------------------------------------------

// A program of random statements, right and wrong: what an operation refuses, it goes on without.
class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed) : random_(seed) {}
  RandomProgram(const RandomProgram&) = delete;
  RandomProgram& operator=(const RandomProgram&) = delete;
  ~RandomProgram() {  // a gradient with a graph of its own leads back to its leaf: a circle
    for (const Tensor& tensor : tensors_) tensor.zero_grad();
  }

  void run(int statements) {
    for (int i = 0; i < 3; ++i) make();
    for (int i = 0; i < statements; ++i) {
      try {
        statement();
      } catch (const mt::Error&) {
      }
    }
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  Tensor& any() { return tensors_[below(tensors_.size())]; }
  void keep(Tensor tensor) { tensors_.push_back(std::move(tensor)); }

  void make() {
    static const std::vector<mt::Shape> shapes = {mt::Shape(),     mt::Shape(3),
                                                  mt::Shape(2, 3), mt::Shape(3, 2),
                                                  mt::Shape(1, 3), mt::Shape(2, 1)};
    const mt::Shape shape = shapes[below(shapes.size())];
    Tensor t = mt::full(shape, static_cast<double>(below(17)) / 4 - 2,
                        {.dtype = below(4) == 0 ? mt::float64 : mt::float32});
    Tensor filled = t + static_cast<double>(below(5));
    keep(filled.detach().requires_grad_(below(4) != 0));
  }

  void statement() {
    const std::function<void()> statements[] = {
        [&] { make(); },
        [&] { keep(any() + any()); },
        [&] { keep(any() - any()); },
        [&] { keep(any() * any()); },
        [&] { keep(any() / any()); },
        [&] { keep(mt::tanh(any())); },
        [&] { keep(mt::exp(any() * 0.1)); },
        [&] { keep(any().pow(static_cast<double>(below(4)))); },
        [&] { keep(any().sum()); },
        [&] { keep(any().mean({0})); },
        [&] { keep(any().max(0).values); },
        [&] { keep(any().softmax(0)); },
        [&] { keep(mt::matmul(any(), any())); },
        [&] { keep(mt::where(any() > any(), any(), any())); },
        [&] {
          keep(mt::cat({any(), any()}));
        },
        [&] { keep(any().clone()); },
        [&] { keep(any().detach()); },
        // Views.
        [&] { keep(any().t()); },
        [&] { keep(any()[0]); },
        [&] { keep(any().slice(0, 0, 1)); },
        [&] { keep(any().reshape(mt::Shape(-1))); },
        [&] { keep(any().unsqueeze(0).expand(mt::Shape(2, -1))); },
        // In place.
        [&] { any().add_(1.0); },
        [&] { any().mul_(any()); },
        [&] { any()[0] = 5.0; },
        [&] { step(); },
        [&] { any().grad().mul_(0.5); },
        // Going backwards.
        [&] { backward(); },
        [&] { backward(); },
        [&] { backward(); },
        [&] { ask_for_gradient(); },
        [&] { any().zero_grad(); },
        [&] { any().retain_grad(); },
        [&] { any().register_hook([](const Tensor& gradient) { return gradient * 0.5; }); },
        [&] { any().named("t" + std::to_string(below(9))); },
    };
    statements[below(std::size(statements))]();
  }

  void step() {  // of gradient descent
    mt::NoGrad guard;
    for (Tensor& t : tensors_)
      if (t.is_leaf() && t.requires_grad() && t.grad().defined()) t -= 0.1 * t.grad();
  }

  void ask_for_gradient() {  // and use it: what grad() returns is seen when it is used
    Tensor x = any();
    keep(-mt::grad({(x * any()).sum()}, {x}, {.create_graph = below(2) == 0})[0]);
  }

  void backward() {
    Tensor root = any().sum();
    root.backward({.retain_graph = below(2) == 0, .create_graph = below(5) == 0});
  }

  std::mt19937 random_;
  std::vector<Tensor> tensors_;
};

// What grad() holds, as the timeline knows it. A pass that an error broke off has changed nothing,
// and one of mt::grad() shows another gradient than that.
std::optional<Value> held(const Gradient& gradient) {
  if (gradient.state == Gradient::State::landed) return gradient.value;
  return gradient.before;
}

TEST_CASE(
    "at the end of a random program the timeline holds all values and gradients, bit for bit") {
  int gradients = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    RandomProgram program(seed);
    Watching watching;
    program.run(60);
    mt::observe(nullptr);
    const Timeline timeline = watching.timeline();
    for (const Tensor& tensor : program.tensors()) {
      INFO("tensor " << tensor.id());
      const Value value = timeline.value(timeline.latest(), tensor.id());
      REQUIRE(value.kept == Value::Kept::in_full);
      REQUIRE(value.bytes == bytes_of(tensor));
      if (!tensor.requires_grad() || !tensor.is_leaf()) continue;
      const Gradient gradient = timeline.gradient(timeline.latest(), tensor.id());
      if (gradient.state == Gradient::State::complete) continue;
      REQUIRE(held(gradient).has_value() == tensor.grad().defined());
      if (!tensor.grad().defined()) continue;
      REQUIRE(held(gradient)->bytes == bytes_of(tensor.grad()));
      ++gradients;
    }
  }
  CHECK(gradients > 100);  // the programs do differentiate
}

TEST_CASE("a network that becomes float64 is seen to, with its gradients, and was float32 before") {
  Watching watching;
  mt::nn::Linear layer(2, 1, {.bias = false});
  layer(mt::ones({1, 2})).sum().backward();
  const int line = __LINE__ + 1;
  layer.to(mt::float64);
  const Id weight = layer.weight.id();
  const auto wrote = watching.all<Wrote>();
  REQUIRE(wrote.size() == 2);
  CHECK(wrote[0].tensor.tensor == weight);
  CHECK(wrote[1].tensor.tensor == layer.weight.grad().id());
  for (const Wrote& one : wrote) {
    CHECK(one.by == "to");
    CHECK(one.tensor.dtype == DType::float64);
    CHECK(one.tensor.version == one.version_before + 1);
  }
  const Timeline timeline = watching.timeline();
  const Cursor before = timeline.at(1, 1), after = timeline.latest();
  CHECK(timeline.line(after).number == line);
  CHECK(timeline.value(before, weight).dtype == DType::float32);
  CHECK(timeline.seen(before, weight)->dtype == DType::float32);
  CHECK(timeline.value(after, weight).dtype == DType::float64);
  CHECK(timeline.seen(after, weight)->dtype == DType::float64);
  CHECK(timeline.value(after, weight).at(1) == layer.weight[0][1].item());
  CHECK(timeline.gradient(after, weight).value.dtype == DType::float64);
  CHECK(timeline.gradient(after, weight).value.at(1) == 1);
}

TEST_CASE(
    "B195: steps beyond either end change nothing, and a gradient is not there before its step") {
  Watching watching;
  const Tensor x = mt::tensor({1., -2.});  // asks for no gradient, and nothing is named
  const Tensor w = mt::tensor({3., 4.}, {.requires_grad = true});
  const Tensor b = mt::tensor({0.5, 0.5}, {.requires_grad = true});
  const Tensor product = x * w, positive = product.relu(), sum = positive + b, y = sum.sum();
  y.backward();
  const Timeline timeline = watching.timeline();
  const auto held = [&](Cursor at, const Tensor& of) {
    const Value value = timeline.value(at, of.id());
    std::vector<double> all;
    for (std::int64_t i = 0; i < value.count(); ++i) all.push_back(value.at(std::size_t(i)));
    return all;
  };
  const auto steps = timeline.episode(1).steps;
  const Cursor last = timeline.at(1, steps), first = timeline.at(1, 0);
  CHECK(timeline.at(1, steps + 100) == last);
  CHECK(timeline.clamp({1, last.position + 100}) == last);
  CHECK(timeline.at(1, -5) == first);
  for (const Tensor& t : {x, w, b, product, positive, sum, y})
    CHECK(held(last, t) == t.to_vector<double>());
  for (int pass = 0; pass < 2; ++pass) {  // stepping twice adds nothing twice
    for (std::int64_t n = steps; n >= 0; --n)
      static_cast<void>(timeline.gradient(timeline.at(1, n), w.id()));
    const Gradient gradient = timeline.gradient(last, w.id());
    CHECK(gradient.state == Gradient::State::landed);
    CHECK(gradient.value.at(0) == w.grad()[0].item());
    CHECK(gradient.value.at(1) == w.grad()[1].item());
  }
  CHECK(timeline.gradient(timeline.at(1, 7), w.id()).state == Gradient::State::not_yet);
  CHECK(timeline.gradient(last, x.id()).state == Gradient::State::not_yet);
  CHECK(timeline.gradient(first, b.id()).state == Gradient::State::not_yet);
}

TEST_CASE("being watched changes no result and keeps nothing alive") {
  const auto before = mt::live_nodes();
  for (unsigned seed = 100; seed < 120; ++seed) {
    INFO("seed " << seed);
    RandomProgram unwatched(seed), watched(seed);
    unwatched.run(60);
    {
      Watching watching;
      watched.run(60);
    }
    REQUIRE(unwatched.tensors().size() == watched.tensors().size());
    for (std::size_t i = 0; i < watched.tensors().size(); ++i) {
      const Tensor &one = unwatched.tensors()[i], &other = watched.tensors()[i];
      REQUIRE(bytes_of(one) == bytes_of(other));
      REQUIRE(one.requires_grad() == other.requires_grad());
      REQUIRE(one.grad().defined() == other.grad().defined());
      if (one.grad().defined()) REQUIRE(bytes_of(one.grad()) == bytes_of(other.grad()));
    }
  }
  CHECK(mt::live_nodes() == before);
}

}  // namespace
