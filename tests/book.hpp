// minitensor.hpp as a book: its chapters, found by their banners.
//
//   // ==========
//   // 4. Tensor
//   // ==========
#pragma once

#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/shell.hpp"

namespace book {

struct Chapter {
  std::string number;  // "0" to "14", or "A"
  std::string title;
  std::vector<std::string> lines;
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A chapter reaches from its banner to the next; what stands above the first banner belongs to it.
inline std::vector<Chapter> chapters(const std::string& text) {
  static const std::regex ruler("// =+"), heading(R"(// (\d+|A)\. (.+))");
  const std::vector<std::string> lines = lines_of(text);
  std::vector<Chapter> found;
  std::size_t begin = 0;
  auto close = [&](std::size_t end) {
    if (!found.empty())
      found.back().lines.assign(lines.begin() + static_cast<std::ptrdiff_t>(begin),
                                lines.begin() + static_cast<std::ptrdiff_t>(end));
  };
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    std::smatch match;
    if (!std::regex_match(lines[i - 1], ruler) || !std::regex_match(lines[i + 1], ruler) ||
        !std::regex_match(lines[i], match, heading))
      continue;
    close(i - 1);
    begin = found.empty() ? 0 : i - 1;
    found.push_back({match[1], match[2], {}});
  }
  close(lines.size());
  return found;
}

inline std::vector<Chapter> chapters() {
  return chapters(shell::read_file(SOURCE_DIRECTORY "/minitensor.hpp"));
}

// The lines without what stands behind // in them.
inline std::string code_of(const Chapter& chapter) {
  std::string code;
  for (const std::string& line : chapter.lines) code += line.substr(0, line.find("//")) + "\n";
  return code;
}

// Characters, not bytes: symbols such as "×" are written in UTF-8.
inline int columns(const std::string& line) {
  int count = 0;
  for (const char c : line) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

// The lines that a student reads first: chapters 0, 1, 2, 4, 8, 9, and 10 up to its eleventh box.
inline int students_path() {
  int lines = 0;
  for (const Chapter& chapter : chapters()) {
    static const std::regex whole("[012489]");
    if (std::regex_match(chapter.number, whole)) lines += static_cast<int>(chapter.lines.size());
    if (chapter.number != "10") continue;
    int boxes = 0, up_to_the_box = 0;
    for (std::size_t i = 0; i < chapter.lines.size() && boxes <= 10; ++i) {
      if (chapter.lines[i].rfind("struct ", 0) == 0) up_to_the_box = static_cast<int>(i);
      if (chapter.lines[i].find("constexpr Facts facts") != std::string::npos) ++boxes;
    }
    lines += up_to_the_box;
  }
  return lines;
}

}  // namespace book
