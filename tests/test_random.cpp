// Random numbers: known answers, the statistics of each distribution, and what a seed promises.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "minitensor.hpp"
#include "tests/catch.hpp"

namespace {

using Integer64 = std::int64_t;

// `count` numbers drawn by `fill`, in an array of exactly that size (so that a sanitizer sees a
// write beyond it).
template <class T, class Fill>
std::vector<T> drawn(Integer64 count, Fill fill) {
  const std::unique_ptr<T[]> numbers(new T[static_cast<std::size_t>(count)]);
  minitensor::View y;
  y.data = reinterpret_cast<std::byte*>(numbers.get());
  y.dtype = minitensor::dtype_of<T>();
  y.shape = minitensor::Shape(count);
  y.strides = minitensor::contiguous_strides(y.shape);
  fill(y);
  return std::vector<T>(numbers.get(), numbers.get() + count);
}
template <class T>
std::vector<T> uniforms(Integer64 count, minitensor::Generator& generator, double low = 0,
                        double high = 1) {
  return drawn<T>(count, [&](const auto& y) { fill_uniform(y, generator, low, high); });
}
template <class T>
std::vector<T> normals(Integer64 count, minitensor::Generator& generator, double mean = 0,
                       double std = 1) {
  return drawn<T>(count, [&](const auto& y) { fill_normal(y, generator, mean, std); });
}
template <class T = Integer64>
std::vector<T> integers(Integer64 count, minitensor::Generator& generator, Integer64 low,
                        Integer64 high) {
  return drawn<T>(count, [&](const auto& y) { fill_integers(y, generator, low, high); });
}
template <class T>
std::vector<T> bernoullis(Integer64 count, minitensor::Generator& generator, double p) {
  return drawn<T>(count, [&](const auto& y) { fill_bernoulli(y, generator, p); });
}
template <class T = Integer64>
std::vector<T> permutation(Integer64 count, minitensor::Generator& generator) {
  return drawn<T>(count, [&](const auto& y) { fill_permutation(y, generator); });
}

minitensor::Generator after_calls(int calls, std::uint64_t seed) {
  minitensor::Generator generator(seed);
  for (int i = 0; i < calls; ++i) generator.next();
  return generator;
}

// How far counts are from what is expected, in standard deviations. Chi-square with k degrees of
// freedom has mean k and variance 2k; by Wilson and Hilferty (1931) its cube root is near enough to
// normal. Seeds are fixed, so a test that passes does not fail by chance later; the bound of 4.5
// (one in 300,000) says how unlucky a right generator would have had to be. Too even is as
// suspicious as too uneven, so the sign is dropped.
double surprise(const std::vector<double>& counts, const std::vector<double>& expected) {
  double chi_square = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    chi_square += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  const double k = static_cast<double>(counts.size()) - 1;
  return std::abs((std::cbrt(chi_square / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k)));
}
double surprise(const std::vector<double>& counts) {
  double total = 0;
  for (double count : counts) total += count;
  return surprise(counts, std::vector<double>(counts.size(), total / double(counts.size())));
}
constexpr double suspicious = 4.5;

struct Moments {
  double mean = 0, variance = 0, skewness = 0, kurtosis = 0;
};
template <class T>
Moments moments_of(const std::vector<T>& xs) {
  Moments m;
  const double n = double(xs.size());
  for (T x : xs) m.mean += double(x) / n;
  for (T x : xs) m.variance += std::pow(double(x) - m.mean, 2) / n;
  for (T x : xs) m.skewness += std::pow((double(x) - m.mean) / std::sqrt(m.variance), 3) / n;
  for (T x : xs) m.kurtosis += std::pow((double(x) - m.mean) / std::sqrt(m.variance), 4) / n;
  return m;
}
// The correlation of two lists of equal length; sqrt(n) times it is nearly standard normal.
template <class T>
double correlation(const std::vector<T>& a, const std::vector<T>& b, std::size_t lag = 0) {
  const Moments ma = moments_of(a), mb = moments_of(b);
  const std::size_t n = a.size() - lag;
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i)
    sum += (double(a[i + lag]) - ma.mean) * (double(b[i]) - mb.mean) / double(n);
  return std::sqrt(double(n)) * sum / std::sqrt(ma.variance * mb.variance);
}

constexpr std::uint64_t seed = 0x123456789ABCDEF0;
constexpr Integer64 many = 1 << 20;

}  // namespace

// ---- Known answers ----

