// Recording and going backwards: what a pass computes, what it leaves behind, and what it refuses.
#include <pthread.h>

#include <functional>

#include "tests/tensors.hpp"

namespace {

using namespace mt;
using namespace tensors;

// Counts what a pass does.
class Counter : public Observer {
 public:
  Counter() : before_(observe(this)) {}
  ~Counter() override { observe(before_); }
  void arrived(std::int64_t, const Node&, int, const Tensor&, const Shape&,
               const Tensor&) override {
    ++arrivals;
  }
  void landed(std::int64_t, const Tensor&, const Tensor&, const Tensor&) override { ++landings; }
  int arrivals = 0, landings = 0;

 private:
  Observer* before_;
};

// ---- What a pass computes -----------------------------------------------------------------------

TEST_CASE("the chain rule of lesson 05 gives 7 and 29") {
  const Tensor x = leaf(2.0), y = leaf(3.0);
  const Tensor z = x.pow(2) + y.pow(3) + x * y;
  CHECK(z.item() == 37);
  z.backward();
  CHECK(x.grad().item() == 7);
  CHECK(y.grad().item() == 29);
}

TEST_CASE("a tensor used twice receives the sum of both gradients") {
  const Tensor x = leaf(3.0);
  (x * x + x).backward();
  CHECK(x.grad().item() == 7);
}

TEST_CASE("a gradient arrives once for each place in which a tensor is used") {
  const Tensor x = leaf(3.0);
  const Tensor y = x * x;
  Counter counter;
  y.backward();
  CHECK(counter.arrivals == 2);
  CHECK(counter.landings == 1);
}

TEST_CASE("a leaf's gradient accumulates over passes until it is let go") {
  const Tensor x = leaf({1., 2.});
  (x * x).sum().backward();
  CHECK(values(x.grad()) == Values{2, 4});
  (x * 3).sum().backward();
  CHECK(values(x.grad()) == Values{5, 7});
  x.zero_grad();
  CHECK_FALSE(x.grad().defined());
  (x * 3).sum().backward();
  CHECK(values(x.grad()) == Values{3, 3});
}

TEST_CASE("backward on a leaf gives it the gradient 1") {
  const Tensor x = leaf(5.0);
  x.backward();
  CHECK(x.grad().item() == 1);
}

TEST_CASE("a seed weights the outputs") {
  const Tensor x = leaf({1., 2., 3.});
  (x * x).backward(tensor({1., 10., 100.}));
  CHECK(values(x.grad()) == Values{2, 40, 600});
}

TEST_CASE("tensors that do not require grad get none") {
  const Tensor x = leaf(2.0), w = tensor(3.0);
  const Tensor y = x * w;
  y.backward();
  CHECK(x.grad().item() == 3);
  CHECK_FALSE(w.grad().defined());
  CHECK_FALSE(y.grad().defined());
}

TEST_CASE("an operation on plain data leaves no node") {
  const Tensor y = tensor(2.0) * 3 + 1;
  CHECK_FALSE(y.requires_grad());
  CHECK(y.is_leaf());
  CHECK(y.grad_fn() == nullptr);
  CHECK(live_nodes() == 0);
}

TEST_CASE("a node knows its name, its inputs and the line it was written on") {
  const Tensor x = leaf(2.0), w = leaf(3.0);
  const Tensor y = x * w;
  const int line = __LINE__ - 1;
  REQUIRE(y.grad_fn() != nullptr);
  CHECK(std::string(y.grad_fn()->name()) == "MulBackward0");
  CHECK(y.grad_fn()->input_count() == 2);
  CHECK(y.grad_fn()->input_id(0) == x.id());
  CHECK(y.grad_fn()->input_id(1) == w.id());
  CHECK(y.grad_fn()->line().line() == line);
  CHECK(std::string(y.grad_fn()->line().file()) == "test_autograd.cpp");
}

TEST_CASE("an operation saves only what the derivatives that it owes need") {
  const Tensor x = leaf(2.0), w = tensor(3.0);
  const Tensor only_x = x * w;
  REQUIRE(only_x.grad_fn()->saved.size() == 1);
  CHECK(only_x.grad_fn()->saved[0].letter == 'b');
  CHECK((x + w).grad_fn()->saved.empty());
  CHECK(x.exp().grad_fn()->saved[0].letter == 'y');
}

TEST_CASE("a power whose exponent alone requires grad has a gradient") {
  const Tensor n = leaf({3.0, 0.5});
  tensor({2.0, 4.0}).pow(n).sum().backward();
  CHECK(difference(n.grad(), tensor({8 * std::log(2.0), 2 * std::log(4.0)}), 1e-6) == "");
  const Tensor base = leaf({2.0, 4.0});
  base.pow(tensor({3.0, 0.5})).sum().backward();
  CHECK(difference(base.grad(), tensor({12.0, 0.25}), 1e-6) == "");
}

TEST_CASE("gradients have the dtype and the shape of the tensor they belong to") {
  const Tensor x = leaf({1., 2.}), y = leaf({{3.}, {4.}}, float64);
  (x * y).sum().backward();
  CHECK(difference(x.grad(), tensor({7., 7.})) == "");
  CHECK(difference(y.grad(), tensor({{3.}, {3.}}, {.dtype = float64})) == "");
}

// ---- Long and wide graphs -----------------------------------------------------------------------

// Runs f on a stack of 256 KiB, where a call nested once a node would not get far.
void on_a_small_stack(void (*f)()) {
  pthread_attr_t attributes;
  pthread_t thread;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 << 10) == 0);
  auto run = [](void* function) -> void* {
    reinterpret_cast<void (*)()>(function)();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, reinterpret_cast<void*>(f)) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  CHECK(live_nodes() == 0);
}

