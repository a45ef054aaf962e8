// The forms in which the header can be written. test_spelling.cpp compiles this under both
// compilers with all warnings as errors, and runs it.
#include "minitensor.hpp"

#include <array>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

using namespace mt;

int failures = 0;
void expect_at(int line, bool holds) {
  if (holds) return;
  std::cout << "spelling.cpp:" << line << " does something else\n";
  ++failures;
}
#define EXPECT(...) expect_at(__LINE__, static_cast<bool>(__VA_ARGS__))

bool is(const Tensor& x, const std::vector<double>& elements) { return x.to_vector() == elements; }

void making_tensors() {
  const int n = 2;
  const std::size_t u = 3;
  const std::vector<double> row = {1, 2};
  EXPECT(tensor({{1., 2.}, {3., 4.}}).shape() == Shape(2, 2));
  EXPECT(tensor({{{{{1}}}}}).dim() == 5);
  EXPECT(tensor({n, 5}).dtype() == int64);
  EXPECT(tensor(2.0, {.requires_grad = true}).requires_grad());
  EXPECT(tensor({1, 2}, {.dtype = float64, .device = cpu, .requires_grad = true}).dtype() ==
         float64);
  EXPECT(tensor({1., 2.}, {.device = "cpu"}).device() == cpu);
  EXPECT(tensor(row).dtype() == float32);
  EXPECT(tensor({row, row}).shape() == Shape(2, 2));
  EXPECT(zeros({}).dim() == 0);
  EXPECT(zeros(3).shape() == Shape(3));
  EXPECT(zeros({n, u}).shape() == Shape(2, 3));
  EXPECT(zeros({row.size(), 3}).shape() == Shape(2, 3));
  EXPECT(zeros(n, u).shape() == Shape(2, 3));
  EXPECT(randn(3, 4).shape() == Shape(3, 4));
  EXPECT(randn({3, 4}, {.dtype = float64}).dtype() == float64);
  EXPECT(full({2}, 1.5).dtype() == float32);
  EXPECT(full({2}, true).dtype() == boolean);
  EXPECT(arange(5).numel() == 5);
  EXPECT(arange(0, 1, 0.25, {.dtype = float64}).numel() == 4);
  EXPECT(eye(3, {}).shape() == Shape(3, 3));
  EXPECT(randint(10, {3}).shape() == Shape(3));
  EXPECT(randint(0, 10, Shape()).dim() == 0);
  EXPECT(zeros_like(full({2}, 7)).dtype() == int64);
  Tensor named = tensor(2.0).named("w");
  EXPECT(named.name() == "w");
  const Tensor& held = tensor(1.).named("r").requires_grad_();  // by value, so it may be held
  EXPECT(held.name() == "r");
}

void reductions() {
  const Tensor x = tensor({{1., 2.}, {3., 4.}});
  EXPECT(x.sum().item() == 10);
  EXPECT(is(x.sum(0), {4, 6}));
  EXPECT(is(x.sum(-1), {3, 7}));
  EXPECT(is(x.sum({0}), {4, 6}));
  EXPECT(x.sum({}).item() == 10);
  EXPECT(x.sum({0, 1}).item() == 10);
  EXPECT(x.sum({}, {.keepdim = true}).shape() == Shape(1, 1));
  EXPECT(x.sum({0}, {.keepdim = true}).shape() == Shape(1, 2));
  EXPECT(is(mt::sum(x, {0}), {4, 6}));
  EXPECT(x.max().item() == 4);
  auto [values, indices] = x.max(0);
  EXPECT(is(values, {3, 4}));
  EXPECT(is(indices, {1, 1}));
  EXPECT(is(x.max(1).values, {2, 4}));
  EXPECT(is(x.argmax(0), {1, 1}));
  EXPECT(is(max(x, 2 * x), {2, 4, 6, 8}));
  EXPECT(x.mean({0, 1}).item() == 2.5);
}

