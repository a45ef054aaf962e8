// What a test can ask of the stand-in's card, and what the card refuses:
//
//   - memory is exactly as large as it was asked for, and filled with 0xff (NaN, -1): a step beyond
//     it is found by AddressSanitizer, and what nobody has written shows;
//   - only kernels and copies may touch it: to the processor it is closed, as the processor's
//     elements are to kernels;
//   - the threads of a block, and the blocks of a grid, run in the order that the test asks for:
//     what needs a barrier and has none gives different results;
//   - a barrier (or shuffle) that some threads reach and others do not, or at two places at once,
//     is an error that names the places.
//
// What it does not notice: a kernel that reads what else the processor has, such as a variable on
// its stack (a real card would stop), and anything about speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

namespace card {

enum class Order { forward, backward, shuffled };

struct Settings {
  Order order = Order::forward;
  int cards = 2;
  std::size_t memory = std::size_t{1} << 30;  // of each
  // Whether cudaMallocAsync is there. kernels.cu asks once, so another program has to have none.
  bool pools = std::getenv("CARD_WITHOUT_POOLS") == nullptr;
};
inline Settings settings;

std::size_t allocations();  // that are alive
std::int64_t launches();    // so far
std::int64_t bytes_home();  // copied to the processor so far
std::size_t bytes_in_use();

using Size = std::array<unsigned, 3>;

// Runs `thread` for each thread of the grid. Returns a cudaError_t.
int run(Size grid, Size block, const std::function<void()>& thread);

void wait_for_block(const char* file, int line);
// What the thread of this lane hands over, or the value itself where there is no such lane.
std::uint64_t shuffle(std::uint64_t value, unsigned lane, const char* file, int line);

// While one of these lives, the card's memory is open.
class Open {
 public:
  Open();
  ~Open();
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
};

}  // namespace card
