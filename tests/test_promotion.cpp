// Which dtype a result has: all pairs of dtypes, of tensors with axes, 0-d tensors and plain
// numbers.
#include <map>

#include "tests/tensors.hpp"

namespace {

using namespace mt;
using namespace tensors;

const std::string letters_of_dtypes = "fdlb";  // float32 float64 int64 bool

DType dtype_of_letter(char letter) { return static_cast<DType>(letters_of_dtypes.find(letter)); }

// The letter of the result's dtype, '!' for an error.
template <class F>
char letter_of(F f) {
  try {
    return letters_of_dtypes[static_cast<std::size_t>(f().dtype())];
  } catch (const Error&) {
    return '!';
  }
}

// Rows: the left operand is a tensor [2] of the dtypes f d l b, then a 0-d one of f d l b. Columns:
// the same as the right operand; then the numbers True, 2, 2.5 on the right; then these on the
// left.
using Table = std::array<std::string, 8>;

std::vector<Tensor> operands() {
  std::vector<Tensor> tensors;
  for (const Shape& shape : {Shape(2), Shape()})
    for (const char letter : letters_of_dtypes)
      tensors.push_back(ones(shape, {.dtype = dtype_of_letter(letter)}));
  return tensors;
}

template <class F>
Table table_of(F f) {
  Table table;
  const std::vector<Tensor> tensors = operands();
  for (std::size_t i = 0; i < 8; ++i) {
    const Tensor& a = tensors[i];
    for (const Tensor& b : tensors) table[i] += letter_of([&] { return f(a, b); });
    table[i] += ' ';
    table[i] += letter_of([&] { return f(a, true); });
    table[i] += letter_of([&] { return f(a, 2); });
    table[i] += letter_of([&] { return f(a, 2.5); });
    table[i] += ' ';
    table[i] += letter_of([&] { return f(true, a); });
    table[i] += letter_of([&] { return f(2, a); });
    table[i] += letter_of([&] { return f(2.5, a); });
  }
  return table;
}

// Made with PyTorch 1.13: for a in [torch.ones(s, dtype=d) for s in ((2,), ()) for d in (float32,
// float64, int64, bool)], for b likewise: (a + b).dtype, and so on; ! where it raises.
const Table additions = {
    "fdffffff fff fff", "dddddddd ddd ddd", "fdllfdll llf llf", "fdlbfdlb blf blf",
    "fdfffdff fff fff", "fddddddd ddd ddd", "fdllfdll llf llf", "fdlbfdlb blf blf",
};
const Table subtractions = {
    "fdf!fff! !ff !ff", "ddd!ddd! !dd !dd", "fdl!fdl! !lf !lf", "!!!!!!!! !!! !!!",
    "fdf!fdf! !ff !ff", "fdd!ddd! !dd !dd", "fdl!fdl! !lf !lf", "!!!!!!!! !!! !!!",
};
const Table quotients = {
    "fdffffff fff fff", "dddddddd ddd ddd", "fdfffdff fff fff", "fdfffdff fff fff",
    "fdfffdff fff fff", "fddddddd ddd ddd", "fdfffdff fff fff", "fdfffdff fff fff",
};
const Table powers = {
    "fdffffff fff fff", "dddddddd ddd ddd", "fdllfdll llf llf", "fdl!fdl! !lf !lf",
    "fdfffdff fff fff", "fddddddd ddd ddd", "fdllfdll llf llf", "fdl!fdl! !lf !lf",
};

TEST_CASE("sums and products have PyTorch's dtypes") {
  CHECK(table_of([](const auto& a, const auto& b) { return a + b; }) == additions);
  CHECK(table_of([](const auto& a, const auto& b) { return a * b; }) == additions);
}

TEST_CASE("differences have PyTorch's dtypes, and bools are not subtracted") {
  CHECK(table_of([](const auto& a, const auto& b) { return a - b; }) == subtractions);
  CHECK(error_of([] { return tensor({true}) - 1; }) ==
        "sub: bools are not subtracted at HERE. Hint: write a ^ b, or convert with .to(int64)");
  CHECK(refused([] { tensor({true}).sub_(tensor({true})); }));
}

TEST_CASE("quotients are floats") {
  CHECK(table_of([](const auto& a, const auto& b) { return a / b; }) == quotients);
}

TEST_CASE("powers have PyTorch's dtypes") {
  CHECK(table_of([](const auto& a, const auto& b) { return pow(a, b); }) == powers);
}

TEST_CASE("a choice has the dtype of a sum of its branches") {
  const Tensor condition = tensor({true, false});
  CHECK(table_of([&](const auto& a, const auto& b) { return where(condition, a, b); }) ==
        additions);
}

TEST_CASE("the larger of two tensors has the dtype of their sum") {
  const std::vector<Tensor> tensors = operands();
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t j = 0; j < 8; ++j) {
      CAPTURE(i, j);
      CHECK(letter_of([&] { return maximum(tensors[i], tensors[j]); }) == additions[i][j]);
    }
}

