// All rules of the header, for the tests that look at each of them.
#pragma once

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "minitensor.hpp"
#include "tests/shell.hpp"

namespace rules {

template <class... Rules>
std::vector<const mt::Recipe*> recipes_of() {
  return {&mt::recipe_of<Rules>...};
}

inline std::vector<const mt::Recipe*> all() {
  using namespace mt::rule;
  namespace formula = mt::formula;
  return recipes_of<
      Add, AddNumber, Sub, SubNumber, NumberSub, Mul, MulNumber, Div, DivNumber, NumberDiv, Pow,
      PowNumber, NumberPow, Neg, Abs, Sign, Exp, Log, Sqrt, Sin, Cos, Tanh, Sigmoid, Relu, Maximum,
      Minimum, Truth<formula::Equal>, Truth<formula::NotEqual>, Truth<formula::Less>,
      Truth<formula::LessEqual>, Truth<formula::Greater>, Truth<formula::GreaterEqual>,
      Truth<formula::And>, Truth<formula::Or>, Truth<formula::Xor>, Truth<formula::Not>, Where,
      WhereNumber, Sum, Mean, AMax, AMin, MaxAlong, MinAlong, ArgMax, MatMul, Reshape, Squeeze,
      Unsqueeze, Expand, Permute, Transpose, Select, Slice, Clone, Detach, To, Cat, Gather,
      ScatterNew, AsStrided, WriteInto, Overwrite, Expm1, Log1p, Log2, Log10, Rsqrt, Reciprocal,
      Tan, Asin, Acos, Atan, Sinh, Cosh, Erf, Floor, Ceil, Round, Trunc, ClampMin, ClampMax,
      ClampMinTensor, ClampMaxTensor, Atan2, Fmod, Remainder, FloorDivide, TruncDivide, Lerp,
      LogSigmoid, LeakyRelu, Elu, Gelu, Silu, Softplus, Prod, Var, Std, Norm, LogSumExp, All, Any,
      ArgMin, CumSum, CumProd, Sort, ArgSort, TopK, Flip, Scatter, ScatterNumber, Diagonal, Unfold,
      Pad, BinaryCrossEntropy, Convolution, ConvolutionInput, ConvolutionWeight>();
}

inline std::set<std::string> names_of(const std::vector<const mt::Recipe*>& recipes) {
  std::set<std::string> names;
  for (const mt::Recipe* recipe : recipes) names.insert(recipe->facts->name);
  return names;
}

// The names in the header's rows of facts, read as text without its comments: what `all()` has to
// hold.
inline std::set<std::string> names_in_header() {
  static const std::regex row(R"re(\n[^/\n]*\.name = "([^"]+)")re");
  const std::string text = shell::read_file(SOURCE_DIRECTORY "/minitensor.hpp");
  std::set<std::string> names;
  for (std::sregex_iterator match(text.begin(), text.end(), row), end; match != end; ++match)
    names.insert((*match)[1]);
  return names;
}

}  // namespace rules