TEST_CASE("a million additions are built, differentiated and freed on a small stack") {
  on_a_small_stack([] {
    const Tensor x = leaf(0.0);
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i) y = y + x;
    CHECK(live_nodes() == 1'000'000);
    y.backward();
    CHECK(x.grad().item() == 1'000'001);
  });
}

TEST_CASE("a long chain that nobody differentiated is freed on a small stack") {
  on_a_small_stack([] {
    Tensor y = leaf(1.0);
    for (int i = 0; i < 300'000; ++i) y = y * 1.0;
  });
}

TEST_CASE("a long chain that a pass has retained is freed on a small stack") {
  on_a_small_stack([] {
    const Tensor x = leaf(1.0);
    Tensor y = x;
    for (int i = 0; i < 300'000; ++i) y = y * x;
    y.backward({.retain_graph = true});
    CHECK(live_nodes() == 300'000);
  });
}

TEST_CASE("a long chain that an exception leaves half built is freed on a small stack") {
  on_a_small_stack([] {
    CHECK_THROWS_AS(
        [] {
          Tensor y = leaf({1., 2.});
          for (int i = 0; i < 300'000; ++i) y = y * 1.0;
          y = y + tensor({1., 2., 3.});
        }(),
        Error);
  });
}

TEST_CASE("a long chain of writes in place is differentiated and freed on a small stack") {
  on_a_small_stack([] {
    const Tensor y = leaf({1., 2.}) * 1, x = leaf(1.0);
    for (int i = 0; i < 100'000; ++i) y[0] += x;
    y.sum().backward();
    CHECK(x.grad().item() == 100'000);
  });
}

TEST_CASE("a long chain of second derivatives is freed on a small stack") {
  on_a_small_stack([] {
    const Tensor x = leaf(1.0);
    Tensor y = x;
    for (int i = 0; i < 20'000; ++i) y = y * x;
    const Tensor first = grad(y, x, {.create_graph = true})[0];
    CHECK(first.item() == 20'001);
  });
}

TEST_CASE("a long chain is drawn on a small stack") {
  on_a_small_stack([] {
    Tensor y = leaf(1.0);
    for (int i = 0; i < 100'000; ++i) y = y + 1;
    CHECK(graph(y).boxes.size() == 100'001);
  });
}

TEST_CASE("a ladder of sixty doublings takes a linear number of backward steps") {
  const Tensor x = leaf(1.0);
  Tensor h = x;
  for (int i = 0; i < 60; ++i) h = h + h;
  Counter counter;
  h.backward();
  CHECK(counter.arrivals == 2 * 60);
  CHECK(x.grad().item() == std::pow(2.0, 60));
}

// ---- Storage of gradients -----------------------------------------------------------------------

TEST_CASE("no two leaves share the storage of their gradients") {
  const Tensor x = leaf({1., 2.}), y = leaf({3., 4.});
  (x + y).backward(ones({2}));
  CHECK_FALSE(x.grad().shares_storage_with(y.grad()));
  x.grad().mul_(10);
  CHECK(values(y.grad()) == Values{1, 1});
}

TEST_CASE("a gradient shares no storage with the seed, the values, or another gradient's sum") {
  const Tensor seed = ones({2}), x = leaf({1., 2.});
  const Tensor y = x + 0;
  y.retain_grad();
  const Tensor view = x.view({2, 1}).view({2});
  (y + view).backward(seed);
  for (const Tensor& other : {seed, x, y, y.grad()})
    CHECK_FALSE(x.grad().shares_storage_with(other));
  CHECK_FALSE(y.grad().shares_storage_with(seed));
  x.grad().zero_();
  CHECK(values(seed) == Values{1, 1});
  CHECK(values(y.grad()) == Values{1, 1});
}

TEST_CASE("a gradient is dense even where it came as a repeated number") {
  const Tensor x = leaf({{1., 2.}, {3., 4.}});
  x.sum().backward();
  CHECK(x.grad().is_contiguous());
  x.grad().mul_(2);
  CHECK(values(x.grad()) == Values{2, 2, 2, 2});
}

TEST_CASE("a gradient set by hand is a copy, and a pass adds to it") {
  const Tensor x = leaf({1., 2.}), g = tensor(5.0).expand({2});
  x.set_grad(g);
  (x * 2).sum().backward();
  CHECK(values(x.grad()) == Values{7, 7});
  CHECK(values(g) == Values{5, 5});
  x.set_grad(Tensor());
  CHECK_FALSE(x.grad().defined());
}

// ---- A second pass ------------------------------------------------------------------------------

TEST_CASE("a second pass is refused, and the sentence says how to allow it") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x * x;
  const std::string line = std::to_string(__LINE__ - 1);
  const Tensor z = y.sum();
  z.backward();
  CHECK(error_of([&] { z.backward(); }) ==
        "backward: an earlier pass, perhaps one that failed, has used up this graph (what mul of "
        "test_autograd.cpp:" +
            line +
            " had saved is gone) at HERE. Hint: write backward({.retain_graph = true}) the first "
            "time");
  CHECK(values(x.grad()) == Values{2, 4});
}

TEST_CASE("what a hook remembers lasts from one pass to the next") {
  const Tensor x = leaf(2.0);
  std::vector<int> seen;
  x.register_hook([&seen, n = 0](const Tensor&) mutable { seen.push_back(++n); });
  for (int pass = 0; pass < 3; ++pass) (x * x).backward();
  CHECK(seen == std::vector<int>{1, 2, 3});
}

TEST_CASE("a watcher may start a pass of its own when a gradient lands") {
  struct Watcher : Observer {
    void landed(std::int64_t, const Tensor&, const Tensor&, const Tensor&) override {
      if (std::exchange(done, true)) return;
      const EnableGrad recording;
      const Tensor own = leaf(3.0);
      (own * own).backward();
      gradient = own.grad().item();
    }
    bool done = false;
    double gradient = 0;
  } watcher;
  observe(&watcher);
  const Tensor x = leaf(2.0);
  (x * x).backward();
  observe(nullptr);
  CHECK(watcher.gradient == 6);
  CHECK(x.grad().item() == 4);
}

TEST_CASE("a second pass is refused before any gradient has changed") {
  const Tensor x = leaf(2.0);
  const Tensor y = x * x;
  const Tensor late = leaf(1.0);  // younger than y, so its turn comes before that of y
  const Tensor z = y + late;
  z.backward();
  CHECK(refused([&] { z.backward(); }));
  CHECK(late.grad().item() == 1);
  CHECK(x.grad().item() == 4);
}

TEST_CASE("a graph in which nothing was saved can be used again") {
  const Tensor x = leaf(2.0);
  const Tensor y = x + 1;
  y.backward();
  y.backward();
  CHECK(x.grad().item() == 2);
}

TEST_CASE("retain_graph keeps a graph for another pass") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = (x * x).sum();
  y.backward({.retain_graph = true});
  y.backward();
  CHECK(values(x.grad()) == Values{4, 8});
  CHECK(refused([&] { y.backward(); }));
}

TEST_CASE("a pass through one branch leaves the other branch usable") {
  const Tensor x = leaf(2.0);
  const Tensor a = x * x, b = x.exp();
  a.backward();
  b.backward();
  CHECK(x.grad().item() == Approx(4 + std::exp(2.0)));
}

// ---- Second derivatives -------------------------------------------------------------------------

TEST_CASE("create_graph makes the gradient of a gradient") {
  const Tensor x = leaf(2.0, float64);
  const Tensor y = x.pow(3);
  const Tensor first = grad(y, x, {.create_graph = true})[0];
  CHECK(first.item() == 12);
  const Tensor second = grad(first, x, {.create_graph = true})[0];
  CHECK(second.item() == 12);
  CHECK(grad(second, x)[0].item() == 6);
}

TEST_CASE("backward with create_graph leaves gradients with a history, whatever way they came") {
  const std::vector<std::function<Tensor(const Tensor&)>> ways = {
      [](const Tensor& x) { return x; },
      [](const Tensor& x) {
        return x.reshape({2, 2});
      },
      [](const Tensor& x) {
        return x.view({2, 2}).t();
      },
      [](const Tensor& x) { return x.unsqueeze(1).squeeze(1); },
      [](const Tensor& x) {
        return cat({x.slice(0, 0, 1), x.slice(0, 1)});
      },
      [](const Tensor& x) { return x + 0; },
  };
  for (const auto& way : ways) {
    const Tensor x = leaf({1., 2., 3., 4.}, float64);
    way(x).exp().sum().backward({.create_graph = true});
    const Tensor first = x.grad();
    CHECK(first.requires_grad());
    CHECK(difference(first.detach(), x.detach().exp(), 1e-12) == "");
    x.zero_grad();
    first.sum().backward();
    CHECK(difference(x.grad(), x.detach().exp(), 1e-12) == "");
  }
}

TEST_CASE("with create_graph gradients add up without losing their history") {
  const Tensor x = leaf(3.0, float64);
  x.pow(2).backward({.create_graph = true});
  x.pow(3).backward({.create_graph = true});
  const Tensor first = x.grad();
  CHECK(first.item() == 6 + 27);
  x.zero_grad();
  first.backward();
  CHECK(x.grad().item() == 2 + 18);
}

TEST_CASE("without create_graph a gradient has no history") {
  const Tensor x = leaf(3.0);
  x.pow(2).backward();
  CHECK_FALSE(x.grad().requires_grad());
  CHECK_FALSE(grad(x.pow(2), x)[0].requires_grad());
}

TEST_CASE("a gradient with history and its leaf hold each other until the gradient is let go") {
  {
    const Tensor x = leaf(3.0);
    x.pow(2).backward({.create_graph = true});
    CHECK(live_nodes() > 0);
    x.zero_grad();
  }
  CHECK(live_nodes() == 0);
}

TEST_CASE("what was told under create_graph is enough to follow the second pass") {
  // Every node that the second pass meets belongs to an operation that the observer has seen.
  struct Witness : Observer {
    void op(const Node* node, const Facts&, const Given&, Span<const Tensor*>, Span<Tensor>,
            Loc) override {
      if (node) made.push_back(node->id());
    }
    void arrived(std::int64_t, const Node& node, int, const Tensor&, const Shape&,
                 const Tensor&) override {
      if (std::find(made.begin(), made.end(), node.id()) == made.end()) ++strangers;
    }
    std::vector<Id> made;
    int strangers = 0;
  } witness;
  Observer* const before = observe(&witness);
  const Tensor x = leaf(2.0), w = leaf(3.0);
  const Tensor y = x * x * w + x;
  const Tensor first = grad(y, x, {.create_graph = true})[0];
  first.backward();
  observe(before);
  CHECK(witness.strangers == 0);
}

// ---- grad() -------------------------------------------------------------------------------------

TEST_CASE("grad returns gradients and leaves those of the leaves alone") {
  const Tensor x = leaf(2.0), y = leaf(3.0);
  const std::vector<Tensor> g = grad(x * y, {x, y});
  CHECK(g[0].item() == 3);
  CHECK(g[1].item() == 2);
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("grad goes to a tensor in the middle of a graph and no further") {
  const Tensor x = leaf(2.0);
  const Tensor h = x * 3, y = h * h;
  Counter counter;
  CHECK(grad(y, h)[0].item() == 12);
  CHECK(counter.arrivals == 2);
}

TEST_CASE("grad computes only what lies between the output and the inputs") {
  const Tensor x = leaf(2.0), w = leaf(5.0);
  const Tensor y = x.exp() * w;
  Counter counter;
  CHECK(grad(y, w)[0].item() == Approx(std::exp(2.0)));
  CHECK(counter.arrivals == 1);
}

TEST_CASE("grad of several outputs is the gradient of their sum, weighted by grad_outputs") {
  const Tensor x = leaf({1., 2.});
  const Tensor a = x * 2, b = x.sum();
  const Tensor g = grad({a, b}, {x}, {.grad_outputs = {tensor({1., 10.}), Tensor()}})[0];
  CHECK(values(g) == Values{3, 21});
  CHECK(values(grad({b, b}, {x})[0]) == Values{2, 2});
}

TEST_CASE("an input that was not used is an error, or undefined where that is allowed") {
  const Tensor x = leaf(2.0), unused = leaf(1.0);
  CHECK(error_of([&] { return grad(x * x, unused); }) ==
        "grad: input 0 was not used to compute the output at HERE. Hint: with "
        "{.allow_unused = true} its gradient is undefined instead");
  const std::vector<Tensor> g = grad(x * x, {x, unused}, {.allow_unused = true});
  CHECK(g[0].item() == 4);
  CHECK_FALSE(g[1].defined());
}

TEST_CASE("grad of a tensor with respect to itself is 1") {
  const Tensor x = leaf(2.0);
  const Tensor y = x * x;
  CHECK(grad(y, y)[0].item() == 1);
  CHECK(grad(x, x)[0].item() == 1);
}

// ---- Retained gradients and hooks ---------------------------------------------------------------

TEST_CASE("a tensor in the middle keeps its gradient only if asked to") {
  const Tensor x = leaf(2.0);
  const Tensor h = x * 3, kept = h * h;
  kept.retain_grad();
  (kept * 5).backward();
  CHECK_FALSE(h.grad().defined());
  CHECK(kept.grad().item() == 5);
  CHECK(kept.retains_grad());
}

TEST_CASE("who uses the gradient of a tensor in the middle is told how to keep it") {
  const Tensor x = leaf(2.0), h = x * 3;
  h.backward();
  CHECK_FALSE(h.grad().defined());
  CHECK(error_of([&] { return h.grad() * 2; }) ==
        "mul: an input is undefined; the last grad() was that of a tensor that is not a leaf, and "
        "those keep none at HERE. Hint: if this is it, keep a parameter a leaf: update it with { "
        "NoGrad guard; w -= lr * w.grad(); }. Of another tensor call retain_grad() before "
        "backward()");
  CHECK(error_of([&] { return leaf(1.0).grad() * 2; }) ==
        "mul: an input is undefined, as a Tensor without a value is, and grad() before a backward "
        "pass at HERE. Hint: begin with tensor(0.0) or zeros(...), call backward() first, or ask "
        "defined()");

  // It is told once, and not of what another grad() has given.
  const auto of_nothing = [&] { return error_of([] { return Tensor() * 2; }); };
  CHECK_FALSE(h.grad().defined());
  CHECK(of_nothing().find("the last grad() was that of") != std::string::npos);
  CHECK(of_nothing().find("leaf") == std::string::npos);
  CHECK_FALSE(h.grad().defined());
  CHECK(x.grad().defined());
  CHECK(of_nothing().find("leaf") == std::string::npos);
}

TEST_CASE("a retained gradient accumulates over passes") {
  const Tensor x = leaf(2.0);
  const Tensor h = x * 3;
  h.retain_grad();
  const Tensor y = h * h;
  y.backward({.retain_graph = true});
  y.backward();
  CHECK(h.grad().item() == 24);
}

TEST_CASE("a tensor may die before the pass that would have retained its gradient") {
  const Tensor x = leaf(2.0);
  Tensor y;
  {
    const Tensor h = x * 3;
    h.retain_grad();
    y = h * h;
  }
  y.backward();
  CHECK(x.grad().item() == 36);
}

TEST_CASE("a hook that holds nothing is an Error") {
  const Tensor x = leaf(2.0);
  x.register_hook(Hook());
  CHECK_THROWS_WITH((x * 3).backward(), "a Callback was called that has nothing to call");
}
TEST_CASE("a hook fires once, sees the whole gradient and may replace it") {
  const Tensor x = leaf(2.0);
  const Tensor h = x * 3;
  std::vector<double> seen;
  h.register_hook([&](const Tensor& g) {
    seen.push_back(g.item());
    return g * 10;
  });
  (h + h * 2).backward();
  CHECK(seen == std::vector<double>{3});
  CHECK(x.grad().item() == 90);
}

TEST_CASE("hooks run in the order of their registration, and one that returns nothing only looks") {
  const Tensor x = leaf(2.0);
  std::vector<double> seen;
  x.register_hook([&](const Tensor& g) { seen.push_back(g.item()); });
  x.register_hook([](const Tensor& g) { return g + 1; });
  x.register_hook([&](const Tensor& g) { seen.push_back(g.item()); });
  (x * 5).backward();
  CHECK(seen == std::vector<double>{5, 6});
  CHECK(x.grad().item() == 6);
}

TEST_CASE("a hook on a leaf sees the contributions of one pass, not what there was before") {
  const Tensor x = leaf(2.0);
  (x * 5).backward();
  double seen = 0;
  x.register_hook([&](const Tensor& g) { seen = g.item(); });
  (x * x + x).backward();
  CHECK(seen == 5);
  CHECK(x.grad().item() == 10);
}

TEST_CASE("a hook may register another one, which runs from the next pass on") {
  const Tensor x = leaf(2.0);
  int calls = 0;
  x.register_hook([&](const Tensor&) { x.register_hook([&](const Tensor&) { ++calls; }); });
  (x * 5).backward();
  CHECK(calls == 0);
  (x * 5).backward();
  CHECK(calls == 1);
}

TEST_CASE("a hook that was removed is called no more, also if it removes itself") {
  const Tensor x = leaf(2.0);
  int once = 0, always = 0;
  const HookHandle first = x.register_hook([&](const Tensor& g) {
    ++once;
    first.remove();
    return g * 10;
  });
  x.register_hook([&](const Tensor&) { ++always; });
  (x * 5).backward();
  (x * 5).backward();
  CHECK(once == 1);
  CHECK(always == 2);
  CHECK(x.grad().item() == 55);
  first.remove();  // does nothing
  HookHandle in_between = [&] {
    const Tensor y = x * 3;
    HookHandle handle = y.register_hook([](const Tensor& g) { return g * 7; });
    y.backward();
    return handle;
  }();
  CHECK(x.grad().item() == 76);
  CHECK(live_nodes() == 0);  // a handle keeps no graph
  in_between.remove();
}

TEST_CASE("a hook may not change the shape or the dtype of a gradient") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x * 2;
  y.register_hook([](const Tensor& g) { return g.sum(); });
  CHECK(error_of([&] { y.sum().backward(); }) ==
        "hook: it has turned a gradient float32 [2] into float32 [] at HERE.");
  x.register_hook([](const Tensor& g) { return g.to(float64); });
  CHECK(error_of([&] { (x * 2).sum().backward(); }) ==
        "hook: it has turned a gradient float32 [2] into float64 [2] at HERE.");
}

TEST_CASE("a hook that holds other tensors lets go of them with its tensor") {
  {
    const Tensor x = leaf(2.0), w = leaf(3.0);
    const Tensor h = w * 2;
    x.register_hook([h](const Tensor& g) { return g * h.detach(); });
    (x * 1).backward();
    CHECK(x.grad().item() == 6);
  }
  CHECK(live_nodes() == 0);
}

// ---- Grad mode ----------------------------------------------------------------------------------

TEST_CASE("NoGrad records nothing, and EnableGrad inside it records again") {
  const Tensor x = leaf(2.0);
  NoGrad guard;
  CHECK_FALSE(is_grad_enabled());
  CHECK_FALSE((x * 2).requires_grad());
  {
    EnableGrad inner;
    CHECK(is_grad_enabled());
    CHECK((x * 2).requires_grad());
  }
  CHECK_FALSE(is_grad_enabled());
}

TEST_CASE("grad mode is restored when an exception leaves its block") {
  try {
    NoGrad guard;
    EnableGrad inner;
    throw 1;
  } catch (int) {
  }
  CHECK(is_grad_enabled());
}

TEST_CASE("a recorded pass restores grad mode when it fails") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x * x;
  y.register_hook([](const Tensor&) -> Tensor { throw 1; });
  CHECK_THROWS(y.sum().backward());
  CHECK(is_grad_enabled());
}

TEST_CASE("backward works inside NoGrad") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = (x * x).sum();
  NoGrad guard;
  y.backward();
  CHECK(values(x.grad()) == Values{2, 4});
}

// ---- Leaves -------------------------------------------------------------------------------------

TEST_CASE("detach shares the memory and cuts the history") {
  const Tensor x = leaf(3.0);
  const Tensor y = x * 2, d = y.detach();
  CHECK(d.shares_storage_with(y));
  CHECK_FALSE(d.requires_grad());
  CHECK(d.is_leaf());
  (x * x.detach()).backward();
  CHECK(x.grad().item() == 3);
}

TEST_CASE("requires_grad_ turns recording on and off on leaves only") {
  const Tensor x = tensor(3.0).requires_grad_();
  CHECK(x.requires_grad());
  const Tensor y = x * 2;
  CHECK(y.requires_grad_().requires_grad());
  CHECK(error_of([&] { return y.requires_grad_(false); }) ==
        "requires_grad_: this tensor was computed, it is not a leaf at HERE. Hint: use detach() "
        "to cut it off");
  x.requires_grad_(false);
  CHECK_FALSE((x * 2).requires_grad());
}

TEST_CASE("losses added without detach keep their graphs, with it they do not") {
  const Tensor w = leaf(1.0);
  auto loss = [&] { return ((w * 2 - 1).pow(2)).sum(); };
  double plain = 0;
  Tensor detached = tensor(0.0), kept = tensor(0.0);
  for (int i = 0; i < 10; ++i) plain += loss().item();
  CHECK(plain == 10);
  CHECK(live_nodes() == 0);
  for (int i = 0; i < 10; ++i) detached = detached + loss().detach();
  CHECK(live_nodes() == 0);
  for (int i = 0; i < 10; ++i) kept = kept + loss();
  CHECK(live_nodes() == 10 * 5);
  kept = Tensor();
  CHECK(live_nodes() == 0);
}

TEST_CASE("a pass through comparisons and integers has nothing to do") {
  const Tensor x = leaf({1., 5.});
  CHECK_FALSE((x > 2).requires_grad());
  CHECK_FALSE(x.to(int64).requires_grad());
  CHECK_FALSE(x.argmax(0).requires_grad());
}

// ---- Anomaly mode -------------------------------------------------------------------------------

TEST_CASE("anomaly mode names the operation that made the first NaN") {
  const Tensor x = leaf({2., 5.});
  const Tensor y = (x - 2).pow(2);
  const std::string line = std::to_string(__LINE__ - 1);
  const Tensor z = y.sqrt().sum();
  AnomalyMode guard;
  CHECK(error_of([&] { z.backward(); }) ==
        "pow: the gradient that it gives to input 0 is NaN at test_autograd.cpp:" + line +
            ". Hint: its rule is dy * n * a^(n - 1)");
}

TEST_CASE("a leaf that no longer asks for a gradient gets none") {
  const Tensor x = leaf({1., 2.}), w = leaf({3., 4.});
  const Tensor y = (x * w).sum();
  w.requires_grad_(false);
  y.backward();
  CHECK(values(x.grad()) == Values{3, 4});
  CHECK_FALSE(w.grad().defined());
}

// ---- Operations of one's own --------------------------------------------------------------------

struct Cube : Rule {
  static constexpr Facts facts = {.name = "cube",
                                  .symbol = "a³",
                                  .formula = "a * a * a",
                                  .derivatives = {"3 * dy * a * a"},
                                  .node = "CubeBackward"};
  static Tensor forward(const Tensor& a) { return a * a * a; }
  void backward() { give(0, 3 * dy * a() * a()); }
};
struct WrongCube : Cube {
  void backward() { give(0, 2 * dy * a() * a()); }
};
struct Reversed : Rule {  // Y. Ganin, V. Lempitsky, 2015
  static constexpr Facts facts = {.name = "reversed",
                                  .symbol = "r",
                                  .formula = "a",
                                  .derivatives = {"-dy * n"},
                                  .attributes = "n",
                                  .node = "ReversedBackward"};
  static Tensor forward(const Tensor& a) { return a; }
  void backward() { give(0, -dy * n()); }
};
struct Line : Rule {  // a * b + c * n
  static constexpr Facts facts = {.name = "line",
                                  .symbol = "line",
                                  .formula = "a * b + c * n",
                                  .derivatives = {"dy * b", "dy * a", "dy * n"},
                                  .attributes = "n",
                                  .node = "LineBackward"};
  static Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c, const Given& given) {
    return a * b + c * given.n;
  }
  void backward() {
    if (wants(0)) give(0, dy * b());
    if (wants(1)) give(1, dy * a());
    if (wants(2)) give(2, dy * n());
  }
};
struct Root : Rule {  // its derivative is made of the output
  static constexpr Facts facts = {.name = "root",
                                  .symbol = "√",
                                  .formula = "sqrt(a)",
                                  .derivatives = {"dy / (2 * y)"},
                                  .node = "RootBackward"};
  static Tensor forward(const Tensor& a) { return a.sqrt(); }
  void backward() { give(0, dy / (2 * y())); }
};
struct Forgetful : Rule {
  static constexpr Facts facts = {.name = "forgetful",
                                  .symbol = "f",
                                  .formula = "a",
                                  .derivatives = {"dy"},
                                  .node = "ForgetfulBackward"};
  static Tensor forward(const Tensor&) { return {}; }
  void backward() { give(0, dy * a()); }
};
struct Unnamed : Forgetful {
  static Tensor forward(const Tensor& a) { return a + 0; }
};
struct Miscounted : Unnamed {
  void backward() { give(1, dy); }
};
struct Empty : Unnamed {
  void backward() { give(0, Tensor()); }
};
struct Nameless : Unnamed {
  static constexpr Facts facts = {};
};

TEST_CASE("an operation of one's own has the derivative that its rule says") {
  const Tensor x = leaf({1., 2., -3.}, float64);
  const Tensor y = custom<Cube>(x);
  CHECK(values(y) == Values{1, 8, -27});
  CHECK(y.grad_fn()->name() == std::string("CubeBackward"));
  CHECK(y.grad_fn()->saved.size() == 1);
  CHECK(y.grad_fn()->line().line() == __LINE__ - 4);
  y.sum().backward();
  CHECK(values(x.grad()) == Values{3, 12, 27});
  CHECK(gradcheck([](const Tensor& a) { return custom<Cube>(a); }, x));
  CHECK(gradgradcheck([](const std::vector<Tensor>& in) { return custom<Cube>(in[0]); }, {x}));
  CHECK(gradcheck([](const Tensor& a) { return custom<Root>(a); }, leaf({1., 4.}, float64)));
}

TEST_CASE("gradcheck catches a rule of one's own that is wrong") {
  const Tensor x = leaf({1., 2.}, float64);
  CHECK(error_of([&] {
          return gradcheck([](const Tensor& a) { return custom<WrongCube>(a); }, x);
        }).rfind("gradcheck: element 0 of input 0 has the gradient ", 0) == 0);
}

TEST_CASE(
    "an operation of one's own broadcasts, takes plain numbers, and computes what is wanted") {
  const Tensor a = leaf({{1., 2., 3.}, {4., 5., 6.}}, float64), b = leaf({2., 3., 4.}, float64);
  const Tensor c = tensor({{10.}, {20.}}, {.dtype = float64});
  const Tensor y = custom<Line>(a, b, c, {.n = 0.5});
  CHECK(values(y) == Values{7, 11, 17, 18, 25, 34});
  y.sum().backward();
  CHECK(values(a.grad()) == Values{2, 3, 4, 2, 3, 4});
  CHECK(values(b.grad()) == Values{5, 7, 9});
  const Function f = [](const std::vector<Tensor>& in) {
    return custom<Line>(in[0], in[1], in[2], {.n = 0.5});
  };
  CHECK(gradcheck(f, {a, b, leaf({{10.}, {20.}}, float64)}));
}

TEST_CASE("an operation of one's own may return its input, whose graph stays as it is") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = custom<Reversed>(x, {.n = 2});
  CHECK(x.is_leaf());
  CHECK_FALSE(y.shares_storage_with(x));
  y.sum().backward();
  CHECK(values(x.grad()) == Values{-2, -2});
}

TEST_CASE("what forgets to compute or to save in an operation of one's own is named") {
  const Tensor x = leaf({1., 2.});
  CHECK(error_of([&] { return custom<Forgetful>(x); }) ==
        "forgetful: its forward has returned an undefined tensor at HERE.");
  CHECK(error_of([&] { return custom<Unnamed>(x).sum().backward(), 0; }) ==
        "forgetful: its rule asks for a, which its facts do not name at HERE. Hint: an operation "
        "keeps what its .derivatives name: write the letter there");
  CHECK(error_of([&] { return custom<Miscounted>(x).sum().backward(), 0; }) ==
        "forgetful: its rule asks for input 1, and it was called with 1 at HERE. Hint: inputs are "
        "numbered from 0");
  CHECK(error_of([&] { return custom<Empty>(x).sum().backward(), 0; }) ==
        "forgetful: its rule gives an undefined gradient to input 0 at HERE.");
  CHECK(error_of([&] { return custom<Nameless>(x).sum().backward(), 0; }) ==
        "custom: its rule asks for a, which its facts do not name at HERE. Hint: an operation "
        "keeps what its .derivatives name: write the letter there");
  CHECK(error_of([&] { return custom<Cube>(Tensor()); }) ==
        "cube: an input is undefined, as a Tensor without a value is, and grad() before a backward "
        "pass at HERE. Hint: begin with tensor(0.0) or zeros(...), call backward() first, or ask "
        "defined()");
}

TEST_CASE("whoever watches sees an operation of one's own as one step") {
  class Steps : public Observer {
   public:
    void op(const Node* node, const Facts& facts, const Given& given, Span<const Tensor*> inputs,
            Span<Tensor>, Loc) override {
      seen += facts.name + std::string(" of ") + std::to_string(inputs.size()) +
              ", n = " + std::to_string(static_cast<int>(given.n)) + ", saved ";
      for (int k = 0; k < node->saved.size(); ++k) seen += node->saved[k].letter;
    }
    std::string seen;
  } steps;
  const Tensor a = leaf({1., 2.}), b = leaf({3., 4.});
  observe(&steps);
  const Tensor y = custom<Line>(a, b, a, {.n = 3});
  observe(nullptr);
  CHECK(steps.seen == "line of 3, n = 3, saved ab");
}

// ---- Checkpoints --------------------------------------------------------------------------------

// How many numbers the graph behind y holds for its way back.
std::int64_t numbers_saved(const Tensor& y) {
  std::int64_t count = 0;
  for (const Found::Place& it : Found({y}, next_id()).nodes)
    for (int k = 0; k < it.node->saved.size(); ++k)
      if (const Tensor& kept = it.node->saved[k].tensor; kept.defined()) count += kept.numel();
  return count;
}

TEST_CASE("a checkpoint keeps nothing of what it computes, and gives the same gradients") {
  const Tensor x = leaf({0.5, -1., 2.}), w = leaf({1., 2., 3.});
  int calls = 0;
  const auto f = [&](const Tensor& a) {
    ++calls;
    return ((a * w).tanh() * w).exp();
  };
  const Tensor y = checkpoint(f, x);
  CHECK(difference(y, f(x)) == "");
  CHECK(numbers_saved(f(x)) == 18);
  CHECK(numbers_saved(y) == 9);  // x, and w twice, which are there anyway
  calls = 0;
  y.sum().backward();
  CHECK(calls == 1);
  const Tensor of_x = x.grad(), of_w = w.grad();
  x.zero_grad();
  w.zero_grad();
  f(x).sum().backward();
  CHECK(difference(of_x, x.grad()) == "");
  CHECK(difference(of_w, w.grad()) == "");
  CHECK(error_of([&] { return y.sum().backward(), 0; }).find("has used up this graph") !=
        std::string::npos);
}

TEST_CASE(
    "checkpoints stand inside each other, between other operations, and with several inputs") {
  const Tensor x = leaf({0.5, -1., 0.2}, float64), y = leaf({1., 0.3, 0.7}, float64);
  int inner_calls = 0;
  const auto inner = [&](const std::vector<Tensor>& in) {
    ++inner_calls;
    return (in[0] * in[1]).sin() * in[1];
  };
  const auto outer = [&](const std::vector<Tensor>& in) {
    const Tensor once = checkpoint(inner, {in[0].exp(), in[1]});
    return checkpoint(inner, {once, once}) * in[0].sigmoid();
  };
  const auto plain = [&](const std::vector<Tensor>& in) {
    const Tensor once = inner({in[0].exp(), in[1]});
    return inner({once, once}) * in[0].sigmoid();
  };
  const Function whole = [&](const std::vector<Tensor>& in) {
    return checkpoint(outer, {in[0] * 2, in[1].exp()}).square() * in[1];
  };
  const Tensor z = whole({x, y}), want = plain({x * 2, y.exp()}).square() * y;
  CHECK(difference(z, want) == "");
  inner_calls = 0;
  const std::vector<Tensor> got = grad(z.sum(), {x, y}, {.retain_graph = true});
  CHECK(inner_calls == 4);  // each once within outer, and once for itself
  const std::vector<Tensor> wanted = grad(want.sum(), {x, y});
  for (std::size_t i : {0u, 1u}) {
    CHECK(difference(got[i], wanted[i]) == "");
    CHECK(difference(grad(z.sum(), {x, y}, {.retain_graph = true})[i], wanted[i]) == "");
  }
  CHECK(gradcheck(whole, {x, y}));
  CHECK(gradgradcheck(whole, {x, y}));
}

TEST_CASE("a checkpoint draws the same random numbers again, and leaves those that follow alone") {
  const Tensor x = leaf({1., 2., 3., 4., 5., 6., 7., 8.});
  const auto f = [](const Tensor& a) { return dropout(a.exp(), 0.5).square(); };
  manual_seed(5);
  const Tensor y = checkpoint(f, x);
  const Tensor then = rand({3});
  y.sum().backward();
  const Tensor next = rand({3}), gradient = x.grad();
  x.zero_grad();
  manual_seed(5);
  const Tensor plain = f(x);
  CHECK(difference(y, plain) == "");
  CHECK(difference(then, rand({3})) == "");
  plain.sum().backward();
  CHECK(difference(gradient, x.grad()) == "");
  CHECK(difference(next, rand({3})) == "");
}

TEST_CASE("a chain of checkpoints holds the memory of one of them") {
  const Tensor x = leaf({0.1, 0.2});
  Tensor y = x;
  for (int i = 0; i < 2000; ++i) y = checkpoint([](const Tensor& a) { return a.sin().sin(); }, y);
  CHECK(numbers_saved(y) == 2000 * 2);  // the input of each
  y.sum().backward();
  Tensor z = leaf({0.1, 0.2});
  const Tensor again = z;
  for (int i = 0; i < 2000; ++i) z = z.sin().sin();
  z.sum().backward();
  CHECK(difference(x.grad(), again.grad()) == "");
}

TEST_CASE("a long chain of checkpoints is freed on a small stack") {
  on_a_small_stack([] {
    Tensor y = leaf(1.0);
    for (int i = 0; i < 20'000; ++i) y = checkpoint([](const Tensor& a) { return a.sin(); }, y);
  });
}

TEST_CASE("a checkpoint refuses what it could not compute again") {
  const Tensor x = leaf({1., 2.});
  const Tensor input = x * 1;
  const Tensor y = checkpoint([](const Tensor& a) { return a.exp().sin(); }, input);
  input.add_(1);
  CHECK(error_of([&] {
          return y.sum().backward(), 0;
        }).rfind("checkpoint: input 0 was overwritten (by add_ at test_autograd.cpp:", 0) == 0);
  int calls = 0;
  const auto changing = [&](const Tensor& a) {
    return ++calls > 1 ? a.exp().exp().sin() : a.exp().sin();
  };
  const Tensor z = checkpoint(changing, x);
  CHECK(error_of([&] {
          return z.sum().backward(), 0;
        }).rfind("checkpoint: the function has done something else when it was called again", 0) ==
        0);
  CHECK(is_grad_enabled());
}

TEST_CASE("a checkpoint of nothing that requires grad is the plain call") {
  const Tensor x = tensor({1., 2.});
  CHECK_FALSE(checkpoint([](const Tensor& a) { return a.exp(); }, x).requires_grad());
  const Tensor w = leaf({3., 4.});
  const Tensor same = checkpoint([](const Tensor& a) { return a; }, w);
  CHECK(same.id() == w.id());
  {
    NoGrad guard;
    CHECK_FALSE(checkpoint([&](const Tensor& a) { return a * w; }, x).requires_grad());
  }
  checkpoint([&](const Tensor& a) { return (a * w).exp(); }, x).sum().backward();
  CHECK(difference(w.grad(), (x * w).exp().detach() * x, 1e-6) == "");
}

}  // namespace