void operators() {
  const Tensor x = tensor({1., 2.});
  const long l = 1;
  const std::size_t u = 1;
  const std::uint8_t b = 1;
  EXPECT(is(x + 1 + l + u + 1.0F + 1.0 + b, {7, 8}));
  EXPECT(is(1 + x, {2, 3}));
  EXPECT(is(1.5 - x, {0.5, -0.5}));
  EXPECT(is(2 / x, {2, 1}));
  EXPECT(is(-x, {-1, -2}));
  EXPECT(is(1 == x, {1, 0}));
  EXPECT(is(1.5 != x, {1, 1}));
  EXPECT(is((x > 0) & (x < 2), {1, 0}));
  EXPECT(is(~(x > 1), {1, 0}));
  EXPECT(is((x > 1) | (x < 2), {1, 1}));
  EXPECT(is(x.pow(2), {1, 4}));
  EXPECT(is(pow(x, x), {1, 4}));
  EXPECT(is(pow(2, x), {2, 4}));
  EXPECT(is(where(x > 1, x, 0.0), {0, 2}));
  EXPECT(is(where(x > 1, 0.0, x), {1, 0}));
  EXPECT(is(where(x > 1, 1, 0), {0, 1}));
  EXPECT(is(exp(x - x), {1, 1}));
  EXPECT(std::exp(0.0) == 1 && std::max(1, 2) == 2);
}

void conditions() {
  Tensor loss = tensor(0.5);
  EXPECT(loss < 1);
  EXPECT(!(loss > 1));
  EXPECT(loss < 1 && loss > 0);
  int steps = 0;
  while (loss > 0.1) loss = loss / 2, ++steps;
  EXPECT(steps == 3);
  if (loss == 0) ++failures;
  EXPECT(float(loss) == 0.0625F);
  EXPECT(static_cast<int>(tensor(7)) == 7);
  EXPECT(loss.item() == 0.0625);
  EXPECT(loss.item<float>() == 0.0625F);
  EXPECT((tensor({1., 2.}).to_vector<float>() == std::vector<float>{1, 2}));
}

void views_and_writes() {
  Tensor x = zeros({2, 2});
  x[0] = 5.0;
  x[1] = x[0];
  x[1][0] = 2;
  x.at({0, 1}) = 7;
  x.slice(1, 0, 1) += 1;
  x[0] *= 2;
  EXPECT(is(x, {12, 14, 3, 5}));
  for (Tensor row : x) row -= 1;
  for (const Tensor& row : x) EXPECT(row.numel() == 2);
  x += 1;
  x.add_(1).mul_(2);
  EXPECT(is(x, {26, 30, 8, 12}));
  EXPECT(x.reshape({4}).numel() == 4);
  EXPECT(x.reshape(4, 1).shape() == Shape(4, 1));
  EXPECT(x.view(1, 4).shape() == Shape(1, 4));
  EXPECT(x.view({-1}).shape() == Shape(4));
  EXPECT(x.permute({1, 0}).shape() == Shape(2, 2));
  EXPECT(x.permute(1, 0).shape() == Shape(2, 2));
  EXPECT(x.expand({3, 2, 2}).shape() == Shape(3, 2, 2));
  EXPECT(cat({x, x}, 1).shape() == Shape(2, 4));
  EXPECT(cat({x, x}, {0}).shape() == Shape(4, 2));
  EXPECT(cat(std::vector<Tensor>{x, x}).shape() == Shape(4, 2));
  EXPECT(stack({x, x}).shape() == Shape(2, 2, 2));
  EXPECT(x.to(float64).dtype() == float64);
  EXPECT(x.to(cpu).to("cpu").cpu().device() == cpu);
  for (std::int64_t size : (x + 1).shape()) EXPECT(size == 2);
}

void handles_in_containers() {
  const Tensor x = tensor({1., 2.}), y = tensor({3., 4.});
  std::vector<Tensor> list(2);
  list[0] = x;
  std::array<Tensor, 2> pair = {x, y};
  pair[0] = y;
  std::map<std::string, Tensor> names;
  names["x"] = x;
  std::optional<Tensor> maybe;
  maybe = x;
  Tensor a = x, b = y;
  std::swap(a, b);
  std::tie(a, b) = std::pair(x, y);
  EXPECT(is(x, {1, 2}));
  EXPECT(is(y, {3, 4}));
  Tensor none;
  EXPECT(!none.defined());
  none = {};
  EXPECT(!none.defined());
}

