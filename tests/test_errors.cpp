// Errors are part of the interface: each names the operation, the rule that was broken, the shapes
// or types, the caller's line and a hint. HERE stands for the right file and line.
#include <functional>
#include <numeric>

#include "tests/tensors.hpp"

namespace {

using namespace mt;
using namespace tensors;

// ---- Shapes -------------------------------------------------------------------------------------

TEST_CASE("matmul says which sizes differ") {
  const Tensor a = zeros({2, 3}), b = zeros({4, 5});
  CHECK(error_of([&] { return a.matmul(b); }) ==
        "matmul: inner sizes differ: [2, 3] x [4, 5] (3 vs 4) at HERE. Hint: transpose the "
        "second?");
  CHECK(error_of([&] { return matmul(a[0], zeros({4})); }) ==
        "matmul: inner sizes differ: [3] x [4] (3 vs 4) at HERE. Hint: transpose the second?");
  CHECK(error_of([&] { return a.matmul(tensor(1.0)); }) ==
        "matmul: both inputs need at least one axis: [2, 3] x [] at HERE. Hint: multiply by a "
        "number with *");
  CHECK(error_of([&] {
          return zeros({2, 2, 3}).matmul(zeros({4, 3, 2}));
        }) ==
        "matmul: shapes do not broadcast: [2] and [4] (2 vs 4 at axis -1) at HERE. Hint: sizes "
        "must be equal or 1, counted from the last axis");
}

TEST_CASE("products by their names say which shapes they take") {
  const Tensor a = zeros({2, 3}), v = zeros({3});
  CHECK(error_of([&] { return a.mm(v); }) ==
        "mm: it takes 2 and 2 axes, not [2, 3] and [3] at HERE. Hint: matmul() takes any");
  CHECK(error_of([&] { return mv(v, v); }).find("mv: it takes 2 and 1 axes") == 0);
  CHECK(error_of([&] { return dot(a, v); }).find("dot: it takes 1 and 1 axes") == 0);
  CHECK(error_of([&] { return outer(a, v); }).find("outer: it takes 1 and 1 axes") == 0);
  CHECK(error_of([&] { return bmm(a, a); }).find("bmm: it takes 3 and 3 axes") == 0);
  CHECK(error_of([&] {
          return bmm(zeros({2, 1, 1}), zeros({1, 1, 1}));
        }) ==
        "bmm: the batches differ: [2, 1, 1] and [1, 1, 1] at HERE. Hint: matmul() broadcasts");
  CHECK(error_of([&] { return a.mm(a); }).find("matmul: inner sizes differ: [2, 3] x [2, 3]") == 0);
  CHECK(error_of([&] {
          return addmm(zeros({2, 2, 2}), a, a.t());
        }) == "addmm: [2, 2, 2] does not broadcast to [2, 2] at HERE.");
  CHECK(error_of([&] {
          return dot(v, zeros({3}, {.dtype = float64}));
        }).find("matmul: the dtypes differ") == 0);
}

TEST_CASE("einsum says what is wrong with its equation") {
  const Tensor a = zeros({2, 3}), b = zeros({4, 5});
  CHECK(error_of([&] { return einsum("ij,jk->ik", a, b); }) ==
        "einsum: the axis j has the sizes 3 and 4 at HERE.");
  CHECK(error_of([&] { return einsum("ij,jk->ik", a); }) ==
        "einsum: the equation has 2 operands, and there are 1 at HERE.");
  CHECK(error_of([&] { return einsum("ijk", a); }) ==
        "einsum: \"ijk\" does not name the axes of [2, 3] at HERE.");
  CHECK(error_of([&] { return einsum("i", a); }) ==
        "einsum: \"i\" does not name the axes of [2, 3] at HERE.");
  CHECK(error_of([&] { return einsum("ij->ik", a); }) ==
        "einsum: no operand has the axis k of the result at HERE.");
  CHECK(error_of([&] { return einsum("ij->ii", a); }) ==
        "einsum: the result has the axis i twice at HERE.");
  CHECK(error_of([&] { return einsum("ii", a); }) ==
        "einsum: the axis i has the sizes 2 and 3 at HERE.");
  CHECK(error_of([&] { return einsum("i1->i", a); }) ==
        "einsum: the equation has a \"1\" at HERE. Hint: it is made of letters, commas, one -> and "
        "\"...\": \"ij,jk->ik\"");
  CHECK(error_of([&] { return einsum("..ij", a); }).find("the equation has a \".\"") !=
        std::string::npos);
  CHECK(error_of([&] {
          return einsum("...i,...i->...", zeros({2, 3}), zeros({4, 3}));
        }) == "einsum: an axis of \"...\" has the sizes 2 and 4 at HERE.");
}

TEST_CASE("broadcasting says which sizes differ, and at which axis") {
  const Tensor a = zeros({2, 3}), b = zeros({2, 4});
  const std::string rule =
      "shapes do not broadcast: [2, 3] and [2, 4] (3 vs 4 at axis -1) at HERE. Hint: sizes must "
      "be equal or 1, counted from the last axis";
  CHECK(error_of([&] { return a + b; }) == "add: " + rule);
  CHECK(error_of([&] { return a - b; }) == "sub: " + rule);
  CHECK(error_of([&] { return a * b; }) == "mul: " + rule);
  CHECK(error_of([&] { return a / b; }) == "div: " + rule);
  CHECK(error_of([&] { return pow(a, b); }) == "pow: " + rule);
  CHECK(error_of([&] { return a < b; }) == "less: " + rule);
  CHECK(error_of([&] { return maximum(a, b); }) == "maximum: " + rule);
  CHECK(error_of([&] { return where(a > 0, a, b); }) == "where: " + rule);
  CHECK(error_of([&] {
          return zeros({3, 1, 2}) + zeros({2, 2, 2});
        }).find("(3 vs 2 at axis -3)") != std::string::npos);
}

TEST_CASE("reductions say which axes there are") {
  const Tensor x = zeros({2, 3});
  CHECK(error_of([&] { return x.sum(2); }) ==
        "sum: axis 2 is out of range for 2 dimensions at HERE. Hint: use -2 to 1");
  CHECK(error_of([&] {
          return x.mean({0, -2});
        }) == "mean: an axis is named twice: [0, -2] at HERE.");
  CHECK(error_of([&] { return x.max(-3); }) ==
        "max: axis -3 is out of range for 2 dimensions at HERE. Hint: use -2 to 1");
  CHECK(error_of([&] { return softmax(x, 2); }).find("axis 2 is out of range") !=
        std::string::npos);
  CHECK(error_of([] { return tensor(1.0).sum(1); }) ==
        "sum: axis 1 is out of range for 0 dimensions at HERE. Hint: use -1 to 0");
}

TEST_CASE("the largest of nothing is an error") {
  CHECK(error_of([] { return zeros({0}).max(); }) ==
        "max: an empty axis has no largest or smallest element: the shape is [0] at HERE.");
  CHECK(error_of([] {
          return zeros({2, 0}).min(1);
        }) ==
        "min: an empty axis has no largest or smallest element: the shape is [2, 0] at HERE.");
  CHECK(error_of([] {
          return zeros({0, 2}).argmax(0);
        }) ==
        "argmax: an empty axis has no largest or smallest element: the shape is [0, 2] at HERE.");
  CHECK(zeros({0, 2}).max(1).values.shape() == Shape(0));
}

TEST_CASE("gather says which index is out of range") {
  const Tensor x = zeros({2, 3});
  CHECK(error_of([&] {
          return x.gather(1, tensor({{0}, {3}}));
        }) ==
        "gather: index 3 is out of range for size 3 at HERE. Hint: an index is at least 0 and less "
        "than 3");
  CHECK(error_of([&] {
          return x.gather(1, tensor({{0}, {-1}}));
        }) ==
        "gather: index -1 is out of range for size 3 at HERE. Hint: an index is at least 0 and "
        "less than 3");
  CHECK(error_of([&] { return x.gather(1, tensor({{0.}})); }) ==
        "gather: the index is float32, not int64 at HERE. Hint: convert with .to(int64)");
  CHECK(error_of([&] { return x.gather(1, tensor({0})); }) ==
        "gather: the index has shape [1], and the tensor [2, 3] at HERE.");
  CHECK(error_of([&] {
          return x.gather(1, zeros({3, 1}, {.dtype = int64}));
        }) == "gather: the index [3, 1] is larger than [2, 3] at axis 0 at HERE.");
}

TEST_CASE("what picks and places says what does not fit") {
  const Tensor x = zeros({2, 3}), row = zeros({3});
  const Tensor one = tensor({{0}}), source = ones({1, 1});
  CHECK(error_of([&] { return x.index_select(0, tensor({2})); }) ==
        "index_select: index 2 is out of range for size 2 at HERE. Hint: an index is at least 0 "
        "and less than 2");
  CHECK(error_of([&] { return x.index_select(0, one); }) ==
        "index_select: the index has shape [1, 1], and not one axis at HERE.");
  CHECK(error_of([&] { return tensor(1.0).index_select(0, tensor({0})); }) ==
        "index_select: a 0-d tensor has no axis to index at HERE.");
  CHECK(error_of([&] { return x.scatter(1, tensor({{3}}), source); }) ==
        "scatter: index 3 is out of range for size 3 at HERE. Hint: an index is at least 0 and "
        "less than 3");
  CHECK(error_of([&] { return x.scatter(1, tensor({0}), 1); }) ==
        "scatter: the index [1] and the source [1] need as many axes as [2, 3] at HERE.");
  CHECK(error_of([&] {
          return x.scatter_add(1, one, ones({1, 1}, {.dtype = float64}));
        }) ==
        "scatter_add: a float64 source is placed into float32 at HERE. Hint: convert it with "
        ".to(float32)");
  CHECK(error_of([&] {
          return x.scatter(1, tensor({{0, 1}}), source);
        }) ==
        "scatter: the index [1, 2] is larger than the source [1, 1] or [2, 3] at axis 1 at HERE.");
  CHECK(error_of([&] { return x.index_add(0, tensor({0}), row); }) ==
        "index_add: the source has shape [3], and the index asks for [1, 3] at HERE.");
  CHECK(error_of([&] { return x.take_along_dim(tensor({0}), 1); }) ==
        "take_along_dim: the index has shape [1], and the tensor [2, 3] at HERE.");
  CHECK(error_of([&] { return x.masked_fill(x, 1); }) ==
        "masked_fill: the condition is float32, not bool at HERE. Hint: compare first: x > 0");
  CHECK(error_of([&] { return x.masked_fill(x > 0, row); }) ==
        "masked_fill: the value has shape [3], it has to be one number at HERE.");
  CHECK(error_of([&] { return tensor({1}).masked_fill(tensor({true}), 0.5); }) ==
        "masked_fill: a float32 value can't be written into int64 at HERE.");
  CHECK(error_of([&] { return x.masked_select(x); }).find("masked_select: the condition") == 0);
}

TEST_CASE("what changes a shape says what does not fit") {
  const Tensor x = zeros({2, 3}), row = zeros({3});
  CHECK(error_of([&] { return row.tril(); }) ==
        "tril: it takes at least two axes, not [3] at HERE.");
  CHECK(error_of([&] { return row.triu(); }) ==
        "triu: it takes at least two axes, not [3] at HERE.");
  CHECK(error_of([&] { return row.diagonal(); }) ==
        "diagonal: it takes at least two axes, not [3] at HERE.");
  CHECK(error_of([&] { return x.diagonal(0, 1, -1); }) ==
        "diagonal: an axis is named twice: [1, 1] at HERE.");
  CHECK(error_of([&] { return row.unfold(0, 4, 1); }) ==
        "unfold: a window of 4 does not fit into a size of 3 at HERE.");
  CHECK(error_of([&] { return row.unfold(0, 2, 0); }) ==
        "unfold: the step is 0, it has to be positive at HERE.");
  CHECK(error_of([&] {
          return row.unflatten(0, {2, -1});
        }) == "unflatten: 3 elements do not fill the shape [2, -1] at HERE.");
  CHECK(error_of([&] {
          return x.movedim({0, 1}, 1);
        }) == "movedim: [0, 1] and [1] do not name the same number of axes at HERE.");
  CHECK(error_of([&] {
          return x.movedim({0, 0}, {0, 1});
        }) == "movedim: an axis is named twice: [0, 0] to [0, 1] at HERE.");
  CHECK(error_of([&] { return split(x, 0)[0]; }) ==
        "split: the size is 0, it has to be positive at HERE.");
  CHECK(error_of([&] {
          return split(x, {1, 1}, 1)[0];
        }) == "split: the sizes [1, 1] do not add up to 3 at HERE.");
  CHECK(error_of([&] {
          return split(x, {4, -1}, 1)[0];
        }) == "split: a size is negative: [4, -1] at HERE.");
  CHECK(error_of([&] { return split(x, 1, 2)[0]; }) ==
        "split: axis 2 is out of range for 2 dimensions at HERE. Hint: use -2 to 1");
  CHECK(error_of([&] { return chunk(x, 2, 2)[0]; }).find("chunk: axis 2 is out of range") == 0);
  CHECK(error_of([&] { return unbind(x, 2)[0]; }).find("unbind: axis 2 is out of range") == 0);
  CHECK(error_of([&] { return unbind(tensor(1.0))[0]; }) ==
        "unbind: a 0-d tensor has no axes at HERE. Hint: unsqueeze(0) gives it one");
  CHECK(error_of([&] { return chunk(x, 0)[0]; }) ==
        "chunk: the count is 0, it has to be positive at HERE.");
  CHECK(error_of([&] {
          return x.roll({1, 2}, 0);
        }) == "roll: there are 2 shifts for 1 axes at HERE.");
  CHECK(error_of([&] { return tensor(1.).roll(1, 0); }) ==
        "roll: a 0-d tensor has no axis to roll along at HERE.");
  CHECK(error_of([&] { return x.repeat({2}); }) ==
        "repeat: [2] has fewer numbers than [2, 3] has axes at HERE.");
  CHECK(error_of([&] {
          return x.repeat({2, -1});
        }) == "repeat: a count is negative: [2, -1] at HERE.");
  CHECK(error_of([&] { return pad(row, 1); }) ==
        "pad: [1] are not pairs for some of the axes of [3] at HERE. Hint: write {left, right, "
        "top, bottom}, the last axis first");
  CHECK(error_of([&] {
          return pad(row, {-2, -2});
        }) == "pad: [-2, -2] take away more than there is of [3] at HERE.");
  CHECK(error_of([&] {
          return pad(row, {2, -5});
        }) == "pad: [2, -5] take away more than there is of [3] at HERE.");
  CHECK(error_of([&] {
          return pad(tensor({1}), {1, 1}, 0.5);
        }) == "pad: a float32 value can't be written into int64 at HERE.");
}

TEST_CASE("an index with too many numbers is refused") {
  CHECK(error_of([] {
          return zeros({2, 3}).at({0, 1, 2});
        }) == "at: [0, 1, 2] has more indices than [2, 3] has axes at HERE.");
}

// ---- Types --------------------------------------------------------------------------------------

TEST_CASE("matmul does not convert types silently") {
  const Tensor a = zeros({2, 2}), b = zeros({2, 2}, {.dtype = float64});
  CHECK(error_of([&] { return a.matmul(b); }) ==
        "matmul: the dtypes differ: float32 and float64 at HERE. Hint: convert one with "
        ".to(float64)");
  CHECK(error_of([&] { return (a > 0).matmul(a > 0); }) ==
        "matmul: it takes numbers, not bools at HERE. Hint: convert with .to(float32)");
}

TEST_CASE("integers and bools have no gradients") {
  CHECK(error_of([] {
          return tensor({1, 2}, {.requires_grad = true});
        }) ==
        "tensor: only floating point tensors can require gradients, not int64 at HERE. Hint: "
        "write 2.0 instead of 2, or {.dtype = float32}");
  CHECK(error_of([] {
          return tensor({1, 2}).requires_grad_();
        }) ==
        "requires_grad_: only floating point tensors can require gradients, not int64 at HERE.");
  CHECK(error_of([] { return (tensor({1.}) > 0).requires_grad_(); }).find("not bool at HERE") !=
        std::string::npos);
}

TEST_CASE("the mean of integers says how to convert") {
  CHECK(error_of([] {
          return tensor({1, 2}).mean();
        }) == "mean: the mean of int64 is not int64 at HERE. Hint: convert with .to(float32)");
}

TEST_CASE("operations that bools do not have say what to write") {
  const Tensor mask = tensor({true, false});
  CHECK(error_of([&] { return -mask; }) ==
        "neg: it takes numbers, not bools at HERE. Hint: convert with .to(int64); for logic write "
        "& | ^ ~");
  CHECK(error_of([&] { return mask.abs(); }).find("abs: it takes numbers") == 0);
  CHECK(error_of([&] { return mask.relu(); }).find("relu: it takes numbers") == 0);
  CHECK(error_of([&] { return mask.pow(mask); }).find("pow: it takes numbers") == 0);
  CHECK(error_of([&] { return 1.0 - mask; }) ==
        "sub: bools are not subtracted at HERE. Hint: write a ^ b, or convert with .to(int64)");
}

TEST_CASE("logic takes bools, and says what was probably meant") {
  const Tensor x = tensor({1., 2.});
  CHECK(error_of([&] { return x & x; }) ==
        "&: it takes bools at HERE. Hint: compare first: (x > 0) & (x < 1)");
  CHECK(error_of([&] { return x | true; }) ==
        "|: it takes bools at HERE. Hint: compare first: (x < 0) | (x > 1)");
  CHECK(error_of([&] { return x ^ 2; }) ==
        "^: it takes bools at HERE. Hint: for a power write x.pow(2)");
  CHECK(error_of([&] { return ~x; }) == "~: it takes bools at HERE. Hint: write x == 0");
}

TEST_CASE("a chained comparison is refused") {
  const Tensor x = tensor({1., 2.});
  CHECK(error_of([&] { return 1 < x < 2; }) ==
        "less: a bool is compared with a number that is neither 0 nor 1 at HERE. Hint: for 1 < x "
        "< 2 write (1 < x) & (x < 2)");
  CHECK(error_of([&] { return 5 >= (x > 1); }).find("greater_equal: ") == 0);
  CHECK(((x > 1) > 0.5).to_vector<int>() == std::vector<int>{0, 1});
  CHECK(((x > 1) == 2).to_vector<int>() == std::vector<int>{0, 0});
}

TEST_CASE("integers are not divided by zero, and rounding is spelled out") {
  const Tensor a = tensor({1, 2});
  const std::string rule =
      "an integer is divided by 0 at HERE. Hint: convert with .to(float32) to get inf or nan";
  CHECK(error_of([&] { return floor_divide(a, tensor({0, 1})); }) == "floor_divide: " + rule);
  CHECK(error_of([&] { return a.remainder(0); }) == "remainder: " + rule);
  CHECK(error_of([&] { return fmod(a, 0); }) == "fmod: " + rule);
  CHECK(error_of([&] { return div(a, 0, {.rounding = "trunc"}); }) == "trunc_divide: " + rule);
  CHECK(error_of([&] { return div(a, 2, {.rounding = "up"}); }) ==
        "div: rounding is \"up\" at HERE. Hint: write \"trunc\" or \"floor\"");
  CHECK(error_of([&] { return (a > 1).remainder(2 > 1); }).find("remainder: it takes numbers") ==
        0);
}

TEST_CASE("reductions that divide or take roots want floats") {
  const Tensor x = tensor({1, 2});
  const std::string rule = ": it takes floats, not int64 at HERE. Hint: convert with .to(float32)";
  CHECK(error_of([&] { return x.var(); }) == "var" + rule);
  CHECK(error_of([&] { return x.std(); }) == "std" + rule);
  CHECK(error_of([&] { return x.norm(); }) == "norm" + rule);
  CHECK(error_of([&] { return x.logsumexp(0); }) == "logsumexp" + rule);
}

TEST_CASE("more reductions say which axes and elements there are") {
  const Tensor x = zeros({2, 3});
  const std::string rule = ": axis 2 is out of range for 2 dimensions at HERE. Hint: use -2 to 1";
  CHECK(error_of([&] { return x.prod(2); }) == "prod" + rule);
  CHECK(error_of([&] { return x.any(2); }) == "any" + rule);
  CHECK(error_of([&] { return x.cumsum(2); }) == "cumsum" + rule);
  CHECK(error_of([&] { return x.cumprod(2); }) == "cumprod" + rule);
  CHECK(error_of([&] { return x.sort(2).values; }) == "sort" + rule);
  CHECK(error_of([&] { return x.argsort(2); }) == "argsort" + rule);
  CHECK(error_of([&] { return x.flip(2); }) == "flip" + rule);
  CHECK(error_of([&] {
          return x.flip({0, 0});
        }) == "flip: an axis is named twice: [0, 0] at HERE.");
  CHECK(error_of([&] { return x.topk(4).values; }) ==
        "topk: there are no 4 elements along a size of 3 at HERE.");
  CHECK(error_of([] { return zeros({0}).argmin(); }) ==
        "argmin: an empty axis has no largest or smallest element: the shape is [0] at HERE.");
}

TEST_CASE("clamp wants a bound") {
  CHECK(error_of([] { return tensor({1.}).clamp(ClampOptions()); }) ==
        "clamp: it has no bound at HERE. Hint: write {.min = 0}, {.max = 1} or both");
}

TEST_CASE("activations and lerp take floats") {
  const Tensor x = tensor({1, 2});
  CHECK(error_of([&] { return gelu(x); }) ==
        "gelu: it takes floats, not int64 at HERE. Hint: convert with .to(float32)");
  CHECK(error_of([&] { return silu(x); }).find("silu: it takes floats") == 0);
  CHECK(error_of([&] { return elu(x); }).find("elu: it takes floats") == 0);
  CHECK(error_of([&] { return softplus(x); }).find("softplus: it takes floats") == 0);
  CHECK(error_of([&] { return logsigmoid(x); }).find("logsigmoid: it takes floats") == 0);
  CHECK(error_of([&] { return leaky_relu(x); }).find("leaky_relu: it takes floats") == 0);
  CHECK(error_of([&] { return gelu(tensor({1.}), {.approximate = "erf"}); }) ==
        "gelu: approximate is \"erf\" at HERE. Hint: write \"none\" or \"tanh\"");
  CHECK(error_of([&] { return lerp(x, x, 0.5); }) ==
        "lerp: it takes floats of one type, not int64, int64 and int64 at HERE. Hint: convert with "
        ".to(float32)");
}

TEST_CASE("where takes a condition of bools") {
  const Tensor x = tensor({1., 2.});
  CHECK(error_of([&] { return where(x, x, x); }) ==
        "where: the condition is float32, not bool at HERE. Hint: compare first: x > 0");
  CHECK(error_of([&] { return where(x, x, 0); }) ==
        "where: the condition is float32, not bool at HERE. Hint: compare first: x > 0");
  CHECK(error_of([&] { return where(x, 1, 0); }) ==
        "where: the condition is float32, not bool at HERE. Hint: compare first: x > 0");
  CHECK(error_of([&] { return where(x, 0, x); }).find("where: the condition is float32") == 0);
}

TEST_CASE("an integer to a negative power is refused") {
  CHECK(error_of([] {
          return tensor({1, 2}).pow(-1);
        }) ==
        "pow: an integer to a negative power is not an integer at HERE. Hint: convert with "
        ".to(float32)");
}

TEST_CASE("a device that is not there is an error in words") {
  CHECK(error_of([] { return Device("gpu"); }) ==
        "device \"gpu\" is unknown. Hint: write \"cpu\", \"cuda\" or, for the second card, "
        "\"cuda:1\"");
  CHECK(error_of([] { return tensor({1.}).to("cuda"); }) ==
        "to: there is no device cuda:0: this program was built without kernels.cu at HERE. Hint: "
        "stay on \"cpu\", or build with cmake -D MINITENSOR_CUDA=ON");
  CHECK_FALSE(cuda_is_available());
  CHECK(device_count() == 0);
  const std::string reason =
      ": there is no device cuda:0: this program was built without kernels.cu at HERE. Hint: "
      "stay on \"cpu\", or build with cmake -D MINITENSOR_CUDA=ON";
  CHECK(error_of([] { return device_name(); }) == "device_name" + reason);
  CHECK(error_of([] { device_properties(); }) == "device_properties" + reason);
  CHECK(error_of([] { memory_statistics(); }) == "memory_statistics" + reason);
  CHECK(error_of([] { synchronize(); }) == "synchronize" + reason);
  CHECK(error_of([] { return zeros({2}, {.device = cuda}); }).find("zeros: there is no device") ==
        0);
  CHECK(error_of([] { return randn({2}, {.device = cuda}); }).find("randn: there is no") == 0);
  CHECK(error_of([] { return tensor({1.}, {.device = "cuda:1"}); }).find("tensor: there is no") ==
        0);
}

// ---- Values -------------------------------------------------------------------------------------

TEST_CASE("item wants one number") {
  const Tensor x = zeros({2, 3});
  CHECK(error_of([&] { return x.item(); }) ==
        "item: a tensor of shape [2, 3] is not one number at HERE. Hint: reduce it first, with "
        "sum(), mean() or all(), or pick an element: x[0]");
  CHECK(zeros({1, 1}).item() == 0);
}

TEST_CASE("a condition that is not one number names the line of the comparison") {
  const Tensor x = tensor({1., 2.});
  CHECK(
      error_of([&] { return x > 1 ? 1 : 0; }) ==
      "item: a tensor of shape [2] is not one number at HERE. Hint: reduce it with all() or any(); "
      "between masks write & | ~ instead of && || !");
  CHECK(error_of([&] { return x > 1 && x < 2; }).find("write & | ~") != std::string::npos);
}

TEST_CASE("data wants the type of the elements") {
  const Tensor x = tensor({1., 2.});
  CHECK(x.data<float>()[1] == 2);
  CHECK(error_of([&] { return x.data<double>(); }).find("data: the elements are float32") == 0);
  CHECK(refused([] { return tensor({1}).data<int>(); }));
}

TEST_CASE("an undefined tensor says what it is, whatever is done with it") {
  const Tensor x = tensor({1., 2.}), none;
  CHECK_FALSE(none.defined());
  CHECK_FALSE(leaf(1.0).grad().defined());
  CHECK(error_of([&] { return x + none; }) ==
        "add: an input is undefined, as a Tensor without a value is, and grad() before a backward "
        "pass at HERE. Hint: begin with tensor(0.0) or zeros(...), call backward() first, or ask "
        "defined()");
  CHECK(error_of([&] { return none.exp(); }).find("exp: an input is undefined") == 0);
  CHECK(error_of([&] { return none - x; }).find("sub: an input is undefined") == 0);
  CHECK(error_of([&] { return none.matmul(x); }).find("matmul: an input is undefined") == 0);
  CHECK(error_of([&] { none.backward(); }).find("backward: an input is undefined") == 0);
  CHECK(error_of([&] { x.add_(none); }).find("add_: an input is undefined") == 0);
  CHECK(error_of([&] { return cat({x, none}); }).find("cat: an input is undefined") == 0);
  for (const auto& use :
       std::vector<std::function<void()>>{[&] { static_cast<void>(none.shape()); },
                                          [&] { static_cast<void>(none.item()); },
                                          [&] { static_cast<void>(bool(none)); },
                                          [&] { static_cast<void>(none < 1); },
                                          [&] { static_cast<void>(none.sum()); },
                                          [&] { static_cast<void>(none[0]); },
                                          [&] { static_cast<void>(~none); },
                                          [&] { static_cast<void>(none & none); },
                                          [&] { static_cast<void>(none.softmax(0)); },
                                          [&] { none.zero_grad(); },
                                          [&] { static_cast<void>(none.grad()); },
                                          [&] { static_cast<void>(none.clone()); },
                                          [&] { static_cast<void>(stack({none})); },
                                          [&] { none.zero_(); },
                                          [&] { static_cast<void>(where(x > 0, none, 1)); },
                                          [&] { static_cast<void>(mse_loss(x, none)); },
                                          [&] { static_cast<void>(grad(leaf(1.0), none)); },
                                          [&] { static_cast<void>(-none); },
                                          [&] { static_cast<void>(none.to(float64)); },
                                          [&] { none.named("x"); }}) {
    const std::string text = error_of(use);
    CAPTURE(text);
    CHECK(text.find(
              "is undefined, as a Tensor without a value is, and grad() before a backward pass") !=
          std::string::npos);
  }
  CHECK(to_string(none) == "tensor(undefined)");
}

TEST_CASE("an undefined tensor is reported at the line that uses it") {
  const Tensor none;
  Tensor same;
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { static_cast<void>(none < 5); }, [&] { static_cast<void>(none & none); },
           [&] { static_cast<void>(~none); }, [&] { static_cast<void>(none.item<int>()); },
           [&] { static_cast<void>(none.to_vector()); },
           [&] { static_cast<void>(ones_like(none)); },
           [&] { static_cast<void>(full_like(none, 2)); }, [&] { none.fill_(0.5); },
           [&] { none.zero_(); }, [&] { none.requires_grad_(); }, [&] { same /= 2; }})
    CHECK(error_of(use).find(": an input is undefined") != std::string::npos);
  // Who asks for a shape does not say from where.
  CHECK(error_of([&] {
          static_cast<void>(none.dim());
        }).find("tensor: a tensor used on that line, or after it, is undefined") == 0);
}

