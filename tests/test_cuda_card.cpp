// What belongs to the card itself: how many there are, their memory, errors. And the stand-in
// (tests/cuda_on_cpu) on which kernels.cu is tested: kernels with a fault each show what it
// catches.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>

#include "lessons/player.hpp"
#include "tests/cuda_on_cpu/card.hpp"
#include "tests/cuda_on_cpu/cuda_runtime.h"
#include "tests/shell.hpp"
#include "tests/tensors.hpp"
#include "viewer/recorder.hpp"

namespace {

using namespace mt;
using namespace tensors;
namespace fs = std::filesystem;

template <class F>
void in_every_order(F f) {
  for (const auto order : {card::Order::backward, card::Order::shuffled, card::Order::forward}) {
    card::settings.order = order;
    f();
  }
}

TEST_CASE("tensors of two cards do not meet") {
  const Tensor x = tensor({1., 2.});
  CHECK(error_of([&] { return x.to(cuda) * x.to("cuda:1"); }).find("cuda:0 and cuda:1") !=
        std::string::npos);
}

TEST_CASE("the cards can be counted and have names, and one too many is refused") {
  CHECK(cuda_is_available());
  CHECK(device_count() == 2);
  CHECK(device_name() == "stand-in 0");
  CHECK(device_name("cuda:1") == "stand-in 1");
  CHECK(device_name(cpu) == "cpu");
  CHECK(error_of([] { return tensor({1.}).to("cuda:2"); }) ==
        "to: there is no cuda:2: this machine has 2 GPUs, from cuda:0 on at HERE.");
}

TEST_CASE("a machine without a card says so") {
  card::settings.cards = 0;
  CHECK_FALSE(cuda_is_available());
  CHECK(device_count() == 0);
  CHECK(error_of([] { return tensor({1.}).to(cuda); }) ==
        "to: there is no cuda:0: no NVIDIA GPU, or no driver for it, was found here at HERE. Hint: "
        "stay on \"cpu\"; cuda_is_available() asks beforehand");
  CHECK(error_of([] { return zeros({1}, {.device = cuda}); }) ==
        "zeros: there is no cuda:0: no NVIDIA GPU, or no driver for it, was found here at HERE. "
        "Hint: stay on \"cpu\"; cuda_is_available() asks beforehand");
  card::settings.cards = 2;
}

TEST_CASE("without memory the message says how much was asked for and how much is free") {
  const std::size_t in_use = card::bytes_in_use();
  card::settings.memory = in_use + 1000;
  const std::string text = error_of([] { return zeros({1024}, {.device = cuda}); });
  CHECK(text.find("zeros: cuda:0 has no memory for 4096 bytes: 1000 of its " +
                  std::to_string(in_use + 1000) +
                  " bytes are free at HERE. Hint: smaller batches") == 0);
  const Tensor x = zeros({10, 10}, {.device = cuda});
  const Tensor y = zeros({10, 10}, {.device = cuda});
  const auto refuses = [&](const char* op, auto f) {
    CAPTURE(op);
    CHECK(error_of(f).find(std::string(op) + ": cuda:0 has no memory for ") == 0);
  };
  refuses("exp", [&] { return x.exp(); });
  refuses("add", [&] { return x + y; });
  refuses("matmul", [&] { return x.matmul(y); });
  refuses("softmax", [&] { return x.softmax(1); });
  refuses("cat", [&] { return cat({x, y}); });
  refuses("rand", [&] { return rand({100}, {.device = cuda}); });
  refuses("to", [&] { return zeros({100}).to(cuda); });
  refuses("to", [&] { return x.to(float64); });
  refuses("clone", [&] { return x.clone(); });
  refuses("clone", [&] { return x.t().contiguous(); });
  refuses("reshape", [&] { return x.t().reshape({100}); });
  card::settings.memory = std::size_t{1} << 30;
  CHECK(zeros({1024}, {.device = cuda}).sum().item() == 0);
}

TEST_CASE("a card tells its properties, its memory, and the time that it was at work") {
  const DeviceProperties card = device_properties();
  CHECK(card.name == "stand-in 0");
  CHECK(card.multi_processor_count == 1);
  CHECK(card.total_memory == std::int64_t{1} << 30);
  CHECK(device_properties(cpu).name == "cpu");
  const MemoryStatistics before = memory_statistics();
  {
    const Tensor x = zeros({1000}, {.device = cuda});
    const MemoryStatistics now = memory_statistics();
    CHECK(now.allocated == before.allocated + 4000);
    CHECK(now.free == before.free - 4000);
    CHECK(now.total == card.total_memory);
  }
  const MemoryStatistics after = memory_statistics();
  CHECK(after.allocated == before.allocated);
  CHECK(after.max_allocated >= before.allocated + 4000);
  CHECK(memory_statistics("cuda:1").allocated == 0);
  CHECK(memory_statistics(cpu).total == 0);

  const Tensor x = ones({300, 300}, {.device = cuda});
  const std::int64_t launches = card::launches();
  const double short_time = machine(cuda)->time(cuda, [] {});
  const double long_time = machine(cuda)->time(cuda, [&] { static_cast<void>(x.exp()); });
  CHECK(card::launches() == launches + 1);
  CHECK(short_time >= 0);
  CHECK(long_time > short_time);
  synchronize();
  synchronize(cpu);
}

TEST_CASE("what a tensor has taken it gives back") {
  const std::size_t before = card::allocations();
  {
    const Tensor x = rand({50, 60}).to(cuda).detach().requires_grad_();
    (x.t().matmul(x) * 2).softmax(1).sum().backward();
    CHECK(card::allocations() > before);
  }
  CHECK(card::allocations() == before);
}

TEST_CASE("a card without pools of memory takes and gives back as well") {
  const std::string me = fs::read_symlink("/proc/self/exe");
  const shell::Outcome without =
      shell::run("CARD_WITHOUT_POOLS=1 '" + me + "' 'what a tensor has taken*' --warn NoTests");
  INFO(without.out << without.err);
  CHECK(without.exit_code == 0);
}

TEST_CASE("a convolution keeps the columns of a few images at a time, and for 1x1 none") {
  const auto fits_in = [](const Shape& image, const Shape& kernel, std::int64_t room) {
    const Tensor x = ones(image, {.device = cuda, .requires_grad = true});
    const Tensor w = ones(kernel, {.device = cuda, .requires_grad = true});
    const auto limited = [&](std::int64_t results, const auto& f) {
      card::settings.memory = card::bytes_in_use() + static_cast<std::size_t>(4 * results + room);
      const std::string error = error_of(f);
      card::settings.memory = std::size_t{1} << 30;
      return error;
    };
    Tensor y;
    const std::int64_t outputs = conv2d(x, w).numel();
    CHECK(limited(outputs, [&] { return y = conv2d(x, w); }) == "no error");
    const Tensor dy = ones_like(y);
    CHECK(limited(x.numel() + w.numel(), [&] {
            return grad({y}, {x, w}, {.grad_outputs = {dy}})[0];
          }) == "no error");
  };
  // All columns together would take 16 MB.
  fits_in({300, 8, 16, 16}, {4, 8, 3, 3}, 2 << 20);
  fits_in({40, 8, 16, 16}, {4, 8, 1, 1}, 4 * 4 * 8);  // a second gradient of w, to add up
}

TEST_CASE("an operation on nothing launches nothing") {
  const Tensor x = zeros({3, 0}, {.device = cuda});
  const std::int64_t before = card::launches();
  CHECK((x + x).exp().shape() == Shape(3, 0));
  CHECK(x.t().matmul(zeros({3, 0}, {.device = cuda})).shape() == Shape(0, 0));
  CHECK(card::launches() == before);
}

TEST_CASE("random numbers for the card are drawn there") {
  const Tensor x = zeros({30, 40}, {.device = cuda});
  const auto launches_of = [](auto draw) {
    const std::int64_t before = card::launches();
    static_cast<void>(draw());
    return card::launches() - before;
  };
  CHECK(launches_of([] { return rand({30, 40}, {.device = cuda}); }) == 1);
  CHECK(launches_of([] { return randn({30, 40}, {.dtype = float64, .device = cuda}); }) == 1);
  CHECK(launches_of([] { return randint(9, {30, 40}, {.device = cuda}); }) == 1);
  CHECK(launches_of([&] { return x.uniform_(); }) == 2);     // and one that writes them
  CHECK(launches_of([&] { return dropout(x, 0.5); }) == 3);  // where() and a product
}

TEST_CASE("rows are normalized in one kernel where nobody asks how") {
  const Tensor x = rand({30, 40}, {.device = cuda});
  const Tensor leaf = x.detach().requires_grad_();
  const auto launches_of = [](auto compute) {
    const std::int64_t before = card::launches();
    static_cast<void>(compute());
    return card::launches() - before;
  };
  CHECK(launches_of([&] { return x.softmax(1); }) == 1);
  CHECK(launches_of([&] { return x.log_softmax(-1); }) == 1);
  CHECK(launches_of([&] { return layer_norm(x, {40}); }) == 1);
  CHECK(launches_of([&] { return leaf.softmax(1); }) == 5);
  const NoGrad guard;
  CHECK(launches_of([&] { return leaf.softmax(1); }) == 1);
}

TEST_CASE("a step of an optimiser on the card is one kernel for each parameter") {
  const Tensor a = ones({3, 4}, {.device = cuda, .requires_grad = true});
  const Tensor b = ones({5}, {.dtype = float64, .device = cuda, .requires_grad = true});
  a.set_grad(ones_like(a));
  b.set_grad(ones_like(b));
  const auto launches_of = [&](optim::Optimizer& optimizer) {
    optimizer.step();  // the first one makes what is remembered
    const std::int64_t before = card::launches();
    optimizer.step();
    return card::launches() - before;
  };
  optim::SGD plain({a, b}), momentum({a, b}, {.momentum = 0.9, .nesterov = true});
  optim::Adam adam({a, b}), amsgrad({a, b}, {.weight_decay = 0.1, .amsgrad = true});
  optim::AdamW adamw({a, b});
  optim::RMSprop rmsprop({a, b}, {.momentum = 0.5, .centered = true});
  optim::Adagrad adagrad({a, b});
  for (optim::Optimizer* optimizer : std::initializer_list<optim::Optimizer*>{
           &plain, &momentum, &adam, &amsgrad, &adamw, &rmsprop, &adagrad})
    CHECK(launches_of(*optimizer) == 2);
}

TEST_CASE("lesson 18 takes its step on the card as well, and times the three ways to a product") {
  std::ostringstream out;
  std::streambuf* before = std::cout.rdbuf(out.rdbuf());
  const int exit_code =
      lesson::run_lesson(*lesson::find_lesson("18"), {"--brief", "--knob", "largest=32"});
  std::cout.rdbuf(before);
  CHECK(exit_code == 0);
  CAPTURE(out.str());
  for (const char* part :
       {"the two results agree to 1e-5: yes", "to the card (o): 3 points", "back (.): 3 points",
        "processor (o): 3 points", "cuBLAS (.): 3 points", "tiled (x): 3 points",
        "naive (+): 3 points", "cuBLAS and journey (*): 3 points"})
    CHECK(out.str().find(part) != std::string::npos);
}

// What the recorder writes down of the tensors that a program makes.
template <class Program>
std::vector<viewer::Snapshot> snapshots_of(Program program) {
  std::vector<viewer::Snapshot> snapshots;
  viewer::Recorder recorder([&](std::vector<viewer::Record>&& records) {
    for (const viewer::Record& record : records)
      if (const auto* snapshot = std::get_if<viewer::Snapshot>(&record))
        snapshots.push_back(*snapshot);
  });
  Observer* before = observe(&recorder);
  program();
  observe(before);
  return snapshots;
}

TEST_CASE("what a program holds on the card is written down for the viewer") {
  const std::vector<viewer::Snapshot> snapshots = snapshots_of([] {
    const Tensor few = tensor({1., 2.}, {.device = cuda});
    const Tensor many = full({100, 100}, 3, {.device = cuda});
  });
  REQUIRE(snapshots.size() == 2);
  const float expected[] = {1, 2};
  REQUIRE(snapshots[0].bytes.size() == sizeof expected);
  CHECK(std::memcmp(snapshots[0].bytes.data(), expected, sizeof expected) == 0);
  CHECK(snapshots[1].bytes.empty());
  CHECK(snapshots[1].statistics.mean == 3);
}

// ---- What is large on the card is summed up there -----------------------------------------------

// What the recorder writes down of a tensor that it sees alone.
viewer::Snapshot snapshot_of(const Tensor& x) {
  const std::vector<viewer::Snapshot> snapshots = snapshots_of([&] { tell_made(x, Loc::here()); });
  REQUIRE(snapshots.size() == 1);
  return snapshots[0];
}

bool near(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || a == b ||
         std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b));
}

