// Values and gradients of operations at ordinary and awkward numbers: zeros of both signs, numbers
// that overflow, infinities, NaN, ties, and tensors without elements. What is right comes from
// PyTorch 1.13 (golden/operations.py wrote golden/operations.txt), or was worked out by hand.
#include <map>
#include <sstream>

#include "tests/shell.hpp"
#include "tests/tensors.hpp"

namespace {

using namespace mt;
using namespace tensors;

// ---- Golden values ------------------------------------------------------------------------------

const std::map<std::string, Tensor>& golden() {
  static const std::map<std::string, Tensor> tensors = [] {
    std::map<std::string, Tensor> read;
    std::istringstream text(shell::read_file(SOURCE_DIRECTORY "/tests/golden/operations.txt"));
    for (std::string line; std::getline(text, line);) {
      std::istringstream words(line);
      std::string name, sizes, word;
      words >> name >> sizes;
      Shape shape;
      std::istringstream list(sizes);
      for (std::string size; sizes != "-" && std::getline(list, size, ',');)
        shape.push_back(std::stoi(size));
      Values numbers;
      while (words >> word) numbers.push_back(std::strtod(word.c_str(), nullptr));
      read[name] = tensor(numbers).reshape(shape);
    }
    return read;
  }();
  return tensors;
}

using In = std::vector<Tensor>;

// Where ours differs: logsumexp of a row of minus infinity has the gradient 0, not NaN. PyTorch
// divides by infinity in that of cumprod, and squares 1 / a in that of 0 / a, which overflows at
// a = -1e-30.
const std::set<std::string> differing = {"logsumexp1.da", "cumprod1.da", "rdiv0.da"};

// Compares f at these inputs with the golden value and gradients of that name.
void compare(const std::string& name, const Function& f, const std::vector<std::string>& inputs,
             double rtol = 1e-6, double atol = 0) {
  CAPTURE(name);
  In leaves;
  for (const std::string& input : inputs)
    leaves.push_back(golden().at(input).clone().requires_grad_());
  const Tensor y = f(leaves);
  CHECK(difference(y.to(float32), golden().at(name + ".y"), rtol, atol) == "");
  if (!y.requires_grad()) return;
  if (y.is_view()) CHECK(Tensor(y.get().base).requires_grad());  // or a write would lose it
  y.backward(ones_like(y));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::string gradient = name + ".d" + "abc"[i];
    CAPTURE(gradient);
    if (!golden().count(gradient) || differing.count(gradient)) continue;
    CHECK(difference(leaves[i].grad(), golden().at(gradient), rtol, atol) == "");
  }
}

TEST_CASE("a quotient's gradient needs no square of the divisor") {  // by hand: -a / b^2
  for (float size : {1e-25f, 1e20f}) {
    const Tensor a = tensor(size, {.requires_grad = true});
    const Tensor b = tensor(size, {.requires_grad = true});
    (a / b).backward();
    CHECK(b.grad().item<float>() == -1 / size);
  }
}

TEST_CASE("a number keeps its digits beside a float64 tensor") {
  const Tensor x = tensor({1.0}, {.dtype = float64});
  CHECK(x.fmod(0.3).item() == std::fmod(1.0, 0.3));
  CHECK(x.remainder(0.3).item() == std::fmod(1.0, 0.3));
}

TEST_CASE("repeat always copies, and pad takes bools") {
  const Tensor x = tensor({{1., 2.}});
  CHECK_FALSE(x.repeat({1, 1}).shares_storage_with(x));
  CHECK_FALSE(x.repeat({2, 1}).shares_storage_with(x));
  CHECK(pad(tensor({true}), {1, 1}).to_vector<bool>() == std::vector<bool>{false, true, false});
  CHECK(pad(tensor({1., 2., 3.}), {-1, -2}).numel() == 0);
}

TEST_CASE("functions of one number agree with PyTorch at awkward numbers") {
  const std::map<std::string, Tensor (*)(const Tensor&)> functions = {
      {"neg", [](const Tensor& a) { return -a; }},
      {"abs", [](const Tensor& a) { return abs(a); }},
      {"sign", [](const Tensor& a) { return sign(a); }},
      {"exp", [](const Tensor& a) { return exp(a); }},
      {"log", [](const Tensor& a) { return log(a); }},
      {"sqrt", [](const Tensor& a) { return sqrt(a); }},
      {"sigmoid", [](const Tensor& a) { return sigmoid(a); }},
      {"relu", [](const Tensor& a) { return relu(a); }},
      {"square", [](const Tensor& a) { return square(a); }},
      {"pow0", [](const Tensor& a) { return a.pow(0); }},
      {"pow1", [](const Tensor& a) { return a.pow(1); }},
      {"pow2", [](const Tensor& a) { return a.pow(2); }},
      {"pow3", [](const Tensor& a) { return a.pow(3); }},
      {"pow-1", [](const Tensor& a) { return a.pow(-1); }},
      {"pow-2", [](const Tensor& a) { return a.pow(-2); }},
      {"powinf", [](const Tensor& a) { return a.pow(infinity); }},
      {"base0", [](const Tensor& a) { return pow(0, a); }},
      {"base1", [](const Tensor& a) { return pow(1, a); }},
      {"base2", [](const Tensor& a) { return pow(2, a); }},
      {"base0.5", [](const Tensor& a) { return pow(0.5, a); }},
      {"base-2", [](const Tensor& a) { return pow(-2, a); }},
      {"add2", [](const Tensor& a) { return a + 2; }},
      {"sub2", [](const Tensor& a) { return a - 2; }},
      {"rsub2", [](const Tensor& a) { return 2 - a; }},
      {"mul0", [](const Tensor& a) { return a * 0; }},
      {"div0", [](const Tensor& a) { return a / 0; }},
      {"div2", [](const Tensor& a) { return a / 2; }},
      {"rdiv2", [](const Tensor& a) { return 2 / a; }},
      {"rdiv0", [](const Tensor& a) { return 0 / a; }},
  };
  // Two libraries' exp and pow may differ in the last bits of a float32, of 6e-8 each.
  for (const auto& [name, f] : functions)
    compare(
        name, [&, f = f](const In& in) { return f(in[0]); }, {"awkward"}, 1e-6, 1e-38);
  for (double n : {0.5, -0.5, 1.5}) {
    std::ostringstream name;
    name << "pow" << n;
    compare(name.str(), [&](const In& in) { return in[0].pow(n); }, {"no_minus_inf"});
  }
  // The derivative of tanh is a difference of nearly equal numbers, and 1e30 is far beyond where
  // float32 knows an angle.
  for (const auto& [name, f] : std::map<std::string, Tensor (*)(const Tensor&)>{
           {"sin", [](const Tensor& a) { return sin(a); }},
           {"cos", [](const Tensor& a) { return cos(a); }},
           {"tanh", [](const Tensor& a) { return tanh(a); }}})
    compare(
        name, [&, f = f](const In& in) { return f(in[0]); }, {"awkward"}, 1e-6, 1e-7);
}

