// Plays a lesson. In a terminal a Narrator prints what happens; in the viewer, where a Recorder is
// listening already, everything goes to that one.
#pragma once

#include <string>
#include <vector>

#include "lessons/lesson.hpp"

namespace lesson {

// Runs one lesson with the words that stood behind its name on the command line:
//
//   --data FILE         the lesson's data comes from FILE
//   --knob NAME=VALUE   turns a knob (may be repeated)
//   --brief             prints what happened, without the prose
//   --help
//
// Returns the exit code: 0, or 2 with one sentence on stderr for a mistake of the reader, or 1 for
// a lesson that failed. Where an observer is set already (mt::observer()), it hears everything,
// nothing is printed by the voice, and what a lesson throws goes through.
int run_lesson(const Lesson& lesson, std::vector<std::string> args);

}  // namespace lesson
