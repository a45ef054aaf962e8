// The elements of a tensor at one moment, as far as a trace has kept them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/trace.hpp"

namespace viewer {

using Shape = std::vector<std::int64_t>;

// What is known of a tensor's elements.
struct Value {
  enum class Kept : std::uint8_t { nothing, statistics, in_full };
  Kept kept = Kept::nothing;
  DType dtype = DType::float32;
  Shape shape;
  std::vector<std::byte> bytes;  // in full: row-major, as the program held them
  Statistics statistics;         // statistics: of the whole storage
  std::string note;              // not in full: why, in words ("changed, not kept")

  std::int64_t count() const;      // elements by the shape
  double at(std::size_t i) const;  // in full only
  // The i-th element as a box shows it: "3.0", "7", "true". In full only.
  std::string text(std::size_t i, int room = 14) const;
  bool operator==(const Value&) const;  // bit for bit
};

// Nothing is known, and why.
Value unknown(const Seen& seen, std::string why);

// What a window shows of its storage, as it was in a snapshot; null if there is none.
Value read_window(const Seen& seen, const Snapshot* storage);

// Adds as the program adds gradients: element by element, in their dtype. Where there was no sum,
// the term is it.
void add_to(std::optional<Value>& sum, Value term);

// The number of elements of a shape; none if they are too many to be listed.
std::optional<std::int64_t> small_count(const Shape& shape);

}  // namespace viewer
