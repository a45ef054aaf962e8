// Threads: each has its own grad mode, observer and graphs, and they may share leaves. Run under
// the thread sanitizer as well.
#include <atomic>
#include <thread>

#include "minitensor_files.hpp"
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

TEST_CASE("two threads may be the first to come to a checkpoint that both retain") {
  const Tensor x = full({50}, 0.5, {.dtype = float64, .requires_grad = true});
  const Tensor y = checkpoint([](const Tensor& a) { return (a * a).exp(); }, x).sum();
  std::vector<std::thread> threads;
  std::vector<double> sums(2);
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] { sums[i] = grad(y, x, {.retain_graph = true})[0].sum().item(); });
  for (std::thread& thread : threads) thread.join();
  for (const double sum : sums) CHECK(sum == Approx(50 * std::exp(0.25)));
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

TEST_CASE("threads may hook one leaf, and take their hooks back, while others go backwards") {
  const Tensor w = leaf({1., 2.}, float64);
  std::atomic<int> called{0};
  w.register_hook([&](const Tensor&) { ++called; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        const HookHandle handle = w.register_hook([&](const Tensor&) { ++called; });
        static_cast<void>(grad((w * w).sum(), w));
        (w * 2).sum().backward();
        handle.remove();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(called >= 3 * 50 * 2);  // each pass calls at least the first hook and its own
  CHECK(difference(w.grad(), full({2}, 300., {.dtype = float64})) == "");
}

TEST_CASE("grad mode belongs to a thread") {
  NoGrad guard;
  bool elsewhere = false;
  std::thread([&] { elsewhere = is_grad_enabled(); }).join();
  CHECK(elsewhere);
}

// Example i is i and a random number; 7 cannot be read.
struct Noisy : data::Dataset {
  std::int64_t size() const override { return 8; }
  data::Example get(std::int64_t i) const override {
    if (i == 7) throw Error("example 7 is unreadable");
    return {tensor(static_cast<double>(i)) * leaf(1.), rand({100})};
  }
};

TEST_CASE("batches made by a second thread are those of the loader itself") {
  const auto all = [](const auto& batches) {
    std::vector<Tensor> list;
    try {
      for (auto [x, y] : batches) {
        CHECK_FALSE(x.requires_grad());
        list.push_back(x);
        list.push_back(y * y);
      }
    } catch (const Error& error) {
      CHECK(std::string(error.what()) == "example 7 is unreadable");
      list.push_back(tensor(-1.));
    }
    return list;
  };
  for (const bool shuffle : {false, true}) {
    const data::DataLoader loader(Noisy(), {.batch_size = 2, .shuffle = shuffle}), twin = loader;
    for (int epoch = 0; epoch < 3; ++epoch) {
      manual_seed(5);
      const std::vector<Tensor> expected = all(loader);
      const double drawn = rand({}).item();
      manual_seed(5);
      const std::vector<Tensor> got = all(data::Prefetch(twin));
      CHECK(rand({}).item() == drawn);
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i], expected[i]) == "");
    }
  }
  const data::DataLoader loader(Noisy(), {.batch_size = 4});
  for (auto [x, y] : data::Prefetch(loader)) {
    CHECK(values(x) == Values{0, 1, 2, 3});
    break;  // the batch that is on its way is waited for
  }
}

}  // namespace
