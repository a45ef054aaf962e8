#include "viewer/value.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "lessons/words.hpp"

namespace viewer {

namespace {

std::size_t size_of(DType dtype) {
  if (dtype == DType::boolean) return 1;
  return dtype == DType::float32 ? 4 : 8;
}

template <class T>
T element(const std::vector<std::byte>& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// An expanded view can have any number of elements over a storage of one: beyond this many they are
// not listed.
constexpr std::int64_t most_elements = std::int64_t{1} << 16;

// The elements that a window shows of a storage, row by row; none if it reaches outside.
std::optional<std::vector<std::byte>> through_window(const Seen& window, const Snapshot& storage,
                                                     std::int64_t count) {
  const std::size_t size = size_of(storage.dtype), rank = window.shape.size();
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size);
  Shape index(rank, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    // Unsigned, so that offsets of any size wrap around instead of overflowing.
    auto place = static_cast<std::uint64_t>(window.offset);
    for (std::size_t axis = 0; axis < rank; ++axis)
      place += static_cast<std::uint64_t>(index[axis]) *
               static_cast<std::uint64_t>(window.strides[axis]);
    if (place >= static_cast<std::uint64_t>(storage.count)) return std::nullopt;
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * size,
                storage.bytes.data() + static_cast<std::size_t>(place) * size, size);
    for (std::size_t axis = rank; axis-- > 0;) {
      if (++index[axis] < window.shape[axis]) break;
      index[axis] = 0;
    }
  }
  return bytes;
}

template <class T>
void add_elements(std::vector<std::byte>& sum, const std::vector<std::byte>& term) {
  for (std::size_t i = 0; i < sum.size() / sizeof(T); ++i) {
    const T total = static_cast<T>(element<T>(sum, i) + element<T>(term, i));
    std::memcpy(sum.data() + i * sizeof(T), &total, sizeof(T));
  }
}

}  // namespace

std::optional<std::int64_t> small_count(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) {
    if (size == 0) return 0;
    if (size > most_elements / count) return std::nullopt;
    count *= size;
  }
  return count;
}

Value unknown(const Seen& seen, std::string why) {
  Value value;
  value.dtype = seen.dtype;
  value.shape = seen.shape;
  value.note = std::move(why);
  return value;
}

Value read_window(const Seen& seen, const Snapshot* storage) {
  if (storage == nullptr) return unknown(seen, "changed, not kept");
  if (seen.dtype != storage->dtype) return unknown(seen, "not kept");
  Value value = unknown(seen, "");
  if (!storage->in_full()) {
    value.kept = Value::Kept::statistics;
    value.statistics = storage->statistics;
    if (storage->count <= Snapshot::kept_in_full) value.note = "the budget is used up";
    return value;
  }
  const std::optional<std::int64_t> count = small_count(seen.shape);
  if (!count) return unknown(seen, "too many elements to list");
  std::optional<std::vector<std::byte>> bytes = through_window(seen, *storage, *count);
  if (!bytes) return unknown(seen, "not kept");
  value.kept = Value::Kept::in_full;
  value.bytes = std::move(*bytes);
  return value;
}

void add_to(std::optional<Value>& sum, Value term) {
  if (!sum) {
    sum = std::move(term);
    return;
  }
  const bool possible = sum->kept == Value::Kept::in_full && term.kept == Value::Kept::in_full &&
                        sum->dtype == term.dtype && sum->shape == term.shape;
  if (possible && sum->dtype == DType::float32)
    add_elements<float>(sum->bytes, term.bytes);
  else if (possible && sum->dtype == DType::float64)
    add_elements<double>(sum->bytes, term.bytes);
  else {
    sum->kept = Value::Kept::nothing;
    sum->bytes.clear();
    sum->note = "too large to be added up here";
  }
}

std::int64_t Value::count() const {
  std::uint64_t product = 1;  // unsigned: a shape in a file may be anything
  for (std::int64_t size : shape) product *= static_cast<std::uint64_t>(size);
  return static_cast<std::int64_t>(product);
}

double Value::at(std::size_t i) const {
  switch (dtype) {
    case DType::float32:
      return element<float>(bytes, i);
    case DType::float64:
      return element<double>(bytes, i);
    case DType::int64:
      return static_cast<double>(element<std::int64_t>(bytes, i));
    case DType::boolean:
      return element<std::uint8_t>(bytes, i) != 0;
  }
  return 0;
}

std::string Value::text(std::size_t i, int room) const {
  if (dtype == DType::boolean) return at(i) != 0 ? "true" : "false";
  if (dtype != DType::int64) return words::field(at(i), true, room);
  std::string digits = std::to_string(element<std::int64_t>(bytes, i));
  return digits.size() <= static_cast<std::size_t>(room) ? digits
                                                         : words::field(at(i), false, room);
}

bool Value::operator==(const Value& other) const {
  const auto numbers = [](const Statistics& s) {
    return std::array<double, 6>{
        s.min, s.max, s.mean, s.std, static_cast<double>(s.nan), static_cast<double>(s.inf)};
  };
  const auto mine = numbers(statistics), theirs = numbers(other.statistics);
  return kept == other.kept && dtype == other.dtype && shape == other.shape &&
         bytes == other.bytes && note == other.note &&
         std::memcmp(mine.data(), theirs.data(), sizeof mine) == 0;
}

}  // namespace viewer