// ---- Gradients ----------------------------------------------------------------------------------

TEST_CASE("backward explains what it cannot do") {
  const Tensor x = leaf({1., 2.}), plain = tensor(1.0);
  CHECK(error_of([&] { plain.backward(); }) ==
        "backward: this tensor does not require grad: nothing that leads to it was recorded at "
        "HERE. Hint: make a leaf with {.requires_grad = true} and compute outside of NoGrad; "
        "comparisons, argmax, integers and detach() cut the way back, and so does grad() without "
        "{.create_graph = true}");
  CHECK(error_of([&] { (x * x).backward(); }) ==
        "backward: only a single number has an implied gradient of 1, and the shape is [2] at "
        "HERE. Hint: reduce with sum() or mean(), or pass the gradient: y.backward(ones_like(y))");
  CHECK(error_of([&] { return grad(x * x, x)[0]; }) ==
        "grad: only a single number has an implied gradient of 1, and the shape is [2] at HERE. "
        "Hint: reduce with sum() or mean(), or add {.grad_outputs = {ones_like(y)}}");
  CHECK(error_of([&] { (x * x).backward(ones({3})); }) ==
        "backward: the gradient has shape [3], and the tensor [2] at HERE.");
  CHECK(refused([&] { (x * x).backward(ones({1})); }));
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("grad explains what it cannot do") {
  const Tensor x = leaf({1., 2.});
  CHECK(error_of([&] { return grad(x * x, x); }).find("grad: only a single number") == 0);
  CHECK(error_of([&] { return grad((x * x).sum(), tensor(1.0)); }) ==
        "grad: input 0 does not require grad at HERE. Hint: make it with {.requires_grad = true}");
}

TEST_CASE("hooks and retained gradients need a gradient that will come") {
  const Tensor x = tensor(1.0);
  CHECK(error_of([&] { x.register_hook([](const Tensor&) {}); }) ==
        "register_hook: this tensor does not require grad, so no gradient will come at HERE.");
  CHECK(error_of([&] { x.retain_grad(); }) ==
        "retain_grad: this tensor does not require grad, so no gradient will come at HERE.");
}

TEST_CASE("a gradient set by hand has to fit") {
  const Tensor x = leaf({1., 2.});
  CHECK(error_of([&] { x.set_grad(ones({3})); }) ==
        "set_grad: the gradient of a [2] tensor has its shape and dtype, not [3] float32 at HERE.");
  CHECK(refused([&] { x.set_grad(tensor({1, 2})); }));
}

// ---- Losses and random numbers ------------------------------------------------------------------

TEST_CASE("losses say what does not fit") {
  const Tensor x = full({2, 3}, 0.5), row = full({3}, 0.5);
  CHECK(error_of([&] { return binary_cross_entropy(x, row); }) ==
        "binary_cross_entropy: the shapes [2, 3] and [3] differ at HERE. "
        "Hint: give both the same shape, with squeeze(-1) or unsqueeze(-1)");
  CHECK(error_of([&] { return binary_cross_entropy(x + 1, x); }) ==
        "binary_cross_entropy: an element of the input is not a probability between 0 and 1 at "
        "HERE. Hint: write binary_cross_entropy_with_logits, which takes any number");
  CHECK(error_of([&] { return binary_cross_entropy_with_logits(x, row); }) ==
        "binary_cross_entropy_with_logits: the shapes [2, 3] and [3] differ at HERE. "
        "Hint: give both the same shape, with squeeze(-1) or unsqueeze(-1)");
  CHECK(error_of([&] { return huber_loss(x, x, {.delta = 0}); }) ==
        "huber_loss: delta is 0, it has to be positive at HERE.");
  CHECK(error_of([&] { return smooth_l1_loss(x, x, {.beta = -1}); }) ==
        "smooth_l1_loss: beta is negative: -1 at HERE.");
  CHECK(error_of([&] { return l1_loss(x, x, {.reduction = "all"}); }).find("l1_loss: reduction") ==
        0);
  CHECK(error_of([&] {
          return nll_loss(x, tensor({0, 3}));
        }) ==
        "nll_loss: index 3 is out of range for size 3 at HERE. Hint: an index is at least 0 and "
        "less than 3");
  CHECK(error_of([&] { return nll_loss(x, row); }).find("nll_loss: the target is float32") == 0);
  CHECK(error_of([&] {
          return nll_loss(x, tensor({0, 1}), {.weight = x});
        }) == "nll_loss: the weight has shape [2, 3], and there are 3 classes at HERE.");
  CHECK(error_of([&] {
          return cross_entropy(x, tensor({0, 1}), {.label_smoothing = 2});
        }) == "cross_entropy: label_smoothing is 2, it has to be between 0 and 1 at HERE.");
}

TEST_CASE("layers say what does not fit") {
  const Tensor x = zeros({2, 3}), image = zeros({1, 2, 3, 3}), kernel = zeros({4, 2, 2, 2});
  CHECK(
      error_of([&] {
        return linear(x, zeros({3, 4}));
      }) ==
      "linear: the input [2, 3] and the weight [3, 4] do not fit at HERE. Hint: [.., in] goes with "
      "a weight [out, in]");
  CHECK(error_of([&] {
          return linear(x, zeros({4, 3}), zeros({3}));
        }) == "linear: the bias [3] and the weight [4, 3] do not fit at HERE.");
  CHECK(error_of([&] {
          return one_hot(tensor({1., 2.}));
        }) == "one_hot: the index is float32, not int64 at HERE. Hint: convert with .to(int64)");
  CHECK(error_of([&] { return one_hot(tensor({3}), 3); }) ==
        "one_hot: index 3 is out of range for size 3 at HERE. Hint: an index is at least 0 and "
        "less than 3");
  CHECK(
      error_of([&] { return one_hot(zeros({0}, {.dtype = int64})); }) ==
      "one_hot: an empty index does not tell how many classes there are at HERE. Hint: name their "
      "number");
  CHECK(error_of([&] { return embedding(tensor({2}), x); }) ==
        "embedding: index 2 is out of range for size 2 at HERE. Hint: an index is at least 0 and "
        "less than 2");
  CHECK(error_of([&] { return embedding(tensor({0}), zeros({2})); }) ==
        "embedding: the weight has shape [2], and not two axes at HERE.");
  CHECK(error_of([&] { return layer_norm(x, {2}); }) ==
        "layer_norm: the last axes of [2, 3] are not [2] at HERE.");
  CHECK(error_of([&] { return layer_norm(x, {3}, zeros({2})); }) ==
        "layer_norm: a parameter has shape [2] instead of [3] at HERE.");
  CHECK(
      error_of([&] { return group_norm(x, 2); }) ==
      "group_norm: the channels of [2, 3] do not make 2 groups at HERE. Hint: the input is [N, C, "
      "...]");
  CHECK(error_of([&] { return batch_norm(x, zeros({2}), zeros({3})); }) ==
        "batch_norm: a parameter has shape [2], and there are 3 channels at HERE.");
  CHECK(error_of([&] { return batch_norm(x, Tensor(), Tensor()); }) ==
        "batch_norm: there is no running mean or variance at HERE. Hint: write {.training = true}");
  CHECK(error_of([&] {
          return batch_norm(zeros({1, 3}), Tensor(), Tensor(), {}, {}, {.training = true});
        }) ==
        "batch_norm: one value per channel has no variance to train with: [1, 3] at HERE. "
        "Hint: hand over more than one example, or call eval() first");
  CHECK(error_of([&] {
          return conv2d(image, zeros({4, 3, 2, 2}));
        }) ==
        "conv2d: the channels of the input [1, 2, 3, 3] and of the weight [4, 3, 2, 2] do not fit, "
        "with 1 groups at HERE. Hint: they are [N, C, H, W] and [O, C / groups, h, w]");
  CHECK(error_of([&] { return conv2d(x, kernel); }).find("need 4 axes") != std::string::npos);
  CHECK(error_of([&] { return conv1d(x, kernel); }).find("need 3 axes") != std::string::npos);
  CHECK(error_of([&] { return conv2d(image, kernel.to(float64)); }) ==
        "conv2d: the dtypes differ: float32 and float64 at HERE. Hint: convert one with "
        ".to(float64)");
  CHECK(error_of([&] { return conv2d(image, kernel, zeros({2})); }) ==
        "conv2d: the bias [2] and the weight [4, 2, 2, 2] do not fit at HERE.");
  CHECK(
      error_of([&] {
        return conv2d(image, zeros({4, 2, 4, 4}));
      }) ==
      "conv2d: the kernel reaches over [4, 4], and the padded input is [3, 3] at HERE. Hint: give "
      "it more padding");
  CHECK(
      error_of([&] { return conv2d(image, kernel, {.stride = -1}); }) ==
      "conv2d: the kernel [2, 2], the stride [-1, -1] and the dilation [1, 1] have to be positive "
      "at HERE.");
  CHECK(error_of([&] { return conv2d(image, kernel, {.padding = -1}); }) ==
        "conv2d: the padding is negative: [-1, -1] at HERE.");
  CHECK(error_of([&] { return max_pool2d(image, 3, {.padding = 2}); }) ==
        "max_pool2d: the padding [2, 2] is more than half of the kernel [3, 3] at HERE.");
  CHECK(error_of([&] { return avg_pool2d(x, 2); }) ==
        "avg_pool2d: the input has shape [2, 3] at HERE. Hint: it is [N, C, H, W] or [C, H, W]");
  CHECK(error_of([&] { return adaptive_avg_pool2d(image, 0); }) ==
        "adaptive_avg_pool2d: the size [0, 0] has to be positive at HERE.");
  CHECK(error_of([&] {
          return scaled_dot_product_attention(x, x, image);
        }).find("scaled_dot_product_attention: the shapes [2, 3], [2, 3] and [1, 2, 3, 3]") == 0);
  CHECK(
      error_of([&] {
        return scaled_dot_product_attention(x, x, x, {.attn_mask = x, .is_causal = true});
      }) ==
      "scaled_dot_product_attention: is_causal and attn_mask are given together at HERE. Hint: put "
      "one into the other");
}

TEST_CASE("random operations say what is no probability") {
  const Tensor x = tensor({0.5, -1.});
  CHECK(error_of([&] { return dropout(x, 1.5); }) ==
        "dropout: the probability is 1.5, it has to be between 0 and 1 at HERE.");
  CHECK(error_of([&] { return bernoulli(x); }) ==
        "bernoulli: a probability is not between 0 and 1 at HERE.");
  CHECK(error_of([&] { return multinomial(x, 1); }) ==
        "multinomial: a weight is negative, infinite or NaN at HERE.");
  CHECK(error_of([&] {
          return multinomial(tensor({1., 0.}), 2);
        }) ==
        "multinomial: there are not 2 different indices with a weight above 0 at HERE. Hint: write "
        "{.replacement = true}");
  CHECK(error_of([&] {
          return multinomial(tensor({0., 0.}), 3, {.replacement = true});
        }) == "multinomial: no weight is above 0 at HERE.");
  CHECK(error_of([&] { return multinomial(tensor(1.0), 1); }) ==
        "multinomial: the weights have shape [] at HERE. Hint: they are [n] or [m, n]");
  CHECK(error_of([&] { return x.uniform_(2, 1); }) ==
        "uniform_: there is nothing from 2 to 1 at HERE.");
  CHECK(error_of([&] { return x.normal_(0, -1); }) ==
        "normal_: the standard deviation is negative: -1 at HERE.");
  CHECK(error_of([&] { return tensor({1, 2}).normal_(); }).find("normal_: it takes floats") == 0);
  CHECK(error_of([&] {
          return tensor({1, 2}).clamp_(0.5, 1);
        }) ==
        "clamp_: a float32 result can't be written into int64 at HERE. Hint: convert first: x = "
        "x.to(float32)");
  CHECK(error_of([&] {
          return x.masked_fill_(zeros({3, 2}) > 0, 1);
        }) == "masked_fill_: the result [3, 2] does not fit into [2] at HERE.");
  CHECK(error_of([&] { return leaf({1.}).clamp_(0, 1); }).find("clamp_: a leaf that requires") ==
        0);
}

TEST_CASE("cross_entropy says which shapes and classes go together") {
  const Tensor logits = zeros({2, 3});
  CHECK(error_of([&] {
          return cross_entropy(logits, tensor({0, 3}));
        }) ==
        "cross_entropy: index 3 is out of range for size 3 at HERE. Hint: an index is at least 0 "
        "and less than 3");
  CHECK(error_of([&] {
          return cross_entropy(logits, tensor({0, 1, 2}));
        }) ==
        "cross_entropy: the shapes [2, 3] and [3] do not fit at HERE. Hint: logits [N, C] go with "
        "class numbers [N]");
  CHECK(error_of([&] {
          return cross_entropy(logits, tensor({0., 1.}));
        }) ==
        "cross_entropy: the target is float32, not class numbers in int64 at HERE. Hint: convert "
        "with .to(int64)");
  CHECK(error_of([&] { return mse_loss(logits, logits, {.reduction = "average"}); }) ==
        "mse_loss: reduction is \"average\" at HERE. Hint: write \"mean\", \"sum\" or \"none\"");
}

TEST_CASE("an empty range of random integers is refused") {
  CHECK(error_of([] { return randint(5, 5, {2}); }) ==
        "randint: there is no integer from 5 to below 5 at HERE.");
}

TEST_CASE("an optimiser wants leaves that require grad") {
  CHECK(error_of([] { return optim::SGD({tensor(1.0)}); }) ==
        "SGD: parameter 0 is not a leaf that requires grad at HERE. Hint: make it with "
        "{.requires_grad = true}");
  CHECK(refused([] { return optim::SGD({leaf(1.0)}, {.lr = -1}); }));
}

// ---- Lines --------------------------------------------------------------------------------------

// What line, in this file, the text of an error names.
int line_in(const std::string& text) {
  const std::string file = "test_errors.cpp:";
  const std::size_t at = text.find(file);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + file.size());
}
int line_of_node(const Tensor& y) { return y.grad_fn()->line().line(); }

