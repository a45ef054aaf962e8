// Shapes and views: which results share memory, where their elements lie, and how a shape is read
// as another one. Where a shape or stride is not plain arithmetic it was compared with
// PyTorch 1.13.
#include "tests/tensors.hpp"

namespace {

using namespace mt;
using namespace tensors;

Tensor counting(Shape shape) { return arange(shape.numel()).reshape(shape); }

std::vector<int> ints(const Tensor& x) { return x.to_vector<int>(); }

// ---- Sharing memory -----------------------------------------------------------------------------

TEST_CASE("views share storage and version with their base, copies do not") {
  const Tensor x = tensor({{0., 1., 2.}, {3., 4., 5.}});
  for (const Tensor& v : {x.view({6}),
                          x.view(3, 2),
                          x.reshape({3, 2}),
                          x.flatten(),
                          x.t(),
                          x.transpose(0, 1),
                          x.permute({1, 0}),
                          x.permute(1, 0),
                          x.expand({4, 2, 3}),
                          x.expand(4, 2, 3),
                          x.squeeze(),
                          x.squeeze(0),
                          x.unsqueeze(0),
                          x[0],
                          x.select(1, 2),
                          x.slice(1, 0, 2),
                          x.narrow(0, 1, 1),
                          x.at({1, 2}),
                          x.contiguous(),
                          x.detach(),
                          x.to(float32)}) {
    CHECK(v.shares_storage_with(x));
    CHECK(v.storage_id() == x.storage_id());
    const std::int64_t before = v.version();
    x.add_(1);
    CHECK(v.version() == before + 1);
  }
  for (const Tensor& copy : {x.clone(), x.t().contiguous(), x.t().reshape({6}), x.to(float64),
                             cat({x}), x.t().flatten()})
    CHECK_FALSE(copy.shares_storage_with(x));
}

TEST_CASE("a view is a view and knows its place, a copy is not") {
  const Tensor x = counting({3, 4});
  const Tensor v = x.slice(0, 1, 3).slice(1, 1, 4, 2);
  CHECK(v.is_view());
  CHECK_FALSE(x.clone().is_view());
  CHECK(v.shape() == Shape(2, 2));
  CHECK(v.stride() == Shape(4, 2));
  CHECK(v.stride(-1) == 2);
  CHECK(v.storage_offset() == 5);
  CHECK_FALSE(v.is_contiguous());
  CHECK(ints(v) == std::vector<int>{5, 7, 9, 11});
  CHECK(v.contiguous().is_contiguous());
  CHECK(ints(v.contiguous()) == ints(v));
}

TEST_CASE("a write through a view is seen in its base, also through two views") {
  const Tensor x = zeros({2, 3});
  x.reshape({3, 2})[0] = 1;
  x.t()[2][1].fill_(9);
  x.slice(1, 1).slice(0, 0, 1) += 5;
  CHECK(ints(x) == std::vector<int>{1, 6, 5, 0, 0, 9});
  const Tensor copy = x.t().reshape({6});
  copy[0] = -1;
  CHECK(ints(x) == std::vector<int>{1, 6, 5, 0, 0, 9});
}

TEST_CASE("memory of the caller is used in place and let go after its last tensor") {
  std::vector<float> numbers = {1, 2, 3, 4};
  int let_go = 0;
  Tensor view;
  {
    const Tensor x = from_blob(numbers.data(), {2, 2}, {}, [&] { ++let_go; });
    view = x[1];
    x.mul_(2);
  }
  CHECK(let_go == 0);
  CHECK(numbers == std::vector<float>{2, 4, 6, 8});
  CHECK(values(view) == Values{6, 8});
  view = Tensor();
  CHECK(let_go == 1);
}

TEST_CASE(
    "a handle is not a tensor: copying one changes nothing, writing through one shows in all") {
  Tensor x = tensor({1., 2.});
  auto y = x;
  y += 1;
  CHECK(values(x) == Values{2, 3});
  CHECK(y.id() == x.id());
  y = y + 1;
  CHECK(values(x) == Values{2, 3});
  CHECK(y.id() != x.id());
  const auto grow = [](Tensor t) { t += 1; };
  grow(x);
  CHECK(values(x) == Values{3, 4});
}

// ---- Indexing -----------------------------------------------------------------------------------

TEST_CASE("an index picks along axis 0, negative ones count from the end") {
  const Tensor x = counting({3, 2});
  CHECK(ints(x[1]) == std::vector<int>{2, 3});
  CHECK(ints(x[-1]) == std::vector<int>{4, 5});
  CHECK(x[2][0].item<int>() == 4);
  CHECK(x.at({1, -1}).item<int>() == 3);
  CHECK(ints(x.select(1, -2)) == std::vector<int>{0, 2, 4});
  CHECK(error_of([&] { return x[3]; }) ==
        "select: index 3 is out of range for size 3 of [3, 2] at HERE.");
  CHECK(error_of([&] { return x[-4]; }) ==
        "select: index -4 is out of range for size 3 of [3, 2] at HERE.");
  CHECK(error_of([&] { return x[0][0][0]; }) ==
        "select: a 0-d tensor has no axis to index at HERE. Hint: use item() to read its value");
}

TEST_CASE("a slice is cut to what is there, as in Python") {
  const Tensor x = arange(5);
  CHECK(ints(x.slice(0, 1, 4)) == std::vector<int>{1, 2, 3});
  CHECK(ints(x.slice(0, 0, 5, 2)) == std::vector<int>{0, 2, 4});
  CHECK(ints(x.slice(0, 1, {}, 3)) == std::vector<int>{1, 4});
  CHECK(ints(x.slice(0, -2)) == std::vector<int>{3, 4});
  CHECK(ints(x.slice(0, 0, -1)) == std::vector<int>{0, 1, 2, 3});
  CHECK(ints(x.slice(0, -100, 100)) == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(x.slice(0, 3, 1).shape() == Shape(0));
  CHECK(x.slice(0, 7).shape() == Shape(0));
  CHECK(error_of([&] { return x.slice(0, 4, 0, -1); }) ==
        "slice: the step is -1, it has to be positive at HERE.");
  CHECK(ints(x.narrow(0, -3, 2)) == std::vector<int>{2, 3});
  CHECK(error_of([&] { return x.narrow(0, 3, 3); }) ==
        "narrow: start 3 and length 3 leave the size 5 at HERE.");
}

TEST_CASE("a loop over a tensor goes over axis 0, and its rows can be written to") {
  const Tensor x = counting({3, 2});
  int sum = 0;
  for (Tensor row : x) {
    sum = 10 * sum + row[1].item<int>();
    row += 1;
  }
  CHECK(sum == 135);
  CHECK(ints(x) == std::vector<int>{1, 2, 3, 4, 5, 6});
  for (const Tensor& none : zeros({0, 2})) FAIL(none.numel());
}

// ---- Shapes -------------------------------------------------------------------------------------

TEST_CASE("reshape keeps the order of the elements and fills in an open size") {
  const Tensor x = counting({2, 6});
  CHECK(x.reshape({3, -1}).shape() == Shape(3, 4));
  CHECK(x.reshape({-1}).shape() == Shape(12));
  CHECK(ints(x.t().reshape({12})) == std::vector<int>{0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11});
  CHECK(zeros({0, 3}).reshape({-1, 3}).shape() == Shape(0, 3));
  CHECK(tensor(5).reshape({1, 1}).shape() == Shape(1, 1));
  CHECK(tensor({{5}}).reshape({}).shape() == Shape());
  CHECK(error_of([&] {
          return x.reshape({5, -1});
        }) == "reshape: 12 elements do not fill the shape [5, -1] at HERE.");
  CHECK(error_of([&] {
          return x.reshape({-1, -1});
        }) == "reshape: only one size can be left open (-1): [-1, -1] at HERE.");
  CHECK(error_of([&] {
          return x.reshape({-2, 6});
        }) == "reshape: a size is negative: [-2, 6] at HERE.");
  CHECK(refused([] { return zeros({0}).reshape({-1, 0}); }));
}

TEST_CASE("view reads the elements in their order, and says so where it would have to copy") {
  const Tensor x = counting({2, 3, 4});
  // The strides are those of PyTorch's view of the same tensor.
  CHECK(x.view({6, 4}).stride() == Shape(4, 1));
  CHECK(x.view({2, 3, 2, 2}).stride() == Shape(12, 4, 2, 1));
  CHECK(x.slice(1, 0, 2).view({2, 8}).stride() == Shape(12, 1));
  CHECK(x.transpose(0, 1).view({3, 2, 2, 2}).stride() == Shape(4, 12, 2, 1));
  CHECK(x.slice(2, 0, 4, 2).view({6, 2}).stride() == Shape(4, 2));
  CHECK(x.slice(2, 0, 4, 2).view({12}).stride() == Shape(2));
  CHECK(x.select(2, 0).view({6}).stride() == Shape(4));
  CHECK(zeros({1}).expand({3}).view({3, 1}).stride(0) == 0);
  CHECK(zeros({3, 1}).expand({3, 4}).view({3, 2, 2}).stride() == Shape(1, 0, 0));
  CHECK(error_of([&] {
          return x.transpose(0, 1).view({6, 4});
        }) ==
        "view: the elements of [3, 2, 4] with strides [4, 12, 1] can't be read as [6, 4] without "
        "copying at HERE. Hint: write reshape(), which copies where it must");
  CHECK(refused([&] { return x.slice(2, 0, 3).view({18}); }));
  CHECK(refused([] { return zeros({3, 1}).expand({3, 4}).view({12}); }));
}

TEST_CASE("flatten joins neighbouring axes") {
  const Tensor x = counting({2, 3, 4});
  CHECK(x.flatten().shape() == Shape(24));
  CHECK(x.flatten(1).shape() == Shape(2, 12));
  CHECK(x.flatten(0, 1).shape() == Shape(6, 4));
  CHECK(x.flatten(-2, -1).shape() == Shape(2, 12));
  CHECK(x.flatten(1, 1).shape() == Shape(2, 3, 4));
  CHECK(tensor(1).flatten().shape() == Shape(1));
  CHECK(refused([&] { return x.flatten(2, 1); }));
}

TEST_CASE("transpose, t and permute exchange axes") {
  const Tensor x = counting({2, 3, 4});
  CHECK(x.transpose(-1, 0).shape() == Shape(4, 3, 2));
  CHECK(x.permute({2, 0, 1}).shape() == Shape(4, 2, 3));
  CHECK(x.permute({-1, -3, -2}).shape() == Shape(4, 2, 3));
  CHECK(x.permute({2, 0, 1})[1][0][2].item<int>() == x[0][2][1].item<int>());
  CHECK(x[0].t()[3][1].item<int>() == x[0][1][3].item<int>());
  CHECK(arange(3).t().shape() == Shape(3));
  CHECK(tensor(1).t().shape() == Shape());
  CHECK(tensor(1).transpose(0, -1).shape() == Shape());
  CHECK(tensor(1).permute({}).shape() == Shape());
  CHECK(error_of([&] { return x.t(); }) ==
        "t: it takes at most two axes, not [2, 3, 4] at HERE. Hint: write transpose(-1, -2)");
  CHECK(error_of([&] {
          return x.permute({0, 1});
        }) == "permute: [0, 1] does not name each of the 3 axes once at HERE.");
  CHECK(error_of([&] {
          return x.permute({0, 1, -2});
        }) == "permute: an axis is named twice: [0, 1, -2] at HERE.");
}

TEST_CASE("expand repeats axes of size 1 and copies nothing") {
  const Tensor x = tensor({{1.}, {2.}});
  const Tensor y = x.expand({3, 2, 4});
  CHECK(y.shape() == Shape(3, 2, 4));
  CHECK(y.stride() == Shape(0, 1, 0));
  CHECK(x.expand({-1, 5}).shape() == Shape(2, 5));
  CHECK(x.expand({2, 0}).shape() == Shape(2, 0));
  CHECK(tensor(7).expand({2, 2}).sum().item<int>() == 28);
  CHECK(error_of([&] {
          return x.expand({3, 1});
        }) ==
        "expand: [2, 1] can't be expanded to [3, 1] at HERE. Hint: only axes of size 1 can be "
        "repeated");
  CHECK(error_of([&] { return x.expand({2}); }) ==
        "expand: [2, 1] can't be expanded to [2] at HERE. Hint: the new shape needs at least as "
        "many axes");
  CHECK(refused([&] { return x.expand({-1, 2, 1}); }));
  CHECK(refused([] { return tensor(1).expand({1 << 30, 1 << 30}); }));
}

TEST_CASE("squeeze drops axes of size 1, unsqueeze adds one") {
  const Tensor x = zeros({2, 1, 3, 1});
  CHECK(x.squeeze().shape() == Shape(2, 3));
  CHECK(x.squeeze(1).shape() == Shape(2, 3, 1));
  CHECK(x.squeeze(-1).shape() == Shape(2, 1, 3));
  CHECK(x.squeeze(0).shape() == Shape(2, 1, 3, 1));
  CHECK(tensor({{5.}}).squeeze().shape() == Shape());
  CHECK(x.unsqueeze(0).shape() == Shape(1, 2, 1, 3, 1));
  CHECK(x.unsqueeze(-1).shape() == Shape(2, 1, 3, 1, 1));
  CHECK(tensor(1).unsqueeze(-1).shape() == Shape(1));
  CHECK(refused([&] { return x.unsqueeze(5); }));
  CHECK(error_of([] {
          return zeros({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0);
        }) == "unsqueeze: a tensor has at most 8 dimensions at HERE.");
}

TEST_CASE("cat joins along an axis, stack along a new one") {
  const Tensor x = counting({2, 2}), y = counting({1, 2});
  CHECK(ints(cat({x, y})) == std::vector<int>{0, 1, 2, 3, 0, 1});
  CHECK(ints(cat({x, x}, 1)) == std::vector<int>{0, 1, 0, 1, 2, 3, 2, 3});
  CHECK(ints(cat({x.t(), y}, -2)) == std::vector<int>{0, 2, 1, 3, 0, 1});
  CHECK(cat({x, zeros({0, 2})}).shape() == Shape(2, 2));
  CHECK(stack({x, x, x}).shape() == Shape(3, 2, 2));
  CHECK(ints(stack({x[0], x[1]}, 1)) == std::vector<int>{0, 2, 1, 3});
  CHECK(stack({tensor(1), tensor(2)}).shape() == Shape(2));
  CHECK(error_of([&] {
          return cat({x, zeros({1, 3})});
        }) == "cat: only axis 0 may differ: [2, 2] and [1, 3] at HERE.");
  CHECK(error_of([] { return cat({}); }) == "cat: it needs at least one tensor at HERE.");
  CHECK(error_of([] { return cat({tensor(1)}); }) ==
        "cat: a 0-d tensor has no axis to join at HERE. Hint: use stack()");
  CHECK(error_of([&] {
          return stack({x, y});
        }) == "stack: the shapes differ: [2, 2] and [1, 2] at HERE.");
  CHECK(refused([] { return stack({}); }));
}

TEST_CASE("hstack joins side by side, vstack one below the other") {  // values of PyTorch 1.13
  const Tensor x = counting({2, 2}), line = tensor({5, 6});
  CHECK(ints(hstack({x, x})) == std::vector<int>{0, 1, 0, 1, 2, 3, 2, 3});
  CHECK(ints(hstack({tensor(1), line})) == std::vector<int>{1, 5, 6});
  CHECK(vstack({x, line, x}).shape() == Shape(5, 2));
  CHECK(ints(vstack({line, line + 2})) == std::vector<int>{5, 6, 7, 8});
  CHECK(vstack({tensor(1), tensor({{2}})}).shape() == Shape(2, 1));
  CHECK(error_of([&] {
          return vstack({x, tensor({1, 2, 3})});
        }) == "vstack: only axis 0 may differ: [2, 2] and [1, 3] at HERE.");
  CHECK(error_of([] { return hstack({}); }) == "hstack: it needs at least one tensor at HERE.");
  CHECK(refused([&] { return hstack({x, Tensor()}); }));
}

TEST_CASE("meshgrid spreads lines over a grid, and copies nothing") {  // values of PyTorch 1.13
  const Tensor x = tensor({1, 2, 3}), y = tensor({4, 5});
  const std::vector<Tensor> rows = meshgrid({x, y}), plot = meshgrid({x, y}, {.indexing = "xy"});
  CHECK(difference(rows[0], tensor({{1, 1}, {2, 2}, {3, 3}})) == "");
  CHECK(difference(rows[1], tensor({{4, 5}, {4, 5}, {4, 5}})) == "");
  CHECK(difference(plot[0], tensor({{1, 2, 3}, {1, 2, 3}})) == "");
  CHECK(difference(plot[1], tensor({{4, 4, 4}, {5, 5, 5}})) == "");
  CHECK(rows[0].shares_storage_with(x));
  CHECK(rows[0].stride() == Shape(1, 0));
  CHECK(meshgrid({x, tensor(7), y}, {.indexing = "xy"})[2].shape() == Shape(1, 3, 2));
  CHECK(meshgrid({x}, {.indexing = "xy"})[0].shape() == Shape(3));
  CHECK(error_of([&] {
          return meshgrid({x, y}, {.indexing = "yx"});
        }) == "meshgrid: indexing is \"yx\" at HERE. Hint: write \"ij\" or \"xy\"");
  CHECK(error_of([&] {
          return meshgrid({x, counting({2, 2})});
        }) == "meshgrid: it takes lines of numbers, not [2, 2] at HERE.");
  CHECK(error_of([] { return meshgrid({}); }) == "meshgrid: it needs at least one tensor at HERE.");
  CHECK(error_of([&] { return meshgrid(std::vector<Tensor>(9, x)); }) ==
        "meshgrid: a tensor has at most 8 dimensions at HERE.");
}

TEST_CASE("sizes and axes are asked for with negative numbers too") {
  const Tensor x = zeros({2, 3});
  CHECK(x.size(0) == 2);
  CHECK(x.size(-1) == 3);
  CHECK(x.dim() == 2);
  CHECK(x.numel() == 6);
  CHECK(tensor(1).numel() == 1);
  CHECK(zeros({2, 0}).numel() == 0);
  CHECK(error_of([&] { return x.size(2); }) ==
        "size: axis 2 is out of range for 2 dimensions at HERE. Hint: use -2 to 1");
  CHECK(error_of([] { return tensor(1).size(0); }) ==
        "size: a 0-d tensor has no axes at HERE. Hint: numel() is 1");
  CHECK(refused([] { return tensor(1).stride(0); }));
  CHECK(refused([] {
    for (const Tensor& row : tensor(1)) static_cast<void>(row);
  }));
}

// ---- Making tensors -----------------------------------------------------------------------------

TEST_CASE("nested lists make shapes and dtypes") {
  const auto made = [](const Tensor& x) {
    return std::string(name_of(x.dtype())) + to_string(x.shape());
  };
  CHECK(made(tensor(2.0)) == "float32[]");
  CHECK(made(tensor({2.0})) == "float32[1]");
  CHECK(made(tensor({})) == "float32[0]");
  CHECK(made(tensor({{}})) == "float32[1, 0]");
  CHECK(made(tensor({{1.}})) == "float32[1, 1]");
  CHECK(made(tensor({1, 2.5})) == "float32[2]");
  CHECK(made(tensor({true, 2})) == "int64[2]");
  CHECK(made(tensor({true, false})) == "bool[2]");
  CHECK(made(tensor({{{{1, 2}, {3, 4}}}})) == "int64[1, 1, 2, 2]");
  const std::vector<double> row = {1, 2, 3};
  const std::vector<bool> flags = {true, false};
  const int plain[] = {4, 5};
  CHECK(made(tensor(row)) == "float32[3]");
  CHECK(made(tensor({row, row})) == "float32[2, 3]");
  CHECK(made(tensor(flags)) == "bool[2]");
  CHECK(made(tensor(plain)) == "int64[2]");
  CHECK(ints(tensor(plain)) == std::vector<int>{4, 5});
  CHECK(tensor({1, 2}, {.dtype = float64}).dtype() == float64);
  CHECK(error_of([] {
          return tensor({{1, 2}, {3}});
        }) == "tensor: the nested list is ragged: its rows have different lengths at HERE.");
  CHECK(refused([] { return tensor({{1, 2}, 3}); }));
  CHECK(refused([] { return tensor({1, {2, 3}}); }));
}

TEST_CASE("a vector among nested lists must stand as deep as the others") {
  const std::string ragged =
      "tensor: the nested list is ragged: its rows have different lengths at HERE.";
  CHECK(error_of([] { return tensor({{{1., 2.}, {3., 4.}}, std::vector{5., 6.}}); }) == ragged);
  CHECK(error_of([] { return tensor({{{}, {}}, std::vector{5., 6.}}); }) == ragged);
  CHECK(tensor({std::vector{1, 2}, std::vector{3, 4}}).shape() == Shape(2, 2));
}

TEST_CASE("vectors of vectors and arrays of arrays make tensors, to any depth") {
  const std::vector<std::vector<double>> rows = {{1, 2, 3}, {4, 5, 6}};
  CHECK(difference(tensor(rows), tensor({{1., 2., 3.}, {4., 5., 6.}})) == "");
  CHECK(difference(tensor(rows, {.dtype = int64}), tensor({{1, 2, 3}, {4, 5, 6}})) == "");
  CHECK(difference(tensor({rows, rows})[1], tensor(rows)) == "");
  const std::vector<std::vector<std::vector<int>>> deep = {{{1, 2}}, {{3, 4}}, {{5, 6}}};
  CHECK(tensor(deep).shape() == Shape(3, 1, 2));
  CHECK(ints(tensor(deep)) == std::vector<int>{1, 2, 3, 4, 5, 6});
  const std::vector<std::vector<bool>> flags = {{true, false}, {false, true}};
  CHECK(difference(tensor(flags), tensor({{true, false}, {false, true}})) == "");
  const int table[2][3] = {{1, 2, 3}, {4, 5, 6}};
  CHECK(difference(tensor(table), tensor({{1, 2, 3}, {4, 5, 6}})) == "");

  CHECK(tensor(std::vector<std::vector<double>>(2)).shape() == Shape(2, 0));
  const Tensor nothing = tensor(std::vector<std::vector<int>>());
  CHECK(nothing.shape() == Shape(0));
  CHECK(nothing.dtype() == int64);
  const std::vector<std::vector<double>> ragged = {{1, 2}, {3}};
  CHECK(error_of([&] { return tensor(ragged); }) ==
        "tensor: the nested list is ragged: its rows have different lengths at HERE.");
  CHECK(error_of([] { return tensor({{{{{{{{{1}}}}}}}}}); }) ==
        "tensor: a tensor has at most 8 dimensions at HERE.");
}

TEST_CASE("an empty batch of transposed matrices is copied and added") {
  CHECK(zeros({0, 16, 16}).transpose(1, 2).clone().shape() == Shape(0, 16, 16));
  const Tensor x = zeros({0, 64, 64});
  CHECK((x + x.transpose(1, 2)).shape() == Shape(0, 64, 64));
  CHECK(x.transpose(1, 2).sum({0}).sum().item() == 0);
}

TEST_CASE("lengths and steps that no integer can add are refused or cut") {
  const Tensor x = zeros({4});
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  CHECK(refused([&] { return x.narrow(0, 1, huge); }));
  CHECK(x.slice(0, 0, 4, huge).shape() == Shape(1));
  CHECK(x.slice(0, 1, huge).shape() == Shape(3));
}

TEST_CASE("a range of large integers has as many numbers as it says") {
  const Tensor x = arange(9007199254740993, 9007199254740995);  // 2^53 + 1, no double
  CHECK(x.shape() == Shape(2));
  CHECK(x[0].item<std::int64_t>() == 9007199254740993);
}

TEST_CASE("item() and to_vector() refuse a type that is too small for the number") {
  CHECK(tensor(3000000000).item<std::int64_t>() == 3000000000);
  CHECK(error_of([] { return tensor(3000000000).item<int>(); }) ==
        "item: 3000000000 does not fit into the type that was asked for at HERE. Hint: ask for "
        "item<std::int64_t>()");
  CHECK(error_of([] { return tensor(1e10).item<int>(); }) ==
        "item: 1e+10 does not fit into the type that was asked for at HERE. Hint: ask for "
        "item<double>()");
  CHECK(refused([] { return tensor(1e30).item<std::int64_t>(); }));
  CHECK(refused([] { return tensor(NAN).item<int>(); }));
  CHECK(refused([] { return tensor(-1).item<std::uint64_t>(); }));
  CHECK(refused([] { return tensor(256).item<std::uint8_t>(); }));
  CHECK(tensor(-2.75).item<int>() == -2);
  CHECK(tensor(255.5).item<std::uint8_t>() == 255);

  CHECK(tensor({1.5, -2.5}).to_vector<int>() == std::vector<int>{1, -2});
  CHECK(error_of([] {
          return tensor({1., 1e10}).to_vector<int>();
        }) ==
        "to_vector: 10000000000 does not fit into the type that was asked for at HERE. Hint: ask "
        "for to_vector<double>()");
  CHECK(refused([] { return tensor({-1, 2}).to_vector<std::uint8_t>(); }));
}

TEST_CASE("a number that int64 cannot hold is refused") {
  CHECK(tensor(9223372036854775807u).item<std::int64_t>() == 9223372036854775807);
  CHECK(error_of([] { return tensor(18446744073709551615u); }) ==
        "a number is too large for int64");
  CHECK(refused([] { return ones({2}) + 9223372036854775808u; }));
}

// 274177 * 67280421310721 is 2^64 + 1 (F. Landry, 1880), and 2^32 * 2^32 is 2^64.
TEST_CASE("sizes whose product wraps around do not pass for a shape") {
  CHECK(refused([] { return ones({1}).view({274177, 67280421310721}); }));
  CHECK(refused([] { return zeros({0}).reshape({std::int64_t{1} << 32, std::int64_t{1} << 32}); }));
  CHECK(refused([] { return ones({1}).view({-1, 274177, 67280421310721}); }));
  CHECK(zeros({0, 3}).view({-1, 3}).shape() == Shape(0, 3));
}

TEST_CASE("arange says why it makes no tensor") {
  CHECK(error_of([] { return arange(0, 5, -1); }) ==
        "arange: the step does not lead from start to stop at HERE.");
  CHECK(error_of([] { return arange(0, 1, 0); }) == "arange: the step is 0 at HERE.");
  CHECK(error_of([] { return arange(0, INFINITY); }) ==
        "arange: start, stop and step have to be finite at HERE.");
  CHECK(error_of([] { return arange(0, 1, 1e-20); }) ==
        "arange: it would have too many elements for any memory at HERE.");
  const auto least = std::numeric_limits<std::int64_t>::min();
  CHECK(refused([&] { return arange(least, std::numeric_limits<std::int64_t>::max()); }));
}

TEST_CASE("the usual tensors are made, with sizes as a list or as plain numbers") {
  CHECK(ints(zeros(2, 2)) == std::vector<int>{0, 0, 0, 0});
  CHECK(ones({2}).dtype() == float32);
  CHECK(full({2}, 7).dtype() == int64);
  CHECK(full({2}, true).dtype() == boolean);
  CHECK(full({}, 5.0).item() == 5);
  CHECK(empty(3, 4).shape() == Shape(3, 4));
  CHECK(ints(eye(2)) == std::vector<int>{1, 0, 0, 1});
  CHECK(zeros_like(tensor({1, 2})).dtype() == int64);
  CHECK(ints(ones_like(tensor({{1, 2}}))) == std::vector<int>{1, 1});
  CHECK(full_like(tensor({1.}), 3).dtype() == float32);
  CHECK(error_of([] { return zeros({2, -1}); }) == "zeros: a size is negative: [2, -1] at HERE.");
  const std::int64_t huge = std::int64_t{1} << 40;
  CHECK(error_of([&] {
          return ones({huge, huge});
        }) == "ones: [1099511627776, 1099511627776] has too many elements for any memory at HERE.");
  CHECK(refused([&] { return zeros({0, huge, huge}); }));  // its strides would not fit
}

TEST_CASE("arange counts up to its end, linspace includes it") {
  CHECK(ints(arange(4)) == std::vector<int>{0, 1, 2, 3});
  CHECK(arange(4).dtype() == int64);
  CHECK(ints(arange(5, 0, -2)) == std::vector<int>{5, 3, 1});
  CHECK(values(arange(0, 1, 0.25)) == Values{0, 0.25, 0.5, 0.75});
  CHECK(arange(0).shape() == Shape(0));
  CHECK(arange(2.5).dtype() == float32);
  CHECK(refused([] { return arange(0, 5, -1); }));
  CHECK(refused([] { return arange(0, 5, 0); }));
  CHECK(refused([] { return arange(0, infinity); }));
  CHECK(values(linspace(-1, 1, 5)) == Values{-1, -0.5, 0, 0.5, 1});
  CHECK(values(linspace(1, 5, 1)) == Values{1});
  CHECK(linspace(1, 5, 0).shape() == Shape(0));
  CHECK(refused([] { return linspace(0, 1, -1); }));
}

// By hand: the base is a = 2 x after the write, so row 1 is 2 x[1], and d(w v2)/dx[1] = 2 w = 6.
TEST_CASE("a view that another view's write has changed can be the second operand") {
  const Tensor x = tensor({{1., 2.}, {3., 4.}}, {.requires_grad = true});
  const Tensor w = tensor(3.0, {.requires_grad = true});
  const Tensor base = x * 1;
  const Tensor first = base[0], second = base[1];
  base.mul_(2);
  static_cast<void>(first);
  (w * second).sum().backward();
  CHECK(values(x.grad()) == Values{0, 0, 6, 6});
  CHECK(values(w.grad()) == Values{14});
}

TEST_CASE("repeat copies, also where nothing is repeated") {
  const Tensor x = tensor({1., 2.});
  x.repeat({1}).zero_();
  x.repeat({1, 1}).zero_();
  CHECK(values(x) == Values{1, 2});
}

TEST_CASE("a view changes the strides of no axis that it leaves alone") {
  const Tensor x = zeros({2, 1, 3});
  CHECK(x.expand({2, 1, 3}).stride() == Shape(3, 3, 1));
  CHECK(x.expand({2, 4, 3}).stride() == Shape(3, 0, 1));
  CHECK(x.expand({1, 5, 2, 1, 3}).stride() == Shape(0, 0, 3, 3, 1));
  CHECK(zeros({3}).expand({1, 3}).stride() == Shape(3, 1));
  CHECK(tensor(1.0).expand({1, 1}).stride() == Shape(0, 0));
  CHECK(x.flatten(1, 1).id() == x.id());
}

}  // namespace
