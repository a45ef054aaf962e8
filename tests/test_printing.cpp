// Printing: every text below was printed by PyTorch 1.13.0 from the same expression in Python
// ("torch." before a dtype left out). The texts that are not PyTorch's stand at the end.
#include <cmath>
#include <limits>
#include <sstream>

#include "minitensor.hpp"
#include "tests/catch.hpp"

using namespace mt;

namespace {
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
}  // namespace

TEST_CASE("whole numbers print as in PyTorch") {
  CHECK(to_string(tensor(7)) == "tensor(7)");
  CHECK(to_string(tensor(-7)) == "tensor(-7)");
  CHECK(to_string(tensor({1, -20, 300})) == "tensor([  1, -20, 300])");
  CHECK(to_string(tensor({{1, 2}, {30, 4}})) == R"(tensor([[ 1,  2],
        [30,  4]]))");
  CHECK(to_string(tensor({least, most})) == "tensor([-9223372036854775808,  9223372036854775807])");
  CHECK(to_string(tensor(true)) == "tensor(True)");
  CHECK(to_string(tensor({true, false})) == "tensor([ True, False])");
  CHECK(to_string(tensor({{true}, {true}})) == R"(tensor([[True],
        [True]]))");
}

TEST_CASE("floats print as in PyTorch") {
  CHECK(to_string(tensor(2.)) == "tensor(2.)");
  CHECK(to_string(tensor(-0.5)) == "tensor(-0.5000)");
  CHECK(to_string(tensor(0.)) == "tensor(0.)");
  CHECK(to_string(tensor(1e-9)) == "tensor(1.0000e-09)");
  CHECK(to_string(tensor({1., 2., 3.})) == "tensor([1., 2., 3.])");
  CHECK(to_string(tensor({1., 2.5})) == "tensor([1.0000, 2.5000])");
  CHECK(to_string(tensor({-1., 10., 100.})) == "tensor([ -1.,  10., 100.])");
  CHECK(to_string(tensor({0.1, 0.25, 1. / 3})) == "tensor([0.1000, 0.2500, 0.3333])");
  CHECK(to_string(tensor({0.00005, 1.})) == "tensor([5.0000e-05, 1.0000e+00])");
  CHECK(to_string(tensor({1.00005, 1.00015})) == "tensor([1.0000, 1.0001])");
  CHECK(to_string(tensor({0.03125, 0.09375}, {.dtype = float64})) ==
        "tensor([0.0312, 0.0938], dtype=float64)");
  CHECK(to_string(tensor({2.00005, 2.5}, {.dtype = float64})) ==
        "tensor([2.0000, 2.5000], dtype=float64)");
  CHECK(to_string(tensor({0.99999, 9.99999})) == "tensor([ 1.0000, 10.0000])");
}

TEST_CASE("scientific notation begins where it does in PyTorch") {
  CHECK(to_string(tensor({1., 1000.})) == "tensor([   1., 1000.])");
  CHECK(to_string(tensor({1., 1001.})) == "tensor([1.0000e+00, 1.0010e+03])");
  CHECK(to_string(tensor({0.5, 500.})) == "tensor([  0.5000, 500.0000])");
  CHECK(to_string(tensor({0.5, 501.})) == "tensor([5.0000e-01, 5.0100e+02])");
  CHECK(to_string(tensor({100000000.})) == "tensor([100000000.])");
  CHECK(to_string(tensor({100000008.})) == "tensor([1.0000e+08])");
  CHECK(to_string(tensor({100000000.5}, {.dtype = float64})) ==
        "tensor([1.0000e+08], dtype=float64)");
  CHECK(to_string(tensor({99999999.5}, {.dtype = float64})) ==
        "tensor([99999999.5000], dtype=float64)");
  CHECK(to_string(tensor({0.0001}, {.dtype = float64})) == "tensor([0.0001], dtype=float64)");
  CHECK(to_string(tensor({0.0001})) == "tensor([1.0000e-04])");
  CHECK(to_string(tensor({0.00009}, {.dtype = float64})) == "tensor([9.0000e-05], dtype=float64)");
  CHECK(to_string(tensor({1e-300, -1e300}, {.dtype = float64})) ==
        "tensor([ 1.0000e-300, -1.0000e+300], dtype=float64)");
  CHECK(to_string(tensor({1e-45})) == "tensor([1.4013e-45])");
  CHECK(to_string(tensor({3.4028235e38, 0.})) == "tensor([3.4028e+38, 0.0000e+00])");
  CHECK(to_string(tensor({5e-324, 1.7976931348623157e308}, {.dtype = float64})) ==
        "tensor([4.9407e-324, 1.7977e+308], dtype=float64)");
}

