// Two columns of measured numbers from a file (load_csv in minitensor_files.hpp says what a file
// may look like), and one kind sentence when they are not there.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lessons/lesson.hpp"
#include "minitensor_files.hpp"

namespace lesson {

struct TwoColumns {
  std::string x_name = "x", y_name = "y";
  std::vector<double> x, y;
};

// Reads `path`: two columns of numbers, at least two rows. Throws a Mistake.
inline TwoColumns read_two_columns(const std::string& path, mt::Loc loc = mt::Loc::here()) {
  const mt::Quiet quiet;
  mt::CsvTable file;
  try {
    file = mt::load_csv(path, {.dtype = mt::float64}, loc);
  } catch (const mt::Error& error) {
    throw Mistake(error.what());
  }
  if (file.values.size(1) != 2)
    throw Mistake(path + ": there should be 2 columns, and the number of columns is " +
                  std::to_string(file.values.size(1)) + ".");
  TwoColumns table;
  if (!file.names.empty()) table.x_name = file.names[0], table.y_name = file.names[1];
  table.x = file.values.select(1, 0).to_vector<double>();
  table.y = file.values.select(1, 1).to_vector<double>();
  if (table.x.size() < 2)
    throw Mistake(path + ": a line needs at least 2 rows of numbers, found " +
                  std::to_string(table.x.size()) + ".");
  for (const std::vector<double>* column : {&table.x, &table.y})
    if (!std::all_of(column->begin(), column->end(), [](double x) { return std::isfinite(x); }))
      throw Mistake(path + ": a number is infinite, and no line gets there.");
  const auto [smallest, largest] = std::minmax_element(table.x.begin(), table.x.end());
  if (*smallest == *largest)
    throw Mistake(path +
                  ", column 1: all numbers are equal, and a slope needs two different ones.");
  return table;
}

}  // namespace lesson
