// The measured cases, with minitensor: `ours tensors`, `ours training`, `ours functions`. Prints
// "name<TAB>nanoseconds" a line: the best of several samples, each long enough for the clock,
// because what disturbs a sample only ever makes it longer. bench/compare.py builds it, runs the
// same cases in NumPy and PyTorch in turn, and prints the table.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "minitensor.hpp"

using namespace mt;

namespace {

double seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Nanoseconds that one call takes, `parts` to a call.
void measure(const char* name, double parts, const std::function<void()>& call) {
  call();
  int calls = 1;
  for (double took = 0; took < 0.01; calls *= 2) {  // a sample lasts at least 10 ms
    const double begin = seconds();
    for (int i = 0; i < calls; ++i) call();
    took = seconds() - begin;
    if (took >= 0.01) break;
  }
  std::vector<double> samples;
  for (int sample = 0; sample < 9; ++sample) {
    const double begin = seconds();
    for (int i = 0; i < calls; ++i) call();
    samples.push_back((seconds() - begin) / calls / parts);
  }
  std::sort(samples.begin(), samples.end());
  std::printf("%s\t%.1f\n", name, samples[0] * 1e9);
}

void keep(const Tensor& x) {  // so that the compiler may not leave out the work
  [[maybe_unused]] static volatile const void* seen;
  seen = x.elements().data;
}

// A step of a training: forward, backward, update.
template <class Optimizer>
void measure_step(const char* name, nn::Module& net, Optimizer optimizer, const Shape& input) {
  const Tensor x = randn(input);
  const Tensor y = randint(0, 10, {input[0]});
  measure(name, 1, [&] {
    optimizer.zero_grad();
    cross_entropy(net(x), y).backward();
    optimizer.step();
  });
}

void tensors() {
  {
    const Tensor w = tensor(0.9, {.requires_grad = true});
    const Tensor x = tensor(0.1, {.requires_grad = true});
    measure("scalar graph, an op", 100, [&] {
      Tensor h = x;
      for (int i = 0; i < 50; ++i) h = h * w + x;
      h.backward();
      w.zero_grad();
      x.zero_grad();
    });
  }
  const NoGrad guard;
  manual_seed(1);
  const Tensor a = randn({1000, 1000}), row = randn({1000}), column = randn({1000, 1});
  measure("[1000,1000] + [1000]", 1, [&] { keep(a + row); });
  measure("[1000,1000] + [1000,1]", 1, [&] { keep(a + column); });
  measure("exp [1000,1000]", 1, [&] { keep(a.exp()); });
  measure("tanh [1000,1000]", 1, [&] { keep(a.tanh()); });
  measure("sigmoid [1000,1000]", 1, [&] { keep(a.sigmoid()); });
  measure("gelu [1000,1000]", 1, [&] { keep(gelu(a)); });
  measure("softmax [1000,1000]", 1, [&] { keep(a.softmax(1)); });
  measure("sum [1000,1000]", 1, [&] { keep(a.sum()); });
  measure("sum [1000,1000], axis 0", 1, [&] { keep(a.sum({0})); });
  measure("sum [1000,1000], axis 1", 1, [&] { keep(a.sum({1})); });
  measure("transposed copy [1000,1000]", 1, [&] { keep(a.t().contiguous()); });
  const Tensor m = randn({512, 512}), n = randn({512, 512});
  measure("matmul [512,512]", 1, [&] { keep(m.matmul(n)); });
  measure("matmul [512,512], transposed", 1, [&] { keep(m.matmul(n.t())); });
  const Tensor p = randn({32, 128, 64}), q = randn({32, 128, 64});
  measure("matmul [32,128,64], transposed", 1, [&] { keep(p.matmul(q.transpose(1, 2))); });
  const Tensor images = randn({64, 256, 56, 56});
  measure("mean of each channel, [64,256,56,56]", 1, [&] { keep(images.mean({0, 2, 3})); });
}

void training() {
  manual_seed(1);
  nn::Sequential mlp(nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10));
  measure_step("MLP 784-128-10, batch 64, Adam", mlp, optim::Adam(mlp.parameters()), {64, 784});
  nn::Linear linear(1000, 10);
  measure_step("Linear(1000, 10), batch 64, Adam", linear, optim::Adam(linear.parameters()),
               {64, 1000});
  nn::Sequential lenet(nn::Conv2d(1, 6, 5, {.padding = 2}), nn::ReLU(), nn::MaxPool2d(2),
                       nn::Conv2d(6, 16, 5), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
                       nn::Linear(400, 120), nn::ReLU(), nn::Linear(120, 84), nn::ReLU(),
                       nn::Linear(84, 10));
  measure_step("LeNet-5, batch 64, SGD", lenet, optim::SGD(lenet.parameters(), {.lr = 0.01}),
               {64, 1, 28, 28});
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  std::printf("peak memory of these three, MB\t%ld\n", used.ru_maxrss);  // in KB
}

