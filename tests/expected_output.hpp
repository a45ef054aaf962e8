// Holds what a program prints to the `// expect:` lines of its source: words exactly, numbers to
// 1e-4.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace expected_output {

inline std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// The lines that are not empty, without the blanks around them.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (!trimmed(line).empty()) lines.push_back(trimmed(line));
  return lines;
}

inline std::vector<std::string> expectations_in(const std::string& source) {
  const std::string mark = "// expect: ";
  std::vector<std::string> lines;
  for (const std::string& line : lines_of(source)) {
    const std::size_t at = line.find(mark);
    if (at != std::string::npos) lines.push_back(trimmed(line.substr(at + mark.size())));
  }
  return lines;
}

// A line in pieces: numbers, and what stands between them.
struct Piece {
  std::string text;
  bool is_number = false;
};

inline std::vector<Piece> pieces_of(const std::string& line) {
  std::vector<Piece> pieces;
  const char* at = line.c_str();
  while (*at != '\0') {
    const bool sign = *at == '-' && std::isdigit(static_cast<unsigned char>(at[1])) != 0;
    if (sign || std::isdigit(static_cast<unsigned char>(*at)) != 0) {
      char* end = nullptr;
      std::strtod(at, &end);
      pieces.push_back({std::string(at, static_cast<const char*>(end)), true});
      at = end;
    } else {
      if (pieces.empty() || pieces.back().is_number) pieces.push_back({"", false});
      pieces.back().text += *at++;
    }
  }
  return pieces;
}

// The tolerance is 1e-4 of the number, or 1e-4 where the number is smaller than 1: lessons print
// six digits, and compilers differ in the last bits.
inline bool agree(const std::string& expected, const std::string& printed) {
  const std::vector<Piece> wanted = pieces_of(expected), got = pieces_of(printed);
  return std::equal(wanted.begin(), wanted.end(), got.begin(), got.end(),
                    [](const Piece& one, const Piece& other) {
                      if (one.is_number != other.is_number) return false;
                      if (!one.is_number) return one.text == other.text;
                      const double a = std::atof(one.text.c_str());
                      const double b = std::atof(other.text.c_str());
                      return std::abs(a - b) <= 1e-4 * std::max(1.0, std::abs(a));
                    });
}

// What is wrong, in words; empty if every line printed is expected and every expected one printed.
inline std::string difference(const std::vector<std::string>& expected,
                              const std::vector<std::string>& printed) {
  const std::size_t most = std::max(expected.size(), printed.size());
  for (std::size_t i = 0; i < most; ++i) {
    const std::string wanted = i < expected.size() ? expected[i] : "(nothing more)";
    const std::string got = i < printed.size() ? printed[i] : "(nothing more)";
    if (i >= expected.size() || i >= printed.size() || !agree(wanted, got))
      return "line " + std::to_string(i + 1) + "\n  expected: " + wanted + "\n  printed:  " + got;
  }
  return "";
}

// The first expected line that `printed` does not hold in its place among the others; empty if it
// holds them all, in order, whatever stands between them.
inline std::string missing(const std::vector<std::string>& expected,
                           const std::vector<std::string>& printed) {
  auto from = printed.begin();
  for (const std::string& wanted : expected) {
    from = std::find_if(from, printed.end(),
                        [&](const std::string& got) { return agree(wanted, got); });
    if (from == printed.end()) return wanted;
    ++from;
  }
  return "";
}

}  // namespace expected_output
