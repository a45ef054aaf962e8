// Plays a file of small programs with minitensor and prints what came of each, in the form that
// reference.py prints for PyTorch; tests/against_pytorch/run compares the two.
//
//     player programs.txt          plays them
//     player --table               each operation and the C++ that stands for it
//
// A statement is a line: names, '=', an operation, arguments: "c = add a 2.5", "v i = max.axis c 1
// false". An argument is a tensor, a number, a word, or a list such as [2,3] or [a,b]; "none" is
// what was left out. A line "program 17" begins a new one, in which no name is known.

#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "minitensor.hpp"

namespace {

using namespace minitensor;

using Names = std::map<std::string, Tensor>;
using Results = std::vector<Tensor>;

// ---- Arguments ----------------------------------------------------------------------------------

std::vector<std::string> items_of(const std::string& list) {  // "[a,b]" -> a, b
  std::vector<std::string> items;
  std::istringstream text(list.substr(1, list.size() - 2));
  for (std::string item; std::getline(text, item, ',');) items.push_back(item);
  return items;
}
bool is_whole(const std::string& text) { return text.find_first_of(".en") == text.npos; }
Scalar number(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  if (is_whole(text)) return std::stoll(text);
  return std::strtod(text.c_str(), nullptr);
}
DType dtype(const std::string& text) {
  for (const DType type : {float32, float64, int64, boolean})
    if (text == (type == boolean ? "bool" : name_of(type))) return type;
  throw std::runtime_error("no dtype: " + text);
}

// The arguments of one statement, by their place. The letters are those of the table below.
struct Arguments {
  std::vector<std::string> words;
  Names& names;

