// kernels.cu against the processor's verbs. The file is compiled as it is, over a card made of one
// processor core (tests/cuda_on_cpu): what is tested is what its kernels compute, where they read
// and write, and that no result depends on which thread is faster. It says nothing about speed, and
// nothing about what nvcc makes of it. With -D ON_A_GPU the same tests run on a real card
// (tests/gpu_check.sh).
#if !defined(ON_A_GPU)
#include "tests/cuda_on_cpu/card.hpp"
#endif
#include <functional>
#include <memory>

#include "tests/gradient_rows.hpp"
#include "tests/tensors.hpp"

namespace minitensor::on_cuda {  // in kernels.cu
extern std::int64_t largest_small, most_blocks;
}  // namespace minitensor::on_cuda

namespace {

using namespace mt;
using namespace tensors;

constexpr DType dtypes[] = {float32, float64, int64, boolean};

// A real card runs its threads in an order of its own, and its exp and pow may differ from the
// processor's in the last bits.
#if defined(ON_A_GPU)
constexpr double close = 1e-5;
bool first_order() { return true; }
template <class F>
void in_every_order(F f) {
  f();
}
#else
constexpr double close = 1e-6;
bool first_order() { return card::settings.order == card::Order::forward; }
template <class F>
void in_every_order(F f) {
  for (const auto order : {card::Order::backward, card::Order::shuffled, card::Order::forward}) {
    card::settings.order = order;
    f();
  }
}
#endif

// ---- The same elements on both machines ---------------------------------------------------------

enum class Lie { dense, transposed, sliced, repeated };
constexpr Lie lies[] = {Lie::dense, Lie::transposed, Lie::sliced};

// Numbers that differ from place to place; those of floats have a fraction.
Tensor pattern(DType dtype, const Shape& shape, int seed) {
  Tensor x = empty(shape, {.dtype = dtype});
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    const std::int64_t n = (i * 7919 + seed * 31) % 23 - 11;
    with_type(dtype, [&]<class T>(T) {
      const double value = is_floating(dtype) ? static_cast<double>(n) / 4 : static_cast<double>(n);
      as<T>(x.elements().data)[i] = std::is_same_v<T, bool> ? n > 0 : static_cast<T>(value);
    });
  }
  return x;
}

struct Pair {
  Tensor here, there;                // the views
  Tensor all_of_here, all_of_there;  // and what they are views of
};

Tensor view_of(const Tensor& base, Lie lie, const Shape& shape) {
  Shape back;
  for (int i = shape.size(); i-- > 0;) back.push_back(i);
  if (lie == Lie::transposed) return base.permute(back);
  if (lie == Lie::sliced && !shape.empty()) return base.slice(-1, 1, {}, 2);
  if (lie == Lie::repeated) return base.expand(shape);
  return base;
}
Pair pair_of(DType dtype, const Shape& shape, Lie lie, int seed) {
  Shape lying = shape;
  if (lie == Lie::transposed)
    for (int i = 0; i < shape.size(); ++i) lying[i] = shape[shape.size() - 1 - i];
  if (lie == Lie::sliced && !shape.empty()) lying[-1] = shape[-1] * 2 + 1;
  if (lie == Lie::repeated)
    for (int i = 0; i < shape.size(); i += 2) lying[i] = std::min(shape[i], std::int64_t{1});
  Pair pair;
  pair.all_of_here = pattern(dtype, lying, seed);
  pair.all_of_there = pair.all_of_here.to(cuda);
  pair.here = view_of(pair.all_of_here, lie, shape);
  pair.there = view_of(pair.all_of_there, lie, shape);
  return pair;
}

// Empty, or what differs: in what was written and in what must not have been.
std::string difference_of(const Pair& y, double rtol = 0, double atol = 0) {
  return difference(y.all_of_there.cpu(), y.all_of_here, rtol, atol);
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {Shape(),        Shape(1),      Shape(0),
                                         Shape(3, 0, 2), Shape(7),      Shape(1, 6, 1),
                                         Shape(5, 67),   Shape(300, 3), Shape(2, 3, 4, 5)};
  return all;
}

template <class... F, class Work>
void for_every_formula(formula::List<F...>, Work work) {
  (work.template operator()<F>(), ...);
}

// ---- Element by element -------------------------------------------------------------------------

TEST_CASE("a map on the card gives what the processor gives, whatever the formula and the layout") {
  in_every_order([] {
    for_every_formula(formula::Every(), []<class F>() {
      for (const DType dtype : dtypes)
        with_type(dtype, [&]<class T>(T) {
          if constexpr (requires { F::of(T()); }) {
            const DType out = dtype_of<decltype(F::of(T()))>();
            for (const Shape& shape : shapes())
              for (const Lie to : lies)
                for (const Lie from : {Lie::dense, Lie::sliced, Lie::repeated}) {
                  if (shape.numel() > 100 && (to == from || !first_order())) continue;
                  const Pair y = pair_of(out, shape, to, 5), a = pair_of(dtype, shape, from, 1);
                  mt::map<F>(y.here.elements(), a.here.elements());
                  mt::map<F>(y.there.elements(), a.there.elements());
                  CAPTURE(formula::number_of<F>, name_of(dtype), to_string(shape));
                  CHECK(difference_of(y, close, 1e-7) == "");
                }
          }
        });
    });
  });
}

