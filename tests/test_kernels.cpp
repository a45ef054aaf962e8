// The verbs of the processor (chapters 5 to 7) against loops that are too simple to be wrong, over
// many shapes and layouts; the accuracy of sums and of the fast formulas; and the memory they live
// in.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "minitensor.hpp"
#include "tests/catch.hpp"

namespace {

namespace formula = mt::formula;
using mt::DType;
using mt::Shape;
using mt::View;
using Integer64 = std::int64_t;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// ---- Elements in every kind of layout ----

enum class Layout { dense, reversed, stepped, shuffled };
constexpr Layout layouts[] = {Layout::dense, Layout::reversed, Layout::stepped, Layout::shuffled};

// A view with memory of exactly its size (so that a sanitizer sees a step beyond it).
struct Elements {
  Elements(DType dtype, const Shape& shape, Layout layout = Layout::dense) {
    view.dtype = dtype;
    view.shape = shape;
    view.strides = shape;
    std::vector<int> order;
    for (int i = 0; i < shape.size(); ++i) order.push_back(i);
    if (layout == Layout::reversed) std::reverse(order.begin(), order.end());
    if (layout == Layout::shuffled && order.size() > 1)
      std::rotate(order.begin(), order.begin() + 1, order.end());
    Integer64 step = layout == Layout::stepped ? 2 : 1;
    for (std::size_t i = order.size(); i-- > 0;) {
      view.strides[order[i]] = step;
      step *= shape[order[i]] + (layout == Layout::stepped ? 1 : 0);
    }
    Integer64 last = shape.numel() > 0 ? 0 : -1;
    for (int i = 0; shape.numel() > 0 && i < shape.size(); ++i)
      last += (shape[i] - 1) * view.strides[i];
    memory.resize(static_cast<std::size_t>((last + 1) * mt::bytes_of(dtype)));
    view.data = memory.data();
  }
  std::vector<std::byte> memory;
  View view;
};

using Index = std::vector<Integer64>;

// Calls f with every index of a shape, in order.
void for_each(const Shape& shape, const std::function<void(const Index&)>& f) {
  if (shape.numel() == 0) return;
  Index index(static_cast<std::size_t>(shape.size()), 0);
  for (;;) {
    f(index);
    int axis = shape.size() - 1;
    for (; axis >= 0; --axis) {
      Integer64& at = index[static_cast<std::size_t>(axis)];
      if (++at < shape[axis]) break;
      at = 0;
    }
    if (axis < 0) return;
  }
}

std::byte* place(const View& view, const Index& index) {
  Integer64 offset = 0;
  for (int i = 0; i < view.shape.size(); ++i)
    offset += index[static_cast<std::size_t>(i)] * view.strides[i];
  return view.data + offset * mt::bytes_of(view.dtype);
}
template <class T>
T& element(const View& view, const Index& index) {
  return *reinterpret_cast<T*>(place(view, index));
}
double number(const View& view, const Index& index) {
  return mt::with_type(
      view.dtype, [&](auto t) { return static_cast<double>(element<decltype(t)>(view, index)); });
}
void set(const View& view, const Index& index, double value) {
  mt::with_type(view.dtype, [&](auto t) {
    element<decltype(t)>(view, index) = static_cast<decltype(t)>(value);
  });
}

// Fills with numbers that are exact in every dtype and differ from place to place.
void fill_with_pattern(const View& view, int seed) {
  Integer64 i = seed;
  for_each(view.shape, [&](const Index& index) {
    const Integer64 n = (i++ * 7919 + seed) % 23 - 11;
    set(view, index, static_cast<double>(view.dtype == mt::boolean ? n > 0 : n));
  });
}
Elements pattern(DType dtype, const Shape& shape, Layout layout = Layout::dense, int seed = 1) {
  Elements made(dtype, shape, layout);
  fill_with_pattern(made.view, seed);
  return made;
}

// The view repeated along the axes where it has size 1.
View expanded(const View& view, const Shape& shape) {
  View out = view;
  out.shape = shape;
  out.strides = mt::broadcast_strides(view.shape, view.strides, shape);
  return out;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// The number of elements that are not what `want` says.
int wrong(const View& y, const std::function<double(const Index&)>& want) {
  int count = 0;
  for_each(y.shape, [&](const Index& index) { count += !same(number(y, index), want(index)); });
  return count;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {Shape(),
                                         Shape(1),
                                         Shape(0),
                                         Shape(3, 0, 2),
                                         Shape(7),
                                         Shape(1100),
                                         Shape(3, 5),
                                         Shape(40, 70),
                                         Shape(130, 65),
                                         Shape(1, 6, 1),
                                         Shape(300, 3),
                                         Shape(3, 300),
                                         Shape(2, 1, 3),
                                         Shape(600, 2, 2),
                                         Shape(2, 3, 4, 5),
                                         Shape(1, 2, 1, 3, 1, 2, 1, 2),
                                         Shape(2, 2, 2, 2, 2, 2, 2, 2)};
  return all;
}

// The shape with size 1 in some axes: those whose bit is set.
Shape with_ones(Shape shape, unsigned axes) {
  for (int i = 0; i < shape.size(); ++i)
    if (axes >> i & 1) shape[i] = 1;
  return shape;
}

// ---- Element by element ----

TEST_CASE("a map gives each element what the formula gives, whatever the shape and the strides") {
  for (const Shape& shape : shapes())
    for (Layout to : layouts)
      for (Layout from : layouts)
        for (DType dtype : {mt::float32, mt::float64, mt::int64}) {
          Elements y(dtype, shape, to), a = pattern(dtype, shape, from);
          mt::map<formula::Square>(y.view, a.view);
          CHECK(wrong(y.view,
                      [&](const Index& i) { return number(a.view, i) * number(a.view, i); }) == 0);
        }
}

TEST_CASE("a zip combines what stands at the same place, and repeats what is broadcast") {
  for (const Shape& shape : shapes())
    for (Layout to : layouts)
      for (Layout from : layouts)
        for (unsigned repeated : {0u, 1u, 2u, 5u, 255u}) {
          Elements y(mt::float32, shape, to), a = pattern(mt::float32, shape, from);
          Elements b = pattern(mt::float32, with_ones(shape, repeated), from, 5);
          const View wide = expanded(b.view, shape);
          mt::zip<formula::Sub>(y.view, a.view, wide);
          const auto difference = [&](const Index& i) {
            return number(a.view, i) - number(wide, i);
          };
          CHECK(wrong(y.view, difference) == 0);
          mt::zip<formula::Sub>(y.view, wide, a.view);
          CHECK(wrong(y.view, [&](const Index& i) { return -difference(i); }) == 0);
        }
}

TEST_CASE("a comparison writes truth values, and none is true of NaN but not-equal") {
  const Shape shape(5, 41);
  for (DType dtype : {mt::float32, mt::float64, mt::int64, mt::boolean}) {
    Elements y(mt::boolean, shape, Layout::reversed);
    Elements a = pattern(dtype, shape), b = pattern(dtype, shape, Layout::stepped, 3);
    mt::zip<formula::Less>(y.view, a.view, b.view);
    CHECK(wrong(y.view, [&](const Index& i) { return number(a.view, i) < number(b.view, i); }) ==
          0);
    mt::zip<formula::GreaterEqual>(y.view, a.view, b.view);
    CHECK(wrong(y.view, [&](const Index& i) { return number(a.view, i) >= number(b.view, i); }) ==
          0);
    mt::zip<formula::Equal>(y.view, a.view, b.view);
    CHECK(wrong(y.view, [&](const Index& i) { return number(a.view, i) == number(b.view, i); }) ==
          0);
  }
  Elements y(mt::boolean, Shape(1)), nan = pattern(mt::float32, Shape(1));
  set(nan.view, {0}, not_a_number);
  mt::zip<formula::Equal>(y.view, nan.view, nan.view);
  CHECK(number(y.view, {0}) == 0);
  mt::zip<formula::LessEqual>(y.view, nan.view, nan.view);
  CHECK(number(y.view, {0}) == 0);
  mt::zip<formula::NotEqual>(y.view, nan.view, nan.view);
  CHECK(number(y.view, {0}) == 1);
}

TEST_CASE("an operation may write over its own input") {
  for (const Shape& shape : shapes())
    for (Layout layout : layouts) {
      Elements y = pattern(mt::float32, shape, layout), b = pattern(mt::float32, shape, layout, 4);
      const Elements before = pattern(mt::float32, shape);
      mt::zip<formula::Add>(y.view, y.view, b.view);
      CHECK(wrong(y.view,
                  [&](const Index& i) { return number(before.view, i) + number(b.view, i); }) == 0);
      mt::zip<formula::Sub>(b.view, y.view, b.view);
      mt::map<formula::Neg>(b.view, b.view);
      CHECK(wrong(b.view, [&](const Index& i) { return -number(before.view, i); }) == 0);
    }
}

TEST_CASE("maximum, minimum and relu keep NaN, from either side") {
  const double values[] = {-1, 2, infinity, -infinity, not_a_number};
  for (DType dtype : {mt::float32, mt::float64})
    for (double p : values)
      for (double q : values) {
        Elements y(dtype, {}), a(dtype, {}), b(dtype, {});
        set(a.view, {}, p);
        set(b.view, {}, q);
        const bool nan = std::isnan(p) || std::isnan(q);
        mt::zip<formula::Maximum>(y.view, a.view, b.view);
        CHECK(same(number(y.view, {}), nan ? not_a_number : std::max(p, q)));
        mt::zip<formula::Minimum>(y.view, a.view, b.view);
        CHECK(same(number(y.view, {}), nan ? not_a_number : std::min(p, q)));
        mt::map<formula::Relu>(y.view, a.view);
        CHECK(same(number(y.view, {}), std::isnan(p) ? p : std::max(p, 0.0)));
      }
}

TEST_CASE("integers wrap around instead of overflowing, and have powers") {
  constexpr Integer64 least = std::numeric_limits<Integer64>::min();
  constexpr Integer64 most = std::numeric_limits<Integer64>::max();
  CHECK(formula::Add::of(most, Integer64{1}) == least);
  CHECK(formula::Sub::of(least, Integer64{1}) == most);
  CHECK(formula::Mul::of(most, Integer64{2}) == -2);
  CHECK(formula::Neg::of(least) == least);
  CHECK(formula::Abs::of(least) == least);
  CHECK(formula::Pow::of(Integer64{3}, Integer64{4}) == 81);
  CHECK(formula::Pow::of(Integer64{2}, Integer64{64}) == 0);
  CHECK(formula::Pow::of(Integer64{0}, Integer64{0}) == 1);
  CHECK(formula::Pow::of(Integer64{-1}, Integer64{-3}) == -1);
  CHECK(formula::Pow::of(Integer64{2}, Integer64{-1}) == 0);
}

TEST_CASE("choose takes from one side or the other, and an infinity not taken leaves no trace") {
  for (const Shape& shape : shapes())
    for (Layout layout : layouts) {
      Elements y(mt::float64, shape, layout), condition = pattern(mt::boolean, shape, layout);
      Elements a = pattern(mt::float64, shape),
               b = pattern(mt::float64, with_ones(shape, 255), layout);
      if (shape.numel() > 0) set(b.view, Index(static_cast<std::size_t>(shape.size())), infinity);
      const View rest = expanded(b.view, shape);
      mt::choose(y.view, condition.view, a.view, rest);
      CHECK(wrong(y.view, [&](const Index& i) {
              return number(condition.view, i) != 0 ? number(a.view, i) : number(rest, i);
            }) == 0);
    }
}

TEST_CASE("a copy converts from every dtype to every other") {
  constexpr DType all[] = {mt::float32, mt::float64, mt::int64, mt::boolean};
  for (const Shape& shape : shapes())
    for (Layout layout : layouts)
      for (DType to : all)
        for (DType from : all) {
          Elements y(to, shape, Layout::dense), a = pattern(from, shape, layout);
          mt::copy(y.view, a.view);
          CHECK(wrong(y.view, [&](const Index& i) {
                  const double x = number(a.view, i);
                  return to == mt::boolean ? x != 0 : x;
                }) == 0);
        }
}

TEST_CASE("a view that runs across is read right, in stacks, for every size of element") {
  const Shape shape(3, 50, 40);
  for (DType dtype : {mt::float32, mt::float64, mt::int64, mt::boolean})
    for (Layout to : layouts) {
      Elements a = pattern(dtype, Shape(40, 3, 50)), y(dtype, shape, to);
      View across = a.view;
      across.shape = shape;
      across.strides = Shape(50, 1, 150);
      mt::copy(y.view, across);
      CHECK(wrong(y.view, [&](const Index& i) { return number(across, i); }) == 0);
      if (dtype == mt::boolean) continue;
      // The same matrix for the whole stack, and a sum of two.
      View one = across;
      one.strides = Shape(0, 1, 150);
      mt::zip<formula::Add>(y.view, across, one);
      CHECK(wrong(y.view, [&](const Index& i) { return number(across, i) + number(one, i); }) == 0);
      Elements truth(mt::boolean, shape);
      mt::zip<formula::Less>(truth.view, y.view, across);
      CHECK(wrong(truth.view,
                  [&](const Index& i) { return number(y.view, i) < number(across, i); }) == 0);
    }
}

TEST_CASE("the sign of zeros and of NaN is 0") {
  Elements a(mt::float32, Shape(5)), y(mt::float32, Shape(5));
  const double given[] = {not_a_number, 0.0, -0.0, -infinity, 2};
  for (Integer64 i = 0; i < 5; ++i) set(a.view, {i}, given[i]);
  mt::map<formula::Sign>(y.view, a.view);
  // PyTorch 1.13: torch.tensor([nan, 0., -0., -inf, 2.]).sign() is [0., 0., 0., -1., 1.]
  const double want[] = {0, 0, 0, -1, 1};
  for (Integer64 i = 0; i < 5; ++i) CHECK(number(y.view, {i}) == want[i]);
}

TEST_CASE("what does not fit an integer becomes the nearest that does, and NaN becomes 0") {
  const double given[] = {2.9, -2.9, 1e30, -1e30, infinity, not_a_number};
  const Integer64 want[] = {2,
                            -2,
                            std::numeric_limits<Integer64>::max(),
                            std::numeric_limits<Integer64>::min(),
                            std::numeric_limits<Integer64>::max(),
                            0};
  for (DType from : {mt::float32, mt::float64}) {
    Elements a(from, Shape(6)), y(mt::int64, Shape(6));
    for (Integer64 i = 0; i < 6; ++i) set(a.view, {i}, given[i]);
    mt::copy(y.view, a.view);
    for (Integer64 i = 0; i < 6; ++i) CHECK(element<Integer64>(y.view, {i}) == want[i]);
  }
  Elements nan(mt::float32, Shape(1)), truth(mt::boolean, Shape(1));
  set(nan.view, {0}, not_a_number);
  mt::copy(truth.view, nan.view);
  CHECK(number(truth.view, {0}) == 1);
}

TEST_CASE("fill writes one number into every element and into nothing else") {
  for (const Shape& shape : shapes())
    for (Layout layout : layouts) {
      Elements y(mt::int64, shape, layout);
      std::fill(y.memory.begin(), y.memory.end(), std::byte{0x55});
      mt::fill(y.view, 7);
      CHECK(wrong(y.view, [](const Index&) { return 7.0; }) == 0);
      Integer64 sevens = 0, *all = reinterpret_cast<Integer64*>(y.memory.data());
      for (std::size_t i = 0; i < y.memory.size() / 8; ++i) sevens += all[i] == 7;
      CHECK(sevens == shape.numel());
    }
  Elements big(mt::int64, Shape(1));
  mt::fill(big.view, Integer64{1} << 62 | 1);
  CHECK(element<Integer64>(big.view, {0}) == (Integer64{1} << 62 | 1));
}

// ---- Many numbers into one ----

// Folds a by hand. The result has size 1 in the axes whose bit is set.
Elements folded(const View& a, unsigned axes, double neutral,
                const std::function<double(double, double)>& join) {
  Elements y(mt::float64, with_ones(a.shape, axes));
  for_each(y.view.shape, [&](const Index& i) { set(y.view, i, neutral); });
  for_each(a.shape, [&](const Index& i) {
    Index kept = i;
    for (std::size_t axis = 0; axis < kept.size(); ++axis)
      if (axes >> axis & 1) kept[axis] = 0;
    set(y.view, kept, join(number(y.view, kept), number(a, i)));
  });
  return y;
}

template <class F>
int wrongly_reduced(const View& y, const View& a, unsigned axes, double neutral,
                    const std::function<double(double, double)>& join) {
  mt::reduce<F>(y, a);
  const Elements want = folded(a, axes, neutral, join);
  return wrong(y, [&](const Index& i) { return number(want.view, i); });
}

TEST_CASE("a reduction folds any choice of axes, whatever the strides") {
  const auto add = [](double a, double b) { return a + b; };
  const auto larger = [](double a, double b) { return std::max(a, b); };
  const auto smaller = [](double a, double b) { return std::min(a, b); };
  for (const Shape& shape : shapes())
    for (Layout from : layouts)
      for (unsigned axes : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 0xaau, 0x55u, 255u}) {
        if (axes >> shape.size() && axes != 255) continue;
        for (DType dtype : {mt::float32, mt::float64, mt::int64, mt::boolean}) {
          const Elements a = pattern(dtype, shape, from);
          const DType result = dtype == mt::boolean ? mt::int64 : dtype;
          Elements y(result, with_ones(shape, axes),
                     from == Layout::dense ? from : Layout::shuffled);
          CHECK(wrongly_reduced<formula::Sum>(y.view, a.view, axes, 0, add) == 0);
          if (shape.numel() == 0) continue;
          Elements z(dtype, with_ones(shape, axes));
          CHECK(wrongly_reduced<formula::Max>(z.view, a.view, axes, -infinity, larger) == 0);
          CHECK(wrongly_reduced<formula::Min>(z.view, a.view, axes, infinity, smaller) == 0);
        }
      }
}

TEST_CASE("products, any and all are reductions too") {
  const auto times = [](double a, double b) { return a * b; };
  for (unsigned axes : {1u, 2u, 3u}) {
    Elements a = pattern(mt::float32, Shape(5, 20));
    for_each(a.view.shape, [&](const Index& i) {
      element<float>(a.view, i) = element<float>(a.view, i) > 0 ? 2.0f : -1.0f;
    });
    Elements y(mt::float32, with_ones(a.view.shape, axes));
    CHECK(wrongly_reduced<formula::Prod>(y.view, a.view, axes, 1, times) == 0);
    Elements truth = pattern(mt::boolean, Shape(5, 20)), some(mt::boolean, y.view.shape);
    CHECK(wrongly_reduced<formula::Any>(some.view, truth.view, axes, 0,
                                        [](double p, double q) { return p != 0 || q != 0; }) == 0);
    CHECK(wrongly_reduced<formula::All>(some.view, truth.view, axes, 1, times) == 0);
  }
}

TEST_CASE("a reduction of nothing gives the neutral element") {
  const Elements a(mt::float32, Shape(3, 0)), b(mt::boolean, Shape(3, 0));
  Elements y(mt::float32, Shape(3, 1)), t(mt::boolean, Shape(3, 1));
  mt::reduce<formula::Sum>(y.view, a.view);
  CHECK(wrong(y.view, [](const Index&) { return 0.0; }) == 0);
  mt::reduce<formula::Prod>(y.view, a.view);
  CHECK(wrong(y.view, [](const Index&) { return 1.0; }) == 0);
  mt::reduce<formula::Any>(t.view, b.view);
  CHECK(wrong(t.view, [](const Index&) { return 0.0; }) == 0);
  mt::reduce<formula::All>(t.view, b.view);
  CHECK(wrong(t.view, [](const Index&) { return 1.0; }) == 0);
}

TEST_CASE("NaN anywhere makes the sum, the maximum and the minimum of its line NaN, and no other") {
  for (const Shape& shape : {Shape(3, 5), Shape(3, 40), Shape(40, 3), Shape(3, 700)})
    for (int axis : {0, 1})
      for (Integer64 at : {Integer64{0}, shape[1] / 2, shape[1] - 1}) {
        Elements a = pattern(mt::float32, shape);
        set(a.view, {1, at}, not_a_number);
        const Shape kept = with_ones(shape, 1u << axis);
        const auto hit = [&](const Index& i) { return axis == 1 ? i[0] == 1 : i[1] == at; };
        Elements y(mt::float32, kept), indices(mt::int64, kept);
        const auto check = [&] {
          for_each(kept, [&](const Index& i) { CHECK(std::isnan(number(y.view, i)) == hit(i)); });
        };
        mt::reduce<formula::Sum>(y.view, a.view);
        check();
        mt::reduce<formula::Max>(y.view, a.view);
        check();
        mt::reduce<formula::Min>(y.view, a.view);
        check();
        mt::reduce_arg<formula::Max>(y.view, indices.view, a.view, axis);
        check();
        const double where = number(indices.view, axis == 1 ? Index{1, 0} : Index{0, at});
        CHECK(where == (axis == 1 ? static_cast<double>(at) : 1));
      }
}

TEST_CASE("the place of the largest or smallest is the first of several") {
  for (const Shape& shape : {Shape(1), Shape(50), Shape(7, 9), Shape(3, 100, 2), Shape(2, 3, 4, 5)})
    for (Layout layout : layouts)
      for (DType dtype : {mt::float32, mt::int64, mt::boolean})
        for (int axis = 0; axis < shape.size(); ++axis) {
          const Elements a = pattern(dtype, shape, layout);
          const Shape kept = with_ones(shape, 1u << axis);
          Elements values(dtype, kept, layout), indices(mt::int64, kept);
          const auto at = [&](Index i, Integer64 j) {
            i[static_cast<std::size_t>(axis)] = j;
            return number(a.view, i);
          };
          mt::reduce_arg<formula::Max>(values.view, indices.view, a.view, axis);
          const auto first_largest = [&](const Index& i) {
            Integer64 best = 0;
            for (Integer64 j = 1; j < shape[axis]; ++j)
              if (at(i, j) > at(i, best)) best = j;
            return best;
          };
          CHECK(wrong(indices.view,
                      [&](const Index& i) { return static_cast<double>(first_largest(i)); }) == 0);
          CHECK(wrong(values.view, [&](const Index& i) { return at(i, first_largest(i)); }) == 0);
          mt::reduce_arg<formula::Min>(values.view, indices.view, a.view, axis);
          CHECK(wrong(values.view, [&](const Index& i) {
                  return at(i, static_cast<Integer64>(number(indices.view, i)));
                }) == 0);
          CHECK(wrong(indices.view, [&](const Index& i) {
                  Integer64 best = 0;
                  for (Integer64 j = 1; j < shape[axis]; ++j)
                    if (at(i, j) < at(i, best)) best = j;
                  return static_cast<double>(best);
                }) == 0);
        }
}

TEST_CASE("ten million float32 numbers are added up without loss, along any axis") {
  constexpr Integer64 n = 10'000'000;
  std::vector<float> numbers(static_cast<std::size_t>(n), 0.1f);
  View a;
  a.data = reinterpret_cast<std::byte*>(numbers.data());
  const double want = static_cast<double>(0.1f) * n;
  const auto sum = [&](const Shape& shape, const Shape& strides) {
    a.shape = shape;
    a.strides = strides;
    Elements y(mt::float32, Shape::filled(shape.size(), 1));
    mt::reduce<formula::Sum>(y.view, a);
    return std::abs(number(y.view, Index(static_cast<std::size_t>(shape.size()))) / want - 1);
  };
  // Correctly rounded: half a unit in the last place of 2^20.
  constexpr double rounding = 6e-8;
  CHECK(sum(Shape(n), Shape(1)) <= rounding);
  CHECK(sum(Shape(n / 10, 10), Shape(10, 1)) <= rounding);
  CHECK(sum(Shape(10, n / 10), Shape(1, 10)) <= rounding);
  a.shape = Shape(n / 2, 2);
  a.strides = Shape(2, 1);
  Elements y(mt::float32, Shape(1, 2));
  mt::reduce<formula::Sum>(y.view, a);
  CHECK(std::abs(number(y.view, {0, 1}) / (want / 2) - 1) <= rounding);
}

TEST_CASE("lines and short rows of every length are folded whole, also where NaN comes last") {
  for (Integer64 m = 1; m <= 140; ++m)
    for (Integer64 n : {Integer64{1}, Integer64{3}, Integer64{16}, Integer64{17}})
      for (DType dtype : {mt::float32, mt::float64, mt::int64}) {
        Elements a = pattern(dtype, Shape(m, n));
        for (unsigned axes : {1u, 2u, 3u}) {
          Elements y(dtype, with_ones(a.view.shape, axes));
          const auto add = [](double p, double q) { return p + q; };
          REQUIRE(wrongly_reduced<formula::Sum>(y.view, a.view, axes, 0, add) == 0);
          const auto larger = [](double p, double q) { return std::max(p, q); };
          REQUIRE(wrongly_reduced<formula::Max>(y.view, a.view, axes, -infinity, larger) == 0);
          if (dtype == mt::int64) continue;
          Elements b = pattern(dtype, Shape(m, n));
          set(b.view, {m - 1, n - 1}, not_a_number);
          mt::reduce<formula::Max>(y.view, b.view);
          Index last = {axes & 1 ? 0 : m - 1, axes & 2 ? 0 : n - 1};
          REQUIRE(std::isnan(number(y.view, last)));
        }
      }
}

TEST_CASE("a sum of float32 numbers is as good as one in double, along any axis") {
  constexpr Integer64 n = 1000;
  Elements a(mt::float32, Shape(n, n));
  std::vector<double> rows(n), columns(n);
  double all = 0;
  for (Integer64 i = 0; i < n; ++i)
    for (Integer64 j = 0; j < n; ++j) {
      const float x = 0.1f + 0.37f * static_cast<float>((i * 7919 + j * 104729) % 1009);
      element<float>(a.view, {i, j}) = x;
      rows[static_cast<std::size_t>(i)] += static_cast<double>(x);
      columns[static_cast<std::size_t>(j)] += static_cast<double>(x);
      all += static_cast<double>(x);
    }
  // Half a unit in the last place for the result, and less than that for pairs.
  constexpr double rounding = 1.2e-7;
  double worst = 0;
  Elements row(mt::float32, Shape(n, 1)), column(mt::float32, Shape(1, n)),
      one(mt::float32, Shape(1, 1));
  mt::reduce<formula::Sum>(row.view, a.view);
  mt::reduce<formula::Sum>(column.view, a.view);
  mt::reduce<formula::Sum>(one.view, a.view);
  for (Integer64 i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    worst = std::max(worst, std::abs(number(row.view, {i, 0}) / rows[at] - 1));
    worst = std::max(worst, std::abs(number(column.view, {0, i}) / columns[at] - 1));
  }
  CHECK(worst <= rounding);
  CHECK(std::abs(number(one.view, {0, 0}) / all - 1) <= rounding);
}

// ---- Matrices ----

TEST_CASE("a matrix product is right for all sizes and strides, in batches and repeated") {
  struct Sizes {
    Integer64 n, k, m;
  };
  for (const Sizes& s : {Sizes{1, 1, 1}, Sizes{2, 3, 4}, Sizes{5, 1, 7}, Sizes{1, 300, 1},
                         Sizes{4, 257, 33}, Sizes{37, 20, 65}, Sizes{33, 33, 1}, Sizes{1, 33, 33},
                         Sizes{3, 0, 2}, Sizes{0, 3, 2}, Sizes{3, 2, 0}})
    for (DType dtype : {mt::float32, mt::float64, mt::int64})
      for (Layout left : layouts)
        for (Layout right : {Layout::dense, Layout::reversed, Layout::stepped}) {
          const Elements a = pattern(dtype, Shape(s.n, s.k), left);
          const Elements b = pattern(dtype, Shape(s.k, s.m), right, 3);
          Elements y(dtype, Shape(s.n, s.m));
          mt::fill(y.view, 99);
          mt::matmul(y.view, a.view, b.view);
          const auto product = [&](const Index& i) {
            double sum = 0;
            for (Integer64 k = 0; k < s.k; ++k)
              sum += number(a.view, {i[0], k}) * number(b.view, {k, i[1]});
            return sum;
          };
          CHECK(wrong(y.view, product) == 0);
        }

  const Elements a = pattern(mt::float32, Shape(3, 1, 4, 5), Layout::shuffled);
  const Elements b = pattern(mt::float32, Shape(2, 5, 6), Layout::stepped);
  const View left = expanded(a.view, Shape(3, 2, 4, 5)),
             right = expanded(b.view, Shape(3, 2, 5, 6));
  for (Layout layout : layouts) {
    Elements y(mt::float32, Shape(3, 2, 4, 6), layout);
    mt::matmul(y.view, left, right);
    CHECK(wrong(y.view, [&](const Index& i) {
            double sum = 0;
            for (Integer64 k = 0; k < 5; ++k)
              sum += number(left, {i[0], i[1], i[2], k}) * number(right, {i[0], i[1], k, i[3]});
            return sum;
          }) == 0);
  }

  // A row that is repeated, and a column that is.
  const Elements row = pattern(mt::float32, Shape(1, 5)),
                 column = pattern(mt::float32, Shape(5, 1));
  Elements y(mt::float32, Shape(4, 3));
  mt::matmul(y.view, expanded(row.view, Shape(4, 5)), expanded(column.view, Shape(5, 3)));
  double dot = 0;
  for (Integer64 k = 0; k < 5; ++k) dot += number(row.view, {0, k}) * number(column.view, {k, 0});
  CHECK(wrong(y.view, [&](const Index&) { return dot; }) == 0);
}

// Which of its loops runs in the test above depends on the processor.
TEST_CASE("each loop of the matrix product reads and writes nothing beyond its matrices") {
  const auto loops = {mt::multiply<float>, mt::multiply_plain<float>};
  const auto inner = [](View view) {
    for (int axis : {0, 1}) --view.shape[axis];
    return view;
  };
  const auto on_edge = [](const View& view, const Index& i) {
    return i[0] + 1 == view.shape[0] || i[1] + 1 == view.shape[1];
  };
  for (const Integer64 n : {1, 5, 6, 7, 13})
    for (const Integer64 k : {1, 256, 257})
      for (const Integer64 m : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
        const Elements a = pattern(mt::float32, Shape(n + 1, k + 1)),
                       b = pattern(mt::float32, Shape(k + 1, m + 1), Layout::dense, 3);
        for (const View& view : {a.view, b.view})
          for_each(view.shape, [&](const Index& i) {
            if (on_edge(view, i)) set(view, i, not_a_number);
          });
        for (const auto loop : loops) {
          Elements y(mt::float32, Shape(n + 1, m + 1));
          mt::fill(y.view, 99);
          const View to = inner(y.view), left = inner(a.view), right = inner(b.view);
          loop({to, to.data}, {left, left.data}, {right, right.data});
          CHECK(wrong(y.view, [&](const Index& i) {
                  if (on_edge(y.view, i)) return 99.0;
                  double sum = 0;
                  for (Integer64 l = 0; l < k; ++l)
                    sum += number(left, {i[0], l}) * number(right, {l, i[1]});
                  return sum;
                }) == 0);
        }
      }
}

TEST_CASE("a product of integers wraps around") {
  Elements a(mt::int64, Shape(1, 3)), b(mt::int64, Shape(3, 1)), y(mt::int64, Shape(1, 1));
  mt::fill(a.view, Integer64{1} << 62);
  mt::fill(b.view, 2);
  mt::matmul(y.view, a.view, b.view);
  CHECK(element<Integer64>(y.view, {0, 0}) == std::numeric_limits<Integer64>::min());
}

// ---- By index ----

TEST_CASE("gather takes by index, and scatter_add adds by index, also where an index comes twice") {
  for (DType dtype : {mt::float32, mt::int64})
    for (Layout layout : layouts)
      for (int axis : {0, 1, 2}) {
        const Shape from(4, 5, 6);
        Shape shape(4, 3, 2);
        shape[axis] = 9;
        const Elements a = pattern(dtype, from, layout);
        Elements index(mt::int64, shape, layout);
        for_each(shape, [&](const Index& i) {
          element<Integer64>(index.view, i) = (i[0] * 7 + i[1] * 5 + i[2] * 3) % from[axis];
        });
        const auto there = [&](Index i) {
          i[static_cast<std::size_t>(axis)] = element<Integer64>(index.view, i);
          return i;
        };
        Elements y(dtype, shape, Layout::shuffled);
        mt::gather(y.view, a.view, index.view, axis);
        CHECK(wrong(y.view, [&](const Index& i) { return number(a.view, there(i)); }) == 0);

        Elements sum = pattern(dtype, from, layout, 2), want = pattern(dtype, from, layout, 2);
        mt::scatter_add(sum.view, y.view, index.view, axis);
        for_each(shape, [&](const Index& i) {
          set(want.view, there(i), number(want.view, there(i)) + number(y.view, i));
        });
        CHECK(wrong(sum.view, [&](const Index& i) { return number(want.view, i); }) == 0);
      }
  Elements a = pattern(mt::float32, {}), y(mt::float32, {}), zero(mt::int64, {});
  mt::fill(zero.view, 0);
  mt::gather(y.view, a.view, zero.view, 0);
  CHECK(number(y.view, {}) == number(a.view, {}));
  mt::scatter_add(y.view, a.view, zero.view, 0);
  CHECK(number(y.view, {}) == 2 * number(a.view, {}));
}

TEST_CASE("an index that is out of range is found") {
  Elements index(mt::int64, Shape(3, 4), Layout::stepped);
  mt::fill(index.view, 2);
  Integer64 found = 0;
  CHECK_FALSE(mt::first_out_of_range(index.view, 3, found));
  CHECK(mt::first_out_of_range(index.view, 2, found));
  CHECK(found == 2);
  element<Integer64>(index.view, {2, 3}) = -1;
  CHECK(mt::first_out_of_range(index.view, 3, found));
  CHECK(found == -1);
  const Elements none(mt::int64, Shape(0));
  CHECK_FALSE(mt::first_out_of_range(none.view, 0, found));
}

// ---- The fast formulas ----

// The largest error over float32 numbers of every sign and exponent, in units in the last place of
// the true value, which double precision gives. One number in 1013 is tried; with a step of 1, by
// hand, all are.
template <class Fast, class True>
double worst_error(Fast fast, True exact, std::uint32_t step = 1013) {
  double worst = 0;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += step) {
    float x;
    const auto word = static_cast<std::uint32_t>(bits);
    std::memcpy(&x, &word, sizeof x);
    const float y = fast(x);
    const double t = exact(static_cast<double>(x));
    if (same(static_cast<double>(y), static_cast<double>(static_cast<float>(t)))) continue;
    if (!std::isfinite(y) || !std::isfinite(static_cast<float>(t))) return infinity;
    int exponent;
    std::frexp(t, &exponent);
    const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
    worst = std::max(worst, std::abs(static_cast<double>(y) - t) / unit);
  }
  return worst;
}

