#include "viewer/trace.hpp"

#include <concepts>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <type_traits>

namespace viewer {
namespace {

// ---- The fields of each structure, once for both directions

template <class T, class Structure>
concept Is = std::same_as<std::remove_const_t<T>, Structure>;

void fields(auto& bytes, Is<Line> auto& x) { bytes(x.file, x.number); }
void fields(auto& bytes, Is<Seen> auto& x) {
  bytes(x.tensor, x.storage, x.version, x.offset, x.shape, x.strides, x.dtype, x.requires_grad,
        x.is_leaf, x.name);
}
void fields(auto& bytes, Is<Statistics> auto& x) {
  bytes(x.min, x.max, x.mean, x.std, x.nan, x.inf, x.histogram, x.rows, x.columns, x.thumbnail);
}
void fields(auto& bytes, Is<Snapshot> auto& x) {
  bytes(x.storage, x.version, x.count, x.dtype, x.bytes, x.statistics);
}
void fields(auto& bytes, Is<OpFacts> auto& x) {
  bytes(x.name, x.symbol, x.formula, x.derivatives, x.attributes, x.called);
}
void fields(auto& bytes, Is<Attributes> auto& x) { bytes(x.numbers, x.dims); }
void fields(auto& bytes, Is<Made> auto& x) { bytes(x.tensor); }
void fields(auto& bytes, Is<Op> auto& x) {
  bytes(x.node, x.op, x.attributes, x.inputs, x.saved, x.outputs);
}
void fields(auto& bytes, Is<Failed> auto& x) { bytes(x.op, x.inputs, x.text, x.node); }
void fields(auto& bytes, Is<PassBegins> auto& x) {
  bytes(x.pass, x.roots, x.seeds, x.retain_graph, x.create_graph, x.asked);
}
void fields(auto& bytes, Is<PassEnds> auto& x) { bytes(x.pass); }
void fields(auto& bytes, Is<Arrived> auto& x) {
  bytes(x.pass, x.node, x.slot, x.to, x.before, x.folded, x.given);
}
void fields(auto& bytes, Is<Hooked> auto& x) { bytes(x.pass, x.tensor, x.before, x.after); }
void fields(auto& bytes, Is<Landed> auto& x) {
  bytes(x.pass, x.tensor, x.had_before, x.before, x.after);
}
void fields(auto& bytes, Is<Wrote> auto& x) { bytes(x.tensor, x.version_before, x.by, x.node); }
void fields(auto& bytes, Is<LetGo> auto& x) { bytes(x.tensor); }
void fields(auto& bytes, Is<Named> auto& x) { bytes(x.tensor, x.name); }
void fields(auto& bytes, Is<ScopeOpens> auto& x) { bytes(x.scope, x.name, x.composed); }
void fields(auto& bytes, Is<ScopeCloses> auto& x) { bytes(x.scope); }
void fields(auto& bytes, Is<Said> auto& x) { bytes(x.text); }
void fields(auto& bytes, Is<Asked> auto& x) { bytes(x.text, x.answer); }
void fields(auto& bytes, Is<Plotted> auto& x) { bytes(x.series, x.x, x.y); }
void fields(auto& bytes, Is<Printed> auto& x) { bytes(x.text); }
void fields(auto& bytes, Is<Ended> auto& x) { bytes(x.how, x.number, x.text); }
void fields(auto&, Is<Paused> auto&) {}
void fields(auto& bytes, Is<Pictured> auto& x) { bytes(x.title, x.rows, x.columns, x.numbers); }
void fields(auto& bytes, Is<Event> auto& x) { bytes(x.what, x.line, x.scope); }

template <class T>
concept Plain = std::is_arithmetic_v<T> || std::same_as<T, std::byte>;

// Elements that lie side by side in memory as they do in the bytes. (A vector of bool would not.)
template <class T>
concept Packed = Plain<T> && !std::same_as<T, bool>;

// ---- Writing
//
// Numbers stand as the machine holds them: both ends of a pipe are on one machine. A list is its
// length and its elements; a choice is its place and its content.

class Output {
 public:
  template <class... Values>
  void operator()(const Values&... values) {
    (one(values), ...);
  }
  std::string text;

 private:
  void raw(const void* data, std::size_t n) {
    if (n > 0) text.append(static_cast<const char*>(data), n);
  }
  template <Plain T>
  void one(const T& value) {
    raw(&value, sizeof value);
  }
  template <class T>
  requires std::is_enum_v<T> &&(!Plain<T>)void one(const T& value) {
    one(static_cast<std::underlying_type_t<T>>(value));
  }
  void one(const std::string& value) {
    one(std::uint64_t{value.size()});
    raw(value.data(), value.size());
  }
  template <class T>
  void one(const std::vector<T>& list) {
    one(std::uint64_t{list.size()});
    if constexpr (Packed<T>) {
      raw(list.data(), list.size() * sizeof(T));
    } else {
      for (const T& element : list) one(element);
    }
  }
  template <class T, std::size_t n>
  void one(const std::array<T, n>& list) {
    raw(list.data(), sizeof list);
  }
  template <class A, class B>
  void one(const std::pair<A, B>& both) {
    (*this)(both.first, both.second);
  }
  template <class... Choices>
  void one(const std::variant<Choices...>& choice) {
    one(static_cast<std::uint8_t>(choice.index()));
    std::visit([this](const auto& content) { (*this)(content); }, choice);
  }
  template <class Structure>
  void one(const Structure& structure) {
    fields(*this, structure);
  }
};

// ---- Reading: the bytes may be anything

[[noreturn]] void malformed(const char* what) {
  throw std::runtime_error(std::string("not a record: ") + what);
}

class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}

