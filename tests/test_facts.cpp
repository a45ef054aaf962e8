// The texts of the facts say what the operations do. Those that are formulas are evaluated at
// random points and compared with the operation and its rule; those that are words stand in a list
// here, each with an example worked out by hand.
#include <functional>
#include <map>
#include <regex>

#include "lessons/words.hpp"
#include "tests/rules.hpp"
#include "tests/tensors.hpp"

namespace {

using namespace mt;
using namespace tensors;

using In = std::vector<Tensor>;

// ---- One run of an operation --------------------------------------------------------------------

struct Run {
  In inputs;
  Tensor y, dy;
  In gradients;  // undefined for inputs that have none
  double n = 0;

  const Tensor& letter(const std::string& name) const {
    return name == "y" ? y : name == "dy" ? dy : inputs.at(static_cast<std::size_t>(name[0] - 'a'));
  }
};

Run run(const Function& f, const In& inputs, const Tensor& seed = Tensor()) {
  Run run{inputs, f(inputs), seed, In(inputs.size()), 0};
  if (!run.y.requires_grad()) return run;
  run.n = run.y.grad_fn()->given.n;
  if (!seed.defined()) run.dy = rand(run.y.shape(), {.dtype = run.y.dtype()}) + 0.5;
  for (std::size_t slot = 0; slot < inputs.size(); ++slot)
    if (inputs[slot].requires_grad())
      run.gradients[slot] =
          grad({run.y}, {inputs[slot]}, {.retain_graph = true, .grad_outputs = {run.dy}})[0];
  return run;
}

// ---- The value of a text ------------------------------------------------------------------------

using Letters = std::map<std::string, double, std::less<>>;

// A word for a whole tensor, as in "sum(a) / n".
void replace(std::string& text, const std::string& word, Letters& letters, double value) {
  const std::size_t at = text.find(word);
  if (at == std::string::npos) return;
  const std::string name = "whole" + std::to_string(letters.size());
  letters[name] = value;
  text.replace(at, word.size(), name);
}

void replace_whole_words(std::string& text, const Run& run, Letters& letters) {
  const Values a = values(run.inputs[0]);
  if (a.empty()) return;
  double sum = 0, count = 0;
  for (double x : a) sum += x;
  for (double x : a) count += run.y.numel() == 1 && x == run.y.item();
  replace(text, "sum(a)", letters, sum);
  replace(text, "mean(a)", letters, sum / static_cast<double>(a.size()));
  replace(text, "argmin(a)", letters,
          static_cast<double>(std::min_element(a.begin(), a.end()) - a.begin()));
  replace(text, "argmax(a)", letters,
          static_cast<double>(std::max_element(a.begin(), a.end()) - a.begin()));
  replace(text, "max(a)", letters, *std::max_element(a.begin(), a.end()));
  replace(text, "min(a)", letters, *std::min_element(a.begin(), a.end()));
  replace(text, "count(a == y)", letters, count);
}

// The elements of a tensor of this shape, each computed from the same element of the letters, or
// from their only one. Empty if the text is no formula.
std::optional<Values> by_elements(std::string text, const Run& run, const Shape& shape) {
  Letters whole;
  replace_whole_words(text, run, whole);
  std::map<std::string, Values> tensors;
  for (std::size_t slot = 0; slot < run.inputs.size(); ++slot)
    tensors[std::string(1, "abc"[slot])] = values(run.inputs[slot]);
  tensors["y"] = values(run.y);
  if (run.dy.defined()) tensors["dy"] = values(run.dy);
  Values result;
  for (std::size_t i = 0; i < static_cast<std::size_t>(shape.numel()); ++i) {
    Letters letters = whole;
    letters["n"] = run.n;
    for (const auto& [name, elements] : tensors)
      if (elements.size() == 1 || elements.size() == static_cast<std::size_t>(shape.numel()))
        letters[name] = elements[elements.size() == 1 ? 0 : i];
    const std::optional<double> value = words::evaluate(text, letters);
    if (!value) return std::nullopt;
    result.push_back(*value);
  }
  return result;
}

// "sum over k of a[i,k] * b[k,j]" as a tensor whose axes are i and j (`axes` is "ij").
std::optional<Values> by_indices(const std::string& text, const Run& run, const std::string& axes,
                                 const Shape& shape) {
  static const std::regex sum(R"(sum over (\w) of (.+))"), factor(R"((\w+)\[(\w),(\w)\])");
  std::smatch parts;
  if (!std::regex_match(text, parts, sum)) return std::nullopt;
  const char summed = parts[1].str()[0];
  const std::string term = parts[2];
  std::map<char, std::int64_t> size, index;
  for (std::sregex_iterator match(term.begin(), term.end(), factor), end; match != end; ++match)
    for (std::size_t axis : {0u, 1u})
      size[(*match)[axis + 2].str()[0]] = run.letter((*match)[1]).size(static_cast<int>(axis));
  Values result;
  for (index[axes[0]] = 0; index[axes[0]] < shape[0]; ++index[axes[0]])
    for (index[axes[1]] = 0; index[axes[1]] < shape[1]; ++index[axes[1]]) {
      double total = 0;
      for (index[summed] = 0; index[summed] < size[summed]; ++index[summed]) {
        Letters letters;
        std::string plain = term;
        for (std::smatch match; std::regex_search(plain, match, factor);) {
          const Tensor& x = run.letter(match[1]);
          replace(plain, match[0], letters,
                  x[index[match[2].str()[0]]][index[match[3].str()[0]]].item());
        }
        total += words::evaluate(plain, letters).value();
      }
      result.push_back(total);
    }
  return result;
}

// Empty if the text is words.
std::optional<Values> value_of(const std::string& text, const Run& run, const std::string& axes,
                               const Shape& shape) {
  if (text.find("sum over") == 0) return by_indices(text, run, axes, shape);
  return by_elements(text, run, shape);
}

// ---- Formulas -----------------------------------------------------------------------------------

// Random inputs of these shapes between low and high; `ties` rounds them to -1, 0 and 1.
struct Sample {
  const char* op;
  Function f;
  std::vector<Shape> shapes = {{2, 3}};
  double low = -2, high = 2;
  bool ties = false;
  std::size_t condition = 9;  // the input that is a bool
};

const std::vector<Shape> pair = {{2, 3}, {2, 3}};
const std::vector<Shape> three = {{2, 3}, {2, 3}, {2, 3}};

const std::vector<Sample>& samples() {
  static const std::vector<Sample> list = {
      {"add", [](const In& in) { return in[0] + in[1]; }, pair},
      {"add_number", [](const In& in) { return in[0] + 1.5; }},
      {"sub", [](const In& in) { return in[0] - in[1]; }, pair},
      {"sub_number", [](const In& in) { return in[0] - 1.5; }},
      {"number_sub", [](const In& in) { return 1.5 - in[0]; }},
      {"mul", [](const In& in) { return in[0] * in[1]; }, pair},
      {"mul_number", [](const In& in) { return in[0] * 1.5; }},
      {"div", [](const In& in) { return in[0] / in[1]; }, pair},
      {"div_number", [](const In& in) { return in[0] / 1.5; }},
      {"number_div", [](const In& in) { return 1.5 / in[0]; }},
      {"pow", [](const In& in) { return pow(in[0], in[1]); }, pair, 0.5, 2},
      {"pow_number", [](const In& in) { return in[0].pow(3); }},
      {"pow_number", [](const In& in) { return in[0].square(); }},
      {"pow_number", [](const In& in) { return in[0].pow(0); }},
      {"number_pow", [](const In& in) { return pow(1.5, in[0]); }},
      {"neg", [](const In& in) { return -in[0]; }},
      {"abs", [](const In& in) { return in[0].abs(); }},
      {"abs", [](const In& in) { return in[0].abs(); }, {{2, 3}}, -2, 2, true},
      {"sign", [](const In& in) { return in[0].sign(); }},
      {"exp", [](const In& in) { return in[0].exp(); }},
      {"log", [](const In& in) { return in[0].log(); }, {{2, 3}}, 0.5, 2},
      {"sqrt", [](const In& in) { return in[0].sqrt(); }, {{2, 3}}, 0.5, 2},
      {"sin", [](const In& in) { return in[0].sin(); }},
      {"cos", [](const In& in) { return in[0].cos(); }},
      {"tanh", [](const In& in) { return in[0].tanh(); }},
      {"sigmoid", [](const In& in) { return in[0].sigmoid(); }},
      {"relu", [](const In& in) { return in[0].relu(); }},
      {"relu", [](const In& in) { return in[0].relu(); }, {{2, 3}}, -2, 2, true},
      {"expm1", [](const In& in) { return in[0].expm1(); }, {{2, 3}}},
      {"log1p", [](const In& in) { return in[0].log1p(); }, {{2, 3}}, -0.7, 2},
      {"log2", [](const In& in) { return in[0].log2(); }, {{2, 3}}, 0.5, 2},
      {"log10", [](const In& in) { return in[0].log10(); }, {{2, 3}}, 0.5, 2},
      {"rsqrt", [](const In& in) { return in[0].rsqrt(); }, {{2, 3}}, 0.5, 2},
      {"reciprocal", [](const In& in) { return in[0].reciprocal(); }, {{2, 3}}},
      {"tan", [](const In& in) { return in[0].tan(); }, {{2, 3}}},
      {"asin", [](const In& in) { return in[0].asin(); }, {{2, 3}}, -0.9, 0.9},
      {"acos", [](const In& in) { return in[0].acos(); }, {{2, 3}}, -0.9, 0.9},
      {"atan", [](const In& in) { return in[0].atan(); }, {{2, 3}}},
      {"sinh", [](const In& in) { return in[0].sinh(); }, {{2, 3}}},
      {"cosh", [](const In& in) { return in[0].cosh(); }, {{2, 3}}},
      {"erf", [](const In& in) { return in[0].erf(); }, {{2, 3}}},
      {"floor", [](const In& in) { return in[0].floor(); }, {{2, 3}}},
      {"ceil", [](const In& in) { return in[0].ceil(); }, {{2, 3}}},
      {"round", [](const In& in) { return in[0].round(); }, {{2, 3}}},
      {"trunc", [](const In& in) { return in[0].trunc(); }, {{2, 3}}},
      {"logsigmoid", [](const In& in) { return logsigmoid(in[0]); }, {{2, 3}}},
      {"leaky_relu", [](const In& in) { return leaky_relu(in[0], 0.3); }, {{2, 3}}},
      {"elu", [](const In& in) { return elu(in[0], 1.5); }, {{2, 3}}},
      {"gelu", [](const In& in) { return gelu(in[0]); }, {{2, 3}}},
      {"silu", [](const In& in) { return silu(in[0]); }, {{2, 3}}},
      {"softplus", [](const In& in) { return softplus(in[0], {.threshold = 1}); }, {{2, 3}}},
      {"clamp_min", [](const In& in) { return in[0].clamp({.min = 0.1}); }, {{2, 3}}},
      {"clamp_max", [](const In& in) { return in[0].clamp({.max = 0.1}); }, {{2, 3}}},
      {"clamp_min_tensor",
       [](const In& in) { return binary<rule::ClampMinTensor>(in[0], in[1], Loc::here()); }, pair,
       -2, 2, true},
      {"clamp_max_tensor",
       [](const In& in) { return binary<rule::ClampMaxTensor>(in[0], in[1], Loc::here()); }, pair,
       -2, 2, true},
      {"binary_cross_entropy",
       [](const In& in) { return binary_cross_entropy(in[0], in[1], {.reduction = "none"}); }, pair,
       0.2, 0.8},
      {"atan2", [](const In& in) { return atan2(in[0], in[1]); }, pair},
      {"fmod", [](const In& in) { return in[0].fmod(in[1]); }, pair},
      {"remainder", [](const In& in) { return in[0].remainder(in[1]); }, pair},
      {"floor_divide", [](const In& in) { return floor_divide(in[0], in[1]); }, pair},
      {"trunc_divide", [](const In& in) { return div(in[0], in[1], {.rounding = "trunc"}); }, pair},
      {"lerp", [](const In& in) { return lerp(in[0], in[1], in[2]); }, three},
      {"maximum", [](const In& in) { return maximum(in[0], in[1]); }, pair},
      {"maximum", [](const In& in) { return maximum(in[0], in[1]); }, pair, -2, 2, true},
      {"minimum", [](const In& in) { return minimum(in[0], in[1]); }, pair},
      {"minimum", [](const In& in) { return minimum(in[0], in[1]); }, pair, -2, 2, true},
      {"equal", [](const In& in) { return in[0] == in[1]; }, pair, -2, 2, true},
      {"not_equal", [](const In& in) { return in[0] != in[1]; }, pair, -2, 2, true},
      {"less", [](const In& in) { return in[0] < in[1]; }, pair, -2, 2, true},
      {"less_equal", [](const In& in) { return in[0] <= in[1]; }, pair, -2, 2, true},
      {"greater", [](const In& in) { return in[0] > in[1]; }, pair, -2, 2, true},
      {"greater_equal", [](const In& in) { return in[0] >= in[1]; }, pair, -2, 2, true},
      {"where", [](const In& in) { return where(in[2], in[0], in[1]); }, three, -2, 2, false, 2},
      {"where_number", [](const In& in) { return where(in[1], in[0], 0.5); }, pair, -2, 2, false,
       1},
      {"sum", [](const In& in) { return in[0].sum(); }},
      {"mean", [](const In& in) { return in[0].mean(); }},
      {"amax", [](const In& in) { return in[0].amax(); }},
      {"amax", [](const In& in) { return in[0].amax(); }, {{2, 3}}, -2, 2, true},
      {"amin", [](const In& in) { return in[0].amin(); }, {{2, 3}}, -2, 2, true},
      {"max", [](const In& in) { return in[0].max(0).values; }, {{4}}},
      {"min", [](const In& in) { return in[0].min(0).values; }, {{4}}},
      {"prod", [](const In& in) { return in[0].prod(); }, {{2, 3}}, 0.5, 2},
      {"var", [](const In& in) { return in[0].var(); }, {{2, 3}}},
      {"std", [](const In& in) { return in[0].std({.correction = 0}); }, {{2, 3}}},
      {"norm", [](const In& in) { return in[0].norm(3); }, {{2, 3}}},
      {"norm", [](const In& in) { return in[0].norm(); }, {{2, 3}}},
      {"logsumexp", [](const In& in) { return in[0].logsumexp({}); }, {{2, 3}}},
      {"argmin", [](const In& in) { return in[0].argmin(0); }, {{4}}},
      {"argmax", [](const In& in) { return in[0].argmax(0); }, {{4}}},
      {"matmul", [](const In& in) { return in[0].matmul(in[1]); }, {{2, 3}, {3, 4}}},
      {"clone", [](const In& in) { return in[0].clone(); }},
      {"detach", [](const In& in) { return in[0].detach(); }},
      {"to", [](const In& in) { return in[0].to(float32); }},
      {"copy_",
       [](const In& in) {
         const Tensor y = in[0] * 1;
         return overwritten(y, in[1]);  // what copy_ records
       },
       pair},
  };
  return list;
}

In inputs_of(const Sample& sample) {
  In inputs;
  for (const Shape& shape : sample.shapes) {
    Tensor x = rand(shape, {.dtype = float64}) * (sample.high - sample.low) + sample.low;
    if (sample.ties) x = x.to(int64).to(float64);
    const bool condition = inputs.size() == sample.condition;
    inputs.push_back(condition ? x > 0 : x.detach().requires_grad_());
  }
  return inputs;
}

// Which axes an input of a matrix product has: a[i,k], b[k,j].
const char* const axes_of_input[] = {"ik", "kj", ""};

const Facts& facts_of(const std::string& op) {
  for (const Recipe* recipe : rules::all())
    if (op == recipe->facts->name) return *recipe->facts;
  throw std::runtime_error("no facts of " + op);
}

// The texts that were formulas, and agreed: "mul: dy * b".
std::set<std::string> formulas_that_hold() {
  std::set<std::string> held;
  manual_seed(5);
  for (const Sample& sample : samples()) {
    const Facts& facts = facts_of(sample.op);
    const Run once = run(sample.f, inputs_of(sample));
    auto compare = [&](const char* text, const Tensor& got, const char* axes) {
      CAPTURE(sample.op, text);
      const std::optional<Values> value = value_of(text, once, axes, got.shape());
      if (!value) return;
      const double tolerance = got.dtype() == float32 ? 1e-6 : 1e-12;
      const Tensor expected = tensor(*value, {.dtype = float64}).reshape(got.shape());
      CHECK(difference(got.to(float64), expected, tolerance, tolerance) == "");
      held.insert(std::string(sample.op) + ": " + text);
    };
    compare(facts.formula, once.y, "ij");
    for (std::size_t slot = 0; slot < once.inputs.size(); ++slot)
      if (facts.derivatives[slot] && once.gradients[slot].defined())
        compare(facts.derivatives[slot], once.gradients[slot], axes_of_input[slot]);
  }
  return held;
}

TEST_CASE("every formula in the facts has the value of the operation or of its rule") {
  CHECK(formulas_that_hold().size() > 70);
}

// ---- Words --------------------------------------------------------------------------------------

// A text that is no formula, with a result that shows what it means, and that result by hand.
struct Words {
  std::string op, text;
  Values got, by_hand;
};

// The gradient that f gives to its input, where the output receives 1, 2, 3, ...
Values gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  const Tensor y = f(x);
  const Tensor dy = arange(1, y.numel() + 1).to(y.dtype()).reshape(y.shape());
  return values(grad({y}, {x}, {.grad_outputs = {dy}})[0]);
}

