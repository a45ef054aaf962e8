// Files of other programs: NumPy's .npy and .npz, safetensors, IDX, CSV; and memory shared with
// NumPy and PyTorch (DLPack). MIT licence.
#pragma once

// This header stands beside minitensor.hpp and reads from top to bottom as well.
//
//     #include "minitensor_files.hpp"
//     using namespace mt;
//
//     save_npy("x.npy", x);                        // np.load("x.npy") in Python
//     Tensor x = load_npy("x.npy");
//     save_npz("both.npz", {{"w", w}, {"b", b}});  // np.load("both.npz")["w"]
//     save_safetensors("both.safetensors", {{"w", w}, {"b", b}});
//     Tensor images = load_idx("train-images-idx3-ubyte.gz").to(float32) / 255;
//     auto [names, values] = load_csv("measured.csv");
//     DLManagedTensor* shared = to_dlpack(x);      // the same memory, no copy
//
// A file may come from anywhere, so nothing in it is believed: every length is compared with the
// bytes that are there before memory is asked for, and what does not add up is one sentence that
// names the file. A file is read as a whole, which takes its size once more while it is read.
//
// Our four dtypes are written as they are. Others are read as the nearest of ours that holds all
// their values: half precision as float32, small integers as int64.
//
// Three packages may be missing. Whatever needs one of them then says so when it is called.
//   zlib            compressed .npz and IDX: compile with -DMINITENSOR_ZLIB and link with -lz
//   nlohmann-json   safetensors: found by itself
//   dlpack          to_dlpack and from_dlpack: found by itself
//
// Contents
//   Bytes         a cursor that knows where a file ends
//   Elements      the number types of files, and ours
//   Files         read as a whole, replaced as a whole
//   .npy          one tensor
//   .npz          several, in a ZIP archive
//   safetensors   several, with text about them
//   IDX           one tensor, as MNIST has it
//   CSV           a table of numbers
//   DLPack        memory shared within one process
//   Batches       made by a second thread

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <locale>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minitensor.hpp"

#ifndef MINITENSOR_ZLIB
#define MINITENSOR_ZLIB 0
#endif
#ifndef MINITENSOR_JSON
#if __has_include(<nlohmann/json.hpp>)
#define MINITENSOR_JSON 1
#else
#define MINITENSOR_JSON 0
#endif
#endif
#ifndef MINITENSOR_DLPACK
#if __has_include(<dlpack/dlpack.h>)
#define MINITENSOR_DLPACK 1
#else
#define MINITENSOR_DLPACK 0
#endif
#endif

#if MINITENSOR_ZLIB
#include <zlib.h>
#endif
#if MINITENSOR_JSON
#include <nlohmann/json.hpp>
#endif
#if MINITENSOR_DLPACK
#include <dlpack/dlpack.h>
#else
struct DLManagedTensor;
#endif

namespace minitensor {

// Tensors by name. A name that is not there is refused: `emplace(name, tensor)` adds one.
struct NamedTensors : std::map<std::string, Tensor> {
  using map::map;
  const Tensor& operator[](const WantedName& wanted) const {
    if (const auto found = find(std::string(wanted.name)); found != end()) return found->second;
    fail_no_name(*this, wanted);
  }
  Tensor& operator[](const WantedName& wanted) {
    return const_cast<Tensor&>(std::as_const(*this)[wanted]);
  }
};
using Metadata = std::map<std::string, std::string>;

namespace files {

static_assert(std::endian::native == std::endian::little,
              "these files are little-endian, and are written as they lie in memory");

// ---- Bytes --------------------------------------------------------------------------------------

// What is being read, for messages: the file's name, and who reads it.
struct Source {
  std::string name;
  At at;
};

[[noreturn]] inline void refuse(const Source& source, Words what, Words hint = {}) {
  std::string text;
  for (const Word& word : what) word.append_to(text);
  fail(source.at, {source.name, " ", text}, hint);
}

// A few characters of what stands in a file, in quotes, so that a sentence stays a sentence.
inline std::string excerpt(std::string_view text) {
  std::string shown(text.substr(0, 40));
  for (char& letter : shown)
    if (letter < ' ' || letter > '~') letter = '?';
  return '"' + shown + (text.size() > 40 ? "...\"" : "\"");
}

// Walks through bytes. Whoever asks for more than there are is told what was being read.
class Cursor {
 public:
  Cursor(std::string_view bytes, const Source& source) : rest_(bytes), source_(source) {}
  std::string_view take(std::uint64_t count, const char* what) {
    if (count > rest_.size())
      refuse(source_, {"ends within ", what, ": it is damaged, or was not copied completely"});
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  template <class T>
  T number(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
  const Source& source_;
};

// The bytes of a number as they stand in a file.
template <class T>
void append_bytes(std::string& to, T number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// ---- Elements -----------------------------------------------------------------------------------

// IEEE 754-2008, binary16: a sign, 5 bits of exponent with bias 15, 10 bits of fraction.
inline float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, fraction = bits & 0x3FFu;
  const int exponent = bits >> 10 & 31;
  if (exponent == 31)  // infinity, and NaN with its payload
    return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  const int whole = static_cast<int>(fraction) + (exponent > 0 ? 1024 : 0);
  const float size = std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - 25);
  return sign ? -size : size;
}
// bfloat16 is the upper half of a float32.
inline float bfloat_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
template <class Stored>
std::int64_t to_int64(Stored number) {
  return number;
}
template <class Stored>
Stored unchanged(Stored number) {
  return number;
}
inline bool truth(std::uint8_t byte) { return byte != 0; }  // a C++ bool that is 2 would be worse

template <class Stored, auto convert>
void read_elements(std::byte* to, const char* from, std::int64_t count, bool big_endian) {
  using T = decltype(convert(Stored{}));
  for (std::int64_t i = 0; i < count; ++i, from += sizeof(Stored)) {
    std::array<char, sizeof(Stored)> bytes;
    std::memcpy(bytes.data(), from, bytes.size());
    if (big_endian) std::reverse(bytes.begin(), bytes.end());
    reinterpret_cast<T*>(to)[i] = convert(std::bit_cast<Stored>(bytes));
  }
}

// One kind of number: its names in .npy, safetensors and IDX (0: it has none), its size there, and
// what it is here. The first row of each dtype is the one that is written.
struct Kind {
  std::string_view npy, safetensors;
  int idx;
  std::int64_t bytes;
  DType dtype;
  void (*read)(std::byte* to, const char* from, std::int64_t count, bool big_endian);
};
inline constexpr Kind kinds[] = {
    {"f4", "F32", 0x0D, 4, float32, read_elements<float, unchanged<float>>},
    {"f2", "F16", 0, 2, float32, read_elements<std::uint16_t, half_to_float>},
    {"", "BF16", 0, 2, float32, read_elements<std::uint16_t, bfloat_to_float>},
    {"f8", "F64", 0x0E, 8, float64, read_elements<double, unchanged<double>>},
    {"i8", "I64", 0, 8, int64, read_elements<std::int64_t, unchanged<std::int64_t>>},
    {"i4", "I32", 0x0C, 4, int64, read_elements<std::int32_t, to_int64<std::int32_t>>},
    {"i2", "I16", 0x0B, 2, int64, read_elements<std::int16_t, to_int64<std::int16_t>>},
    {"i1", "I8", 0x09, 1, int64, read_elements<std::int8_t, to_int64<std::int8_t>>},
    {"u4", "U32", 0, 4, int64, read_elements<std::uint32_t, to_int64<std::uint32_t>>},
    {"u2", "U16", 0, 2, int64, read_elements<std::uint16_t, to_int64<std::uint16_t>>},
    {"u1", "U8", 0x08, 1, int64, read_elements<std::uint8_t, to_int64<std::uint8_t>>},
    {"b1", "BOOL", 0, 1, boolean, read_elements<std::uint8_t, truth>},
};

inline const Kind* kind_named(std::string_view Kind::*column, std::string_view name) {
  for (const Kind& kind : kinds)
    if (!name.empty() && kind.*column == name) return &kind;
  return nullptr;
}
inline const Kind& kind_of_ours(DType dtype) {
  return *std::find_if(std::begin(kinds), std::end(kinds),
                       [&](const Kind& kind) { return kind.dtype == dtype; });
}

// The bytes that elements of this shape take in a file.
inline std::uint64_t bytes_for(const Shape& shape, const Kind& kind, const Source& source) {
  double elements = 1;
  for (std::int64_t size : shape) elements *= static_cast<double>(std::max<std::int64_t>(size, 1));
  if (elements > 1e15)
    refuse(source, {"claims the shape ", shape, ", which has too many elements for any memory"});
  return static_cast<std::uint64_t>(shape.numel() * kind.bytes);
}

// The tensor whose elements these bytes are; there are as many as `bytes_for` says.
inline Tensor tensor_from(std::string_view bytes, const Shape& shape, const Kind& kind,
                          bool big_endian = false) {
  Tensor x = fresh(shape, kind.dtype);
  kind.read(x.elements().data, bytes.data(), x.numel(), big_endian);
  return x;
}

// A tensor whose elements lie densely in the processor's memory: x itself if it is one.
inline Tensor packed(const Tensor& x) {
  return x.device() == cpu && x.is_contiguous() ? x : copy_of(x, x.dtype(), cpu);
}
inline std::string_view bytes_of_packed(const Tensor& x) {
  return {reinterpret_cast<const char*>(x.elements().data),
          static_cast<std::size_t>(x.numel() * bytes_of(x.dtype()))};
}

// What is to be saved has to be there.
inline void check_tensors(const NamedTensors& tensors, const At& at) {
  for (const auto& [name, x] : tensors)
    if (!x.defined())
      fail(at, {"the tensor ", excerpt(name), " is undefined"}, {"ask defined() first"});
}

// ---- Files --------------------------------------------------------------------------------------

inline std::string read_file(const Source& source) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path = source.name;
  if (!fs::exists(path, error))
    fail(source.at, {"there is no file ", source.name}, {"is the name right, seen from here?"});
  if (!fs::is_regular_file(path, error)) refuse(source, {"is not a file"});
  const std::uintmax_t size = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) refuse(source, {"cannot be opened: ", std::strerror(errno)});