TEST_CASE("philox gives the known answers of its authors") {
  // The lines "philox4x32 10" of tests/kat_vectors in the Random123 library (D. E. Shaw Research).
  using minitensor::philox;
  using minitensor::RandomBlock;
  CHECK(philox({0, 0, 0, 0}, {0, 0}) ==
        RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
        RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a block is philox of its number, the number of the call and the seed, low words first") {
  const minitensor::RandomCall call{0x299f31d0a4093822, 0x0370734413198a2e};
  CHECK(call.block(0x85a308d3243f6a88) ==
        minitensor::RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// The numbers below were made by a separate program in Python (integers and fractions only, checked
// against the known answers above) from the description in chapter 12.

TEST_CASE("uniform numbers are known to the last bit") {
  auto generator = after_calls(0, seed);
  CHECK(uniforms<float>(6, generator) == std::vector<float>{0x1.25936p-5f, 0x1.e0e12cp-2f,
                                                            0x1.93f7p-1f, 0x1.59df2p-3f,
                                                            0x1.c4ecc8p-3f, 0x1.8273d4p-2f});
  CHECK(uniforms<double>(5, generator) ==
        std::vector<double>{0x1.37e03b61c97e8p-3, 0x1.539f2d8dd3384p-2, 0x1.5277c99fd59cap-1,
                            0x1.37303b972e381p-1, 0x1.9996731a0017cp-2});
  generator = after_calls(8, seed);
  CHECK(uniforms<double>(4, generator, -1, 3) ==
        std::vector<double>{0x1.23792c066f0eep+1, 0x1.81c11db044544p-1, -0x1.d445d5a1ad610p-2,
                            0x1.4d8f75b0087fep+0});
  CHECK(uniforms<double>(4, generator, 0.1, 0.7) ==
        std::vector<double>{0x1.814b3ba09cf47p-2, 0x1.1e22dcacdcd06p-2, 0x1.f267da0e629eap-3,
                            0x1.305596b2fde4bp-2});
}

TEST_CASE("integers, coin throws and permutations are known") {
  auto generator = after_calls(2, seed);
  CHECK(integers(12, generator, -5, 5) ==
        std::vector<Integer64>{-4, -1, -3, -2, -1, -3, 4, -3, -5, -1, -5, -3});
  CHECK(integers(4, generator, -(1LL << 62), std::numeric_limits<Integer64>::max()) ==
        std::vector<Integer64>{7198971510713730873, 7807162249673265558, 4920853550760914499,
                               471911061973364248});
  generator = after_calls(6, seed);
  CHECK(bernoullis<float>(16, generator, 0.25) ==
        std::vector<float>{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1});
  CHECK(permutation(10, generator) == std::vector<Integer64>{0, 1, 2, 4, 6, 3, 9, 8, 5, 7});
}

TEST_CASE("normal numbers are known up to the last bits of log, cos and sin") {
  auto generator = after_calls(4, seed);
  const std::vector<double> in_double{1.003747011706433, 0.47453324232335964, -1.6429414838872027,
                                      0.770135965186496};
  const std::vector<double> in_float{-1.4093533766390463, 0.5542650364611255, 0.9769214945682678,
                                     1.4492034748824978};
  const auto doubles = normals<double>(4, generator);
  const auto floats = normals<float>(4, generator);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(doubles[i] == Approx(in_double[i]).epsilon(1e-15));  // 4 ulp
    CHECK(floats[i] == Approx(in_float[i]).epsilon(1e-6));  // the angle has a rounding error, too
  }
}

// ---- What a seed promises ----

TEST_CASE("the same seed gives the same numbers, another seed others") {
  minitensor::Generator one(1), again(1), two(2);
  const auto first = uniforms<float>(1000, one);
  CHECK(uniforms<float>(1000, again) == first);
  CHECK(uniforms<float>(1000, two) != first);
}

TEST_CASE("a later call gives other numbers, and a copied generator repeats them") {
  minitensor::Generator generator(1);
  const auto first = uniforms<float>(1000, generator);
  minitensor::Generator copy = generator;
  const auto second = uniforms<float>(1000, generator);
  CHECK(generator.counter() == 2);
  CHECK(second != first);
  CHECK(uniforms<float>(1000, copy) == second);
}

TEST_CASE("a call that is split in two differs from a whole one") {
  minitensor::Generator generator(1), split(1);
  const auto whole = uniforms<float>(8, generator);
  auto parts = uniforms<float>(4, split);
  const auto rest = uniforms<float>(4, split);
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(parts != whole);
  CHECK(std::equal(parts.begin(), parts.begin() + 4, whole.begin()));
}

TEST_CASE("element i does not depend on how many are drawn, and no call writes beyond them") {
  for (Integer64 count : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    const auto is_start = [&](const auto& few, const auto& all) {
      return std::equal(few.begin(), few.end(), all.begin());
    };
    minitensor::Generator a(7), b(7);
    CHECK(is_start(uniforms<float>(count, a), uniforms<float>(10, b)));
    CHECK(is_start(uniforms<double>(count, a), uniforms<double>(10, b)));
    CHECK(is_start(normals<float>(count, a), normals<float>(10, b)));
    CHECK(is_start(normals<double>(count, a), normals<double>(10, b)));
    CHECK(is_start(integers(count, a, 0, 100), integers(10, b, 0, 100)));
    CHECK(is_start(bernoullis<bool>(count, a, 0.5), bernoullis<bool>(10, b, 0.5)));
  }
}

TEST_CASE("integers are the same in every dtype that holds them") {
  minitensor::Generator a(3), b(3), c(3), d(3);
  const auto whole = integers(100, a, 0, 2);
  CHECK(integers<float>(100, b, 0, 2) == std::vector<float>(whole.begin(), whole.end()));
  CHECK(integers<double>(100, c, 0, 2) == std::vector<double>(whole.begin(), whole.end()));
  CHECK(integers<bool>(100, d, 0, 2) == std::vector<bool>(whole.begin(), whole.end()));
}

// ---- Statistics ----

TEMPLATE_TEST_CASE("uniform numbers fill the unit interval evenly", "", float, double) {
  minitensor::Generator generator(11);
  const auto xs = uniforms<TestType>(many, generator);
  REQUIRE(*std::min_element(xs.begin(), xs.end()) >= 0);
  REQUIRE(*std::max_element(xs.begin(), xs.end()) < 1);
  std::vector<double> counts(256);
  for (TestType x : xs) ++counts[std::size_t(x * 256)];
  CHECK(surprise(counts) < suspicious);
  const Moments m = moments_of(xs);
  const double n = double(many);  // the bounds are 4.5 standard errors
  CHECK(m.mean == Approx(0.5).margin(4.5 * std::sqrt(1 / (12 * n))));
  CHECK(m.variance == Approx(1 / 12.).margin(4.5 * std::sqrt(1 / (180 * n))));
}

TEST_CASE("every bit of a uniform number is a fair coin, down to the last") {
  minitensor::Generator generator(12);
  std::vector<double> float_ones(24), double_ones(53);
  for (float x : uniforms<float>(many, generator))
    for (int bit = 0; bit < 24; ++bit)
      float_ones[std::size_t(bit)] += double(std::int64_t(std::ldexp(x, bit + 1)) & 1);
  for (double x : uniforms<double>(many, generator))
    for (int bit = 0; bit < 53; ++bit)
      double_ones[std::size_t(bit)] += double(std::int64_t(std::ldexp(x, bit + 1)) & 1);
  for (const auto& ones : {float_ones, double_ones})
    for (double count : ones)
      CHECK(std::abs(count - double(many) / 2) < 4.5 * std::sqrt(double(many) / 4));
}

TEST_CASE("neighbours, calls and seeds are not correlated") {
  minitensor::Generator one(1), two(2);
  const auto first = uniforms<double>(many, one);
  const auto second = uniforms<double>(many, one);
  const auto other = uniforms<double>(many, two);
  for (std::size_t lag : {1u, 2u, 3u, 4u, 64u})
    CHECK(std::abs(correlation(first, first, lag)) < 4.5);
  CHECK(std::abs(correlation(first, second)) < 4.5);
  CHECK(std::abs(correlation(first, other)) < 4.5);
}

TEST_CASE(
    "a uniform number never reaches the upper bound, even where rounding would take it there") {
  const minitensor::RandomBlock largest{~0u, ~0u, ~0u, ~0u};
  // 1 + (1 - 2^-24) lies half way between two floats, and rounds to 2.
  for (float y : minitensor::distribution::Uniform<float>{1, 2}(largest))
    CHECK(y == std::nextafter(2.f, 1.f));
  for (double y : minitensor::distribution::Uniform<double>{-3, 5}(largest))
    CHECK(y == std::nextafter(5., 0.));
  for (float y : minitensor::distribution::Uniform<float>{2, 2}(largest)) CHECK(y == 2);
}

TEMPLATE_TEST_CASE("normal numbers have the density of the normal distribution", "", float,
                   double) {
  minitensor::Generator generator(13);
  const auto xs = normals<TestType>(many, generator);
  // 64 bins of width 1/8 between -4 and 4 and the two tails.
  std::vector<double> counts(66), expected(66);
  for (TestType x : xs)
    ++counts[std::size_t(std::clamp(std::floor(x * 8) + 33, TestType(0), TestType(65)))];
  const auto below = [](double x) { return std::erfc(-x / std::sqrt(2.)) / 2; };
  for (int i = 0; i < 66; ++i) {
    const double left = i == 0 ? 0 : below((i - 33) / 8.);
    const double right = i == 65 ? 1 : below((i - 32) / 8.);
    expected[std::size_t(i)] = double(many) * (right - left);
  }
  CHECK(surprise(counts, expected) < suspicious);
  const Moments m = moments_of(xs);
  const double n = double(many);  // the bounds are 4.5 standard errors of a normal sample
  CHECK(m.mean == Approx(0).margin(4.5 * std::sqrt(1 / n)));
  CHECK(m.variance == Approx(1).margin(4.5 * std::sqrt(2 / n)));
  CHECK(m.skewness == Approx(0).margin(4.5 * std::sqrt(6 / n)));
  CHECK(m.kurtosis == Approx(3).margin(4.5 * std::sqrt(24 / n)));
}

TEST_CASE("the two normals of a pair are independent, as are their squares") {
  minitensor::Generator generator(14);
  const auto xs = normals<double>(many, generator);
  std::vector<double> cosines, sines;
  for (std::size_t i = 0; i < xs.size(); i += 2) {
    cosines.push_back(xs[i]);
    sines.push_back(xs[i + 1]);
  }
  CHECK(std::abs(correlation(cosines, sines)) < 4.5);
  for (double& x : cosines) x *= x;
  for (double& x : sines) x *= x;
  CHECK(std::abs(correlation(cosines, sines)) < 4.5);
}

TEMPLATE_TEST_CASE("normal numbers are finite for every block of bits", "", float, double) {
  const minitensor::distribution::Normal<TestType> draw{0, 1};
  for (std::uint32_t a : {0u, 1u, 0x7fffffffu, 0x80000000u, ~0u})
    for (std::uint32_t b : {0u, 1u, 0x7fffffffu, 0x80000000u, ~0u})
      for (TestType y : draw({a, b, b, a})) CHECK(std::isfinite(y));
}

TEST_CASE("normal numbers take the mean and the standard deviation asked for") {
  minitensor::Generator a(15), b(15);
  const auto standard = normals<double>(100, a);
  const auto moved = normals<double>(100, b, -3, 0.5);
  for (std::size_t i = 0; i < 100; ++i)
    CHECK(moved[i] == Approx(-3 + 0.5 * standard[i]).epsilon(1e-15));
}

TEST_CASE("integers are equally likely, for ranges that are powers of two and others") {
  minitensor::Generator generator(16);
  for (Integer64 range : {2, 3, 7, 10, 64, 100, 1000}) {
    const Integer64 low = -range / 2;
    const auto xs = integers(many / 4, generator, low, low + range);
    REQUIRE(*std::min_element(xs.begin(), xs.end()) == low);
    REQUIRE(*std::max_element(xs.begin(), xs.end()) == low + range - 1);
    std::vector<double> counts(std::size_t(range), 0.);
    for (Integer64 x : xs) ++counts[std::size_t(x - low)];
    CHECK(surprise(counts) < suspicious);
  }
}

TEST_CASE("integers have no bias where a remainder has a large one") {
  // 64 random bits modulo 3 * 2^61 give a number of the last third with probability 1/4.
  minitensor::Generator generator(17);
  const Integer64 third = Integer64(1) << 61;
  std::vector<double> counts(3);
  for (Integer64 x : integers(many / 4, generator, 0, 3 * third)) ++counts[std::size_t(x / third)];
  CHECK(surprise(counts) < suspicious);
}

TEST_CASE("integers know ranges of one number, of a sign, and of all numbers but one") {
  constexpr Integer64 least = std::numeric_limits<Integer64>::min();
  constexpr Integer64 most = std::numeric_limits<Integer64>::max();
  minitensor::Generator generator(18);
  CHECK(integers(5, generator, 42, 43) == std::vector<Integer64>(5, 42));
  CHECK(integers(5, generator, least, least + 1) == std::vector<Integer64>(5, least));
  for (Integer64 x : integers(1000, generator, most - 2, most))
    CHECK((x == most - 2 || x == most - 1));
  double negative = 0;
  for (Integer64 x : integers(many / 4, generator, least, most)) negative += x < 0;
  CHECK(surprise({negative, double(many / 4) - negative}) < suspicious);
}

TEST_CASE("coin throws come up with the probability asked for, and always or never at 1 and 0") {
  minitensor::Generator generator(19);
  for (double p : {0.001, 0.1, 0.5, 0.9}) {
    double ones = 0;
    for (bool x : bernoullis<bool>(many / 4, generator, p)) ones += x;
    const double n = double(many / 4);
    CHECK(surprise({ones, n - ones}, {n * p, n * (1 - p)}) < suspicious);
  }
  CHECK(bernoullis<Integer64>(1000, generator, 0) == std::vector<Integer64>(1000, 0));
  CHECK(bernoullis<Integer64>(1000, generator, 1) == std::vector<Integer64>(1000, 1));
}

TEST_CASE("a permutation holds every number once") {
  minitensor::Generator generator(20);
  for (Integer64 n : {0, 1, 2, 1000}) {
    const auto order = permutation(n, generator);
    const std::set<Integer64> members(order.begin(), order.end());
    CHECK(Integer64(members.size()) == n);
    CHECK((n == 0 || (*members.begin() == 0 && *members.rbegin() == n - 1)));
  }
  CHECK(permutation<double>(1, generator) == std::vector<double>{0});
}

TEST_CASE("all 120 permutations of five numbers are equally likely") {
  minitensor::Generator generator(21);
  std::vector<double> counts(120);
  for (int i = 0; i < 60000; ++i) {
    const auto order = permutation(5, generator);
    std::size_t rank = 0;  // counts, for each place, the smaller numbers that come later
    for (std::size_t a = 0; a < 5; ++a) {
      std::size_t smaller = 0;
      for (std::size_t b = a + 1; b < 5; ++b) smaller += order[b] < order[a];
      rank = rank * (5 - a) + smaller;
    }
    ++counts[rank];
  }
  CHECK(surprise(counts) < suspicious);
}

TEST_CASE("random numbers like a tensor have its shape and its dtype") {
  using mt::float32, mt::float64, mt::manual_seed;
  const mt::Tensor x = mt::zeros({2, 3}, {.dtype = float64});
  manual_seed(5);
  const mt::Tensor uniform = mt::rand({2, 3}, {.dtype = float64}), normal = mt::randn({2, 3});
  manual_seed(5);
  CHECK(rand_like(x).equal(uniform));
  CHECK(randn_like(x, {.dtype = float32}).equal(normal));
  CHECK(rand_like(x).dtype() == float64);
  CHECK(rand_like(x, {.requires_grad = true}).requires_grad());
  CHECK_THROWS_AS(randn_like(mt::tensor({1, 2})), mt::Error);
}

TEST_CASE("uniform and normal numbers are refused for integers and bools") {
  minitensor::Generator generator(22);
  CHECK_THROWS_AS(uniforms<Integer64>(3, generator), minitensor::Error);
  CHECK_THROWS_AS(normals<bool>(3, generator), minitensor::Error);
}

TEST_CASE("each element of bernoulli has its own probability") {
  minitensor::manual_seed(23);
  const auto p = minitensor::tensor({0., 0.2, 0.7, 1.}).expand({20000, 4});
  const auto share = minitensor::bernoulli(p).mean({0});
  CHECK(share[0].item() == 0);
  CHECK(share[1].item() == Approx(0.2).margin(0.015));
  CHECK(share[2].item() == Approx(0.7).margin(0.015));
  CHECK(share[3].item() == 1);
}

TEST_CASE("indices are drawn as often as their weights say, with and without replacement") {
  minitensor::manual_seed(24);
  const auto weights = minitensor::tensor({1., 0., 3., 6.});
  const auto again = minitensor::multinomial(weights, 60000, {.replacement = true});
  std::vector<double> counts(4);
  for (int i : again.to_vector<int>()) ++counts[static_cast<std::size_t>(i)];
  CHECK(counts[1] == 0);
  counts.erase(counts.begin() + 1);
  CHECK(surprise(counts, {6000, 18000, 36000}) < suspicious);
  using minitensor::tensor, minitensor::float64;
  const auto huge = minitensor::multinomial(tensor({1e308, 1e308, 1e308}, {.dtype = float64}), 300,
                                            {.replacement = true});
  for (int k = 0; k < 3; ++k) CHECK((huge == k).any().item<bool>());
  const auto tiny = minitensor::multinomial(tensor({0.0, 1e-320}, {.dtype = float64}), 1);
  CHECK(tiny.item<int>() == 1);
  const auto once = minitensor::multinomial(weights.expand({20000, 4}), 1);
  CHECK((once == 3).to(minitensor::float32).mean().item() == Approx(0.6).margin(0.015));
  const auto all = minitensor::multinomial(weights, 3).to_vector<int>();
  CHECK(std::set<int>(all.begin(), all.end()) == std::set<int>{0, 2, 3});
}