// Sums are taken in another order: 1e-12 in float64. The thumbnail is rounded to float32 after
// that: one place more or less.
void check_same(const viewer::Statistics& there, const viewer::Statistics& here) {
  CHECK(there.nan == here.nan);
  CHECK(there.inf == here.inf);
  CHECK(there.histogram == here.histogram);
  CHECK(near(there.min, here.min));
  CHECK(near(there.max, here.max));
  CHECK(near(there.mean, here.mean));
  CHECK(near(there.std, here.std));
  REQUIRE(there.rows == here.rows);
  REQUIRE(there.columns == here.columns);
  REQUIRE(there.thumbnail.size() == here.thumbnail.size());
  for (std::size_t i = 0; i < here.thumbnail.size(); ++i) {
    const float a = there.thumbnail[i], b = here.thumbnail[i];
    CAPTURE(i, a, b);
    REQUIRE(((std::isnan(a) && std::isnan(b)) || a == b ||
             std::abs(a - b) <= 1.3e-7f * std::max(std::abs(a), std::abs(b))));
  }
}

// Numbers, not in order, some of them below 0: integers, so that every dtype can hold them.
Tensor some_numbers(const Shape& shape) {
  const Tensor i = arange(shape.numel());
  return ((i * 7919).remainder(1009) - 400).reshape(shape);
}