  std::string bytes;
  try {
    bytes.resize(static_cast<std::size_t>(size));
  } catch (const std::exception&) {  // too long for a string, or too large for the memory
    refuse(source, {"is larger than the memory"});
  }
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size)))
    refuse(source, {"could not be read to its end"});
  return bytes;
}

// A file in the making. It is written under another name beside its place and moved there when it
// is complete, so that at any moment the old file or the new one is there, whole.
class NewFile {
 public:
  explicit NewFile(const Source& source) : source_(source), target_(source.name) {
    namespace fs = std::filesystem;
    std::error_code none;
    if (fs::is_symlink(target_, none)) target_ = fs::weakly_canonical(target_, none);
    const fs::file_status before = fs::status(target_, none);
    if (fs::exists(before) && !fs::is_regular_file(before)) refuse(source, {"is not a file"});
    for (int attempt = 0; !file_ && attempt < 100; ++attempt) {
      // Not the target's name and something behind it: that could be longer than names may be.
      temporary_ = target_.parent_path() / (".minitensor.part" + std::to_string(attempt));
      file_ = std::fopen(temporary_.string().c_str(), "wbx");  // x: never one that is there already
      if (!file_ && errno != EEXIST) break;
    }
    if (!file_) refuse(source, {"cannot be written: ", std::strerror(errno)});
    if (fs::exists(before)) fs::permissions(temporary_, before.permissions(), none);
  }
  ~NewFile() {
    std::error_code none;
    if (file_) std::fclose(file_);
    if (!temporary_.empty()) std::filesystem::remove(temporary_, none);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) refuse_to_go_on();
    written_ += bytes.size();
  }
  void move_to_its_place() {
    if (std::fclose(std::exchange(file_, nullptr)) != 0) refuse_to_go_on();
    std::error_code error;
    std::filesystem::rename(temporary_, target_, error);
    if (error) refuse(source_, {"cannot be replaced: ", error.message()});
    temporary_.clear();
  }
  std::uint64_t written() const { return written_; }

 private:
  [[noreturn]] void refuse_to_go_on() const {
    refuse(source_, {"cannot be written: ", std::strerror(errno)});
  }
  const Source& source_;
  std::filesystem::path target_, temporary_;
  std::FILE* file_ = nullptr;
  std::uint64_t written_ = 0;
};

// ---- .npy ---------------------------------------------------------------------------------------
//
// NEP 1 and the documentation of numpy.lib.format. A file is
//
//     \x93NUMPY                  6 bytes
//     version                    2 bytes: 1.0, 2.0 or 3.0
//     length of the header       2 bytes in version 1.0, 4 in the others
//     header                     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//     elements                   in row-major order, or column-major if the header says so
//
// The header is a Python dictionary in text, filled up with spaces so that the elements begin at a
// multiple of 64 bytes.

struct NpyHeader {
  std::string_view descr;  // byte order and kind: "<f4"
  bool fortran_order = false;
  Shape shape;
};

// Reads as much of Python's notation as such a header needs: strings, True and False, tuples of
// integers.
class PythonText {
 public:
  PythonText(std::string_view text, const Source& source) : rest_(text), source_(source) {}
  bool accept(std::string_view word) {
    skip_spaces();
    const bool there = rest_.substr(0, word.size()) == word;
    if (there) rest_.remove_prefix(word.size());
    return there;
  }
  void expect(std::string_view word) {
    if (!accept(word)) refuse_header();
  }
  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }
  std::string_view string() {
    skip_spaces();
    const char quote = rest_.empty() ? ' ' : rest_[0];
    const std::size_t end = rest_.find(quote, 1);
    if ((quote != '\'' && quote != '"') || end == rest_.npos) refuse_header();
    const std::string_view inside = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return inside;
  }
  bool boolean() {
    if (accept("True")) return true;
    expect("False");
    return false;
  }
  Shape tuple() {
    Shape shape;
    expect("(");
    while (!accept(")")) {
      if (shape.size() == Shape::capacity)
        refuse(source_, {"has more than ", Shape::capacity, " dimensions"});
      shape.push_back(size());
      if (!accept(",") && (shape.size() == 1 || rest_.substr(0, 1) != ")")) refuse_header();
    }
    return shape;
  }
  [[noreturn]] void refuse_header() const {
    refuse(source_, {"has a header that cannot be understood, from ", excerpt(rest_), " on"});
  }

 private:
  std::int64_t size() {
    skip_spaces();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) refuse_header();
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    if (rest_.substr(0, 1) == "L") rest_.remove_prefix(1);  // Python 2 wrote 3L
    return value;
  }
  void skip_spaces() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  std::string_view rest_;
  const Source& source_;
};

// The three keys, each once, in any order ("a reader MUST NOT depend on" one).
inline NpyHeader read_npy_header(std::string_view text, const Source& source) {
  NpyHeader header;
  std::set<std::string_view> keys;
  PythonText python(text, source);
  python.expect("{");
  while (!python.accept("}")) {
    const std::string_view key = python.string();
    python.expect(":");
    if (!keys.insert(key).second)
      refuse(source, {"has a header with the key ", excerpt(key), " twice"});
    if (key == "descr" && (python.accept("[") || python.accept("(")))
      refuse(source, {"holds records with several fields, not plain numbers"},
             {"save one field at a time: np.save(path, array['field'])"});
    if (key == "descr")
      header.descr = python.string();
    else if (key == "fortran_order")
      header.fortran_order = python.boolean();
    else if (key == "shape")
      header.shape = python.tuple();
    else
      refuse(source, {"has a header with an unknown key, ", excerpt(key)});
    if (!python.accept(",")) {
      python.expect("}");
      break;
    }
  }
  if (!python.at_end()) python.refuse_header();
  if (keys.size() != 3) refuse(source, {"has a header without descr, fortran_order or shape"});
  return header;
}

