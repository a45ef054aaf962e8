// A library for Python's ctypes: it keeps one tensor, shares it, or takes one that Python shares.
// (The pointers that travel are those inside of Python's DLPack capsules.)
#include "minitensor_files.hpp"

namespace {

mt::Tensor kept;
std::string text;
int let_go_of = 0;
float numbers[6];

}  // namespace

extern "C" {

// The numbers 0 to 5 as a [3, 2] view with strides [1, 3] of memory that is counted when it goes.
DLManagedTensor* share() {
  for (int i = 0; i < 6; ++i) numbers[i] = static_cast<float>(i);
  kept = mt::from_blob(numbers, {2, 3}, {}, [] { ++let_go_of; }).t();
  return mt::to_dlpack(kept);
}
DLManagedTensor* share_again() { return mt::to_dlpack(kept); }
int times_let_go() { return let_go_of; }

// "" or why it cannot be taken.
const char* take(DLManagedTensor* managed) {
  try {
    kept = mt::from_dlpack(managed);
    text = "";
  } catch (const mt::Error& error) {
    text = error.what();
  }
  return text.c_str();
}
void let_go() { kept = mt::Tensor(); }

// "float32 [3, 2] strides [1, 3]: 0 3 1 4 2 5"
const char* describe() {
  std::ostringstream words;
  words << kept.dtype() << ' ' << kept.shape() << " strides " << kept.stride() << ':';
  for (const double number : kept.to_vector()) words << ' ' << number;
  text = words.str();
  return text.c_str();
}
void set(int i, int j, double value) { kept.at({i, j}).fill_(value); }
}
