// minitensor on an NVIDIA GPU: the verbs of chapter 7 once more, for a graphics card. MIT licence.
//
//     cmake -B build -D MINITENSOR_CUDA=ON && cmake --build build      (all of it), or
//     nvcc -arch=native -std=c++20 --expt-relaxed-constexpr -diag-suppress 2810 prog.cpp
//       kernels.cu -lcublas
//
// Whoever links this file has the device `cuda`. It defines one Machine (at the end) and tells the
// header where it is; nobody includes it.
//
// A card has thousands of slow processors instead of a few fast ones. What they run is a *kernel*,
// a function marked __global__, and each of its *threads* runs it with a number of its own: thread
// i of an addition adds element i. Threads come in groups, because some things are cheap only among
// neighbours:
//
//     warp     32 threads that take every step together. They can hand values to each other
//              (a shuffle), and when they read 32 numbers that lie side by side, that is one read.
//     block    up to 1024 threads on one piece of the card, with a little fast memory that they
//              share (__shared__). __syncthreads() waits until all of them have come there.
//     grid     all blocks of a launch. They run in any order and cannot wait for each other.
//
// The processor only orders: a launch returns at once, and the card works through its orders one
// after the other. It waits when it wants to see a number (a copy to the processor).
//
// A kernel cannot throw. So everything is checked before a launch, and what CUDA itself has to
// complain about is thrown as an Error where it is noticed.

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include "minitensor.hpp"

namespace minitensor::on_cuda {

// ---- Asking CUDA --------------------------------------------------------------------------------

inline void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // reported now; without this the next call would report it again
  throw Error(std::string("CUDA failed to ") + what + ": " + cudaGetErrorString(result) + " (" +
              cudaGetErrorName(result) + ")");
}
inline void check(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  throw Error(std::string("cuBLAS failed to ") + what + ": " + cublasGetStatusString(result));
}

inline int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver is no error: there is no card, then
  return 0;
}

// What follows is for this card.
inline void use(Device device) { check(cudaSetDevice(device.index), "turn to a card"); }

inline void check_exists(Device device) {
  const int count = device_count();
  if (device.index < count) return;
  if (count == 0)
    throw Error("there is no " + device.text() +
                ": no NVIDIA GPU, or no driver for it, was found on this machine. Hint: stay on "
                "\"cpu\"; cuda_is_available() asks beforehand");
  throw Error("there is no " + device.text() + ": this machine has " + std::to_string(count) +
              (count == 1 ? " GPU, cuda:0" : " GPUs, from cuda:0 on"));
}

inline DeviceProperties properties(Device device) {
  check_exists(device);
  cudaDeviceProp card;
  check(cudaGetDeviceProperties(&card, device.index), "ask for a card's properties");
  return {card.name, card.major, card.minor, card.multiProcessorCount,
          static_cast<std::int64_t>(card.totalGlobalMem)};
}

inline void synchronize(Device device) {
  use(device);
  check(cudaDeviceSynchronize(), "finish its work");
}

// An order to note the time.
class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "make an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() { check(cudaEventRecord(event_, nullptr), "record an event"); }
  double microseconds_since(const Event& first) {
    float milliseconds = 0;
    check(cudaEventSynchronize(event_), "come to an event");
    check(cudaEventElapsedTime(&milliseconds, first.event_, event_), "tell the time");
    return milliseconds * 1e3;
  }

 private:
  cudaEvent_t event_;
};

inline double time(Device device, const Callback<void()>& work) {
  use(device);
  Event begin, end;
  begin.record();
  work();
  use(device);  // who knows where work has been
  end.record();
  return end.microseconds_since(begin);
}

// ---- Memory -------------------------------------------------------------------------------------
//
// cudaMalloc stops the whole card. cudaMallocAsync takes memory from a pool of the driver, in the
// order of the work: what one kernel has given back, the next may have. The pool keeps what it was
// given, as chapter 7's lists do. Not every card has one (null).
//
// The list of pools has no destructor: a tensor in a static variable may outlive what has one.

constexpr int most_cards = 10;  // "cuda:0" to "cuda:9"

inline cudaMemPool_t pool_of(Device device) {
  static const auto pools = [] {
    std::array<cudaMemPool_t, most_cards> found = {};
    for (int card = 0; card < std::min(device_count(), most_cards); ++card) {
      int supported = 0;
      check(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, card),
            "ask for a pool of memory");
      if (!supported) continue;
      std::uint64_t everything = ~std::uint64_t{0};
      check(cudaDeviceGetDefaultMemPool(&found[card], card), "find its pool of memory");
      check(cudaMemPoolSetAttribute(found[card], cudaMemPoolAttrReleaseThreshold, &everything),
            "keep memory in the pool");
    }
    return found;
  }();
  return pools[device.index];
}

inline MemoryStatistics memory(Device device) {
  check_exists(device);
  use(device);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "ask for its free memory");
  const auto of_pool = [pool = pool_of(device)](cudaMemPoolAttr which) {
    std::uint64_t bytes = 0;
    if (pool) check(cudaMemPoolGetAttribute(pool, which, &bytes), "ask its pool of memory");
    return static_cast<std::int64_t>(bytes);
  };
  return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total),
          of_pool(cudaMemPoolAttrUsedMemCurrent), of_pool(cudaMemPoolAttrUsedMemHigh),
          of_pool(cudaMemPoolAttrReservedMemCurrent)};
}