TEST_CASE("the statistics of what is large on the card are those of the same on the processor") {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const Tensor whole = some_numbers({66, 70});
  Tensor odd = whole.to(float32) / 7;
  odd.at({0, 0}).fill_(nan);
  odd.at({3, 9}).fill_(infinity);
  odd.at({65, 69}).fill_(-infinity);
  Tensor few = full({66, 70}, nan);
  few.at({1, 1}).fill_(2.5);
  const double most = std::numeric_limits<double>::max();
  Tensor wide = zeros({5000}, {.dtype = float64});
  wide[0].fill_(most);
  wide[1].fill_(-most);
  const std::vector<std::pair<std::string, Tensor>> storages = {
      {"float32", whole.to(float32) / 7},
      {"float64", whole.to(float64) / 7},
      {"int64", whole * 1234567890123},
      {"bool", whole > 0},
      {"NaN and inf", odd},
      {"NaN and inf in float64", odd.to(float64)},
      {"one finite", few},
      {"none finite", full({66, 70}, infinity)},
      {"all the same", full({66, 70}, 0.1)},
      {"as wide as can be", wide},
      {"a line", some_numbers({4097}).to(float32)},
      {"many axes", some_numbers({3, 5, 7, 50}).to(float64)},
  };
  using Look = Tensor (*)(const Tensor&);
  const std::vector<std::pair<std::string, Look>> looks = {
      {"all", [](const Tensor& x) { return x; }},
      {"turned round", [](const Tensor& x) { return x.dim() < 2 ? x.t() : x.transpose(0, -1); }},
      {"every third", [](const Tensor& x) { return x.slice(-1, 2, {}, 3); }},
      {"the middle", [](const Tensor& x) { return x.slice(0, 1, x.size(0) - 1); }},
      {"a number", [](const Tensor& x) { return x.flatten()[17]; }},
      {"nothing", [](const Tensor& x) { return x.slice(0, 1, 1); }},
      {"repeated",
       [](const Tensor& x) {
         return x[2].expand({70, x[2].size(0)});
       }},
  };
  for (const auto& [storage, x] : storages) {
    const Tensor on_card = x.to(cuda);
    for (const auto& [name, look] : looks) {
      if (name == "repeated" && x.dim() != 2) continue;
      CAPTURE(storage, name);
      const viewer::Snapshot here = snapshot_of(look(x)), there = snapshot_of(look(on_card));
      REQUIRE_FALSE(there.in_full());
      CHECK(there.count == here.count);
      check_same(there.statistics, here.statistics);
    }
  }
}