// The same elements in row-major order, after they were read as if they had been.
inline Tensor from_column_major(const Tensor& x) {
  Tensor y = fresh(x.shape(), x.dtype());
  View columns = x.elements();
  std::int64_t step = 1;
  for (int i = 0; i < columns.shape.size(); ++i) {
    columns.strides[i] = step;
    step *= columns.shape[i];
  }
  copy(y.elements(), columns);
  return y;
}

inline Tensor read_npy(std::string_view bytes, const Source& source) {
  Cursor file(bytes, source);
  if (file.take(6, "its first 6 bytes") != "\x93NUMPY")
    refuse(source, {"is no .npy file: it does not begin with \\x93NUMPY"});
  const int major = file.number<std::uint8_t>("its version");
  const int minor = file.number<std::uint8_t>("its version");
  if (major < 1 || major > 3 || minor != 0)
    refuse(source, {"has version ", major, ".", minor, " of the format, not 1.0, 2.0 or 3.0"});
  const std::uint32_t length = major == 1 ? file.number<std::uint16_t>("the header's length")
                                          : file.number<std::uint32_t>("the header's length");
  const NpyHeader header = read_npy_header(file.take(length, "its header"), source);

  const std::string_view descr = header.descr;
  const bool ordered = !descr.empty() && std::string_view("<>|=").find(descr[0]) != descr.npos;
  const Kind* kind = kind_named(&Kind::npy, ordered ? descr.substr(1) : "");
  if (!kind)
    refuse(source, {"holds elements of type ", excerpt(descr), ", which has no dtype here"},
           {"in NumPy, array.astype('float32') makes one that has"});

  const std::uint64_t needed = bytes_for(header.shape, *kind, source);
  const std::string_view elements = file.rest();
  if (needed != elements.size())
    refuse(source, {needed > elements.size() ? "is cut short: " : "is too long: ", header.shape,
                    " elements of type ", excerpt(descr), " are ", needed, " bytes, and ",
                    elements.size(), " follow the header"});
  Tensor x = tensor_from(elements, header.shape, *kind, descr[0] == '>');
  return header.fortran_order ? from_column_major(x) : x;
}

// Everything that stands in a file before the elements, in version 1.0.
inline std::string npy_header(const Tensor& x) {
  const Kind& kind = kind_of_ours(x.dtype());
  std::string sizes;
  for (std::int64_t size : x.shape()) sizes += std::to_string(size) + ", ";
  if (x.dim() > 1) sizes.resize(sizes.size() - 2);  // (2, 3), but (2,)
  if (x.dim() == 1) sizes.pop_back();
  std::string text = "{'descr': '" + std::string(kind.bytes == 1 ? "|" : "<") +
                     std::string(kind.npy) + "', 'fortran_order': False, 'shape': (" + sizes +
                     "), }";
  constexpr std::size_t before = 6 + 2 + 2, alignment = 64;
  text.append(alignment - 1 - (before + text.size()) % alignment, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  append_bytes(header, static_cast<std::uint16_t>(text.size()));
  return header + text;
}

}  // namespace files

// Reads NumPy's file of one array, as np.load does: versions 1.0 to 3.0, C and Fortran order, both
// byte orders. The elements become float32 (f2, f4), float64 (f8), int64 (i1 to i8, u1 to u4) or
// boolean (b1); other types, and files that hold more or less than one array, are errors.
inline Tensor load_npy(const std::string& path, Loc loc = Loc::here()) {
  const files::Source source{path, {"load_npy", loc}};
  return end_tensor(files::read_npy(files::read_file(source), source), {}, loc);
}

// Writes a tensor so that np.load gives an array of its shape and dtype: version 1.0, C order. A
// file of this name is replaced when the new one is complete. Gradients are not saved.
inline void save_npy(const std::string& path, const Tensor& x, Loc loc = Loc::here()) {
  const files::Source source{path, {"save_npy", loc}};
  check_together(source.at, {&x});
  const Tensor dense = files::packed(x);
  files::NewFile file(source);
  file.write(files::npy_header(dense));
  file.write(files::bytes_of_packed(dense));
  file.move_to_its_place();
}

// ---- .npz ---------------------------------------------------------------------------------------
//
// A ZIP archive (PKWARE's APPNOTE 6.3) that holds "w.npy" for an array w. It is read from its end:
//
//     header, name, extra field, data    for each member                           PK 3 4
//     directory                          an entry for each member                  PK 1 2
//     Zip64 end record, and its locator  where a number has more than 32 bits      PK 6 6, PK 6 7
//     end record                         where the directory is; then a comment    PK 5 6
//
// What the directory says is what counts. NumPy gives every member's header a Zip64 extra field,
// and the directory one only where it is needed.

namespace files {

// The checksum of ZIP archives (CRC-32, ISO 3309), a byte at a time; `before` continues one.
inline std::uint32_t checksum(std::string_view bytes, std::uint32_t before = 0) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> rows{};
    for (std::uint32_t i = 0; i < rows.size(); ++i) {
      rows[i] = i;
      for (int bit = 0; bit < 8; ++bit) rows[i] = rows[i] >> 1 ^ (rows[i] & 1 ? 0xEDB88320u : 0u);
    }
    return rows;
  }();
  std::uint32_t crc = ~before;
  for (const char byte : bytes)
    crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

#if MINITENSOR_ZLIB
// How compressed bytes begin and end, as zlib counts it: not at all, or with gzip's head and tail.
enum Wrapping { bare = -MAX_WBITS, gzip = 16 + MAX_WBITS };

// What was compressed (RFC 1951), up to a piece that goes beyond `most`; and whether that is the
// whole of it. Memory grows with what is really found.
struct Unpacked {
  std::string bytes;
  bool whole;
};
inline Unpacked unpack_up_to(std::uint64_t most, std::string_view packed, Wrapping wrapping,
                             const Source& source) {
  z_stream stream{};
  if (inflateInit2(&stream, wrapping) != Z_OK) refuse(source, {"needs memory for zlib"});
  std::string bytes;
  int state = Z_OK;
  while (state == Z_OK && bytes.size() <= most) {
    if (stream.avail_in == 0) {
      const std::string_view next = packed.substr(0, 1 << 20);
      packed.remove_prefix(next.size());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(next.data()));
      stream.avail_in = static_cast<uInt>(next.size());
    }
    std::array<char, 1 << 15> piece;
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = inflate(&stream, Z_NO_FLUSH);
    bytes.append(piece.data(), piece.size() - stream.avail_out);
  }
  const bool all_used = packed.empty() && stream.avail_in == 0;
  inflateEnd(&stream);
  return {std::move(bytes), state == Z_STREAM_END && all_used};
}
inline std::string unpack(std::string_view packed, std::uint64_t size, Wrapping wrapping,
                          const Source& source) {
  Unpacked unpacked = unpack_up_to(size, packed, wrapping, source);
  if (!unpacked.whole || unpacked.bytes.size() != size)
    refuse(source, {"is damaged: its compressed bytes do not make ", size});
  return std::move(unpacked.bytes);
}
inline std::string pack(std::string_view head, std::string_view body, const Source& source) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    refuse(source, {"needs memory for zlib"});
  std::string packed;
  packed.resize(deflateBound(&stream, static_cast<uLong>(head.size() + body.size())));
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  for (const std::string_view part : {head, body}) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    stream.avail_in = static_cast<uInt>(part.size());
    deflate(&stream, part.data() == body.data() ? Z_FINISH : Z_NO_FLUSH);
  }
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}
#else
[[noreturn]] inline void refuse_without_zlib(const Source& source) {
  refuse(source, {"would be compressed, and this program was compiled without zlib"},
         {"apt-get install zlib1g-dev, then compile with -DMINITENSOR_ZLIB and link with -lz"});
}
enum Wrapping { bare, gzip };
struct Unpacked {
  std::string bytes;
};
inline Unpacked unpack_up_to(std::uint64_t, std::string_view, Wrapping, const Source& source) {
  refuse_without_zlib(source);
}
inline std::string unpack(std::string_view, std::uint64_t, Wrapping, const Source& source) {
  refuse_without_zlib(source);
}
inline std::string pack(std::string_view, std::string_view, const Source& source) {
  refuse_without_zlib(source);
}
#endif