TEST_CASE("an operator over several lines has the line of its right operand") {
  const Tensor a = leaf({1., 2.}), b = zeros({3});
  const int line = __LINE__;
  // clang-format off
  const std::string text = error_of([&] {
    return a +
           b;
  });
  // clang-format on
  CHECK(line_in(text) == line + 4);
}

TEST_CASE("a file is named without its folders") {
  const std::string text = error_of([] { return zeros({2}) + zeros({3}); });
  CHECK(text.find('/') == std::string::npos);
}

TEST_CASE("what is inside a composed operation carries the line of its call") {
  const Tensor x = leaf({{1., 2.}, {3., 4.}});
  const Tensor y = softmax(x, 1);
  const int line = __LINE__ - 1;
  CHECK(line_of_node(y) == line);
  const Node* division = y.grad_fn();
  CHECK(division->inputs[0].from.node->loc.line() == line);
  CHECK(error_of([&] { return mse_loss(x, zeros({3})); }) ==
        "mse_loss: shapes do not broadcast: [2, 2] and [3] (2 vs 3 at axis -1) at HERE. Hint: "
        "sizes must "
        "be equal or 1, counted from the last axis");
}

TEST_CASE("operators, methods, indices and functions carry the line of the caller") {
  const Tensor x = leaf({1., 2.});
  std::vector<std::pair<int, Tensor>> made;
  const auto note = [&](int line, const Tensor& y) { made.emplace_back(line, y); };
  note(__LINE__, x + 1);
  note(__LINE__, 1 - x);
  note(__LINE__, -x);
  note(__LINE__, x.exp());
  note(__LINE__, exp(x));
  note(__LINE__, x.pow(3));
  note(__LINE__, x[0]);
  note(__LINE__, x.sum({0}));
  note(__LINE__, x.reshape(2, 1));
  note(__LINE__, x.view({1, 2}));
  note(__LINE__, stack({x, x}));
  note(__LINE__, where(x > 0, x, 0.0));
  note(__LINE__, cross_entropy(x, tensor(1)));
  note(__LINE__, max(x, x));
  note(__LINE__, [&](auto y) { return y * 2; }(x));
  for (const auto& [line, y] : made) {
    INFO("expected line " << line << ", node " << y.grad_fn()->name());
    CHECK(line_of_node(y) == line);
  }
}