TEST_CASE("nan, infinities and negative zero print as in PyTorch") {
  CHECK(to_string(tensor(NAN)) == "tensor(nan)");
  CHECK(to_string(tensor(-NAN)) == "tensor(nan)");
  CHECK(to_string(tensor(-INFINITY)) == "tensor(-inf)");
  CHECK(to_string(tensor({NAN, 1.})) == "tensor([nan, 1.])");
  CHECK(to_string(tensor({NAN, 1.5})) == "tensor([   nan, 1.5000])");
  CHECK(to_string(tensor({INFINITY, -INFINITY, NAN})) == "tensor([inf, -inf, nan])");
  CHECK(to_string(tensor({-INFINITY, 12345.})) == "tensor([  -inf, 12345.])");
  CHECK(to_string(tensor({INFINITY, 1e-9})) == "tensor([       inf, 1.0000e-09])");
  CHECK(to_string(tensor(-0.)) == "tensor(-0.)");
  CHECK(to_string(tensor({-0., 0.})) == "tensor([-0., 0.])");
  CHECK(to_string(tensor({-0., 1.})) == "tensor([-0., 1.])");
  CHECK(to_string(tensor({-0., 0.5})) == "tensor([-0.0000, 0.5000])");
  CHECK(to_string(tensor({0., 1e9})) == "tensor([0.0000e+00, 1.0000e+09])");
}

TEST_CASE("empty tensors print as in PyTorch") {
  CHECK(to_string(zeros(0)) == "tensor([])");
  CHECK(to_string(zeros({3, 0})) == "tensor([], size=(3, 0))");
  CHECK(to_string(zeros({0, 2, 3})) == "tensor([], size=(0, 2, 3))");
  CHECK(to_string(zeros(0, {.dtype = int64})) == "tensor([], dtype=int64)");
  CHECK(to_string(zeros({2, 0}, {.dtype = boolean})) == "tensor([], size=(2, 0), dtype=bool)");
  CHECK(to_string(zeros(0, {.dtype = float64})) == "tensor([], dtype=float64)");
  CHECK(to_string(zeros(0, {.requires_grad = true})) == "tensor([], requires_grad=True)");
  CHECK(to_string(zeros({0, 1}, {.dtype = float64, .requires_grad = true})) ==
        "tensor([], size=(0, 1), dtype=float64, requires_grad=True)");
}