std::vector<Words> words_by_hand() {
  const Tensor x = leaf({{1., 2., 3.}, {4., 5., 6.}});
  const Tensor row = leaf({1., 2., 3.});
  const Tensor yes = tensor({true, true, false, false}), no = tensor({true, false, true, false});
  const Tensor index = tensor({{0, 2}, {1, 1}});
  // Writes 10 and 20 into the first column of x * 1.
  const auto written = [](const Tensor& a, const Tensor& b) {
    const Tensor y = a * 1;
    y.t()[0] = b;
    return y;
  };
  // The first column of x * 1, as a view whose base was written to (doubled) after it was made.
  const auto window = [](const Tensor& a) {
    const Tensor y = a * 1;
    const Tensor v = y.t()[0];
    y.mul_(2);
    return v + 0;
  };
  const Tensor numbers = leaf({10., 20.});
  // Images of one row: a kernel of two numbers at two places of a line of three.
  const Tensor line = leaf({{{{1., 2., 3.}}}}), kernel = leaf({{{{2., -1.}}}});
  const Tensor seen = leaf({{{{5., 7.}}}});
  const auto slid = [](const Tensor& a, const Tensor& b) {
    return convolution(a, b, {1, 1, 1, 1, 1});
  };
  const auto input_of = [](const Tensor& a, const Tensor& b) {
    return convolution_input(a, b, {1, 1, 1, 1, 1, 1, 3});
  };
  const auto weight_of = [](const Tensor& a, const Tensor& b) {
    return convolution_weight(a, b, {1, 1, 1, 1, 1, 1, 2});
  };
  return {
      {"and", "a & b", values(yes & no), {1, 0, 0, 0}},
      {"or", "a | b", values(yes | no), {1, 1, 1, 0}},
      {"xor", "a ^ b", values(yes ^ no), {0, 1, 1, 0}},
      {"not", "~a", values(~yes), {0, 0, 1, 1}},
      {"reshape", "a reshaped", values(x.reshape({3, 2})), {1, 2, 3, 4, 5, 6}},
      {"reshape",
       "dy reshaped back",
       gradient(
           [](const Tensor& a) {
             return a.reshape({3, 2});
           },
           x),
       {1, 2, 3, 4, 5, 6}},
      {"squeeze", "a reshaped", values(row.unsqueeze(0).squeeze(0)), {1, 2, 3}},
      {"squeeze",
       "dy reshaped back",
       gradient([](const Tensor& a) { return a.unsqueeze(1).squeeze(); }, row),
       {1, 2, 3}},
      {"unsqueeze", "a reshaped", values(row.unsqueeze(1)), {1, 2, 3}},
      {"unsqueeze",
       "dy reshaped back",
       gradient([](const Tensor& a) { return a.unsqueeze(1); }, row),
       {1, 2, 3}},
      {"expand", "a repeated", values(row.expand({2, 3})), {1, 2, 3, 1, 2, 3}},
      {"expand",
       "sum over the repeated axes of dy",
       gradient(
           [](const Tensor& a) {
             return a.expand({2, 3});
           },
           row),
       {1 + 4, 2 + 5, 3 + 6}},
      {"permute", "a with its axes reordered", values(x.permute({1, 0})), {1, 4, 2, 5, 3, 6}},
      {"permute",
       "dy with its axes put back",
       gradient(
           [](const Tensor& a) {
             return a.permute({1, 0});
           },
           x),
       {1, 3, 5, 2, 4, 6}},
      {"transpose", "transpose(a)", values(x.transpose(0, 1)), {1, 4, 2, 5, 3, 6}},
      {"transpose",
       "transpose(dy)",
       gradient([](const Tensor& a) { return a.transpose(0, 1); }, x),
       {1, 3, 5, 2, 4, 6}},
      {"select", "a[n]", values(x.select(1, 1)), {2, 5}},
      {"select",
       "dy in its place, else 0",
       gradient([](const Tensor& a) { return a.select(1, 1); }, x),
       {0, 1, 0, 0, 2, 0}},
      {"slice", "a[start:stop:step]", values(x.slice(1, 0, 3, 2)), {1, 3, 4, 6}},
      {"slice",
       "dy in its place, else 0",
       gradient([](const Tensor& a) { return a.slice(1, 0, 3, 2); }, x),
       {1, 0, 2, 3, 0, 4}},
      {"cat", "the inputs, one after another", values(cat({x[1], row})), {4, 5, 6, 1, 2, 3}},
      {"cat",
       "its part of dy",
       gradient(
           [&](const Tensor& a) {
             return cat({x.detach()[0], a});
           },
           row),
       {4, 5, 6}},
      {"max",
       "dy at i, else 0",
       gradient([](const Tensor& a) { return a.max(0).values; }, x),
       {0, 0, 0, 1, 2, 3}},
      {"min",
       "dy at i, else 0",
       gradient([](const Tensor& a) { return a.min(1).values; }, x),
       {1, 0, 0, 2, 0, 0}},
      {"gather", "a at b", values(x.gather(1, index)), {1, 3, 5, 5}},
      {"gather",
       "dy added up at b",
       gradient([&](const Tensor& a) { return a.gather(1, index); }, x),
       {1, 0, 2, 0, 3 + 4, 0}},
      {"scatter_add",
       "a added up at b",
       values(scatter_new(tensor({{1., 2.}, {3., 4.}}), index, {2, 3}, 1)),
       {1, 0, 2, 0, 3 + 4, 0}},
      {"scatter_add",
       "dy at b",
       gradient(
           [&](const Tensor& a) {
             return scatter_new(a, index, {2, 3}, 1);
           },
           leaf({{1., 2.}, {3., 4.}})),
       {1, 3, 5, 5}},
      {"scatter",
       "a with b written to c",
       values(row.scatter(0, tensor({2, 0}), tensor({8., 9.}))),
       {9, 2, 8}},
      {"scatter",
       "0 at c, else dy",
       gradient(
           [](const Tensor& a) {
             return a.scatter(0, tensor({2, 0}), ones({2}));
           },
           row),
       {0, 2, 0}},
      {"scatter",
       "dy at c",
       gradient(
           [](const Tensor& b) {
             return zeros({4}).scatter(0, tensor({2, 0, 3}), b);
           },
           row),
       {3, 1, 4}},
      {"scatter_number",
       "a with n written to b",
       values(row.scatter(0, tensor({2, 0}), 7)),
       {7, 2, 7}},
      {"scatter_number",
       "0 at b, else dy",
       gradient([](const Tensor& a) { return a.scatter(0, tensor({1}), 7); }, row),
       {1, 0, 3}},
      {"diagonal", "the diagonal of a", values(x.diagonal(1)), {2, 6}},
      {"diagonal",
       "dy on the diagonal, else 0",
       gradient([](const Tensor& a) { return a.diagonal(); }, x),
       {1, 0, 0, 0, 2, 0}},
      {"unfold", "windows of a", values(row.unfold(0, 2, 1)), {1, 2, 2, 3}},
      {"unfold",
       "dy of all windows, added up",
       gradient([](const Tensor& a) { return a.unfold(0, 2, 1); }, row),
       {1, 2 + 3, 4}},
      {"convolution", "each window of a times b, added up", values(slid(line, kernel)), {0, 1}},
      {"convolution",
       "dy times b, added up where the windows lie",
       gradient([&](const Tensor& a) { return slid(a, kernel); }, line),
       {2, -1 + 4, -2}},
      {"convolution",
       "dy times its window of a, added up",
       gradient([&](const Tensor& b) { return slid(line, b); }, kernel),
       {1 + 4, 2 + 6}},
      {"convolution_input",
       "a times b, added up where the windows lie",
       values(input_of(seen, kernel)),
       {10, -5 + 14, -7}},
      {"convolution_input",
       "each window of dy times b, added up",
       gradient([&](const Tensor& a) { return input_of(a, kernel); }, seen),
       {2 - 2, 4 - 3}},
      {"convolution_input",
       "a times its window of dy, added up",
       gradient([&](const Tensor& b) { return input_of(seen, b); }, kernel),
       {5 + 14, 10 + 21}},
      {"convolution_weight",
       "b times its window of a, added up",
       values(weight_of(line, seen)),
       {5 + 14, 10 + 21}},
      {"convolution_weight",
       "b times dy, added up where the windows lie",
       gradient([&](const Tensor& a) { return weight_of(a, seen); }, line),
       {5, 10 + 7, 14}},
      {"convolution_weight",
       "each window of a times dy, added up",
       gradient([&](const Tensor& b) { return weight_of(line, b); }, seen),
       {1 + 4, 2 + 6}},
      {"pad", "a with n around it", values(pad(row, {1, 2}, 7)), {7, 1, 2, 3, 7, 7}},
      {"pad",
       "its part of dy",
       gradient(
           [](const Tensor& a) {
             return pad(a, {1, 2});
           },
           row),
       {2, 3, 4}},
      {"prod", "the product of all a", values(x.prod()), {720}},
      {"var", "the sum of all (a - mean(a))^2, / n", values(row.var()), {(1. + 0 + 1) / 2}},
      {"std", "sqrt(var(a))", values(row.std()), {1}},
      {"norm", "the sum of all abs(a)^n, ^(1 / n)", values(leaf({3., -4.}).norm()), {5}},
      {"logsumexp",
       "log of the sum of all exp(a)",
       values(leaf({0., 0.}, float64).logsumexp(0)),
       {std::log(2.0)}},
      {"all", "whether all a are true", values(yes.all()), {0}},
      {"any", "whether any a is true", values(yes.any()), {1}},
      {"cumsum", "the sum of a up to here", values(row.cumsum(0)), {1, 3, 6}},
      {"cumsum",
       "the sum of dy from here on",
       gradient([](const Tensor& a) { return a.cumsum(0); }, row),
       {1 + 2 + 3, 2 + 3, 3}},
      {"cumprod", "the product of a up to here", values(row.cumprod(0)), {1, 2, 6}},
      {"cumprod",
       "the sum of dy * y from here on, / a",
       gradient([](const Tensor& a) { return a.cumprod(0); }, leaf({1., 2., 4.})),
       {1 * 1 + 2 * 2 + 3 * 8, (2 * 2 + 3 * 8) / 2, 3 * 8 / 4}},
      {"sort", "a in order", values(sort(leaf({3., 1., 2.})).values), {1, 2, 3}},
      {"sort",
       "dy put back to i",
       gradient([](const Tensor& a) { return a.sort().values; }, leaf({3., 1., 2.})),
       {3, 1, 2}},
      {"argsort",
       "where the elements of a in order come from",
       values(argsort(leaf({3., 1., 2.}))),
       {1, 2, 0}},
      {"topk", "the first n of a in order", values(leaf({3., 1., 2.}).topk(2).values), {3, 2}},
      {"topk",
       "dy put back to i, else 0",
       gradient([](const Tensor& a) { return a.topk(2).values; }, leaf({3., 1., 2.})),
       {1, 0, 2}},
      {"flip", "a, backwards along the axes", values(x.flip(1)), {3, 2, 1, 6, 5, 4}},
      {"flip",
       "dy turned back",
       gradient([](const Tensor& a) { return a.flip(0); }, row),
       {3, 2, 1}},
      {"as_strided", "a window of a's memory", values(window(x)), {2, 8}},
      {"as_strided", "dy in its window, else 0", gradient(window, x), {2, 0, 0, 4, 0, 0}},
      {"write_into",
       "a with b written into its window",
       values(written(x, numbers)),
       {10, 2, 3, 20, 5, 6}},
      {"write_into",
       "dy outside the window, else 0",
       gradient([&](const Tensor& a) { return written(a, numbers.detach()); }, x),
       {0, 2, 3, 0, 5, 6}},
      {"write_into",
       "dy in the window",
       gradient([&](const Tensor& b) { return written(x.detach(), b); }, numbers),
       {1, 4}},
  };
}