TEST_CASE("rows of a loop carry the line of the loop") {
  const Tensor x = leaf({{1., 2.}, {3., 4.}});
  for (const Tensor& row : x) CHECK(line_of_node(row) == __LINE__);
}

TEST_CASE("calls that come through the standard library carry the last line that did not") {
  const std::vector<Tensor> parts = {leaf(1.0), leaf(2.0), leaf(3.0)};
  const Tensor first = parts[0] * 1;
  const int line = __LINE__ - 1;
  const Tensor sum = std::accumulate(parts.begin() + 1, parts.end(), first);
  CHECK(sum.item() == 6);
  CHECK(line_of_node(sum) == line);
}

TEST_CASE("what a rule does carries the line of the operation that it belongs to") {
  const Tensor x = leaf(2.0);
  const Tensor y = x * x;
  const int line = __LINE__ - 1;
  const Tensor first = grad(y, x, {.create_graph = true})[0];
  CHECK(line_of_node(first) == line);
}

// ---- Numbers beyond all reason ------------------------------------------------------------------

TEST_CASE("sizes that no image has are refused, and no sum of them wraps around") {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Tensor image = ones({1, 1, 4, 4}), kernel = ones({1, 1, 2, 2});
  CHECK(error_of([&] {
          return conv2d(image, kernel, {.dilation = most});
        }).find("are too large for any image at HERE.") != std::string::npos);
  CHECK(refused([&] { return conv2d(image, ones({1, 1, 3, 3}), {.dilation = most / 2 + 1}); }));
  CHECK(refused([&] { return conv2d(image, kernel, {.stride = most}); }));
  CHECK(error_of([&] {
          return conv2d(image, kernel, {.padding = most});
        }).find("the padding is too large for any image") != std::string::npos);
  CHECK(refused([&] { return avg_pool2d(image, most, {.padding = most / 2}); }));
  CHECK(refused([&] { return max_pool2d(image, 2, {.stride = most - 1, .ceil_mode = true}); }));
  CHECK(refused([&] { return adaptive_avg_pool2d(image, {most / 2, 1}); }));
  CHECK(error_of([&] {
          return pad(ones({2}), {most, most});
        }).find("are too many elements for any memory") != std::string::npos);
  CHECK(refused([&] { return pad(ones({2}), {-most, -most}); }));
  CHECK(refused([&] { return ones({2}).repeat({most}); }));
  CHECK(ones({2}).chunk(most).size() == 2);
}