// Tried by hand for every float32, with fused multiplications: the worst is sigmoid(-0.000345),
// 1.9991 units.
TEST_CASE("exp, log, tanh and sigmoid of float32 are right to 2 units in the last place") {
  CHECK(worst_error([](float x) { return formula::Exp::of(x); },
                    [](double x) { return std::exp(x); }) < 2);
  CHECK(worst_error([](float x) { return formula::Log::of(x); },
                    [](double x) { return std::log(x); }) < 2);
  CHECK(worst_error([](float x) { return formula::Tanh::of(x); },
                    [](double x) { return std::tanh(x); }) < 2);
  CHECK(worst_error([](float x) { return formula::Sigmoid::of(x); },
                    [](double x) { return 1 / (1 + std::exp(-x)); }) < 2);
}

// Tried by hand as well with -O3 -march=native -fno-math-errno, where the loops use fused
// multiplications, and with a step of 1 from 1e-3 to 15 on both sides of 0: the worst is
// gelu(-1.841), 1.98 units.
TEST_CASE("erf and gelu of float32 are right to 2 units in the last place") {
  CHECK(worst_error([](float x) { return formula::Erf::of(x); },
                    [](double x) { return std::erf(x); }) < 2);
  CHECK(worst_error([](float x) { return formula::Gelu::of(x); },
                    [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }) < 2);
}