TEST_CASE("every text that is no formula means what it says") {
  for (const Words& words : words_by_hand()) {
    CAPTURE(words.op, words.text);
    CHECK(words.got == words.by_hand);
  }
}

// ---- None is left out ---------------------------------------------------------------------------

TEST_CASE("every text of every operation was compared") {
  std::set<std::string> compared = formulas_that_hold();
  for (const Words& words : words_by_hand()) compared.insert(words.op + ": " + words.text);
  for (const Recipe* recipe : rules::all()) {
    const Facts& facts = *recipe->facts;
    std::vector<const char*> texts(facts.derivatives.begin(), facts.derivatives.end());
    texts.push_back(facts.formula);
    for (const char* text : texts) {
      if (!text) continue;
      CAPTURE(facts.name, text);
      CHECK(compared.count(std::string(facts.name) + ": " + text) == 1);
    }
  }
}

TEST_CASE("every operation with a derivative has a name as PyTorch prints it, and all a symbol") {
  for (const Recipe* recipe : rules::all()) {
    const Facts& facts = *recipe->facts;
    CAPTURE(facts.name);
    CHECK(std::string(facts.symbol) != "");
    if (facts.derivatives[0]) CHECK(std::string(facts.node) != "");
  }
}

TEST_CASE("names of operations are unique") {
  CHECK(rules::names_of(rules::all()).size() == rules::all().size());
}

// ---- The tests above can fail -------------------------------------------------------------------

TEST_CASE("a text that is wrong is seen to be") {
  const Run product =
      run([](const In& in) { return in[0] * in[1]; }, {leaf(3.0), leaf(5.0)}, tensor(2.0));
  CHECK(by_elements("dy * b", product, {}) == Values{10});
  CHECK(by_elements("dy * a", product, {}) == Values{6});
  CHECK(by_elements("dy if b > a else 0", product, {}) == Values{2});
  CHECK(by_elements("dy reshaped back", product, {}) == std::nullopt);
  const Run matrices = run([](const In& in) { return in[0].matmul(in[1]); },
                           {leaf({{1., 2.}}), leaf({{3.}, {4.}})}, tensor({{1.}}));
  CHECK(by_indices("sum over k of a[i,k] * b[k,j]", matrices, "ij", {1, 1}) == Values{11});
  CHECK(by_indices("sum over j of dy[i,j] * b[k,j]", matrices, "ik", {1, 2}) == Values{3, 4});
  CHECK(by_indices("sum over i of a[i,k] * dy[i,j]", matrices, "kj", {2, 1}) == Values{1, 2});
}

}  // namespace