TEST_CASE("functions of two numbers agree with PyTorch at all pairs of awkward numbers") {
  const std::map<std::string, Tensor (*)(const Tensor&, const Tensor&)> functions = {
      {"add", [](const Tensor& a, const Tensor& b) { return a + b; }},
      {"sub", [](const Tensor& a, const Tensor& b) { return a - b; }},
      {"mul", [](const Tensor& a, const Tensor& b) { return a * b; }},
      {"div", [](const Tensor& a, const Tensor& b) { return a / b; }},
      {"pow", [](const Tensor& a, const Tensor& b) { return pow(a, b); }},
      {"maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); }},
      {"minimum", [](const Tensor& a, const Tensor& b) { return minimum(a, b); }},
      {"less", [](const Tensor& a, const Tensor& b) { return a < b; }},
      {"less_equal", [](const Tensor& a, const Tensor& b) { return a <= b; }},
      {"greater", [](const Tensor& a, const Tensor& b) { return a > b; }},
      {"greater_equal", [](const Tensor& a, const Tensor& b) { return a >= b; }},
      {"equal", [](const Tensor& a, const Tensor& b) { return a == b; }},
      {"not_equal", [](const Tensor& a, const Tensor& b) { return a != b; }},
      {"where", [](const Tensor& a, const Tensor& b) { return where(a < b, a, b); }},
  };
  for (const auto& [name, f] : functions)
    compare(name, [&, f = f](const In& in) { return f(in[0], in[1]); }, {"left", "right"});
}

TEST_CASE("reductions agree with PyTorch, with infinities, NaN and ties") {
  const std::map<std::string, Tensor (*)(const Tensor&)> functions = {
      {"sum1", [](const Tensor& a) { return a.sum(1); }},
      {"sum0", [](const Tensor& a) { return a.sum(0); }},
      {"mean1", [](const Tensor& a) { return a.mean({1}, {.keepdim = true}); }},
      {"max1", [](const Tensor& a) { return a.max(1).values; }},
      {"min1", [](const Tensor& a) { return a.min(1).values; }},
      {"argmax1", [](const Tensor& a) { return a.argmax(1); }},
      {"softmax1", [](const Tensor& a) { return a.softmax(1); }},
      {"log_softmax1", [](const Tensor& a) { return a.log_softmax(1); }},
  };
  // A softmax row's gradient is a difference of nearly equal numbers: 1e-7 of a probability.
  for (const auto& [name, f] : functions)
    compare(
        name, [&, f = f](const In& in) { return f(in[0]); }, {"rows"}, 1e-6, 2e-7);
  for (const char* row : {"0", "1", "2", "3"}) {
    const int i = row[0] - '0';
    const Tensor x = golden().at("rows")[i];
    for (const std::string& name : {std::string("amax"), std::string("amin")}) {
      CAPTURE(name, row);
      const Tensor a = x.clone().requires_grad_();
      const Tensor y = name == "amax" ? a.amax() : a.amin();
      CHECK(difference(y.detach(), golden().at(name + row + ".y")) == "");
      y.backward();
      CHECK(difference(a.grad(), golden().at(name + row + ".da"), 1e-6) == "");
    }
  }
  const Tensor a = golden().at("rows")[5].clone().requires_grad_();
  a.max().backward();
  CHECK(difference(a.grad(), golden().at("maxnan.da")) == "");
  a.zero_grad();
  a.min().backward();
  CHECK(difference(a.grad(), golden().at("minnan.da")) == "");
}

TEST_CASE("more reductions agree with PyTorch, with infinities, NaN, zeros and ties") {
  for (const auto& [name, f] : std::map<std::string, Tensor (*)(const Tensor&)>{
           {"prod1", [](const Tensor& a) { return a.prod(1); }},
           {"var1", [](const Tensor& a) { return a.var(1); }},
           {"var0", [](const Tensor& a) { return a.var(0, {.correction = 0}); }},
           {"std1", [](const Tensor& a) { return a.std(1); }},
           {"norm1", [](const Tensor& a) { return a.norm(1, 1); }},
           {"norm2", [](const Tensor& a) { return a.norm(2, 1); }},
           {"norm3", [](const Tensor& a) { return a.norm(3, 1); }},
           {"norminf", [](const Tensor& a) { return a.norm(infinity, 1); }},
           {"norm-inf", [](const Tensor& a) { return a.norm(-infinity, 1); }},
           {"norm0", [](const Tensor& a) { return a.norm(0, 1); }},
           {"logsumexp1", [](const Tensor& a) { return a.logsumexp(1); }},
           {"cumsum1", [](const Tensor& a) { return a.cumsum(1); }},
           {"cumprod1", [](const Tensor& a) { return a.cumprod(1); }},
           {"sort1", [](const Tensor& a) { return a.sort(1).values; }},
           {"sort1_down", [](const Tensor& a) { return a.sort(1, {.descending = true}).values; }},
           {"argsort1", [](const Tensor& a) { return a.argsort(1); }},
           {"argsort1_down", [](const Tensor& a) { return argsort(a, 1, {.descending = true}); }},
           {"topk1", [](const Tensor& a) { return a.topk(2, 1).values; }},
           {"topk1_small", [](const Tensor& a) { return a.topk(2, 1, {.largest = false}).values; }},
           {"argmin1", [](const Tensor& a) { return a.argmin(1); }},
           {"all1", [](const Tensor& a) { return a.all(1); }},
           {"any1", [](const Tensor& a) { return a.any(1); }},
           {"count1", [](const Tensor& a) { return a.count_nonzero(1); }}})
    compare(
        name, [&, f = f](const In& in) { return f(in[0]); }, {"rows"}, 1e-6, 2e-7);
}

TEST_CASE("the variance of large numbers that are close together keeps its digits") {
  CHECK(tensor({1e8, 1e8 + 8, 1e8 + 16}).var().item() == 64);
  CHECK(std::isnan(tensor({5.}).var().item()));
  CHECK(tensor({5.}).std({.correction = 0}).item() == 0);
  CHECK(std::isnan(zeros({0}).var().item()));
  CHECK(tensor({{1., 2.}, {3., 5.}}).var({0}, {.keepdim = true}).shape() == Shape(1, 2));
}

TEST_CASE("equal elements keep their order in a sort, in both directions, and zeros are equal") {
  const Tensor x = tensor({0., 2., -0.0, 2., 0.});
  CHECK(x.sort().indices.to_vector<int>() == std::vector<int>{0, 2, 4, 1, 3});
  CHECK(x.argsort(0, {.descending = true}).to_vector<int>() == std::vector<int>{1, 3, 0, 2, 4});
  const std::int64_t large = std::int64_t{1} << 60;
  CHECK(tensor({large + 1, large, -large}).argsort().to_vector<int>() == std::vector<int>{2, 1, 0});
  CHECK(tensor({true, false}).sort().indices.to_vector<int>() == std::vector<int>{1, 0});
  const Tensor m = tensor({{3., 1.}, {2., 4.}});
  CHECK(m.t().sort(0).values.to_vector<int>() == std::vector<int>{1, 2, 3, 4});
  CHECK(m.topk(0).values.shape() == Shape(2, 0));
  CHECK(zeros({2, 0}).sort().values.shape() == Shape(2, 0));
}

TEST_CASE("floor, ceil and trunc are those of the standard library, to the sign of 0") {
  for (double size :
       {0.0, 1e-40, 0.3, 0.5, 0.7, 1.0, 1.5, 2.5, 8388607.5, 8388609.0, 1e30, HUGE_VAL})
    for (double x : {size, -size})
      for (const Tensor& a : {tensor({x}), tensor({x}, {.dtype = float32})}) {
        const double number = a.item();
        const auto is = [](const Tensor& y, double expected) {
          return y.item() == expected && std::signbit(y.item()) == std::signbit(expected);
        };
        CHECK(is(a.floor(), std::floor(number)));
        CHECK(is(a.ceil(), std::ceil(number)));
        CHECK(is(a.trunc(), std::trunc(number)));
      }
  CHECK(std::isnan(tensor({NAN}).floor().item()));
}

TEST_CASE("the first k are the beginning of all, also where some are equal and some NaN") {
  std::vector<double> numbers;
  for (int i = 0; i < 700; ++i) {
    const int kind = i * i % 41 % 9;  // there are many of each
    numbers.push_back(kind == 0   ? NAN
                      : kind == 1 ? -0.0
                      : kind == 2 ? -INFINITY
                                  : static_cast<double>(kind) - 5);
  }
  const Tensor all = tensor(numbers);
  for (const Tensor& x : {all.reshape({7, 100}), all.reshape({70, 10}), all.reshape({2, 350})})
    for (bool largest : {true, false}) {
      const Tensor order = x.argsort(1, {.descending = largest});
      for (std::int64_t k : {0, 1, 2, 3, 6, 7, 8, 10, 22, 23, 50, 100, 350}) {
        if (k > x.size(1)) break;
        const Tensor first = order.narrow(1, 0, k), across = x.t();
        CHECK(equal(x.topk(k, 1, {.largest = largest}).indices, first));
        CHECK(equal(across.topk(k, 0, {.largest = largest}).indices, first.t()));
      }
    }
}

TEST_CASE("a running sum is the sum up to there, along each axis, of few lines and of many") {
  for (const Shape& shape : {Shape(1, 5, 1), Shape(2, 3, 2), Shape(9, 4, 3), Shape(3, 2, 600)}) {
    const Tensor whole = (arange(0, shape.numel()) * 37 % 11 - 5).reshape(shape);
    for (const Tensor& x : {whole, whole.to(float32), whole.transpose(0, 2)})
      for (int axis = 0; axis < 3; ++axis) {
        const Tensor sums = x.cumsum(axis);
        for (std::int64_t i = 0; i < x.size(axis); ++i)
          CHECK(equal(sums.select(axis, i), x.narrow(axis, 0, i + 1).sum({axis})));
      }
  }
}

TEST_CASE("running sums and products of integers and of nothing") {
  CHECK(tensor({true, true, false}).cumsum(0).to_vector<int>() == std::vector<int>{1, 2, 2});
  CHECK(arange(1, 6).cumprod(0).to_vector<int>() == std::vector<int>{1, 2, 6, 24, 120});
  CHECK(zeros({2, 0}).cumsum(1).shape() == Shape(2, 0));
  CHECK(ones({100000}).cumsum(0)[-1].item() == 100000);
  // The sums grow in float64, as PyTorch's do. In float32, 1e8 + 1 is 1e8.
  CHECK(tensor({1e8, 1., 1., 1., 1., -1e8}, {.dtype = float32}).cumsum(0)[-1].item() == 4);
}

TEST_CASE("reductions over everything, and of nothing") {
  const Tensor x = tensor({{3., 1.}, {0., 4.}});
  CHECK(x.argmax().item() == 3);
  CHECK(argmin(x).item() == 2);
  CHECK_FALSE(x.all().item<bool>());
  CHECK(any(x, {0}).all().item<bool>());
  CHECK(x.count_nonzero({0}).to_vector<int>() == std::vector<int>{1, 2});
  CHECK(tensor({2, 3}).prod().dtype() == int64);
  const Tensor nothing = zeros({0});
  CHECK(nothing.prod().item() == 1);
  CHECK(nothing.all().item<bool>());
  CHECK_FALSE(nothing.any().item<bool>());
  CHECK(nothing.norm().item() == 0);
  CHECK(nothing.logsumexp({}).item() == -infinity);
  CHECK(full({4}, 1e30).norm().item() == Approx(2e30));
  const Tensor sizes = tensor({{3e30, 3., 3e-30, 0.}, {4e30, 4., 4e-30, 0.}});
  CHECK(difference(sizes.norm(2, 0), tensor({5e30, 5., 5e-30, 0.}), 1e-7) == "");
  CHECK(difference(tensor({{3., 0.}, {4., 0.}}).norm(2, 0), tensor({5., 0.})) == "");
  CHECK(difference(tensor({{3e-30, 0.}, {4e-30, 0.}}).norm(2, 0), tensor({5e-30, 0.}), 1e-7) == "");
}

TEST_CASE("a row of minus infinity has the logsumexp minus infinity, and the gradient 0") {
  const Tensor x = leaf({{-infinity, -infinity}, {0., 0.}});
  const Tensor y = x.logsumexp(1);
  y.sum().backward();
  CHECK(difference(y.detach(), tensor({-infinity, std::log(2.0)}), 1e-6) == "");
  CHECK(values(x.grad()) == Values{0, 0, 0.5, 0.5});
}

TEST_CASE("matrix products agree with PyTorch") {
  compare(
      "matmul", [](const In& in) { return in[0].matmul(in[1]); }, {"matrices", "matrix"}, 1e-5,
      1e-6);
  const Tensor a = golden().at("matrices"), b = golden().at("matrix");
  CHECK(difference(a[0].matmul(b), golden().at("matmul_rows.y"), 1e-5, 1e-6) == "");
  CHECK(difference(a.matmul(b.t()[0]), golden().at("matmul_vector.y"), 1e-5, 1e-6) == "");
  CHECK(difference(a[0][0].matmul(b.t()[1]), golden().at("dot.y"), 1e-5, 1e-6) == "");
}

TEST_CASE("einsum agrees with PyTorch over its whole grammar") {
  const Tensor A = arange(6.0).reshape({2, 3});
  const Tensor B = arange(12.0).reshape({3, 4});
  const Tensor S = arange(9.0).reshape({3, 3});
  const Tensor G = arange(24.0).reshape({2, 3, 4});
  const Tensor H = arange(40.0).reshape({2, 4, 5});
  const Tensor K = arange(8.0).reshape({4, 2});
  const Tensor K2 = arange(20.0).reshape({5, 4});
  const Tensor U = arange(1.0, 3.0);
  const Tensor V = arange(1.0, 4.0);
  const Tensor M = arange(24.0).reshape({4, 2, 3});
  const Tensor O = arange(2.0).reshape({2, 1});
  const Tensor T = arange(12.0).reshape({2, 2, 3});
  const Tensor M3 = M.reshape({4, 3, 2});
  const std::vector<std::pair<const char*, In>> sums = {{"ij->ji", {A}},
                                                        {"ij", {A}},
                                                        {"ji", {A}},
                                                        {"ii->i", {S}},
                                                        {"ii", {S}},
                                                        {"ij->", {A}},
                                                        {"...ij->...ji", {G}},
                                                        {"kji->j", {G}},
                                                        {"ij,jk->ik", {A, B}},
                                                        {"ij,jk", {A, B}},
                                                        {"ij,kj", {A, A}},
                                                        {"i,j->ij", {U, V}},
                                                        {"i,i", {U, U}},
                                                        {"ij,ij->i", {A, A}},
                                                        {"ij,j->i", {A, V}},
                                                        {"aij,ajk->aik", {G, H}},
                                                        {"...ij,...jk->...ik", {G, H}},
                                                        {"...j,jk->...k", {G, K}},
                                                        {"bij,kj->bik", {G, K2}},
                                                        {"ij,...jk->...ik", {A, M3}},
                                                        {"Ba,ab->B", {A, B}},
                                                        {"Ba,ab", {A, B}},
                                                        {"ij,jk->ik", {O, B}},
                                                        {"i...,j...->ij...", {A, A}},
                                                        {"ii,ij->j", {S, S}},
                                                        {"iij->j", {T}},
                                                        {" i j , j k -> k i ", {A, B}},
                                                        {"aij->j", {G}},
                                                        {"...->...", {A}},
                                                        {"a...,...a", {V, V}},
                                                        {"i,ij,j->", {U, A, V}},
                                                        {"ij,jk,kl->il", {A, B, K}},
                                                        {"bi,bj,bk->ijk", {A, A, A}},
                                                        {"ab...,b->a...", {M, U}}};
  for (std::size_t i = 0; i < sums.size(); ++i) {
    CAPTURE(sums[i].first);
    const Tensor y = einsum(sums[i].first, sums[i].second);
    CHECK(difference(y, golden().at("einsum" + std::to_string(i) + ".y"), 1e-6) == "");
  }
  CHECK(difference(addmm(U.reshape({2, 1}), A, B, {.beta = 0.5, .alpha = 2}),
                   golden().at("addmm.y")) == "");
}

TEST_CASE("products have the names of PyTorch's nodes, and integers stay integers") {
  const Tensor x = leaf({{1., 2.}, {3., 4.}}), v = leaf({1., 2.});
  const auto name = [](const Tensor& y) { return std::string(y.grad_fn()->name()); };
  CHECK(name(x.mm(x)) == "MmBackward0");
  CHECK(name(bmm(x.unsqueeze(0), x.unsqueeze(0))) == "BmmBackward0");
  CHECK(name(mv(x, v)) == "MvBackward0");
  CHECK(name(dot(v, v)) == "DotBackward0");
  CHECK(name(outer(v, v)) == "MulBackward0");
  CHECK(name(addmm(v, x, x)) == "AddmmBackward0");
  CHECK(einsum("i,i", arange(4), arange(4)).item<std::int64_t>() == 14);
  CHECK(std::isnan(addmm(full({}, not_a_number), x, x).sum().item()));
  CHECK_FALSE(std::isnan(addmm(full({}, not_a_number), x, x, {.beta = 0}).sum().item()));
}

TEST_CASE("losses agree with PyTorch") {
  const Tensor classes = golden().at("classes").to(int64);
  for (const char* how : {"mean", "sum", "none"}) {
    compare(
        std::string("cross_entropy_") + how,
        [&](const In& in) { return cross_entropy(in[0], classes, {.reduction = how}); }, {"logits"},
        1e-6, 1e-7);
    compare(std::string("mse_") + how,
            [&](const In& in) {
              return mse_loss(in[0], zeros({4, 3}), {.reduction = how});
            },
            {"logits"});
  }
}

// ---- More functions of one and of two numbers ---------------------------------------------------

TEST_CASE("more functions of one number agree with PyTorch at awkward numbers") {
  // A result beside an infinite or vanishing one is a difference of nearly equal float32s.
  for (const auto& [name, f] :
       std::map<std::string, Tensor (*)(const Tensor&, Loc)>{{"exp2", exp2},
                                                             {"expm1", expm1},
                                                             {"log2", log2},
                                                             {"log10", log10},
                                                             {"log1p", log1p},
                                                             {"rsqrt", rsqrt},
                                                             {"reciprocal", reciprocal},
                                                             {"tan", tan},
                                                             {"asin", asin},
                                                             {"acos", acos},
                                                             {"atan", atan},
                                                             {"sinh", sinh},
                                                             {"cosh", cosh},
                                                             {"erf", erf},
                                                             {"floor", floor},
                                                             {"ceil", ceil},
                                                             {"round", round},
                                                             {"trunc", trunc},
                                                             {"isnan", isnan},
                                                             {"isinf", isinf},
                                                             {"isfinite", isfinite},
                                                             {"logical_not", logical_not},
                                                             {"logsigmoid", logsigmoid},
                                                             {"silu", silu}})
    compare(
        name, [&, f = f](const In& in) { return f(in[0], Loc::here()); }, {"awkward"}, 2e-6, 1e-37);
  for (const auto& [name, f] : std::map<std::string, Tensor (*)(const Tensor&, Loc)>{
           {"floor", floor}, {"ceil", ceil}, {"round", round}, {"trunc", trunc}})
    compare(name + "_halves", [&, f = f](const In& in) { return f(in[0], Loc::here()); },
            {"halves"});
}

TEST_CASE("activations agree with PyTorch at awkward numbers") {
  for (const auto& [name, f] : std::map<std::string, Tensor (*)(const Tensor&)>{
           {"leaky_relu", [](const Tensor& a) { return leaky_relu(a); }},
           {"leaky_relu2", [](const Tensor& a) { return leaky_relu(a, 2); }},
           {"elu", [](const Tensor& a) { return elu(a); }},
           {"elu2", [](const Tensor& a) { return elu(a, 2); }},
           {"gelu", [](const Tensor& a) { return gelu(a); }},
           {"gelu_tanh", [](const Tensor& a) { return gelu(a, {.approximate = "tanh"}); }},
           {"softplus", [](const Tensor& a) { return softplus(a); }},
           {"softplus2", [](const Tensor& a) { return softplus(a, {.beta = 2, .threshold = 5}); }},
           {"clamp", [](const Tensor& a) { return clamp(a, -1, 3); }},
           {"clamp_min", [](const Tensor& a) { return clamp(a, {.min = 0.5}); }},
           {"clamp_max", [](const Tensor& a) { return a.clamp({.max = -1}); }},
           {"clamp_crossed", [](const Tensor& a) { return clamp(a, 3, -1); }},
           {"hardtanh", [](const Tensor& a) { return hardtanh(a); }}})
    compare(
        name, [&, f = f](const In& in) { return f(in[0]); }, {"awkward"}, 2e-6, 1e-7);
}

TEST_CASE("more functions of two numbers agree with PyTorch at all pairs of awkward numbers") {
  for (const auto& [name, f] : std::map<std::string, Tensor (*)(const Tensor&, const Tensor&)>{
           {"atan2", [](const Tensor&a, const Tensor&b) { return atan2(a, b); }},
           {"fmod", [](const Tensor&a, const Tensor&b) { return fmod(a, b); }},
           {"remainder", [](const Tensor&a, const Tensor&b) { return remainder(a, b); }},
           {"floor_divide", [](const Tensor&a, const Tensor&b) { return floor_divide(a, b); }},
           {"trunc_divide",
            [](const Tensor&a, const Tensor&b) { return div(a, b, {.rounding = "trunc"}); }},
           {"logical_and", [](const Tensor&a, const Tensor&b) { return logical_and(a, b); }},
           {"logical_or", [](const Tensor&a, const Tensor&b) { return logical_or(a, b); }},
           {"logical_xor", [](const Tensor&a, const Tensor&b) { return logical_xor(a, b); }},
           {"lerp", [](const Tensor&a, const Tensor&b) { return lerp(a, b, 0.25); }},
           {"lerp_end", [](const Tensor&a, const Tensor&b) { return lerp(a, b, 1); }},
           {"clamp_tensors",
            [](const Tensor&a, const Tensor&b) { return clamp(a, b, b.detach() + 1); }}}) {
    if (name == "clamp_tensors") continue;
    compare(name, [&, f = f](const In& in) { return f(in[0], in[1]); }, {"left", "right"});
  }
  for (const auto& [name, f] : std::map<std::string, Tensor (*)(const Tensor&, const Tensor&)>{
           {"floor_divide", [](const Tensor&a, const Tensor&b) { return floor_divide(a, b); }},
           {"remainder", [](const Tensor&a, const Tensor&b) { return remainder(a, b); }}})
    compare(
        name + "_tenths", [&, f = f](const In& in) { return f(in[0], in[1]); },
        {"tenths_left", "tenths_right"}, 1e-6, 1e-12);
}

TEST_CASE("the four operators have names, as functions and as methods") {
  const Tensor a = tensor({{1., 2.}, {3., 4.}}), b = tensor({10., 20.});
  CHECK(equal(a.add(b), a + b));
  CHECK(equal(a.sub(b), a - b));
  CHECK(equal(a.mul(b), a * b));
  CHECK(equal(a.div(b), a / b));
  CHECK(equal(a.add(1), add(a, 1)));
  CHECK(equal(a.sub(1), sub(a, 1)));
  CHECK(equal(a.mul(2), mul(a, 2)));
  CHECK(equal(a.div(2), div(a, 2)));
}

TEST_CASE(
    "quotients of integers are rounded as PyTorch rounds them, without a detour over floats") {
  const Tensor a = golden().at("whole_left").to(int64), b = golden().at("whole_right").to(int64);
  const auto same = [](const Tensor& x, const char* name) {
    return difference(x, golden().at(name).to(int64));
  };
  CHECK(same(a.fmod(b), "fmod_whole.y") == "");
  CHECK(same(a.remainder(b), "remainder_whole.y") == "");
  CHECK(same(floor_divide(a, b), "floor_divide_whole.y") == "");
  CHECK(same(div(a, b, {.rounding = "trunc"}), "trunc_divide_whole.y") == "");
  const std::int64_t large = (std::int64_t{1} << 62) + 1;
  CHECK(floor_divide(tensor({large}), 1).item<std::int64_t>() == large);
  CHECK(tensor({7, -7}).remainder(2).to_vector<int>() == std::vector<int>{1, 1});
  CHECK(same(a % b, "remainder_whole.y") == "");
  CHECK((tensor({7, -7}) % 3).to_vector<int>() == std::vector<int>{1, 2});
  CHECK((7 % tensor({3, -3})).to_vector<int>() == std::vector<int>{1, -2});  // as Python's
  CHECK((7.5 % tensor({2, 4})).to_vector<double>() == std::vector<double>{1.5, 3.5});
  CHECK(floor_divide(tensor({7, -7}), 2.0).dtype() == float32);
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  CHECK(floor_divide(tensor({least}), -1).item<std::int64_t>() == least);
  CHECK(tensor({least}).remainder(-1).item<std::int64_t>() == 0);
}

TEST_CASE("functions of floats take integers and give float32, steps leave integers as they are") {
  CHECK(difference(exp2(tensor({3, -1})), tensor({8., 0.5})) == "");
  CHECK(difference(log2(tensor({8})), tensor({3.})) == "");
  CHECK(difference(reciprocal(tensor({4})), tensor({0.25})) == "");
  CHECK(difference(erf(tensor({0})), tensor({0.})) == "");
  CHECK(difference(floor(tensor({3, -1})), tensor({3, -1})) == "");
  CHECK(difference(clamp(tensor({3, -1}), 0, 2), tensor({2, 0})) == "");
  CHECK(difference(clamp(tensor({3, -1}), {.min = 0.5}), tensor({3., 0.5})) == "");
  CHECK(isfinite(tensor({3})).item<bool>());
  CHECK(isfinite(tensor({true, false})).all().item<bool>());
  CHECK_FALSE(isinf(tensor({true, false})).any().item<bool>());
  CHECK(logical_and(tensor({3, 0}), tensor({true, true})).to_vector<int>() ==
        std::vector<int>{1, 0});
}

TEST_CASE(
    "equal elements have exactly the deviation 0, and the gradient 0") {  // as in PyTorch 1.13
  for (const double value : {0.1, 2.8733333333333335, -1e17}) {
    const Tensor x = full({2, 3}, value, {.dtype = float64, .requires_grad = true});
    CHECK(values(x.var(1).detach()) == Values{0, 0});
    const Tensor y = x.std();
    CHECK(y.item() == 0);
    y.backward();
    CHECK(values(x.grad()) == Values(6, 0.));
  }
  CHECK(tensor(3., {.dtype = float64}).var({.correction = 0}).item() == 0);
  CHECK(zeros({0, 3}, {.dtype = float64}).std(0).numel() == 3);
}

TEST_CASE("allclose and equal answer for whole tensors") {  // answers of PyTorch 1.13
  const auto at = [](double value) { return tensor({value}); };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(allclose(tensor({1., 2.}), tensor({1., 2.00001})));
  CHECK_FALSE(allclose(tensor({1., 2.}), tensor({1., 2.0001})));
  CHECK(allclose(at(1e-9), at(0)));
  CHECK_FALSE(allclose(at(1e-7), at(0)));
  CHECK(at(1.1).allclose(at(1), {.atol = 0.2}));
  CHECK(at(1).allclose(at(1.1), {.rtol = 0.1}));
  CHECK(allclose(at(infinity), at(infinity)));
  CHECK_FALSE(allclose(at(infinity), at(-infinity)));
  CHECK_FALSE(allclose(at(0), at(infinity), {.rtol = 0.1}));
  CHECK_FALSE(allclose(at(nan), at(nan)));
  CHECK(allclose(at(nan), at(nan), {.equal_nan = true}));
  CHECK(allclose(tensor({1., 1.}), tensor(1.)));  // shapes broadcast
  CHECK(allclose(tensor({true}), tensor({true})));
  CHECK(allclose(tensor({1, 2}), tensor({1., 2.}, {.dtype = float64})));  // ours: any dtypes
  CHECK(error_of([] { return allclose(ones({2}), ones({3})); }) ==
        "allclose: shapes do not broadcast: [2] and [3] (2 vs 3 at axis -1) at HERE. Hint: sizes "
        "must "
        "be equal or 1, counted from the last axis");
  const double below = -1e-5;  // PyTorch refuses it, too
  CHECK(error_of([&] { return allclose(at(1), at(1), {.rtol = below}); }) ==
        "allclose: rtol and atol are not negative at HERE.");
  CHECK(refused([&] { return at(1).allclose(at(1), {.atol = nan}); }));

  CHECK(equal(tensor({1, 2}), tensor({1., 2.})));
  CHECK_FALSE(equal(tensor({1, 2}), tensor({1, 3})));
  CHECK_FALSE(equal(tensor({1., 1.}), tensor(1.)));
  CHECK_FALSE(at(nan).equal(at(nan)));
  CHECK(zeros({0}).equal(zeros({0})));
  const Tensor x = leaf({1.});
  CHECK(x.equal(x * 1));  // an answer is no part of a graph
}

TEST_CASE("an activation is one node, with PyTorch's name") {
  const Tensor x = leaf({1., -1.});
  const auto name = [](const Tensor& y) { return std::string(y.grad_fn()->name()); };
  CHECK(name(gelu(x)) == "GeluBackward0");
  CHECK(name(clamp(x, 0, 1)) == "ClampBackward1");
  CHECK(name(hardtanh(x)) == "HardtanhBackward0");
  CHECK(name(softplus(x, {.beta = 2})) == "SoftplusBackward0");
  for (const Tensor& y : {gelu(x), silu(x), elu(x), leaky_relu(x), logsigmoid(x), softplus(x)})
    CHECK(y.grad_fn()->input_id(0) == x.id());
}

TEST_CASE("more losses agree with PyTorch") {
  const Tensor classes = golden().at("classes").to(int64);
  const Tensor target = golden().at("target"), probability = golden().at("probability");
  const Tensor weight = tensor({1., 2., 0.5});
  for (const char* how : {"mean", "sum", "none"})
    for (const auto& [name, f] : std::map<std::string, Function>{
             {"l1", [&](const In& in) { return l1_loss(in[0], target, {.reduction = how}); }},
             {"huber",
              [&](const In& in) {
                return huber_loss(in[0], target, {.reduction = how, .delta = 0.8});
              }},
             {"smooth_l1",
              [&](const In& in) {
                return smooth_l1_loss(in[0], target, {.reduction = how, .beta = 0.5});
              }},
             {"bce_logits",
              [&](const In& in) {
                return binary_cross_entropy_with_logits(in[0], probability, {.reduction = how});
              }},
             {"bce_logits_weighted",
              [&](const In& in) {
                return binary_cross_entropy_with_logits(
                    in[0], probability,
                    {.weight = weight, .reduction = how, .pos_weight = tensor({3., 1., 0.1})});
              }},
             {"kl", [&](const In& in) { return kl_div(in[0], probability, {.reduction = how}); }},
             {"kl_log",
              [&](const In& in) {
                return kl_div(in[0], target, {.reduction = how, .log_target = true});
              }},
             {"nll", [&](const In& in) { return nll_loss(in[0], classes, {.reduction = how}); }},
             {"nll_weighted",
              [&](const In& in) {
                return nll_loss(in[0], classes, {.weight = weight, .reduction = how});
              }},
             {"ce_smooth",
              [&](const In& in) {
                return cross_entropy(in[0], classes, {.reduction = how, .label_smoothing = 0.2});
              }},
             {"ce_smooth_weighted",
              [&](const In& in) {
                return cross_entropy(in[0], classes,
                                     {.weight = weight, .reduction = how, .label_smoothing = 0.2});
              }},
             {"ce_probabilities", [&](const In& in) {
                return cross_entropy(in[0], probability,
                                     {.weight = weight, .reduction = how, .label_smoothing = 0.2});
              }}})
      compare(name + "_" + how, f, {"logits"}, 2e-6, 2e-7);
  compare(
      "bce_mean", [](const In& in) { return binary_cross_entropy(in[0], in[1]); },
      {"likely", "probability"}, 2e-6, 2e-7);
  compare(
      "bce_certain",
      [](const In& in) {
        return binary_cross_entropy(in[0], tensor({0., 1., 1., 0.}), {.reduction = "none"});
      },
      {"certain"}, 1e-6);
  compare(
      "kl_batchmean",
      [&](const In& in) { return kl_div(in[0], probability, {.reduction = "batchmean"}); },
      {"logits"}, 2e-6, 2e-7);
  const Tensor many = tensor({{{0, 1}, {2, 1}}, {{-100, 2}, {0, 0}}});
  compare(
      "ce_volume",
      [&](const In& in) { return cross_entropy(in[0], many, {.label_smoothing = 0.1}); },
      {"volume"}, 2e-6, 1e-7);
  compare(
      "nll_volume", [&](const In& in) { return nll_loss(in[0], many, {.weight = weight}); },
      {"volume"}, 2e-6, 1e-7);
}

TEST_CASE("layers agree with PyTorch") {
  const double rtol = 1e-5, atol = 2e-6;  // sums of some hundred float32 products
  const std::vector<std::string> parts = {"image", "kernels", "offsets"};
  compare(
      "conv2d",
      [](const In& in) {
        return conv2d(in[0], in[1], in[2],
                      {.stride = {2, 1}, .padding = {1, 2}, .dilation = {2, 1}, .groups = 2});
      },
      parts, rtol, atol);
  const Tensor image = golden().at("image"), kernels = golden().at("kernels");
  CHECK(difference(conv2d(image.slice(1, 0, 2), kernels), golden().at("conv2d_plain.y"), rtol,
                   atol) == "");
  CHECK(
      difference(conv1d(image[0].reshape({1, 4, 42}), kernels.select(3, 0), golden().at("offsets"),
                        {.stride = 2, .padding = 1, .dilation = 2, .groups = 2}),
                 golden().at("conv1d.y"), rtol, atol) == "");
  for (const auto& [name, f] : std::map<std::string, Function>{
           {"max_pool2d",
            [](const In& in) {
              return max_pool2d(in[0], {3, 2}, {.stride = {2, 1}, .padding = 1});
            }},
           {"max_pool2d_plain", [](const In& in) { return max_pool2d(in[0], 2); }},
           {"max_pool2d_dilated",
            [](const In& in) { return max_pool2d(in[0], 2, {.stride = 1, .dilation = 2}); }},
           {"avg_pool2d",
            [](const In& in) {
              return avg_pool2d(in[0], {3, 2}, {.stride = {2, 1}, .padding = 1});
            }},
           {"avg_pool2d_inside",
            [](const In& in) {
              return avg_pool2d(in[0], 3, {.stride = 2, .padding = 1, .count_include_pad = false});
            }},
           {"adaptive_avg_pool2d", [](const In& in) {
              return adaptive_avg_pool2d(in[0], {3, 4});
            }}})
    compare(name, f, {"image"}, rtol, atol);
  const Tensor channel = golden().at("channel");
  compare(
      "layer_norm", [](const In& in) { return layer_norm(in[0], {6}, in[1], in[1].detach() + 1); },
      {"image", "offsets"}, rtol, 2e-5);
  compare(
      "group_norm", [](const In& in) { return group_norm(in[0], 2, in[1], in[1].detach() + 1); },
      {"image", "channel"}, rtol, 2e-5);
  compare(
      "batch_norm",
      [](const In& in) {
        return batch_norm(in[0], Tensor(), Tensor(), in[1], in[1].detach() + 1, {.training = true});
      },
      {"image", "channel"}, rtol, 2e-5);
  compare(
      "batch_norm_used",
      [&](const In& in) {
        return batch_norm(in[0], channel, channel + 2, in[1], in[1].detach() + 1);
      },
      {"image", "channel"}, rtol, 2e-5);
  const Tensor mean = zeros({4}), var = ones({4});
  static_cast<void>(
      batch_norm(image, mean, var, Tensor(), Tensor(), {.training = true, .momentum = 0.3}));
  CHECK(difference(mean, golden().at("running_mean"), rtol, 1e-7) == "");
  CHECK(difference(var, golden().at("running_var"), rtol) == "");
  CHECK(difference(linear(image, kernels.reshape({6, 12}).slice(1, 0, 6), golden().at("offsets")),
                   golden().at("linear.y"), rtol, atol) == "");
}

TEST_CASE("options that are seldom used agree with PyTorch") {
  const double rtol = 1e-5, atol = 2e-6;
  const Tensor image = golden().at("image"), kernels = golden().at("kernels");
  for (const auto& [name, f] : std::map<std::string, Function>{
           {"max_pool2d_ceil",
            [](const In& in) {
              return max_pool2d(in[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true});
            }},
           {"avg_pool2d_ceil",
            [](const In& in) {
              return avg_pool2d(in[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true});
            }},
           {"avg_pool2d_ceil_inside",
            [](const In& in) {
              return avg_pool2d(
                  in[0], {2, 4},
                  {.stride = 3, .padding = 1, .ceil_mode = true, .count_include_pad = false});
            }},
           {"avg_pool2d_divided",
            [](const In& in) { return avg_pool2d(in[0], 2, {.divisor_override = 3}); }}})
    compare(name, f, {"image"}, rtol, atol);
  const PoolOptions ceil{.stride = 2, .padding = 1, .ceil_mode = true};
  CHECK(difference(max_pool2d_with_indices(image, 3, ceil).indices.to(float32),
                   golden().at("max_pool2d_ceil_indices")) == "");
  compare(
      "conv2d_same",
      [](const In& in) {
        return conv2d(in[0], in[1], in[2], {.padding = "same", .dilation = {2, 1}, .groups = 2});
      },
      {"image", "kernels", "offsets"}, rtol, atol);
  CHECK(difference(conv1d(image[0].reshape({1, 4, 42}), kernels.select(2, 0),
                          golden().at("offsets"), {.padding = "same", .dilation = 3, .groups = 2}),
                   golden().at("conv1d_same.y"), rtol, atol) == "");
  compare("embedding_padding",
          [](const In& in) {
            return embedding(tensor({{1, 1}, {0, 2}}), in[0], {.padding_idx = -3});
          },
          {"target"});
  compare(
      "bce_weighted",
      [](const In& in) {
        return binary_cross_entropy(in[0], in[1], {.weight = tensor({1., 2., 0.5})});
      },
      {"likely", "probability"}, 2e-6, 1e-7);
  compare("index_add_alpha",
          [](const In& in) {
            return in[0].index_add(0, tensor({1, 3, 1, 0}), in[1], {.alpha = -0.5});
          },
          {"target", "logits"});
  compare("take_along_line",
          [](const In& in) {
            return take_along_dim(in[0], tensor({{3, 0}, {11, 3}}));
          },
          {"target"});
}

// From PyTorch 1.13. The first window of each image has one element that is not padding.
TEST_CASE("a window of nothing but minus infinity is its first element, also beside padding") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x =
      tensor({1e4, -0.75, 2.25, -infinity, -3., 1e4, -2., 1e4}).reshape({2, 2, 2}).requires_grad_();
  const Tensor weight = tensor({0.25, 0.75, 1.5, 3., 1.5, -1.75, 0.5, 1.25}).reshape({2, 2, 2});
  (max_pool2d(x, 2, {.stride = 1, .padding = 1, .dilation = 2}) * weight).sum().backward();
  CHECK(difference(x.grad(),
                   tensor({3., 1.5, 0.75, 0.25, 1.25, 0.5, -1.75, 1.5}).reshape({2, 2, 2})) == "");
  const Tensor all = full({1, 3, 3}, -infinity);
  CHECK(max_pool2d_with_indices(all, 2, {.stride = 1, .padding = 1})
            .indices.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 0, 1, 2, 0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8});
  // A window of nothing but padding has no element; it stays inside of the image.
  CHECK(max_pool2d_with_indices(zeros({1, 1, 1}), 2, {.stride = 1, .padding = 1, .dilation = 2})
            .indices.item() == 0);
}