// Tried by hand for every float32, with fused multiplications: the worst is elu(-0.383), 0.952
// units.
TEST_CASE("elu of float32 is right to 1 unit in the last place") {
  CHECK(worst_error([](float x) { return formula::Elu::of(x, 1.0f); },
                    [](double x) { return x > 0 ? x : std::expm1(x); }) < 1);
}

// The same, of what a loop does with 4096 numbers at a time: run(y, a). One number in 10,007 is
// tried.
template <class Run, class True>
double worst_error_of_rows(Run run, True exact) {
  constexpr Integer64 n = 4096;
  constexpr std::uint32_t step = 10007;
  Elements a(mt::float32, Shape(n)), y(mt::float32, Shape(n));
  Integer64 next = n;
  return worst_error(
      [&](float x) {
        if (next == n) {
          std::uint32_t word;
          std::memcpy(&word, &x, sizeof x);
          for (Integer64 i = 0; i < n; ++i, word += step)
            std::memcpy(&element<float>(a.view, {i}), &word, sizeof x);
          run(y.view, a.view);
          next = 0;
        }
        return element<float>(y.view, {next++});
      },
      exact, step);
}

// Rounding costs 0.5; the series cost 0.0083 at most, asin's near 1/2. (A power multiplies the
// error of the logarithm.)
TEST_CASE("what is worked out in float64 is right to the last place, but for ties") {
  const auto of = [](double (*f)(double)) { return f; };
  // An angle that has come round many times is the library's.
  const auto angle = [](double (*f)(double), float (*far)(float)) {
    return [=](double x) {
      return std::abs(x) < 1e6 ? f(x) : static_cast<double>(far(static_cast<float>(x)));
    };
  };
  CHECK(worst_error_of_rows(mt::map<formula::Expm1>, of(std::expm1)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Sinh>, of(std::sinh)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Cosh>, of(std::cosh)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Log1p>, of(std::log1p)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Log2>, of(std::log2)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Log10>, of(std::log10)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Sin>, angle(std::sin, std::sin)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Cos>, angle(std::cos, std::cos)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Tan>, angle(std::tan, std::tan)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Atan>, of(std::atan)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Asin>, of(std::asin)) < 0.51);
  CHECK(worst_error_of_rows(mt::map<formula::Acos>, of(std::acos)) < 0.51);
}

