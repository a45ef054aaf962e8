// A second machine without a graphics card: its table keeps "cuda" memory on the heap and lets the
// processor's verbs do the work. What is tested is who is asked, and where tensors end up.
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "minitensor.hpp"
#include "tests/catch.hpp"

using namespace mt;

namespace {

int allocations = 0, copies = 0;

View here(View view) {
  view.device = cpu;
  return view;
}

class SecondMachine {
 public:
  SecondMachine() {
    table_.allocate = [](Device, std::int64_t bytes) {
      ++allocations;
      return static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes)));
    };
    table_.device_count = [] { return 1; };
    table_.release = [](Device, std::byte* data) { ::operator delete(data); };
    table_.fill = [](const View& y, Scalar value) { fill(here(y), value); };
    table_.copy = [](const View& y, const View& a) {
      ++copies;
      copy(here(y), here(a));
    };
    table_.random = [](RandomDistribution kind, const View& y, Scalar first, Scalar second,
                       const RandomCall& call) {
      visit_distribution(kind, y.dtype, first, second, [&]<class T>(T, const auto& draw) {
        fill_by_blocks(as<T>(y.data), y.shape.numel(), call, draw);
      });
    };
    cuda_machine = &table_;
  }
  ~SecondMachine() { cuda_machine = nullptr; }
  SecondMachine(const SecondMachine&) = delete;
  SecondMachine& operator=(const SecondMachine&) = delete;

 private:
  Machine table_{};
};

TEST_CASE("whatever makes a tensor makes it on the device that was asked for") {
  const SecondMachine second;
  const TensorOptions there{.device = cuda};
  for (const Tensor& x : {tensor({1., 2.}, there), arange(3, there), linspace(0., 1., 3, there),
                          zeros({2}, there), eye(2, there), rand({2}, there), randn({2}, there),
                          randint(0, 5, {2}, there), randperm(4, there)})
    CHECK(x.device() == cuda);
  CHECK(arange(3, there).to_vector() == std::vector<double>{0, 1, 2});
  CHECK(linspace(0., 1., 3, there).to_vector() == std::vector<double>{0, 0.5, 1});
  CHECK(tensor({1., 2.}, {.device = cuda, .requires_grad = true}).requires_grad());
}

TEST_CASE("a tensor like another one lies beside it, unless a device is named") {
  const SecondMachine second;
  const Tensor x = zeros({2}, {.device = cuda});
  CHECK(ones_like(x).device() == cuda);
  CHECK(ones_like(x, {.device = cpu}).device() == cpu);
  CHECK(ones_like(zeros({2}), {.device = cuda}).device() == cuda);
}

TEST_CASE("a batch stays where its dataset has put it") {
  const SecondMachine second;
  struct There : data::Dataset {
    std::int64_t size() const override { return 1; }
    data::Example get(std::int64_t) const override { return {}; }
    data::Example batch(const Tensor&) const override { return {zeros({1}, {.device = cuda}), {}}; }
  };
  for (auto [x, y] : data::DataLoader(There())) CHECK(x.device() == cuda);
}

TEST_CASE("moving copies once, and item() and printing read from anywhere") {
  const SecondMachine second;
  const Tensor x = tensor({1., 2.});
  copies = 0;
  const Tensor there = x.to(cuda);
  CHECK(copies == 1);
  CHECK(there.to(cuda).id() == there.id());
  CHECK(there.cpu().to_vector() == std::vector<double>{1, 2});
  CHECK(to_string(there) == "tensor([1., 2.], device='cuda:0')");
  CHECK(tensor(7, {.device = cuda}).item<int>() == 7);
}

TEST_CASE("a batch stays on the device where its dataset has put it") {
  const SecondMachine second;
  struct Away : data::Dataset {
    std::int64_t size() const override { return 2; }
    data::Example get(std::int64_t) const override { return {}; }
    data::Example batch(const Tensor& index) const override {
      return {zeros({index.numel()}, {.device = cuda}), zeros({index.numel()})};
    }
  };
  for (auto [x, y] : data::DataLoader(Away())) {
    CHECK(x.device() == cuda);
    CHECK(y.device() == cpu);
  }
}

TEST_CASE("the gradient of a move moves back") {
  const SecondMachine second;
  const Tensor x = tensor({1., 2.}, {.requires_grad = true});
  x.to(cuda).backward(ones_like(x, {.device = cuda}));
  CHECK(x.grad().device() == cpu);
  CHECK(x.grad().to_vector() == std::vector<double>{1, 1});
}

}  // namespace