enum Method : std::uint16_t { stored = 0, deflated = 8 };  // how a member's bytes were packed
constexpr std::uint32_t in_zip64 = 0xFFFFFFFF;             // the number stands elsewhere

struct Member {
  std::string_view name;  // "w.npy"
  std::uint16_t flags = 0, method = stored;
  std::uint32_t crc = 0;
  std::uint64_t packed_size = 0, size = 0, offset = 0;
  std::string_view packed;
};

struct Directory {
  std::uint64_t count = 0, size = 0, offset = 0;
};

inline std::string_view from_offset(std::string_view archive, std::uint64_t offset,
                                    const Source& source) {
  if (offset > archive.size()) refuse(source, {"is damaged: it points behind its own end"});
  return archive.substr(static_cast<std::size_t>(offset));
}

// Where the end record is: the last one whose comment reaches to the end of the archive.
inline std::size_t find_end(std::string_view archive, const Source& source) {
  constexpr std::size_t end_size = 22, longest_comment = 0xFFFF;
  for (std::size_t comment = 0; comment <= longest_comment; ++comment) {
    if (end_size + comment > archive.size()) break;
    const std::size_t at = archive.size() - end_size - comment;
    std::uint16_t claimed = 0;
    std::memcpy(&claimed, archive.data() + at + 20, sizeof claimed);
    if (claimed == comment && archive.substr(at, 4) == "PK\5\6") return at;
  }
  refuse(source, {"is no .npz file, or not the whole of one: the end of a ZIP archive is missing"});
}

inline Directory find_directory(std::string_view archive, const Source& source) {
  constexpr std::size_t locator_size = 20;
  std::size_t at = find_end(archive, source);
  Cursor end(archive.substr(at), source);
  const char* const what = "the end record of the archive";
  end.take(4 + 2 + 2 + 2, what);
  Directory directory;
  directory.count = end.number<std::uint16_t>(what);
  directory.size = end.number<std::uint32_t>(what);
  directory.offset = end.number<std::uint32_t>(what);
  const bool needs_zip64 =
      directory.count == 0xFFFF || directory.size == in_zip64 || directory.offset == in_zip64;
  if (needs_zip64 && at >= locator_size && archive.substr(at - locator_size, 4) == "PK\6\7") {
    Cursor locator(archive.substr(at - locator_size), source);
    locator.take(4 + 4, what);
    at = static_cast<std::size_t>(
        std::min<std::uint64_t>(locator.number<std::uint64_t>(what), archive.size()));
    Cursor record(archive.substr(at), source);
    if (record.take(4, what) != "PK\6\6")
      refuse(source, {"is damaged: its Zip64 record is missing"});
    record.take(8 + 2 + 2 + 4 + 4 + 8, what);
    directory.count = record.number<std::uint64_t>(what);
    directory.size = record.number<std::uint64_t>(what);
    directory.offset = record.number<std::uint64_t>(what);
  }
  if (directory.offset > at || directory.size > at - directory.offset)
    refuse(source, {"is damaged: its directory is not where its end says"});
  return directory;
}

// Numbers that did not fit into an entry of the directory stand in its extra field with the id 1,
// in this order; those that did are left out.
inline void read_zip64(std::string_view extra_field, Member& member, const Source& source) {
  const char* const what = "an extra field of the archive";
  Cursor fields(extra_field, source);
  while (!fields.rest().empty()) {
    const auto id = fields.number<std::uint16_t>(what);
    Cursor field(fields.take(fields.number<std::uint16_t>(what), what), source);
    if (id != 1) continue;
    for (std::uint64_t* number : {&member.size, &member.packed_size, &member.offset})
      if (*number == in_zip64) *number = field.number<std::uint64_t>(what);
  }
}

inline Member read_entry(Cursor& directory, const Source& source) {
  const char* const what = "the directory of the archive";
  if (directory.take(4, what) != "PK\1\2")
    refuse(source, {"is damaged: its directory is unreadable"});
  directory.take(2 + 2, what);
  Member member;
  member.flags = directory.number<std::uint16_t>(what);
  member.method = directory.number<std::uint16_t>(what);
  directory.take(2 + 2, what);
  member.crc = directory.number<std::uint32_t>(what);
  member.packed_size = directory.number<std::uint32_t>(what);
  member.size = directory.number<std::uint32_t>(what);
  const auto name_size = directory.number<std::uint16_t>(what);
  const auto extra_size = directory.number<std::uint16_t>(what);
  const auto comment_size = directory.number<std::uint16_t>(what);
  directory.take(2 + 2 + 4, what);
  member.offset = directory.number<std::uint32_t>(what);
  member.name = directory.take(name_size, what);
  read_zip64(directory.take(extra_size, what), member, source);
  directory.take(comment_size, what);
  return member;
}

// Finds the bytes of a member behind its own header, and where they end.
inline std::uint64_t find_bytes(std::string_view archive, Member& member, const Source& source) {
  const char* const what = "a member of the archive";
  Cursor local(from_offset(archive, member.offset, source), source);
  if (local.take(4, what) != "PK\3\4") refuse(source, {"is damaged: a member is not in its place"});
  local.take(2 + 2 + 2 + 2 + 2 + 4 + 4 + 4, what);
  const auto name_size = local.number<std::uint16_t>(what);
  const auto extra_size = local.number<std::uint16_t>(what);
  if (local.take(name_size, what) != member.name)
    refuse(source, {"is damaged: ", excerpt(member.name), " has another name in its place"});
  local.take(extra_size, what);
  member.packed = local.take(member.packed_size, what);
  return archive.size() - local.rest().size();
}

inline std::vector<Member> read_members(std::string_view archive, const Source& source) {
  const Directory directory = find_directory(archive, source);
  const std::string_view members_bytes =
      archive.substr(0, static_cast<std::size_t>(directory.offset));
  Cursor entries(archive.substr(members_bytes.size(), static_cast<std::size_t>(directory.size)),
                 source);
  std::vector<Member> members;
  while (!entries.rest().empty()) members.push_back(read_entry(entries, source));
  if (members.size() != directory.count)
    refuse(source, {"is damaged: its directory has ", members.size(), " entries and claims ",
                    directory.count});

  // No byte belongs to two members: a small archive of many that share theirs could be endless.
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.offset < b.offset; });
  std::uint64_t end = 0;
  for (Member& member : members) {
    if (member.offset < end) refuse(source, {"has members that overlap"});
    end = find_bytes(members_bytes, member, source);
  }
  return members;
}

inline std::string unpack(const Member& member, const Source& source) {
  if (member.flags & 1) refuse(source, {"is encrypted"});
  if (member.method != stored && member.method != deflated)
    refuse(source, {"is compressed in a way that NumPy does not use, ", member.method});
  if (member.method == stored && member.size != member.packed_size)
    refuse(source, {"is damaged: it is stored as it is and has two sizes"});
  std::string bytes = member.method == stored ? std::string(member.packed)
                                              : unpack(member.packed, member.size, bare, source);
  if (checksum(bytes) != member.crc) refuse(source, {"is damaged: its checksum does not agree"});
  return bytes;
}

inline NamedTensors read_npz(std::string_view archive, const Source& source) {
  constexpr std::string_view ending = ".npy";
  NamedTensors tensors;
  for (const Member& member : read_members(archive, source)) {
    const Source inside{excerpt(member.name) + " in " + source.name, source.at};
    if (!member.name.ends_with(ending)) refuse(inside, {"is no .npy file"});
    const std::string name(member.name.substr(0, member.name.size() - ending.size()));
    if (!tensors.try_emplace(name, read_npy(unpack(member, inside), inside)).second)
      refuse(inside, {"is there twice"});
  }
  return tensors;
}