TEST_CASE("a mask and numbers in square brackets read and write rows, as in PyTorch") {
  compare("pick_mask", [](const In& in) { return in[0][in[0] > 0]; }, {"target"});
  const Tensor rows = tensor({true, false, true, false}), numbers = tensor({-1, 0});
  compare("pick_rows", [&](const In& in) { return in[0][rows]; }, {"target"});
  compare("pick_numbers",
          [](const In& in) {
            return in[0][tensor({{0, -1}, {2, 0}})];
          },
          {"target"});
  for (const auto& [name, index] :
       {std::pair("place_rows", rows), std::pair("place_numbers", numbers)})
    compare(name,
            [&, index = index](const In& in) {
              const Tensor y = in[0] * 1;
              y[index] = in[1].slice(0, 0, 2);
              return y;
            },
            {"target", "logits"});
  const Tensor x = tensor({1., -2., 3.});
  x[x < 0] = 0;
  CHECK(values(x) == Values{1, 0, 3});
  x[x > 0] *= tensor({2., 10.});
  CHECK(values(x) == Values{2, 0, 30});
  x[tensor({0, -1})] += 1;
  CHECK(values(x) == Values{3, 0, 31});
  x[tensor(1)] = 7;  // one row is a view, as x[1] is
  CHECK(values(x) == Values{3, 7, 31});
  CHECK(x[tensor(1)].shares_storage_with(x));
  auto picked = x[x > 5];
  picked += 1;  // a copy
  CHECK(values(x) == Values{3, 7, 31});
  CHECK(x[tensor(true)].shape() == Shape(1, 3));
  CHECK(x[tensor({false, false, false})].shape() == Shape(0));
  CHECK(std::string((leaf({1., 2.})[tensor({0})]).grad_fn()->name()) == "IndexBackward0");
  const Tensor line = zeros({2});
  line[0] = tensor({{5.}});  // axes of size 1 in front do not count
  CHECK(values(line) == Values{5, 0});
}

