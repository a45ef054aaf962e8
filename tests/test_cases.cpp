// Mistakes that libraries of this kind have made, from public bug reports: one test a case, with
// the number that the case has in our collection. Values are PyTorch's, or plain mathematics.
#include <ctime>

#include "tests/shell.hpp"
#include "tests/tensors.hpp"

namespace {

using namespace mt;
using namespace tensors;

Values gradient_of(const Tensor& x) { return values(x.grad()); }

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// ---- G1: gradients at the edge ------------------------------------------------------------------

TEST_CASE("B001: x^0 is the constant 1, whose gradient is 0 even at 0") {
  const Tensor x = leaf({0., -3., 0.5});
  const Tensor y = pow(x, 0.0);
  y.sum().backward();
  CHECK(values(y) == Values{1, 1, 1});
  CHECK(gradient_of(x) == Values{0, 0, 0});
}

TEST_CASE("B003: a negative base has a real power, and 0^0 is 1 with gradients of 0") {
  const Tensor a = leaf({-2., 0.}), b = leaf({3., 0.});
  const Tensor y = pow(a, b);
  y.sum().backward();
  CHECK(values(y) == Values{-8, 1});
  CHECK(gradient_of(a) == Values{12, 0});
  CHECK(difference(b.grad(), tensor({not_a_number, 0.})) == "");
}

TEST_CASE("B005: sqrt has an infinite slope at 0, and the chain rule does not hide it") {
  const Tensor x = leaf({0., 9.}), x2 = leaf({2., 5.});
  sqrt(x).sum().backward();
  CHECK(difference(x.grad(), tensor({infinity, 1. / 6}), 1e-6) == "");
  sqrt(pow(x2 - 2, 2)).sum().backward();
  CHECK(difference(x2.grad(), tensor({not_a_number, 1.}), 1e-6) == "");
}

TEST_CASE("B006: the norm of zeros has the gradient 0") {
  const Tensor x = leaf({{0., 0.}, {0., 0.}});
  const Tensor y = norm(x);
  y.backward();
  CHECK(y.item() == 0);
  CHECK(gradient_of(x) == Values{0, 0, 0, 0});
}

TEST_CASE("B010: the variance of one number is NaN, and 0 without the correction") {
  const Tensor x = leaf({5.});
  CHECK(std::isnan(var(x).item()));
  const Tensor y = var(x, {.correction = 0});
  y.backward();
  CHECK(y.item() == 0);
  CHECK(gradient_of(x) == Values{0});
}

TEST_CASE("B011: abs and relu have the gradient 0 at their kink, for both zeros") {
  const Tensor x = leaf({0., -0.0, -3., 2.}), x2 = leaf({0., -0.0, -3., 2.});
  const Tensor a = abs(x), b = relu(x2);
  a.sum().backward();
  b.sum().backward();
  CHECK(values(a) == Values{0, 0, 3, 2});
  CHECK(gradient_of(x) == Values{0, 0, -1, 1});
  CHECK(values(b) == Values{0, 0, 0, 2});
  CHECK(gradient_of(x2) == Values{0, 0, 0, 1});
}

TEST_CASE("B013: relu lets a NaN through") {
  const Tensor x = leaf({not_a_number, -1., 2.});
  const Tensor y = relu(x);
  y.sum().backward();
  CHECK(difference(y.detach(), tensor({not_a_number, 0., 2.})) == "");
  CHECK(gradient_of(x) == Values{1, 0, 1});
}

TEST_CASE("B014: the maximum of equal numbers shares its gradient") {
  const Tensor a = leaf({1., 5., -2.}), b = leaf({1., 4., -2.});
  maximum(a, b).sum().backward();
  CHECK(gradient_of(a) == Values{0.5, 1, 0.5});
  CHECK(gradient_of(b) == Values{0.5, 0, 0.5});
}

TEST_CASE("B017: the maximum of a tensor shares its gradient among all that are as large") {
  const Tensor x = leaf({2., 7., 7., 1., 7.});
  max(x).backward();
  CHECK(difference(x.grad(), tensor({0., 1. / 3, 1. / 3, 0., 1. / 3}), 1e-6) == "");
}

TEST_CASE("B018: clamp has the gradient 1 on both of its bounds") {
  const Tensor x = leaf({-1., 0., 0.5, 2., 3.});
  const Tensor y = clamp(x, 0, 2);
  y.sum().backward();
  CHECK(values(y) == Values{0, 0, 0.5, 2, 2});
  CHECK(gradient_of(x) == Values{0, 1, 1, 1, 0});
}

TEST_CASE("B020: a NaN in the branch not taken stays away where the branch is guarded") {
  const Tensor x = leaf({-9., 4.}), x2 = leaf({-9., 4.});
  const Tensor y = where(x > 0, sqrt(x), x);
  CHECK(values(y) == Values{-9, 2});
  y.sum().backward();
  CHECK(gradient_of(x)[1] == 0.25);
  const Tensor safe = where(x2 > 0, x2, 1);
  const Tensor y2 = where(x2 > 0, sqrt(safe), x2);
  y2.sum().backward();
  CHECK(values(y2) == Values{-9, 2});
  CHECK(gradient_of(x2) == Values{1, 0.25});
}

TEST_CASE("B023: division by zero follows IEEE 754, in both gradients too") {
  const Tensor x = leaf({3., 0., -3.}), d = leaf({0., 0., 0.});
  const Tensor y = x / d;
  y.sum().backward();
  CHECK(difference(y.detach(), tensor({infinity, not_a_number, -infinity})) == "");
  CHECK(difference(x.grad(), tensor({infinity, infinity, infinity})) == "");
  CHECK(difference(d.grad(), tensor({-infinity, not_a_number, infinity})) == "");
}

TEST_CASE("B024: softmax gives masked places exactly 0, and a gradient of 0") {
  const Tensor x = leaf({-infinity, 1., 2.}), w = tensor({0., 0., 1.});
  const Tensor y = softmax(x, 0);
  (y * w).sum().backward();
  CHECK(difference(y.detach(), tensor({0., 0.26894143, 0.7310586}), 1e-6, 1e-7) == "");
  CHECK(difference(x.grad(), tensor({0., -0.19661194, 0.19661193}), 1e-6, 1e-7) == "");
}

TEST_CASE("B026: logsumexp of infinite and of large rows") {
  const Tensor x = tensor(
      {{-infinity, -infinity}, {1000., 1000.}, {-1000., -1001.}, {infinity, 1.}, {-infinity, 3.}});
  const Tensor expected = tensor({-infinity, 1000.6932, -999.68677, infinity, 3.});
  CHECK(difference(logsumexp(x, 1), expected, 1e-6) == "");
}

TEST_CASE("B029: log_softmax keeps a small tail to 1e-7") {
  const Tensor y = log_softmax(tensor({0., -17.}), 0);
  CHECK(difference(y, tensor({-4.139937e-08, -17.}), 0, 1e-7) == "");
}

TEST_CASE("B030: cross_entropy of logits of +-2000 stays finite and exact") {
  const Tensor x = leaf({{2000., -2000., 0.}}), x2 = leaf({{2000., -2000., 0.}});
  const Tensor a = cross_entropy(x, tensor({1})), b = cross_entropy(x2, tensor({0}));
  a.backward();
  b.backward();
  CHECK(a.item() == 4000);
  CHECK(gradient_of(x) == Values{1, -1, 0});
  CHECK(b.item() == 0);
  CHECK(gradient_of(x2) == Values{0, 0, 0});
}

TEST_CASE("B031: the binary loss of large logits of both signs") {
  const Tensor x = leaf({-150., 150., 0., 150., -150.});
  const Tensor target = tensor({0., 1., 0.25, 0., 1.});
  const Tensor y = binary_cross_entropy_with_logits(x, target, {.reduction = "none"});
  y.sum().backward();
  CHECK(difference(y.detach(), tensor({0., 0., 0.6931472, 150., 150.}), 1e-6) == "");
  CHECK(difference(x.grad(), tensor({0., 0., 0.25, 1., -1.}), 1e-6, 1e-30) == "");
}

TEST_CASE("B033: sigmoid and tanh saturate without NaN") {
  const Tensor x = leaf({-200., 200., 0.}), x2 = leaf({-60., 60., 0.});
  const Tensor a = sigmoid(x), b = tanh(x2);
  a.sum().backward();
  b.sum().backward();
  CHECK(difference(a.detach(), tensor({0., 1., 0.5}), 0, 1e-30) == "");
  CHECK(difference(x.grad(), tensor({0., 0., 0.25}), 0, 1e-30) == "");
  CHECK(values(b) == Values{-1, 1, 0});
  CHECK(difference(x2.grad(), tensor({0., 0., 1.}), 0, 1e-30) == "");
}

TEST_CASE("B035: log1p and expm1 keep what is tiny") {
  const Tensor x = leaf({1e-8, -3e-9, 1e-20}), x2 = leaf({1e-8, -3e-9, 1e-20});
  const Tensor a = log1p(x), b = expm1(x2);
  a.sum().backward();
  b.sum().backward();
  for (const Tensor& y : {a, b}) CHECK(difference(y.detach(), x.detach(), 1e-6) == "");
  for (const Tensor& leaf : {x, x2}) CHECK(difference(leaf.grad(), ones({3}), 1e-6) == "");
}

TEST_CASE("B036: a product with a zero has the gradient of the others") {
  const Tensor x = leaf({5., 0., -2.});
  const Tensor y = prod(x);
  y.backward();
  CHECK(y.item() == 0);
  CHECK(gradient_of(x) == Values{0, -10, 0});
}

TEST_CASE("B042: activations have second derivatives") {
  struct Row {
    Tensor (*f)(const Tensor&);
    Values first, second;
    double other = 2;
  };
  for (const Row& row : std::vector<Row>{
           {[](const Tensor& x) { return sigmoid(x); },
            {0.24445832, 0.10499363},
            {-0.03639618, -0.07996252}},
           {[](const Tensor& x) { return tanh(x); },
            {0.91513693, 0.070650816},
            {-0.5331819, -0.13621867}},
           {[](const Tensor& x) { return exp(x); }, {1.3498588, 7.389056}, {1.3498588, 7.389056}},
           {[](const Tensor& x) { return log(x); }, {3.3333333, 0.5}, {-11.111111, -0.25}},
           {[](const Tensor& x) { return relu(x); }, {1, 0}, {0, 0}, -2}}) {
    const Tensor x = leaf({0.3, row.other});
    const Tensor first = grad(row.f(x).sum(), x, {.create_graph = true})[0];
    const Tensor sum = first.sum();
    const std::vector<Tensor> found =
        sum.requires_grad() ? grad(sum, std::vector<Tensor>{x}, {.allow_unused = true})
                            : std::vector<Tensor>(1);
    const Tensor second = found[0].defined() ? found[0] : zeros({2});
    CHECK(difference(first.detach(), tensor(row.first), 1e-5) == "");
    CHECK(difference(second, tensor(row.second), 1e-5) == "");
  }
}

TEST_CASE("B044: extremes keep a NaN, whichever operand it is") {
  const Tensor a = tensor({1., not_a_number}), b = tensor({not_a_number, 1.});
  const Tensor x = tensor({2., not_a_number, 9.}), both = tensor({not_a_number, not_a_number});
  CHECK(difference(maximum(a, b), both) == "");
  CHECK(difference(minimum(a, b), both) == "");
  CHECK(std::isnan(max(x).item()));
  CHECK(std::isnan(min(x).item()));
  CHECK(argmax(x, 0).item() == 1);
  CHECK(min(x, 0).indices.item() == 1);
}

// ---- G2: broadcasting and shapes ----------------------------------------------------------------

TEST_CASE("B046: the gradient of a broadcast operand is summed to its own shape") {
  const Tensor a = leaf({2.}), b = leaf({{1., 2., 3.}, {4., 5., 6.}});
  (a * b).sum().backward();
  CHECK(difference(a.grad(), tensor({21.})) == "");
  CHECK(gradient_of(b) == Values{2, 2, 2, 2, 2, 2});
}

TEST_CASE("B049: mse_loss of [N, 1] against [N] warns that it broadcasts") {
  std::ostringstream heard;
  std::streambuf* const before = std::cerr.rdbuf(heard.rdbuf());
  const Tensor p = leaf({{1.}, {2.}, {4.}}), target = tensor({1., 2., 4.});
  const Tensor loss = mse_loss(p, target);
  const std::string line = std::to_string(__LINE__ - 1);
  static_cast<void>(mse_loss(target, target));
  std::cerr.rdbuf(before);
  CHECK(difference(loss.detach(), tensor(3.1111112), 1e-6) == "");
  CHECK(heard.str() ==
        "warning: mse_loss: the shapes [3, 1] and [3] are broadcast to [3, 3] at test_cases.cpp:" +
            line + ". Hint: give both the same shape, with squeeze(-1) or unsqueeze(-1)\n");
}

TEST_CASE("B050: products with vectors have the gradients of their shapes") {
  const Tensor a = leaf({{1., 2., 3.}, {4., 5., 6.}}), v = leaf({1., -1., 2.});
  const Tensor y = matmul(a, v);
  (y * tensor({1., 10.})).sum().backward();
  CHECK(values(y) == Values{5, 11});
  CHECK(gradient_of(a) == Values{1, -1, 2, 10, -10, 20});
  CHECK(gradient_of(v) == Values{41, 52, 63});
  const Tensor u = leaf({1., 2., 3.}), z = leaf({4., -5., 6.});
  const Tensor d = matmul(u, z);
  CHECK(difference(d.detach(), tensor(12.)) == "");
  d.backward();
  CHECK(gradient_of(u) == Values{4, -5, 6});
  CHECK(gradient_of(z) == Values{1, 2, 3});
}

TEST_CASE("B053: a product over an empty axis is zeros, and stays in the graph") {
  const Tensor a = zeros({2, 0}, {.requires_grad = true}),
               b = zeros({0, 3}, {.requires_grad = true});
  const Tensor y = matmul(a, b);
  y.sum().backward();
  CHECK(difference(y.detach(), zeros({2, 3})) == "");
  CHECK(a.grad().shape() == Shape(2, 0));
  CHECK(b.grad().shape() == Shape(0, 3));
}

TEST_CASE("B056: reductions of nothing give the neutral element, extremes are refused") {
  const Tensor x = zeros({0});
  CHECK(sum(x).item() == 0);
  CHECK(std::isnan(mean(x).item()));
  CHECK(refused([&] { return max(x); }));
  CHECK(refused([&] { return min(x); }));
  CHECK(refused([&] { return argmax(x, 0); }));
  CHECK(refused([&] { return argmax(x); }));
  CHECK(prod(x).item() == 1);
}

TEST_CASE("B058: an expanded tensor is not written to") {
  const Tensor x = tensor({3.});
  CHECK(refused([&] { x.expand({4}).mul_(2); }));
  CHECK(values(x) == Values{3});
}

TEST_CASE("B062: view refuses a transposed tensor, reshape copies it in its order") {
  const Tensor x = leaf({{0., 1., 2.}, {3., 4., 5.}});
  CHECK(refused([&] { return x.t().view({6}); }));
  const Tensor y = reshape(x.t(), {6});
  (y * tensor({1., 2., 3., 4., 5., 6.})).sum().backward();
  CHECK(values(y) == Values{0, 3, 1, 4, 2, 5});
  CHECK(gradient_of(x) == Values{1, 3, 5, 2, 4, 6});
}

TEST_CASE("B063: reshape of dense memory is a view, of a transpose a copy") {
  const Tensor x = arange(6.0).reshape({2, 3}), x2 = zeros({2, 3});
  reshape(x, {3, 2})[0][0] = 100;
  const Tensor k = reshape(transpose(x, 0, 1), {6});
  k[0] = -1;
  CHECK(values(x) == Values{100, 1, 2, 3, 4, 5});
  CHECK(k[0].item() == -1);
  transpose(x2, 0, 1)[0].add_(5);
  x2.slice(1, 1, 3).mul_(0).add_(7);
  CHECK(values(x2) == Values{5, 7, 7, 5, 7, 7});
}

TEST_CASE("B064: axes count from the end, within their range") {
  const Tensor x = zeros({2, 3, 4}), s = tensor(3.0);
  CHECK(x.sum(-1).shape() == Shape(2, 3));
  CHECK(x.transpose(-1, -3).shape() == Shape(4, 3, 2));
  CHECK(x.unsqueeze(-1).shape() == Shape(2, 3, 4, 1));
  CHECK(x.unsqueeze(-4).shape() == Shape(1, 2, 3, 4));
  CHECK(x.sum({-1, 0}).shape() == Shape(3));
  CHECK(x.sum({-2}, {.keepdim = true}).shape() == Shape(2, 1, 4));
  CHECK(refused([&] { return x.unsqueeze(-5); }));
  CHECK(refused([&] { return x.sum(3); }));
  CHECK(refused([&] { return x.sum({0, -3}); }));
  CHECK(refused([&] { return s.sum(-2); }));
  CHECK(s.sum(-1).item() == 3);
}

TEST_CASE("B066: the gradient of a squeezed tensor has its shape") {
  const Tensor x = leaf({{5.}});
  const Tensor y = squeeze(x);
  y.backward();
  CHECK(y.shape() == Shape());
  CHECK(difference(x.grad(), tensor({{1.}})) == "");
}

TEST_CASE("B067: squeezing an axis that is not 1 does nothing") {
  const Tensor x = zeros({2, 1, 3});
  CHECK(squeeze(x, 0).shape() == Shape(2, 1, 3));
  CHECK(squeeze(x, -2).shape() == Shape(2, 3));
  CHECK(squeeze(x).shape() == Shape(2, 3));
}

TEST_CASE("B068: sums of bools and integers are int64") {
  CHECK(difference(sum(tensor({true, true, false})), tensor(2)) == "");
  CHECK(difference(sum(full({3}, 2000000000)), tensor(6000000000)) == "");
}

TEST_CASE("B069: the mean of integers is refused, and converts before it sums") {
  const Tensor b = full({2}, 2000000000);
  CHECK(refused([] { return mean(tensor({1, 2})); }));
  CHECK(tensor({1, 2}).to(float32).mean().item() == 1.5);
  CHECK(b.to(float64).mean().item() == 2000000000);
}

TEST_CASE("B070: a quotient of integers is a float, unless it is rounded down or cut") {
  const Tensor q = tensor({-7, 7, -7, 7}), d = tensor({2, -2, -2, 2});
  CHECK(difference(q / d, tensor({-3.5, -3.5, 3.5, 3.5})) == "");
  CHECK(difference(floor_divide(q, d), tensor({-4, -4, 3, 3})) == "");
  CHECK(difference(div(q, d, {.rounding = "trunc"}), tensor({-3, -3, 3, 3})) == "");
  CHECK(difference(remainder(q, d), tensor({1, -1, -1, 1})) == "");
  CHECK(difference(fmod(q, d), tensor({-1, 1, -1, 1})) == "");
}

TEST_CASE("B071: integers divided by zero are an error, and the program goes on") {
  const Tensor a = tensor({1, 2}), b = tensor({0, 1});
  CHECK(refused([&] { return floor_divide(a, b); }));
  CHECK(refused([&] { return remainder(a, b); }));
  CHECK(values(floor_divide(a, b + 1)) == Values{1, 1});
}

TEST_CASE("B075: linspace hits integers and its end") {
  const Tensor y = linspace(0, 14997, 5000);
  CHECK((y - 3 * arange(5000)).abs().max().item() == 0);
  CHECK(y[-1].item() == 14997);
  CHECK(difference(linspace(1, 5, 1), tensor({1.})) == "");
  CHECK(difference(linspace(-1, 1, 5), tensor({-1., -0.5, 0., 0.5, 1.})) == "");
}

TEST_CASE("B077: an element that is picked twice receives both gradients") {
  const Tensor x = leaf({1., 2., 3.});
  const Tensor y = index_select(x, 0, tensor({0, 0, 2}));
  (y * tensor({10., 20., 30.})).sum().backward();
  CHECK(values(y) == Values{1, 1, 3});
  CHECK(gradient_of(x) == Values{30, 0, 30});
}

TEST_CASE("B079: a reduction's gradient puts the axis that it removed back") {
  const Tensor x1 = leaf({1., 2., 4.});
  const Tensor a = mean(pow(x1, 2), {0});
  a.backward();
  CHECK(difference(a.detach(), tensor(7.), 1e-6) == "");
  CHECK(difference(x1.grad(), tensor({2. / 3, 4. / 3, 8. / 3}), 1e-6) == "");
  const Tensor x2 = arange(6.0).reshape({2, 1, 3}).requires_grad_();
  const Tensor y2 = sum(x2, {1});
  (y2 * tensor({{1., 2., 3.}, {4., 5., 6.}})).sum().backward();
  CHECK(y2.shape() == Shape(2, 3));
  CHECK(difference(x2.grad(), tensor({{{1., 2., 3.}}, {{4., 5., 6.}}})) == "");
  const Tensor x3 = leaf({{5., 6.}});
  const Tensor y3 = mean(x3, {0, 1}, {.keepdim = true});
  y3.sum().backward();
  CHECK(difference(y3.detach(), tensor({{5.5}})) == "");
  CHECK(gradient_of(x3) == Values{0.5, 0.5});
}

// ---- G3: the graph ------------------------------------------------------------------------------
// B082 and B083, chains of any length on a small stack, are in test_autograd.

TEST_CASE("B086: a ladder of sixty doublings is differentiated at once") {
  const Tensor x = leaf(1.0);
  Tensor y = x;
  for (int i = 0; i < 60; ++i) y = y + y;
  const double start = processor_seconds();
  y.backward();
  CHECK(processor_seconds() - start < 1);
  CHECK(y.item() == 1152921504606846976.0);
  CHECK(x.grad().item() == 1152921504606846976.0);
}

TEST_CASE("B088: a second backward is refused, or allowed with retain_graph and added") {
  const Tensor x = leaf({1., 2.}), x2 = leaf({1., 2.});
  const Tensor y = (x * x).sum();
  y.backward();
  CHECK(refused([&] { y.backward(); }));
  CHECK(gradient_of(x) == Values{2, 4});
  const Tensor y2 = (x2 * x2).sum();
  y2.backward({.retain_graph = true});
  y2.backward();
  CHECK(gradient_of(x2) == Values{4, 8});
}

TEST_CASE("B091: the two gradients of a sum have memory of their own") {
  const Tensor x = leaf({1., 2.}), y = leaf({3., 2.});
  const Tensor z = x + y;
  const Tensor p = x / z;
  p.sum().backward();
  CHECK(values(p) == Values{0.25, 0.5});
  CHECK(difference(x.grad(), tensor({0.1875, 0.125}), 1e-6) == "");
  CHECK(difference(y.grad(), tensor({-0.0625, -0.125}), 1e-6) == "");
}

TEST_CASE("B093: an output that its derivative needs is not changed in silence") {
  for (Tensor (*f)(const Tensor&) :
       {+[](const Tensor& x) { return sigmoid(x); }, +[](const Tensor& x) { return exp(x); },
        +[](const Tensor& x) { return tanh(x); }, +[](const Tensor& x) { return relu(x); },
        +[](const Tensor& x) { return sqrt(x); }}) {
    const Tensor y = f(leaf({1., 2.}));
    y.add_(1);
    CHECK(refused([&] { y.sum().backward(); }));
  }
}

TEST_CASE("B097: a leaf and its views are written inside NoGrad only") {
  const Tensor x = leaf({1., 2.});
  CHECK(refused([&] { x.add_(1); }));
  CHECK(refused([&] { x.slice(0, 0, 1).mul_(2); }));
  {
    NoGrad guard;
    x.sub_(0.5);
  }
  CHECK(values(x) == Values{0.5, 1.5});
  CHECK(x.requires_grad());
  CHECK(x.is_leaf());
}

TEST_CASE("B099: integers and bools stay outside the graph") {
  const Tensor x = leaf({1., 5.});
  CHECK(refused([] { return tensor({1, 2}).requires_grad_(); }));
  CHECK_FALSE(argmax(x, 0).requires_grad());
  CHECK_FALSE((x > 2).requires_grad());
  CHECK_FALSE(x.to(int64).requires_grad());
}

TEST_CASE("B100: a seed has exactly the shape of what is differentiated") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x * x;
  CHECK(refused([&] { y.backward(); }));
  CHECK(refused([&] { y.backward(ones({3})); }));
  CHECK(refused([&] { y.backward(ones({1})); }));
  y.backward(tensor({10., 1.}));
  CHECK(gradient_of(x) == Values{20, 4});
  const Tensor one = leaf({3.});
  (one * 2).backward();
  CHECK(gradient_of(one) == Values{2});
}

