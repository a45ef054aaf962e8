// Writes in place: who may be written to, what the graph learns of it, and what a backward pass
// says when a value that it needs is gone.
#include "tests/tensors.hpp"

namespace {

using namespace mt;
using namespace tensors;

// ---- Plain data ---------------------------------------------------------------------------------

TEST_CASE("writes in place change the elements and count the version") {
  const Tensor x = tensor({1., 2.});
  CHECK(x.version() == 0);
  x.add_(1).sub_(tensor({0., 1.})).mul_(3).div_(2);
  CHECK(values(x) == Values{3, 3});
  CHECK(x.version() == 4);
  x.fill_(7);
  CHECK(values(x) == Values{7, 7});
  x.copy_(tensor({1., 2.}));
  CHECK(values(x) == Values{1, 2});
  x.zero_();
  CHECK(values(x) == Values{0, 0});
}

TEST_CASE("the operators += -= *= /= write in place") {
  Tensor x = tensor({8., 4.});
  const Tensor same = x;
  x += 2;
  x -= tensor(1.0);
  x *= 2;
  x /= 3;
  CHECK(difference(same, tensor({6., 10. / 3}), 1e-6) == "");
}

TEST_CASE("assignment to an indexed tensor writes, assignment to a name rebinds") {
  Tensor x = zeros({2, 2});
  const Tensor keep = x;
  x[0] = 5.0;
  x[1][0] = tensor(3.0);
  x.at({1, 1}) = 4;
  x[0].slice(0, 0, 1) += 1;
  CHECK(values(keep) == Values{6, 5, 3, 4});
  x = ones({2});
  CHECK(values(keep) == Values{6, 5, 3, 4});
  Tensor row = keep[0];
  row = tensor(0.0);
  CHECK(values(keep) == Values{6, 5, 3, 4});
}

TEST_CASE("a write broadcasts its operand but never grows the tensor") {
  const Tensor x = zeros({2, 2});
  x.add_(tensor({1., 2.}));
  CHECK(values(x) == Values{1, 2, 1, 2});
  CHECK(error_of([&] {
          x.add_(zeros({3, 2, 2}));
        }) == "add_: the result [3, 2, 2] does not fit into [2, 2] at HERE.");
}

TEST_CASE("an operand that overlaps what is written is read as it was before") {
  const Tensor x = tensor({1., 2., 3., 4.});
  x.slice(0, 1).copy_(x.slice(0, 0, 3));
  CHECK(values(x) == Values{1, 1, 2, 3});
  const Tensor y = tensor({1., 2., 3.});
  y.add_(y.slice(0, 0, 1));
  CHECK(values(y) == Values{2, 3, 4});
  const Tensor z = tensor({{1., 2.}, {3., 4.}});
  z.mul_(z.t());
  CHECK(values(z) == Values{1, 6, 6, 16});
  z.add_(z);
  CHECK(values(z) == Values{2, 12, 12, 32});
}

TEST_CASE("a write keeps the dtype, and refuses a result of a higher kind") {
  const Tensor x = tensor({1, 2});
  x.add_(2).mul_(3);
  CHECK(difference(x, tensor({9, 12})) == "");
  CHECK(error_of([&] { x.add_(0.5); }) ==
        "add_: a float32 result can't be written into int64 at HERE. Hint: convert first: x = "
        "x.to(float32)");
  CHECK(error_of([&] { x.div_(2); }) ==
        "div_: a quotient can't be written into int64 at HERE. Hint: convert first: x = "
        "x.to(float32)");
  x.copy_(tensor({1.9, -1.9}));
  CHECK(difference(x, tensor({1, -1})) == "");
  const Tensor f = tensor({1., 2.});
  f.add_(tensor({1., 1.}, {.dtype = float64}));
  CHECK(difference(f, tensor({2., 3.})) == "");
}

TEST_CASE("an error in a write leaves the tensor and its version alone") {
  const Tensor x = tensor({1., 2.});
  CHECK(refused([&] { x.add_(tensor({1., 2., 3.})); }));
  CHECK(refused([&] { x.add_(Tensor()); }));
  CHECK(values(x) == Values{1, 2});
  CHECK(x.version() == 0);
}

// ---- Who refuses --------------------------------------------------------------------------------

TEST_CASE("a leaf that requires grad refuses to be written, and nothing has changed") {
  const Tensor x = leaf({1., 2.});
  CHECK(error_of([&] { x.add_(1); }) ==
        "add_: a leaf that requires grad is written in place, and the graph could not tell at "
        "HERE. Hint: for an update write { NoGrad guard; w -= lr * w.grad(); }");
  CHECK(refused([&] { x.copy_(tensor({1., 2.})); }));
  CHECK(values(x) == Values{1, 2});
  CHECK(x.version() == 0);
}

TEST_CASE("an error names the write that the user wrote") {
  const Tensor x = leaf({1., 2.});
  CHECK(error_of([&] { x.zero_(); }).find("zero_: ") == 0);
  CHECK(error_of([&] { x.fill_(3); }).find("fill_: ") == 0);
  CHECK(error_of([&] { x.copy_(3); }).find("copy_: ") == 0);
}

TEST_CASE("a part of an expanded tensor refuses to be written, even without its history") {
  const Tensor x = leaf({1., 2.});
  const Tensor w = leaf(2.0);
  const Tensor d = x.expand({3, 2}).detach();
  CHECK(error_of([&] { d[0].mul_(w); }).find("mul_: several elements of this expanded tensor") ==
        0);
  CHECK(values(x) == Values{1, 2});
}

TEST_CASE("windows that overlap refuse to be written, recorded or not") {
  const Tensor plain = tensor({1., 2., 3., 4.});
  CHECK(refused([&] { plain.unfold(0, 3, 1).mul_(2); }));
  CHECK(values(plain) == Values{1, 2, 3, 4});
  plain.unfold(0, 2, 2).mul_(2);  // these do not
  CHECK(values(plain) == Values{2, 4, 6, 8});
}

TEST_CASE("overlapping windows of a base that was written to give their gradients together") {
  const Tensor x = leaf({1., 2., 3., 4.});
  const Tensor y = x * 1;
  const Tensor v = y.unfold(0, 3, 1);
  y.mul_(2);
  v.sum().backward();
  CHECK(values(x.grad()) ==
        Values{2, 4, 4, 2});  // each element times the windows it is in, times 2
}

TEST_CASE("clamp_ writes nothing if one of its bounds does not fit") {
  const Tensor x = tensor({-1, 5});
  CHECK(refused([&] { x.clamp_({.min = 0, .max = 1.5}); }));
  CHECK(values(x) == Values{-1, 5});
}

TEST_CASE("a number with a fraction is not written into integers") {
  const Tensor x = tensor({1, 2});
  CHECK(error_of([&] { x[0] = 2.5; }) ==
        "copy_: the fraction of 2.5 would be lost in int64 at HERE. Hint: convert first: x = "
        "x.to(float32)");
  CHECK(refused([&] { x.fill_(2.5); }));
  CHECK(values(x) == Values{1, 2});
  x.fill_(2.0);
  CHECK(values(x) == Values{2, 2});
}

TEST_CASE("a view of a leaf that requires grad refuses to be written") {
  const Tensor x = leaf({1., 2.});
  CHECK(error_of([&] { x[0] = 5; }) ==
        "copy_: a view of a leaf that requires grad is written in place at HERE. Hint: write "
        "inside { NoGrad guard; ... }, or clone() it first");
  CHECK(refused([&] { x.slice(0, 0, 1).mul_(2); }));
  CHECK(values(x) == Values{1, 2});
}

TEST_CASE("inside NoGrad a leaf can be updated and stays a leaf") {
  Tensor w = leaf({1., 2.});
  (w * w).sum().backward();
  {
    NoGrad guard;
    w -= 0.5 * w.grad();
    w[1] = 7;
  }
  CHECK(values(w) == Values{0, 7});
  CHECK(w.requires_grad());
  CHECK(w.is_leaf());
}

TEST_CASE("an expanded tensor refuses to be written, and nothing has changed") {
  const Tensor x = tensor({3.});
  const Tensor y = x.expand({4});
  CHECK(error_of([&] { y.mul_(2); }) ==
        "mul_: several elements of this expanded tensor [4] are one place in memory at HERE. "
        "Hint: clone() it first");
  CHECK(values(x) == Values{3});
  y.clone().mul_(2);
}

TEST_CASE("a view that NoGrad has kept from the graph refuses to be written where it records") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x * 1;
  Tensor v;
  {
    NoGrad guard;
    v = y[0];
  }
  CHECK(error_of([&] { v.mul_(2); }) ==
        "mul_: this view was made inside NoGrad, so the graph could not tell what is written at "
        "HERE. Hint: make the view outside, or write inside { NoGrad guard; ... }");
  CHECK(values(y) == Values{1, 2});
}

