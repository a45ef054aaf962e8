// The stand-in's card: its memory, and its threads, which are fibers that take turns.
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "cuda_runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes) (static_cast<void>(data), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) ASAN_POISON_MEMORY_REGION(data, bytes)
#endif

// ---- Switching stacks ---------------------------------------------------------------------------
//
// A context is what a function may expect to find again after a call: the registers that are its
// own, and the stack. ucontext does that everywhere, with two calls of the system each time, which
// takes as long as the whole kernel does; so here are the few instructions for the most common
// processor.

#if defined(__x86_64__)
struct Context {
  void* stack_pointer = nullptr;
};
extern "C" void card_switch(void** from, void* to);
asm(R"(
  .text
  .globl card_switch
  .type card_switch, @function
card_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size card_switch, . - card_switch
  .section .note.GNU-stack, "", @progbits
  .text
)");
static void switch_context(Context& from, Context& to) {
  card_switch(&from.stack_pointer, to.stack_pointer);
}
static void prepare(Context& context, char* stack, std::size_t bytes, void (*begin)()) {
  auto top = reinterpret_cast<std::uintptr_t>(stack + bytes) & ~std::uintptr_t{15};
  auto* words = reinterpret_cast<std::uintptr_t*>(top) - 2;  // nobody returns to the last one
  words[0] = reinterpret_cast<std::uintptr_t>(begin);
  words[1] = 0;
  for (int i = 1; i <= 6; ++i) words[-i] = 0;
  context.stack_pointer = words - 6;
}
#else
using Context = ucontext_t;
static void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }
static void prepare(Context& context, char* stack, std::size_t bytes, void (*begin)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, begin, 0);
}
#endif

namespace {

// ---- Memory -------------------------------------------------------------------------------------

struct Allocation {
  std::size_t bytes;
  int card;
  bool from_pool;
};
std::map<void*, Allocation> memory;
std::map<int, std::size_t> most_in_use;  // of each card
int chosen_card = 0;
cudaError_t last_error = cudaSuccess;
std::string last_text;
int open = 0;

cudaError_t failed(cudaError_t error, const std::string& text = "") {
  last_text = text;
  return last_error = error;
}

void show(void* data, std::size_t bytes, bool visible) {
  if (visible)
    ASAN_UNPOISON_MEMORY_REGION(data, bytes);
  else
    ASAN_POISON_MEMORY_REGION(data, bytes);
}
void show(bool visible) {
  for (const auto& [data, allocation] : memory) show(data, allocation.bytes, visible);
}

// The processor's elements, and how many bytes they are. (It lives for ever: a tensor in a static
// variable may come before it and go after it.)
struct Elements {
  std::mutex guard;
  std::map<void*, std::size_t> blocks;
};
Elements& of_processor() {
  static auto& elements = *new Elements;
  return elements;
}
// While a kernel runs, they are closed.
class Closed {
 public:
  Closed() { show_all(false); }
  ~Closed() { show_all(true); }
  Closed(const Closed&) = delete;
  Closed& operator=(const Closed&) = delete;

