// A row for each operation that has a derivative, and the inputs that it is tried with. What a row
// computes with lies on the device of its first input.
#pragma once

#include "tests/tensors.hpp"

namespace gradient_rows {

using namespace mt;
using tensors::infinity;

using In = std::vector<Tensor>;

struct OperationRow {
  const char* op;  // the name in its facts
  Function f;
  std::vector<std::vector<Shape>> shapes;  // of the inputs, one list for each check
  double low = -2, high = 2;
  double eps = 1e-6;
};

inline const std::vector<std::vector<Shape>> one = {{{2, 3}}, {{}},  {{0}},
                                                    {{2, 0}}, {{4}}, {{2, 1, 3}}};
inline const std::vector<std::vector<Shape>> two = {
    {{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{3}, {2, 3}},       {{2, 1}, {1, 3}}, {{}, {2, 2}},
    {{2, 2}, {}},     {{}, {}},      {{2, 1, 2}, {3, 1}}, {{2, 0}, {1, 1}}, {{1}, {0}}};

inline Tensor beside(const In& in, const Tensor& x) { return x.to(in[0].device()); }

inline const std::vector<OperationRow>& table() {
  static const Tensor mask = tensor({{true, false, true}, {false, false, true}});
  static const Tensor index = tensor({{0, 2, 0}, {1, 1, 2}});
  static const std::vector<OperationRow> rows = {
      // ---- Arithmetic ----
      {"add", [](const In& in) { return in[0] + in[1]; }, two},
      {"add_number", [](const In& in) { return 2 + (in[0] + 1.5); }, one},
      {"sub", [](const In& in) { return in[0] - in[1]; }, two},
      {"sub_number", [](const In& in) { return in[0] - 1.5; }, one},
      {"number_sub", [](const In& in) { return 1.5 - in[0]; }, one},
      {"mul", [](const In& in) { return in[0] * in[1]; }, two},
      {"mul_number", [](const In& in) { return 3 * in[0] * -1.5; }, one},
      {"div", [](const In& in) { return in[0] / in[1]; }, two},
      {"div_number", [](const In& in) { return in[0] / 1.5; }, one},
      {"number_div", [](const In& in) { return 1.5 / in[0]; }, one},
      {"pow", [](const In& in) { return pow(in[0], in[1]); }, two, 0.5, 2},
      {"pow_number", [](const In& in) { return in[0].pow(3); }, one},
      {"pow_number", [](const In& in) { return in[0].square() + in[0].pow(-1); }, one},
      {"pow_number", [](const In& in) { return in[0].pow(0) + in[0].pow(1); }, one},
      {"pow_number", [](const In& in) { return in[0].pow(0.5); }, one, 0.5, 2},
      {"number_pow", [](const In& in) { return pow(1.5, in[0]); }, one},

      // ---- One input ----
      {"neg", [](const In& in) { return -in[0]; }, one},
      {"abs", [](const In& in) { return in[0].abs(); }, one},
      {"sign", [](const In& in) { return in[0].sign(); }, one},
      {"exp", [](const In& in) { return in[0].exp(); }, one},
      {"log", [](const In& in) { return in[0].log(); }, one, 0.5, 2},
      {"sqrt", [](const In& in) { return in[0].sqrt(); }, one, 0.5, 2},
      {"sin", [](const In& in) { return in[0].sin(); }, one},
      {"cos", [](const In& in) { return in[0].cos(); }, one},
      {"tanh", [](const In& in) { return in[0].tanh(); }, one},
      {"sigmoid", [](const In& in) { return in[0].sigmoid(); }, one},
      {"relu", [](const In& in) { return in[0].relu(); }, one},

      // ---- More functions of one input ----
      {"expm1", [](const In& in) { return in[0].expm1(); }, one},
      {"log1p", [](const In& in) { return in[0].log1p(); }, one, -0.7, 2},
      {"log2", [](const In& in) { return in[0].log2(); }, one, 0.5, 2},
      {"log10", [](const In& in) { return in[0].log10(); }, one, 0.5, 2},
      {"rsqrt", [](const In& in) { return in[0].rsqrt(); }, one, 0.5, 2},
      {"reciprocal", [](const In& in) { return in[0].reciprocal(); }, one},
      {"tan", [](const In& in) { return in[0].tan(); }, one, -1, 1},
      {"asin", [](const In& in) { return in[0].asin(); }, one, -0.7, 0.7},
      {"acos", [](const In& in) { return in[0].acos(); }, one, -0.7, 0.7},
      {"atan", [](const In& in) { return in[0].atan(); }, one},
      {"sinh", [](const In& in) { return in[0].sinh(); }, one},
      {"cosh", [](const In& in) { return in[0].cosh(); }, one},
      {"erf", [](const In& in) { return in[0].erf(); }, one},
      {"floor", [](const In& in) { return in[0].floor(); }, one, 0, 0.5},
      {"ceil", [](const In& in) { return in[0].ceil(); }, one, 0, 0.5},
      {"round", [](const In& in) { return in[0].round(); }, one, 0, 0.2},
      {"trunc", [](const In& in) { return in[0].trunc(); }, one, 0, 0.5},
      {"number_pow", [](const In& in) { return in[0].exp2(); }, one},
      {"logsigmoid", [](const In& in) { return logsigmoid(in[0]); }, one},
      {"leaky_relu", [](const In& in) { return leaky_relu(in[0], 0.3); }, one},
      {"elu", [](const In& in) { return elu(in[0], 1.5); }, one},
      {"gelu", [](const In& in) { return gelu(in[0]); }, one},
      {"silu", [](const In& in) { return silu(in[0]); }, one},
      {"softplus", [](const In& in) { return softplus(in[0], {.threshold = 1}); }, one},
      {"softplus", [](const In& in) { return softplus(in[0], {.beta = 2, .threshold = 30}); }, one},
      {"gelu", [](const In& in) { return gelu(in[0], {.approximate = "tanh"}); }, one},

      // ---- Bounds, quotients, and other functions of two ----
      {"clamp_min", [](const In& in) { return in[0].clamp({.min = 0.1}); }, one},
      {"clamp_max", [](const In& in) { return in[0].clamp({.max = 0.1}); }, one},
      {"where_number", [](const In& in) { return hardtanh(in[0], -0.5, 0.5); }, one},
      {"clamp_min_tensor", [](const In& in) { return clamp(in[0], in[1], in[1] + 1); }, two},
      {"clamp_max_tensor", [](const In& in) { return clamp(in[0], in[1] - 1, in[1]); }, two},
      {"atan2", [](const In& in) { return atan2(in[0], in[1]); }, two},
      {"fmod", [](const In& in) { return in[0].fmod(in[1]); }, two, 0.5, 2},
      {"fmod", [](const In& in) { return in[0].fmod(0.7); }, one, 0.8, 1},
      {"remainder", [](const In& in) { return in[0].remainder(in[1]); }, two, 0.5, 2},
      {"remainder", [](const In& in) { return in[0].remainder(-0.7); }, one, 0.8, 1},
      {"floor_divide", [](const In& in) { return floor_divide(in[0], in[1]); }, two, 0.5, 2},
      {"trunc_divide", [](const In& in) { return div(in[0], in[1], {.rounding = "trunc"}); }, two, 0.5, 2},
      {"lerp",
       [](const In& in) { return lerp(in[0], in[1], in[2]); },
       {{{2, 3}, {2, 3}, {2, 3}}, {{2, 3}, {3}, {}}, {{3}, {}, {2, 1}}, {{}, {}, {}}, {{0}, {0}, {}}}},
      {"lerp", [](const In& in) { return lerp(in[0], in[1], 0.25) + lerp(in[0], in[1], 0.75); }, two},

      // ---- Choices ----
      {"maximum", [](const In& in) { return maximum(in[0], in[1]); }, two},
      {"minimum", [](const In& in) { return minimum(in[0], in[1]); }, two},
      {"where",
       [](const In& in) { return where(beside(in, mask), in[0], in[1]); },
       {{{2, 3}, {2, 3}}, {{3}, {2, 1}}, {{}, {2, 3}}, {{2, 3}, {}}}},
      {"where_number",
       [](const In& in) { return where(beside(in, mask), in[0], 0.5); },
       {{{2, 3}}, {{3}}, {{}}}},
      {"where_number",
       [](const In& in) { return where(beside(in, mask), 0.5, in[0]); },
       {{{2, 3}}, {{3}}, {{}}}},

      // ---- Reductions ----
      {"sum", [](const In& in) { return in[0].sum(); }, one},
      {"sum", [](const In& in) { return in[0].sum({-1}); }, {{{2, 3}}, {{4}}, {{}}, {{2, 0}}}},
      {"sum",
       [](const In& in) {
         return in[0].sum({0, 2}, {.keepdim = true});
       },
       {{{2, 2, 3}}}},
      {"mean", [](const In& in) { return in[0].mean(); }, {{{2, 3}}, {{}}, {{4}}}},
      {"mean", [](const In& in) { return in[0].mean({0}, {.keepdim = true}); }, {{{2, 3}}, {{4}}}},
      {"amax", [](const In& in) { return in[0].amax({-1}); }, {{{2, 3}}, {{4}}, {{}}}},
      {"amax",
       [](const In& in) {
         return in[0].max() + in[0].amax({0, 1});
       },
       {{{2, 3}}}},
      {"amin", [](const In& in) { return in[0].amin({0}, {.keepdim = true}); }, {{{2, 3}}, {{4}}}},
      {"amin", [](const In& in) { return in[0].min(); }, {{{2, 3}}, {{}}}},
      {"max", [](const In& in) { return in[0].max(1).values; }, {{{2, 3}}, {{2, 3, 2}}}},
      {"max", [](const In& in) { return in[0].max(0, {.keepdim = true}).values; }, {{{4}}, {{}}}},
      {"min", [](const In& in) { return in[0].min(-1).values; }, {{{2, 3}}, {{4}}, {{}}}},

      // ---- More reductions ----
      {"prod", [](const In& in) { return in[0].prod(); }, one},
      {"prod", [](const In& in) { return in[0].prod({-1}, {.keepdim = true}); }, {{{2, 3}}, {{4}}, {{}}, {{2, 0}}}},
      {"prod", [](const In& in) { return (in[0] * beside(in, tensor({0., 1., 1.}, {.dtype = float64}))).prod(1) + (in[0] * beside(in, tensor({0., 0., 1.}, {.dtype = float64}))).prod(1); }, {{{2, 3}}}},
      {"prod", [](const In& in) { return (in[0] * beside(in, tensor({0., 1., 1.}, {.dtype = float64}))).prod(); }, {{{2, 3}}, {{3}}}},
      {"prod", [](const In& in) { return (in[0] * beside(in, tensor({{{0.}, {1.}}}, {.dtype = float64}))).prod({0, 2}); }, {{{2, 2, 3}}}},
      {"var", [](const In& in) { return in[0].var(); }, {{{2, 3}}, {{4}}}},
      {"var", [](const In& in) { return in[0].var({0}, {.correction = 0, .keepdim = true}); }, {{{2, 3}}, {{4}}, {{}}}},
      {"std", [](const In& in) { return in[0].std(); }, {{{2, 3}}, {{4}}}},
      {"std", [](const In& in) { return in[0].std({1}, {.correction = 0.5}); }, {{{2, 3}}}},
      {"norm", [](const In& in) { return in[0].norm(2); }, one},
      {"norm", [](const In& in) { return in[0].norm(1); }, one},
      {"norm", [](const In& in) { return in[0].norm(3); }, one},
      {"norm", [](const In& in) { return in[0].norm(1.5); }, one},
      {"norm", [](const In& in) { return in[0].norm(2, {1}, {.keepdim = true}); }, {{{2, 3}}, {{2, 3, 2}}}},
      {"norm", [](const In& in) { return in[0].norm(infinity, 0); }, {{{2, 3}}, {{4}}}},
      {"norm", [](const In& in) { return in[0].norm(0) + in[0].norm(-infinity) + in[0].norm(-1); }, {{{2, 3}}}},
      {"logsumexp", [](const In& in) { return in[0].logsumexp({}); }, one},
      {"logsumexp", [](const In& in) { return in[0].logsumexp(-1, {.keepdim = true}); }, {{{2, 3}}, {{4}}, {{}}}},
      {"cumsum", [](const In& in) { return in[0].cumsum(-1); }, one},
      {"cumsum", [](const In& in) { return in[0].cumsum(0); }, {{{2, 3}}, {{5}}}},
      {"cumprod", [](const In& in) { return in[0].cumprod(-1); }, one},
      {"cumprod", [](const In& in) { return (in[0] * beside(in, tensor({0., 1., 1.}, {.dtype = float64}))).cumprod(-1) + (in[0] * beside(in, tensor({0., 0., 1.}, {.dtype = float64}))).cumprod(0); }, {{{2, 3}}}},
      {"cumprod", [](const In& in) { return in[0].cumprod(0); }, {{{5}}}},
      {"sort", [](const In& in) { return in[0].sort().values; }, one},
      {"sort", [](const In& in) { return in[0].sort(0, {.descending = true}).values; }, {{{2, 3}}, {{5}}}},
      {"topk", [](const In& in) { return in[0].topk(2).values; }, {{{2, 3}}, {{4}}}},
      {"topk", [](const In& in) { return in[0].topk(1, 0, {.largest = false}).values; }, {{{2, 3}}, {{}}}},
      {"flip", [](const In& in) { return in[0].flip(0); }, {{{2, 3}}, {{4}}, {{}}, {{2, 0}}}},
      {"flip", [](const In& in) { return in[0].flip({0, 2}); }, {{{2, 1, 3}}}},

      // ---- Matrix product ----
      {"matmul",
       [](const In& in) { return in[0].matmul(in[1]); },
       {{{2, 3}, {3, 2}},
        {{3}, {3}},
        {{2, 3}, {3}},
        {{3}, {3, 2}},
        {{2, 2, 3}, {3, 2}},
        {{2, 2, 3}, {2, 3, 1}},
        {{2, 2, 3}, {3}},
        {{3}, {2, 3, 2}},
        {{2, 3}, {2, 3, 2}},
        {{2, 1, 2, 2}, {3, 2, 2}},
        {{2, 0}, {0, 3}},
        {{0, 2}, {2, 3}},
        {{2, 3, 0}, {0, 4}},
        {{2, 0, 3}, {3, 2}}}},
      {"matmul", [](const In& in) { return addmm(in[0], in[1], in[2], {.beta = 0.5, .alpha = 2}); }, {{{2, 4}, {2, 3}, {3, 4}}, {{4}, {2, 3}, {3, 4}}, {{}, {1, 2}, {2, 1}}}},
      {"matmul", [](const In& in) { return in[0].bmm(in[1]) * in[0].select(0, 0).mm(in[1].select(0, 1)); }, {{{2, 2, 3}, {2, 3, 2}}}},
      {"matmul", [](const In& in) { return in[0].outer(in[1]) * in[0].dot(in[1]) + in[0].outer(in[1]).mv(in[0]); }, {{{3}, {3}}}},
      {"matmul", [](const In& in) { return einsum("ij,kj->ik", in[0], in[1]); }, {{{2, 3}, {4, 3}}, {{2, 1}, {4, 3}}, {{2, 0}, {3, 0}}}},
      {"matmul", [](const In& in) { return einsum("b...i,ij->b...j", in[0], in[1]); }, {{{2, 2, 3}, {3, 2}}, {{2, 3}, {3, 2}}}},
      {"diagonal", [](const In& in) { return einsum("ii,i->i", in[0], in[1]); }, {{{3, 3}, {3}}}},
      {"matmul", [](const In& in) { return einsum("ijk,jil->kl", in[0], in[1]); }, {{{2, 3, 2}, {3, 2, 2}}}},
      {"matmul", [](const In& in) { return einsum("i,ij,j->", {in[0], in[1], in[2]}); }, {{{2}, {2, 3}, {3}}}},

      // ---- Views and copies ----
      {"reshape",
       [](const In& in) {
         return in[0].reshape({3, 2}).exp();
       },
       {{{2, 3}}}},
      {"reshape", [](const In& in) { return in[0].flatten(); }, one},
      {"squeeze", [](const In& in) { return in[0].squeeze(); }, {{{2, 1, 3}}, {{1, 1}}, {{}}}},
      {"squeeze", [](const In& in) { return in[0].squeeze(0); }, {{{1, 3}}, {{2, 3}}}},
      {"unsqueeze", [](const In& in) { return in[0].unsqueeze(-1); }, one},
      {"expand",
       [](const In& in) {
         return in[0].expand({4, 2, 3});
       },
       {{{2, 1}}, {{3}}, {{}}}},
      {"expand",
       [](const In& in) {
         return in[0].expand({2, 0});
       },
       {{{2, 1}}, {{1}}}},
      {"permute",
       [](const In& in) {
         return in[0].permute({2, 0, 1});
       },
       {{{2, 1, 3}}}},
      {"transpose", [](const In& in) { return in[0].transpose(0, -1); }, one},
      {"select", [](const In& in) { return in[0].select(1, -2); }, {{{2, 3}}, {{2, 2, 2}}}},
      {"select", [](const In& in) { return in[0][1]; }, {{{2, 3}}, {{4}}}},
      {"slice",
       [](const In& in) { return in[0].slice(-1, 1, {}, 2); },
       {{{2, 5}}, {{4}}, {{2, 0}}}},
      {"slice", [](const In& in) { return in[0].slice(0, 2, 1); }, {{{4}}}},
      {"clone", [](const In& in) { return in[0].clone(); }, one},
      {"to", [](const In& in) { return in[0].to(float32); }, one, -2, 2, 1e-2},
      {"cat",
       [](const In& in) {
         return cat({in[0], in[1], in[2]}, -1);
       },
       {{{2, 3}, {2, 1}, {2, 2}}, {{2}, {0}, {1}}}},
      {"cat",
       [](const In& in) {
         return stack({in[0], in[0], in[1]}, 1);
       },
       {{{2, 3}, {2, 3}}}},

      {"cat", [](const In& in) { return hstack({in[0], in[1]}); }, {{{2, 3}, {2, 1}}, {{2}, {1}}, {{}, {2}}}},
      {"cat", [](const In& in) { return vstack({in[0], in[1]}); }, {{{2, 3}, {1, 3}}, {{2}, {2}}, {{2}, {3, 2}}}},
      {"expand",
       [](const In& in) {
         const std::vector<Tensor> grid = meshgrid({in[0], in[1]}, {.indexing = "xy"});
         return grid[0].exp() * grid[1];
       },
       {{{2}, {3}}, {{}, {2}}, {{1}, {0}}}},

      // ---- Gathering ----
      {"gather", [](const In& in) { return in[0].gather(1, beside(in, index)); }, {{{2, 3}}, {{3, 4}}}},
      {"gather", [](const In& in) { return in[0].gather(0, beside(in, index)); }, {{{3, 3}}}},
      {"scatter_add",
       [](const In& in) {
         return scatter_new(in[0], beside(in, index), {2, 4}, 1);
       },
       {{{2, 3}}}},

      // ---- More ways to pick and to place ----
      {"scatter", [](const In& in) { return in[0].scatter(1, beside(in, tensor({{0, 2}, {1, 3}})), in[1]); }, {{{2, 4}, {2, 2}}, {{2, 4}, {2, 3}}, {{2, 4}, {3, 2}}}},
      {"scatter_number", [](const In& in) { return in[0].scatter(0, beside(in, tensor({{0, 2, 1}})), 1.5); }, {{{3, 3}}}},
      {"scatter_add", [](const In& in) { return in[0].scatter_add(1, beside(in, index), in[1]); }, {{{2, 3}, {2, 3}}, {{3, 4}, {2, 4}}}},
      {"scatter_add", [](const In& in) { return in[0].index_add(1, beside(in, tensor({2, 0, 2})), in[1]); }, {{{2, 3}, {2, 3}}}},
      {"gather", [](const In& in) { return in[0].index_select(-1, beside(in, tensor({2, 0, 2, 1}))); }, {{{2, 3}}, {{3}}}},
      {"gather", [](const In& in) { return in[0].take_along_dim(beside(in, tensor({{0, 2, 1, 1}})), 1); }, {{{2, 3}}}},
      {"gather", [](const In& in) { return in[0].masked_select(beside(in, tensor({true, false, true}))); }, {{{2, 3}}, {{3}}}},
      {"where_number", [](const In& in) { return in[0].masked_fill(beside(in, mask), 2) + in[0].tril() * in[0].triu(1); }, {{{2, 3}}}},
      {"where", [](const In& in) { return in[0].masked_fill(beside(in, mask), in[1]); }, {{{2, 3}, {}}}},
      {"diagonal", [](const In& in) { return in[0].diagonal(); }, {{{2, 3}}, {{2, 2, 2}}}},
      {"diagonal", [](const In& in) { return in[0].diagonal(-1, -1, 0); }, {{{2, 3}}, {{3, 1, 3}}}},
      {"unfold", [](const In& in) { return in[0].unfold(-1, 3, 1); }, {{{2, 5}}, {{3}}}},
      {"unfold", [](const In& in) { return in[0].unfold(0, 2, 2).unfold(1, 1, 1); }, {{{5, 2}}}},
      {"pad", [](const In& in) { return pad(in[0], {1, 2}, 3); }, {{{2, 3}}, {{4}}, {{2, 0}}}},
      {"pad", [](const In& in) { return pad(in[0], {-1, 1, 2, -1}); }, {{{2, 3}}}},
      {"cat", [](const In& in) { return in[0].roll({1, -4}, {0, 1}) * in[0].roll(2); }, {{{2, 3}}}},
      {"expand", [](const In& in) { return in[0].repeat(2, 3, 2); }, {{{2, 3}}, {{1, 1}}, {{2}}}},
      {"slice", [](const In& in) { return in[0].split(2, 1)[1] * in[0].chunk(3, 1)[0] * in[0].unbind(1)[1].unsqueeze(1); }, {{{2, 3}}}},
      {"permute", [](const In& in) { return in[0].movedim(0, -1); }, {{{2, 3, 1}}, {{4}}}},
      {"reshape", [](const In& in) { return in[0].unflatten(-1, {2, -1}); }, {{{3, 4}}, {{4}}}},

      // ---- Writes ----
      {"copy_",
       [](const In& in) {
         const Tensor y = in[0] * 1;
         return y.copy_(in[1]) + 0;
       },
       {{{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{2}, {}}}},
      {"write_into",
       [](const In& in) {
         const Tensor y = in[0] * 1;
         y.slice(1, 0, {}, 2) = in[1];
         return y;
       },
       {{{2, 3}, {2, 2}}, {{2, 3}, {2, 1}}, {{2, 3}, {}}}},
      {"write_into",
       [](const In& in) {
         const Tensor y = in[0].t() * 1;
         y[1] *= in[1].exp();
         return y;
       },
       {{{2, 3}, {2}}, {{2, 3}, {}}}},
      {"as_strided",
       [](const In& in) {
         const Tensor y = in[0] * 1;
         const Tensor v = y.t().slice(0, 1);
         y.mul_(3);
         return v.exp();
       },
       {{{2, 3}}}},
      {"as_strided",
       [](const In& in) {
         const Tensor y = in[0] * 1;
         const Tensor v = y.expand({2, 2, 3});
         y[0] = in[1];
         return v * v;
       },
       {{{2, 3}, {3}}, {{2, 1}, {1}}}},

      // ---- Composed operations: their rules are those above ----
      {"softmax", [](const In& in) { return in[0].softmax(-1); }, {{{2, 3}}, {{4}}, {{}}}},
      {"softmax", [](const In& in) { return in[0].softmax(0); }, {{{2, 3}}}},
      {"log_softmax", [](const In& in) { return in[0].log_softmax(1); }, {{{2, 3}}}},
      {"mse_loss", [](const In& in) { return mse_loss(in[0], in[1]); }, {{{2, 3}, {2, 3}}}},
      {"cross_entropy",
       [](const In& in) { return cross_entropy(in[0], beside(in, tensor({2, 0}))); },
       {{{2, 3}}}},
      {"cross_entropy",
       [](const In& in) { return cross_entropy(in[0], beside(in, tensor({-100, 1})), {.reduction = "sum"}); },
       {{{2, 3}}}},
      {"cross_entropy", [](const In& in) { return cross_entropy(in[0], beside(in, tensor(1))); }, {{{3}}}},
      {"binary_cross_entropy", [](const In& in) { return binary_cross_entropy(in[0], in[1].abs().clamp(0, 1), {.reduction = "none"}); }, {{{2, 3}, {2, 3}}}, 0.1, 0.6},
      {"where", [](const In& in) { return huber_loss(in[0], in[1], {.delta = 0.7}); }, {{{2, 3}, {2, 3}}}},
      {"where", [](const In& in) { return smooth_l1_loss(in[0], in[1], {.reduction = "none", .beta = 0.7}); }, {{{2, 3}, {2, 3}}}},
      {"abs", [](const In& in) { return l1_loss(in[0], in[1]); }, {{{2, 3}, {2, 3}}}},
      {"logsigmoid", [](const In& in) { return binary_cross_entropy_with_logits(in[0], in[1], {.pos_weight = beside(in, tensor(2.5))}); }, {{{2, 3}, {2, 3}}}},
      {"log", [](const In& in) { return kl_div(in[0], in[1], {.reduction = "batchmean"}) + kl_div(in[1], in[0], {.log_target = true}); }, {{{2, 3}, {2, 3}}}, 0.2, 0.8},
      {"gather",
       [](const In& in) {
         return cross_entropy(in[0], beside(in, tensor({{1, 0, -100}, {0, 1, 1}})),
                              {.weight = beside(in, tensor({0.5, 2.})), .label_smoothing = 0.2});
       },
       {{{2, 2, 3}}}},
      {"log_softmax", [](const In& in) { return cross_entropy(in[0], in[1], {.label_smoothing = 0.1}); }, {{{2, 3}, {2, 3}}}},
      {"gather", [](const In& in) { return nll_loss(in[0], beside(in, tensor({2, 0})), {.reduction = "sum"}); }, {{{2, 3}}}},
      {"matmul", [](const In& in) { return linear(in[0], in[1], in[2]); }, {{{2, 3}, {4, 3}, {4}}, {{3}, {4, 3}, {4}}, {{0, 3}, {4, 3}, {4}}}},
      {"gather", [](const In& in) { return embedding(beside(in, tensor({{1, 1}, {0, 1}})), in[0]); }, {{{3, 2}}}},
      {"rsqrt", [](const In& in) { return layer_norm(in[0], {2, 3}, in[1], in[2]); }, {{{2, 2, 3}, {2, 3}, {2, 3}}}},
      {"rsqrt", [](const In& in) { return group_norm(in[0], 2, in[1], in[2]); }, {{{2, 4, 2}, {4}, {4}}}},
      {"rsqrt", [](const In& in) { return batch_norm(in[0], Tensor(), Tensor(), in[1], in[2], {.training = true}); }, {{{3, 2, 2}, {2}, {2}}}},
      {"rsqrt", [](const In& in) { return batch_norm(in[0], beside(in, zeros({2})), beside(in, ones({2})), in[1]); }, {{{3, 2}, {2}}}},
      {"matmul", [](const In& in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true}); }, {{{2, 3}, {4, 3}, {4, 2}}, {{2, 2, 3}, {2, 2, 3}, {2, 2, 1}}}},
      {"matmul",
       [](const In& in) {
         return scaled_dot_product_attention(
             in[0], in[1], in[2],
             {.attn_mask = beside(in, tensor({{true, false, true}, {false, false, false}})), .scale = 0.7});
       },
       {{{2, 3}, {3, 3}, {3, 2}}}},
      {"convolution", [](const In& in) { return conv2d(in[0], in[1], in[2], {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2}); }, {{{2, 2, 4, 4}, {4, 1, 3, 2}, {4}}}},
      {"convolution", [](const In& in) { return conv1d(in[0], in[1], in[2], {.stride = 2, .padding = 1}); }, {{{2, 2, 5}, {3, 2, 3}, {3}}}},
      {"convolution", [](const In& in) { return conv2d(in[0], in[1], {.padding = "same"}); }, {{{1, 3, 2}, {1, 1, 2, 3}}}},
      {"convolution", [](const In& in) { return conv2d(in[0], in[1]); }, {{{0, 2, 3, 3}, {2, 2, 2, 2}}, {{1, 2, 8, 8}, {2, 2, 1, 1}}}},
      {"convolution", [](const In& in) { return convolution(in[0], in[1], {2, 1, 1, 2, 2}); }, {{{2, 2, 4, 4}, {4, 1, 2, 2}}}},
      {"convolution_input", [](const In& in) { return convolution_input(in[0], in[1], {2, 1, 1, 2, 2, 4, 4}); }, {{{2, 4, 2, 2}, {4, 1, 2, 2}}}},
      {"convolution_input", [](const In& in) { return convolution_input(in[0], in[1], {1, 1, 1, 1, 1, 8, 8}); }, {{{1, 2, 8, 8}, {2, 1, 1, 1}}, {{0, 1, 8, 8}, {1, 2, 1, 1}}}},
      {"convolution_weight", [](const In& in) { return convolution_weight(in[0], in[1], {2, 1, 1, 2, 2, 2, 2}); }, {{{2, 2, 4, 4}, {2, 4, 2, 2}}}},
      {"convolution_weight", [](const In& in) { return convolution_weight(in[0], in[1], {1, 1, 1, 1, 1, 1, 1}); }, {{{1, 1, 8, 8}, {1, 1, 8, 8}}, {{0, 1, 2, 2}, {0, 1, 2, 2}}}},
      {"gather", [](const In& in) { return max_pool2d(in[0], 2, {.stride = 1, .padding = 1}); }, {{{1, 2, 3, 3}}}},
      {"gather", [](const In& in) { return max_pool2d(in[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true}); }, {{{1, 4, 4}}}},
      {"unfold", [](const In& in) { return avg_pool2d(in[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true}) / avg_pool2d(in[0], 2, {.stride = 1, .divisor_override = 3}).abs().sum(); }, {{{1, 4, 4}}}},
      {"gather", [](const In& in) { return in[0][beside(in, tensor({true, false, true}))] * in[0][beside(in, tensor({-1, -1}))]; }, {{{3, 2}}}},
      {"scatter",
       [](const In& in) {
         const Tensor y = in[0] * 2;
         y[beside(in, tensor({-1, 0}))] = in[1];
         y[y < 0] *= 3;
         return y;
       },
       {{{3, 2}, {2, 2}}, {{3, 2}, {2}}}},
      {"mul_number", [](const In& in) { return in[0].index_add(0, beside(in, tensor({1, 1})), in[1], {.alpha = 1.5}); }, {{{2, 3}, {2, 3}}}},
      {"sum", [](const In& in) { return in[0].sum({}, {.dtype = float64}) * in[0].norm("fro"); }, {{{2, 3}}}},
      {"unfold", [](const In& in) { return avg_pool2d(in[0], 3, {.stride = 2, .padding = 1}) + avg_pool2d(in[0], 3, {.stride = 2, .padding = 1, .count_include_pad = false}); }, {{{1, 2, 4, 3}}}},
      {"mean", [](const In& in) { return adaptive_avg_pool2d(in[0], {2, 3}); }, {{{1, 2, 5, 4}}}},
      {"clamp_min", [](const In& in) { return (in[0] * 1).clamp_(-0.5, 0.5) * (in[0] * 2).masked_fill_(beside(in, tensor({true, false, true})), 3); }, {{{2, 3}}}},
  };
  return rows;
}

// ---- Inputs -------------------------------------------------------------------------------------

enum class Layout { contiguous, transposed, sliced, broadcast };
inline const std::vector<Layout> layouts = {Layout::contiguous, Layout::transposed, Layout::sliced,
                                            Layout::broadcast};
inline const char* const layout_names[] = {"contiguous", "transposed", "sliced", "broadcast"};

// Random numbers between low and high that keep away from 0, where some functions have a kink.
inline Tensor numbers(const Shape& shape, const OperationRow& row) {
  const Tensor x = rand(shape, {.dtype = float64}) * (row.high - row.low) + row.low;
  return x + x.sign() * 0.2;
}

// A leaf that lies in memory as the layout says. In the layout `broadcast` its first axis is 1.
inline Tensor input(Shape shape, Layout layout, const OperationRow& row) {
  Tensor x;
  if (layout == Layout::transposed) {
    Shape reversed, back;
    for (int i = shape.size(); i-- > 0;) reversed.push_back(shape[i]), back.push_back(i);
    x = numbers(reversed, row).permute(back);
  } else if (layout == Layout::sliced && !shape.empty()) {
    Shape longer = shape;
    longer[shape.size() - 1] *= 2;
    x = numbers(longer, row).slice(-1, 1, {}, 2);
  } else {
    if (layout == Layout::broadcast && !shape.empty() && shape[0] > 0) shape[0] = 1;
    x = numbers(shape, row);
  }
  return x.detach().requires_grad_();
}

}  // namespace gradient_rows