// The fields that a member's own header and its entry in the directory have in common.
inline std::string common_fields(const Member& member) {
  std::string fields;
  append_bytes(fields, std::uint16_t{20});     // version 2.0 of ZIP is enough to read it
  append_bytes(fields, std::uint16_t{0x800});  // the name is UTF-8
  append_bytes(fields, member.method);
  append_bytes(fields, std::uint32_t{0x210000});  // time and date: 1980-01-01, as NumPy writes
  append_bytes(fields, member.crc);
  append_bytes(fields, static_cast<std::uint32_t>(member.packed_size));
  append_bytes(fields, static_cast<std::uint32_t>(member.size));
  append_bytes(fields, static_cast<std::uint16_t>(member.name.size()));
  append_bytes(fields, std::uint16_t{0});  // no extra field
  return fields;
}

// Writes one member, and appends its entry to the directory.
inline void write_member(NewFile& file, std::string& directory, const std::string& name,
                         const Tensor& x, Method method, const Source& source) {
  const std::string head = npy_header(x);
  const std::string_view body = bytes_of_packed(x);
  Member member;
  member.name = name;
  member.method = method;
  member.crc = checksum(body, checksum(head));
  member.offset = file.written();
  member.size = head.size() + body.size();
  const std::uint64_t most = 0xFFFF0000;
  if (member.size > most || member.offset > most - member.size || name.size() > 0xFF00)
    refuse(source, {"would be larger than the 4 GB of a plain ZIP archive"},
           {"save_safetensors has no such limit, nor has save_npy for one tensor"});
  const std::string packed = method == deflated ? pack(head, body, source) : "";
  member.packed_size = method == deflated ? packed.size() : member.size;

  const std::string fields = common_fields(member);
  file.write("PK\3\4" + fields + name);
  file.write(method == deflated ? std::string_view(packed) : std::string_view(head));
  if (method == stored) file.write(body);

  directory += std::string("PK\1\2\x14\0", 6) + fields;
  directory.append(2 + 2 + 2 + 4, '\0');  // no comment, the first disk, no attributes
  append_bytes(directory, static_cast<std::uint32_t>(member.offset));
  directory += name;
}

}  // namespace files

struct NpzOptions {
  ByName by_name = ByName();
  bool compressed = false;  // as np.savez_compressed does; needs zlib
};

// Reads NumPy's archive of named arrays, stored or compressed, as np.load does: "w.npy" becomes
// the tensor w. Every member is held to its checksum and then to what load_npy asks of a file.
inline NamedTensors load_npz(const std::string& path, Loc loc = Loc::here()) {
  const files::Source source{path, {"load_npz", loc}};
  NamedTensors tensors = files::read_npz(files::read_file(source), source);
  for (auto& [name, x] : tensors) x = end_tensor(std::move(x), {}, loc);
  return tensors;
}

// Writes an archive from which np.load gives arrays of these names, shapes and dtypes. Up to 4 GB.
inline void save_npz(const std::string& path, const NamedTensors& tensors, NpzOptions options = {},
                     Loc loc = Loc::here()) {
  const files::Source source{path, {"save_npz", loc}};
  files::check_tensors(tensors, source.at);
  if (tensors.size() >= 0xFFFF) files::refuse(source, {"would hold more than 65534 tensors"});
  files::NewFile file(source);
  std::string directory;
  for (const auto& [name, x] : tensors)
    files::write_member(file, directory, name + ".npy", files::packed(x),
                        options.compressed ? files::deflated : files::stored, source);

  std::string end("PK\5\6\0\0\0\0", 8);  // the only disk
  for (int i = 0; i < 2; ++i) files::append_bytes(end, static_cast<std::uint16_t>(tensors.size()));
  files::append_bytes(end, static_cast<std::uint32_t>(directory.size()));
  files::append_bytes(end, static_cast<std::uint32_t>(file.written()));
  files::append_bytes(end, std::uint16_t{0});  // no comment
  file.write(directory + end);
  file.move_to_its_place();
}

// ---- safetensors --------------------------------------------------------------------------------
//
// The format of github.com/huggingface/safetensors (README.md, "Format"):
//
//     length of the header     8 bytes
//     header                   {"__metadata__": {"made by": "me"},
//                               "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
//                               ...}
//     elements                 row-major; an offset counts from here
//
// The header is JSON and begins with {; names are not repeated. Every byte behind it belongs to
// exactly one tensor: no overlaps, no holes, nothing left over. A header has at most 100 MB.

namespace files {

#if MINITENSOR_JSON
constexpr std::uint64_t longest_header = 100'000'000;

struct Entry {
  std::string name;
  const Kind* kind;
  Shape shape;
  std::uint64_t begin, end;
};

// JSON as the format has it: three levels are enough, and no name is given twice. Both are checked
// while the text is read, before a hostile one has become something larger.
inline nlohmann::json read_json(std::string_view text, const Source& source) {
  using nlohmann::json;
  std::vector<std::set<std::string>> names;
  auto check = [&](int depth, json::parse_event_t event, json& value) {
    const bool object = event == json::parse_event_t::object_start;
    if (depth > 2 && (object || event == json::parse_event_t::array_start))
      refuse(source, {"has a header with too many brackets inside each other"});
    if (object) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key && !names.back().insert(value).second)
      refuse(source, {"has a header with the name ", excerpt(value.get<std::string>()), " twice"});
    return true;
  };
  if (!text.starts_with('{')) refuse(source, {"has a header that does not begin with {"});
  if (text.find('\0') != text.npos)  // where the library would stop reading
    refuse(source, {"has a header that is no JSON"});
  try {
    return json::parse(text, check);
  } catch (const json::exception&) {
    refuse(source, {"has a header that is no JSON"});
  }
}

// The list of whole numbers under this key.
inline std::vector<std::uint64_t> whole_numbers(const nlohmann::json& entry, const char* key,
                                                const std::string& name, const Source& source) {
  std::vector<std::uint64_t> numbers;
  const auto list = entry.find(key);
  if (list == entry.end() || !list->is_array())
    refuse(source, {"does not give ", excerpt(name), " a ", key, " that is a list"});
  for (const auto& item : *list) {
    if (!item.is_number_unsigned() || item > std::uint64_t{1} << 62)
      refuse(source, {"gives ", excerpt(name), " a ", key, " that is not made of whole numbers"});
    numbers.push_back(item);
  }
  return numbers;
}

inline Entry read_entry(const nlohmann::json& entry, const std::string& name,
                        const Source& source) {
  const auto dtype = entry.find("dtype");
  if (!entry.is_object() || dtype == entry.end() || !dtype->is_string())
    refuse(source, {"does not give ", excerpt(name), " a dtype"});
  const std::string word = *dtype;
  const Kind* kind = kind_named(&Kind::safetensors, word);
  if (!kind)
    refuse(source,
           {"gives ", excerpt(name), " the type ", excerpt(word), ", which has no dtype here"});

  Shape shape;
  for (const std::uint64_t size : whole_numbers(entry, "shape", name, source)) {
    if (shape.size() == Shape::capacity)
      refuse(source, {"gives ", excerpt(name), " more than ", Shape::capacity, " dimensions"});
    shape.push_back(static_cast<std::int64_t>(size));
  }
  const std::vector<std::uint64_t> offsets = whole_numbers(entry, "data_offsets", name, source);
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    refuse(source, {"gives ", excerpt(name), " data_offsets that are not a begin and an end"});
  const std::uint64_t needed = bytes_for(shape, *kind, source);
  if (offsets[1] - offsets[0] != needed)
    refuse(source, {"gives ", excerpt(name), " ", offsets[1] - offsets[0], " bytes, and a ", shape,
                    " of ", word, " has ", needed});
  return {name, kind, shape, offsets[0], offsets[1]};
}

