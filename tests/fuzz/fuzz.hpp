// What the fuzz targets share. Each file here is one program of clang's libFuzzer:
//
//   clang++ -std=c++20 -O1 -g -I. -fsanitize=fuzzer,address,undefined tests/fuzz/npy.cpp -o npy
//   ./npy -max_total_time=120
//
// npz.cpp also takes -DMINITENSOR_ZLIB and -lz. A target may do one thing with any bytes: read
// them, or throw an Error of one line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "minitensor_files.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace fuzz {

// Reads the bytes. What comes out has to be tensors, and their elements are all touched.
template <class Read>
int attempt(const std::uint8_t* data, std::size_t size, Read read) {
  const mt::files::Source source{"fuzz", {"load", mt::Loc::here()}};
  try {
    const mt::NamedTensors tensors =
        read(std::string_view(reinterpret_cast<const char*>(data), size), source);
    for (const auto& [name, x] : tensors) {
      const std::vector<double> elements = x.to_vector();
      if (static_cast<std::int64_t>(elements.size()) != x.numel()) std::abort();
    }
  } catch (const mt::Error& error) {
    if (std::strchr(error.what(), '\n')) std::abort();
  }
  return 0;
}

// Good files to begin with: chance alone would not find them.
inline mt::NamedTensors some_tensors() {
  return {{"a", mt::tensor({{1., 2.}, {3., 4.}})},
          {"b", mt::tensor({7, 8, 9})},
          {"c", mt::tensor(true)},
          {"d", mt::zeros({0, 3}, {.dtype = mt::float64})}};
}

// The bytes that `save` writes to the path it is given.
template <class Save>
std::string bytes_written_by(Save save) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("minitensor-fuzz-" + std::to_string(std::random_device()()));
  save(path.string());
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  file.close();
  std::filesystem::remove(path);
  return bytes;
}

// A changed input; where there is next to nothing to change, a good file instead.
inline std::size_t mutate(const std::vector<std::string>& good, std::uint8_t* data,
                          std::size_t size, std::size_t most, unsigned seed) {
  if (size < 8 || seed % 1024 == 0) {
    const std::string& file = good[seed / 1024 % good.size()];
    size = std::min(file.size(), most);
    std::memcpy(data, file.data(), size);
  }
  return LLVMFuzzerMutate(data, size, most);
}

}  // namespace fuzz