template <class F>
std::string differing_pairs(const std::vector<float>& numbers, float (*exact)(float, float)) {
  const auto size = static_cast<Integer64>(numbers.size());
  Elements a(mt::float32, Shape(size, size)), b(mt::float32, Shape(size, size)),
      y(mt::float32, Shape(size, size));
  for (Integer64 i = 0; i < size; ++i)
    for (Integer64 j = 0; j < size; ++j) {
      element<float>(a.view, {i, j}) = numbers[static_cast<std::size_t>(i)];
      element<float>(b.view, {i, j}) = numbers[static_cast<std::size_t>(j)];
    }
  mt::zip<F>(y.view, a.view, b.view);
  for (Integer64 i = 0; i < size; ++i)
    for (Integer64 j = 0; j < size; ++j) {
      const float p = element<float>(a.view, {i, j}), q = element<float>(b.view, {i, j});
      const float got = element<float>(y.view, {i, j}), expected = exact(p, q);
      if (same(static_cast<double>(got), static_cast<double>(expected)) &&
          (std::isnan(got) || std::signbit(got) == std::signbit(expected)))
        continue;
      return std::to_string(p) + ", " + std::to_string(q) + " gives " + std::to_string(got) +
             ", not " + std::to_string(expected);
    }
  return "";
}