inline std::byte* allocate(Device device, std::int64_t bytes) {
  check_exists(device);
  use(device);
  if (bytes == 0) return nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  const cudaMemPool_t pool = pool_of(device);
  for (const bool again : {false, true}) {
    if (again) minitensor::synchronize(device);  // what waits to be given back may be enough
    if (again && pool) check(cudaMemPoolTrimTo(pool, 0), "empty its pool of memory");
    void* data = nullptr;
    const cudaError_t result =
        pool ? cudaMallocAsync(&data, size, nullptr) : cudaMalloc(&data, size);
    if (result == cudaSuccess) return static_cast<std::byte*>(data);
    if (result != cudaErrorMemoryAllocation) check(result, "allocate memory");
    cudaGetLastError();
  }
  const MemoryStatistics now = memory(device);
  throw Error(device.text() + " has no memory for " + std::to_string(bytes) +
              " bytes: " + std::to_string(now.free) + " of its " + std::to_string(now.total) +
              " bytes are free");
}

// Called from destructors, which cannot throw: if something is wrong with the card, the next verb
// will hear of it. (At the end of a program CUDA may be gone before the last tensor.)
inline void release(Device device, std::byte* data) {
  if (!data || cudaSetDevice(device.index) != cudaSuccess) return;
  static_cast<void>(pool_of(device) ? cudaFreeAsync(data, nullptr) : cudaFree(data));
}

// Memory for the length of a verb.
inline View temporary(const Shape& shape, DType dtype, Device device, Ref<Storage>& memory) {
  memory = Storage::make(shape.numel() * bytes_of(dtype), device);
  return {memory->data, dtype, shape, contiguous_strides(shape), device};
}

// ---- Launching ----------------------------------------------------------------------------------

// kernel<<<grid, block>>>(arguments...), as a function: any C++ compiler can read it.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block,
            std::type_identity_t<Parameters>... arguments) {
  void* addresses[] = {&arguments...};
  check(cudaLaunchKernel(kernel, grid, block, addresses, 0, nullptr), "launch a kernel");
}

std::int64_t most_blocks = 65535;  // of a launch; tests make it smaller

// As many blocks as n things need, but not without end: a thread takes on more than one thing then.
inline unsigned blocks_for(std::int64_t n, std::int64_t per_block) {
  return static_cast<unsigned>(std::min((n + per_block - 1) / per_block, most_blocks));
}

// Calls f(i) for each i below n that falls to this thread: neighbours take neighbours.
template <class F>
__device__ void for_this_thread(std::int64_t n, F f) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    f(i);
}
// The same where each row of a block's threads takes one together.
template <class F>
__device__ void for_this_row(std::int64_t n, F f) {
  const std::int64_t rows = std::int64_t{gridDim.x} * blockDim.y;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y; i < n; i += rows) f(i);
}

// ---- Places -------------------------------------------------------------------------------------
//
// On the card nobody turns an odometer: thread i asks where element i lies. The walk of chapter 5
// still helps. It has put the axes in the order of memory and merged those that follow each other,
// so what is contiguous, or contiguous beside a single number, has one axis and needs no division.

struct Places {
  Walk walk;
  std::int64_t n = walk.numel();
  bool small = false;  // 32 bits are enough to count; divisions are three times as fast then
  // A number written in the code is in the processor's memory, where the card cannot reach it. It
  // travels with the launch.
  alignas(8) std::byte number[Walk::most_views][8] = {};
};

std::int64_t largest_small = std::numeric_limits<std::int32_t>::max();  // tests make it smaller

inline bool is_number(const View& view) {
  for (int i = 0; i < view.shape.size(); ++i)
    if (view.shape[i] != 1 && view.strides[i] != 0) return false;
  return view.device == cpu && view.shape.numel() > 0;
}

inline Places places_of(std::initializer_list<const View*> views, int order_by = 0) {
  Places places{Walk(views, order_by)};
  places.small = places.n <= largest_small;
  const Device device = (*views.begin())->device;
  use(device);
  int v = 0;
  for (const View* view : views) {
    if (is_number(*view)) {
      std::memcpy(places.number[v], view->data, static_cast<std::size_t>(bytes_of(view->dtype)));
      places.walk.data[v] = nullptr;
    } else if (view->device != device && places.n > 0) {
      throw Error("elements of " + view->device.text() + " in the midst of work on " +
                  device.text() + ". Hint: move them with .to(\"" + device.text() + "\")");
    }
    ++v;
  }
  return places;
}

template <class Index, int views>
__host__ __device__ void step_to(const Walk& walk, Index i, std::byte* (&at)[views]) {
  for (int axis = walk.axes - 1; axis > 0; --axis) {
    const Index size = static_cast<Index>(walk.sizes[axis]), above = i / size;
    const auto digit = static_cast<std::int64_t>(i - above * size);
    for (int v = 0; v < views; ++v) at[v] += digit * walk.steps[axis][v];
    i = above;
  }
  if (walk.axes > 0)
    for (int v = 0; v < views; ++v) at[v] += static_cast<std::int64_t>(i) * walk.steps[0][v];
}

// Where element i of each view lies.
template <int views>
__host__ __device__ void find(const Places& places, std::int64_t i, std::byte* (&at)[views]) {
  for (int v = 0; v < views; ++v) {
    at[v] = places.walk.data[v];
    if (!at[v]) at[v] = const_cast<std::byte*>(places.number[v]);
  }
  if (places.small)
    step_to(places.walk, static_cast<std::uint32_t>(i), at);
  else
    step_to(places.walk, static_cast<std::uint64_t>(i), at);
}

template <class T>
__device__ T& element(std::byte* at) {
  return *reinterpret_cast<T*>(at);
}

// ---- Element by element -------------------------------------------------------------------------