bool recurse(int depth) {
  EnableGrad guard;
  return depth == 0 ? is_grad_enabled() : recurse(depth - 1);
}

TEST_CASE("B102: grad mode survives exceptions and recursion") {
  const Tensor x = leaf({1., 2.});
  try {
    NoGrad guard;
    { EnableGrad inner; }
    throw 1;
  } catch (int) {
  }
  CHECK(is_grad_enabled());
  const Tensor y = (x * x).sum();
  NoGrad guard;
  CHECK(recurse(3));
  CHECK_FALSE(is_grad_enabled());
  CHECK_FALSE((x * 2).requires_grad());
  y.backward();
  CHECK(gradient_of(x) == Values{2, 4});
}

TEST_CASE("B104: a loss that is added up keeps its graph only where that was asked for") {
  const Tensor w = leaf({1.});
  const auto loss = [&] { return pow(w * 2 - 1, 2).sum(); };
  double number = 0;
  Tensor cut = tensor(0.0), total = tensor(0.0);
  std::vector<std::int64_t> counts;
  for (int i = 0; i < 1000; ++i) {
    number += loss().item();
    cut = cut + loss().detach();
    CHECK(live_nodes() == 5 * i);
    total = total + loss();
  }
  CHECK(number == 1000);
  CHECK(live_nodes() == 5000);
  total = Tensor();
  CHECK(live_nodes() == 0);
}