TEST_CASE("uniform_ refuses a range that its dtype cannot hold") {
  Tensor x = zeros({4});
  CHECK(error_of([&] { x.uniform_(-3e38, 3e38); }) ==
        "uniform_: the range from -3e+38 to 3e+38 is too wide for float32 at HERE.");
  CHECK(refused([&] { x.uniform_(0, 1e39); }));
  CHECK(refused([&] { x.uniform_(0, INFINITY); }));
  CHECK(refused([&] { zeros({4}, {.dtype = float64}).uniform_(-1e308, 1e308); }));
  x.uniform_(-1e38, 1e38);
  CHECK(x.isfinite().all().item<bool>());
}

// ---- Being told ---------------------------------------------------------------------------------

TEST_CASE("an observer is told of a failure, with its text") {
  struct Listener : Observer {
    void failed(const char* op, const Node* node, Span<Id> named, const std::string& text,
                Loc line) override {
      told = std::string(op) + " | " + text + " | " + line.text();
      at = node == nullptr ? 0 : node->id();
      inputs.assign(named.begin(), named.end());
    }
    std::string told;
    Id at = 0;
    std::vector<Id> inputs;
  } listener;
  const Tensor a = zeros({2}), b = zeros({3}), c = ones({2, 2});
  Observer* const before = observe(&listener);
  const std::string text = error_of([&] { return a + b; });
  CHECK(listener.told.find("add | add: shapes do not broadcast") == 0);
  CHECK(listener.at == 0);
  CHECK(listener.inputs == std::vector<Id>{a.id(), b.id()});

  observe(&listener);
  CHECK(refused([&] { return c.matmul(b); }));
  CHECK(listener.inputs == std::vector<Id>{c.id(), b.id()});
  CHECK(
      refused([&] { return arange(0, 5, -1); }));  // has no tensor, and takes none of those before
  CHECK(listener.inputs.empty());
  observe(before);
}

