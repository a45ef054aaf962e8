// The lessons that this program holds, for the parts of it that know no tensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace viewer {

struct LessonName {
  std::string number;  // "05"
  std::string id;      // "05_chain_rule"
  std::string title;   // "The chain rule"
  std::string part;    // "Autograd"
  std::string file;    // its source
};

const std::vector<LessonName>& course();  // in order

// What a person means by "05", "5", "chain_rule" or "05_chain_rule".
std::optional<LessonName> find_lesson(const std::string& word);

// Runs a lesson in this process, and returns the exit code. Where a viewer is listening (the
// environment variable MINITENSOR_WATCH) all that happens goes to it, else it is told in the
// terminal.
int play(const LessonName& lesson, const std::vector<std::string>& arguments);

}  // namespace viewer