// ---- What the graph learns ----------------------------------------------------------------------

TEST_CASE("a write to a computed tensor becomes part of its history") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x * 2;
  y.mul_(3).add_(1);
  CHECK(values(y) == Values{7, 13});
  y.sum().backward();
  CHECK(values(x.grad()) == Values{6, 6});
}

TEST_CASE("a product and a quotient in place have gradients for both factors") {
  const Tensor x = leaf({1., 2.}), w = leaf({3., 4.});
  const Tensor y = x * 1;
  y.mul_(w);
  y.sum().backward();
  CHECK(values(x.grad()) == Values{3, 4});
  CHECK(values(w.grad()) == Values{1, 2});
  x.zero_grad();
  w.zero_grad();
  const Tensor z = x * 1;
  z[1] /= w[1];
  z.sum().backward();
  CHECK(values(x.grad()) == Values{1, 0.25});
  CHECK(values(w.grad()) == Values{0, -0.125});
  x.zero_grad();
  const Tensor square = x * 1;
  square.mul_(square);
  square.sum().backward();
  CHECK(values(x.grad()) == Values{2, 4});
}

TEST_CASE("a write of a recorded value makes plain data part of the graph") {
  const Tensor x = leaf({1., 2.});
  const Tensor t = zeros({2});
  t.add_(x * x);
  CHECK(t.requires_grad());
  t.sum().backward();
  CHECK(values(x.grad()) == Values{2, 4});
}

