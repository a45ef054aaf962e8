// What the variables of a program are called, read from the text of its source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace viewer {

// What a line of source assigns: `auto z = x * y;` assigns z, `auto [v, i] = x.max(0);` v and i.
struct Assignment {
  std::vector<std::string> names;
  bool uses_itself = false;  // h = h * w + x
  int operations = 0;        // on its right side, as far as the text tells
};

// Nothing, if the line holds several statements: nobody can tell which one it was.
Assignment assignment_on(std::string_view line);

std::string_view line_of_text(std::string_view text, int number);  // from 1; empty if there is none
std::string_view trimmed(std::string_view text);                   // of blanks at both ends

}  // namespace viewer