TEST_CASE("of what is large on the card only the numbers and the thumbnail come home") {
  const Tensor few = some_numbers({4096}).to(float32).to(cuda);
  std::int64_t before = card::bytes_home();
  CHECK(snapshot_of(few).bytes.size() == 4 * 4096);
  CHECK(card::bytes_home() - before == 4 * 4096);

  // NaN, inf, how many are finite, min, max, mean, squares, and how many are in each bin but the
  // first or beyond.
  const std::int64_t numbers = 8 * (7 + 31);
  for (const Shape& shape : {Shape(4097), Shape(241, 17), Shape(100, 200)}) {
    CAPTURE(to_string(shape));
    const Tensor many = some_numbers(shape).to(float32).to(cuda);
    before = card::bytes_home();
    const viewer::Snapshot snapshot = snapshot_of(many);
    CHECK_FALSE(snapshot.in_full());
    CHECK(card::bytes_home() - before ==
          numbers + 4 * snapshot.statistics.rows * snapshot.statistics.columns);
  }
}

TEST_CASE("where the card has no memory for statistics, the elements come home") {
  const Tensor x = some_numbers({100, 100}).to(float32), on_card = x.to(cuda);
  const std::int64_t before = card::bytes_home();
  card::settings.memory = card::bytes_in_use() + 1000;
  const viewer::Snapshot there = snapshot_of(on_card);
  card::settings.memory = card::Settings().memory;
  CHECK(card::bytes_home() - before == 4 * x.numel());
  check_same(there.statistics, snapshot_of(x).statistics);
}