TEST_CASE("a zip on the card gives what the processor gives, also beside a plain number") {
  in_every_order([] {
    for_every_formula(formula::Every(), []<class F>() {
      for (const DType dtype : dtypes)
        with_type(dtype, [&]<class T>(T) {
          if constexpr (
              !requires { typename F::template Wide<T>; } && requires { F::of(T(), T()); }) {
            const DType out = dtype_of<decltype(F::of(T(), T()))>();
            for (const Shape& shape : shapes())
              for (const Lie lie : {Lie::transposed, Lie::sliced, Lie::repeated}) {
                if (shape.numel() > 100 && !first_order()) continue;
                const Lie to = lie == Lie::repeated ? Lie::dense : lie;
                const Pair y = pair_of(out, shape, to, 5), a = pair_of(dtype, shape, Lie::dense, 1),
                           b = pair_of(dtype, shape, lie, 2);
                mt::zip<F>(y.here.elements(), a.here.elements(), b.here.elements());
                mt::zip<F>(y.there.elements(), a.there.elements(), b.there.elements());
                CAPTURE(formula::number_of<F>, name_of(dtype), to_string(shape));
                CHECK(difference_of(y, close, 1e-7) == "");
                const Constant two(2, dtype, shape);
                mt::zip<F>(y.here.elements(), two.view, b.here.elements());
                mt::zip<F>(y.there.elements(), two.view, b.there.elements());
                CHECK(difference_of(y, close, 1e-7) == "");
              }
          }
        });
    });
  });
}

TEST_CASE("an operation on the card may write over its own input") {
  const Pair y = pair_of(float32, {5, 67}, Lie::transposed, 1);
  for (const Tensor& x : {y.here, y.there})
    mt::zip<formula::Add>(x.elements(), x.elements(), x.elements());
  CHECK(difference_of(y) == "");
}

TEST_CASE("where elements lie dense, packs of them are found only where a pack may begin") {
  for (const DType dtype : dtypes)
    for (const std::int64_t count : {1, 15, 16, 64, 70})
      for (const std::int64_t start : {0, 1, 2, 4, 16}) {
        CAPTURE(name_of(dtype), count, start);
        const Tensor all = pattern(dtype, {count + start}, 1), x = all.slice(0, start),
                     y = all.to(cuda).slice(0, start);
        CHECK(difference(y.clone().cpu(), x) == "");
        CHECK(difference((y == y[0]).cpu(), x == x[0]) == "");
        CHECK(difference(y.to(float64).cpu(), x.to(float64)) == "");
        CHECK(difference(y.to(boolean).cpu(), x.to(boolean)) == "");
        CHECK(difference(where(y > 0, y, 1).cpu(), where(x > 0, x, 1)) == "");
        if (dtype != boolean) CHECK(difference((y * 2 + y).cpu(), x * 2 + x) == "");
      }
}

TEST_CASE("choose on the card takes from one side or the other") {
  for (const Shape& shape : shapes())
    for (const DType dtype : dtypes)
      for (const Lie lie : lies) {
        const Pair y = pair_of(dtype, shape, lie, 5), c = pair_of(boolean, shape, Lie::sliced, 3),
                   a = pair_of(dtype, shape, Lie::repeated, 1), b = pair_of(dtype, shape, lie, 2);
        choose(y.here.elements(), c.here.elements(), a.here.elements(), b.here.elements());
        choose(y.there.elements(), c.there.elements(), a.there.elements(), b.there.elements());
        CHECK(difference_of(y) == "");
      }
}

TEST_CASE("a copy converts on the card, to the card, from it and between two") {
  for (const Shape& shape : shapes())
    for (const DType to : dtypes)
      for (const DType from : dtypes)
        for (const Lie lie : lies)
          for (const Lie from_lie : {Lie::dense, Lie::transposed, Lie::repeated}) {
            if (shape.numel() > 100 && to != float32 && from != int64) continue;
            CAPTURE(to_string(shape), name_of(to), name_of(from));
            const Pair y = pair_of(to, shape, lie, 5), a = pair_of(from, shape, from_lie, 1);
            copy(y.here.elements(), a.here.elements());
            copy(y.there.elements(), a.there.elements());
            CHECK(difference_of(y) == "");
            const Pair up = pair_of(to, shape, lie, 5);
            copy(up.there.elements(), a.here.elements());
            CHECK(difference(up.all_of_there.cpu(), y.all_of_here) == "");
            copy(up.here.elements(), a.there.elements());
            CHECK(difference(up.all_of_here, y.all_of_here) == "");
            if (device_count() < 2) continue;
            const Tensor second = a.there.to("cuda:1");
            CHECK(second.device() == Device("cuda:1"));
            CHECK(difference(second.cpu(), a.here) == "");
          }
}