// The kernel of all that is done element by element. What is done is the body; it gets to know
// where element i of each view lies. (__grid_constant__: nobody changes the parameter, so nobody
// needs a copy.)
template <class Body>
__global__ void each(const __grid_constant__ Places places, const Body body) {
  for_this_thread(places.n, [&](std::int64_t i) {
    std::byte* at[Body::views];
    find(places, i, at);
    body(at, i);
  });
}

// A thread can fetch 16 bytes at once, where they lie side by side and begin at a multiple of 16.
// So where everything is dense, a thread takes that many bytes of elements, a pack.
template <class Body>
__global__ void each_pack(const __grid_constant__ Places places, const Body body) {
  for_this_thread(places.n / Body::pack, [&](std::int64_t i) {
    std::byte* at[Body::views];
    find(places, i * Body::pack, at);
    body.of_pack(at, places.walk.steps[0]);
  });
}
// Beside what is dense there may be single numbers.
inline bool lies_in_packs(const Places& places, int pack) {
  const Walk& walk = places.walk;
  bool fits = walk.axes == 1 && walk.steps[0][0] != 0 && places.n % pack == 0;
  for (int v = 0; fits && v < walk.views; ++v) {
    const auto begin = reinterpret_cast<std::uintptr_t>(walk.data[v]);
    const auto bytes = static_cast<std::uintptr_t>(pack * walk.bytes[v]);
    const bool dense = walk.steps[0][v] == walk.bytes[v] && begin % bytes == 0;
    fits = dense || walk.steps[0][v] == 0;
  }
  return fits;
}

template <class Body>
void for_each(std::initializer_list<const View*> views, const Body& body = {}) {
  const Places places = places_of(views);
  if (places.n == 0) return;
  if constexpr (requires { Body::pack; })
    if (lies_in_packs(places, Body::pack))
      return launch(each_pack<Body>, blocks_for(places.n, 256 * Body::pack), 256, places, body);
  launch(each<Body>, blocks_for(places.n, 256), 256, places, body);
}

// y = F(a, ..): one body for every formula.
template <class F, class Y, class... A>
struct Elementwise {
  static constexpr int views = 1 + sizeof...(A);
  static constexpr int pack = 16 / static_cast<int>(std::max({sizeof(Y), sizeof(A)...}));
  template <class T>
  struct alignas(pack * sizeof(T)) Pack {
    T of[pack];
  };
  template <class>
  using ViewOf = View;

  static void run(const View& y, const ViewOf<A>&... a) { for_each<Elementwise>({&y, &a...}); }

  __device__ void operator()(std::byte* const* at, std::int64_t) const {
    [&]<std::size_t... v>(std::index_sequence<v...>) {
      element<Y>(at[0]) = F::of(element<A>(at[v + 1])...);
    }
    (std::index_sequence_for<A...>());
  }
  __device__ void of_pack(std::byte* const* at, const std::int64_t* steps) const {
    [&]<std::size_t... v>(std::index_sequence<v...>) {
      element<Pack<Y>>(at[0]) = of_packs(fetched<A>(at[v + 1], steps[v + 1])...);
    }
    (std::index_sequence_for<A...>());
  }
  __device__ static Pack<Y> of_packs(const Pack<A>&... a) {
    Pack<Y> y;
    for (int k = 0; k < pack; ++k) y.of[k] = F::of(a.of[k]...);
    return y;
  }
  template <class T>
  __device__ static Pack<T> fetched(std::byte* at, std::int64_t step) {
    if (step != 0) return element<Pack<T>>(at);
    Pack<T> same;
    for (T& x : same.of) x = element<T>(at);
    return same;
  }
};

// A formula's number and a dtype lead to the function that launches its kernel; to null where the
// formula has no meaning. (The same goes for the rules of optimisers.)
template <class... Arguments>
using Verb = void (*)(Arguments...);

template <template <class, class> class Kernel, class V, class... F>
constexpr auto table_of(formula::List<F...>) {
  return std::array{PerDType<V>{Kernel<F, float>::verb(), Kernel<F, double>::verb(),
                                Kernel<F, std::int64_t>::verb(), Kernel<F, bool>::verb()}...};
}
template <template <class, class> class Kernel, class All = formula::Every, class... Arguments>
void by_table(int number, DType dtype, const Arguments&... arguments) {
  static constexpr auto table = table_of<Kernel, Verb<const Arguments&...>>(All());
  pick_for(dtype, table[static_cast<std::size_t>(number)])(arguments...);
}

template <class F, class T>
concept Folds = requires {  // such a formula is for reductions alone
  typename F::template Wide<T>;
};

template <class F, class T>
struct Map {
  static constexpr Verb<const View&, const View&> verb() {
    if constexpr (requires { F::of(T()); }) return Elementwise<F, decltype(F::of(T())), T>::run;
    return nullptr;
  }
};
template <class F, class T>
struct Zip {
  static constexpr Verb<const View&, const View&, const View&> verb() {
    if constexpr (!Folds<F, T> && requires { F::of(T(), T()); })
      return Elementwise<F, decltype(F::of(T(), T())), T, T>::run;
    return nullptr;
  }
};
struct Choose {
  template <class T>
  MINITENSOR_FORMULA T of(bool condition, T a, T b) {
    return condition ? a : b;
  }
};
template <class Y>
struct Convert {
  template <class A>
  MINITENSOR_FORMULA Y of(A a) {
    return converted<Y>(a);
  }
};

inline void map(int formula, const View& y, const View& a) {
  by_table<Map>(formula, a.dtype, y, a);
}
inline void zip(int formula, const View& y, const View& a, const View& b) {
  by_table<Zip>(formula, a.dtype, y, a, b);
}
inline void choose(const View& y, const View& condition, const View& a, const View& b) {
  with_type(y.dtype,
            [&]<class T>(T) { Elementwise<Choose, T, bool, T, T>::run(y, condition, a, b); });
}

