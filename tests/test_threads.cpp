// Threads: each has its own grad mode, observer and graphs, and they may share leaves. Run under
// the thread sanitizer as well.
#include <thread>

#include "tests/tensors.hpp"

namespace {

using namespace mt;
using namespace tensors;

TEST_CASE("two threads build and differentiate graphs of their own") {
  auto work = [](double start, double* result) {
    const Tensor x = leaf(start, float64);
    for (int i = 0; i < 50; ++i) {
      x.zero_grad();
      Tensor y = x;
      for (int k = 0; k < 20; ++k) y = y * x;
      y.backward();
    }
    *result = x.grad().item();
  };
  double first = 0, second = 0;
  std::thread one(work, 1.0, &first), two(work, -1.0, &second);
  one.join();
  two.join();
  CHECK(first == 21);
  CHECK(second == 21);
  CHECK(live_nodes() == 0);
}

TEST_CASE("two threads may use one leaf and add to its gradient") {
  const Tensor w = leaf({1., 2.}, float64);
  auto work = [&w] {
    for (int i = 0; i < 100; ++i) {
      (w * w).sum().backward();
      static_cast<void>(grad((w * 3).sum(), w));
    }
  };
  std::thread one(work), two(work);
  one.join();
  two.join();
  CHECK(values(w.grad()) == Values{400, 800});
}

TEST_CASE("two threads may go through one graph that both retain") {
  const Tensor x = leaf({1., 2.}, float64);
  const Tensor y = (x * x * x.exp()).sum();
  const Tensor expected = grad(y, x, {.retain_graph = true})[0];
  auto work = [&](std::string* found) {
    for (int i = 0; i < 100; ++i)
      *found += difference(grad(y, x, {.retain_graph = true})[0], expected);
  };
  std::string first, second;
  std::thread one(work, &first), two(work, &second);
  one.join();
  two.join();
  CHECK(first == "");
  CHECK(second == "");
}

TEST_CASE("two threads may be the first to use a view after a write to its base") {
  for (int i = 0; i < 50; ++i) {
    const Tensor x = leaf({1., 2.}, float64);
    const Tensor base = x * 1;
    const Tensor view = base[0];
    base.mul_(3);
    Tensor results[2];
    std::thread one([&] { results[0] = view * 2; }), two([&] { results[1] = view * 2; });
    one.join();
    two.join();
    for (const Tensor& result : results)
      CHECK(values(grad(result, x, {.retain_graph = true})[0]) == Values{6, 0});
  }
}

TEST_CASE("grad mode belongs to a thread") {
  NoGrad guard;
  bool elsewhere = false;
  std::thread([&] { elsewhere = is_grad_enabled(); }).join();
  CHECK(elsewhere);
}

}  // namespace
