// Times on a graphics card, for tests/gpu_times: a line for each case, "name<TAB>microseconds<TAB>
// bytes<TAB>operations". Bytes are those that have to be read or written at the least; either may
// be 0, where nobody counts them. The sizes are divided by the first argument, for a try without a
// card.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "minitensor.hpp"

using namespace mt;

namespace {

using Work = std::function<void()>;

void print(const char* name, double microseconds, double bytes, double operations) {
  std::printf("%s\t%.2f\t%.0f\t%.0f\n", name, microseconds, bytes, operations);
  std::fflush(stdout);
}

// The least of five samples by the card's clock, each of at least 2 ms.
void measure(const char* name, double bytes, double operations, const Work& work) {
  work();
  int calls = 1;
  const auto sample = [&] {
    return machine(cuda)->time(cuda, [&] {
      for (int i = 0; i < calls; ++i) work();
    });
  };
  while (sample() < 2000) calls *= 2;
  double least = sample();
  for (int i = 0; i < 4; ++i) least = std::min(least, sample());
  print(name, least / calls, bytes, operations);
}

double product_of(std::int64_t n) {
  return 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
}

void measure_step(const char* name, nn::Module& net, optim::Optimizer& optimizer,
                  const Shape& shape) {
  const Tensor x = randn(shape, {.device = cuda});
  const Tensor y = randint(0, 10, {shape[0]}, {.device = cuda});
  measure(name, 0, 0, [&] {
    optimizer.zero_grad();
    cross_entropy(net(x), y).backward();
    optimizer.step();
  });
}

void measure_tensors(std::int64_t n) {
  const NoGrad guard;
  const Tensor x = randn({n, n}, {.device = cuda}), y = randn({n, n}, {.device = cuda}),
               row = randn({n}, {.device = cuda}), column = randn({n, 1}, {.device = cuda});
  const double all = 4 * static_cast<double>(n) * static_cast<double>(n);  // bytes
  const auto keep = [](const Tensor& result) { static_cast<void>(result.defined()); };
  measure("a copy by the card", 2 * all, 0, [&] {
    cudaMemcpy(y.elements().data, x.elements().data, static_cast<std::size_t>(all),
               cudaMemcpyDefault);
  });
  measure("x + y", 3 * all, 0, [&] { keep(x + y); });
  measure("x * 2", 2 * all, 0, [&] { keep(x * 2); });
  measure("exp", 2 * all, 0, [&] { keep(x.exp()); });
  measure("gelu", 2 * all, 0, [&] { keep(gelu(x)); });
  measure("x + row", 2 * all, 0, [&] { keep(x + row); });
  measure("x + column", 2 * all, 0, [&] { keep(x + column); });
  measure("transposed copy", 2 * all, 0, [&] { keep(x.t().contiguous()); });
  measure("sum", all, 0, [&] { keep(x.sum()); });
  measure("sum of columns", all, 0, [&] { keep(x.sum(0)); });
  measure("sum of rows", all, 0, [&] { keep(x.sum(1)); });
  measure("largest of rows", all, 0, [&] { keep(x.max(1).values); });
  measure("softmax", 2 * all, 0, [&] { keep(x.softmax(1)); });
  measure("log_softmax", 2 * all, 0, [&] { keep(x.log_softmax(1)); });
  measure("layer_norm", 2 * all, 0, [&] { keep(layer_norm(x, {n})); });
  measure("randn", all, 0, [&] { keep(randn({n, n}, {.device = cuda})); });
}

void measure_updates(std::int64_t n) {
  const Tensor w = zeros({n}, {.device = cuda, .requires_grad = true});
  w.set_grad(ones({n}, {.device = cuda}));
  const double all = 4 * static_cast<double>(n);
  optim::SGD sgd({w});
  measure("SGD step", 3 * all, 0, [&] { sgd.step(); });
  optim::Adam adam({w});
  measure("Adam step", 7 * all, 0, [&] { adam.step(); });
}

void measure_products(std::int64_t shrink) {
  const NoGrad guard;
  for (const std::int64_t size : {512, 1024, 2048, 4096, 8192, 10000}) {
    const std::int64_t n = size / shrink;
    const Tensor a = randn({n, n}, {.device = cuda}), y = randn({n, n}, {.device = cuda});
    const std::string name = "matmul " + std::to_string(size);
    const std::pair<const char*, MatmulAlgorithm> ways[] = {
        {"", MatmulAlgorithm::library},
        {", tiled kernel", MatmulAlgorithm::tiled},
        {", naive kernel", MatmulAlgorithm::naive}};
    for (const auto& [text, way] : ways)
      if (way == MatmulAlgorithm::library || size == 2048)
        measure((name + text).c_str(), 0, product_of(n), [&, way = way] {
          machine(cuda)->matmul(y.elements(), a.elements(), a.elements(), way);
        });
  }
  const std::int64_t n = 10000 / shrink;
  const Tensor a = randn({n, n});
  const auto begin = std::chrono::steady_clock::now();
  static_cast<void>(a.matmul(a));
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  print("matmul 10000, on the processor", took.count(), 0, product_of(n));
}

void measure_steps() {
  nn::Sequential mlp(nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10));
  mlp.to(cuda);
  optim::Adam adam(mlp.parameters());
  measure_step("step of an MLP", mlp, adam, {64, 784});
  nn::Sequential lenet(nn::Conv2d(1, 6, 5, {.padding = 2}), nn::ReLU(), nn::MaxPool2d(2),
                       nn::Conv2d(6, 16, 5), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
                       nn::Linear(400, 120), nn::ReLU(), nn::Linear(120, 84), nn::ReLU(),
                       nn::Linear(84, 10));
  lenet.to(cuda);
  optim::SGD sgd(lenet.parameters(), {.lr = 0.01});
  measure_step("step of LeNet", lenet, sgd, {64, 1, 28, 28});
}

}  // namespace

int main(int count, char** words) try {
  const std::int64_t shrink = count > 1 ? std::atoll(words[1]) : 1;
  std::printf("card\t%s\n", device_name().c_str());
  measure_tensors(8192 / shrink);
  measure_updates((std::int64_t{1} << 26) / shrink / shrink);
  measure_products(shrink);
  measure_steps();
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