TEST_CASE("what can't be picked or placed is refused before anything is written") {
  const Tensor x = zeros({2, 3}), k = zeros({3}, {.dtype = int64});
  const Tensor mask = tensor({true, false, true});
  CHECK(error_of([&] { return x[mask]; }) ==
        "[]: the mask has shape [3], and the tensor begins with [2] at HERE.");
  CHECK(error_of([&] {
          return x[tensor({1, -3})];
        }) ==
        "[]: index -3 is out of range for size 2 at HERE. Hint: "
        "an index is at least 0 and less than 2");
  CHECK(error_of([&] { return x[tensor({1.})]; }) ==
        "[]: the index is float32, not int64 at HERE. Hint: convert with .to(int64)");
  CHECK(error_of([&] { return tensor(1.)[tensor({0})]; }) ==
        "[]: a 0-d tensor has no axis to index at HERE.");
  CHECK(error_of([&] { return k[mask] = 0.5, 0; }) ==
        "[]=: the fraction of 0.5 would be lost in int64 at HERE. Hint: convert first: x = "
        "x.to(float32)");
  CHECK(error_of([&] { return k[mask] = ones({2}), 0; }) ==
        "[]=: a float32 value can't be written into int64 at HERE.");
  CHECK(error_of([&] { return x[tensor({0})] = ones({4}), 0; }).rfind("[]=: [4] can't", 0) == 0);
  CHECK(refused([&] { return leaf({1., 2., 3.})[mask] = 0, 0; }));
  CHECK(values(x) == Values{0, 0, 0, 0, 0, 0});
}

