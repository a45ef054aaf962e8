// A run: a program in a process of its own, and the trace that it leaves.
//
//   auto run = Process::start({.arguments = {"minitensor", "play", "05"}});   or
//   auto run = Process::start(compiled("prog.cpp", tools));                   a student's file, compiled first
//   ...
//   std::shared_ptr<const Trace> trace = run->latest();                       once a frame; never waits
//
// Everything slow happens on the run's own thread: it compiles, starts the program, reads its pipe and publishes the
// trace by swapping one pointer. Once the program has ended, the trace's last event is Ended and says how; that is so
// however it ended, also when it did not compile or could not be started. A run leaves no process behind: when the
// program ends, is stopped, or this object goes, its whole process group goes.
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
  std::vector<std::string> compiler = {};  // if not empty: the arguments of the compiler, run first
  std::string compiled_file = {};          // then: the student's file, for the words about it
  std::string folder = {};                 // then: made for the compiler, removed with the run
};

// Where the compiler and our side of a watched program are.
struct Tools {
  std::string compiler = "c++";
  std::string repository;       // holds minitensor.hpp and viewer/attach.hpp
  std::string attach_library;   // built from viewer/recorder.cpp and trace.cpp; used if newer than they and the header,
                                // else they are compiled along (a few seconds more)
};

// A student's own program: `file` compiled unchanged with -std=c++20 -g -O1 and watched, then run with `arguments`.
// `flags` go to the compiler behind ours. Reads and makes no file yet, except a folder for the program.
Command compiled(const std::string& file, const Tools& tools, const std::vector<std::string>& flags = {},
                 const std::vector<std::string>& arguments = {});

struct RunOptions {
  bool echo = false;                   // pass what the program prints on to our own standard output
  std::int64_t budget = 256 << 20;     // bytes of snapshots in full; beyond that only statistics
  std::function<void()> changed = {};  // called on the run's thread after each publication, at most 30 times a second
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

  // What is known so far. Never null, and never waits for the program. Once stage() is ended it is complete.
  std::shared_ptr<const Trace> latest() const;

  // Kills the program and all that it started. Returns at once; the trace then ends with `stopped`.
  void stop();

  // Returns when the run has ended, or when the time is over: then false.
  bool wait(std::chrono::milliseconds most = std::chrono::hours(24 * 365));

 private:
  struct Run;  // shared by this object and its thread
  explicit Process(std::unique_ptr<Run> run);
  std::unique_ptr<Run> run_;
};

// How a run ended, as one sentence fit for a status line: "finished", "exited with code 3", "crashed: SIGSEGV",
// "threw mt::Error: ...", "stopped", "prog.cpp does not compile".
std::string words(const Ended& ended);

}  // namespace viewer