// ---- Copies -------------------------------------------------------------------------------------

inline bool is_dense(const View& view) {
  return view.shape.numel() <= 1 || view.strides == contiguous_strides(view.shape);
}

// y = a, from any dtype to any, within a card, between two, to the processor or from it. Only dense
// memory of one type can travel: what is not is first laid out where it is, and unpacked where it
// arrives.
inline void copy(const View& y, const View& a) {
  if (y.shape.numel() == 0) return;
  if (y.device == a.device || (y.device != cpu && is_number(a)))
    return with_type(y.dtype, [&]<class Y>(Y) {
      with_type(a.dtype, [&]<class A>(A) { Elementwise<Convert<Y>, Y, A>::run(y, a); });
    });
  const bool packs = a.dtype != y.dtype || !is_dense(a);
  if (packs || !is_dense(y)) {
    Ref<Storage> memory;
    const View packed = temporary(y.shape, y.dtype, packs ? a.device : y.device, memory);
    minitensor::copy(packed, a);
    return minitensor::copy(y, packed);
  }
  const auto bytes = static_cast<std::size_t>(y.shape.numel() * bytes_of(y.dtype));
  use(y.device == cpu ? a.device : y.device);  // cudaMemcpy refuses the pool of another card
  if (y.device == cpu || a.device == cpu)
    check(cudaMemcpy(y.data, a.data, bytes, cudaMemcpyDefault), "copy");
  else
    check(cudaMemcpyPeer(y.data, y.device.index, a.data, a.device.index, bytes), "copy");
}

inline void fill(const View& y, Scalar value) {
  const Constant number(value, y.dtype, y.shape);
  minitensor::copy(y, number.view);
}

// ---- Many numbers into one ----------------------------------------------------------------------
//
// Many threads fold a part each, and then the parts are folded. In a warp that goes by shuffles: 16
// threads take from the 16 others, 8 from 8, and after five steps the first one has it all. The
// order never depends on who is faster, so a result is the same every time.

template <class V>
__device__ V shuffle_down(V value, int by) {
  constexpr std::size_t words = (sizeof(V) + 3) / 4;
  std::uint32_t word[words] = {};
  memcpy(word, &value, sizeof value);
  for (std::uint32_t& w : word) w = __shfl_down_sync(0xffffffffu, w, by);
  memcpy(&value, word, sizeof value);
  return value;
}

