// What the variables of a program are called, read from its own source text.
//
// `auto z = s + c;` calls its tensor z. A program that runs does not know that; its source does.
#pragma once

#include <cctype>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

namespace lesson {

// One line of a source file, counted from 1; empty if it cannot be read.
inline std::string source_line(const std::string& file, int number) {
  static thread_local std::vector<std::vector<std::string>> files;  // the name, then the lines
  for (const std::vector<std::string>& known : files)
    if (known[0] == file) {
      const auto index = static_cast<std::size_t>(number);
      return number >= 1 && index < known.size() ? known[index] : "";
    }
  std::ifstream source(file);
  files.push_back({file});
  for (std::string line; std::getline(source, line);) files.back().push_back(line);
  return source_line(file, number);
}

// A statement that gives a name to what it computes.
struct Naming {
  std::string variable;  // "z" in "auto z = s + c;", "h" in "h = h + x;"; empty if none
  int operations = 0;    // how many operations stand to the right of the =
};

namespace detail {
inline bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Calls (a word and an opening bracket) and operators between blanks, as clang-format writes them.
// Naming a result is no operation.
inline int count_operations(const std::string& text) {
  int count = 0;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    const bool is_operator = std::string("+-*/").find(text[i]) != std::string::npos;
    if (is_operator && text[i - 1] == ' ' && text[i + 1] == ' ') ++count;
    if (text[i] == '(' && in_word(text[i - 1])) {
      std::size_t begin = i;
      while (begin > 0 && in_word(text[begin - 1])) --begin;
      if (text.substr(begin, i - begin) != "named") ++count;
    }
  }
  return count;
}
}  // namespace detail

inline Naming naming_on(const std::string& line) {
  const std::size_t equals = line.find(" = ");
  if (equals == std::string::npos) return {};
  std::size_t begin = equals;
  while (begin > 0 && detail::in_word(line[begin - 1])) --begin;
  const std::string variable = line.substr(begin, equals - begin);
  // What stands before it: nothing, or the type of a tensor. (`const double size = ...` names
  // none.)
  std::string before = line.substr(0, begin);
  before.erase(before.find_last_not_of(' ') + 1);
  const bool is_tensor = before.empty() || before.ends_with("auto") || before.ends_with("Tensor");
  if (variable.empty() || !is_tensor) return {};
  return {variable, detail::count_operations(line.substr(equals + 3))};
}

// "loss" in "show(loss);"; empty if it is not that simple.
inline std::string shown_on(const std::string& line) {
  const std::size_t call = line.find("show(");
  if (call == std::string::npos) return "";
  const std::size_t begin = call + 5;
  std::size_t end = begin;
  while (end < line.size() && detail::in_word(line[end])) ++end;
  return line.substr(end, 1) == ")" ? line.substr(begin, end - begin) : "";
}

}  // namespace lesson