void gradients() {
  const Tensor x = tensor({1., 2.}, {.requires_grad = true});
  const Tensor w = tensor({3., 4.}, {.requires_grad = true});
  const Tensor z = (x * w).sum();
  z.backward({.retain_graph = true});
  z.backward({}, {.retain_graph = true});
  z.backward(tensor(1.0), {.retain_graph = true});
  z.backward();
  EXPECT(is(x.grad(), {12, 16}));
  x.zero_grad();
  EXPECT(!x.grad().defined());
  const Tensor y = (x * w).sum();
  EXPECT(is(grad(y, x, {.retain_graph = true})[0], {3, 4}));
  EXPECT(is(grad(y, {x, w}, {.retain_graph = true})[1], {1, 2}));
  EXPECT(is(grad({y}, {x, w}, {.retain_graph = true})[1], {1, 2}));
  EXPECT(is(grad({y}, {x}, {.create_graph = true})[0], {3, 4}));
  x.register_hook([](const Tensor& g) { static_cast<void>(g); });
  x.register_hook([](const Tensor& g) { return g * 2; });
  x.register_hook([](Tensor) {});
  {
    NoGrad guard;
    Tensor updated = w;
    updated -= 0.1 * w.grad();
  }
  w.zero_grad();
  w.set_grad(ones({2}));
  EXPECT(gradcheck([](const Tensor& a) { return exp(a); },
                   tensor({0.5}, {.dtype = float64, .requires_grad = true})));
}