TEST_CASE("an observer is told at which node a pass failed") {
  struct Listener : Observer {
    void failed(const char* op, const Node* node, Span<Id>, const std::string&, Loc) override {
      told.emplace_back(op, node);
    }
    std::vector<std::pair<std::string, const Node*>> told;
  } listener;
  const Tensor x = tensor({1., 2.}, {.requires_grad = true});
  const Tensor y = x * 1, z = y * y;
  const Tensor loss = z.sum();
  y.mul_(2);  // z's rule needs what y was
  Observer* const before = observe(&listener);
  const std::string text = error_of([&] { loss.backward(); });
  observe(before);
  CHECK(text.find("mul: the value that its derivative needs") == 0);
  REQUIRE(listener.told.size() == 1);
  CHECK(listener.told[0].first == "mul");
  CHECK(listener.told[0].second == z.grad_fn());

  listener.told.clear();
  const Tensor w = x * x;
  const Tensor total = w.sum();
  total.backward();
  observe(&listener);
  (void)error_of([&] { total.backward(); });
  observe(before);
  REQUIRE(listener.told.size() == 1);
  CHECK(listener.told[0].first == "backward");
  CHECK(listener.told[0].second == w.grad_fn());
}

TEST_CASE(
    "an operation with a number is called as it is written, whichever side the number is on") {
  const Tensor yes = tensor({true, false});
  CHECK(error_of([&] { return yes * 2 - true; }).find("_number") == std::string::npos);
  const Tensor x = tensor({1., 2.}, {.requires_grad = true});
  for (const Tensor& y : {x * 2, 2 / x, 2 - x, x + 1, x.pow(3), pow(2, x)}) {
    const std::string text = error_of([&] { y.backward(); });
    CHECK(text.find("number_") == std::string::npos);
    CHECK(text.find("_number") == std::string::npos);
  }
  const Tensor half = 1 / x;
  CHECK(std::string(half.grad_fn()->facts().name) == "number_div");
  CHECK(std::string(half.grad_fn()->facts().plain_name()) == "div");
  CHECK(to_dot(graph(half.sum())).find("number") == std::string::npos);
}

}  // namespace