TEST_CASE("a recorded value written into integers leaves them plain data") {
  const Tensor x = leaf(2.5), t = zeros({2}, {.dtype = int64});
  t[0] = x;
  t.copy_(x);
  CHECK(difference(t, tensor({2, 2})) == "");
  CHECK_FALSE(t.requires_grad());
}

TEST_CASE("a write that overwrites everything cuts off what was there") {
  const Tensor x = leaf({1., 2.}), z = leaf({3., 4.});
  const Tensor y = x * 2;
  y.copy_(z * z);
  y.sum().backward();
  CHECK(values(z.grad()) == Values{6, 8});
  CHECK(values(x.grad()) == Values{0, 0});
  const Tensor w = x * 2;
  w.zero_();
  w.sum().backward();
  CHECK(values(x.grad()) == Values{0, 0});
}

TEST_CASE("a write into a view changes the history of its base") {
  const Tensor x = leaf({1., 2., 3.}), r = leaf(10.0);
  const Tensor y = x * 2;
  y[1] = r * 3;
  CHECK(values(y) == Values{2, 30, 6});
  (y * tensor({1., 10., 100.})).sum().backward();
  CHECK(values(x.grad()) == Values{2, 0, 200});
  CHECK(r.grad().item() == 30);
}

TEST_CASE("a view made before its base was written takes its history anew") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x * 1;
  const Tensor v = y[0];
  y.mul_(2);
  CHECK(v.item() == 2);
  v.backward();
  CHECK(values(x.grad()) == Values{2, 0});
}