void more_operations() {
  const Tensor x = tensor({{1., 2.}, {3., 4.}}), row = tensor({1., 2.});
  EXPECT(is(clamp(x, {.min = 2}), {2, 2, 3, 4}));
  EXPECT(is(x.clamp({.min = 2, .max = 3.5}), {2, 2, 3, 3.5}));
  EXPECT(is(clamp(x, 2, 3), {2, 2, 3, 3}));
  EXPECT(is(x.clamp(row, row), {1, 2, 1, 2}));
  EXPECT(is(clamp(x, 2), {2, 2, 3, 4}) && is(x.clamp(row), {1, 2, 3, 4}));
  EXPECT(is(x.clip(2, 3), {2, 2, 3, 3}) && is(clip(x, {.min = 2}), {2, 2, 3, 4}));
  EXPECT(x.allclose(x + 1e-7, {.atol = 1e-6}) && allclose(x, x) && x.equal(x) && equal(x, x));
  EXPECT(hstack({x, x}).shape() == Shape(2, 4) && vstack({x, row}).shape() == Shape(3, 2));
  EXPECT(meshgrid({row, row}, {.indexing = "xy"}).size() == 2);
  EXPECT(is(div(x, 2, {.rounding = "floor"}), {0, 1, 1, 2}));
  EXPECT(is(floor_divide(x, row), {1, 1, 3, 2}));
  EXPECT(is(lerp(row, row + 1, 0.5), {1.5, 2.5}));
  EXPECT(x.var({.correction = 0}).item() == 1.25);
  EXPECT(is(x.var(0, {.correction = 0}), {1, 1}));
  EXPECT(is(x.var({0}, {.correction = 0, .keepdim = true}), {1, 1}));
  EXPECT(x.std().item() == mt::std(x).item());
  EXPECT(x.std({.correction = 0}).item() == mt::std(x, {.correction = 0}).item());
  EXPECT(is(x.norm(1, 0), {4, 6}) && x.norm("fro", 1).numel() == 2);
  EXPECT(x.sum(0, {.keepdim = true, .dtype = float64}).dtype() == float64);
  EXPECT(x.cumsum(0, {.dtype = float64}).dtype() == float64);
  EXPECT(x.all() && any(x, {0}).all());
  EXPECT(is(x.prod(0), {3, 8}));
  EXPECT(x.argmax().item() == 3);
  auto [values, indices] = x.sort(1, {.descending = true});
  EXPECT(is(values, {2, 1, 4, 3}));
  EXPECT(is(indices, {1, 0, 1, 0}));
  EXPECT(is(x.topk(1).values, {2, 4}));
  EXPECT(is(topk(x, 1, 0, {.largest = false}).values, {1, 2}));
  EXPECT(split(x, 1).size() == 2 && x.split({1, 1}, 1).size() == 2 && x.chunk(2)[0].dim() == 2);
  for (const Tensor& part : x.unbind()) EXPECT(part.dim() == 1);
  EXPECT(x.repeat(2, 1).shape() == Shape(4, 2) && x.repeat({1, 2}).shape() == Shape(2, 4));
  EXPECT(is(x.flip(0), {3, 4, 1, 2}) && is(x.flip({0, 1}), {4, 3, 2, 1}));
  EXPECT(is(x.roll(1, 0), {3, 4, 1, 2}));
  EXPECT(pad(x, {1, 0}, 9).shape() == Shape(2, 3));
  EXPECT(is(x.masked_fill(x > 2, 0), {1, 2, 0, 0}));
  EXPECT(is(x.masked_fill(x > 2, tensor(0.0)), {1, 2, 0, 0}));
  EXPECT(is(x.scatter(0, tensor({{1, 0}}), 7), {1, 7, 7, 4}));
  EXPECT(is(x.index_select(1, tensor({1})), {2, 4}));
  EXPECT(is(einsum("ij,jk->ik", x, x), {7, 10, 15, 22}));
  EXPECT(is(einsum("ij->ji", x), {1, 3, 2, 4}));
  EXPECT(is(einsum("i,ij,j->", {row, x, row}), {27}));
  EXPECT(is(addmm(row, x, x, {.beta = 0}), {7, 10, 15, 22}));
  EXPECT(is(x.addmm(x, x), {8, 12, 18, 26}));
  const Tensor image = zeros({1, 1, 4, 4}), kernel = zeros({2, 1, 2, 2});
  EXPECT(conv2d(image, kernel, {.stride = 2}).shape() == Shape(1, 2, 2, 2));
  EXPECT(conv2d(image, kernel, zeros({2}), {.stride = {2, 1}}).shape() == Shape(1, 2, 2, 3));
  EXPECT(conv2d(image, kernel, {.padding = "same"}).shape() == Shape(1, 2, 4, 4));
  EXPECT(max_pool2d(image, 2).shape() == Shape(1, 1, 2, 2));
  auto [largest, places] = max_pool2d_with_indices(image, 3, {.ceil_mode = true});
  EXPECT(largest.shape() == places.shape());
  EXPECT(max_pool2d(image, {2, 4}, {.stride = 1}).shape() == Shape(1, 1, 3, 1));
  EXPECT(adaptive_avg_pool2d(image, 1).numel() == 1);
  EXPECT(layer_norm(x, {2}).shape() == x.shape() && layer_norm(x, 2, row, row).dim() == 2);
  EXPECT(linear(x, x).dim() == 2 && linear(x, x, row).dim() == 2);
  EXPECT(scaled_dot_product_attention(x, x, x, {.is_causal = true}).shape() == x.shape());
  EXPECT(cross_entropy(x, tensor({0, 1}), {.label_smoothing = 0.1}).dim() == 0);
  EXPECT(is(dropout(x, 0.5, false), {1, 2, 3, 4}));
  EXPECT(is(x[x > 2], {3, 4}) && is(x[tensor({true, false})], {1, 2}));
  EXPECT(is(x[tensor({-1, 0})][0], {3, 4}));
  Tensor rows = x.clone();
  rows[rows > 2] = 0;
  rows[tensor({0})] = row * 5;
  rows[rows == 0] += 1;
  EXPECT(is(rows, {5, 10, 1, 1}));
  Tensor y = zeros({2});
  y.uniform_().normal_(0, 1).clamp_(-1, 1).masked_fill_(y < 2, 3);
  EXPECT(is(y, {3, 3}));
  EXPECT(multinomial(row, 2, {.replacement = true}).numel() == 2);
}

struct Net : nn::Module {
  nn::Linear fc1 = add("fc1", nn::Linear(4, 8, {.bias = false}));
  nn::Sequential rest = add("rest", nn::Sequential(nn::ReLU(), nn::Linear(8, 2)));
  const Tensor scale = register_parameter("scale", ones({1}));
  Tensor forward(const Tensor& x) override { return rest(fc1(x)) * scale; }
};