// The values of the threads of one row (blockDim.x of them, whole warps), joined. The first
// lane of each warp gets the result. A row of more than one warp has the block to itself.
template <class V, class Join>
__device__ V fold_row(V value, V neutral, Join join) {
  for (int by = 16; by > 0; by /= 2) value = join(value, shuffle_down(value, by));
  if (blockDim.x == 32) return value;
  __shared__ V of_warp[32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? of_warp[lane] : neutral;
  __syncthreads();  // everybody has read; another row may come
  for (int by = 16; by > 0; by /= 2) value = join(value, shuffle_down(value, by));
  return value;
}

// Threads for rows of n numbers: a warp for each of eight short ones, the block for a long one.
inline dim3 block_for_rows(std::int64_t n) { return n <= 512 ? dim3(32, 8) : dim3(256, 1); }

template <class T>
__device__ void store(std::byte* to, DType dtype, T value) {
  with_type(dtype, [&]<class Y>(Y) { element<Y>(to) = converted<Y>(value); });
}

// What a reduction knows: for each result (kept) the numbers to fold (reduced). In two walks, view
// 0 is y and view 1 is a, as in chapter 7. If there are few results, several blocks share the work
// of one (blockIdx.y counts them), each has a part of it, and y has room for what each has found.
struct Reduction {
  Places kept, reduced;
  DType dtype;        // of y
  std::int64_t part;  // numbers in a part

  // F over what this block has of the numbers of a result, from the first one on in steps.
  template <class F, class T, class Wide = typename F::template Wide<T>>
  __device__ Wide fold(const std::byte* numbers, unsigned first, unsigned step) const {
    const std::int64_t begin = blockIdx.y * part, end = std::min(begin + part, reduced.n);
    Wide value = F::template neutral<Wide>;
    for (std::int64_t i = begin + first; i < end; i += step) {
      std::byte* at[2];
      find(reduced, i, at);
      const std::byte* here = numbers + (at[1] - reduced.walk.data[1]);
      value = F::of(value, converted<Wide>(*reinterpret_cast<const T*>(here)));
    }
    return value;
  }
};

// Along rows: neighbouring threads read neighbouring numbers of the same result.
template <class F, class T>
__global__ void fold_rows(const __grid_constant__ Reduction work) {
  using Wide = typename F::template Wide<T>;
  for_this_row(work.kept.n, [&](std::int64_t result) {
    std::byte* place[2];
    find(work.kept, result, place);
    Wide value = work.fold<F, T>(place[1], threadIdx.x, blockDim.x);
    value = fold_row(value, F::template neutral<Wide>, [](Wide a, Wide b) { return F::of(a, b); });
    if (threadIdx.x == 0) store(place[0] + blockIdx.y * sizeof(Wide), work.dtype, value);
  });
}

// Down columns: neighbouring threads read neighbouring numbers of 32 results. Eight rows of threads
// take turns, and are joined in shared memory.
template <class F, class T>
__global__ void fold_columns(const __grid_constant__ Reduction work) {
  using Wide = typename F::template Wide<T>;
  __shared__ Wide of_row[8][32];
  for (std::int64_t first = std::int64_t{blockIdx.x} * 32; first < work.kept.n;
       first += std::int64_t{gridDim.x} * 32) {
    const std::int64_t result = first + threadIdx.x;
    const bool inside = result < work.kept.n;
    std::byte* place[2];
    find(work.kept, inside ? result : 0, place);
    Wide value = F::template neutral<Wide>;
    if (inside) value = work.fold<F, T>(place[1], threadIdx.y, 8);
    of_row[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.y == 0 && inside) {
      for (int row = 1; row < 8; ++row) value = F::of(value, of_row[row][threadIdx.x]);
      store(place[0] + blockIdx.y * sizeof(Wide), work.dtype, value);
    }
    __syncthreads();
  }
}

template <class F, class T>
void launch_fold(const Reduction& work, std::int64_t parts, bool columns) {
  const auto in_parts = static_cast<unsigned>(parts);
  const dim3 block = columns ? dim3(32, 8) : block_for_rows(work.part);
  const dim3 grid(blocks_for(work.kept.n, columns ? 32 : block.y), in_parts);
  launch(columns ? fold_columns<F, T> : fold_rows<F, T>, grid, block, work);
}

template <class F, class T>
void reduce_with(const View& y, const View& a) {
  using Wide = typename F::template Wide<T>;
  if (a.shape.numel() == 0) return minitensor::fill(y, F::template neutral<T>);
  const View onto = broadcast_to(y, a.shape);
  const Places places = places_of({&onto, &a}, 1);
  Reduction work{places, places, y.dtype, 0};
  Walk &kept = work.kept.walk, &reduced = work.reduced.walk;
  kept = axes_where(places.walk, true);
  reduced = axes_where(places.walk, false);
  work.kept.n = kept.numel();
  work.reduced.n = reduced.numel();
  // A row of a few numbers would leave most of a warp without work.
  const bool columns =
      work.reduced.n < 32 || (kept.axes > 0 && kept.steps[kept.axes - 1][1] == kept.bytes[1]);

  // Enough blocks to keep the card busy, each with enough to do.
  const std::int64_t groups = columns ? (work.kept.n + 31) / 32 : work.kept.n;
  const std::int64_t wanted = std::min(1024 / groups, work.reduced.n / 2048);
  work.part = wanted > 1 ? (work.reduced.n + wanted - 1) / wanted : work.reduced.n;
  const std::int64_t parts = (work.reduced.n + work.part - 1) / work.part;
  if (parts == 1) return launch_fold<F, T>(work, 1, columns);

  // First into a dense matrix of what the parts find, a row for each result; then from there to y.
  Ref<Storage> memory;
  const View found = temporary(Shape(work.kept.n, parts), dtype_of<Wide>(), y.device, memory);
  Reduction last = work;
  work.dtype = found.dtype;
  std::int64_t step = parts * static_cast<std::int64_t>(sizeof(Wide));
  for (int axis = kept.axes - 1; axis >= 0; --axis) {
    kept.steps[axis][0] = last.kept.walk.steps[axis][1] = step;
    step *= kept.sizes[axis];
  }
  kept.data[0] = last.kept.walk.data[1] = last.reduced.walk.data[1] = found.data;
  const std::int64_t along[Walk::most_views] = {0, sizeof(Wide)};
  last.reduced.walk.axes = 0;
  last.reduced.walk.insert_axis(0, parts, along);
  last.part = last.reduced.n = parts;
  launch_fold<F, T>(work, parts, columns);
  launch_fold<F, Wide>(last, 1, false);
}

template <class F, class T>
struct Reduce {
  static constexpr Verb<const View&, const View&> verb() {
    if constexpr (Folds<F, T>)
      if constexpr (requires(typename F::template Wide<T> w) { F::of(w, w); })
        return reduce_with<F, T>;
    return nullptr;
  }
};
inline void reduce(int formula, const View& y, const View& a) {
  by_table<Reduce>(formula, a.dtype, y, a);
}

// ---- The largest, and where it stands -----------------------------------------------------------

template <class T>
struct Candidate {
  T value;
  std::int64_t index;
};

// The better of two: the one that F prefers, which is NaN before numbers; of equals the first.
template <class F, class T>
__device__ Candidate<T> better(const Candidate<T>& a, const Candidate<T>& b) {
  const T best = F::of(a.value, b.value);
  const auto is_best = [best](T x) { return x == best || (x != x && best != best); };
  if (is_best(a.value) && is_best(b.value)) return a.index < b.index ? a : b;
  return is_best(a.value) ? a : b;
}

// Each line of candidates is a row of threads. Views: value, index, first candidate.
template <class F, class T>
__global__ void find_best(const __grid_constant__ Places lines, const Line along) {
  for_this_row(lines.n, [&](std::int64_t line) {
    std::byte* at[3];
    find(lines, line, at);
    const Candidate<T> none{F::template neutral<T>, along.size};  // no better than any
    Candidate<T> best = none;
    for (std::int64_t i = threadIdx.x; i < along.size; i += blockDim.x)
      best = better<F, T>(best, {element<T>(at[2] + i * along.step), i});
    best = fold_row(best, none, better<F, T>);
    if (threadIdx.x > 0) return;
    element<T>(at[0]) = best.value;
    element<std::int64_t>(at[1]) = best.index;
  });
}

inline void reduce_arg(int formula, const View& values, const View& indices, const View& a,
                       int axis) {
  using formula::Max, formula::Min, formula::number_of;
  if (formula != number_of<Max> && formula != number_of<Min>)
    throw Error("only the largest and the smallest element have a place");
  View starts = a;
  const Line along = take_axis(starts, axis);
  const Places lines = places_of({&values, &indices, &starts});
  if (lines.n == 0) return;
  const dim3 block = block_for_rows(along.size);
  with_type(a.dtype, [&]<class T>(T) {
    launch(formula == number_of<Max> ? find_best<Max, T> : find_best<Min, T>,
           blocks_for(lines.n, block.y), block, lines, along);
  });
}

// ---- Rows that are normalized -------------------------------------------------------------------
//
// Each number of such a row depends on two folds of all of it. A row of threads does that in one
// kernel: it walks along its numbers three times, and finds them in the cache after the first.

template <RowNormalization kind, class T>
__global__ void normalize_rows(const __grid_constant__ Places rows, const Line to, const Line from,
                               const double eps) {
  constexpr bool standardized = kind == RowNormalization::standardized;
  for_this_row(rows.n, [&](std::int64_t row) {
    std::byte* at[2];
    find(rows, row, at);
    const auto folded = [&]<class F>(F, auto of) {
      double value = F::template neutral<double>;
      for (std::int64_t i = threadIdx.x; i < from.size; i += blockDim.x)
        value = F::of(value, static_cast<double>(of(element<T>(at[1] + i * from.step))));
      value = fold_row(value, F::template neutral<double>,
                       [](double a, double b) { return F::of(a, b); });
      return __shfl_sync(0xffffffffu, value, 0);  // for all threads of the row
    };
    const double n = static_cast<double>(from.size);
    using First = std::conditional_t<standardized, formula::Sum, formula::Max>;
    const double first = folded(First(), [](T a) { return a; });
    const T middle = static_cast<T>(standardized ? first / n : first);
    const double sum = folded(formula::Sum(), [=](T a) {
      return standardized ? formula::Square::of(a - middle) : formula::Exp::of(a - middle);
    });
    for (std::int64_t i = threadIdx.x; i < from.size; i += blockDim.x) {
      const T a = element<T>(at[1] + i * from.step) - middle;
      T& y = element<T>(at[0] + i * to.step);
      if constexpr (standardized)
        y = a * static_cast<T>(1 / std::sqrt(sum / n + eps));
      else if constexpr (kind == RowNormalization::softmax)
        y = formula::Exp::of(a) / static_cast<T>(sum);
      else
        y = a - static_cast<T>(std::log(sum));
    }
  });
}

inline void normalize(RowNormalization kind, const View& y, const View& a, int axis, double eps) {
  View first_y = y, first = a;
  const Line to = take_axis(first_y, axis), from = take_axis(first, axis);
  const Places lines = places_of({&first_y, &first});
  if (lines.n == 0) return;
  const dim3 block = block_for_rows(from.size);
  visit_floating(y.dtype, [&]<class T>(T) {
    const auto kernel =
        kind == RowNormalization::softmax       ? normalize_rows<RowNormalization::softmax, T>
        : kind == RowNormalization::log_softmax ? normalize_rows<RowNormalization::log_softmax, T>
                                                : normalize_rows<RowNormalization::standardized, T>;
    launch(kernel, blocks_for(lines.n, block.y), block, lines, to, from, eps);
  });
}

// ---- Matrices -----------------------------------------------------------------------------------
//
// Three ways to the same product. NVIDIA's library, cuBLAS, is the one that is used; the two below
// are here to be read, and for integers, which cuBLAS does not multiply.

// Stacks of matrices: y [n, m] = a [n, k] b [k, m], each with a step down and a step to the right.
struct Product {
  Places stacks;  // y, a, b
  std::int64_t rows, inner, columns;
  std::int64_t down[3], right[3];
  DType dtype;
};

inline Product product_of(const View& y, const View& a, const View& b) {
  const View to = stack_of(y), left = stack_of(a), right = stack_of(b);
  return {places_of({&to, &left, &right}),
          y.shape[-2],
          a.shape[-1],
          y.shape[-1],
          {y.strides[-2], a.strides[-2], b.strides[-2]},
          {y.strides[-1], a.strides[-1], b.strides[-1]},
          y.dtype};
}

// The plain way: a thread for each element of y. Each number of a and b is fetched from the card's
// large, slow memory as often as it is used.
template <class T>
__global__ void multiply_naive(const __grid_constant__ Product p) {
  using W = wrapping<T>;
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.rows * p.columns) return;
  const std::int64_t row = i / p.columns, column = i % p.columns;
  for (std::int64_t stack = blockIdx.y; stack < p.stacks.n; stack += gridDim.y) {
    std::byte* at[3];
    find(p.stacks, stack, at);
    const T* a = &element<T>(at[1]) + row * p.down[1];
    const T* b = &element<T>(at[2]) + column * p.right[2];
    W sum = 0;
    for (std::int64_t k = 0; k < p.inner; ++k)
      sum += static_cast<W>(a[k * p.right[1]]) * static_cast<W>(b[k * p.down[2]]);
    (&element<T>(at[0]))[row * p.down[0] + column * p.right[0]] = static_cast<T>(sum);
  }
}