TEST_CASE("what is left of a division, and the angle of a point, are those of the library") {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> numbers = {
      0,    1,    2,    3,     0.5f,      0.75f,    1e-45f, 1e-38f,
      7.5f, 1e8f, 1e9f, 1e30f, 3.402e38f, 0.33333f, inf,    std::nanf("")};
  std::uint32_t bits = 1;
  for (int i = 0; i < 200; ++i) {
    bits = bits * 1664525 + 1013904223;
    numbers.push_back(std::ldexp(static_cast<float>(bits >> 8), static_cast<int>(bits % 40) - 40));
  }
  for (std::size_t i = 0, n = numbers.size(); i < n; ++i) numbers.push_back(-numbers[i]);
  CHECK(differing_pairs<formula::Fmod>(numbers, [](float a, float b) { return std::fmod(a, b); }) ==
        "");
  CHECK(differing_pairs<formula::Remainder>(
            numbers, [](float a, float b) { return formula::Remainder::of(a, b); }) == "");
  CHECK(differing_pairs<formula::Atan2>(numbers, [](float y, float x) {
          return static_cast<float>(std::atan2(static_cast<double>(y), static_cast<double>(x)));
        }) == "");
  // float32's own way rounds a - left: of these pairs it is exact.
  CHECK(
      differing_pairs<formula::FloorDivide>(
          {0, 1, -1, 2, -2, 7, -7, 7.5f, -7.5f, 0.1f, -0.1f, 1e6f, inf, -inf, -0.0f, std::nanf("")},
          [](float a, float b) { return formula::FloorDivide::of(a, b); }) == "");
}

