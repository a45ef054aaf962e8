// Any bytes as a .npy file.
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::attempt(data, size, [](std::string_view bytes, const mt::files::Source& source) {
    return mt::NamedTensors{{"x", mt::files::read_npy(bytes, source)}};
  });
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  static const std::vector<std::string> good = [] {
    std::vector<std::string> files;
    for (const auto& [name, x] : fuzz::some_tensors())
      files.push_back(mt::files::npy_header(x) + std::string(mt::files::bytes_of_packed(x)));
    return files;
  }();
  return fuzz::mutate(good, data, size, most, seed);
}