TEST_CASE("a write through one view is seen by the other views and the base") {
  const Tensor x = leaf({{1., 2.}, {3., 4.}});
  const Tensor y = x * 1;
  const Tensor row = y[0], column = y.t()[0], all = y.view({4});
  row.mul_(10);
  CHECK(values(column) == Values{10, 3});
  CHECK(values(all) == Values{10, 20, 3, 4});
  (column * tensor({1., 2.})).sum().backward({.retain_graph = true});
  CHECK(values(x.grad()) == Values{10, 0, 2, 0});
  x.zero_grad();
  all.sum().backward({.retain_graph = true});
  CHECK(values(x.grad()) == Values{10, 10, 1, 1});
  x.zero_grad();
  row.sum().backward();
  CHECK(values(x.grad()) == Values{10, 10, 0, 0});
}

TEST_CASE("writes into strided and transposed windows come back to the right places") {
  const Tensor x = leaf({{1., 2., 3.}, {4., 5., 6.}});
  const Tensor y = x * 1;
  y.t().slice(0, 0, 3, 2)[1].mul_(5);  // the last column
  CHECK(values(y) == Values{1, 2, 15, 4, 5, 30});
  (y * tensor({{1., 2., 3.}, {4., 5., 6.}})).sum().backward();
  CHECK(values(x.grad()) == Values{1, 2, 15, 4, 5, 30});
}

TEST_CASE("a chain of writes into windows differentiates twice") {
  const auto f = [](const std::vector<Tensor>& in) {
    const Tensor y = in[0] * in[0];
    y[1] += in[0][2].exp();
    y.slice(0, 0, 3, 2).mul_(3).add_(y[1]);
    return y.exp();
  };
  const Tensor small = leaf({0.1, 0.2, 0.3}, float64);
  CHECK(gradcheck(f, {small}));
  CHECK(gradgradcheck(f, {small}));
}

TEST_CASE("writing nothing is allowed") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x * 1;
  y.slice(0, 2).mul_(3);
  y.sum().backward();
  CHECK(values(x.grad()) == Values{1, 1});
}

TEST_CASE("a retained gradient follows its tensor through writes") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x * 1, v = y[0];
  y.retain_grad();
  v.retain_grad();
  y.mul_(2);
  (y.sum() + v * 10).backward();
  CHECK(values(y.grad()) == Values{11, 1});
  CHECK(v.grad().item() == 10);
  CHECK(values(x.grad()) == Values{22, 2});
}

TEST_CASE("a view whose gradient was to be retained may be rewritten and die before the pass") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x * 1;
  Tensor w, u;
  {
    const Tensor v = y[0];
    v.retain_grad();
    w = v * 2;
    y.mul_(3);
    u = v + 0;
  }
  (w + u).backward();
  CHECK(values(x.grad()) == Values{5, 0});
  {
    const Tensor base = x * 1;
    base.retain_grad();
    w = base * 2;
    base[0] = 0;
  }
  x.zero_grad();
  w.sum().backward();
  CHECK(values(x.grad()) == Values{2, 2});
}

// ---- Values that are gone -----------------------------------------------------------------------

TEST_CASE("a saved input that was overwritten is caught, and the sentence names who wrote") {
  const Tensor x = leaf({1., 2.});
  const Tensor h = x * 1;
  const Tensor y = h * h;
  const std::string made = std::to_string(__LINE__ - 1);
  h.add_(1);
  const std::string wrote = std::to_string(__LINE__ - 1);
  const Tensor z = y.sum();
  CHECK(error_of([&] { z.backward(); }) ==
        "mul: the value that its derivative needs (b) was overwritten: it was saved at version 0 "
        "and is now at version 1 (by add_ at test_inplace.cpp:" +
            wrote + "); it was used at test_inplace.cpp:" + made +
            ". Hint: write y = x + 1 instead of x += 1, or clone() before the write");
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a saved output that was overwritten is caught") {
  const Tensor x = leaf({1., 2.});
  for (Tensor (*f)(const Tensor&) :
       {+[](const Tensor& a) { return a.sigmoid(); }, +[](const Tensor& a) { return a.exp(); },
        +[](const Tensor& a) { return a.tanh(); }, +[](const Tensor& a) { return a.relu(); },
        +[](const Tensor& a) { return a.sqrt(); }}) {
    const Tensor y = f(x);
    y.add_(1);
    CHECK(error_of([&] { y.sum().backward(); }).find(" (y) was overwritten") != std::string::npos);
  }
}