TEST_CASE("fill on the card leaves the neighbours alone") {
  for (const Shape& shape : shapes())
    for (const DType dtype : dtypes)
      for (const Lie lie : lies) {
        const Pair y = pair_of(dtype, shape, lie, 5);
        fill(y.here.elements(), 3);
        fill(y.there.elements(), 3);
        CHECK(difference_of(y) == "");
      }
}

TEST_CASE("what needs more than 32 bits to count is found as well") {
  on_cuda::largest_small = 3;
  const Pair y = pair_of(float32, {2, 3, 4, 5}, Lie::sliced, 5),
             a = pair_of(float32, {2, 3, 4, 5}, Lie::transposed, 1),
             sum = pair_of(float32, {1, 3, 1, 5}, Lie::dense, 2);
  for (const bool here : {true, false}) {
    mt::map<formula::Square>((here ? y.here : y.there).elements(),
                             (here ? a.here : a.there).elements());
    reduce<formula::Sum>((here ? sum.here : sum.there).elements(),
                         (here ? a.here : a.there).elements());
  }
  on_cuda::largest_small = std::numeric_limits<std::int32_t>::max();
  CHECK(difference_of(y) == "");
  CHECK(difference_of(sum, close) == "");
}

// ---- Many numbers into one ----------------------------------------------------------------------

template <class F>
void check_reductions(const std::vector<Shape>& shapes, double rtol, int most_results = 1000) {
  for (const DType dtype : dtypes)
    with_type(dtype, [&]<class T>(T) {
      using Wide = typename F::template Wide<T>;
      if constexpr (requires(Wide w) { F::of(w, w); })
        for (const Shape& shape : shapes)
          for (unsigned axes = 0; axes < 1u << shape.size(); ++axes)
            for (const Lie lie : lies) {
              Shape kept = shape;
              for (int i = 0; i < shape.size(); ++i)
                if (axes >> i & 1) kept[i] = 1;
              if (kept.numel() > most_results) continue;
              const bool sums = std::is_same_v<F, formula::Sum> || std::is_same_v<F, formula::Prod>;
              const DType out = sums && !is_floating(dtype) ? int64 : dtype;
              const Pair y = pair_of(out, kept, lie == Lie::sliced ? lie : Lie::dense, 5),
                         a = pair_of(dtype, shape, lie, 1);
              reduce<F>(y.here.elements(), a.here.elements());
              reduce<F>(y.there.elements(), a.there.elements());
              CAPTURE(formula::number_of<F>, name_of(dtype), to_string(shape), axes);
              CHECK(difference_of(y, rtol) == "");
            }
    });
}

TEST_CASE("reductions on the card, over every choice of axes") {
  in_every_order([] {
    const std::vector<Shape> several = {{}, {0}, {3, 0}, {1}, {70}, {5, 67}, {40, 3}, {2, 3, 4, 5}};
    check_reductions<formula::Sum>(several, close);
    check_reductions<formula::Prod>({{}, {0}, {4, 3}}, close);
    check_reductions<formula::Max>(several, 0);
    check_reductions<formula::Min>({{1}, {33}, {5, 67}}, 0);
    check_reductions<formula::Any>({{0}, {2, 67}}, 0);
    check_reductions<formula::All>({{0}, {2, 67}}, 0);
  });
}

TEST_CASE("long reductions are shared out among blocks, and put together again") {
  in_every_order([] {
    check_reductions<formula::Sum>({{9000}, {2, 5000}, {5000, 3}, {3, 4200, 2}}, close, 10);
    check_reductions<formula::Max>({{9000}, {4500, 2}}, 0, 10);
    check_reductions<formula::All>({{5000}}, 0, 10);
  });
}

TEST_CASE("a float32 sum on the card is as exact as on the processor") {
  const Tensor x = full({100000}, 0.1), there = x.to(cuda);
  const double exact = 100000 * static_cast<double>(0.1f);
  CHECK(there.sum().item() == Approx(exact).epsilon(1e-7));
  CHECK(there.reshape({1000, 100}).sum(0).sum().item() == Approx(exact).epsilon(1e-7));
  CHECK((tensor({1e8, 1., -1e8}).to(cuda)).sum().item() == 1);
}