// In tiles: the 256 threads of a block compute a tile of 16 x 16 elements of y. They fetch a tile
// of a and one of b together, one number each, into memory that they share, and use each number 16
// times before they go on to the next tiles.
constexpr int tile = 16;

template <class T>
__global__ void multiply_tiled(const __grid_constant__ Product p) {
  using W = wrapping<T>;
  __shared__ T left[tile][tile + 1], right[tile][tile + 1];  // + 1: a column lies in many banks
  const std::int64_t tiles_across = (p.columns + tile - 1) / tile;
  const std::int64_t row = blockIdx.x / tiles_across * tile + threadIdx.y;
  const std::int64_t column = blockIdx.x % tiles_across * tile + threadIdx.x;
  for (std::int64_t stack = blockIdx.y; stack < p.stacks.n; stack += gridDim.y) {
    std::byte* at[3];
    find(p.stacks, stack, at);
    const T *a = &element<T>(at[1]), *b = &element<T>(at[2]);
    W sum = 0;
    for (std::int64_t done = 0; done < p.inner; done += tile) {
      const std::int64_t k = done + threadIdx.x, l = done + threadIdx.y;
      left[threadIdx.y][threadIdx.x] =
          row < p.rows && k < p.inner ? a[row * p.down[1] + k * p.right[1]] : T(0);
      right[threadIdx.y][threadIdx.x] =
          l < p.inner && column < p.columns ? b[l * p.down[2] + column * p.right[2]] : T(0);
      __syncthreads();  // the tiles are complete
      for (int i = 0; i < tile; ++i)
        sum += static_cast<W>(left[threadIdx.y][i]) * static_cast<W>(right[i][threadIdx.x]);
      __syncthreads();  // and nobody needs them any more
    }
    if (row < p.rows && column < p.columns)
      (&element<T>(at[0]))[row * p.down[0] + column * p.right[0]] = static_cast<T>(sum);
  }
}