TEST_CASE("B107: a hook fires once, with the gradient that is complete") {
  const Tensor x = leaf(2.0);
  const Tensor h = x * 3;
  int calls = 0;
  double seen = 0;
  h.register_hook([&](const Tensor& g) {
    ++calls;
    seen = g.item();
    return 10 * g;
  });
  (h + h * 2).backward();
  CHECK(calls == 1);
  CHECK(seen == 3);
  CHECK(x.grad().item() == 90);
}

TEST_CASE("B110: detach cuts the graph") {
  const Tensor x = leaf(3.0);
  (x * x.detach()).backward();
  CHECK(x.grad().item() == 3);
  CHECK_FALSE(x.detach().requires_grad());
}

// ---- G4, G5: numerics, losses, optimisers -------------------------------------------------------

TEST_CASE("B112: ten million tenths add up") {
  const Tensor x = full({10'000'000}, 0.1);
  CHECK(std::abs(x.sum().item() - 1000000.0149) <= 2e-6 * 1000000.0149);
  CHECK(std::abs(x.mean().item() - 0.1000000015) <= 2e-6 * 0.1);
}

TEST_CASE("B115: a variance does not cancel") {
  const Tensor x = tensor({100000., 100001., 100002., 100003.});
  CHECK(var(x).item() == Approx(5. / 3).epsilon(1e-6));
  CHECK(var(x, {.correction = 0}).item() == Approx(1.25).epsilon(1e-6));
  CHECK(mt::std(x).item() == Approx(1.2909944487358056).epsilon(1e-6));
}