TEST_CASE("the largest on the card is the first of equals, and NaN wins") {
  in_every_order([] {
    for (const Shape& shape :
         {Shape(), Shape(1), Shape(40), Shape(5, 67), Shape(700, 2), Shape(3, 4, 5)})
      for (const DType dtype : dtypes)
        for (const Lie lie : lies)
          for (int axis = 0; axis < std::max(1, shape.size()); ++axis) {
            Pair a = pair_of(dtype, shape, lie, 1);
            if (is_floating(dtype) && shape.numel() > 6) {
              as<float>(a.all_of_here.elements().data)[5] = std::numeric_limits<float>::quiet_NaN();
              if (dtype == float64) as<double>(a.all_of_here.elements().data)[5] = not_a_number;
              copy(a.all_of_there.elements(), a.all_of_here.elements());
            }
            Shape kept = shape;
            if (!shape.empty()) kept[axis] = 1;
            if (kept.numel() > 100) continue;
            const Pair value = pair_of(dtype, kept, Lie::dense, 5),
                       index = pair_of(int64, kept, Lie::dense, 6);
            CAPTURE(to_string(shape), name_of(dtype), axis);
            reduce_arg<formula::Max>(value.here.elements(), index.here.elements(),
                                     a.here.elements(), axis);
            reduce_arg<formula::Max>(value.there.elements(), index.there.elements(),
                                     a.there.elements(), axis);
            CHECK(difference_of(value) == "");
            CHECK(difference_of(index) == "");
            reduce_arg<formula::Min>(value.here.elements(), index.here.elements(),
                                     a.here.elements(), axis);
            reduce_arg<formula::Min>(value.there.elements(), index.there.elements(),
                                     a.there.elements(), axis);
            CHECK(difference_of(value) == "");
            CHECK(difference_of(index) == "");
          }
  });
}

TEST_CASE("a row is normalized on the card as on the processor, recorded or not") {
  const double infinity = std::numeric_limits<double>::infinity();
  in_every_order([&] {
    for (const DType dtype : {float32, float64})
      for (const Shape& shape : {Shape(1), Shape(7), Shape(1, 6, 1), Shape(5, 67), Shape(70, 3),
                                 Shape(2, 700), Shape(2, 3, 4, 5), Shape(3, 0), Shape(0, 3)})
        for (const Lie lie : lies) {
          const Pair x = pair_of(dtype, shape, lie, 1);
          CAPTURE(name_of(dtype), to_string(shape), static_cast<int>(lie));
          const Shape last(shape[-1]);
          for (const bool recorded : {false, true}) {
            const Tensor there = recorded ? x.there.detach().requires_grad_() : x.there;
            CHECK(difference(there.softmax(-1).detach().cpu(), x.here.softmax(-1), close) == "");
            CHECK(difference(there.log_softmax(-1).detach().cpu(), x.here.log_softmax(-1), close,
                             1e-6) == "");
            CHECK(difference(there.softmax(0).detach().cpu(), x.here.softmax(0), close) == "");
            CHECK(difference(layer_norm(there, last).detach().cpu(), layer_norm(x.here, last),
                             close, 1e-6) == "");
          }
        }
    const Tensor edges = tensor({{1000., 1001., 999.},
                                 {-infinity, 0., -infinity},
                                 {-infinity, -infinity, -infinity},
                                 {1., not_a_number, 2.},
                                 {infinity, 0., 1.}});
    CHECK(difference(edges.to(cuda).softmax(1).cpu(), edges.softmax(1), close) == "");
    CHECK(difference(edges.to(cuda).log_softmax(1).cpu(), edges.log_softmax(1), close) == "");
    const Tensor x = pattern(float32, {3, 4, 5}, 1), w = pattern(float32, {4, 5}, 2);
    CHECK(difference(layer_norm(x.to(cuda), {4, 5}, w.to(cuda), w.to(cuda)).cpu(),
                     layer_norm(x, {4, 5}, w, w), close, 1e-6) == "");
  });
}

// ---- Matrices -----------------------------------------------------------------------------------

TEST_CASE("matrix products on the card, in three ways") {
  struct Case {
    Shape y, a, b;
  };
  const std::vector<Case> cases = {{{1, 1}, {1, 1}, {1, 1}},
                                   {{2, 4}, {2, 3}, {3, 4}},
                                   {{17, 33}, {17, 20}, {20, 33}},
                                   {{1, 5}, {1, 40}, {40, 5}},
                                   {{5, 1}, {5, 7}, {7, 1}},
                                   {{2, 3}, {2, 0}, {0, 3}},
                                   {{0, 3}, {0, 2}, {2, 3}},
                                   {{3, 2, 4}, {3, 2, 5}, {3, 5, 4}},
                                   {{2, 3, 4, 5}, {2, 3, 4, 6}, {2, 3, 6, 5}},
                                   {{2, 0, 3}, {2, 0, 3}, {2, 3, 3}}};
  in_every_order([&] {
    for (const MatmulAlgorithm way :
         {MatmulAlgorithm::library, MatmulAlgorithm::naive, MatmulAlgorithm::tiled})
      for (const Case& one : cases)
        for (const DType dtype : {float32, float64, int64})
          for (const Lie lie : lies)
            for (const Lie to : {Lie::dense, Lie::transposed}) {
              const Pair y = pair_of(dtype, one.y, to, 5), a = pair_of(dtype, one.a, lie, 1),
                         b = pair_of(dtype, one.b, Lie::dense, 2),
                         c = pair_of(dtype, one.b, Lie::transposed, 3);
              CAPTURE(to_string(one.y), name_of(dtype), static_cast<int>(way));
              for (const Pair& right : {b, c}) {
                matmul(y.here.elements(), a.here.elements(), right.here.elements());
                machine(cuda)->matmul(y.there.elements(), a.there.elements(),
                                      right.there.elements(), way);
                CHECK(difference_of(y, 1e-5, 1e-5) == "");
              }
            }
  });
}