  const std::string& word(std::size_t i) const {
    if (i >= words.size()) throw std::runtime_error("an argument is missing");
    return words[i];
  }
  Tensor& tensor(const std::string& name) const {
    static Tensor none;
    if (name == "none") return none = Tensor();
    auto found = names.find(name);
    if (found == names.end()) throw Error("the name " + name + " is unknown");
    return found->second;
  }
  bool is_tensor(const std::string& text) const { return names.count(text) != 0; }
};

Tensor made(DType type, const Shape& shape, const std::string& numbers, bool requires_grad) {
  const std::vector<std::string> items = items_of(numbers);
  Tensor x;
  if (type == int64 || type == boolean) {
    std::vector<std::int64_t> values;
    for (const std::string& item : items) values.push_back(number(item).to<std::int64_t>());
    x = tensor(values, {.dtype = type});
  } else {
    std::vector<double> values;
    for (const std::string& item : items) values.push_back(std::strtod(item.c_str(), nullptr));
    x = tensor(values, {.dtype = type});
  }
  return x.reshape(shape).clone().requires_grad_(requires_grad);
}

Results results(const Tensor& y) { return {y}; }
Results results(bool yes) { return {tensor(yes)}; }
Results results(const ValuesIndices& y) { return {y.values, y.indices}; }
Results results(const std::vector<Tensor>& y) { return y; }

// ---- The table ----------------------------------------------------------------------------------

struct Operation {
  Results (*play)(const Arguments& in);
  const char* text;
};

// T tensor, A list of tensors, O tensor or number, N number, R real number, I integer, L list of
// integers, F true or false, D dtype, W "word"; M an integer, X a number and P the stride of a pool
// that may be left out.
#define T(i) (in.tensor(in.word(i)))
#define A(i) (tensors(in, i))
#define O(i) (operand(in, i))
#define N(i) (number(in.word(i)))
#define R(i) (number(in.word(i)).real())
#define I(i) (number(in.word(i)).whole())
#define M(i) (maybe(in, i))
#define X(i) (maybe_number(in, i))
#define P(i) (maybe(in, i) ? Pair(*maybe(in, i)) : as_the_window)
#define L(i) (list(in, i))
#define F(i) (in.word(i) == "true")
#define D(i) (dtype(in.word(i)))
#define W(i) (unquoted(in, i).c_str())
#define OP(name, ...)                                                                   \
  {                                                                                     \
    name, {                                                                             \
      [](const Arguments& in) -> Results { return results(__VA_ARGS__); }, #__VA_ARGS__ \
    }                                                                                   \
  }

std::vector<Tensor> tensors(const Arguments& in, std::size_t i) {
  std::vector<Tensor> found;
  for (const std::string& name : items_of(in.word(i))) found.push_back(in.tensor(name));
  return found;
}
Operand operand(const Arguments& in, std::size_t i) {
  const std::string& text = in.word(i);
  if (in.is_tensor(text)) return Operand(in.tensor(text));
  if (std::isalpha(static_cast<unsigned char>(text[0])) && text != "inf" && text != "nan" &&
      text != "true" && text != "false")
    return Operand(in.tensor(text));  // an unknown name
  return Operand(number(text));
}
Tensor pow(const Tensor& a, const Operand& b) {  // the header has a function for each kind of b
  return b.tensor ? a.pow(*b.tensor, b.loc) : a.pow(b.number, b.loc);
}
Shape list(const Arguments& in, std::size_t i) {
  Shape shape;
  if (in.word(i) == "none") return shape;
  for (const std::string& item : items_of(in.word(i))) shape.push_back(std::stoll(item));
  return shape;
}
std::optional<std::int64_t> maybe(const Arguments& in, std::size_t i) {
  if (in.word(i) == "none") return {};
  return std::stoll(in.word(i));
}
std::optional<Scalar> maybe_number(const Arguments& in, std::size_t i) {
  if (in.word(i) == "none") return {};
  return number(in.word(i));
}

std::string unquoted(const Arguments& in, std::size_t i) {
  return in.word(i).substr(1, in.word(i).size() - 2);
}

#define UNARY(name) OP(#name, T(0).name())

const std::map<std::string, Operation> table = {
    // Make
    OP("tensor", made(D(0), L(1), in.word(2), F(3))),
    OP("zeros", zeros(L(0), {.dtype = D(1)})),
    OP("ones", ones(L(0), {.dtype = D(1)})),
    OP("full", full(L(0), N(1), {.dtype = D(2)})),
    OP("full.dtype", full(L(0), N(1))),
    OP("empty", empty(L(0), {.dtype = D(1)}).fill_(N(2))),
    OP("eye", eye(I(0), {.dtype = D(1)})),
    OP("arange", arange(N(0), N(1), N(2), {.dtype = D(3)})),
    OP("arange.dtype", arange(N(0), N(1), N(2))),
    OP("linspace", linspace(N(0), N(1), I(2), {.dtype = D(3)})),
    OP("zeros_like", zeros_like(T(0))),
    OP("ones_like", ones_like(T(0))),
    OP("full_like", full_like(T(0), N(1))),
    OP("empty_like", empty_like(T(0)).fill_(N(1))),
    // Change kind
    OP("to", T(0).to(D(1))),
    OP("clone", T(0).clone()),
    OP("contiguous", T(0).contiguous()),
    OP("detach", T(0).detach()),
    OP("cpu", T(0).cpu()),
    OP("requires_grad_", T(0).requires_grad_(F(1))),
    OP("named", T(0).named(W(1))),
    OP("retain_grad", T(0).retain_grad()),
    // Index
    OP("operator[]", T(0)[I(1)]),
    OP("operator[].tensor", T(0)[T(1)]),
    OP("select", T(0).select(I(1), I(2))),
    OP("slice", T(0).slice(I(1), I(2), M(3), I(4))),
    OP("narrow", T(0).narrow(I(1), I(2), I(3))),
    OP("at", T(0).at(L(1))),
    OP("index_select", T(0).index_select(I(1), T(2))),
    OP("gather", T(0).gather(I(1), T(2))),
    OP("take_along_dim", T(0).take_along_dim(T(2), I(1))),
    OP("take_along_dim.line", T(0).take_along_dim(T(1))),
    OP("scatter", T(0).scatter(I(1), T(2), T(3))),
    OP("scatter.number", T(0).scatter(I(1), T(2), N(3))),
    OP("scatter_add", T(0).scatter_add(I(1), T(2), T(3))),
    OP("index_add", T(0).index_add(I(1), T(2), T(3), {.alpha = N(4)})),
    OP("masked_fill", T(0).masked_fill(T(1), O(2))),
    OP("masked_select", T(0).masked_select(T(1))),
    OP("where", where(T(0), O(1), O(2))),
    // Shape
    OP("view", T(0).view(L(1))),
    OP("reshape", T(0).reshape(L(1))),
    OP("flatten", T(0).flatten(I(1), I(2))),
    OP("unflatten", T(0).unflatten(I(1), L(2))),
    OP("squeeze", T(0).squeeze()),
    OP("squeeze.axis", T(0).squeeze(I(1))),
    OP("unsqueeze", T(0).unsqueeze(I(1))),
    OP("transpose", T(0).transpose(I(1), I(2))),
    OP("t", T(0).t()),
    OP("permute", T(0).permute(L(1))),
    OP("movedim", T(0).movedim(L(1), L(2))),
    OP("expand", T(0).expand(L(1))),
    OP("expand_as", T(0).expand_as(T(1))),
    OP("broadcast_to", T(0).broadcast_to(L(1))),
    OP("repeat", T(0).repeat(L(1))),
    OP("cat", cat(A(0), I(1))),
    OP("stack", stack(A(0), I(1))),
    OP("hstack", hstack(A(0))),
    OP("vstack", vstack(A(0))),
    OP("meshgrid", meshgrid(A(0), {.indexing = W(1)})),
    OP("split", T(0).split(I(1), I(2))),
    OP("split.sizes", T(0).split(L(1), I(2))),
    OP("chunk", T(0).chunk(I(1), I(2))),
    OP("unbind", T(0).unbind(I(1))),
    OP("flip", T(0).flip(L(1))),
    OP("roll", T(0).roll(L(1), L(2))),
    OP("roll.line", T(0).roll(L(1))),
    OP("tril", T(0).tril(I(1))),
    OP("triu", T(0).triu(I(1))),
    OP("pad", pad(T(0), L(1), N(2))),
    OP("diagonal", T(0).diagonal(I(1), I(2), I(3))),
    OP("unfold", T(0).unfold(I(1), I(2), I(3))),
    // Elementwise
    OP("+", O(0) + O(1)),
    OP("-", O(0) - O(1)),
    OP("*", O(0) * O(1)),
    OP("/", O(0) / O(1)),
    OP("==", O(0) == O(1)),
    OP("!=", O(0) != O(1)),
    OP("<", O(0) < O(1)),
    OP("<=", O(0) <= O(1)),
    OP(">", O(0) > O(1)),
    OP(">=", O(0) >= O(1)),
    OP("&", O(0) & O(1)),
    OP("|", O(0) | O(1)),
    OP("^", O(0) ^ O(1)),
    OP("~", ~T(0)),
    OP("pow", pow(T(0), O(1))),
    OP("pow.base", pow(N(0), T(1))),
    UNARY(neg),
    UNARY(abs),
    UNARY(sign),
    UNARY(exp),
    UNARY(exp2),
    UNARY(expm1),
    UNARY(log),
    UNARY(log2),
    UNARY(log10),
    UNARY(log1p),
    UNARY(sqrt),
    UNARY(rsqrt),
    UNARY(square),
    UNARY(reciprocal),
    UNARY(sin),
    UNARY(cos),
    UNARY(tan),
    UNARY(asin),
    UNARY(acos),
    UNARY(atan),
    UNARY(sinh),
    UNARY(cosh),
    UNARY(tanh),
    UNARY(erf),
    UNARY(sigmoid),
    UNARY(relu),
    UNARY(floor),
    UNARY(ceil),
    UNARY(round),
    UNARY(trunc),
    UNARY(isnan),
    UNARY(isinf),
    UNARY(isfinite),
    UNARY(logical_not),
    OP("equal", equal(T(0), T(1))),
    OP("allclose", T(0).allclose(T(1), {.rtol = R(2), .atol = R(3), .equal_nan = F(4)})),
    OP("logical_and", T(0).logical_and(T(1))),
    OP("logical_or", T(0).logical_or(T(1))),
    OP("logical_xor", T(0).logical_xor(T(1))),
    OP("logsigmoid", logsigmoid(T(0))),
    OP("leaky_relu", leaky_relu(T(0), R(1))),
    OP("elu", elu(T(0), R(1))),
    OP("gelu", gelu(T(0), {.approximate = W(1)})),
    OP("silu", silu(T(0))),
    OP("softplus", softplus(T(0), {.beta = R(1), .threshold = R(2)})),
    OP("hardtanh", hardtanh(T(0), R(1), R(2))),
    OP("clamp", T(0).clamp({.min = X(1), .max = X(2)})),
    OP("clamp.number", T(0).clamp(N(1))),
    OP("clamp.tensors", T(0).clamp(T(1), T(2))),
    OP("clip", T(0).clip({.min = X(1), .max = X(2)})),
    OP("clip.numbers", clip(T(0), N(1), N(2))),
    OP("maximum", T(0).maximum(T(1))),
    OP("minimum", T(0).minimum(T(1))),
    OP("atan2", T(0).atan2(T(1))),
    OP("floor_divide", T(0).floor_divide(O(1))),
    OP("div", div(T(0), O(1), {.rounding = W(2)})),
    OP("fmod", T(0).fmod(O(1))),
    OP("remainder", T(0).remainder(O(1))),
    OP("lerp", T(0).lerp(T(1), O(2))),
    // In place
    OP("add_", T(0).add_(O(1))),
    OP("sub_", T(0).sub_(O(1))),
    OP("mul_", T(0).mul_(O(1))),
    OP("div_", T(0).div_(O(1))),
    OP("+=", T(0) += O(1)),
    OP("-=", T(0) -= O(1)),
    OP("*=", T(0) *= O(1)),
    OP("/=", T(0) /= O(1)),
    OP("zero_", T(0).zero_()),
    OP("fill_", T(0).fill_(N(1))),
    OP("copy_", T(0).copy_(O(1))),
    OP("clamp_", T(0).clamp_({.min = X(1), .max = X(2)})),
    OP("masked_fill_", T(0).masked_fill_(T(1), O(2))),
    OP("[]=", (T(0)[I(1)] = O(2), T(0))),
    OP("[]=.tensor", (T(0)[T(1)] = O(2), T(0))),
    // Reduce
    OP("sum", T(0).sum()),
    OP("sum.axes", T(0).sum(L(1), {.keepdim = F(2)})),
    OP("sum.dtype", T(0).sum({}, {.dtype = D(1)})),
    OP("mean", T(0).mean()),
    OP("mean.dtype", T(0).mean({}, {.dtype = D(1)})),
    OP("mean.axes", T(0).mean(L(1), {.keepdim = F(2)})),
    OP("prod", T(0).prod()),
    OP("prod.dtype", T(0).prod({}, {.dtype = D(1)})),
    OP("prod.axis", T(0).prod({I(1)}, {.keepdim = F(2)})),
    OP("max", T(0).max()),
    OP("min", T(0).min()),
    OP("max.axis", T(0).max(I(1), {.keepdim = F(2)})),
    OP("min.axis", T(0).min(I(1), {.keepdim = F(2)})),
    OP("amax", T(0).amax(L(1), {.keepdim = F(2)})),
    OP("amin", T(0).amin(L(1), {.keepdim = F(2)})),
    OP("argmax", T(0).argmax()),
    OP("argmin", T(0).argmin()),
    OP("argmax.axis", T(0).argmax(I(1), {.keepdim = F(2)})),
    OP("argmin.axis", T(0).argmin(I(1), {.keepdim = F(2)})),
    OP("var", T(0).var({.correction = R(1)})),
    OP("std", T(0).std({.correction = R(1)})),
    OP("var.axes", T(0).var(L(1), {.correction = R(2), .keepdim = F(3)})),
    OP("std.axes", T(0).std(L(1), {.correction = R(2), .keepdim = F(3)})),
    OP("norm", T(0).norm(N(1))),
    OP("norm.axes", T(0).norm(N(1), L(2), {.keepdim = F(3)})),
    OP("norm.dtype", T(0).norm(N(1), L(2), {.keepdim = F(3), .dtype = D(4)})),
    OP("norm.word", T(0).norm(W(1))),
    OP("logsumexp", T(0).logsumexp(L(1), {.keepdim = F(2)})),
    OP("all", T(0).all()),
    OP("any", T(0).any()),
    OP("all.axis", T(0).all({I(1)}, {.keepdim = F(2)})),
    OP("any.axis", T(0).any({I(1)}, {.keepdim = F(2)})),
    OP("count_nonzero", T(0).count_nonzero()),
    OP("count_nonzero.axes", T(0).count_nonzero(L(1))),
    OP("cumsum", T(0).cumsum(I(1))),
    OP("cumprod", T(0).cumprod(I(1))),
    OP("cumsum.dtype", T(0).cumsum(I(1), {.dtype = D(2)})),
    OP("cumprod.dtype", T(0).cumprod(I(1), {.dtype = D(2)})),
    OP("sort", T(0).sort(I(1), {.descending = F(2), .stable = true})),
    OP("argsort", T(0).argsort(I(1), {.descending = F(2), .stable = true})),
    OP("topk", T(0).topk(I(1), I(2), {.largest = F(3)})),
    OP("softmax", T(0).softmax(I(1))),
    OP("log_softmax", T(0).log_softmax(I(1))),
    // Linear algebra
    OP("matmul", matmul(T(0), T(1))),
    OP("mm", mm(T(0), T(1))),
    OP("bmm", bmm(T(0), T(1))),
    OP("mv", mv(T(0), T(1))),
    OP("dot", dot(T(0), T(1))),
    OP("outer", outer(T(0), T(1))),
    OP("addmm", addmm(T(0), T(1), T(2), {.beta = R(3), .alpha = R(4)})),
    OP("einsum", einsum(W(0), A(1))),
    // Functional
    OP("linear", linear(T(0), T(1), T(2))),
    OP("conv1d", conv1d(T(0), T(1), T(2),
                        {.stride = I(3), .padding = I(4), .dilation = I(5), .groups = I(6)})),
    OP("conv2d", conv2d(T(0), T(1), T(2),
                        {.stride = I(3), .padding = I(4), .dilation = I(5), .groups = I(6)})),
    OP("conv1d.same",
       conv1d(T(0), T(1), T(2), {.padding = "same", .dilation = I(3), .groups = I(4)})),
    OP("conv2d.same",
       conv2d(T(0), T(1), T(2), {.padding = "same", .dilation = I(3), .groups = I(4)})),
    OP("max_pool2d",
       max_pool2d(T(0), I(1),
                  {.stride = P(2), .padding = I(3), .dilation = I(4), .ceil_mode = F(5)})),
    OP("max_pool2d.indices",
       max_pool2d_with_indices(T(0), I(1), {.stride = P(2), .padding = I(3), .ceil_mode = F(4)})),
    OP("avg_pool2d", avg_pool2d(T(0), I(1),
                                {.stride = P(2),
                                 .padding = I(3),
                                 .ceil_mode = F(4),
                                 .count_include_pad = F(5),
                                 .divisor_override = M(6)})),
    OP("adaptive_avg_pool2d", adaptive_avg_pool2d(T(0), {I(1), I(2)})),
    OP("batch_norm",
       batch_norm(T(0), T(1), T(2), T(3), T(4), {.training = F(5), .momentum = R(6)})),
    OP("layer_norm", layer_norm(T(0), L(1), T(2), T(3))),
    OP("group_norm", group_norm(T(0), I(1), T(2), T(3))),
    OP("dropout", dropout(T(0), R(1), F(2), Loc::here())),
    OP("embedding", embedding(T(0), T(1), {.padding_idx = M(2)})),
    OP("one_hot", one_hot(T(0), I(1))),
    OP("scaled_dot_product_attention",
       scaled_dot_product_attention(T(0), T(1), T(2), {.attn_mask = T(3), .is_causal = F(4)})),
    OP("mse_loss", mse_loss(T(0), T(1), {.reduction = W(2)})),
    OP("l1_loss", l1_loss(T(0), T(1), {.reduction = W(2)})),
    OP("huber_loss", huber_loss(T(0), T(1), {.reduction = W(2), .delta = R(3)})),
    OP("smooth_l1_loss", smooth_l1_loss(T(0), T(1), {.reduction = W(2), .beta = R(3)})),
    OP("nll_loss", nll_loss(T(0), T(1), {.weight = T(2), .ignore_index = I(3), .reduction = W(4)})),
    OP("cross_entropy",
       cross_entropy(
           T(0), T(1),
           {.weight = T(2), .ignore_index = I(3), .reduction = W(4), .label_smoothing = R(5)})),
    OP("binary_cross_entropy",
       binary_cross_entropy(T(0), T(1), {.weight = T(3), .reduction = W(2)})),
    OP("binary_cross_entropy_with_logits",
       binary_cross_entropy_with_logits(T(0), T(1),
                                        {.weight = T(4), .reduction = W(2), .pos_weight = T(3)})),
    OP("kl_div", kl_div(T(0), T(1), {.reduction = W(2), .log_target = F(3)})),
    // Autograd
    OP("backward", (T(0).backward({.retain_graph = F(1), .create_graph = F(2)}), Results{})),
    OP("backward.gradient", (T(0).backward(T(1)), Results{})),
    OP("grad", grad(A(0), A(1), {.create_graph = F(2), .allow_unused = F(3)})),
    OP("grad.of", T(0).grad()),
    OP("set_grad", (T(0).set_grad(T(1)), Results{})),
    OP("zero_grad", (T(0).zero_grad(), Results{})),
};

// ---- Playing ------------------------------------------------------------------------------------

const char* word_of(DType type) { return type == boolean ? "bool" : name_of(type); }

std::string sizes(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}
void print_values(const Tensor& x) {
  if (x.dtype() == int64)
    for (const std::int64_t value : x.to_vector<std::int64_t>())
      std::printf(" %lld", static_cast<long long>(value));
  else
    for (const double value : x.to_vector<double>())
      value != value ? std::printf(" nan") : std::printf(" %.17g", value);
}

// Of each result: dtype, shape, whether backward passes see it; and if it shares the memory of a
// tensor among the arguments, how it lies there.
void print_result(const Arguments& in, const Tensor& y) {
  if (!y.defined()) {
    std::printf(" none");
    return;
  }
  std::printf(" %s%s", word_of(y.dtype()), sizes(y.shape()).c_str());
  if (y.requires_grad()) std::printf(y.is_leaf() ? "leaf" : "grad");
  for (const std::string& word : in.words) {
    if (!in.is_tensor(word)) continue;
    if (y.numel() > 0 && y.shares_storage_with(in.tensor(word))) {
      std::printf("at%lld%s", static_cast<long long>(y.storage_offset()),
                  sizes(y.stride()).c_str());
      return;
    }
    break;
  }
  if (!y.is_contiguous() && in.word(0)[0] != '"' && in.word(0)[0] != '[')
    std::printf("scattered");  // a result of its own is row-major, but for einsum and grad
}

class Player {
 public:
  void begin(const std::string& title) {
    end();
    title_ = title;
    std::printf("%s\n", title.c_str());
    std::fflush(stdout);  // a crash loses nothing that came before
  }
  void play(const std::string& line) {
    std::istringstream text(line);
    std::vector<std::string> words, targets;
    for (std::string word; text >> word;) {
      if (word == "=") {
        targets.swap(words);
        words.clear();
      } else
        words.push_back(word);
    }
    const std::string name = words.at(0);
    words.erase(words.begin());
    const Arguments in{words, names_};
    try {
      if (name == "no_grad") {
        off_.reset();
        if (words.at(0) == "true") off_.emplace();
        std::printf("ok\n");
        return;
      }
      const Results found = table.at(name).play(in);
      std::printf("ok");
      for (const Tensor& y : found) print_result(in, y);
      std::printf("\n");
      for (std::size_t i = 0; i < targets.size() && i < found.size(); ++i)
        if (found[i].defined()) names_[targets[i]] = found[i];
    } catch (const Error& error) {
      std::string what = error.what();
      for (char& letter : what)
        if (letter == '\n') letter = ' ';
      std::printf("error %s\n", what.c_str());
    } catch (const std::exception& error) {  // never right
      std::printf("exception %s\n", error.what());
    }
  }
  void end() {
    off_.reset();
    for (const auto& [name, x] : names_) {
      std::printf("%s %s%s", name.c_str(), word_of(x.dtype()), sizes(x.shape()).c_str());
      print_values(x);
      std::printf("\n");
    }
    for (const auto& [name, x] : names_) {
      if (!x.grad().defined()) continue;
      const Tensor g = x.grad();
      std::printf("grad:%s %s%s", name.c_str(), word_of(g.dtype()), sizes(g.shape()).c_str());
      print_values(g);
      std::printf("\n");
    }
    for (const auto& entry : names_)
      entry.second.zero_grad();  // a recorded gradient knows its leaf
    names_.clear();
    if (live_nodes() != 0) std::printf("nodes %lld\n", static_cast<long long>(live_nodes()));
  }

 private:
  Names names_;
  std::string title_;
  std::optional<NoGrad> off_;
};

}  // namespace

int main(int count, char** words) {
  if (count > 1 && std::string(words[1]) == "--table") {
    for (const auto& [name, operation] : table)
      std::printf("%s\t%s\n", name.c_str(), operation.text);
    return 0;
  }
  std::ifstream file(count > 1 ? words[1] : "/dev/stdin");
  Player player;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    if (line.rfind("program", 0) == 0)
      player.begin(line);
    else
      player.play(line);
  }
  player.end();
  std::printf("end\n");
}
