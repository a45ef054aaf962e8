// A run: a program in a process of its own, and the trace that it leaves.
//
//   auto run = Process::start({.arguments = {"minitensor", "play", "05"}});   // a program
//   auto run = Process::start(compiled("prog.cpp", tools));   // a student's file, compiled first
//   ...
//   std::shared_ptr<const Trace> trace = run->latest();       // once a frame; never waits
//
// Everything slow happens on the run's own thread: it compiles, starts the program, reads its pipe
// and publishes the trace by swapping one pointer. Once the program has ended, the trace's last
// event is Ended and says how; that is so however it ended, also when it did not compile or could
// not be started. A run leaves no process behind: when the program ends, is stopped, or this object
// goes, its whole process group goes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "viewer/trace.hpp"

namespace viewer {

// What to run. `arguments[0]` is the program, looked for in PATH if it has no slash.
struct Command {
  std::vector<std::string> arguments;
  // If not empty, this runs first, and the program that it makes then takes the place of
  // arguments[0]: the compiler and all its arguments but "-o PROGRAM".
  std::vector<std::string> compiler = {};
  std::string compiled_file = {};  // what the compiler compiles, for the words about it
};

// Where the compiler and our side of a watched program are. The library is built from
// viewer/recorder.cpp and viewer/trace.cpp, without sanitizers; where it is missing or older than
// what it is made from, those are compiled along, which takes a few seconds more.
struct Tools {
  std::string compiler = "c++";
  std::string repository;  // the folder of minitensor.hpp and viewer/
  std::string attach_library = {};
};

// A student's own program: `file`, compiled unchanged with -std=c++20 -g1 -O1 and watched, then run
// with `arguments`. `flags` go to the compiler behind ours.
Command compiled(const std::string& file, const Tools& tools,
                 const std::vector<std::string>& flags = {},
                 const std::vector<std::string>& arguments = {});

struct RunOptions {
  bool echo = false;                // pass what the program prints on to our own standard output
  std::int64_t budget = 256 << 20;  // bytes of snapshots; beyond that new ones are statistics only
  std::size_t most_events = 1 << 20;  // kept at once; an episode without end would fill the machine
  // Called on the run's thread after each publication, at most about 30 times a second.
  std::function<void()> changed = {};
};

class Process {
 public:
  static std::unique_ptr<Process> start(Command command, RunOptions options = {});
  ~Process();  // stops the run, and returns when nothing of it is left
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  enum class Stage { compiling, running, ended };
  Stage stage() const;
  bool running() const { return stage() != Stage::ended; }

  // What is known so far. Never null, and never waits for the program. Once stage() is ended it is
  // complete.
  std::shared_ptr<const Trace> latest() const;

  // Kills the program and all that it started, and returns at once. The trace then ends `stopped`.
  void stop();

  // The episode that the reader stands in: the run keeps it in full whatever the schedule says.
  void stand_in(int episode);

  // Whether the snapshots have used up the budget, and new ones are statistics only.
  bool statistics_only() const;

  // Returns when the run has ended, or when the time is over: then false.
  bool wait(std::chrono::milliseconds most = std::chrono::hours(24 * 365));

 private:
  struct Run;  // shared by this object and its thread
  explicit Process(std::unique_ptr<Run> run);
  std::unique_ptr<Run> run_;
};

// While one of these lives, the first SIGINT, SIGTERM or SIGHUP only asks: whoever waits for a run
// looks at interrupted(), and lets the run go with its temporary folder. A second one ends this
// process at once. What was to be ignored (by nohup) is.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};
int interrupted();          // by which signal; 0: by none
void end_if_interrupted();  // as that signal would have ended this process

// How a run ended, in words for a status line: "finished", "exited with code 3", "stopped",
// "crashed: SIGSEGV, ...", "threw minitensor::Error: ...", "prog.cpp does not compile".
std::string words(const Ended& ended);

}  // namespace viewer