TEST_CASE("a stack of matrices may repeat one of them") {
  for (const DType dtype : {float32, int64}) {
    const Tensor a = pattern(dtype, {4, 1, 3, 5}, 1), b = pattern(dtype, {2, 5, 2}, 2);
    CHECK(difference(a.to(cuda).matmul(b.to(cuda)).cpu(), a.matmul(b), close) == "");
    const Tensor t = b.transpose(1, 2);
    CHECK(difference(t.to(cuda).matmul(a[0].to(cuda).transpose(1, 2)).cpu(),
                     t.matmul(a[0].transpose(1, 2)), close) == "");
  }
}

TEST_CASE("a thread goes on where a grid has fewer blocks than there is work") {
  on_cuda::most_blocks = 2;
  in_every_order([] {
    const Tensor x = pattern(float32, {30, 100}, 1), there = x.to(cuda);
    CHECK(difference((there * 2).cpu(), x * 2) == "");
    CHECK(difference(there.t().contiguous().cpu(), x.t()) == "");
    CHECK(difference(there.sum(1).cpu(), x.sum(1), close) == "");
    CHECK(difference(there.sum(0).cpu(), x.sum(0), close) == "");
    const Tensor long_rows = pattern(float32, {5, 700}, 1);
    CHECK(difference(long_rows.to(cuda).sum(1).cpu(), long_rows.sum(1), close) == "");
    CHECK(difference(long_rows.to(cuda).max(1).values.cpu(), long_rows.max(1).values) == "");
    CHECK(difference(there.max(1).indices.cpu(), x.max(1).indices) == "");
    const Tensor stacks = pattern(int64, {7, 3, 4}, 1), other = pattern(int64, {7, 4, 5}, 2);
    CHECK(difference(stacks.to(cuda).matmul(other.to(cuda)).cpu(), stacks.matmul(other)) == "");
    std::int64_t found = 0;
    Tensor index = zeros({3000}, {.dtype = int64});
    index[2900] = 9;
    index[2950] = 8;
    CHECK(first_out_of_range(index.to(cuda).elements(), 5, found));
    CHECK(found == 9);
    const Tensor here = zeros({5000}), drawn = here.to(cuda);
    for (const Tensor& y : {here, drawn}) {
      Generator generator(42);
      fill_uniform(y.elements(), generator, 0, 1);
    }
    CHECK(difference(drawn.cpu(), here) == "");
  });
  on_cuda::most_blocks = 65535;
}

// ---- By index -----------------------------------------------------------------------------------

TEST_CASE("gather and scatter_add on the card, along every axis, and in the processor's order") {
  in_every_order([] {
    for (const Shape& shape : {Shape(), Shape(4), Shape(3, 5), Shape(2, 3, 4)})
      for (const DType dtype : {float32, float64, int64, boolean})
        for (const Lie lie : lies)
          for (int axis = 0; axis < std::max(1, shape.size()); ++axis) {
            CAPTURE(to_string(shape), name_of(dtype), axis);
            Shape longer = shape;
            if (!shape.empty()) longer[axis] = 9;
            const std::int64_t size = shape.empty() ? 1 : shape[axis];
            const Tensor index =
                (pattern(int64, longer, 4) + 11).mul_(size > 0 ? 1 : 0).to(float64);
            Tensor in_range =
                (index / static_cast<double>(23) * static_cast<double>(size)).to(int64);
            const Tensor index_there = in_range.to(cuda);
            const Pair a = pair_of(dtype, shape, lie, 1), y = pair_of(dtype, longer, Lie::dense, 5);
            gather(y.here.elements(), a.here.elements(), in_range.elements(), axis);
            gather(y.there.elements(), a.there.elements(), index_there.elements(), axis);
            CHECK(difference_of(y) == "");
            const Pair from = pair_of(dtype, longer, lie, 2), sum = pair_of(dtype, shape, lie, 3);
            scatter_add(sum.here.elements(), from.here.elements(), in_range.elements(), axis);
            scatter_add(sum.there.elements(), from.there.elements(), index_there.elements(), axis);
            CHECK(difference_of(sum) == "");
          }
  });
}

TEST_CASE("the first index out of range is found on the card") {
  in_every_order([] {
    std::int64_t found = 77;
    for (const Lie lie : lies) {
      const Pair index = pair_of(int64, {30, 21}, lie, 1);
      std::int64_t want = 0;
      CHECK_FALSE(first_out_of_range((index.there * 0).elements(), 1, found));
      REQUIRE(first_out_of_range(index.here.elements(), 5, want));
      REQUIRE(first_out_of_range(index.there.elements(), 5, found));
      CHECK(found == want);
    }
    CHECK_FALSE(
        first_out_of_range(zeros({0}, {.dtype = int64, .device = cuda}).elements(), 5, found));
    CHECK(first_out_of_range(full({}, -3, {.dtype = int64, .device = cuda}).elements(), 5, found));
    CHECK(found == -3);
  });
  CHECK(refused([] { return tensor({1., 2.}).to(cuda).gather(0, tensor({2}).to(cuda)); }));
}

