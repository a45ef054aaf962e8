// Times of a few operations on a GPU and on this processor, in microseconds: the least of several
// tries. tests/gpu_check.sh builds and runs it.
#include <chrono>
#include <cstdio>
#include <functional>

#include "minitensor.hpp"

using namespace mt;

double microseconds(Device device, const std::function<void()>& work, int tries) {
  const auto wait = [&] {
    if (device != cpu) machine(device)->synchronize(device);
  };
  double least = 1e30;
  for (int i = 0; i <= tries; ++i) {  // the first one is for warming up
    wait();
    const auto begin = std::chrono::steady_clock::now();
    work();
    wait();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    if (i > 0) least = std::min(least, time.count());
  }
  return least;
}

int main() {
  std::printf("%s\n%-34s %12s %12s\n", device_name().c_str(), "", "GPU us", "CPU us");
  const Tensor large = randn({4096, 4096}), row = randn({4096}), square = randn({2048, 2048});
  const Tensor index = randint(4096, {4096, 64}), narrow = randn({4096, 64});
  struct Case {
    const char* name;
    std::function<void(const Tensor& x, const Tensor& r, const Tensor& s, const Tensor& i,
                       const Tensor& n)>
        work;
  };
  using T = const Tensor&;
  const Case cases[] = {
      {"x + x                [4096, 4096]", [](T x, T, T, T, T) { x + x; }},
      {"x + row              [4096, 4096]", [](T x, T r, T, T, T) { x + r; }},
      {"x.exp()              [4096, 4096]", [](T x, T, T, T, T) { x.exp(); }},
      {"x.t().contiguous()   [4096, 4096]", [](T x, T, T, T, T) { x.t().contiguous(); }},
      {"x.sum()              [4096, 4096]", [](T x, T, T, T, T) { x.sum(); }},
      {"x.sum(0)             [4096, 4096]", [](T x, T, T, T, T) { x.sum(0); }},
      {"x.sum(1)             [4096, 4096]", [](T x, T, T, T, T) { x.sum(1); }},
      {"x.max(1)             [4096, 4096]", [](T x, T, T, T, T) { x.max(1); }},
      {"x.softmax(1)         [4096, 4096]", [](T x, T, T, T, T) { x.softmax(1); }},
      {"s.matmul(s)          [2048, 2048]", [](T, T, T s, T, T) { s.matmul(s); }},
      {"n.gather(0, i)         [4096, 64]", [](T, T, T, T i, T n) { n.gather(0, i); }},
  };
  const NoGrad guard;
  for (const Case& one : cases) {
    double times[2];
    int column = 0;
    for (const Device device : {cuda, cpu}) {
      const Tensor x = large.to(device), r = row.to(device), s = square.to(device),
                   i = index.to(device), n = narrow.to(device);
      times[column++] = microseconds(
          device, [&] { one.work(x, r, s, i, n); }, device == cpu ? 2 : 20);
    }
    std::printf("%-34s %12.1f %12.1f\n", one.name, times[0], times[1]);
  }
  const Tensor s = square.to(cuda), y = empty({2048, 2048}, {.device = cuda});
  const char* const names[] = {"cuBLAS", "naive", "tiled"};
  for (const auto way : {Way::library, Way::naive, Way::tiled})
    std::printf(
        "s.matmul(s), %-21s %12.1f\n", names[static_cast<int>(way)],
        microseconds(
            cuda, [&] { machine(cuda)->matmul(y.elements(), s.elements(), s.elements(), way); },
            5));
}