TEST_CASE("a sum, a mean, a product and a norm may be computed in another type") {
  const Tensor x = leaf({1e8, 1., 3.});  // float32 has no 100000001
  CHECK(x.sum({}, {.dtype = float64}).item() == 100000004);
  CHECK(x.mean(0, {.keepdim = true, .dtype = float64}).shape() == Shape(1));
  CHECK(x.cumsum(0, {.dtype = float64})[1].item() == 100000001);
  CHECK(x.prod({}, {.dtype = float64}).dtype() == float64);
  CHECK(tensor({1, 2}).mean({}, {.dtype = float64}).item() == 1.5);
  CHECK(tensor({3, 4}).norm(2, {}, {.dtype = float32}).item() == 5);
  CHECK(tensor({1.5, 2.5}).sum({}, {.dtype = int64}).item() == 3);
  CHECK(tensor({3., 4.}).norm("fro").item() == 5);
  CHECK(tensor({{3., 4.}}).norm("fro", 1, {.keepdim = true}).shape() == Shape(1, 1));
  const Tensor a = leaf({2., 3.});  // the gradients are PyTorch 1.13's
  (a.prod({}, {.dtype = float64}) + a.cumprod(0, {.dtype = float64}).sum() +
   a.norm(3, {}, {.dtype = float64}) + a.mean({}, {.dtype = float64}))
      .backward();
  CHECK(a.grad().dtype() == float32);
  CHECK(difference(a.grad(), tensor({7.87383604, 5.34113121}), 1e-6) == "");
  CHECK(error_of([&] { return x.norm("nuc"); }) ==
        "norm: there is no norm \"nuc\" at HERE. Hint: write \"fro\" or a number");
  CHECK(error_of([&] { return x.sum({}, {.dtype = boolean}); }) ==
        "sum: its result is no bool at HERE. Hint: write any() or all()");
}

TEST_CASE("a clamp may have one bound") {
  const Tensor x = tensor({-1., 0.5, 2.});
  CHECK(values(clamp(x, 0)) == Values{0, 0.5, 2});
  CHECK(values(x.clamp(tensor({0., 1., 1.}))) == Values{0, 1, 2});
  CHECK(values(clamp(x, Tensor(), tensor(1.))) == Values{-1, 0.5, 1});
  CHECK(refused([&] { return x.clamp(Tensor(), Tensor()); }));
}

TEST_CASE("pools and convolutions refuse options that mean nothing") {
  const Tensor x = zeros({1, 4, 4}), w = zeros({1, 1, 3, 3});
  CHECK(error_of([&] { return max_pool2d(x, 2, {.stride = 0}); }) ==
        "max_pool2d: the kernel [2, 2], the stride [0, 0] and the dilation [1, 1] have to be "
        "positive at HERE.");
  CHECK(error_of([&] { return avg_pool2d(x, 2, {.divisor_override = 0}); }) ==
        "avg_pool2d: divisor_override is 0 at HERE.");
  CHECK(error_of([&] { return conv2d(x, w, {.stride = 2, .padding = "same"}); }) ==
        "conv2d: padding \"same\" goes with a stride of 1, not [2, 2] at HERE.");
  CHECK(error_of([&] { return conv2d(x, w, {.padding = "full"}); }) ==
        "conv2d: the padding is \"full\" at HERE. Hint: write \"same\", \"valid\" or a number");
  CHECK(error_of([&] {
          return embedding(tensor({0}), zeros({2, 3}), {.padding_idx = 2});
        }) == "embedding: padding_idx is 2, and the table has 2 rows at HERE.");
  CHECK(conv2d(x, w, {.padding = "valid"}).shape() == Shape(1, 2, 2));
  CHECK(error_of([&] {
          return binary_cross_entropy(x + 0.5, x, {.weight = ones({2, 1, 4, 4})});
        }) ==
        "binary_cross_entropy: the weight [2, 1, 4, 4] does not broadcast to [1, 4, 4] at "
        "HERE.");
}