void networks() {
  const std::size_t u = 4;
  Net net;
  const Net copy = net;
  std::vector<Net> nets{net, copy};
  nets.push_back(Net());
  for (Net& one : nets) EXPECT(one(ones({3, 4})).shape() == Shape(3, 2));
  for (const auto& [name, w] : net.named_parameters()) EXPECT(w.name() == name);
  const std::map<std::string, Tensor> state = net.state_dict();
  EXPECT(state.count("rest.1.bias") == 1);
  nets[2].load_state_dict(state);
  nets[2].load_state_dict(net.state_dict(), {.strict = false});
  net.to(float64);
  net.to("cpu");
  net.eval();
  nn::Conv2d conv(1, u, {3, 2}, {.stride = {2, 1}, .padding = 1, .bias = false});
  EXPECT(conv(ones({1, 1, 4, 4})).shape() == Shape(1, 4, 2, 5));
  EXPECT(nn::LayerNorm(4)(ones({2, 4})).dim() == 2 && nn::LayerNorm({4}).weight.numel() == 4 &&
         nn::LayerNorm({2, 4}, {.eps = 1}).weight.dim() == 2);
  EXPECT(nn::BatchNorm1d(2, {.momentum = {}})(randn({4, 2})).dim() == 2);
  nn::LSTM lstm(4, 3, {.batch_first = true});
  const auto [y, h, c] = lstm(ones({2, 5, 4}));
  EXPECT(y.shape() == Shape(2, 5, 3) && h.shape() == c.shape());
  nn::ModuleList<nn::Linear> list{nn::Linear(4, 4), nn::Linear(4, 4)};
  Tensor x = ones({1, 4});
  for (nn::Linear& layer : list) x = layer(x);
  nn::init::kaiming_normal_(list[0].weight, {.nonlinearity = "relu"});
  optim::Adam optimizer(net.parameters(), {.lr = 1e-3, .betas = {0.9, 0.99}});
  optim::LinearLR warm_up(optimizer, {.start_factor = 0.1, .total_iters = 3});
  optim::StepLR schedule(optimizer, 10, 0.5);
  warm_up.step();
  EXPECT(optimizer.lr() < 1e-3);
  optim::SGD plain(net.parameters(), 1);
  nn::CrossEntropyLoss criterion({.reduction = "sum"});
  EXPECT(plain.lr() == 1 && criterion(zeros({1, 2}), tensor({0})).dim() == 0);
}

void learning() {
  const Tensor w = tensor(1.0, {.requires_grad = true});
  const int n = 0;
  optim::SGD optimizer({w}, {.lr = 0.1, .momentum = 0.9});
  optim::SGD other({w}, {.momentum = n});
  (w * w).backward();
  optimizer.step();
  other.zero_grad();
  EXPECT(
      cross_entropy(zeros({1, 2}), tensor({0}), {.ignore_index = n, .reduction = "sum"}).item() ==
      0);
}

void printed() {
  std::ostringstream text;
  text << tensor({1., 2.}) << Shape(2, 3) << float32 << boolean << Device("cuda:1");
  EXPECT(text.str() == "tensor([1., 2.])[2, 3]float32boolcuda:1");
}

// The line that the error of f names, in this file.
template <class F>
int line_of_error(F f) {
  try {
    f();
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::size_t at = text.find("spelling.cpp:");
    return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + 13);
  }
  return 0;
}

void lines_of_errors() {
  const Tensor a = tensor({1., 2.}), b = tensor({1., 2., 3.});
  Tensor y;
  // clang-format off
  EXPECT(line_of_error([&] { y = a + b; }) == __LINE__);
  EXPECT(line_of_error([&] { y = maximum(a, b); }) == __LINE__);
  EXPECT(line_of_error([&] { y = a.matmul(b); }) == __LINE__);
  EXPECT(line_of_error([&] { y = a[2]; }) == __LINE__);
  EXPECT(line_of_error([&] { y = mse_loss(a, b); }) == __LINE__);
  EXPECT(line_of_error([&] { y = zeros(2, -1); }) == __LINE__);
  EXPECT(line_of_error([&] { a.add_(b); }) == __LINE__);
  EXPECT(line_of_error([&] { y = a; y += b; }) == __LINE__);
  EXPECT(line_of_error([&] { if (a > 1) y = a; }) == __LINE__);
  EXPECT(line_of_error([&] { for (Tensor row : tensor(1.0)) y = row; }) == __LINE__);
  EXPECT(line_of_error([&] { a.backward(); }) == __LINE__);
  const int line = __LINE__;
  const int found = line_of_error([&] {
    y = a
        +
        b;
  });
  // clang-format on
  EXPECT(found == line + 4);
}

int main() {
  lines_of_errors();
  making_tensors();
  reductions();
  operators();
  conditions();
  views_and_writes();
  handles_in_containers();
  gradients();
  more_operations();
  networks();
  learning();
  printed();
  return failures == 0 ? 0 : 1;
}