  template <class... Values>
  void operator()(Values&... values) {
    (one(values), ...);
  }
  void expect_end() const {
    if (!rest_.empty()) malformed("it goes on after its end");
  }

 private:
  void raw(void* data, std::size_t n) {
    if (n > rest_.size()) malformed("it ends too early");
    if (n > 0) std::memcpy(data, rest_.data(), n);
    rest_.remove_prefix(n);
  }
  template <Plain T>
  void one(T& value) {
    raw(&value, sizeof value);
  }
  void one(bool& value) {
    std::uint8_t byte = 0;
    one(byte);
    if (byte > 1) malformed("a yes or no is neither");
    value = byte == 1;
  }
  template <class T>
  requires std::is_enum_v<T> &&(!Plain<T>)void one(T& value) {
    std::underlying_type_t<T> number = 0;
    one(number);
    if (number > static_cast<std::underlying_type_t<T>>(last_of(value)))
      malformed("a kind does not exist");
    value = static_cast<T>(number);
  }
  static DType last_of(DType) { return DType::boolean; }
  static Ended::How last_of(Ended::How) { return Ended::How::signal; }

  // The length of a list whose elements take at least `least` bytes each: never more than there
  // can be, so that no length in the bytes makes us allocate more than a small multiple of them.
  std::size_t length(std::size_t least) {
    std::uint64_t n = 0;
    one(n);
    if (n > rest_.size() / least) malformed("a list is longer than its bytes");
    return static_cast<std::size_t>(n);
  }
  void one(std::string& value) {
    value.resize(length(1));
    raw(value.data(), value.size());
  }
  template <class T>
  void one(std::vector<T>& list) {
    if constexpr (Packed<T>) {
      list.resize(length(sizeof(T)));
      raw(list.data(), list.size() * sizeof(T));
    } else {
      const std::size_t n = length(1);
      for (std::size_t i = 0; i < n; ++i) one(list.emplace_back());
    }
  }
  template <class T, std::size_t n>
  void one(std::array<T, n>& list) {
    raw(list.data(), sizeof list);
  }
  template <class A, class B>
  void one(std::pair<A, B>& both) {
    (*this)(both.first, both.second);
  }
  template <class... Choices>
  void one(std::variant<Choices...>& choice) {
    std::uint8_t index = 0;
    one(index);
    if (index >= sizeof...(Choices)) malformed("a kind does not exist");
    std::size_t i = 0;
    ((i++ == index ? one(choice.template emplace<Choices>()) : void()), ...);
  }
  template <class Structure>
  void one(Structure& structure) {
    fields(*this, structure);
    check(structure);
  }

  template <class Structure>
  static void check(const Structure&) {}
  static void check(const Seen& seen) {
    if (seen.shape.size() != seen.strides.size()) malformed("a shape does not fit its strides");
    if (seen.shape.size() > 64) malformed("a shape has too many dimensions");
    for (std::int64_t size : seen.shape)
      if (size < 0) malformed("a size is negative");
  }
  static void check(const Snapshot& snapshot) {
    if (snapshot.count < 0) malformed("a count is negative");
    const std::size_t size = size_of(snapshot.dtype), bytes = snapshot.bytes.size();
    if (bytes != 0 && (bytes % size != 0 || bytes / size != std::size_t(snapshot.count)))
      malformed("a snapshot does not fit its count");
    const Statistics& s = snapshot.statistics;
    if (!fits(s.thumbnail, s.rows, s.columns, 64)) malformed("a thumbnail does not fit its sides");
  }
  static void check(const Pictured& picture) {
    if (!fits(picture.numbers, picture.rows, picture.columns, Pictured::most_side))
      malformed("a picture does not fit its sides");
  }
  static bool fits(const std::vector<float>& cells, std::int64_t rows, std::int64_t columns,
                   std::int64_t most) {
    return rows >= 0 && rows <= most && columns >= 0 && columns <= most &&
           cells.size() == std::size_t(rows * columns);
  }
  static std::size_t size_of(DType dtype) {
    if (dtype == DType::boolean) return 1;
    return dtype == DType::float32 ? 4 : 8;
  }

  std::string_view rest_;
};

}  // namespace

std::string encode(const Record& record) {
  Output bytes;
  bytes(record);
  return std::move(bytes.text);
}

Record decode(const char* bytes, std::size_t n) {
  Input input({bytes, n});
  Record record;
  input(record);
  input.expect_end();
  return record;
}

namespace {
struct Adding {
  Trace& trace;
  void operator()(Event&& event) const {
    trace.events.push_back(std::make_shared<const Event>(std::move(event)));
  }
  void operator()(Snapshot&& snapshot) const {
    trace.snapshots.insert(std::make_shared<const Snapshot>(std::move(snapshot)));
  }
  void operator()(OpFacts&& facts) const {
    std::string name = facts.name;
    trace.facts.insert_or_assign(std::move(name), std::move(facts));
  }
  void operator()(std::pair<std::string, std::string>&& source) const {
    trace.sources.insert_or_assign(std::move(source.first), std::move(source.second));
  }
};
}  // namespace

void add(Trace& trace, Record&& record) { std::visit(Adding{trace}, std::move(record)); }

}  // namespace viewer