TEST_CASE("a weight may not make a loss larger, and nothing is divided where there is nothing") {
  const Tensor x = zeros({3}), wide = ones({2, 3});
  CHECK(refused([&] { return binary_cross_entropy_with_logits(x, x, {.weight = wide}); }));
  CHECK(refused([&] { return binary_cross_entropy_with_logits(x, x, {.pos_weight = wide}); }));
  const Tensor none = zeros({0}, {.dtype = int64});
  CHECK(none.fmod(tensor({0})).shape() == Shape(0));  // PyTorch 1.13 as well
  CHECK(none.floor_divide(0).shape() == Shape(0));
}

TEST_CASE("a window of nothing but minus infinity has its first element, and not the padding") {
  const Tensor x = tensor({{{-infinity, 1.}, {2., -infinity}}}, {.requires_grad = true});
  const auto [largest, indices] = max_pool2d_with_indices(x, 2, {.padding = 1});
  CHECK(values(largest) == Values{-infinity, 1, 2, -infinity});
  CHECK(indices.to_vector<int>() == std::vector<int>{0, 1, 2, 3});
  largest.sum().backward();
  CHECK(values(x.grad()) == Values{1, 1, 1, 1});
}

TEST_CASE("every stride, padding, dilation and number of groups convolves as in PyTorch") {
  // Whole numbers, so nothing is rounded: i * m % k - o for element i.
  const auto pattern = [](const Shape& shape, std::int64_t m, std::int64_t k, std::int64_t o) {
    return ((arange(shape.numel()) * m).remainder(k) - o).to(float64).reshape(shape);
  };
  const auto sum = [&](const Tensor& t) {
    return (t * pattern(t.shape(), 31, 17, 8)).sum().item();
  };
  Values sums(
      5);  // of y, its two gradients, and theirs; the first call once, the second twice, ...
  double call = 0;
  for (const int stride : {1, 2, 3})
    for (const int padding : {0, 1, 2})
      for (const int dilation : {1, 2})
        for (const int groups : {1, 2})
          for (const Shape& kernel : {Shape(1, 1), Shape(3, 2), Shape(5, 5)})
            for (const int n : {1, 19}) {
              const Tensor x = pattern({n, 4, 13, 11}, 37, 11, 5).requires_grad_();
              const Tensor w = pattern({6, 4 / groups, kernel[0], kernel[1]}, 53, 7, 3);
              w.requires_grad_();
              const Tensor y = conv2d(
                  x, w,
                  {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups});
              const auto g =
                  grad({y}, {x, w},
                       {.create_graph = true, .grad_outputs = {pattern(y.shape(), 29, 13, 6)}});
              const auto gg = grad({g[0].square().sum() + g[1].square().sum()}, {x, w});
              ++call;
              for (const auto& [i, t] : std::map<std::size_t, Tensor>{
                       {0, y}, {1, g[0]}, {2, g[1]}, {3, gg[0]}, {4, gg[1]}})
                sums[i] += call * sum(t);
            }
  // PyTorch 1.13, the same loops with torch.nn.functional.conv2d and torch.autograd.grad.
  CHECK(sums == Values{-1827197, 15739011, 588647, 2655549896, -2548125402});
}

TEST_CASE("images are convolved a few at a time, and it does not show") {
  for (const Shape& kernel : {Shape(4, 1, 5, 5), Shape(4, 2, 1, 1)}) {
    const Tensor x = rand({35, 2, 33, 31}, {.dtype = float64, .requires_grad = true});
    const Tensor w = rand(kernel, {.dtype = float64, .requires_grad = true});
    const ConvOptions options = {.groups = 2 / kernel[1]};
    const Tensor y = conv2d(x, w, options), dy = rand(y.shape(), {.dtype = float64});
    const auto whole = grad({y}, {x, w}, {.grad_outputs = {dy}});
    Tensor dw = zeros(kernel, {.dtype = float64});
    for (std::int64_t i = 0; i < x.size(0); ++i) {
      const Tensor alone = conv2d(x.slice(0, i, i + 1), w, options);
      const auto parts = grad({alone}, {x, w}, {.grad_outputs = {dy.slice(0, i, i + 1)}});
      CHECK(difference(y[i], alone[0], 1e-12) == "");
      CHECK(difference(whole[0][i], parts[0][i], 1e-12) == "");
      dw += parts[1];
    }
    CHECK(difference(whole[1], dw, 1e-12) == "");
  }
}

TEST_CASE("the first NaN of a window is its largest element, and else the first of equal ones") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = tensor({{{1., nan, 3., 3.}, {nan, 2., 0., 3.}}});
  const auto [largest, indices] = max_pool2d_with_indices(x, 2);
  CHECK(std::isnan(largest[0][0][0].item()));
  CHECK(largest[0][0][1].item() == 3);
  CHECK(indices.to_vector<int>() == std::vector<int>{1, 2});
  max_pool2d(x, 1).zero_();  // it has memory of its own
  CHECK(x[0][0][0].item() == 1);
}

TEST_CASE(
    "a part of what a pool has made may be written, and the rest keeps its gradient") {  // by hand
  const Tensor x = leaf({1., 2., 3., 4.}), y = max_pool2d(x.reshape({2, 1, 1, 2}), 1);
  y[0] = 0;
  (y * tensor({5., 6., 7., 8.}).reshape({2, 1, 1, 2})).sum().backward();
  CHECK(values(x.grad()) == Values{0, 0, 7, 8});
}

TEST_CASE("class numbers become rows with a one") {
  CHECK(difference(one_hot(tensor({2, 0})), tensor({{0, 0, 1}, {1, 0, 0}})) == "");
  CHECK(one_hot(tensor(1), 3).to_vector<int>() == std::vector<int>{0, 1, 0});
  CHECK(one_hot(zeros({2, 0}, {.dtype = int64}), 4).shape() == Shape(2, 0, 4));
}

TEST_CASE("layers take images without a batch, and batches without an image") {
  const Tensor x = rand({3, 5, 5}), w = rand({4, 3, 3, 3});
  CHECK(difference(conv2d(x, w), conv2d(x.unsqueeze(0), w)[0]) == "");
  CHECK(max_pool2d(x, 2).shape() == Shape(3, 2, 2));
  CHECK(conv2d(zeros({0, 3, 5, 5}), w).shape() == Shape(0, 4, 3, 3));
  CHECK(conv1d(zeros({3, 5}), zeros({2, 3, 2})).shape() == Shape(2, 4));
}

TEST_CASE("a causal mask is aligned at the top left, and a blind query gets 0") {
  const Tensor q = rand({2, 3}), k = rand({4, 3}), v = rand({4, 2});
  const Tensor y = scaled_dot_product_attention(q, k, v, {.is_causal = true});
  CHECK(difference(y[0], v[0], 1e-6) == "");
  const Tensor mask = full({2, 4}, -infinity);
  CHECK(difference(scaled_dot_product_attention(q, k, v, {.attn_mask = mask}), zeros({2, 2})) ==
        "");
}

// ---- Picking, placing, and shapes ---------------------------------------------------------------

TEST_CASE("picking, placing and shapes agree with PyTorch") {
  for (const auto& [name, f] : std::map<std::string, Tensor (*)(const Tensor&)>{
           {"index_select",
            [](const Tensor& a) {
              return a.index_select(1, tensor({2, 0, 2}));
            }},
           {"take_along_dim",
            [](const Tensor& a) {
              return take_along_dim(a, tensor({{{3}, {0}, {1}}}), 2);
            }},
           {"scatter",
            [](const Tensor& a) {
              return a.scatter(2, tensor({{{3, 1}, {0, 2}, {1, 0}}}),
                               a.slice(0, 1).slice(2, 0, 2) + 100);
            }},
           {"scatter_number",
            [](const Tensor& a) {
              return a.scatter(0, tensor({{{1, 0, 1, 0}}}), -1);
            }},
           {"scatter_add",
            [](const Tensor& a) {
              return a.scatter_add(1, tensor({{{2, 2, 0, 1}, {2, 0, 0, 1}}}),
                                   a.slice(0, 1).slice(1, 0, 2) * 2);
            }},
           {"index_add",
            [](const Tensor& a) {
              return a.index_add(1, tensor({0, 0}), a.slice(1, 1));
            }},
           {"masked_fill", [](const Tensor& a) { return a.masked_fill(a > 10, -1); }},
           {"masked_select",
            [](const Tensor& a) {
              return masked_select(a, tensor({true, false, false, true}));
            }},
           {"movedim", [](const Tensor& a) { return a.movedim(0, 2); }},
           {"movedims",
            [](const Tensor& a) {
              return movedim(a, {0, 1}, {-1, 0});
            }},
           {"expand_as", [](const Tensor& a) { return a.slice(0, 0, 1).expand_as(a); }},
           {"broadcast_to",
            [](const Tensor& a) {
              return broadcast_to(a[0][0], {2, 4});
            }},
           {"repeat", [](const Tensor& a) { return a.repeat(2, 1, 1, 2); }},
           {"split", [](const Tensor& a) { return split(a, 2, 1)[1]; }},
           {"split_sizes",
            [](const Tensor& a) {
              return split(a, {1, 3}, 2)[1];
            }},
           {"chunk", [](const Tensor& a) { return chunk(a, 3, 2)[1]; }},
           {"unbind", [](const Tensor& a) { return unbind(a, 2)[1]; }},
           {"flip", [](const Tensor& a) { return flip(a, {0, 2}); }},
           {"roll", [](const Tensor& a) { return roll(a, 5); }},
           {"roll_axes", [](const Tensor& a) { return roll(a, {1, -1}, {1, 2}); }},
           {"tril", [](const Tensor& a) { return tril(a); }},
           {"tril_below", [](const Tensor& a) { return tril(a, -1); }},
           {"triu", [](const Tensor& a) { return triu(a, 1); }},
           {"pad", [](const Tensor& a) { return pad(a, {1, 2}); }},
           {"pad_crop", [](const Tensor& a) { return pad(a, {-1, 1, 1, -2, 0, 1}, 5); }},
           {"diagonal", [](const Tensor& a) { return diagonal(a); }},
           {"diagonal_far", [](const Tensor& a) { return a.diagonal(-1, 2, 1); }},
           {"diagonal_none", [](const Tensor& a) { return a.diagonal(7, 1, 2); }},
           {"unflatten", [](const Tensor& a) { return unflatten(a, 2, {2, -1}); }},
           {"unfold", [](const Tensor& a) { return a.unfold(2, 3, 1); }},
           {"unfold_step", [](const Tensor& a) { return a.unfold(1, 1, 2); }}})
    compare(name + "_grid", [&, f = f](const In& in) { return f(in[0]); }, {"grid"});
}