// Counts the launches and the operations of the program, and leaves out those of the recorder.
class Counting : public viewer::Recorder {
 public:
  Counting() : Recorder([](std::vector<viewer::Record>&&) {}) {}
  void made(const Tensor& x, Loc line) override {
    count([&] { Recorder::made(x, line); });
  }
  void op(const Node* node, const Facts& facts, const Given& given, Span<const Tensor*> inputs,
          Span<Tensor> outputs, Loc line) override {
    ++operations;
    count([&] { Recorder::op(node, facts, given, inputs, outputs, line); });
  }
  void wrote(const Tensor& x, std::int64_t version, const char* by, const Node* node,
             Loc line) override {
    count([&] { Recorder::wrote(x, version, by, node, line); });
  }
  std::int64_t launches = 0, operations = 0;

 private:
  template <class F>
  void count(F f) {
    const std::int64_t before = card::launches();
    f();
    launches += card::launches() - before;
  }
};

TEST_CASE("a program on the card that is watched does what it does unwatched") {
  struct Seen {
    Values weights, noise;
    std::int64_t launches, version;
    std::string line;
  };
  const auto run = [](Device device) {
    manual_seed(3);
    const std::int64_t before = card::launches();
    const Tensor w = randn({80, 60}, {.device = device, .requires_grad = true});
    const Tensor y = (w.t() * 2).exp().sum();
    {
      const NoGrad guard;
      w.mul_(0.5);
    }
    const Tensor noise = rand({70, 70}, {.device = device});
    return Seen{values(w), values(noise), card::launches() - before, w.version(),
                current.last_line.path() + std::to_string(current.last_line.line())};
  };
  const std::int64_t nodes = live_nodes();
  const Seen unwatched = run(cuda);
  Counting counting, on_processor;
  Observer* before = observe(&counting);
  const Seen watched = run(cuda);
  observe(&on_processor);
  static_cast<void>(run(cpu));
  observe(before);
  CHECK(watched.weights == unwatched.weights);
  CHECK(watched.noise == unwatched.noise);
  CHECK(watched.version == unwatched.version);
  CHECK(watched.line == unwatched.line);
  CHECK(counting.launches > 0);
  CHECK(watched.launches - counting.launches == unwatched.launches);
  CHECK(counting.operations == on_processor.operations);
  CHECK(live_nodes() == nodes);
}

