// The measured cases, with minitensor. Prints "name<TAB>nanoseconds" a line: the best of several
// samples, each long enough for the clock, because what disturbs a sample only ever makes it longer.
// bench/compare.py builds it, runs the same cases in NumPy and PyTorch in turn, and prints the table.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
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
  static volatile const void* seen;
  seen = x.elements().data;
}

}  // namespace

int main() {
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
  measure("sum [1000,1000]", 1, [&] { keep(a.sum()); });
  measure("sum [1000,1000], axis 0", 1, [&] { keep(a.sum({0})); });
  measure("sum [1000,1000], axis 1", 1, [&] { keep(a.sum({1})); });
  measure("transposed copy [1000,1000]", 1, [&] { keep(a.t().contiguous()); });
  const Tensor m = randn({512, 512}), n = randn({512, 512});
  measure("matmul [512,512]", 1, [&] { keep(m.matmul(n)); });
  measure("matmul [512,512], transposed", 1, [&] { keep(m.matmul(n.t())); });
}
