// Which part of a long run a trace keeps.
#pragma once

#include <atomic>
#include <memory>

#include "viewer/trace.hpp"

namespace viewer {

// Keeps a trace of a long run within bounds while it is collected: of the episodes that have ended
// only those stay in full that the schedule names. Used by whoever adds records to a trace.
class Keeper {
 public:
  Keeper();
  ~Keeper();
  // As viewer::add, and thins the trace where an episode has just ended. Event indices never
  // change: what is not kept becomes a null pointer in Trace::events.
  void add(Trace&, Record&&);
  // The episode that the reader looks at: it stays. From any thread.
  void stand_in(int episode) { standing_ = episode; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::atomic<int> standing_{1};
};

// Whether the schedule keeps episode `number` in full: all up to 64, then 32 a doubling.
bool schedule_keeps(int number);

}  // namespace viewer
