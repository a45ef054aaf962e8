// The verbs of the processor against loops that are too simple to be wrong, over random shapes and
// layouts: large enough that rows are cut, tiled, buffered and shared out.
#include <random>

#include "tests/tensors.hpp"

namespace {

using namespace mt;
using namespace tensors;

using Index = std::int64_t;

// ---- Reading without the header's walks ---------------------------------------------------------

// Element i in row-major order.
template <class T>
T element_at(const Tensor& x, Index i) {
  const Shape shape = x.shape(), strides = x.stride();
  Index offset = 0;
  for (int axis = shape.size(); axis-- > 0; i /= shape[axis])
    offset += i % shape[axis] * strides[axis];
  return x.data<T>()[offset];
}

// Where element i of a tensor of shape `to` lies in one of shape `from` that is broadcast to it.
Index broadcast_index(Index i, const Shape& to, const Shape& from) {
  Index index = 0, step = 1;
  const int added = to.size() - from.size();
  for (int axis = to.size(); axis-- > added; i /= to[axis]) {
    const Index size = from[axis - added];
    index += (size == 1 ? 0 : i % to[axis]) * step;
    step *= size;
  }
  return index;
}

// ---- Random tensors -----------------------------------------------------------------------------

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  Index below(Index n) { return static_cast<Index>(engine_() % static_cast<std::uint64_t>(n)); }
  bool coin() { return below(2) == 0; }
  template <class List>
  auto pick(const List& list) {
    return list[static_cast<std::size_t>(below(static_cast<Index>(list.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

Shape random_shape(Dice& dice, int most_axes = 4, Index most = 60'000) {
  static const std::vector<Index> sizes = {1, 1, 2, 3, 4, 5, 7, 16, 33, 64, 130, 300, 1000};
  Shape shape;
  for (Index axes = dice.below(most_axes + 1); axes > 0; --axes) {
    const Index size = dice.pick(sizes);
    if (shape.numel() * size <= most) shape.push_back(size);
  }
  return shape;
}

// Small whole numbers, so that sums and products are exact, in memory laid out at random: dense,
// permuted, every second element of something larger, or repeated along an axis.
Tensor random_tensor_of(Dice& dice, const Shape& shape, DType dtype) {
  Shape base = shape, order, back;
  for (int axis = 0; axis < shape.size(); ++axis) order.push_back(axis), back.push_back(0);
  for (int axis = shape.size(); axis-- > 1;)
    if (dice.coin()) std::swap(order[axis], order[static_cast<int>(dice.below(axis + 1))]);
  for (int axis = 0; axis < shape.size(); ++axis) {
    base[axis] = shape[static_cast<int>(order[axis])];
    back[static_cast<int>(order[axis])] = axis;
  }
  const int sliced = dice.coin() && !base.empty() ? static_cast<int>(dice.below(base.size())) : -1;
  const int repeated =
      dice.below(4) == 0 && !base.empty() ? static_cast<int>(dice.below(base.size())) : -1;
  Shape memory = base;
  if (repeated >= 0) memory[repeated] = 1;
  if (sliced >= 0 && sliced != repeated) memory[sliced] *= 2;
  Tensor x = randint(-3, 4, memory).to(dtype);
  if (sliced >= 0 && sliced != repeated) x = x.slice(sliced, 1, {}, 2);
  return x.expand(base).permute(back);
}

const std::vector<DType> numbers = {float32, float64, int64};

// Calls f with a value of the C++ type behind a dtype of numbers.
template <class F>
void as_numbers_of(DType dtype, F f) {
  if (dtype == float32) f(float{});
  if (dtype == float64) f(double{});
  if (dtype == int64) f(Index{});
}

template <class T, class F>
void check_elements(const Tensor& y, F expected) {
  Index wrong = 0;
  for (Index i = 0; i < y.numel(); ++i) {
    const T got = element_at<T>(y, i), want = static_cast<T>(expected(i));
    if (got != want && !(got != got && want != want)) ++wrong;
  }
  CHECK(wrong == 0);
}

// ---- The tests ----------------------------------------------------------------------------------

TEST_CASE("elementwise operations meet the right elements, however they lie and broadcast") {
  Dice dice(1);
  for (int round = 0; round < 300; ++round) {
    const Shape shape = random_shape(dice);
    Shape a_shape = shape, b_shape = shape;
    for (int axis = 0; axis < shape.size(); ++axis) {
      if (dice.below(4) == 0) a_shape[axis] = 1;
      if (dice.below(4) == 0) b_shape[axis] = 1;
    }
    while (!b_shape.empty() && dice.below(3) == 0) b_shape.erase(0);
    const DType dtype = dice.pick(numbers);
    const Tensor a = random_tensor_of(dice, a_shape, dtype);
    const Tensor b = random_tensor_of(dice, b_shape, dtype);
    CAPTURE(round, to_string(a.shape()), to_string(a.stride()), to_string(b.shape()),
            to_string(b.stride()));
    as_numbers_of(dtype, [&](auto zero) {
      using T = decltype(zero);
      const Tensor sum = a + b, less = a < b, larger = maximum(a, b);
      const Tensor chosen = where(less, a, b), product = a * 3;
      const Shape to = sum.shape();
      const auto left = [&](Index i) {
        return element_at<T>(a, broadcast_index(i, to, a.shape()));
      };
      const auto right = [&](Index i) {
        return element_at<T>(b, broadcast_index(i, to, b.shape()));
      };
      check_elements<T>(sum, [&](Index i) { return left(i) + right(i); });
      check_elements<bool>(less, [&](Index i) { return left(i) < right(i); });
      check_elements<T>(larger, [&](Index i) { return std::max(left(i), right(i)); });
      check_elements<T>(chosen, [&](Index i) { return std::min(left(i), right(i)); });
      check_elements<T>(product, [&](Index i) { return element_at<T>(a, i) * 3; });
    });
  }
}

TEST_CASE("copies and conversions keep the order of the elements") {
  Dice dice(2);
  for (int round = 0; round < 200; ++round) {
    const Tensor a = random_tensor_of(dice, random_shape(dice), dice.pick(numbers));
    const DType to = dice.pick(numbers);
    CAPTURE(round, to_string(a.shape()), to_string(a.stride()));
    const Tensor y = a.to(to), dense = a.clone(), flat = a.reshape({-1});
    as_numbers_of(a.dtype(), [&](auto from) {
      as_numbers_of(to, [&](auto zero) {
        using A = decltype(from);
        using Y = decltype(zero);
        check_elements<Y>(y, [&](Index i) { return element_at<A>(a, i); });
        check_elements<A>(dense, [&](Index i) { return element_at<A>(a, i); });
        check_elements<A>(flat, [&](Index i) { return element_at<A>(a, i); });
      });
    });
  }
}

TEST_CASE("writes through views reach the right elements and no others") {
  Dice dice(3);
  for (int round = 0; round < 200; ++round) {
    Shape shape = random_shape(dice);
    if (shape.empty()) shape.push_back(7);
    const Tensor x = zeros(shape);
    const int axis = static_cast<int>(dice.below(shape.size()));
    const Index step = 1 + dice.below(3), start = dice.below(shape[axis]);
    const Tensor window = x.slice(axis, start, {}, step).transpose(0, -1);
    window.fill_(1);
    window.add_(random_tensor_of(dice, window.shape(), float32) * 0 + 1);
    Index inner = 1;
    for (int i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
    CAPTURE(round, to_string(shape), axis, start, step);
    check_elements<float>(x, [&](Index i) {
      const Index place = i / inner % shape[axis];
      return place >= start && (place - start) % step == 0 ? 2 : 0;
    });
  }
}

TEST_CASE("reductions gather the right elements, along any axes") {
  Dice dice(4);
  for (int round = 0; round < 300; ++round) {
    const DType dtype = dice.pick(numbers);
    const Tensor a = random_tensor_of(dice, random_shape(dice), dtype);
    Dims axes;
    for (int axis = 0; axis < a.dim(); ++axis)
      if (dice.coin()) axes.push_back(axis);
    CAPTURE(round, to_string(a.shape()), to_string(a.stride()), to_string(axes));
    const Tensor sum = a.sum(axes, {.keepdim = true}), largest = a.amax(axes, {.keepdim = true});
    as_numbers_of(dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto n = static_cast<std::size_t>(sum.numel());
      std::vector<double> sums(n, 0), maxima(n, -100);
      for (Index i = 0; i < a.numel(); ++i) {
        const auto to = static_cast<std::size_t>(broadcast_index(i, a.shape(), sum.shape()));
        const auto x = static_cast<double>(element_at<T>(a, i));
        sums[to] += x;
        maxima[to] = std::max(maxima[to], x);
      }
      check_elements<T>(sum, [&](Index i) { return sums[static_cast<std::size_t>(i)]; });
      check_elements<T>(largest, [&](Index i) { return maxima[static_cast<std::size_t>(i)]; });
    });
  }
}

TEST_CASE("the first of equal extremes is found, along any axis") {
  Dice dice(5);
  for (int round = 0; round < 200; ++round) {
    Shape shape = random_shape(dice, 3, 20'000);
    if (shape.empty()) shape.push_back(9);
    Tensor a = random_tensor_of(dice, shape, float32);
    if (dice.coin()) a = where(a > 1, not_a_number, a);
    const int axis = static_cast<int>(dice.below(shape.size()));
    CAPTURE(round, to_string(a.shape()), to_string(a.stride()), axis);
    const auto [values, indices] = a.max(axis, {.keepdim = true});
    Index inner = 1;
    for (int i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
    Index wrong = 0;
    for (Index i = 0; i < values.numel(); ++i) {
      const Index first = i / inner * inner * shape[axis] + i % inner;
      Index best = 0;
      for (Index k = 1; k < shape[axis]; ++k) {
        const float x = element_at<float>(a, first + k * inner);
        const float old = element_at<float>(a, first + best * inner);
        if (!std::isnan(old) && (x > old || std::isnan(x))) best = k;
      }
      wrong += element_at<Index>(indices, i) != best;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("matrix products add up the right products, however the factors lie") {
  Dice dice(6);
  const std::vector<Index> sizes = {1, 2, 3, 4, 5, 8, 31, 32, 33, 70}, depths = {1, 2, 7, 64, 300};
  for (int round = 0; round < 150; ++round) {
    const Index n = dice.pick(sizes), k = dice.pick(depths), m = dice.pick(sizes);
    Shape a_shape(n, k), b_shape(k, m);
    if (dice.below(3) == 0) a_shape.insert(0, dice.coin() ? 3 : 1);
    if (dice.below(3) == 0) b_shape.insert(0, 3);
    const DType dtype = dice.pick(numbers);
    const Tensor a = random_tensor_of(dice, a_shape, dtype);
    const Tensor b = random_tensor_of(dice, b_shape, dtype);
    CAPTURE(round, to_string(a.shape()), to_string(a.stride()), to_string(b.shape()),
            to_string(b.stride()));
    const Tensor y = a.matmul(b);
    as_numbers_of(dtype, [&](auto zero) {
      using T = decltype(zero);
      const Index a_batch = a.dim() == 3 && a.size(0) > 1 ? n * k : 0;
      const Index b_batch = b.dim() == 3 ? k * m : 0;
      check_elements<T>(y, [&](Index at) {
        const Index batch = at / (n * m), i = at / m % n, j = at % m;
        double sum = 0;
        for (Index l = 0; l < k; ++l)
          sum += static_cast<double>(element_at<T>(a, batch * a_batch + i * k + l)) *
                 static_cast<double>(element_at<T>(b, batch * b_batch + l * m + j));
        return sum;
      });
    });
  }
}

TEST_CASE("gather picks, and its gradient adds up, at the right places") {
  Dice dice(7);
  for (int round = 0; round < 100; ++round) {
    Shape shape = random_shape(dice, 3, 5'000);
    if (shape.empty()) shape.push_back(9);
    const int axis = static_cast<int>(dice.below(shape.size()));
    const Tensor a = random_tensor_of(dice, shape, float32).detach().requires_grad_();
    Shape index_shape = shape;
    index_shape[axis] = 1 + dice.below(2 * shape[axis]);
    const Tensor index = randint(shape[axis], index_shape);
    CAPTURE(round, to_string(shape), to_string(a.stride()), axis);
    const Tensor y = a.gather(axis, index);
    Index inner = 1;
    for (int i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
    const auto from = [&](Index i) {
      const Index outer = i / inner / index_shape[axis];
      return (outer * shape[axis] + element_at<Index>(index, i)) * inner + i % inner;
    };
    check_elements<float>(y, [&](Index i) { return element_at<float>(a, from(i)); });
    const Tensor dy = randint(-3, 4, index_shape).to(float32);
    y.backward(dy);
    std::vector<double> sums(static_cast<std::size_t>(a.numel()), 0);
    for (Index i = 0; i < y.numel(); ++i)
      sums[static_cast<std::size_t>(from(i))] += element_at<float>(dy, i);
    check_elements<float>(a.grad(), [&](Index i) { return sums[static_cast<std::size_t>(i)]; });
  }
}

TEST_CASE("large tensors, worked on by several cores, have every element") {
  const Tensor x = arange(1'000'000);
  check_elements<Index>(x.reshape({1000, 1000}).t() * 2,
                        [](Index i) { return 2 * (i % 1000 * 1000 + i / 1000); });
  CHECK(x.sum().item() == 499'999'500'000);
  CHECK(x.max(0).indices.item() == 999'999);
  CHECK(x.reshape({1000, 1000}).sum(0)[7].item() == 1000 * 7 + 499'500'000);
}

TEST_CASE("sums of float32 are as accurate as their elements") {
  manual_seed(8);
  for (const Shape& shape : {Shape(1'000'000), Shape(1000, 1000), Shape(1'000'000, 1)}) {
    const Tensor x = rand(shape);
    const double exact = x.to(float64).sum().item();
    CHECK(std::abs(x.sum().item() - exact) <= 1e-7 * exact);
    const Tensor columns = x.reshape({1000, 1000}).sum(0);
    CHECK(difference(columns, x.reshape({1000, 1000}).to(float64).sum(0).to(float32), 2e-7) == "");
  }
}

TEST_CASE("blocks of memory can be taken and given in any order") {
  Dice dice(9);
  std::vector<Tensor> kept(50);
  for (int round = 0; round < 5'000; ++round) {
    const auto place = static_cast<std::size_t>(dice.below(50));
    kept[place] = full({dice.below(3'000)}, round);
    for (const Tensor& x : {kept[place], dice.pick(kept)})
      if (x.defined() && x.numel() > 0) CHECK(x[0].item() == x[-1].item());
  }
}

}  // namespace