inline void read_metadata(const nlohmann::json& object, Metadata& metadata, const Source& source) {
  if (!object.is_object())
    refuse(source, {"has a __metadata__ that is not made of names and texts"});
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string())
      refuse(source, {"has a __metadata__ that is not made of names and texts"});
    metadata[key] = value;
  }
}

// The tensors in the order of their bytes, which have to be `size` in all.
inline void check_offsets(std::vector<Entry>& entries, std::uint64_t size, const Source& source) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin < end) refuse(source, {"has tensors that overlap, at ", excerpt(entry.name)});
    if (entry.begin > end) refuse(source, {"has a hole before ", excerpt(entry.name)});
    end = entry.end;
  }
  if (end > size)
    refuse(source,
           {"is cut short: its tensors take ", end, " bytes, and ", size, " follow the header"});
  if (end < size) refuse(source, {"has ", size - end, " bytes that belong to no tensor"});
}

inline NamedTensors read_safetensors(std::string_view bytes, Metadata* metadata,
                                     const Source& source) {
  Cursor file(bytes, source);
  const auto length = file.number<std::uint64_t>("the header's length");
  if (length > longest_header)
    refuse(source,
           {"is no safetensors file: its header would have more than ", longest_header, " bytes"});
  const nlohmann::json header = read_json(file.take(length, "its header"), source);
  std::vector<Entry> entries;
  Metadata texts;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__")
      read_metadata(value, texts, source);
    else
      entries.push_back(read_entry(value, name, source));
  }
  check_offsets(entries, file.rest().size(), source);

  NamedTensors tensors;
  for (const Entry& entry : entries)
    tensors.insert_or_assign(
        entry.name,
        tensor_from(file.take(entry.end - entry.begin, "its tensors"), entry.shape, *entry.kind));
  if (metadata) *metadata = std::move(texts);
  return tensors;
}

// The header for these tensors, whose bytes follow in this order. It is filled up with spaces so
// that they begin at a multiple of 8.
inline std::string safetensors_header(const std::vector<std::pair<std::string, Tensor>>& tensors,
                                      const Metadata& metadata, const Source& source) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;
  for (const auto& [name, x] : tensors) {
    const std::uint64_t begin = std::exchange(end, end + bytes_of_packed(x).size());
    const Shape shape = x.shape();
    header[name] = {{"dtype", kind_of_ours(x.dtype()).safetensors},
                    {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())},
                    {"data_offsets", {begin, end}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    refuse(source, {"cannot be written: a name or a text in it is not UTF-8"});
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > longest_header) refuse(source, {"would have a header of more than 100 MB"});
  std::string bytes;
  append_bytes(bytes, static_cast<std::uint64_t>(text.size()));
  return bytes + text;
}
#else
[[noreturn]] inline void refuse_without_json(const Source& source) {
  refuse(source, {"has a header in JSON, and this program was compiled without nlohmann-json"},
         {"apt-get install nlohmann-json3-dev, then compile it again"});
}
inline NamedTensors read_safetensors(std::string_view, Metadata*, const Source& source) {
  refuse_without_json(source);
}
inline std::string safetensors_header(const std::vector<std::pair<std::string, Tensor>>&,
                                      const Metadata&, const Source& source) {
  refuse_without_json(source);
}
#endif

}  // namespace files

// Reads a safetensors file. F32, F16 and BF16 become float32, F64 float64, I64 to I8 and U32 to U8
// int64, BOOL boolean; other types are errors. `metadata` receives the texts that it may contain.
inline NamedTensors load_safetensors(const std::string& path, Metadata* metadata = nullptr,
                                     Loc loc = Loc::here()) {
  const files::Source source{path, {"load_safetensors", loc}};
  NamedTensors tensors = files::read_safetensors(files::read_file(source), metadata, source);
  for (auto& [name, x] : tensors) x = end_tensor(std::move(x), {}, loc);
  return tensors;
}

// Writes a safetensors file with these names, shapes and dtypes, and texts if there are any. Larger
// elements come first, so that each tensor begins at a multiple of its elements' size.
inline void save_safetensors(const std::string& path, const NamedTensors& tensors,
                             const Metadata& metadata = {}, Loc loc = Loc::here()) {
  const files::Source source{path, {"save_safetensors", loc}};
  files::check_tensors(tensors, source.at);
  if (tensors.count("__metadata__"))
    fail(source.at, {"no tensor can have the name __metadata__, which the format keeps for texts"});
  std::vector<std::pair<std::string, Tensor>> ordered;
  for (const auto& [name, x] : tensors) ordered.emplace_back(name, files::packed(x));
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return bytes_of(a.second.dtype()) > bytes_of(b.second.dtype());
  });

  const std::string header = files::safetensors_header(ordered, metadata, source);
  files::NewFile file(source);
  file.write(header);
  for (const auto& [name, x] : ordered) file.write(files::bytes_of_packed(x));
  file.move_to_its_place();
}

// ---- IDX ----------------------------------------------------------------------------------------
//
// The format of the MNIST digits (yann.lecun.com/exdb/mnist, "File formats"):
//
//     0 0                   2 bytes
//     type of the elements  1 byte
//     number of axes        1 byte
//     sizes                 4 bytes each, the most significant one first
//     elements              row-major, their most significant byte first
//
// It is usually compressed as a whole by gzip (RFC 1952).

namespace files {

struct IdxHeader {
  const Kind* kind;
  Shape shape;
};
inline IdxHeader read_idx_header(Cursor& file, const Source& source) {
  const char* const what = "its header";
  if (file.take(2, what) != std::string_view("\0\0", 2))
    refuse(source, {"is no IDX file: it does not begin with two bytes that are 0"});
  const int type = file.number<std::uint8_t>(what), axes = file.number<std::uint8_t>(what);
  const Kind* kind = std::find_if(std::begin(kinds), std::end(kinds),
                                  [&](const Kind& one) { return one.idx == type; });
  if (type == 0 || kind == std::end(kinds))
    refuse(source, {"holds elements of type ", type, ", which IDX does not know"});
  if (axes > Shape::capacity) refuse(source, {"has more than ", Shape::capacity, " dimensions"});
  Shape shape;
  for (int i = 0; i < axes; ++i) {
    std::int64_t size = 0;
    for (const char byte : file.take(4, what)) size = size << 8 | static_cast<std::uint8_t>(byte);
    shape.push_back(size);
  }
  return {kind, shape};
}

// The bytes that gzip compressed. Their header says how many they are, so a small file cannot
// become something endless.
inline std::string unpack_idx(std::string_view packed, const Source& source) {
  const std::string beginning = unpack_up_to(0, packed, gzip, source).bytes;
  Cursor file(beginning, source);
  const IdxHeader header = read_idx_header(file, source);
  const std::uint64_t header_size = beginning.size() - file.rest().size();
  return unpack(packed, header_size + bytes_for(header.shape, *header.kind, source), gzip, source);
}

inline Tensor read_idx(std::string_view bytes, const Source& source) {
  if (bytes.starts_with("\x1F\x8B")) return read_idx(unpack_idx(bytes, source), source);
  Cursor file(bytes, source);
  const auto [kind, shape] = read_idx_header(file, source);
  const std::uint64_t needed = bytes_for(shape, *kind, source);
  if (needed != file.rest().size())
    refuse(source,
           {needed > file.rest().size() ? "is cut short: " : "is too long: ", shape,
            " elements are ", needed, " bytes, and ", file.rest().size(), " follow the header"});
  return tensor_from(file.rest(), shape, *kind, true);
}

}  // namespace files

// Reads a file as MNIST has it, also as it comes, compressed (.gz, with zlib): images [n, 28, 28],
// labels [n]. Bytes and other integers become int64, floats float32 or float64.
inline Tensor load_idx(const std::string& path, Loc loc = Loc::here()) {
  const files::Source source{path, {"load_idx", loc}};
  return end_tensor(files::read_idx(files::read_file(source), source), {}, loc);
}