// ---- Random numbers -----------------------------------------------------------------------------

// What f draws here and on the card, each time from the same seed.
template <class F>
Pair drawn(F f) {
  Pair y;
  for (const Device device : {cpu, cuda}) {
    manual_seed(42);
    const Tensor x = f(device);
    CHECK(x.device() == device);
    CHECK(default_generator.counter() == 1);
    (device == cpu ? y.all_of_here : y.all_of_there) = x;
  }
  return y;
}

TEST_CASE("the card draws the processor's numbers, into any type of elements") {
  constexpr std::int64_t far = std::int64_t{1} << 62;  // more digits than a double has
  for (const std::int64_t n : {0, 1, 5, 1003})
    for (const DType dtype : dtypes) {
      CAPTURE(n, name_of(dtype));
      const auto filled = [&](auto fill) {
        return drawn([&](Device device) {
          const Tensor y = zeros({n}, {.dtype = dtype, .device = device});
          fill(y.elements(), default_generator);
          return y;
        });
      };
      const auto integers = [](const View& y, Generator& g) { fill_integers(y, g, -5, 1000003); };
      const auto large = [](const View& y, Generator& g) { fill_integers(y, g, far - 3, far + 2); };
      const auto bernoulli = [](const View& y, Generator& g) { fill_bernoulli(y, g, 0.3); };
      CHECK(difference_of(filled(integers)) == "");
      CHECK(difference_of(filled(large)) == "");
      CHECK(difference_of(filled(bernoulli)) == "");
      if (!is_floating(dtype)) continue;
      const auto uniform = [](const View& y, Generator& g) { fill_uniform(y, g, -1, 3); };
      const auto normal = [](const View& y, Generator& g) { fill_normal(y, g, 1, 2); };
      CHECK(difference_of(filled(uniform)) == "");
      CHECK(difference_of(filled(normal), close, close) == "");
    }
  CHECK(refused([] {
    Generator generator;
    return fill_uniform(zeros({3}, {.dtype = int64, .device = cuda}).elements(), generator, 0, 1),
           0;
  }));
}

TEST_CASE("whatever makes random tensors makes the same ones on the card") {
  const Shape shape(7, 30);
  CHECK(difference_of(drawn([&](Device d) { return rand(shape, {.device = d}); })) == "");
  CHECK(difference_of(drawn([&](Device d) { return randint(-3, 9, shape, {.device = d}); })) == "");
  CHECK(difference_of(drawn([&](Device d) { return randperm(50, {.device = d}); })) == "");
  CHECK(difference_of(
            drawn([&](Device d) { return bernoulli(full(shape, 0.3, {.device = d})); })) == "");
  CHECK(difference_of(drawn([&](Device d) { return dropout(ones(shape, {.device = d}), 0.3); })) ==
        "");
  CHECK(difference_of(drawn([&](Device d) {
          return multinomial(ones({4, 9}, {.device = d}), 5);
        })) == "");
  CHECK(difference_of(drawn([&](Device d) {
          const Tensor base = zeros({30, 7}, {.device = d});
          base.t().uniform_(-1, 3);
          return base;
        })) == "");
  // log, cos and sin are the card's own, each with an error of 2 units in the last place at most.
  CHECK(difference_of(drawn([&](Device d) { return randn(shape, {.device = d}); }),
                      4 * std::numeric_limits<float>::epsilon()) == "");
  CHECK(difference_of(drawn([&](Device d) {
                        return zeros(shape, {.dtype = float64, .device = d}).normal_();
                      }),
                      4 * std::numeric_limits<double>::epsilon()) == "");
}

// ---- Operations and their gradients -------------------------------------------------------------

Tensor moved_with_layout(const Tensor& x, Device device) {  // `to` makes it dense; this does not
  const Tensor y = x.to(device);
  Tensor like = y;
  if (x.dim() > 1 && !x.is_contiguous()) {
    Shape back;
    for (int i = x.dim(); i-- > 0;) back.push_back(i);
    like = y.permute(back).contiguous().permute(back);
  }
  return like.detach().requires_grad_();
}