 private:
  static void show_all(bool visible) {
    const std::lock_guard guard(of_processor().guard);
    for (const auto& [data, bytes] : of_processor().blocks) show(data, bytes, visible);
  }
};

std::size_t in_use(int card) {
  std::size_t bytes = 0;
  for (const auto& [data, allocation] : memory)
    if (allocation.card == card) bytes += allocation.bytes;
  return bytes;
}

constexpr int no_card = -1;
int card_of(const void* place) {
  for (const auto& [data, allocation] : memory)
    if (place >= data && place < static_cast<const char*>(data) + allocation.bytes)
      return allocation.card;
  return no_card;
}

cudaError_t allocate(void** data, std::size_t bytes, bool from_pool) {
  if (chosen_card >= card::settings.cards) return failed(cudaErrorNoDevice);
  if (from_pool && !card::settings.pools) return failed(cudaErrorInvalidValue, "no pool");
  if (bytes > card::settings.memory || in_use(chosen_card) > card::settings.memory - bytes)
    return failed(cudaErrorMemoryAllocation);
  if (posix_memalign(data, 256, bytes) != 0) return failed(cudaErrorMemoryAllocation);
  std::memset(*data, 0xff, bytes);
  memory[*data] = {bytes, chosen_card, from_pool};
  most_in_use[chosen_card] = std::max(most_in_use[chosen_card], in_use(chosen_card));
  if (open == 0) ASAN_POISON_MEMORY_REGION(*data, bytes);
  return cudaSuccess;
}

cudaError_t release(void* data, bool to_pool) {
  const auto found = memory.find(data);
  if (found == memory.end()) return failed(cudaErrorInvalidValue, "this is no allocation");
  if (found->second.from_pool != to_pool)
    return failed(cudaErrorInvalidValue, "allocated in one way and released in the other");
  ASAN_UNPOISON_MEMORY_REGION(data, found->second.bytes);
  memory.erase(found);
  std::free(data);
  return cudaSuccess;
}

// ---- Fibers -------------------------------------------------------------------------------------

enum class State { new_, ready, at_barrier, at_shuffle, ended };

struct Thread {
  State state = State::new_;
  const char* file = "";
  int line = 0;
  unsigned mask = 0;
  struct Fiber* fiber = nullptr;
  int shuffles = 0;  // so far; each second one uses the other row of `handed`
};

constexpr std::size_t stack_bytes = 256 << 10;

struct Fiber {
  Fiber();
  std::unique_ptr<char[]> stack{new char[stack_bytes]};
  Context context;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

struct Block {
  dim3 size;
  std::vector<Thread> threads;
  std::vector<std::uint64_t> handed[2];
  std::vector<std::size_t> order;
  std::size_t started = 0;  // threads, in that order
  const std::function<void()>* body = nullptr;
};

std::vector<std::unique_ptr<Fiber>> fibers;  // all there are
std::vector<Fiber*> idle;
Block block;
std::size_t now = 0;  // the thread that runs
Fiber* running = nullptr;
Context host;
void* host_fake_stack = nullptr;
const void* host_stack = nullptr;
std::size_t host_stack_bytes = 0;
std::int64_t launched = 0;
std::int64_t brought_home = 0;

void become(std::size_t thread) {
  now = thread;
  const auto i = static_cast<unsigned>(thread);
  threadIdx =
      dim3(i % block.size.x, i / block.size.x % block.size.y, i / (block.size.x * block.size.y));
}

void switch_to([[maybe_unused]] Fiber& fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&host_fake_stack, fiber.stack.get(), stack_bytes);
#endif
  running = &fiber;
  switch_context(host, fiber.context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(host_fake_stack, nullptr, nullptr);
#endif
}

void switch_to_host() {
  Fiber& me = *running;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&me.fake_stack, host_stack, host_stack_bytes);
#endif
  switch_context(me.context, host);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(me.fake_stack, &host_stack, &host_stack_bytes);
#endif
}

// A fiber runs one thread after the other. Only one that has to wait keeps its fiber.
void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &host_stack, &host_stack_bytes);
#endif
  for (;;) {
    while (block.started < block.order.size()) {
      become(block.order[block.started++]);
      block.threads[now].fiber = running;
      block.threads[now].state = State::ready;
      (*block.body)();
      block.threads[now].state = State::ended;
    }
    idle.push_back(running);
    switch_to_host();
  }
}

Fiber::Fiber() { prepare(context, stack.get(), stack_bytes, fiber_main); }

void wait(State state, const char* file, int line) {
  Thread& me = block.threads[now];
  me.state = state;
  me.file = file;
  me.line = line;
  const std::size_t thread = now;
  switch_to_host();
  become(thread);
}

std::string place_of(std::size_t thread) {
  const Thread& t = block.threads[thread];
  std::string text = "thread " + std::to_string(thread);
  if (t.state == State::ended) return text + " has ended";
  std::string file = t.file;
  return text +
         (t.state == State::at_barrier ? " waits at the barrier " : " waits at the shuffle ") +
         file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(t.line);
}