TEST_CASE("B119: products of transposed operands have the values of dense ones") {
  manual_seed(3);
  const Tensor a = rand({64, 64}), b = rand({64, 64});
  CHECK(difference(a.t().matmul(b), a.t().contiguous().matmul(b), 1e-4) == "");
  CHECK(difference(a.matmul(b.t()), a.matmul(b.t().contiguous()), 1e-4) == "");
  CHECK(difference(a.t().matmul(b.t()), a.t().contiguous().matmul(b.t().contiguous()), 1e-4) == "");
}

// ---- Layers -------------------------------------------------------------------------------------

// The limits are those of the case, for a build that is made to be fast.
TEST_CASE("B121: a small operation costs little, and less where it is not recorded") {
  const Tensor x = leaf({1.});
  const auto microseconds = [&] {
    double least = infinity;
    for (int turn = 0; turn < 5; ++turn) {
      const double start = processor_seconds();
      for (int i = 0; i < 100'000; ++i) static_cast<void>(x * 2.0);
      least = std::min(least, processor_seconds() - start);
    }
    return least * 10;
  };
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const double recorded_at_most = 1.5, unrecorded_at_most = 0.7;
#else
  const double recorded_at_most = 60, unrecorded_at_most = 60;
#endif
  CHECK(microseconds() < recorded_at_most);
  const NoGrad guard;
  CHECK(microseconds() < unrecorded_at_most);
}

TEST_CASE("B122: rows and columns that a stride leaves out have the gradient 0") {
  const Tensor x = arange(1., 37.).reshape({1, 1, 6, 6}).detach().requires_grad_();
  const Tensor w = leaf({{{{1., 0., -1.}, {2., 0., -2.}, {1., 0., -1.}}}}), b = leaf({0.5});
  const Tensor y = conv2d(x, w, b, {.stride = 2});
  y.sum().backward();
  CHECK(values(y) == Values{-7.5, -7.5, -7.5, -7.5});
  CHECK(gradient_of(x) == Values{1, 0, 0, 0, -1, 0, 2, 0, 0, 0, -2, 0, 2, 0, 0, 0, -2, 0,
                                 2, 0, 0, 0, -2, 0, 1, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0,  0});
  CHECK(gradient_of(w) == Values{32, 36, 40, 56, 60, 64, 80, 84, 88});
  CHECK(gradient_of(b) == Values{4});
}

TEST_CASE("B124: a kernel that is larger than the padded image is refused") {
  const Tensor a = zeros({1, 1, 3, 3}), k = zeros({1, 1, 4, 4});
  CHECK(refused([&] { return conv2d(a, k); }));
  CHECK(refused([&] { return conv2d(k, a, {.dilation = 2}); }));
  CHECK(conv2d(a, k, {.padding = 1}).shape() == Shape(1, 1, 2, 2));
}

TEST_CASE("B125: padding is never the largest") {
  const Tensor x = leaf({{{{-5., -3.}, {-8., -4.}}}});
  const Tensor y = max_pool2d(x, 3, {.stride = 1, .padding = 1});
  y.sum().backward();
  CHECK(values(y) == Values{-3, -3, -3, -3});
  CHECK(gradient_of(x) == Values{0, 4, 0, 0});
}

TEST_CASE("B129: a window of nothing but padding is refused, and padding counts in a mean") {
  const Tensor x = tensor({{{{1., 2.}, {3., 4.}}}});
  CHECK(refused([&] { return max_pool2d(x, 3, {.stride = 1, .padding = 2}); }));
  CHECK(values(avg_pool2d(x, 2, {.stride = 1, .padding = 1})) ==
        Values{0.25, 0.75, 0.5, 1, 2.5, 1.5, 0.75, 1.75, 1});
}

TEST_CASE("B130: a batch is divided by its biased deviation, and the unbiased one is kept") {
  const Tensor x = leaf({{{{1.}, {3.}}}, {{{5.}, {11.}}}}),
               up = tensor({{{{1.}, {0.}}}, {{{0.}, {2.}}}});
  const Tensor w = leaf({1.}), b = leaf({0.}), mean = zeros({1}), var = ones({1});
  const Tensor y = batch_norm(x, mean, var, w, b, {.training = true});
  (y * up).sum().backward();
  const Tensor flat = y.detach().flatten();
  CHECK(difference(flat, tensor({-1.0690446, -0.5345223, 0., 1.6035669}), 1e-4, 1e-6) == "");
  CHECK(difference(x.grad().flatten(), tensor({0.21953584, -0.12408558, -0.20044586, 0.10499561}),
                   1e-4) == "");
  CHECK(difference(w.grad(), tensor({2.138089}), 1e-4) == "");
  CHECK(gradient_of(b) == Values{3});
  CHECK(difference(mean, tensor({0.5}), 1e-4) == "");
  CHECK(difference(var, tensor({2.7666667}), 1e-4) == "");
}

TEST_CASE("B133: a batch of nothing gives parameters the gradient 0") {
  const Tensor w = zeros({4, 3}, {.requires_grad = true}), b = zeros({4}, {.requires_grad = true});
  const Tensor kernel = zeros({4, 3, 3, 3}, {.requires_grad = true});
  const Tensor y = linear(zeros({0, 3}), w, b), z = conv2d(zeros({0, 3, 5, 5}), kernel);
  (y.sum() + z.sum()).backward();
  CHECK(y.shape() == Shape(0, 4));
  CHECK(z.shape() == Shape(0, 4, 3, 3));
  for (const Tensor& parameter : {w, b, kernel})
    CHECK(difference(parameter.grad(), zeros_like(parameter.detach())) == "");
}

TEST_CASE("B134: rows that are used several times collect their gradients") {
  const Tensor weight = leaf({{1., 2.}, {3., 4.}, {5., 6.}});
  const Tensor y = embedding(tensor({{1, 1}, {0, 1}}), weight);
  (y * tensor({{{1., 2.}, {3., 4.}}, {{5., 6.}, {7., 8.}}})).sum().backward();
  CHECK(values(y) == Values{3, 4, 3, 4, 1, 2, 3, 4});
  CHECK(gradient_of(weight) == Values{5, 6, 11, 14, 0, 0});
}

TEST_CASE("B144: dropout scales what it keeps, and p is a probability") {
  const Tensor x = full({1000}, 3.0, {.requires_grad = true});
  const Tensor y = dropout(x, 0.25);
  y.sum().backward();
  const Tensor kept = y.detach() != 0;
  CHECK(difference(y.detach(), where(kept, full({1000}, 4.0), 0), 1e-6) == "");
  CHECK(difference(x.grad(), where(kept, full({1000}, 4. / 3), 0), 1e-6) == "");
  CHECK(kept.sum().item() > 700);
  CHECK(kept.sum().item() < 800);
  const Tensor z = leaf({1., 2.});
  dropout(z, 1).sum().backward();
  CHECK(values(dropout(z, 1)) == Values{0, 0});
  CHECK(gradient_of(z) == Values{0, 0});
  CHECK(values(dropout(z, 0.5, false)) == Values{1, 2});
  CHECK(refused([&] { return dropout(z, 1.5); }));
  CHECK(refused([&] { return dropout(z, -0.1); }));
}

TEST_CASE("B146: a query that may look at nothing leaves the gradients of the others alone") {
  const Tensor q = leaf({{1., 0.}, {2., -1.}}), k = leaf({{1., 0.}, {0., 1.}});
  const Tensor v = leaf({{1., 2.}, {3., 4.}}), mask = tensor({{true, true}, {false, false}});
  const Tensor y = scaled_dot_product_attention(q, k, v, {.attn_mask = mask});
  y[0].sum().backward();
  CHECK(difference(y[0].detach(), tensor({1.6604769, 2.660477}), 1e-5) == "");
  CHECK(values(y[1]) == Values{0, 0});
  const auto same = [](const Tensor& got, const Tensor& want) {
    return difference(got, want, 1e-5, 1e-7);
  };
  CHECK(same(k.grad(), tensor({{-0.62559444, 0.}, {0.62559444, 0.}})) == "");
  CHECK(same(v.grad(), tensor({{0.66976154, 0.66976154}, {0.33023846, 0.33023846}})) == "");
  CHECK(same(q.grad(), tensor({{-0.62559444, 0.62559444}, {0., 0.}})) == "");
}

TEST_CASE("B136: ignored rows count neither in the mean nor in the gradient") {
  const Tensor x = leaf({{1., 2., 0.}, {0., 5., 1.}, {3., -1., 2.}});
  const Tensor loss = cross_entropy(x, tensor({1, -100, 0}), {.ignore_index = -100});
  loss.backward();
  CHECK(difference(loss.detach(), tensor(0.36708432), 1e-5, 1e-6) == "");
  CHECK(difference(x.grad(),
                   tensor({{0.122364245, -0.1673795, 0.04501529},
                           {0., 0., 0.},
                           {-0.13930044, 0.006606442, 0.13269396}}),
                   1e-5, 1e-6) == "");
  CHECK(std::isnan(cross_entropy(x, full({3}, -100)).item()));
}

TEST_CASE("B142: SGD's first momentum is the gradient itself, after the weight decay") {
  const Tensor w = leaf(1.0);
  optim::SGD optimizer({w}, {.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1});
  Values weights;
  for (double gradient : {1.0, 2.0, -1.0}) {
    w.set_grad(tensor(gradient));
    optimizer.step();
    weights.push_back(w.item());
  }
  CHECK(difference(tensor(weights), tensor({0.89, 0.68654996, 0.55001223}), 1e-5) == "");
}

// ---- G7: the graph as dot -----------------------------------------------------------------------

// What Graphviz makes of it: "canon", its own language again, or "svg".
std::string drawn(const std::string& dot, const std::string& format) {
  shell::TemporaryFolder folder;
  shell::write_file(folder / "graph.dot", dot);
  const auto outcome = shell::run("dot -T" + format + " '" + (folder / "graph.dot").string() + "'");
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  return outcome.out;
}
bool dot_is_there() { return shell::run("command -v dot").exit_code == 0; }

std::size_t count_in(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST_CASE(
    "B175, B177: names with quotes, backslashes, braces and ampersands are drawn as they are") {
  Tensor sum = tensor({0.});
  for (const char* name :
       {"w\"1\"", "path\\", "a\\\"b", "w{0}|<b>", "two\nlines", "r&d &lt; &#65;"})
    sum = sum + leaf({1.}).named(name);
  const std::string dot = to_dot(graph(sum));
  for (const char* label :
       {R"("w\"1\"\n[1]")", R"("path\\\n[1]")", R"("a\\\"b\n[1]")", R"("w{0}|<b>\n[1]")",
        R"("two\nlines\n[1]")", R"("r&amp;d &amp;lt; &amp;#65;\n[1]")"}) {
    CAPTURE(label, dot);
    CHECK(count_in(dot, label) == 1);
  }
  if (!dot_is_there()) return;
  CHECK(count_in(drawn(dot, "canon"), "label=") == 12 + 1);  // and its default one
  const std::string picture = drawn(dot, "svg");  // XML, which has its own way of writing them
  for (const char* name : {"w&quot;1&quot;<", "path\\<", "a\\&quot;b<", "w{0}|&lt;b&gt;<",
                           "r&amp;d &amp;lt; &amp;#65;<"}) {
    CAPTURE(name, picture);
    CHECK(count_in(picture, name) == 1);
  }
}

TEST_CASE("B180: leaves of one name stay apart") {
  const Tensor w1 = leaf({1.}).named("w"), w2 = leaf({1.}).named("w");
  const Tensor y = w1 * 2 + w2 * 2;
  const Graph g = graph(y);
  CHECK(g.boxes.size() == 5);
  const std::string dot = to_dot(g);
  CHECK(count_in(dot, "label=\"w\\n") == 2);
  CHECK(count_in(dot, "label=\"mul\\n") == 2);
  CHECK(count_in(dot, "label=\"add\\n") == 1);
  CHECK(count_in(dot, " -> ") == 4);
}

TEST_CASE("B183: a graph of a hundred thousand nodes is written in time that grows with it") {
  Tensor y = leaf({1.});
  for (int i = 0; i < 100'000; ++i) y = y + 1;
  const double start = processor_seconds();
  const std::string dot = to_dot(graph(y));
  CHECK(processor_seconds() - start < 5);
  CHECK(count_in(dot, "label=") == 100'001);
}

}  // namespace