TEST_CASE("comparisons are bools whatever they compare") {
  Table bools;
  bools.fill("bbbbbbbb bbb bbb");
  CHECK(table_of([](const auto& a, const auto& b) { return a == b; }) == bools);
  CHECK(table_of([](const auto& a, const auto& b) { return a != b; }) == bools);
  // A bool against 2 or 2.5 is refused: see test_errors.
  for (std::size_t i : {3u, 7u}) bools[i] = "bbbbbbbb b!! b!!";
  CHECK(table_of([](const auto& a, const auto& b) { return a < b; }) == bools);
  CHECK(table_of([](const auto& a, const auto& b) { return a >= b; }) == bools);
}

TEST_CASE("functions of one input turn integers and bools into floats where PyTorch does") {
  for (Tensor (*f)(const Tensor&) :
       {+[](const Tensor& x) { return exp(x); }, +[](const Tensor& x) { return log(x); },
        +[](const Tensor& x) { return sqrt(x); }, +[](const Tensor& x) { return tanh(x); },
        +[](const Tensor& x) { return sigmoid(x); }, +[](const Tensor& x) { return sin(x); },
        +[](const Tensor& x) { return cos(x); }}) {
    std::string results;
    for (const Tensor& x : operands()) results += letter_of([&] { return f(x); });
    CHECK(results == "fdfffdff");
  }
  for (Tensor (*f)(const Tensor&) :
       {+[](const Tensor& x) { return -x; }, +[](const Tensor& x) { return abs(x); },
        +[](const Tensor& x) { return relu(x); }}) {
    std::string results;
    for (const Tensor& x : operands()) results += letter_of([&] { return f(x); });
    CHECK(results == "fdl!fdl!");
  }
  CHECK(sign(tensor({true})).dtype() == boolean);
  CHECK(square(tensor({true})).dtype() == int64);
}

TEST_CASE("sums count in int64, extremes keep the dtype, means are of floats") {
  std::string sums, largest, means;
  for (const Tensor& x : operands()) {
    sums += letter_of([&] { return x.sum(); });
    largest += letter_of([&] { return x.max(); });
    means += letter_of([&] { return x.mean(); });
  }
  CHECK(sums == "fdllfdll");
  CHECK(largest == "fdlbfdlb");
  CHECK(means == "fd!!fd!!");
  CHECK(tensor({true, true, false}).sum().item<int>() == 2);
}

TEST_CASE("tensors joined to one have their common dtype") {
  CHECK(cat({tensor({1, 2}), tensor({1.5})}).dtype() == float32);
  CHECK(cat({tensor({1.5}, {.dtype = float64}), tensor({true})}).dtype() == float64);
  CHECK(stack({tensor(1), tensor(true)}).dtype() == int64);
}

TEST_CASE("a recorded result of mixed dtypes gives each input a gradient of its own dtype") {
  const Tensor x = leaf({1., 2.}), y = leaf({3., 4.}, float64);
  (x * y + x * tensor({5, 6})).sum().backward();
  CHECK(difference(x.grad(), tensor({8., 10.})) == "");
  CHECK(difference(y.grad(), tensor({1., 2.}, {.dtype = float64})) == "");
}

TEST_CASE("conversions round towards zero, and what does not fit is the nearest that does") {
  const Tensor x = tensor({1.9, -1.9, not_a_number, 1e30, -1e30, infinity, 0.});
  CHECK(difference(x.to(int64),
                   tensor({std::int64_t{1}, std::int64_t{-1}, std::int64_t{0},
                           std::numeric_limits<std::int64_t>::max(),
                           std::numeric_limits<std::int64_t>::min(),
                           std::numeric_limits<std::int64_t>::max(), std::int64_t{0}})) == "");
  CHECK(x.to(boolean).to_vector<int>() == std::vector<int>{1, 1, 1, 1, 1, 1, 0});
  CHECK(tensor({true, false}).to(float32).to_vector<float>() == std::vector<float>{1, 0});
  CHECK(tensor(16777217).to(float32).item() == 16777216);
}

TEST_CASE("integer arithmetic wraps around and does not trap") {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  CHECK((tensor({most}) + 1).item<std::int64_t>() == least);
  CHECK((tensor({least}) - 1).item<std::int64_t>() == most);
  CHECK((tensor({most}) * 2).item<std::int64_t>() == -2);
  CHECK((-tensor({least})).item<std::int64_t>() == least);
  CHECK(tensor({least}).abs().item<std::int64_t>() == least);
  CHECK(tensor({most, 1}).sum().item<std::int64_t>() == least);
  CHECK(tensor({3}).pow(40).item<std::int64_t>() == -6289078614652622815);
}

}  // namespace