// Do these threads wait at one and the same place?
bool together(std::size_t begin, std::size_t end, State state) {
  const Thread& first = block.threads[begin];
  for (std::size_t i = begin; i < end; ++i) {
    const Thread& t = block.threads[i];
    if (t.state != state || t.line != first.line || std::strcmp(t.file, first.file) != 0)
      return false;
  }
  return true;
}

// Lets those go on that have waited for each other; false if there are none.
bool let_go() {
  const std::size_t count = block.threads.size();
  std::vector<bool> free(count, false);
  if (together(0, count, State::at_barrier)) free.assign(count, true);
  for (std::size_t warp = 0; warp + 32 <= count; warp += 32)
    if (together(warp, warp + 32, State::at_shuffle))
      for (std::size_t i = warp; i < warp + 32; ++i) free[i] = true;
  bool any = false;
  for (std::size_t thread : block.order) {
    if (!free[thread]) continue;
    any = true;
    block.threads[thread].state = State::ready;
    switch_to(*block.threads[thread].fiber);
  }
  return any;
}

cudaError_t run_block() {
  while (block.started < block.order.size()) {
    if (idle.empty()) {
      fibers.push_back(std::make_unique<Fiber>());
      idle.push_back(fibers.back().get());
    }
    Fiber& fiber = *idle.back();
    idle.pop_back();
    switch_to(fiber);
  }
  while (let_go()) {
  }
  std::size_t waiting = block.threads.size();
  for (std::size_t i = 0; i < block.threads.size() && waiting == block.threads.size(); ++i)
    if (block.threads[i].state != State::ended) waiting = i;
  if (waiting == block.threads.size()) return cudaSuccess;
  std::string text = "not all threads of a block come to the same place: " + place_of(waiting);
  for (std::size_t i = 0; i < block.threads.size(); ++i)
    if (place_of(i).substr(place_of(i).find(' ', 7)) !=
        place_of(waiting).substr(place_of(waiting).find(' ', 7))) {
      text += ", " + place_of(i);
      break;
    }
  fibers.clear();  // with whatever is on their stacks
  idle.clear();
  return failed(cudaErrorLaunchFailure, text);
}

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  if (card::settings.order == card::Order::backward) std::reverse(order.begin(), order.end());
  if (card::settings.order == card::Order::shuffled)
    std::shuffle(order.begin(), order.end(), std::minstd_rand(7));
  return order;
}

}  // namespace

namespace card {

std::size_t allocations() { return memory.size(); }
std::int64_t launches() { return launched; }
std::int64_t bytes_home() { return brought_home; }
std::size_t bytes_in_use() { return in_use(chosen_card); }

Open::Open() {
  if (open++ == 0) show(true);
}
Open::~Open() {
  if (--open == 0) show(false);
}

int run(Size grid, Size size, const std::function<void()>& thread) {
  const std::size_t blocks = std::size_t{grid[0]} * grid[1] * grid[2];
  const std::size_t threads = std::size_t{size[0]} * size[1] * size[2];
  if (blocks == 0 || threads == 0 || threads > 1024 || grid[1] > 65535 || grid[2] > 65535 ||
      grid[0] > 0x7fffffff)
    return failed(cudaErrorInvalidConfiguration);
  if (chosen_card >= settings.cards) return failed(cudaErrorInvalidDevice);
  ++launched;
  const Open access;
  const Closed processor;
  gridDim = dim3(grid[0], grid[1], grid[2]);
  blockDim = block.size = dim3(size[0], size[1], size[2]);
  block.body = &thread;
  block.order = in_order(threads);
  for (const std::size_t i : in_order(blocks)) {
    const auto number = static_cast<unsigned>(i);
    blockIdx = dim3(number % grid[0], number / grid[0] % grid[1], number / (grid[0] * grid[1]));
    block.threads.assign(threads, {});
    for (auto& row : block.handed) row.assign(threads, 0);
    block.started = 0;
    if (const cudaError_t error = run_block()) return error;
  }
  return cudaSuccess;
}

void wait_for_block(const char* file, int line) { wait(State::at_barrier, file, line); }

std::uint64_t shuffle(std::uint64_t value, unsigned lane, const char* file, int line) {
  auto& row = block.handed[block.threads[now].shuffles++ % 2];
  row[now] = value;
  wait(State::at_shuffle, file, line);
  return lane < 32 ? row[now / 32 * 32 + lane] : value;
}

}  // namespace card