TEST_CASE("views are views where PyTorch gives views, and copies are copies") {
  const Tensor x = zeros({2, 3, 4});
  for (const Tensor& view :
       {x.diagonal(), x.unfold(2, 2, 1), x.movedim(0, 1), x.unflatten(2, {2, 2}), x.expand_as(x),
        split(x, 2, 2)[1], chunk(x, 2, 1)[1], unbind(x)[1]}) {
    CHECK(view.is_view());
    CHECK(view.shares_storage_with(x));
  }
  for (const Tensor& copy :
       {x.flip(0), x.roll(0), x.roll(1, 0), x.repeat({1, 1, 1}), x.tril(), pad(x, {0, 0}),
        x.masked_fill(x > 1, 0), x.index_select(0, tensor({0, 1}))})
    CHECK_FALSE(copy.shares_storage_with(x));
  x.diagonal(0, 1, 2) += 1;
  CHECK(x.sum().item() == 6);
  x.unbind(0)[1].fill_(0);
  CHECK(x.sum().item() == 3);
}

TEST_CASE("a part that is wholly taken keeps the name of its own operation") {
  const Tensor x = leaf({1., 2.}) * 2;
  static_cast<void>(x.roll(0));
  static_cast<void>(x.repeat({1}));
  CHECK(std::string(x.grad_fn()->name()) == "MulBackward0");
}

TEST_CASE("the last part has what is left, and there are as many parts as fit") {
  const Tensor x = arange(7);
  CHECK(split(x, 3).size() == 3);
  CHECK(split(x, 3)[2].to_vector<int>() == std::vector<int>{6});
  CHECK(chunk(x, 4).size() == 4);
  CHECK(chunk(x, 5).size() == 4);  // parts of 2, as PyTorch
  CHECK(chunk(x, 9).size() == 7);
  CHECK(split(zeros({0, 2}), 3).size() == 1);
  CHECK(chunk(zeros({0, 2}), 3).size() == 3);  // PyTorch 1.13: three of [0, 2]
  CHECK(chunk(zeros({0, 2}), 3)[2].shape() == Shape(0, 2));
  CHECK(unbind(zeros({0, 2})).empty());
}

TEST_CASE("cat passes over what has the shape [0], as PyTorch does") {
  const Tensor nothing = tensor({}, {.dtype = float64, .requires_grad = true});
  const Tensor x = leaf({{1., 2.}});
  const Tensor y = cat({nothing, x, nothing, x}, 1);
  CHECK(difference(y, tensor({{1., 2., 1., 2.}}, {.dtype = float64})) == "");
  (y * tensor({1., 2., 3., 4.})).sum().backward();
  CHECK(values(x.grad()) == Values{4, 6});
  CHECK(nothing.grad().shape() == Shape(0));
  CHECK(cat({nothing, nothing}).shape() == Shape(0));
  CHECK(cat({nothing}, 1).shape() == Shape(0));
  CHECK(refused([&] { return cat({x, zeros({0, 1})}, 1); }));
}

TEST_CASE("a softmax takes floats, as in PyTorch") {
  for (const std::string op : {"softmax", "log_softmax"})
    CHECK(error_of([&] {
            return op == "softmax" ? tensor({1, 2}).softmax(0) : tensor({1, 2}).log_softmax(0);
          }) == op + ": it takes floats, not int64 at HERE. Hint: convert with .to(float32)");
}

TEST_CASE("places may be of any type, and a mask may be of another shape") {
  CHECK(tensor({1, 2, 3}).scatter(0, tensor({2}), 9).to_vector<int>() == std::vector<int>{1, 2, 9});
  CHECK(tensor({true, true}).scatter(0, tensor({1}), false).to_vector<int>() ==
        std::vector<int>{1, 0});
  CHECK(zeros({2, 2}).masked_fill(tensor({true, false}), tensor(3.0)).sum().item() == 6);
  CHECK(tensor({1., 2.}).masked_select(tensor({{true, false}, {true, true}})).numel() == 3);
  CHECK(tensor({1., 2.}).masked_select(tensor({false})).shape() == Shape(0));
  CHECK(tensor(5.0).scatter(0, tensor(0), 6).item() == 6);
  CHECK(ones({2, 2}, {.dtype = boolean}).tril().dtype() == boolean);
  CHECK(ones({2, 2}, {.dtype = int64}).triu().to_vector<int>() == std::vector<int>{1, 1, 0, 1});
}

// ---- Zeros --------------------------------------------------------------------------------------

TEST_CASE("a zero keeps its sign where IEEE 754 says so") {
  const auto negative = [](const Tensor& x) { return std::signbit(x.item<float>()); };
  const Tensor zero = tensor(0.0), minus = tensor(-0.0);
  CHECK(negative(-zero));
  CHECK(negative(minus));
  CHECK(negative(minus + minus));
  CHECK_FALSE(negative(minus + zero));
  CHECK(negative(minus * 1));
  CHECK(negative(zero / -1));
  CHECK(negative(sqrt(minus)));
  CHECK_FALSE(negative(abs(minus)));
  CHECK(negative(minus.clone()));
  CHECK(negative(minus.to(float64)));
  CHECK((1 / minus).item() == -infinity);
}

// ---- Tensors without elements, and without axes -------------------------------------------------

TEST_CASE("operations on nothing give nothing, of the right shape") {
  const Tensor x = zeros({2, 0, 3}, {.requires_grad = true});
  CHECK((x + 1).shape() == Shape(2, 0, 3));
  CHECK((x * zeros({3})).shape() == Shape(2, 0, 3));
  CHECK((x + zeros({1, 1, 1})).shape() == Shape(2, 0, 3));
  CHECK(x.exp().shape() == Shape(2, 0, 3));
  CHECK((x > 0).shape() == Shape(2, 0, 3));
  CHECK(x.reshape({0}).shape() == Shape(0));
  CHECK(x.transpose(0, 2).shape() == Shape(3, 0, 2));
  CHECK(x.sum(0).shape() == Shape(0, 3));
  CHECK(difference(x.sum(1).detach(), zeros({2, 3})) == "");
  CHECK(x.softmax(1).shape() == Shape(2, 0, 3));
  CHECK(x.max(2).values.shape() == Shape(2, 0));
  CHECK(refused([] { return zeros({2}) + zeros({0}); }));
  (x * 2).sum().backward();
  CHECK(x.grad().shape() == Shape(2, 0, 3));
}

TEST_CASE("reductions of nothing give their neutral element") {
  const Tensor x = zeros({0});
  CHECK(x.sum().item() == 0);
  CHECK(std::isnan(x.mean().item()));
  CHECK(difference(zeros({2, 0}).matmul(zeros({0, 3})), zeros({2, 3})) == "");
  CHECK(mse_loss(x, x).shape() == Shape());
}

TEST_CASE("a 0-d tensor takes part in every operation") {
  const Tensor x = leaf(2.0);
  CHECK((x + 1).shape() == Shape());
  CHECK((x + zeros({3})).shape() == Shape(3));
  CHECK(x.sum().item() == 2);
  CHECK(x.sum({-1}).item() == 2);
  CHECK(x.mean({0}, {.keepdim = true}).shape() == Shape());
  CHECK(x.max(0).values.item() == 2);
  CHECK(x.max(0).indices.item() == 0);
  CHECK(x.argmax(-1).item() == 0);
  CHECK(x.softmax(0).item() == 1);
  CHECK(x.reshape({1}).shape() == Shape(1));
  CHECK(x.t().item() == 2);
  CHECK(x.gather(0, tensor(0)).item() == 2);
  CHECK(where(x > 1, x, 0).item() == 2);
  CHECK(cross_entropy(leaf({1., 1.}), tensor(1)).item() == Approx(std::log(2.0)));
}

TEST_CASE("indices of extremes point at the first of equals, and at the first NaN") {
  const Tensor x = tensor({{1., 5., 5.}, {not_a_number, 9., not_a_number}});
  CHECK(x.max(1).indices.to_vector<int>() == std::vector<int>{1, 0});
  CHECK(x.min(1).indices.to_vector<int>() == std::vector<int>{0, 0});
  CHECK(x.argmax(1, {.keepdim = true}).shape() == Shape(2, 1));
  CHECK(tensor({3, 1, 3}).max(0).indices.item() == 0);
  CHECK(tensor({true, false}).min(0).indices.item() == 1);
}

// ---- Integers and bools -------------------------------------------------------------------------

TEST_CASE("integers keep all their bits") {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  CHECK((tensor(large) + 0).item<std::int64_t>() == large);
  CHECK((tensor({large, std::int64_t{1}}).sum() - 1).item<std::int64_t>() == large);
  CHECK(tensor({large}).max().item<std::int64_t>() == large);
  CHECK((tensor(large) == large).item<bool>());
  CHECK_FALSE((tensor(large) == large - 1).item<bool>());
  CHECK(full({2}, large)[1].item<std::int64_t>() == large);
  CHECK(arange(large, large + 2)[1].item<std::int64_t>() == large + 1);
  CHECK(tensor({3, -3, 0}).pow(3).to_vector<int>() == std::vector<int>{27, -27, 0});
  CHECK(tensor({2}).pow(tensor({-1})).item() == 0);
}

TEST_CASE("integer matrix products and comparisons are exact") {
  const Tensor a = arange(6).reshape({2, 3});
  CHECK(a.matmul(a.t()).to_vector<int>() == std::vector<int>{5, 14, 14, 50});
  CHECK((a >= 3).sum().item() == 3);
  CHECK((-a).abs().sum().item() == 15);
  CHECK(a.relu().sum().item() == 15);
  CHECK((a - 3).sign().to_vector<int>() == std::vector<int>{-1, -1, -1, 0, 1, 1});
}

TEST_CASE("logic of bools") {
  const Tensor a = tensor({true, true, false, false}), b = tensor({true, false, true, false});
  CHECK((a & b).to_vector<int>() == std::vector<int>{1, 0, 0, 0});
  CHECK((a | b).to_vector<int>() == std::vector<int>{1, 1, 1, 0});
  CHECK((a ^ b).to_vector<int>() == std::vector<int>{0, 1, 1, 0});
  CHECK((~a).to_vector<int>() == std::vector<int>{0, 0, 1, 1});
  CHECK((a & true).to_vector<int>() == std::vector<int>{1, 1, 0, 0});
  CHECK((a + b).to_vector<int>() == std::vector<int>{1, 1, 1, 0});
  CHECK((a * b).to_vector<int>() == std::vector<int>{1, 0, 0, 0});
  CHECK(maximum(a, b).to_vector<int>() == std::vector<int>{1, 1, 1, 0});
}

