// Any bytes as a table.
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::attempt(data, size, [](std::string_view bytes, const mt::files::Source& source) {
    return mt::NamedTensors{
        {"x", mt::files::read_csv(bytes, {.missing_is_nan = true}, source).values}};
  });
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  static const std::vector<std::string> good = {"x,\"y, \"\"far\"\"\"\r\n1,2\r\n# no\r\n,-3e4\r\n",
                                                "1,2\n\"3\",NA\n", "inf\n"};
  return fuzz::mutate(good, data, size, most, seed);
}
