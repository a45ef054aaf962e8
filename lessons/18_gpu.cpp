// 18  The graphics card: thousands of slow workers, and a long way to them.
//
// Without a card the lesson explains it, and reckons with numbers from data sheets. With one it
// measures: cmake -B build -D MINITENSOR_CUDA=ON && cmake --build build, or
//
//   nvcc -arch=native -std=c++20 --expt-relaxed-constexpr -diag-suppress 2810 -I.
//     lessons/18_gpu.cpp lessons/main.cpp kernels.cu -lcublas
//
// The numbers are those of an A100 with 40 GB (NVIDIA's data sheet: 1555 GB/s, 19.5 TFLOPS in
// float32), of PCI Express 4.0 x16 (31.5 GB/s by its standard, about 25 in practice), of DDR4-3200
// in two channels (2 x 8 bytes x 3200 million a second = 51.2 GB/s), and of one processor core with
// AVX2 (2 units x 8 floats x 2 operations x 3 GHz, about 100 GFLOPS). A launch takes 3 to 10 µs
// ("Getting Started with CUDA Graphs", NVIDIA 2019), and so does the beginning of a copy.
#include <chrono>

#include "lessons/lesson.hpp"
#include "lessons/words.hpp"

using namespace mt;
using namespace lesson;

namespace {

Tensor square(double n, Device device) {
  const Quiet quiet;
  return rand({static_cast<int64_t>(n), static_cast<int64_t>(n)}).to(device);
}

// The least of a few tries, in microseconds. A launch returns at once, so the clock has to wait
// until the card has done its work.
template <class Work>
double microseconds(Device device, const Work& work) {
  const Quiet quiet;
  double least = INFINITY, all = 0;
  for (int i = 0; i < 6 && all < 5e5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    static_cast<void>(work());
    synchronize(device);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    least = std::min(least, time.count());
    all += time.count();
  }
  return least;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// For times from below a microsecond to seconds: both axes in logarithms.
void plot_time(const char* curve, double n, double time) {
  plot(curve, std::log2(n), std::log10(time));
}

// The processor plays the card: what many threads do at the same time, it does one after the other,
// and counts how often they fetch a number from the card's large memory.
struct Played {
  std::vector<double> y;
  int64_t fetches = 0;
};

Played play_naive(size_t n, const std::vector<double>& a, const std::vector<double>& b) {
  Played played{std::vector<double>(n * n)};
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column < n; ++column)  // a thread
      for (size_t k = 0; k < n; ++k) {
        played.y[row * n + column] += a[row * n + k] * b[k * n + column];
        played.fetches += 2;
      }
  return played;
}

Played play_tiled(size_t n, const std::vector<double>& a, const std::vector<double>& b) {
  constexpr size_t tile = 16;
  Played played{std::vector<double>(n * n)};
  double left[tile][tile], right[tile][tile];
  const auto all_threads = [](const auto& work) {
    for (size_t y = 0; y < tile; ++y)
      for (size_t x = 0; x < tile; ++x) work(y, x);
  };
  for (size_t top = 0; top < n; top += tile)
    for (size_t first = 0; first < n; first += tile)  // a block
      for (size_t done = 0; done < n; done += tile) {
        all_threads([&](size_t y, size_t x) {
          left[y][x] = a[(top + y) * n + done + x];
          right[y][x] = b[(done + y) * n + first + x];
          played.fetches += 2;
        });  // the end of a loop over all threads is what __syncthreads() is on the card
        all_threads([&](size_t y, size_t x) {
          for (size_t i = 0; i < tile; ++i)
            played.y[(top + y) * n + first + x] += left[y][i] * right[i][x];
        });
      }
  return played;
}

}  // namespace

