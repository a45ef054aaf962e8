// What a reader can use instead of the elements of a large storage: a few numbers, a histogram and
// a thumbnail.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "viewer/trace.hpp"

namespace viewer {

constexpr std::int64_t thumbnail_side = 64;

namespace detail {

template <class T>
std::vector<double> doubles(const std::byte* bytes, std::size_t count) {
  std::vector<double> elements(count);
  for (std::size_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, bytes + i * sizeof(T), sizeof(T));
    elements[i] = static_cast<double>(element);
  }
  return elements;
}

// Bins of equal width from min to max; the last one holds max as well. Where all are the same, they
// are in the first.
inline void fill_histogram(Statistics& result, std::span<const double> elements) {
  const auto bins = static_cast<double>(result.histogram.size());
  for (double element : elements) {
    if (!std::isfinite(element)) continue;
    // Halved, so that the width of a range from -1e308 to 1e308 is finite.
    double place = result.max > result.min
                       ? (element / 2 - result.min / 2) / (result.max / 2 - result.min / 2)
                       : 0;
    auto bin = static_cast<std::size_t>(std::min(place * bins, bins - 1));
    ++result.histogram[bin];
  }
}

// The window as rows and columns: its last dimension is the columns, all others are rows. At most
// `side` of each, in block means.
inline void fill_thumbnail(Statistics& result, std::span<const double> elements, const Seen& window,
                           std::int64_t side = thumbnail_side) {
  const auto dims = window.shape.size();
  const std::int64_t columns = dims == 0 ? 1 : window.shape.back();
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < dims; ++d) rows *= window.shape[d];
  if (rows == 0 || columns == 0) return;
  result.rows = std::min(rows, side);
  result.columns = std::min(columns, side);
  const auto cells = static_cast<std::size_t>(result.rows * result.columns);
  std::vector<double> sums(cells);
  std::vector<std::int64_t> counts(cells);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t start = window.offset;
    for (std::int64_t d = static_cast<std::int64_t>(dims) - 2, rest = row; d >= 0; --d) {
      auto i = static_cast<std::size_t>(d);
      start += rest % window.shape[i] * window.strides[i];
      rest /= window.shape[i];
    }
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t place = start + (dims == 0 ? 0 : column * window.strides.back());
      if (place < 0 || place >= static_cast<std::int64_t>(elements.size())) continue;
      auto cell = static_cast<std::size_t>(row * result.rows / rows * result.columns +
                                           column * result.columns / columns);
      sums[cell] += elements[static_cast<std::size_t>(place)];
      ++counts[cell];
    }
  }
  result.thumbnail.resize(cells);
  for (std::size_t cell = 0; cell < cells; ++cell)
    if (counts[cell] > 0)
      result.thumbnail[cell] = static_cast<float>(sums[cell] / static_cast<double>(counts[cell]));
}

}  // namespace detail

// A matrix as a picture: its elements, row by row.
inline Pictured picture_of(const std::string& title, std::int64_t columns,
                           std::span<const double> elements) {
  Seen matrix;
  matrix.shape = {static_cast<std::int64_t>(elements.size()) / columns, columns};
  matrix.strides = {columns, 1};
  Statistics result;
  detail::fill_thumbnail(result, elements, matrix, Pictured::most_side);
  return {title, result.rows, result.columns, std::move(result.thumbnail)};
}

// Elements as they lie in memory, as numbers.
inline std::vector<double> as_doubles(DType dtype, const std::byte* bytes, std::size_t count) {
  switch (dtype) {
    case DType::float32:
      return detail::doubles<float>(bytes, count);
    case DType::float64:
      return detail::doubles<double>(bytes, count);
    case DType::int64:
      return detail::doubles<std::int64_t>(bytes, count);
    default:
      return detail::doubles<std::uint8_t>(bytes, count);
  }
}

// Of all elements of a storage. The thumbnail shows block means of the window onto it, if one is
// given. `std` divides by n - 1, as Tensor::std does. Where no element is finite, min, max, mean
// and std are NaN.
inline Statistics statistics_of(std::span<const double> elements, const Seen* window) {
  Statistics result;
  double sum = 0, least = std::numeric_limits<double>::infinity(), most = -least;
  std::int64_t finite = 0;
  for (double element : elements) {
    if (std::isnan(element)) {
      ++result.nan;
    } else if (std::isinf(element)) {
      ++result.inf;
    } else {
      ++finite;
      sum += element;
      least = std::min(least, element);
      most = std::max(most, element);
    }
  }
  if (finite == 0) {
    result.min = result.max = result.mean = result.std = std::numeric_limits<double>::quiet_NaN();
  } else {
    result.min = least;
    result.max = most;
    result.mean = sum / static_cast<double>(finite);
    double squares = 0;
    for (double element : elements)
      if (std::isfinite(element)) squares += (element - result.mean) * (element - result.mean);
    result.std = finite > 1 ? std::sqrt(squares / static_cast<double>(finite - 1)) : 0;
  }
  detail::fill_histogram(result, elements);
  if (window) detail::fill_thumbnail(result, elements, *window);
  return result;
}

}  // namespace viewer