// All of [1000, 1000] float32.
void functions() {
  const NoGrad guard;
  manual_seed(1);
  const Tensor a = randn({1000, 1000}), b = randn({1000, 1000});
  const Tensor positive = a.abs() + 0.1, share = rand({1000, 1000}), mask = a > 0;
  measure("a + b", 1, [&] { keep(a + b); });
  measure("a * b", 1, [&] { keep(a * b); });
  measure("a / b", 1, [&] { keep(a / b); });
  measure("a + 1.5", 1, [&] { keep(a + 1.5); });
  measure("neg", 1, [&] { keep(-a); });
  measure("abs", 1, [&] { keep(a.abs()); });
  measure("sqrt", 1, [&] { keep(positive.sqrt()); });
  measure("rsqrt", 1, [&] { keep(positive.rsqrt()); });
  measure("reciprocal", 1, [&] { keep(a.reciprocal()); });
  measure("pow(2)", 1, [&] { keep(a.pow(2)); });
  measure("pow(3)", 1, [&] { keep(a.pow(3)); });
  measure("pow(4)", 1, [&] { keep(a.pow(4)); });
  measure("pow(b)", 1, [&] { keep(positive.pow(b)); });
  measure("exp", 1, [&] { keep(a.exp()); });
  measure("expm1", 1, [&] { keep(a.expm1()); });
  measure("log", 1, [&] { keep(positive.log()); });
  measure("log1p", 1, [&] { keep(positive.log1p()); });
  measure("log2", 1, [&] { keep(positive.log2()); });
  measure("log10", 1, [&] { keep(positive.log10()); });
  measure("sin", 1, [&] { keep(a.sin()); });
  measure("cos", 1, [&] { keep(a.cos()); });
  measure("tan", 1, [&] { keep(a.tan()); });
  measure("asin", 1, [&] { keep(share.asin()); });
  measure("acos", 1, [&] { keep(share.acos()); });
  measure("atan", 1, [&] { keep(a.atan()); });
  measure("atan2", 1, [&] { keep(atan2(a, b)); });
  measure("sinh", 1, [&] { keep(a.sinh()); });
  measure("cosh", 1, [&] { keep(a.cosh()); });
  measure("tanh", 1, [&] { keep(a.tanh()); });
  measure("sigmoid", 1, [&] { keep(a.sigmoid()); });
  measure("erf", 1, [&] { keep(a.erf()); });
  measure("floor", 1, [&] { keep(a.floor()); });
  measure("round", 1, [&] { keep(a.round()); });
  measure("trunc", 1, [&] { keep(a.trunc()); });
  measure("fmod", 1, [&] { keep(fmod(a, b)); });
  measure("remainder", 1, [&] { keep(a.remainder(b)); });
  measure("maximum", 1, [&] { keep(maximum(a, b)); });
  measure("a < b", 1, [&] { keep(a < b); });
  measure("where", 1, [&] { keep(where(mask, a, b)); });
  measure("clamp", 1, [&] { keep(a.clamp(-1, 1)); });
  measure("relu", 1, [&] { keep(a.relu()); });
  measure("leaky_relu", 1, [&] { keep(leaky_relu(a)); });
  measure("elu", 1, [&] { keep(elu(a)); });
  measure("gelu", 1, [&] { keep(gelu(a)); });
  measure("silu", 1, [&] { keep(silu(a)); });
  measure("softplus", 1, [&] { keep(softplus(a)); });
  measure("logsigmoid", 1, [&] { keep(logsigmoid(a)); });
  measure("mse_loss", 1, [&] { keep(mse_loss(a, b)); });
  measure("prod(1)", 1, [&] { keep(a.prod(1)); });
  measure("amax(1)", 1, [&] { keep(a.amax({1})); });
  measure("argmax(1)", 1, [&] { keep(a.argmax(1)); });
  measure("std()", 1, [&] { keep(a.std()); });
  measure("var(1)", 1, [&] { keep(a.var(1)); });
  measure("norm()", 1, [&] { keep(a.norm()); });
  measure("logsumexp(1)", 1, [&] { keep(a.logsumexp(1)); });
  measure("log_softmax(1)", 1, [&] { keep(a.log_softmax(1)); });
  measure("layer_norm", 1, [&] { keep(layer_norm(a, {1000})); });
  measure("cumsum(1)", 1, [&] { keep(a.cumsum(1)); });
  measure("topk(5, 1)", 1, [&] { keep(a.topk(5, 1).values); });
  measure("sort(1)", 1, [&] { keep(a.sort(1).values); });
}

}  // namespace

int main(int count, char** words) {
  const std::string group = count > 1 ? words[1] : "";
  if (group == "training")
    training();
  else if (group == "functions")
    functions();
  else
    tensors();
}