LESSON("18_gpu", "The graphics card", "Machines") {
  const double largest = std::min(16384.0, knob("largest", 4096));  // rows of what is timed
  const bool has_card = cuda_is_available();

  say("1. The same step\n"
      "A step of training: guess, loss, backwards, down the slope. The lines do not say who "
      "computes. The tensors do: what is on the card is computed on the card, and so is what comes "
      "of it.");
  manual_seed(18);
  auto points = rand({64, 3});
  auto goals = rand({64, 2});
  auto start = rand({3, 2});
  std::vector<Device> devices = {cpu};
  if (has_card) devices.push_back(cuda);
  std::vector<std::vector<double>> after;
  for (const Device device : devices) {
    auto x = points.to(device);
    auto t = goals.to(device);
    auto moved = start.to(device);
    auto w = moved.clone();
    w.requires_grad_();
    auto guess = x.matmul(w);
    auto loss = mse_loss(guess, t);
    loss.backward();
    {
      NoGrad guard;
      w -= 0.1 * w.grad();
    }
    after.push_back(w.to_vector<double>());
  }
  if (has_card) {
    say("The second round ran on " + device_name() + ".");
    const bool agree = largest_difference(after[0], after[1]) < 1e-5;
    std::cout << "the two results agree to 1e-5: " << (agree ? "yes" : "no") << '\n';
    say("They need not agree in the last bit. A sum of floats depends on its order, and a "
        "thousand workers add in another order than one.");
  } else {
    say("With a card the loop would go round once more, with device = cuda, and the two results "
        "would be compared: they agree, but for the last bits, because many workers add in another "
        "order than one. This program has no card (" +
        std::string(cuda_machine ? "no NVIDIA GPU, or no driver for it, was found"
                                 : "it was built without kernels.cu") +
        "), so what follows is reckoned, not measured.");
  }

  say("2. Who computes\n"
      "A processor has a few fast cores. A card has thousands of slow ones: an A100 has 6912. What "
      "they run is a kernel, a function that many threads run at once. A thread knows its number: "
      "thread i of an addition adds element i.\n"
      "32 threads are a warp, and take each step together. Up to 1024 are a block. They sit at one "
      "table, the shared memory: small, fast, and gone when the block is done. At "
      "__syncthreads() each waits until all the others have come there, too. All blocks together "
      "are the grid. They run in any order, as there is room, and never wait for each other.");
  ask("A product of 1000x1000 numbers is computed in tiles of 16x16, a block for each. How many "
      "blocks has the grid?",
      std::pow(std::ceil(1000.0 / 16.0), 2),
      {"1000 / 16 is 62.5, and the last half tile needs a block of its own.",
       "63 across, and 63 down."});

  say("3. The journey\n"
      "A card has a memory of its own, and the way there is long. A copy takes\n"
      "latency + bytes / bandwidth\n"
      "where the latency is about 10 µs, however little is sent, and the bandwidth of PCI Express "
      "4.0 about 25 GB/s. For one number the latency is everything. For a large tensor it is "
      "nothing.");
  const double latency = 10.0, bus = 25e3;  // in µs, and in bytes per µs
  const double bytes = 4.0 * 1000.0 * 1000.0;
  const auto journey = [&](double sent) { return latency + sent / bus; };
  ask("How many µs does a copy of 1000x1000 numbers take, in float32?", journey(bytes),
      {"They are 4 million bytes.", "25 GB/s are 25000 bytes a µs."});
  say("An addition reads two numbers and writes one, 12 bytes, and does nothing else. So it takes "
      "as long as its memory does: 51.2 GB/s here, 1555 GB/s on an A100, and there 5 µs for the "
      "launch. Two tensors of that size, then:");
  const double add_here = 3 * bytes / 51.2e3, add_there = 5 + 3 * bytes / 1555e3;
  std::cout << "added here: " << words::number(add_here) << " µs\n"
            << "on the card, if they are there: " << words::number(add_there) << " µs\n"
            << "and with the journey: " << words::number(add_there + 3 * journey(bytes)) << " µs\n";
  step(
      "The card is 18 times faster, and yet the journey never pays. So the data is sent once, and "
      "stays: weights, optimiser and all. Each item() calls a number home, and waits for it.");
  if (has_card) {
    say("Measured, to the card and back: log10 of µs over log2 of n, for n x n numbers.");
    for (double n = 8; n <= largest; n *= 2) {
      const Tensor here = square(n, cpu), there = square(n, cuda);
      plot_time("to the card", n, microseconds(cuda, [&] { return here.to(cuda); }));
      plot_time("back", n, microseconds(cuda, [&] { return there.cpu(); }));
    }
    say("Where a line is flat it is all latency. Where it climbs by 0.6 for each doubling of n, "
        "which is four times as many bytes, it is all bandwidth.");
  } else {
    say("With a card the journeys of all sizes up to 4096 x 4096 would be measured and drawn here: "
        "a line that is flat at first, all latency, and then climbs, all bandwidth.");
  }

  say("4. Two kernels\n"
      "y = a · b for n x n numbers, once with a thread for each element of y that fetches what it "
      "needs, and once in tiles. (Here without the borders. The real ones are multiply_naive and "
      "multiply_tiled in kernels.cu.)");
  std::cout << R"(
__global__ void naive(int n, const float* a, const float* b, float* y) {
  const int row = blockIdx.y * 16 + threadIdx.y;
  const int column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
  y[row * n + column] = sum;
}

__global__ void tiled(int n, const float* a, const float* b, float* y) {
  __shared__ float left[16][16], right[16][16];
  const int x = threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  const int z = threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int done = 0; done < n; done += 16) {
    left[z][x] = a[row * n + done + x];
    right[z][x] = b[(done + z) * n + column];
    __syncthreads();  // the tiles are complete
    for (int i = 0; i < 16; ++i) sum += left[z][i] * right[i][x];
    __syncthreads();  // and nobody needs them any more
  }
  y[row * n + column] = sum;
}
)";
  say("Both do the same sums. They differ in how often they go to the large memory. Let the "
      "processor play all threads of both, for n = 64, and count.");
  auto a = rand({64, 64}, {.dtype = float64});
  auto b = rand({64, 64}, {.dtype = float64});
  auto y = a.matmul(b);
  const Played naive = play_naive(64, a.to_vector<double>(), b.to_vector<double>());
  const Played tiled = play_tiled(64, a.to_vector<double>(), b.to_vector<double>());
  const std::vector<double> exact = y.to_vector<double>();
  const bool equal =
      largest_difference(naive.y, exact) < 1e-9 && largest_difference(tiled.y, exact) < 1e-9;
  std::cout << "naive: " << naive.fetches << " fetches\n"
            << "both equal a · b: " << (equal ? "yes" : "no") << '\n';
  ask("How many fetches does the tiled one need?", static_cast<double>(tiled.fetches),
      {"A number that lies on the table serves all 16 threads of a row, or of a column.",
       "So each is fetched 16 times less often."});
  say("Larger tiles would save more. NVIDIA's cuBLAS uses them, keeps what it can in registers, "
      "and fetches the next tile while it computes with this one. That is why x.matmul(y) calls "
      "cuBLAS, and the two above are there to be read.");

  say("5. Why small tensors are slow there\n"
      "A product of n x n does 2n³ operations on 2n² numbers. A core does 100 of them in a "
      "nanosecond, the card 19500, but only after 5 µs of launching. And if a and b must travel "
      "there and y back, that is three journeys more.");
  const auto core = [](double n) { return 2 * n * n * n / 100e3; };
  const auto card = [](double n) { return 5 + 2 * n * n * n / 19.5e6; };
  const auto with_journey = [&](double n) { return card(n) + 3 * journey(4 * n * n); };
  double pays = 8, journey_pays = 8;
  while (card(pays) > core(pays)) pays *= 2;
  while (with_journey(journey_pays) > core(journey_pays)) journey_pays *= 2;
  ask("n = 8, 16, 32, ...: which is the first that is faster on the card, if the numbers are there "
      "already?",
      pays,
      {"2n³ / 100000 µs against 5 µs and a little.", "2 · 32³ is 65536, and 2 · 64³ is 524288."});
  std::cout << "and with the journey: n = " << journey_pays << '\n';
  say(std::string("log10 of µs over log2 of n. ") +
      (has_card ? "Measured:"
                : "Reckoned; with a card it would be measured, with the two kernels "
                  "beside cuBLAS:"));
  double on_processor = 0;
  for (double n = 8; n <= largest; n *= 2) {
    if (!has_card) {
      plot_time("one core", n, core(n));
      plot_time("card", n, card(n));
      plot_time("card and journey", n, with_journey(n));
      continue;
    }
    const Tensor here = square(n, cpu), there = square(n, cuda), result = square(n, cuda);
    if (on_processor < 5e5) {  // nobody wants to wait for what is slower still
      on_processor = microseconds(cpu, [&] { return here.matmul(here); });
      plot_time("processor", n, on_processor);
    }
    const std::pair<const char*, MatmulAlgorithm> ways[] = {{"cuBLAS", MatmulAlgorithm::library},
                                                            {"tiled", MatmulAlgorithm::tiled},
                                                            {"naive", MatmulAlgorithm::naive}};
    for (const auto& [name, way] : ways)
      plot_time(name, n, microseconds(cuda, [&, way = way] {
                  machine(cuda)->matmul(result.elements(), there.elements(), there.elements(), way);
                }));
    plot_time("cuBLAS and journey", n,
              microseconds(cuda, [&] { return here.to(cuda).matmul(here.to(cuda)).cpu(); }));
  }
  say("On the left the card's line is flat: all it does is to wait for its launch. 32x32 numbers "
      "are 1024 threads for 6912 cores, and most cores have nothing to do. On the right the line "
      "climbs as the processor's does, some two digits below. So the whole art is to give it much "
      "to do at a time: large batches, not one picture after the other.");

  say("Challenge: launches add up as well. A step of lesson 13 is a dozen operations on 20 "
      "numbers. How long does it take at 5 µs each, and how many points would it need before the "
      "card is the better place?");
  say("The road not taken: one may write each kernel by hand, and do several operations in it, so "
      "that what lies between them never goes to memory and there is one launch instead of five. "
      "That is called fusion.");
}

