// Any bytes as a .npz archive.
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::attempt(data, size, [](std::string_view bytes, const mt::files::Source& source) {
    return mt::files::read_npz(bytes, source);
  });
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  static const std::vector<std::string> good = [] {
    std::vector<std::string> files;
    for (const bool compressed : {false, MINITENSOR_ZLIB == 1})
      for (const auto& tensors : {fuzz::some_tensors(), mt::NamedTensors{{"x", mt::tensor(true)}}})
        files.push_back(fuzz::bytes_written_by([&](const std::string& path) {
          mt::save_npz(path, tensors, {.compressed = compressed});
        }));
    return files;
  }();
  return fuzz::mutate(good, data, size, most, seed);
}