// ---- The stand-in can fail ----------------------------------------------------------------------
//
// A test is worth what it catches: here are kernels with a fault each.

// What a child process that runs f writes to stderr before it dies; "lived" if it does not.
std::string death_of(const std::function<void()>& f) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    f();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "lived" : text;
}

template <class... P>
cudaError_t start(void (*kernel)(P...), dim3 grid, dim3 block,
                  std::type_identity_t<P>... arguments) {
  void* addresses[] = {&arguments...};
  return cudaLaunchKernel(kernel, grid, block, addresses, 0, nullptr);
}

__global__ void write_all(float* y, int n, int beyond) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n + beyond) y[i] = static_cast<float>(i);
}

TEST_CASE("a write beyond an allocation is caught, and so is one where the other machine's lie") {
#if defined(__SANITIZE_ADDRESS__)
  const Tensor x = zeros({100}), y = x.to(cuda);
  float* data = as<float>(y.elements().data);
  CHECK(death_of([&] { start(write_all, 2, 64, data, 100, 0); }) == "lived");
  CHECK(death_of([&] { start(write_all, 2, 64, data, 100, 1); }).find("AddressSanitizer") !=
        std::string::npos);
  CHECK(death_of([&] { data[3] = 1; }).find("AddressSanitizer") != std::string::npos);
  float* here = as<float>(x.elements().data);
  CHECK(death_of([&] { here[3] = 1; }) == "lived");
  CHECK(death_of([&] { start(write_all, 2, 64, here, 100, 0); }).find("AddressSanitizer") !=
        std::string::npos);
#else
  std::cout << "skipped: the address sanitizer is off\n";
#endif
}

TEST_CASE("an element that nobody has written shows, and so does a grid that is too small") {
  const Tensor y = empty({100}, {.device = cuda});
  start(write_all, 1, 64, as<float>(y.elements().data), 100, 0);
  CHECK(difference(y.cpu(), arange(100).to(float32)).find("element 64 is") == 0);
  CHECK(start(write_all, 0, 64, nullptr, 100, 0) == cudaErrorInvalidConfiguration);
  CHECK(start(write_all, 1, 1025, nullptr, 100, 0) == cudaErrorInvalidConfiguration);
  cudaGetLastError();
}

template <bool barrier>
__global__ void turn_round(float* y) {
  __shared__ float line[64];
  line[threadIdx.x] = static_cast<float>(threadIdx.x + 64 * blockIdx.x);
  if (barrier) __syncthreads();
  y[threadIdx.x + 64 * blockIdx.x] = line[63 - threadIdx.x];
  if (barrier) __syncthreads();
}

TEST_CASE("a barrier that is missing changes the result with the order of the threads") {
  const auto results = [](void (*kernel)(float*)) {
    std::set<Values> found;
    in_every_order([&] {
      const Tensor y = zeros({128}, {.device = cuda});
      start(kernel, 2, 64, as<float>(y.elements().data));
      found.insert(values(y));
    });
    return found.size();
  };
  CHECK(results(turn_round<true>) == 1);
  CHECK(results(turn_round<false>) > 1);
}

__global__ void wait_by_halves(int how) {
  if (how == 0 && threadIdx.x < 5) return;
  if (how == 1 && threadIdx.x < 5) __syncthreads();
  if (how == 2 && threadIdx.x >= 5) __shfl_down_sync(0xffffffffu, 1, 1);
  __syncthreads();
}

TEST_CASE("a barrier that not all threads reach is reported, with the places") {
  CHECK(start(wait_by_halves, 1, 64, 3) == cudaSuccess);
  for (const int how : {0, 1, 2}) {
    CAPTURE(how);
    const cudaError_t error = start(wait_by_halves, 1, 64, how);
    CHECK(error == cudaErrorLaunchFailure);
    const std::string text = cudaGetErrorString(error);
    CHECK(text.find("not all threads of a block come to the same place") == 0);
    CHECK(text.find("test_cuda_card.cpp:") != std::string::npos);
    cudaGetLastError();
  }
  CHECK(start(wait_by_halves, 1, 64, 3) == cudaSuccess);  // and the card goes on
}

}  // namespace