// What it prints with --brief, held by CTest:
//
// expect: points = [64, 3], from 0.00912058 to 0.99834
// expect: goals = [64, 2], from 0.0148842 to 0.996528
// expect: start = [3, 2], from 0.0700324 to 0.875846
// expect: w = start = [3, 2], from 0.0700324 to 0.875846
// expect: guess = matmul(points, w) = [64, 2], from 0.0526669 to 1.55793
// expect: loss = mse_loss(guess, goals) = 0.281623
// expect: backwards from loss, which receives 1
// expect: guess receives [64, 2], from -0.0137127 to 0.0236641 from loss = mse_loss(guess, goals)
// expect: w receives sum over i of a[i,k] · dy[i,j] = [3, 2], from -0.0751909 to 0.312309 from guess = matmul(points, w)
// expect: w.grad = [3, 2], from -0.0751909 to 0.312309
// expect: w.grad · 0.1 = [3, 2], from -0.00751909 to 0.0312309
// expect: w is now [3, 2], from 0.0771982 to 0.844615 (sub_)
// expect: Answer: 3969
// expect: Answer: 170
// expect: added here: 234.375 µs
// expect: on the card, if they are there: 12.717 µs
// expect: and with the journey: 522.717 µs
// expect: __global__ void naive(int n, const float* a, const float* b, float* y) {
// expect: const int row = blockIdx.y * 16 + threadIdx.y;
// expect: const int column = blockIdx.x * 16 + threadIdx.x;
// expect: float sum = 0;
// expect: for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
// expect: y[row * n + column] = sum;
// expect: }
// expect: __global__ void tiled(int n, const float* a, const float* b, float* y) {
// expect: __shared__ float left[16][16], right[16][16];
// expect: const int x = threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
// expect: const int z = threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
// expect: float sum = 0;
// expect: for (int done = 0; done < n; done += 16) {
// expect: left[z][x] = a[row * n + done + x];
// expect: right[z][x] = b[(done + z) * n + column];
// expect: __syncthreads();  // the tiles are complete
// expect: for (int i = 0; i < 16; ++i) sum += left[z][i] * right[i][x];
// expect: __syncthreads();  // and nobody needs them any more
// expect: }
// expect: y[row * n + column] = sum;
// expect: }
// expect: a = [64, 64], from 2.62497e-05 to 0.999924
// expect: b = [64, 64], from 0.0008409 to 0.999805
// expect: y = matmul(a, b) = [64, 64], from 11.0363 to 22.3323
// expect: naive: 524288 fetches
// expect: both equal a · b: yes
// expect: Answer: 32768
// expect: Answer: 64
// expect: and with the journey: n = 256
// expect: one core (o): 10 points, from -1.9897 at 3 to 6.13811 at 12
// expect: card (.): 10 points, from 0.698975 at 3 to 3.84838 at 12
// expect: card and journey (x): 10 points, from 1.54445 at 3 to 4.18002 at 12