// ---- CSV ----------------------------------------------------------------------------------------
//
// A table as spreadsheets write it (RFC 4180): a line for each row, commas between its fields. A
// field that holds a comma or a line break stands in double quotes, and a quote in it is doubled.
// Empty lines, and lines that begin with #, are passed over.

struct CsvOptions {
  ByName by_name = ByName();
  DType dtype = float32;
  std::optional<bool> header = {};  // whether names come first; left out: if no number does
  bool missing_is_nan = false;      // otherwise a missing number is an error
  char separator = ',';
};

// `names` is empty if the file has none; `values` is [rows, columns].
struct CsvTable {
  std::vector<std::string> names;
  Tensor values;
};

namespace files {

inline bool is_blank(char letter) { return letter == ' ' || letter == '\t'; }

inline std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Cuts a text into rows of fields.
class CsvRows {
 public:
  CsvRows(std::string_view text, char separator, const Source& source)
      : rest_(text), separator_(separator), source_(source) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // some editors' first mark
  }
  // Goes to the next row; false if there is none.
  bool next() {
    while (!rest_.empty() && pass_over_line()) {
    }
    if (rest_.empty()) return false;
    first_line_ = line_;
    fields_.clear();
    do fields_.push_back(field());
    while (accept(separator_));
    accept_line_end();
    return true;
  }
  const std::vector<std::string>& fields() const { return fields_; }

  // The file, and the line of this row, for a sentence that goes on about it.
  Source here() const {
    return {source_.name + ", line " + std::to_string(first_line_), source_.at};
  }
  Source here(std::size_t column) const {
    return {here().name + ", column " + std::to_string(column + 1) + ":", source_.at};
  }

 private:
  bool accept(char letter) {
    const bool there = rest_.starts_with(letter);
    if (there) rest_.remove_prefix(1);
    return there;
  }
  void accept_line_end() {
    const bool carriage = accept('\r');  // alone or before a line feed
    const bool there = accept('\n') || carriage;
    line_ += there;
  }
  std::size_t line_end() const { return std::min(rest_.find_first_of("\r\n"), rest_.size()); }

  void skip_blanks() {
    while (!rest_.empty() && is_blank(rest_[0]) && rest_[0] != separator_) rest_.remove_prefix(1);
  }

  bool pass_over_line() {
    std::size_t size = 0;
    if (rest_[0] == '#')
      size = line_end();
    else
      while (size < rest_.size() && is_blank(rest_[size]) && rest_[size] != separator_) ++size;
    if (size < rest_.size() && rest_[size] != '\r' && rest_[size] != '\n') return false;
    rest_.remove_prefix(size);
    accept_line_end();
    return true;
  }
  std::string field() {
    skip_blanks();
    if (accept('"')) return quoted_field();
    const char ends[] = {separator_, '\r', '\n'};
    const std::string_view text = rest_.substr(0, rest_.find_first_of({ends, sizeof ends}));
    rest_.remove_prefix(text.size());
    return std::string(without_blanks(text));
  }
  // What follows an opening quote, up to the one that closes it.
  std::string quoted_field() {
    std::string text;
    for (bool open = true; open;) {
      const std::size_t end = rest_.find('"');
      if (end == rest_.npos) refuse(here(fields_.size()), {"a quote is opened and never closed"});
      text += rest_.substr(0, end);
      rest_.remove_prefix(end + 1);
      open = accept('"');
      if (open) text += '"';
    }
    line_ += std::count(text.begin(), text.end(), '\n');
    skip_blanks();
    if (!rest_.empty() && rest_[0] != '\r' && rest_[0] != '\n' && rest_[0] != separator_)
      refuse(here(fields_.size()), {"something follows the closing quote"});
    return text;
  }

  std::string_view rest_;
  const char separator_;
  const Source& source_;
  std::vector<std::string> fields_;
  std::int64_t line_ = 1, first_line_ = 1;
};

// The number in a field: NaN if it is missing, nothing if the field holds something else.
inline std::optional<double> number_in(std::string_view field) {
  for (const std::string_view word : {"", "NA", "N/A", "null", "?"})
    if (field == word) return std::numeric_limits<double>::quiet_NaN();
  if (field.starts_with('+') && !field.starts_with("+-")) field.remove_prefix(1);
  double number = 0;
  const char* const field_end = field.data() + field.size();
  const auto [end, error] = std::from_chars(field.data(), field_end, number);
  if (end != field_end || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) {  // 1e400 is infinite and 1e-400 is 0, as in Python
    std::istringstream text{std::string(field)};
    text.imbue(std::locale::classic());
    text >> number;
    if (std::abs(number) == std::numeric_limits<double>::max())
      number *= std::numeric_limits<double>::infinity();
  }
  return number;
}

// Whether a first row holds names: some of its fields are text, and none is a number.
inline bool holds_names(const std::vector<std::string>& fields) {
  bool text = false;
  for (const std::string& field : fields) {
    const std::optional<double> number = number_in(field);
    if (number && !std::isnan(*number)) return false;
    text = text || !number;
  }
  return text;
}

[[noreturn]] inline void refuse_text(const CsvRows& rows, std::size_t column, bool first) {
  const std::string& field = rows.fields()[column];
  for (const char* separator : {";", "\t"})
    if (field.find(separator) != field.npos)
      refuse(rows.here(column), {excerpt(field), " is not a number"},
             {"write {.separator = '", *separator == '\t' ? "\\t" : ";",
              "'} if that is what stands between its columns"});
  if (first)
    refuse(rows.here(column), {excerpt(field), " is not a number"},
           {"write {.header = true} if the first line holds names"});
  refuse(rows.here(column), {excerpt(field), " is not a number"});
}

inline CsvTable read_csv(std::string_view text, const CsvOptions& options, const Source& source) {
  if (!is_floating(options.dtype))
    fail(source.at, {"its numbers are floats, not ", options.dtype},
         {"values.to(int64) makes integers of them"});
  if (text.find('\0') != text.npos)
    refuse(source, {"is no plain text: it has a byte that is 0"}, {"save it as CSV in UTF-8"});
  CsvTable table;
  std::vector<double> numbers;
  std::int64_t columns = 0, lines = 0;
  for (CsvRows rows(text, options.separator, source); rows.next(); ++lines) {
    const std::vector<std::string>& fields = rows.fields();
    const auto count = static_cast<std::int64_t>(fields.size());
    if (lines == 0) columns = count;
    if (count != columns)
      refuse(rows.here(), {"has another number of columns than the lines before it: ", count,
                           ", not ", columns});
    if (lines == 0 && options.header.value_or(holds_names(fields))) {
      table.names = fields;
      continue;
    }
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::optional<double> number = number_in(fields[i]);
      if (!number) refuse_text(rows, i, lines == 0);
      if (std::isnan(*number) && !options.missing_is_nan)
        refuse(rows.here(i), {"the number is missing"},
               {"write {.missing_is_nan = true} to read it as NaN"});
      numbers.push_back(*number);
    }
  }
  if (lines == 0) refuse(source, {"is empty: there is no line with numbers"});
  const Shape shape(static_cast<std::int64_t>(numbers.size()) / columns, columns);
  table.values = fresh(shape, options.dtype);
  copy(table.values.elements(), {reinterpret_cast<std::byte*>(numbers.data()), float64, shape,
                                 contiguous_strides(shape), cpu});
  return table;
}

}  // namespace files

// Reads a table of numbers: `auto [names, values] = load_csv("measured.csv");`. Fields that are
// empty, NA, N/A, NaN, null or ? are missing numbers. Whatever else is no number is an error that
// names its line and column.
inline CsvTable load_csv(const std::string& path, const CsvOptions& options = {},
                         Loc loc = Loc::here()) {
  const files::Source source{path, {"load_csv", loc}};
  CsvTable table = files::read_csv(files::read_file(source), options, source);
  table.values = end_tensor(std::move(table.values), {}, loc);
  return table;
}

