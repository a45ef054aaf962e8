// minitensor: tensors, broadcasting and autograd in one C++20 header. MIT licence.
#pragma once

// ================================================================================================
// 0. Read this first
// ================================================================================================
//
// minitensor is tensors, broadcasting and automatic differentiation in one header. It needs nothing
// but the standard library, it means to be read from top to bottom, and names and rules are those
// of PyTorch, so that what you learn here is true there.
//
//     #include "minitensor.hpp"
//     using namespace mt;
//
//     int main() {
//       Tensor x = tensor(2.0, {.requires_grad = true});
//       Tensor y = tensor(3.0, {.requires_grad = true});
//       Tensor z = x * y + x.pow(2);
//       z.backward();
//       std::cout << x.grad() << "\n";  // tensor(7.)
//     }
//
// It refuses to guess: a shape that does not fit, a write that would lose a fraction, a value that
// was overwritten before its derivative was taken are errors that name the line of *your* file.
//
// The letters. In every rule, y is the output and a, b, c are the inputs in their order; dy is the
// gradient that has arrived at the output, "how the final result changes when y does"; da, db, dc
// are the gradients to hand on; n is a plain number from the call, i an index that the operation
// found.
//
// One operation, whole (it stands in chapter 10, with all the others):
//
//     struct Mul : Elementwise {
//       using Formula = formula::Mul;
//       static constexpr Facts facts = {.name = "mul", .symbol = "×", .formula = "a * b",
//                                       .derivatives = {"dy * b", "dy * a"}, ...};
//       void backward() {
//         if (wants(0)) give(0, dy * b());
//         if (wants(1)) give(1, dy * a());
//       }
//     };
//
// How `a * b` gets to a.grad():
//
//   1. The operator computes the product, element by element (chapters 5 to 7), into a new y.
//   2. If a or b wants a gradient, y gets a *node* (chapter 8). The node points to where a and b
//      came from, and saves what the derivatives name: "dy * b" needs b, so b is saved if a wants
//      a gradient.
//   3. y.sum().backward() starts with a gradient of 1 for the sum, collects the nodes behind it
//      and visits them by falling id, the leaves last. Nodes take their ids from one counter, so
//      whoever used a tensor has a larger id than whoever made it: when a node's turn comes,
//      everything that used its result has been visited, and its gradient is complete (chapter 9).
//   4. Mul's rule gives dy * b to a. If a was broadcast, `give` sums that back to a's shape; if
//      a was used elsewhere too, it is added to what came from there.
//   5. When the turn comes to a itself, a leaf, the sum is added to a.grad(). It is *added*: call
//      zero_grad() between two steps.
//
// Contents. A student's path is 0, 1, 2, 4, 8, 9 and the first ten boxes (structs) of 10. All it
// needs of 3 is this: a Storage is memory that views share and that counts its writes, a View is
// where elements lie, a Ref counts its handles, and an Id is a number that is used once.
//
//    0. Read this first
//    1. When things go wrong     errors that help
//    2. Shapes and types         sizes, strides, broadcasting, dtypes
//    3. Storage and devices      bytes, shared by views
//    4. Tensor                   the class, making tensors, printing them
//    5. Walking memory           one loop for every shape
//    6. Formulas                 what happens to single numbers
//    7. Machines                 the verbs of the processor, and the door to the GPU
//    8. Recording                nodes: the computation graph
//    9. Going backwards          the pass that computes gradients
//   10. Operations               a box each: facts, forward, backward
//   11. Composed operations      softmax and losses, made of the others
//   12. Random numbers           the same on every machine
//   13. Proof                    derivatives checked by differences
//   14. Being watched            the door for viewers; the graph as a picture
//    A. Appendix: learning       modules, layers, optimisers, schedules, data

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace minitensor {

// What counts as a number in a call. Letters do not: 'a' is no size.
template <class T>
concept Number = std::is_arithmetic_v<T> && !std::is_same_v<T, char>;
template <class T>
concept Integer = Number<T> && std::is_integral_v<T> && !std::is_same_v<T, bool>;

// ================================================================================================
// 1. When things go wrong
// ================================================================================================
//
// A message is read by somebody who is tired. So each one names the operation, the rule that was
// broken, the shapes at hand, the line of *your* file, and what to try.

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A line of the caller's source. The default argument below is evaluated where the call stands, so
// every function that ends in `Loc loc = Loc::here()` learns who called it.
class Loc {
 public:
  static constexpr Loc here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return Loc(file, line);
  }
  static constexpr Loc unknown() { return Loc("", 0); }
  constexpr const char* path() const { return file_; }
  constexpr int line() const { return line_; }
  // "line.cpp", without the directories: they are nobody's business but the compiler's.
  constexpr const char* file() const {
    const char* last = file_;
    for (const char* p = file_; *p; ++p)
      if (*p == '/') last = p + 1;
    return last;
  }
  std::string text() const;

 private:
  friend class Operand;
  explicit constexpr Loc(const char* file, int line) : file_(file), line_(line) {}
  const char* file_;
  int line_;
};

class Node;  // chapter 8

// Where we are while an operation runs: its name, as the student knows it, the line that called it
// and, on the way back, the node whose rule it is.
struct At {
  const char* op;
  Loc loc;
  const Node* node = nullptr;
};

// A message grows by pieces: text, numbers, and what later chapters add.
//
// (What is marked noinline, here and later, is called from many places and takes more code than
// time. It is compiled once and not in each place, because the compiler keeps people waiting, too.)
[[gnu::noinline]] inline void append(std::string& to, std::string_view text) { to += text; }
inline void append(std::string& to, const char* text) { append(to, std::string_view(text)); }
inline void append(std::string& to, char letter) { append(to, std::string_view(&letter, 1)); }
[[gnu::noinline]] inline void append(std::string& to, std::int64_t number) {
  char text[32];
  append(to, {text, std::to_chars(text, text + sizeof text, number).ptr});
}
inline void append(std::string& to, double number) {
  char text[32];
  append(to, {text,
              std::to_chars(text, text + sizeof text, number, std::chars_format::general, 7).ptr});
}
// A piece of a message: text, a number, a shape, a type. It points to the thing and knows how to
// append it, so that the place where an error is thrown costs next to nothing.
class Word {
 public:
  Word(const char* text) : thing_(text) {}
  template <class T>
  Word(const T& thing)
      : thing_(&thing), append_([](std::string& to, const void* it) {
          using Shown = std::conditional_t<Integer<T>, std::int64_t, const T&>;
          append(to, static_cast<Shown>(*static_cast<const T*>(it)));
        }) {}
  void append_to(std::string& to) const {
    if (append_)
      append_(to, thing_);
    else
      append(to, static_cast<const char*>(thing_));
  }

 private:
  const void* thing_;
  void (*append_)(std::string& to, const void* thing) = nullptr;
};
inline void append(std::string& to, const Loc& loc) {
  if (!loc.line()) return append(to, "an unknown line");
  append(to, loc.file());
  append(to, ':');
  append(to, std::int64_t{loc.line()});
}
using Words = std::initializer_list<Word>;
inline void append(std::string& to, const Words& words) {
  for (const Word& word : words) word.append_to(to);
}
[[gnu::noinline]] inline std::string text_of(Words words) {
  std::string text;
  append(text, words);
  return text;
}
inline std::string Loc::text() const { return text_of({*this}); }

[[noreturn]] void fail(const At& at, Words what, Words hint = {});

// ================================================================================================
// 2. Shapes and types
// ================================================================================================

[[noreturn]] inline void fail_no_axis(int axis, int count) {
  throw Error(text_of({"there is no axis ", axis, ": the number of axes is ", count}));
}
[[noreturn]] inline void fail_too_many_axes() { throw Error("a tensor has at most 8 dimensions"); }

// A short list of integers: the sizes of a tensor, its strides, or a choice of axes. It lives on
// the stack, because every tensor has two of them and a heap allocation costs more than an
// addition.
class Shape {
 public:
  static constexpr int capacity = 8;

  constexpr Shape() = default;
  template <Integer... T>
  constexpr Shape(T... sizes) : count_(sizeof...(T)), items_{static_cast<std::int64_t>(sizes)...} {
    static_assert(sizeof...(T) <= capacity, "a tensor has at most 8 dimensions");
  }
  static constexpr Shape filled(int count, std::int64_t value) {
    if (count > capacity) fail_too_many_axes();
    Shape s;
    s.count_ = count;
    if (value == 0) return s;  // they are 0 already
    for (int i = 0; i < count; ++i) s.items_[i] = value;
    return s;
  }

  constexpr int size() const { return count_; }
  constexpr bool empty() const { return count_ == 0; }
  // Counted from the front, or with a negative number from the back, as in Python.
  constexpr std::int64_t operator[](int i) const { return items_[checked(i)]; }
  constexpr std::int64_t& operator[](int i) { return items_[checked(i)]; }
  constexpr const std::int64_t* begin() const { return items_; }
  constexpr const std::int64_t* end() const { return items_ + count_; }
  constexpr std::int64_t back() const { return items_[count_ - 1]; }

  constexpr void push_back(std::int64_t item) { insert(count_, item); }
  constexpr void insert(int at, std::int64_t item) {
    if (count_ == capacity) fail_too_many_axes();
    for (int i = count_; i > at; --i) items_[i] = items_[i - 1];
    items_[at] = item;
    ++count_;
  }
  constexpr void erase(int at) {
    for (int i = at; i + 1 < count_; ++i) items_[i] = items_[i + 1];
    --count_;
  }
  constexpr bool contains(std::int64_t item) const {
    for (int i = 0; i < count_; ++i)
      if (items_[i] == item) return true;
    return false;
  }
  // The number of elements of a tensor with these sizes; 1 for a shape without axes.
  constexpr std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < count_; ++i) n *= items_[i];
    return n;
  }
  friend constexpr bool operator==(const Shape& a, const Shape& b) {
    if (a.count_ != b.count_) return false;
    for (int i = 0; i < a.count_; ++i)
      if (a.items_[i] != b.items_[i]) return false;
    return true;
  }

 private:
  constexpr int checked(int i) const {
    const int at = i < 0 ? i + count_ : i;
    if (at < 0 || at >= count_) fail_no_axis(i, count_);
    return at;
  }
  int count_ = 0;
  std::int64_t items_[capacity] = {};
};
using Dims = Shape;  // a choice of axes; where it may be left out, {} means all of them

// "[2, 3]"
inline void append(std::string& to, const Shape& shape) {
  append(to, '[');
  for (int i = 0; i < shape.size(); ++i) {
    if (i > 0) append(to, ", ");
    append(to, shape[i]);
  }
  append(to, ']');
}
inline std::string to_string(const Shape& shape) { return text_of({shape}); }

// The strides of a dense tensor: the last axis is contiguous, each earlier one steps over the rest.
// [2, 3, 4] -> [12, 4, 1]
constexpr Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i] > 1 ? shape[i] : 1;
  }
  return strides;
}

// Sizes that some memory could hold: none negative, and not too many elements.
inline void check_sizes(const Shape& shape, const At& at) {
  double elements = 1;
  for (std::int64_t size : shape) {
    if (size < 0) fail(at, {"a size is negative: ", shape});
    elements *= static_cast<double>(std::max(size, std::int64_t{1}));
  }
  if (elements > 1e15) fail(at, {shape, " has too many elements for any memory"});
}

// Broadcasting, NumPy's rule: align the shapes at their last axis; two sizes agree if they are
// equal or one of them is 1, and a missing axis counts as 1. [4, 1, 3] with [5, 1] -> [4, 5, 3]
inline Shape broadcast_shapes(const Shape& a, const Shape& b, const At& at) {
  if (a == b) return a;
  const int dims = a.size() > b.size() ? a.size() : b.size();
  Shape y = Shape::filled(dims, 1);
  for (int i = 1; i <= dims; ++i) {
    const std::int64_t m = i <= a.size() ? a[a.size() - i] : 1;
    const std::int64_t n = i <= b.size() ? b[b.size() - i] : 1;
    if (m != n && m != 1 && n != 1)
      fail(at,
           {"shapes do not broadcast: ", a, " and ", b, " (", m, " vs ", n, " at axis ", -i, ")"},
           {"sizes must be equal or 1, counted from the last axis"});
    y[dims - i] = m == 1 ? n : m;
  }
  check_sizes(y, at);
  return y;
}

// The strides with which a tensor of shape `from` is read as if it had shape `to`: an axis that is
// repeated gets stride 0, so the same element is met again and again and nothing is copied.
constexpr Shape broadcast_strides(const Shape& from, const Shape& strides, const Shape& to) {
  Shape out = Shape::filled(to.size(), 0);
  const int added = to.size() - from.size();
  for (int i = 0; i < from.size(); ++i) out[added + i] = from[i] == 1 ? 0 : strides[i];
  return out;
}

// An axis counted from the front; negative ones count from the back, as in Python.
inline int checked_axis(std::int64_t axis, int dims, const At& at) {
  const std::int64_t range = dims > 0 ? dims : 1;  // a 0-d tensor accepts 0 and -1
  if (axis < -range || axis >= range)
    fail(at,
         {"axis ", axis, " is out of range for ", dims, dims == 1 ? " dimension" : " dimensions"},
         {"use ", -range, " to ", range - 1});
  return static_cast<int>(axis < 0 ? axis + range : axis);
}

enum class DType : std::uint8_t { float32, float64, int64, boolean };
inline constexpr DType float32 = DType::float32;
inline constexpr DType float64 = DType::float64;
inline constexpr DType int64 = DType::int64;
inline constexpr DType boolean = DType::boolean;  // `bool` is a keyword; it prints as bool

constexpr std::int64_t bytes_of(DType t) { return t == float32 ? 4 : t == boolean ? 1 : 8; }
constexpr bool is_floating(DType t) { return t == float32 || t == float64; }
inline const char* name_of(DType t) {
  constexpr const char* names[] = {"float32", "float64", "int64", "bool"};
  return names[static_cast<int>(t)];
}
inline void append(std::string& to, DType t) { append(to, name_of(t)); }
template <class T>  // int, say, is a kind of int64
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>)
    return boolean;
  else if constexpr (std::is_integral_v<T>)
    return int64;
  else
    return sizeof(T) > sizeof(float) ? float64 : float32;
}

template <DType t>
using TypeOf = std::conditional_t<
    t == float32, float,
    std::conditional_t<t == float64, double, std::conditional_t<t == int64, std::int64_t, bool>>>;

// Calls f with a value of the C++ type behind a dtype: so a run-time type becomes a compile-time
// one. (The loops of chapter 7 are chosen from tables with an entry per dtype.)
template <class F>
constexpr decltype(auto) with_type(DType t, F&& f) {
  switch (t) {
    case DType::float32:
      return f(float{});
    case DType::float64:
      return f(double{});
    case DType::int64:
      return f(std::int64_t{});
    default:
      return f(bool{});
  }
}

// A number written in the code. It remembers whether it was a bool, an integer or a float, because
// promotion asks for the kind; an integer keeps all its 64 bits.
class Scalar {
 public:
  template <Number T>
  constexpr Scalar(T value) : dtype_(dtype_of<T>()), real_(0), whole_(0) {
    if constexpr (std::is_floating_point_v<T>)
      dtype_ = float32, real_ = static_cast<double>(value);
    else
      whole_ = static_cast<std::int64_t>(value), real_ = static_cast<double>(value);
    if constexpr (Integer<T>)
      if (!std::in_range<std::int64_t>(value)) throw Error("a number is too large for int64");
  }
  constexpr DType dtype() const { return dtype_; }  // float32 stands for any float
  constexpr double real() const { return real_; }
  constexpr std::int64_t whole() const;
  template <class T>
  constexpr T to() const {
    if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(real_);
    else if constexpr (std::is_same_v<T, bool>)
      return real_ != 0;
    else
      return static_cast<T>(whole());
  }

 private:
  DType dtype_;
  double real_;
  std::int64_t whole_;
};

// A float as an integer: towards zero; NaN becomes 0 and what does not fit becomes the nearest that
// does. (C++ leaves both undefined.)
constexpr std::int64_t to_integer(double x) {
  if (x >= -9223372036854775808.0 && x < 9223372036854775808.0) return static_cast<std::int64_t>(x);
  if (x != x) return 0;
  return x > 0 ? std::numeric_limits<std::int64_t>::max()
               : std::numeric_limits<std::int64_t>::min();
}
constexpr std::int64_t Scalar::whole() const {
  return is_floating(dtype_) ? to_integer(real_) : whole_;
}

// Element i of a run of elements.
inline void write_number(std::byte* data, DType dtype, std::int64_t i, const Scalar& number) {
  with_type(dtype, [&](auto zero) {
    reinterpret_cast<decltype(zero)*>(data)[i] = number.to<decltype(zero)>();
  });
}

// Which type two dtypes have in common (PyTorch's rule): the higher kind of bool < integer < float,
// and float64 before float32. (How a number and a 0-d tensor take part says `promote`, chapter 10.)
constexpr int kind_of(DType t) { return t == boolean ? 0 : t == int64 ? 1 : 2; }
constexpr DType common_dtype(DType a, DType b) {
  if (kind_of(a) != kind_of(b)) return kind_of(a) > kind_of(b) ? a : b;
  return a == float64 || b == float64 ? float64 : a;
}

// ================================================================================================
// 3. Storage and devices
// ================================================================================================
//
// A storage is a run of bytes that one or more tensors look at. It counts how often it was written
// to: that version is how a backward pass notices that a value it needs is gone.

// Where a tensor's bytes live: the processor, or one of the graphics cards: "cpu", "cuda" (the
// first card), "cuda:1".
struct Device {
  enum Kind : std::uint8_t { cpu, cuda };

  constexpr Device() = default;
  constexpr Device(Kind k, int i = 0) : kind(k), index(static_cast<std::uint8_t>(i)) {}
  constexpr Device(const char* text) {
    const std::string_view word = text;
    if (word == "cpu") return;
    const bool numbered = word.size() == 6 && word[4] == ':' && word[5] >= '0' && word[5] <= '9';
    if (word.substr(0, 4) != "cuda" || (word.size() != 4 && !numbered))
      throw Error("device \"" + std::string(word) +
                  "\" is unknown. Hint: write \"cpu\", \"cuda\" " +
                  "or, for the second card, \"cuda:1\"");
    kind = cuda;
    if (numbered) index = static_cast<std::uint8_t>(word[5] - '0');
  }
  std::string text() const;  // "cpu", "cuda:0"
  friend constexpr bool operator==(const Device&, const Device&) = default;

  Kind kind = cpu;
  std::uint8_t index = 0;
};
inline constexpr Device cpu = Device::cpu;
inline constexpr Device cuda = Device::cuda;
inline void append(std::string& to, const Device& device) {
  append(to, device.kind == Device::cpu ? "cpu" : "cuda:");
  if (device.kind == Device::cuda) append(to, std::int64_t{device.index});
}
inline std::string Device::text() const { return text_of({*this}); }

// A place for elements: where the first one is and how far apart they are, counted in elements. The
// verbs of chapter 7 see nothing else of a tensor.
struct View {
  std::byte* data = nullptr;
  DType dtype = float32;
  Shape shape, strides;
  Device device;
};

// Tensors, storages, nodes and scopes take their numbers from one counter, so an input always has a
// smaller number than what was made from it, and a number is never used again.
using Id = std::uint64_t;
inline std::atomic<Id> last_id{0};
inline Id next_id() { return last_id.fetch_add(1, std::memory_order_relaxed) + 1; }

// A handle to something that counts its handles. (std::shared_ptr would do, with twice the size and
// an allocation more; an operation on numbers makes about ten of these.)
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* thing) : thing_(thing) { hold(); }
  // The handle of a thing just made: nobody else has one yet, so nothing needs to be atomic.
  template <class... Arguments>
  static Ref make(Arguments&&... arguments) {
    Ref first;
    first.thing_ = new T(std::forward<Arguments>(arguments)...);
    first.thing_->handles.store(1, std::memory_order_relaxed);
    return first;
  }
  Ref(const Ref& other) : thing_(other.thing_) { hold(); }
  Ref(Ref&& other) noexcept : thing_(std::exchange(other.thing_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(thing_, other.thing_);
    return *this;
  }
  ~Ref() { drop(); }

  T* get() const { return thing_; }
  T* operator->() const { return thing_; }
  T& operator*() const { return *thing_; }
  explicit operator bool() const { return thing_ != nullptr; }
  bool only_one() const { return thing_->handles.load(std::memory_order_acquire) == 1; }

 private:
  void hold() {
    if (thing_) thing_->handles.fetch_add(1, std::memory_order_relaxed);
  }
  void drop() {
    if (thing_) let_go(thing_);
  }
  [[gnu::noinline]] static void let_go(T* thing) {
    if (thing->handles.load(std::memory_order_acquire) == 1 ||
        thing->handles.fetch_sub(1, std::memory_order_acq_rel) == 1)
      T::destroy(thing);
  }
  T* thing_ = nullptr;
};

// Something to be called later, whatever its type; its copies share it. (std::function would do,
// but its header costs every program a tenth of a second to compile.)
template <class Signature>
class Callback;
template <class Result, class... X>
class Callback<Result(X...)> {
 public:
  Callback() = default;
  template <class F>
  requires requires(F& f, X... x) { static_cast<Result>(f(x...)); }
  Callback(F f) : kept_(new Kept<F>(std::move(f))) {}
  explicit operator bool() const { return static_cast<bool>(kept_); }
  Result operator()(X... x) const {
    if (!kept_) throw Error("a Callback was called that has nothing to call");
    return kept_->call(x...);
  }

 private:
  struct Any {
    virtual ~Any() = default;
    virtual Result call(X... x) = 0;
    static void destroy(Any* any) { delete any; }
    std::atomic<int> handles{0};
  };
  template <class F>
  struct Kept final : Any {
    explicit Kept(F&& function) : f(std::move(function)) {}
    Result call(X... x) override { return static_cast<Result>(f(x...)); }
    F f;
  };
  Ref<Any> kept_;
};

// Where memory comes from is a matter of the machine: chapter 7.
void* take_block(std::size_t bytes);
void give_block(void* block, std::size_t bytes);
std::byte* allocate_on(Device device, std::int64_t bytes);
void release_on(Device device, std::byte* data);

class Storage {
 public:
  // New memory, not initialised.
  static Ref<Storage> make(std::int64_t bytes, Device device);
  // Memory that somebody else owns; `let_go` is called when the last tensor that uses it is gone.
  static Ref<Storage> around(void* data, std::int64_t bytes, Callback<void()> let_go);
  static void destroy(Storage* storage);

  std::atomic<int> handles{0};
  const Id id = next_id();
  const Device device;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::atomic<std::int64_t> version{0};
  const char* written_by = nullptr;  // the last operation that wrote in place, and where
  Loc written_at = Loc::unknown();

 private:
  explicit Storage(Device d) : device(d) {}
  std::size_t block_bytes_ = 0;
  Callback<void()> let_go_;
};

constexpr std::size_t storage_head = 128;  // the record and, at a 64-byte boundary, its elements
static_assert(sizeof(Storage) <= storage_head);

inline Ref<Storage> Storage::make(std::int64_t bytes, Device device) {
  const bool here = device.kind == Device::cpu;
  std::byte* const there = here ? nullptr : allocate_on(device, bytes);
  const std::size_t size = storage_head + (here ? static_cast<std::size_t>(bytes) : 0);
  auto* storage = new (take_block(size)) Storage(device);
  storage->block_bytes_ = size;
  storage->bytes = bytes;
  storage->data = here ? reinterpret_cast<std::byte*>(storage) + storage_head : there;
  return Ref<Storage>(storage);
}

inline Ref<Storage> Storage::around(void* data, std::int64_t bytes, Callback<void()> let_go) {
  auto* storage = new (take_block(storage_head)) Storage(cpu);
  storage->block_bytes_ = storage_head;
  storage->bytes = bytes;
  storage->data = static_cast<std::byte*>(data);
  storage->let_go_ = std::move(let_go);
  return Ref<Storage>(storage);
}

inline void Storage::destroy(Storage* storage) {
  if (storage->let_go_) storage->let_go_();
  if (storage->device.kind != Device::cpu) release_on(storage->device, storage->data);
  const std::size_t size = storage->block_bytes_;
  storage->~Storage();
  give_block(storage, size);
}

// ================================================================================================
// 4. Tensor
// ================================================================================================
//
// A tensor is a *view*: a storage, a shape, strides and an offset. Element [i, j] of a matrix is
// the storage's element offset + i * stride[0] + j * stride[1]. Transposing, slicing and
// broadcasting change those few numbers and copy nothing; that is why a view shares memory with its
// base.
//
// `Tensor` is a handle. Copying it, passing it and returning it copy a pointer: `auto y = x; y +=
// 1;` changes x as well, as in Python.

class Tensor;
class Operand;
class IndexTensor;

// Options are written by name: `randn({3, 4}, {.dtype = float64, .requires_grad = true})`. The
// first member forbids a list without names, which would compile and mean something else.
struct ByName {
  explicit constexpr ByName() = default;
};
struct TensorOptions {
  ByName by_name = ByName();
  std::optional<DType> dtype = {};    // left out: float32, or what the numbers given suggest
  std::optional<Device> device = {};  // left out: the processor, or where the tensor at hand is
  bool requires_grad = false;
};
struct ReduceOptions {
  ByName by_name = ByName();
  bool keepdim = false;
};
struct SumOptions {
  ByName by_name = ByName();
  bool keepdim = false;
  std::optional<DType> dtype = {};  // what the elements are converted to before
};
struct RunningOptions {
  ByName by_name = ByName();
  std::optional<DType> dtype = {};
};
// Which norm: a number p, or "fro", Frobenius' name for p = 2.
struct NormOrder {
  template <Number T>
  NormOrder(T number) : p(number) {}
  NormOrder(Scalar number) : p(number) {}
  NormOrder(const char* word) : p(2), name(word) {}
  Scalar p;
  std::string_view name = "fro";
};
struct VarOptions {
  ByName by_name = ByName();
  double correction = 1;  // the sum of squares is divided by the count less this
  bool keepdim = false;
};
struct SortOptions {
  ByName by_name = ByName();
  bool descending = false;
  bool stable = false;  // equal ones keep their order; here they always do
};
struct TopkOptions {
  ByName by_name = ByName();
  bool largest = true;
  bool sorted = true;  // here they always are
};
struct BackwardOptions {
  ByName by_name = ByName();
  bool retain_graph = false;
  bool create_graph = false;  // also record the backward pass itself; keeps the graph
};

// An integer argument. Unlike a plain int it has no default value, so that `{}` in its place is an
// error rather than a silent 0.
class Extent {
 public:
  template <Integer T>
  constexpr Extent(T value) : value_(static_cast<std::int64_t>(value)) {}
  constexpr operator std::int64_t() const { return value_; }

 private:
  std::int64_t value_;
};

// The first of several plain sizes, as in `zeros(3, 4)`, and the index of x[0]. It takes the line
// along, because nothing can follow a list of sizes.
class First {
 public:
  template <Integer T>
  constexpr First(T value, Loc here = Loc::here())
      : loc(here), value_(static_cast<std::int64_t>(value)) {}
  template <Integer... T>
  constexpr Shape with(T... rest) const {
    return Shape(value_, rest...);
  }
  constexpr std::int64_t value() const { return value_; }
  Loc loc;

 private:
  std::int64_t value_;
};

using Hook = Callback<Tensor(const Tensor& gradient)>;  // an undefined result: unchanged
struct Hooks {                                          // of one tensor, in their order
  static void destroy(Hooks* hooks) { delete hooks; }
  struct One {
    Id id;
    Hook call;
  };
  std::atomic<int> handles{0};
  std::vector<One> list;
};
// What register_hook() returns, for whoever wants to take the hook back. It keeps no graph.
class HookHandle {
 public:
  HookHandle(Ref<Hooks> hooks, Id id) : hooks_(std::move(hooks)), id_(id) {}
  void remove() const;

 private:
  Ref<Hooks> hooks_;
  Id id_;
};

// What a handle points to: a view, the storage that it looks at, and a place in the graph. One
// record is one tensor, however many handles it has.
struct TensorData : View {
  TensorData(const View& view, Ref<Storage> memory, Id number = next_id())
      : View(view), id(number), storage(std::move(memory)) {}
  static void destroy(TensorData* record);
  static void* operator new(std::size_t bytes) { return take_block(bytes); }
  static void operator delete(void* block) { give_block(block, sizeof(TensorData)); }
  ~TensorData();

  // In elements, as are the strides.
  std::int64_t offset() const { return (data - storage->data) / bytes_of(dtype); }

  alignas(8) std::atomic<int> handles{0};  // not in the last bytes of View, which are copied whole
  bool requires_grad = false;              // asked for by the user: a leaf
  bool retains_grad = false;
  const Id id;
  Ref<Storage> storage;

  Ref<Node> node;        // the operation that made it; null for a leaf and for plain data
  Ref<TensorData> grad;  // a leaf's gradient; null: none yet

  // A view remembers the tensor whose memory it shows. When a write changes what that base depends
  // on, the base counts it, and each view sees that its own node is out of date. (The function that
  // renews it comes with the first such write, so a program without one need not compile it.)
  Ref<TensorData> base;
  std::atomic<std::uint32_t> rewrites{0};
  void (*renew_view)(const Tensor& view) = nullptr;

  struct Extras {  // what few tensors have
    static void destroy(Extras* extras) { delete extras; }
    std::atomic<int> handles{0};
    std::string name;
    Ref<Hooks> hooks;
  };
  Ref<Extras> extras;

  Id mark = 0;  // scratch of a backward pass: which one was here last, and its place
  std::int32_t place = 0;
};

class [[nodiscard]] Tensor {
 public:
  Tensor() = default;  // undefined: what grad() is before a backward pass
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  explicit Tensor(Ref<TensorData> record) : record_(std::move(record)) {}

  // `y = x` makes the name y stand for x. `y[0] = x` writes into y, because y[0] is nobody's name.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;
  void operator=(const Operand& value) &&;
  template <Number T>
  Tensor& operator=(T) & = delete;  // write x.fill_(5.0)

  // ---- Ask ----
  bool defined() const { return static_cast<bool>(record_); }
  Shape shape() const { return get().shape; }
  std::int64_t size(Extent axis, Loc loc = Loc::here()) const;
  int dim() const { return get().shape.size(); }
  std::int64_t numel() const { return get().shape.numel(); }
  DType dtype() const { return get().dtype; }
  Device device() const { return get().device; }
  Shape stride() const { return get().strides; }
  std::int64_t stride(Extent axis, Loc loc = Loc::here()) const;
  std::int64_t storage_offset() const { return get().offset(); }
  bool is_contiguous() const;
  bool is_view() const { return static_cast<bool>(get().base); }
  bool shares_storage_with(const Tensor& other) const;
  std::int64_t version() const { return get().storage->version.load(std::memory_order_relaxed); }
  bool requires_grad() const { return get().requires_grad || node(); }
  bool is_leaf() const { return !node(); }
  bool retains_grad() const { return get().retains_grad; }
  Tensor grad() const;
  const Node* grad_fn() const { return node(); }
  std::string name() const { return get().extras ? get().extras->name : std::string(); }
  Id id() const { return get().id; }
  Id storage_id() const { return get().storage->id; }

  // The value of a tensor with one element. The explicit conversions do the same: float(loss).
  template <class T = double>
  T item(Loc loc = Loc::here()) const;
  template <Number T>
  explicit operator T() const;
  template <class T = double>
  std::vector<T> to_vector(Loc loc = Loc::here()) const;  // in row-major order, converted
  // Where the first element is; T must be the C++ type of the dtype.
  template <class T>
  T* data(Loc loc = Loc::here()) const;

  // ---- Change kind ----
  Tensor to(DType dtype, Loc loc = Loc::here()) const;
  Tensor to(Device device, Loc loc = Loc::here()) const;
  Tensor cpu(Loc loc = Loc::here()) const;
  Tensor cuda(Loc loc = Loc::here()) const;
  Tensor clone(Loc loc = Loc::here()) const;
  Tensor contiguous(Loc loc = Loc::here()) const;
  Tensor detach(Loc loc = Loc::here()) const;
  const Tensor& requires_grad_(bool yes = true, Loc loc = Loc::here()) const&;
  Tensor requires_grad_(bool yes = true, Loc loc = Loc::here()) &&;
  const Tensor& named(const std::string& name) const&;
  Tensor named(const std::string& name) &&;
  const Tensor& retain_grad(Loc loc = Loc::here()) const;
  // Calls `hook(gradient)` when the gradient of this tensor is complete; what it returns, if
  // anything, takes the gradient's place. The result's remove() takes the hook back.
  template <class F>
  HookHandle register_hook(F hook, Loc loc = Loc::here()) const;
  void zero_grad(Loc loc = Loc::here()) const;                     // lets go of the gradient
  void set_grad(const Tensor& grad, Loc loc = Loc::here()) const;  // a copy of it
  void backward(BackwardOptions options = {}, Loc loc = Loc::here()) const;
  void backward(const Tensor& gradient, BackwardOptions options = {}, Loc loc = Loc::here()) const;

  // ---- Index: views of this tensor ----
  Tensor operator[](const First& index) const;
  class Picked;
  Picked operator[](const IndexTensor& index) const;  // x[mask], x[numbers]: a copy of these rows
  Tensor select(Extent axis, Extent index, Loc loc = Loc::here()) const;
  Tensor slice(Extent axis, Extent start, std::optional<std::int64_t> stop = {}, Extent step = 1,
               Loc loc = Loc::here()) const;
  Tensor narrow(Extent axis, Extent start, Extent length, Loc loc = Loc::here()) const;
  Tensor at(Shape index, Loc loc = Loc::here()) const;  // x.at({i, j})
  Tensor gather(Extent axis, const Tensor& index, Loc loc = Loc::here()) const;
  Tensor take_along_dim(const Tensor& index, Extent axis, Loc loc = Loc::here()) const;
  Tensor take_along_dim(const Tensor& index, Loc loc = Loc::here()) const;
  Tensor index_select(Extent axis, const Tensor& index, Loc loc = Loc::here()) const;
  Tensor index_add(Extent axis, const Tensor& index, const Tensor& source,
                   struct IndexAddOptions options, Loc loc = Loc::here()) const;
  Tensor index_add(Extent axis, const Tensor& index, const Tensor& source,
                   Loc loc = Loc::here()) const;
  Tensor scatter(Extent axis, const Tensor& index, const Tensor& source,
                 Loc loc = Loc::here()) const;
  Tensor scatter(Extent axis, const Tensor& index, Scalar value, Loc loc = Loc::here()) const;
  Tensor scatter_add(Extent axis, const Tensor& index, const Tensor& source,
                     Loc loc = Loc::here()) const;
  Tensor masked_fill(const Tensor& mask, const Operand& value) const;
  Tensor masked_select(const Tensor& mask, Loc loc = Loc::here()) const;
  class Rows;
  Rows begin(Loc loc = Loc::here()) const;  // over axis 0
  Rows end(Loc loc = Loc::here()) const;

  // ---- Shape ----
  Tensor view(Shape shape, Loc loc = Loc::here()) const;
  template <Integer Second, Integer... T>
  Tensor view(First first, Second second, T... rest) const {
    return view(first.with(second, rest...), first.loc);
  }
  Tensor reshape(Shape shape, Loc loc = Loc::here()) const;
  template <Integer Second, Integer... T>
  Tensor reshape(First first, Second second, T... rest) const {
    return reshape(first.with(second, rest...), first.loc);
  }
  Tensor flatten(Extent from = 0, Extent to = -1, Loc loc = Loc::here()) const;
  Tensor transpose(Extent axis, Extent other, Loc loc = Loc::here()) const;
  Tensor t(Loc loc = Loc::here()) const;
  Tensor permute(Dims axes, Loc loc = Loc::here()) const;
  template <Integer Second, Integer... T>
  Tensor permute(First first, Second second, T... rest) const {
    return permute(first.with(second, rest...), first.loc);
  }
  Tensor expand(Shape shape, Loc loc = Loc::here()) const;
  template <Integer Second, Integer... T>
  Tensor expand(First first, Second second, T... rest) const {
    return expand(first.with(second, rest...), first.loc);
  }
  Tensor squeeze(Loc loc = Loc::here()) const;
  Tensor squeeze(Extent axis, Loc loc = Loc::here()) const;
  Tensor unsqueeze(Extent axis, Loc loc = Loc::here()) const;
  Tensor flip(Dims axes, Loc loc = Loc::here()) const;
  Tensor roll(Dims shifts, Dims axes = {}, Loc loc = Loc::here()) const;
  Tensor unflatten(Extent axis, Shape sizes, Loc loc = Loc::here()) const;
  Tensor movedim(Dims from, Dims to, Loc loc = Loc::here()) const;
  Tensor expand_as(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor broadcast_to(Shape shape, Loc loc = Loc::here()) const;
  Tensor repeat(Shape times, Loc loc = Loc::here()) const;
  template <Integer Second, Integer... T>
  Tensor repeat(First first, Second second, T... rest) const {
    return repeat(first.with(second, rest...), first.loc);
  }
  std::vector<Tensor> split(std::int64_t size, Extent axis = 0, Loc loc = Loc::here()) const;
  std::vector<Tensor> split(Dims sizes, Extent axis = 0, Loc loc = Loc::here()) const;
  std::vector<Tensor> chunk(Extent count, Extent axis = 0, Loc loc = Loc::here()) const;
  std::vector<Tensor> unbind(Extent axis = 0, Loc loc = Loc::here()) const;
  Tensor tril(Extent diagonal = 0, Loc loc = Loc::here()) const;
  Tensor triu(Extent diagonal = 0, Loc loc = Loc::here()) const;
  Tensor diagonal(Extent offset = 0, Extent axis = 0, Extent other = 1,
                  Loc loc = Loc::here()) const;
  Tensor unfold(Extent axis, Extent size, Extent step, Loc loc = Loc::here()) const;

  // ---- Elementwise ----
  Tensor add(const Operand& other) const;
  Tensor sub(const Operand& other) const;
  Tensor mul(const Operand& other) const;
  Tensor div(const Operand& other) const;
  Tensor pow(const Tensor& exponent, Loc loc = Loc::here()) const;
  Tensor pow(Scalar exponent, Loc loc = Loc::here()) const;
  Tensor neg(Loc loc = Loc::here()) const;
  Tensor abs(Loc loc = Loc::here()) const;
  Tensor sign(Loc loc = Loc::here()) const;
  Tensor exp(Loc loc = Loc::here()) const;
  Tensor log(Loc loc = Loc::here()) const;
  Tensor sqrt(Loc loc = Loc::here()) const;
  Tensor square(Loc loc = Loc::here()) const;
  Tensor sin(Loc loc = Loc::here()) const;
  Tensor cos(Loc loc = Loc::here()) const;
  Tensor tanh(Loc loc = Loc::here()) const;
  Tensor sigmoid(Loc loc = Loc::here()) const;
  Tensor relu(Loc loc = Loc::here()) const;
  Tensor maximum(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor minimum(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor exp2(Loc loc = Loc::here()) const;
  Tensor expm1(Loc loc = Loc::here()) const;
  Tensor log2(Loc loc = Loc::here()) const;
  Tensor log10(Loc loc = Loc::here()) const;
  Tensor log1p(Loc loc = Loc::here()) const;
  Tensor rsqrt(Loc loc = Loc::here()) const;
  Tensor reciprocal(Loc loc = Loc::here()) const;
  Tensor tan(Loc loc = Loc::here()) const;
  Tensor asin(Loc loc = Loc::here()) const;
  Tensor acos(Loc loc = Loc::here()) const;
  Tensor atan(Loc loc = Loc::here()) const;
  Tensor sinh(Loc loc = Loc::here()) const;
  Tensor cosh(Loc loc = Loc::here()) const;
  Tensor erf(Loc loc = Loc::here()) const;
  Tensor floor(Loc loc = Loc::here()) const;
  Tensor ceil(Loc loc = Loc::here()) const;
  Tensor round(Loc loc = Loc::here()) const;
  Tensor trunc(Loc loc = Loc::here()) const;
  Tensor atan2(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor fmod(const Operand& other) const;
  Tensor remainder(const Operand& other) const;
  Tensor floor_divide(const Operand& other) const;
  Tensor lerp(const Tensor& end, const Operand& weight) const;
  Tensor clamp(struct ClampOptions options, Loc loc = Loc::here()) const;
  Tensor clamp(Scalar min, Scalar max, Loc loc = Loc::here()) const;
  Tensor clamp(Scalar min, Loc loc = Loc::here()) const;
  Tensor clamp(const Tensor& min, const Tensor& max = {}, Loc loc = Loc::here()) const;
  Tensor clip(struct ClampOptions options, Loc loc = Loc::here()) const;  // clamp's second name
  Tensor clip(Scalar min, Scalar max, Loc loc = Loc::here()) const;
  Tensor isnan(Loc loc = Loc::here()) const;
  Tensor isinf(Loc loc = Loc::here()) const;
  Tensor isfinite(Loc loc = Loc::here()) const;
  bool equal(const Tensor& other, Loc loc = Loc::here()) const;
  bool allclose(const Tensor& other, struct CloseOptions options, Loc loc = Loc::here()) const;
  bool allclose(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor logical_and(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor logical_or(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor logical_xor(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor logical_not(Loc loc = Loc::here()) const;

  // ---- In place ----
  const Tensor& add_(const Operand& other) const;
  const Tensor& sub_(const Operand& other) const;
  const Tensor& mul_(const Operand& other) const;
  const Tensor& div_(const Operand& other) const;
  const Tensor& copy_(const Operand& other) const;
  const Tensor& fill_(Scalar value, Loc loc = Loc::here()) const;
  const Tensor& zero_(Loc loc = Loc::here()) const;
  const Tensor& clamp_(struct ClampOptions options, Loc loc = Loc::here()) const;
  const Tensor& clamp_(Scalar min, Scalar max, Loc loc = Loc::here()) const;
  const Tensor& masked_fill_(const Tensor& mask, const Operand& value) const;
  const Tensor& uniform_(double from = 0, double to = 1, Loc loc = Loc::here()) const;
  const Tensor& normal_(double mean = 0, double std = 1, Loc loc = Loc::here()) const;
  Tensor& operator+=(const Operand& other) &;
  Tensor& operator-=(const Operand& other) &;
  Tensor& operator*=(const Operand& other) &;
  Tensor& operator/=(const Operand& other) &;
  void operator+=(const Operand& other) &&;
  void operator-=(const Operand& other) &&;
  void operator*=(const Operand& other) &&;
  void operator/=(const Operand& other) &&;

  // ---- Reduce ----
  Tensor sum(Dims axes = {}, SumOptions options = {}, Loc loc = Loc::here()) const;
  Tensor mean(Dims axes = {}, SumOptions options = {}, Loc loc = Loc::here()) const;
  Tensor amax(Dims axes = {}, ReduceOptions options = {}, Loc loc = Loc::here()) const;
  Tensor amin(Dims axes = {}, ReduceOptions options = {}, Loc loc = Loc::here()) const;
  Tensor max(Loc loc = Loc::here()) const;
  Tensor min(Loc loc = Loc::here()) const;
  struct ValuesIndices max(Extent axis, ReduceOptions options = {}, Loc loc = Loc::here()) const;
  struct ValuesIndices min(Extent axis, ReduceOptions options = {}, Loc loc = Loc::here()) const;
  Tensor argmax(Extent axis, ReduceOptions options = {}, Loc loc = Loc::here()) const;
  Tensor argmax(Loc loc = Loc::here()) const;  // of the elements in a line
  Tensor argmin(Extent axis, ReduceOptions options = {}, Loc loc = Loc::here()) const;
  Tensor argmin(Loc loc = Loc::here()) const;
  Tensor prod(Dims axes = {}, SumOptions options = {}, Loc loc = Loc::here()) const;
  Tensor var(Dims axes = {}, VarOptions options = {}, Loc loc = Loc::here()) const;
  Tensor var(VarOptions options, Loc loc = Loc::here()) const;
  Tensor std(Dims axes = {}, VarOptions options = {}, Loc loc = Loc::here()) const;
  Tensor std(VarOptions options, Loc loc = Loc::here()) const;
  Tensor norm(NormOrder p = 2, Dims axes = {}, SumOptions options = {},
              Loc loc = Loc::here()) const;
  Tensor logsumexp(Dims axes, ReduceOptions options = {}, Loc loc = Loc::here()) const;
  Tensor all(Dims axes = {}, ReduceOptions options = {}, Loc loc = Loc::here()) const;
  Tensor any(Dims axes = {}, ReduceOptions options = {}, Loc loc = Loc::here()) const;
  Tensor count_nonzero(Dims axes = {}, Loc loc = Loc::here()) const;
  Tensor cumsum(Extent axis, RunningOptions options = {}, Loc loc = Loc::here()) const;
  Tensor cumprod(Extent axis, RunningOptions options = {}, Loc loc = Loc::here()) const;
  struct ValuesIndices sort(Extent axis = -1, SortOptions options = {},
                            Loc loc = Loc::here()) const;
  Tensor argsort(Extent axis = -1, SortOptions options = {}, Loc loc = Loc::here()) const;
  struct ValuesIndices topk(Extent k, Extent axis = -1, TopkOptions options = {},
                            Loc loc = Loc::here()) const;
  Tensor softmax(Extent axis, Loc loc = Loc::here()) const;
  Tensor log_softmax(Extent axis, Loc loc = Loc::here()) const;

  // ---- Linear algebra ----
  Tensor matmul(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor mm(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor bmm(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor mv(const Tensor& vector, Loc loc = Loc::here()) const;
  Tensor dot(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor outer(const Tensor& other, Loc loc = Loc::here()) const;
  Tensor addmm(const Tensor& a, const Tensor& b, struct AddmmOptions options,
               Loc loc = Loc::here()) const;
  Tensor addmm(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) const;

  friend Tensor operator+(const Operand& a, const Operand& b);
  friend Tensor operator-(const Operand& a, const Operand& b);
  friend Tensor operator*(const Operand& a, const Operand& b);
  friend Tensor operator/(const Operand& a, const Operand& b);
  friend Tensor operator-(const Operand& a);
  friend Tensor operator==(const Operand& a, const Operand& b);
  friend Tensor operator!=(const Operand& a, const Operand& b);
  friend Tensor operator<(const Operand& a, const Operand& b);
  friend Tensor operator<=(const Operand& a, const Operand& b);
  friend Tensor operator>(const Operand& a, const Operand& b);
  friend Tensor operator>=(const Operand& a, const Operand& b);
  friend Tensor operator&(const Operand& a, const Operand& b);
  friend Tensor operator|(const Operand& a, const Operand& b);
  friend Tensor operator^(const Operand& a, const Operand& b);
  friend Tensor operator~(const Operand& a);

  // ---- For the chapters that follow ----
  TensorData& get() const {
    if (!record_) fail_undefined();
    return *record_;
  }
  const Ref<TensorData>& handle() const { return record_; }
  const View& elements() const { return get(); }
  Node* node() const;  // brought up to date if a write through another view has changed it

 private:
  [[noreturn]] static void fail_undefined();
  Ref<TensorData> record_;
};

struct GradOptions {
  ByName by_name = ByName();
  bool retain_graph = false;
  bool create_graph = false;
  bool allow_unused = false;
  std::vector<Tensor> grad_outputs = {};  // where an output is not a single number
};

struct ValuesIndices {
  Tensor values, indices;
};

struct ClampOptions {
  ByName by_name = ByName();
  std::optional<Scalar> min = {}, max = {};
};
struct CloseOptions {
  ByName by_name = ByName();
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;
};
struct AddmmOptions {
  ByName by_name = ByName();
  double beta = 1, alpha = 1;
};
struct IndexAddOptions {
  ByName by_name = ByName();
  Scalar alpha = 1;  // what the source is multiplied by
};

// What stands beside an operator: a tensor or a number, with the line of the source. It is made by
// the compiler for the length of one call, and is never kept.
class Operand {
 public:
  Operand(const Tensor& t, Loc here = Loc::here()) : tensor(&t), number(0), loc(here) {}
  template <Number T>
  Operand(T value, Loc here = Loc::here()) : number(value), loc(here) {}
  explicit Operand(Scalar value, Loc here = Loc::here()) : number(value), loc(here) {}
  Operand(const Operand&) = delete;

  const Tensor* tensor = nullptr;
  Scalar number;
  Loc loc;
};

// A mask, or numbers of rows, between square brackets; with the line, as in Operand.
class IndexTensor {
 public:
  IndexTensor(const Tensor& t, Loc here = Loc::here()) : tensor(t), loc(here) {}
  IndexTensor(const IndexTensor&) = delete;
  const Tensor& tensor;
  const Loc loc;
};

// ---- What this thread is doing ------------------------------------------------------------------

class Observer;  // chapter 14

struct Sabotage {  // tests only: multiplies one gradient of one rule, and somebody has to notice
  const char* op;
  int slot;
};

// What the last operation works on that has begun: for watchers, should it fail.
struct Asked {
  const char* op = nullptr;
  int line = 0;
  std::array<Id, 3> inputs = {};  // the first ones; 0: there are no more
};

struct Current {
  bool grad_enabled = true;
  bool anomaly = false;            // chapter 13
  Observer* observer = nullptr;    // told of everything that happens; null: nobody watches
  Id scope = 0;                    // the innermost open scope
  Loc pinned = Loc::unknown();     // the line of the outermost call that is running
  const char* composed = nullptr;  // and its name, if it is made of other operations
  bool asked_no_leaf = false;      // the last grad() was that of a tensor that keeps none
  Loc last_line = Loc::unknown();  // the last line seen outside the system's headers
  Asked asked;
  const Sabotage* sabotage = nullptr;
};
inline constinit thread_local Current current;

// The line to name: that of the outermost call, because `softmax(x)` is what the student wrote, not
// the subtraction inside it. Calls that come by way of a system header (std::accumulate, say) keep
// the last line that was not in one.
inline Loc line_of(Loc loc) {
  if (current.pinned.line()) return current.pinned;
  if (loc.path()[0] == '/' && std::strstr(loc.path(), "/include/c++/")) return current.last_line;
  return current.last_line = loc;
}

class [[nodiscard]] Pin {  // while it lives, everything inside carries this line
 public:
  explicit Pin(Loc loc) : before_(current.pinned) { current.pinned = line_of(loc); }
  ~Pin() { current.pinned = before_; }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
  Loc before_;
};

class Quiet {  // while it lives, nobody is told of anything
 public:
  Quiet() : before_(std::exchange(current.observer, nullptr)) {}
  ~Quiet() { current.observer = before_; }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  Observer* before_;
};

// (chapter 14) `called` is the operation's name as the student wrote it.
void tell_failed(Observer*, const At& at, const char* called, const std::string& text);
void tell_made(const Tensor& tensor, Loc loc);
void tell_named(const Tensor& tensor);
void tell_let_go(const Tensor& tensor, Loc loc);
void tell_landed(Observer*, std::int64_t pass, const Tensor& leaf, const Tensor& before);

// "matmul: inner sizes differ: [2, 3] x [4, 5] at prog.cpp:12. Hint: transpose the second?"
inline std::string message(const At& at, Words what, Words hint) {
  return text_of(
      {at.op, ": ", what, " at ", line_of(at.loc), hint.size() > 0 ? ". Hint: " : ".", hint});
}
[[noreturn]] inline void fail(const At& at, Words what, Words hint) {
  const char* const op = current.composed ? current.composed : at.op;  // what the student wrote
  const std::string text = message({op, at.loc}, what, hint);
  if (current.observer) tell_failed(current.observer, at, op, text);
  throw Error(text);
}

// For what is allowed and rarely meant. It is said once.
inline void warn(const At& at, Words what, Words hint) {
  static thread_local std::string said;
  const std::string text = text_of({"warning: ", message(at, what, hint), "\n"});
  if (said.find(text) != std::string::npos) return;
  said += text;
  std::cerr << text;
}

// The gradient, or an undefined tensor, and then it is remembered why.
inline Tensor Tensor::grad() const {
  current.asked_no_leaf = !get().grad && !is_leaf() && !retains_grad();
  return Tensor(get().grad);
}
[[noreturn]] inline void fail_undefined_at(const At& at, const char* what) {
  if (std::exchange(current.asked_no_leaf, false))
    fail(
        at,
        {what, " is undefined; the last grad() was that of a tensor that is not a leaf, and those ",
         "keep none"},
        {"if this is it, keep a parameter a leaf: update it with { NoGrad guard; w -= lr * ",
         "w.grad(); }. Of another tensor call retain_grad() before backward()"});
  fail(at,
       {what, " is undefined, as a Tensor without a value is, and grad() before a backward pass"},
       {"begin with tensor(0.0) or zeros(...), call backward() first, or ask defined()"});
}
[[noreturn]] inline void Tensor::fail_undefined() {
  // Who has no Loc to ask with is at the last line that is known, or has gone on from there.
  fail_undefined_at({"tensor", current.last_line}, "a tensor used on that line, or after it,");
}

[[gnu::noinline]] inline void remember(const At& at, std::initializer_list<const Tensor*> inputs) {
  current.asked = {at.op, at.loc.line()};
  for (std::size_t i = 0; i < current.asked.inputs.size() && i < inputs.size(); ++i)
    current.asked.inputs[i] = inputs.begin()[i]->id();
}
// Every operation asks first: are these tensors defined, and on one device?
inline void check_together(const At& at, std::initializer_list<const Tensor*> inputs) {
  const Tensor* first = nullptr;
  for (const Tensor* x : inputs) {
    if (!x->defined()) fail_undefined_at(at, "an input");
    if (first && x->device() != first->device())
      fail(at, {"the inputs are on different devices: ", first->device(), " and ", x->device()},
           {"move one of them with .to(\"", first->device(), "\")"});
    if (!first) first = x;
  }
  if (current.observer) remember(at, inputs);
}

// ---- Making tensors -----------------------------------------------------------------------------

// The verbs used here are defined in chapter 7.
void fill(const View& y, Scalar value);
void copy(const View& y, const View& a);

inline Ref<TensorData> dense_record(const Shape& shape, DType dtype, Ref<Storage> storage) {
  const View view{storage->data, dtype, shape, contiguous_strides(shape), storage->device};
  return Ref<TensorData>::make(view, std::move(storage));
}
// A new dense tensor, its elements not initialised.
inline Tensor fresh(const Shape& shape, DType dtype, Device device = cpu) {
  return Tensor(dense_record(shape, dtype, Storage::make(shape.numel() * bytes_of(dtype), device)));
}

// The same for an operation, which is named if there is no memory.
[[gnu::noinline]] inline Tensor fresh(const Shape& shape, DType dtype, Device device,
                                      const At& at) {
  try {
    return fresh(shape, dtype, device);
  } catch (const Error& no_memory) {
    fail(at, {no_memory.what()}, {"smaller batches, or NoGrad where nothing is trained"});
  }
}

// The elements in row-major order, in memory of their own. Not recorded.
[[gnu::noinline]] inline Tensor copy_of(const Tensor& x, DType dtype, Device device) {
  Tensor y = fresh(x.shape(), dtype, device);
  copy(y.elements(), x.elements());
  return y;
}
inline Tensor copy_of(const Tensor& x) { return copy_of(x, x.dtype(), x.device()); }
[[gnu::noinline]] inline Tensor copy_of(const Tensor& x, DType dtype, Device device, const At& at) {
  Tensor y = fresh(x.shape(), dtype, device, at);
  copy(y.elements(), x.elements());
  return y;
}

void check_device(Device device, const At& at);  // chapter 10

// What every function that makes a tensor does first and last.
inline void check_options(const Shape& shape, DType dtype, const TensorOptions& options,
                          const At& at) {
  check_sizes(shape, at);
  if (options.requires_grad && !is_floating(dtype))
    fail(at, {"only floating point tensors can require gradients, not ", dtype},
         {"write 2.0 instead of 2, or {.dtype = float32}"});
  check_device(options.device.value_or(cpu), at);
}
inline Tensor begin_tensor(const char* op, const Shape& shape, DType dtype,
                           const TensorOptions& options, Loc loc) {
  const At at{op, loc};
  check_options(shape, dtype, options, at);
  return fresh(shape, dtype, options.device.value_or(cpu), at);
}
// For numbers that are written one by one: on the processor. They go to their device at the end.
inline Tensor begin_numbers(const char* op, const Shape& shape, DType dtype,
                            const TensorOptions& options, Loc loc) {
  TensorOptions here = options;
  check_device(std::exchange(here.device, cpu).value_or(cpu), {op, loc});
  return begin_tensor(op, shape, dtype, here, loc);
}
inline Tensor end_tensor(Tensor x, const TensorOptions& options, Loc loc) {
  if (const Device device = options.device.value_or(cpu); x.device() != device)
    x = copy_of(x, x.dtype(), device);
  x.get().requires_grad = options.requires_grad;
  const Loc line = line_of(loc);  // asked in any case: it remembers the line
  if (current.observer) tell_made(x, line);
  return x;
}

inline Tensor empty(Shape shape, TensorOptions options = {}, Loc loc = Loc::here()) {
  Tensor x = begin_tensor("empty", shape, options.dtype.value_or(float32), options, loc);
  return end_tensor(std::move(x), options, loc);
}
inline Tensor filled(const char* op, const Shape& shape, Scalar value, DType dtype,
                     const TensorOptions& options, Loc loc) {
  Tensor x = begin_tensor(op, shape, dtype, options, loc);
  fill(x.elements(), value);
  return end_tensor(std::move(x), options, loc);
}
inline Tensor full(Shape shape, Scalar value, TensorOptions options = {}, Loc loc = Loc::here()) {
  return filled("full", shape, value, options.dtype.value_or(value.dtype()), options, loc);
}
inline Tensor zeros(Shape shape, TensorOptions options = {}, Loc loc = Loc::here()) {
  return filled("zeros", shape, 0, options.dtype.value_or(float32), options, loc);
}
inline Tensor ones(Shape shape, TensorOptions options = {}, Loc loc = Loc::here()) {
  return filled("ones", shape, 1, options.dtype.value_or(float32), options, loc);
}
template <Integer Second, Integer... T>
Tensor empty(First first, Second second, T... rest) {
  return empty(first.with(second, rest...), {}, first.loc);
}
template <Integer Second, Integer... T>
Tensor zeros(First first, Second second, T... rest) {
  return zeros(first.with(second, rest...), {}, first.loc);
}
template <Integer Second, Integer... T>
Tensor ones(First first, Second second, T... rest) {
  return ones(first.with(second, rest...), {}, first.loc);
}

inline TensorOptions options_like(const Tensor& x, TensorOptions options, const At& at) {
  check_together(at, {&x});
  if (!options.dtype) options.dtype = x.dtype();
  if (!options.device) options.device = x.device();
  return options;
}
inline Tensor empty_like(const Tensor& x, TensorOptions options = {}, Loc loc = Loc::here()) {
  options = options_like(x, options, {"empty_like", loc});
  return empty(x.shape(), options, loc);
}
inline Tensor zeros_like(const Tensor& x, TensorOptions options = {}, Loc loc = Loc::here()) {
  options = options_like(x, options, {"zeros_like", loc});
  return zeros(x.shape(), options, loc);
}
inline Tensor ones_like(const Tensor& x, TensorOptions options = {}, Loc loc = Loc::here()) {
  options = options_like(x, options, {"ones_like", loc});
  return ones(x.shape(), options, loc);
}
inline Tensor full_like(const Tensor& x, Scalar value, TensorOptions options = {},
                        Loc loc = Loc::here()) {
  options = options_like(x, options, {"full_like", loc});
  return full(x.shape(), value, options, loc);
}

// What may stand in a std::vector or an array that becomes a tensor: numbers, or rows of them.
template <class T>
inline constexpr bool is_row_item = Number<T>;
template <class T>
inline constexpr bool is_row_item<std::vector<T>> = is_row_item<T>;
template <class T, std::size_t n>
inline constexpr bool is_row_item<T[n]> = is_row_item<T>;

// The numbers of a nested list: `tensor({{1., 2.}, {3., 4.}})` has shape [2, 2]. One recursive type
// takes every depth; it is a plain literal, so that a large table costs the compiler nothing. Of a
// vector or an array it keeps a pointer, and reads one item after the other.
class Nested {
 public:
  constexpr Nested() : list_(), is_list_(true) {}  // {}: an empty list
  template <Number T>
  constexpr Nested(T value) : number_(value) {}
  constexpr Nested(std::initializer_list<Nested> list) : list_(list), is_list_(true) {}
  template <class T>
  requires is_row_item<T> Nested(const std::vector<T>& items)
      : items_(&items),
        count_(static_cast<std::int64_t>(items.size())),
        is_list_(true),
        item_at_([](const void* from, std::int64_t i) {
          const T& item = (*static_cast<const std::vector<T>*>(from))[static_cast<std::size_t>(i)];
          return Nested(item);
        }),
        number_(Nested(T{}).number_) {}
  template <class T, std::size_t n>
  requires is_row_item<T> Nested(const T (&items)[n])
      : items_(&items),
        count_(static_cast<std::int64_t>(n)),
        is_list_(true),
        item_at_([](const void* from, std::int64_t i) {
          return Nested(static_cast<const T*>(from)[i]);
        }) {}
  Nested(const Nested&) = delete;

  Shape shape(const At& at) const {
    Shape shape;
    if (!is_list_) return shape;
    if (size() > 0) shape = item_at_ ? item_at_(items_, 0).shape(at) : list_.begin()->shape(at);
    if (shape.size() == Shape::capacity) fail(at, {"a tensor has at most 8 dimensions"});
    shape.insert(0, size());
    return shape;
  }
  // Appends the numbers, which have to fill this shape.
  void append_to(std::vector<Scalar>& numbers, const Shape& shape, int depth, const At& at) const {
    const bool leaf = depth == shape.size();
    if (is_list_ == leaf || (is_list_ && size() != shape[depth]))
      fail(at, {"the nested list is ragged: its rows have different lengths"});
    if (leaf) numbers.push_back(number_);
    for (const Nested& item : list_) item.append_to(numbers, shape, depth + 1, at);
    for (std::int64_t i = 0; i < count_; ++i)
      item_at_(items_, i).append_to(numbers, shape, depth + 1, at);
  }
  // What an empty list holds.
  DType dtype() const { return item_at_ ? number_.dtype() : float32; }

 private:
  std::int64_t size() const { return item_at_ ? count_ : static_cast<std::int64_t>(list_.size()); }
  std::initializer_list<Nested> list_;
  const void* items_ = nullptr;
  std::int64_t count_ = 0;
  bool is_list_ = false;
  Nested (*item_at_)(const void* items, std::int64_t i) = nullptr;
  Scalar number_ = 0;
};

// A tensor with these elements. Without a dtype: floats (also doubles) make float32, integers
// int64, bools boolean.
inline Tensor tensor(const Nested& values, TensorOptions options = {}, Loc loc = Loc::here()) {
  const At at{"tensor", loc};
  const Shape shape = values.shape(at);
  std::vector<Scalar> numbers;
  values.append_to(numbers, shape, 0, at);
  DType kind = numbers.empty() ? values.dtype() : boolean;  // a float anywhere makes them floats
  for (const Scalar& number : numbers) kind = common_dtype(kind, number.dtype());
  const DType dtype = options.dtype.value_or(kind);
  Tensor x = begin_numbers("tensor", shape, dtype, options, loc);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    write_number(x.elements().data, dtype, static_cast<std::int64_t>(i), numbers[i]);
  return end_tensor(std::move(x), options, loc);
}

// start, start + step, ... below stop
inline Tensor arange(Scalar start, Scalar stop, Scalar step = 1, TensorOptions options = {},
                     Loc loc = Loc::here()) {
  const At at{"arange", loc};
  const DType kind = common_dtype(common_dtype(start.dtype(), stop.dtype()), step.dtype());
  std::int64_t whole;
  const double distance =
      kind == int64 && !__builtin_sub_overflow(stop.whole(), start.whole(), &whole)
          ? static_cast<double>(whole)
          : stop.real() - start.real();
  const double steps = distance / step.real(), length = std::ceil(steps);
  if (step.real() == 0) fail(at, {"the step is 0"});
  if (!std::isfinite(distance) || !std::isfinite(step.real()))
    fail(at, {"start, stop and step have to be finite"});
  if (!(steps >= 0)) fail(at, {"the step does not lead from start to stop"});
  if (length > 1e15) fail(at, {"it would have too many elements for any memory"});
  const DType dtype = options.dtype.value_or(kind == boolean ? int64 : kind);
  Tensor x = begin_numbers("arange", {static_cast<std::int64_t>(length)}, dtype, options, loc);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    write_number(x.elements().data, dtype, i,
                 kind == int64 ? Scalar(start.whole() + i * step.whole())
                               : Scalar(start.real() + static_cast<double>(i) * step.real()));
  return end_tensor(std::move(x), options, loc);
}
inline Tensor arange(Scalar stop, TensorOptions options = {}, Loc loc = Loc::here()) {
  return arange(0, stop, 1, options, loc);
}
// `count` numbers from start to stop, both included, evenly spaced
inline Tensor linspace(Scalar start, Scalar stop, Extent count, TensorOptions options = {},
                       Loc loc = Loc::here()) {
  const DType dtype = options.dtype.value_or(float32);
  Tensor x = begin_numbers("linspace", {std::int64_t{count}}, dtype, options, loc);
  const double step = count > 1 ? (stop.real() - start.real()) / static_cast<double>(count - 1) : 0;
  for (std::int64_t i = 0; i < count; ++i)  // from both ends, so that both are exact
    write_number(x.elements().data, dtype, i,
                 i < (count + 1) / 2 ? start.real() + static_cast<double>(i) * step
                                     : stop.real() - static_cast<double>(count - 1 - i) * step);
  return end_tensor(std::move(x), options, loc);
}
inline Tensor eye(Extent n, TensorOptions options = {}, Loc loc = Loc::here()) {
  const DType dtype = options.dtype.value_or(float32);
  Tensor x = begin_tensor("eye", {std::int64_t{n}, std::int64_t{n}}, dtype, options, loc);
  fill(x.elements(), 0);
  View diagonal = x.elements();
  diagonal.shape = {std::int64_t{n}};
  diagonal.strides = {n + 1};
  fill(diagonal, 1);
  return end_tensor(std::move(x), options, loc);
}

// A tensor over memory that the caller owns and that has to outlive it; `let_go` runs when the last
// tensor that uses the memory is gone.
inline Tensor from_blob(void* data, Shape shape, TensorOptions options = {},
                        Callback<void()> let_go = {}, Loc loc = Loc::here()) {
  const At at{"from_blob", loc};
  const DType dtype = options.dtype.value_or(float32);
  check_options(shape, dtype, options, at);
  if (options.device.value_or(cpu) != cpu)
    fail(at, {"the memory has to be the processor's"}, {"then .to(cuda)"});
  if (!data && shape.numel() > 0) fail(at, {"the pointer to the memory is null"});
  const std::int64_t bytes = shape.numel() * bytes_of(dtype);
  Ref<TensorData> record =
      dense_record(shape, dtype, Storage::around(data, bytes, std::move(let_go)));
  return end_tensor(Tensor(std::move(record)), options, loc);
}

// ---- Asking -------------------------------------------------------------------------------------

inline std::int64_t Tensor::size(Extent axis, Loc loc) const {
  check_together({"size", loc}, {this});
  if (dim() == 0) fail({"size", loc}, {"a 0-d tensor has no axes"}, {"numel() is 1"});
  return get().shape[checked_axis(axis, dim(), {"size", loc})];
}
inline std::int64_t Tensor::stride(Extent axis, Loc loc) const {
  check_together({"stride", loc}, {this});
  if (dim() == 0) fail({"stride", loc}, {"a 0-d tensor has no axes"});
  return get().strides[checked_axis(axis, dim(), {"stride", loc})];
}
inline bool Tensor::is_contiguous() const {
  const TensorData& r = get();
  if (r.shape.numel() == 0) return true;
  const Shape dense = contiguous_strides(r.shape);
  for (int i = 0; i < r.shape.size(); ++i)
    if (r.shape[i] != 1 && r.strides[i] != dense[i]) return false;
  return true;
}
inline bool Tensor::shares_storage_with(const Tensor& other) const {
  return get().storage.get() == other.get().storage.get();
}
template <class T>
T* Tensor::data(Loc loc) const {
  check_together({"data", loc}, {this});
  if (dtype_of<T>() != dtype() || sizeof(T) != bytes_of(dtype()))
    fail({"data", loc}, {"the elements are ", dtype()});
  return reinterpret_cast<T*>(elements().data);
}

// The first element of a view of the processor's memory.
inline Scalar first_of(const View& view) {
  return with_type(view.dtype,
                   [&](auto t) { return Scalar(*reinterpret_cast<decltype(t)*>(view.data)); });
}
template <class T>
std::vector<T> Tensor::to_vector(Loc loc) const {
  check_together({"to_vector", loc}, {this});
  using Element = TypeOf<dtype_of<T>()>;
  const Tensor dense = copy_of(*this, dtype_of<T>(), Device::cpu);
  const auto* first = reinterpret_cast<const Element*>(dense.elements().data);
  const auto* last = first + numel();
  if constexpr (Integer<T>)
    for (const Element* x = first; x < last; ++x)
      if (!std::in_range<T>(*x))
        fail({"to_vector", loc}, {*x, " does not fit into the type that was asked for"},
             {"ask for to_vector<", is_floating(dtype()) ? "double" : "std::int64_t", ">()"});
  return std::vector<T>(first, last);
}
template <Number T>
Tensor::operator T() const {
  return item<T>(current.last_line);  // a conversion cannot ask for its caller's line
}
template <class T>
T Tensor::item(Loc loc) const {
  check_together({"item", loc}, {this});
  if (numel() != 1)
    fail({"item", loc}, {"a tensor of shape ", shape(), " is not one number"},
         {std::is_same_v<T, bool>
              ? "reduce it with all() or any(); between masks write & | ~ instead of && || !"
              : "reduce it first, with sum(), mean() or all(), or pick an element: x[0]"});
  const bool here = device() == minitensor::cpu;
  const Scalar number =
      first_of(here ? elements() : copy_of(*this, dtype(), Device::cpu).elements());
  if constexpr (Integer<T>) {
    const bool is_float = is_floating(dtype());
    const bool is_exact =
        !is_float || static_cast<double>(number.whole()) == std::trunc(number.real());
    if (!is_exact || !std::in_range<T>(number.whole()))
      fail({"item", loc},
           {is_float ? text_of({number.real()}) : text_of({number.whole()}),
            " does not fit into the type that was asked for"},
           {"ask for item<", is_float ? "double" : "std::int64_t", ">()"});
  }
  return number.to<T>();
}

inline const Tensor& Tensor::named(const std::string& name) const& {
  TensorData& r = get();
  if (!r.extras) r.extras = Ref<TensorData::Extras>::make();
  r.extras->name = name;
  if (current.observer) tell_named(*this);
  return *this;
}
inline Tensor Tensor::named(const std::string& name) && {
  std::as_const(*this).named(name);
  return std::move(*this);
}
inline const Tensor& Tensor::requires_grad_(bool yes, Loc loc) const& {
  const At at{"requires_grad_", loc};
  check_together(at, {this});
  if (yes && node()) return *this;
  if (node())
    fail(at, {"this tensor was computed, it is not a leaf"}, {"use detach() to cut it off"});
  if (yes && !is_floating(dtype()))
    fail(at, {"only floating point tensors can require gradients, not ", dtype()});
  get().requires_grad = yes;
  return *this;
}
inline Tensor Tensor::requires_grad_(bool yes, Loc loc) && {
  std::as_const(*this).requires_grad_(yes, loc);
  return std::move(*this);
}
inline void Tensor::zero_grad(Loc loc) const {
  const bool had = static_cast<bool>(get().grad);
  get().grad = {};
  if (had && current.observer) tell_let_go(*this, line_of(loc));
}
inline void Tensor::set_grad(const Tensor& grad, Loc loc) const {
  if (grad.defined() && (grad.shape() != shape() || grad.dtype() != dtype()))
    fail({"set_grad", loc}, {"the gradient of a ", shape(), " tensor has its shape and dtype, not ",
                             grad.shape(), " ", grad.dtype()});
  if (!grad.defined()) return zero_grad(loc);
  check_together({"set_grad", loc}, {this, &grad});
  const Tensor before = this->grad();
  {
    const Quiet quiet;
    get().grad = grad.detach(loc).clone(loc).handle();
  }
  if (current.observer) tell_landed(current.observer, 0, *this, before);
}

// ---- Printing -----------------------------------------------------------------------------------
//
// A tensor prints as it does in PyTorch (the rules are those of torch/_tensor_str.py), with one
// difference: a dtype is called float64, as in our programs, and not torch.float64.
//
//     tensor([[1.0000, 2.5000],
//             [3.0000, 4.0000]], grad_fn=<MulBackward0>)
//
// It takes three steps: find the elements that are shown, write their numbers, lay out the words.

namespace printing {
inline constexpr std::size_t page_width = 80;
inline constexpr std::size_t margin = 7;  // the columns that "tensor(" takes
inline constexpr std::int64_t gap = -1;

// The indices shown along an axis. A large tensor shows the first and the last three; `gap` stands
// for all between.
inline std::vector<std::int64_t> shown_indices(std::int64_t size, bool shorten) {
  if (shorten && size > 6) return {0, 1, 2, gap, size - 3, size - 2, size - 1};
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  return all;
}

// Reads the shown elements from `axis` inwards, in the order in which they are printed.
inline void read_shown(const View& view, bool shorten, int axis, std::vector<Scalar>& numbers) {
  if (axis == view.shape.size()) return numbers.push_back(first_of(view));
  View slice = view;
  for (std::int64_t i : shown_indices(view.shape[axis], shorten)) {
    slice.data = view.data + i * view.strides[axis] * bytes_of(view.dtype);
    if (i != gap) read_shown(slice, shorten, axis + 1, numbers);
  }
}

// The style that all numbers of a tensor share: 7 (and True), 7., 7.1250 or 7.1250e+00.
enum class Style { plain, whole, fixed, scientific };

// Zero, infinity and NaN look the same in every style, so they do not take part in choosing it.
inline bool has_a_say(const Scalar& x) {
  return !is_floating(x.dtype()) || (x.real() != 0 && std::isfinite(x.real()));
}

// Floats without a fraction are written so. A wide range, or one far from 1, is scientific.
inline Style choose_style(const std::vector<Scalar>& numbers) {
  double smallest = std::numeric_limits<double>::infinity(), largest = 0;
  bool whole = true;
  for (const Scalar& number : numbers) {
    if (!is_floating(number.dtype())) return Style::plain;
    const double size = std::abs(number.real());
    if (!has_a_say(number)) continue;
    smallest = std::min(smallest, size);
    largest = std::max(largest, size);
    whole = whole && size == std::floor(size);
  }
  if (largest / smallest > 1000 || largest > 1e8 || (!whole && smallest < 1e-4))
    return Style::scientific;
  return whole ? Style::whole : Style::fixed;
}

inline std::string number_text(const Scalar& number, Style style) {
  if (number.dtype() == boolean) return number.whole() ? "True" : "False";
  if (number.dtype() == int64) return text_of({number.whole()});
  const double x = number.real();
  if (std::isnan(x)) return "nan";  // without its sign, which means nothing
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  const auto format =
      style == Style::scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const bool whole = style == Style::whole;
  char text[32];  // to_chars, because printf asks the locale for its decimal point
  char* end = std::to_chars(text, text + sizeof text, x, format, whole ? 0 : 4).ptr;
  if (whole) *end++ = '.';
  return std::string(text, end);
}

inline void append_times(std::string& text, std::size_t count, char letter) {
  for (; count > 0; --count) append(text, letter);
}

// The numbers that are shown, filled up with spaces to one width so that columns align. Zeros,
// infinities and NaNs have no say in the width either: where they are longer they stick out, as in
// PyTorch.
struct Shown {
  explicit Shown(const std::vector<Scalar>& list) : numbers(list), style(choose_style(list)) {
    for (const Scalar& number : numbers)
      if (has_a_say(number)) width = std::max(width, number_text(number, style).size());
  }
  void append_next(std::string& text) {
    const std::string word = number_text(numbers[next++], style);
    append_times(text, width > word.size() ? width - word.size() : 0, ' ');
    append(text, word);
  }
  const std::vector<Scalar>& numbers;
  const Style style;
  std::size_t width = 1, next = 0;
};

// The numbers from `axis` inwards, in brackets. A row of numbers is broken where the page ends;
// between slices of n axes there are n line breaks.
inline void lay_out(std::string& text, const Shape& shape, bool shorten, int axis, Shown& shown) {
  const int inner_axes = shape.size() - axis - 1;
  if (inner_axes < 0) return shown.append_next(text);
  const bool row = inner_axes == 0;
  const std::size_t indent = margin + static_cast<std::size_t>(axis);
  const std::size_t per_line = row ? (page_width - indent) / (shown.width + 2) : 1;

  append(text, '[');
  std::size_t count = 0;
  for (std::int64_t i : shown_indices(shape[axis], shorten)) {
    const bool breaks = count > 0 && count % per_line == 0;
    if (count > 0) append(text, breaks ? "," : ", ");
    if (breaks) {
      append_times(text, row ? 1 : static_cast<std::size_t>(inner_axes), '\n');
      append_times(text, indent + 1, ' ');
    }
    if (i != gap)
      lay_out(text, shape, shorten, axis + 1, shown);
    else
      append(text, row ? " ..." : "...");
    ++count;
  }
  append(text, ']');
}

// Puts a remark behind the numbers, on a new line if it would not fit on this one. `column` is
// where the text ends.
inline void add_remark(std::string& text, std::size_t& column, const std::string& remark) {
  const bool fits = column + 2 + remark.size() <= page_width;
  append(text, fits ? ", " : ",\n");
  append_times(text, fits ? 0 : margin, ' ');
  append(text, remark);
  column = (fits ? column + 2 : margin) + remark.size();
}
}  // namespace printing

// The text of the tensor behind a view of the CPU's memory. `history` is "requires_grad=True" or
// "grad_fn=<MulBackward0>", `device` is "cuda:0"; either may be empty.
inline std::string print_elements(const View& view, const std::string& history = "",
                                  const std::string& device = "") {
  const bool empty = view.shape.numel() == 0;
  const bool shorten = view.shape.numel() > 1000;
  std::string text = "tensor(";
  if (empty) {
    append(text, "[]");
  } else {
    std::vector<Scalar> numbers;
    printing::read_shown(view, shorten, 0, numbers);
    printing::Shown shown(numbers);
    printing::lay_out(text, view.shape, shorten, 0, shown);
  }

  std::size_t column = text.size() - (text.rfind('\n') + 1) + 2;  // 2 too many: PyTorch counts so
  if (!device.empty()) printing::add_remark(text, column, text_of({"device='", device, "'"}));
  if (empty && view.shape.size() != 1) {
    std::string sizes = text_of({"size=", view.shape});
    sizes[5] = '(', sizes.back() = ')';
    printing::add_remark(text, column, sizes);
  }
  // The type is named where the numbers do not show it: 7 is an int64, 7. a float32.
  if (view.dtype == float64 || (empty && view.dtype != float32))
    printing::add_remark(text, column, text_of({"dtype=", view.dtype}));
  if (!history.empty()) printing::add_remark(text, column, history);
  append(text, ')');
  return text;
}

// The text that PyTorch prints.
std::string to_string(const Tensor& x);
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                             const Tensor& x) {
  return out << to_string(x).c_str();
}
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                             const Shape& shape) {
  return out << to_string(shape).c_str();
}
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out, DType dtype) {
  return out << name_of(dtype);
}
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out, Device device) {
  return out << device.text().c_str();
}

// ================================================================================================
// 5. Walking memory
// ================================================================================================
//
// A tensor has up to eight axes and any strides, but a processor is fast along one: a plain loop
// over numbers that lie side by side. So the work is split in two. The *loop* knows a type and a
// formula, and nothing of shapes. The *walk* knows nothing else: it takes several views of one
// shape and visits their rows in step, like the mileage counter of a car. The last axis is the row.
// When a row is done, the wheel before it turns by one, and a wheel that has come round turns the
// one before it.
//
// Broadcasting needs no code at all: an axis of stride 0 meets the same element again and again.
//
// Before it starts, a walk makes the rows long and few. The axes are sorted by the strides of one
// view, the largest first: a transposed tensor is walked as it lies in memory. Axes of size 1 are
// dropped, and neighbours that follow each other in memory, in all views, become one axis: two
// dense tensors of shape [64, 3, 28, 28] are two rows of 150528 numbers, whatever their shape says.

template <class T>
T* as(std::byte* data) {
  return reinterpret_cast<T*>(data);
}

struct Walk {
  static constexpr int most_views = 4;
  static constexpr int most_axes = Shape::capacity;

  // Views of one shape. The axes are put in the order of the strides of one of them.
  explicit Walk(std::initializer_list<const View*> list, int order_by = 0);
  Walk(const Walk& other) { *this = other; }
  Walk& operator=(const Walk& other);  // takes the axes that there are, mostly one or two of eight

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int axis = 0; axis < axes; ++axis) n *= sizes[axis];
    return n;
  }
  void append_axis(std::int64_t size, const std::int64_t* new_steps);
  void insert_axis(int at, std::int64_t size, const std::int64_t* new_steps);
  void erase_axis(int at);
  void cut(int axis, std::int64_t begin, std::int64_t end);

  int views = 0, axes = 0;
  std::int64_t sizes[most_axes];
  std::int64_t steps[most_axes][most_views];  // in bytes
  std::int64_t bytes[most_views] = {};        // of an element
  std::byte* data[most_views] = {};
};

inline Walk::Walk(std::initializer_list<const View*> list, int order_by) {
  const View* const* view = list.begin();
  for (; views < static_cast<int>(list.size()); ++views) {
    data[views] = view[views]->data;
    bytes[views] = bytes_of(view[views]->dtype);
  }
  const Shape& shape = view[0]->shape;
  const Shape& strides = view[order_by]->strides;
  int order[Shape::capacity];
  for (int axis = 0, at; axis < shape.size(); ++axis) {
    for (at = axis; at > 0 && strides[order[at - 1]] < strides[axis]; --at)
      order[at] = order[at - 1];
    order[at] = axis;
  }
  for (int i = 0; i < shape.size(); ++i) {
    std::int64_t new_steps[most_views];
    for (int v = 0; v < views; ++v) new_steps[v] = view[v]->strides[order[i]] * bytes[v];
    append_axis(shape[order[i]], new_steps);
  }
}

inline Walk& Walk::operator=(const Walk& other) {
  views = other.views;
  axes = other.axes;
  for (int axis = 0; axis < axes; ++axis) {
    sizes[axis] = other.sizes[axis];
    for (int v = 0; v < most_views; ++v) steps[axis][v] = other.steps[axis][v];
  }
  for (int v = 0; v < most_views; ++v) {
    bytes[v] = other.bytes[v];
    data[v] = other.data[v];
  }
  return *this;
}

// Adds an innermost axis. If in every view one step of the axis before it equals this axis's whole
// length, the two lie end to end in memory and become one.
[[gnu::noinline]] inline void Walk::append_axis(std::int64_t size, const std::int64_t* new_steps) {
  if (size == 1) return;
  bool merges = axes > 0;
  for (int v = 0; merges && v < views; ++v) merges = steps[axes - 1][v] == size * new_steps[v];
  if (!merges) return insert_axis(axes, size, new_steps);
  sizes[axes - 1] *= size;
  for (int v = 0; v < views; ++v) steps[axes - 1][v] = new_steps[v];
}

[[gnu::noinline]] inline void Walk::insert_axis(int at, std::int64_t size,
                                                const std::int64_t* new_steps) {
  for (int axis = axes++; axis > at; --axis) {
    sizes[axis] = sizes[axis - 1];
    for (int v = 0; v < most_views; ++v) steps[axis][v] = steps[axis - 1][v];
  }
  sizes[at] = size;
  for (int v = 0; v < most_views; ++v) steps[at][v] = v < views ? new_steps[v] : 0;
}

[[gnu::noinline]] inline void Walk::erase_axis(int at) {
  --axes;
  for (int axis = at; axis < axes; ++axis) {
    sizes[axis] = sizes[axis + 1];
    for (int v = 0; v < most_views; ++v) steps[axis][v] = steps[axis + 1][v];
  }
}

// Keeps the part [begin, end) of an axis.
inline void Walk::cut(int axis, std::int64_t begin, std::int64_t end) {
  sizes[axis] = end - begin;
  for (int v = 0; v < views; ++v) data[v] += begin * steps[axis][v];
}

// The wheels: all axes but the last `still` ones. `data` says where each view stands.
class Odometer {
 public:
  explicit Odometer(const Walk& walk, int still = 0) : walk_(walk), wheels_(walk.axes - still) {
    for (int v = 0; v < Walk::most_views; ++v) data[v] = walk.data[v];
    for (int wheel = 0; wheel < wheels_; ++wheel) turned_[wheel] = 0;
  }
  // On to the next place; false when every wheel has come round.
  bool next() {
    for (int wheel = wheels_ - 1; wheel >= 0; --wheel) {
      const std::int64_t* steps = walk_.steps[wheel];
      if (++turned_[wheel] < walk_.sizes[wheel]) {
        for (int v = 0; v < Walk::most_views; ++v) data[v] += steps[v];
        return true;
      }
      turned_[wheel] = 0;
      for (int v = 0; v < Walk::most_views; ++v) data[v] -= (walk_.sizes[wheel] - 1) * steps[v];
    }
    return false;
  }
  std::byte* data[Walk::most_views];

 private:
  const Walk& walk_;
  const int wheels_;
  std::int64_t turned_[Walk::most_axes];
};

// A reference to whatever can be called with an X, for the length of one call. (A template
// parameter would compile every walk anew for every use.)
template <class X>
class Calls {
 public:
  template <class F>
  Calls(const F& f)
      : function_(&f),
        call_([](const void* function, X x) { (*static_cast<const F*>(function))(x); }) {}
  void operator()(X x) const { call_(function_, x); }

 private:
  const void* function_;
  void (*call_)(const void*, X);
};

// Big walks are shared out among the processor's cores if the compiler was asked for OpenMP: each
// core takes some of the outermost axis. What is done in one place must not touch another place;
// then the result does not depend on the number of cores. `numel` says how much work there is (in a
// reduction, more than the walk has places); less than 65536 elements are not worth waking a core.
inline void share_out(const Walk& walk, [[maybe_unused]] std::int64_t numel,
                      Calls<const Walk&> work) {
#ifdef _OPENMP
  const std::int64_t size = walk.axes > 0 ? walk.sizes[0] : 1;
  const std::int64_t shares = std::min(size, numel / 65536);
  if (shares > 1) {
#pragma omp parallel for
    for (std::int64_t i = 0; i < shares; ++i) {
      Walk share = walk;
      share.cut(0, size * i / shares, size * (i + 1) / shares);
      work(share);
    }
    return;
  }
#endif
  work(walk);
}

// ---- Rows ---------------------------------------------------------------------------------------

// What is done with a row: n elements; for each view the first of them and the step to the next, in
// bytes.
struct Row {
  const std::int64_t n;
  std::byte* const* const data;
  const std::int64_t* const steps;
};

inline void run_in_order(const Walk& walk, Calls<const Row&> work) {
  static constexpr std::int64_t nowhere[Walk::most_views] = {};
  if (walk.axes == 0) return work(Row{1, walk.data, nowhere});
  if (walk.numel() == 0) return;
  const int last = walk.axes - 1;
  Odometer at(walk, 1);
  do work(Row{walk.sizes[last], at.data, walk.steps[last]});
  while (at.next());
}

// Where the rows are many and short, as in [100000, 3] + [3], going from row to row would cost more
// than the work. Then the longest axis is made the row, even though its elements are not
// neighbours.
inline Walk with_long_rows(const Walk& walk) {
  Walk longer = walk;
  const int last = walk.axes - 1;
  if (last > 0 && walk.sizes[last] <= 4) {
    int longest = 0;
    for (int axis = 1; axis < last; ++axis)
      if (walk.sizes[axis] > walk.sizes[longest]) longest = axis;
    if (walk.sizes[longest] >= 32) {
      longer.erase_axis(longest);
      longer.insert_axis(last, walk.sizes[longest], walk.steps[longest]);
    }
  }
  return longer;
}

// Visits all rows.
inline void run(const Walk& walk, Calls<const Row&> work) {
  share_out(walk, walk.numel(), [&](const Walk& share) { run_in_order(share, work); });
}

// ---- Loops --------------------------------------------------------------------------------------

// A loop over n elements that lie side by side: y[i] = f(a[i], ...). data[0] is y, then come the
// inputs. The body of the loop is a struct with a static function `run`.
//
// g++ makes vector instructions of a loop at -O3, but hardly ever at the -O2 that most people type.
// So a loop over floats asks for it. An element depends on elements at its own place only, even
// where y is the same as a; so the compiler may take them in any order.
//
// Without -march=native, the compiler must make do with what every processor has had since 2003. A
// body that computes much, or rounds, is compiled a second time, for those since 2013, whose
// vectors are twice as long.
//
// A body that computes little waits for memory. It keeps to vectors of 32 bytes also where there
// are longer ones, which would straddle two cache lines more often; and where it has two inputs, it
// takes four vectors in a round.
//
// clang does all this unasked.
#if defined(__clang__)
#define MINITENSOR_LOOP
#define MINITENSOR_SHORT_LOOP
#define MINITENSOR_ANY_ORDER
#define MINITENSOR_FOUR_A_ROUND
#else
#define MINITENSOR_LOOP __attribute__((optimize("O3")))
#if defined(__AVX512F__)
#define MINITENSOR_SHORT_LOOP __attribute__((optimize("O3"), target("prefer-vector-width=256")))
#else
#define MINITENSOR_SHORT_LOOP MINITENSOR_LOOP
#endif
#define MINITENSOR_ANY_ORDER _Pragma("GCC ivdep")
#ifdef __CUDACC__
#define MINITENSOR_FOUR_A_ROUND
#else
#define MINITENSOR_FOUR_A_ROUND _Pragma("GCC unroll 4")
#endif
#endif
#define MINITENSOR_INLINE [[gnu::always_inline]] static inline

#if defined(__x86_64__) && !defined(__AVX2__)
#define MINITENSOR_WIDE __attribute__((target("avx2,fma")))
inline const bool wide_vectors = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
#define MINITENSOR_WIDE
constexpr bool wide_vectors = false;
#endif

class Loop {
 public:
  using Function = void (*)(std::int64_t n, std::byte* const* data);
  constexpr Loop() = default;
  template <class Body>
  static constexpr Loop of() {
    Loop loop;
    if constexpr (!Body::vectors)
      loop.run_ = plain<Body>;
    else if constexpr (Body::twice)
      loop.run_ = vectors<Body>;
    else
      loop.run_ = short_vectors<Body>;
    loop.run_wide_ = loop.run_;
    if constexpr (Body::twice) loop.run_wide_ = wide<Body>;
    return loop;
  }
  explicit constexpr operator bool() const { return run_; }
  void operator()(std::int64_t n, std::byte* const* data) const {
    (wide_vectors ? run_wide_ : run_)(n, data);
  }
  // The same where the last input is one number, met again and again; null: there is no such loop.
  Function with_number = nullptr;

  // What serves rows of these steps as they lie; null: nothing does, and they go through a buffer.
  Function straight(int views, const std::int64_t* steps, const std::int64_t* bytes) const {
    for (int v = 0; v + 1 < views; ++v)
      if (steps[v] != bytes[v]) return nullptr;
    if (steps[views - 1] == bytes[views - 1]) return wide_vectors ? run_wide_ : run_;
    return steps[views - 1] == 0 ? with_number : nullptr;
  }

 private:
  template <class Body>
  static void plain(std::int64_t n, std::byte* const* data) {
    Body::run(n, data);
  }
  template <class Body>
  MINITENSOR_LOOP static void vectors(std::int64_t n, std::byte* const* data) {
    Body::run(n, data);
  }
  template <class Body>
  MINITENSOR_SHORT_LOOP static void short_vectors(std::int64_t n, std::byte* const* data) {
    Body::run(n, data);
  }
  template <class Body>
  MINITENSOR_LOOP MINITENSOR_WIDE static void wide(std::int64_t n, std::byte* const* data) {
    Body::run(n, data);
  }
  Function run_ = nullptr, run_wide_ = nullptr;
};

template <std::size_t bytes>
MINITENSOR_LOOP void copy_spaced(std::int64_t n, std::byte* y, std::int64_t y_step,
                                 const std::byte* a, std::int64_t a_step) {
  constexpr auto side_by_side = static_cast<std::int64_t>(bytes);
  if (a_step == side_by_side && y_step == side_by_side) {
    std::memmove(y, a, static_cast<std::size_t>(n) * bytes);
  } else if (a_step == 0 && y_step == side_by_side) {
    std::array<std::byte, bytes> same;
    std::memcpy(&same, a, bytes);
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(y + i * side_by_side, &same, bytes);
  } else {
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(y + i * y_step, a + i * a_step, bytes);
  }
}

// Copies n elements of any type.
[[gnu::noinline]] inline void copy_spaced(std::int64_t bytes, std::int64_t n, std::byte* y,
                                          std::int64_t y_step, const std::byte* a,
                                          std::int64_t a_step) {
  if (bytes == 8)
    copy_spaced<8>(n, y, y_step, a, a_step);
  else if (bytes == 4)
    copy_spaced<4>(n, y, y_step, a, a_step);
  else
    copy_spaced<1>(n, y, y_step, a, a_step);
}

// Runs a loop over a row. Elements that do not lie side by side go through a small buffer that
// stays in the nearest cache; that is about as fast as a loop with strides would be, and keeps it
// to one loop for a formula and a type.
inline void run_loop(const Row& row, Loop loop, int views, const std::int64_t* bytes) {
  if (row.n == 1) return loop(1, row.data);
  if (const auto straight = loop.straight(views, row.steps, bytes))
    return straight(row.n, row.data);

  constexpr std::int64_t most = 512;
  alignas(64) std::byte buffer[Walk::most_views][most * sizeof(double)];
  for (std::int64_t done = 0; done < row.n; done += most) {
    const std::int64_t n = std::min(most, row.n - done);
    std::byte* piece[Walk::most_views];
    for (int v = 0; v < views; ++v) {
      std::byte* from = row.data[v] + done * row.steps[v];
      const bool dense = row.steps[v] == bytes[v];
      piece[v] = dense ? from : buffer[v];
      const bool known = row.steps[v] == 0 && done > 0;  // the same number again and again
      if (v > 0 && !dense && !known)
        copy_spaced(bytes[v], n, buffer[v], bytes[v], from, row.steps[v]);
    }
    loop(n, piece);
    if (row.steps[0] != bytes[0])
      copy_spaced(bytes[0], n, row.data[0] + done * row.steps[0], row.steps[0], buffer[0],
                  bytes[0]);
  }
}

// Runs a loop over all rows, which it serves as they lie.
inline void run_straight(const Walk& walk, Loop::Function loop) {
  if (walk.numel() == 0) return;
  const std::int64_t n = walk.sizes[walk.axes - 1];
  Odometer at(walk, 1);
  do loop(n, at.data);
  while (at.next());
}

// ---- Across -------------------------------------------------------------------------------------

// The rows of one view may run across the rows of another, as in a + a.t(). Then each element of
// the row lies in a cache line of its own, and by the time its neighbours are wanted, the line is
// gone. Returns the axis along which the neighbours lie; -1 if a view is not like that.
inline int across(const Walk& walk, int v) {
  if (walk.numel() == 0) return -1;
  const int last = walk.axes - 1;
  for (int axis = 0; axis < last; ++axis)
    if (walk.bytes[v] >= 4 && walk.steps[axis][v] == walk.bytes[v] && walk.steps[last][v] >= 32 &&
        walk.sizes[axis] >= 8 && walk.sizes[last] >= 8)
      return axis;
  return -1;
}

// Four rows of four numbers become four columns: row 0 is shuffled into row 2 and row 1 into row 3,
// as a hand of cards into another, and the same once more.
template <class T>
MINITENSOR_INLINE void turn_square(std::byte* y, std::int64_t y_step, const std::byte* a,
                                   std::int64_t a_step) {
  using Four [[gnu::vector_size(4 * sizeof(T))]] = T;
  Four row[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&row[i], a + i * a_step, sizeof(Four));
  for (int round = 0; round < 2; ++round) {
    const Four shuffled[] = {__builtin_shufflevector(row[0], row[2], 0, 4, 1, 5),
                             __builtin_shufflevector(row[0], row[2], 2, 6, 3, 7),
                             __builtin_shufflevector(row[1], row[3], 0, 4, 1, 5),
                             __builtin_shufflevector(row[1], row[3], 2, 6, 3, 7)};
    for (int i = 0; i < 4; ++i) row[i] = shuffled[i];
  }
  for (int i = 0; i < 4; ++i) std::memcpy(y + i * y_step, &row[i], sizeof(Four));
}

// Copies rows of n elements of the size of a T, in squares, and one by one those at the edges. The
// steps `down` to the next row and `along` it are those of y and of a.
template <class T>
MINITENSOR_LOOP void copy_strip(std::int64_t rows, std::int64_t n, std::byte* y, const std::byte* a,
                                const std::int64_t* down, const std::int64_t* along) {
  const std::int64_t y_step = along[0], a_step = along[1];
  const bool side_by_side = y_step == sizeof(T) && down[1] == sizeof(T);
  for (std::int64_t high; rows > 0; rows -= high, y += high * down[0], a += high * down[1]) {
    high = side_by_side && rows >= 4 ? 4 : 1;
    std::int64_t turned = 0;
    if (high == 4)
      for (; turned + 4 <= n; turned += 4)
        turn_square<T>(y + turned * y_step, down[0], a + turned * a_step, a_step);
    for (std::int64_t row = 0; row < high; ++row)
      for (std::int64_t i = turned; i < n; ++i)
        std::memcpy(y + row * down[0] + i * y_step, a + row * down[1] + i * a_step, sizeof(T));
  }
}

// Copies view 1 to view 0, which runs across it: down in strips, so narrow that their lines stay in
// the cache.
inline void copy_across(const Walk& walk, int axis) {
  constexpr std::int64_t width = 16;
  const int last = walk.axes - 1;
  const std::int64_t *down = walk.steps[axis], *along = walk.steps[last];
  Walk others = walk;
  others.erase_axis(last);
  others.erase_axis(axis);
  Odometer at(others);
  do {
    for (std::int64_t done = 0; done < walk.sizes[last]; done += width) {
      const std::int64_t n = std::min(width, walk.sizes[last] - done);
      const auto strip = walk.bytes[0] == 8 ? copy_strip<double> : copy_strip<float>;
      strip(walk.sizes[axis], n, at.data[0] + done * along[0], at.data[1] + done * along[1], down,
            along);
    }
  } while (at.next());
}

// Copies view 1 to view 0; both are of one type.
[[gnu::noinline]] inline void copy_elements(const Walk& walk) {
  const int axis = across(walk, 1);
  if (axis >= 0)
    return share_out(walk, walk.numel(), [&](const Walk& share) { copy_across(share, axis); });
  run(with_long_rows(walk), [&](const Row& row) {
    copy_spaced(walk.bytes[0], row.n, row.data[0], row.steps[0], row.data[1], row.steps[1]);
  });
}

// Copies a view to where it lies dense in the order of the walk, and lets the walk read it there.
inline Ref<Storage> laid_out(Walk& walk, int v) {
  Walk copying = walk;
  copying.views = 2;
  copying.bytes[0] = copying.bytes[1] = walk.bytes[v];
  std::int64_t step = walk.bytes[v];
  for (int axis = walk.axes - 1; axis >= 0; --axis) {
    if (axis < walk.axes - 1 && walk.steps[axis][v] == 0) {  // repeated: once is enough
      copying.erase_axis(axis);
      continue;
    }
    copying.steps[axis][1] = walk.steps[axis][v];
    copying.steps[axis][0] = walk.steps[axis][v] = step;
    step *= walk.sizes[axis];
  }
  Ref<Storage> memory = Storage::make(step, cpu);
  copying.data[1] = walk.data[v];
  copying.data[0] = walk.data[v] = memory->data;
  copy_elements(copying);
  return memory;
}

// Runs a loop over views of one shape: the first is written, the others are read.
inline void run_loops(std::initializer_list<const View*> views, Loop loop) {
  if ((*views.begin())->shape.numel() == 1) {  // a single number needs no walk
    std::byte* data[Walk::most_views];
    std::byte** to = data;
    for (const View* view : views) *to++ = view->data;
    return loop(1, data);
  }
  Walk walk(views);
  Ref<Storage> memory[Walk::most_views];
  for (int v = 1; v < walk.views; ++v)
    if (across(walk, v) >= 0) memory[v] = laid_out(walk, v);
  const Walk rows = with_long_rows(walk);
  const int last = rows.axes - 1;
  if (const auto straight =
          last < 0 ? nullptr : loop.straight(rows.views, rows.steps[last], rows.bytes))
    share_out(rows, rows.numel(), [straight](const Walk& share) { run_straight(share, straight); });
  else
    run(rows, [&](const Row& row) { run_loop(row, loop, rows.views, rows.bytes); });
}

// ================================================================================================
// 6. Formulas
// ================================================================================================
//
// What an operation does with single numbers: one functor a formula, one place for the processor
// and the graphics card. A formula that makes sense only for some types says so in its template
// head, and the verbs of chapter 7 leave out the others.
//
// They count on a machine that rounds as written and knows NaN.
#ifdef __FAST_MATH__
#error "minitensor counts on NaN and on rounding as written: write -O3, not -Ofast or -ffast-math"
#endif

#ifdef __CUDACC__
#define MINITENSOR_FORMULA __host__ __device__ static inline
#else
#define MINITENSOR_FORMULA MINITENSOR_INLINE
#endif

template <class T>
concept Real = std::is_floating_point_v<T>;
template <class T>
concept Truth = std::is_same_v<T, bool>;

// Signed integers may not overflow in C++; unsigned ones wrap around, and so do ours.
template <class T>
struct Wrapping {
  using type = T;
};
template <>
struct Wrapping<std::int64_t> {
  using type = std::uint64_t;
};
template <class T>
using wrapping = typename Wrapping<T>::type;

namespace formula {

struct Add {
  template <class T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return static_cast<T>(wrapping<T>(a) + wrapping<T>(b));
  }
};
struct Sub {
  template <class T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return static_cast<T>(wrapping<T>(a) - wrapping<T>(b));
  }
};
struct Mul {
  template <class T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return static_cast<T>(wrapping<T>(a) * wrapping<T>(b));
  }
};
struct Div {
  template <Real T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return a / b;
  }
};
struct Maximum {
  template <class T>
  MINITENSOR_FORMULA T of(T a, T b) {
    const T larger = a > b ? a : b;  // one instruction, but for a NaN in a
    return a != a ? a : larger;
  }
};
struct Minimum {
  template <class T>
  MINITENSOR_FORMULA T of(T a, T b) {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
  }
};
struct Neg {
  template <class T>
  MINITENSOR_FORMULA T of(T a) {
    return static_cast<T>(-wrapping<T>(a));
  }
};
struct Abs {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::abs(a);
  }
  template <Integer T>
  MINITENSOR_FORMULA T of(T a) {
    return a < 0 ? Neg::of(a) : a;
  }
};
struct Sign {
  template <class T>
  MINITENSOR_FORMULA T of(T a) {
    return static_cast<T>((a > T(0)) - (a < T(0)));  // 0 for NaN, as in PyTorch
  }
};
struct Square {
  template <class T>
  MINITENSOR_FORMULA T of(T a) {
    return Mul::of(a, a);
  }
};
struct Cube {
  template <class T>
  MINITENSOR_FORMULA T of(T a) {
    return Mul::of(Mul::of(a, a), a);
  }
};
struct Relu {
  template <class T>
  MINITENSOR_FORMULA T of(T a) {
    return a <= T(0) ? T(0) : a;
  }
};

// ---- float32, as polynomials --------------------------------------------------------------------

// The functions that training spends its time in, as polynomials. The library's own would do,
// but they take one number at a time; a straight line of arithmetic, without a branch, is done for
// 4, 8 or 16 numbers at once. Over all float32 they stay within 2 units in the last place (a test
// tries one in a thousand). The coefficients of tanh and log are those of Moshier's Cephes library;
// the others are fits of our own. A comparison with NaN is false, and NaN passes through.

MINITENSOR_FORMULA std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
MINITENSOR_FORMULA float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline constexpr std::uint32_t sign_bit = 0x80000000;

MINITENSOR_FORMULA float magnitude(float x) { return float_of(bits_of(x) & ~sign_bit); }
MINITENSOR_FORMULA float with_sign_of(float x, float m) {
  return float_of(bits_of(m) | (bits_of(x) & sign_bit));
}

// condition ? a : b, but never as a branch, which would keep the loop from being done at once.
MINITENSOR_FORMULA float pick(bool condition, float a, float b) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return float_of((bits_of(a) & mask) | (bits_of(b) & ~mask));
}

// The same of a float64.
MINITENSOR_FORMULA std::uint64_t bits_of(double x) { return __builtin_bit_cast(std::uint64_t, x); }
MINITENSOR_FORMULA double double_of(std::uint64_t bits) { return __builtin_bit_cast(double, bits); }
inline constexpr std::uint64_t sign_bit_of_64 = std::uint64_t{1} << 63;

MINITENSOR_FORMULA double magnitude(double x) { return double_of(bits_of(x) & ~sign_bit_of_64); }
MINITENSOR_FORMULA double with_sign_of(double x, double m) {
  return double_of(bits_of(m) | (bits_of(x) & sign_bit_of_64));
}
MINITENSOR_FORMULA double pick(bool condition, double a, double b) {
  const std::uint64_t mask = 0u - static_cast<std::uint64_t>(condition);
  return double_of((bits_of(a) & mask) | (bits_of(b) & ~mask));
}

// e^x = 2^n e^r, with n whole and |r| <= ln(2)/2, where a polynomial will do: 1 + r + r^2 (...).
// exp_series is what stands in the brackets, the best of its degree: it gives e^r to 4e-9.
MINITENSOR_FORMULA float exp_series(float r) {
  float p = 1.3814539759e-3f;
  p = p * r + 8.3687451417e-3f;
  p = p * r + 4.1668390792e-2f;
  p = p * r + 1.6666520399e-1f;
  return p * r + 4.9999993432e-1f;
}
MINITENSOR_FORMULA float exp_of_rest(float r) { return (exp_series(r) * r + 1) * r + 1; }
MINITENSOR_FORMULA float expm1_of_rest(float r) { return r + r * r * exp_series(r); }  // e^r - 1
// ln(2) in two parts: n times the first is exact.
inline constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;

// The n and the r of x, and n + bias. A float32 keeps its exponent in the bits from 23 on, larger
// by 127 than it is, so 2^n comes of a shift to there.
struct Power {
  float n, rest;
  std::uint32_t biased;
};
MINITENSOR_FORMULA Power power_of_two(float x, int bias) {
  // Beyond 2^23 a float32 has no digits after the point, so adding this number rounds, and leaves
  // the whole number in the lowest bits.
  const float rounder = static_cast<float>(12582912 + bias);  // 1.5 * 2^23 + bias
  const float shifted = x * 1.44269504f + rounder;            // log2(e)
  const float n = shifted - rounder;
  return {n, x - n * ln2_high - n * ln2_low, bits_of(shifted)};
}
MINITENSOR_FORMULA float fast_exp(float x) {
  x = pick(x > 89, 89, x);      // here the result is infinity,
  x = pick(x < -104, -104, x);  // and here 0
  // n from -150 to 128 does not fit into one exponent: it is halved.
  const Power power = power_of_two(x, 2 * 127);
  const std::uint32_t half = power.biased >> 1;
  return exp_of_rest(power.rest) * float_of(half << 23) * float_of((power.biased - half) << 23);
}
// The same for x <= 0: it fits if 2^n is made too large by 2^25.
MINITENSOR_FORMULA float fast_exp_below_0(float x) {
  x = pick(x < -104, -104, x);
  const Power power = power_of_two(x, 127 + 25);
  return exp_of_rest(power.rest) * float_of(power.biased << 23) * 0x1p-25f;
}
// The same where e^x and e^-x are normal numbers: it fits as it is. (A half is rounded to an even
// number. The biases of all three are even, so it goes the same way, and the results have the same
// bits.)
inline constexpr float usual_exponent = 87;
MINITENSOR_FORMULA float fast_exp_usual(float x) {
  const Power power = power_of_two(x, 0);
  return exp_of_rest(power.rest) * float_of((power.biased + 127) << 23);
}
// e^x - 1 for x <= 0: near 0, n = 0, and nothing cancels.
MINITENSOR_FORMULA float fast_expm1_below_0(float x) {
  x = pick(x < -18, -18, x);  // here it is -1
  const Power power = power_of_two(x, 127);
  const float two_to_n = float_of(power.biased << 23);
  return expm1_of_rest(power.rest) * two_to_n + (two_to_n - 1);
}

// a / b where many numbers are divided by one: a division takes as long as ten multiplications.
// The remainder says, exactly, what the product lacks. So this is a / b to the last bit (after
// P. Markstein, 1990), unless it is below 2^-100, where the remainder loses digits.
MINITENSOR_FORMULA float quotient(float a, float b, float one_by_b) {
  const float near = a * one_by_b;
  return std::fma(std::fma(-near, b, a), one_by_b, near);
}

// Of the magnitude m, and then with the sign of x. Far from 0 by exp; near it that would cancel,
// and a polynomial in m^2 serves.
MINITENSOR_FORMULA float fast_tanh(float x) {
  const float m = magnitude(x);
  const float far = 1 - 2 / (fast_exp(2 * m) + 1);
  const float z = m * m;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = m + m * (z * p);
  return with_sign_of(x, pick(m < 0.625f, near, far));
}

// 1 / (1 + e^-x). Before the 1 is added nothing is rounded, and 2^n comes last, so that the 1 is
// not lost beside it.
MINITENSOR_FORMULA float fast_sigmoid_usual(float x) {
  const Power power = power_of_two(-x, 127);
  const float two_to_n = float_of(power.biased << 23);
  return 1 / (two_to_n + (1 + two_to_n * expm1_of_rest(power.rest)));
}
// Beyond, it is 1 on one side, and e^x on the other.
MINITENSOR_FORMULA float fast_sigmoid(float x) {
  const float near = fast_sigmoid_usual(pick(x > usual_exponent, usual_exponent, x));
  return pick(x < -usual_exponent, fast_exp_below_0(x), near);
}

// log(x) = n log(2) + log(1 + f), with 1 + f between the roots of 1/2 and 2.
MINITENSOR_FORMULA float fast_log(float x) {
  const bool denormal = x < std::numeric_limits<float>::min();
  const float y = x * pick(denormal, 0x1p23f, 1);
  constexpr std::uint32_t root_of_half = 0x3f3504f3;
  const std::uint32_t bits = bits_of(y) - root_of_half;
  const float n =
      static_cast<float>(static_cast<std::int32_t>(bits) >> 23) - pick(denormal, 23.0f, 0.0f);
  const float f = float_of((bits & 0x7fffff) + root_of_half) - 1;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const float z = f * f;
  float r = f + (p * f * z + n * ln2_low - 0.5f * z) + n * ln2_high;
  r = pick(x == 0, -std::numeric_limits<float>::infinity(), r);
  r = pick(x > std::numeric_limits<float>::max(), x, r);
  return pick(x >= 0, r, std::numeric_limits<float>::quiet_NaN());
}

// Far from 0, erf(m) = 1 - erfc(m), and the logarithm of erfc is a polynomial; near it that would
// cancel, and a polynomial in m^2 serves.
MINITENSOR_FORMULA float fast_erf(float x) {
  const float m = magnitude(x);
  float p = 2.0869665766e-4f;
  p = p * m - 3.1648669706e-3f;
  p = p * m + 2.2697293888e-2f;
  p = p * m - 1.0487623934e-1f;
  p = p * m - 6.3614226750e-1f;
  p = p * m - 1.1282712753f;
  p = p * m - 5.6864503584e-5f;
  const float far = 1 - fast_exp_below_0(pick(m > 4, -20, p));  // 1, from 3.9 on
  const float z = m * m;
  float q = -6.5381686289e-4f;
  q = q * z + 5.0856496887e-3f;
  q = q * z - 2.6821141548e-2f;
  q = q * z + 1.1283122279e-1f;
  q = q * z - 3.7612602484e-1f;
  q = q * z + 1.283791641e-1f;
  const float near = m + m * q;
  return with_sign_of(x, pick(m < 0.8f, near, far));
}

// m times the share of the normal distribution beyond m, for 0 <= m <= 14.4, where it has shrunk to
// less than a float32 can hold. It shrinks like e^(-m^2/2), and far out a rounding of m^2 would
// already cost the last digits. So the exponent is carried in two parts, and a large number meets a
// small one only in the last addition.
MINITENSOR_FORMULA float tail(float m) {
  // Near 0 the share is 1/2 - m (...), with a polynomial in m^2.
  const float z = m * m;
  float q = 1.0852420062e-4f;
  q = q * z - 1.1855160045e-3f;
  q = q * z + 9.9733617293e-3f;
  q = q * z - 6.6490372675e-2f;
  q = q * z + 3.9894228036e-1f;
  const float near = m * (0.5f - m * q);

  // Elsewhere the tail is e^(-m^2/2) h. From 0 to infinity h grows from 0 to 0.4, smoothly in v (a
  // variable like that of M. Shepherd and J. Laframboise, 1981); at v = 0 it is h0.
  const float v = (m - 1.5f) / (m + 1.2f);
  float p = 7.9011709143e-4f;
  p = p * v - 5.1788328897e-4f;
  p = p * v - 1.6858439548e-3f;
  p = p * v - 1.1629614671e-3f;
  p = p * v + 3.8279714019e-4f;
  p = p * v + 4.5300700747e-3f;
  p = p * v + 9.7611149981e-3f;
  p = p * v + 4.4541384539e-3f;
  p = p * v - 3.2991704214e-2f;
  p = p * v - 8.3300254064e-2f;
  p = p * v + 1.9000908588e-1f;
  const float h0 = 3.0867100163e-1f;
  const float above_h0 = p * v;

  // The first 12 bits of m have an exact square. With the others, m^2 = first^2 + (m - first)(m +
  // first). (This is how erfc does it in Sun's fdlibm.)
  const float first = float_of(bits_of(m) & 0xfffff000);
  const float exponent = first * first * -0.5f;
  const float more = (first - m) * (first + m) * 0.5f;
  const Power power = power_of_two(exponent, 127 + 25);  // as in fast_exp_below_0
  const float high = exponent - power.n * ln2_high;      // exact
  const float low = more - power.n * ln2_low;
  const float r = high + low;
  const float e = high + (low + r * r * exp_series(r));  // e^r - 1
  const float product = h0 + (above_h0 + (h0 + above_h0) * e);
  const float far = product * float_of(power.biased << 23) * 0x1p-25f;
  return pick(m < 0.55f, near, far);
}
// gelu(x), x times the share of the normal distribution below x. For x > 0 that is x less the tail,
// otherwise 0 less the tail. (0 m is NaN for -infinity, where PyTorch, too, gives NaN.)
MINITENSOR_FORMULA float fast_gelu(float x) {
  const float m = magnitude(x);
  return pick(x > 0, x, 0 * m) - tail(pick(m > 14.4f, 14.4f, m));
}

struct LeakyRelu {
  template <Real T>
  MINITENSOR_FORMULA T of(T a, T n) {
    return pick(a > 0, a, n * a);
  }
};
struct Elu {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a, T n) {
    if constexpr (std::is_same_v<T, float>)
      return pick(a > 0, a, n * fast_expm1_below_0(a));
    else
      return a > 0 ? a : n * std::expm1(a);
  }
};
// A formula may say which numbers are `usual`, and have a form for them that takes less time and
// gives the same bits. Chapter 7 takes it where many numbers in a row are usual.
struct Exp {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    if constexpr (std::is_same_v<T, float>)
      return fast_exp(a);
    else
      return std::exp(a);
  }
  MINITENSOR_FORMULA bool usual(float x) { return magnitude(x) < usual_exponent; }
  MINITENSOR_FORMULA float of_usual(float x) { return fast_exp_usual(x); }
};
struct Log {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    if constexpr (std::is_same_v<T, float>)
      return fast_log(a);
    else
      return std::log(a);
  }
};
struct Sqrt {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::sqrt(a);
  }
};
struct Tanh {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    if constexpr (std::is_same_v<T, float>)
      return fast_tanh(a);
    else
      return std::tanh(a);
  }
};
struct Sigmoid {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    if constexpr (std::is_same_v<T, float>)
      return fast_sigmoid(a);
    else
      return T(1) / (T(1) + std::exp(-a));
  }
  MINITENSOR_FORMULA bool usual(float x) { return Exp::usual(x); }
  MINITENSOR_FORMULA float of_usual(float x) { return fast_sigmoid_usual(x); }
};
struct Erf {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    if constexpr (std::is_same_v<T, float>)
      return fast_erf(a);
    else
      return std::erf(a);
  }
};
struct Gelu {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    if constexpr (std::is_same_v<T, float>)
      return fast_gelu(a);
    else
      return 0.5 * a * std::erfc(a * -0.70710678118654752);
  }
};

// ---- float32, by way of float64 -----------------------------------------------------------------

// On the processor, the other functions of a float32 are worked out in float64 and rounded once.
// With digits to spare, the series that everyone knows will do. What comes out is off by at most
// 0.51 units in the last place: right, except where the true value lies almost in the middle
// between two (at worst, asin near 1/2, two numbers in a thousand). Again a straight line. Numbers
// that are not `usual` here, and a float64, are the library's.

// Above 2^52 a float64 has no digits after the point. It keeps its exponent in the bits from 52 on,
// larger by 1023 than it is.
inline constexpr double float64_rounder = 0x1.8p52, ln2 = 0.69314718055994531;
inline constexpr double quarter_turn = 1.57079632679489662;

// e^x = 2^n e^r as in fast_exp, but with e^r - 1 = r + r^2/2! + r^3/3! + ... + r^9/9!.
struct Exponential {
  double two_to_n, above_1;  // 2^n, and e^r - 1
  MINITENSOR_FORMULA bool usual(float x) { return magnitude(x) < 700; }
  MINITENSOR_FORMULA Exponential of(double x) {
    const double shifted = x * (1 / ln2) + (float64_rounder + 1023);
    const double r = x - (shifted - (float64_rounder + 1023)) * ln2;
    double p = r * (1.0 / 362880) + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 1.0 / 2;
    return {double_of(bits_of(shifted) << 52), r + r * r * p};
  }
  MINITENSOR_FORMULA double value(double x) {
    const auto [two_to_n, above_1] = of(x);
    return two_to_n + two_to_n * above_1;
  }
};
struct Expm1 {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::expm1(a);
  }
  MINITENSOR_FORMULA bool usual(float x) { return Exponential::usual(x); }
  MINITENSOR_FORMULA double in_float64(double x) {  // near 0, n = 0: nothing cancels; -0 stays
    const auto [two_to_n, above_1] = Exponential::of(x);
    return with_sign_of(x, two_to_n * above_1 + (two_to_n - 1));
  }
};
struct Sinh {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::sinh(a);
  }
  MINITENSOR_FORMULA bool usual(float x) { return Exponential::usual(x); }
  MINITENSOR_FORMULA double in_float64(double x) {  // near 0, e^x - e^-x would cancel
    const double e = Expm1::in_float64(magnitude(x));
    return with_sign_of(x, (e + e / (e + 1)) / 2);
  }
};
struct Cosh {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::cosh(a);
  }
  MINITENSOR_FORMULA bool usual(float x) { return Exponential::usual(x); }
  MINITENSOR_FORMULA double in_float64(double x) {
    const double e = Exponential::value(x);
    return (e + 1 / e) / 2;
  }
};

// log(u) = n log(2) + log(1 + f) as in fast_log, but with log(1 + f) = 2 (s + s^3/3 + s^5/5 + ...),
// where s = f / (2 + f).
struct Logarithm {
  double n, f;
  MINITENSOR_FORMULA Logarithm of(double u) {
    constexpr std::uint64_t root_of_half = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000;
    const std::uint64_t bits = bits_of(u) - root_of_half + one;
    return {double_of(bits >> 52 | bits_of(0x1p52)) - (0x1p52 + 1023),
            double_of((bits & 0xfffffffffffff) + root_of_half) - 1};
  }
  MINITENSOR_FORMULA double value(const Logarithm& log) {
    const double s = log.f / (2 + log.f), z = s * s;
    double p = z * (2.0 / 11) + 2.0 / 9;
    p = p * z + 2.0 / 7;
    p = p * z + 2.0 / 5;
    p = p * z + 2.0 / 3;
    return log.n * ln2 + (2 * s + s * (z * p));
  }
  MINITENSOR_FORMULA bool usual(float u) {
    return (u > 0) & (u < std::numeric_limits<float>::infinity());  // && would be a branch
  }
};
struct Log1p {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::log1p(a);
  }
  MINITENSOR_FORMULA bool usual(float x) { return Logarithm::usual(1 + x); }
  MINITENSOR_FORMULA double in_float64(double x) {
    Logarithm sum = Logarithm::of(1 + x);
    sum.f = pick(sum.n == 0, x, sum.f);  // near 0, 1 + x has lost digits of x
    return with_sign_of(x, Logarithm::value(sum));
  }
};
struct Log2 {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::log2(a);
  }
  MINITENSOR_FORMULA bool usual(float x) { return Logarithm::usual(x); }
  MINITENSOR_FORMULA double in_float64(double x) {
    return Logarithm::value(Logarithm::of(x)) * (1 / ln2);
  }
};
struct Log10 {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::log10(a);
  }
  MINITENSOR_FORMULA bool usual(float x) { return Logarithm::usual(x); }
  MINITENSOR_FORMULA double in_float64(double x) {
    return Logarithm::value(Logarithm::of(x)) * 0.43429448190325183;
  }
};

struct Pow {
  template <Real T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return std::pow(a, b);
  }
  template <Integer T>
  MINITENSOR_FORMULA T of(T a, T b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    std::uint64_t y = 1, square = static_cast<std::uint64_t>(a);
    for (; b > 0; b /= 2, square *= square)
      if (b % 2) y *= square;
    return static_cast<T>(y);
  }
  // a^b = e^(b log(a)). Of a negative number only whole powers are real. |log(a)| < 104, so with
  // |b| < 6 the exponential is usual; and the logarithm's error, b times as large, is still small.
  MINITENSOR_FORMULA bool usual(float a, float b) {
    const float m = magnitude(a), size = magnitude(b);
    const bool whole = std::nearbyint(b) == b;
    return (m > 0) & (m < std::numeric_limits<float>::infinity()) & (size < 6) & ((a > 0) | whole);
  }
  MINITENSOR_FORMULA double in_float64(double a, double b) {
    const double y = Exponential::value(b * Logarithm::value(Logarithm::of(magnitude(a))));
    const double half = b / 2;
    return pick((a < 0) & (std::nearbyint(half) != half), -y, y);
  }
};

// The angle x is n quarter turns and a rest r, |r| <= pi/4; sin(r) = r - r^3/3! + r^5/5! - ... and
// cos(r) = 1 - r^2/2! + r^4/4! - ... A quarter turn is subtracted in two parts. The first has 33
// bits, so n times it is exact up to n = 2^20; angles beyond a million are the library's.
struct SineAndCosine {
  double sine, cosine;
  MINITENSOR_FORMULA bool usual(float x) { return magnitude(x) < 1e6f; }
  MINITENSOR_FORMULA SineAndCosine of(double x) {
    constexpr double first = 1.57079632673412562, second = 6.0771005065061922e-11;
    const double shifted = x * (1 / quarter_turn) + float64_rounder, n = shifted - float64_rounder;
    const double r = x - n * first - n * second, z = r * r;
    double s = z * (-1.0 / 39916800) + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = r * (1 + z * s);
    double c = z * (1.0 / 479001600) - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 1.0 / 2;
    c = 1 + z * c;
    // A quarter turn on, the sine is the old cosine, and the cosine is minus the old sine.
    const std::uint64_t turns = bits_of(shifted);
    const bool odd = turns & 1;
    return {double_of(bits_of(pick(odd, c, s)) ^ (turns >> 1 << 63)),
            double_of(bits_of(pick(odd, s, c)) ^ ((turns + 1) >> 1 << 63))};
  }
};
struct Sin {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::sin(a);
  }
  MINITENSOR_FORMULA bool usual(float a) { return SineAndCosine::usual(a); }
  MINITENSOR_FORMULA double in_float64(double x) { return SineAndCosine::of(x).sine; }
};
struct Cos {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::cos(a);
  }
  MINITENSOR_FORMULA bool usual(float a) { return SineAndCosine::usual(a); }
  MINITENSOR_FORMULA double in_float64(double x) { return SineAndCosine::of(x).cosine; }
};
struct Tan {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::tan(a);
  }
  MINITENSOR_FORMULA bool usual(float a) { return SineAndCosine::usual(a); }
  MINITENSOR_FORMULA double in_float64(double x) {
    const SineAndCosine at = SineAndCosine::of(x);
    return at.sine / at.cosine;
  }
};

// The angle at which the point (q, p) is seen from (0, 0); p and q are no less than 0. Where it is
// low, middle or high, nothing, half a quarter turn or a quarter turn is taken away. The tangent t
// of the rest is then p / q, (p - q) / (p + q) or -q / p, between -tan(pi/8) and tan(pi/8), and its
// angle is t - t^3/3 + t^5/5 - ...
MINITENSOR_FORMULA double angle(double p, double q) {
  const bool low = p <= q * 0.41421356237309505, high = p > q * 2.4142135623730951;
  const double above = pick(high, 0, p) - pick(low, 0, q);
  const double below = pick(low, 0, p) + pick(high, 0, q);
  const double t = above / below, z = t * t;
  double s = z * (1.0 / 21) - 1.0 / 19;
  s = s * z + 1.0 / 17;
  s = s * z - 1.0 / 15;
  s = s * z + 1.0 / 13;
  s = s * z - 1.0 / 11;
  s = s * z + 1.0 / 9;
  s = s * z - 1.0 / 7;
  s = s * z + 1.0 / 5;
  s = s * z - 1.0 / 3;
  const double taken = pick(low, 0, quarter_turn / 2) + pick(high, quarter_turn / 2, 0);
  return taken + (t + t * (z * s));
}
struct Atan {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::atan(a);
  }
  MINITENSOR_FORMULA double in_float64(double x) { return with_sign_of(x, angle(magnitude(x), 1)); }
};
struct Atan2 {
  template <Real T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return std::atan2(a, b);
  }
  MINITENSOR_FORMULA bool usual(float y, float x) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const float p = magnitude(y), q = magnitude(x);
    return (p < infinity) & (q < infinity) & (q > 0);
  }
  MINITENSOR_FORMULA double in_float64(double y, double x) {
    const double seen = angle(magnitude(y), magnitude(x));
    return with_sign_of(y, pick(x < 0, 2 * quarter_turn - seen, seen));
  }
};

// asin(m) for m >= 0 is m + 1/6 m^3 + 3/40 m^5 + ..., with (2n)! / (4^n n!^2 (2n + 1)) before
// m^(2n + 1). Beyond 1/2 that is slow; there it is pi/2 - 2 asin(s), where s^2 = (1 - m) / 2.
MINITENSOR_FORMULA double arc_sine(double m) {
  const bool far = m > 0.5;
  const double z = pick(far, (1 - m) / 2, m * m), s = pick(far, std::sqrt(z), m);
  double p = z * (88179.0 / 12058624) + 46189.0 / 5505024;
  p = p * z + 12155.0 / 1245184;
  p = p * z + 6435.0 / 557056;
  p = p * z + 143.0 / 10240;
  p = p * z + 231.0 / 13312;
  p = p * z + 63.0 / 2816;
  p = p * z + 35.0 / 1152;
  p = p * z + 5.0 / 112;
  p = p * z + 3.0 / 40;
  p = p * z + 1.0 / 6;
  const double angle = s + s * (z * p);
  return pick(far, quarter_turn - 2 * angle, angle);
}
struct Asin {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::asin(a);
  }
  MINITENSOR_FORMULA double in_float64(double x) { return with_sign_of(x, arc_sine(magnitude(x))); }
};
struct Acos {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::acos(a);
  }
  MINITENSOR_FORMULA double in_float64(double x) { return quarter_turn - Asin::in_float64(x); }
};

// ---- Roots, rounding, remainders, comparisons ---------------------------------------------------

struct Rsqrt {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return T(1) / std::sqrt(a);
  }
};
struct Reciprocal {
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return T(1) / a;
  }
};
// g++ makes vectors of nearbyint, which leaves the processor's exception flags alone, but not of
// floor, ceil and trunc. Not every processor has the instruction that rounds, so these loops are
// compiled twice. (A comparison is 0 or 1; a choice would be a branch.) Integers are whole already.
struct Floor {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    const T near = std::nearbyint(a);
    return std::copysign(near + static_cast<T>(-(near > a)), a);  // -0 stays
  }
  template <Integer T>
  MINITENSOR_FORMULA T of(T a) {
    return a;
  }
};
struct Ceil {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return -Floor::of(-a);
  }
  template <Integer T>
  MINITENSOR_FORMULA T of(T a) {
    return a;
  }
};
struct Round {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::nearbyint(a);  // a half goes to the even neighbour
  }
  template <Integer T>
  MINITENSOR_FORMULA T of(T a) {
    return a;
  }
};
struct Trunc {
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a) {
    return std::copysign(Floor::of(std::abs(a)), a);
  }
  template <Integer T>
  MINITENSOR_FORMULA T of(T a) {
    return a;
  }
};
// Two remainders and two quotients. The integers' divisor is not 0 (chapter 10 sees to that); and
// -1 is a case of its own, because the smallest integer divided by it does not fit.
struct Fmod {  // what is left has the sign of a
  template <Real T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return std::fmod(a, b);
  }
  template <Integer T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return b == 0 || b == -1 ? T(0) : a % b;
  }
  // n is the whole number nearest to a / b. Below 2^29, n b and what is left are exact; where that
  // has the wrong sign, it lacks one |b|.
  MINITENSOR_FORMULA bool usual(float a, float b) {
    const float m = magnitude(a), size = magnitude(b);
    return (m < 0x1p29f * size) & (size < std::numeric_limits<float>::infinity());
  }
  MINITENSOR_FORMULA double in_float64(double a, double b) {
    const double left = a - std::nearbyint(a / b) * b, m = magnitude(left);
    return with_sign_of(a, pick(left * a < 0, magnitude(b) - m, m));
  }
};
struct Remainder {  // what is left has the sign of b
  template <class T>
  requires(!Truth<T>) MINITENSOR_FORMULA T of(T a, T b) {
    const T left = Fmod::of(a, b);
    return left != 0 && (left < 0) != (b < 0) ? left + b : left;
  }
  MINITENSOR_FORMULA bool usual(float a, float b) { return Fmod::usual(a, b); }
  MINITENSOR_FORMULA double in_float64(double a, double b) {
    const double left = Fmod::in_float64(a, b);
    return pick(left * b < 0, left + b, left);
  }
};
struct TruncDivide {  // towards zero
  static constexpr bool computes_much = true;
  template <Real T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return Trunc::of(a / b);
  }
  template <Integer T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return b == 0 ? T(0) : b == -1 ? Neg::of(a) : a / b;
  }
};
struct FloorDivide {  // down. A quotient just below a whole number must not be rounded up to it
  template <Real T>
  MINITENSOR_FORMULA T of(T a, T b) {
    if (b == 0) return a / b;
    const T left = std::fmod(a, b);
    const T below = left != 0 && (left < 0) != (b < 0) ? T(1) : T(0);
    return std::nearbyint((a - left) / b) - below;
  }
  template <Integer T>
  MINITENSOR_FORMULA T of(T a, T b) {
    return TruncDivide::of(Sub::of(a, Remainder::of(a, b)), b);
  }
  MINITENSOR_FORMULA bool usual(float a, float b) { return Fmod::usual(a, b); }
  MINITENSOR_FORMULA double in_float64(double a, double b) {
    const double left = Fmod::in_float64(a, b);
    return (a - left) / b - pick(left * b < 0, 1.0, 0.0);  // a - left is n b, exactly
  }
};
struct Equal {
  template <class T>
  MINITENSOR_FORMULA bool of(T a, T b) {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  MINITENSOR_FORMULA bool of(T a, T b) {
    return a != b;
  }
};
struct Less {
  template <class T>
  MINITENSOR_FORMULA bool of(T a, T b) {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  MINITENSOR_FORMULA bool of(T a, T b) {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  MINITENSOR_FORMULA bool of(T a, T b) {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  MINITENSOR_FORMULA bool of(T a, T b) {
    return a >= b;
  }
};
struct Beats {  // in a search for the largest: NaN is, and the first of equals stays
  template <Real T>
  MINITENSOR_FORMULA bool of(T a, T b) {
    return !(a <= b) & (b == b);  // && would be a branch, which depends on the numbers
  }
};
struct And {
  template <Truth T>
  MINITENSOR_FORMULA bool of(T a, T b) {
    return a && b;
  }
};
struct Or {
  template <Truth T>
  MINITENSOR_FORMULA bool of(T a, T b) {
    return a || b;
  }
};
struct Xor {
  template <Truth T>
  MINITENSOR_FORMULA bool of(T a, T b) {
    return a != b;
  }
};
struct Not {
  template <Truth T>
  MINITENSOR_FORMULA bool of(T a) {
    return !a;
  }
};

// Folding many numbers into one: the formula by which the next one joins, the neutral element to
// start from, and `Wide`, the type in which this happens.
template <class T>
using wide = std::conditional_t<Real<T>, double, std::int64_t>;

struct Sum : Add {
  template <class T>
  using Wide = wide<T>;
  template <class T>
  static constexpr T neutral = T(0);
};
struct Prod : Mul {
  template <class T>
  using Wide = wide<T>;
  template <class T>
  static constexpr T neutral = T(1);
};
struct Max : Maximum {
  template <class T>
  using Wide = T;
  template <class T>
  static constexpr T neutral = Real<T> ? -std::numeric_limits<T>::infinity()
                                       : std::numeric_limits<T>::lowest();
};
struct Min : Minimum {
  template <class T>
  using Wide = T;
  template <class T>
  static constexpr T neutral = Real<T> ? std::numeric_limits<T>::infinity()
                                       : std::numeric_limits<T>::max();
};
struct Any : Or {
  template <class T>
  using Wide = T;
  template <class T>
  static constexpr T neutral = false;
};
struct All : And {
  template <class T>
  using Wide = T;
  template <class T>
  static constexpr T neutral = true;
};

// The number of a formula is its place in this list; another machine keeps its tables in this
// order.
template <class... F>
struct List {
  static constexpr int size = sizeof...(F);
};
using Every =
    List<Add, Sub, Mul, Div, Pow, Maximum, Minimum, Neg, Abs, Sign, Square, Cube, Relu, LeakyRelu,
         Elu, Exp, Expm1, Log, Log1p, Sqrt, Sin, Cos, Tanh, Sigmoid, Erf, Gelu, Equal, NotEqual,
         Less, LessEqual, Greater, GreaterEqual, And, Or, Xor, Not, Sum, Prod, Max, Min, Any, All,
         Log2, Log10, Rsqrt, Reciprocal, Tan, Asin, Acos, Atan, Sinh, Cosh, Floor, Ceil, Round,
         Trunc, Atan2, Fmod, Remainder, TruncDivide, FloorDivide, Beats>;
// Places derives from Place<0, Add>, Place<1, Sub> and so on; which of them has F, the compiler
// finds faster than any search that is written by hand.
template <int n, class F>
struct Place {};
template <class Numbers, class Formulas>
struct Places;
template <int... n, class... F>
struct Places<std::integer_sequence<int, n...>, List<F...>> : Place<n, F>... {};
template <class F, int n>
constexpr int place_in(Place<n, F>) {
  return n;
}
template <class F, class All = Every>
inline constexpr int number_of =
    place_in<F>(Places<std::make_integer_sequence<int, All::size>, All>());
template <class X, class... F>
constexpr bool is_in(List<F...>) {
  return (std::is_same_v<X, F> || ...);
}

}  // namespace formula

// From one type to another: towards zero, as to_integer says; and everything but 0 is true.
template <class Y, class A>
MINITENSOR_FORMULA Y converted(A a) {
  if constexpr (std::is_same_v<Y, bool>)
    return a != A(0);
  else if constexpr (Integer<Y> && Real<A>)
    return to_integer(static_cast<double>(a));
  else
    return static_cast<Y>(a);
}

// ================================================================================================
// 7. Machines
// ================================================================================================
//
// A machine can hold elements and work on them, with some twenty verbs. Everything a tensor does
// is made of these. Below are the verbs of the processor (its random numbers are in chapter 12, an
// optimiser's steps in the appendix). Another machine brings a table of the same verbs, and a View
// whose device is that machine sends the verb there. The table cannot take a formula as a template
// argument, so it takes the formula's number.

// What a card is, as its maker says, and what has become of its memory. All sizes are in bytes.
struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;  // the compute capability: 9.0 is Hopper
  int multi_processor_count = 0;
  std::int64_t total_memory = 0;
};
struct MemoryStatistics {
  std::int64_t free = 0, total = 0;
  // Of this program: in tensors now, the most that there has been in them, and what it holds in
  // all, some of it to be given out again.
  std::int64_t allocated = 0, max_allocated = 0, reserved = 0;
};

// How to multiply matrices: with the machine's library, or in one of two ways to be read. (Lesson
// 18 takes their times.)
enum class MatmulAlgorithm { library, naive, tiled };

// What becomes of a row: numbers that sum to 1, their logarithms, or numbers with the mean 0 and
// the variance 1 (chapter 11).
enum class RowNormalization { softmax, log_softmax, standardized };

enum class RandomDistribution : int;  // these two: chapter 12
struct RandomCall;

struct Machine {
  const char* name;
  std::byte* (*allocate)(Device device, std::int64_t bytes);
  void (*release)(Device device, std::byte* data);
  void (*synchronize)(Device device);  // waits until all work is done
  void (*fill)(const View& y, Scalar value);
  void (*copy)(const View& y, const View& a);  // one of them, or both, on this machine
  void (*map)(int formula, const View& y, const View& a);
  void (*zip)(int formula, const View& y, const View& a, const View& b);
  void (*choose)(const View& y, const View& condition, const View& a, const View& b);
  void (*reduce)(int formula, const View& y, const View& a);
  void (*reduce_arg)(int formula, const View& values, const View& indices, const View& a, int axis);
  void (*matmul)(const View& y, const View& a, const View& b, MatmulAlgorithm way);
  void (*gather)(const View& y, const View& a, const View& index, int axis);
  void (*scatter_add)(const View& y, const View& a, const View& index, int axis);
  void (*normalize)(RowNormalization kind, const View& y, const View& a, int axis, double eps);
  bool (*first_out_of_range)(const View& index, std::int64_t size, std::int64_t& found);
  void (*random)(RandomDistribution kind, const View& y, Scalar first, Scalar second,
                 const RandomCall& call);
  // An optimiser's step along the gradient g, with its plain numbers k and what it remembers, s.
  void (*update)(int rule, const View& w, const View& g, const View* s, const double* k);
  int (*device_count)();
  DeviceProperties (*properties)(Device device);
  MemoryStatistics (*memory)(Device device);
  // How long the machine was at work on what `work` asked it to do, in microseconds by its own
  // clock.
  double (*time)(Device device, const Callback<void()>& work);
};

// kernels.cu puts its table here when it is linked in.
inline const Machine* cuda_machine = nullptr;

// The table that a device's verbs go through; null for the processor, whose verbs are called
// directly.
[[gnu::noinline]] inline const Machine* machine(Device device) {
  if (device.kind == Device::cpu) return nullptr;
  if (!cuda_machine)
    throw Error(text_of({"there is no ", device, " in this program. ",
                         "Hint: build it with kernels.cu (cmake -D MINITENSOR_CUDA=ON)"}));
  return cuda_machine;
}

// How many graphics cards there are for this program: none without kernels.cu, none without a card.
inline int device_count() { return cuda_machine ? cuda_machine->device_count() : 0; }
inline bool cuda_is_available() { return device_count() > 0; }

// What is asked of a device that is not there fails with the student's line.
inline const Machine* existing_machine(Device device, const At& at) {
  check_device(device, at);
  return machine(device);
}
inline DeviceProperties device_properties(Device device = cuda, Loc loc = Loc::here()) {
  const Machine* other = existing_machine(device, {"device_properties", loc});
  return other ? other->properties(device) : DeviceProperties{"cpu"};
}
inline std::string device_name(Device device = cuda, Loc loc = Loc::here()) {
  const Machine* other = existing_machine(device, {"device_name", loc});
  return other ? other->properties(device).name : "cpu";
}
// Of the processor's memory nobody keeps a record.
inline MemoryStatistics memory_statistics(Device device = cuda, Loc loc = Loc::here()) {
  const Machine* other = existing_machine(device, {"memory_statistics", loc});
  return other ? other->memory(device) : MemoryStatistics();
}
// A machine is given orders, and works them off while the program goes on. This waits for it.
inline void synchronize(Device device = cuda, Loc loc = Loc::here()) {
  if (const Machine* other = existing_machine(device, {"synchronize", loc}))
    other->synchronize(device);
}

inline std::byte* allocate_on(Device device, std::int64_t bytes) {
  return machine(device)->allocate(device, bytes);
}
inline void release_on(Device device, std::byte* data) { machine(device)->release(device, data); }

// ---- Memory -------------------------------------------------------------------------------------
//
// A program asks for blocks of the same few sizes again and again: a graph of numbers takes and
// gives back three for each operation. So each thread keeps what it was given, one list for each
// size and at most 64 MB in all, and gives it out again: a few instructions instead of a trip to
// the system. A block may be given back by another thread than the one which took it. (All blocks
// begin at a multiple of 64 bytes: a cache line, and the widest vector.)

// AddressSanitizer finds a use after free only if free is really called.
#if defined(__SANITIZE_ADDRESS__)
#define MINITENSOR_KEEPS_BLOCKS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MINITENSOR_KEEPS_BLOCKS 0
#endif
#endif
#ifndef MINITENSOR_KEEPS_BLOCKS
#define MINITENSOR_KEEPS_BLOCKS 1
#endif

// Up to 256 bytes a size is a multiple of 64. Beyond, there are four sizes per doubling (320, 384,
// 448, 512, 640, ...), so at most a quarter is wasted.
struct BlockSize {
  explicit constexpr BlockSize(std::size_t wanted) {
    const std::size_t lines = wanted > 64 ? (wanted - 1) / 64 : 0;  // cache lines, less one
    const int shift = lines < 4 ? 0 : static_cast<int>(std::bit_width(lines)) - 3;
    number = static_cast<std::size_t>(4 * shift) + (lines >> shift);
    bytes = ((lines >> shift) + 1) << shift << 6;
  }
  std::size_t number, bytes;
};

// The blocks that a thread keeps. The first word of each is the address of the next one.
struct KeptBlocks {
  static constexpr std::size_t most_bytes = std::size_t{64} << 20;
  static constexpr std::size_t sizes = BlockSize(most_bytes).number + 1;
  std::size_t bytes = 0, room = 0;
  bool over = false;  // the thread is about to end
  void* first[sizes] = {};
};
// It has no destructor, so it may be used to the very end: tensors in static variables outlive it.
constinit inline thread_local KeptBlocks kept_blocks;

// At the end of a thread, lets go of what it kept.
struct KeptBlocksEnd {
  ~KeptBlocksEnd() {
    kept_blocks.over = true;
    kept_blocks.room = 0;
    for (void* block : kept_blocks.first)
      while (block) std::free(std::exchange(block, *static_cast<void**>(block)));
    std::fill(std::begin(kept_blocks.first), std::end(kept_blocks.first), nullptr);
  }
};

#ifdef __linux__
}  // namespace minitensor
#include <sys/mman.h>
namespace minitensor {
#endif

// Memory comes in pages of 4 KB, and the first touch of each is a trip to the system. For a block
// of 2 MB or more, Linux is asked for pages of that size: going over new memory takes a fifth of
// the time.
[[gnu::noinline]] inline void* take_new_block(std::size_t wanted, std::size_t bytes) {
  std::size_t alignment = 64;
#ifdef __linux__
  constexpr std::size_t page = std::size_t{2} << 20;
  if (wanted >= page) {
    alignment = page;
    bytes = (bytes + page - 1) / page * page;
  }
#endif
  if (bytes >= wanted)  // else rounding it up has overflowed
    if (void* block = std::aligned_alloc(alignment, bytes)) {
#ifdef __linux__
      if (wanted >= page) madvise(block, wanted / page * page, MADV_HUGEPAGE);
#endif
      return block;
    }
  throw Error(text_of({"there is no memory for ", std::to_string(wanted), " bytes"}));
}

[[gnu::always_inline]] inline void* take_block(std::size_t wanted) {
  const BlockSize size(wanted);
  if (size.number >= KeptBlocks::sizes || !kept_blocks.first[size.number])
    return take_new_block(wanted, size.bytes);
  kept_blocks.bytes -= size.bytes;
  void* block = kept_blocks.first[size.number];
  kept_blocks.first[size.number] = *static_cast<void**>(block);
  return block;
}

// There is no room until the first block is given back, which also sees to the thread's end.
inline bool make_room_for(std::size_t bytes) {
  if (kept_blocks.over || !MINITENSOR_KEEPS_BLOCKS) return false;
  static thread_local KeptBlocksEnd end;
  kept_blocks.room = KeptBlocks::most_bytes;
  return kept_blocks.bytes + bytes <= kept_blocks.room;
}

[[gnu::always_inline]] inline void give_block(void* block, std::size_t wanted) {
  const BlockSize size(wanted);
  if (kept_blocks.bytes + size.bytes > kept_blocks.room && !make_room_for(size.bytes))
    return std::free(block);
  kept_blocks.bytes += size.bytes;
  *static_cast<void**>(block) = kept_blocks.first[size.number];
  kept_blocks.first[size.number] = block;
}

// ---- Element by element -------------------------------------------------------------------------

// As what a loop reads an element: g++ makes no vectors of a loop that reads bools.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, unsigned char, T>;

// Whether a formula computes float32 in float64; whether its loop is compiled twice; and whether
// all of the numbers from one place to another are usual.
template <class F, class... T>
inline constexpr bool computes_in_float64 = (std::is_same_v<T, float> && ...) && requires {
  F::in_float64(static_cast<double>(T())...);
};
template <class F, class... T>
inline constexpr bool compiled_twice = computes_in_float64<F, T...> ||
                                       ((std::is_same_v<T, float> && ...) &&
                                        requires { F::computes_much; });
template <class F>
MINITENSOR_INLINE bool is_usual([[maybe_unused]] auto... numbers) {
  if constexpr (requires { F::usual(numbers...); })
    return F::usual(numbers...);
  else
    return true;
}
template <class F>
MINITENSOR_INLINE bool all_usual(std::int64_t from, std::int64_t to, const auto*... a) {
  int rare = 0;
  for (std::int64_t i = from; i < to; ++i) rare |= !is_usual<F>(a[i]...);
  return !rare;
}
constexpr std::int64_t usual_piece = 512;

// y[i] = F(a[i], ...), several numbers at once, whatever becomes of those that are not usual: they
// have had their turn before (y may be where a is), and are put in after.
template <class F>
MINITENSOR_INLINE void run_in_float64(std::int64_t n, float* y, const auto*... a) {
  struct Rare {
    std::int64_t at;
    float y;
  } rare[usual_piece];
  for (std::int64_t i = 0, end; i < n; i = end) {
    end = std::min(n, i + usual_piece);
    int count = 0;
    if (!all_usual<F>(i, end, a...))
      for (std::int64_t k = i; k < end; ++k)
        if (!is_usual<F>(a[k]...)) rare[count++] = {k, F::of(a[k]...)};
    MINITENSOR_ANY_ORDER
    for (std::int64_t k = i; k < end; ++k)
      y[k] = static_cast<float>(F::in_float64(static_cast<double>(a[k])...));
    for (; count > 0; --count) y[rare[count - 1].at] = rare[count - 1].y;
  }
}

// y[i] = F(a[i]) where F has a form for usual numbers: it serves the pieces in which all are usual.
template <class F>
MINITENSOR_INLINE void run_usual(std::int64_t n, float* y, const float* a) {
  for (std::int64_t i = 0, end; i < n; i = end) {
    end = std::min(n, i + usual_piece);
    if (all_usual<F>(i, end, a)) {
      MINITENSOR_ANY_ORDER
      for (std::int64_t k = i; k < end; ++k) y[k] = F::of_usual(a[k]);
    } else {
      MINITENSOR_ANY_ORDER
      for (std::int64_t k = i; k < end; ++k) y[k] = F::of(a[k]);
    }
  }
}

template <class F, class T>
struct MapBody {
  static constexpr bool vectors = Real<T>, twice = compiled_twice<F, T>;
  MINITENSOR_INLINE void run(std::int64_t n, std::byte* const* data) {
    auto* y = as<decltype(F::of(T()))>(data[0]);
    const auto* a = as<Stored<T>>(data[1]);
    if constexpr (computes_in_float64<F, T>) {
      run_in_float64<F>(n, y, a);
    } else if constexpr (std::is_same_v<T, float> && requires { F::of_usual(0.0f); }) {
      run_usual<F>(n, y, a);
    } else {
      MINITENSOR_ANY_ORDER
      for (std::int64_t i = 0; i < n; ++i) y[i] = F::of(static_cast<T>(a[i]));
    }
  }
};
template <class F, class T>
struct ZipBody {
  static constexpr bool vectors = Real<T>, twice = compiled_twice<F, T, T>;
  MINITENSOR_INLINE void run(std::int64_t n, std::byte* const* data) {
    auto* y = as<decltype(F::of(T(), T()))>(data[0]);
    const auto* a = as<Stored<T>>(data[1]);
    const auto* b = as<Stored<T>>(data[2]);
    if constexpr (computes_in_float64<F, T, T>) {
      run_in_float64<F>(n, y, a, b);
    } else {
      MINITENSOR_ANY_ORDER
      MINITENSOR_FOUR_A_ROUND
      for (std::int64_t i = 0; i < n; ++i) y[i] = F::of(static_cast<T>(a[i]), static_cast<T>(b[i]));
    }
  }
  // For a body that computes little; for one that is compiled twice, a buffer full of the number is
  // faster.
  MINITENSOR_SHORT_LOOP static void with_number(std::int64_t n, std::byte* const* data) {
    auto* y = as<decltype(F::of(T(), T()))>(data[0]);
    const T* a = as<T>(data[1]);
    const T b = *as<T>(data[2]);
    MINITENSOR_ANY_ORDER
    MINITENSOR_FOUR_A_ROUND
    for (std::int64_t i = 0; i < n; ++i) y[i] = F::of(a[i], b);
  }
};

// A thing for each dtype, in the order of their enum.
template <class Thing>
using PerDType = std::array<Thing, 4>;

// A formula has a loop for each dtype, except where it has no meaning.
template <class F, class T>
constexpr Loop map_loop() {
  if constexpr (requires { F::of(T()); })
    return Loop::of<MapBody<F, T>>();
  else
    return {};
}
template <class F, class T>
constexpr Loop zip_loop() {
  Loop loop;
  if constexpr (requires { F::of(T(), T()); }) {
    loop = Loop::of<ZipBody<F, T>>();
    if (Real<T> && !compiled_twice<F, T, T>) loop.with_number = ZipBody<F, T>::with_number;
  }
  return loop;
}
template <class F>
inline constexpr PerDType<Loop> map_loops = {map_loop<F, float>(), map_loop<F, double>(),
                                             map_loop<F, std::int64_t>(), map_loop<F, bool>()};
template <class F>
inline constexpr PerDType<Loop> zip_loops = {zip_loop<F, float>(), zip_loop<F, double>(),
                                             zip_loop<F, std::int64_t>(), zip_loop<F, bool>()};

template <class Thing>
const Thing& pick_for(DType dtype, const PerDType<Thing>& things) {
  const Thing& thing = things[static_cast<std::size_t>(dtype)];
  if (!thing) throw Error(text_of({"this has no meaning for elements of type ", dtype}));
  return thing;
}

// y = F(a). Here and below all views have one shape, and one dtype, except where y or a condition
// holds truth values. y may be the same view as an input, but must not overlap one in another way.
template <class F>
void map(const View& y, const View& a) {
  if (const Machine* other = machine(y.device)) return other->map(formula::number_of<F>, y, a);
  run_loops({&y, &a}, pick_for(a.dtype, map_loops<F>));
}

// y = F(a, b)
template <class F>
void zip(const View& y, const View& a, const View& b) {
  if (const Machine* other = machine(y.device)) return other->zip(formula::number_of<F>, y, a, b);
  run_loops({&y, &a, &b}, pick_for(a.dtype, zip_loops<F>));
}

template <class T>
struct ChooseBody {
  static constexpr bool vectors = true, twice = false;
  MINITENSOR_INLINE void run(std::int64_t n, std::byte* const* data) {
    T* y = as<T>(data[0]);
    const auto* condition = as<Stored<bool>>(data[1]);
    const T* a = as<T>(data[2]);
    const T* b = as<T>(data[3]);
    MINITENSOR_ANY_ORDER
    for (std::int64_t i = 0; i < n; ++i) {
      const T yes = a[i], no = b[i];
      y[i] = condition[i] != 0 ? yes : no;
    }
  }
};

// y = a where the condition holds, else b.
inline void choose(const View& y, const View& condition, const View& a, const View& b) {
  if (const Machine* other = machine(y.device)) return other->choose(y, condition, a, b);
  constexpr PerDType<Loop> loops = {Loop::of<ChooseBody<float>>(), Loop::of<ChooseBody<double>>(),
                                    Loop::of<ChooseBody<std::int64_t>>(),
                                    Loop::of<ChooseBody<bool>>()};
  run_loops({&y, &condition, &a, &b}, pick_for(y.dtype, loops));
}

template <class Y, class A>
struct ConvertBody {
  static constexpr bool vectors = Real<Y> && Real<A>, twice = false;
  MINITENSOR_INLINE void run(std::int64_t n, std::byte* const* data) {
    Y* y = as<Y>(data[0]);
    const A* a = as<A>(data[1]);
    MINITENSOR_ANY_ORDER
    for (std::int64_t i = 0; i < n; ++i) y[i] = converted<Y>(a[i]);
  }
};
template <class Y>
inline constexpr PerDType<Loop> convert_loops = {
    Loop::of<ConvertBody<Y, float>>(), Loop::of<ConvertBody<Y, double>>(),
    Loop::of<ConvertBody<Y, std::int64_t>>(), Loop::of<ConvertBody<Y, bool>>()};

inline Loop convert_loop_for(DType y, DType a) {
  constexpr PerDType<PerDType<Loop>> loops = {convert_loops<float>, convert_loops<double>,
                                              convert_loops<std::int64_t>, convert_loops<bool>};
  return loops[static_cast<std::size_t>(y)][static_cast<std::size_t>(a)];
}

// y = a, from any dtype to any.
[[gnu::noinline]] inline void copy(const View& y, const View& a) {
  if (const Machine* other = machine(y.device)) return other->copy(y, a);
  if (const Machine* other = machine(a.device)) return other->copy(y, a);
  if (y.dtype != a.dtype) return run_loops({&y, &a}, convert_loop_for(y.dtype, a.dtype));
  copy_elements(Walk({&y, &a}));
}

// A number as a view: it looks like a tensor of any shape whose elements are all the same.
inline View as_view(const void* number, DType dtype, const Shape& shape) {
  auto* data = static_cast<std::byte*>(const_cast<void*>(number));
  return {data, dtype, shape, Shape::filled(shape.size(), 0), cpu};
}

inline void fill(const View& y, Scalar value) {
  if (const Machine* other = machine(y.device)) return other->fill(y, value);
  alignas(8) std::byte number[8];
  write_number(number, y.dtype, 0, value);
  copy(y, as_view(number, y.dtype, y.shape));
}

// ---- Many numbers into one ----------------------------------------------------------------------

// A fold for one dtype. `Wide` is the type of the results while they grow: double for float32, so
// that a long sum does not drift.
template <class F, class T>
struct FoldBody {
  using Wide = typename F::template Wide<T>;
  // Up to 16 numbers are added in float32 first, which rounds like any short float32 sum, and saves
  // most of the conversions.
  using Near = std::conditional_t<std::is_same_v<F, formula::Sum> && Real<T>, T, Wide>;
  MINITENSOR_INLINE Wide four(T a, T b, T c, T d) {
    const auto near = [](T x) { return converted<Near>(x); };
    return converted<Wide>(F::of(F::of(near(a), near(b)), F::of(near(c), near(d))));
  }
  // n results are joined by m rows of n numbers each, four rows at a time. (One row at a time, it
  // would take longer to fetch and store the results than to do all else.)
  MINITENSOR_LOOP static void rows(std::int64_t n, std::int64_t m, std::byte* results,
                                   std::byte* from, std::int64_t step) {
    Wide* y = as<Wide>(results);
    for (; m >= 4; m -= 4, from += 4 * step) {
      const T *a = as<T>(from), *b = as<T>(from + step);
      const T *c = as<T>(from + 2 * step), *d = as<T>(from + 3 * step);
      MINITENSOR_ANY_ORDER
      for (std::int64_t i = 0; i < n; ++i) y[i] = F::of(y[i], four(a[i], b[i], c[i], d[i]));
    }
    for (; m > 0; --m, from += step)
      for (std::int64_t i = 0; i < n; ++i) y[i] = F::of(y[i], converted<Wide>(as<T>(from)[i]));
  }
  // One result is joined by n numbers that lie side by side. They are read like a text, in rows: up
  // to 16 rows are folded into one, and that one into `part`. At the end its columns are folded,
  // half onto half, and what is left of the numbers, less than a row, joins. (The result so far is
  // the first of `part`: if all were the neutral number, g++ would fill them as it fills a large
  // memory.)
  MINITENSOR_LOOP static void line(std::int64_t n, std::byte* result, std::byte* from) {
    constexpr std::int64_t columns = 128 / sizeof(Wide);  // they stay in registers
    constexpr Wide neutral = F::template neutral<Wide>;
    Wide& y = *as<Wide>(result);
    const T* a = as<T>(from);
    Wide part[columns], rest = neutral;
    for (std::int64_t i = 0; i < columns; ++i) part[i] = i == 0 ? y : neutral;
    while (n >= columns) {
      const std::int64_t rows = std::min<std::int64_t>(n / columns, 16);
      const auto at = [a](std::int64_t row, std::int64_t i) {
        return converted<Near>(a[row * columns + i]);
      };
      Near some[columns];
      std::int64_t row = 1;
      for (std::int64_t i = 0; i < columns; ++i) some[i] = at(0, i);
      for (; row + 1 < rows; row += 2)
        for (std::int64_t i = 0; i < columns; ++i)
          some[i] = F::of(some[i], F::of(at(row, i), at(row + 1, i)));
      for (; row < rows; ++row)
        for (std::int64_t i = 0; i < columns; ++i) some[i] = F::of(some[i], at(row, i));
      for (std::int64_t i = 0; i < columns; ++i) part[i] = F::of(part[i], converted<Wide>(some[i]));
      n -= rows * columns, a += rows * columns;
    }
    for (std::int64_t i = 0; i < n; ++i) rest = F::of(rest, converted<Wide>(a[i]));
    MINITENSOR_FOUR_A_ROUND
    for (std::int64_t half = columns / 2; half > 0; half /= 2)
      for (std::int64_t i = 0; i < half; ++i) part[i] = F::of(part[i], part[i + half]);
    y = F::of(part[0], rest);
  }
};

// What a reduction is for one dtype: its loops (`line` for the most used dtype only), the one that
// joins results, their dtype, and what they are when nothing has joined them.
struct Fold {
  using Rows = void (*)(std::int64_t n, std::int64_t m, std::byte* results, std::byte* from,
                        std::int64_t step);
  Rows rows = nullptr, join = nullptr;
  void (*line)(std::int64_t n, std::byte* result, std::byte* from) = nullptr;
  DType wide = float32;
  Scalar neutral = 0;
  explicit constexpr operator bool() const { return rows; }
};
template <class F, class T>
constexpr Fold fold_if_defined() {
  using Wide = typename F::template Wide<T>;
  Fold fold;
  if constexpr (requires { F::of(Wide(), Wide()); }) {
    fold = {FoldBody<F, T>::rows, FoldBody<F, Wide>::rows, nullptr, dtype_of<Wide>(),
            F::template neutral<T>};
    if constexpr (std::is_same_v<T, float>) fold.line = FoldBody<F, T>::line;
  }
  return fold;
}
template <class F>
inline constexpr PerDType<Fold> folds = {fold_if_defined<F, float>(), fold_if_defined<F, double>(),
                                         fold_if_defined<F, std::int64_t>(),
                                         fold_if_defined<F, bool>()};

// A line of places: how many, and the bytes from one to the next.
struct Line {
  std::int64_t size, step;
};

// A fold with what it needs at hand.
struct Folding {
  static constexpr std::int64_t most = 1024;  // results at once

  void begin(std::byte* results, std::int64_t n) const {
    copy_spaced(wide, n, results, wide, neutral, 0);
  }
  // n results are joined by m numbers each.
  void join(std::byte* results, std::byte* from, Line n, Line m) const {
    if (m.step == bytes && (m.size >= 16 || n.size == 1))
      for (std::int64_t i = 0; i < n.size; ++i) {
        std::byte *result = results + i * wide, *line = from + i * n.step;
        fold.line ? fold.line(m.size, result, line) : short_rows(result, line, 1, m.size);
      }
    else if (n.step != bytes)
      spaced_rows(results, from, n, m);
    else if (n.size <= 16 && m.step == n.size * bytes)
      short_rows(results, from, n.size, m.size);
    else
      fold.rows(n.size, m.size, results, from, m.step);
  }
  void spaced_rows(std::byte* results, std::byte* from, Line n, Line m) const {
    alignas(64) std::byte buffer[most * sizeof(double)];
    for (std::int64_t j = 0; j < m.size; ++j) {
      copy_spaced(bytes, n.size, buffer, bytes, from + j * m.step, n.step);
      fold.rows(n.size, 1, results, buffer, 0);
    }
  }
  // Short rows, one after the other as in a sum of [100000, 3] along axis 0, are read as longer
  // ones: as many as fit into 32 numbers become one row, and their results are joined at the end.
  void short_rows(std::byte* results, std::byte* from, std::int64_t n, std::int64_t m) const {
    const std::int64_t times = 32 / n, columns = n * times, whole = m / times;
    alignas(64) std::byte parts[32 * sizeof(double)];
    begin(parts, columns);
    fold.rows(columns, whole, parts, from, columns * bytes);
    fold.rows(m * n - whole * columns, 1, parts, from + whole * columns * bytes, 0);
    fold.join(n, times, results, parts, n * wide);
  }

  const Fold& fold;
  const std::int64_t bytes, wide;  // of a number, and of a result
  std::byte* const neutral;
};

inline View broadcast_to(View view, const Shape& shape) {
  view.strides = broadcast_strides(view.shape, view.strides, shape);
  view.shape = shape;
  return view;
}
// In a reduction y has size 1 in the axes that are reduced, and is broadcast to the shape of a. The
// walk over both falls apart into one over the axes that are kept, along which y moves, and, at
// each place of it, one over those that are reduced.
inline Walk axes_where(const Walk& walk, bool moves) {
  Walk some = walk;
  some.axes = 0;
  for (int axis = 0; axis < walk.axes; ++axis)
    if ((walk.steps[axis][0] != 0) == moves)
      some.insert_axis(some.axes, walk.sizes[axis], walk.steps[axis]);
  return some;
}

// Folds a into y. The innermost axes of the two walks are worked on together: n results, m numbers
// for each.
inline void fold(const View& y, const View& a, const Fold& f) {
  if (a.shape.numel() == 0) return fill(y, f.neutral);
  const View onto = broadcast_to(y, a.shape);
  Walk walk({&onto, &a}, 1);
  Ref<Storage> memory;
  if (walk.axes > 0 && walk.steps[walk.axes - 1][1] != walk.bytes[1]) memory = laid_out(walk, 1);
  Walk kept = axes_where(walk, true), reduced = axes_where(walk, false);
  for (Walk* part : {&kept, &reduced})
    if (part->axes == 0) part->insert_axis(0, 1, walk.bytes);
  const int last = reduced.axes - 1, last_kept = kept.axes - 1;
  const Line m{reduced.sizes[last], reduced.steps[last][1]};
  const std::int64_t y_step = kept.steps[last_kept][0], a_step = kept.steps[last_kept][1];
  alignas(8) std::byte neutral[8];
  fill({neutral, f.wide, {}, {}, cpu}, f.neutral);
  const Folding folding{f, walk.bytes[1], bytes_of(f.wide), neutral};
  const Loop store = convert_loop_for(y.dtype, f.wide);

  share_out(kept, a.shape.numel(), [&](const Walk& share) {
    alignas(64) std::byte results[Folding::most * sizeof(double)];
    const std::int64_t size = share.sizes[last_kept];
    Odometer place(share, 1);
    do {
      for (std::int64_t done = 0; done < size; done += Folding::most) {
        const Line n{std::min(Folding::most, size - done), a_step};
        folding.begin(results, n.size);
        Odometer at(reduced, 1);
        at.data[1] = place.data[1] + done * a_step;
        do folding.join(results, at.data[1], n, m);
        while (at.next());
        std::byte* const data[] = {place.data[0] + done * y_step, results};
        const std::int64_t steps[] = {y_step, folding.wide},
                           bytes[] = {walk.bytes[0], folding.wide};
        run_loop({n.size, data, steps}, store, 2, bytes);
      }
    } while (place.next());
  });
}

// y = all numbers of a along some axes, folded into one by F; y has size 1 in those axes.
template <class F>
void reduce(const View& y, const View& a) {
  if (const Machine* other = machine(y.device)) return other->reduce(formula::number_of<F>, y, a);
  fold(y, a, pick_for(a.dtype, folds<F>));
}

// What lies along an axis. The view is left with the first of each line. (A single number is a line
// by itself.)
inline Line take_axis(View& view, int axis) {
  if (view.shape.empty()) return {1, 0};
  const Line line{view.shape[axis], view.strides[axis] * bytes_of(view.dtype)};
  view.shape[axis] = 1;
  return line;
}

// ---- Rows that are normalized -------------------------------------------------------------------

// The softmax of a row of float32 numbers, or its logarithms: exactly what chapter 11 composes of
// several operations, but the row stays in the nearest cache from the first to the last.
template <bool logarithm>
struct SoftmaxBody {
  static constexpr bool vectors = true, twice = true;
  static constexpr std::int64_t columns = 32;  // n is no less
  MINITENSOR_INLINE void run(std::int64_t n, std::byte* const* data) {
    float* y = as<float>(data[0]);
    const float* a = as<float>(data[1]);
    float high[columns], low[columns];  // a NaN need not win here: it will make the sum NaN
    for (std::int64_t i = 0; i < columns; ++i) high[i] = low[i] = a[i];
    const auto meet = [&](std::int64_t count, const float* above, const float* below) {
      for (std::int64_t i = 0; i < count; ++i) {
        high[i] = above[i] > high[i] ? above[i] : high[i];
        low[i] = below[i] < low[i] ? below[i] : low[i];
      }
    };
    for (std::int64_t done = columns; done + columns <= n; done += columns)
      meet(columns, a + done, a + done);
    meet(columns, a + n - columns, a + n - columns);  // some of them for a second time
    MINITENSOR_FOUR_A_ROUND
    for (std::int64_t half = columns / 2; half > 0; half /= 2) meet(half, high + half, low + half);
    const float largest = high[0];
    const bool narrow = low[0] - largest > -69;  // e^-69 is about 2^-100
    if (narrow) {
      MINITENSOR_ANY_ORDER
      for (std::int64_t i = 0; i < n; ++i) y[i] = formula::fast_exp_usual(a[i] - largest);
    } else {
      MINITENSOR_ANY_ORDER
      for (std::int64_t i = 0; i < n; ++i) y[i] = formula::fast_exp_below_0(a[i] - largest);
    }
    double wide = formula::Sum::neutral<double>;
    FoldBody<formula::Sum, float>::line(n, reinterpret_cast<std::byte*>(&wide), data[0]);
    const auto sum = static_cast<float>(wide);
    if constexpr (logarithm) {
      const float log_of_sum = formula::fast_log(sum);
      MINITENSOR_ANY_ORDER
      for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] - largest - log_of_sum;
    } else if (narrow) {
      const float one_by_sum = 1 / sum;
      for (std::int64_t i = 0; i < n; ++i) y[i] = formula::quotient(y[i], sum, one_by_sum);
    } else {
      for (std::int64_t i = 0; i < n; ++i) y[i] /= sum;
    }
  }
};

// Each row of y = the row of a, normalized. False: that is not done here in one go.
inline bool normalize(RowNormalization kind, const View& y, const View& a, int axis, double eps) {
  const std::int64_t n = a.shape[axis];
  if (n == 0 || a.strides[axis] != 1) return false;
  if (const Machine* other = machine(y.device)) {
    other->normalize(kind, y, a, axis, eps);
    return true;
  }
  if (kind == RowNormalization::standardized || a.dtype != float32 || y.strides[axis] != 1 ||
      n < SoftmaxBody<false>::columns)
    return false;
  const Loop loop = kind == RowNormalization::softmax ? Loop::of<SoftmaxBody<false>>()
                                                      : Loop::of<SoftmaxBody<true>>();
  View to = y, from = a;
  to.shape[axis] = from.shape[axis] = 1;
  share_out(Walk({&to, &from}), a.shape.numel(), [&](const Walk& share) {
    run_in_order(share, [&](const Row& row) {
      for (std::int64_t i = 0; i < row.n; ++i) {
        std::byte* const data[] = {row.data[0] + i * row.steps[0], row.data[1] + i * row.steps[1]};
        loop(n, data);
      }
    });
  });
  return true;
}

// Finds the places of values: data is index, value, a, and the line of each value's candidates.
template <class T>
void find_first(const Row& row) {
  const Line line = *as<Line>(row.data[3]);
  for (std::int64_t i = 0; i < row.n; ++i) {
    const T value = *as<T>(row.data[1] + i * row.steps[1]);
    const std::byte* from = row.data[2] + i * row.steps[2];
    std::int64_t j = 0;
    for (; j + 1 < line.size; ++j, from += line.step) {
      const T x = *reinterpret_cast<const T*>(from);
      if (x == value || (x != x && value != value)) break;
    }
    *as<std::int64_t>(row.data[0] + i * row.steps[0]) = j;
  }
}

// The largest (or smallest) value along one axis, and the first place where it stands. NaN wins.
template <class F>
void reduce_arg(const View& values, const View& indices, const View& a, int axis) {
  if (const Machine* other = machine(a.device))
    return other->reduce_arg(formula::number_of<F>, values, indices, a, axis);
  reduce<F>(values, a);
  View starts = a;
  const Line line = take_axis(starts, axis);
  const View lines = as_view(&line, int64, starts.shape);
  const Walk walk = with_long_rows(Walk({&indices, &values, &starts, &lines}));
  with_type(a.dtype,
            [&](auto t) { run(walk, [](const Row& row) { find_first<decltype(t)>(row); }); });
}

// ---- Matrices -----------------------------------------------------------------------------------

// A matrix of any strides: transposed and sliced ones are nothing special.
template <class T>
struct Matrix {
  Matrix(const View& view, std::byte* first) : data(as<T>(first)) {
    const int axis = view.shape.size() - 2;
    rows = view.shape[axis];
    columns = view.shape[axis + 1];
    row_step = view.strides[axis];
    column_step = view.strides[axis + 1];
  }
  T& operator()(std::int64_t i, std::int64_t j) const {
    return data[i * row_step + j * column_step];
  }
  T* data;
  std::int64_t rows, columns, row_step, column_step;
};

// y += a b, for two vectors of columns of y and 256 rows of b, those from `column` and `depth` on;
// at depth 0, y = a b.
constexpr std::int64_t strip_rows = 256;
template <class T, std::int64_t bytes>
constexpr std::int64_t strip_columns = 2 * bytes / sizeof(T);
// That strip of b is copied to where it lies dense and stays in the cache. Then six rows of a at a
// time meet it. A processor has 16 registers for vectors, or more: 12 hold the sums, 2 the row of
// the strip, 1 the number of a. So each row of the strip is fetched once for six products, and each
// number of a once for a whole row.
template <class T, std::int64_t bytes>
MINITENSOR_INLINE void multiply_strip(const Matrix<T>& y, const Matrix<T>& a, const Matrix<T>& b,
                                      std::int64_t column, std::int64_t depth) {
  using W = wrapping<T>;
  using Vector [[gnu::vector_size(bytes)]] = W;
  constexpr std::int64_t rows = 6, columns = strip_columns<T, bytes>;
  const std::int64_t width = std::min(columns, b.columns - column);
  const std::int64_t height = std::min(strip_rows, b.rows - depth);
  alignas(64) W strip[strip_rows][columns];
  for (std::int64_t k = 0; k < height; ++k)
    if (b.column_step == 1 && width == columns)
      std::memcpy(strip[k], &b(depth + k, column), sizeof strip[k]);
    else
      for (std::int64_t j = 0; j < columns; ++j)
        strip[k][j] = j < width ? static_cast<W>(b(depth + k, column + j)) : W(0);
  for (std::int64_t i = 0; i < a.rows; i += rows) {
    const T* row[rows];  // below the last row, the last once more
    for (std::int64_t r = 0; r < rows; ++r) row[r] = &a(std::min(i + r, a.rows - 1), depth);
    Vector sum[rows][2] = {}, part[2];
    for (std::int64_t k = 0; k < height; ++k) {
      std::memcpy(part, strip[k], sizeof part);
      for (std::int64_t r = 0; r < rows; ++r) {
        const W factor = static_cast<W>(row[r][k * a.column_step]);
        for (int half = 0; half < 2; ++half) sum[r][half] += factor * part[half];
      }
    }
    W found[rows][columns];
    std::memcpy(found, sum, sizeof found);
    for (std::int64_t r = 0; r < std::min(rows, a.rows - i); ++r)
      for (std::int64_t j = 0; j < width; ++j) {
        T& to = y(i + r, column + j);
        to = static_cast<T>(depth == 0 ? found[r][j] : static_cast<W>(to) + found[r][j]);
      }
  }
}
template <class T, std::int64_t bytes>
MINITENSOR_INLINE void multiply_strips(const Matrix<T>& y, const Matrix<T>& a, const Matrix<T>& b) {
  for (std::int64_t column = 0; column < b.columns; column += strip_columns<T, bytes>)
    for (std::int64_t depth = 0; depth < b.rows; depth += strip_rows)
      multiply_strip<T, bytes>(y, a, b, column, depth);
}
// How long the vectors are of the processor that it is compiled for.
#if defined(__AVX512F__)
constexpr std::int64_t vector_bytes = 64;
#elif defined(__AVX__)
constexpr std::int64_t vector_bytes = 32;
#else
constexpr std::int64_t vector_bytes = 16;
#endif
template <class T>
MINITENSOR_LOOP void multiply_plain(const Matrix<T>& y, const Matrix<T>& a, const Matrix<T>& b) {
  multiply_strips<T, vector_bytes>(y, a, b);
}
template <class T>
MINITENSOR_LOOP MINITENSOR_WIDE void multiply_wide(const Matrix<T>& y, const Matrix<T>& a,
                                                   const Matrix<T>& b) {
  multiply_strips<T, 32>(y, a, b);
}

// BLAS, here and on a card, takes a matrix whose rows or whose columns are dense (then it is
// transposed); the other step is its leading dimension.
struct BlasMatrix {
  BlasMatrix(std::int64_t rows, std::int64_t columns, std::int64_t row_step,
             std::int64_t column_step) {
    const bool by_rows = column_step == 1 || columns == 1;
    const std::int64_t count = by_rows ? rows : columns, length = by_rows ? columns : rows;
    const std::int64_t step = count == 1 ? length : by_rows ? row_step : column_step;
    transposed = !by_rows;
    leading = static_cast<int>(step);
    fits = (by_rows || row_step == 1 || rows == 1) && step >= length &&
           std::max(step, count) <= std::numeric_limits<int>::max();
  }
  bool transposed, fits;
  int leading;
};

#ifdef MINITENSOR_BLAS
}  // namespace minitensor
#include <cblas.h>
namespace minitensor {

template <class T>
bool multiply_by_blas(const Matrix<T>& y, const Matrix<T>& a, const Matrix<T>& b) {
  const auto seen = [](const Matrix<T>& m) {
    return BlasMatrix(m.rows, m.columns, m.row_step, m.column_step);
  };
  const BlasMatrix to = seen(y), left = seen(a), right = seen(b);
  if (!to.fits || !left.fits || !right.fits || to.transposed) return false;
  const auto gemm = [&](auto function) {
    function(CblasRowMajor, left.transposed ? CblasTrans : CblasNoTrans,
             right.transposed ? CblasTrans : CblasNoTrans, static_cast<int>(a.rows),
             static_cast<int>(b.columns), static_cast<int>(a.columns), T(1), a.data, left.leading,
             b.data, right.leading, T(0), y.data, to.leading);
  };
  if constexpr (std::is_same_v<T, float>)
    gemm(cblas_sgemm);
  else
    gemm(cblas_dgemm);
  return true;
}
#endif

template <class T>
void multiply(const Matrix<T>& y, const Matrix<T>& a, const Matrix<T>& b) {
#ifdef MINITENSOR_BLAS
  if constexpr (Real<T>)
    if (multiply_by_blas(y, a, b)) return;
#endif
  wide_vectors ? multiply_wide(y, a, b) : multiply_plain(y, a, b);
}

// The axes before the last two: where each matrix of a stack begins.
inline View stack_of(View view) {
  for (Shape* list : {&view.shape, &view.strides})
    for (int i = 0; i < 2; ++i) list->erase(list->size() - 1);
  return view;
}

// y [.., n, m] = a [.., n, k] b [.., k, m]. The axes before the last two are those of y already.
inline void matmul(const View& y, const View& a, const View& b) {
  if (const Machine* other = machine(y.device))
    return other->matmul(y, a, b, MatmulAlgorithm::library);
  if (a.shape.back() == 0) return fill(y, 0);
  if (y.shape.numel() == 0) return;
  const View to = stack_of(y), left = stack_of(a), right = stack_of(b);
  const Walk walk({&to, &left, &right});
  with_type(y.dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (std::is_same_v<T, bool>)
      throw Error("matmul has no meaning for bool");
    else {  // nvcc 13 does not find the end of this branch without braces
      Odometer at(walk);
      do multiply<T>({y, at.data[0]}, {a, at.data[1]}, {b, at.data[2]});
      while (at.next());
    }
  });
}

// ---- By index -----------------------------------------------------------------------------------

// The first of the indices that is not in [0, size), if there is one.
inline bool first_out_of_range(const View& index, std::int64_t size, std::int64_t& found) {
  if (const Machine* other = machine(index.device))
    return other->first_out_of_range(index, size, found);
  if (index.shape.numel() == 0) return false;
  const Walk walk({&index});
  Odometer at(walk);
  do {
    found = *as<std::int64_t>(at.data[0]);
    if (found < 0 || found >= size) return true;
  } while (at.next());
  return false;
}

// The view in which every element stands where index 0 along the axis would be.
inline View at_index_zero(const View& view, int axis, const Shape& shape) {
  View zero = view;
  zero.shape = shape;
  if (!shape.empty()) zero.strides[axis] = 0;
  return zero;
}

// y[i, j, ..] = a[i, index[i, j, ..], ..] for axis 1, and likewise for the others. y has the shape
// of index; a may be larger. All indices are in range.
inline void gather(const View& y, const View& a, const View& index, int axis) {
  if (const Machine* other = machine(y.device)) return other->gather(y, a, index, axis);
  const std::int64_t step = a.shape.empty() ? 0 : a.strides[axis];
  const View zero = at_index_zero(a, axis, y.shape);
  const Walk walk = with_long_rows(Walk({&y, &zero, &index}));
  with_type(y.dtype, [&](auto t) {
    using T = decltype(t);
    run(walk, [step](const Row& row) {
      for (std::int64_t i = 0; i < row.n; ++i) {
        const std::int64_t index_here = *as<std::int64_t>(row.data[2] + i * row.steps[2]);
        *as<T>(row.data[0] + i * row.steps[0]) =
            as<T>(row.data[1] + i * row.steps[1])[index_here * step];
      }
    });
  });
}

// y[i, index[i, j, ..], ..] += a[i, j, ..], one after the other, because an index may come again.
inline void scatter_add(const View& y, const View& a, const View& index, int axis) {
  if (const Machine* other = machine(y.device)) return other->scatter_add(y, a, index, axis);
  const std::int64_t step = y.shape.empty() ? 0 : y.strides[axis];
  const View zero = at_index_zero(y, axis, a.shape);
  const Walk walk({&a, &zero, &index});
  with_type(y.dtype, [&](auto t) {
    using T = decltype(t);
    run_in_order(walk, [step](const Row& row) {
      for (std::int64_t i = 0; i < row.n; ++i) {
        const std::int64_t index_here = *as<std::int64_t>(row.data[2] + i * row.steps[2]);
        T& sum = as<T>(row.data[1] + i * row.steps[1])[index_here * step];
        sum = formula::Add::of(sum, *as<T>(row.data[0] + i * row.steps[0]));
      }
    });
  });
}

// ================================================================================================
// 8. Recording
// ================================================================================================
//
// An operation that has an input with requires_grad leaves a *node* behind: which operation it was,
// where its inputs came from, and the tensors that its backward rule will need. Nodes point to the
// nodes of their inputs. That is the whole computation graph, and it was built by running your
// code.

// A few things kept in place, with room for more: most operations have one or two inputs.
template <class T, int n>
class Few {
 public:
  Few() = default;
  ~Few() {
    if (items_ != first_) delete[] items_;
  }
  Few(const Few&) = delete;
  Few& operator=(const Few&) = delete;

  int size() const { return count_; }
  bool empty() const { return count_ == 0; }
  T& operator[](int i) { return items_[i]; }
  const T& operator[](int i) const { return items_[i]; }
  T& add() {  // one more, to be filled in
    if (count_ == room_) grow();
    return items_[count_++];
  }
  void clear() {
    while (count_ > 0) items_[--count_] = T();
  }

 private:
  void grow() {
    T* const more = new T[static_cast<std::size_t>(2 * room_)];
    for (int i = 0; i < count_; ++i) more[i] = std::move(items_[i]);
    if (items_ != first_) delete[] items_;
    items_ = more;
    room_ *= 2;
  }
  int count_ = 0, room_ = n;
  T first_[n];
  T* items_ = first_;
};

// The facts of an operation: what a reader, the viewer, the documentation and the tests need to
// know. The texts are written in the letters of chapter 0 and are checked against the rule by a
// test.
struct Facts {
  const char* name = "custom";                  // "mul"
  const char* symbol = "";                      // "×": what is drawn in its circle
  const char* formula = "";                     // "a * b"
  std::array<const char*, 3> derivatives = {};  // what each input receives: "dy * b", "dy * a"
  // Names of the plain numbers in a call: a single letter is Given::n, the other words are the
  // entries of Given::dims in their order, and the last of them stands for all that remain.
  const char* attributes = "";
  const char* node = "";    // as PyTorch prints it: "MulBackward0"
  const char* called = "";  // where the name says more than was written: "mul" for "mul_number"

  const char* plain_name() const { return *called ? called : name; }  // for messages and pictures
  // What the input of this slot receives. (The inputs of cat are all alike.)
  const char* derivative(int slot) const {
    const char* own = slot < 3 ? derivatives[static_cast<std::size_t>(slot)] : nullptr;
    return own ? own : derivatives[0];
  }
};

// The plain numbers written in a call: `x.pow(3)` has n = 3, `x.sum({0})` has the axes [0].
struct Given {
  double n = 0;
  Shape dims = {};
};
inline constexpr Given nothing_given;

// An operation saves the tensors that the derivatives it owes name, and no others: "dy * b" saves
// b. The letters: a b c inputs, y the output, i an index or mask that the operation computed.
inline constexpr std::string_view letters = "abcyi";
constexpr unsigned letters_in(const char* text) {
  auto in_word = [](char ch) { return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z'); };
  unsigned found = 0;
  for (const char* p = text; p && *p; ++p)
    for (std::size_t k = 0; k < letters.size(); ++k)
      if (*p == letters[k] && (p == text || !in_word(p[-1])) && !in_word(p[1])) found |= 1u << k;
  return found;
}

// Where an input came from: the node of the operation that made it, or the leaf itself.
struct Edge {
  Ref<Node> node;
  Ref<TensorData> leaf;
  bool wanted() const { return node || leaf; }
};
struct Input {
  Edge from;
  Id id = 0;
  DType dtype = float32;
  Device device;
  Shape shape;
};
struct Saved {
  char letter = 0;             // or v and o: a view and its base, for their geometry
  Tensor tensor;               // without history, so that no tensor and node can hold each other
  std::int64_t version = 0;    // when it was saved; a later one means that it was overwritten
  bool geometry_only = false;  // shape and strides are of interest, the values are not
};

// What a checkpoint() has let go of can be computed again (chapter 12).
struct Checkpoint {
  virtual ~Checkpoint() = default;
  virtual void refill(Node& node) = 0;
  static void destroy(Checkpoint* checkpoint) { delete checkpoint; }
  std::atomic<int> handles{0};
};

class Pass;      // chapter 9
struct Recipe {  // an operation for the engine: its facts, its rule, and what each derivative needs
  const Facts* facts;
  void (*backward)(Node& node, Pass& pass, Tensor dy);
  std::array<unsigned, 3> needs;
  unsigned needs_for(int slot) const {
    return needs[static_cast<std::size_t>(slot < 3 ? slot : 0)];  // cat: all are alike
  }
};
template <class Rule>
inline constexpr Recipe recipe_of = {
    &Rule::facts,
    [](Node& node, Pass& pass, Tensor dy) {
      Rule rule;
      rule.begin(node, pass, std::move(dy));
      rule.backward();
    },
    {letters_in(Rule::facts.derivatives[0]), letters_in(Rule::facts.derivatives[1]),
     letters_in(Rule::facts.derivatives[2])}};

class Node {
 public:
  Node(const Recipe& recipe, const Given& given, Loc loc);
  ~Node();
  static void destroy(Node* node);
  static void* operator new(std::size_t bytes) { return take_block(bytes); }
  static void operator delete(void* block) { give_block(block, sizeof(Node)); }

  Id id() const { return id_; }
  const char* name() const {  // "MulBackward0"
    return title ? title : *recipe.facts->node ? recipe.facts->node : recipe.facts->name;
  }
  const Facts& facts() const { return *recipe.facts; }
  Loc line() const { return loc; }
  At at() const { return {facts().plain_name(), loc, this}; }  // while its rule runs
  int input_count() const { return inputs.size(); }
  Id input_id(int slot) const { return inputs[slot].id; }

  std::atomic<int> handles{0};
  const Recipe& recipe;
  const Given given;
  const Loc loc;
  const Id scope = current.scope;
  const char* title = nullptr;  // the composed operation of which this node is the result
  Few<Input, 2> inputs;
  Few<Saved, 2> saved;
  bool released = false;       // a backward pass has used up what was saved
  Ref<Checkpoint> checkpoint;  // knows how to compute what is missing in `saved`
  std::size_t place_in_checkpoint = 0;
  DType dtype = float32;  // of the result
  Shape shape;
  Id result = 0;

  // Who wants to hear of this gradient besides the rule: hooks, and a tensor that retains it.
  Ref<Hooks> hooks;
  TensorData* retaining = nullptr;

  Id mark = 0;  // scratch of a backward pass, as in TensorData
  std::int32_t place = 0;
  Node* next_dead = nullptr;

 private:
  const Id id_ = next_id();
};

inline std::atomic<std::int64_t> node_count{0};
// How many nodes exist in the whole program: a graph that nobody can reach any more has none.
inline std::int64_t live_nodes() { return node_count.load(); }

inline Node::Node(const Recipe& r, const Given& g, Loc l) : recipe(r), given(g), loc(l) {
  node_count.fetch_add(1, std::memory_order_relaxed);
}
inline Node::~Node() { node_count.fetch_sub(1, std::memory_order_relaxed); }

// Letting go of a node lets go of its inputs' nodes, and so on: a chain of a million would need a
// million nested calls. So a node that dies while another is being deleted waits in a list.
inline void Node::destroy(Node* node) {
  static constinit thread_local Node* waiting = nullptr;
  static constinit thread_local bool deleting = false;
  node->next_dead = std::exchange(waiting, node);
  if (deleting) return;
  deleting = true;
  while (Node* next = waiting) {
    waiting = next->next_dead;
    delete next;
  }
  deleting = false;
}

// A second TensorData of the same tensor: same id, same elements, no history.
inline Tensor alias_of(const Tensor& x) {
  const TensorData& from = x.get();
  return Tensor(Ref<TensorData>::make(from, from.storage, from.id));
}

inline void save(Node& node, char letter, const Tensor& x, bool geometry_only = false) {
  Saved& kept = node.saved.add();
  kept.letter = letter;
  // A leaf has no node, so keeping it makes no circle.
  kept.tensor = x.get().requires_grad ? x : alias_of(x);
  kept.version = x.version();
  kept.geometry_only = geometry_only;
}

[[gnu::noinline]] inline Node* Tensor::node() const {
  const TensorData& r = get();
  if (r.base && r.rewrites != r.base->rewrites) r.base->renew_view(*this);
  return r.node.get();
}

// Gives a tensor its node. A gradient that is retained is from now on that of the new node.
inline void set_node(TensorData& r, Ref<Node> node) {
  if (r.retains_grad && r.node) r.node->retaining = nullptr;
  if (node) node->result = r.id, node->retaining = r.retains_grad ? &r : nullptr;
  r.node = std::move(node);
}

// Things in a row that somebody else holds, for the length of a call: a std::span, whose header
// would cost every program a tenth of a second to compile.
template <class T>
class Span {
 public:
  Span(const T* first, std::size_t size) : first_(first), size_(size) {}
  Span(std::initializer_list<T> list) : Span(list.begin(), list.size()) {}
  Span(const std::vector<T>& all) : Span(all.data(), all.size()) {}
  const T* data() const { return first_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* begin() const { return first_; }
  const T* end() const { return first_ + size_; }
  const T& operator[](std::size_t i) const { return first_[i]; }

 private:
  const T* first_;
  std::size_t size_;
};
using InputTensors = Span<const Tensor*>;

inline void attach_node(const Recipe& recipe, Tensor& y, InputTensors inputs, Loc line,
                        const Given& given, const Tensor* index) {
  Ref<Node> node = Ref<Node>::make(recipe, given, line);
  unsigned needed_letters = 0;  // a bit each, in the order of `letters`
  for (const Tensor* input : inputs) {
    const TensorData& x = input->get();
    Input& in = node->inputs.add();
    in.id = x.id, in.dtype = x.dtype, in.device = x.device, in.shape = x.shape;
    if (Node* made_by = input->node())
      in.from.node = Ref<Node>(made_by);
    else if (x.requires_grad)
      in.from.leaf = input->handle();
    if (in.from.wanted()) needed_letters |= recipe.needs_for(node->inputs.size() - 1);
  }
  for (int i = 0; i < 3 && i < static_cast<int>(inputs.size()); ++i)
    if (needed_letters >> i & 1)
      save(*node, letters[static_cast<std::size_t>(i)], *inputs[static_cast<std::size_t>(i)]);
  if (needed_letters >> 3 & 1) save(*node, 'y', y);
  if (needed_letters >> 4 & 1 && index) save(*node, 'i', *index);
  node->dtype = y.dtype();
  node->shape = y.shape();
  set_node(y.get(), std::move(node));
}

void tell_op(const Node* node, const Facts& facts, const Given& given, InputTensors inputs,
             const Tensor& y, const Tensor* index, Loc loc);

// Every operation ends here. `y` has been computed; if an input wants a gradient, y gets a node,
// and if somebody watches, they are told. `index` is a second output (of max along an axis, say).
inline Tensor record_as(const Recipe& recipe, Tensor y, InputTensors inputs, Loc loc,
                        const Given& given = nothing_given, const Tensor* index = nullptr) {
  const Loc line = line_of(loc);
  // All inputs are asked, because asking brings their nodes up to date: those must be older than
  // y's.
  bool wanted = false;
  for (const Tensor* input : inputs) wanted |= input->requires_grad();
  if (wanted && current.grad_enabled && is_floating(y.dtype()))
    attach_node(recipe, y, inputs, line, given, index);
  if (current.observer) tell_op(y.get().node.get(), *recipe.facts, given, inputs, y, index, line);
  return y;
}
template <class Rule>
Tensor record(Tensor y, std::initializer_list<const Tensor*> inputs, Loc loc,
              const Given& given = nothing_given, const Tensor* index = nullptr) {
  return record_as(recipe_of<Rule>, std::move(y), inputs, loc, given, index);
}

// ---- Turning the recorder off and on; scopes ----------------------------------------------------

inline bool is_grad_enabled() { return current.grad_enabled; }

class GradMode {  // on or off while it lives
 public:
  explicit GradMode(bool on) : before_(std::exchange(current.grad_enabled, on)) {}
  ~GradMode() { current.grad_enabled = before_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
class NoGrad : GradMode {  // { NoGrad guard;  w -= 0.1 * w.grad(); }
 public:
  [[nodiscard("name it: NoGrad guard;")]] NoGrad() : GradMode(false) {}
};
class EnableGrad : GradMode {
 public:
  [[nodiscard("name it: EnableGrad guard;")]] EnableGrad() : GradMode(true) {}
};

void tell_scope_opens(Id scope, const char* name, bool composed, Loc loc);
void tell_scope_closes(Id scope);

// A named box around what happens while it lives. A composed operation opens one as well.
class Scope {
 public:
  [[nodiscard("name it: Scope scope(\"encoder\");")]] explicit Scope(const std::string& name,
                                                                     Loc loc = Loc::here())
      : Scope(name.c_str(), false, loc) {}
  ~Scope() {
    current.scope = before_;
    if (id_ && current.observer) tell_scope_closes(id_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 protected:
  Scope(const char* name, bool composed, Loc loc) : before_(current.scope) {
    if (!current.observer) return;
    current.scope = id_ = next_id();
    tell_scope_opens(id_, name, composed, line_of(loc));
  }

 private:
  Id before_;
  Id id_ = 0;
};

// Names a result's node after the operation that the user called. (null: as its facts say)
inline Tensor titled(const char* title, Tensor y) {
  if (Node* node = y.get().node.get(); node && title) node->title = title;
  return y;
}

// An operation that is made of others: all of them carry its caller's line, and its name in errors.
class Composed : Scope {
 public:
  Composed(const char* name, Loc loc)
      : Scope(name, true, loc), before_(current.composed), pin_(loc) {
    if (!before_) current.composed = name;
  }
  ~Composed() { current.composed = before_; }

 private:
  const char* before_;
  Pin pin_;
};

// ================================================================================================
// 9. Going backwards
// ================================================================================================
//
// A pass visits the nodes from the result back to the leaves. Each node has received dy, the
// gradient of what it made; its rule turns that into a gradient for each of its inputs and *gives*
// it on. What several operations give to one tensor is added up. Because an input always has a
// smaller number than what was made from it, going by falling number visits every node after all
// that used it.

void tell_pass_begins(Observer*, std::int64_t number, const std::vector<Tensor>& roots,
                      const std::vector<Tensor>& seeds, const GradOptions& options,
                      const std::vector<Tensor>* asked, Loc loc);
void tell_pass_ends(Observer*, std::int64_t number);
void tell_arrived(Observer*, std::int64_t number, const Node& node, int slot, const Tensor& before,
                  const Tensor& given);
void tell_hooked(Observer*, std::int64_t number, Id tensor, const Tensor& before,
                 const Tensor& after);
void check_not_nan(const Node& node, int slot, const Tensor& gradient);  // chapter 13
void note_write(const Tensor& x, const char* by, Loc loc);

// One thread at a time: it waits until the door is free, and holds it while it lives.
class [[nodiscard]] OneAtATime {
 public:
  explicit OneAtATime(std::atomic_flag& door) : door_(door) {
    while (door_.test_and_set(std::memory_order_acquire)) door_.wait(true);
  }
  ~OneAtATime() {
    door_.clear(std::memory_order_release);
    door_.notify_one();
  }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;

 private:
  std::atomic_flag& door_;
};

// Everything that the roots depend on, by falling number: of what has been met and not yet visited,
// the youngest is next; of nodes, only those younger than `since`. Each search leaves its mark in
// the nodes and leaves that it has met, so only one thread may search at a time (`marking`). Those
// still to visit stand in a heap and not on the call stack, which a million nodes would overflow.
struct Found {
  struct Place {
    Id id;
    Node* node;
    TensorData* leaf;
    bool operator<(const Place& other) const { return id < other.id; }
  };
  Found(const std::vector<Tensor>& roots, Id mark, Id since = 0);
  std::vector<Place> nodes, leaves;
};
inline std::atomic_flag marking;

inline Found::Found(const std::vector<Tensor>& roots, Id mark, Id since) {
  std::vector<Place> met;
  auto meet = [&](Node* node, TensorData* leaf) {
    if (node && node->id() <= since) return;
    if (std::exchange(node ? node->mark : leaf->mark, mark) == mark) return;
    met.push_back({node ? node->id() : leaf->id, node, leaf});
    std::push_heap(met.begin(), met.end());
  };
  for (const Tensor& root : roots) {
    Node* node = root.node();
    meet(node, node ? nullptr : root.handle().get());
  }
  while (!met.empty()) {
    std::pop_heap(met.begin(), met.end());
    const Place next = met.back();
    met.pop_back();
    (next.node ? nodes : leaves).push_back(next);
    if (!next.node) continue;
    for (int slot = 0; slot < next.node->inputs.size(); ++slot)
      if (const Edge& from = next.node->inputs[slot].from; from.wanted())
        meet(from.node.get(), from.leaf.get());
  }
}

class Pass {
 public:
  Pass(const std::vector<Tensor>& roots, const std::vector<Tensor>& seeds,
       const std::vector<Tensor>* asked, const GradOptions& options, Loc loc);
  std::vector<Tensor> run();  // the gradients asked for, if any were

  // For rules: does anybody want the gradient of this input, and here it is.
  bool wants(int slot) const;
  void give(Node& node, int slot, Tensor gradient);

 private:
  struct Station {  // a place that the pass comes through: a node or a leaf
    Station(Node* n, TensorData* l) : node(n), leaf(l) {}
    Node* node;
    TensorData* leaf;
    int first_edge = 0;    // of this node's inputs in edges_
    bool needed = true;    // false: no way from here to a gradient that grad() was asked for
    bool own_sum = false;  // `sum` was made here, so it may be added to in place
    Tensor sum;
  };
  void collect();
  void number_edges();
  void find_needed();
  bool owes(const Station& station) const;
  void check_not_used_up(const Node& node) const;
  int edge(const Station& station, int slot) const {
    return edges_[static_cast<std::size_t>(station.first_edge + slot)];
  }
  Station& station_at(int place) { return stations_[static_cast<std::size_t>(place)]; }
  const Station& station_at(int place) const { return stations_[static_cast<std::size_t>(place)]; }
  int place_of(const Tensor& x) const;
  void add_seeds();
  void visit(Station& station);
  void run_rule(Node& node, Tensor dy);
  void add(Station& station, Tensor gradient);
  Tensor call_hooks(const Hooks& hooks, Id tensor, Tensor gradient) const;
  void land(TensorData& leaf, Tensor gradient) const;

  const std::vector<Tensor>& roots_;
  const std::vector<Tensor>& seeds_;
  const std::vector<Tensor>* asked_;
  const GradOptions options_;
  const Loc loc_;
  std::int64_t number_ = 0;
  const Id mark_ = next_id();
  Observer* watcher_ = nullptr;
  std::vector<Station> stations_;      // nodes by falling number, then leaves
  std::vector<std::int32_t> edges_;    // for each input of each node: its place in stations_, or -1
  std::vector<Ref<Node>> root_nodes_;  // they keep all the others, whatever a hook does to a root
  std::vector<int> root_places_, asked_places_;
  std::vector<Tensor> results_;
  int now_ = 0;  // the place of the station whose rule runs
};

// What a rule sees of the pass. A rule is a struct with its facts and a `backward()` that says, for
// each input whose gradient is wanted, what it is: `if (wants(0)) give(0, dy * b());`
class Rule {
 public:
  void begin(Node& node, Pass& pass, Tensor gradient) {
    node_ = &node;
    pass_ = &pass;
    dy = std::move(gradient);
  }

 protected:
  Tensor dy;
  bool wants(int slot) const { return pass_->wants(slot); }
  void give(int slot, Tensor gradient) const { pass_->give(*node_, slot, std::move(gradient)); }

  // The saved tensors: the inputs, the output, and an index.
  Tensor a() const { return saved('a'); }
  Tensor b() const { return saved('b'); }
  Tensor c() const { return saved('c'); }
  Tensor y() const { return saved('y'); }
  Tensor index() const { return saved('i'); }
  // The plain numbers of the call, and the shapes of its inputs.
  double n() const { return node_->given.n; }
  const Shape& dims() const { return node_->given.dims; }
  const Shape& shape(int slot) const { return node_->inputs[slot].shape; }
  Device device(int slot) const { return node_->inputs[slot].device; }
  int input_count() const { return node_->inputs.size(); }

  Tensor saved(char letter) const;

 private:
  Node* node_ = nullptr;
  Pass* pass_ = nullptr;
};

// The tensor that was saved, as it was then. In a pass that is itself recorded it gets its history
// back, so that the gradient can be differentiated once more.
inline Tensor Rule::saved(char letter) const {
  if (node_->checkpoint) node_->checkpoint->refill(*node_);
  for (int k = 0; k < node_->saved.size(); ++k) {
    const Saved& kept = node_->saved[k];
    if (kept.letter != letter) continue;
    const Storage& storage = *kept.tensor.get().storage;
    if (kept.version != kept.tensor.version() && !kept.geometry_only)
      fail(node_->at(),
           {"the value that its derivative needs (", letter,
            ") was overwritten: it was saved at version ", kept.version, " and is now at version ",
            kept.tensor.version(), " (by ", storage.written_by, " at ", storage.written_at,
            "); it was used"},
           {"write y = x + 1 instead of x += 1, or clone() before the write"});
    if (!current.grad_enabled || kept.geometry_only || kept.tensor.get().requires_grad)
      return kept.tensor;
    const std::size_t slot = letters.find(letter);
    Ref<Node> made_by = letter == 'y' ? Ref<Node>(node_)
                        : slot < 3    ? node_->inputs[static_cast<int>(slot)].from.node
                                      : Ref<Node>();
    Tensor x = alias_of(kept.tensor);
    x.get().node = std::move(made_by);
    return x;
  }
  fail(node_->at(), {"its rule asks for ", letter, ", which its facts do not name"},
       {"an operation keeps what its .derivatives name: write the letter there"});
}

// ---- Undoing a broadcast ------------------------------------------------------------------------
//
// Broadcasting copies an element to many places, so its gradient is the sum over those places: the
// axes that were added or stretched are summed away.
inline Shape folded_axes(const Shape& from, const Shape& to) {
  Shape axes;
  const int added = from.size() - to.size();
  for (int i = 0; i < from.size(); ++i)
    if (i < added || (to[i - added] == 1 && from[i] != 1)) axes.push_back(i);
  return axes;
}
inline Tensor fold_to(const Tensor& gradient, const Shape& shape, const At& at) {
  if (gradient.shape() == shape) return gradient;
  if (broadcast_shapes(gradient.shape(), shape, at) != gradient.shape())
    fail(at, {"its rule gives a gradient ", gradient.shape(), " to an input ", shape});
  const Shape axes = folded_axes(gradient.shape(), shape);
  const Tensor folded = gradient.sum(axes);
  return folded.shape() == shape ? folded : folded.reshape(shape);
}

// ---- The pass -----------------------------------------------------------------------------------

inline Pass::Pass(const std::vector<Tensor>& roots, const std::vector<Tensor>& seeds,
                  const std::vector<Tensor>* asked, const GradOptions& options, Loc loc)
    : roots_(roots), seeds_(seeds), asked_(asked), options_(options), loc_(loc) {
  static std::atomic<std::int64_t> passes{0};
  number_ = ++passes;
  const OneAtATime alone(marking);  // afterwards, all that a pass needs stands in its own lists
  collect();
  number_edges();
  for (const Tensor& root : roots_) root_places_.push_back(place_of(root));
  if (!asked_) return;
  for (const Tensor& x : *asked_) asked_places_.push_back(place_of(x));
  find_needed();
}

inline void Pass::collect() {
  Found found(roots_, mark_);
  for (const Tensor& root : roots_)
    if (Node* node = root.node()) root_nodes_.push_back(Ref<Node>(node));
  stations_.reserve(found.nodes.size() + found.leaves.size());
  for (const Found::Place& it : found.nodes) stations_.push_back(Station(it.node, nullptr));
  for (const Found::Place& it : found.leaves) stations_.push_back(Station(nullptr, it.leaf));
}

inline void Pass::number_edges() {
  for (std::size_t i = 0; i < stations_.size(); ++i)
    (stations_[i].node ? stations_[i].node->place : stations_[i].leaf->place) = static_cast<int>(i);
  for (Station& station : stations_) {
    station.first_edge = static_cast<std::int32_t>(edges_.size());
    for (int slot = 0; station.node && slot < station.node->inputs.size(); ++slot) {
      const Edge& from = station.node->inputs[slot].from;
      edges_.push_back(from.node ? from.node->place : from.leaf ? from.leaf->place : -1);
    }
  }
}

// For grad(x): only what lies between the roots and x has to be computed.
inline void Pass::find_needed() {
  for (Station& station : stations_) station.needed = false;
  for (int place : asked_places_)
    if (place >= 0) station_at(place).needed = true;
  for (std::size_t i = stations_.size(); i-- > 0;)
    for (int slot = 0; stations_[i].node && slot < stations_[i].node->inputs.size(); ++slot) {
      const int place = edge(stations_[i], slot);
      if (place >= 0 && station_at(place).needed) stations_[i].needed = true;
    }
}

inline int Pass::place_of(const Tensor& x) const {
  if (Node* node = x.node()) return node->mark == mark_ ? node->place : -1;
  return x.get().mark == mark_ ? x.get().place : -1;
}

inline std::vector<Tensor> Pass::run() {
  watcher_ = current.observer;
  results_.resize(asked_ ? asked_->size() : 0);
  if (watcher_)
    tell_pass_begins(watcher_, number_, roots_, seeds_, options_, asked_, line_of(loc_));
  struct End {  // also if a rule or a hook throws
    const Pass& pass;
    ~End() {
      if (pass.watcher_) tell_pass_ends(pass.watcher_, pass.number_);
    }
  } end{*this};
  for (const Station& station : stations_)  // before any gradient has changed
    if (station.needed && station.node && owes(station)) check_not_used_up(*station.node);
  const GradMode mode(options_.create_graph);
  add_seeds();
  for (now_ = 0; now_ < static_cast<int>(stations_.size()); ++now_) {
    Station& station = station_at(now_);
    if (station.needed && station.sum.defined()) visit(station);
  }
  return std::move(results_);
}

inline void Pass::add_seeds() {
  const Quiet quiet;
  const Pin pin(loc_);
  for (std::size_t i = 0; i < roots_.size(); ++i) add(station_at(root_places_[i]), seeds_[i]);
}

// The gradient of this station is complete: everything that used it came before.
inline void Pass::visit(Station& station) {
  Tensor gradient = std::move(station.sum);
  Node* node = station.node;
  const Ref<Hooks> hooks = node                   ? node->hooks
                           : station.leaf->extras ? station.leaf->extras->hooks
                                                  : Ref<Hooks>();
  if (hooks)
    gradient = call_hooks(*hooks, node ? node->result : station.leaf->id, std::move(gradient));
  for (std::size_t k = 0; k < asked_places_.size(); ++k)
    if (asked_places_[k] == now_) results_[k] = gradient;
  if (!node) {
    if (!asked_ && station.leaf->requires_grad) land(*station.leaf, std::move(gradient));
    return;
  }
  if (node->retaining) land(*node->retaining, gradient);
  if (owes(station)) run_rule(*node, std::move(gradient));
}

// Does any input of this node want a gradient?
inline bool Pass::owes(const Station& station) const {
  for (int slot = 0; slot < station.node->inputs.size(); ++slot)
    if (const int place = edge(station, slot); place >= 0 && station_at(place).needed) return true;
  return false;
}

inline void Pass::check_not_used_up(const Node& node) const {
  if (node.released)
    fail({"backward", loc_, &node},
         {"an earlier pass, perhaps one that failed, has used up this graph (what ",
          node.facts().plain_name(), " of ", node.loc, " had saved is gone)"},
         {"write backward({.retain_graph = true}) the first time"});
}

inline void Pass::run_rule(Node& node, Tensor dy) {
  check_not_used_up(node);  // again: a hook may have started a pass of its own
  const Pin pin(node.loc);
  if (options_.create_graph) {
    const Scope scope(std::string("gradient of ") + node.facts().plain_name(), node.loc);
    node.recipe.backward(node, *this, std::move(dy));
    return;
  }
  try {
    const Quiet quiet;
    node.recipe.backward(node, *this, std::move(dy));
  } catch (const Error& error) {  // the rule was muted; this is not
    if (watcher_) tell_failed(watcher_, node.at(), node.at().op, error.what());
    throw;
  }
  if (options_.retain_graph || node.saved.empty()) return;
  node.saved.clear();
  node.checkpoint = {};
  node.released = true;
}

[[gnu::noinline]] inline bool Pass::wants(int slot) const {
  const Node& node = *station_at(now_).node;
  if (slot < 0 || slot >= node.inputs.size())
    fail(node.at(),
         {"its rule asks for input ", slot, ", and it was called with ", node.inputs.size()},
         {"inputs are numbered from 0"});
  const int place = edge(station_at(now_), slot);
  return place >= 0 && station_at(place).needed;
}

// The one place where a gradient crosses an edge: it takes the type and the shape of the input.
inline void Pass::give(Node& node, int slot, Tensor gradient) {
  if (!wants(slot)) return;
  const Input& input = node.inputs[slot];
  if (!gradient.defined())
    fail(node.at(), {"its rule gives an undefined gradient to input ", slot});
  const Tensor before = watcher_ ? gradient : Tensor();
  if (gradient.dtype() != input.dtype) gradient = gradient.to(input.dtype);
  if (gradient.get().shape != input.shape) gradient = fold_to(gradient, input.shape, node.at());
  if (current.sabotage && current.sabotage->slot == slot &&
      std::strcmp(current.sabotage->op, node.facts().name) == 0)
    gradient = gradient * 1.01;
  if (current.anomaly) check_not_nan(node, slot, gradient);
  if (watcher_) tell_arrived(watcher_, number_, node, slot, before, gradient);
  add(station_at(edge(station_at(now_), slot)), std::move(gradient));
}

// Contributions are added up. A sum that this pass made may grow in place; the first contribution
// may not, since others can hold it too.
inline void Pass::add(Station& station, Tensor gradient) {
  if (!station.sum.defined()) {
    station.sum = std::move(gradient);
  } else if (station.own_sum && !options_.create_graph) {
    zip<formula::Add>(station.sum.elements(), station.sum.elements(), gradient.elements());
  } else {
    station.sum = station.sum + gradient;
    station.own_sum = true;
  }
}

// Threads may share a tensor with hooks, and a hook may add and remove some: a pass calls those
// that there are when its gradient comes.
inline std::atomic_flag hooking;
inline std::vector<Hooks::One> copy_of(const Hooks& hooks) {
  const OneAtATime alone(hooking);
  return hooks.list;
}
inline void HookHandle::remove() const {
  const OneAtATime alone(hooking);
  std::erase_if(hooks_->list, [&](const Hooks::One& hook) { return hook.id == id_; });
}
inline Tensor Pass::call_hooks(const Hooks& hooks, Id tensor, Tensor gradient) const {
  for (const auto& [id, hook] : copy_of(hooks)) {
    const Tensor before = gradient;
    const std::int64_t version = before.version();
    if (Tensor changed = hook(gradient); changed.defined()) gradient = std::move(changed);
    if (before.version() != version)
      fail({"hook", loc_}, {"it has written into its gradient, which others may hold as well"},
           {"return a new one, as in return g * 2"});
    if (gradient.shape() != before.shape() || gradient.dtype() != before.dtype())
      fail({"hook", loc_}, {"it has turned a gradient ", before.dtype(), " ", before.shape(),
                            " into ", gradient.dtype(), " ", gradient.shape()});
    if (watcher_) tell_hooked(watcher_, number_, tensor, before, gradient);
  }
  return gradient;
}

// Once a pass, a leaf's gradient changes: it is what it was, plus what has come together here.
inline void Pass::land(TensorData& leaf, Tensor gradient) const {
  if (gradient.dtype() != leaf.dtype || gradient.device() != leaf.device)
    fail({"backward", loc_},
         {"a leaf was converted after it was used: its gradient is ", gradient.dtype(), " on ",
          gradient.device(), ", and it is ", leaf.dtype, " on ", leaf.device},
         {"call to() before the forward pass"});
  static std::atomic_flag landing;  // threads with graphs of their own may share a leaf
  Tensor before;
  {
    const OneAtATime alone(landing);
    const Quiet quiet;
    const Pin pin(loc_);
    const Tensor old(leaf.grad);
    before = watcher_ && old.defined() ? old.clone() : old;
    if (!old.defined()) {
      const bool ours_alone = gradient.handle().only_one() && gradient.get().storage.only_one();
      leaf.grad = (ours_alone && gradient.is_contiguous() ? gradient : gradient.clone()).handle();
    } else if (options_.create_graph) {
      leaf.grad = (old + gradient).handle();
    } else {
      zip<formula::Add>(old.elements(), old.elements(), gradient.elements());
      note_write(old, "backward", loc_);
    }
  }
  if (watcher_) tell_landed(watcher_, number_, Tensor(Ref<TensorData>(&leaf)), before);
}

// ---- Starting a pass ----------------------------------------------------------------------------

inline Tensor checked_seed(const Tensor& y, const Tensor& gradient, const At& at) {
  if (!y.requires_grad())
    fail(at, {"this tensor does not require grad: nothing that leads to it was recorded"},
         {"make a leaf with {.requires_grad = true} and compute outside of NoGrad; comparisons, ",
          "argmax, integers and detach() cut the way back, and so does grad() without ",
          "{.create_graph = true}"});
  if (!gradient.defined()) {
    if (y.numel() != 1)
      fail(at, {"only a single number has an implied gradient of 1, and the shape is ", y.shape()},
           {std::string_view(at.op) == "grad"
                ? "reduce with sum() or mean(), or add {.grad_outputs = {ones_like(y)}}"
                : "reduce with sum() or mean(), or pass the gradient: y.backward(ones_like(y))"});
    Tensor one = fresh(y.shape(), y.dtype(), y.device());
    fill(one.elements(), 1);
    return one;
  }
  check_together(at, {&y, &gradient});
  if (gradient.shape() != y.shape())
    fail(at, {"the gradient has shape ", gradient.shape(), ", and the tensor ", y.shape()});
  return gradient.dtype() == y.dtype() ? gradient : gradient.to(y.dtype(), at.loc);
}

inline void Tensor::backward(const Tensor& gradient, BackwardOptions options, Loc loc) const {
  check_together({"backward", loc}, {this});
  const std::vector<Tensor> roots{*this}, seeds{checked_seed(*this, gradient, {"backward", loc})};
  GradOptions how;
  how.retain_graph = options.retain_graph || options.create_graph;
  how.create_graph = options.create_graph;
  if (options.create_graph)
    warn({"backward", loc}, {"with create_graph a leaf and its gradient hold each other"},
         {"take grad(y, x, {.create_graph = true}), or call zero_grad() at the end"});
  Pass(roots, seeds, nullptr, how, loc).run();
}
inline void Tensor::backward(BackwardOptions options, Loc loc) const {
  backward(Tensor(), options, loc);
}

// The gradients of `outputs` with respect to `inputs`. No leaf's grad() is touched.
inline std::vector<Tensor> grad(const std::vector<Tensor>& outputs,
                                const std::vector<Tensor>& inputs, GradOptions options = {},
                                Loc loc = Loc::here()) {
  const At at{"grad", loc};
  if (inputs.empty()) fail(at, {"there is no input to take the gradient of"});
  if (!options.grad_outputs.empty() && options.grad_outputs.size() != outputs.size())
    fail(at, {"there are ", options.grad_outputs.size(), " grad_outputs for ", outputs.size(),
              " outputs"});
  std::vector<Tensor> seeds;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_together(at, {&outputs[i]});
    seeds.push_back(checked_seed(
        outputs[i], i < options.grad_outputs.size() ? options.grad_outputs[i] : Tensor(), at));
  }
  for (const Tensor& x : inputs) {
    check_together(at, {&x});
    if (!x.requires_grad())
      fail(at, {"input ", &x - inputs.data(), " does not require grad"},
           {"make it with {.requires_grad = true}"});
  }
  options.retain_graph = options.retain_graph || options.create_graph;
  std::vector<Tensor> gradients = Pass(outputs, seeds, &inputs, options, loc).run();
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (!gradients[i].defined() && !options.allow_unused)
      fail(at, {"input ", i, " was not used to compute the output"},
           {"with {.allow_unused = true} its gradient is undefined instead"});
  return gradients;
}
inline std::vector<Tensor> grad(const Tensor& output, const std::vector<Tensor>& inputs,
                                GradOptions options = {}, Loc loc = Loc::here()) {
  return grad(std::vector<Tensor>{output}, inputs, std::move(options), loc);
}
inline std::vector<Tensor> grad(const Tensor& output, const Tensor& input, GradOptions options = {},
                                Loc loc = Loc::here()) {
  return grad(std::vector<Tensor>{output}, std::vector<Tensor>{input}, std::move(options), loc);
}

template <class F>
HookHandle Tensor::register_hook(F hook, Loc loc) const {
  if (!requires_grad())
    fail({"register_hook", loc}, {"this tensor does not require grad, so no gradient will come"});
  Hook wrapped = [hook = std::move(hook)](const Tensor& gradient) mutable {
    if constexpr (std::is_void_v<decltype(hook(gradient))>)
      return hook(gradient), Tensor();
    else
      return Tensor(hook(gradient));
  };
  Node* const from = node();
  const OneAtATime alone(hooking);
  if (!from && !get().extras) get().extras = Ref<TensorData::Extras>::make();
  Ref<Hooks>& hooks = from ? from->hooks : get().extras->hooks;
  if (!hooks) hooks = Ref<Hooks>::make();
  hooks->list.push_back({next_id(), std::move(wrapped)});
  return HookHandle(hooks, hooks->list.back().id);
}
inline const Tensor& Tensor::retain_grad(Loc loc) const {
  if (!requires_grad())
    fail({"retain_grad", loc}, {"this tensor does not require grad, so no gradient will come"});
  if (Node* made_by = node()) {
    made_by->retaining = &get();
    get().retains_grad = true;
  }
  return *this;
}

inline TensorData::~TensorData() {
  if (retains_grad && node && node->retaining == this) node->retaining = nullptr;
}
inline void TensorData::destroy(TensorData* record) { delete record; }

// ================================================================================================
// 10. Operations
// ================================================================================================
//
// A box for each operation that has a derivative of its own: its facts and its rule. Behind the
// boxes of a section stand the functions that you call, and those that are made of a few others and
// belong to the same subject. The rule is the same mathematics as the text in the facts, written
// with tensors, so that a recorded backward pass gives second derivatives, and a graphics card
// needs no rules of its own.

// ---- What the boxes share -----------------------------------------------------------------------

// The type in which two tensors meet: chapter 2's rule, in which a 0-d tensor counts as a number.
inline DType promote(const Tensor& a, const Tensor& b) {
  const bool a_has_axes = a.dim() > 0, b_has_axes = b.dim() > 0;
  if (a_has_axes == b_has_axes) return common_dtype(a.dtype(), b.dtype());
  const DType strong = a_has_axes ? a.dtype() : b.dtype();
  const DType weak = a_has_axes ? b.dtype() : a.dtype();
  return kind_of(weak) > kind_of(strong) ? weak : strong;
}
inline DType promote(const Tensor& a, Scalar n) {
  return kind_of(n.dtype()) > kind_of(a.dtype()) ? n.dtype() : a.dtype();
}
inline DType as_float(DType t) { return is_floating(t) ? t : float32; }

inline void check_device(Device device, const At& at) {
  if (device.kind == Device::cuda && !cuda_machine)
    fail(at, {"there is no device ", device, ": this program was built without kernels.cu"},
         {"stay on \"cpu\", or build with cmake -D MINITENSOR_CUDA=ON"});
  const int count = device.kind == Device::cuda ? device_count() : 0;
  if (device.kind == Device::cpu || device.index < count) return;
  if (count == 0)
    fail(at, {"there is no ", device, ": no NVIDIA GPU, or no driver for it, was found here"},
         {"stay on \"cpu\"; cuda_is_available() asks beforehand"});
  fail(at, {"there is no ", device, ": this machine has ", count,
            count == 1 ? " GPU, cuda:0" : " GPUs, from cuda:0 on"});
}

// The same elements in another type; itself if it has that type already. Not recorded.
inline Tensor converted(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : copy_of(x, dtype, x.device());
}
// A number as a view: one element, met again and again.
class Constant {
 public:
  Constant(Scalar number, DType dtype, const Shape& shape) : view(as_view(bytes_, dtype, shape)) {
    write_number(bytes_, dtype, 0, number);
  }
  Constant(const Constant&) = delete;

 private:
  alignas(8) std::byte bytes_[8];

 public:
  const View view;
};

// What an elementwise operation is, apart from its inputs. The functions that follow are the same
// for all of them, so they are compiled once and not once an operation.
struct Elementary {
  const Recipe& recipe;
  void (*map)(const View& y, const View& a);
  void (*zip)(const View& y, const View& a, const View& b);
  bool in_integers, in_bools, makes_bools, number_first;

  At at(Loc loc) const { return {recipe.facts->plain_name(), loc}; }
  // The dtype in which it is computed, and that of its result.
  DType in(DType common, Loc loc) const {
    if (common == boolean && !in_bools)
      fail(at(loc), {"it takes numbers, not bools"},
           {"convert with .to(int64); for logic write & | ^ ~"});
    return in_integers ? common : as_float(common);
  }
  DType out(DType in) const { return makes_bools ? boolean : in; }
};
template <class R>
inline constexpr Elementary one_input = {
    recipe_of<R>, map<typename R::Formula>, nullptr, R::in_integers,
    R::in_bools,  R::makes_bools,           false};
template <class R>
inline constexpr Elementary two_inputs = {recipe_of<R>,   nullptr,     zip<typename R::Formula>,
                                          R::in_integers, R::in_bools, R::makes_bools,
                                          R::number_first};

// y = f(a)
inline Tensor apply(const Elementary& op, const Tensor& a, Loc loc,
                    const Given& given = nothing_given) {
  check_together(op.at(loc), {&a});
  const DType in = op.in(a.dtype(), loc);
  Tensor y = fresh(a.get().shape, op.out(in), a.device(), op.at(loc));
  op.map(y.elements(), a.dtype() == in ? a.elements() : converted(a, in).elements());
  return record_as(op.recipe, std::move(y), {&a}, loc, given);
}
// y = f(a, b), broadcast
inline Tensor apply(const Elementary& op, const Tensor& a, const Tensor& b, Loc loc) {
  check_together(op.at(loc), {&a, &b});
  const View &left = a.elements(), &right = b.elements();
  const DType in = op.in(promote(a, b), loc), out = op.out(in);
  Tensor y;
  if (left.shape == right.shape && left.dtype == in && right.dtype == in) {
    y = fresh(left.shape, out, left.device, op.at(loc));
    op.zip(y.elements(), left, right);
  } else {
    const Shape shape = broadcast_shapes(left.shape, right.shape, op.at(loc));
    y = fresh(shape, out, left.device, op.at(loc));
    op.zip(y.elements(), broadcast_to(converted(a, in).elements(), shape),
           broadcast_to(converted(b, in).elements(), shape));
  }
  return record_as(op.recipe, std::move(y), {&a, &b}, loc);
}
// y = f(a, n) with a plain number, or f(n, a)
inline Tensor apply(const Elementary& op, const Tensor& a, Scalar n, Loc loc) {
  check_together(op.at(loc), {&a});
  const DType common = promote(a, n), in = op.in(common, loc);
  Tensor y = fresh(a.get().shape, op.out(in), a.device(), op.at(loc));
  const Tensor x = converted(a, in);
  const Constant number(n, in, a.get().shape);
  op.zip(y.elements(), op.number_first ? number.view : x.elements(),
         op.number_first ? x.elements() : number.view);
  return record_as(op.recipe, std::move(y), {&a}, loc, {n.real(), {}});
}
template <class R>
Tensor unary(const Tensor& a, Loc loc) {
  return apply(one_input<R>, a, loc);
}
template <class R>
Tensor binary(const Tensor& a, const Tensor& b, Loc loc) {
  return apply(two_inputs<R>, a, b, loc);
}
template <class R>
Tensor with_number(const Tensor& a, Scalar n, Loc loc) {
  return apply(two_inputs<R>, a, n, loc);
}

// An operator's operands: tensors, or a tensor and a number.
template <class TT, class TN, class NT>
Tensor dispatch(const Operand& a, const Operand& b) {
  if (a.tensor && b.tensor) return binary<TT>(*a.tensor, *b.tensor, b.loc);
  if (a.tensor) return with_number<TN>(*a.tensor, b.number, b.loc);
  return with_number<NT>(*b.tensor, a.number, b.loc);
}

Tensor where(const Tensor& condition, const Operand& a, const Operand& b);
Tensor scatter_new(const Tensor& a, const Tensor& index, const Shape& shape, int axis,
                   Loc loc = Loc::here());

namespace rule {
struct Elementwise : Rule {                    // unless a box says otherwise
  static constexpr bool in_integers = true;    // integers stay integers
  static constexpr bool in_bools = true;       // bools are taken as they are
  static constexpr bool makes_bools = false;   // comparisons do
  static constexpr bool number_first = false;  // f(n, a) rather than f(a, n)
};
}  // namespace rule

// ---- Addition -----------------------------------------------------------------------------------

namespace rule {
struct Add : Elementwise {
  using Formula = formula::Add;
  static constexpr Facts facts = {.name = "add",
                                  .symbol = "+",
                                  .formula = "a + b",
                                  .derivatives = {"dy", "dy"},
                                  .node = "AddBackward0"};
  void backward() {
    give(0, dy);
    give(1, dy);
  }
};
struct AddNumber : Elementwise {
  using Formula = formula::Add;
  static constexpr Facts facts = {.name = "add_number",
                                  .symbol = "+n",
                                  .formula = "a + n",
                                  .derivatives = {"dy"},
                                  .attributes = "n",
                                  .node = "AddBackward0",
                                  .called = "add"};
  void backward() { give(0, dy); }
};
}  // namespace rule

inline Tensor operator+(const Operand& a, const Operand& b) {
  return dispatch<rule::Add, rule::AddNumber, rule::AddNumber>(a, b);
}

inline Tensor Tensor::add(const Operand& other) const { return *this + other; }
inline Tensor add(const Tensor& a, const Operand& b) { return a + b; }

// ---- Subtraction --------------------------------------------------------------------------------

namespace rule {
struct Sub : Elementwise {
  using Formula = formula::Sub;
  static constexpr Facts facts = {.name = "sub",
                                  .symbol = "−",
                                  .formula = "a - b",
                                  .derivatives = {"dy", "-dy"},
                                  .node = "SubBackward0"};
  void backward() {
    give(0, dy);
    if (wants(1)) give(1, -dy);
  }
};
struct SubNumber : Elementwise {
  using Formula = formula::Sub;
  static constexpr Facts facts = {.name = "sub_number",
                                  .symbol = "−n",
                                  .formula = "a - n",
                                  .derivatives = {"dy"},
                                  .attributes = "n",
                                  .node = "SubBackward0",
                                  .called = "sub"};
  void backward() { give(0, dy); }
};
struct NumberSub : Elementwise {
  using Formula = formula::Sub;
  static constexpr bool number_first = true;
  static constexpr Facts facts = {.name = "number_sub",
                                  .symbol = "n−",
                                  .formula = "n - a",
                                  .derivatives = {"-dy"},
                                  .attributes = "n",
                                  .node = "RsubBackward1",
                                  .called = "sub"};
  void backward() { give(0, -dy); }
};
}  // namespace rule

inline bool is_bool(const Operand& x) {
  if (!x.tensor) return x.number.dtype() == boolean;
  return x.tensor->defined() && x.tensor->dtype() == boolean;
}

inline void check_subtraction(const char* op, const Operand& a, const Operand& b) {
  if (is_bool(a) || is_bool(b))
    fail({op, b.loc}, {"bools are not subtracted"}, {"write a ^ b, or convert with .to(int64)"});
}

inline Tensor operator-(const Operand& a, const Operand& b) {
  check_subtraction("sub", a, b);
  return dispatch<rule::Sub, rule::SubNumber, rule::NumberSub>(a, b);
}

inline Tensor Tensor::sub(const Operand& other) const { return *this - other; }
inline Tensor sub(const Tensor& a, const Operand& b) { return a - b; }

// ---- Multiplication -----------------------------------------------------------------------------
//
// The product rule: each factor's gradient is dy times the other factor.

namespace rule {
struct Mul : Elementwise {
  using Formula = formula::Mul;
  static constexpr Facts facts = {.name = "mul",
                                  .symbol = "×",
                                  .formula = "a * b",
                                  .derivatives = {"dy * b", "dy * a"},
                                  .node = "MulBackward0"};
  void backward() {
    if (wants(0)) give(0, dy * b());
    if (wants(1)) give(1, dy * a());
  }
};
struct MulNumber : Elementwise {
  using Formula = formula::Mul;
  static constexpr Facts facts = {.name = "mul_number",
                                  .symbol = "×n",
                                  .formula = "a * n",
                                  .derivatives = {"dy * n"},
                                  .attributes = "n",
                                  .node = "MulBackward0",
                                  .called = "mul"};
  void backward() { give(0, dy * n()); }
};
}  // namespace rule

inline Tensor operator*(const Operand& a, const Operand& b) {
  return dispatch<rule::Mul, rule::MulNumber, rule::MulNumber>(a, b);
}

inline Tensor Tensor::mul(const Operand& other) const { return *this * other; }
inline Tensor mul(const Tensor& a, const Operand& b) { return a * b; }

// ---- Division -----------------------------------------------------------------------------------

namespace rule {
struct Div : Elementwise {
  using Formula = formula::Div;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "div",
                                  .symbol = "÷",
                                  .formula = "a / b",
                                  .derivatives = {"dy / b", "-dy * (a / b) / b"},
                                  .node = "DivBackward0"};
  void backward() {
    if (wants(0)) give(0, dy / b());
    if (wants(1)) give(1, -dy * (a() / b()) / b());  // b * b could be too small, or too large
  }
};
struct DivNumber : Elementwise {
  using Formula = formula::Div;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "div_number",
                                  .symbol = "÷n",
                                  .formula = "a / n",
                                  .derivatives = {"dy / n"},
                                  .attributes = "n",
                                  .node = "DivBackward0",
                                  .called = "div"};
  void backward() { give(0, dy / n()); }
};
struct NumberDiv : Elementwise {
  using Formula = formula::Div;
  static constexpr bool in_integers = false;
  static constexpr bool number_first = true;
  static constexpr Facts facts = {.name = "number_div",
                                  .symbol = "n÷",
                                  .formula = "n / a",
                                  .derivatives = {"-dy * (n / a) / a"},
                                  .attributes = "n",
                                  .node = "MulBackward0",
                                  .called = "div"};
  void backward() { give(0, -dy * (n() / a()) / a()); }
};
}  // namespace rule

inline Tensor operator/(const Operand& a, const Operand& b) {
  return dispatch<rule::Div, rule::DivNumber, rule::NumberDiv>(a, b);
}

inline Tensor Tensor::div(const Operand& other) const { return *this / other; }
inline Tensor div(const Tensor& a, const Operand& b) { return a / b; }

// ---- Powers -------------------------------------------------------------------------------------
//
// Two special cases keep NaN out: x^0 is the constant 1, whose gradient is 0 even at x = 0, where
// n * a^(n - 1) would be 0 * inf; and 0^b is constant for b > 0, where log(a) would be -inf.

namespace rule {
struct Pow : Elementwise {
  using Formula = formula::Pow;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "pow",
                                  .symbol = "aᵇ",
                                  .formula = "a^b",
                                  .derivatives = {"dy * b * a^(b - 1)", "dy * a^b * log(a)"},
                                  .node = "PowBackward1"};
  void backward();
};
struct PowNumber : Elementwise {
  using Formula = formula::Pow;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "pow_number",
                                  .symbol = "aⁿ",
                                  .formula = "a^n",
                                  .derivatives = {"dy * n * a^(n - 1)"},
                                  .attributes = "n",
                                  .node = "PowBackward0",
                                  .called = "pow"};
  void backward();
};
struct NumberPow : Elementwise {
  using Formula = formula::Pow;
  static constexpr bool in_bools = false;
  static constexpr bool number_first = true;
  static constexpr Facts facts = {.name = "number_pow",
                                  .symbol = "nᵃ",
                                  .formula = "n^a",
                                  .derivatives = {"dy * y * log(n)"},
                                  .attributes = "n",
                                  .node = "PowBackward1",
                                  .called = "pow"};
  void backward();
};

inline void Pow::backward() {
  const Tensor power = b().to(dy.dtype());
  if (wants(0)) give(0, where(power == 0, 0, dy * (power * a().pow(power - 1))));
  if (wants(1)) give(1, where((a() == 0) & (power >= 0), 0, dy * (a().pow(power) * a().log())));
}
inline void PowNumber::backward() {
  if (n() == 0)
    give(0, zeros_like(dy));
  else if (n() == 2)
    give(0, dy * (a() * 2));
  else
    give(0, dy * (a().pow(n() - 1) * n()));
}
inline void NumberPow::backward() {
  const Tensor slope = dy * (y() * std::log(n()));
  give(0, n() == 0 ? where(y() <= 1, 0, slope) : slope);
}
}  // namespace rule

// A few powers have shorter formulas. (That of 0.5 is PyTorch's, too: a root, also of -0 and -inf.)
template <class F>
inline constexpr Elementary power_by = {
    recipe_of<rule::PowNumber>, map<F>, nullptr, true, false, false, false};
inline const Elementary* short_power(double n) {
  if (n == 2) return &power_by<formula::Square>;
  if (n == 3) return &power_by<formula::Cube>;
  if (n == 0.5) return &power_by<formula::Sqrt>;
  if (n == -0.5) return &power_by<formula::Rsqrt>;
  if (n == -1) return &power_by<formula::Reciprocal>;
  return nullptr;
}

// (Two functions, because most programs need the second only, and the first one's rule is long.)
inline Tensor Tensor::pow(const Tensor& exponent, Loc loc) const {
  return binary<rule::Pow>(*this, exponent, loc);
}
inline Tensor Tensor::pow(Scalar n, Loc loc) const {
  if (defined() && !is_floating(dtype()) && n.dtype() == int64 && n.whole() < 0)
    fail({"pow", loc}, {"an integer to a negative power is not an integer"},
         {"convert with .to(float32)"});
  if (defined() && kind_of(n.dtype()) <= kind_of(dtype()))
    if (const Elementary* by = short_power(n.real())) return apply(*by, *this, loc, {n.real(), {}});
  return with_number<rule::PowNumber>(*this, n, loc);
}

inline Tensor pow(const Tensor& a, const Tensor& exponent, Loc loc = Loc::here()) {
  return a.pow(exponent, loc);
}
inline Tensor pow(const Tensor& a, Scalar exponent, Loc loc = Loc::here()) {
  return a.pow(exponent, loc);
}

inline Tensor pow(Scalar base, const Tensor& exponent, Loc loc = Loc::here()) {
  return with_number<rule::NumberPow>(exponent, base, loc);
}

inline Tensor Tensor::square(Loc loc) const { return pow(2, loc); }
inline Tensor square(const Tensor& x, Loc loc = Loc::here()) { return x.square(loc); }

// ---- One input, element by element --------------------------------------------------------------

namespace rule {
struct Neg : Elementwise {
  using Formula = formula::Neg;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "neg",
                                  .symbol = "−",
                                  .formula = "-a",
                                  .derivatives = {"-dy"},
                                  .node = "NegBackward0"};
  void backward() { give(0, -dy); }
};
struct Abs : Elementwise {
  using Formula = formula::Abs;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "abs",
                                  .symbol = "|a|",
                                  .formula = "abs(a)",
                                  .derivatives = {"dy * sign(a)"},
                                  .node = "AbsBackward0"};
  void backward() { give(0, dy * a().sign()); }
};
struct Flat : Elementwise {  // its slope is 0 wherever it has one
  void backward() {
    for (int slot = 0; slot < input_count(); ++slot)
      if (wants(slot)) give(slot, zeros_like(dy));
  }
};
struct Sign : Flat {
  using Formula = formula::Sign;
  static constexpr Facts facts = {.name = "sign",
                                  .symbol = "sign",
                                  .formula = "sign(a)",
                                  .derivatives = {"0 * dy"},
                                  .node = "SignBackward0"};
};
struct Exp : Elementwise {
  using Formula = formula::Exp;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "exp",
                                  .symbol = "exp",
                                  .formula = "exp(a)",
                                  .derivatives = {"dy * y"},
                                  .node = "ExpBackward0"};
  void backward() { give(0, dy * y()); }
};
struct Log : Elementwise {
  using Formula = formula::Log;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "log",
                                  .symbol = "log",
                                  .formula = "log(a)",
                                  .derivatives = {"dy / a"},
                                  .node = "LogBackward0"};
  void backward() { give(0, dy / a()); }
};
struct Sqrt : Elementwise {
  using Formula = formula::Sqrt;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "sqrt",
                                  .symbol = "√",
                                  .formula = "sqrt(a)",
                                  .derivatives = {"dy / (2 * y)"},
                                  .node = "SqrtBackward0"};
  void backward() { give(0, dy / (2 * y())); }
};
struct Sin : Elementwise {
  using Formula = formula::Sin;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "sin",
                                  .symbol = "sin",
                                  .formula = "sin(a)",
                                  .derivatives = {"dy * cos(a)"},
                                  .node = "SinBackward0"};
  void backward() { give(0, dy * a().cos()); }
};
struct Cos : Elementwise {
  using Formula = formula::Cos;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "cos",
                                  .symbol = "cos",
                                  .formula = "cos(a)",
                                  .derivatives = {"-dy * sin(a)"},
                                  .node = "CosBackward0"};
  void backward() { give(0, -dy * a().sin()); }
};
struct Tanh : Elementwise {
  using Formula = formula::Tanh;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "tanh",
                                  .symbol = "tanh",
                                  .formula = "tanh(a)",
                                  .derivatives = {"dy * (1 - y * y)"},
                                  .node = "TanhBackward0"};
  void backward() { give(0, dy * (1 - y() * y())); }
};
struct Sigmoid : Elementwise {
  using Formula = formula::Sigmoid;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "sigmoid",
                                  .symbol = "σ",
                                  .formula = "1 / (1 + exp(-a))",
                                  .derivatives = {"dy * y * (1 - y)"},
                                  .node = "SigmoidBackward0"};
  void backward() { give(0, dy * y() * (1 - y())); }
};
// A NaN stays one, and lets the gradient pass: hiding it would hide the mistake that made it.
struct Relu : Elementwise {
  using Formula = formula::Relu;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "relu",
                                  .symbol = "relu",
                                  .formula = "max(a, 0)",
                                  .derivatives = {"0 if y <= 0 else dy"},
                                  .node = "ReluBackward0"};
  void backward() { give(0, where(y() <= 0, 0, dy)); }
};
}  // namespace rule

inline Tensor operator-(const Operand& a) { return unary<rule::Neg>(*a.tensor, a.loc); }
inline Tensor Tensor::neg(Loc loc) const { return unary<rule::Neg>(*this, loc); }
inline Tensor Tensor::abs(Loc loc) const { return unary<rule::Abs>(*this, loc); }
inline Tensor Tensor::sign(Loc loc) const { return unary<rule::Sign>(*this, loc); }
inline Tensor Tensor::exp(Loc loc) const { return unary<rule::Exp>(*this, loc); }
inline Tensor Tensor::log(Loc loc) const { return unary<rule::Log>(*this, loc); }
inline Tensor Tensor::sqrt(Loc loc) const { return unary<rule::Sqrt>(*this, loc); }
inline Tensor Tensor::sin(Loc loc) const { return unary<rule::Sin>(*this, loc); }
inline Tensor Tensor::cos(Loc loc) const { return unary<rule::Cos>(*this, loc); }
inline Tensor Tensor::tanh(Loc loc) const { return unary<rule::Tanh>(*this, loc); }
inline Tensor Tensor::sigmoid(Loc loc) const { return unary<rule::Sigmoid>(*this, loc); }
inline Tensor Tensor::relu(Loc loc) const { return unary<rule::Relu>(*this, loc); }
inline Tensor neg(const Tensor& x, Loc loc = Loc::here()) { return x.neg(loc); }
inline Tensor abs(const Tensor& x, Loc loc = Loc::here()) { return x.abs(loc); }
inline Tensor sign(const Tensor& x, Loc loc = Loc::here()) { return x.sign(loc); }
inline Tensor exp(const Tensor& x, Loc loc = Loc::here()) { return x.exp(loc); }
inline Tensor log(const Tensor& x, Loc loc = Loc::here()) { return x.log(loc); }
inline Tensor sqrt(const Tensor& x, Loc loc = Loc::here()) { return x.sqrt(loc); }
inline Tensor sin(const Tensor& x, Loc loc = Loc::here()) { return x.sin(loc); }
inline Tensor cos(const Tensor& x, Loc loc = Loc::here()) { return x.cos(loc); }
inline Tensor tanh(const Tensor& x, Loc loc = Loc::here()) { return x.tanh(loc); }
inline Tensor sigmoid(const Tensor& x, Loc loc = Loc::here()) { return x.sigmoid(loc); }
inline Tensor relu(const Tensor& x, Loc loc = Loc::here()) { return x.relu(loc); }

// ---- More functions of one input ----------------------------------------------------------------

namespace rule {
struct Expm1 : Elementwise {
  using Formula = formula::Expm1;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "expm1",
                                  .symbol = "eᵃ−1",
                                  .formula = "exp(a) - 1",
                                  .derivatives = {"dy * (y + 1)"},
                                  .node = "Expm1Backward0"};
  void backward() { give(0, dy * (y() + 1)); }
};
struct Log1p : Elementwise {
  using Formula = formula::Log1p;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "log1p",
                                  .symbol = "log1p",
                                  .formula = "log(1 + a)",
                                  .derivatives = {"dy / (1 + a)"},
                                  .node = "Log1PBackward0"};
  void backward() { give(0, dy / (1 + a())); }
};
struct Log2 : Elementwise {
  using Formula = formula::Log2;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "log2",
                                  .symbol = "log₂",
                                  .formula = "log(a) / log(2)",
                                  .derivatives = {"dy / (a * log(2))"},
                                  .node = "Log2Backward0"};
  void backward() { give(0, dy / (a() * std::log(2.0))); }
};
struct Log10 : Elementwise {
  using Formula = formula::Log10;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "log10",
                                  .symbol = "log₁₀",
                                  .formula = "log(a) / log(10)",
                                  .derivatives = {"dy / (a * log(10))"},
                                  .node = "Log10Backward0"};
  void backward() { give(0, dy / (a() * std::log(10.0))); }
};
struct Rsqrt : Elementwise {
  using Formula = formula::Rsqrt;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "rsqrt",
                                  .symbol = "1/√",
                                  .formula = "1 / sqrt(a)",
                                  .derivatives = {"-dy * y^3 / 2"},
                                  .node = "RsqrtBackward0"};
  void backward() { give(0, -dy * y().pow(3) / 2); }
};
struct Reciprocal : Elementwise {
  using Formula = formula::Reciprocal;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "reciprocal",
                                  .symbol = "1/a",
                                  .formula = "1 / a",
                                  .derivatives = {"-dy * y * y"},
                                  .node = "ReciprocalBackward0"};
  void backward() { give(0, -dy * y() * y()); }
};
struct Tan : Elementwise {
  using Formula = formula::Tan;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "tan",
                                  .symbol = "tan",
                                  .formula = "tan(a)",
                                  .derivatives = {"dy * (1 + y * y)"},
                                  .node = "TanBackward0"};
  void backward() { give(0, dy * (1 + y() * y())); }
};
struct Asin : Elementwise {
  using Formula = formula::Asin;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "asin",
                                  .symbol = "asin",
                                  .formula = "asin(a)",
                                  .derivatives = {"dy / sqrt(1 - a * a)"},
                                  .node = "AsinBackward0"};
  void backward() { give(0, dy * (1 - a() * a()).rsqrt()); }
};
struct Acos : Elementwise {
  using Formula = formula::Acos;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "acos",
                                  .symbol = "acos",
                                  .formula = "acos(a)",
                                  .derivatives = {"-dy / sqrt(1 - a * a)"},
                                  .node = "AcosBackward0"};
  void backward() { give(0, -dy * (1 - a() * a()).rsqrt()); }
};
struct Atan : Elementwise {
  using Formula = formula::Atan;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "atan",
                                  .symbol = "atan",
                                  .formula = "atan(a)",
                                  .derivatives = {"dy / (1 + a * a)"},
                                  .node = "AtanBackward0"};
  void backward() { give(0, dy / (1 + a() * a())); }
};
struct Sinh : Elementwise {
  using Formula = formula::Sinh;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "sinh",
                                  .symbol = "sinh",
                                  .formula = "sinh(a)",
                                  .derivatives = {"dy * cosh(a)"},
                                  .node = "SinhBackward0"};
  void backward() { give(0, dy * a().cosh()); }
};
struct Cosh : Elementwise {
  using Formula = formula::Cosh;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "cosh",
                                  .symbol = "cosh",
                                  .formula = "cosh(a)",
                                  .derivatives = {"dy * sinh(a)"},
                                  .node = "CoshBackward0"};
  void backward() { give(0, dy * a().sinh()); }
};
// The factor is 2 / sqrt(pi).
struct Erf : Elementwise {
  using Formula = formula::Erf;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {.name = "erf",
                                  .symbol = "erf",
                                  .formula = "erf(a)",
                                  .derivatives = {"dy * 1.1283791670955126 * exp(-a * a)"},
                                  .node = "ErfBackward0"};
  void backward() { give(0, dy * 1.1283791670955126 * (-a() * a()).exp()); }
};
struct Floor : Flat {
  using Formula = formula::Floor;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "floor",
                                  .symbol = "⌊a⌋",
                                  .formula = "floor(a)",
                                  .derivatives = {"0 * dy"},
                                  .node = "FloorBackward0"};
};
struct Ceil : Flat {
  using Formula = formula::Ceil;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "ceil",
                                  .symbol = "⌈a⌉",
                                  .formula = "ceil(a)",
                                  .derivatives = {"0 * dy"},
                                  .node = "CeilBackward0"};
};
struct Round : Flat {
  using Formula = formula::Round;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "round",
                                  .symbol = "round",
                                  .formula = "round(a)",
                                  .derivatives = {"0 * dy"},
                                  .node = "RoundBackward0"};
};
struct Trunc : Flat {
  using Formula = formula::Trunc;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "trunc",
                                  .symbol = "trunc",
                                  .formula = "trunc(a)",
                                  .derivatives = {"0 * dy"},
                                  .node = "TruncBackward0"};
};
}  // namespace rule

inline Tensor Tensor::exp2(Loc loc) const {
  check_together({"exp2", loc}, {this});
  const Pin pin(loc);
  return titled("Exp2Backward0", with_number<rule::NumberPow>(to(as_float(dtype())), 2, loc));
}
inline Tensor Tensor::expm1(Loc loc) const { return unary<rule::Expm1>(*this, loc); }
inline Tensor Tensor::log2(Loc loc) const { return unary<rule::Log2>(*this, loc); }
inline Tensor Tensor::log10(Loc loc) const { return unary<rule::Log10>(*this, loc); }
inline Tensor Tensor::log1p(Loc loc) const { return unary<rule::Log1p>(*this, loc); }
inline Tensor Tensor::rsqrt(Loc loc) const { return unary<rule::Rsqrt>(*this, loc); }
inline Tensor Tensor::reciprocal(Loc loc) const { return unary<rule::Reciprocal>(*this, loc); }
inline Tensor Tensor::tan(Loc loc) const { return unary<rule::Tan>(*this, loc); }
inline Tensor Tensor::asin(Loc loc) const { return unary<rule::Asin>(*this, loc); }
inline Tensor Tensor::acos(Loc loc) const { return unary<rule::Acos>(*this, loc); }
inline Tensor Tensor::atan(Loc loc) const { return unary<rule::Atan>(*this, loc); }
inline Tensor Tensor::sinh(Loc loc) const { return unary<rule::Sinh>(*this, loc); }
inline Tensor Tensor::cosh(Loc loc) const { return unary<rule::Cosh>(*this, loc); }
inline Tensor Tensor::erf(Loc loc) const { return unary<rule::Erf>(*this, loc); }
inline Tensor Tensor::floor(Loc loc) const { return unary<rule::Floor>(*this, loc); }
inline Tensor Tensor::ceil(Loc loc) const { return unary<rule::Ceil>(*this, loc); }
inline Tensor Tensor::round(Loc loc) const { return unary<rule::Round>(*this, loc); }
inline Tensor Tensor::trunc(Loc loc) const { return unary<rule::Trunc>(*this, loc); }
inline Tensor exp2(const Tensor& x, Loc loc = Loc::here()) { return x.exp2(loc); }
inline Tensor expm1(const Tensor& x, Loc loc = Loc::here()) { return x.expm1(loc); }
inline Tensor log2(const Tensor& x, Loc loc = Loc::here()) { return x.log2(loc); }
inline Tensor log10(const Tensor& x, Loc loc = Loc::here()) { return x.log10(loc); }
inline Tensor log1p(const Tensor& x, Loc loc = Loc::here()) { return x.log1p(loc); }
inline Tensor rsqrt(const Tensor& x, Loc loc = Loc::here()) { return x.rsqrt(loc); }
inline Tensor reciprocal(const Tensor& x, Loc loc = Loc::here()) { return x.reciprocal(loc); }
inline Tensor tan(const Tensor& x, Loc loc = Loc::here()) { return x.tan(loc); }
inline Tensor asin(const Tensor& x, Loc loc = Loc::here()) { return x.asin(loc); }
inline Tensor acos(const Tensor& x, Loc loc = Loc::here()) { return x.acos(loc); }
inline Tensor atan(const Tensor& x, Loc loc = Loc::here()) { return x.atan(loc); }
inline Tensor sinh(const Tensor& x, Loc loc = Loc::here()) { return x.sinh(loc); }
inline Tensor cosh(const Tensor& x, Loc loc = Loc::here()) { return x.cosh(loc); }
inline Tensor erf(const Tensor& x, Loc loc = Loc::here()) { return x.erf(loc); }
inline Tensor floor(const Tensor& x, Loc loc = Loc::here()) { return x.floor(loc); }
inline Tensor ceil(const Tensor& x, Loc loc = Loc::here()) { return x.ceil(loc); }
inline Tensor round(const Tensor& x, Loc loc = Loc::here()) { return x.round(loc); }
inline Tensor trunc(const Tensor& x, Loc loc = Loc::here()) { return x.trunc(loc); }

// ---- The larger and the smaller of two: equal ones share the gradient ---------------------------

namespace rule {
struct Maximum : Elementwise {
  using Formula = formula::Maximum;
  static constexpr Facts facts = {.name = "maximum",
                                  .symbol = "max",
                                  .formula = "max(a, b)",
                                  .derivatives = {"dy if a > b else dy / 2 if a == b else 0",
                                                  "dy if b > a else dy / 2 if a == b else 0"},
                                  .node = "MaximumBackward0"};
  void backward() {
    const Tensor shared = where(a() == b(), dy / 2, dy);
    if (wants(0)) give(0, where(a() < b(), 0, shared));
    if (wants(1)) give(1, where(a() > b(), 0, shared));
  }
};
struct Minimum : Elementwise {
  using Formula = formula::Minimum;
  static constexpr Facts facts = {.name = "minimum",
                                  .symbol = "min",
                                  .formula = "min(a, b)",
                                  .derivatives = {"dy if a < b else dy / 2 if a == b else 0",
                                                  "dy if b < a else dy / 2 if a == b else 0"},
                                  .node = "MinimumBackward0"};
  void backward() {
    const Tensor shared = where(a() == b(), dy / 2, dy);
    if (wants(0)) give(0, where(a() > b(), 0, shared));
    if (wants(1)) give(1, where(a() < b(), 0, shared));
  }
};
}  // namespace rule

inline Tensor Tensor::maximum(const Tensor& other, Loc loc) const {
  return binary<rule::Maximum>(*this, other, loc);
}

inline Tensor Tensor::minimum(const Tensor& other, Loc loc) const {
  return binary<rule::Minimum>(*this, other, loc);
}

inline Tensor maximum(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.maximum(b, loc);
}

inline Tensor minimum(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.minimum(b, loc);
}

inline Tensor max(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.maximum(b, loc);
}

inline Tensor min(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.minimum(b, loc);
}

// ---- Comparisons and logic: their results are bools and have no gradient ------------------------

namespace rule {
template <class F>
inline constexpr Facts truth_facts = {};
template <>
inline constexpr Facts truth_facts<formula::Equal> = {
    .name = "equal", .symbol = "=", .formula = "a == b"};
template <>
inline constexpr Facts truth_facts<formula::NotEqual> = {
    .name = "not_equal", .symbol = "≠", .formula = "a != b"};
template <>
inline constexpr Facts truth_facts<formula::Less> = {
    .name = "less", .symbol = "<", .formula = "a < b"};
template <>
inline constexpr Facts truth_facts<formula::LessEqual> = {
    .name = "less_equal", .symbol = "≤", .formula = "a <= b"};
template <>
inline constexpr Facts truth_facts<formula::Greater> = {
    .name = "greater", .symbol = ">", .formula = "a > b"};
template <>
inline constexpr Facts truth_facts<formula::GreaterEqual> = {
    .name = "greater_equal", .symbol = "≥", .formula = "a >= b"};
template <>
inline constexpr Facts truth_facts<formula::And> = {
    .name = "and", .symbol = "∧", .formula = "a & b"};
template <>
inline constexpr Facts truth_facts<formula::Or> = {.name = "or", .symbol = "∨", .formula = "a | b"};
template <>
inline constexpr Facts truth_facts<formula::Xor> = {
    .name = "xor", .symbol = "⊕", .formula = "a ^ b"};
template <>
inline constexpr Facts truth_facts<formula::Not> = {.name = "not", .symbol = "¬", .formula = "~a"};

template <class F>
struct Truth : Elementwise {
  using Formula = F;
  static constexpr bool makes_bools = true;
  static constexpr Facts facts = truth_facts<F>;
  void backward() {}
};
template <class F>  // against a plain number
struct TruthNumber : Truth<F> {
  static constexpr Facts facts = {
      truth_facts<F>.name, truth_facts<F>.symbol, truth_facts<F>.formula, {}, "b"};
};
}  // namespace rule

template <class F, class Mirrored>
Tensor compare(const Operand& a, const Operand& b) {
  return dispatch<rule::Truth<F>, rule::TruthNumber<F>, rule::TruthNumber<Mirrored>>(a, b);
}

inline Tensor operator==(const Operand& a, const Operand& b) {
  return compare<formula::Equal, formula::Equal>(a, b);
}

inline Tensor operator!=(const Operand& a, const Operand& b) {
  return compare<formula::NotEqual, formula::NotEqual>(a, b);
}
// `1 < x < 2` compares the bools of `1 < x` with 2. Nobody means that.
template <class F, class Mirrored>
Tensor order(const Operand& a, const Operand& b) {
  const Tensor* x = a.tensor ? a.tensor : b.tensor;
  const Operand& other = a.tensor ? b : a;
  const bool beyond = !other.tensor && (other.number.real() < 0 || other.number.real() > 1);
  if (beyond && x->defined() && x->dtype() == boolean)
    fail({rule::truth_facts<F>.name, b.loc},
         {"a bool is compared with a number that is neither 0 nor 1"},
         {"for 1 < x < 2 write (1 < x) & (x < 2)"});
  return compare<F, Mirrored>(a, b);
}

inline Tensor operator<(const Operand& a, const Operand& b) {
  return order<formula::Less, formula::Greater>(a, b);
}

inline Tensor operator<=(const Operand& a, const Operand& b) {
  return order<formula::LessEqual, formula::GreaterEqual>(a, b);
}

inline Tensor operator>(const Operand& a, const Operand& b) {
  return order<formula::Greater, formula::Less>(a, b);
}

inline Tensor operator>=(const Operand& a, const Operand& b) {
  return order<formula::GreaterEqual, formula::LessEqual>(a, b);
}

template <class F>
Tensor logical(const char* op, const Operand& a, const Operand& b, const char* hint) {
  const At at{op, b.loc};
  for (const Operand* x : {&a, &b}) {
    if (x->tensor) check_together(at, {x->tensor});
    if ((x->tensor ? x->tensor->dtype() : x->number.dtype()) != boolean)
      fail(at, {"it takes bools"}, {hint});
  }
  return compare<F, F>(a, b);
}

inline Tensor operator&(const Operand& a, const Operand& b) {
  return logical<formula::And>("&", a, b, "compare first: (x > 0) & (x < 1)");
}

inline Tensor operator|(const Operand& a, const Operand& b) {
  return logical<formula::Or>("|", a, b, "compare first: (x < 0) | (x > 1)");
}

inline Tensor operator^(const Operand& a, const Operand& b) {
  return logical<formula::Xor>("^", a, b, "for a power write x.pow(2)");
}

inline Tensor operator~(const Operand& a) {
  const At at{"~", a.loc};
  check_together(at, {a.tensor});
  if (a.tensor->dtype() != boolean) fail(at, {"it takes bools"}, {"write x == 0"});
  return unary<rule::Truth<formula::Not>>(*a.tensor, a.loc);
}

// ---- Choosing: the branch not taken gets exactly 0, even where it is NaN ------------------------

namespace rule {
struct Where : Rule {
  static constexpr Facts facts = {.name = "where",
                                  .symbol = "?",
                                  .formula = "a if c else b",
                                  .derivatives = {"dy if c else 0", "0 if c else dy"},
                                  .node = "WhereBackward0"};
  void backward() {
    if (wants(0)) give(0, where(c(), dy, 0));
    if (wants(1)) give(1, where(c(), 0, dy));
  }
};
struct WhereNumber : Rule {  // the inputs: a and the condition b
  static constexpr Facts facts = {.name = "where_number",
                                  .symbol = "?",
                                  .formula = "a if b else n",
                                  .derivatives = {"dy if b else 0"},
                                  .attributes = "n",
                                  .node = "WhereBackward0",
                                  .called = "where"};
  void backward() { give(0, where(b(), dy, 0)); }
};
}  // namespace rule

inline void check_condition(const Tensor& condition, const At& at) {
  check_together(at, {&condition});
  if (condition.dtype() != boolean)
    fail(at, {"the condition is ", condition.dtype(), ", not bool"}, {"compare first: x > 0"});
}
// Where `condition` holds the element of a, elsewhere that of b; all three broadcast.
inline Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b,
                    Loc loc = Loc::here()) {
  const At at{"where", loc};
  check_together(at, {&condition, &a, &b});
  check_condition(condition, at);
  const DType dtype = promote(a, b);
  const Shape shape =
      broadcast_shapes(broadcast_shapes(a.shape(), b.shape(), at), condition.shape(), at);
  Tensor y = fresh(shape, dtype, a.device(), at);
  const Tensor x = converted(a, dtype), z = converted(b, dtype);
  choose(y.elements(), broadcast_to(condition.elements(), shape), broadcast_to(x.elements(), shape),
         broadcast_to(z.elements(), shape));
  return record<rule::Where>(std::move(y), {&a, &b, &condition}, loc);
}

inline Tensor where(const Tensor& condition, const Tensor& a, Scalar n, Loc loc = Loc::here()) {
  const At at{"where", loc};
  check_together(at, {&condition, &a});
  check_condition(condition, at);
  const DType dtype = promote(a, n);
  const Shape shape = broadcast_shapes(a.shape(), condition.shape(), at);
  Tensor y = fresh(shape, dtype, a.device(), at);
  const Tensor x = converted(a, dtype);
  const Constant number(n, dtype, shape);
  choose(y.elements(), broadcast_to(condition.elements(), shape), broadcast_to(x.elements(), shape),
         number.view);
  return record<rule::WhereNumber>(std::move(y), {&a, &condition}, loc, {n.real(), {}});
}

inline Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  if (a.tensor && b.tensor) return where(condition, *a.tensor, *b.tensor, b.loc);
  if (a.tensor) return where(condition, *a.tensor, b.number, b.loc);
  check_condition(condition, {"where", b.loc});
  const Pin pin(b.loc);
  if (b.tensor) return where(~condition, *b.tensor, a.number);
  return where(condition, full({}, a.number, {.device = condition.device()}), b.number);
}

// ---- Between two bounds -------------------------------------------------------------------------
//
// On a bound the gradient still passes, as in PyTorch: an element that training has pushed there
// can come back. A bound that is a tensor receives the gradients of the elements that it holds.

namespace rule {
struct ClampMin : Elementwise {
  using Formula = formula::Maximum;
  static constexpr Facts facts = {.name = "clamp_min",
                                  .symbol = "≥n",
                                  .formula = "max(a, n)",
                                  .derivatives = {"dy if a >= n else 0"},
                                  .attributes = "n",
                                  .node = "ClampMinBackward0"};
  void backward() { give(0, where(a() >= n(), dy, 0)); }
};
struct ClampMax : Elementwise {
  using Formula = formula::Minimum;
  static constexpr Facts facts = {.name = "clamp_max",
                                  .symbol = "≤n",
                                  .formula = "min(a, n)",
                                  .derivatives = {"dy if a <= n else 0"},
                                  .attributes = "n",
                                  .node = "ClampMaxBackward0"};
  void backward() { give(0, where(a() <= n(), dy, 0)); }
};
struct ClampMinTensor : Elementwise {
  using Formula = formula::Maximum;
  static constexpr Facts facts = {.name = "clamp_min_tensor",
                                  .symbol = "≥",
                                  .formula = "max(a, b)",
                                  .derivatives = {"dy if a >= b else 0", "dy if a < b else 0"},
                                  .node = "ClampMinBackward1"};
  void backward() {
    if (wants(0)) give(0, where(a() >= b(), dy, 0));
    if (wants(1)) give(1, where(a() < b(), dy, 0));
  }
};
struct ClampMaxTensor : Elementwise {
  using Formula = formula::Minimum;
  static constexpr Facts facts = {.name = "clamp_max_tensor",
                                  .symbol = "≤",
                                  .formula = "min(a, b)",
                                  .derivatives = {"dy if a <= b else 0", "dy if a > b else 0"},
                                  .node = "ClampMaxBackward1"};
  void backward() {
    if (wants(0)) give(0, where(a() <= b(), dy, 0));
    if (wants(1)) give(1, where(a() > b(), dy, 0));
  }
};
}  // namespace rule

// The elements, moved into [min, max]; {.min = 0} alone leaves the other side open. Where min > max
// all become max.
inline Tensor Tensor::clamp(ClampOptions options, Loc loc) const {
  if (!options.min && !options.max)
    fail({"clamp", loc}, {"it has no bound"}, {"write {.min = 0}, {.max = 1} or both"});
  const Composed whole("clamp", loc);
  Tensor y = *this;
  if (options.min) y = with_number<rule::ClampMin>(y, *options.min, loc);
  if (options.max) y = with_number<rule::ClampMax>(y, *options.max, loc);
  return titled("ClampBackward1", y);
}
inline Tensor Tensor::clamp(Scalar min, Scalar max, Loc loc) const {
  return clamp({.min = min, .max = max}, loc);
}
inline Tensor Tensor::clamp(Scalar min, Loc loc) const { return clamp({.min = min}, loc); }
inline Tensor Tensor::clamp(const Tensor& min, const Tensor& max, Loc loc) const {
  if (!min.defined() && !max.defined())
    fail({"clamp", loc}, {"it has no bound: both tensors are undefined"});
  const Composed whole("clamp", loc);
  Tensor y = *this;
  if (min.defined()) y = binary<rule::ClampMinTensor>(y, min, loc);
  if (max.defined()) y = binary<rule::ClampMaxTensor>(y, max, loc);
  return titled("ClampBackward0", y);
}
inline Tensor Tensor::clip(ClampOptions options, Loc loc) const { return clamp(options, loc); }
inline Tensor Tensor::clip(Scalar min, Scalar max, Loc loc) const { return clamp(min, max, loc); }
inline Tensor clip(const Tensor& x, ClampOptions options, Loc loc = Loc::here()) {
  return x.clamp(options, loc);
}
inline Tensor clip(const Tensor& x, Scalar min, Scalar max, Loc loc = Loc::here()) {
  return x.clamp(min, max, loc);
}
inline Tensor clamp(const Tensor& x, ClampOptions options, Loc loc = Loc::here()) {
  return x.clamp(options, loc);
}
inline Tensor clamp(const Tensor& x, Scalar min, Scalar max, Loc loc = Loc::here()) {
  return x.clamp(min, max, loc);
}
inline Tensor clamp(const Tensor& x, Scalar min, Loc loc = Loc::here()) {
  return x.clamp(min, loc);
}
inline Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max = {},
                    Loc loc = Loc::here()) {
  return x.clamp(min, max, loc);
}

// ---- Dividing and rounding, and other functions of two ------------------------------------------

namespace rule {
struct Atan2 : Elementwise {
  using Formula = formula::Atan2;
  static constexpr bool in_integers = false;
  static constexpr Facts facts = {
      .name = "atan2",
      .symbol = "atan2",
      .formula = "atan2(a, b)",
      .derivatives = {"dy * b / (a * a + b * b)", "-dy * a / (a * a + b * b)"},
      .node = "Atan2Backward0"};
  void backward() {
    const Tensor share = dy / (a() * a() + b() * b());
    if (wants(0)) give(0, share * b());
    if (wants(1)) give(1, -share * a());
  }
};
struct Fmod : Elementwise {
  using Formula = formula::Fmod;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "fmod",
                                  .symbol = "fmod",
                                  .formula = "fmod(a, b)",
                                  .derivatives = {"dy", "-dy * trunc(a / b)"},
                                  .node = "FmodBackward1"};
  void backward() {
    give(0, dy);
    if (wants(1)) give(1, -dy * (a() / b()).trunc());
  }
};
struct Remainder : Elementwise {
  using Formula = formula::Remainder;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "remainder",
                                  .symbol = "mod",
                                  .formula = "a - b * floor(a / b)",
                                  .derivatives = {"dy", "-dy * floor(a / b)"},
                                  .node = "RemainderBackward1"};
  void backward() {
    give(0, dy);
    if (wants(1)) give(1, -dy * a().floor_divide(b()));
  }
};
struct FloorDivide : Flat {
  using Formula = formula::FloorDivide;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "floor_divide",
                                  .symbol = "⌊÷⌋",
                                  .formula = "floor(a / b)",
                                  .derivatives = {"0 * dy", "0 * dy"},
                                  .node = "FloorDivideBackward0"};
};
struct TruncDivide : Flat {
  using Formula = formula::TruncDivide;
  static constexpr bool in_bools = false;
  static constexpr Facts facts = {.name = "trunc_divide",
                                  .symbol = "÷",
                                  .formula = "trunc(a / b)",
                                  .derivatives = {"0 * dy", "0 * dy"},
                                  .node = "DivBackward2"};
};
struct Lerp : Rule {
  static constexpr Facts facts = {.name = "lerp",
                                  .symbol = "lerp",
                                  .formula = "a + c * (b - a)",
                                  .derivatives = {"dy * (1 - c)", "dy * c", "dy * (b - a)"},
                                  .node = "LerpBackward1"};
  void backward() {
    if (wants(0)) give(0, dy * (1 - c()));
    if (wants(1)) give(1, dy * c());
    if (wants(2)) give(2, dy * (b() - a()));
  }
};
}  // namespace rule

inline Tensor Tensor::atan2(const Tensor& other, Loc loc) const {
  return binary<rule::Atan2>(*this, other, loc);
}
inline Tensor atan2(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.atan2(b, loc);
}

// An operand as a tensor: a number becomes one without axes, of this dtype.
inline Tensor as_tensor(const Operand& x, DType dtype, Device device) {
  return x.tensor ? *x.tensor : full({}, x.number, {.dtype = dtype, .device = device});
}

// Floats divided by 0 are infinite or NaN; integers have nothing of the kind.
inline Tensor divided(const Elementary& op, const Tensor& a, const Operand& divisor) {
  const At at = op.at(divisor.loc);
  check_together(at, {&a});
  const Pin pin(divisor.loc);
  const DType dtype = divisor.tensor ? a.dtype() : promote(a, divisor.number);
  const Tensor b = as_tensor(divisor, dtype, a.device());
  check_together(at, {&a, &b});
  if (!is_floating(promote(a, b)) && a.numel() > 0) {
    const Quiet quiet;
    if ((b == 0).sum().item() > 0)
      fail(at, {"an integer is divided by 0"}, {"convert with .to(float32) to get inf or nan"});
  }
  return apply(op, a, b, divisor.loc);
}
inline Tensor Tensor::fmod(const Operand& other) const {
  return divided(two_inputs<rule::Fmod>, *this, other);
}
inline Tensor Tensor::remainder(const Operand& other) const {
  return divided(two_inputs<rule::Remainder>, *this, other);
}
inline Tensor Tensor::floor_divide(const Operand& other) const {
  return divided(two_inputs<rule::FloorDivide>, *this, other);
}
inline Tensor fmod(const Tensor& a, const Operand& b) { return a.fmod(b); }
inline Tensor remainder(const Tensor& a, const Operand& b) { return a.remainder(b); }
inline Tensor floor_divide(const Tensor& a, const Operand& b) { return a.floor_divide(b); }
// Python's %, whose result has the sign of the divisor: -7 % 3 is 2. (Between two ints of C++ it
// would be -1; that is fmod.)
inline Tensor operator%(const Operand& a, const Operand& b) {
  if (a.tensor) return a.tensor->remainder(b);
  check_together({"remainder", b.loc}, {b.tensor});
  const Pin pin(b.loc);
  const Tensor number = as_tensor(a, promote(*b.tensor, a.number), b.tensor->device());
  return number.remainder(b);
}

struct DivOptions {
  ByName by_name = ByName();
  const char* rounding = "";  // or "trunc" (towards zero) or "floor" (down)
};
inline Tensor div(const Tensor& a, const Operand& b, DivOptions options) {
  const std::string_view how = options.rounding;
  if (how == "floor") return a.floor_divide(b);
  if (how == "trunc") return divided(two_inputs<rule::TruncDivide>, a, b);
  if (how != "")
    fail({"div", b.loc}, {"rounding is \"", how, "\""}, {"write \"trunc\" or \"floor\""});
  return a / b;
}

// Nothing that is computed while it lives is recorded, or told to an observer: an operation that is
// calculated with others, but is one step to whoever watches or differentiates it.
class [[nodiscard]] Unseen {
 public:
  explicit Unseen(Loc loc) : pin_(loc) {}

 private:
  Pin pin_;
  GradMode off_{false};
  Quiet quiet_;
};

// From a (weight 0) to `end` (weight 1), along a straight line. Each end is met exactly.
inline Tensor Tensor::lerp(const Tensor& end, const Operand& weight) const {
  const At at{"lerp", weight.loc};
  check_together(at, {this, &end});
  const Pin pin(weight.loc);
  const Tensor w = weight.tensor
                       ? *weight.tensor
                       : full({}, weight.number.real(), {.dtype = dtype(), .device = device()});
  check_together(at, {this, &end, &w});
  if (!is_floating(dtype()) || end.dtype() != dtype() || w.dtype() != dtype())
    fail(at, {"it takes floats of one type, not ", dtype(), ", ", end.dtype(), " and ", w.dtype()},
         {"convert with .to(float32)"});
  broadcast_shapes(broadcast_shapes(shape(), end.shape(), at), w.shape(), at);  // do they fit?
  Tensor y;
  {
    const Unseen inside(weight.loc);
    const Tensor way = end - *this;
    y = where(w < 0.5, *this + w * way, end - (1 - w) * way);
  }
  return record<rule::Lerp>(std::move(y), {this, &end, &w}, weight.loc);
}
inline Tensor lerp(const Tensor& a, const Tensor& b, const Operand& weight) {
  return a.lerp(b, weight);
}

// ---- Activations --------------------------------------------------------------------------------

namespace rule {
struct LogSigmoid : Rule {
  static constexpr Facts facts = {.name = "logsigmoid",
                                  .symbol = "log σ",
                                  .formula = "-log(1 + exp(-a))",
                                  .derivatives = {"dy * sigmoid(-a)"},
                                  .node = "LogSigmoidBackward0"};
  void backward() { give(0, dy * (-a()).sigmoid()); }
};
struct LeakyRelu : Elementwise {
  using Formula = formula::LeakyRelu;
  static constexpr Facts facts = {.name = "leaky_relu",
                                  .symbol = "leaky",
                                  .formula = "a if a > 0 else n * a",
                                  .derivatives = {"dy if a > 0 else dy * n"},
                                  .attributes = "n",
                                  .node = "LeakyReluBackward0"};
  void backward() { give(0, where(a() > 0, dy, dy * n())); }
};
struct Elu : Elementwise {
  using Formula = formula::Elu;
  static constexpr Facts facts = {.name = "elu",
                                  .symbol = "elu",
                                  .formula = "n * (exp(a) - 1) if a <= 0 else a",
                                  .derivatives = {"dy * n * exp(a) if a <= 0 else dy"},
                                  .attributes = "n",
                                  .node = "EluBackward0"};
  void backward() {
    const Tensor negative = where(a() <= 0, a(), 0);  // beyond it exp would overflow
    give(0, where(a() <= 0, dy * n() * negative.exp(), dy));
  }
};
// Phi(a), the share of the normal distribution below a, times a. Its slope is Phi(a) + a phi(a).
struct Gelu : Elementwise {
  using Formula = formula::Gelu;
  static constexpr Facts facts = {
      .name = "gelu",
      .symbol = "gelu",
      .formula = "a * (1 + erf(a / sqrt(2))) / 2",
      .derivatives =
          {"dy * ((1 + erf(a / sqrt(2))) / 2 + a * exp(-a * a / 2) * 0.3989422804014327)"},
      .node = "GeluBackward0"};
  void backward() {
    const Tensor share = (1 + (a() / std::sqrt(2.0)).erf()) / 2;
    give(0, dy * (share + a() * (-a() * a() / 2).exp() * 0.3989422804014327));  // 1 / sqrt(2 pi)
  }
};
struct Silu : Rule {
  static constexpr Facts facts = {.name = "silu",
                                  .symbol = "silu",
                                  .formula = "a * sigmoid(a)",
                                  .derivatives = {"dy * sigmoid(a) * (1 + a * (1 - sigmoid(a)))"},
                                  .node = "SiluBackward0"};
  void backward() {
    const Tensor s = a().sigmoid();
    give(0, dy * s * (1 + a() * (1 - s)));
  }
};
struct Softplus : Rule {  // n: from where on it is a itself
  static constexpr Facts facts = {.name = "softplus",
                                  .symbol = "softplus",
                                  .formula = "a if a > n else log(1 + exp(a))",
                                  .derivatives = {"dy if a > n else dy * sigmoid(a)"},
                                  .attributes = "n",
                                  .node = "SoftplusBackward0"};
  void backward() { give(0, where(a() > n(), dy, dy * a().sigmoid())); }
};
}  // namespace rule

inline void check_floats(const Tensor& x, const At& at) {
  check_together(at, {&x});
  if (!is_floating(x.dtype()))
    fail(at, {"it takes floats, not ", x.dtype()}, {"convert with .to(float32)"});
}

// log(sigmoid(x)), exact also where sigmoid(x) is too small or too close to 1 for a float.
inline Tensor logsigmoid(const Tensor& x, Loc loc = Loc::here()) {
  check_floats(x, {"logsigmoid", loc});
  Tensor y;
  {
    const Unseen inside(loc);
    y = where(x < 0, x, 0) - (-x.abs()).exp().log1p();
  }
  return record<rule::LogSigmoid>(std::move(y), {&x}, loc);
}
inline Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01, Loc loc = Loc::here()) {
  check_floats(x, {"leaky_relu", loc});
  return with_number<rule::LeakyRelu>(x, negative_slope, loc);
}
inline Tensor elu(const Tensor& x, double alpha = 1, Loc loc = Loc::here()) {
  check_floats(x, {"elu", loc});
  return with_number<rule::Elu>(x, alpha, loc);
}
struct GeluOptions {
  ByName by_name = ByName();
  const char* approximate = "none";  // or "tanh"
};
inline Tensor gelu(const Tensor& x, GeluOptions options = {}, Loc loc = Loc::here()) {
  const At at{"gelu", loc};
  check_floats(x, at);
  const std::string_view how = options.approximate;
  if (how == "tanh") {  // 0.5 x (1 + tanh(u)) = x sigmoid(2 u)
    const Composed whole("gelu", loc);
    const Tensor u = (x + x.pow(3) * 0.044715) * 0.7978845608028654;  // sqrt(2 / pi)
    return titled("GeluBackward0", x * (u * 2).sigmoid());
  }
  if (how != "none") fail(at, {"approximate is \"", how, "\""}, {"write \"none\" or \"tanh\""});
  return unary<rule::Gelu>(x, loc);
}
inline Tensor silu(const Tensor& x, Loc loc = Loc::here()) {
  check_floats(x, {"silu", loc});
  Tensor y;
  {
    const Unseen inside(loc);
    y = x * x.sigmoid();
  }
  return record<rule::Silu>(std::move(y), {&x}, loc);
}
struct SoftplusOptions {
  ByName by_name = ByName();
  double beta = 1;
  double threshold = 20;
};
// log(1 + exp(beta x)) / beta, and x itself where beta x > threshold.
inline Tensor softplus(const Tensor& x, SoftplusOptions options = {}, Loc loc = Loc::here()) {
  check_floats(x, {"softplus", loc});
  if (options.beta != 1) {
    const Composed whole("softplus", loc);
    const Tensor steep = softplus(x * options.beta, {.threshold = options.threshold}, loc);
    return titled("SoftplusBackward0", steep / options.beta);
  }
  Tensor y;
  {
    const Unseen inside(loc);
    y = where(x > options.threshold, x, x.exp().log1p());
  }
  return record<rule::Softplus>(std::move(y), {&x}, loc, {options.threshold, {}});
}
// The elements, moved into [min, max]. Unlike clamp it passes no gradient exactly on a bound, as in
// PyTorch.
inline Tensor hardtanh(const Tensor& x, double min = -1, double max = 1, Loc loc = Loc::here()) {
  const At at{"hardtanh", loc};
  check_together(at, {&x});
  if (min > max) fail(at, {"min is ", min, ", and max ", max}, {"the smaller bound comes first"});
  const Composed whole("hardtanh", loc);
  const Tensor bounded = x.detach().clamp(min, max);
  return titled("HardtanhBackward0", where((x <= min) | (x >= max), bounded, x));
}

// ---- Reductions ---------------------------------------------------------------------------------

namespace rule {
// dims holds the axes that were reduced. To go back, a gradient gets them again with size 1, and is
// read as if it were repeated along them.
struct Reduction : Rule {
  Tensor repeated(const Tensor& x) const {
    Shape kept = shape(0);
    for (std::int64_t axis : dims()) kept[static_cast<int>(axis)] = 1;
    return x.reshape(kept).expand(shape(0));
  }
};
struct Sum : Reduction {
  static constexpr Facts facts = {.name = "sum",
                                  .symbol = "Σ",
                                  .formula = "sum(a)",
                                  .derivatives = {"dy"},
                                  .attributes = "axes",
                                  .node = "SumBackward1"};
  void backward() { give(0, repeated(dy)); }
};
struct Mean : Reduction {  // n: how many elements went into one
  static constexpr Facts facts = {.name = "mean",
                                  .symbol = "mean",
                                  .formula = "sum(a) / n",
                                  .derivatives = {"dy / n"},
                                  .attributes = "axes n",
                                  .node = "MeanBackward1"};
  void backward() { give(0, repeated(dy / n())); }
};
struct Extreme : Reduction {  // ties share
  void backward() {
    const Tensor chosen = (a() == repeated(y())) | (a() != a());  // a NaN is what was chosen
    const Tensor share = dy / chosen.sum(dims()).reshape(dy.shape());
    give(0, where(chosen, repeated(share), 0));
  }
};
struct AMax : Extreme {
  static constexpr Facts facts = {.name = "amax",
                                  .symbol = "max",
                                  .formula = "max(a)",
                                  .derivatives = {"dy / count(a == y) if a == y else 0"},
                                  .attributes = "axes",
                                  .node = "AmaxBackward0"};
};
struct AMin : Extreme {
  static constexpr Facts facts = {.name = "amin",
                                  .symbol = "min",
                                  .formula = "min(a)",
                                  .derivatives = {"dy / count(a == y) if a == y else 0"},
                                  .attributes = "axes",
                                  .node = "AminBackward0"};
};
struct ExtremeAlong : Rule {  // the element at i receives all of it
  void backward();
};
struct MaxAlong : ExtremeAlong {
  static constexpr Facts facts = {.name = "max",
                                  .symbol = "max",
                                  .formula = "max(a)",
                                  .derivatives = {"dy at i, else 0"},
                                  .attributes = "axis",
                                  .node = "MaxBackward0"};
};
struct MinAlong : ExtremeAlong {
  static constexpr Facts facts = {.name = "min",
                                  .symbol = "min",
                                  .formula = "min(a)",
                                  .derivatives = {"dy at i, else 0"},
                                  .attributes = "axis",
                                  .node = "MinBackward0"};
};
struct ArgMax : Rule {
  static constexpr Facts facts = {
      .name = "argmax", .symbol = "argmax", .formula = "argmax(a)", .attributes = "axis"};
  void backward() {}
};
}  // namespace rule

// The axes of a reduction, counted from the front, in order; none given means all of them.
inline Shape checked_axes(const Dims& axes, int dims, const At& at) {
  bool chosen[Shape::capacity] = {};
  for (std::int64_t axis : axes) {
    bool& seen = chosen[checked_axis(axis, dims, at)];
    if (seen) fail(at, {"an axis is named twice: ", axes});
    seen = true;
  }
  Shape sorted;
  for (int i = 0; i < dims; ++i)
    if (chosen[i] || axes.empty()) sorted.push_back(i);
  return sorted;
}

inline Shape kept_shape(Shape shape, const Shape& axes) {
  for (std::int64_t axis : axes) shape[static_cast<int>(axis)] = 1;
  return shape;
}
// The same new tensor, without the axes that a reduction left with size 1.
inline Tensor dropped(Tensor y, const Shape& axes) {
  TensorData& r = y.get();
  for (int i = axes.size(); i-- > 0;) r.shape.erase(static_cast<int>(axes[i]));
  r.strides = contiguous_strides(r.shape);
  return y;
}

template <class F>
Tensor reduced(const Tensor& a, const Shape& axes, DType dtype, bool keepdim) {
  Tensor y = fresh(kept_shape(a.shape(), axes), dtype, a.device());
  reduce<F>(y.elements(), a.elements());
  return keepdim ? y : dropped(std::move(y), axes);
}

// The elements in the type asked for, which the result will have: no bool, because sums are none.
inline Tensor as_asked(const Tensor& x, std::optional<DType> asked, const At& at) {
  check_together(at, {&x});
  if (asked == boolean) fail(at, {"its result is no bool"}, {"write any() or all()"});
  return asked ? converted(x, *asked) : x;
}
inline DType summed_dtype(const Tensor& x) { return is_floating(x.dtype()) ? x.dtype() : int64; }

inline Tensor Tensor::sum(Dims axes, SumOptions options, Loc loc) const {
  const At at{"sum", loc};
  const Tensor x = as_asked(*this, options.dtype, at);
  const Shape over = checked_axes(axes, dim(), at);
  Tensor y = reduced<formula::Sum>(x, over, summed_dtype(x), options.keepdim);
  return titled(axes.empty() ? "SumBackward0" : nullptr,
                record<rule::Sum>(std::move(y), {this}, loc, {0, over}));
}

inline Tensor Tensor::mean(Dims axes, SumOptions options, Loc loc) const {
  const At at{"mean", loc};
  const Tensor x = as_asked(*this, options.dtype, at);
  if (!is_floating(x.dtype()))
    fail(at, {"the mean of ", x.dtype(), " is not ", x.dtype()}, {"convert with .to(float32)"});
  const Shape over = checked_axes(axes, dim(), at);
  double count = 1;
  for (std::int64_t axis : over) count *= static_cast<double>(shape()[static_cast<int>(axis)]);
  Tensor y = reduced<formula::Sum>(x, over, x.dtype(), options.keepdim);
  const Constant n(count, x.dtype(), y.shape());
  zip<formula::Div>(y.elements(), y.elements(), n.view);
  return titled(axes.empty() ? "MeanBackward0" : nullptr,
                record<rule::Mean>(std::move(y), {this}, loc, {count, over}));
}

template <class R, class F>
Tensor extreme(const Tensor& a, Dims axes, bool keepdim, const At& at) {
  check_together(at, {&a});
  const Shape over = checked_axes(axes, a.dim(), at);
  for (std::int64_t axis : over)
    if (a.shape()[static_cast<int>(axis)] == 0)
      fail(at, {"an empty axis has no largest or smallest element: the shape is ", a.shape()});
  return record<R>(reduced<F>(a, over, a.dtype(), keepdim), {&a}, at.loc, {0, over});
}

inline Tensor Tensor::amax(Dims axes, ReduceOptions options, Loc loc) const {
  return extreme<rule::AMax, formula::Max>(*this, axes, options.keepdim, {"amax", loc});
}

inline Tensor Tensor::amin(Dims axes, ReduceOptions options, Loc loc) const {
  return extreme<rule::AMin, formula::Min>(*this, axes, options.keepdim, {"amin", loc});
}

inline Tensor Tensor::max(Loc loc) const {
  return titled("MaxBackward1", extreme<rule::AMax, formula::Max>(*this, {}, false, {"max", loc}));
}
inline Tensor Tensor::min(Loc loc) const {
  return titled("MinBackward1", extreme<rule::AMin, formula::Min>(*this, {}, false, {"min", loc}));
}

template <class F>
ValuesIndices extreme_along(const Tensor& a, Extent axis, bool keepdim, const At& at) {
  check_together(at, {&a});
  const int over = checked_axis(axis, a.dim(), at);
  const Tensor x = a.dim() == 0 ? a.detach(at.loc).reshape({1}, at.loc) : a;
  if (x.shape()[over] == 0)
    fail(at, {"an empty axis has no largest or smallest element: the shape is ", a.shape()});
  const Shape kept = kept_shape(x.shape(), {over});
  Tensor values = fresh(kept, a.dtype(), a.device(), at);
  Tensor indices = fresh(kept, int64, a.device(), at);
  reduce_arg<F>(values.elements(), indices.elements(), x.elements(), over);
  if (keepdim && a.dim() > 0) return {values, indices};
  return {dropped(std::move(values), {over}), dropped(std::move(indices), {over})};
}

inline ValuesIndices Tensor::max(Extent axis, ReduceOptions options, Loc loc) const {
  auto [values, indices] = extreme_along<formula::Max>(*this, axis, options.keepdim, {"max", loc});
  return {record<rule::MaxAlong>(values, {this}, loc,
                                 {0, {checked_axis(axis, dim(), {"max", loc})}}, &indices),
          indices};
}

inline ValuesIndices Tensor::min(Extent axis, ReduceOptions options, Loc loc) const {
  auto [values, indices] = extreme_along<formula::Min>(*this, axis, options.keepdim, {"min", loc});
  return {record<rule::MinAlong>(values, {this}, loc,
                                 {0, {checked_axis(axis, dim(), {"min", loc})}}, &indices),
          indices};
}

inline Tensor Tensor::argmax(Extent axis, ReduceOptions options, Loc loc) const {
  const Tensor indices =
      extreme_along<formula::Max>(*this, axis, options.keepdim, {"argmax", loc}).indices;
  return record<rule::ArgMax>(indices, {this}, loc,
                              {0, {checked_axis(axis, dim(), {"argmax", loc})}});
}

inline void rule::ExtremeAlong::backward() {
  const int axis = static_cast<int>(dims()[0]);
  const Shape whole = shape(0);
  if (whole.empty()) return give(0, dy);
  Shape kept = whole;
  kept[axis] = 1;
  give(0, scatter_new(dy.reshape(kept), index().reshape(kept), whole, axis));
}

inline Tensor sum(const Tensor& x, Dims axes = {}, SumOptions options = {}, Loc loc = Loc::here()) {
  return x.sum(axes, options, loc);
}

inline Tensor mean(const Tensor& x, Dims axes = {}, SumOptions options = {},
                   Loc loc = Loc::here()) {
  return x.mean(axes, options, loc);
}

inline Tensor amax(const Tensor& x, Dims axes = {}, ReduceOptions options = {},
                   Loc loc = Loc::here()) {
  return x.amax(axes, options, loc);
}

inline Tensor amin(const Tensor& x, Dims axes = {}, ReduceOptions options = {},
                   Loc loc = Loc::here()) {
  return x.amin(axes, options, loc);
}

inline Tensor max(const Tensor& x, Loc loc = Loc::here()) { return x.max(loc); }

inline ValuesIndices max(const Tensor& x, Extent axis, ReduceOptions options = {},
                         Loc loc = Loc::here()) {
  return x.max(axis, options, loc);
}

inline Tensor min(const Tensor& x, Loc loc = Loc::here()) { return x.min(loc); }

inline ValuesIndices min(const Tensor& x, Extent axis, ReduceOptions options = {},
                         Loc loc = Loc::here()) {
  return x.min(axis, options, loc);
}

inline Tensor argmax(const Tensor& x, Extent axis, ReduceOptions options = {},
                     Loc loc = Loc::here()) {
  return x.argmax(axis, options, loc);
}

// ---- Matrix product -----------------------------------------------------------------------------
//
// y[i,j] = sum over k of a[i,k] * b[k,j]; leading axes are a batch and broadcast. A vector counts
// as a row on the left and as a column on the right, and its axis is dropped from the result.

namespace rule {
struct MatMul : Rule {
  static constexpr Facts facts = {
      .name = "matmul",
      .symbol = "@",
      .formula = "sum over k of a[i,k] * b[k,j]",
      .derivatives = {"sum over j of dy[i,j] * b[k,j]", "sum over i of a[i,k] * dy[i,j]"},
      .node = "MmBackward0"};
  void backward();
};
}  // namespace rule

// [n, k] x [k, m] -> [n, m]; [k] counts as [1, k] on the left and as [k, 1] on the right, and that
// axis is dropped again; leading axes broadcast: [b, n, k] x [k, m] -> [b, n, m].
inline Tensor Tensor::matmul(const Tensor& other, Loc loc) const {
  const At at{"matmul", loc};
  check_together(at, {this, &other});
  if (dim() == 0 || other.dim() == 0)
    fail(at, {"both inputs need at least one axis: ", shape(), " x ", other.shape()},
         {"multiply by a number with *"});
  if (dtype() != other.dtype())
    fail(at, {"the dtypes differ: ", dtype(), " and ", other.dtype()},
         {"convert one with .to(", promote(*this, other), ")"});
  if (dtype() == boolean) fail(at, {"it takes numbers, not bools"}, {"convert with .to(float32)"});
  View a = elements(), b = other.elements();
  if (dim() == 1) a.shape.insert(0, 1), a.strides.insert(0, 0);
  if (other.dim() == 1) b.shape.push_back(1), b.strides.push_back(0);
  const int da = a.shape.size(), db = b.shape.size();
  const std::int64_t n = a.shape[da - 2], k = a.shape[da - 1], m = b.shape[db - 1];
  if (k != b.shape[db - 2])
    fail(at,
         {"inner sizes differ: ", shape(), " x ", other.shape(), " (", k, " vs ", b.shape[db - 2],
          ")"},
         {"transpose the second?"});
  Shape batch_a = a.shape, batch_b = b.shape;
  for (int i = 0; i < 2; ++i) batch_a.erase(batch_a.size() - 1), batch_b.erase(batch_b.size() - 1);
  Shape to = broadcast_shapes(batch_a, batch_b, at);
  auto with = [&](std::int64_t rows, std::int64_t columns) {
    Shape s = to;
    s.push_back(rows);
    s.push_back(columns);
    return s;
  };
  Tensor y = fresh(with(n, m), dtype(), device(), at);
  minitensor::matmul(y.elements(), minitensor::broadcast_to(a, with(n, k)),
                     minitensor::broadcast_to(b, with(k, m)));
  Shape unused;
  if (dim() == 1) unused.push_back(y.dim() - 2);
  if (other.dim() == 1) unused.push_back(y.dim() - 1);
  const char* title = dim() == 1 && other.dim() == 1   ? "DotBackward0"
                      : dim() == 2 && other.dim() == 1 ? "MvBackward0"
                      : dim() > 2 || other.dim() > 2   ? "UnsafeViewBackward0"
                                                       : nullptr;
  return titled(title, record<rule::MatMul>(dropped(std::move(y), unused), {this, &other}, loc));
}

inline Tensor matmul(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.matmul(b, loc);
}

inline void rule::MatMul::backward() {
  const Shape sa = shape(0), sb = shape(1);
  const int da = sa.size(), db = sb.size();
  // Vectors as matrices, as in the forward direction.
  Tensor g = dy;
  if (da == 1) g = g.unsqueeze(db == 1 ? -1 : -2);
  if (db == 1) g = g.unsqueeze(-1);
  if (wants(0)) {
    const Tensor bt = db == 1 ? b().unsqueeze(0) : b().transpose(-1, -2);
    const Tensor ga = g.matmul(bt);
    give(0, da == 1 ? ga.squeeze(-2) : ga);
  }
  if (wants(1)) {
    const Tensor x = da == 1 ? a().unsqueeze(0) : a();
    if (db == 2 && da > 2) {  // one large product rather than a batch of them and a sum
      Shape rows = sa;
      rows.erase(da - 1);
      const Tensor tall = x.reshape({rows.numel(), sa[da - 1]});
      give(1, tall.t().matmul(g.reshape({rows.numel(), sb[1]})));
    } else {
      const Tensor gb = x.transpose(-1, -2).matmul(g);
      give(1, db == 1 ? gb.squeeze(-1) : gb);
    }
  }
}

// ---- Views: other numbers, the same memory ------------------------------------------------------

namespace rule {
struct ShapeOnly : Rule {  // the elements keep their order
  void backward() { give(0, dy.reshape(shape(0))); }
};
struct Reshape : ShapeOnly {
  static constexpr Facts facts = {.name = "reshape",
                                  .symbol = "reshape",
                                  .formula = "a reshaped",
                                  .derivatives = {"dy reshaped back"},
                                  .attributes = "shape",
                                  .node = "ViewBackward0"};
};
struct Squeeze : ShapeOnly {
  static constexpr Facts facts = {.name = "squeeze",
                                  .symbol = "squeeze",
                                  .formula = "a reshaped",
                                  .derivatives = {"dy reshaped back"},
                                  .node = "SqueezeBackward0"};
};
struct Unsqueeze : ShapeOnly {
  static constexpr Facts facts = {.name = "unsqueeze",
                                  .symbol = "unsqueeze",
                                  .formula = "a reshaped",
                                  .derivatives = {"dy reshaped back"},
                                  .attributes = "axis",
                                  .node = "UnsqueezeBackward0"};
};
struct Expand : Rule {  // give() sums over the repeated axes
  static constexpr Facts facts = {.name = "expand",
                                  .symbol = "expand",
                                  .formula = "a repeated",
                                  .derivatives = {"sum over the repeated axes of dy"},
                                  .attributes = "shape",
                                  .node = "ExpandBackward0"};
  void backward() { give(0, dy); }
};
struct Permute : Rule {
  static constexpr Facts facts = {.name = "permute",
                                  .symbol = "permute",
                                  .formula = "a with its axes reordered",
                                  .derivatives = {"dy with its axes put back"},
                                  .attributes = "axes",
                                  .node = "PermuteBackward0"};
  void backward() {
    Shape back = dims();
    for (int i = 0; i < dims().size(); ++i) back[static_cast<int>(dims()[i])] = i;
    give(0, dy.permute(back));
  }
};
struct Transpose : Rule {
  static constexpr Facts facts = {.name = "transpose",
                                  .symbol = "ᵀ",
                                  .formula = "transpose(a)",
                                  .derivatives = {"transpose(dy)"},
                                  .attributes = "axis other",
                                  .node = "TransposeBackward0"};
  void backward() { give(0, dy.transpose(dims()[0], dims()[1])); }
};
}  // namespace rule

inline Tensor view_of(const Tensor& x, const Shape& shape, const Shape& strides,
                      std::int64_t offset) {
  static_cast<void>(
      x.node());  // brought up to date first, so that the view starts from the same history
  const TensorData& from = x.get();
  std::byte* const first = from.storage->data + offset * bytes_of(from.dtype);
  Ref<TensorData> to =
      Ref<TensorData>::make(View{first, from.dtype, shape, strides, from.device}, from.storage);
  to->base = from.base ? from.base : x.handle();
  to->rewrites = to->base->rewrites.load();
  return Tensor(std::move(to));
}

// The strides with which `shape` reads the same elements in the same order, if there are any: each
// new axis must lie within a run of old axes that follow one another in memory.
inline std::optional<Shape> reshaped_strides(const Shape& old_shape, const Shape& old_strides,
                                             const Shape& shape) {
  if (shape.numel() == 0) return contiguous_strides(shape);
  Shape strides = Shape::filled(shape.size(), 1);
  int to = shape.size() - 1;
  // Elements in the run of old axes so far, and its innermost stride.
  std::int64_t run = 1, base = 1;
  bool started = false;
  std::int64_t taken = 1;  // elements of that run that the new axes have used
  for (int from = old_shape.size() - 1; from >= -1; --from) {
    if (from >= 0 && old_shape[from] == 1) continue;
    const bool joins = from >= 0 && started && old_strides[from] == base * run;
    if (!joins && started) {  // the run ends here: the new axes have to use it up exactly
      while (to >= 0 && (taken < run || shape[to] == 1)) {
        strides[to] = base * taken;
        taken *= shape[to--];
      }
      if (taken != run) return std::nullopt;
    }
    if (from < 0) break;
    if (!joins) base = old_strides[from], run = 1, taken = 1, started = true;
    run *= old_shape[from];
  }
  return strides;
}

// A shape with one size left open (-1), completed.
inline Shape completed_shape(Shape shape, std::int64_t numel, const At& at) {
  int open = -1;
  Shape known = shape;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) continue;
    if (open >= 0) fail(at, {"only one size can be left open (-1): ", shape});
    open = i;
    known[i] = 1;
  }
  check_sizes(known, at);  // a product that wraps around could equal numel
  const std::int64_t rest = known.numel();
  if (open >= 0 && rest > 0 && numel % rest == 0) shape[open] = numel / rest;
  if (shape.numel() != numel || (open >= 0 && rest == 0))
    fail(at, {numel, " elements do not fill the shape ", shape});
  return shape;
}

inline Tensor Tensor::view(Shape to, Loc loc) const {
  const At at{"view", loc};
  check_together(at, {this});
  to = completed_shape(to, numel(), at);
  const std::optional<Shape> strides = reshaped_strides(get().shape, get().strides, to);
  if (!strides)
    fail(at,
         {"the elements of ", shape(), " with strides ", stride(), " can't be read as ", to,
          " without copying"},
         {"write reshape(), which copies where it must"});
  return record<rule::Reshape>(view_of(*this, to, *strides, storage_offset()), {this}, loc,
                               {0, to});
}

inline Tensor Tensor::reshape(Shape to, Loc loc) const {
  const At at{"reshape", loc};
  check_together(at, {this});
  to = completed_shape(to, numel(), at);
  if (const std::optional<Shape> strides = reshaped_strides(get().shape, get().strides, to))
    return record<rule::Reshape>(view_of(*this, to, *strides, storage_offset()), {this}, loc,
                                 {0, to});
  Tensor y = copy_of(*this, dtype(), device(), at);
  y.get().shape = to;
  y.get().strides = contiguous_strides(to);
  return titled("UnsafeViewBackward0", record<rule::Reshape>(std::move(y), {this}, loc, {0, to}));
}

inline Tensor Tensor::flatten(Extent from, Extent to, Loc loc) const {
  const At at{"flatten", loc};
  check_together(at, {this});
  const int first = checked_axis(from, dim(), at), last = checked_axis(to, dim(), at);
  if (dim() == 0) return reshape({1}, loc);
  if (first > last) fail(at, {"the first axis comes after the last one"});
  if (first == last) return *this;
  Shape shape;
  for (int i = 0; i < dim(); ++i) {
    if (i > first && i <= last)
      shape[first] *= get().shape[i];
    else
      shape.push_back(get().shape[i]);
  }
  return reshape(shape, loc);
}

inline Tensor Tensor::permute(Dims axes, Loc loc) const {
  const At at{"permute", loc};
  check_together(at, {this});
  if (axes.size() != dim()) fail(at, {axes, " does not name each of the ", dim(), " axes once"});
  Shape order, shape, strides;
  for (std::int64_t given : axes) {
    const int axis = checked_axis(given, dim(), at);
    if (order.contains(axis)) fail(at, {"an axis is named twice: ", axes});
    order.push_back(axis);
    shape.push_back(get().shape[axis]);
    strides.push_back(get().strides[axis]);
  }
  return record<rule::Permute>(view_of(*this, shape, strides, storage_offset()), {this}, loc,
                               {0, order});
}

inline Tensor Tensor::transpose(Extent axis, Extent other, Loc loc) const {
  const At at{"transpose", loc};
  check_together(at, {this});
  const int i = checked_axis(axis, dim(), at), j = checked_axis(other, dim(), at);
  Shape shape = get().shape, strides = get().strides;
  if (dim() > 0) {
    std::swap(shape[i], shape[j]);
    std::swap(strides[i], strides[j]);
  }
  return record<rule::Transpose>(view_of(*this, shape, strides, storage_offset()), {this}, loc,
                                 {0, {i, j}});
}

inline Tensor Tensor::t(Loc loc) const {
  if (dim() > 2)
    fail({"t", loc}, {"it takes at most two axes, not ", shape()}, {"write transpose(-1, -2)"});
  return titled("TBackward0", dim() < 2 ? view(shape(), loc) : transpose(0, 1, loc));
}

inline Tensor Tensor::expand(Shape to, Loc loc) const {
  const At at{"expand", loc};
  check_together(at, {this});
  const int added = to.size() - dim();
  if (added < 0)
    fail(at, {shape(), " can't be expanded to ", to},
         {"the new shape needs at least as many axes"});
  for (int i = 0; i < to.size(); ++i) {
    const std::int64_t size = i < added ? 1 : get().shape[i - added];
    if (to[i] == -1 && i >= added) to[i] = size;
    if (to[i] < 0 || (size != 1 && size != to[i]))
      fail(at, {shape(), " can't be expanded to ", to}, {"only axes of size 1 can be repeated"});
  }
  check_sizes(to, at);
  Shape strides = to;  // an axis that is not repeated keeps its own, also where it has one element
  for (int i = to.size() - 1; i >= 0; --i) {
    const std::int64_t size = i < added ? 1 : get().shape[i - added];
    strides[i] = to[i] != size ? 0
                 : i >= added  ? get().strides[i - added]
                 : dim() > 0   ? to[i + 1] * strides[i + 1]
                               : 0;
  }
  return record<rule::Expand>(view_of(*this, to, strides, storage_offset()), {this}, loc, {0, to});
}

inline Tensor Tensor::squeeze(Loc loc) const {
  check_together({"squeeze", loc}, {this});
  Shape shape, strides;
  for (int i = 0; i < dim(); ++i) {
    if (get().shape[i] == 1) continue;
    shape.push_back(get().shape[i]);
    strides.push_back(get().strides[i]);
  }
  return record<rule::Squeeze>(view_of(*this, shape, strides, storage_offset()), {this}, loc);
}

inline Tensor Tensor::squeeze(Extent axis, Loc loc) const {
  const At at{"squeeze", loc};
  check_together(at, {this});
  const int i = checked_axis(axis, dim(), at);
  Shape shape = get().shape, strides = get().strides;
  if (dim() > 0 && shape[i] == 1) shape.erase(i), strides.erase(i);
  return titled(
      "SqueezeBackward1",
      record<rule::Squeeze>(view_of(*this, shape, strides, storage_offset()), {this}, loc));
}

inline Tensor Tensor::unsqueeze(Extent axis, Loc loc) const {
  const At at{"unsqueeze", loc};
  check_together(at, {this});
  if (dim() == Shape::capacity) fail(at, {"a tensor has at most 8 dimensions"});
  const int i = checked_axis(axis, dim() + 1, at);
  Shape shape = get().shape, strides = get().strides;
  strides.insert(i, i < dim() ? shape[i] * strides[i] : 1);
  shape.insert(i, 1);
  return record<rule::Unsqueeze>(view_of(*this, shape, strides, storage_offset()), {this}, loc,
                                 {0, {i}});
}

inline Tensor reshape(const Tensor& x, Shape shape, Loc loc = Loc::here()) {
  return x.reshape(shape, loc);
}

inline Tensor flatten(const Tensor& x, Extent from = 0, Extent to = -1, Loc loc = Loc::here()) {
  return x.flatten(from, to, loc);
}

inline Tensor transpose(const Tensor& x, Extent axis, Extent other, Loc loc = Loc::here()) {
  return x.transpose(axis, other, loc);
}

inline Tensor permute(const Tensor& x, Dims axes, Loc loc = Loc::here()) {
  return x.permute(axes, loc);
}

inline Tensor squeeze(const Tensor& x, Loc loc = Loc::here()) { return x.squeeze(loc); }

inline Tensor squeeze(const Tensor& x, Extent axis, Loc loc = Loc::here()) {
  return x.squeeze(axis, loc);
}

inline Tensor unsqueeze(const Tensor& x, Extent axis, Loc loc = Loc::here()) {
  return x.unsqueeze(axis, loc);
}

// ---- Indexing: views of a part ------------------------------------------------------------------

namespace rule {
struct Select : Rule {
  static constexpr Facts facts = {.name = "select",
                                  .symbol = "[i]",
                                  .formula = "a[n]",
                                  .derivatives = {"dy in its place, else 0"},
                                  .attributes = "axis index",
                                  .node = "SelectBackward0"};
  void backward() {
    const Tensor whole = zeros(shape(0), {.dtype = dy.dtype(), .device = dy.device()});
    whole.select(dims()[0], dims()[1]).copy_(dy);
    give(0, whole);
  }
};
struct Slice : Rule {
  static constexpr Facts facts = {.name = "slice",
                                  .symbol = "[:]",
                                  .formula = "a[start:stop:step]",
                                  .derivatives = {"dy in its place, else 0"},
                                  .attributes = "axis start stop step",
                                  .node = "SliceBackward0"};
  void backward() {
    const Tensor whole = zeros(shape(0), {.dtype = dy.dtype(), .device = dy.device()});
    whole.slice(dims()[0], dims()[1], dims()[2], dims()[3]).copy_(dy);
    give(0, whole);
  }
};
}  // namespace rule

inline Tensor Tensor::select(Extent axis, Extent index, Loc loc) const {
  const At at{"select", loc};
  check_together(at, {this});
  if (dim() == 0) fail(at, {"a 0-d tensor has no axis to index"}, {"use item() to read its value"});
  const int a = checked_axis(axis, dim(), at);
  const std::int64_t size = get().shape[a];
  if (index < -size || index >= size)
    fail(at, {"index ", index, " is out of range for size ", size, " of ", shape()});
  const std::int64_t i = index < 0 ? index + size : std::int64_t{index};
  Shape shape = get().shape, strides = get().strides;
  const std::int64_t offset = storage_offset() + i * strides[a];
  shape.erase(a);
  strides.erase(a);
  return record<rule::Select>(view_of(*this, shape, strides, offset), {this}, loc, {0, {a, i}});
}

inline Tensor Tensor::operator[](const First& index) const {
  return select(0, index.value(), index.loc);
}

inline Tensor Tensor::at(Shape index, Loc loc) const {
  if (index.size() > dim())
    fail({"at", loc}, {index, " has more indices than ", shape(), " has axes"});
  Tensor x = *this;
  for (std::int64_t i : index) x = x.select(0, i, loc);
  return x;
}
// Elements start, start + step, ... below stop; negative ones count from the back, as in Python.
inline Tensor Tensor::slice(Extent axis, Extent start, std::optional<std::int64_t> stop,
                            Extent step, Loc loc) const {
  const At at{"slice", loc};
  check_together(at, {this});
  if (dim() == 0) fail(at, {"a 0-d tensor has no axis to slice"});
  if (step < 1) fail(at, {"the step is ", step, ", it has to be positive"});
  const int a = checked_axis(axis, dim(), at);
  const std::int64_t size = get().shape[a];
  auto inside = [&](std::int64_t i) {
    return std::clamp(i < 0 ? i + size : i, std::int64_t{0}, size);
  };
  const std::int64_t from = inside(start), to = std::max(from, inside(stop.value_or(size)));
  Shape shape = get().shape, strides = get().strides;
  const std::int64_t offset = storage_offset() + (to > from ? from * strides[a] : 0);
  shape[a] = to > from ? (to - from - 1) / step + 1 : 0;
  if (shape[a] > 1) strides[a] *= step;
  return record<rule::Slice>(view_of(*this, shape, strides, offset), {this}, loc,
                             {0, {a, from, to, std::int64_t{step}}});
}

inline Tensor Tensor::narrow(Extent axis, Extent start, Extent length, Loc loc) const {
  const At at{"narrow", loc};
  check_together(at, {this});
  const std::int64_t size = this->size(axis, loc),
                     from = start < 0 ? start + size : std::int64_t{start};
  if (length < 0 || from < 0 || from > size || length > size - from)
    fail(at, {"start ", start, " and length ", length, " leave the size ", size});
  return slice(axis, from, from + length, 1, loc);
}

class Tensor::Rows {  // for (Tensor row : x)
 public:
  using difference_type = std::int64_t;
  using value_type = Tensor;
  Rows(Tensor x, std::int64_t i, Loc loc) : x_(std::move(x)), i_(i), loc_(loc) {}
  Tensor operator*() const { return x_.select(0, i_, loc_); }
  Rows& operator++() {
    ++i_;
    return *this;
  }
  bool operator==(const Rows& other) const { return i_ == other.i_; }

 private:
  Tensor x_;
  std::int64_t i_;
  Loc loc_;
};

inline Tensor::Rows Tensor::begin(Loc loc) const { return {*this, 0, loc}; }
inline Tensor::Rows Tensor::end(Loc loc) const { return {*this, size(0, loc), loc}; }

// ---- More views ---------------------------------------------------------------------------------

namespace rule {
struct Diagonal : Rule {
  static constexpr Facts facts = {.name = "diagonal",
                                  .symbol = "diag",
                                  .formula = "the diagonal of a",
                                  .derivatives = {"dy on the diagonal, else 0"},
                                  .attributes = "offset axis other",
                                  .node = "DiagonalBackward0"};
  void backward() {
    const Tensor whole = zeros(shape(0), {.dtype = dy.dtype(), .device = dy.device()});
    whole.diagonal(dims()[0], dims()[1], dims()[2]).copy_(dy);
    give(0, whole);
  }
};
struct Unfold : Rule {  // an element that lies in several windows receives the sum
  static constexpr Facts facts = {.name = "unfold",
                                  .symbol = "unfold",
                                  .formula = "windows of a",
                                  .derivatives = {"dy of all windows, added up"},
                                  .attributes = "axis size step",
                                  .node = "UnfoldBackward0"};
  void backward() {
    const std::int64_t axis = dims()[0], size = dims()[1], step = dims()[2];
    const std::int64_t reach = (dy.size(axis) - 1) * step + 1;
    const Tensor whole = zeros(shape(0), {.dtype = dy.dtype(), .device = dy.device()});
    for (std::int64_t k = 0; k < size; ++k)
      whole.slice(axis, k, k + reach, step) += dy.select(-1, k);
    give(0, whole);
  }
};
struct Pad : Rule {  // to take away is to add a negative amount
  static constexpr Facts facts = {.name = "pad",
                                  .symbol = "pad",
                                  .formula = "a with n around it",
                                  .derivatives = {"its part of dy"},
                                  .attributes = "n pads",
                                  .node = "ConstantPadNdBackward0"};
  void backward();
};
}  // namespace rule

// The elements [i, i + offset] of two axes, as a new last axis. A view.
inline Tensor Tensor::diagonal(Extent offset, Extent axis, Extent other, Loc loc) const {
  const At at{"diagonal", loc};
  check_together(at, {this});
  if (dim() < 2) fail(at, {"it takes at least two axes, not ", shape()});
  const int i = checked_axis(axis, dim(), at), j = checked_axis(other, dim(), at);
  if (i == j) fail(at, {"an axis is named twice: ", Shape(i, j)});
  Shape shape = get().shape, strides = get().strides;
  const std::int64_t down = std::max<std::int64_t>(0, -offset), right = down + offset;
  const std::int64_t length =
      std::max<std::int64_t>(0, std::min(shape[i] - down, shape[j] - right));
  const std::int64_t first = length ? down * strides[i] + right * strides[j] : 0;
  const std::int64_t step = strides[i] + strides[j];
  for (Shape* list : {&shape, &strides}) list->erase(std::max(i, j)), list->erase(std::min(i, j));
  shape.push_back(length);
  strides.push_back(step);
  return record<rule::Diagonal>(view_of(*this, shape, strides, storage_offset() + first), {this},
                                loc, {0, {std::int64_t{offset}, i, j}});
}
// Windows of `size` elements along an axis, one every `step`; they become a new last axis. A view:
// [7] with size 3 and step 2 -> [3, 3].
inline Tensor Tensor::unfold(Extent axis, Extent size, Extent step, Loc loc) const {
  const At at{"unfold", loc};
  check_together(at, {this});
  if (dim() == 0) fail(at, {"a 0-d tensor has no axis to unfold"});
  const int along = checked_axis(axis, dim(), at);
  Shape shape = get().shape, strides = get().strides;
  if (step < 1) fail(at, {"the step is ", step, ", it has to be positive"});
  if (size < 0 || size > shape[along])
    fail(at, {"a window of ", size, " does not fit into a size of ", shape[along]});
  shape[along] = (shape[along] - size) / step + 1;
  shape.push_back(size);
  strides.push_back(strides[along]);
  strides[along] *= step;
  return record<rule::Unfold>(view_of(*this, shape, strides, storage_offset()), {this}, loc,
                              {0, {along, std::int64_t{size}, std::int64_t{step}}});
}
inline Tensor Tensor::unflatten(Extent axis, Shape sizes, Loc loc) const {
  const At at{"unflatten", loc};
  check_together(at, {this});
  if (dim() == 0) fail(at, {"a 0-d tensor has no axis to divide"});
  const int along = checked_axis(axis, dim(), at);
  sizes = completed_shape(sizes, get().shape[along], at);
  Shape to = shape();
  to.erase(along);
  for (int i = 0; i < sizes.size(); ++i) to.insert(along + i, sizes[i]);
  return view(to, loc);
}
inline Tensor Tensor::movedim(Dims from, Dims to, Loc loc) const {
  const At at{"movedim", loc};
  check_together(at, {this});
  if (from.size() != to.size())
    fail(at, {from, " and ", to, " do not name the same number of axes"});
  Shape order = Shape::filled(dim(), -1);
  bool moved[Shape::capacity] = {};
  for (int i = 0; i < from.size(); ++i) {
    const int source = checked_axis(from[i], dim(), at), target = checked_axis(to[i], dim(), at);
    if (dim() == 0) continue;
    if (moved[source] || order[target] >= 0)
      fail(at, {"an axis is named twice: ", from, " to ", to});
    moved[source] = true;
    order[target] = source;
  }
  for (int source = 0, target = 0; source < dim(); ++source) {  // the others keep their order
    if (moved[source]) continue;
    while (order[target] >= 0) ++target;
    order[target] = source;
  }
  return permute(order, loc);
}
inline Tensor Tensor::expand_as(const Tensor& other, Loc loc) const {
  check_together({"expand_as", loc}, {this, &other});
  return expand(other.shape(), loc);
}
inline Tensor Tensor::broadcast_to(Shape shape, Loc loc) const { return expand(shape, loc); }

// How much there is to split along an axis; messages name who asked.
inline std::int64_t size_to_split(const Tensor& x, Extent axis, const At& at) {
  check_together(at, {&x});
  const int place = checked_axis(axis, x.dim(), at);
  if (x.dim() == 0) fail(at, {"a 0-d tensor has no axes"}, {"unsqueeze(0) gives it one"});
  return x.shape()[place];
}

inline std::vector<Tensor> Tensor::split(Dims sizes, Extent axis, Loc loc) const {
  const At at{"split", loc};
  const std::int64_t whole = size_to_split(*this, axis, at);
  std::int64_t start = 0, total = 0;
  for (std::int64_t size : sizes) {
    if (size < 0) fail(at, {"a size is negative: ", sizes});
    total += size;
  }
  if (total != whole) fail(at, {"the sizes ", sizes, " do not add up to ", whole});
  std::vector<Tensor> parts;
  for (std::int64_t size : sizes) {
    parts.push_back(titled("SplitWithSizesBackward0", narrow(axis, start, size, loc)));
    start += size;
  }
  return parts;
}
// Parts of `size` along an axis; the last one has what is left. Views.
inline std::vector<Tensor> Tensor::split(std::int64_t size, Extent axis, Loc loc) const {
  const At at{"split", loc};
  const std::int64_t whole = size_to_split(*this, axis, at);
  if (size < 1) fail(at, {"the size is ", size, ", it has to be positive"});
  std::vector<Tensor> parts;
  for (std::int64_t start = 0; start < std::max<std::int64_t>(whole, 1); start += size)
    parts.push_back(titled("SplitBackward0", slice(axis, start, start + size, 1, loc)));
  return parts;
}
// As many parts of equal size as there are, at most `count`. Views.
inline std::vector<Tensor> Tensor::chunk(Extent count, Extent axis, Loc loc) const {
  const At at{"chunk", loc};
  const std::int64_t whole = size_to_split(*this, axis, at);
  if (count < 1) fail(at, {"the count is ", count, ", it has to be positive"});
  if (whole > 0) return split((whole - 1) / count + 1, axis, loc);
  std::vector<Tensor> parts;  // of nothing there are as many as asked for
  for (std::int64_t i = 0; i < count; ++i) parts.push_back(narrow(axis, 0, 0, loc));
  return parts;
}
inline std::vector<Tensor> Tensor::unbind(Extent axis, Loc loc) const {
  const std::int64_t count = size_to_split(*this, axis, {"unbind", loc});
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < count; ++i)
    parts.push_back(titled("UnbindBackward0", select(axis, i, loc)));
  return parts;
}

// Whether this number is one of the two that bools are written as: pad(mask, {1, 1}) fills with 0.
inline bool is_truth(Scalar number, DType dtype) {
  return dtype == boolean && number.dtype() == int64 && (number.real() == 0 || number.real() == 1);
}

// Elements of the value n around x: pairs of counts before and after, the last axis first, as in
// {left, right, top, bottom}. A negative count takes away.
inline Tensor pad(const Tensor& x, Dims pads, Scalar value = 0, Loc loc = Loc::here()) {
  const At at{"pad", loc};
  check_together(at, {&x});
  if (pads.size() % 2 || pads.size() > 2 * x.dim())
    fail(at, {pads, " are not pairs for some of the axes of ", x.shape()},
         {"write {left, right, top, bottom}, the last axis first"});
  if (kind_of(value.dtype()) > kind_of(x.dtype()) && !is_truth(value, x.dtype()))
    fail(at, {"a ", value.dtype(), " value can't be written into ", x.dtype()});
  Shape shape = x.shape();
  for (int k = 0; 2 * k < pads.size(); ++k) {
    std::int64_t& size = shape[x.dim() - 1 - k];
    const std::int64_t before = pads[2 * k], after = pads[2 * k + 1];
    constexpr std::int64_t most = std::int64_t{1} << 60;
    if (std::min(before, after) < -most || std::max(before, after) > most)
      fail(at, {pads, " are too many elements for any memory"});
    if (size + std::min<std::int64_t>(0, before) + std::min<std::int64_t>(0, after) < 0)
      fail(at, {pads, " take away more than there is of ", x.shape()});
    size += before + after;
  }
  Tensor y = fresh(shape, x.dtype(), x.device(), at);
  fill(y.elements(), value);
  {
    const Unseen inside(loc);
    Tensor from = x, to = y;  // what stays of x, and where it goes
    for (int k = 0; 2 * k < pads.size(); ++k) {
      const int axis = x.dim() - 1 - k;
      const std::int64_t before = pads[2 * k], after = pads[2 * k + 1];
      from = from.slice(axis, std::max<std::int64_t>(0, -before),
                        x.shape()[axis] + std::min<std::int64_t>(0, after));
      to = to.slice(axis, std::max<std::int64_t>(0, before),
                    shape[axis] - std::max<std::int64_t>(0, after));
    }
    copy(to.elements(), from.elements());
  }
  return record<rule::Pad>(std::move(y), {&x}, loc, {value.real(), pads});
}
inline void rule::Pad::backward() {
  Shape back = dims();
  for (int i = 0; i < back.size(); ++i) back[i] = -back[i];
  give(0, pad(dy, back));
}

inline Tensor unflatten(const Tensor& x, Extent axis, Shape sizes, Loc loc = Loc::here()) {
  return x.unflatten(axis, sizes, loc);
}
inline Tensor movedim(const Tensor& x, Dims from, Dims to, Loc loc = Loc::here()) {
  return x.movedim(from, to, loc);
}
inline Tensor broadcast_to(const Tensor& x, Shape shape, Loc loc = Loc::here()) {
  return x.broadcast_to(shape, loc);
}
inline std::vector<Tensor> split(const Tensor& x, std::int64_t size, Extent axis = 0,
                                 Loc loc = Loc::here()) {
  return x.split(size, axis, loc);
}
inline std::vector<Tensor> split(const Tensor& x, Dims sizes, Extent axis = 0,
                                 Loc loc = Loc::here()) {
  return x.split(sizes, axis, loc);
}
inline std::vector<Tensor> chunk(const Tensor& x, Extent count, Extent axis = 0,
                                 Loc loc = Loc::here()) {
  return x.chunk(count, axis, loc);
}
inline std::vector<Tensor> unbind(const Tensor& x, Extent axis = 0, Loc loc = Loc::here()) {
  return x.unbind(axis, loc);
}
inline Tensor diagonal(const Tensor& x, Extent offset = 0, Extent axis = 0, Extent other = 1,
                       Loc loc = Loc::here()) {
  return x.diagonal(offset, axis, other, loc);
}

// ---- Copies -------------------------------------------------------------------------------------

namespace rule {
struct Clone : Rule {
  static constexpr Facts facts = {.name = "clone",
                                  .symbol = "copy",
                                  .formula = "a",
                                  .derivatives = {"dy"},
                                  .node = "CloneBackward0"};
  void backward() { give(0, dy); }
};
struct Detach : Rule {
  static constexpr Facts facts = {.name = "detach", .symbol = "detach", .formula = "a"};
  void backward() {}
};
struct To : Rule {  // give() converts back
  static constexpr Facts facts = {.name = "to",
                                  .symbol = "to",
                                  .formula = "a",
                                  .derivatives = {"dy"},
                                  .node = "ToCopyBackward0"};
  void backward();
};
struct Cat : Rule {
  static constexpr Facts facts = {.name = "cat",
                                  .symbol = "cat",
                                  .formula = "the inputs, one after another",
                                  .derivatives = {"its part of dy"},
                                  .attributes = "axis",
                                  .node = "CatBackward0"};
  void backward() {
    const int axis = static_cast<int>(dims()[0]);
    std::int64_t start = 0;
    for (int slot = 0; slot < input_count(); ++slot) {
      const bool passed_over = shape(slot) == Shape(0);
      const std::int64_t size = passed_over ? 0 : shape(slot)[axis];
      const Tensor part = dy.slice(axis, start, start + size);
      if (wants(slot)) give(slot, passed_over ? part.reshape({0}) : part);
      start += size;
    }
  }
};
struct Flip : Rule {
  static constexpr Facts facts = {.name = "flip",
                                  .symbol = "flip",
                                  .formula = "a, backwards along the axes",
                                  .derivatives = {"dy turned back"},
                                  .attributes = "axes",
                                  .node = "FlipBackward0"};
  void backward() { give(0, dy.flip(dims())); }
};
}  // namespace rule

inline Tensor Tensor::clone(Loc loc) const {
  const At at{"clone", loc};
  check_together(at, {this});
  return record<rule::Clone>(copy_of(*this, dtype(), device(), at), {this}, loc);
}

inline Tensor Tensor::contiguous(Loc loc) const { return is_contiguous() ? *this : clone(loc); }

inline Tensor Tensor::detach(Loc loc) const {
  check_together({"detach", loc}, {this});
  const NoGrad guard;
  Tensor y(Ref<TensorData>::make(get(), get().storage));
  return record<rule::Detach>(std::move(y), {this}, loc);
}

inline Tensor Tensor::to(DType dtype, Loc loc) const {
  const At at{"to", loc};
  check_together(at, {this});
  if (dtype == this->dtype()) return *this;
  return record<rule::To>(copy_of(*this, dtype, device(), at), {this}, loc);
}

inline Tensor Tensor::to(Device device, Loc loc) const {
  const At at{"to", loc};
  check_together(at, {this});
  if (device == this->device()) return *this;
  check_device(device, at);
  return record<rule::To>(copy_of(*this, dtype(), device, at), {this}, loc);
}

inline Tensor Tensor::cpu(Loc loc) const { return to(Device::cpu, loc); }
inline Tensor Tensor::cuda(Loc loc) const { return to(Device::cuda, loc); }
inline void rule::To::backward() { give(0, dy.to(device(0))); }

// A copy that runs backwards along these axes.
inline Tensor Tensor::flip(Dims axes, Loc loc) const {
  const At at{"flip", loc};
  check_together(at, {this});
  const Shape over = axes.empty() ? axes : checked_axes(axes, dim(), at);
  View from = elements();
  for (std::int64_t given : over) {
    const int axis = static_cast<int>(given);
    if (numel() > 0) from.data += (from.shape[axis] - 1) * from.strides[axis] * bytes_of(dtype());
    from.strides[axis] = -from.strides[axis];
  }
  Tensor y = fresh(shape(), dtype(), device(), at);
  minitensor::copy(y.elements(), from);
  return record<rule::Flip>(std::move(y), {this}, loc, {0, over});
}
inline Tensor flip(const Tensor& x, Dims axes, Loc loc = Loc::here()) { return x.flip(axes, loc); }

// The tensors one after another along an axis: [2, 3] and [4, 3] along 0 -> [6, 3]. One of shape
// [0] is passed over, so that a loop may begin with nothing.
inline Tensor cat(const std::vector<Tensor>& tensors, Extent axis = 0, Loc loc = Loc::here()) {
  const At at{"cat", loc};
  if (tensors.empty()) fail(at, {"it needs at least one tensor"});
  std::vector<const Tensor*> inputs;
  DType dtype = tensors[0].dtype();
  for (const Tensor& x : tensors) {
    check_together(at, {&tensors[0], &x});
    inputs.push_back(&x);
    dtype = common_dtype(dtype, x.dtype());
  }
  std::vector<Tensor> parts;
  for (const Tensor& x : tensors)
    if (x.shape() != Shape(0)) parts.push_back(x);
  Shape shape = parts.empty() ? Shape(0) : parts[0].shape();
  if (shape.empty()) fail(at, {"a 0-d tensor has no axis to join"}, {"use stack()"});
  const int along = parts.empty() ? 0 : checked_axis(axis, shape.size(), at);
  shape[along] = 0;
  for (const Tensor& x : parts) {
    Shape rest = x.shape();
    if (along < rest.size()) {
      shape[along] += rest[along];
      rest[along] = shape[along];
    }
    if (rest != shape)
      fail(at, {"only axis ", along, " may differ: ", parts[0].shape(), " and ", x.shape()});
  }
  Tensor y = fresh(shape, dtype, tensors[0].device(), at);
  View part = y.elements();
  for (const Tensor& x : parts) {
    part.shape[along] = x.shape()[along];
    copy(part, x.elements());
    part.data += part.shape[along] * part.strides[along] * bytes_of(dtype);
  }
  return record_as(recipe_of<rule::Cat>, std::move(y), inputs, loc, {0, {along}}, nullptr);
}
// The tensors side by side along a new axis: three of [2] along 0 -> [3, 2]
inline Tensor stack(const std::vector<Tensor>& tensors, Extent axis = 0, Loc loc = Loc::here()) {
  const Composed whole("stack", loc);
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) {
    check_together({"stack", loc}, {&tensors[0], &x});
    if (x.shape() != tensors[0].shape())
      fail({"stack", loc}, {"the shapes differ: ", tensors[0].shape(), " and ", x.shape()});
    rows.push_back(x.unsqueeze(axis));
  }
  return titled("StackBackward0", cat(rows, axis));
}
// Side by side: along axis 1, or along the only one.
inline Tensor hstack(const std::vector<Tensor>& tensors, Loc loc = Loc::here()) {
  const Composed whole("hstack", loc);
  std::vector<Tensor> parts;
  for (const Tensor& x : tensors) {
    check_together({"hstack", loc}, {&tensors[0], &x});
    parts.push_back(x.dim() == 0 ? x.reshape({1}) : x);
  }
  return cat(parts, parts.empty() || parts[0].dim() == 1 ? 0 : 1);
}
// One below the other: along axis 0, where [n] counts as a row [1, n].
inline Tensor vstack(const std::vector<Tensor>& tensors, Loc loc = Loc::here()) {
  const Composed whole("vstack", loc);
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) {
    check_together({"vstack", loc}, {&tensors[0], &x});
    rows.push_back(x.dim() < 2 ? x.reshape({1, x.numel()}) : x);
  }
  return cat(rows, 0);
}

// ---- Gathering, and its mirror image ------------------------------------------------------------
//
// gather picks elements: y[i][j] = a[i][b[i][j]] along axis 1. An element that is picked twice
// receives two gradients, so the way back adds them up at the places they came from.

namespace rule {
struct Gather : Rule {
  static constexpr Facts facts = {.name = "gather",
                                  .symbol = "gather",
                                  .formula = "a at b",
                                  .derivatives = {"dy added up at b"},
                                  .attributes = "axis",
                                  .node = "GatherBackward0"};
  void backward();
};
struct ScatterNew : Rule {  // into zeros of the shape dims, along axis n
  static constexpr Facts facts = {.name = "scatter_add",
                                  .symbol = "scatter",
                                  .formula = "a added up at b",
                                  .derivatives = {"dy at b"},
                                  .attributes = "n shape",
                                  .node = "ScatterAddBackward0"};
  void backward() { give(0, dy.gather(static_cast<std::int64_t>(n()), b())); }
};
}  // namespace rule

inline void check_index(const Tensor& index, std::int64_t size, const At& at) {
  if (index.dtype() != int64)
    fail(at, {"the index is ", index.dtype(), ", not int64"}, {"convert with .to(int64)"});
  std::int64_t bad = 0;
  if (first_out_of_range(index.elements(), size, bad))
    fail(at, {"index ", bad, " is out of range for size ", size},
         {"an index is at least 0 and less than ", size});
}
inline Tensor picked(const Tensor& x, const Tensor& index, int axis, const At& at) {
  Tensor y = fresh(index.shape(), x.dtype(), x.device(), at);
  gather(y.elements(), x.elements(), index.elements(), axis);
  return y;
}
// y[i][j] = a[i][index[i][j]] along axis 1, and so for each axis; the result has the index's shape.
inline Tensor Tensor::gather(Extent axis, const Tensor& index, Loc loc) const {
  const At at{"gather", loc};
  check_together(at, {this, &index});
  const int along = checked_axis(axis, dim(), at);
  if (index.dim() != dim())
    fail(at, {"the index has shape ", index.shape(), ", and the tensor ", shape()});
  for (int i = 0; i < dim(); ++i)
    if (i != along && index.shape()[i] > get().shape[i])
      fail(at, {"the index ", index.shape(), " is larger than ", shape(), " at axis ", i});
  check_index(index, dim() ? get().shape[along] : 1, at);
  return record<rule::Gather>(picked(*this, index, along, at), {this, &index}, loc, {0, {along}});
}

inline Tensor scatter_new(const Tensor& a, const Tensor& index, const Shape& shape, int axis,
                          Loc loc) {
  Tensor y = fresh(shape, a.dtype(), a.device());
  fill(y.elements(), 0);
  scatter_add(y.elements(), a.elements(), index.elements(), axis);
  return record<rule::ScatterNew>(std::move(y), {&a, &index}, loc,
                                  {static_cast<double>(axis), shape});
}

inline void rule::Gather::backward() {
  give(0, scatter_new(dy, b(), shape(0), static_cast<int>(dims()[0])));
}

inline Tensor gather(const Tensor& x, Extent axis, const Tensor& index, Loc loc = Loc::here()) {
  return x.gather(axis, index, loc);
}

// ---- More ways to pick and to place -------------------------------------------------------------

namespace rule {
struct Scatter : Rule {
  static constexpr Facts facts = {.name = "scatter",
                                  .symbol = "scatter",
                                  .formula = "a with b written to c",
                                  .derivatives = {"0 at c, else dy", "dy at c"},
                                  .attributes = "axis",
                                  .node = "ScatterBackward0"};
  void backward() {
    if (wants(0)) give(0, dy.scatter(dims()[0], c(), 0));
    if (wants(1)) give(1, dy.gather(dims()[0], c()));
  }
};
struct ScatterNumber : Rule {
  static constexpr Facts facts = {.name = "scatter_number",
                                  .symbol = "scatter",
                                  .formula = "a with n written to b",
                                  .derivatives = {"0 at b, else dy"},
                                  .attributes = "n axis",
                                  .node = "ScatterBackward1",
                                  .called = "scatter"};
  void backward() { give(0, dy.scatter(dims()[0], b(), 0)); }
};
}  // namespace rule

// What the scatters ask of an index, and of what it places: the part of `source` that lies under
// it.
inline Tensor under_index(const Tensor& x, const Tensor& index, const Tensor& source, int axis,
                          const At& at) {
  if (source.dtype() != x.dtype())
    fail(at, {"a ", source.dtype(), " source is placed into ", x.dtype()},
         {"convert it with .to(", x.dtype(), ")"});
  if (index.dim() != x.dim() || source.dim() != x.dim())
    fail(at, {"the index ", index.shape(), " and the source ", source.shape(),
              " need as many axes as ", x.shape()});
  Tensor part = source;
  for (int i = 0; i < x.dim(); ++i) {
    const std::int64_t size = index.shape()[i];
    if (size > source.shape()[i] || (i != axis && size > x.shape()[i]))
      fail(at, {"the index ", index.shape(), " is larger than the source ", source.shape(), " or ",
                x.shape(), " at axis ", i});
    if (size < source.shape()[i]) part = part.narrow(i, 0, size, at.loc);
  }
  check_index(index, x.dim() ? x.shape()[axis] : 1, at);
  return part;
}
// Writes the elements of `source`, of any type, to where the index says.
inline Tensor written_at(const Tensor& x, const Tensor& index, const Tensor& source, int axis,
                         Loc loc) {
  const Unseen inside(loc);
  const Tensor y = copy_of(x.cpu()), places = index.cpu(), values = source.cpu();
  const std::int64_t bytes = bytes_of(y.dtype());
  const std::int64_t step = y.dim() ? y.stride()[axis] * bytes : 0;
  const View zero = at_index_zero(y.elements(), axis, values.shape());
  const Walk walk({&values.elements(), &zero, &places.elements()});
  Odometer at(walk);
  if (values.numel() == 0) return y.to(x.device());
  do
    std::memcpy(at.data[1] + *as<std::int64_t>(at.data[2]) * step, at.data[0],
                static_cast<std::size_t>(bytes));
  while (at.next());
  return y.to(x.device());
}
// y = x, but y[i][index[i][j]] = source[i][j] along axis 1, and so for each axis. Where an index
// comes twice, one of the two stays.
inline Tensor Tensor::scatter(Extent axis, const Tensor& index, const Tensor& source,
                              Loc loc) const {
  const At at{"scatter", loc};
  check_together(at, {this, &index, &source});
  const int along = checked_axis(axis, dim(), at);
  const Tensor part = under_index(*this, index, source, along, at);
  return record<rule::Scatter>(written_at(*this, index, part, along, loc), {this, &part, &index},
                               loc, {0, {along}});
}
inline Tensor Tensor::scatter(Extent axis, const Tensor& index, Scalar value, Loc loc) const {
  const At at{"scatter", loc};
  check_together(at, {this, &index});
  const int along = checked_axis(axis, dim(), at);
  Tensor same;
  {
    const Unseen inside(loc);
    same = full({}, value, {.dtype = dtype(), .device = device()}).expand(index.shape());
  }
  static_cast<void>(under_index(*this, index, same, along, at));
  return record<rule::ScatterNumber>(written_at(*this, index, same, along, loc), {this, &index},
                                     loc, {value.real(), {along}});
}
// The same, but added to what is there; an index that comes twice adds twice.
inline Tensor Tensor::scatter_add(Extent axis, const Tensor& index, const Tensor& source,
                                  Loc loc) const {
  const At at{"scatter_add", loc};
  check_together(at, {this, &index, &source});
  const Composed whole("scatter_add", loc);
  const int along = checked_axis(axis, dim(), at);
  const Tensor part = under_index(*this, index, source, along, at);
  return titled("ScatterAddBackward0", *this + scatter_new(part, index, shape(), along, loc));
}

// What a line of numbers is reshaped to, to lie along an axis: along 1 of 4 -> [1, -1, 1, 1]
inline Shape line_along(int axis, int dims) {
  Shape line = Shape::filled(dims, 1);
  line[axis] = -1;
  return line;
}
struct MeshgridOptions {
  ByName by_name = ByName();
  const char* indexing = "ij";  // or "xy": the first two axes exchanged, as plots want them
};
// The coordinates of the points of a grid, from those along each axis: lines of n and m numbers ->
// two views [n, m], of which the first changes from row to row.
inline std::vector<Tensor> meshgrid(const std::vector<Tensor>& lines, MeshgridOptions options = {},
                                    Loc loc = Loc::here()) {
  const At at{"meshgrid", loc};
  const std::string_view indexing = options.indexing;
  if (indexing != "ij" && indexing != "xy")
    fail(at, {"indexing is \"", indexing, "\""}, {"write \"ij\" or \"xy\""});
  if (lines.empty()) fail(at, {"it needs at least one tensor"});
  if (lines.size() > Shape::capacity) fail(at, {"a tensor has at most 8 dimensions"});
  const Composed whole("meshgrid", loc);
  Shape shape;
  for (const Tensor& x : lines) {
    check_together(at, {&lines[0], &x});
    if (x.dim() > 1) fail(at, {"it takes lines of numbers, not ", x.shape()});
    shape.push_back(x.numel());
  }
  std::vector<Tensor> grids;
  for (const Tensor& x : lines) {
    const int axis = static_cast<int>(grids.size());
    const Tensor grid = x.reshape(line_along(axis, shape.size())).expand(shape);
    grids.push_back(indexing == "xy" && shape.size() > 1 ? grid.transpose(0, 1) : grid);
  }
  return grids;
}
// A line of indices for an axis, as an index for every element: [n] -> shape, with n at the axis.
inline Tensor spread(const Tensor& index, Shape shape, int axis, const At& at) {
  if (shape.empty()) fail(at, {"a 0-d tensor has no axis to index"});
  if (index.dim() > 1) fail(at, {"the index has shape ", index.shape(), ", and not one axis"});
  check_index(index, shape[axis], at);
  shape[axis] = index.numel();
  const Unseen inside(at.loc);
  return index.reshape(line_along(axis, shape.size())).expand(shape);
}
// The slices at these places of an axis: [3, 4] with two indices along 0 -> [2, 4]
inline Tensor Tensor::index_select(Extent axis, const Tensor& index, Loc loc) const {
  const At at{"index_select", loc};
  check_together(at, {this, &index});
  const Composed whole("index_select", loc);
  const int along = checked_axis(axis, dim(), at);
  const Tensor places = spread(index, shape(), along, at);
  return titled("IndexSelectBackward0", gather(along, places));
}
// Adds slices of alpha * `source` to those at these places of an axis.
inline Tensor Tensor::index_add(Extent axis, const Tensor& index, const Tensor& source,
                                IndexAddOptions options, Loc loc) const {
  const At at{"index_add", loc};
  check_together(at, {this, &index, &source});
  const Composed whole("index_add", loc);
  const int along = checked_axis(axis, dim(), at);
  const Tensor places = spread(index, shape(), along, at);
  if (source.shape() != places.shape())
    fail(at,
         {"the source has shape ", source.shape(), ", and the index asks for ", places.shape()});
  const bool plain = options.alpha.real() == 1;
  const Tensor added = plain ? source : with_number<rule::MulNumber>(source, options.alpha, loc);
  return titled("IndexAddBackward0", scatter_add(along, places, added));
}
inline Tensor Tensor::index_add(Extent axis, const Tensor& index, const Tensor& source,
                                Loc loc) const {
  return index_add(axis, index, source, {}, loc);
}
// As gather, but x and the index broadcast along the other axes.
inline Tensor Tensor::take_along_dim(const Tensor& index, Extent axis, Loc loc) const {
  const At at{"take_along_dim", loc};
  check_together(at, {this, &index});
  if (index.dim() != dim())
    fail(at, {"the index has shape ", index.shape(), ", and the tensor ", shape()});
  const Composed whole("take_along_dim", loc);
  const int along = checked_axis(axis, dim(), at);
  Shape from = shape(), to = index.shape();
  if (dim() > 0) from[along] = to[along] = 1;
  Shape common = broadcast_shapes(from, to, at), of_index = common;
  if (dim() > 0) common[along] = shape()[along], of_index[along] = index.shape()[along];
  return expand(common).gather(along, index.expand(of_index));
}
// Without an axis: of the elements in a line.
inline Tensor Tensor::take_along_dim(const Tensor& index, Loc loc) const {
  check_together({"take_along_dim", loc}, {this, &index});
  const Composed whole("take_along_dim", loc);
  return reshape({-1}).gather(0, index.reshape({-1}));
}

// x, but the value where the mask is true; the mask broadcasts.
inline Tensor Tensor::masked_fill(const Tensor& mask, const Operand& value) const {
  const At at{"masked_fill", value.loc};
  check_together(at, {this, &mask});
  check_condition(mask, at);
  if (value.tensor) check_together(at, {this, value.tensor});
  if (value.tensor && value.tensor->dim() > 0)
    fail(at, {"the value has shape ", value.tensor->shape(), ", it has to be one number"});
  const DType kind = value.tensor ? value.tensor->dtype() : value.number.dtype();
  if (!value.tensor && is_truth(value.number, dtype()) && kind != boolean)
    return masked_fill(mask, Operand(Scalar(value.number.real() != 0), value.loc));
  if (kind_of(kind) > kind_of(dtype()))
    fail(at, {"a ", kind, " value can't be written into ", dtype()});
  const Composed whole("masked_fill", value.loc);
  return titled("MaskedFillBackward0", where(mask, value, Operand(*this, value.loc)));
}
// Where the elements of a mask are true, as it is read line by line.
inline Tensor places_of(const Tensor& mask) {
  std::vector<std::int64_t> places;
  const Tensor flags = copy_of(mask, boolean, cpu);
  const bool* flag = flags.data<bool>();
  for (std::int64_t i = 0; i < mask.numel(); ++i)
    if (flag[i]) places.push_back(i);
  return tensor(places, {.device = mask.device()});
}
// The elements where the mask is true, in a line; both broadcast.
inline Tensor Tensor::masked_select(const Tensor& mask, Loc loc) const {
  const At at{"masked_select", loc};
  check_together(at, {this, &mask});
  check_condition(mask, at);
  const Composed whole("masked_select", loc);
  const Shape shape = broadcast_shapes(this->shape(), mask.shape(), at);
  const Tensor index = places_of(mask.expand(shape));
  return titled("MaskedSelectBackward0", expand(shape).reshape({-1}).gather(0, index));
}

// Which elements lie on or below a diagonal; `offset` moves it to the right.
inline Tensor below_diagonal(const Tensor& x, std::int64_t offset, const At& at) {
  check_together(at, {&x});
  if (x.dim() < 2) fail(at, {"it takes at least two axes, not ", x.shape()});
  const Unseen inside(at.loc);
  const TensorOptions there{.dtype = int64, .device = cpu};
  const Tensor row = arange(x.size(-2), there).unsqueeze(1), column = arange(x.size(-1), there);
  return (column <= row + offset).to(x.device());
}
inline Scalar zero_of(DType dtype) { return dtype == boolean ? Scalar(false) : Scalar(0); }
// The elements on and below a diagonal of the last two axes, else 0.
inline Tensor Tensor::tril(Extent diagonal, Loc loc) const {
  const Tensor mask = below_diagonal(*this, diagonal, {"tril", loc});
  const Composed whole("tril", loc);
  return titled("TrilBackward0", where(mask, *this, zero_of(dtype())));
}
// The elements on and above a diagonal of the last two axes, else 0.
inline Tensor Tensor::triu(Extent diagonal, Loc loc) const {
  const Tensor mask = below_diagonal(*this, diagonal - 1, {"triu", loc});
  const Composed whole("triu", loc);
  return titled("TriuBackward0", where(~mask, *this, zero_of(dtype())));
}
// The elements moved on along these axes; what leaves at the end comes in at the front. Without
// axes: of all elements in a line.
inline Tensor Tensor::roll(Dims shifts, Dims axes, Loc loc) const {
  const At at{"roll", loc};
  check_together(at, {this});
  const Composed whole("roll", loc);
  if (axes.empty() && shifts.size() == 1) return reshape({-1}).roll(shifts, 0).reshape(shape());
  if (axes.size() != shifts.size())
    fail(at, {"there are ", shifts.size(), " shifts for ", axes.size(), " axes"});
  if (dim() == 0 && !axes.empty()) fail(at, {"a 0-d tensor has no axis to roll along"});
  Tensor y = *this;
  for (int i = 0; i < axes.size(); ++i) {
    const int along = checked_axis(axes[i], dim(), at);
    const std::int64_t size = shape()[along];
    if (size == 0) continue;
    const std::int64_t cut = (size - shifts[i] % size) % size;
    y = cat({y.slice(along, cut), y.slice(along, 0, cut)}, along);
  }
  if (y.id() == id()) y = clone();
  return titled("RollBackward0", y);
}
// Copies of x beside each other: [2, 3] with times {2, 2} -> [4, 6]. Axes may be added in front.
inline Tensor Tensor::repeat(Shape times, Loc loc) const {
  const At at{"repeat", loc};
  check_together(at, {this});
  if (times.size() < dim()) fail(at, {times, " has fewer numbers than ", shape(), " has axes"});
  for (std::int64_t count : times)
    if (count < 0) fail(at, {"a count is negative: ", times});
  const Composed whole("repeat", loc);
  Tensor y = *this;
  while (y.dim() < times.size()) y = y.unsqueeze(0);
  for (int axis = 0; axis < times.size(); ++axis) {
    if (times[axis] == 1) continue;
    Shape wide = y.shape(), joined = y.shape();
    wide.insert(axis, times[axis]);
    check_sizes(wide, at);
    joined[axis] *= times[axis];
    y = y.unsqueeze(axis).expand(wide).reshape(joined);
  }
  return titled("RepeatBackward0", y.shares_storage_with(*this) ? y.clone() : y.contiguous());
}

inline Tensor take_along_dim(const Tensor& x, const Tensor& index, Extent axis,
                             Loc loc = Loc::here()) {
  return x.take_along_dim(index, axis, loc);
}
inline Tensor take_along_dim(const Tensor& x, const Tensor& index, Loc loc = Loc::here()) {
  return x.take_along_dim(index, loc);
}
inline Tensor index_select(const Tensor& x, Extent axis, const Tensor& index,
                           Loc loc = Loc::here()) {
  return x.index_select(axis, index, loc);
}
inline Tensor index_add(const Tensor& x, Extent axis, const Tensor& index, const Tensor& source,
                        IndexAddOptions options = {}, Loc loc = Loc::here()) {
  return x.index_add(axis, index, source, options, loc);
}
inline Tensor scatter(const Tensor& x, Extent axis, const Tensor& index, const Tensor& source,
                      Loc loc = Loc::here()) {
  return x.scatter(axis, index, source, loc);
}
inline Tensor scatter(const Tensor& x, Extent axis, const Tensor& index, Scalar value,
                      Loc loc = Loc::here()) {
  return x.scatter(axis, index, value, loc);
}
inline Tensor scatter_add(const Tensor& x, Extent axis, const Tensor& index, const Tensor& source,
                          Loc loc = Loc::here()) {
  return x.scatter_add(axis, index, source, loc);
}
inline Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value) {
  return x.masked_fill(mask, value);
}
inline Tensor masked_select(const Tensor& x, const Tensor& mask, Loc loc = Loc::here()) {
  return x.masked_select(mask, loc);
}
inline Tensor tril(const Tensor& x, Extent diagonal = 0, Loc loc = Loc::here()) {
  return x.tril(diagonal, loc);
}
inline Tensor triu(const Tensor& x, Extent diagonal = 0, Loc loc = Loc::here()) {
  return x.triu(diagonal, loc);
}
inline Tensor roll(const Tensor& x, Dims shifts, Dims axes = {}, Loc loc = Loc::here()) {
  return x.roll(shifts, axes, loc);
}

// ---- More reductions ----------------------------------------------------------------------------

namespace rule {
struct Prod : Reduction {
  static constexpr Facts facts = {.name = "prod",
                                  .symbol = "Π",
                                  .formula = "the product of all a",
                                  .derivatives = {"dy * y / a"},
                                  .attributes = "axes",
                                  .node = "ProdBackward1"};
  void backward();
};
struct Var : Reduction {  // n: the count of elements less the correction
  static constexpr Facts facts = {.name = "var",
                                  .symbol = "var",
                                  .formula = "the sum of all (a - mean(a))^2, / n",
                                  .derivatives = {"dy * 2 * (a - mean(a)) / n"},
                                  .attributes = "axes n",
                                  .node = "VarBackward0"};
  void backward() {
    const Tensor distance = a() - a().mean(dims(), {.keepdim = true});
    give(0, repeated(dy * (2 / n())) * distance);
  }
};
struct Std : Reduction {  // equal elements have the deviation 0, and its slope is taken to be 0
  static constexpr Facts facts = {.name = "std",
                                  .symbol = "std",
                                  .formula = "sqrt(var(a))",
                                  .derivatives = {"dy * (a - mean(a)) / (n * y) if y != 0 else 0"},
                                  .attributes = "axes n",
                                  .node = "StdBackward0"};
  void backward() {
    const Tensor distance = a() - a().mean(dims(), {.keepdim = true});
    const Tensor flat = y() == 0;
    const Tensor slope = where(flat, 0, dy / (n() * where(flat, 1, y())));
    give(0, repeated(slope) * distance);
  }
};
struct Norm : Reduction {  // the slope at the origin is taken to be 0
  static constexpr Facts facts = {
      .name = "norm",
      .symbol = "‖a‖",
      .formula = "the sum of all abs(a)^n, ^(1 / n)",
      .derivatives = {"dy * sign(a) * (abs(a) / y)^(n - 1) if y != 0 else 0"},
      .attributes = "n axes",
      .node = "LinalgVectorNormBackward0"};
  void backward();
};
struct LogSumExp : Reduction {
  static constexpr Facts facts = {.name = "logsumexp",
                                  .symbol = "lse",
                                  .formula = "log of the sum of all exp(a)",
                                  .derivatives = {"dy * exp(a - y)"},
                                  .attributes = "axes",
                                  .node = "LogsumexpBackward0"};
  void backward() {
    const Tensor top = where(y() == -std::numeric_limits<double>::infinity(), 0, y());
    give(0, repeated(dy) * (a() - repeated(top)).exp());
  }
};
struct All : Rule {
  static constexpr Facts facts = {
      .name = "all", .symbol = "∀", .formula = "whether all a are true", .attributes = "axes"};
  void backward() {}
};
struct Any : Rule {
  static constexpr Facts facts = {
      .name = "any", .symbol = "∃", .formula = "whether any a is true", .attributes = "axes"};
  void backward() {}
};
struct ArgMin : Rule {
  static constexpr Facts facts = {
      .name = "argmin", .symbol = "argmin", .formula = "argmin(a)", .attributes = "axis"};
  void backward() {}
};
struct CumSum : Rule {
  static constexpr Facts facts = {.name = "cumsum",
                                  .symbol = "Σ…",
                                  .formula = "the sum of a up to here",
                                  .derivatives = {"the sum of dy from here on"},
                                  .attributes = "axis",
                                  .node = "CumsumBackward0"};
  void backward();
};
struct CumProd : Rule {
  static constexpr Facts facts = {.name = "cumprod",
                                  .symbol = "Π…",
                                  .formula = "the product of a up to here",
                                  .derivatives = {"the sum of dy * y from here on, / a"},
                                  .attributes = "axis",
                                  .node = "CumprodBackward0"};
  void backward();
};
struct Picked : Rule {  // each element of y is the one of a at i
  void backward() {
    if (shape(0).empty()) return give(0, dy);
    give(0, scatter_new(dy, index(), shape(0), static_cast<int>(dims()[0])));
  }
};
struct Sort : Picked {
  static constexpr Facts facts = {.name = "sort",
                                  .symbol = "sort",
                                  .formula = "a in order",
                                  .derivatives = {"dy put back to i"},
                                  .attributes = "axis",
                                  .node = "SortBackward0"};
};
struct ArgSort : Rule {
  static constexpr Facts facts = {.name = "argsort",
                                  .symbol = "argsort",
                                  .formula = "where the elements of a in order come from",
                                  .attributes = "axis"};
  void backward() {}
};
struct TopK : Picked {
  static constexpr Facts facts = {.name = "topk",
                                  .symbol = "top n",
                                  .formula = "the first n of a in order",
                                  .derivatives = {"dy put back to i, else 0"},
                                  .attributes = "n axis",
                                  .node = "TopkBackward0"};
};
}  // namespace rule

inline bool has_zero(const Tensor& x) {
  const Quiet quiet;
  return (x == 0).sum().item() > 0;
}

inline Tensor Tensor::prod(Dims axes, SumOptions options, Loc loc) const {
  const At at{"prod", loc};
  const Tensor x = as_asked(*this, options.dtype, at);
  const Shape over = checked_axes(axes, dim(), at);
  Tensor y = reduced<formula::Prod>(x, over, summed_dtype(x), options.keepdim);
  return titled(axes.empty() ? "ProdBackward0" : nullptr,
                record<rule::Prod>(std::move(y), {this}, loc, {0, over}));
}

// y / a is the product of all others, unless a is 0. Then we multiply them: those before a, and
// those after it.
inline void rule::Prod::backward() {
  const Tensor x = a();
  if (!has_zero(x)) return give(0, repeated(dy * y()) / x);
  Shape order, back = shape(0);  // the reduced axes last, as one
  for (int i = 0; i < x.dim(); ++i)
    if (!dims().contains(i)) order.push_back(i);
  for (std::int64_t axis : dims()) order.push_back(axis);
  for (int i = 0; i < x.dim(); ++i) back[static_cast<int>(order[i])] = i;
  const Tensor turned = x.permute(order);
  const Tensor rows = turned.reshape({dy.numel(), -1});
  const std::int64_t last = rows.shape()[1] - 1;
  const Tensor first = ones({dy.numel(), 1}, {.dtype = x.dtype(), .device = x.device()});
  const Tensor before = cat({first, rows.slice(1, 0, last)}, 1).cumprod(1);
  const Tensor after = cat({first, rows.flip(1).slice(1, 0, last)}, 1).cumprod(1).flip(1);
  give(0, repeated(dy) * (before * after).reshape(turned.shape()).permute(back));
}

// How many elements go into one.
inline double count_along(const Tensor& x, const Shape& axes) {
  double count = 1;
  for (std::int64_t axis : axes) count *= static_cast<double>(x.shape()[static_cast<int>(axis)]);
  return count;
}
// The mean square distance from the mean, in two passes over float64: differences of large numbers
// that are close to each other keep their digits. It is the same for all elements less the first
// one: of equal elements nothing is left then, and their mean is not rounded.
inline Tensor variance(const Tensor& a, const Shape& over, double n, bool keepdim, Loc loc) {
  const Unseen inside(loc);
  const Tensor x = copy_of(a, float64, a.device());  // changed in place: there is much of it
  const View all = x.elements();
  const auto take_away = [&all](const Tensor& part) {
    zip<formula::Sub>(all, all, broadcast_to(part.elements(), all.shape));
  };
  Tensor first = x;
  for (std::int64_t axis : over)
    if (first.size(axis) > 0) first = first.narrow(axis, 0, 1);
  take_away(first.clone());
  take_away(x.mean(over, {.keepdim = true}));
  minitensor::map<formula::Square>(all, all);
  return x.sum(over, {.keepdim = keepdim}) / n;
}
inline Tensor Tensor::var(Dims axes, VarOptions options, Loc loc) const {
  const At at{"var", loc};
  check_floats(*this, at);
  const Shape over = checked_axes(axes, dim(), at);
  const double n = std::max(0.0, count_along(*this, over) - options.correction);
  const Tensor y = variance(*this, over, n, options.keepdim, loc);
  return record<rule::Var>(converted(y, dtype()), {this}, loc, {n, over});
}
inline Tensor Tensor::var(VarOptions options, Loc loc) const { return var({}, options, loc); }
inline Tensor Tensor::std(Dims axes, VarOptions options, Loc loc) const {
  const At at{"std", loc};
  check_floats(*this, at);
  const Shape over = checked_axes(axes, dim(), at);
  const double n = std::max(0.0, count_along(*this, over) - options.correction);
  Tensor y = variance(*this, over, n, options.keepdim, loc);
  minitensor::map<formula::Sqrt>(y.elements(), y.elements());
  return record<rule::Std>(converted(y, dtype()), {this}, loc, {n, over});
}
inline Tensor Tensor::std(VarOptions options, Loc loc) const { return std({}, options, loc); }

// (sum of |x|^p)^(1/p); for p = infinity the largest |x|, for p = 0 how many are not 0.
inline Tensor Tensor::norm(NormOrder p, Dims axes, SumOptions options, Loc loc) const {
  const At at{"norm", loc};
  if (p.name != "fro")
    fail(at, {"there is no norm \"", p.name, "\""}, {"write \"fro\" or a number"});
  if (options.dtype && *options.dtype != dtype()) {
    const Composed whole("norm", loc);
    return to(*options.dtype).norm(p, axes, {.keepdim = options.keepdim}, loc);
  }
  check_floats(*this, at);
  const ReduceOptions kept{.keepdim = options.keepdim};
  const double n = p.p.real();
  if (n == 0 || std::isinf(n)) {
    const Composed whole("norm", loc);
    const Tensor counted = n == 0 ? where(*this != 0, 1, sign()) : abs();
    Tensor y = n == 0  ? counted.sum(axes, options)
               : n > 0 ? counted.amax(axes, kept)
                       : counted.amin(axes, kept);
    return titled("LinalgVectorNormBackward0", std::move(y));
  }
  const Shape over = checked_axes(axes, dim(), at);
  Tensor y;
  {
    const Unseen inside(loc);
    Tensor sum;
    bool fits = false;
    // In float32 first. A square that is too large for it is infinite; one that is too small loses
    // less than 1e-37, which does not count beside 1e-30; and of zeros alone the sum is 0. (To ask
    // a card whether it fits would mean to wait for it.)
    if (n == 2 && dtype() == float32 && device() == Device::cpu) {
      sum = reduced<formula::Sum>(square(), over, float64, options.keepdim);
      const Tensor right = (sum > 1e-30) & (sum < std::numeric_limits<double>::infinity());
      fits = right.all().item<bool>() || (right | ~(*this != 0).any(over, kept)).all().item<bool>();
    }
    if (!fits) {
      const Tensor x = n == 2 ? copy_of(*this, float64, device()) : to(float64).abs().pow(n);
      if (n == 2) minitensor::map<formula::Square>(x.elements(), x.elements());
      sum = x.sum(over, {.keepdim = options.keepdim});
    }
    y = sum.pow(1 / n);
  }
  return record<rule::Norm>(converted(y, dtype()), {this}, loc, {n, over});
}

inline void rule::Norm::backward() {
  const Tensor x = a(), origin = y() == 0;
  const Tensor share = where(origin, 0, dy), size = where(origin, 1, y());
  if (n() == 2) return give(0, repeated(share / size) * x);
  if (n() == 1) return give(0, repeated(share) * x.sign());
  const Tensor zero = x == 0;
  const Tensor part = where(zero, 1, x.abs()) / repeated(size);
  give(0, repeated(share) * x.sign() * where(zero, 0, part.pow(n() - 1)));
}

// log of the sum of all e^x, with the largest x taken out first, so that nothing overflows.
inline Tensor Tensor::logsumexp(Dims axes, ReduceOptions options, Loc loc) const {
  const At at{"logsumexp", loc};
  check_floats(*this, at);
  const Shape over = checked_axes(axes, dim(), at);
  Tensor y;
  {
    const Unseen inside(loc);
    const TensorOptions beside{.dtype = dtype(), .device = device()};
    Tensor top = numel() ? amax(over, {.keepdim = true}) : zeros({}, beside);
    top = where(top.abs() == std::numeric_limits<double>::infinity(), 0, top);
    y = (*this - top).exp().sum(over, {.keepdim = true}).log() + top;
    if (!options.keepdim) y = dropped(y.contiguous(), over);
  }
  return record<rule::LogSumExp>(std::move(y), {this}, loc, {0, over});
}

template <class R, class F>
Tensor of_truth(const Tensor& x, Dims axes, bool keepdim, Loc loc) {
  const At at{R::facts.plain_name(), loc};
  check_together(at, {&x});
  const Shape over = checked_axes(axes, x.dim(), at);
  return record<R>(reduced<F>(converted(x, boolean), over, boolean, keepdim), {&x}, loc, {0, over});
}
inline Tensor Tensor::all(Dims axes, ReduceOptions options, Loc loc) const {
  return of_truth<rule::All, formula::All>(*this, axes, options.keepdim, loc);
}
inline Tensor Tensor::any(Dims axes, ReduceOptions options, Loc loc) const {
  return of_truth<rule::Any, formula::Any>(*this, axes, options.keepdim, loc);
}
inline Tensor Tensor::count_nonzero(Dims axes, Loc loc) const {
  const Composed whole("count_nonzero", loc);
  return (*this != 0).sum(axes);
}

inline Tensor Tensor::argmin(Extent axis, ReduceOptions options, Loc loc) const {
  const Tensor indices =
      extreme_along<formula::Min>(*this, axis, options.keepdim, {"argmin", loc}).indices;
  return record<rule::ArgMin>(indices, {this}, loc,
                              {0, {checked_axis(axis, dim(), {"argmin", loc})}});
}
inline Tensor Tensor::argmin(Loc loc) const { return reshape({-1}, loc).argmin(0, {}, loc); }
inline Tensor Tensor::argmax(Loc loc) const { return reshape({-1}, loc).argmax(0, {}, loc); }

// ---- Running sums and products ------------------------------------------------------------------

// The lines of y become their running sums or products, which grow in the type of a fold. Lines
// that lie side by side go 512 at a time, so that what the cache fetches is used whole; others 8,
// so that no addition waits for the one before.
template <class F, class T>
void scan_lines(const Row& row) {
  using Wide = typename F::template Wide<T>;
  const Line line = *as<Line>(row.data[1]);
  const auto join = [](Wide& so_far, std::byte* at) {
    so_far = F::of(so_far, converted<Wide>(*as<T>(at)));
    *as<T>(at) = converted<T>(so_far);
  };
  constexpr std::int64_t most = 512;
  constexpr Wide neutral = F::template neutral<Wide>;
  const std::int64_t step = row.steps[0], together = step < line.step ? most : 8;
  for (std::int64_t done = 0; done < row.n; done += together) {
    const std::int64_t n = std::min(together, row.n - done);
    std::byte* from = row.data[0] + done * step;
    Wide so_far[most], alone = neutral;  // in a register
    std::fill_n(so_far, n, neutral);
    for (std::int64_t j = 0; j < line.size; ++j, from += line.step)
      if (n == 1)
        join(alone, from);
      else
        for (std::int64_t i = 0; i < n; ++i) join(so_far[i], from + i * step);
  }
}
// On another machine, in the type of y: after the pass with step s, an element has joined the 2 s
// up to itself. So it takes log2 n passes, each of which any machine can do. y is dense and nobody
// else's.
template <class F>
Tensor scanned(void (*join)(const View&, const View&, const View&), Tensor y, int axis) {
  if (y.device() == cpu) {
    View starts = y.elements();
    const Line line = take_axis(starts, axis);
    const View lines = as_view(&line, int64, starts.shape);
    share_out(with_long_rows(Walk({&starts, &lines})), y.numel(), [&](const Walk& share) {
      with_type(y.dtype(), [&](auto zero) {
        run_in_order(share, [](const Row& row) { scan_lines<F, decltype(zero)>(row); });
      });
    });
    return y;
  }
  const std::int64_t n = y.dim() ? y.shape()[axis] : 1;
  for (std::int64_t step = 1; step < n; step *= 2) {
    View before = y.elements();
    before.shape[axis] = n - step;
    View here = before;
    here.data += step * here.strides[axis] * bytes_of(y.dtype());
    const Tensor sum = fresh(before.shape, y.dtype(), y.device());
    join(sum.elements(), before, here);
    copy(here, sum.elements());
  }
  return y;
}
inline Tensor Tensor::cumsum(Extent axis, RunningOptions options, Loc loc) const {
  const At at{"cumsum", loc};
  const Tensor x = as_asked(*this, options.dtype, at);
  const int along = checked_axis(axis, dim(), at);
  Tensor y = copy_of(converted(x, summed_dtype(x)));
  return record<rule::CumSum>(scanned<formula::Sum>(zip<formula::Add>, std::move(y), along), {this},
                              loc, {0, {along}});
}
inline Tensor Tensor::cumprod(Extent axis, RunningOptions options, Loc loc) const {
  const At at{"cumprod", loc};
  const Tensor x = as_asked(*this, options.dtype, at);
  const int along = checked_axis(axis, dim(), at);
  Tensor y = copy_of(converted(x, summed_dtype(x)));
  return record<rule::CumProd>(scanned<formula::Prod>(zip<formula::Mul>, std::move(y), along),
                               {this}, loc, {0, {along}});
}
inline Tensor sum_from_here_on(const Tensor& x, std::int64_t axis) {
  return x.flip(axis).cumsum(axis).flip(axis);
}

inline void rule::CumSum::backward() { give(0, dy.dim() ? sum_from_here_on(dy, dims()[0]) : dy); }
// Where an element is 0, we cannot divide by it; so each product is computed without it.
inline void rule::CumProd::backward() {
  const Tensor x = a();
  if (x.dim() == 0) return give(0, dy);
  const std::int64_t axis = dims()[0], size = x.size(axis);
  if (!has_zero(x)) return give(0, sum_from_here_on(dy * y(), axis) / x);
  std::vector<Tensor> parts;
  for (std::int64_t k = 0; k < size; ++k) {
    const Tensor before = x.narrow(axis, 0, k).prod({axis}, {.keepdim = true});
    const Tensor after = before * x.narrow(axis, k + 1, size - k - 1).cumprod(axis);
    const Tensor without = cat({before, after}, axis) * dy.narrow(axis, k, size - k);
    parts.push_back(without.sum({axis}, {.keepdim = true}));
  }
  give(0, cat(parts, axis));
}

// ---- Sorting ------------------------------------------------------------------------------------

// A whole number for each number, in the same order: NaN after all others, and both zeros equal.
template <class T>
std::uint64_t sort_key(T number) {
  constexpr std::uint64_t top = std::uint64_t{1} << 63;
  if (number != number) return ~std::uint64_t{0};
  if constexpr (Real<T>) {
    const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(number) + 0.0);
    return bits ^ (bits & top ? ~std::uint64_t{0} : top);
  } else {
    return static_cast<std::uint64_t>(number) ^ top;
  }
}
// Where the first k elements in order come from, or all. Equal elements keep their order.
inline Tensor sorted_places(const Tensor& x, int axis, bool descending,
                            std::int64_t k = std::numeric_limits<std::int64_t>::max()) {
  const Quiet quiet;
  const NoGrad guard;
  if (x.dim() == 0) return zeros({}, {.dtype = int64, .device = x.device()});
  const Tensor rows = x.cpu().transpose(axis, -1).contiguous();
  Shape shape = rows.shape();
  const std::int64_t size = std::exchange(shape[x.dim() - 1], std::min(k, rows.size(-1)));
  const Tensor places = fresh(shape, int64);
  std::vector<std::pair<std::uint64_t, std::int64_t>> line(static_cast<std::size_t>(size));
  const auto end = line.begin() + std::min(k, size);
  const auto before = [](const auto& a, const auto& b) {  // a pair's own < looks twice at the keys
    return a.first < b.first || (a.first == b.first && a.second < b.second);
  };
  std::int64_t* to = as<std::int64_t>(places.elements().data);
  with_type(x.dtype(), [&](auto zero) {
    const auto* from = as<decltype(zero)>(rows.elements().data);
    for (std::int64_t row = 0; size > 0 && row < rows.numel() / size; ++row, from += size) {
      for (std::int64_t i = 0; i < size; ++i) {
        const std::uint64_t key = sort_key(from[i]);
        line[static_cast<std::size_t>(i)] = {descending ? ~key : key, i};
      }
      if (k <= size / 16 + 1) {  // most elements are only compared with the last of the first k
        std::partial_sort(line.begin(), end, line.end(), before);
      } else {
        std::nth_element(line.begin(), end, line.end(), before);
        std::sort(line.begin(), end, before);
      }
      for (auto place = line.begin(); place < end; ++place) *to++ = place->second;
    }
  });
  return places.transpose(axis, -1).contiguous().to(x.device());
}

inline Tensor Tensor::argsort(Extent axis, SortOptions options, Loc loc) const {
  const At at{"argsort", loc};
  check_together(at, {this});
  const int along = checked_axis(axis, dim(), at);
  return record<rule::ArgSort>(sorted_places(*this, along, options.descending), {this}, loc,
                               {0, {along}});
}
// The elements in order along an axis, and where they come from. Equal ones keep their order, and
// NaN counts as the largest.
inline ValuesIndices Tensor::sort(Extent axis, SortOptions options, Loc loc) const {
  const At at{"sort", loc};
  check_together(at, {this});
  const int along = checked_axis(axis, dim(), at);
  const Tensor places = sorted_places(*this, along, options.descending);
  return {record<rule::Sort>(picked(*this, places, along, at), {this}, loc, {0, {along}}, &places),
          places};
}
// The k largest along an axis (or smallest), in order.
inline ValuesIndices Tensor::topk(Extent k, Extent axis, TopkOptions options, Loc loc) const {
  const At at{"topk", loc};
  check_together(at, {this});
  const int along = checked_axis(axis, dim(), at);
  const std::int64_t size = dim() ? shape()[along] : 1;
  if (k < 0 || k > size) fail(at, {"there are no ", k, " elements along a size of ", size});
  const Tensor places = sorted_places(*this, along, options.largest, k);
  const Given given{static_cast<double>(k), {along}};
  return {record<rule::TopK>(picked(*this, places, along, at), {this}, loc, given, &places),
          places};
}

inline Tensor prod(const Tensor& x, Dims axes = {}, SumOptions options = {},
                   Loc loc = Loc::here()) {
  return x.prod(axes, options, loc);
}
inline Tensor var(const Tensor& x, Dims axes = {}, VarOptions options = {}, Loc loc = Loc::here()) {
  return x.var(axes, options, loc);
}
inline Tensor var(const Tensor& x, VarOptions options, Loc loc = Loc::here()) {
  return x.var(options, loc);
}
inline Tensor std(const Tensor& x, Dims axes = {}, VarOptions options = {}, Loc loc = Loc::here()) {
  return x.std(axes, options, loc);
}
inline Tensor std(const Tensor& x, VarOptions options, Loc loc = Loc::here()) {
  return x.std(options, loc);
}
inline Tensor norm(const Tensor& x, NormOrder p = 2, Dims axes = {}, SumOptions options = {},
                   Loc loc = Loc::here()) {
  return x.norm(p, axes, options, loc);
}
inline Tensor logsumexp(const Tensor& x, Dims axes, ReduceOptions options = {},
                        Loc loc = Loc::here()) {
  return x.logsumexp(axes, options, loc);
}
inline Tensor all(const Tensor& x, Dims axes = {}, ReduceOptions options = {},
                  Loc loc = Loc::here()) {
  return x.all(axes, options, loc);
}
inline Tensor any(const Tensor& x, Dims axes = {}, ReduceOptions options = {},
                  Loc loc = Loc::here()) {
  return x.any(axes, options, loc);
}
inline Tensor count_nonzero(const Tensor& x, Dims axes = {}, Loc loc = Loc::here()) {
  return x.count_nonzero(axes, loc);
}
inline Tensor argmax(const Tensor& x, Loc loc = Loc::here()) { return x.argmax(loc); }
inline Tensor argmin(const Tensor& x, Loc loc = Loc::here()) { return x.argmin(loc); }
inline Tensor argmin(const Tensor& x, Extent axis, ReduceOptions options = {},
                     Loc loc = Loc::here()) {
  return x.argmin(axis, options, loc);
}
inline Tensor cumsum(const Tensor& x, Extent axis, RunningOptions options = {},
                     Loc loc = Loc::here()) {
  return x.cumsum(axis, options, loc);
}
inline Tensor cumprod(const Tensor& x, Extent axis, RunningOptions options = {},
                      Loc loc = Loc::here()) {
  return x.cumprod(axis, options, loc);
}
inline ValuesIndices sort(const Tensor& x, Extent axis = -1, SortOptions options = {},
                          Loc loc = Loc::here()) {
  return x.sort(axis, options, loc);
}
inline Tensor argsort(const Tensor& x, Extent axis = -1, SortOptions options = {},
                      Loc loc = Loc::here()) {
  return x.argsort(axis, options, loc);
}
inline ValuesIndices topk(const Tensor& x, Extent k, Extent axis = -1, TopkOptions options = {},
                          Loc loc = Loc::here()) {
  return x.topk(k, axis, options, loc);
}

// ---- Writes in place ----------------------------------------------------------------------------
//
// A write changes memory that others may look at. So the storage counts it, and some tensors refuse
// before anything has changed: an expanded one always; while recording, a leaf that requires grad,
// a view of one, and a view that was made inside NoGrad.
//
// `x.mul_(2)` makes x stand for something new, so x gets the node of the result. A write into a
// *view* changes its base: the base becomes "what it was, with r written into this window". Both
// the window and the base are kept for their geometry only.

namespace rule {
struct AsStrided : Rule {  // the view (v) as a window of its base (o)
  static constexpr Facts facts = {.name = "as_strided",
                                  .symbol = "view",
                                  .formula = "a window of a's memory",
                                  .derivatives = {"dy in its window, else 0"},
                                  .node = "AsStridedBackward0"};
  void backward();
};
struct WriteInto : Rule {
  static constexpr Facts facts = {
      .name = "write_into",
      .symbol = "write",
      .formula = "a with b written into its window",
      .derivatives = {"dy outside the window, else 0", "dy in the window"},
      .node = "CopySlices"};
  void backward();
};
struct Overwrite : Rule {
  static constexpr Facts facts = {.name = "copy_",
                                  .symbol = "copy",
                                  .formula = "b",
                                  .derivatives = {"0 * dy", "dy"},
                                  .node = "CopyBackwards"};
  void backward() {
    if (wants(0)) give(0, zeros_like(dy));
    if (wants(1)) give(1, dy);
  }
};
}  // namespace rule

inline void note_write(const Tensor& x, const char* by, Loc loc) {
  Storage& storage = *x.get().storage;
  storage.version.fetch_add(1, std::memory_order_relaxed);
  storage.written_by = by;
  storage.written_at = loc;
}

// Does some element lie in two places? Not if, from the smallest stride on, each stride steps over
// all that the smaller ones reach.
inline bool overlaps_itself(const View& view) {
  Shape strides, sizes;  // by rising stride
  for (int axis = 0; axis < view.shape.size(); ++axis) {
    if (view.shape[axis] == 0) return false;
    if (view.shape[axis] == 1) continue;
    const std::int64_t stride = std::abs(view.strides[axis]);
    int at = 0;
    while (at < strides.size() && strides[at] < stride) ++at;
    strides.insert(at, stride);
    sizes.insert(at, view.shape[axis]);
  }
  std::int64_t reach = 0;
  for (int i = 0; i < strides.size(); ++i) {
    if (strides[i] <= reach) return true;
    reach += (sizes[i] - 1) * strides[i];
  }
  return false;
}

inline void check_writable(const Tensor& x, const At& at) {
  const TensorData& r = x.get();
  for (const View* view : {static_cast<const View*>(&r), static_cast<const View*>(r.base.get())})
    if (view && overlaps_itself(*view))
      fail(at,
           {"several elements of this expanded tensor ", view->shape, " are one place in memory"},
           {"clone() it first"});
  if (!current.grad_enabled) return;
  if (r.requires_grad)
    fail(at, {"a leaf that requires grad is written in place, and the graph could not tell"},
         {"for an update write { NoGrad guard; w -= lr * w.grad(); }"});
  if (r.base && r.base->requires_grad)
    fail(at, {"a view of a leaf that requires grad is written in place"},
         {"write inside { NoGrad guard; ... }, or clone() it first"});
  if (r.base && !x.node() && r.base->node)
    fail(at, {"this view was made inside NoGrad, so the graph could not tell what is written"},
         {"make the view outside, or write inside { NoGrad guard; ... }"});
}

// A view whose base was written to through another view takes its history anew from the base.
inline void renew(const Tensor& view) {
  static std::atomic_flag renewing;  // two threads may be the first to use it
  static constexpr const Recipe& recipe = recipe_of<rule::AsStrided>;
  TensorData& r = view.get();
  const Tensor base(r.base);
  Tensor x = view;
  const std::initializer_list<const Tensor*> inputs = {&base};
  {
    const OneAtATime alone(renewing);
    if (r.rewrites == r.base->rewrites) return;
    if (!base.requires_grad()) {
      set_node(r, {});
    } else {
      attach_node(recipe, x, inputs, r.base->node ? r.base->node->loc : current.last_line, {},
                  nullptr);
      save(*r.node, 'v', alias_of(view), true);
      save(*r.node, 'o', alias_of(base), true);
    }
    r.rewrites = r.base->rewrites.load();
  }
  if (current.observer && r.node)
    tell_op(r.node.get(), *recipe.facts, {}, inputs, x, nullptr, r.node->loc);
}

// `x.mul_(w)` saves x for w's gradient and then writes to it, so that is kept as a copy.
inline void keep_what_is_overwritten(Node& node, const Tensor& x) {
  for (int k = 0; k < node.saved.size(); ++k)
    if (Saved& kept = node.saved[k];
        kept.tensor.shares_storage_with(x) && !kept.tensor.get().requires_grad) {
      kept.tensor = copy_of(kept.tensor);
      kept.version = kept.tensor.version();
    }
}

// Puts `result` in the place of x: its elements into x's memory, and its history into x's graph.
inline void replace(const Tensor& x, Tensor result, const At& at) {
  const EnableGrad recording;
  {
    const Quiet quiet;
    result = result.to(x.dtype());
    copy(x.elements(), broadcast_to(result.elements(), x.shape()));
    note_write(x, at.op, line_of(at.loc));
  }
  TensorData& r = x.get();
  if (!r.base) {
    set_node(r, Ref<Node>(result.node()));
    ++r.rewrites;
    r.renew_view = renew;
    return;
  }
  static constexpr const Recipe& recipe = recipe_of<rule::WriteInto>;
  Tensor base(r.base);
  const std::initializer_list<const Tensor*> inputs = {&base, &result};
  attach_node(recipe, base, inputs, line_of(at.loc), {}, nullptr);
  Node& node = *base.get().node;
  save(node, 'v', alias_of(x), true);
  save(node, 'o', alias_of(base), true);
  ++base.get().rewrites;  // x is now behind it, as all its views are
  base.get().renew_view = renew;
  if (current.observer) tell_op(&node, *recipe.facts, {}, inputs, base, nullptr, line_of(at.loc));
  renew(x);
}

void tell_wrote(const Tensor& x, std::int64_t version_before, const char* by, const Node* node,
                Loc loc);

// Would a write to x change what is still to be read of y? Not if both are the same elements.
inline bool shares_memory(const Tensor& x, const Tensor& y) {
  return x.shares_storage_with(y) && !(x.storage_offset() == y.storage_offset() &&
                                       x.stride() == y.stride() && x.shape() == y.shape());
}

// What the in-place operations share: checks, then either the plain write, or, when the graph has
// to know, the operation as usual and its result in the place of x.
using Recorded = Tensor (*)(const Operand& x, const Operand& other);
using Plain = void (*)(const View& y, const View& x, const View& other);
inline const Tensor& write(const Tensor& x, const Operand& other, const char* op, Recorded recorded,
                           Plain plain) {
  const At at{op, other.loc};
  check_together(at, {&x});
  if (other.tensor) check_together(at, {&x, other.tensor});
  check_writable(x, at);
  const Shape shape =
      other.tensor ? broadcast_shapes(x.shape(), other.tensor->shape(), at) : x.shape();
  if (shape != x.shape()) fail(at, {"the result ", shape, " does not fit into ", x.shape()});
  const std::int64_t before = x.version();
  const bool tracked = current.grad_enabled && is_floating(x.dtype()) &&
                       (x.requires_grad() || (other.tensor && other.tensor->requires_grad()));
  const Node* node = nullptr;
  Tensor result;
  if (tracked) {
    const Pin pin(other.loc);
    result = recorded(x, other);
    node = result.node();
    if (node) keep_what_is_overwritten(*result.node(), x);
    replace(x, result, at);
  } else {
    if (other.tensor && shares_memory(x, *other.tensor)) {
      const Tensor apart = copy_of(*other.tensor);
      plain(x.elements(), x.elements(),
            broadcast_to(converted(apart, x.dtype()).elements(), shape));
    } else if (other.tensor) {
      const Tensor same = converted(*other.tensor, x.dtype());
      plain(x.elements(), x.elements(), broadcast_to(same.elements(), shape));
    } else {
      plain(x.elements(), x.elements(), Constant(other.number, x.dtype(), shape).view);
    }
    note_write(x, op, line_of(other.loc));
  }
  if (current.observer) tell_wrote(x, before, op, node, line_of(other.loc));
  return x;
}
// Arithmetic keeps the tensor's dtype, so its result may not be of a higher kind: an int64 tensor
// has no room for halves.
inline const Tensor& arithmetic(const Tensor& x, const Operand& other, const char* op,
                                Recorded recorded, Plain plain) {
  const At at{op, other.loc};
  check_together(at, {&x});
  if (other.tensor) check_together(at, {&x, other.tensor});
  const DType dtype = other.tensor ? promote(x, *other.tensor) : promote(x, other.number);
  if (kind_of(dtype) > kind_of(x.dtype()))
    fail(at, {"a ", dtype, " result can't be written into ", x.dtype()},
         {"convert first: x = x.to(", dtype, ")"});
  return write(x, other, op, recorded, plain);
}

inline const Tensor& Tensor::add_(const Operand& other) const {
  return arithmetic(*this, other, "add_", operator+, zip<formula::Add>);
}

inline const Tensor& Tensor::sub_(const Operand& other) const {
  check_subtraction("sub_", *this, other);
  return arithmetic(*this, other, "sub_", operator-, zip<formula::Sub>);
}

inline const Tensor& Tensor::mul_(const Operand& other) const {
  return arithmetic(*this, other, "mul_", operator*, zip<formula::Mul>);
}

inline const Tensor& Tensor::div_(const Operand& other) const {
  const At at{"div_", other.loc};
  check_together(at, {this});
  if (!is_floating(dtype()))
    fail(at, {"a quotient can't be written into ", dtype()}, {"convert first: x = x.to(float32)"});
  return arithmetic(*this, other, "div_", operator/, zip<formula::Div>);
}

inline Tensor overwritten(const Operand& a, const Operand& other) {
  const Tensor& x = *a.tensor;
  const Tensor value = other.tensor
                           ? *other.tensor
                           : full({}, other.number, {.dtype = x.dtype(), .device = x.device()});
  Tensor y = fresh(x.shape(), x.dtype(), x.device());
  copy(y.elements(), broadcast_to(value.elements(), x.shape()));
  return record<rule::Overwrite>(std::move(y), {&x, &value}, other.loc);
}

inline void check_no_fraction_lost(const Tensor& x, const Operand& other, const char* op) {
  if (!other.tensor && !is_floating(x.dtype()) && is_floating(other.number.dtype()) &&
      other.number.real() != std::floor(other.number.real()))
    fail({op, other.loc},
         {"the fraction of ", other.number.real(), " would be lost in ", x.dtype()},
         {"convert first: x = x.to(float32)"});
}
inline const Tensor& overwrite(const Tensor& x, const Operand& other, const char* op) {
  check_together({op, other.loc}, {&x});
  check_no_fraction_lost(x, other, op);
  return write(x, other, op, overwritten,
               [](const View& y, const View&, const View& b) { copy(y, b); });
}

inline const Tensor& Tensor::copy_(const Operand& other) const {
  return overwrite(*this, other, "copy_");
}

inline const Tensor& Tensor::fill_(Scalar value, Loc loc) const {
  return overwrite(*this, Operand(value, loc), "fill_");
}

inline const Tensor& Tensor::zero_(Loc loc) const {
  return overwrite(*this, Operand(0, loc), "zero_");
}

// The same for an operation that has its own arguments: `compute` makes the result.
inline const Tensor& rewrite(const Tensor& x, const Operand& other, const char* op,
                             Calls<Tensor&> compute) {
  const At at{op, other.loc};
  check_together(at, {&x});
  check_writable(x, at);
  const std::int64_t before = x.version();
  const bool tracked = current.grad_enabled && is_floating(x.dtype()) &&
                       (x.requires_grad() || (other.tensor && other.tensor->requires_grad()));
  Tensor result;
  if (tracked) {
    const Pin pin(other.loc);
    compute(result);
  } else {
    const Unseen inside(other.loc);
    compute(result);
  }
  if (kind_of(result.dtype()) > kind_of(x.dtype()))
    fail(at, {"a ", result.dtype(), " result can't be written into ", x.dtype()},
         {"convert first: x = x.to(", result.dtype(), ")"});
  if (result.shape() != x.shape())
    fail(at, {"the result ", result.shape(), " does not fit into ", x.shape()});
  const Node* node = result.node();
  if (node) keep_what_is_overwritten(*result.node(), x);
  if (tracked) {
    replace(x, result, at);
  } else {
    copy(x.elements(), result.elements());
    note_write(x, op, line_of(other.loc));
  }
  if (current.observer) tell_wrote(x, before, op, node, line_of(other.loc));
  return x;
}
inline const Tensor& Tensor::clamp_(ClampOptions options, Loc loc) const {
  if (!options.min && !options.max) static_cast<void>(clamp(options, loc));  // which says so
  // Both are checked before anything is written.
  for (const std::optional<Scalar>& bound : {options.min, options.max})
    if (bound && defined() && kind_of(bound->dtype()) > kind_of(dtype()))
      fail({"clamp_", loc}, {"a ", bound->dtype(), " result can't be written into ", dtype()},
           {"convert first: x = x.to(", bound->dtype(), ")"});
  if (options.min)
    rewrite(*this, Operand(*options.min, loc), "clamp_",
            [&](Tensor& y) { y = with_number<rule::ClampMin>(*this, *options.min, loc); });
  if (options.max)
    rewrite(*this, Operand(*options.max, loc), "clamp_",
            [&](Tensor& y) { y = with_number<rule::ClampMax>(*this, *options.max, loc); });
  return *this;
}
inline const Tensor& Tensor::clamp_(Scalar min, Scalar max, Loc loc) const {
  return clamp_({.min = min, .max = max}, loc);
}
inline const Tensor& Tensor::masked_fill_(const Tensor& mask, const Operand& value) const {
  return rewrite(*this, value, "masked_fill_", [&](Tensor& y) { y = masked_fill(mask, value); });
}

// What is assigned may have axes of size 1 in front that its place does not have.
inline Tensor without_leading_ones(Tensor x, int axes) {
  while (x.dim() > axes && x.shape()[0] == 1) x = x.squeeze(0);
  return x;
}
inline void Tensor::operator=(const Operand& value) && {
  if (!defined())
    fail({"=", value.loc}, {"there is no tensor to write into"},
         {"a gradient is set with w.set_grad(g)"});
  if (!value.tensor || !value.tensor->defined() || value.tensor->dim() <= dim())
    return static_cast<void>(copy_(value));
  const Pin pin(value.loc);
  copy_(Operand(without_leading_ones(*value.tensor, dim()), value.loc));
}

inline Tensor& Tensor::operator+=(const Operand& other) & { return add_(other), *this; }
inline Tensor& Tensor::operator-=(const Operand& other) & { return sub_(other), *this; }
inline Tensor& Tensor::operator*=(const Operand& other) & { return mul_(other), *this; }
inline Tensor& Tensor::operator/=(const Operand& other) & { return div_(other), *this; }
inline void Tensor::operator+=(const Operand& other) && { add_(other); }
inline void Tensor::operator-=(const Operand& other) && { sub_(other); }
inline void Tensor::operator*=(const Operand& other) && { mul_(other); }
inline void Tensor::operator/=(const Operand& other) && { div_(other); }

// ---- x[mask] and x[numbers] ---------------------------------------------------------------------
//
// Rows of x: a mask of shape [n] or [n, m] says which of the first axis, or of the first two as
// one; numbers may be negative, come twice, and have any shape. What is read is a copy, with a
// history; what is assigned goes back into x, as it does in Python.

struct RowChoice {
  RowChoice(const Tensor& x, const Tensor& index, const At& at) {
    check_together(at, {&x, &index});
    const bool mask = index.dtype() == boolean;
    const int leading = mask ? index.dim() : 1;  // the axes that are indexed
    if (!mask && x.dim() == 0) fail(at, {"a 0-d tensor has no axis to index"});
    Shape before;
    for (int i = 0; i < x.dim(); ++i) (i < leading ? before : row).push_back(x.shape()[i]);
    if (mask && before != index.shape())
      fail(at, {"the mask has shape ", index.shape(), ", and the tensor begins with ", before});
    const Unseen inside(at.loc);
    if (mask) {
      numbers = places_of(index);
    } else {
      const Tensor from_the_end = (index < 0) & (index >= -before[0]);
      numbers = where(from_the_end, index + before[0], index).reshape({-1});
      check_index(numbers, before[0], at);
    }
    shape = mask ? numbers.shape() : index.shape();
    count = before.numel();
    for (std::int64_t size : row) shape.push_back(size);
  }
  Shape with_row(std::int64_t first) const {
    Shape rows = row;
    rows.insert(0, first);
    return rows;
  }
  Tensor numbers;          // of the rows, in a line
  std::int64_t count = 0;  // of rows in x
  Shape row, shape;        // of one row, and of the result
};

class Tensor::Picked : public Tensor {
 public:
  Picked(Tensor picked, Tensor from, const IndexTensor& index)
      : Tensor(std::move(picked)), from_(std::move(from)), index_(index.tensor) {}
  Picked(const Picked&) = default;
  Picked& operator=(const Picked&) & = default;
  using Tensor::operator=, Tensor::operator+=, Tensor::operator-=, Tensor::operator*=,
        Tensor::operator/=;
  void operator=(const Operand& value) &&;
  void operator+=(const Operand& value) && { std::move(*this) = Operand(*this + value, value.loc); }
  void operator-=(const Operand& value) && { std::move(*this) = Operand(*this - value, value.loc); }
  void operator*=(const Operand& value) && { std::move(*this) = Operand(*this * value, value.loc); }
  void operator/=(const Operand& value) && { std::move(*this) = Operand(*this / value, value.loc); }

 private:
  Tensor from_, index_;
};

inline Tensor::Picked Tensor::operator[](const IndexTensor& index) const {
  const At at{"[]", index.loc};
  check_together(at, {this, &index.tensor});
  if (index.tensor.dtype() == int64 && index.tensor.dim() == 0)  // one row, as x[0]
    return {select(0, index.tensor.item<std::int64_t>(), index.loc), *this, index};
  const RowChoice choice(*this, index.tensor, at);
  const Composed whole("[]", index.loc);
  const Tensor rows = reshape(choice.with_row(choice.count)).index_select(0, choice.numbers);
  return {titled("IndexBackward0", rows.reshape(choice.shape)), *this, index};
}
inline void Tensor::Picked::operator=(const Operand& value) && {
  const At at{"[]=", value.loc};
  if (value.tensor) check_together(at, {&from_, value.tensor});
  check_no_fraction_lost(from_, value, at.op);
  if (value.tensor && kind_of(value.tensor->dtype()) > kind_of(from_.dtype()))
    fail(at, {"a ", value.tensor->dtype(), " value can't be written into ", from_.dtype()});
  const RowChoice choice(from_, index_, at);
  rewrite(from_, value, at.op, [&](Tensor& y) {
    const Composed whole(at.op, value.loc);
    const Tensor rows = from_.reshape(choice.with_row(choice.count));
    const Tensor places = spread(choice.numbers, rows.shape(), 0, at);
    if (value.tensor) {
      Tensor source = without_leading_ones(*value.tensor, choice.shape.size());
      if (source.numel() == 1) source = source.to(from_.dtype());
      y = rows.scatter(0, places, source.expand(choice.shape).reshape(places.shape()));
    } else {
      y = rows.scatter(0, places, value.number);
    }
    y = titled("IndexPutBackward0", y.reshape(from_.shape()));
  });
}

// A window of a line of memory, given by hand.
inline Tensor window_of(const Tensor& line, const Shape& shape, const Shape& strides,
                        std::int64_t offset) {
  Tensor y =
      record<rule::AsStrided>(view_of(line, shape, strides, offset), {&line}, Loc::unknown());
  if (Node* node = y.get().node.get()) {
    save(*node, 'v', y, true);
    save(*node, 'o', line, true);
  }
  return y;
}
// Zeros over the extent of a base: in them, the base and its windows lie as they do in memory.
inline Tensor line_like(const TensorData& base, const Tensor& dy) {
  std::int64_t extent = base.shape.numel() ? 1 : 0;
  for (int i = 0; extent && i < base.shape.size(); ++i)
    extent += (base.shape[i] - 1) * base.strides[i];
  return zeros({extent}, {.dtype = dy.dtype(), .device = dy.device()});
}

// A place of the base may show in several places of the view, whose gradients add up: so the view's
// places in the line are written down as numbers, and the gradients scattered to them.
inline void rule::AsStrided::backward() {
  const Tensor view = saved('v'), base = saved('o');
  const TensorData &window = view.get(), &whole = base.get();
  const std::int64_t extent = line_like(whole, dy).numel();
  const Tensor line = arange(extent, {.dtype = int64, .device = dy.device()});
  const Tensor places =
      window_of(line, window.shape, window.strides, window.offset() - whole.offset());
  const Tensor sums = scatter_new(dy.reshape({-1}), places.reshape({-1}), {extent}, 0);
  give(0, window_of(sums, whole.shape, whole.strides, 0));
}

inline void rule::WriteInto::backward() {
  const Tensor view = saved('v'), base = saved('o');
  const TensorData &window = view.get(), &whole = base.get();
  const Tensor line = line_like(whole, dy);
  window_of(line, whole.shape, whole.strides, 0).copy_(dy);
  const Tensor place =
      window_of(line, window.shape, window.strides, window.offset() - whole.offset());
  if (wants(1)) give(1, place.clone());
  if (!wants(0)) return;
  place.zero_();
  give(0, window_of(line, whole.shape, whole.strides, 0));
}

// ---- An operation of your own -------------------------------------------------------------------
//
// A box like those above may stand in your program. Its `forward` computes y from the inputs; of
// that nothing is recorded, because `backward` is the derivative of the whole:
//
//     struct Cube : Rule {
//       static constexpr Facts facts = {.name = "cube", .symbol = "a³", .formula = "a * a * a",
//                                       .derivatives = {"3 * dy * a * a"}, .node = "CubeBackward"};
//       static Tensor forward(const Tensor& a) { return a * a * a; }
//       void backward() { give(0, 3 * dy * a() * a()); }
//     };
//     Tensor y = custom<Cube>(x);
//
// It takes up to three tensors. If forward has one more parameter, `const Given& given`, it is told
// the plain numbers of the call, as in custom<Power>(x, {.n = 3}). Prove it with gradcheck().

inline Tensor own_operation(const Recipe& recipe, std::initializer_list<const Tensor*> inputs,
                            const Given& given, Loc loc, Calls<Tensor&> forward) {
  const At at{recipe.facts->plain_name(), loc};
  check_together(at, inputs);
  Tensor y;
  {
    const Unseen inside(loc);
    forward(y);
    if (!y.defined()) fail(at, {"its forward has returned an undefined tensor"});
    // The node goes to y alone: not to an input, say, that forward has returned as it is.
    if (!y.handle().only_one() || !y.get().storage.only_one()) y = copy_of(y);
  }
  return record_as(recipe, std::move(y), inputs, loc, given);
}
template <class R>
constexpr const Recipe& own_recipe() {
  static_assert(
      requires { R::facts; }, "the operation needs: static constexpr Facts facts = {...}");
  return recipe_of<R>;
}
template <class R, class... T>
Tensor forward_of(const Given& given, const T&... inputs) {
  if constexpr (requires { R::forward(inputs..., given); })
    return R::forward(inputs..., given);
  else
    return R::forward(inputs...);
}
template <class R>
Tensor custom(const Tensor& a, const Given& given = nothing_given, Loc loc = Loc::here()) {
  return own_operation(own_recipe<R>(), {&a}, given, loc,
                       [&](Tensor& y) { y = forward_of<R>(given, a); });
}
template <class R>
Tensor custom(const Tensor& a, const Tensor& b, const Given& given = nothing_given,
              Loc loc = Loc::here()) {
  return own_operation(own_recipe<R>(), {&a, &b}, given, loc,
                       [&](Tensor& y) { y = forward_of<R>(given, a, b); });
}
template <class R>
Tensor custom(const Tensor& a, const Tensor& b, const Tensor& c, const Given& given = nothing_given,
              Loc loc = Loc::here()) {
  return own_operation(own_recipe<R>(), {&a, &b, &c}, given, loc,
                       [&](Tensor& y) { y = forward_of<R>(given, a, b, c); });
}

// ================================================================================================
// 11. Composed operations
// ================================================================================================
//
// Made of operations that have their rules already; no derivative is written twice. (The one box
// here, of binary_cross_entropy, stands beside its sisters.) Each opens a scope of its name, so the
// viewer can draw it as one box or show what is inside.

// The largest elements along an axis, as constants. Of nothing it is 0: what is made of it is
// empty.
inline Tensor largest_along(const Tensor& x, std::int64_t axis) {
  if (x.numel() == 0) return zeros({}, {.dtype = x.dtype(), .device = x.device()});
  return x.detach().amax({axis}, {.keepdim = true});
}

// What is composed here of several operations can be fused into one, if nobody wants to know how it
// comes about: nothing is recorded, and nobody watches.
inline bool nobody_asks_how(const Tensor& x) {
  return !(current.grad_enabled && x.requires_grad()) && !current.observer && x.numel() > 0;
}
// Undefined where there is no such thing.
inline Tensor fused(RowNormalization kind, const Tensor& x, std::int64_t axis, double eps,
                    const At& at) {
  if (!nobody_asks_how(x) || x.dim() == 0) return {};
  const int along = checked_axis(axis, x.dim(), at);
  Tensor y = fresh(x.shape(), x.dtype(), x.device(), at);
  return normalize(kind, y.elements(), x.elements(), along, eps) ? y : Tensor();
}

// The exponentials, scaled to sum to 1 along an axis. Subtracting the maximum first changes nothing
// in the result and keeps exp() from overflowing.
inline Tensor Tensor::softmax(Extent axis, Loc loc) const {
  const At at{"softmax", loc};
  check_floats(*this, at);
  if (const Tensor y = fused(RowNormalization::softmax, *this, axis, 0, at); y.defined()) return y;
  const Composed whole("softmax", loc);
  const Tensor shifted = *this - largest_along(*this, axis);
  const Tensor powers = shifted.exp();
  return titled("SoftmaxBackward0", powers / powers.sum({std::int64_t{axis}}, {.keepdim = true}));
}
// log(softmax(x)), without the detour over numbers too small to have a logarithm.
inline Tensor Tensor::log_softmax(Extent axis, Loc loc) const {
  const At at{"log_softmax", loc};
  check_floats(*this, at);
  if (const Tensor y = fused(RowNormalization::log_softmax, *this, axis, 0, at); y.defined())
    return y;
  const Composed whole("log_softmax", loc);
  const Tensor shifted = *this - largest_along(*this, axis);
  const Tensor total = shifted.exp().sum({std::int64_t{axis}}, {.keepdim = true});
  return titled("LogSoftmaxBackward0", shifted - total.log());
}
inline Tensor softmax(const Tensor& x, Extent axis, Loc loc = Loc::here()) {
  return x.softmax(axis, loc);
}
inline Tensor log_softmax(const Tensor& x, Extent axis, Loc loc = Loc::here()) {
  return x.log_softmax(axis, loc);
}

// ---- Tests and logic, element by element --------------------------------------------------------

inline Tensor Tensor::isnan(Loc loc) const {
  const Composed whole("isnan", loc);
  return *this != *this;
}
inline Tensor Tensor::isinf(Loc loc) const {
  const Composed whole("isinf", loc);
  return (*this == std::numeric_limits<double>::infinity()) |
         (*this == -std::numeric_limits<double>::infinity());
}
inline Tensor Tensor::isfinite(Loc loc) const {
  const Composed whole("isfinite", loc);
  return (*this == *this) & (*this != std::numeric_limits<double>::infinity()) &
         (*this != -std::numeric_limits<double>::infinity());
}
// Are all elements the same, and the shapes?
inline bool Tensor::equal(const Tensor& other, Loc loc) const {
  check_together({"equal", loc}, {this, &other});
  const Unseen inside(loc);
  return shape() == other.shape() && (*this == other).all().item<bool>();
}
// Is |a - b| <= atol + rtol * |b| everywhere? An infinity is close to itself alone.
inline bool Tensor::allclose(const Tensor& other, CloseOptions options, Loc loc) const {
  const At at{"allclose", loc};
  check_together(at, {this, &other});
  if (!(options.rtol >= 0 && options.atol >= 0)) fail(at, {"rtol and atol are not negative"});
  static_cast<void>(broadcast_shapes(shape(), other.shape(), at));
  const Unseen inside(loc);
  const Tensor a = to(float64), b = other.to(float64), distance = (a - b).abs();
  Tensor close = (distance <= b.abs() * options.rtol + options.atol) & distance.isfinite();
  close = close | (a == b);
  if (options.equal_nan) close = close | (a.isnan() & b.isnan());
  return close.all().item<bool>();
}
inline bool Tensor::allclose(const Tensor& other, Loc loc) const {
  return allclose(other, {}, loc);
}
inline bool equal(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.equal(b, loc);
}
inline bool allclose(const Tensor& a, const Tensor& b, CloseOptions options = {},
                     Loc loc = Loc::here()) {
  return a.allclose(b, options, loc);
}
// Of numbers everything but 0 counts as true.
inline Tensor Tensor::logical_and(const Tensor& other, Loc loc) const {
  check_together({"logical_and", loc}, {this, &other});
  const Composed whole("logical_and", loc);
  return to(boolean) & other.to(boolean);
}
inline Tensor Tensor::logical_or(const Tensor& other, Loc loc) const {
  check_together({"logical_or", loc}, {this, &other});
  const Composed whole("logical_or", loc);
  return to(boolean) | other.to(boolean);
}
inline Tensor Tensor::logical_xor(const Tensor& other, Loc loc) const {
  check_together({"logical_xor", loc}, {this, &other});
  const Composed whole("logical_xor", loc);
  return to(boolean) ^ other.to(boolean);
}
inline Tensor Tensor::logical_not(Loc loc) const {
  check_together({"logical_not", loc}, {this});
  const Composed whole("logical_not", loc);
  return ~to(boolean);
}
inline Tensor isnan(const Tensor& x, Loc loc = Loc::here()) { return x.isnan(loc); }
inline Tensor isinf(const Tensor& x, Loc loc = Loc::here()) { return x.isinf(loc); }
inline Tensor isfinite(const Tensor& x, Loc loc = Loc::here()) { return x.isfinite(loc); }
inline Tensor logical_not(const Tensor& x, Loc loc = Loc::here()) { return x.logical_not(loc); }
inline Tensor logical_and(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.logical_and(b, loc);
}
inline Tensor logical_or(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.logical_or(b, loc);
}
inline Tensor logical_xor(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.logical_xor(b, loc);
}

// ---- Products by their special names ------------------------------------------------------------
//
// matmul, for shapes that are what the name says.

inline void check_product(const Tensor& a, int a_axes, const Tensor& b, int b_axes, const At& at) {
  check_together(at, {&a, &b});
  if (a.dim() != a_axes || b.dim() != b_axes)
    fail(at, {"it takes ", a_axes, " and ", b_axes, " axes, not ", a.shape(), " and ", b.shape()},
         {"matmul() takes any"});
}
inline Tensor Tensor::mm(const Tensor& other, Loc loc) const {  // [n, k] x [k, m] -> [n, m]
  check_product(*this, 2, other, 2, {"mm", loc});
  return matmul(other, loc);
}
inline Tensor Tensor::bmm(const Tensor& other, Loc loc) const {  // [b, n, k] x [b, k, m]
  const At at{"bmm", loc};
  check_product(*this, 3, other, 3, at);
  if (shape()[0] != other.shape()[0])
    fail(at, {"the batches differ: ", shape(), " and ", other.shape()}, {"matmul() broadcasts"});
  return titled("BmmBackward0", matmul(other, loc));
}
inline Tensor Tensor::mv(const Tensor& vector, Loc loc) const {  // [n, k] x [k] -> [n]
  check_product(*this, 2, vector, 1, {"mv", loc});
  return matmul(vector, loc);
}
inline Tensor Tensor::dot(const Tensor& other, Loc loc) const {  // [k] x [k] -> []
  check_product(*this, 1, other, 1, {"dot", loc});
  return matmul(other, loc);
}
inline Tensor Tensor::outer(const Tensor& other, Loc loc) const {  // [n] x [m] -> [n, m]
  check_product(*this, 1, other, 1, {"outer", loc});
  const Composed whole("outer", loc);
  return unsqueeze(1) * other;
}
// beta * this + alpha * a b, where `this` broadcasts.
inline Tensor Tensor::addmm(const Tensor& a, const Tensor& b, AddmmOptions options, Loc loc) const {
  const At at{"addmm", loc};
  check_product(a, 2, b, 2, at);
  check_together(at, {this, &a});
  const Composed whole("addmm", loc);
  Tensor product = a.matmul(b);
  if (options.alpha != 1) product = product * options.alpha;
  if (broadcast_shapes(shape(), product.shape(), at) != product.shape())
    fail(at, {shape(), " does not broadcast to ", product.shape()});
  if (options.beta == 0) return product;
  const Tensor offset = options.beta == 1 ? *this : *this * options.beta;
  return titled("AddmmBackward0", offset + product);
}
inline Tensor Tensor::addmm(const Tensor& a, const Tensor& b, Loc loc) const {
  return addmm(a, b, {}, loc);
}
inline Tensor mm(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) { return a.mm(b, loc); }
inline Tensor bmm(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) { return a.bmm(b, loc); }
inline Tensor mv(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) { return a.mv(b, loc); }
inline Tensor dot(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) { return a.dot(b, loc); }
inline Tensor outer(const Tensor& a, const Tensor& b, Loc loc = Loc::here()) {
  return a.outer(b, loc);
}
inline Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, AddmmOptions options = {},
                    Loc loc = Loc::here()) {
  return x.addmm(a, b, options, loc);
}

// ---- Einstein's sums ----------------------------------------------------------------------------
//
// einsum("ij,jk->ik", a, b) names the axes of each operand: y[i,k] = sum over j of a[i,j] * b[j,k].
// A letter that the result does not have is summed over. Without "->" the result has the letters
// that occur once, by the alphabet. "..." stands for the axes without a letter, which broadcast. A
// letter that an operand has twice means its diagonal.
//
// Two operands at a time become one: as a product of matrices if there is something to sum over,
// and otherwise element by element.

namespace einstein {
constexpr char first_unnamed = 1;  // the axes of "..." are called 1, 2, ... from the last one on

struct Term {
  Tensor x;
  std::string axes;  // a name for each axis
};

inline bool has(const std::string& axes, char name) { return axes.find(name) != axes.npos; }

// "i...j" for a tensor with four axes -> "i\2\1j". `unnamed` is how many axes "..." stands for.
inline std::string axes_of(std::string text, int unnamed) {
  const std::size_t dots = text.find("...");
  if (dots == text.npos) return text;
  std::string names;
  for (int k = unnamed; k-- > 0;) names += static_cast<char>(first_unnamed + k);
  return text.replace(dots, 3, names);
}

// The term with its axes in this order; those that it lacks get size 1.
inline Tensor in_order(const Term& term, const std::string& order) {
  Shape axes;
  for (char name : order)
    if (has(term.axes, name)) axes.push_back(static_cast<std::int64_t>(term.axes.find(name)));
  bool moved = false;
  for (int i = 0; i < axes.size(); ++i) moved = moved || axes[i] != i;
  Tensor x = moved ? term.x.permute(axes) : term.x;
  for (std::size_t i = 0; i < order.size(); ++i)
    if (!has(term.axes, order[i])) x = x.unsqueeze(i);
  return x;
}

// Sums over the axes that nobody else wants.
inline Term without(Term term, const std::string& wanted) {
  Shape over;
  std::string rest;
  for (std::size_t i = 0; i < term.axes.size(); ++i) {
    if (has(wanted, term.axes[i]))
      rest += term.axes[i];
    else
      over.push_back(static_cast<std::int64_t>(i));
  }
  return over.empty() ? term : Term{term.x.sum(over), rest};
}

inline Term diagonal_of(Term term, const At& at) {
  for (std::size_t i = 0; i < term.axes.size(); ++i) {
    const char name = term.axes[i];
    const std::size_t again = term.axes.find(name, i + 1);
    if (again == term.axes.npos) continue;
    if (term.x.size(i) != term.x.size(again))
      fail(at, {"the axis ", name, " has the sizes ", term.x.size(i), " and ", term.x.size(again)});
    term.x = term.x.diagonal(0, i, again);
    term.axes.erase(again, 1).erase(i, 1);
    term.axes += name;
    i = static_cast<std::size_t>(-1);  // from the start again
  }
  return term;
}

inline Term product(Term a, Term b, const std::string& wanted, const At& at) {
  a = without(a, wanted + b.axes);
  b = without(b, wanted + a.axes);
  std::string batch, summed, left, right;  // in both and wanted; in both; in a alone; in b alone
  for (char name : a.axes) (!has(b.axes, name) ? left : has(wanted, name) ? batch : summed) += name;
  for (char name : b.axes)
    if (!has(a.axes, name)) right += name;
  const std::string all = batch + left + right;
  if (static_cast<int>(all.size() + summed.size()) > Shape::capacity)
    fail(at, {"a product has more than ", Shape::capacity, " axes"});
  if (summed.empty()) return {in_order(a, all) * in_order(b, all), all};
  auto sizes = [&](const std::string& names) {  // a size of 1 in one of the two broadcasts
    Shape shape;
    for (char name : names) {
      std::int64_t size = 1;
      for (const Term* term : {&a, &b})
        if (size == 1 && has(term->axes, name)) size = term->x.size(term->axes.find(name));
      shape.push_back(size);
    }
    return shape;
  };
  auto as_matrices = [&](const Term& term, const std::string& rows, const std::string& columns) {
    return in_order(term, batch + rows + columns)
        .expand(sizes(batch + rows + columns))
        .reshape({sizes(batch).numel(), sizes(rows).numel(), sizes(columns).numel()});
  };
  const Tensor y = as_matrices(a, left, summed).matmul(as_matrices(b, summed, right));
  return {y.reshape(sizes(all)), all};
}

struct Equation {
  std::vector<std::string> operands;
  std::string result;
  bool has_result = false;
};
inline Equation parsed(std::string text, const At& at) {
  Equation equation;
  for (std::size_t blank; (blank = text.find(' ')) != text.npos;) text.erase(blank, 1);
  const std::size_t arrow = text.find("->");
  if (arrow != text.npos) {
    equation.has_result = true;
    equation.result = text.substr(arrow + 2);
    text.erase(arrow);
  }
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    equation.operands.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<std::string> parts = equation.operands;
  parts.push_back(equation.result);
  for (std::string part : parts) {
    if (const std::size_t dots = part.find("..."); dots != part.npos) part.erase(dots, 3);
    for (char name : part)
      if (!(name >= 'a' && name <= 'z') && !(name >= 'A' && name <= 'Z'))
        fail(at, {"the equation has a \"", name, "\""},
             {"it is made of letters, commas, one -> and \"...\": \"ij,jk->ik\""});
  }
  return equation;
}
}  // namespace einstein

inline Tensor einsum(const std::string& text, const std::vector<Tensor>& operands,
                     Loc loc = Loc::here()) {
  const At at{"einsum", loc};
  for (const Tensor& x : operands) check_together(at, {&operands[0], &x});
  einstein::Equation equation = einstein::parsed(text, at);
  if (operands.size() != equation.operands.size())
    fail(at, {"the equation has ", equation.operands.size(), " operands, and there are ",
              operands.size()});
  const Composed whole("einsum", loc);
  std::vector<einstein::Term> terms;
  std::int64_t sizes[128] = {}, times[128] = {};  // of each axis, by its name
  std::string once, unnamed;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const std::string& named = equation.operands[k];
    const bool dots = named.find("...") != named.npos;
    const int rest = operands[k].dim() - static_cast<int>(named.size()) + (dots ? 3 : 0);
    if (rest < 0 || (rest > 0 && !dots))
      fail(at, {"\"", named, "\" does not name the axes of ", operands[k].shape()});
    const std::string axes = einstein::axes_of(named, rest);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::int64_t size = operands[k].shape()[static_cast<int>(i)];
      const auto name = static_cast<std::size_t>(axes[i]);
      std::int64_t& known = sizes[name];
      if (times[name]++ == 0 || known == 1) known = size;
      if (size != known && size != 1)
        fail(at, {axes[i] < 'A' ? text_of({"an axis of \"...\""}) : text_of({"the axis ", axes[i]}),
                  " has the sizes ", known, " and ", size});
    }
    terms.push_back(einstein::diagonal_of({operands[k], axes}, at));
  }
  for (char name = 1; name < 127; ++name) {  // in the order of the alphabet
    const std::int64_t count = times[static_cast<std::size_t>(name)];
    if (count > 0 && name < 'A') unnamed.insert(unnamed.begin(), name);
    if (count == 1 && name >= 'A') once += name;
  }
  std::string result = unnamed + once;
  if (equation.has_result)
    result = einstein::axes_of(equation.result, static_cast<int>(unnamed.size()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (times[static_cast<std::size_t>(result[i])] == 0)
      fail(at, {"no operand has the axis ", result[i], " of the result"});
    if (result.find(result[i], i + 1) != result.npos)
      fail(at, {"the result has the axis ", result[i], " twice"});
  }
  einstein::Term y = terms[0];
  for (std::size_t k = 1; k < terms.size(); ++k) {
    std::string wanted = result;
    for (std::size_t later = k + 1; later < terms.size(); ++later) wanted += terms[later].axes;
    y = einstein::product(y, terms[k], wanted, at);
  }
  return einstein::in_order(einstein::without(y, result), result);
}
inline Tensor einsum(const std::string& text, const Tensor& a, Loc loc = Loc::here()) {
  return einsum(text, std::vector<Tensor>{a}, loc);
}
inline Tensor einsum(const std::string& text, const Tensor& a, const Tensor& b,
                     Loc loc = Loc::here()) {
  return einsum(text, std::vector<Tensor>{a, b}, loc);
}

// ---- Losses -------------------------------------------------------------------------------------

struct LossOptions {
  ByName by_name = ByName();
  const char* reduction = "mean";  // or "sum" or "none"
};
struct NllLossOptions {
  ByName by_name = ByName();
  Tensor weight = {};  // [C]: how much each class counts; undefined: all the same
  std::int64_t ignore_index = -100;
  const char* reduction = "mean";
};
struct CrossEntropyOptions {
  ByName by_name = ByName();
  Tensor weight = {};
  std::int64_t ignore_index = -100;
  const char* reduction = "mean";
  double label_smoothing = 0;  // the share of the target that is spread over all classes
};
struct BceOptions {
  ByName by_name = ByName();
  Tensor weight = {};  // how much each element counts; broadcasts
  const char* reduction = "mean";
};
struct BceWithLogitsOptions {
  ByName by_name = ByName();
  Tensor weight = {};
  const char* reduction = "mean";
  Tensor pos_weight = {};  // how much a target of 1 counts
};
struct HuberLossOptions {
  ByName by_name = ByName();
  const char* reduction = "mean";
  double delta = 1;
};
struct SmoothL1LossOptions {
  ByName by_name = ByName();
  const char* reduction = "mean";
  double beta = 1;
};
struct KlDivOptions {
  ByName by_name = ByName();
  const char* reduction = "mean";  // or "batchmean": the sum divided by the first size
  bool log_target = false;
};

inline Tensor reduced_loss(const Tensor& losses, const char* reduction, const At& at) {
  const std::string_view how = reduction;
  if (how == "none") return losses;
  if (how == "sum") return losses.sum();
  if (how == "mean") return losses.mean();
  fail(at, {"reduction is \"", how, "\""}, {"write \"mean\", \"sum\" or \"none\""});
}

// input - target, with a warning if the shapes broadcast.
inline Tensor difference_from(const Tensor& target, const Tensor& input, const At& at) {
  const Tensor error = input - target;
  if (input.shape() != target.shape())
    warn(at,
         {"the shapes ", input.shape(), " and ", target.shape(), " are broadcast to ",
          error.shape()},
         {"give both the same shape, with squeeze(-1) or unsqueeze(-1)"});
  return error;
}

// The mean of (input - target)^2. Shapes broadcast, which is rarely meant: [N, 1] against [N] are
// N * N differences. So that is said.
inline Tensor mse_loss(const Tensor& input, const Tensor& target, LossOptions options = {},
                       Loc loc = Loc::here()) {
  const Composed whole("mse_loss", loc);
  const Tensor error = difference_from(target, input, {"mse_loss", loc});
  return titled("MseLossBackward0",
                reduced_loss(error.square(), options.reduction, {"mse_loss", loc}));
}

// The mean of |input - target|.
inline Tensor l1_loss(const Tensor& input, const Tensor& target, LossOptions options = {},
                      Loc loc = Loc::here()) {
  const Composed whole("l1_loss", loc);
  const Tensor error = difference_from(target, input, {"l1_loss", loc});
  return reduced_loss(error.abs(), options.reduction, {"l1_loss", loc});
}
// Half the square of a small error, and a straight line from delta on (P. J. Huber, 1964).
inline Tensor huber_loss(const Tensor& input, const Tensor& target, HuberLossOptions options = {},
                         Loc loc = Loc::here()) {
  const At at{"huber_loss", loc};
  if (!(options.delta > 0)) fail(at, {"delta is ", options.delta, ", it has to be positive"});
  const Composed whole("huber_loss", loc);
  const Tensor error = difference_from(target, input, at), size = error.abs();
  const Tensor far = size > options.delta;
  const Tensor near = where(far, 0, error);  // on the way back, 0 * inf would be NaN
  const Tensor losses = where(far, (size - options.delta / 2) * options.delta, near.square() * 0.5);
  return titled("HuberLossBackward0", reduced_loss(losses, options.reduction, at));
}
// The same, divided by beta: close to |input - target|, but smooth at 0.
inline Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                             SmoothL1LossOptions options = {}, Loc loc = Loc::here()) {
  const At at{"smooth_l1_loss", loc};
  if (options.beta < 0) fail(at, {"beta is negative: ", options.beta});
  const Composed whole("smooth_l1_loss", loc);
  const Tensor error = difference_from(target, input, at), size = error.abs();
  Tensor losses = size;
  if (options.beta > 0) {
    const Tensor far = size >= options.beta;
    losses =
        where(far, size - options.beta / 2, where(far, 0, error).square() * (0.5 / options.beta));
  }
  return titled("SmoothL1LossBackward0", reduced_loss(losses, options.reduction, at));
}

namespace rule {
struct BinaryCrossEntropy : Rule {  // neither log below -100, nor a denominator of 0
  static constexpr Facts facts = {
      .name = "binary_cross_entropy",
      .symbol = "bce",
      .formula = "-(b * log(a) + (1 - b) * log(1 - a))",
      .derivatives = {"dy * (a - b) / (a * (1 - a))", "dy * (log(1 - a) - log(a))"},
      .node = "BinaryCrossEntropyBackward0"};
  void backward() {
    if (wants(0)) give(0, dy * (a() - b()) / (a() * (1 - a())).clamp({.min = 1e-12}));
    if (wants(1))
      give(1, dy * ((1 - a()).log().clamp({.min = -100}) - a().log().clamp({.min = -100})));
  }
};
}  // namespace rule

// The elements times a weight that broadcasts to their shape, if there is one.
inline Tensor weighted(const Tensor& x, const Tensor& weight, const At& at) {
  if (!weight.defined()) return x;
  if (broadcast_shapes(x.shape(), weight.shape(), at) != x.shape())
    fail(at, {"the weight ", weight.shape(), " does not broadcast to ", x.shape()});
  return x * weight;
}
// Minus the log of the probability of what is so: of input where the target is 1, and of 1 - input
// where it is 0. Logs stop at -100, so that a certain mistake costs 100 and not infinity.
inline Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                                   BceOptions options = {}, Loc loc = Loc::here()) {
  const At at{"binary_cross_entropy", loc};
  check_floats(input, at);
  check_together(at, {&input, &target});
  if (input.shape() != target.shape())
    fail(at, {"the shapes ", input.shape(), " and ", target.shape(), " differ"},
         {"give both the same shape, with squeeze(-1) or unsqueeze(-1)"});
  const Composed whole("binary_cross_entropy", loc);
  Tensor losses;
  {
    const Unseen inside(loc);
    if (((input < 0) | (input > 1)).any().item<bool>())
      fail(at, {"an element of the input is not a probability between 0 and 1"},
           {"write binary_cross_entropy_with_logits, which takes any number"});
    losses = -(target * input.log().clamp({.min = -100}) +
               (1 - target) * (1 - input).log().clamp({.min = -100}));
  }
  losses = record<rule::BinaryCrossEntropy>(losses, {&input, &target}, loc);
  losses = weighted(losses, options.weight, at);
  return titled("BinaryCrossEntropyBackward0", reduced_loss(losses, options.reduction, at));
}
// The same of sigmoid(input), without the detour over probabilities that round to 0 or 1.
inline Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                               BceWithLogitsOptions options = {},
                                               Loc loc = Loc::here()) {
  const At at{"binary_cross_entropy_with_logits", loc};
  check_floats(input, at);
  check_together(at, {&input, &target});
  if (input.shape() != target.shape())
    fail(at, {"the shapes ", input.shape(), " and ", target.shape(), " differ"},
         {"give both the same shape, with squeeze(-1) or unsqueeze(-1)"});
  const Composed whole("binary_cross_entropy_with_logits", loc);
  Tensor logs = logsigmoid(input);
  if (options.pos_weight.defined())
    logs = logs * (weighted(target, options.pos_weight - 1, at) + 1);
  Tensor losses = (1 - target) * input - logs;
  losses = weighted(losses, options.weight, at);
  return titled("BinaryCrossEntropyWithLogitsBackward0",
                reduced_loss(losses, options.reduction, at));
}

// target * (log(target) - input): how far the distribution e^input is from the target (S. Kullback,
// R. A. Leibler, 1951). With log_target both are logarithms.
inline Tensor kl_div(const Tensor& input, const Tensor& target, KlDivOptions options = {},
                     Loc loc = Loc::here()) {
  const At at{"kl_div", loc};
  check_floats(input, at);
  check_together(at, {&input, &target});
  const Composed whole("kl_div", loc);
  Tensor losses;
  if (options.log_target) {
    losses = target.exp() * (target - input);
  } else {  // 0 log(0) is 0
    const Tensor safe = where(target == 0, 1, target);
    losses = target * safe.log() - target * input;
  }
  if (std::string_view(options.reduction) == "batchmean")
    return input.dim() > 0 ? losses.sum() / input.size(0) : losses.sum();
  return reduced_loss(losses, options.reduction, at);
}

// The class numbers of a loss: which rows count, and numbers that can be looked up in all of them.
struct Classes {
  Classes(const Tensor& target, std::int64_t ignored, std::int64_t count, const At& at)
      : keep(target != ignored), safe(where(keep, target, 0)) {
    check_index(safe, count, at);
  }
  Tensor keep, safe;
};
// What is left to do once there are log probabilities, with their classes along an axis.
inline Tensor class_loss(const Tensor& log_probabilities, const Classes& classes, int axis,
                         const CrossEntropyOptions& options, const At& at) {
  const Tensor& weight = options.weight;
  const double smoothing = options.label_smoothing;
  const Tensor picked = log_probabilities.gather(axis, classes.safe.unsqueeze(axis)).squeeze(axis);
  Tensor losses = where(classes.keep, -picked, 0), counts;
  if (weight.defined()) {
    counts =
        where(classes.keep,
              weight.index_select(0, classes.safe.reshape({-1})).reshape(classes.safe.shape()), 0);
    losses = losses * counts;
  }
  if (smoothing != 0) {
    const Shape line = line_along(axis, log_probabilities.dim());
    const Tensor weighted =
        weight.defined() ? log_probabilities * weight.reshape(line) : log_probabilities;
    const Tensor all = where(classes.keep, -weighted.sum(axis), 0);
    const double share = smoothing / static_cast<double>(log_probabilities.size(axis));
    losses = losses * (1 - smoothing) + all * share;
  }
  if (std::string_view(options.reduction) != "mean")
    return titled("NllLossBackward0", reduced_loss(losses, options.reduction, at));
  const Tensor count = counts.defined() ? counts.sum() : classes.keep.sum();
  return titled("NllLossBackward0", losses.sum() / count);
}
// Classes stand along axis 1, or along the only one.
inline int class_axis(const Tensor& x, const Tensor& target, const Tensor& weight, const At& at) {
  check_together(at, {&x, &target});
  const int axis = x.dim() == 1 ? 0 : 1;
  Shape rows = x.shape();
  if (x.dim() > 0) rows.erase(axis);
  if (x.dim() == 0 || rows != target.shape())
    fail(at, {"the shapes ", x.shape(), " and ", target.shape(), " do not fit"},
         {"logits [N, C] go with class numbers [N]"});
  if (weight.defined() && weight.shape() != Shape(x.shape()[axis]))
    fail(at, {"the weight has shape ", weight.shape(), ", and there are ", x.shape()[axis],
              " classes"});
  return axis;
}
inline void check_class_numbers(const Tensor& target, const At& at) {
  if (target.dtype() != int64)
    fail(at, {"the target is ", target.dtype(), ", not class numbers in int64"},
         {"convert with .to(int64)"});
}

// Minus the log of the probability given to the right class: log probabilities [N, C, ...] (or [C])
// and class numbers [N, ...] (or []) -> the mean over the rows. Rows whose class is ignore_index
// count for nothing.
inline Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target,
                       NllLossOptions options = {}, Loc loc = Loc::here()) {
  const At at{"nll_loss", loc};
  check_together(at, {&log_probabilities, &target});
  check_class_numbers(target, at);
  const int axis = class_axis(log_probabilities, target, options.weight, at);
  const Composed whole("nll_loss", loc);
  const Classes classes(target, options.ignore_index, log_probabilities.shape()[axis], at);
  CrossEntropyOptions how;
  how.weight = options.weight;
  how.reduction = options.reduction;
  return class_loss(log_probabilities, classes, axis, how, at);
}

// The same for logits, of which it takes the log_softmax first. The target may also be
// probabilities, in the shape of the logits.
inline Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                            CrossEntropyOptions options = {}, Loc loc = Loc::here()) {
  const At at{"cross_entropy", loc};
  check_together(at, {&logits, &target});
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    fail(at, {"label_smoothing is ", options.label_smoothing, ", it has to be between 0 and 1"});
  const int classes_at = logits.dim() == 1 ? 0 : 1;
  if (is_floating(target.dtype()) && target.shape() == logits.shape() && logits.dim() > 0) {
    if (options.ignore_index >= 0)
      fail(at, {"ignore_index goes with class numbers, and the target holds probabilities"});
    if (options.weight.defined() && options.weight.shape() != Shape(logits.shape()[classes_at]))
      fail(at, {"the weight ", options.weight.shape(), " is not one number for each class of ",
                logits.shape()});
    const Composed whole("cross_entropy", loc);
    const auto count = static_cast<double>(logits.size(classes_at));
    const double smoothing = options.label_smoothing;
    const Tensor wanted = smoothing == 0 ? target : target * (1 - smoothing) + smoothing / count;
    Tensor log_probabilities = logits.log_softmax(classes_at);
    if (options.weight.defined())
      log_probabilities =
          log_probabilities * options.weight.reshape(line_along(classes_at, logits.dim()));
    const Tensor losses = -(log_probabilities * wanted).sum(classes_at);
    return reduced_loss(losses, options.reduction, at);
  }
  check_class_numbers(target, at);
  const int axis = class_axis(logits, target, options.weight, at);
  const Composed whole("cross_entropy", loc);
  const Classes classes(target, options.ignore_index, logits.shape()[axis], at);
  return class_loss(logits.log_softmax(axis), classes, axis, options, at);
}

// ---- Layers as functions ------------------------------------------------------------------------

// x wᵀ + bias: [.., in] and a weight [out, in] -> [.., out]
inline Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                     Loc loc = Loc::here()) {
  const At at{"linear", loc};
  check_together(at, {&x, &weight});
  if (weight.dim() != 2 || x.dim() == 0 || x.size(-1) != weight.size(1))
    fail(at, {"the input ", x.shape(), " and the weight ", weight.shape(), " do not fit"},
         {"[.., in] goes with a weight [out, in]"});
  if (x.dtype() != weight.dtype())
    fail(at, {"the dtypes differ: ", x.dtype(), " and ", weight.dtype()},
         {"convert one with .to(", promote(x, weight), ")"});
  if (bias.defined() && bias.shape() != Shape(weight.size(0)))
    fail(at, {"the bias ", bias.shape(), " and the weight ", weight.shape(), " do not fit"});
  const Composed whole("linear", loc);
  const Tensor product = x.matmul(weight.t());
  return bias.defined() ? titled("AddmmBackward0", product + bias) : product;
}

// Class numbers as rows with a 1 in their place: [..] -> [.., classes]. Left out, there are as many
// classes as the largest number asks for.
inline Tensor one_hot(const Tensor& index, std::int64_t classes = -1, Loc loc = Loc::here()) {
  const At at{"one_hot", loc};
  check_together(at, {&index});
  if (index.dtype() != int64)
    fail(at, {"the index is ", index.dtype(), ", not int64"}, {"convert with .to(int64)"});
  if (classes == -1 && index.numel() == 0)
    fail(at, {"an empty index does not tell how many classes there are"}, {"name their number"});
  const Composed whole("one_hot", loc);
  if (classes == -1) classes = index.max().item<std::int64_t>() + 1;
  check_index(index, classes, at);
  return (index.unsqueeze(-1) == arange(classes, {.device = index.device()})).to(int64);
}
struct EmbeddingOptions {
  ByName by_name = ByName();
  std::optional<std::int64_t> padding_idx = {};  // a row that learns nothing
};
// Rows of a table: numbers [..] and a weight [rows, d] -> [.., d]
inline Tensor embedding(const Tensor& index, const Tensor& weight, EmbeddingOptions options = {},
                        Loc loc = Loc::here()) {
  const At at{"embedding", loc};
  check_together(at, {&index, &weight});
  if (weight.dim() != 2) fail(at, {"the weight has shape ", weight.shape(), ", and not two axes"});
  check_index(index, weight.size(0), at);
  const Composed whole("embedding", loc);
  const Tensor line = index.reshape({-1});
  Tensor rows = weight.index_select(0, line);
  if (options.padding_idx) {
    const std::int64_t padding = *options.padding_idx, count = weight.size(0);
    if (padding < -count || padding >= count)
      fail(at, {"padding_idx is ", padding, ", and the table has ", count, " rows"});
    const Tensor learns = (line != (padding < 0 ? padding + count : padding)).unsqueeze(1);
    rows = where(learns, rows, rows.detach());
  }
  Shape shape = index.shape();
  shape.push_back(weight.size(1));
  return titled("EmbeddingBackward0", rows.reshape(shape));
}

// (x - mean) / sqrt(variance + eps), of the elements along these axes.
inline Tensor standardized(const Tensor& x, const Shape& axes, double eps) {
  const Tensor distance = x - x.mean(axes, {.keepdim = true});
  const Tensor variance = distance.square().mean(axes, {.keepdim = true});
  return distance * (variance + eps).rsqrt();
}
// y * weight + bias, which lie along axis 1; both may be undefined.
inline Tensor scaled(const Tensor& y, const Tensor& weight, const Tensor& bias, const Shape& line,
                     const char* title) {
  Tensor z = y;
  if (weight.defined()) z = z * weight.reshape(line);
  if (bias.defined()) z = z + bias.reshape(line);
  return titled(title, z);
}
inline void check_channels(std::initializer_list<const Tensor*> lines, std::int64_t count,
                           const At& at) {
  for (const Tensor* line : lines)
    if (line->defined() && line->shape() != Shape(count))
      fail(at, {"a parameter has shape ", line->shape(), ", and there are ", count, " channels"});
}

// Each row of the last axes, the normalized ones, gets the mean 0 and the variance 1 (J. L. Ba,
// J. R. Kiros, G. E. Hinton, 2016).
inline Tensor layer_norm(const Tensor& x, Shape normalized, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5, Loc loc = Loc::here()) {
  const At at{"layer_norm", loc};
  check_floats(x, at);
  const int first = x.dim() - normalized.size();
  Shape axes;
  bool fits = first >= 0 && !normalized.empty();
  for (int i = 0; fits && i < normalized.size(); ++i) {
    fits = x.shape()[first + i] == normalized[i];
    axes.push_back(first + i);
  }
  if (!fits) fail(at, {"the last axes of ", x.shape(), " are not ", normalized});
  for (const Tensor* p : {&weight, &bias})
    if (p->defined() && p->shape() != normalized)
      fail(at, {"a parameter has shape ", p->shape(), " instead of ", normalized});
  const Composed whole("layer_norm", loc);
  Tensor y;
  if (nobody_asks_how(x) && x.is_contiguous())
    y = fused(RowNormalization::standardized, x.reshape({-1, normalized.numel()}), 1, eps, at);
  y = y.defined() ? y.reshape(x.shape()) : standardized(x, axes, eps);
  return scaled(y, weight, bias, normalized, "NativeLayerNormBackward0");
}
// The same, over each of `groups` groups of channels: [N, C, ...] (Y. Wu, K. He, 2018).
inline Tensor group_norm(const Tensor& x, Extent groups, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5, Loc loc = Loc::here()) {
  const At at{"group_norm", loc};
  check_floats(x, at);
  if (x.dim() < 2 || groups < 1 || x.size(1) % groups != 0)
    fail(at, {"the channels of ", x.shape(), " do not make ", groups, " groups"},
         {"the input is [N, C, ...]"});
  if (x.numel() == groups) fail(at, {"one value per group has no variance: ", x.shape()});
  check_channels({&weight, &bias}, x.size(1), at);
  const Composed whole("group_norm", loc);
  const std::int64_t each = x.numel() / std::max<std::int64_t>(1, x.size(0) * groups);
  const Tensor rows = x.reshape({x.size(0), std::int64_t{groups}, each});
  return scaled(standardized(rows, {2}, eps).reshape(x.shape()), weight, bias,
                line_along(1, x.dim()), "NativeGroupNormBackward0");
}
struct BatchNormOptions {
  ByName by_name = ByName();
  bool training = false;
  double momentum = 0.1;
  double eps = 1e-5;
};
// The same, over all of a batch for each channel: [N, C, ...] (S. Ioffe, C. Szegedy, 2015). In
// training the running mean and variance move towards those of the batch; otherwise they are used.
inline Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                         const Tensor& weight = {}, const Tensor& bias = {},
                         BatchNormOptions options = {}, Loc loc = Loc::here()) {
  const At at{"batch_norm", loc};
  check_floats(x, at);
  if (x.dim() < 2) fail(at, {"the input has shape ", x.shape()}, {"it is [N, C, ...]"});
  check_channels({&running_mean, &running_var, &weight, &bias}, x.size(1), at);
  if (!options.training && (!running_mean.defined() || !running_var.defined()))
    fail(at, {"there is no running mean or variance"}, {"write {.training = true}"});
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  if (options.training && count == 1)
    fail(at, {"one value per channel has no variance to train with: ", x.shape()},
         {"hand over more than one example, or call eval() first"});
  const Composed whole("batch_norm", loc);
  const Shape line = line_along(1, x.dim());
  if (!options.training) {
    const Tensor distance = x - running_mean.reshape(line);
    return scaled(distance * (running_var.reshape(line) + options.eps).rsqrt(), weight, bias, line,
                  "NativeBatchNormBackward0");
  }
  Shape axes;
  for (int i = 0; i < x.dim(); ++i)
    if (i != 1) axes.push_back(i);
  const Tensor y = standardized(x, axes, options.eps);
  if (running_mean.defined() || running_var.defined()) {
    const NoGrad guard;
    const double m = options.momentum;
    if (running_mean.defined()) running_mean.copy_(running_mean * (1 - m) + x.mean(axes) * m);
    if (running_var.defined())  // this one is unbiased
      running_var.copy_(running_var * (1 - m) + x.var(axes) * m);
  }
  return scaled(y, weight, bias, line, "NativeBatchNormBackward0");
}

Tensor dropout(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::here());

struct AttentionOptions {
  ByName by_name = ByName();
  Tensor attn_mask = {};  // bools: true where a query may look; or numbers to add to the scores
  double dropout_p = 0;
  bool is_causal = false;            // query i may look at the keys 0 to i
  std::optional<double> scale = {};  // left out: 1 / sqrt(E)
};
inline void check_mask(const Tensor& mask, const At& at) {
  if (mask.dtype() == int64)  // to add its zeros and ones would hide nothing
    fail(at, {"a mask is boolean, or floats that are added, not int64"},
         {"mask == 1 makes booleans of it"});
}
// softmax(q kᵀ / sqrt(E)): how much each of the queries [.., L, E] looks at each of the keys
// [.., S, E] -> [.., L, S]. A query that may look at nothing gets zeros.
inline Tensor attention_weights(const Tensor& query, const Tensor& key,
                                const AttentionOptions& options, Loc loc) {
  const double inverse = 1 / std::sqrt(static_cast<double>(query.size(-1)));
  Tensor scores = query.matmul(key.transpose(-1, -2)) * options.scale.value_or(inverse);
  Tensor mask = options.attn_mask;
  if (options.is_causal)
    mask =
        ones({query.size(-2), key.size(-2)}, {.dtype = boolean, .device = query.device()}).tril();
  const double nothing = -std::numeric_limits<double>::infinity();
  if (mask.defined())
    scores = mask.dtype() == boolean ? where(mask, scores, nothing) : scores + mask;
  Tensor blind;  // rows that may look at nothing
  {
    const Unseen inside(loc);
    blind = (scores == nothing).all({-1}, {.keepdim = true});
    if (!blind.any().item<bool>()) blind = Tensor();
  }
  if (!blind.defined()) return scores.softmax(-1);
  return where(blind, 0, where(blind, 0, scores).softmax(-1));
}
// Those weights times the values [.., S, D] -> [.., L, D] (A. Vaswani et al., "Attention is all you
// need", 2017).
inline Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key,
                                           const Tensor& value, AttentionOptions options = {},
                                           Loc loc = Loc::here()) {
  const At at{"scaled_dot_product_attention", loc};
  check_floats(query, at);
  check_together(at, {&query, &key, &value});
  if (query.dim() < 2 || key.dim() < 2 || value.dim() < 2 || query.size(-1) != key.size(-1) ||
      key.size(-2) != value.size(-2))
    fail(at,
         {"the shapes ", query.shape(), ", ", key.shape(), " and ", value.shape(), " do not fit"},
         {"they are [.., L, E], [.., S, E] and [.., S, D]"});
  if (options.attn_mask.defined()) check_mask(options.attn_mask, at);
  if (options.is_causal && options.attn_mask.defined())
    fail(at, {"is_causal and attn_mask are given together"}, {"put one into the other"});
  const Composed whole("scaled_dot_product_attention", loc);
  const Tensor shares = attention_weights(query, key, options, loc);
  return dropout(shares, options.dropout_p).matmul(value);
}

// ---- Convolutions and pools ---------------------------------------------------------------------

// A number for each of two axes: 3, or {3, 5} for height and width.
struct Pair {
  template <Integer T>
  constexpr Pair(T both) : height(both), width(both) {}
  template <Integer A, Integer B>
  constexpr Pair(A h, B w) : height(h), width(w) {}
  std::int64_t height, width;
};
inline void append(std::string& to, const Pair& pair) {
  append(to, Shape(pair.height, pair.width));
}

// The padding of a convolution: numbers; "same" for what keeps the size; or "valid" for none.
struct Padding : Pair {
  using Pair::Pair;
  Padding(const char* word) : Pair(0), name(word) {}
  std::string_view name = "valid";
};

struct ConvOptions {
  ByName by_name = ByName();
  Pair stride = 1;
  Padding padding = 0;
  Pair dilation = 1;
  std::int64_t groups = 1;
};
inline constexpr Pair as_the_window = std::numeric_limits<std::int64_t>::max();
struct PoolOptions {
  ByName by_name = ByName();
  Pair stride = as_the_window;
  Pair padding = 0;
  Pair dilation = 1;
  bool ceil_mode = false;  // also a last window that reaches over the end
};
struct AvgPoolOptions {
  ByName by_name = ByName();
  Pair stride = as_the_window;
  Pair padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<std::int64_t> divisor_override = {};  // by what a sum is divided; else by its count
};

inline constexpr std::int64_t most_of_a_window = std::int64_t{1} << 31;  // so that no product wraps
inline void check_windows(Pair kernel, Pair stride, Pair dilation, const At& at) {
  if (kernel.height < 1 || kernel.width < 1 || stride.height < 1 || stride.width < 1 ||
      dilation.height < 1 || dilation.width < 1)
    fail(at, {"the kernel ", kernel, ", the stride ", stride, " and the dilation ", dilation,
              " have to be positive"});
  for (const Pair& one : {kernel, stride, dilation})
    if (std::max(one.height, one.width) > most_of_a_window)
      fail(at, {"the kernel ", kernel, ", the stride ", stride, " and the dilation ", dilation,
                " are too large for any image"});
}
// From the first element under a kernel to the last: more than it has, if it is dilated.
inline Pair reach_of(const Tensor& x, Pair kernel, Pair stride, Pair dilation, const At& at) {
  check_windows(kernel, stride, dilation, at);
  const Pair reach(dilation.height * (kernel.height - 1) + 1,
                   dilation.width * (kernel.width - 1) + 1);
  if (reach.height > x.size(-2) || reach.width > x.size(-1))
    fail(at,
         {"the kernel reaches over ", reach, ", and the padded input is ",
          Shape(x.size(-2), x.size(-1))},
         {"give it more padding"});
  return reach;
}
// The windows of the last two axes, as two more axes: [N, C, H, W] -> [N, C, h, w, kernel].
inline Tensor windows(const Tensor& x, Pair kernel, Pair stride, Pair dilation, const At& at) {
  const Pair reach = reach_of(x, kernel, stride, dilation, at);
  Tensor y = x.unfold(-2, reach.height, stride.height).unfold(-2, reach.width, stride.width);
  if (dilation.height > 1) y = y.slice(-2, 0, {}, dilation.height);
  return dilation.width > 1 ? y.slice(-1, 0, {}, dilation.width) : y;
}
// x with elements of this value around its last two axes.
inline Tensor padded(const Tensor& x, Pair before, Pair behind, Scalar value, const At& at) {
  if (before.height < 0 || before.width < 0) fail(at, {"the padding is negative: ", before});
  if (std::max(before.height, before.width) > most_of_a_window)
    fail(at, {"the padding is too large for any image: ", before});
  if (before.height == 0 && before.width == 0 && behind.height == 0 && behind.width == 0) return x;
  return pad(x, {before.width, behind.width, before.height, behind.height}, value);
}

// A kernel slides over an image; at each place, the numbers under it are multiplied by its own and
// added up. That is a row times a column: with the kernels as the rows of one matrix and what is
// under them, at each place, as the columns of another, a convolution is a product of matrices, and
// as fast as that.
//
//   x [N, C, H, W]            images, their padding around them
//   w [O, C / groups, h, w]   kernels
//   y [N, O, rows, columns]   what they see at each place
//
// The gradients are products of the same matrices: y = w windows, dw = dy windows^T, and the
// columns of w^T dy are added to dx where the windows lie. Each is the derivative of the others.
//
// The matrix of the windows repeats a number for each place in a kernel, 25 times for one of 5 x 5.
// So there is never more of it than stays in a cache: the windows of a few images, and after them,
// in the same memory, those of the next few. And these images are first laid side by side, number
// by number, as [C, H, W, few]: then neighbours in a row of windows are neighbours in memory, and
// many small images are copied in runs as long as those of a large one.
class Sliding {
 public:
  // One of x, w and y is yet to be found. `how` holds the stride, the dilation and the groups.
  Sliding(const Tensor& x, const Tensor& w, const Tensor& y, const Shape& how)
      : stride_(how[0], how[1]),
        dilation_(how[2], how[3]),
        kernel_(w.size(2), w.size(3)),
        x_(in_groups(x.elements(), how[4])),
        y_(in_groups(y.elements(), how[4])) {
    View v = w.elements();
    v.shape.insert(0, how[4]);
    v.shape[1] /= how[4];
    v.strides.insert(0, v.shape[1] * v.strides[0]);
    w_ = matrices_of(v, 2, kernels_);
    constexpr std::int64_t most_bytes = 1 << 20, vector = 8, wide_enough = 64;
    const std::int64_t places = y_.shape[2] * y_.shape[3];
    const std::int64_t bytes = how[4] * w_.shape[2] * places * bytes_of(w_.dtype);
    few_ = std::min(most_bytes / std::max<std::int64_t>(bytes, 1), x_.shape[4]);
    if (few_ > vector) few_ -= few_ % vector;
    if (few_ < 1 || (is_point() && places >= wide_enough)) few_ = 1;
  }

  void find_y() {
    for (std::int64_t first = 0; first < x_.shape[4]; first += few_) {
      const View columns = columns_of(some(x_, first)), y = some(y_, first);
      const View to = few_ > 1 ? dense(results_, y.shape) : y;
      matmul(*matrices(to, 2), w_, columns);
      if (few_ > 1) copy(y, to);
    }
  }
  void find_w() {
    const View more = dense(products_, w_.shape);
    fill(w_, 0);
    for (std::int64_t first = 0; first < x_.shape[4]; first += few_) {
      const View columns = columns_of(some(x_, first));
      matmul(more, matrices_of(some(y_, first), 2, results_), transposed(columns));
      zip<formula::Add>(w_, w_, more);
    }
  }
  void find_x() {
    for (std::int64_t first = 0; first < x_.shape[4]; first += few_) {
      const View y = matrices_of(some(y_, first), 2, results_), x = some(x_, first);
      const View to = few_ > 1 ? dense(images_, x.shape) : x, windows = windows_of(to);
      fill(to, 0);
      std::optional<View> columns;  // in place, where no window meets another
      if (is_point()) columns = matrices(windows, 4);
      const View apart = columns ? windows : dense(columns_, windows.shape);
      matmul(columns ? *columns : *matrices(apart, 4), transposed(w_), y);
      if (!columns) add_up(windows, apart);
      if (few_ > 1) copy(x, to);
    }
  }

 private:
  bool is_point() const { return kernel_.height == 1 && kernel_.width == 1; }
  // [N, C, H, W] -> [groups, C / groups, H, W, N]
  static View in_groups(View v, std::int64_t groups) {
    const Shape size = v.shape, step = v.strides;
    const std::int64_t channels = size[1] / groups;
    v.shape = {groups, channels, size[2], size[3], size[0]};
    v.strides = {channels * step[1], step[1], step[2], step[3], step[0]};
    return v;
  }
  View some(View v, std::int64_t first) const {
    v.data += first * v.strides[4] * bytes_of(v.dtype);
    v.shape[4] = std::min(few_, v.shape[4] - first);
    return v;
  }
  // [groups, C, H, W, few] -> [groups, C, h, w, rows, columns, few]
  View windows_of(View v) const {
    const Shape size = v.shape, step = v.strides;
    v.shape = {size[0], size[1], kernel_.height, kernel_.width, y_.shape[2], y_.shape[3], size[4]};
    v.strides = {step[0],
                 step[1],
                 step[2] * dilation_.height,
                 step[3] * dilation_.width,
                 step[2] * stride_.height,
                 step[3] * stride_.width,
                 step[4]};
    return v;
  }
  // For each group a matrix: the axes in front of `split` are its rows, the others its columns.
  // Empty if the elements do not lie like that.
  static std::optional<View> matrices(View v, int split) {
    Shape to(v.shape[0], 1, 1);
    for (int axis = 1; axis < v.shape.size(); ++axis) to[axis < split ? 1 : 2] *= v.shape[axis];
    const std::optional<Shape> strides = reshaped_strides(v.shape, v.strides, to);
    if (!strides) return std::nullopt;
    v.shape = to;
    v.strides = *strides;
    return v;
  }
  // The same of a copy, where it has to be one.
  View matrices_of(const View& v, int split, Tensor& memory) const {
    if (const std::optional<View> as_they_are = matrices(v, split)) return *as_they_are;
    return *matrices(copied(v, memory), split);
  }
  View columns_of(const View& x) {
    return matrices_of(windows_of(few_ > 1 ? copied(x, images_) : x), 4, columns_);
  }
  static View transposed(View v) {
    std::swap(v.shape[1], v.shape[2]);
    std::swap(v.strides[1], v.strides[2]);
    return v;
  }
  // What is under one number of the kernel.
  static View under(View windows, std::int64_t i, std::int64_t j) {
    const std::int64_t elements = i * windows.strides[2] + j * windows.strides[3];
    windows.data += elements * bytes_of(windows.dtype);
    for (Shape* list : {&windows.shape, &windows.strides}) list->erase(3), list->erase(2);
    return windows;
  }
  void add_up(const View& sum, const View& apart) const {
    for (std::int64_t i = 0; i < kernel_.height; ++i)
      for (std::int64_t j = 0; j < kernel_.width; ++j) {
        const View to = under(sum, i, j);
        zip<formula::Add>(to, to, under(apart, i, j));
      }
  }
  // Memory is taken for the first few images and used again: there are never more of them.
  View dense(Tensor& memory, const Shape& shape) const {
    if (!memory.defined()) memory = fresh(shape, x_.dtype, x_.device);
    View v = memory.elements();
    v.shape = shape;
    v.strides = contiguous_strides(shape);
    return v;
  }
  View copied(const View& v, Tensor& memory) const {
    const View to = dense(memory, v.shape);
    copy(to, v);
    return to;
  }

  const Pair stride_, dilation_, kernel_;
  const View x_, y_;
  View w_;            // a matrix for each group: [groups, O / groups, C / groups * h * w]
  std::int64_t few_;  // images at a time
  Tensor images_, kernels_, results_, columns_, products_;
};

namespace rule {
struct Convolution : Rule {
  static constexpr Facts facts = {
      .name = "convolution",
      .symbol = "conv",
      .formula = "each window of a times b, added up",
      .derivatives = {"dy times b, added up where the windows lie",
                      "dy times its window of a, added up"},
      .attributes = "stride_height stride_width dilation_height dilation_width groups",
      .node = "ConvolutionBackward0"};
  void backward();
};
struct ConvolutionInput : Rule {
  static constexpr Facts facts = {
      .name = "convolution_input",
      .symbol = "conv dx",
      .formula = "a times b, added up where the windows lie",
      .derivatives = {"each window of dy times b, added up", "a times its window of dy, added up"},
      .attributes = "stride_height stride_width dilation_height dilation_width groups height width",
      .node = "ConvolutionBackwardBackward0"};
  void backward();
};
struct ConvolutionWeight : Rule {
  static constexpr Facts facts = {
      .name = "convolution_weight",
      .symbol = "conv dw",
      .formula = "b times its window of a, added up",
      .derivatives = {"b times dy, added up where the windows lie",
                      "each window of a times dy, added up"},
      .attributes = "stride_height stride_width dilation_height dilation_width groups height width",
      .node = "ConvolutionBackwardBackward0"};
  void backward();
};
}  // namespace rule

// y, dx and dw from the two others. `how` is what Sliding takes and then, where two do not tell the
// size of the third, the height and the width of that.
inline Tensor convolution(const Tensor& x, const Tensor& w, const Shape& how,
                          Loc loc = Loc::here()) {
  const auto places = [&](int axis) {
    const std::int64_t stride = how[axis - 2], dilation = how[axis];
    return (x.size(axis) - dilation * (w.size(axis) - 1) - 1) / stride + 1;
  };
  const Shape shape(x.size(0), w.size(0), places(2), places(3));
  Tensor y = fresh(shape, x.dtype(), x.device(), {"conv2d", loc});
  Sliding(x, w, y, how).find_y();
  return record<rule::Convolution>(std::move(y), {&x, &w}, loc, {0, how});
}
inline Tensor convolution_input(const Tensor& y, const Tensor& w, const Shape& how,
                                Loc loc = Loc::here()) {
  Tensor x = fresh({y.size(0), w.size(1) * how[4], how[5], how[6]}, y.dtype(), y.device());
  Sliding(x, w, y, how).find_x();
  return record<rule::ConvolutionInput>(std::move(x), {&y, &w}, loc, {0, how});
}
inline Tensor convolution_weight(const Tensor& x, const Tensor& y, const Shape& how,
                                 Loc loc = Loc::here()) {
  Tensor w = fresh({y.size(1), x.size(1) / how[4], how[5], how[6]}, x.dtype(), x.device());
  Sliding(x, w, y, how).find_w();
  return record<rule::ConvolutionWeight>(std::move(w), {&x, &y}, loc, {0, how});
}

inline Shape sized(const Shape& how, const Shape& like) {
  return {how[0], how[1], how[2], how[3], how[4], like[2], like[3]};
}
inline Shape unsized(const Shape& how) { return {how[0], how[1], how[2], how[3], how[4]}; }
inline void rule::Convolution::backward() {
  if (wants(0)) give(0, convolution_input(dy, b(), sized(dims(), shape(0))));
  if (wants(1)) give(1, convolution_weight(a(), dy, sized(dims(), shape(1))));
}
inline void rule::ConvolutionInput::backward() {
  if (wants(0)) give(0, convolution(dy, b(), unsized(dims())));
  if (wants(1)) give(1, convolution_weight(dy, a(), sized(dims(), shape(1))));
}
inline void rule::ConvolutionWeight::backward() {
  if (wants(0)) give(0, convolution_input(b(), dy, sized(dims(), shape(0))));
  if (wants(1)) give(1, convolution(a(), dy, unsized(dims())));
}

// Slides O kernels over images: [N, C, H, W] and a weight [O, C / groups, h, w] -> [N, O, h', w'].
inline Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     ConvOptions options = {}, Loc loc = Loc::here()) {
  const At at{"conv2d", loc};
  check_floats(x, at);
  check_together(at, {&x, &weight});
  const std::int64_t groups = options.groups;
  if (x.dim() == 3) return conv2d(x.unsqueeze(0, loc), weight, bias, options, loc).squeeze(0, loc);
  if (x.dim() != 4 || weight.dim() != 4)
    fail(at, {"the input ", x.shape(), " and the weight ", weight.shape(), " need 4 axes"},
         {"they are [N, C, H, W] and [O, C / groups, h, w]"});
  if (groups < 1 || x.size(1) != weight.size(1) * groups || weight.size(0) % groups != 0)
    fail(at,
         {"the channels of the input ", x.shape(), " and of the weight ", weight.shape(),
          " do not fit, with ", groups, " groups"},
         {"they are [N, C, H, W] and [O, C / groups, h, w]"});
  if (x.dtype() != weight.dtype())
    fail(at, {"the dtypes differ: ", x.dtype(), " and ", weight.dtype()},
         {"convert one with .to(", promote(x, weight), ")"});
  if (bias.defined() && bias.shape() != Shape(weight.size(0)))
    fail(at, {"the bias ", bias.shape(), " and the weight ", weight.shape(), " do not fit"});
  const Composed whole("conv2d", loc);
  const Pair kernel(weight.size(2), weight.size(3));
  check_windows(kernel, options.stride, options.dilation, at);
  Pair before = options.padding, behind = before;
  if (options.padding.name == "same") {
    if (options.stride.height != 1 || options.stride.width != 1)
      fail(at, {"padding \"same\" goes with a stride of 1, not ", options.stride});
    const Pair added(options.dilation.height * (kernel.height - 1),
                     options.dilation.width * (kernel.width - 1));
    before = Pair(added.height / 2, added.width / 2);
    behind = Pair(added.height - before.height, added.width - before.width);
  } else if (options.padding.name != "valid") {
    fail(at, {"the padding is \"", options.padding.name, "\""},
         {"write \"same\", \"valid\" or a number"});
  }
  const Tensor seen = padded(x, before, behind, 0, at);
  const Pair stride = options.stride, dilation = options.dilation;
  reach_of(seen, kernel, stride, dilation, at);
  Tensor y = convolution(
      seen, weight, {stride.height, stride.width, dilation.height, dilation.width, groups}, loc);
  if (bias.defined()) y = y + bias.reshape({-1, 1, 1});
  return titled("ConvolutionBackward0", y);
}
inline Tensor conv2d(const Tensor& x, const Tensor& weight, ConvOptions options = {},
                     Loc loc = Loc::here()) {
  return conv2d(x, weight, Tensor(), options, loc);
}
// [N, C, L] and a weight [O, C / groups, l] -> [N, O, l']: images of height 1.
inline Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     ConvOptions options = {}, Loc loc = Loc::here()) {
  const At at{"conv1d", loc};
  check_together(at, {&x, &weight});
  if (x.dim() < 2 || x.dim() > 3 || weight.dim() != 3)
    fail(at, {"the input ", x.shape(), " and the weight ", weight.shape(), " need 3 axes"},
         {"they are [N, C, L] and [O, C / groups, l]"});
  const Composed whole("conv1d", loc);
  options.stride.height = options.dilation.height = 1;
  options.padding.height = 0;
  return titled("ConvolutionBackward0",
                conv2d(x.unsqueeze(-2), weight.unsqueeze(-2), bias, options).squeeze(-2));
}
inline Tensor conv1d(const Tensor& x, const Tensor& weight, ConvOptions options = {},
                     Loc loc = Loc::here()) {
  return conv1d(x, weight, Tensor(), options, loc);
}

inline void check_image(const Tensor& x, const At& at) {
  check_floats(x, at);
  if (x.dim() < 3 || x.dim() > 4)
    fail(at, {"the input has shape ", x.shape()}, {"it is [N, C, H, W] or [C, H, W]"});
}
// How the windows of a pool lie in an image.
struct PoolWindows {
  PoolWindows(const Tensor& x, Pair window, Pair step, Pair padding, Pair spread, bool ceil_mode,
              const At& where)
      : kernel(window),
        stride(step.height == as_the_window.height ? window : step),
        dilation(spread),
        before(padding),
        behind(padding),
        at(where) {
    check_image(x, at);
    check_windows(kernel, stride, dilation, at);
    if (padding.height > kernel.height / 2 || padding.width > kernel.width / 2)
      fail(at, {"the padding ", padding, " is more than half of the kernel ", kernel});
    if (!ceil_mode) return;
    behind.height =
        reached(x.size(-2), kernel.height, stride.height, padding.height, dilation.height);
    behind.width = reached(x.size(-1), kernel.width, stride.width, padding.width, dilation.width);
  }
  // The padding behind, with room for a last window that begins in front of the end.
  static std::int64_t reached(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                              std::int64_t padding, std::int64_t dilation) {
    const std::int64_t reach = dilation * (kernel - 1) + 1;
    const std::int64_t room = size + 2 * padding - reach + stride - 1;
    if (room < 0) return padding;  // for not even one
    std::int64_t last = room / stride * stride;
    if (last >= size + padding) last -= stride;
    return std::max(padding, last + reach - size - padding);
  }
  Tensor windows_of(const Tensor& x, Scalar value) const {
    return windows(padded(x, before, behind, value, at), kernel, stride, dilation, at);
  }
  const Pair kernel, stride, dilation, before;
  Pair behind;
  const At at;
};
// The largest of each window, and where they stand in their image: row * W + column. Padding never
// wins; of equal ones the first gets the gradient.
inline ValuesIndices max_pool2d_with_indices(const Tensor& x, Pair kernel, PoolOptions options = {},
                                             Loc loc = Loc::here()) {
  const PoolWindows pool(x, kernel, options.stride, options.padding, options.dilation,
                         options.ceil_mode, {"max_pool2d", loc});
  const Composed whole("max_pool2d", loc);
  Tensor picked, indices;
  {
    const Unseen inside(loc);
    const Tensor seen = pool.windows_of(x, -std::numeric_limits<double>::infinity());
    const Tensor rows = arange(-pool.before.height, x.size(-2) + pool.behind.height);
    const Tensor columns = arange(-pool.before.width, x.size(-1) + pool.behind.width);
    const Tensor image = (rows.unsqueeze(1) * x.size(-1) + columns).to(x.device());
    const Tensor numbers = windows(image, kernel, pool.stride, pool.dilation, pool.at);
    // All windows at once: their first elements, and then each of the others that is better.
    auto at = [](const Tensor& all, std::int64_t i, std::int64_t j) {
      return all.select(-1, j).select(-1, i).clone();
    };
    Tensor largest = at(seen, 0, 0);
    // The first element that is not padding stands for a window of nothing but minus infinity.
    auto first = [&](int axis, std::int64_t stride, std::int64_t before, std::int64_t dilation) {
      std::vector<std::int64_t> places;
      for (std::int64_t i = 0; i < largest.size(axis); ++i) {
        std::int64_t place = i * stride - before;
        while (place < 0) place += dilation;
        places.push_back(std::min(place, x.size(axis) - 1));
      }
      return tensor(places);
    };
    const Tensor first_rows =
        first(-2, pool.stride.height, pool.before.height, pool.dilation.height);
    const Tensor first_columns =
        first(-1, pool.stride.width, pool.before.width, pool.dilation.width);
    indices = (first_rows.unsqueeze(1) * x.size(-1) + first_columns)
                  .to(x.device())
                  .expand(largest.shape())
                  .contiguous();
    const Tensor better = fresh(largest.shape(), boolean, x.device());
    for (std::int64_t k = 1; k < kernel.height * kernel.width; ++k) {
      const std::int64_t i = k / kernel.width, j = k % kernel.width;
      const Tensor next = at(seen, i, j);
      zip<formula::Beats>(better.elements(), next.elements(), largest.elements());
      largest = where(better, next, largest);
      indices = where(better, at(numbers, i, j), indices);
    }
    picked = largest.flatten(-2).detach();  // a tensor of its own, whose history a write goes into
  }
  const Tensor lines = x.flatten(-2), places = indices.flatten(-2);  // as gather would pick them
  const Tensor y = record<rule::Gather>(picked, {&lines, &places}, loc, {0, {x.dim() - 2}});
  return {titled("MaxPool2DWithIndicesBackward0", y.reshape(indices.shape())), indices};
}
inline Tensor max_pool2d(const Tensor& x, Pair kernel, PoolOptions options = {},
                         Loc loc = Loc::here()) {
  return max_pool2d_with_indices(x, kernel, options, loc).values;
}
// The mean of each window; padding counts as zeros.
inline Tensor avg_pool2d(const Tensor& x, Pair kernel, AvgPoolOptions options = {},
                         Loc loc = Loc::here()) {
  const At at{"avg_pool2d", loc};
  const PoolWindows pool(x, kernel, options.stride, options.padding, 1, options.ceil_mode, at);
  if (options.divisor_override == 0) fail(at, {"divisor_override is 0"});
  const Composed whole("avg_pool2d", loc);
  const Tensor seen = pool.windows_of(x, 0);
  if (options.divisor_override)
    return titled("AvgPool2DBackward0", seen.sum({-2, -1}) / *options.divisor_override);
  const Pair padding = options.padding, none = 0;
  const Pair more(pool.behind.height - padding.height, pool.behind.width - padding.width);
  const bool all_count = options.count_include_pad || (padding.height == 0 && padding.width == 0);
  if (all_count && more.height == 0 && more.width == 0)
    return titled("AvgPool2DBackward0", seen.mean({-2, -1}));
  Tensor counts;  // what ceil_mode has added behind the padding never counts
  {
    const Unseen inside(loc);
    const Tensor image = padded(ones_like(x), padding, padding, options.count_include_pad, at);
    counts = windows(padded(image, none, more, 0, at), kernel, pool.stride, 1, at).sum({-2, -1});
  }
  return titled("AvgPool2DBackward0", seen.sum({-2, -1}) / counts);
}
// The means of as many windows as asked for, as equal in size as can be: [.., H, W] -> [.., size].
inline Tensor adaptive_avg_pool2d(const Tensor& x, Pair size, Loc loc = Loc::here()) {
  const At at{"adaptive_avg_pool2d", loc};
  check_image(x, at);
  if (size.height < 1 || size.width < 1) fail(at, {"the size ", size, " has to be positive"});
  check_sizes({size.height, size.width}, at);
  const Composed whole("adaptive_avg_pool2d", loc);
  Tensor y = x;
  for (int axis : {-2, -1}) {
    const std::int64_t from = y.size(axis), to = axis == -2 ? size.height : size.width;
    std::vector<Tensor> means;
    for (std::int64_t i = 0; i < to; ++i)
      means.push_back(y.slice(axis, i * from / to, ((i + 1) * from + to - 1) / to)
                          .mean({axis}, {.keepdim = true}));
    y = cat(means, axis);
  }
  return titled("AdaptiveAvgPool2DBackward0", y);
}

// ================================================================================================
// 12. Random numbers
// ================================================================================================
//
// The usual generator is a machine that takes steps: the thousandth number comes after 999 others,
// and many processors cannot share it. Philox is a function instead: it scrambles a counter so well
// that the results pass the known tests of randomness (but guard no secrets: not for passwords).
// Anybody can have the thousandth number at once. So a tensor could be filled in any order, in
// parallel, on any machine, and a seed would still mean the same numbers.
//
// The key is the seed. The counter is the number of the call (each call that fills a tensor takes
// the next) and the number of the block within this call. All three have 64 bits. Whoever keeps the
// seed and that number can draw the same again: checkpoint(), at the end, computes a thing twice.

using RandomBlock = std::array<std::uint32_t, 4>;

constexpr std::uint32_t low_word(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high_word(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// Philox 4x32-10 (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011). A round multiplies two of the words by constants, and mixes the
// halves of the products with the two other words and the key.
constexpr RandomBlock philox(RandomBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ull * counter[0];
    const std::uint64_t b = 0xCD9E8D57ull * counter[2];
    counter = {high_word(b) ^ counter[1] ^ key[0], low_word(b), high_word(a) ^ counter[3] ^ key[1],
               low_word(a)};
    key[0] += 0x9E3779B9;  // the fractions of the golden ratio and of the square root of 3
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The randomness of one call: as many blocks as it asks for.
struct RandomCall {
  std::uint64_t seed, call;
  constexpr RandomBlock block(std::uint64_t number) const {
    return philox({low_word(number), high_word(number), low_word(call), high_word(call)},
                  {low_word(seed), high_word(seed)});
  }
};

// Hands out calls. A copy will draw what the original draws.
class Generator {
 public:
  explicit constexpr Generator(std::uint64_t seed = 0) : seed_(seed) {}
  constexpr std::uint64_t seed() const { return seed_; }
  constexpr std::uint64_t counter() const { return counter_; }  // calls so far
  constexpr RandomCall next() { return {seed_, counter_++}; }

 private:
  std::uint64_t seed_, counter_ = 0;
};

// A distribution turns a block into as many numbers as it has bits for. Whole numbers, truth values
// and uniforms are the same on every machine, bit for bit: they are made of exact steps, and of
// fma, which rounds once. Normals take log, cos and sin, and each machine brings its own, with
// another last bit here and there. (To have the very same normals on a card, draw them here and
// move them: `randn(..).to(cuda)`. That is also what becomes of a network's first weights.)
// Everything is constexpr so that nvcc, too, may compile it for a GPU.
namespace distribution {

constexpr std::array<std::uint64_t, 2> in_pairs(const RandomBlock& bits) {
  return {std::uint64_t{bits[1]} << 32 | bits[0], std::uint64_t{bits[3]} << 32 | bits[2]};
}

// Uniform in [0, 1): a float has room for 24 random bits, a double for 53.
constexpr float unit(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }
constexpr double unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

template <class T>
constexpr auto units(const RandomBlock& bits) {
  const auto pairs = in_pairs(bits);
  if constexpr (std::is_same_v<T, double>)
    return std::array{unit(pairs[0]), unit(pairs[1])};
  else
    return std::array{unit(bits[0]), unit(bits[1]), unit(bits[2]), unit(bits[3])};
}

// Uniform in [low, high). fma rounds once, on every machine; where it rounds up to `high`, we take
// the last number before it.
template <class T>
struct Uniform {
  T low, high;
  constexpr auto operator()(const RandomBlock& bits) const {
    auto y = units<T>(bits);
    for (T& u : y) {
      u = std::fma(high - low, u, low);
      if (u >= high) u = std::nextafter(high, low);
    }
    return y;
  }
};

// A point whose angle is uniform and whose squared radius is exponential has two independent normal
// coordinates (G. E. P. Box, M. E. Muller, 1958). Because 1 - u is at least 2^-24, no float32 lies
// further out than 5.8 standard deviations; for float64 it is 8.6.
template <class T>
struct Normal {
  T mean, deviation;
  constexpr auto operator()(const RandomBlock& bits) const {
    auto y = units<T>(bits);
    for (std::size_t i = 0; i < y.size(); i += 2) {
      const T radius = std::sqrt(-2 * std::log(1 - y[i]));
      const T angle = static_cast<T>(6.283185307179586) * y[i + 1];
      y[i] = std::fma(deviation, radius * std::cos(angle), mean);
      y[i + 1] = std::fma(deviation, radius * std::sin(angle), mean);
    }
    return y;
  }
};

// low, low + 1, ..., high - 1, each equally likely. A remainder would favour the small ones. So we
// take as many bits as the range needs, and others while they lie beyond it: those of the same
// block, scrambled once more.
class Integers {
 public:
  constexpr Integers(std::int64_t low, std::int64_t high)
      : low_(static_cast<std::uint64_t>(low)),
        last_(static_cast<std::uint64_t>(high) - 1 - low_),
        mask_(~std::uint64_t{0} >> std::countl_zero(last_ | 1)) {}
  constexpr std::array<std::int64_t, 2> operator()(const RandomBlock& bits) const {
    return {pick(bits, 0), pick(bits, 1)};
  }

 private:
  constexpr std::int64_t pick(RandomBlock bits, std::size_t half) const {
    while ((in_pairs(bits)[half] & mask_) > last_) bits = philox(bits, {});
    return static_cast<std::int64_t>(low_ + (in_pairs(bits)[half] & mask_));
  }
  std::uint64_t low_, last_, mask_;  // last: the largest distance from low; mask: 2^n - 1 >= last
};

// True with the probability p.
struct Bernoulli {
  double p;
  constexpr std::array<bool, 2> operator()(const RandomBlock& bits) const {
    const auto u = units<double>(bits);
    return {u[0] < p, u[1] < p};
  }
};

}  // namespace distribution

// The distributions have two numbers each (of the last, only the first counts).
enum class RandomDistribution : int { uniform, normal, integers, bernoulli };

// Calls f with a value of the C++ type; only floats can be uniform or normal.
template <class F>
void visit_floating(DType dtype, F f) {
  if (!is_floating(dtype))
    throw Error(text_of({"uniform and normal numbers are floats, not ", dtype}));
  dtype == float64 ? f(double{}) : f(float{});
}

// Calls f with a value of the type that is drawn for elements of this dtype, and with what draws
// it.
template <class F>
void visit_distribution(RandomDistribution kind, DType dtype, Scalar first, Scalar second, F f) {
  if (kind == RandomDistribution::integers)
    f(std::int64_t{}, distribution::Integers(first.whole(), second.whole()));
  else if (kind == RandomDistribution::bernoulli)
    f(bool{}, distribution::Bernoulli{first.real()});
  else
    visit_floating(dtype, [&]<class T>(T zero) {
      const T a = first.to<T>(), b = second.to<T>();
      kind == RandomDistribution::uniform ? f(zero, distribution::Uniform<T>{a, b})
                                          : f(zero, distribution::Normal<T>{a, b});
    });
}

// Block 0 fills the first elements, block 1 the next, and so on: element i depends on the seed, the
// number of the call, and i.
template <class T, class Draw>
void fill_by_blocks(T* y, std::int64_t n, const RandomCall& call, const Draw& draw) {
  T* const end = y + n;
  for (std::uint64_t block = 0; y < end; ++block)
    for (const T number : draw(call.block(block)))
      if (y < end) *y++ = number;
}

// Here and below, y is contiguous. If it is not of the type that is drawn, it gets the numbers
// converted.
inline void fill_random(RandomDistribution kind, const View& y, Generator& generator, Scalar first,
                        Scalar second) {
  const RandomCall call = generator.next();
  visit_distribution(kind, y.dtype, first, second, [&]<class T>(T, const auto& draw) {
    const bool direct = y.dtype == dtype_of<T>();
    const Tensor numbers = direct ? Tensor() : fresh(y.shape, dtype_of<T>(), y.device);
    const View to = direct ? y : numbers.elements();
    if (const Machine* other = machine(y.device))
      other->random(kind, to, first, second, call);
    else
      fill_by_blocks(as<T>(to.data), to.shape.numel(), call, draw);
    if (!direct) copy(y, to);
  });
}

// Uniform in [low, high), where high - low is finite. y is float32 or float64.
inline void fill_uniform(const View& y, Generator& generator, double low, double high) {
  fill_random(RandomDistribution::uniform, y, generator, low, high);
}
// y is float32 or float64.
inline void fill_normal(const View& y, Generator& generator, double mean, double std) {
  fill_random(RandomDistribution::normal, y, generator, mean, std);
}
// Whole numbers from low to high - 1, where low < high. y has any dtype.
inline void fill_integers(const View& y, Generator& generator, std::int64_t low,
                          std::int64_t high) {
  fill_random(RandomDistribution::integers, y, generator, low, high);
}
// 1 with the probability p, otherwise 0. y has any dtype.
inline void fill_bernoulli(const View& y, Generator& generator, double p) {
  fill_random(RandomDistribution::bernoulli, y, generator, p, 0);
}

// 0 to n - 1 in a random order: number i draws 64 bits (from block i), and all line up by what they
// have drawn. That needs a sort, which is done on the processor. y has any dtype.
inline void fill_permutation(const View& y, Generator& generator) {
  const RandomCall call = generator.next();
  std::vector<std::pair<std::uint64_t, std::int64_t>> line;
  for (std::int64_t i = 0; i < y.shape.numel(); ++i)
    line.emplace_back(distribution::in_pairs(call.block(static_cast<std::uint64_t>(i)))[0], i);
  std::sort(line.begin(), line.end());
  const Tensor numbers = fresh(y.shape, int64);
  auto* out = numbers.data<std::int64_t>();
  for (const auto& [drawn, number] : line) *out++ = number;
  copy(y, numbers.elements());
}

// ---- Random tensors -----------------------------------------------------------------------------

// Each thread has a generator of its own, and all begin with the same seed: threads that are to
// draw different numbers call manual_seed first.
inline constinit thread_local Generator default_generator;
// The numbers that follow on this thread are those of this seed, on every machine.
inline void manual_seed(std::uint64_t seed) { default_generator = Generator(seed); }

inline DType float_dtype(const char* op, const TensorOptions& options, Loc loc) {
  const DType dtype = options.dtype.value_or(float32);
  if (!is_floating(dtype))
    fail({op, loc}, {"its numbers are floats, not ", dtype}, {"use randint() for integers"});
  return dtype;
}
// Uniform in [0, 1).
inline Tensor rand(Shape shape, TensorOptions options = {}, Loc loc = Loc::here()) {
  Tensor x = begin_tensor("rand", shape, float_dtype("rand", options, loc), options, loc);
  fill_uniform(x.elements(), default_generator, 0, 1);
  return end_tensor(std::move(x), options, loc);
}
// Normal with mean 0 and standard deviation 1.
inline Tensor randn(Shape shape, TensorOptions options = {}, Loc loc = Loc::here()) {
  Tensor x = begin_tensor("randn", shape, float_dtype("randn", options, loc), options, loc);
  fill_normal(x.elements(), default_generator, 0, 1);
  return end_tensor(std::move(x), options, loc);
}
inline Tensor rand_like(const Tensor& x, TensorOptions options = {}, Loc loc = Loc::here()) {
  options = options_like(x, options, {"rand_like", loc});
  return rand(x.shape(), options, loc);
}
inline Tensor randn_like(const Tensor& x, TensorOptions options = {}, Loc loc = Loc::here()) {
  options = options_like(x, options, {"randn_like", loc});
  return randn(x.shape(), options, loc);
}
template <Integer Second, Integer... T>
Tensor rand(First first, Second second, T... rest) {
  return rand(first.with(second, rest...), {}, first.loc);
}
template <Integer Second, Integer... T>
Tensor randn(First first, Second second, T... rest) {
  return randn(first.with(second, rest...), {}, first.loc);
}
// Integers from low to high - 1.
inline Tensor randint(Extent low, Extent high, Shape shape, TensorOptions options = {},
                      Loc loc = Loc::here()) {
  if (high <= low) fail({"randint", loc}, {"there is no integer from ", low, " to below ", high});
  Tensor x = begin_tensor("randint", shape, options.dtype.value_or(int64), options, loc);
  fill_integers(x.elements(), default_generator, low, high);
  return end_tensor(std::move(x), options, loc);
}
inline Tensor randint(Extent high, Shape shape, TensorOptions options = {}, Loc loc = Loc::here()) {
  return randint(0, high, shape, options, loc);
}
// The numbers 0 to n - 1 in a random order.
inline Tensor randperm(Extent n, TensorOptions options = {}, Loc loc = Loc::here()) {
  const DType dtype = options.dtype.value_or(int64);
  Tensor x = begin_numbers("randperm", {std::int64_t{n}}, dtype, options, loc);
  fill_permutation(x.elements(), default_generator);
  return end_tensor(std::move(x), options, loc);
}
// 1 with the probability that stands in p, else 0.
inline Tensor bernoulli(const Tensor& p, Loc loc = Loc::here()) {
  const At at{"bernoulli", loc};
  check_floats(p, at);
  Tensor y;
  {
    const Unseen inside(loc);
    if (!((p >= 0) & (p <= 1)).all().item<bool>())
      fail(at, {"a probability is not between 0 and 1"});
    y = (rand(p.shape(), {.dtype = float64, .device = p.device()}) < p).to(p.dtype());
  }
  return end_tensor(std::move(y), {.device = p.device()}, loc);
}
struct MultinomialOptions {
  ByName by_name = ByName();
  bool replacement = false;  // whether an index may be drawn again
};
// `count` indices, each drawn with a probability that is proportional to its weight: [n] ->
// [count], or for each row [m, n] -> [m, count].
inline Tensor multinomial(const Tensor& weights, Extent count, MultinomialOptions options = {},
                          Loc loc = Loc::here()) {
  const At at{"multinomial", loc};
  check_floats(weights, at);
  if (weights.dim() < 1 || weights.dim() > 2)
    fail(at, {"the weights have shape ", weights.shape()}, {"they are [n] or [m, n]"});
  const Unseen inside(loc);
  Tensor w = weights.to(float64).cpu();
  const double most = std::numeric_limits<double>::infinity();
  if (!((w >= 0) & (w < most)).all().item<bool>())
    fail(at, {"a weight is negative, infinite or NaN"});
  const Tensor possible = (w > 0).sum({-1}, {.keepdim = true});
  const std::int64_t needed =
      options.replacement ? std::min<std::int64_t>(count, 1) : std::int64_t{count};
  if (count < 0 || !(possible >= needed).all().item<bool>()) {
    if (options.replacement && count > 0) fail(at, {"no weight is above 0"});
    fail(at, {"there are not ", count, " different indices with a weight above 0"},
         {"write {.replacement = true}"});
  }
  // With 1 as the largest weight no sum overflows, and no time below is infinite for all.
  if (w.numel() > 0) w = w / w.amax({-1}, {.keepdim = true});
  Tensor y;
  if (options.replacement) {  // the first index whose running sum exceeds a random number
    const Tensor sums = w.cumsum(-1);
    Shape shape = w.shape();
    shape[-1] = count;
    const Tensor drawn = rand(shape, {.dtype = float64}) * sums.slice(-1, w.size(-1) - 1);
    y = (sums.unsqueeze(-2) <= drawn.unsqueeze(-1)).sum(-1).clamp({.max = w.size(-1) - 1});
  } else {  // each waits for a random time; those with more weight tend to come first
    const Tensor times = -(-rand(w.shape(), {.dtype = float64})).log1p() / w;
    y = times.topk(count, -1, {.largest = false}).indices;
  }
  return y.to(weights.device());
}

inline const Tensor& Tensor::uniform_(double from, double to, Loc loc) const {
  const At at{"uniform_", loc};
  check_floats(*this, at);
  if (!(from <= to)) fail(at, {"there is nothing from ", from, " to ", to});
  const double most = dtype() == float32 ? double{std::numeric_limits<float>::max()}
                                         : std::numeric_limits<double>::max();
  if (!(from >= -most && to <= most && to - from <= most))
    fail(at, {"the range from ", from, " to ", to, " is too wide for ", dtype()});
  return rewrite(*this, Operand(0, loc), at.op, [&](Tensor& y) {
    y = fresh(shape(), dtype(), device(), at);
    fill_uniform(y.elements(), default_generator, from, to);
  });
}
inline const Tensor& Tensor::normal_(double mean, double std, Loc loc) const {
  const At at{"normal_", loc};
  check_floats(*this, at);
  if (!(std >= 0)) fail(at, {"the standard deviation is negative: ", std});
  return rewrite(*this, Operand(0, loc), at.op, [&](Tensor& y) {
    y = fresh(shape(), dtype(), device(), at);
    fill_normal(y.elements(), default_generator, mean, std);
  });
}

// In training each element becomes 0 with the probability p, and the others grow to make up for it.
inline Tensor dropout(const Tensor& x, double p, bool training, Loc loc) {
  const At at{"dropout", loc};
  check_floats(x, at);
  if (!(p >= 0 && p <= 1)) fail(at, {"the probability is ", p, ", it has to be between 0 and 1"});
  if (!training || p == 0) return x;
  const Composed whole("dropout", loc);
  const TensorOptions options{.dtype = boolean, .device = x.device()};
  Tensor keep = begin_tensor("dropout", x.shape(), boolean, options, loc);
  fill_bernoulli(keep.elements(), default_generator, 1 - p);
  keep = end_tensor(std::move(keep), options, loc);
  const Tensor kept = where(keep, x, 0);
  return p == 1 ? kept : kept * (1 / (1 - p));
}

// ---- Computing again instead of keeping ---------------------------------------------------------
//
// A long computation keeps much memory for its way back. `y = checkpoint(f, x)` is `y = f(x)`, but
// of all that f computed only y is kept: when a pass comes to f, it is computed once more, with the
// same random numbers (T. Chen et al., "Training deep nets with sublinear memory cost", 2016). The
// graph is the usual one, and only what its nodes have saved is missing until then, so the
// gradients are those of f(x): also of second order, and of tensors that f knows of itself. f has
// to do the same each time, and must not write into what it is given.

using Function = Callback<Tensor(const std::vector<Tensor>&)>;

// One call of f. Its nodes by falling number correspond to those of the second call, the twins.
struct CheckpointedCall : Checkpoint {
  CheckpointedCall(const Function& function, const std::vector<Tensor>& tensors, Loc line)
      : f(function), loc(line) {
    for (const Tensor& x : tensors) {  // without history, so that the second call ends there
      inputs.push_back(alias_of(x));
      inputs.back().get().requires_grad = x.requires_grad();
      versions.push_back(x.version());
    }
  }

  // The nodes of a call that began after `since`.
  static std::vector<Found::Place> nodes_of(const Tensor& y, Id since) {
    if (!y.node()) return {};
    const OneAtATime alone(marking);
    return Found({y}, next_id(), since).nodes;
  }
  // Takes away what was saved, except what was there before the call: that is kept anyway.
  void take_from(const Tensor& y, Id since) {
    const std::vector<Found::Place> nodes = nodes_of(y, since);
    count = nodes.size();
    for (std::size_t i = 0; i < count; ++i) {
      Node& node = *nodes[i].node;
      bool incomplete = false;
      for (int k = 0; k < node.saved.size(); ++k) {
        Tensor& kept = node.saved[k].tensor;
        if (kept.defined() && kept.storage_id() > since && !kept.get().requires_grad)
          kept = Tensor();
        incomplete = incomplete || !kept.defined();
      }
      if (!incomplete) continue;
      node.checkpoint = Ref<Checkpoint>(this);
      node.place_in_checkpoint = i;
    }
  }
  void refill(Node& node) override {
    const OneAtATime alone(refilling);
    bool missing = false;
    for (int k = 0; k < node.saved.size(); ++k)
      missing = missing || !node.saved[k].tensor.defined();
    if (!missing) return;
    if (twins.empty()) call_again();
    Node& twin = *twins[node.place_in_checkpoint].node;
    if (&twin.recipe != &node.recipe || twin.shape != node.shape ||
        twin.saved.size() != node.saved.size())
      fail_different();
    if (twin.checkpoint) twin.checkpoint->refill(twin);  // f has checkpoints of its own
    for (int k = 0; k < node.saved.size(); ++k)
      if (!node.saved[k].tensor.defined()) node.saved[k] = std::move(twin.saved[k]);
  }
  void call_again() {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].version() != versions[i])
        fail({"checkpoint", loc},
             {"input ", i, " was overwritten (by ", inputs[i].get().storage->written_by, " at ",
              inputs[i].get().storage->written_at, "); it was used"},
             {"write y = x + 1 instead of x += 1, or clone() before the write"});
    const Quiet quiet;
    const EnableGrad recording;
    struct SameNumbers {
      explicit SameNumbers(const Generator& then) : now(std::exchange(default_generator, then)) {}
      ~SameNumbers() { default_generator = now; }
      const Generator now;
    } same_numbers(random);
    const Id since = next_id();
    const Tensor y = f(inputs);
    std::vector<Found::Place> nodes;
    if (y.defined()) nodes = nodes_of(y, since);
    if (nodes.size() != count) fail_different();
    twins = std::move(nodes);
    root = Ref<Node>(y.node());
  }
  [[noreturn]] void fail_different() const {
    fail({"checkpoint", loc}, {"the function has done something else when it was called again"},
         {"what it does may depend on its inputs and on random numbers alone"});
  }

  const Function f;
  const Loc loc;
  std::vector<Tensor> inputs;
  std::vector<std::int64_t> versions;
  const Generator random = default_generator;  // as it was before the call
  std::size_t count = 0;
  std::vector<Found::Place> twins;
  Ref<Node> root;              // keeps the twins
  std::atomic_flag refilling;  // two threads may go through a graph that both retain
};

inline Tensor checkpoint(const Function& f, const std::vector<Tensor>& inputs,
                         Loc loc = Loc::here()) {
  const Ref<CheckpointedCall> call = Ref<CheckpointedCall>::make(f, inputs, loc);
  const Id since = next_id();
  Tensor y;
  {
    const Scope scope("checkpoint", loc);
    y = f(inputs);
  }
  if (y.defined()) call->take_from(y, since);
  return y;
}
inline Tensor checkpoint(const Callback<Tensor(const Tensor&)>& f, const Tensor& x,
                         Loc loc = Loc::here()) {
  return checkpoint([f](const std::vector<Tensor>& inputs) { return f(inputs[0]); },
                    std::vector<Tensor>{x}, loc);
}

// ================================================================================================
// 13. Proof
// ================================================================================================
//
// A derivative is a limit, so it can be checked without any calculus: move one input a little to
// either side and see how much the result changes.

struct GradcheckOptions {
  ByName by_name = ByName();
  double eps = 1e-6;
  double atol = 1e-5;
  double rtol = 1e-3;
};

// A scalar that depends on every output in a different way (a plain sum would not notice two
// outputs that are exchanged): the outputs times fixed weights between 0.5 and 1.5, added up.
inline Tensor weighted_sum(const Tensor& y, Loc loc) {
  const Pin pin(loc);
  Tensor weights = fresh(y.shape(), float64);
  double* w = weights.data<double>();
  double turn = 0.5;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    turn += 0.6180339887498949;  // the golden ratio: its multiples fill the interval evenly
    turn -= std::floor(turn);
    w[i] = 0.5 + turn;
  }
  return (y * weights).sum();
}

// Element i of a float64 tensor, in row-major order, wherever it lies.
inline double& element(const Tensor& x, std::int64_t i) {
  const TensorData& r = x.get();
  std::int64_t offset = 0;
  for (int axis = r.shape.size(); axis-- > 0; i /= r.shape[axis])
    offset += i % r.shape[axis] * r.strides[axis];
  return x.data<double>()[offset];
}

inline double central_difference(const Function& f, const std::vector<Tensor>& inputs, double& x,
                                 double eps, Loc loc) {
  const NoGrad guard;
  struct Restored {  // also if f throws
    double& x;
    const double middle = x;
    ~Restored() { x = middle; }
  } restored{x};
  x = restored.middle + eps;
  const double above = weighted_sum(f(inputs), loc).item();
  x = restored.middle - eps;
  const double below = weighted_sum(f(inputs), loc).item();
  return (above - below) / (2 * eps);
}

// True if the gradients of f at these float64 inputs equal central differences; otherwise an Error
// that names the first element where they do not.
inline bool gradcheck(const Function& f, const std::vector<Tensor>& inputs,
                      GradcheckOptions options = {}, Loc loc = Loc::here()) {
  const At at{"gradcheck", loc};
  const Quiet quiet;
  std::vector<Tensor> wanted;
  for (const Tensor& x : inputs) {
    if (!x.requires_grad()) continue;
    wanted.push_back(x);
    if (x.dtype() != float64)
      fail(at, {"an input is ", x.dtype(), ", too coarse for small differences"},
           {"make it with {.dtype = float64}"});
    for (int i = 0; i < x.dim(); ++i)
      if (x.stride(i) == 0 && x.size(i) > 1)
        fail(at, {"several elements of an expanded input are one place in memory"},
             {"clone() it first"});
  }
  if (wanted.empty())
    fail(at, {"no input requires grad, so there is nothing to check"},
         {"make one with {.dtype = float64, .requires_grad = true}"});
  GradOptions how;
  how.allow_unused = true;
  const Tensor total = weighted_sum(f(inputs), loc);
  std::vector<Tensor> gradients(wanted.size());  // undefined where the result is constant
  if (total.requires_grad()) gradients = grad({total}, wanted, how, loc);
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const Tensor gradient = gradients[k].defined() ? copy_of(gradients[k]) : zeros_like(wanted[k]);
    for (std::int64_t i = 0; i < wanted[k].numel(); ++i) {
      const double slope = central_difference(f, inputs, element(wanted[k], i), options.eps, loc);
      const double got = element(gradient, i);
      if (!(std::abs(slope - got) <= options.atol + options.rtol * std::abs(slope)))
        fail(at, {"element ", i, " of input ", k, " has the gradient ", got,
                  ", and central differences give ", slope});
    }
  }
  return true;
}
inline bool gradcheck(const Callback<Tensor(const Tensor&)>& f, const Tensor& x,
                      GradcheckOptions options = {}, Loc loc = Loc::here()) {
  return gradcheck([&](const std::vector<Tensor>& inputs) { return f(inputs[0]); },
                   std::vector<Tensor>{x}, options, loc);
}

// The same for second derivatives: the gradient is a function, too.
inline bool gradgradcheck(const Function& f, const std::vector<Tensor>& inputs,
                          GradcheckOptions options = {}, Loc loc = Loc::here()) {
  const Function gradient = [&](const std::vector<Tensor>& xs) {
    const EnableGrad recording;
    std::vector<Tensor> wanted;
    for (const Tensor& x : xs)
      if (x.requires_grad()) wanted.push_back(x);
    GradOptions how;
    how.create_graph = how.allow_unused = true;
    Tensor total = zeros({}, {.dtype = float64});
    const Tensor y = weighted_sum(f(xs), loc);
    if (!y.requires_grad()) return total;  // a constant
    for (const Tensor& g : grad({y}, wanted, how, loc))
      if (g.defined()) total = add(total, Operand(weighted_sum(g, loc), loc));
    return total;
  };
  return gradcheck(gradient, inputs, options, loc);
}

// ---- Anomaly mode -------------------------------------------------------------------------------

class AnomalyMode {  // while it lives, a pass stops at the first gradient that is NaN
 public:
  [[nodiscard("name it: AnomalyMode guard;")]] AnomalyMode()
      : before_(std::exchange(current.anomaly, true)) {}
  ~AnomalyMode() { current.anomaly = before_; }
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  bool before_;
};

inline void check_not_nan(const Node& node, int slot, const Tensor& gradient) {
  for (double g : gradient.to_vector())
    if (std::isnan(g))
      fail(node.at(), {"the gradient that it gives to input ", slot, " is NaN"},
           {"its rule is ", node.facts().derivative(slot)});
}

// ================================================================================================
// 14. Being watched
// ================================================================================================
//
// Somebody who wants to see what a program does derives from Observer, overrides what is of
// interest and hands it to observe(). Each thread has its own. Nothing here knows who watches, and
// when nobody does it costs one branch an operation.

struct PassSeen {
  std::int64_t number;
  const std::vector<Tensor>& roots;
  const std::vector<Tensor>& seeds;
  bool retain_graph, create_graph;
  const std::vector<Tensor>* asked;  // the inputs of grad(); null for backward()
  Loc line;
};

class Observer {  // an unnamed argument is one that this empty version has no use for
 public:
  virtual ~Observer() = default;
  // A tensor was made from numbers.
  virtual void made(const Tensor& /*tensor*/, Loc /*line*/) {}
  // An operation ran. The node is null if it was not recorded.
  virtual void op(const Node* /*node*/, const Facts&, const Given&, Span<const Tensor*> /*inputs*/,
                  Span<Tensor> /*outputs*/, Loc /*line*/) {}
  // An operation refused to run; with a node, on the way back, when its turn came. Of the inputs
  // those are named that it had already looked at, three at most.
  virtual void failed(const char* /*op*/, const Node*, Span<Id> /*inputs*/,
                      const std::string& /*text*/, Loc /*line*/) {}
  virtual void pass_begins(const PassSeen&) {}
  virtual void pass_ends(std::int64_t /*pass*/) {}
  // A node gave a gradient to its input `slot`: before and after the axes `folded` were summed
  // away.
  virtual void arrived(std::int64_t /*pass*/, const Node&, int /*slot*/, const Tensor& /*before*/,
                       const Shape& /*folded*/, const Tensor& /*given*/) {}
  virtual void hooked(std::int64_t /*pass*/, Id /*tensor*/, const Tensor& /*before*/,
                      const Tensor& /*after*/) {}
  // A leaf's grad() changed; `before` is undefined if it had none.
  virtual void landed(std::int64_t /*pass*/, const Tensor& /*leaf*/, const Tensor& /*before*/,
                      const Tensor& /*after*/) {}
  // A tensor was written in place; the node is the operation whose result it now is, if recorded.
  virtual void wrote(const Tensor& /*tensor*/, std::int64_t /*version_before*/, const char* /*by*/,
                     const Node* /*node*/, Loc /*line*/) {}
  virtual void let_go(const Tensor& /*leaf*/, Loc /*line*/) {}
  virtual void named(const Tensor& /*tensor*/) {}
  virtual void scope_opens(Id /*scope*/, const char* /*name*/, bool /*composed*/, Loc /*line*/) {}
  virtual void scope_closes(Id /*scope*/) {}
  // What a program says about itself: a lesson's prose ("said"), a point of a curve ("plotted").
  virtual void note(const char* /*kind*/, const std::string& /*text*/, Span<double> /*numbers*/) {}
};

inline Observer* observer() { return current.observer; }
inline Observer* observe(Observer* watcher) { return std::exchange(current.observer, watcher); }

// Each of these tells the observer and mutes it meanwhile, so that what it does with the tensors it
// is shown is not an event again.
template <class... Parameters, class... Arguments>
void tell(Observer* watcher, void (Observer::*what)(Parameters...), Arguments&&... arguments) {
  const Quiet quiet;
  const NoGrad guard;
  (watcher->*what)(std::forward<Arguments>(arguments)...);
}
inline void tell_made(const Tensor& x, Loc loc) { tell(current.observer, &Observer::made, x, loc); }
inline void tell_named(const Tensor& x) { tell(current.observer, &Observer::named, x); }
inline void tell_let_go(const Tensor& x, Loc loc) {
  tell(current.observer, &Observer::let_go, x, loc);
}
inline void tell_failed(Observer* watcher, const At& at, const char* called,
                        const std::string& text) {
  const Asked asked = std::exchange(current.asked, {});
  const bool by_it =
      !at.node && asked.op && std::strcmp(asked.op, at.op) == 0 && asked.line == at.loc.line();
  std::size_t count = 0;
  while (by_it && count < asked.inputs.size() && asked.inputs[count]) ++count;
  tell(watcher, &Observer::failed, called, at.node, Span<Id>(asked.inputs.data(), count), text,
       line_of(at.loc));
}
inline void tell_op(const Node* node, const Facts& facts, const Given& given, InputTensors inputs,
                    const Tensor& y, const Tensor* index, Loc loc) {
  const Tensor outputs[] = {y, index ? *index : Tensor()};
  tell(current.observer, &Observer::op, node, facts, given, inputs,
       Span<Tensor>(outputs, index ? 2 : 1), loc);
}
inline void tell_wrote(const Tensor& x, std::int64_t version_before, const char* by,
                       const Node* node, Loc loc) {
  tell(current.observer, &Observer::wrote, x, version_before, by, node, loc);
}
inline void tell_scope_opens(Id scope, const char* name, bool composed, Loc loc) {
  tell(current.observer, &Observer::scope_opens, scope, name, composed, loc);
}
inline void tell_scope_closes(Id scope) { tell(current.observer, &Observer::scope_closes, scope); }
inline void tell_pass_begins(Observer* watcher, std::int64_t number,
                             const std::vector<Tensor>& roots, const std::vector<Tensor>& seeds,
                             const GradOptions& options, const std::vector<Tensor>* asked,
                             Loc loc) {
  tell(watcher, &Observer::pass_begins,
       PassSeen{number, roots, seeds, options.retain_graph, options.create_graph, asked, loc});
}
inline void tell_pass_ends(Observer* watcher, std::int64_t number) {
  tell(watcher, &Observer::pass_ends, number);
}
inline void tell_arrived(Observer* watcher, std::int64_t number, const Node& node, int slot,
                         const Tensor& before, const Tensor& given) {
  tell(watcher, &Observer::arrived, number, node, slot, before,
       folded_axes(before.shape(), given.shape()), given);
}
inline void tell_hooked(Observer* watcher, std::int64_t number, Id tensor, const Tensor& before,
                        const Tensor& after) {
  tell(watcher, &Observer::hooked, number, tensor, before, after);
}
inline void tell_landed(Observer* watcher, std::int64_t number, const Tensor& leaf,
                        const Tensor& before) {
  tell(watcher, &Observer::landed, number, leaf, before, leaf.grad());
}

// ---- The finished graph as a picture ------------------------------------------------------------

// What led to a tensor: its nodes and leaves by rising number, so that an arrow points from an
// earlier box to a later one.
struct Graph {
  struct Box {
    Id id = 0;  // of the node, or of the leaf
    bool leaf = false;
    std::string label;
    std::string shape;
    std::vector<Id> inputs;
  };
  std::vector<Box> boxes;
};

inline Graph graph(const Tensor& root, Loc loc = Loc::here()) {
  check_together({"graph", loc}, {&root});
  static_cast<void>(root.node());  // brought up to date before anything is marked
  const OneAtATime alone(marking);
  Found found({root}, next_id());
  Graph g;
  while (!found.nodes.empty() || !found.leaves.empty()) {  // the lists end with the smallest id
    const bool leaf = found.nodes.empty() ||
                      (!found.leaves.empty() && found.leaves.back().id < found.nodes.back().id);
    std::vector<Found::Place>& list = leaf ? found.leaves : found.nodes;
    const Found::Place it = list.back();
    list.pop_back();
    Graph::Box& box = g.boxes.emplace_back();
    box.id = it.id;
    box.leaf = leaf;
    if (leaf) {
      box.label = it.leaf->extras ? it.leaf->extras->name : "";
      if (box.label.empty()) box.label = "leaf";
      box.shape = to_string(it.leaf->shape);
      continue;
    }
    box.label = it.node->facts().plain_name();
    box.shape = to_string(it.node->shape);
    for (int slot = 0; slot < it.node->inputs.size(); ++slot) {
      const Edge& from = it.node->inputs[slot].from;
      if (from.wanted()) box.inputs.push_back(from.node ? from.node->id() : from.leaf->id);
    }
  }
  return g;
}

// Text inside double quotes in Graphviz's language. Quotes and backslashes are escaped, and so is
// the & that begins a name of HTML (Graphviz would draw "&lt;" as <); line breaks become \n, other
// control characters and bytes that are not UTF-8 become U+FFFD.
inline std::string dot_escape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = byte < 0x80                   ? 1
                               : byte >= 0xF0 && byte < 0xF5 ? 4
                               : byte >= 0xE0                ? 3
                               : byte >= 0xC2                ? 2
                                                             : 0;
    bool whole = length > 0 && byte < 0xF5 && i + length <= text.size();
    for (std::size_t k = 1; whole && k < length; ++k)
      whole = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
    if (byte == '"' || byte == '\\')
      out += '\\', out += text[i];
    else if (byte == '&')
      out += "&amp;";
    else if (byte == '\n')
      out += "\\n";
    else if (!whole || byte < 0x20 || byte == 0x7F)
      out += "\xEF\xBF\xBD";
    else
      out.append(text, i, length);
    i += whole ? length : 1;
  }
  return out;
}

// Graphviz's language: `dot -Tsvg` makes a picture of it.
inline std::string to_dot(const Graph& g) {
  std::string out = "digraph {\n  rankdir=LR;\n  node [fontname=\"DejaVu Sans\"];\n";
  for (const Graph::Box& box : g.boxes) {
    out += "  n" + std::to_string(box.id) + " [label=\"" + dot_escape(box.label) + "\\n" +
           dot_escape(box.shape) + "\", shape=" + (box.leaf ? "box, style=rounded" : "ellipse") +
           "];\n";
    for (Id input : box.inputs)
      out += "  n" + std::to_string(input) + " -> n" + std::to_string(box.id) + ";\n";
  }
  return out + "}\n";
}

// ---- Printing -----------------------------------------------------------------------------------

inline std::string to_string(const Tensor& x) {
  if (!x.defined()) return "tensor(undefined)";
  const Node* made_by = x.grad_fn();
  const std::string history = made_by             ? text_of({"grad_fn=<", made_by->name(), ">"})
                              : x.requires_grad() ? "requires_grad=True"
                                                  : "";
  if (x.device() == cpu) return print_elements(x.elements(), history);
  return print_elements(copy_of(x, x.dtype(), cpu).elements(), history, x.device().text());
}

// ================================================================================================
// A. Appendix: learning
// ================================================================================================
//
// A network is made of *modules*, which keep parameters, and an *optimiser* changes those. There is
// nothing new for the engine here: a layer is a function of chapter 11 that remembers its weights.
//
//     struct Net : nn::Module {
//       nn::Linear fc1 = add("fc1", nn::Linear(784, 128));
//       nn::Linear fc2 = add("fc2", nn::Linear(128, 10));
//       Tensor forward(const Tensor& x) override { return fc2(fc1(x).relu()); }
//     };
//
//     Net net;
//     optim::Adam optimizer(net.parameters(), {.lr = 1e-3});
//     for (int epoch = 0; epoch < 10; ++epoch) {
//       optimizer.zero_grad();
//       cross_entropy(net(x), y).backward();
//       optimizer.step();
//     }
//
// Names, shapes and first values of the parameters are PyTorch's, so that its files fit.

// ---- Tensors by name ----------------------------------------------------------------------------

// A name between square brackets, with the line, as First is for a number.
class WantedName {
 public:
  template <class T>
  requires std::is_convertible_v<const T&, std::string_view> WantedName(const T& text,
                                                                        Loc here = Loc::here())
      : name(text), loc(here) {}
  const std::string_view name;
  const Loc loc;
};

// How many letters have to be put in, taken out or exchanged until one word is the other (V. I.
// Levenshtein, 1966). The row holds what is right for the letters of b so far.
inline std::uint64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::uint64_t> row;
  for (std::uint64_t j = 0; j <= b.size(); ++j) row.push_back(j);
  for (const char letter : a) {
    std::uint64_t before = row[0]++;  // without both letters
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::uint64_t exchanged = before + (letter == b[j] ? 0 : 1);
      before = row[j + 1];
      row[j + 1] = std::min(exchanged, std::min(before, row[j]) + 1);
    }
  }
  return row.back();
}
// Who mistypes a name wants to hear which ones there are, the closest first.
[[noreturn]] inline void fail_no_name(const std::vector<std::string>& names,
                                      const WantedName& wanted) {
  const At at{"[]", wanted.loc};
  if (names.empty())
    fail(at, {"there is no \"", wanted.name, "\", and nothing else either"},
         {"emplace(name, tensor) adds one"});
  std::vector<std::pair<std::uint64_t, std::int64_t>> order;  // by distance, then as they come
  for (const std::string& name : names)
    order.emplace_back(edit_distance(name, wanted.name), static_cast<std::int64_t>(order.size()));
  std::sort(order.begin(), order.end());
  std::string closest;
  for (std::size_t i = 0; i < order.size() && i < 3; ++i) {
    append(closest, i ? ", \"" : "\"");
    append(closest, names[static_cast<std::size_t>(order[i].second)]);
    append(closest, '"');
  }
  if (names.size() == 1) fail(at, {"there is no \"", wanted.name, "\", only ", closest});
  fail(at, {"there is no \"", wanted.name, "\" among ", names.size(), " names"},
       {"the closest are ", closest});
}
template <class Tensors>  // pairs of a name and a tensor
[[noreturn]] void fail_no_name(const Tensors& tensors, const WantedName& wanted) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  fail_no_name(names, wanted);
}

namespace nn {

// ---- Modules ------------------------------------------------------------------------------------

// Tensors by name, in their order: "fc1.weight". It is made from a std::map and turns into one, so
// that `save_safetensors(path, net.state_dict())` works.
struct StateDict : std::vector<std::pair<std::string, Tensor>> {
  StateDict() = default;
  template <class Map>
  requires requires { typename Map::mapped_type; }
  StateDict(const Map& map) {
    for (const auto& [name, tensor] : map) emplace_back(name, tensor);
  }
  template <class Map>
  requires requires { typename Map::mapped_type; }
  operator Map() const { return Map(begin(), end()); }

  Tensor get(std::string_view wanted) const {  // undefined if there is none
    for (const auto& [name, tensor] : *this)
      if (name == wanted) return tensor;
    return {};
  }
  using vector::operator[];
  Tensor operator[](const WantedName& wanted) const {
    if (const Tensor x = get(wanted.name); x.defined()) return x;
    fail_no_name(*this, wanted);
  }
};

struct LoadOptions {
  ByName by_name = ByName();
  bool strict = true;  // every name has to be on both sides
};

// "Linear" from "N10minitensor2nn6LinearE": compilers write each part of a class's name behind its
// length, and the last part is what the class was called.
inline std::string class_name(const std::type_info& type) {
  const std::string_view text = type.name();
  std::string_view name;
  for (std::size_t i = 0, length = 0; i < text.size(); ++i) {
    if (text[i] >= '0' && text[i] <= '9') {
      length = 10 * length + static_cast<std::size_t>(text[i] - '0');
      continue;
    }
    if (length > 0 && i + length <= text.size()) {
      name = text.substr(i, length);
      i += length - 1;
    }
    length = 0;
  }
  return std::string(name);
}

// What every module has: parameters, which learn; buffers, which belong to its state and do not;
// and parts, modules again. A module is a handle to these, as a tensor is to its memory: a copy is
// the same network under a second name. (For its numbers: other.load_state_dict(net.state_dict()).)
class ModuleBase {
 public:
  virtual ~ModuleBase() = default;
  ModuleBase(const ModuleBase&) = default;
  // Not assigned: `net.fc1 = Linear(3, 4)` would leave the old one among the parameters.
  ModuleBase& operator=(const ModuleBase&) = delete;

  // Each parameter once, in the order of registration, a module's own before those of its parts.
  StateDict named_parameters() const;
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> found;
    for (const auto& [name, tensor] : named_parameters()) found.push_back(tensor);
    return found;
  }
  // Parameters and buffers, detached; they share their memory with the module.
  StateDict state_dict() const;
  // Copies numbers into parameters and buffers. Nothing is changed unless all of them fit.
  void load_state_dict(const StateDict& state, LoadOptions options = {}, Loc loc = Loc::here());

  // Dropout and batch norm do one thing in training and another after it.
  void train(bool on = true) { set_training(*record_, on); }
  void eval() { train(false); }
  bool is_training() const { return record_->training; }

  void zero_grad(Loc loc = Loc::here()) const {
    for (const Kept& one : list())
      if (one.is_parameter) one.tensor.zero_grad(loc);
  }
  void requires_grad_(bool yes = true, Loc loc = Loc::here()) const {
    for (const Tensor& w : parameters()) w.requires_grad_(yes, loc);
  }
  // Parameters, buffers and gradients become of another type (if they are floats) or move. They
  // stay the same tensors: an optimiser that has them goes on with them.
  void to(DType dtype, Loc loc = Loc::here()) const;
  void to(Device device, Loc loc = Loc::here()) const;

  // A line for each part, with the shapes of what it keeps: "(fc1): Linear(weight [8, 2], bias
  // [8])".
  friend std::ostream& operator<<(std::ostream& out, const ModuleBase& module) {
    return out << described(*module.record_, class_name(typeid(module)), "\n");
  }

 protected:
  ModuleBase() : record_(Ref<Record>::make()) {}
  // Makes a module a part of this one: `Linear fc1 = add("fc1", Linear(784, 128));`
  template <class M>
  M add(const std::string& name, M part, Loc loc = Loc::here()) {
    add_part(name, part, loc);
    static_cast<ModuleBase&>(part).record_->title = name;
    return part;
  }
  void add_part(const std::string& name, const ModuleBase& part, Loc loc);  // keeps its title
  Tensor register_parameter(const std::string& name, const Tensor& x, Loc loc = Loc::here()) {
    return keep(name, x, true, {"register_parameter", loc});
  }
  Tensor register_buffer(const std::string& name, const Tensor& x, Loc loc = Loc::here()) {
    return keep(name, x, false, {"register_buffer", loc});
  }
  // A layer's first values: uniform from -1 / sqrt(fan_in) to 1 / sqrt(fan_in); or a constant.
  Tensor uniform_parameter(const std::string& name, Shape shape, std::int64_t fan_in, Loc loc);
  Tensor constant_parameter(const std::string& name, Shape shape, double value, Loc loc) {
    return register_parameter(name, full(shape, value, {.requires_grad = true}, loc), loc);
  }
  // The title of its box, for whoever watches: what it was called in add(), or its class.
  std::string title() const {
    if (!current.observer) return "";
    return record_->title.empty() ? class_name(typeid(*this)) : record_->title;
  }

 private:
  struct Kept {
    std::string name;
    Tensor tensor;
    bool is_parameter;
  };
  struct Record {
    static void destroy(Record* record) { delete record; }
    std::atomic<int> handles{0};
    bool training = true;
    std::string title, prefix;  // prefix: what stands before its parameters' names, "net.fc1."
    std::string type;           // of a part: its class
    std::vector<Kept> kept;
    std::vector<std::pair<std::string, Ref<Record>>> parts;
  };
  static bool contains(const Record& record, const Record* wanted) {
    bool found = &record == wanted;
    for (const auto& part : record.parts) found = found || contains(*part.second, wanted);
    return found;
  }
  static void set_training(Record& record, bool on) {
    record.training = on;
    for (const auto& part : record.parts) set_training(*part.second, on);
  }
  // What it keeps and what its parts keep, under their full names.
  static void list(const Record& record, const std::string& prefix, std::vector<Kept>& all) {
    for (const Kept& one : record.kept)
      all.push_back({prefix + one.name, one.tensor, one.is_parameter});
    for (const auto& [name, part] : record.parts) list(*part, prefix + name + ".", all);
  }
  std::vector<Kept> list() const {
    std::vector<Kept> all;
    list(*record_, "", all);
    return all;
  }
  static std::string described(const Record& record, const std::string& type,
                               const std::string& line_break) {
    std::string text = type + "(";
    for (const Kept& one : record.kept)
      text += text_of({&one == &record.kept[0] ? "" : ", ", one.name, " ", one.tensor.shape()});
    for (const auto& [name, part] : record.parts)
      text += line_break + "  (" + name + "): " + described(*part, part->type, line_break + "  ");
    return text + (record.parts.empty() ? ")" : line_break + ")");
  }
  // The tensors are called by their full names, as a reader of the graph wants them.
  static void name_tensors(Record& record, const std::string& prefix) {
    record.prefix = prefix;
    for (const Kept& one : record.kept) one.tensor.named(prefix + one.name);
    for (const auto& [name, part] : record.parts) name_tensors(*part, prefix + name + ".");
  }
  Tensor keep(const std::string& name, const Tensor& x, bool is_parameter, const At& at);
  void check_name(const std::string& name, const At& at) const;
  void convert(Calls<Tensor&> change, Loc loc) const;

  const Ref<Record> record_;
};

inline void ModuleBase::check_name(const std::string& name, const At& at) const {
  bool taken = false;
  for (const Kept& one : record_->kept) taken = taken || one.name == name;
  for (const auto& part : record_->parts) taken = taken || part.first == name;
  if (taken) fail(at, {"this module already has a \"", name, "\""}, {"give it another name"});
  if (name.empty() || name.find('.') != name.npos)
    fail(at, {"\"", name, "\" is not a name for a part"}, {"it has no dot and is not empty"});
}
inline void ModuleBase::add_part(const std::string& name, const ModuleBase& part, Loc loc) {
  check_name(name, {"add", loc});
  if (contains(*part.record_, record_.get()))
    fail({"add", loc}, {"a module can't be a part of itself"},
         {"make another one for \"" + name + "\""});
  record_->parts.emplace_back(name, part.record_);
  part.record_->type = class_name(typeid(part));
  name_tensors(*part.record_, record_->prefix + name + ".");
}
inline Tensor ModuleBase::keep(const std::string& name, const Tensor& x, bool is_parameter,
                               const At& at) {
  check_name(name, at);
  check_together(at, {&x});
  if (!x.is_leaf())
    fail(at, {"\"", name, "\" was computed, it is not a leaf"}, {"detach() it first"});
  if (is_parameter) x.requires_grad_(true, at.loc);
  record_->kept.push_back({name, x, is_parameter});
  return x.named(record_->prefix + name);
}
inline Tensor ModuleBase::uniform_parameter(const std::string& name, Shape shape,
                                            std::int64_t fan_in, Loc loc) {
  const double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  const TensorOptions options{.requires_grad = true};
  Tensor w = begin_numbers(class_name(typeid(*this)).c_str(), shape, float32, options, loc);
  fill_uniform(w.elements(), default_generator, -bound, bound);
  return register_parameter(name, end_tensor(std::move(w), options, loc), loc);
}

inline StateDict ModuleBase::named_parameters() const {
  StateDict found;
  for (const Kept& one : list()) {
    bool wanted = one.is_parameter;
    for (const auto& [name, other] : found) wanted = wanted && other.id() != one.tensor.id();
    if (wanted) found.emplace_back(one.name, one.tensor);
  }
  return found;
}
inline StateDict ModuleBase::state_dict() const {
  const Quiet quiet;
  StateDict state;
  for (const Kept& one : list()) state.emplace_back(one.name, one.tensor.detach());
  return state;
}
inline void ModuleBase::load_state_dict(const StateDict& state, LoadOptions options, Loc loc) {
  const At at{"load_state_dict", loc};
  const StateDict mine = state_dict();
  std::string missing, unknown;
  for (const auto& [name, tensor] : mine) {
    const Tensor x = state.get(name);
    if (!x.defined()) missing += " " + name;
    if (x.defined() && x.shape() != tensor.shape())
      fail(at, {"\"", name, "\" has the shape ", x.shape(), ", and here it is ", tensor.shape()});
  }
  for (const auto& [name, tensor] : state)
    if (!mine.get(name).defined()) unknown += " " + name;
  if (options.strict && !missing.empty())
    fail(at, {"the state lacks", missing}, {"{.strict = false} loads what there is"});
  if (options.strict && !unknown.empty())
    fail(at, {"this module has no", unknown}, {"{.strict = false} loads what it has"});
  const Pin pin(loc);
  const NoGrad guard;
  for (const Kept& one : list())
    if (const Tensor x = state.get(one.name); x.defined())
      one.tensor.copy_(x.to(one.tensor.device()));
}

// The memory of the changed tensor takes the place of the old one in the record, so all handles see
// it. Its version goes on counting: a graph that has saved the tensor notices.
inline void ModuleBase::convert(Calls<Tensor&> change, Loc loc) const {
  for (const Kept& one : list())
    for (const Tensor& x : {one.tensor, Tensor(one.tensor.get().grad)}) {
      if (!x.defined()) continue;
      Tensor y = x;
      {
        const Unseen inside(loc);
        change(y);
      }
      if (y.shares_storage_with(x)) continue;
      const std::int64_t before = x.version();
      y.get().storage->version = before;
      note_write(y, "to", line_of(loc));
      static_cast<View&>(x.get()) = y.get();
      x.get().storage = y.get().storage;
      if (current.observer) tell_wrote(x, before, "to", nullptr, line_of(loc));
    }
}
inline void ModuleBase::to(DType dtype, Loc loc) const {
  if (!is_floating(dtype))
    fail({"to", loc}, {"parameters are floats, not ", dtype}, {"write float32 or float64"});
  convert(
      [&](Tensor& x) {
        if (is_floating(x.dtype())) x = x.to(dtype);
      },
      loc);
}
inline void ModuleBase::to(Device device, Loc loc) const {
  convert([&](Tensor& x) { x = x.to(device); }, loc);
}

// A module that makes one tensor of one tensor. Derive from it, write forward(), and call the
// module itself, `y = net(x)`: the viewer draws it as a box of its name. (One that takes or gives
// something else derives from ModuleBase and has an operator() of its own.)
class Module : public ModuleBase {
 public:
  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x, Loc loc = Loc::here()) {
    const Scope scope(title(), loc);
    std::optional<Pin> pin;
    if (is_layer_) pin.emplace(loc);
    return forward(x);
  }

 protected:
  bool is_layer_ = false;
};

// The modules of this header. What happens inside carries the line of their caller, while in your
// own forward() each line is its own.
class Layer : public Module {
 protected:
  Layer() { is_layer_ = true; }
};

// What stands in a row of modules. Copies of the row share it, as they share all they have.
template <class M>
struct SharedRow {
  static void destroy(SharedRow* row) { delete row; }
  std::atomic<int> handles{0};
  std::vector<M> modules;
};

// One module after the other: Sequential{Linear(2, 16), ReLU(), Linear(16, 2)}. Their names are
// their numbers, as in "0.weight". (Between braces they are made, and draw their first weights,
// from left to right; between parentheses C++ leaves the order to the compiler.)
class Sequential : public Layer {
 public:
  template <class... M>
  explicit Sequential(const M&... modules) {
    (push_back(modules), ...);
  }
  template <class M>
  void push_back(M module, Loc loc = Loc::here()) {
    add_part(std::to_string(size()), module, loc);
    row_->modules.push_back([module](const Tensor& x) mutable { return module(x); });
  }
  Tensor forward(const Tensor& input) override {
    Tensor x = input;
    for (auto& module : row_->modules) x = module(x);
    return x;
  }
  std::size_t size() const { return row_->modules.size(); }

 private:
  const Ref<SharedRow<Callback<Tensor(const Tensor&)>>> row_ =
      Ref<SharedRow<Callback<Tensor(const Tensor&)>>>::make();
};

// Modules of one class in a row, for a forward() that walks over them: `for (Block& b : blocks)`.
template <class M>
class ModuleList : public ModuleBase {
 public:
  ModuleList(std::initializer_list<M> modules = {}) {
    for (const M& module : modules) push_back(module);
  }
  void push_back(const M& module, Loc loc = Loc::here()) {
    add_part(std::to_string(size()), module, loc);
    row_->modules.push_back(module);
  }
  M& operator[](First i) {
    if (i.value() < 0 || static_cast<std::size_t>(i.value()) >= size())
      fail({"ModuleList", i.loc}, {"there is no module ", i.value(), " among ", size()});
    return row_->modules[static_cast<std::size_t>(i.value())];
  }
  auto begin() { return row_->modules.begin(); }
  auto end() { return row_->modules.end(); }
  std::size_t size() const { return row_->modules.size(); }

 private:
  const Ref<SharedRow<M>> row_ = Ref<SharedRow<M>>::make();
};

// ---- First values -------------------------------------------------------------------------------
//
// If each layer made its input larger, or smaller, many layers would make it infinite, or nothing.
// So weights are drawn with a spread that keeps the size of what passes: forwards by the number of
// inputs (fan_in), or backwards by that of outputs (fan_out).

namespace init {

inline void uniform_(const Tensor& w, double from = 0, double to = 1, Loc loc = Loc::here()) {
  const NoGrad guard;
  w.uniform_(from, to, loc);
}
inline void normal_(const Tensor& w, double mean = 0, double std = 1, Loc loc = Loc::here()) {
  const NoGrad guard;
  w.normal_(mean, std, loc);
}
inline void constant_(const Tensor& w, Scalar value, Loc loc = Loc::here()) {
  const NoGrad guard;
  w.fill_(value, loc);
}
inline void zeros_(const Tensor& w, Loc loc = Loc::here()) { constant_(w, 0, loc); }
inline void ones_(const Tensor& w, Loc loc = Loc::here()) { constant_(w, 1, loc); }

// How many inputs and outputs a weight [out, in, ...] has; each place of a kernel counts.
struct Fans {
  Fans(const Tensor& w, const At& at) {
    check_together(at, {&w});
    if (w.dim() < 2)
      fail(at, {"a weight ", w.shape(), " has no inputs and outputs"}, {"it is [out, in, ...]"});
    Shape kernel = w.shape();
    kernel[0] = kernel[1] = 1;
    in = static_cast<double>(w.size(1) * kernel.numel());
    out = static_cast<double>(w.size(0) * kernel.numel());
  }
  double in, out;
};
// What makes up for the function that follows: relu drops half of its input, so sqrt(2).
inline double calculate_gain(const char* nonlinearity, double slope = 0.01, Loc loc = Loc::here()) {
  const std::string_view name = nonlinearity;
  if (name == "linear" || name == "sigmoid" || name == "conv1d" || name == "conv2d") return 1;
  if (name == "tanh") return 5.0 / 3;
  if (name == "relu") return std::sqrt(2.0);
  if (name == "leaky_relu") return std::sqrt(2 / (1 + slope * slope));
  fail({"calculate_gain", loc}, {"there is no gain for \"", name, "\""},
       {"there is for \"relu\", \"leaky_relu\", \"tanh\", \"sigmoid\" and \"linear\""});
}

// A compromise of both directions: variance 2 gain² / (fan_in + fan_out) (X. Glorot, Y. Bengio,
// 2010).
inline double xavier_std(const Tensor& w, double gain, const At& at) {
  const Fans fans(w, at);
  return gain * std::sqrt(2 / (fans.in + fans.out));
}
inline void xavier_uniform_(const Tensor& w, double gain = 1, Loc loc = Loc::here()) {
  const double bound = std::sqrt(3.0) * xavier_std(w, gain, {"xavier_uniform_", loc});
  uniform_(w, -bound, bound, loc);
}
inline void xavier_normal_(const Tensor& w, double gain = 1, Loc loc = Loc::here()) {
  normal_(w, 0, xavier_std(w, gain, {"xavier_normal_", loc}), loc);
}

struct KaimingOptions {
  ByName by_name = ByName();
  double a = 0;  // the slope of leaky_relu below 0
  const char* mode = "fan_in";
  const char* nonlinearity = "leaky_relu";
};
// One direction: variance gain² / fan (K. He, X. Zhang, S. Ren, J. Sun, 2015).
inline double kaiming_std(const Tensor& w, const KaimingOptions& options, const At& at) {
  const std::string_view mode = options.mode;
  if (mode != "fan_in" && mode != "fan_out")
    fail(at, {"mode is \"", mode, "\""}, {"write \"fan_in\" or \"fan_out\""});
  const Fans fans(w, at);
  return calculate_gain(options.nonlinearity, options.a, at.loc) /
         std::sqrt(mode == "fan_in" ? fans.in : fans.out);
}
inline void kaiming_uniform_(const Tensor& w, KaimingOptions options = {}, Loc loc = Loc::here()) {
  const double bound = std::sqrt(3.0) * kaiming_std(w, options, {"kaiming_uniform_", loc});
  uniform_(w, -bound, bound, loc);
}
inline void kaiming_normal_(const Tensor& w, KaimingOptions options = {}, Loc loc = Loc::here()) {
  normal_(w, 0, kaiming_std(w, options, {"kaiming_normal_", loc}), loc);
}

}  // namespace init

// ---- Layers with weights ------------------------------------------------------------------------

struct LinearOptions {
  ByName by_name = ByName();
  bool bias = true;
};
// x wᵀ + bias: [.., in] -> [.., out].
struct Linear : Layer {
  Linear(std::int64_t in, std::int64_t out, LinearOptions options = {}, Loc loc = Loc::here())
      : weight(uniform_parameter("weight", {out, in}, in, loc)),
        bias(options.bias ? uniform_parameter("bias", {out}, in, loc) : Tensor()) {}
  Tensor forward(const Tensor& x) override { return linear(x, weight, bias); }

  const Tensor weight, bias;  // [out, in] and [out]
};

struct ConvLayerOptions {
  ByName by_name = ByName();
  Pair stride = 1;
  Padding padding = 0;
  Pair dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};
// What both convolutions have: a kernel for each output channel and each input channel of its
// group.
class Conv : public Layer {
 public:
  const Tensor weight, bias;  // [out, in / groups, kernel..] and [out]

 protected:
  Conv(const Shape& shape, const ConvLayerOptions& o, Loc loc)
      : weight(uniform_parameter("weight", shape, fan_in(shape), loc)),
        bias(o.bias ? uniform_parameter("bias", {shape[0]}, fan_in(shape), loc) : Tensor()),
        how_{.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups} {
  }
  static Shape shape_of(std::int64_t in, std::int64_t out, Shape kernel, std::int64_t groups,
                        Loc loc) {
    if (groups < 1 || in % groups != 0 || out % groups != 0)
      fail({"Conv", loc}, {in, " and ", out, " channels do not make ", groups, " groups"});
    kernel.insert(0, in / groups);
    kernel.insert(0, out);
    return kernel;
  }
  const ConvOptions how_;

 private:
  static std::int64_t fan_in(Shape shape) {
    shape.erase(0);
    return shape.numel();
  }
};
// [N, in, L] -> [N, out, L'], with L' = (L + 2 padding - dilation (kernel - 1) - 1) / stride + 1.
struct Conv1d : Conv {
  Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, ConvLayerOptions options = {},
         Loc loc = Loc::here())
      : Conv(shape_of(in, out, {kernel}, options.groups, loc), options, loc) {}
  Tensor forward(const Tensor& x) override { return conv1d(x, weight, bias, how_); }
};
// The same for images: [N, in, H, W] -> [N, out, H', W'].
struct Conv2d : Conv {
  Conv2d(std::int64_t in, std::int64_t out, Pair kernel, ConvLayerOptions options = {},
         Loc loc = Loc::here())
      : Conv(shape_of(in, out, {kernel.height, kernel.width}, options.groups, loc), options, loc) {}
  Tensor forward(const Tensor& x) override { return conv2d(x, weight, bias, how_); }
};

// A vector for each of `count` words: numbers [..] -> [.., size]. A row padding_idx is 0 at first.
class Embedding : public Layer {
 public:
  Embedding(std::int64_t count, std::int64_t size, EmbeddingOptions options = {},
            Loc loc = Loc::here())
      : weight(register_parameter("weight", randn({count, size}, {.requires_grad = true}, loc))),
        options_(options) {
    if (!options.padding_idx) return;
    const std::int64_t padding = *options.padding_idx;
    if (padding < -count || padding >= count)
      fail({"Embedding", loc}, {"padding_idx is ", padding, ", and there are ", count, " rows"});
    const NoGrad guard;
    weight[padding].zero_();
  }
  Tensor forward(const Tensor& index) override { return embedding(index, weight, options_); }

  const Tensor weight;  // [count, size], at first normal

 private:
  const EmbeddingOptions options_;
};

// ---- Norms --------------------------------------------------------------------------------------

// What the norms have in common: a scale and a shift, which are learnt. Both may be left out.
class Norm : public Layer {
 public:
  const Tensor weight, bias;  // at first ones and zeros

 protected:
  Norm(const Shape& shape, bool affine, Loc loc)
      : weight(affine ? constant_parameter("weight", shape, 1, loc) : Tensor()),
        bias(affine ? constant_parameter("bias", shape, 0, loc) : Tensor()) {}
};

struct BatchNormLayerOptions {
  ByName by_name = ByName();
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // {}: the running values are means over all batches
  bool affine = true;
  bool track_running_stats = true;
};
// Each channel gets the mean 0 and the variance 1 over its batch (S. Ioffe, C. Szegedy, 2015). In
// training it follows the mean and the (unbiased) variance, which it uses after eval().
class BatchNorm : public Norm {
 public:
  Tensor forward(const Tensor& x) override {
    if (x.defined() && !axes_.contains(x.dim()))
      fail({class_name(typeid(*this)).c_str(), current.last_line},
           {"the input has the shape ", x.shape()},
           {axes_.size() == 1 ? "it is [N, C, H, W]" : "it is [N, C] or [N, C, L]"});
    const bool tracks = is_training() && running_mean.defined();
    BatchNormOptions how;
    how.training = is_training() || !running_mean.defined();
    how.eps = options_.eps;
    if (tracks)
      how.momentum = options_.momentum ? *options_.momentum : 1 / (num_batches_tracked.item() + 1);
    const Tensor y = batch_norm(x, running_mean, running_var, weight, bias, how);
    const NoGrad guard;
    if (tracks) num_batches_tracked.add_(1);
    return y;
  }

  const Tensor running_mean, running_var, num_batches_tracked;  // [C], [C] and a number

 protected:
  // `axes` is how many axes the input may have.
  BatchNorm(std::int64_t channels, const Shape& axes, const BatchNormLayerOptions& o, Loc loc)
      : Norm({channels}, o.affine, loc),
        running_mean(buffer("running_mean", zeros({channels}), o)),
        running_var(buffer("running_var", ones({channels}), o)),
        num_batches_tracked(buffer("num_batches_tracked", zeros({}, {.dtype = int64}), o)),
        axes_(axes),
        options_(o) {}

 private:
  Tensor buffer(const char* name, const Tensor& x, const BatchNormLayerOptions& o) {
    return o.track_running_stats ? register_buffer(name, x) : Tensor();
  }
  const Shape axes_;
  const BatchNormLayerOptions options_;
};
struct BatchNorm1d : BatchNorm {  // [N, C] or [N, C, L]
  explicit BatchNorm1d(std::int64_t channels, BatchNormLayerOptions options = {},
                       Loc loc = Loc::here())
      : BatchNorm(channels, {2, 3}, options, loc) {}
};
struct BatchNorm2d : BatchNorm {  // [N, C, H, W]
  explicit BatchNorm2d(std::int64_t channels, BatchNormLayerOptions options = {},
                       Loc loc = Loc::here())
      : BatchNorm(channels, {4}, options, loc) {}
};

struct LayerNormOptions {
  ByName by_name = ByName();
  double eps = 1e-5;
  bool elementwise_affine = true;
};
// Each row of the last axes, [.., shape], gets the mean 0 and the variance 1; each place in it has
// a scale and a shift of its own (J. L. Ba, J. R. Kiros, G. E. Hinton, 2016).
class LayerNorm : public Norm {
 public:
  explicit LayerNorm(Shape shape, LayerNormOptions o = {}, Loc loc = Loc::here())
      : Norm(shape, o.elementwise_affine, loc), shape_(shape), eps_(o.eps) {}
  // LayerNorm({10}), which C++ would also take for a copy of LayerNorm(10).
  explicit LayerNorm(std::initializer_list<std::int64_t> sizes, LayerNormOptions o = {},
                     Loc loc = Loc::here())
      : LayerNorm(shape_of(sizes), o, loc) {}
  Tensor forward(const Tensor& x) override { return layer_norm(x, shape_, weight, bias, eps_); }

 private:
  static Shape shape_of(std::initializer_list<std::int64_t> sizes) {
    Shape shape;
    for (const std::int64_t size : sizes) shape.push_back(size);
    return shape;
  }
  const Shape shape_;
  const double eps_;
};

struct GroupNormOptions {
  ByName by_name = ByName();
  double eps = 1e-5;
  bool affine = true;
};
// The same over each group of channels, for each image: [N, C, ...] (Y. Wu, K. He, 2018).
class GroupNorm : public Norm {
 public:
  GroupNorm(std::int64_t groups, std::int64_t channels, GroupNormOptions o = {},
            Loc loc = Loc::here())
      : Norm({channels}, o.affine, loc), groups_(groups), eps_(o.eps) {}
  Tensor forward(const Tensor& x) override { return group_norm(x, groups_, weight, bias, eps_); }

 private:
  const std::int64_t groups_;
  const double eps_;
};

// ---- Layers without weights ---------------------------------------------------------------------

// Functions, as modules.
struct ReLU : Layer {
  Tensor forward(const Tensor& x) override { return x.relu(); }
};
struct Tanh : Layer {
  Tensor forward(const Tensor& x) override { return x.tanh(); }
};
struct Sigmoid : Layer {
  Tensor forward(const Tensor& x) override { return x.sigmoid(); }
};
struct LogSigmoid : Layer {
  Tensor forward(const Tensor& x) override { return logsigmoid(x); }
};
struct SiLU : Layer {  // x sigmoid(x) (S. Elfwing, E. Uchibe, K. Doya, 2018)
  Tensor forward(const Tensor& x) override { return silu(x); }
};
struct GELU : Layer {  // (D. Hendrycks, K. Gimpel, 2016)
  explicit GELU(GeluOptions o = {}) : options(o) {}
  Tensor forward(const Tensor& x) override { return gelu(x, options); }
  const GeluOptions options;
};
struct ELU : Layer {  // (D.-A. Clevert, T. Unterthiner, S. Hochreiter, 2016)
  explicit ELU(double a = 1) : alpha(a) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha); }
  const double alpha;
};
struct LeakyReLU : Layer {
  explicit LeakyReLU(double slope = 0.01) : negative_slope(slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, negative_slope); }
  const double negative_slope;
};
struct Softplus : Layer {
  explicit Softplus(SoftplusOptions o = {}) : options(o) {}
  Tensor forward(const Tensor& x) override { return softplus(x, options); }
  const SoftplusOptions options;
};
struct Softmax : Layer {
  explicit Softmax(std::int64_t along) : axis(along) {}
  Tensor forward(const Tensor& x) override { return x.softmax(axis); }
  const std::int64_t axis;
};
struct LogSoftmax : Layer {
  explicit LogSoftmax(std::int64_t along) : axis(along) {}
  Tensor forward(const Tensor& x) override { return x.log_softmax(axis); }
  const std::int64_t axis;
};
// [N, C, H, W] -> [N, C * H * W]: all axes from `from` to `to` become one.
struct Flatten : Layer {
  explicit Flatten(std::int64_t first = 1, std::int64_t last = -1) : from(first), to(last) {}
  Tensor forward(const Tensor& x) override { return x.flatten(from, to); }
  const std::int64_t from, to;
};
// Windows over the last two axes, [N, C, H, W] -> [N, C, H', W'], as the functions of chapter 11.
struct MaxPool2d : Layer {
  explicit MaxPool2d(Pair size, PoolOptions o = {}) : kernel(size), options(o) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, kernel, options); }
  const Pair kernel;
  const PoolOptions options;
};
struct AvgPool2d : Layer {
  explicit AvgPool2d(Pair size, AvgPoolOptions o = {}) : kernel(size), options(o) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, kernel, options); }
  const Pair kernel;
  const AvgPoolOptions options;
};
struct AdaptiveAvgPool2d : Layer {
  explicit AdaptiveAvgPool2d(Pair s) : size(s) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, size); }
  const Pair size;
};
// In training, zeros in random places (N. Srivastava et al., 2014); after eval(), nothing.
class Dropout : public Layer {
 public:
  explicit Dropout(double p = 0.5, Loc loc = Loc::here()) : p_(p) {
    if (!(p >= 0 && p <= 1))
      fail({"Dropout", loc}, {"the probability is ", p, ", it has to be between 0 and 1"});
  }
  Tensor forward(const Tensor& x) override { return dropout(x, p_, is_training()); }

 private:
  const double p_;
};

// A loss that remembers its options: `nn::CrossEntropyLoss criterion({.label_smoothing = 0.1});`
// and then `criterion(net(x), y).backward();`. A weight among them stays where it is: it is no
// buffer.
template <class Options, Tensor (*loss)(const Tensor&, const Tensor&, Options, Loc)>
class Loss : public ModuleBase {
 public:
  explicit Loss(Options o = {}) : options(std::move(o)) {}
  Tensor operator()(const Tensor& input, const Tensor& target, Loc loc = Loc::here()) const {
    return loss(input, target, options, loc);
  }
  const Options options;
};
using MSELoss = Loss<LossOptions, mse_loss>;
using L1Loss = Loss<LossOptions, l1_loss>;
using HuberLoss = Loss<HuberLossOptions, huber_loss>;
using SmoothL1Loss = Loss<SmoothL1LossOptions, smooth_l1_loss>;
using CrossEntropyLoss = Loss<CrossEntropyOptions, cross_entropy>;
using NLLLoss = Loss<NllLossOptions, nll_loss>;
using BCELoss = Loss<BceOptions, binary_cross_entropy>;
using BCEWithLogitsLoss = Loss<BceWithLogitsOptions, binary_cross_entropy_with_logits>;
using KLDivLoss = Loss<KlDivOptions, kl_div>;

// ---- Attention ----------------------------------------------------------------------------------

struct MultiheadAttentionOptions {
  ByName by_name = ByName();
  double dropout = 0;
  bool bias = true;
  bool batch_first = false;  // [N, L, E] instead of [L, N, E]
};
// True is where a query may *not* look. (In scaled_dot_product_attention it is where it may, as in
// PyTorch.) Floats are added to the scores.
struct AttentionMasks {
  ByName by_name = ByName();
  Tensor key_padding_mask = {};  // [N, S]
  bool need_weights = true;
  Tensor attn_mask = {};  // [L, S] or [N * heads, L, S]
};
struct AttentionResult {
  Tensor output, weights;  // the weights: [N, L, S], means over the heads
};
// Several attentions side by side, each to its own share of the E features (A. Vaswani et al.,
// 2017): queries [L, N, E], keys and values [S, N, E] -> [L, N, E]. N may be missing.
class MultiheadAttention : public ModuleBase {
 public:
  MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads,
                     MultiheadAttentionOptions options = {}, Loc loc = Loc::here())
      : in_proj_weight(uniform_parameter("in_proj_weight", {3 * embed_dim, embed_dim}, 1, loc)),
        in_proj_bias(options.bias ? constant_parameter("in_proj_bias", {3 * embed_dim}, 0, loc)
                                  : Tensor()),
        out_proj(add("out_proj", Linear(embed_dim, embed_dim, {.bias = options.bias}, loc), loc)),
        heads_(num_heads),
        options_(options) {
    if (num_heads < 1 || embed_dim % num_heads != 0)
      fail({"MultiheadAttention", loc},
           {embed_dim, " features do not make ", num_heads, " equal heads"});
    const Unseen inside(loc);
    init::xavier_uniform_(in_proj_weight);
    if (options.bias) init::zeros_(out_proj.bias);
  }
  AttentionResult operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                             AttentionMasks masks = {}, Loc loc = Loc::here());

  const Tensor in_proj_weight, in_proj_bias;  // [3 E, E] and [3 E]: for queries, keys and values
  Linear out_proj;

 private:
  // [L, N, E] -> [N, heads, L, E / heads]
  Tensor in_heads(const Tensor& x) const {
    return x.unflatten(-1, {heads_, x.size(-1) / heads_}).permute({1, 2, 0, 3});
  }
  const std::int64_t heads_;
  const MultiheadAttentionOptions options_;
};

inline AttentionResult MultiheadAttention::operator()(const Tensor& query, const Tensor& key,
                                                      const Tensor& value, AttentionMasks masks,
                                                      Loc loc) {
  const At at{"MultiheadAttention", loc};
  const Scope scope(title(), loc);
  const Pin pin(loc);
  check_together(at, {&query, &key, &value});
  const int axes = query.dim();
  const std::int64_t size = in_proj_weight.size(1);
  const int batch = options_.batch_first ? 0 : 1;
  for (const Tensor* x : {&query, &key, &value})
    if (x->dim() != axes || axes < 2 || axes > 3 || x->size(-1) != size ||
        (axes == 3 && x->size(batch) != query.size(batch)) || key.shape() != value.shape())
      fail(at, {"the shapes are ", query.shape(), ", ", key.shape(), " and ", value.shape()},
           {"each is ", batch == 0 ? "[N, L, " : "[L, N, ", size, "], or [L, ", size,
            "] without a batch, and keys and values have one L"});
  const auto in_order = [&](const Tensor& x) {
    return axes == 2 ? x.unsqueeze(1) : options_.batch_first ? x.transpose(0, 1) : x;
  };
  Tensor inputs[3] = {in_order(query), in_order(key), in_order(value)};
  const std::int64_t n = inputs[0].size(1), keys = inputs[1].size(0);

  Tensor x[3];  // queries, keys and values of each head; one product, if all have the same input
  const bool same = query.id() == key.id() && key.id() == value.id();
  const Tensor all = same ? linear(inputs[0], in_proj_weight, in_proj_bias) : Tensor();
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto part = [&](const Tensor& of, int axis) {
      return of.defined() ? of.narrow(axis, i * size, size) : of;
    };
    x[i] = in_heads(same ? part(all, -1)
                         : linear(inputs[i], part(in_proj_weight, 0), part(in_proj_bias, 0)));
  }

  AttentionOptions how;
  const auto add_mask = [&](const Tensor& mask, const Shape& shape) {
    check_mask(mask, at);
    const double never = -std::numeric_limits<double>::infinity();
    const Tensor scores = mask.dtype() == boolean ? where(mask, never, 0.0) : mask;
    const Tensor more = scores.to(query.dtype()).reshape(shape);
    how.attn_mask = how.attn_mask.defined() ? how.attn_mask + more : more;
  };
  if (const Tensor& mask = masks.key_padding_mask; mask.defined()) add_mask(mask, {n, 1, 1, keys});
  if (const Tensor& mask = masks.attn_mask; mask.defined())
    add_mask(mask, mask.dim() == 3 ? Shape(n, heads_, -1, keys) : mask.shape());
  const Tensor shares =
      dropout(attention_weights(x[0], x[1], how, loc), options_.dropout, is_training());
  const Tensor seen = shares.matmul(x[2]);
  const Tensor y =
      out_proj(seen.permute({2, 0, 1, 3}).flatten(2));  // heads side by side: [L, N, E]
  const Tensor weights = masks.need_weights ? shares.mean(1) : Tensor();
  if (axes == 2) return {y.squeeze(1), masks.need_weights ? weights.squeeze(0) : weights};
  return {options_.batch_first ? y.transpose(0, 1) : y, weights};
}

// ---- Recurrent layers ---------------------------------------------------------------------------

struct RecurrentOptions {
  ByName by_name = ByName();
  std::int64_t num_layers = 1;
  const char* nonlinearity = "tanh";  // or "relu", of an RNN only
  bool bias = true;
  bool batch_first = false;  // [N, L, in] instead of [L, N, in]
  double dropout = 0;        // between the layers
  bool bidirectional = false;
};
struct RecurrentResult {
  Tensor output;  // [L, N, hidden]: of the last layer, at each step; both directions side by side
  Tensor hidden;  // [layers, N, hidden]: of each layer, after its last step
};
struct LSTMResult {
  Tensor output, hidden, cell;
};

// What the three below have in common: a state that each step renews, from its input and from what
// the state was. A sequence is [L, N, in], or [L, in] without a batch.
class Recurrent : public ModuleBase {
 public:
  // The states before the first step, [layers, N, hidden], are 0 if they are left out.
  RecurrentResult operator()(const Tensor& x, const Tensor& hidden = {}, Loc loc = Loc::here()) {
    const LSTMResult y = run(x, hidden, {}, loc);
    return {y.output, y.hidden};
  }

 protected:
  struct State {
    Tensor hidden, cell;
  };
  Recurrent(std::int64_t gates, std::int64_t in, std::int64_t hidden,
            const RecurrentOptions& options, Loc loc);
  LSTMResult run(const Tensor& x, const Tensor& hidden, const Tensor& cell, Loc loc);
  const RecurrentOptions options_;

 private:
  // One step: x and h are what input and state add to the gates, each [N, gates * hidden].
  virtual State step(const Tensor& x, const Tensor& h, const State& before) const = 0;
  struct Weights {
    Tensor ih, hh, bias_ih, bias_hh;
  };
  const std::int64_t in_, hidden_;
  const bool has_cell_;
  std::vector<Weights> weights_;  // of each layer, and the way back behind the way forth
};

inline Recurrent::Recurrent(std::int64_t gates, std::int64_t in, std::int64_t hidden,
                            const RecurrentOptions& options, Loc loc)
    : options_(options), in_(in), hidden_(hidden), has_cell_(gates == 4) {
  if (options.num_layers < 1)
    fail({"num_layers", loc}, {"it is ", options.num_layers, ", and has to be positive"});
  const std::string_view f = options.nonlinearity;
  if (f != "tanh" && (f != "relu" || gates > 1))
    fail({"nonlinearity", loc}, {"it is \"", f, "\""},
         {"an RNN takes \"tanh\" and \"relu\", the others \"tanh\""});
  const int directions = options.bidirectional ? 2 : 1;
  for (std::int64_t layer = 0; layer < options.num_layers; ++layer)
    for (int back = 0; back < directions; ++back) {
      const std::string end = "_l" + std::to_string(layer) + (back ? "_reverse" : "");
      const std::int64_t from = layer == 0 ? in : hidden * directions, rows = gates * hidden;
      Weights& w = weights_.emplace_back();
      w.ih = uniform_parameter("weight_ih" + end, {rows, from}, hidden, loc);
      w.hh = uniform_parameter("weight_hh" + end, {rows, hidden}, hidden, loc);
      if (!options.bias) continue;
      w.bias_ih = uniform_parameter("bias_ih" + end, {rows}, hidden, loc);
      w.bias_hh = uniform_parameter("bias_hh" + end, {rows}, hidden, loc);
    }
}

inline LSTMResult Recurrent::run(const Tensor& x, const Tensor& hidden, const Tensor& cell,
                                 Loc loc) {
  const std::string name = class_name(typeid(*this));
  const At at{name.c_str(), loc};
  const Scope scope(title(), loc);
  const Pin pin(loc);
  check_together(at, {&x});
  if (x.dim() < 2 || x.dim() > 3 || x.size(-1) != in_)
    fail(at, {"the input has the shape ", x.shape()},
         {"it is [L, N, ", in_, "], or [L, ", in_, "] without a batch"});
  const bool batched = x.dim() == 3, turned = batched && options_.batch_first;
  if (x.size(turned ? 1 : 0) == 0) fail(at, {"there is no step in the input ", x.shape()});
  Tensor input = !batched ? x.unsqueeze(1) : turned ? x.transpose(0, 1) : x;
  const auto count = static_cast<std::int64_t>(weights_.size());
  const Shape state_shape(count, input.size(1), hidden_);
  const auto first_states = [&](const Tensor& given) {
    if (!given.defined())
      return zeros(state_shape, {.dtype = x.dtype(), .device = x.device()}).unbind(0);
    const Tensor state = batched ? given : given.unsqueeze(1);
    if (state.shape() != state_shape)
      fail(at, {"the state is ", state.shape(), ", and it has to be ", state_shape});
    return state.unbind(0);
  };
  const std::vector<Tensor> hiddens = first_states(hidden);
  const std::vector<Tensor> cells =
      has_cell_ ? first_states(cell) : std::vector<Tensor>(weights_.size());

  std::vector<Tensor> last_hiddens, last_cells, directions;
  for (std::size_t k = 0; k < weights_.size(); ++k) {
    const bool back = options_.bidirectional && k % 2 == 1;
    const Weights& w = weights_[k];
    const std::vector<Tensor> of_input = linear(input, w.ih, w.bias_ih).unbind(0);
    std::vector<Tensor> outputs(of_input.size());
    State state{hiddens[k], cells[k]};
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t now = back ? outputs.size() - 1 - i : i;
      state = step(of_input[now], linear(state.hidden, w.hh, w.bias_hh), state);
      outputs[now] = state.hidden;
    }
    last_hiddens.push_back(state.hidden);
    last_cells.push_back(state.cell);
    directions.push_back(stack(outputs, 0));
    if (options_.bidirectional && !back) continue;
    input = back ? cat(directions, -1) : directions[0];
    directions.clear();
    if (k + 1 < weights_.size()) input = dropout(input, options_.dropout, is_training());
  }
  LSTMResult y{turned ? input.transpose(0, 1) : input, stack(last_hiddens, 0),
               has_cell_ ? stack(last_cells, 0) : Tensor()};
  for (Tensor* of : {&y.output, &y.hidden, &y.cell})
    if (!batched && of->defined()) *of = of->squeeze(1);
  return y;
}

// The new state is tanh(x + h) (J. L. Elman, 1990).
class RNN : public Recurrent {
 public:
  RNN(std::int64_t in, std::int64_t hidden, RecurrentOptions options = {}, Loc loc = Loc::here())
      : Recurrent(1, in, hidden, options, loc) {}

 private:
  State step(const Tensor& x, const Tensor& h, const State& before) const override {
    const Tensor sum = x + h;
    const bool relu = std::string_view(options_.nonlinearity) == "relu";
    return {relu ? sum.relu() : sum.tanh(), before.cell};
  }
};
// Two gates: r, how much of the state is used for the next one, and z, how much is kept (K. Cho et
// al., 2014).
class GRU : public Recurrent {
 public:
  GRU(std::int64_t in, std::int64_t hidden, RecurrentOptions options = {}, Loc loc = Loc::here())
      : Recurrent(3, in, hidden, options, loc) {}

 private:
  State step(const Tensor& of_x, const Tensor& of_h, const State& before) const override {
    const std::vector<Tensor> x = of_x.chunk(3, -1), h = of_h.chunk(3, -1);
    const Tensor r = (x[0] + h[0]).sigmoid(), z = (x[1] + h[1]).sigmoid();
    const Tensor next = (x[2] + r * h[2]).tanh();
    return {next + z * (before.hidden - next), before.cell};
  }
};
// The cell, a second part of the state, is what gradients pass through unhindered. Gates decide
// what goes into it (i), what is forgotten (f) and what is shown (o) (S. Hochreiter, J.
// Schmidhuber, 1997).
class LSTM : public Recurrent {
 public:
  LSTM(std::int64_t in, std::int64_t hidden, RecurrentOptions options = {}, Loc loc = Loc::here())
      : Recurrent(4, in, hidden, options, loc) {}
  LSTMResult operator()(const Tensor& x, const Tensor& hidden = {}, const Tensor& cell = {},
                        Loc loc = Loc::here()) {
    return run(x, hidden, cell, loc);
  }

 private:
  State step(const Tensor& x, const Tensor& h, const State& before) const override {
    const std::vector<Tensor> gates = (x + h).chunk(4, -1);
    const Tensor i = gates[0].sigmoid(), f = gates[1].sigmoid(), o = gates[3].sigmoid();
    const Tensor cell = f * before.cell + i * gates[2].tanh();
    return {o * cell.tanh(), cell};
  }
};

}  // namespace nn

namespace optim {

// ---- Optimisers ---------------------------------------------------------------------------------

// Changes parameters, against their gradients. A rule, below, says what happens to one number w
// with the gradient g, and to the numbers s that are remembered beside it; k are the plain numbers
// of the step. It is written once, and runs in one pass over the memory of a parameter, whatever
// the machine. Where nothing but the learning rate is given, its number is enough:
// `Adam(net.parameters(), 1e-3)`.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;  // a schedule points to it
  Optimizer& operator=(const Optimizer&) = delete;

  // Parameters without a gradient are left alone.
  void step(Loc loc = Loc::here());
  void zero_grad(Loc loc = Loc::here()) const {
    for (const Parameter& p : parameters_) p.w.zero_grad(loc);
  }
  double& lr() { return lr_; }
  double initial_lr() {  // before any schedule: the rate that the first one found
    if (!initial_lr_) initial_lr_ = lr_;
    return *initial_lr_;
  }
  virtual double* momentum() { return nullptr; }  // null: it has none; Adam's is its first beta

 protected:
  struct Parameter {
    Tensor w;
    std::array<Tensor, 3> s;
    std::int64_t steps = 0;
  };
  Optimizer(const char* name, const std::vector<Tensor>& parameters, double lr, Loc loc);
  void check_not_negative(std::initializer_list<std::pair<const char*, double>> options,
                          Loc loc) const {
    for (const auto& [what, value] : options)
      if (!(value >= 0)) fail({name_, loc}, {what, " is ", value, ", it cannot be negative"});
  }
  virtual void update(Parameter& p) = 0;
  // Applies a rule; `first` is what s begins with.
  template <class Rule>
  void apply(Parameter& p, const std::array<double, Rule::numbers>& k, double first = 0) const;

 private:
  const char* const name_;
  std::vector<Parameter> parameters_;
  double lr_;
  std::optional<double> initial_lr_;
};

inline Optimizer::Optimizer(const char* name, const std::vector<Tensor>& parameters, double lr,
                            Loc loc)
    : name_(name), lr_(lr) {
  const At at{name, loc};
  if (!(lr >= 0)) fail(at, {"the learning rate is negative: ", lr});
  if (parameters.empty())
    fail(at, {"there are no parameters"},
         {"hand over net.parameters(); they are those of the layers that went through add(...)"});
  const NoGrad guard;
  for (const Tensor& w : parameters) {
    if (!w.defined() || !w.is_leaf() || !w.requires_grad())
      fail(at, {"parameter ", &w - parameters.data(), " is not a leaf that requires grad"},
           {"make it with {.requires_grad = true}"});
    for (const Parameter& other : parameters_)
      if (other.w.id() == w.id()) fail(at, {"a parameter is there twice"}, {"name each once"});
    check_writable(w, at);
    parameters_.push_back({w, {}});
  }
}
inline void Optimizer::step(Loc loc) {
  const Pin pin(loc);
  const NoGrad guard;
  for (Parameter& p : parameters_) {
    if (!p.w.grad().defined()) continue;
    ++p.steps;
    update(p);
  }
}

struct SGDOptions {
  ByName by_name = ByName();
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
// Stochastic gradient descent: w -= lr * g. With momentum the steps are taken along a running mean
// of the gradients (B. Polyak, 1964, in PyTorch's form): v = momentum * v + (1 - dampening) * g;
// Nesterov (1983) goes along g + momentum * v.
class SGD : public Optimizer {
 public:
  explicit SGD(const std::vector<Tensor>& parameters, SGDOptions options = {},
               Loc loc = Loc::here())
      : Optimizer("SGD", parameters, options.lr, loc), o_(options) {
    check_not_negative({{"momentum", o_.momentum}, {"weight_decay", o_.weight_decay}}, loc);
    if (o_.nesterov && (o_.momentum == 0 || o_.dampening != 0))
      fail({"SGD", loc}, {"nesterov needs a momentum, and no dampening"});
  }
  template <Number T>
  SGD(const std::vector<Tensor>& parameters, T lr, Loc loc = Loc::here())
      : SGD(parameters, SGDOptions{.lr = static_cast<double>(lr)}, loc) {}
  double* momentum() override { return &o_.momentum; }

  template <std::size_t n>  // 1 with momentum
  struct Rule {
    static constexpr std::size_t states = n, numbers = 5;
    template <class T>
    MINITENSOR_FORMULA void step(T& w, T g, std::array<T, n>& s, const std::array<T, numbers>& k) {
      const auto& [lr, decay, momentum, share, nesterov] = k;
      T slope = g + w * decay;
      if constexpr (n == 1) {
        s[0] = s[0] * momentum + slope * share;
        slope = nesterov != 0 ? slope + s[0] * momentum : s[0];
      }
      w = w - slope * lr;
    }
  };

 private:
  void update(Parameter& p) override {
    const double share = p.s[0].defined() ? 1 - o_.dampening : 1;  // at first v is g itself
    const std::array k = {lr(), o_.weight_decay, o_.momentum, share, o_.nesterov ? 1. : 0.};
    o_.momentum != 0 ? apply<Rule<1>>(p, k) : apply<Rule<0>>(p, k);
  }
  SGDOptions o_;
};

struct AdamOptions {
  ByName by_name = ByName();
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  std::optional<double> weight_decay = {};  // left out: 0 for Adam, 0.01 for AdamW
  bool amsgrad = false;
};
// Running means m of the gradient and v of its square, both corrected for starting at 0, give each
// number steps of its own length: w -= lr * m / (sqrt(v) + eps) (D. P. Kingma, J. L. Ba, 2015).
// amsgrad never forgets the largest v (S. J. Reddi, S. Kale, S. Kumar, 2018).
class Adam : public Optimizer {
 public:
  explicit Adam(const std::vector<Tensor>& parameters, AdamOptions options = {},
                Loc loc = Loc::here())
      : Adam("Adam", parameters, options, false, loc) {}
  template <Number T>
  Adam(const std::vector<Tensor>& parameters, T lr, Loc loc = Loc::here())
      : Adam(parameters, AdamOptions{.lr = static_cast<double>(lr)}, loc) {}
  double* momentum() override { return &o_.betas[0]; }

  template <std::size_t n>  // 3 with amsgrad
  struct Rule {
    static constexpr std::size_t states = n, numbers = 9;
    template <class T>
    MINITENSOR_FORMULA void step(T& w, T g, std::array<T, n>& s, const std::array<T, numbers>& k) {
      const auto& [lr, shrink, decay, beta1, rest1, beta2, rest2, make_up, eps] = k;
      w = w * shrink;
      const T slope = g + w * decay;
      s[0] = s[0] * beta1 + slope * rest1;
      s[1] = s[1] * beta2 + slope * slope * rest2;
      if constexpr (n == 3) s[2] = std::max(s[1], s[2]);  // the first, if it is NaN
      w = w - s[0] * lr / (std::sqrt(s[n - 1]) * make_up + eps);
    }
  };

 protected:
  Adam(const char* name, const std::vector<Tensor>& parameters, const AdamOptions& options,
       bool decoupled, Loc loc)
      : Optimizer(name, parameters, options.lr, loc),
        o_(options),
        decay_(options.weight_decay.value_or(decoupled ? 0.01 : 0)),
        decoupled_(decoupled) {
    check_not_negative({{"eps", o_.eps}, {"weight_decay", decay_}}, loc);
    for (const double beta : o_.betas)
      if (!(beta >= 0 && beta < 1))
        fail({name, loc}, {"a beta is ", beta, ", it has to be from 0 to below 1"});
  }

 private:
  void update(Parameter& p) override {
    const auto [beta1, beta2] = o_.betas;
    const auto t = static_cast<double>(p.steps);
    const double shrink = decoupled_ ? 1 - lr() * decay_ : 1, decay = decoupled_ ? 0 : decay_;
    const double rate = lr() / (1 - std::pow(beta1, t));
    const double make_up = 1 / std::sqrt(1 - std::pow(beta2, t));
    const std::array k = {rate, shrink, decay, beta1, 1 - beta1, beta2, 1 - beta2, make_up, o_.eps};
    o_.amsgrad ? apply<Rule<3>>(p, k) : apply<Rule<2>>(p, k);
  }
  AdamOptions o_;
  const double decay_;
  const bool decoupled_;
};
// Adam, whose weights shrink by lr * weight_decay of themselves in each step, apart from their
// gradients (I. Loshchilov, F. Hutter, 2019).
struct AdamW : Adam {
  explicit AdamW(const std::vector<Tensor>& parameters, AdamOptions options = {},
                 Loc loc = Loc::here())
      : Adam("AdamW", parameters, options, true, loc) {}
  template <Number T>
  AdamW(const std::vector<Tensor>& parameters, T lr, Loc loc = Loc::here())
      : AdamW(parameters, AdamOptions{.lr = static_cast<double>(lr)}, loc) {}
};

struct RMSpropOptions {
  ByName by_name = ByName();
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
};
// The gradient over the root of a running mean of its square (T. Tieleman, G. Hinton, 2012), or,
// centered, of its variance (A. Graves, 2013).
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(const std::vector<Tensor>& parameters, RMSpropOptions options = {},
                   Loc loc = Loc::here())
      : Optimizer("RMSprop", parameters, options.lr, loc), o_(options) {
    check_not_negative({{"alpha", o_.alpha},
                        {"eps", o_.eps},
                        {"weight_decay", o_.weight_decay},
                        {"momentum", o_.momentum}},
                       loc);
  }
  template <Number T>
  RMSprop(const std::vector<Tensor>& parameters, T lr, Loc loc = Loc::here())
      : RMSprop(parameters, RMSpropOptions{.lr = static_cast<double>(lr)}, loc) {}
  double* momentum() override { return &o_.momentum; }

  template <bool centered, bool moving>
  struct Rule {
    static constexpr std::size_t states = 1 + centered + moving, numbers = 6;
    template <class T>
    MINITENSOR_FORMULA void step(T& w, T g, std::array<T, states>& s,
                                 const std::array<T, numbers>& k) {
      const auto& [lr, decay, alpha, rest, eps, momentum] = k;
      T slope = g + w * decay;
      s[0] = s[0] * alpha + slope * slope * rest;
      T spread = s[0];
      if constexpr (centered) {
        s[1] = s[1] * alpha + slope * rest;
        spread = spread - s[1] * s[1];
      }
      slope = slope / (std::sqrt(spread) + eps);
      if constexpr (moving) slope = s[states - 1] = s[states - 1] * momentum + slope;
      w = w - slope * lr;
    }
  };

 private:
  void update(Parameter& p) override {
    const std::array k = {lr(), o_.weight_decay, o_.alpha, 1 - o_.alpha, o_.eps, o_.momentum};
    if (o_.centered)
      o_.momentum != 0 ? apply<Rule<true, true>>(p, k) : apply<Rule<true, false>>(p, k);
    else
      o_.momentum != 0 ? apply<Rule<false, true>>(p, k) : apply<Rule<false, false>>(p, k);
  }
  RMSpropOptions o_;
};

struct AdagradOptions {
  ByName by_name = ByName();
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
};
// The gradient over the root of the sum of all its squares (J. Duchi, E. Hazan, Y. Singer, 2011),
// at a rate that falls as lr / (1 + (t - 1) * lr_decay).
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const std::vector<Tensor>& parameters, AdagradOptions options = {},
                   Loc loc = Loc::here())
      : Optimizer("Adagrad", parameters, options.lr, loc), o_(options) {
    check_not_negative({{"lr_decay", o_.lr_decay},
                        {"weight_decay", o_.weight_decay},
                        {"initial_accumulator_value", o_.initial_accumulator_value},
                        {"eps", o_.eps}},
                       loc);
  }

  template <Number T>
  Adagrad(const std::vector<Tensor>& parameters, T lr, Loc loc = Loc::here())
      : Adagrad(parameters, AdagradOptions{.lr = static_cast<double>(lr)}, loc) {}

  struct Rule {
    static constexpr std::size_t states = 1, numbers = 3;
    template <class T>
    MINITENSOR_FORMULA void step(T& w, T g, std::array<T, 1>& s, const std::array<T, numbers>& k) {
      const auto& [lr, decay, eps] = k;
      const T slope = g + w * decay;
      s[0] = s[0] + slope * slope;
      w = w - slope * lr / (std::sqrt(s[0]) + eps);
    }
  };

 private:
  void update(Parameter& p) override {
    const double rate = lr() / (1 + static_cast<double>(p.steps - 1) * o_.lr_decay);
    apply<Rule>(p, std::array{rate, o_.weight_decay, o_.eps}, o_.initial_accumulator_value);
  }
  const AdagradOptions o_;
};

// ---- A rule at work -----------------------------------------------------------------------------

// A rule's number is its place in this list; another machine keeps its table in this order. (A rule
// of your own, which is not in it, runs on the processor.)
using Rules = formula::List<SGD::Rule<0>, SGD::Rule<1>, Adam::Rule<2>, Adam::Rule<3>,
                            RMSprop::Rule<false, false>, RMSprop::Rule<false, true>,
                            RMSprop::Rule<true, false>, RMSprop::Rule<true, true>, Adagrad::Rule>;

// What a rule works on; all of it lies dense.
template <class Rule, class T>
struct Update {
  Update(const View& w_, const View& g_, const View* s_, const double* k_)
      : w(as<T>(w_.data)), g(as<T>(g_.data)) {
    for (std::size_t j = 0; j != Rule::states; ++j) s[j] = as<T>(s_[j].data);
    for (std::size_t j = 0; j != Rule::numbers; ++j) k[j] = static_cast<T>(k_[j]);
  }
  T* w;
  const T* g;
  std::array<T*, Rule::states> s;
  std::array<T, Rule::numbers> k;
};
template <class Rule, class T>
MINITENSOR_FORMULA void update_one(const Update<Rule, T>& all, std::int64_t i) {
  std::array<T, Rule::states> s;
  for (std::size_t j = 0; j != Rule::states; ++j) s[j] = all.s[j][i];
  Rule::step(all.w[i], all.g[i], s, all.k);
  for (std::size_t j = 0; j != Rule::states; ++j) all.s[j][i] = s[j];
}
template <class Rule, class T>
MINITENSOR_LOOP void update_all(const Update<Rule, T> all, std::int64_t n) {
  MINITENSOR_ANY_ORDER
  for (std::int64_t i = 0; i < n; ++i) update_one(all, i);
}

template <class Rule>
void Optimizer::apply(Parameter& p, const std::array<double, Rule::numbers>& k,
                      double first) const {
  const Tensor& w = p.w;
  const std::int64_t before = w.version();
  const Loc line = line_of(Loc::unknown());
  const Machine* const other = machine(w.device());
  constexpr bool listed = formula::is_in<Rule>(Rules());
  if (other && !listed)
    fail({name_, line}, {"its rule has no kernel on ", w.device()},
         {"keep what it trains on the cpu"});
  {
    const Quiet quiet;
    const Tensor dense = w.contiguous(), g = w.grad().contiguous();
    std::array<View, Rule::states> s;
    for (std::size_t j = 0; j != Rule::states; ++j) {  // also where the network has moved since
      p.s[j] = p.s[j].defined() ? p.s[j].to(w.dtype()).to(w.device()) : full_like(w, first);
      s[j] = p.s[j].elements();
    }
    const View to = dense.elements(), along = g.elements();
    if (!other)
      visit_floating(w.dtype(), [&]<class T>(T) {
        update_all(Update<Rule, T>(to, along, s.data(), k.data()), w.numel());
      });
    else if constexpr (listed)
      other->update(formula::number_of<Rule, Rules>, to, along, s.data(), k.data());
    if (!w.is_contiguous()) copy(w.elements(), to);
    note_write(w, name_, line);
  }
  if (current.observer) tell_wrote(w, before, name_, nullptr, line);
}

// ---- Schedules of the learning rate -------------------------------------------------------------

// Changes an optimiser's rate: call step() after each epoch. Each goes on from the rate there is,
// so two of them, a warm-up and another one, work together.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  void step() { optimizer_.lr() = next(optimizer_.lr(), static_cast<double>(++epoch_)); }

 protected:
  explicit LRScheduler(Optimizer& optimizer)
      : optimizer_(optimizer), initial_lr_(optimizer.initial_lr()) {}
  virtual double next(double lr, double epoch) = 0;  // the rate after so many epochs
  static double checked_count(const char* op, const char* what, std::int64_t count, Loc loc) {
    if (count < 1) fail({op, loc}, {what, " is ", count, ", it has to be positive"});
    return static_cast<double>(count);
  }
  Optimizer& optimizer_;
  const double initial_lr_;

 private:
  std::int64_t epoch_ = 0;
};

// Multiplies the rate by gamma: every `step_size` epochs, or in each.
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1, Loc loc = Loc::here())
      : LRScheduler(optimizer),
        size_(checked_count("StepLR", "step_size", step_size, loc)),
        gamma_(gamma) {}

 private:
  double next(double lr, double epoch) override {
    return std::fmod(epoch, size_) == 0 ? lr * gamma_ : lr;
  }
  const double size_, gamma_;
};
class ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) {}

 private:
  double next(double lr, double) override { return lr * gamma_; }
  const double gamma_;
};

// Down to eta_min in T_max epochs, along half a cosine, and back up in as many (I. Loshchilov, F.
// Hutter, "SGDR", 2017, without its restarts).
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, std::int64_t T_max, double eta_min = 0,
                    Loc loc = Loc::here())
      : LRScheduler(optimizer),
        length_(checked_count("CosineAnnealingLR", "T_max", T_max, loc)),
        eta_min_(eta_min) {}

 private:
  double height(double epoch) const { return 1 + std::cos(3.141592653589793 * epoch / length_); }
  double next(double lr, double epoch) override {
    const double before = height(epoch - 1), now = height(epoch);
    if (before < 1e-14) return eta_min_ + (initial_lr_ - eta_min_) * now / 2;
    return eta_min_ + (lr - eta_min_) * now / before;
  }
  const double length_, eta_min_;
};

struct LinearLROptions {
  ByName by_name = ByName();
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::int64_t total_iters = 5;
};
// A warm-up: a factor that goes in a straight line from start_factor, at once, to end_factor, after
// total_iters epochs.
class LinearLR : public LRScheduler {
 public:
  explicit LinearLR(Optimizer& optimizer, LinearLROptions o = {}, Loc loc = Loc::here())
      : LRScheduler(optimizer),
        count_(checked_count("LinearLR", "total_iters", o.total_iters, loc)),
        first_(o.start_factor),
        rise_((o.end_factor - o.start_factor) / count_) {
    if (!(o.start_factor > 0 && o.start_factor <= 1 && o.end_factor >= 0 && o.end_factor <= 1))
      fail({"LinearLR", loc}, {"the factors are ", o.start_factor, " and ", o.end_factor},
           {"they lie between 0 and 1, and the first is not 0"});
    optimizer.lr() *= first_;
  }

 private:
  double next(double lr, double epoch) override {
    const double before = first_ + rise_ * (epoch - 1);
    return epoch > count_ ? lr : lr * (before + rise_) / before;
  }
  const double count_, first_, rise_;
};

struct OneCycleLROptions {
  ByName by_name = ByName();
  std::int64_t total_steps = 0;
  double pct_start = 0.3;               // the share of the steps in which the rate rises
  const char* anneal_strategy = "cos";  // or "linear"
  bool cycle_momentum = true;           // the momentum falls while the rate rises
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25;         // the rate begins at max_lr / div_factor
  double final_div_factor = 1e4;  // and ends at a share of that
  bool three_phase = false;       // back down to the beginning first
};
// One rise to max_lr and one fall, over a whole training: step() after each batch (L. N. Smith, N.
// Topin, "Super-convergence", 2018).
class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, double max_lr, OneCycleLROptions o, Loc loc = Loc::here())
      : LRScheduler(optimizer),
        steps_(checked_count("OneCycleLR", "total_steps", o.total_steps, loc)),
        max_lr_(max_lr),
        o_(o),
        loc_(loc) {
    const At at{"OneCycleLR", loc};
    const std::string_view how = o.anneal_strategy;
    if (how != "cos" && how != "linear")
      fail(at, {"anneal_strategy is \"", how, "\""}, {"write \"cos\" or \"linear\""});
    if (!(o.pct_start >= 0 && o.pct_start <= 1))
      fail(at, {"pct_start is ", o.pct_start, ", it has to be from 0 to 1"});
    if (o.cycle_momentum && !optimizer.momentum())
      fail(at, {"this optimiser has no momentum"}, {"write {.cycle_momentum = false}"});
    optimizer.lr() = OneCycleLR::next(0, 0);
  }

 private:
  struct Phase {
    double end;  // the number of its last step
    double lr, next_lr, momentum, next_momentum;
  };
  double next(double, double step) override {
    if (step > steps_) fail({"OneCycleLR", loc_}, {"there are more than ", steps_, " steps"});
    const double rise = o_.pct_start * steps_;
    const double first = max_lr_ / o_.div_factor, last = first / o_.final_div_factor;
    const double low = o_.base_momentum, high = o_.max_momentum;
    const Phase up{rise - 1, first, max_lr_, high, low};
    const Phase down{2 * rise - 2, max_lr_, first, low, high};
    const Phase out = o_.three_phase ? Phase{steps_ - 1, first, last, high, high}
                                     : Phase{steps_ - 1, max_lr_, last, low, high};
    double start = 0;
    Phase now = up;
    if (step > now.end) start = now.end, now = o_.three_phase ? down : out;
    if (step > now.end && o_.three_phase) start = now.end, now = out;
    double done = now.end > start ? (step - start) / (now.end - start) : 1;  // a phase of no length
    if (std::string_view(o_.anneal_strategy) == "cos")
      done = (1 - std::cos(3.141592653589793 * done)) / 2;
    if (o_.cycle_momentum)
      *optimizer_.momentum() = now.momentum + (now.next_momentum - now.momentum) * done;
    return now.lr + (now.next_lr - now.lr) * done;
  }
  const double steps_, max_lr_;
  const OneCycleLROptions o_;
  const Loc loc_;
};

// ---- Clipping -----------------------------------------------------------------------------------

struct ClipOptions {
  ByName by_name = ByName();
  double norm_type = 2;  // infinity: the size of the largest element
  bool error_if_nonfinite = false;
};
// Scales all gradients by one factor, so that their norm, as of one long vector, is at most
// max_norm (R. Pascanu, T. Mikolov, Y. Bengio, 2013). Returns the norm that it was.
inline Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                              ClipOptions options = {}, Loc loc = Loc::here()) {
  const Pin pin(loc);
  const NoGrad guard;
  Tensor total;
  {
    const Quiet quiet;
    std::vector<Tensor> norms;
    for (const Tensor& w : parameters)
      if (const Tensor g = w.grad(); g.defined()) norms.push_back(g.norm(options.norm_type).cpu());
    total = norms.empty() ? zeros({}) : stack(norms, 0).norm(options.norm_type);
  }
  const double norm = total.item(), factor = max_norm / (norm + 1e-6);
  if (options.error_if_nonfinite && !std::isfinite(norm))
    fail({"clip_grad_norm_", loc}, {"the norm of the gradients is ", norm});
  for (const Tensor& w : parameters)
    if (w.grad().defined() && !(factor >= 1)) w.grad().mul_(factor);
  return total;
}
// Cuts each element of each gradient off at -clip_value and clip_value.
inline void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value,
                             Loc loc = Loc::here()) {
  const Pin pin(loc);
  const NoGrad guard;
  for (const Tensor& w : parameters)
    if (w.grad().defined()) w.grad().clamp_(-clip_value, clip_value);
}

}  // namespace optim

// Where PyTorch has them.
namespace optim::lr_scheduler {
using optim::StepLR, optim::ExponentialLR, optim::CosineAnnealingLR, optim::LinearLR,
    optim::OneCycleLR;
}
namespace nn::utils {
using optim::clip_grad_norm_, optim::clip_grad_value_;
}

// ---- Data ---------------------------------------------------------------------------------------

namespace data {

// One example, or a batch of them along axis 0: what goes in and what is to come out. y may be
// undefined.
struct Example {
  Tensor x, y;
};

// Examples with the numbers 0 to size() - 1. A dataset of your own says how many it has and makes
// one at a time; those of a batch then have equal shapes, because they are stacked.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual Example get(std::int64_t i) const = 0;
  // The examples with the numbers in `index`, int64 [n].
  virtual Example batch(const Tensor& index) const {
    std::vector<Tensor> xs, ys;
    for (const std::int64_t i : index.to_vector<std::int64_t>()) {
      const Example one = get(i);
      xs.push_back(one.x);
      if (one.y.defined()) ys.push_back(one.y);
      if (!ys.empty() && ys.size() != xs.size())
        fail({"DataLoader", Loc::unknown()}, {"some examples have a y and some have none"});
    }
    return {stack(xs), ys.empty() ? Tensor() : stack(ys)};
  }
};

// A handle to a dataset of any class; it is made from the dataset itself, and copies share it.
class AnyDataset {
 public:
  template <class T>
  requires std::is_base_of_v<Dataset, T> AnyDataset(T dataset)
      : held_(Ref<Held>::make(new T(std::move(dataset)))) {}
  const Dataset* operator->() const { return held_->dataset; }

 private:
  struct Held {
    explicit Held(const Dataset* it) : dataset(it) {}
    ~Held() { delete dataset; }
    static void destroy(Held* held) { delete held; }
    std::atomic<int> handles{0};
    const Dataset* const dataset;
  };
  Ref<Held> held_;
};

// Example i is x[i], or x[i] and y[i].
class TensorDataset : public Dataset {
 public:
  explicit TensorDataset(Tensor x, Tensor y = {}, Loc loc = Loc::here())
      : x_(std::move(x)), y_(std::move(y)) {
    const At at{"TensorDataset", loc};
    check_together(at, {&x_});
    if (x_.dim() == 0) fail(at, {"a 0-d tensor holds no examples"});
    if (y_.defined() && (y_.dim() == 0 || y_.size(0) != x_.size(0)))
      fail(at, {"x and y hold different numbers of examples: their shapes are ", x_.shape(),
                " and ", y_.shape()});
  }
  std::int64_t size() const override { return x_.size(0); }
  Example get(std::int64_t i) const override { return {x_[i], y_.defined() ? y_[i] : Tensor()}; }
  Example batch(const Tensor& index) const override {
    return {rows(x_, index), y_.defined() ? rows(y_, index) : Tensor()};
  }

 private:
  static Tensor rows(const Tensor& x, const Tensor& index) {
    return x.index_select(0, index.to(x.device()));
  }
  Tensor x_, y_;
};

// Some examples of a dataset: number i is its number index[i].
class Subset : public Dataset {
 public:
  Subset(AnyDataset whole, Tensor index, Loc loc = Loc::here())
      : whole_(std::move(whole)), index_(std::move(index)) {
    if (index_.dtype() != int64 || index_.dim() != 1)
      fail({"Subset", loc}, {"the index is ", index_.dtype(), " ", index_.shape()},
           {"it is int64 [n]"});
  }
  std::int64_t size() const override { return index_.numel(); }
  Example get(std::int64_t i) const override { return whole_->get(index_[i].item<std::int64_t>()); }
  Example batch(const Tensor& index) const override {
    return whole_->batch(index_.index_select(0, index));
  }

 private:
  AnyDataset whole_;
  Tensor index_;  // int64 [n]
};

struct SplitOptions {
  ByName by_name = ByName();
  std::int64_t seed = 0;
};

// Shares the examples out at random, each to one part: `random_split(digits, {1500, 297})`, or in
// fractions, {0.8, 0.2}, whose parts are rounded down; what is left over goes to the first ones.
inline std::vector<Subset> random_split(const AnyDataset& whole,
                                        std::initializer_list<Scalar> lengths,
                                        SplitOptions options = {}, Loc loc = Loc::here()) {
  const At at{"random_split", loc};
  const std::int64_t n = whole->size();
  double sum = 0;
  for (const Scalar& length : lengths) {
    if (!(length.real() >= 0)) fail(at, {"a length is negative: ", length.real()});
    sum += length.real();
  }
  const bool fractions = std::abs(sum - 1) < 1e-9;
  if (!fractions && sum != static_cast<double>(n))
    fail(at, {"the lengths add up to ", sum, ", and there are ", n, " examples"},
         {"lengths add up to the number of examples, fractions to 1"});
  std::vector<std::int64_t> sizes;
  std::int64_t left = n;
  for (const Scalar& length : lengths) {
    const double size = fractions ? length.real() * static_cast<double>(n) : length.real();
    sizes.push_back(static_cast<std::int64_t>(std::floor(size)));
    left -= sizes.back();
  }
  for (std::size_t i = 0; fractions && left > 0; i = (i + 1) % sizes.size(), --left) ++sizes[i];
  if (left != 0) fail(at, {"a length is not a whole number"});

  const Unseen inside(loc);
  const Tensor order = fresh({n}, int64);
  Generator generator(static_cast<std::uint64_t>(options.seed));
  fill_permutation(order.elements(), generator);
  std::vector<Subset> parts;
  for (std::int64_t begin = 0; const std::int64_t size : sizes) {
    parts.emplace_back(whole, order.slice(0, begin, begin + size));
    begin += size;
  }
  return parts;
}

struct DataLoaderOptions {
  ByName by_name = ByName();
  std::int64_t batch_size = 1;
  bool drop_last = false;  // whether a last batch that is smaller than the others is left out
  std::int64_t seed = 0;   // of the orders, and of the numbers that get() may draw
  bool shuffle = false;
};

inline std::int64_t batches_in(std::int64_t examples, const DataLoaderOptions& options) {
  const bool rest = examples % options.batch_size != 0 && !options.drop_last;
  return examples / options.batch_size + (rest ? 1 : 0);
}

// Once through a dataset, in batches.
class Epoch {
 public:
  Epoch(AnyDataset dataset, const DataLoaderOptions& options, Generator& generator, Loc loc)
      : dataset_(std::move(dataset)), options_(options), loc_(loc) {
    const Unseen inside(loc);
    order_ = arange(dataset_->size());
    if (options.shuffle) fill_permutation(order_.elements(), generator);
    draws_ = generator.next();
  }
  std::int64_t size() const { return batches_in(order_.numel(), options_); }
  // Nothing of how it comes about is recorded or observed. What get() draws at random depends on
  // the seed, the epoch and i, and not on the thread that computes it or what that has drawn
  // before.
  Example batch(std::int64_t i) const {
    const Unseen inside(loc_);
    const Composed whole("DataLoader", loc_);  // its name in errors
    struct Restore {
      Generator before = default_generator;
      ~Restore() { default_generator = before; }
    } const restore;
    manual_seed(distribution::in_pairs(draws_.block(static_cast<std::uint64_t>(i)))[0]);
    const std::int64_t b = options_.batch_size;
    return dataset_->batch(order_.slice(0, i * b, (i + 1) * b));
  }
  // The observer learns of a batch as of any tensor that is made.
  Example tell(const Example& batch) const {
    for (const Tensor* of : {&batch.x, &batch.y})
      if (current.observer && of->defined()) tell_made(*of, loc_);
    return batch;
  }

 private:
  AnyDataset dataset_;
  DataLoaderOptions options_;
  Tensor order_;
  RandomCall draws_{};
  Loc loc_;
};

// Goes through a dataset in batches, as often as one likes:
//
//     for (auto [x, y] : loader) ...
//
// With `shuffle` each time has an order of its own, the same ones for the same seed on every
// machine. The loader shares the dataset; a copy will go through it as the original will.
class DataLoader {
 public:
  DataLoader(AnyDataset dataset, DataLoaderOptions options = {}, Loc loc = Loc::here())
      : dataset_(std::move(dataset)),
        options_(options),
        generator_(static_cast<std::uint64_t>(options.seed)) {
    if (options.batch_size < 1)
      fail({"DataLoader", loc}, {"the batch size is ", options.batch_size, ", it is at least 1"});
    if (dataset_->size() < 0)
      fail({"DataLoader", loc}, {"the dataset says that its size is ", dataset_->size()});
  }

  std::int64_t size() const { return batches_in(dataset_->size(), options_); }

  struct End {};
  class Iterator {
   public:
    explicit Iterator(Epoch epoch) : epoch_(std::move(epoch)) {}
    Example operator*() const { return epoch_.tell(epoch_.batch(at_)); }
    Iterator& operator++() { return ++at_, *this; }
    bool operator==(End) const { return at_ == epoch_.size(); }

   private:
    Epoch epoch_;
    std::int64_t at_ = 0;
  };
  Iterator begin(Loc loc = Loc::here()) const { return Iterator(epoch(loc)); }
  End end() const { return {}; }

  Epoch epoch(Loc loc = Loc::here()) const { return {dataset_, options_, generator_, loc}; }

 private:
  AnyDataset dataset_;
  DataLoaderOptions options_;
  mutable Generator generator_;  // a loader that is const may be gone through all the same
};

}  // namespace data

}  // namespace minitensor

namespace mt = minitensor;
