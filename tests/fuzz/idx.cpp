// Any bytes as an IDX file.
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::attempt(data, size, [](std::string_view bytes, const mt::files::Source& source) {
    return mt::NamedTensors{{"x", mt::files::read_idx(bytes, source)}};
  });
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  // Bytes [2, 3], the same compressed (gzip.compress in Python), and a float64.
  static const std::vector<std::string> good = {
      std::string("\0\0\x08\2\0\0\0\2\0\0\0\3\0\1\2\x7F\x80\xFF", 18),
      std::string("\037\213\010\000\000\000\000\000\002\003\143\140\340\140\142\140\140\000\141\146"
                  "\006\106\246\372\206\377\000\137\373\117\013\022\000\000\000",
                  35),
      std::string("\0\0\x0E\0\x3F\xF0\0\0\0\0\0\0", 12)};
  return fuzz::mutate(good, data, size, most, seed);
}