void compare_on_card(const gradient_rows::OperationRow& row, const std::vector<Shape>& shapes,
                     gradient_rows::Layout layout) {
  manual_seed(7);
  std::vector<Tensor> here, there;
  for (const Shape& shape : shapes) {
    here.push_back(input(shape, layout, row));
    there.push_back(moved_with_layout(here.back(), cuda));
  }
  const auto computed = [&](const std::vector<Tensor>& in) {
    std::vector<Tensor> whole;
    for (std::size_t i = 0; i < in.size(); ++i) whole.push_back(in[i].expand(shapes[i]));
    return row.f(whole);
  };
  const Tensor y = computed(here), z = computed(there);
  CHECK(z.device() == cuda);
  CHECK(difference(z.detach().cpu(), y.detach(), close, 1e-7) == "");
  if (!y.requires_grad()) return;
  const Tensor seed = pattern(y.dtype(), y.shape(), 3);
  y.backward(seed);
  z.backward(seed.to(cuda));
  for (std::size_t i = 0; i < here.size(); ++i) {
    const Tensor gradient = there[i].grad();
    CHECK((!gradient.defined() || gradient.device() == cuda));
    CHECK(difference(gradient.defined() ? gradient.cpu() : gradient, here[i].grad(), close, 1e-7) ==
          "");
  }
}

TEST_CASE("every operation and its gradients are the same on the card") {
  using namespace gradient_rows;
  for (const OperationRow& row : table())
    for (const std::vector<Shape>& shapes : row.shapes)
      for (const Layout layout : layouts) {
        CAPTURE(row.op, to_string(shapes[0]), layout_names[static_cast<int>(layout)]);
        CHECK(error_of([&] { return compare_on_card(row, shapes, layout), 0; }) == "no error");
      }
}

// A row's operation on the card, and the first of the inputs that it is tried with.
Tensor on_card(const gradient_rows::OperationRow& row, const gradient_rows::In& in) {
  gradient_rows::In moved;
  for (const Tensor& x : in) moved.push_back(x.to(cuda));
  return row.f(moved);
}
gradient_rows::In first_inputs(const gradient_rows::OperationRow& row) {
  manual_seed(7);
  gradient_rows::In inputs;
  for (const Shape& shape : row.shapes[0])
    inputs.push_back(gradient_rows::input(shape, gradient_rows::Layout::contiguous, row));
  return inputs;
}

TEST_CASE("derivatives on the card equal central differences") {
  using namespace gradient_rows;
  for (const OperationRow& row : table()) {
    CAPTURE(row.op);
    const In inputs = first_inputs(row);
    const auto there = [&](const In& in) { return on_card(row, in).cpu(); };
    CHECK(error_of([&] { return gradcheck(there, inputs, {.eps = row.eps}); }) == "no error");
  }
}

TEST_CASE("second derivatives on the card equal central differences of the first") {
  using namespace gradient_rows;
  for (const OperationRow& row : table()) {
    if (row.eps != 1e-6) continue;  // `to` float32 is too coarse
    CAPTURE(row.op);
    const In inputs = first_inputs(row);
    const auto there = [&](const In& in) {
      return on_card(row, in).square().cpu();  // the gradient that arrives depends on them, too
    };
    CHECK(error_of([&] { return gradgradcheck(there, inputs); }) == "no error");
  }
}

TEST_CASE("a training on the card goes as on the processor") {
  const auto trained = [](Device device) {
    const Tensor x = pattern(float32, {20, 3}, 1).to(device),
                 t = pattern(float32, {20, 2}, 2).to(device);
    const Tensor w = (pattern(float32, {3, 2}, 3) / 10).to(device).detach().requires_grad_();
    const Tensor b = zeros({2}, {.device = device, .requires_grad = true});
    optim::SGD optimizer({w, b}, {.lr = 0.05, .momentum = 0.9});
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      mse_loss((x.matmul(w) + b).tanh(), t).backward();
      optimizer.step();
    }
    return cat({w.detach().flatten(), b.detach()}).cpu();
  };
  CHECK(difference(trained(cuda), trained(cpu), 1e-5) == "");
}

using Make = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>&)>;
template <class Kind, class Options>
Make made(Options options) {
  return [=](const std::vector<Tensor>& p) { return std::make_unique<Kind>(p, options); };
}
// Every choice of options that leads to a rule of its own, or to another part of one.
std::vector<Make> all_optimizers() {
  using optim::SGD, optim::Adam, optim::AdamW, optim::RMSprop, optim::Adagrad;
  using ForSGD = optim::SGDOptions;
  using ForAdam = optim::AdamOptions;
  using ForRMSprop = optim::RMSpropOptions;
  using ForAdagrad = optim::AdagradOptions;
  return {made<SGD>(ForSGD{.lr = 0.1}),
          made<SGD>(ForSGD{.lr = 0.1, .weight_decay = 0.1}),
          made<SGD>(ForSGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1}),
          made<SGD>(ForSGD{.lr = 0.1, .momentum = 0.9, .nesterov = true}),
          made<Adam>(ForAdam{.lr = 0.1}),
          made<Adam>(ForAdam{.lr = 0.1, .weight_decay = 0.1, .amsgrad = true}),
          made<AdamW>(ForAdam{.lr = 0.1}),
          made<AdamW>(ForAdam{.lr = 0.1, .betas = {0.5, 0.6}, .amsgrad = true}),
          made<RMSprop>(ForRMSprop{}),
          made<RMSprop>(ForRMSprop{.weight_decay = 0.1, .momentum = 0.5}),
          made<RMSprop>(ForRMSprop{.centered = true}),
          made<RMSprop>(ForRMSprop{.momentum = 0.5, .centered = true}),
          made<Adagrad>(ForAdagrad{.lr_decay = 0.1, .initial_accumulator_value = 0.5})};
}

