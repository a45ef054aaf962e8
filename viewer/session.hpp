// One lesson or one file, run in a process of its own, and run anew when the file is saved. Knows
// neither a window nor ImGui.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "viewer/desk.hpp"
#include "viewer/options.hpp"
#include "viewer/process.hpp"

namespace viewer {

class Session {
 public:
  // `wake` is called on another thread whenever there is something new to be shown.
  Session(const AppOptions& options, std::function<void()> wake);

  // Opens the lesson or the file of that name. Answers false if there is none.
  bool open(const std::string& target, Desk& desk);
  void open_lesson(std::size_t lesson, Desk& desk);

  // Once a frame: takes over what is new. Never waits. Answers true if what is shown may have
  // changed.
  bool update(Desk& desk, double now);

  void stop();
  bool running() const { return process_ != nullptr && process_->running(); }
  bool failed() const;         // it has ended, and not as it should
  std::string status() const;  // "running", "finished", "crashed: SIGSEGV"
  // Why what was to be selected is not, once the run has ended; else empty.
  std::string not_selected(const Desk& desk) const;

  const Timeline& timeline() const { return timeline_; }
  const MadeAt& made_at() const { return made_at_; }
  Stage& stage() { return *stage_; }
  std::string title() const;  // "05  The chain rule"
  std::string name() const;   // "05_chain_rule"; "mine" for mine.cpp
  // The command that opens the viewer at a cursor: "./run view 05 --step 13".
  std::string command(Cursor cursor) const;

 private:
  void start(Desk& desk);
  bool take_over(const std::shared_ptr<const Trace>& trace);
  void place_cursor(Desk& desk);
  void select_by_name(Desk& desk);
  bool saved_since(double now);

  const AppOptions& options_;
  std::function<void()> wake_;
  std::vector<std::string> arguments_;  // for the program
  std::optional<std::size_t> lesson_;
  std::string file_;  // a program of the reader's own
  std::filesystem::file_time_type file_time_;
  double looked_at_ = -1;  // when the file's time was last asked for

  std::unique_ptr<Process> process_;
  std::vector<std::unique_ptr<Process>> leaving_;  // stopped, and not gone yet
  std::shared_ptr<const Trace> trace_;             // that the timeline has read
  Timeline timeline_;
  MadeAt made_at_;
  std::size_t events_read_ = 0;
  std::unique_ptr<Stage> stage_ = std::make_unique<Stage>();
  bool fresh_ = false;  // the timeline still shows the run before
  Process::Stage stage_seen_ = Process::Stage::ended;

  struct Wanted {
    int episode = 1;
    std::int64_t step = 0;
  };
  std::optional<Wanted> wanted_;  // where the cursor is to stand, once the run has come so far
  Cursor placed_;                 // where it stood after the last update
  std::string wanted_name_;       // the tensor to be selected, likewise
};

}  // namespace viewer