// ---- SGD ----------------------------------------------------------------------------------------

// The weight after each step of torch.optim.SGD from 1.0 with the gradients 1, 2, -1.
TEST_CASE("SGD takes PyTorch's steps") {
  struct Case {
    optim::SGDOptions options;
    Values weights;
  };
  for (const Case& one :
       std::vector<Case>{{{.lr = 0.1}, {0.9, 0.7, 0.8}},
                         {{.lr = 0.1, .momentum = 0.9}, {0.9, 0.61, 0.449}},
                         {{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
                          {0.89, 0.68655, 0.55001225}},
                         {{.lr = 0.1, .momentum = 0.9, .nesterov = true}, {0.81, 0.349, 0.3041}}}) {
    const Tensor w = leaf(1.0, float64);
    optim::SGD optimizer({w}, one.options);
    Values weights;
    for (double gradient : {1.0, 2.0, -1.0}) {
      optimizer.zero_grad();
      (w * gradient).backward();
      optimizer.step();
      weights.push_back(w.item());
    }
    CHECK(difference(tensor(weights), tensor(one.weights), 1e-6) == "");
  }
}

TEST_CASE("SGD leaves a weight without a gradient alone, and its rate can be changed") {
  const Tensor w = leaf(1.0), unused = leaf(5.0);
  optim::SGD optimizer({w, unused}, {.lr = 0.1});
  (w * 2).backward();
  optimizer.lr() = 0.5;
  optimizer.step();
  CHECK(w.item() == 0);
  CHECK(unused.item() == 5);
  CHECK(w.is_leaf());
  optimizer.zero_grad();
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("what conv2d makes can be viewed, with a bias and without") {
  const Tensor x = ones({2, 1, 3, 3}), weight = ones({2, 1, 2, 2});
  CHECK(conv2d(x, weight).view(2, -1).shape() == Shape(2, 8));
  CHECK(conv2d(x, weight, ones({2})).view(2, -1).shape() == Shape(2, 8));
  CHECK(conv1d(x.select(1, 0), ones({2, 3, 2})).view(2, -1).shape() == Shape(2, 4));
}

// PyTorch 1.13: F.huber_loss and F.smooth_l1_loss, their gradients, and for (0, 0) the second one.
TEST_CASE("huber_loss and smooth_l1_loss are straight far away, also at infinity") {
  const Values there = {infinity, -infinity, not_a_number, 3, 0.25, 0};
  for (const bool huber : {true, false}) {
    const Tensor x = tensor(there, {.dtype = float64, .requires_grad = true});
    const Tensor target = zeros({6}, {.dtype = float64});
    const Tensor y = huber ? huber_loss(x, target, {.reduction = "sum", .delta = 0.5})
                           : smooth_l1_loss(x, target, {.reduction = "sum", .beta = 0.5});
    const double slope = huber ? 0.5 : 1;
    y.backward({.create_graph = true});
    const Tensor g = x.grad();
    x.zero_grad();
    CHECK(difference(g.detach(), tensor({slope, -slope, not_a_number, slope, slope / 2, 0.},
                                        {.dtype = float64})) == "");
    CHECK(grad({g[5]}, {x})[0][5].item() == slope * 2);
  }
}

TEST_CASE("kl_div of single numbers, and of targets that are no probabilities") {
  const Tensor input = tensor(-1.0, {.dtype = float64}), target = tensor(0.5, {.dtype = float64});
  CHECK(kl_div(input, target, {.reduction = "batchmean"}).item() ==
        Approx(0.5 * std::log(0.5) + 0.5));
  const Tensor row = ones({1, 2}), rows = ones({3, 2});  // the batch is the input's
  CHECK(kl_div(row, rows, {.reduction = "batchmean"}).item() == -6);
  CHECK(kl_div(input, target * 0).item() == 0);
  CHECK(std::isnan(kl_div(input, -target).item()));
}

TEST_CASE("bools are padded and filled with 0 and 1 as well as with false and true") {
  const Tensor mask = tensor({true, false});
  CHECK(pad(mask, {1, 1}).to_vector<bool>() == std::vector<bool>{false, true, false, false});
  CHECK(pad(mask, {1, 0}, 1).to_vector<bool>() == std::vector<bool>{true, true, false});
  CHECK(mask.masked_fill(mask, 0).to_vector<bool>() == std::vector<bool>{false, false});
  CHECK(refused([&] { return pad(mask, {1, 1}, 2); }));
  CHECK(refused([&] { return mask.masked_fill(mask, 2); }));
}

TEST_CASE("what PyTorch refuses because it means nothing is refused") {
  CHECK(refused([] { return group_norm(ones({1, 2, 1}), 2); }));
  CHECK_FALSE(refused([] { return group_norm(ones({2, 2, 1}), 2); }));
  const Tensor x = ones({2, 3});
  CHECK(refused([&] { return cross_entropy(x, x, {.ignore_index = 0}); }));
  CHECK(refused([&] { return cross_entropy(x, x, {.weight = ones({2})}); }));
  CHECK_FALSE(refused([&] { return cross_entropy(x, x, {.weight = ones({3})}); }));
  CHECK(refused([] { return arange(0.5, 2.5, -3); }));
  CHECK(arange(2, 2, -3).numel() == 0);
}

}  // namespace

// With gradients it is composed of five operations; without, rows of float32 go in one. Both are
// asked for the very same bits, so that no result depends on whether somebody records.
TEST_CASE("a softmax is the same with and without gradients, bit by bit") {
  const auto same = [](const Tensor& a, const Tensor& b) {
    const Tensor x = a.detach().contiguous(), y = b.contiguous();
    return x.shape() == y.shape() &&
           std::memcmp(x.data<float>(), y.data<float>(),
                       static_cast<std::size_t>(x.numel()) * sizeof(float)) == 0;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  manual_seed(3);
  for (const std::int64_t n : {1, 15, 16, 31, 32, 33, 63, 64, 65, 100, 1000, 1027})
    for (const double scale : {1., 30., 1000.}) {
      const Tensor x = randn({3, 5, n}) * scale;
      x.slice(0, 0, 1) = -infinity;
      x.slice(0, 0, 1).slice(-1, 0, 1) = 2;
      const Tensor recorded = x.detach().requires_grad_();
      CAPTURE(n, scale);
      CHECK(same(recorded.softmax(-1), x.softmax(-1)));
      CHECK(same(recorded.log_softmax(-1), x.log_softmax(-1)));
      CHECK(same(recorded.transpose(0, 2).softmax(0), x.transpose(0, 2).softmax(0)));
      CHECK(same(recorded.transpose(0, 1).log_softmax(2), x.transpose(0, 1).log_softmax(2)));
    }
  const double not_a_number = std::numeric_limits<double>::quiet_NaN();
  const auto other_nan = static_cast<double>(formula::float_of(0x7fc00001));
  for (const double odd : {infinity, not_a_number, other_nan}) {  // one takes its row with it
    const Tensor x = zeros({2, 100});
    x.select(0, 1).select(0, 77) = odd;
    for (const Tensor& y : {x.softmax(1), x.log_softmax(1)})
      CHECK(y.isnan().sum(1).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 100});
  }
  CHECK(full({40}, -infinity).softmax(0).isnan().all().item<bool>());
}

// Where x log2(e) is a whole number and a half, as it is in float32 for some x, they have to round
// it to the same one.
TEST_CASE("the three forms of the exponential give the same bits") {
  for (int k = -126; k < 150; ++k) {
    float x = static_cast<float>(-(k + 0.5) * 0.69314718055994531);
    for (int i = 0; i < 4; ++i) x = std::nextafter(x, 200.f);
    for (int i = 0; i < 9; ++i, x = std::nextafter(x, -200.f)) {
      CAPTURE(x);
      const std::uint32_t bits = formula::bits_of(formula::fast_exp(x));
      if (x <= 0) CHECK(formula::bits_of(formula::fast_exp_below_0(x)) == bits);
      if (formula::Exp::usual(x)) CHECK(formula::bits_of(formula::fast_exp_usual(x)) == bits);
    }
  }
}

// One number that is not usual decides which formula the others of its piece meet.
TEST_CASE("exp and sigmoid of a number do not depend on its neighbours") {
  const Tensor x = linspace(-80, 80, 1200);
  for (double far : {-infinity, -90.0, 90.0, std::nan("")}) {
    CAPTURE(far);
    const Tensor with = x.clone();
    with[600].fill_(far);
    for (const auto& f : {exp, sigmoid}) {
      const Tensor a = f(x, mt::Loc::here()), b = f(with, mt::Loc::here());
      CHECK(difference(b.slice(0, 0, 600), a.slice(0, 0, 600)) == "");
      CHECK(difference(b.slice(0, 601, 1200), a.slice(0, 601, 1200)) == "");
    }
  }
  // (The sum of a softmax meets its numbers in another order.)
  const Tensor row = linspace(-60, 0, 1200), masked = cat({row, full({8}, -infinity)});
  CHECK(difference(masked.softmax(0).slice(0, 0, 1200), row.softmax(0), 1e-6) == "");
}

TEST_CASE("powers that are roots or reciprocals are so at the ends, too") {  // as PyTorch 1.13's
  for (DType dtype : {float32, float64}) {
    const Tensor x = tensor({-0.0, -INFINITY, 4.0}, {.dtype = dtype});
    const Tensor root = x.pow(0.5), inverse_root = x.pow(-0.5), inverse = x.pow(-1),
                 cube = x.pow(3);
    CHECK((root[0].item() == 0 && std::signbit(root[0].item())));
    CHECK(std::isnan(root[1].item()));
    CHECK(root[2].item() == 2);
    CHECK(inverse_root[0].item() == -INFINITY);
    CHECK(std::isnan(inverse_root[1].item()));
    CHECK(inverse_root[2].item() == 0.5);
    CHECK(inverse[0].item() == -INFINITY);
    CHECK((inverse[1].item() == 0 && std::signbit(inverse[1].item())));
    CHECK(inverse[2].item() == 0.25);
    CHECK((cube[0].item() == 0 && std::signbit(cube[0].item())));
    CHECK(cube[1].item() == -INFINITY);
    CHECK(cube[2].item() == 64);
  }
}

TEST_CASE("odd functions keep the sign of 0") {  // by hand
  const Tensor x = tensor({0., -0.});
  for (const Tensor& y : {x.erf(), x.tanh(), x.sin(), x.tan(), x.asin(), x.atan(), x.sinh(),
                          x.expm1(), x.log1p(), x.to(float64).erf()}) {
    CHECK(y.to_vector() == std::vector<double>{0, 0});
    CHECK(!std::signbit(y[0].item()));
    CHECK(std::signbit(y[1].item()));
  }
}