TEST_CASE("dtype, requires_grad and grad_fn follow the numbers as in PyTorch") {
  CHECK(to_string(tensor(2., {.dtype = float64})) == "tensor(2., dtype=float64)");
  CHECK(to_string(tensor(2., {.requires_grad = true})) == "tensor(2., requires_grad=True)");
  CHECK(to_string(tensor({1., 2.}, {.dtype = float64, .requires_grad = true})) ==
        "tensor([1., 2.], dtype=float64, requires_grad=True)");
  CHECK(to_string(tensor({1., 2.}, {.requires_grad = true}) * 2) ==
        "tensor([2., 4.], grad_fn=<MulBackward0>)");
  CHECK(to_string(ones({2, 2}, {.requires_grad = true}).sum()) ==
        "tensor(4., grad_fn=<SumBackward0>)");
  CHECK(to_string(ones({2, 2}, {.requires_grad = true}).exp()) == R"(tensor([[2.7183, 2.7183],
        [2.7183, 2.7183]], grad_fn=<ExpBackward0>))");
  CHECK(to_string(ones({2, 2}, {.requires_grad = true}).t()) == R"(tensor([[1., 1.],
        [1., 1.]], grad_fn=<TBackward0>))");
  CHECK(to_string(ones({2, 2}, {.requires_grad = true}).detach()) == R"(tensor([[1., 1.],
        [1., 1.]]))");
  CHECK(to_string(zeros(12, {.requires_grad = true})) ==
        "tensor([0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.], requires_grad=True)");
  CHECK(to_string(zeros(13, {.requires_grad = true})) ==
        R"(tensor([0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.],
       requires_grad=True))");
  CHECK(to_string(full(4, 1e6, {.dtype = float64}) * 2) ==
        "tensor([2000000., 2000000., 2000000., 2000000.], dtype=float64)");
  CHECK(to_string(full(5, 1e6, {.dtype = float64}) * 2) ==
        "tensor([2000000., 2000000., 2000000., 2000000., 2000000.], dtype=float64)");
  CHECK(to_string(full(6, 1e6, {.dtype = float64}) * 2) ==
        R"(tensor([2000000., 2000000., 2000000., 2000000., 2000000., 2000000.],
       dtype=float64))");
  CHECK(to_string(zeros({2, 12}, {.requires_grad = true})) ==
        R"(tensor([[0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.],
        [0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.]], requires_grad=True))");
  CHECK(to_string(zeros({2, 13}, {.requires_grad = true})) ==
        R"(tensor([[0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.],
        [0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.]],
       requires_grad=True))");
  CHECK(to_string(ones(7, {.dtype = float64, .requires_grad = true}) * 2) ==
        "tensor([2., 2., 2., 2., 2., 2., 2.], dtype=float64, grad_fn=<MulBackward0>)");
  CHECK(to_string(ones(8, {.dtype = float64, .requires_grad = true}) * 2) ==
        "tensor([2., 2., 2., 2., 2., 2., 2., 2.], dtype=float64, grad_fn=<MulBackward0>)");
  CHECK(to_string(ones(9, {.dtype = float64, .requires_grad = true}) * 2) ==
        R"(tensor([2., 2., 2., 2., 2., 2., 2., 2., 2.], dtype=float64,
       grad_fn=<MulBackward0>))");
  CHECK(to_string(ones(10, {.dtype = float64, .requires_grad = true}) * 2) ==
        R"(tensor([2., 2., 2., 2., 2., 2., 2., 2., 2., 2.], dtype=float64,
       grad_fn=<MulBackward0>))");
}

TEST_CASE("rows that are too long for a line are broken as in PyTorch") {
  CHECK(to_string(arange(18)) ==
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17])");
  CHECK(to_string(arange(19)) ==
        R"(tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,
        18]))");
  CHECK(to_string(arange(40)) ==
        R"(tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,
        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,
        36, 37, 38, 39]))");
  CHECK(to_string(arange(18.) / 4) ==
        R"(tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000, 1.2500, 1.5000, 1.7500, 2.0000,
        2.2500, 2.5000, 2.7500, 3.0000, 3.2500, 3.5000, 3.7500, 4.0000, 4.2500]))");
  CHECK(to_string(full({2, 20}, -1.5)) ==
        R"(tensor([[-1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000,
         -1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000,
         -1.5000, -1.5000, -1.5000, -1.5000],
        [-1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000,
         -1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000, -1.5000,
         -1.5000, -1.5000, -1.5000, -1.5000]]))");
  CHECK(to_string(full(5, 1e6).view({1, 1, 5})) ==
        "tensor([[[1000000., 1000000., 1000000., 1000000., 1000000.]]])");
  CHECK(to_string(full({1, 7}, 2e10)) ==
        R"(tensor([[2.0000e+10, 2.0000e+10, 2.0000e+10, 2.0000e+10, 2.0000e+10, 2.0000e+10,
         2.0000e+10]]))");
  CHECK(to_string(full({2, 3}, most)) ==
        R"(tensor([[9223372036854775807, 9223372036854775807, 9223372036854775807],
        [9223372036854775807, 9223372036854775807, 9223372036854775807]]))");
}

