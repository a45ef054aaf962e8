// Put first, by `-include`, into a program that is to be watched; the program itself is unchanged.
// In a process that a viewer has started, the tensors of this thread are told to it from here on,
// and how the program ended by an exception; in any other process this does nothing.
#pragma once

namespace viewer {

struct Attached {
  Attached();  // both in recorder.cpp
  ~Attached();
};

// Made before anything that the program makes, also its global tensors, and gone after them.
inline const Attached attached;

}  // namespace viewer