TEST_CASE("powers of what is no number, infinite or 0 are the library's") {
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(differing_pairs<formula::Pow>({0, -0.0f, inf, -inf, std::nanf("")},
                                      [](float a, float b) { return std::pow(a, b); }) == "");
}

TEST_CASE("powers of float32 are right to the last place, and whole ones exact") {
  const Elements b(mt::float32, Shape(1));
  for (float power :
       {-5.5f, -4.0f, -3.0f, -1.5f, -0.3f, 0.5f, 1.0f, 1.1f, 4.0f, 5.0f, 5.9f, 7.0f}) {
    CAPTURE(power);
    element<float>(b.view, {0}) = power;
    const double error = worst_error_of_rows(
        [&](const View& to, const View& from) {
          mt::zip<formula::Pow>(to, from, mt::broadcast_to(b.view, from.shape));
        },
        [=](double x) { return std::pow(x, static_cast<double>(power)); });
    CHECK(error < (std::abs(power) < 6 ? 0.55 : 1));  // beyond 6 it is the library's
  }
  Elements whole(mt::float32, Shape(19)), four(mt::float32, Shape(19));
  for (Integer64 i = 0; i < 19; ++i) {
    element<float>(whole.view, {i}) = static_cast<float>(i - 9);
    element<float>(four.view, {i}) = i % 2 ? 3 : 4;
  }
  mt::zip<formula::Pow>(whole.view, whole.view, four.view);
  for (Integer64 i = 0; i < 19; ++i) {
    const auto x = static_cast<float>(i - 9);
    CHECK(element<float>(whole.view, {i}) == (i % 2 ? x * x * x : x * x * x * x));
  }
}