TEST_CASE("slices are set apart by as many blank lines as in PyTorch") {
  CHECK(to_string(arange(8).view({2, 2, 2})) == R"(tensor([[[0, 1],
         [2, 3]],

        [[4, 5],
         [6, 7]]]))");
  CHECK(to_string(arange(8).view({1, 8, 1})) == R"(tensor([[[0],
         [1],
         [2],
         [3],
         [4],
         [5],
         [6],
         [7]]]))");
  CHECK(to_string(zeros({1, 1, 1, 1, 1, 1, 1, 1})) == "tensor([[[[[[[[0.]]]]]]]])");
  CHECK(to_string(arange(16).view({2, 2, 2, 2})) == R"(tensor([[[[ 0,  1],
          [ 2,  3]],

         [[ 4,  5],
          [ 6,  7]]],


        [[[ 8,  9],
          [10, 11]],

         [[12, 13],
          [14, 15]]]]))");
}

TEST_CASE("views print through their strides") {
  CHECK(to_string(arange(6).view({2, 3}).t()) == R"(tensor([[0, 3],
        [1, 4],
        [2, 5]]))");
  CHECK(to_string(arange(24).view({4, 6}).slice(1, 1, 6, 2)) == R"(tensor([[ 1,  3,  5],
        [ 7,  9, 11],
        [13, 15, 17],
        [19, 21, 23]]))");
  CHECK(to_string(tensor({{1.}, {2.}}).expand({2, 3})) == R"(tensor([[1., 1., 1.],
        [2., 2., 2.]]))");
  CHECK(to_string(arange(6).view({2, 3})[1]) == "tensor([3, 4, 5])");
  CHECK(to_string(arange(8).view({2, 2, 2}).permute({2, 0, 1})) == R"(tensor([[[0, 2],
         [4, 6]],

        [[1, 3],
         [5, 7]]]))");
  CHECK(to_string(tensor(2.5).expand({2, 2})) == R"(tensor([[2.5000, 2.5000],
        [2.5000, 2.5000]]))");
}