// The header asks aligned_alloc for elements, and nothing else does. The linker's option --wrap
// leads these calls to here.
extern "C" {
void* __real_aligned_alloc(std::size_t alignment, std::size_t bytes);
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t bytes);
void __real_free(void* data);
void __wrap_free(void* data);

void* __wrap_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  void* const data = __real_aligned_alloc(alignment, bytes);
  const std::lock_guard guard(of_processor().guard);
  if (data) of_processor().blocks[data] = bytes;
  return data;
}
void __wrap_free(void* data) {
  {
    const std::lock_guard guard(of_processor().guard);
    of_processor().blocks.erase(data);
  }
  __real_free(data);
}
}

// ---- The library --------------------------------------------------------------------------------

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  constexpr const char* names[] = {"cudaSuccess",
                                   "cudaErrorInvalidValue",
                                   "cudaErrorMemoryAllocation",
                                   "cudaErrorInvalidConfiguration",
                                   "cudaErrorNoDevice",
                                   "cudaErrorInvalidDevice",
                                   "cudaErrorLaunchFailure"};
  return names[error];
}
const char* cudaGetErrorString(cudaError_t error) {
  return last_text.empty() ? cudaGetErrorName(error) : last_text.c_str();
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = card::settings.cards;
  return card::settings.cards > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (device >= card::settings.cards) return failed(cudaErrorInvalidDevice);
  chosen_card = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device >= card::settings.cards) return failed(cudaErrorInvalidDevice);
  std::snprintf(properties->name, sizeof properties->name, "stand-in %d", device);
  properties->totalGlobalMem = card::settings.memory;
  properties->major = properties->minor = 0;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = card::settings.pools;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = reinterpret_cast<cudaMemPool_t>(&memory);  // some address
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
  const bool most = attribute == cudaMemPoolAttrUsedMemHigh;
  *static_cast<std::uint64_t*>(value) = most ? most_in_use[chosen_card] : in_use(chosen_card);
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

using Clock = std::chrono::steady_clock;
struct cudaEvent {
  Clock::time_point time;
  bool recorded = false;
};
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new cudaEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *event = {Clock::now(), true};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event->recorded ? cudaSuccess : failed(cudaErrorInvalidValue, "it was not recorded");
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->recorded || !end->recorded)
    return cudaEventSynchronize(begin->recorded ? end : begin);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) { return allocate(data, bytes, false); }
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t) {
  return allocate(data, bytes, true);
}
cudaError_t cudaFree(void* data) { return release(data, false); }
cudaError_t cudaFreeAsync(void* data, cudaStream_t) { return release(data, true); }
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = card::settings.memory;
  *free = *total - in_use(chosen_card);
  return cudaSuccess;
}
// What lies in a pool must be the chosen card's; from one card to another goes cudaMemcpyPeer.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  const int to_card = card_of(to), from_card = card_of(from);
  for (const int card : {to_card, from_card})
    if (card != no_card && card != chosen_card)
      return failed(cudaErrorInvalidValue, "the elements of another card");
  const card::Open access;
  std::memcpy(to, from, bytes);
  if (to_card == no_card) brought_home += static_cast<std::int64_t>(bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeer(void* to, int to_card, const void* from, int from_card,
                           std::size_t bytes) {
  if (card_of(to) != to_card || card_of(from) != from_card)
    return failed(cudaErrorInvalidValue, "this is not that card's");
  const card::Open access;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