// ---- DLPack -------------------------------------------------------------------------------------
//
// How libraries in one process look at the same memory (dmlc.github.io/dlpack): a small record says
// where elements are, of what type, in which shape and strides, and how to let go of them. Whoever
// gets the record owns it, and calls its deleter once. A write on one side is seen on the other;
// it is not counted in version(), so do not write what a backward pass still needs.

#if MINITENSOR_DLPACK
namespace files {

// The types that both sides have. Version 0.8 of DLPack added booleans, as 6; the names for the
// others are those of every version.
constexpr std::uint8_t dlpack_boolean = 6;
struct SharedType {
  DType dtype;
  std::uint8_t code, bits;
};
inline constexpr SharedType shared_types[] = {{float32, kDLFloat, 32},
                                              {float64, kDLFloat, 64},
                                              {int64, kDLInt, 64},
                                              {boolean, dlpack_boolean, 8}};

// The record that is handed out, and what it has to keep alive.
struct Shared {
  DLManagedTensor managed = {};
  std::array<std::int64_t, Shape::capacity> shape = {}, strides = {};
  Ref<Storage> memory;
};

// From the first element to the last that these strides reach, in elements.
inline std::int64_t reach_of(const Shape& shape, const Shape& strides, const At& at) {
  double last = 0;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] < 2) continue;
    if (strides[i] < 0)
      fail(at, {"the strides ", strides, " run backwards"}, {"share a copy: array.copy()"});
    last += static_cast<double>(shape[i] - 1) * static_cast<double>(strides[i]);
  }
  if (last > 1e15) fail(at, {"the strides ", strides, " reach farther than any memory"});
  return shape.numel() == 0 ? 0 : static_cast<std::int64_t>(last) + 1;
}

// What the record says, if it is something that a tensor can be.
inline View view_of(const DLTensor& there, const At& at) {
  if (there.device.device_type != kDLCPU)
    fail(at, {"the memory has to be the processor's"},
         {"x.cpu() on the other side moves it there"});
  const auto* type =
      std::find_if(std::begin(shared_types), std::end(shared_types), [&](const SharedType& one) {
        return one.code == there.dtype.code && one.bits == there.dtype.bits &&
               there.dtype.lanes == 1;
      });
  if (type == std::end(shared_types))
    fail(at,
         {"the elements (DLPack's type ", there.dtype.code, ", ", there.dtype.bits,
          " bits) have no dtype here"},
         {"float32, float64, int64 and bool can be shared"});
  if (there.ndim < 0 || there.ndim > Shape::capacity || (there.ndim > 0 && !there.shape))
    fail(at, {"a tensor has at most ", Shape::capacity, " dimensions, not ", there.ndim});

  View view;
  view.dtype = type->dtype;
  for (int i = 0; i < there.ndim; ++i) view.shape.push_back(there.shape[i]);
  check_sizes(view.shape, at);
  view.strides = contiguous_strides(view.shape);
  for (int i = 0; there.strides && i < there.ndim; ++i) view.strides[i] = there.strides[i];
  if (there.data) view.data = static_cast<std::byte*>(there.data) + there.byte_offset;
  if (!view.data && view.shape.numel() > 0) fail(at, {"the pointer to the memory is null"});
  if (reinterpret_cast<std::uintptr_t>(view.data) %
      static_cast<std::uintptr_t>(bytes_of(view.dtype)))
    fail(at, {"the elements do not begin at a multiple of their size"},
         {"share a copy: array.copy()"});
  return view;
}

}  // namespace files

// A record of x's memory, shape and strides, for another library; its memory lives until the
// record's deleter was called and the last tensor here is gone. Nothing is copied. In Python it
// becomes a capsule: PyCapsule_New(pointer, "dltensor", nullptr).
inline DLManagedTensor* to_dlpack(const Tensor& x, Loc loc = Loc::here()) {
  const At at{"to_dlpack", loc};
  check_together(at, {&x});
  if (x.requires_grad())
    fail(at, {"the tensor is part of a graph, which the other side would not see"},
         {"share x.detach()"});
  if (x.device() != cpu)
    fail(at, {"the memory has to be the processor's"}, {"share x.cpu(), which is a copy"});

  auto* const shared = new files::Shared;
  const View& view = x.elements();
  std::copy(view.shape.begin(), view.shape.end(), shared->shape.begin());
  std::copy(view.strides.begin(), view.strides.end(), shared->strides.begin());
  shared->memory = x.get().storage;
  for (const files::SharedType& type : files::shared_types)
    if (type.dtype == view.dtype) shared->managed.dl_tensor.dtype = {type.code, type.bits, 1};
  shared->managed.dl_tensor.data = view.data;
  shared->managed.dl_tensor.device = {kDLCPU, 0};
  shared->managed.dl_tensor.ndim = view.shape.size();
  shared->managed.dl_tensor.shape = shared->shape.data();
  shared->managed.dl_tensor.strides = shared->strides.data();
  shared->managed.manager_ctx = shared;
  shared->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<files::Shared*>(self->manager_ctx);
  };
  return &shared->managed;
}

// A tensor over memory that another library shares, with its shape and strides. Nothing is copied.
// The record is ours from here on, and its deleter is called when the last tensor that uses the
// memory is gone; if this throws, the record is still the caller's.
inline Tensor from_dlpack(DLManagedTensor* managed, Loc loc = Loc::here()) {
  const At at{"from_dlpack", loc};
  if (!managed) fail(at, {"the pointer to the record is null"});
  const View view = files::view_of(managed->dl_tensor, at);
  const std::int64_t bytes = files::reach_of(view.shape, view.strides, at) * bytes_of(view.dtype);
  Ref<Storage> memory = Storage::around(view.data, bytes, [managed] {
    if (managed->deleter) managed->deleter(managed);
  });
  return end_tensor(Tensor(Ref<TensorData>::make(view, std::move(memory))), {}, loc);
}
#else
[[noreturn]] inline void fail_without_dlpack(const At& at) {
  fail(at, {"this program was compiled without dlpack/dlpack.h"},
       {"apt-get install libdlpack-dev, then compile it again"});
}
inline DLManagedTensor* to_dlpack(const Tensor&, Loc loc = Loc::here()) {
  fail_without_dlpack({"to_dlpack", loc});
}
inline Tensor from_dlpack(DLManagedTensor*, Loc loc = Loc::here()) {
  fail_without_dlpack({"from_dlpack", loc});
}
#endif

// ---- Batches ------------------------------------------------------------------------------------

namespace data {

// The batches of a loader, as the loader itself would give them, but each is made by a second
// thread while the one before it is in use. The loader has to live as long.
//
//     for (auto [x, y] : data::Prefetch(loader)) ...
class Prefetch {
 public:
  explicit Prefetch(const DataLoader& loader) : loader_(loader) {}
  explicit Prefetch(DataLoader&&) = delete;  // it would be gone when the loop begins

  class Iterator {
   public:
    explicit Iterator(Epoch epoch) : epoch_(std::move(epoch)) {
      start(0);
      wait();
    }
    Example operator*() const { return epoch_.tell(batch_); }
    Iterator& operator++() {
      ++at_;
      wait();
      return *this;
    }
    bool operator==(DataLoader::End) const { return at_ == epoch_.size(); }

   private:
    void start(std::int64_t i) {
      if (i < epoch_.size())
        next_ = std::async(std::launch::async, [epoch = epoch_, i] { return epoch.batch(i); });
    }
    void wait() {  // throws what a dataset's get() threw
      if (at_ < epoch_.size()) batch_ = next_.get();
      start(at_ + 1);
    }
    Epoch epoch_;
    std::int64_t at_ = 0;
    Example batch_;              // number at_
    std::future<Example> next_;  // the one behind it
  };
  Iterator begin(Loc loc = Loc::here()) const { return Iterator(loader_.epoch(loc)); }
  DataLoader::End end() const { return {}; }

 private:
  const DataLoader& loader_;
};

}  // namespace data

}  // namespace minitensor
