// What the tests of files share: NumPy beside us, to read what we write and to write what we read.
#pragma once

#include <bit>
#include <cmath>
#include <iostream>
#include <sstream>
#include <string>

#include "minitensor_files.hpp"
#include "tests/shell.hpp"
#include "tests/tensors.hpp"

namespace files_of_tests {

// True if Debian's python3 has this module; otherwise the test is skipped, and says so.
inline bool python_has(const std::string& module) {
  const bool there = shell::run("/usr/bin/python3 -c 'import " + module + "'").exit_code == 0;
  if (!there) std::cout << "skipped: " << module << " is not installed for /usr/bin/python3\n";
  return there;
}

// Begins every script: describe(array, dtype) tells an array converted to one of our dtypes, with
// the bits of each element, so that nothing is lost in decimals.
inline const char* const prelude = R"(
import io, json, struct, sys, warnings, zipfile
import numpy as np
warnings.simplefilter('ignore')

def describe(array, dtype=None):
    array = np.asarray(array)
    array = array.astype(dtype or array.dtype.name)
    words = []
    for element in array.ravel(order='C'):
        bits = {'float32': 'u4', 'float64': 'u8', 'int64': 'i8', 'bool': 'u1'}[array.dtype.name]
        words.append('nan' if element != element else str(element.view(bits)))
    return ' '.join([array.dtype.name, str(list(array.shape))] + words)
)";

// What a script prints; it runs in `folder`.
inline std::string python(const shell::TemporaryFolder& folder, const std::string& script) {
  shell::write_file(folder / "script.py", prelude + script);
  const shell::Outcome outcome =
      shell::run("cd '" + folder.path().string() + "' && /usr/bin/python3 script.py");
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return outcome.out;
}

// The same words about a tensor of ours.
inline std::string description(const mt::Tensor& x) {
  std::ostringstream words;
  words << mt::name_of(x.dtype()) << ' ' << mt::to_string(x.shape());
  mt::with_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (const T element : x.to_vector<T>()) {
      words << ' ';
      if constexpr (std::is_same_v<T, float>)
        std::isnan(element) ? words << "nan" : words << std::bit_cast<std::uint32_t>(element);
      else if constexpr (std::is_same_v<T, double>)
        std::isnan(element) ? words << "nan" : words << std::bit_cast<std::uint64_t>(element);
      else
        words << static_cast<std::int64_t>(element);
    }
  });
  return words.str();
}

inline mt::files::Source source(const char* op = "load", const char* name = "a.file") {
  return {name, {op, mt::Loc::here()}};
}

// Every piece that is too short, and every byte changed in several ways, is either a sentence or a
// tensor. `read` gets the bytes in memory of exactly their size, so that the address sanitizer sees
// the first byte too far.
template <class Read>
int sentences_about_damage(const std::string& good, std::size_t bytes_to_change, Read read) {
  int sentences = 0;
  auto attempt = [&](const std::string& bytes) {
    const std::vector<char> exactly(bytes.begin(), bytes.end());
    try {
      static_cast<void>(read(std::string_view(exactly.data(), exactly.size())));
      return false;
    } catch (const mt::Error& error) {
      INFO(error.what());
      CHECK(std::string(error.what()).find("a.file ") != std::string::npos);
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
      ++sentences;
      return true;
    }
  };
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO("the first " << size << " bytes of " << good.size());
    CHECK(attempt(good.substr(0, size)));
  }
  for (std::size_t at = 0; at < std::min(bytes_to_change, good.size()); ++at)
    for (const int change : {0x01, 0x02, 0x10, 0x80, 0xFF, 0x7F}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ change);
      attempt(bytes);
    }
  return sentences;
}

}  // namespace files_of_tests
