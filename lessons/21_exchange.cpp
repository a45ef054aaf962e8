// 21  Exchange: a tensor goes to a file and comes back, and two owners look at one memory.
#include <filesystem>
#include <fstream>
#include <random>

#include "lessons/lesson.hpp"
#include "minitensor_files.hpp"

using namespace mt;
using namespace lesson;

LESSON("21_exchange", "Files and shared memory", "Practice") {
  say("What a program has learnt should outlive it, and most data were somebody else's first. So "
      "tensors travel: as a copy, in a file, or without one, when two libraries in one process "
      "look at the same memory.");

  auto w = tensor({{1., 2., 3.}, {4., 5., 6.}}).named("w");
  show(w);

  const auto name = "minitensor-" + std::to_string(std::random_device()()) + ".npy";
  const std::string path = (std::filesystem::temp_directory_path() / name).string();
  save_npy(path, w);

  say("This is NumPy's format, and np.load reads it in Python. What stands at its beginning can be "
      "read with the naked eye: type, order and shape. '<f4' are floats of 4 bytes, the least "
      "significant one first.");
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::getline(file, line);
  std::cout << line.substr(line.find('{'), line.find('}') - line.find('{') + 1) << '\n';
  ask("The beginning is 128 bytes long. How long is the whole file?", 128 + 6 * 4,
      {"How many numbers are there, and how long is one?", "6 numbers of 4 bytes each."});
  std::cout << "bytes in the file: " << std::filesystem::file_size(path) << '\n';

  auto back = load_npy(path).named("back");
  show(back);
  std::cout << "back is w's memory: " << (back.shares_storage_with(w) ? "yes" : "no") << '\n';

  say("Files arrive damaged. Here the last byte of ours is cut off, and the reader says so, before "
      "it makes a tensor.");
  std::filesystem::resize_file(path, 128 + 6 * 4 - 1);
  try {
    back = load_npy(path);
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::size_t begin = text.find("is cut short"), end = text.find(", and");
    std::cout << "the file " << text.substr(begin, end - begin) << '\n';
  }
  std::filesystem::remove(path);

  say("Now without a copy. These six numbers belong to a plain std::vector; a camera or another "
      "library would do as well. from_blob lays a tensor over them.");
  std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  auto shared = from_blob(numbers.data(), {2, 3}).named("shared");
  shared.mul_(10);
  std::cout << "the vector's last number: " << numbers[5] << '\n';
  numbers[0] = 7;
  show(shared);

  say("The tensor does not own this memory: the vector has to live longer. Between libraries that "
      "is the hard part, and DLPack is the agreement about it: a small record with the pointer, "
      "the shape, the strides, and a function to call when one is done. to_dlpack(x) makes one "
      "for NumPy or PyTorch, from_dlpack(record) takes one of theirs. Here we are both sides: what "
      "the receiver writes, the vector has.");
  // Where dlpack.h is not installed, a second tensor over the vector plays the receiver.
  auto received =
      (MINITENSOR_DLPACK ? from_dlpack(to_dlpack(shared)) : from_blob(numbers.data(), {2, 3}))
          .named("received");
  received.add_(1);
  std::cout << "the vector's last number now: " << numbers[5] << '\n';

  say("Challenge: save w.t() instead of w. What changes in the header, the shape or the order? "
      "Then save it from Python with np.save(path, w.T), and read that header.");
  say("The road not taken: Python's pickle stores any object, by storing instructions that make "
      "it again. Whoever loads such a file runs what somebody wrote into it. A format of numbers "
      "alone, as .npy and safetensors are, can be wrong, but it cannot do anything.");
}

// What it prints with --brief, held by CTest:
//
// expect: w = [2, 3], from 1 to 6
// expect: w = tensor([[1., 2., 3.],
// expect: [4., 5., 6.]])
// expect: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
// expect: Answer: 152
// expect: bytes in the file: 152
// expect: back = [2, 3], from 1 to 6
// expect: back = tensor([[1., 2., 3.],
// expect: [4., 5., 6.]])
// expect: back is w's memory: no
// expect: the file is cut short: [2, 3] elements of type "<f4" are 24 bytes
// expect: shared = [2, 3], from 1 to 6
// expect: shared is now [2, 3], from 10 to 60 (mul_)
// expect: the vector's last number: 60
// expect: shared = tensor([[ 7., 20., 30.],
// expect: [40., 50., 60.]])
// expect: received = [2, 3], from 7 to 60
// expect: received is now [2, 3], from 8 to 61 (add_)
// expect: the vector's last number now: 61
