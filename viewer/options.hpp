// What the viewer is started with.
#pragma once

#include <string>
#include <vector>

#include "viewer/process.hpp"

namespace viewer {

struct LessonEntry {
  std::string number;  // "05"
  std::string id;      // "05_chain_rule"
  std::string title;   // "The chain rule"
  std::string path;    // its source file
};

struct AppOptions {
  std::vector<LessonEntry> lessons;         // for the list on the left
  std::string target;                       // "05", "05_chain_rule", or the path of a .cpp file
  std::vector<std::string> compiler_flags;  // for a .cpp file
  std::vector<std::string> program_args;    // for the program
  Tools tools;                              // what compiles a .cpp file
  std::string self;                         // this executable: a lesson is run as `self play 05`
  int step = -1;       // -1: a lesson opens at its beginning, a program's run is followed
  int episode = 0;     // 0: the first one, and of a program's run the latest
  std::string report;  // a file: one line after each change of what is shown, for tests
  std::string shot;    // a file: draw the window into it as PNG once the run has ended, and return
  int width = 1440, height = 880;
  bool light = false, present = false, cover = false;
  std::string select;           // the name of a tensor to select
  std::string export_to = ".";  // the folder that E writes to
};

}  // namespace viewer
