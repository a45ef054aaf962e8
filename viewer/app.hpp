// The window: opens it, runs a lesson or a program beside it, and returns when the reader closes
// it.
#pragma once

#include "viewer/options.hpp"

namespace viewer {

// The exit code: 0, or 2 after one sentence on stderr when there is no display or no such target.
int run_app(const AppOptions& options);

}  // namespace viewer
