// Two columns of measured numbers from a file, and one kind sentence when they are not there.
//
// Comma-separated, as spreadsheets write it: a first line of names may be there or not, fields may
// stand in double quotes, empty lines and lines that begin with # are passed over.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lessons/lesson.hpp"

namespace lesson {

struct TwoColumns {
  std::string x_name = "x", y_name = "y";
  std::vector<double> x, y;
};

namespace detail {

// One line into its fields. A comma inside quotes belongs to the field; two quotes stand for one.
inline std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool doubled = quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"';
    if (doubled)
      fields.back() += line[++i];
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += line[i];
  }
  for (std::string& field : fields) field = trimmed(field);
  return fields;
}

// At most 24 characters of what stands in the file, so that a sentence stays a sentence.
inline std::string excerpt(const std::string& text) {
  std::string shown = text.substr(0, 24);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
  return '"' + shown + (text.size() > 24 ? "...\"" : "\"");
}

inline std::string hint_for(const std::string& line) {
  if (line.find('\0') != std::string::npos) return " Is it a text file?";
  if (line.find(';') != std::string::npos)
    return " Its columns seem to be separated by semicolons: please save it with commas.";
  if (line.find('\t') != std::string::npos)
    return " Its columns seem to be separated by tabs: please save it with commas.";
  return "";
}

// The number in one field; `place` ("data.csv, line 7, column 2") begins the sentence if it has
// none.
inline double number_at(const std::string& place, const std::string& field) {
  if (field.empty()) throw Mistake(place + ": the number is missing.");
  const std::optional<double> number = number_in(field);
  if (!number) throw Mistake(place + ": " + excerpt(field) + " is not a number.");
  if (!std::isfinite(*number))
    throw Mistake(place + ": " + excerpt(field) + " is not a finite number.");
  return *number;
}

inline std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream whole;
  if (file.peek() != std::ifstream::traits_type::eof()) whole << file.rdbuf();
  if (!file) throw Mistake("Cannot read " + path + ". Is the name right, and is it a file?");
  return whole.str();
}

}  // namespace detail

// Reads `path`: two columns of numbers, at least two rows. Throws a Mistake that names the file,
// the line and the column.
inline TwoColumns read_two_columns(const std::string& path) {
  std::string whole = detail::read_whole(path);
  if (whole.starts_with("\xEF\xBB\xBF")) whole.erase(0, 3);  // the mark some editors write first

  TwoColumns table;
  std::istringstream lines(whole);
  std::string line;
  bool names_may_come = true;
  for (int number = 1; std::getline(lines, line); ++number) {
    line = detail::trimmed(line);
    if (line.empty() || line[0] == '#') continue;

    const std::string place = path + ", line " + std::to_string(number);
    const std::vector<std::string> fields = detail::fields_of(line);
    if (fields.size() != 2)
      throw Mistake(place + ": expected 2 columns, found " + std::to_string(fields.size()) + "." +
                    detail::hint_for(line));
    const bool no_numbers = !detail::number_in(fields[0]) && !detail::number_in(fields[1]);
    if (std::exchange(names_may_come, false) && no_numbers) {
      table.x_name = fields[0];
      table.y_name = fields[1];
      continue;
    }
    table.x.push_back(detail::number_at(place + ", column 1", fields[0]));
    table.y.push_back(detail::number_at(place + ", column 2", fields[1]));
  }
  if (table.x.size() < 2)
    throw Mistake(path + ": a line needs at least 2 rows of numbers, found " +
                  std::to_string(table.x.size()) + ".");
  const auto [smallest, largest] = std::minmax_element(table.x.begin(), table.x.end());
  if (*smallest == *largest)
    throw Mistake(path +
                  ", column 1: all numbers are equal, and a slope needs two different ones.");
  return table;
}

}  // namespace lesson