// A thread's own connection to cuBLAS, one for each card.
inline cublasHandle_t blas_on(Device device) {
  struct Handles {
    ~Handles() {
      for (cublasHandle_t handle : on)
        if (handle) cublasDestroy(handle);
    }
    cublasHandle_t on[most_cards] = {};
  };
  static thread_local Handles handles;
  cublasHandle_t& handle = handles.on[device.index];
  if (handle) return handle;
  check(cublasCreate(&handle), "start");
  // Float32 means float32: TF32 would drop 13 of its 23 bits.
  check(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), "set its precision");
  return handle;
}

template <class T>
void multiply_by_blas(const Product& p, const BlasMatrix& a, const BlasMatrix& b, int leading,
                      Device device) {
  const cublasHandle_t handle = blas_on(device);
  const auto operation = [](const BlasMatrix& m) {  // to cuBLAS, dense rows are dense columns
    return m.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  const T one = 1, zero = 0;
  // The last axis of the stacks goes to cuBLAS in one call; an odometer turns the others.
  Walk walk = p.stacks.walk;
  if (walk.axes == 0) walk.insert_axis(0, 1, walk.bytes);
  const int last = walk.axes - 1, count = static_cast<int>(walk.sizes[last]);
  const auto step = [&](int v) { return walk.steps[last][v] / static_cast<long long>(sizeof(T)); };
  const int rows = static_cast<int>(p.rows), columns = static_cast<int>(p.columns),
            inner = static_cast<int>(p.inner);
  Odometer at(walk, 1);
  do {
    // y' = b' a': everything transposed, because cuBLAS thinks in columns.
    const auto gemm = [&](auto function) {
      return function(handle, operation(b), operation(a), columns, rows, inner, &one,
                      as<T>(at.data[2]), b.leading, step(2), as<T>(at.data[1]), a.leading, step(1),
                      &zero, as<T>(at.data[0]), leading, step(0), count);
    };
    if constexpr (std::is_same_v<T, float>)
      check(gemm(cublasSgemmStridedBatched), "multiply");
    else
      check(gemm(cublasDgemmStridedBatched), "multiply");
  } while (at.next());
}

inline void multiply_with_kernel(const Product& p, MatmulAlgorithm way) {
  const std::int64_t tiles = (p.rows + tile - 1) / tile * ((p.columns + tile - 1) / tile);
  const std::int64_t blocks =
      way == MatmulAlgorithm::naive ? (p.rows * p.columns + 255) / 256 : tiles;
  const dim3 grid(static_cast<unsigned>(blocks), blocks_for(p.stacks.n, 1));
  const dim3 block = way == MatmulAlgorithm::naive ? dim3(256) : dim3(tile, tile);
  with_type(p.dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (!std::is_same_v<T, bool>)
      launch(way == MatmulAlgorithm::naive ? multiply_naive<T> : multiply_tiled<T>, grid, block, p);
    else
      throw Error("matmul has no meaning for bool");
  });
}

inline void matmul(const View& y, const View& a, const View& b, MatmulAlgorithm way) {
  if (y.shape.numel() == 0) return;
  if (a.shape[-1] == 0) return minitensor::fill(y, 0);
  const Product p = product_of(y, a, b);
  if (way != MatmulAlgorithm::library || !is_floating(y.dtype)) return multiply_with_kernel(p, way);
  const BlasMatrix to(p.rows, p.columns, p.down[0], p.right[0]),
      left(p.rows, p.inner, p.down[1], p.right[1]),
      right(p.inner, p.columns, p.down[2], p.right[2]);
  if (!to.fits || !left.fits || !right.fits || to.transposed)
    return multiply_with_kernel(p, MatmulAlgorithm::tiled);
  visit_floating(y.dtype,
                 [&]<class T>(T) { multiply_by_blas<T>(p, left, right, to.leading, y.device); });
}

// ---- By index -----------------------------------------------------------------------------------

template <class T>
struct Gather {
  static constexpr int views = 3;
  std::int64_t step;  // along the axis, in elements
  __device__ void operator()(std::byte* const* at, std::int64_t) const {
    element<T>(at[0]) = (&element<T>(at[1]))[element<std::int64_t>(at[2]) * step];
  }
};
inline void gather(const View& y, const View& a, const View& index, int axis) {
  const std::int64_t step = a.shape.empty() ? 0 : a.strides[axis];
  const View zero = at_index_zero(a, axis, y.shape);
  with_type(y.dtype, [&](auto t) { for_each<Gather<decltype(t)>>({&y, &zero, &index}, {step}); });
}