TEST_CASE("the ends of exp, log, tanh, sigmoid, erf and gelu are exact") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(formula::Exp::of(0.0f) == 1.0f);
  CHECK(formula::Exp::of(-inf) == 0.0f);
  CHECK(formula::Exp::of(inf) == inf);
  CHECK(formula::Exp::of(89.0f) == inf);
  CHECK(formula::Exp::of(-103.0f) == std::numeric_limits<float>::denorm_min());
  CHECK(formula::Log::of(1.0f) == 0.0f);
  CHECK(formula::Log::of(0.0f) == -inf);
  CHECK(formula::Log::of(inf) == inf);
  CHECK(std::isnan(formula::Log::of(-1.0f)));
  CHECK(formula::Tanh::of(0.0f) == 0.0f);
  CHECK(formula::Tanh::of(inf) == 1.0f);
  CHECK(formula::Tanh::of(-inf) == -1.0f);
  CHECK(std::signbit(formula::Tanh::of(-0.0f)));
  CHECK(formula::Sigmoid::of(0.0f) == 0.5f);
  CHECK(formula::Sigmoid::of(inf) == 1.0f);
  CHECK(formula::Sigmoid::of(-inf) == 0.0f);
  CHECK(std::signbit(formula::Erf::of(-0.0f)));
  CHECK(formula::Erf::of(4.0f) == 1.0f);
  CHECK(formula::Erf::of(inf) == 1.0f);
  CHECK(formula::Erf::of(-inf) == -1.0f);
  CHECK(formula::Gelu::of(inf) == inf);
  CHECK(formula::Gelu::of(1e30f) == 1e30f);
  // 14.3 / 2 erfc(14.3 / sqrt(2)) is 1.54e-45, one unit; at 15 and beyond it is below half a unit.
  CHECK(formula::Gelu::of(-14.3f) == -std::numeric_limits<float>::denorm_min());
  for (float x : {-0.0f, -15.0f, -1e30f}) {  // a zero without a sign, as in PyTorch 1.13 and 2.15
    CHECK(formula::Gelu::of(x) == 0.0f);
    CHECK_FALSE(std::signbit(formula::Gelu::of(x)));
  }
  CHECK(std::isnan(formula::Gelu::of(-inf)));  // -inf times 0, as in PyTorch
  for (float y : {formula::Exp::of(nan), formula::Log::of(nan), formula::Tanh::of(nan),
                  formula::Sigmoid::of(nan), formula::Erf::of(nan), formula::Gelu::of(nan)})
    CHECK(std::isnan(y));
}