TEST_CASE("tensors of more than 1000 elements are shortened as in PyTorch") {
  CHECK(to_string(arange(1001)) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])");
  CHECK(to_string(arange(1001.)) == "tensor([   0.,    1.,    2.,  ...,  998.,  999., 1000.])");
  CHECK(to_string(arange(1200).view({3, 400})) ==
        R"(tensor([[   0,    1,    2,  ...,  397,  398,  399],
        [ 400,  401,  402,  ...,  797,  798,  799],
        [ 800,  801,  802,  ..., 1197, 1198, 1199]]))");
  CHECK(to_string(arange(1200).view({400, 3})) == R"(tensor([[   0,    1,    2],
        [   3,    4,    5],
        [   6,    7,    8],
        ...,
        [1191, 1192, 1193],
        [1194, 1195, 1196],
        [1197, 1198, 1199]]))");
  CHECK(to_string(arange(2000.).view({2, 10, 10, 10})) ==
        R"(tensor([[[[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 7.0000e+00,
           8.0000e+00, 9.0000e+00],
          [1.0000e+01, 1.1000e+01, 1.2000e+01,  ..., 1.7000e+01,
           1.8000e+01, 1.9000e+01],
          [2.0000e+01, 2.1000e+01, 2.2000e+01,  ..., 2.7000e+01,
           2.8000e+01, 2.9000e+01],
          ...,
          [7.0000e+01, 7.1000e+01, 7.2000e+01,  ..., 7.7000e+01,
           7.8000e+01, 7.9000e+01],
          [8.0000e+01, 8.1000e+01, 8.2000e+01,  ..., 8.7000e+01,
           8.8000e+01, 8.9000e+01],
          [9.0000e+01, 9.1000e+01, 9.2000e+01,  ..., 9.7000e+01,
           9.8000e+01, 9.9000e+01]],

         [[1.0000e+02, 1.0100e+02, 1.0200e+02,  ..., 1.0700e+02,
           1.0800e+02, 1.0900e+02],
          [1.1000e+02, 1.1100e+02, 1.1200e+02,  ..., 1.1700e+02,
           1.1800e+02, 1.1900e+02],
          [1.2000e+02, 1.2100e+02, 1.2200e+02,  ..., 1.2700e+02,
           1.2800e+02, 1.2900e+02],
          ...,
          [1.7000e+02, 1.7100e+02, 1.7200e+02,  ..., 1.7700e+02,
           1.7800e+02, 1.7900e+02],
          [1.8000e+02, 1.8100e+02, 1.8200e+02,  ..., 1.8700e+02,
           1.8800e+02, 1.8900e+02],
          [1.9000e+02, 1.9100e+02, 1.9200e+02,  ..., 1.9700e+02,
           1.9800e+02, 1.9900e+02]],

         [[2.0000e+02, 2.0100e+02, 2.0200e+02,  ..., 2.0700e+02,
           2.0800e+02, 2.0900e+02],
          [2.1000e+02, 2.1100e+02, 2.1200e+02,  ..., 2.1700e+02,
           2.1800e+02, 2.1900e+02],
          [2.2000e+02, 2.2100e+02, 2.2200e+02,  ..., 2.2700e+02,
           2.2800e+02, 2.2900e+02],
          ...,
          [2.7000e+02, 2.7100e+02, 2.7200e+02,  ..., 2.7700e+02,
           2.7800e+02, 2.7900e+02],
          [2.8000e+02, 2.8100e+02, 2.8200e+02,  ..., 2.8700e+02,
           2.8800e+02, 2.8900e+02],
          [2.9000e+02, 2.9100e+02, 2.9200e+02,  ..., 2.9700e+02,
           2.9800e+02, 2.9900e+02]],

         ...,

         [[7.0000e+02, 7.0100e+02, 7.0200e+02,  ..., 7.0700e+02,
           7.0800e+02, 7.0900e+02],
          [7.1000e+02, 7.1100e+02, 7.1200e+02,  ..., 7.1700e+02,
           7.1800e+02, 7.1900e+02],
          [7.2000e+02, 7.2100e+02, 7.2200e+02,  ..., 7.2700e+02,
           7.2800e+02, 7.2900e+02],
          ...,
          [7.7000e+02, 7.7100e+02, 7.7200e+02,  ..., 7.7700e+02,
           7.7800e+02, 7.7900e+02],
          [7.8000e+02, 7.8100e+02, 7.8200e+02,  ..., 7.8700e+02,
           7.8800e+02, 7.8900e+02],
          [7.9000e+02, 7.9100e+02, 7.9200e+02,  ..., 7.9700e+02,
           7.9800e+02, 7.9900e+02]],

         [[8.0000e+02, 8.0100e+02, 8.0200e+02,  ..., 8.0700e+02,
           8.0800e+02, 8.0900e+02],
          [8.1000e+02, 8.1100e+02, 8.1200e+02,  ..., 8.1700e+02,
           8.1800e+02, 8.1900e+02],
          [8.2000e+02, 8.2100e+02, 8.2200e+02,  ..., 8.2700e+02,
           8.2800e+02, 8.2900e+02],
          ...,
          [8.7000e+02, 8.7100e+02, 8.7200e+02,  ..., 8.7700e+02,
           8.7800e+02, 8.7900e+02],
          [8.8000e+02, 8.8100e+02, 8.8200e+02,  ..., 8.8700e+02,
           8.8800e+02, 8.8900e+02],
          [8.9000e+02, 8.9100e+02, 8.9200e+02,  ..., 8.9700e+02,
           8.9800e+02, 8.9900e+02]],

         [[9.0000e+02, 9.0100e+02, 9.0200e+02,  ..., 9.0700e+02,
           9.0800e+02, 9.0900e+02],
          [9.1000e+02, 9.1100e+02, 9.1200e+02,  ..., 9.1700e+02,
           9.1800e+02, 9.1900e+02],
          [9.2000e+02, 9.2100e+02, 9.2200e+02,  ..., 9.2700e+02,
           9.2800e+02, 9.2900e+02],
          ...,
          [9.7000e+02, 9.7100e+02, 9.7200e+02,  ..., 9.7700e+02,
           9.7800e+02, 9.7900e+02],
          [9.8000e+02, 9.8100e+02, 9.8200e+02,  ..., 9.8700e+02,
           9.8800e+02, 9.8900e+02],
          [9.9000e+02, 9.9100e+02, 9.9200e+02,  ..., 9.9700e+02,
           9.9800e+02, 9.9900e+02]]],


        [[[1.0000e+03, 1.0010e+03, 1.0020e+03,  ..., 1.0070e+03,
           1.0080e+03, 1.0090e+03],
          [1.0100e+03, 1.0110e+03, 1.0120e+03,  ..., 1.0170e+03,
           1.0180e+03, 1.0190e+03],
          [1.0200e+03, 1.0210e+03, 1.0220e+03,  ..., 1.0270e+03,
           1.0280e+03, 1.0290e+03],
          ...,
          [1.0700e+03, 1.0710e+03, 1.0720e+03,  ..., 1.0770e+03,
           1.0780e+03, 1.0790e+03],
          [1.0800e+03, 1.0810e+03, 1.0820e+03,  ..., 1.0870e+03,
           1.0880e+03, 1.0890e+03],
          [1.0900e+03, 1.0910e+03, 1.0920e+03,  ..., 1.0970e+03,
           1.0980e+03, 1.0990e+03]],

         [[1.1000e+03, 1.1010e+03, 1.1020e+03,  ..., 1.1070e+03,
           1.1080e+03, 1.1090e+03],
          [1.1100e+03, 1.1110e+03, 1.1120e+03,  ..., 1.1170e+03,
           1.1180e+03, 1.1190e+03],
          [1.1200e+03, 1.1210e+03, 1.1220e+03,  ..., 1.1270e+03,
           1.1280e+03, 1.1290e+03],
          ...,
          [1.1700e+03, 1.1710e+03, 1.1720e+03,  ..., 1.1770e+03,
           1.1780e+03, 1.1790e+03],
          [1.1800e+03, 1.1810e+03, 1.1820e+03,  ..., 1.1870e+03,
           1.1880e+03, 1.1890e+03],
          [1.1900e+03, 1.1910e+03, 1.1920e+03,  ..., 1.1970e+03,
           1.1980e+03, 1.1990e+03]],

         [[1.2000e+03, 1.2010e+03, 1.2020e+03,  ..., 1.2070e+03,
           1.2080e+03, 1.2090e+03],
          [1.2100e+03, 1.2110e+03, 1.2120e+03,  ..., 1.2170e+03,
           1.2180e+03, 1.2190e+03],
          [1.2200e+03, 1.2210e+03, 1.2220e+03,  ..., 1.2270e+03,
           1.2280e+03, 1.2290e+03],
          ...,
          [1.2700e+03, 1.2710e+03, 1.2720e+03,  ..., 1.2770e+03,
           1.2780e+03, 1.2790e+03],
          [1.2800e+03, 1.2810e+03, 1.2820e+03,  ..., 1.2870e+03,
           1.2880e+03, 1.2890e+03],
          [1.2900e+03, 1.2910e+03, 1.2920e+03,  ..., 1.2970e+03,
           1.2980e+03, 1.2990e+03]],

         ...,

         [[1.7000e+03, 1.7010e+03, 1.7020e+03,  ..., 1.7070e+03,
           1.7080e+03, 1.7090e+03],
          [1.7100e+03, 1.7110e+03, 1.7120e+03,  ..., 1.7170e+03,
           1.7180e+03, 1.7190e+03],
          [1.7200e+03, 1.7210e+03, 1.7220e+03,  ..., 1.7270e+03,
           1.7280e+03, 1.7290e+03],
          ...,
          [1.7700e+03, 1.7710e+03, 1.7720e+03,  ..., 1.7770e+03,
           1.7780e+03, 1.7790e+03],
          [1.7800e+03, 1.7810e+03, 1.7820e+03,  ..., 1.7870e+03,
           1.7880e+03, 1.7890e+03],
          [1.7900e+03, 1.7910e+03, 1.7920e+03,  ..., 1.7970e+03,
           1.7980e+03, 1.7990e+03]],

         [[1.8000e+03, 1.8010e+03, 1.8020e+03,  ..., 1.8070e+03,
           1.8080e+03, 1.8090e+03],
          [1.8100e+03, 1.8110e+03, 1.8120e+03,  ..., 1.8170e+03,
           1.8180e+03, 1.8190e+03],
          [1.8200e+03, 1.8210e+03, 1.8220e+03,  ..., 1.8270e+03,
           1.8280e+03, 1.8290e+03],
          ...,
          [1.8700e+03, 1.8710e+03, 1.8720e+03,  ..., 1.8770e+03,
           1.8780e+03, 1.8790e+03],
          [1.8800e+03, 1.8810e+03, 1.8820e+03,  ..., 1.8870e+03,
           1.8880e+03, 1.8890e+03],
          [1.8900e+03, 1.8910e+03, 1.8920e+03,  ..., 1.8970e+03,
           1.8980e+03, 1.8990e+03]],

         [[1.9000e+03, 1.9010e+03, 1.9020e+03,  ..., 1.9070e+03,
           1.9080e+03, 1.9090e+03],
          [1.9100e+03, 1.9110e+03, 1.9120e+03,  ..., 1.9170e+03,
           1.9180e+03, 1.9190e+03],
          [1.9200e+03, 1.9210e+03, 1.9220e+03,  ..., 1.9270e+03,
           1.9280e+03, 1.9290e+03],
          ...,
          [1.9700e+03, 1.9710e+03, 1.9720e+03,  ..., 1.9770e+03,
           1.9780e+03, 1.9790e+03],
          [1.9800e+03, 1.9810e+03, 1.9820e+03,  ..., 1.9870e+03,
           1.9880e+03, 1.9890e+03],
          [1.9900e+03, 1.9910e+03, 1.9920e+03,  ..., 1.9970e+03,
           1.9980e+03, 1.9990e+03]]]]))");
  CHECK(to_string(zeros({6, 167})) == R"(tensor([[0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.]]))");
  CHECK(to_string(zeros({7, 143})) == R"(tensor([[0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        ...,
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.],
        [0., 0., 0.,  ..., 0., 0., 0.]]))");
  CHECK(to_string(tensor(0.5).expand({1000000, 1000000})) ==
        R"(tensor([[0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000],
        [0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000],
        [0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000],
        ...,
        [0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000],
        [0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000],
        [0.5000, 0.5000, 0.5000,  ..., 0.5000, 0.5000, 0.5000]]))");
  CHECK(to_string(zeros(1001, {.requires_grad = true})) ==
        "tensor([0., 0., 0.,  ..., 0., 0., 0.], requires_grad=True)");
  CHECK(to_string(zeros({1001, 1}, {.dtype = float64, .requires_grad = true})) == R"(tensor([[0.],
        [0.],
        [0.],
        ...,
        [0.],
        [0.],
        [0.]], dtype=float64, requires_grad=True))");
}

TEST_CASE("the device is named before everything else") {
  View view;
  view.dtype = float64;
  view.shape = Shape(0, 3);
  view.strides = contiguous_strides(view.shape);
  CHECK(print_elements(view, "requires_grad=True", "cuda:0") ==
        "tensor([], device='cuda:0', size=(0, 3), dtype=float64, requires_grad=True)");
}

TEST_CASE("a tensor goes into a stream as the text it has") {
  std::ostringstream out;
  out << tensor({1., 2.5}) << '\n' << tensor(true);
  CHECK(out.str() == "tensor([1.0000, 2.5000])\ntensor(True)");
}

TEST_CASE("a view that runs backwards through memory prints in its own order") {
  std::int64_t numbers[] = {1, 2, 3};
  View view;
  view.data = reinterpret_cast<std::byte*>(numbers + 2);
  view.dtype = int64;
  view.shape = Shape(3);
  view.strides = Shape(-1);
  CHECK(print_elements(view) == "tensor([3, 2, 1])");
}