TEST_CASE("a write to what no derivative needs is fine") {
  const Tensor x = leaf({1., 2.});
  const Tensor y = x + 1;
  y.mul_(2);
  const Tensor s = x.sum();
  s.add_(1);
  (y.sum() + s).backward();
  CHECK(values(x.grad()) == Values{3, 3});
}

TEST_CASE("a leaf that was updated after it was used is caught") {
  const Tensor w = leaf({1., 2.});
  const Tensor y = (w * w).sum();
  {
    NoGrad guard;
    w.sub_(0.1);
  }
  CHECK(error_of([&] { y.backward(); }).find("(by sub_ at test_inplace.cpp:") != std::string::npos);
}

TEST_CASE("a tensor written with a product of itself frees its nodes, and backward is refused") {
  const Tensor x = leaf({1., 2.});
  {
    const Tensor t = ones({2});
    t.add_(t * x);
    CHECK(values(t) == Values{2, 3});
    CHECK(refused([&] { t.sum().backward(); }));
  }
  CHECK(live_nodes() == 0);
}

// ---- Bounds, masks and random numbers -----------------------------------------------------------

TEST_CASE("clamp_ and masked_fill_ are part of the graph, on the whole and on a view") {
  const Tensor x = leaf({-2., 0.5, 3.});
  const Tensor y = x * 1;
  y.clamp_(-1, 1);
  CHECK(values(y) == Values{-1, 0.5, 1});
  y.slice(0, 1).masked_fill_(y.slice(0, 1) == 1, 7);
  CHECK(values(y) == Values{-1, 0.5, 7});
  y.sum().backward();
  CHECK(values(x.grad()) == Values{0, 1, 0});
}

TEST_CASE("clamp_ and masked_fill_ write where nothing is recorded, and count their writes") {
  const Tensor x = tensor({{1., 5.}, {-3., 2.}}), row = x[1];
  x.t().clamp_({.max = 2});
  CHECK(values(x) == Values{1, 2, -3, 2});
  CHECK(x.version() == 1);
  row.masked_fill_(tensor({true, false}), 4);
  CHECK(values(x) == Values{1, 2, 4, 2});
  x.masked_fill_(x > 3, tensor(0.5));
  CHECK(values(x) == Values{1, 2, 0.5, 2});
  const Tensor n = tensor({1, 5});
  CHECK(n.clamp_(2, 3).to_vector<int>() == std::vector<int>{2, 3});
}

TEST_CASE("random numbers in place have no history, and fill a view in its own order") {
  manual_seed(3);
  const Tensor x = leaf({{1., 2.}, {3., 4.}});
  const Tensor y = x * 2;
  y.uniform_(5, 6);
  CHECK(((y >= 5) & (y < 6)).all().item<bool>());
  CHECK_FALSE(y.requires_grad());
  manual_seed(4);
  const Tensor plain = zeros({2, 3}).normal_(1, 2);
  manual_seed(4);
  const Tensor turned = zeros({3, 2});
  turned.t().normal_(1, 2);
  CHECK(difference(turned.t(), plain) == "");
  NoGrad guard;
  CHECK(values(x.normal_(3, 0)) == Values{3, 3, 3, 3});
}

TEST_CASE("a write into a part of a lerp's result is seen by the lerp") {
  const Tensor a = leaf({{1., 2.}, {3., 4.}}), b = leaf({10., 20.});
  const Tensor y = lerp(a, b, 0.25);
  y[1] = 0;
  y.sum().backward();
  CHECK(values(a.grad()) == Values{0.75, 0.75, 0, 0});
  CHECK(values(b.grad()) == Values{0.25, 0.25});
}

}  // namespace