TEST_CASE("every optimiser takes the processor's steps on the card, whatever its options") {
  in_every_order([] {
    for (const auto& make : all_optimizers())
      for (const DType dtype : {float32, float64})
        for (const Lie lie : {Lie::dense, Lie::transposed}) {
          const Pair w = pair_of(dtype, {30, 11}, lie, 1);
          for (const Tensor& x : {w.here, w.there}) {
            const Tensor leaf = x.detach().requires_grad_();  // the same memory
            const auto optimizer = make({leaf});
            for (int step = 0; step < 4; ++step) {
              leaf.set_grad(pattern(dtype, {30, 11}, step + 2).to(x.device()));
              optimizer->step();
            }
            CHECK(leaf.version() == 4);
          }
          CAPTURE(name_of(dtype), static_cast<int>(lie));
          CHECK(difference_of(w, close, 1e-7) == "");
          CHECK(difference(w.all_of_here, pattern(dtype, w.all_of_here.shape(), 1)) != "");
        }
  });
}

TEST_CASE("an optimiser of one's own, which has no kernel, says so") {
  const Tensor w = ones({2}, {.device = cuda, .requires_grad = true});
  SignSGD optimizer(w);
  w.set_grad(ones({2}, {.device = cuda}));
  CHECK(error_of([&] { return optimizer.step(), 0; }) ==
        "SignSGD: its rule has no kernel on cuda:0 at HERE. Hint: keep what it trains on the "
        "cpu");
  CHECK(w.version() == 0);
}

TEST_CASE("a network that is moved to the card learns there as on the processor") {
  const auto trained = [](bool moved) {
    manual_seed(1);
    nn::Sequential net(nn::Linear(3, 4, {.bias = false}),  // whose gradient would be rounding alone
                       nn::BatchNorm1d(4), nn::Tanh(), nn::Linear(4, 2));
    optim::AdamW optimizer(net.parameters(), {.lr = 0.05, .amsgrad = true});
    Tensor x = pattern(float32, {20, 3}, 1), t = pattern(float32, {20, 2}, 2);
    for (int step = 0; step < 6; ++step) {
      if (moved && step == 2) {  // with what the optimiser remembers
        net.to(cuda);
        x = x.to(cuda), t = t.to(cuda);
      }
      optimizer.zero_grad();
      mse_loss(net(x), t).backward();
      static_cast<void>(optim::clip_grad_norm_(net.parameters(), 0.5));
      optimizer.step();
    }
    net.to(cpu);
    std::vector<Tensor> all;
    for (const auto& [name, tensor] : net.state_dict()) all.push_back(tensor.to(float32).flatten());
    return cat(all);
  };
  CHECK(difference(trained(true), trained(false), 1e-5, 1e-6) == "");
}

// ---- Mistakes of other libraries, with their numbers in our collection: see test_cases.cpp --------

TEST_CASE("B196: more rows than a grid has blocks in its second and third direction") {
  const Tensor v = tensor({{1.}, {2.}, {3.}}, {.device = cuda}).expand({70000, 3, 1});
  const auto all = [](const Tensor& x, double value) { return (x == value).all().item<bool>(); };
  CHECK(all(ones({70000, 2, 3}, {.device = cuda}).matmul(v), 6));
  CHECK(all(ones({70000, 4}, {.device = cuda}).softmax(1), 0.25));
  CHECK(all(ones({70000, 2}, {.device = cuda}).sum(1), 2));
}
TEST_CASE("B199: the card reads transposed elements, and treats NaN as the processor does") {
  const Tensor x = arange(6, {.dtype = float32}).reshape(2, 3).to(cuda);
  CHECK((x.t() + 1).to_vector() == std::vector<double>{1, 4, 2, 5, 3, 6});
  const Tensor n = tensor({not_a_number, -1., 2.}, {.device = cuda});
  CHECK(difference(n.relu().cpu(), tensor({not_a_number, 0., 2.})) == "");
  CHECK(std::isnan(n.max().item()));
}

// ---- Errors -----------------------------------------------------------------

TEST_CASE("tensors of two devices do not meet, and the message names both") {
  const Tensor x = tensor({1., 2.}), y = x.to(cuda);
  CHECK(error_of([&] { return x + y; }) ==
        "add: the inputs are on different devices: cpu and cuda:0 at HERE. Hint: move one of them "
        "with .to(\"cpu\")");
  CHECK(error_of(
            [&] { return mt::zip<formula::Add>(y.elements(), y.elements(), x.elements()), 0; }) ==
        "elements of cpu in the midst of work on cuda:0. Hint: move them with .to(\"cuda:0\")");
}

}  // namespace