// An index may come again, so two threads might add to one place at the same time. Adding there one
// after the other (an atomic addition) would be right, but in another order each time, and sums of
// floats would differ in their last bits. So one thread adds up all that goes along one line of the
// axis, in order: as the processor does it, with the processor's results. That suits rows of a
// table, [tokens, features] along axis 0, with a thread for each feature; a single long line is
// slow.
template <class T>
struct ScatterLine {
  static constexpr int views = 3;
  std::int64_t y_step;  // in elements
  Line a, index;
  __device__ void operator()(std::byte* const* at, std::int64_t) const {
    for (std::int64_t i = 0; i < a.size; ++i) {
      const std::int64_t to = element<std::int64_t>(at[2] + i * index.step);
      T& sum = (&element<T>(at[0]))[to * y_step];
      sum = formula::Add::of(sum, element<T>(at[1] + i * a.step));
    }
  }
};
inline void scatter_add(const View& y, const View& a, const View& index, int axis) {
  if (a.shape.numel() == 0) return;
  View first = a, first_index = index;
  const Line of_a = take_axis(first, axis), of_index = take_axis(first_index, axis);
  const std::int64_t step = y.shape.empty() ? 0 : y.strides[axis];
  const View zero = at_index_zero(y, axis, first.shape);
  with_type(y.dtype, [&](auto t) {
    for_each<ScatterLine<decltype(t)>>({&zero, &first, &first_index}, {step, of_a, of_index});
  });
}

// Every thread that sees an index out of range says where; the smallest place remains.
struct OutOfRange {
  static constexpr int views = 1;
  std::int64_t size;
  unsigned long long* first;
  __device__ void operator()(std::byte* const* at, std::int64_t i) const {
    const std::int64_t index = element<std::int64_t>(at[0]);
    if (index < 0 || index >= size) atomicMin(first, static_cast<unsigned long long>(i));
  }
};
inline bool first_out_of_range(const View& index, std::int64_t size, std::int64_t& found) {
  if (index.shape.numel() == 0) return false;
  const auto fetch = [&](std::byte* data, std::int64_t& number) {
    minitensor::copy({reinterpret_cast<std::byte*>(&number), int64, {}, {}, cpu},
                     {data, int64, {}, {}, index.device});
  };
  Ref<Storage> memory;
  const View first = temporary({}, int64, index.device, memory);
  minitensor::fill(first, -1);  // as an unsigned number the largest there is
  for_each<OutOfRange>({&index}, {size, as<unsigned long long>(first.data)});
  std::int64_t place = 0;
  fetch(first.data, place);
  if (place < 0) return false;
  std::byte* at[1];
  find(places_of({&index}), place, at);
  fetch(at[0], found);
  return true;
}

// ---- Random numbers -----------------------------------------------------------------------------
//
// Chapter 12's numbers: block i of a call is a function of i, so a thread computes it alone.

template <class T, class Draw>
__global__ void draw_blocks(T* y, std::int64_t n, const RandomCall call, const Draw draw) {
  constexpr std::int64_t numbers = std::tuple_size_v<decltype(draw(RandomBlock{}))>;
  for_this_thread((n + numbers - 1) / numbers, [&](std::int64_t block) {
    std::int64_t i = block * numbers;
    for (const T number : draw(call.block(static_cast<std::uint64_t>(block))))
      if (i < n) y[i++] = number;
  });
}
// y is contiguous, and of the type that is drawn.
inline void random(RandomDistribution kind, const View& y, Scalar first, Scalar second,
                   const RandomCall& call) {
  use(y.device);
  const std::int64_t n = y.shape.numel();
  if (n == 0) return;
  visit_distribution(kind, y.dtype, first, second, [&]<class T, class Draw>(T, const Draw& draw) {
    launch(draw_blocks<T, Draw>, blocks_for(n, 512), 256, as<T>(y.data), n, call, draw);
  });  // 512: a thread makes two numbers, or four
}

// ---- Optimisers ---------------------------------------------------------------------------------

// A thread takes a number of the parameter through the rule, and all that is remembered beside it:
// one kernel a parameter, where operations on whole tensors would be a dozen.
template <class Rule, class T>
struct Updates {
  static constexpr int views = 1;
  static void run(const View& w, const View& g, const View* const& s, const double* const& k) {
    for_each<Updates>({&w}, {optim::Update<Rule, T>(w, g, s, k)});
  }
  static constexpr decltype(&run) verb() {
    if constexpr (Real<T>) return run;
    return nullptr;
  }
  __device__ void operator()(std::byte* const*, std::int64_t i) const { optim::update_one(all, i); }
  optim::Update<Rule, T> all;
};
inline void update(int rule, const View& w, const View& g, const View* s, const double* k) {
  by_table<Updates, optim::Rules>(rule, w.dtype, w, g, s, k);
}

// ---- The table ----------------------------------------------------------------------------------

constexpr Machine table = {.name = "cuda",
                           .allocate = allocate,
                           .release = release,
                           .synchronize = synchronize,
                           .fill = fill,
                           .copy = copy,
                           .map = map,
                           .zip = zip,
                           .choose = choose,
                           .reduce = reduce,
                           .reduce_arg = reduce_arg,
                           .matmul = matmul,
                           .gather = gather,
                           .scatter_add = scatter_add,
                           .normalize = normalize,
                           .first_out_of_range = first_out_of_range,
                           .random = random,
                           .update = update,
                           .device_count = device_count,
                           .properties = properties,
                           .memory = memory,
                           .time = time};

// Before main begins, the header learns where it is.
const bool linked = (cuda_machine = &table, true);

}  // namespace minitensor::on_cuda