template <class F>
int differing_from_alone(const View& a) {
  Elements y(mt::float32, a.shape), z(mt::float32, {});
  mt::map<F>(y.view, a);
  int differ = 0;
  for (Integer64 i = 0; i < a.shape[0]; ++i) {
    View one = a;
    one.data = place(a, {i});
    one.shape = one.strides = {};
    mt::map<F>(z.view, one);
    differ += !same(number(z.view, {}), number(y.view, {i}));
  }
  return differ;
}

TEST_CASE("a formula gives a row the very same numbers that it gives one number") {
  Elements a(mt::float32, Shape(1003));
  for (Integer64 i = 0; i < 1003; ++i)
    element<float>(a.view, {i}) = static_cast<float>(i - 500) * 0.2f;
  for (const float rare : {0.0f, 1e9f, -3e38f, std::numeric_limits<float>::infinity()}) {
    element<float>(a.view, {700}) = rare;
    CHECK(differing_from_alone<formula::Exp>(a.view) == 0);
    CHECK(differing_from_alone<formula::Sin>(a.view) == 0);
    CHECK(differing_from_alone<formula::Log1p>(a.view) == 0);
    CHECK(differing_from_alone<formula::Expm1>(a.view) == 0);
  }
}

TEST_CASE("a formula is refused where it has no meaning") {
  Elements y(mt::int64, Shape(2)), a = pattern(mt::int64, Shape(2));
  CHECK_THROWS_WITH(mt::map<formula::Exp>(y.view, a.view), Catch::Contains("int64"));
}

// ---- Memory ----

TEST_CASE("blocks begin at a multiple of 64 bytes, do not overlap, and can be filled") {
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (std::size_t bytes = 0; bytes < 5000; bytes += 37)
    blocks.emplace_back(mt::take_block(bytes), bytes);
  for (std::size_t bytes : {2097151, 2097152, 2097153, 2700000, 5300000, 70000000})
    blocks.emplace_back(mt::take_block(bytes), bytes);
  blocks.emplace_back(mt::take_block(std::size_t{100} << 20), std::size_t{100} << 20);
  int number = 0;
  for (auto [block, bytes] : blocks) {
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
    std::memset(block, ++number, std::min<std::size_t>(bytes, 5000));
  }
  number = 0;
  for (auto [block, bytes] : blocks) {
    ++number;
    const auto* first = static_cast<unsigned char*>(block);
    const auto filled = std::count(first, first + std::min<std::size_t>(bytes, 5000), number);
    CHECK(static_cast<std::size_t>(filled) == std::min<std::size_t>(bytes, 5000));
  }
  for (auto [block, bytes] : blocks) mt::give_block(block, bytes);
}

TEST_CASE("a block may be given back by another thread than took it") {
  std::vector<void*> blocks;
  std::thread([&] {
    for (int i = 0; i < 1000; ++i) blocks.push_back(mt::take_block(200));
  }).join();
  for (void* block : blocks) mt::give_block(block, 200);
  std::thread([&] {
    for (int i = 0; i < 1000; ++i) mt::give_block(mt::take_block(1 << 20), 1 << 20);
  }).join();
}

// This one goes after the main thread's kept blocks have gone.
struct GivenBackLast {
  void* block = mt::take_block(1000);
  ~GivenBackLast() {
    mt::give_block(block, 1000);
    mt::give_block(mt::take_block(1000), 1000);
  }
} given_back_last;

#if MINITENSOR_KEEPS_BLOCKS  // AddressSanitizer ends the program instead
TEST_CASE("memory that nobody has is refused with its size") {
  CHECK_THROWS_WITH(mt::take_block(std::size_t{1} << 60), Catch::Contains("1152921504606846976"));
}
#endif

TEST_CASE("a size that no block can have is refused, and does not wrap around to a small one") {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  for (std::size_t bytes : {most, most - 64, most - (most >> 4)})
    CHECK_THROWS_WITH(mt::take_block(bytes), Catch::Contains(std::to_string(bytes)));
}

// ---- Other machines ----

std::string last_call;

TEST_CASE("a view on another machine sends the verb there, with the formula's number") {
  Elements a = pattern(mt::float32, Shape(2)), y(mt::float32, Shape(2));
  a.view.device = y.view.device = mt::cuda;
  CHECK_THROWS_WITH(mt::map<formula::Exp>(y.view, a.view), Catch::Contains("kernels.cu"));

  mt::Machine table{};
  table.map = [](int number, const View&, const View&) {
    last_call = "map " + std::to_string(number);
  };
  table.reduce = [](int number, const View&, const View&) {
    last_call = "reduce " + std::to_string(number);
  };
  table.copy = [](const View&, const View&) { last_call = "copy"; };
  mt::cuda_machine = &table;
  mt::map<formula::Exp>(y.view, a.view);
  CHECK(last_call == "map " + std::to_string(formula::number_of<formula::Exp>));
  mt::reduce<formula::Sum>(y.view, a.view);
  CHECK(last_call == "reduce " + std::to_string(formula::number_of<formula::Sum>));
  Elements here(mt::float32, Shape(2));
  mt::copy(here.view, a.view);
  CHECK(last_call == "copy");
  mt::cuda_machine = nullptr;
  CHECK(formula::number_of<formula::Exp> != formula::number_of<formula::Log>);
}

}  // namespace
