// Files of other programs: NumPy reads what we write, we read what NumPy writes, and a damaged file
// is a sentence. And what goes through data in batches.
#include <signal.h>
#include <sys/resource.h>

#include "tests/files.hpp"

using namespace mt;
using namespace files_of_tests;
using tensors::error_of;

namespace {

namespace fs = std::filesystem;

std::string lines_about(const std::vector<Tensor>& list) {
  std::string lines;
  for (const Tensor& x : list) lines += description(x) + "\n";
  return lines;
}

// One tensor of each dtype, and the shapes that are easily forgotten.
std::vector<Tensor> various() {
  using tensors::infinity, tensors::not_a_number;
  return {tensor({{1.5, -0.0, infinity}, {-infinity, not_a_number, 1e-42}}),
          tensor({0.1, 5e-324, -1.7976931348623157e308}, {.dtype = float64}),
          tensor({std::int64_t{1} << 62, std::int64_t{-1}, std::int64_t{0}}),
          tensor({{true, false}}),
          tensor(7.0),
          tensor(-3),
          tensor(true),
          zeros({0}),
          zeros({3, 0, 2}, {.dtype = int64}),
          zeros({1, 1, 1, 1, 1, 1, 1, 1})};
}

int entries_of(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), {}));
}

// ---- .npy ---------------------------------------------------------------------------------------

// np.save(file, np.array([[1, 2]], 'i2')) in NumPy 1.24.2, printed with repr().
const std::string small_npy = std::string("\x93NUMPY\x01\x00v\x00", 10) +
                              "{'descr': '<i2', 'fortran_order': False, 'shape': (1, 2), }" +
                              std::string(58, ' ') + "\n" + std::string("\x01\x00\x02\x00", 4);

// A file of version 1.0 with this header; nothing is filled up.
std::string npy_of(const std::string& header, const std::string& elements = "") {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  mt::files::append_bytes(bytes, static_cast<std::uint16_t>(header.size()));
  return bytes + header + elements;
}
std::string refusal_of(const std::string& npy) {
  return error_of([&] { return mt::files::read_npy(npy, source()); });
}

TEST_CASE("a .npy file of NumPy is read from its bytes") {
  REQUIRE(small_npy.size() == 132);
  CHECK(description(mt::files::read_npy(small_npy, source())) == "int64 [1, 2] 1 2");
}

TEST_CASE("every kind, byte order, order of axes and version of .npy is read as NumPy reads it") {
  if (!python_has("numpy")) return;
  shell::TemporaryFolder folder;
  const std::string expected = python(folder, R"(
ours = {'f2': 'float32', 'f4': 'float32', 'f8': 'float64', 'b1': 'bool'}
number = 0
for kind in ['f2', 'f4', 'f8', 'i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'b1']:
    for order in '<>':
        for shape in [(), (0,), (3,), (2, 3), (4, 0), (2, 3, 4), (1, 2, 1, 2, 1, 2, 1, 2)]:
            for columns in [False, True]:
                for version in [(1, 0), (2, 0), (3, 0)]:
                    count = int(np.prod(shape))
                    array = np.linspace(-9, 9, count).astype(kind[0] + kind[1])
                    if kind[0] in 'iu' and count > 1:
                        array[:2] = np.iinfo(kind).min, np.iinfo(kind).max
                    array = array.reshape(shape, order='F' if columns else 'C').astype(order + kind)
                    with open('%d.npy' % number, 'wb') as file:
                        np.lib.format.write_array(file, array, version=version)
                    print(describe(array, ours.get(kind, 'int64')))
                    number += 1
)");
  std::istringstream lines(expected);
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number)
    CHECK(description(load_npy(folder / (std::to_string(number) + ".npy"))) == line);
  CHECK(number == 11 * 2 * 7 * 2 * 3);
}

TEST_CASE("all 65536 half precision numbers are read as NumPy converts them") {
  if (!python_has("numpy")) return;
  shell::TemporaryFolder folder;
  const std::string expected = python(folder, R"(
array = np.arange(65536, dtype='u2').view('f2')
np.save('half.npy', array)
print(describe(array, 'float32'))
)");
  CHECK(description(load_npy(folder / "half.npy")) + "\n" == expected);
}

TEST_CASE("NumPy reads the .npy files that we write, and so do we") {
  if (!python_has("numpy")) return;
  shell::TemporaryFolder folder;
  std::vector<Tensor> list = various();
  const Tensor matrix = arange(24, {.dtype = float32}).reshape(2, 3, 4);
  list.push_back(matrix.transpose(0, 2));
  list.push_back(matrix.slice(2, 1, 4, 2));
  list.push_back(tensor({1., 2.}).unsqueeze(0).expand({3, 2}));
  list.push_back(tensor({1., 2.}, {.requires_grad = true}) * 2);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string path = folder / (std::to_string(i) + ".npy");
    save_npy(path, list[i]);
    const Tensor back = load_npy(path);
    CHECK(description(back) == description(list[i]));
    CHECK(back.is_contiguous());
    CHECK_FALSE(back.requires_grad());
    const std::string bytes = shell::read_file(path);
    CHECK(bytes.find('\n') % 64 == 63);
  }
  CHECK(python(folder, "for i in range(" + std::to_string(list.size()) +
                           "): print(describe(np.load('%d.npy' % i)))\n") == lines_about(list));
}

TEST_CASE("a .npy header is understood however a Python dictionary may be written") {
  const std::string elements(4, '\0');
  for (const char* header :
       {"{'descr':'<f4','fortran_order':False,'shape':(1,)}",
        "{\"shape\": (1L,), \"descr\": \"<f4\", \"fortran_order\": True,}",
        "  { 'shape' : ( 1 , ) , 'fortran_order' : False , 'descr' : '=f4' }\n",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2)}",
        "{'descr': '|b1', 'fortran_order': False, 'shape': (4, 1, ), }\t\r\n  \n"}) {
    INFO(header);
    CHECK(refusal_of(npy_of(header, elements)) == "no error");
  }
}

TEST_CASE("a boolean byte that is neither 0 nor 1 is true") {
  const std::string npy =
      npy_of("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", std::string("\0\2\xFF", 3));
  CHECK(description(mt::files::read_npy(npy, source())) == "bool [3] 0 1 1");
}

TEST_CASE("what is wrong with a .npy file is said in one sentence") {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "a.file ends within its first 6 bytes: it is damaged, or was not copied completely"},
      {"PK\x03\x04 not this", "a.file is no .npy file: it does not begin with \\x93NUMPY"},
      {std::string("\x93NUMPY\x04\x00\x00\x00", 10),
       "a.file has version 4.0 of the format, not 1.0, 2.0 or 3.0"},
      {std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF{", 13),
       "a.file ends within its header: it is damaged, or was not copied completely"},
      {npy_of("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,)}"),
       "a.file holds records with several fields, not plain numbers"},
      {npy_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"),
       "a.file holds elements of type \"|O\", which has no dtype here"},
      {npy_of("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}"),
       "a.file holds elements of type \"<c8\", which has no dtype here"},
      {npy_of("{'descr': '', 'fortran_order': False, 'shape': (1,)}"),
       "a.file holds elements of type \"\", which has no dtype here"},
      {npy_of("{'descr': '<', 'fortran_order': False, 'shape': (1,)}"),
       "a.file holds elements of type \"<\", which has no dtype here"},
      {npy_of("{'fortran_order': False, 'shape': (1,)}"),
       "a.file has a header without descr, fortran_order or shape"},
      {npy_of("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"),
       "a.file has a header with the key \"descr\" twice"},
      {npy_of("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}"),
       "a.file has a header that cannot be understood, from \"0, 'shape': (1,)}\" on"},
      {npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"),
       "a.file has a header that cannot be understood, from \"-1,)}\" on"},
      {npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1)}"),
       "a.file has a header that cannot be understood, from \")}\" on"},
      {npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"),
       "a.file has a header that cannot be understood, from \"99999999999999999999,)}\" on"},
      {npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x"),
       "a.file has a header that cannot be understood, from \"x\" on"},
      {npy_of("{'colour': 'red', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"),
       "a.file has a header with an unknown key, \"colour\""},
      {npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}"),
       "a.file has more than 8 dimensions"},
      {npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
       "a.file claims the shape [4294967296, 4294967296], which has too many elements for any "
       "memory"},
      {npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}"),
       "a.file claims the shape [0, 4294967296, 4294967296], which has too many elements for any "
       "memory"},
      {npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,)}", "abcd"),
       "a.file is cut short: [1000000000] elements of type \"<f4\" are 4000000000 bytes, and 4 "
       "follow the header"},
      {npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "abcdefgh"),
       "a.file is too long: [] elements of type \"<f4\" are 4 bytes, and 8 follow the header"},
  };
  for (const auto& [bytes, sentence] : table) {
    INFO(bytes);
    const std::string text = refusal_of(bytes);
    CHECK(text.substr(0, text.find(" at files.hpp")) == "load: " + sentence);
  }
}

TEST_CASE("a .npy file damaged anywhere is refused or read, and never crashes") {
  CHECK(sentences_about_damage(small_npy, small_npy.size(), [](std::string_view bytes) {
          return mt::files::read_npy(bytes, source());
        }) > 400);
}

// ---- Files --------------------------------------------------------------------------------------

TEST_CASE("an error of a file names the function, the file and the caller's line") {
  CHECK(error_of([] { return load_npy("nowhere.npy"); }) ==
        "load_npy: there is no file nowhere.npy at HERE. Hint: is the name right, seen from here?");
  CHECK(error_of([] { return load_npy("/"); }) == "load_npy: / is not a file at HERE.");
  CHECK(error_of([] { return load_npy("/dev/zero"); }) ==
        "load_npy: /dev/zero is not a file at HERE.");
  CHECK(error_of([] {
          save_npy("/nowhere/x.npy", tensor(1.));
          return 0;
        }).substr(0, 68) == "save_npy: /nowhere/x.npy cannot be written: No such file or director");
  CHECK(error_of([] {
          save_npy("x.npy", Tensor());
          return 0;
        }).find("save_npy: an input is undefined") == 0);
}

TEST_CASE("nothing is written over what is not a file") {
  CHECK(error_of([] { return save_npy("/dev/null", tensor(1.)), 0; }) ==
        "save_npy: /dev/null is not a file at HERE.");
  shell::TemporaryFolder folder;
  CHECK(tensors::refused([&] { return save_npy(folder.path(), tensor(1.)), 0; }));
  CHECK(entries_of(folder.path()) == 0);
}

TEST_CASE("a disk that fills up while writing leaves the old file and nothing else") {
  shell::TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  save_npy(path, tensor({1., 2.}));
  const std::string before = shell::read_file(path);

  rlimit limit{}, small{};  // a file that may not grow is as good as a full disk
  getrlimit(RLIMIT_FSIZE, &limit);
  small = limit;
  small.rlim_cur = 1000;
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] { return save_npy(path, zeros({100000})), 0; });
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);

  CHECK(error == "save_npy: " + path + " cannot be written: File too large at HERE.");
  CHECK(shell::read_file(path) == before);
  CHECK(entries_of(folder.path()) == 1);
}

TEST_CASE("a program that is killed while writing leaves the old file") {
  shell::TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  save_npy(path, tensor({1., 2.}));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const mt::files::Source source{path, {"save_npy", Loc::here()}};
    mt::files::NewFile file(source);
    file.write(std::string(100000, 'x'));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(tensors::values(load_npy(path)) == tensors::Values{1, 2});
  save_npy(path, tensor(3.));  // what was left behind does not stand in the way
  CHECK(load_npy(path).item() == 3);
}

TEST_CASE("a file is replaced as a whole, with its permissions, through a symbolic link") {
  shell::TemporaryFolder folder;
  save_npy(folder / "x.npy", tensor(1.));
  fs::permissions(folder / "x.npy", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("x.npy", folder / "link.npy");
  shell::write_file(folder / ".minitensor.part0", "somebody else's");
  save_npy(folder / "link.npy", tensor(2.));
  CHECK(load_npy(folder / "x.npy").item() == 2);
  CHECK(fs::is_symlink(folder / "link.npy"));
  CHECK(fs::status(folder / "x.npy").permissions() ==
        (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(shell::read_file(folder / ".minitensor.part0") == "somebody else's");
  CHECK(entries_of(folder.path()) == 3);
}

TEST_CASE("a file may have the longest name that there is") {
  shell::TemporaryFolder folder;
  const std::string path = folder / (std::string(251, 'n') + ".npy");
  save_npy(path, tensor(1.));
  CHECK(load_npy(path).item() == 1);
}

// ---- .npz ---------------------------------------------------------------------------------------

std::string lines_about(const NamedTensors& tensors) {
  std::string lines;
  for (const auto& [name, x] : tensors) lines += name + " " + description(x) + "\n";
  return lines;
}

NamedTensors various_named() {
  NamedTensors tensors;
  const std::vector<Tensor> list = various();
  for (std::size_t i = 0; i < list.size(); ++i) tensors.emplace("t" + std::to_string(i), list[i]);
  tensors.emplace("large", arange(50000, {.dtype = int64}).reshape(100, 500).t());
  tensors.emplace("layer.0/größe", tensor({1., 2.}));
  tensors.emplace("", tensor(5));
  return tensors;
}

std::string refusal_of_npz(const std::string& bytes) {
  const std::string text = error_of([&] { return mt::files::read_npz(bytes, source()).size(); });
  return text.substr(0, text.find(" at files.hpp"));
}

// Puts a number into bytes, where the archive's records have it.
template <class T>
std::string with(std::string bytes, std::size_t at, T number) {
  std::memcpy(bytes.data() + at, &number, sizeof number);
  return bytes;
}

// One member "i.npy", a boolean without axes.
std::string small_npz(bool compressed = false) {
  shell::TemporaryFolder folder;
  save_npz(folder / "i.npz", {{"i", tensor(true)}}, {.compressed = compressed});
  return shell::read_file(folder / "i.npz");
}

TEST_CASE("the checksum is that of ZIP") {
  CHECK(mt::files::checksum("123456789") == 0xCBF43926);  // the check value of CRC-32
  CHECK(mt::files::checksum("6789", mt::files::checksum("12345")) == 0xCBF43926);
  CHECK(mt::files::checksum("") == 0);
}

TEST_CASE(".npz archives of NumPy are read, stored and compressed and in Zip64") {
  if (!python_has("numpy")) return;
  shell::TemporaryFolder folder;
  const std::string expected = python(folder, R"(
arrays = {'a': np.arange(6, dtype='f4').reshape(2, 3), 'b': np.asfortranarray(np.eye(3)),
          'empty': np.zeros((0, 4)), 'flag': np.array(True), 'layer.0/w': np.arange(5000, dtype='>i4')}
np.savez('stored.npz', **arrays)
np.savez_compressed('compressed.npz', **arrays)
# What NumPy writes when an archive is large: numbers that need Zip64, in the directory as well.
zipfile.ZIP64_LIMIT = 100
zipfile.ZIP_FILECOUNT_LIMIT = 2
np.savez('zip64.npz', **arrays)
with zipfile.ZipFile('stored.npz', 'a') as file: file.comment = b'PK\x05\x06 is no end'
np.savez('none.npz')
for name in sorted(arrays):
    print(name, describe(arrays[name], {'i': 'int64'}.get(arrays[name].dtype.kind)))
)");
  CHECK(lines_about(load_npz(folder / "stored.npz")) == expected);
  CHECK(lines_about(load_npz(folder / "zip64.npz")) == expected);
  CHECK(shell::read_file(folder / "zip64.npz").find("PK\6\6") != std::string::npos);
  CHECK(load_npz(folder / "none.npz").empty());
#if MINITENSOR_ZLIB
  CHECK(lines_about(load_npz(folder / "compressed.npz")) == expected);
#else
  CHECK(error_of([&] {
          return load_npz(folder / "compressed.npz").size();
        }).find("compiled without zlib") != std::string::npos);
#endif
}

TEST_CASE("NumPy reads the .npz archives that we write, and so do we") {
  if (!python_has("numpy")) return;
  for (const bool compressed : {false, true}) {
    if (compressed && !MINITENSOR_ZLIB) continue;
    shell::TemporaryFolder folder;
    save_npz(folder / "all.npz", various_named(), {.compressed = compressed});
    const std::string expected = lines_about(various_named());
    CHECK(lines_about(load_npz(folder / "all.npz")) == expected);
    CHECK(python(folder, R"(
sys.stdout.reconfigure(encoding='utf-8')
assert zipfile.ZipFile('all.npz').testzip() is None
arrays = np.load('all.npz')
for name in sorted(arrays.files): print(name, describe(arrays[name]))
)") == expected);
    CHECK((fs::file_size(folder / "all.npz") < 300000) == compressed);
  }
}

TEST_CASE("a name that an archive does not have is refused, and others may be added") {
  NamedTensors tensors = {{"images", ones({2})}, {"labels", tensor({1, 2})}};
  CHECK(tensors["labels"].dtype() == int64);
  CHECK(tensors::error_of([&] { return tensors["imges"]; }) ==
        "[]: there is no \"imges\" among 2 names at HERE. Hint: the closest are \"images\", "
        "\"labels\"");
  CHECK(tensors.size() == 2);
  tensors["images"] = zeros({3});  // another tensor under this name
  tensors.emplace("weights", ones({1}));
  const NamedTensors& same = tensors;
  CHECK(same["images"].numel() == 3);
  CHECK(same["weights"].numel() == 1);
}

TEST_CASE("an archive without tensors is one") {
  shell::TemporaryFolder folder;
  save_npz(folder / "none.npz", {});
  CHECK(load_npz(folder / "none.npz").empty());
}

TEST_CASE("what is wrong with a .npz archive is said in one sentence") {
  const std::string good = small_npz();
  const std::size_t member = good.find("PK\3\4"), directory = good.find("PK\1\2"),
                    end = good.find("PK\5\6");
  REQUIRE(member == 0);
  REQUIRE(end + 22 == good.size());
  REQUIRE(refusal_of_npz(good) == "no error");
  std::string renamed = good, two = good;
  renamed[member + 30] = 'j';
  std::string text = renamed;
  for (const std::size_t at : {member, directory})
    std::memcpy(text.data() + at + (at == member ? 30 : 46), "i.txt", 5);
  two.insert(end, good.substr(directory, end - directory));  // the same member once more
  two = with<std::uint16_t>(two, two.size() - 12, 2);
  two =
      with<std::uint32_t>(two, two.size() - 10, static_cast<std::uint32_t>(2 * (end - directory)));

  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "a.file is no .npz file, or not the whole of one: the end of a ZIP archive is missing"},
      {small_npy,
       "a.file is no .npz file, or not the whole of one: the end of a ZIP archive is missing"},
      {good.substr(0, good.size() - 1),
       "a.file is no .npz file, or not the whole of one: the end of a ZIP archive is missing"},
      {renamed, "a.file is damaged: \"i.npy\" has another name in its place"},
      {text, "\"i.txt\" in a.file is no .npy file"},
      {two, "a.file has members that overlap"},
      {with<std::uint16_t>(good, directory + 8, 1), "\"i.npy\" in a.file is encrypted"},
      {with<std::uint16_t>(good, directory + 10, 14),
       "\"i.npy\" in a.file is compressed in a way that NumPy does not use, 14"},
      {with<std::uint32_t>(good, directory + 16, 1),
       "\"i.npy\" in a.file is damaged: its checksum does not agree"},
      {with<std::uint32_t>(good, directory + 24, 7),
       "\"i.npy\" in a.file is damaged: it is stored as it is and has two sizes"},
      {with<std::uint32_t>(good, directory + 20, 0x7FFFFFFF),
       "a.file ends within a member of the archive: it is damaged, or was not copied completely"},
      {with<std::uint32_t>(good, directory + 20, 0xFFFFFFFF),  // Zip64 without its field
       "a.file ends within a member of the archive: it is damaged, or was not copied completely"},
      {with<std::uint32_t>(good, directory + 42, 0x7FFFFFFF),
       "a.file is damaged: it points behind its own end"},
      {with<std::uint32_t>(good, directory + 42, 1),
       "a.file is damaged: a member is not in its place"},
      {with<std::uint16_t>(good, end + 10, 5),
       "a.file is damaged: its directory has 1 entries and claims 5"},
      {with<std::uint32_t>(good, end + 16, 0x7FFFFFFF),
       "a.file is damaged: its directory is not where its end says"},
      {with<std::uint32_t>(good, end + 12, 3),
       "a.file ends within the directory of the archive: it is damaged, or was not copied "
       "completely"},
      {with<std::uint32_t>(good, end + 16, 0), "a.file is damaged: its directory is unreadable"},
  };
  for (const auto& [bytes, sentence] : table) CHECK(refusal_of_npz(bytes) == "load: " + sentence);
}

TEST_CASE("an archive damaged anywhere is refused or read, and never crashes") {
  for (const bool compressed : {false, true}) {
    if (compressed && !MINITENSOR_ZLIB) continue;
    const std::string good = small_npz(compressed);
    CHECK(sentences_about_damage(good, good.size(), [](std::string_view bytes) {
            return mt::files::read_npz(bytes, source());
          }) > 700);
  }
}

#if MINITENSOR_ZLIB
TEST_CASE("a compressed member that claims a size it does not have is refused") {
  const std::string good = small_npz(true);
  const std::size_t directory = good.find("PK\1\2");
  for (const std::uint32_t size : {0u, 1u, 128u, 130u, 0x7FFFFFFFu, 0xFFFFFFFEu})
    CHECK(refusal_of_npz(with(good, directory + 24, size)) ==
          "load: \"i.npy\" in a.file is damaged: its compressed bytes do not make " +
              std::to_string(size));
}
#endif

// ---- safetensors --------------------------------------------------------------------------------

// A file with this header; its length is true.
std::string safetensors_of(const std::string& header, const std::string& elements = "") {
  std::string bytes;
  mt::files::append_bytes(bytes, static_cast<std::uint64_t>(header.size()));
  return bytes + header + elements;
}
std::string refusal_of_safetensors(const std::string& bytes) {
  const std::string text =
      error_of([&] { return mt::files::read_safetensors(bytes, nullptr, source()).size(); });
  return text.substr(0, text.find(" at files.hpp"));
}

#if MINITENSOR_JSON
// By hand, after the README of the format: w is a float32 [1, 2] and b a 0-d int64.
const std::string small_safetensors = safetensors_of(
    R"({"__metadata__":{"by":"hand"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},)"
    R"("b":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}  )",
    std::string("\x07\0\0\0\0\0\0\0\0\0\x80\x3F\0\0\0\xC0", 16));

TEST_CASE("a safetensors file is read from its bytes") {
  Metadata metadata;
  const NamedTensors tensors = mt::files::read_safetensors(small_safetensors, &metadata, source());
  CHECK(lines_about(tensors) == "b int64 [] 7\nw float32 [1, 2] 1065353216 3221225472\n");
  CHECK(metadata == Metadata{{"by", "hand"}});
}

// This writer follows the format's README, as the format's own is not among Debian's packages.
const char* const writer_by_hand = R"(
def write_safetensors(path, tensors, metadata=None):
    header, data = ({'__metadata__': metadata} if metadata else {}), b''
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {'dtype': dtype, 'shape': array.shape, 'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, 'wb') as file: file.write(struct.pack('<Q', len(text)) + text + data)
)";

TEST_CASE("every type of a safetensors file is read as NumPy converts it") {
  if (!python_has("numpy")) return;
  shell::TemporaryFolder folder;
  const std::string expected = python(folder, std::string(writer_by_hand) + R"(
kinds = {'F64': 'f8', 'F32': 'f4', 'F16': 'f2', 'I64': 'i8', 'I32': 'i4', 'I16': 'i2', 'I8': 'i1',
         'U32': 'u4', 'U16': 'u2', 'U8': 'u1', 'BOOL': '?'}
tensors = {name: (name, np.linspace(-99, 99, 6).astype(kind).reshape(2, 3)) for name, kind in kinds.items()}
for name in ['I64', 'I32', 'I16', 'I8', 'U32', 'U16', 'U8']:
    tensors[name][1][0, :2] = np.iinfo(kinds[name]).min, np.iinfo(kinds[name]).max
halves = np.arange(65536, dtype='u2')
tensors['all F16'] = ('F16', halves.view('f2'))
tensors['all BF16'] = ('BF16', halves)
tensors['empty'] = ('F32', np.zeros((0, 3), 'f4'))
write_safetensors('a.safetensors', tensors, {'größe': 'a "text"\n', 'empty': ''})
ours = {'F64': 'float64', 'F32': 'float32', 'F16': 'float32', 'BF16': 'float32', 'BOOL': 'bool'}
for name in sorted(tensors):
    kind, array = tensors[name]
    if kind == 'BF16': array = (array.astype('u4') << 16).view('f4')
    print(name, describe(array, ours.get(kind, 'int64')))
)");
  Metadata metadata{{"old", "forgotten"}};
  CHECK(lines_about(load_safetensors(folder / "a.safetensors", &metadata)) == expected);
  CHECK(metadata == Metadata{{"größe", "a \"text\"\n"}, {"empty", ""}});
}

TEST_CASE("a safetensors file of ours is what the format's description says") {
  if (!python_has("numpy")) return;
  shell::TemporaryFolder folder;
  const Metadata metadata{{"format", "pt"}, {"größe", "\"\\\n"}};
  save_safetensors(folder / "a.safetensors", various_named(), metadata);
  Metadata back;
  CHECK(lines_about(load_safetensors(folder / "a.safetensors", &back)) ==
        lines_about(various_named()));
  CHECK(back == metadata);
  CHECK(python(folder, R"(
sys.stdout.reconfigure(encoding='utf-8')
data = open('a.safetensors', 'rb').read()
length = struct.unpack('<Q', data[:8])[0]
assert data[8:9] == b'{' and length % 8 == 0
header = json.loads(data[8:8 + length])
assert header.pop('__metadata__') == {'format': 'pt', 'größe': '"\\\n'}
kinds = {'F64': 'f8', 'F32': 'f4', 'I64': 'i8', 'BOOL': '?'}
end = 0
for entry in sorted(header.values(), key=lambda entry: entry['data_offsets']):
    assert entry['data_offsets'][0] == end and end % np.dtype(kinds[entry['dtype']]).itemsize == 0
    end = entry['data_offsets'][1]
assert 8 + length + end == len(data)
for name in sorted(header):
    entry = header[name]
    begin, end = [8 + length + offset for offset in entry['data_offsets']]
    print(name, describe(np.frombuffer(data[begin:end], kinds[entry['dtype']]).reshape(entry['shape'])))
)") == lines_about(various_named()));

  save_safetensors(folder / "none.safetensors", {});
  CHECK(shell::read_file(folder / "none.safetensors") == safetensors_of("{}      "));
  CHECK(load_safetensors(folder / "none.safetensors").empty());
}

TEST_CASE("what is wrong with a safetensors file is said in one sentence") {
  auto w = [](const std::string& fields) { return "{\"w\":{" + fields + "}}"; };
  auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
  };
  const std::string brackets = "{\"w\":" + std::string(50000, '[');
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "ends within the header's length: it is damaged, or was not copied completely"},
      {"\x93NUMPY\x01\x00v\x00{'descr'",
       "ends within the header's length: it is damaged, or was not copied completely"},
      {small_npy, "is no safetensors file: its header would have more than 100000000 bytes"},
      {std::string("\x09\0\0\0\0\0\0\0{}", 10),
       "ends within its header: it is damaged, or was not copied completely"},
      {safetensors_of(""), "has a header that does not begin with {"},
      {safetensors_of(" {}"), "has a header that does not begin with {"},
      {safetensors_of("[]"), "has a header that does not begin with {"},
      {safetensors_of("{"), "has a header that is no JSON"},
      {safetensors_of("{} x"), "has a header that is no JSON"},
      {safetensors_of(std::string("{}\0", 3)), "has a header that is no JSON"},
      {safetensors_of("{\"\xFF\":1}"), "has a header that is no JSON"},
      {safetensors_of(brackets), "has a header with too many brackets inside each other"},
      {safetensors_of(R"({"w":{"dtype":{"x":{}}}})"),
       "has a header with too many brackets inside each other"},
      {safetensors_of(R"({"a":1,"a":2})"), "has a header with the name \"a\" twice"},
      {safetensors_of(w(R"("dtype":"F32","dtype":"F64")")),
       "has a header with the name \"dtype\" twice"},
      {safetensors_of(R"({"w":1})"), "does not give \"w\" a dtype"},
      {safetensors_of(R"({"w":["dtype"]})"), "does not give \"w\" a dtype"},
      {safetensors_of(w(R"("dtype":32)")), "does not give \"w\" a dtype"},
      {safetensors_of(w(R"("dtype":"F8_E4M3")")),
       "gives \"w\" the type \"F8_E4M3\", which has no dtype here"},
      {safetensors_of(w(R"("dtype":"F32")")), "does not give \"w\" a shape that is a list"},
      {safetensors_of(w(R"("dtype":"F32","shape":{})")),
       "does not give \"w\" a shape that is a list"},
      {safetensors_of(w(R"("dtype":"F32","shape":[-1])")),
       "gives \"w\" a shape that is not made of whole numbers"},
      {safetensors_of(w(R"("dtype":"F32","shape":[1.0])")),
       "gives \"w\" a shape that is not made of whole numbers"},
      {safetensors_of(w(R"("dtype":"F32","shape":[true])")),
       "gives \"w\" a shape that is not made of whole numbers"},
      {safetensors_of(w(R"("dtype":"F32","shape":[18446744073709551615])")),
       "gives \"w\" a shape that is not made of whole numbers"},
      {safetensors_of(w(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1])")),
       "gives \"w\" more than 8 dimensions"},
      {safetensors_of(w(R"("dtype":"F32","shape":[1])")),
       "does not give \"w\" a data_offsets that is a list"},
      {safetensors_of(w(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])")),
       "gives \"w\" data_offsets that are not a begin and an end"},
      {safetensors_of(w(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])")),
       "gives \"w\" data_offsets that are not a begin and an end"},
      {safetensors_of(w(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])")),
       "gives \"w\" 4 bytes, and a [2] of F32 has 8"},
      {safetensors_of(w(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])")),
       "claims the shape [4294967296, 4294967296], which has too many elements for any memory"},
      {safetensors_of(w(R"("dtype":"U8","shape":[1000000000],"data_offsets":[0,1000000000])"), "a"),
       "is cut short: its tensors take 1000000000 bytes, and 1 follow the header"},
      {safetensors_of(two("[0,2]", "[1,3]"), "abc"), "has tensors that overlap, at \"b\""},
      {safetensors_of(two("[0,2]", "[0,2]"), "ab"), "has tensors that overlap, at \"b\""},
      {safetensors_of(two("[0,2]", "[3,5]"), "abcde"), "has a hole before \"b\""},
      {safetensors_of(two("[1,3]", "[3,5]"), "abcde"), "has a hole before \"a\""},
      {safetensors_of(two("[0,2]", "[2,4]"), "abcdefg"), "has 3 bytes that belong to no tensor"},
      {safetensors_of("{}", "a"), "has 1 bytes that belong to no tensor"},
      {safetensors_of(R"({"__metadata__":[]})"),
       "has a __metadata__ that is not made of names and texts"},
      {safetensors_of(R"({"__metadata__":{"epoch":3}})"),
       "has a __metadata__ that is not made of names and texts"},
  };
  for (const auto& [bytes, sentence] : table) {
    INFO(bytes.substr(0, 200));
    CHECK(refusal_of_safetensors(bytes) == "load: a.file " + sentence);
  }
}

TEST_CASE("a safetensors file damaged anywhere is refused or read, and never crashes") {
  CHECK(sentences_about_damage(small_safetensors, small_safetensors.size(),
                               [](std::string_view bytes) {
                                 return mt::files::read_safetensors(bytes, nullptr, source());
                               }) > 800);
}

TEST_CASE("what safetensors cannot hold is refused before anything is written") {
  shell::TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  CHECK(error_of([&] {
          return save_safetensors(path, {{"__metadata__", tensor(1.)}}), 0;
        }) ==
        "save_safetensors: no tensor can have the name __metadata__, which the format keeps for "
        "texts at HERE.");
  CHECK(error_of([&] {
          return save_safetensors(path, {{"\xFF", tensor(1.)}}), 0;
        }) == "save_safetensors: " + path +
                  " cannot be written: a name or a text in it is not UTF-8 at HERE.");
  CHECK(error_of([&] {
          return save_safetensors(path, {{"w", Tensor()}}), 0;
        }) == "save_safetensors: the tensor \"w\" is undefined at HERE. Hint: ask defined() first");
  CHECK(entries_of(folder.path()) == 0);
}
#else
TEST_CASE("without nlohmann-json a safetensors file is refused and told why") {
  CHECK(refusal_of_safetensors(safetensors_of("{}")) ==
        "load: a.file has a header in JSON, and this program was compiled without nlohmann-json");
}
#endif

// ---- IDX ----------------------------------------------------------------------------------------

// By hand, after the format's description: bytes [2, 3], and what Python's gzip.compress(..., 9,
// mtime=0) makes of them.
const std::string small_idx("\0\0\x08\2\0\0\0\2\0\0\0\3\0\1\2\x7F\x80\xFF", 18);
const std::string small_idx_gz(
    "\037\213\010\000\000\000\000\000\002\003\143\140\340\140\142\140\140\000\141\146\006\106\246"
    "\372\206\377\000\137\373\117\013\022\000\000\000",
    35);

std::string refusal_of_idx(const std::string& bytes) {
  const std::string text = error_of([&] { return mt::files::read_idx(bytes, source()); });
  return text.substr(0, text.find(" at files.hpp"));
}

TEST_CASE("an IDX file is read from its bytes, the most significant one first") {
  CHECK(description(mt::files::read_idx(small_idx, source())) == "int64 [2, 3] 0 1 2 127 128 255");
#if MINITENSOR_ZLIB
  CHECK(description(mt::files::read_idx(small_idx_gz, source())) ==
        "int64 [2, 3] 0 1 2 127 128 255");
#endif
}

TEST_CASE("every type of an IDX file is read as NumPy reads the same bytes") {
  if (!python_has("numpy")) return;
  shell::TemporaryFolder folder;
  std::istringstream expected(python(folder, R"(
kinds = {0x08: 'u1', 0x09: 'i1', 0x0B: '>i2', 0x0C: '>i4', 0x0D: '>f4', 0x0E: '>f8'}
number = 0
for code, kind in kinds.items():
    for shape in [(), (0,), (5,), (2, 3, 4), (3, 0)]:
        array = np.linspace(-99, 99, int(np.prod(shape))).astype(kind).reshape(shape)
        with open('%d.idx' % number, 'wb') as file:
            file.write(struct.pack('>BBBB%dI' % len(shape), 0, 0, code, len(shape), *shape))
            file.write(array.tobytes())
        print(describe(array, 'int64' if 'f' not in kind else {'>f4': 'float32', '>f8': 'float64'}[kind]))
        number += 1
)"));
  int number = 0;
  for (std::string line; std::getline(expected, line); ++number)
    CHECK(description(load_idx(folder / (std::to_string(number) + ".idx"))) == line);
  CHECK(number == 6 * 5);
}

TEST_CASE("what is wrong with an IDX file is said in one sentence") {
  const std::vector<std::pair<std::string, std::string>> table = {
    {"", "ends within its header: it is damaged, or was not copied completely"},
    {"P5 28 28", "is no IDX file: it does not begin with two bytes that are 0"},
    {std::string("\0\0\x0A\1\0\0\0\1\0", 9), "holds elements of type 10, which IDX does not know"},
    {std::string("\0\0\0\1\0\0\0\1\0", 9), "holds elements of type 0, which IDX does not know"},
    {std::string("\0\0\x08\x09", 4) + std::string(36, '\1'), "has more than 8 dimensions"},
    {std::string("\0\0\x08\2\0\0\0\2\0\0", 10),
     "ends within its header: it is damaged, or was not copied completely"},
    {small_idx.substr(0, 17), "is cut short: [2, 3] elements are 6 bytes, and 5 follow the header"},
    {small_idx + "x", "is too long: [2, 3] elements are 6 bytes, and 7 follow the header"},
    {std::string("\0\0\x0E\2\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12),
     "claims the shape [4294967295, 4294967295], which has too many elements for any memory"},
#if MINITENSOR_ZLIB
    {small_idx_gz.substr(0, 30), "is damaged: its compressed bytes do not make 18"},
    {small_idx_gz + "x", "is damaged: its compressed bytes do not make 18"},
    {small_idx_gz.substr(0, 8),
     "ends within its header: it is damaged, or was not copied completely"},
#else
    {small_idx_gz, "would be compressed, and this program was compiled without zlib"},
#endif
  };
  for (const auto& [bytes, sentence] : table)
    CHECK(refusal_of_idx(bytes) == "load: a.file " + sentence);
}

TEST_CASE("an IDX file damaged anywhere is refused or read, and never crashes") {
  const auto read = [](std::string_view bytes) { return mt::files::read_idx(bytes, source()); };
  CHECK(sentences_about_damage(small_idx, small_idx.size(), read) > 50);
  CHECK(sentences_about_damage(small_idx_gz, small_idx_gz.size(), read) > 50);
}

// ---- CSV ----------------------------------------------------------------------------------------

CsvTable table_of(const std::string& text, const CsvOptions& options = {}) {
  return mt::files::read_csv(text, options, source("load", "a.csv"));
}
using Names = std::vector<std::string>;

TEST_CASE("a table is read with or without names, quotes, comments, blanks and a last newline") {
  const CsvTable whole = table_of(
      "\xEF\xBB\xBF\"distance, far\",\"the \"\"speed\"\"\nin km/s\"\r\n"
      "\r\n# measured\r\n 1.5 ,-2\r\n+3,\"4e2\" ");
  CHECK(whole.names == Names{"distance, far", "the \"speed\"\nin km/s"});
  CHECK(tensors::difference(whole.values, tensor({{1.5, -2.}, {3., 400.}})) == "");
  for (const char* text : {"1,2\n3,4\n", "1,2\n3,4", "1,2\r3,4\r", "\n\n 1\t,2\n  \n3,4\n\n"}) {
    INFO(text);
    CHECK(table_of(text).names.empty());
    CHECK(tensors::difference(table_of(text).values, tensor({{1., 2.}, {3., 4.}})) == "");
  }
  CHECK(table_of("1;2;3", {.separator = ';'}).values.shape() == Shape(1, 3));
  CHECK(table_of("\t\t\n1\t2\t3\n \n\t\t\n", {.missing_is_nan = true, .separator = '\t'})
            .values.shape() ==
        Shape(3, 3));  // the line with a blank is no row, those with tabs are
  CHECK(table_of("\t2\n3\t\n", {.missing_is_nan = true, .separator = '\t'}).values.shape() ==
        Shape(2, 2));
  CHECK(table_of("a,b\n").values.shape() == Shape(0, 2));
  CHECK(table_of("0.1\n", {.dtype = float64}).values.item() == 0.1);
}

TEST_CASE("a first line has names if none of its fields is a number, or as the reader is told") {
  CHECK(table_of("a,NA\n1,2\n").names == Names{"a", "NA"});
  CHECK(table_of("2001,2002\n1,2\n").values.size(0) == 2);
  const CsvTable told = table_of("2001,2002\n1,2\n", {.header = true});
  CHECK(told.names == Names{"2001", "2002"});
  CHECK(tensors::values(told.values) == tensors::Values{1, 2});
  CHECK(tensors::refused([] { return table_of("a,b\n1,2\n", {.header = false}).values; }));
}

TEST_CASE("a number out of range is infinite or 0, as float() reads it in Python") {
  const Tensor read =
      table_of("1e400,-1e999\n1e-400,-1e-999\n1.7976931348623157e308,5e-324\n", {.dtype = float64})
          .values;
  CHECK(tensors::values(read) == tensors::Values{tensors::infinity, -tensors::infinity, 0, 0,
                                                 1.7976931348623157e308, 5e-324});
}

TEST_CASE("a missing number is NaN if the reader is told so") {
  const CsvTable table = table_of(",NA\nN/A,null\n?,NaN\n1,-inf\n", {.missing_is_nan = true});
  CHECK(tensors::values(table.values.isnan().sum(0)) == tensors::Values{3, 3});
  CHECK(tensors::values(table.values[3]) == tensors::Values{1, -tensors::infinity});
}

TEST_CASE("what is wrong with a table is said in one sentence with its line and column") {
  const std::string missing =
      "the number is missing HERE. Hint: write {.missing_is_nan = true} to "
      "read it as NaN";
  const std::string semicolons =
      " is not a number HERE. Hint: write {.separator = ';'} if that is "
      "what stands between its columns";
  const std::vector<std::pair<std::string, std::string>> table = {
      {"a,b\n1,2\n3,x\n", ", line 3, column 2: \"x\" is not a number HERE."},
      {"1,2\n1,2x\n", ", line 2, column 2: \"2x\" is not a number HERE."},
      {"1,2\n1,+-2\n", ", line 2, column 2: \"+-2\" is not a number HERE."},
      {"1,2\n1,1e999x\n", ", line 2, column 2: \"1e999x\" is not a number HERE."},
      {"city,1990\nParis,2\n",
       ", line 1, column 1: \"city\" is not a number HERE. Hint: write "
       "{.header = true} if the first line holds names"},
      {"1,2\n\n3,\n", ", line 3, column 2: " + missing},
      {"1,2\nnan,4\n", ", line 2, column 1: " + missing},
      {"1;2\n3;4\n", ", line 2, column 1: \"3;4\"" + semicolons},
      {"a;b\n1;2\n", ", line 2, column 1: \"1;2\"" + semicolons},
      {"a\tb\n1\t2\n",
       ", line 2, column 1: \"1?2\" is not a number HERE. Hint: write {.separator "
       "= '\\t'} if that is what stands between its columns"},
      {"1,2\n1,2,3\n",
       ", line 2 has another number of columns than the lines before it: 3, not 2 HERE."},
      {"\"a\nb\",c\n1,2\n3\n",
       ", line 4 has another number of columns than the lines before it: 1, not 2 HERE."},
      {"1,2\n3,\"4\n5,6\n", ", line 2, column 2: a quote is opened and never closed HERE."},
      {"1,\"2\"3\n", ", line 1, column 2: something follows the closing quote HERE."},
      {"", " is empty: there is no line with numbers HERE."},
      {"# nothing\n\n", " is empty: there is no line with numbers HERE."},
      {std::string("PK\3\4\0", 5),
       " is no plain text: it has a byte that is 0 HERE. Hint: save it as CSV in UTF-8"},
  };
  for (const auto& [text, sentence] : table) {
    std::string error = error_of([&, &it = text] { return table_of(it).values; });
    const std::size_t at = error.find("at files.hpp");
    REQUIRE(at != std::string::npos);
    error.replace(at, error.find_first_of(". ", at + 12) - at, "HERE");
    CHECK(error == "load: a.csv" + sentence);
  }
  CHECK(error_of([] {
          return table_of("1", {.dtype = int64}).values;
        }).find("load: its numbers are floats, not int64") == 0);
}

TEST_CASE("a table of NumPy is read as NumPy wrote it") {
  if (!python_has("numpy")) return;
  shell::TemporaryFolder folder;
  const std::string expected = python(folder, R"(
array = np.random.RandomState(0).standard_normal((50, 3)) * 10.0 ** np.arange(-150, 150, 2).reshape(50, 3)[:, ::-1]
np.savetxt('a.csv', array, delimiter=',', header='x,y,z', comments='')
print(describe(np.loadtxt('a.csv', delimiter=',', skiprows=1)))
)");
  const auto [names, values] = load_csv(folder / "a.csv", {.dtype = float64});
  CHECK(names == Names{"x", "y", "z"});
  CHECK(description(values) + "\n" == expected);
}

// ---- Batches ------------------------------------------------------------------------------------

// Example i is i and a random number.
struct Noisy : data::Dataset {
  explicit Noisy(std::int64_t count, std::int64_t bad = -1) : n(count), failing(bad) {}
  std::int64_t size() const override { return n; }
  data::Example get(std::int64_t i) const override {
    if (i == failing) throw Error("example " + std::to_string(i) + " is unreadable");
    return {tensor(static_cast<double>(i)), rand({2})};
  }
  std::int64_t n, failing;
};

std::vector<tensors::Values> batches_of(const data::DataLoader& loader) {
  std::vector<tensors::Values> batches;
  for (auto [x, y] : loader) batches.push_back(tensors::values(x));
  return batches;
}
using Batches = std::vector<tensors::Values>;

TEST_CASE("a loader gives batches in order, the last one smaller or left out") {
  const data::TensorDataset digits(arange(5), arange(10).reshape(5, 2));
  CHECK(batches_of({digits, {.batch_size = 2}}) == Batches{{0, 1}, {2, 3}, {4}});
  CHECK(batches_of({digits, {.batch_size = 2, .drop_last = true}}) == Batches{{0, 1}, {2, 3}});
  CHECK(batches_of({digits, {.batch_size = 9}}) == Batches{{0, 1, 2, 3, 4}});
  CHECK(batches_of({digits, {.batch_size = 9, .drop_last = true}}).empty());
  CHECK(batches_of({data::TensorDataset(zeros({0, 3})), {.batch_size = 2}}).empty());
  CHECK(data::DataLoader(digits, {.batch_size = 2}).size() == 3);
  for (auto [x, y] : data::DataLoader(digits, {.batch_size = 2})) {
    CHECK(tensors::difference(y, stack({x * 2, x * 2 + 1}, 1)) == "");
    CHECK_FALSE(x.requires_grad());
  }
  for (auto [x, y] : data::DataLoader(data::TensorDataset(arange(5)))) CHECK_FALSE(y.defined());
}

TEST_CASE("a shuffling loader has an order of its own each time, which its seed decides") {
  const data::TensorDataset many(arange(100));
  const data::DataLoader loader(many, {.batch_size = 100, .seed = 7, .shuffle = true});
  const data::DataLoader twin = loader;
  const data::DataLoader other(many, {.batch_size = 100, .seed = 8, .shuffle = true});
  const Batches first = batches_of(loader), second = batches_of(loader);
  CHECK(first != second);
  manual_seed(1);  // has no say in it
  CHECK(batches_of(twin) == first);
  CHECK(batches_of(twin) == second);
  CHECK(batches_of(other) != first);
  tensors::Values sorted = first[0];
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == tensors::values(arange(100)));
}

TEST_CASE("a loader outlives the dataset and the loader that it was made from") {
  std::optional<data::DataLoader> loader;
  {
    const data::TensorDataset dataset(arange(4));
    const std::vector<data::Subset> halves = data::random_split(dataset, {0.5, 0.5});
    loader = data::DataLoader(halves[1], {.batch_size = 2});
  }
  auto batch = loader->begin();
  loader.reset();
  CHECK((*batch).x.numel() == 2);
}

TEST_CASE("a random split gives each example to one part") {
  const data::TensorDataset whole(arange(10), arange(10) * arange(10));
  const auto numbers = [](const std::vector<data::Subset>& parts) {
    tensors::Values all;
    for (const data::Subset& part : parts) {
      for (std::int64_t i = 0; i < part.size(); ++i) {
        const auto [x, y] = part.get(i);
        CHECK(y.item() == x.item() * x.item());
        all.push_back(x.item());
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  const std::int64_t three = 3;
  const std::vector<data::Subset> parts = data::random_split(whole, {three, 7 - three, three});
  CHECK(parts[1].size() == 4);
  CHECK(numbers(parts) == tensors::values(arange(10)));
  // As PyTorch shares out 10 in thirds: what rounding leaves goes to the first parts.
  const std::vector<data::Subset> thirds = data::random_split(whole, {1. / 3, 1. / 3, 1. / 3});
  CHECK(thirds[0].size() == 4);
  CHECK(thirds[2].size() == 3);
  CHECK(numbers(thirds) == tensors::values(arange(10)));
  CHECK(batches_of({data::random_split(whole, {10, 0}, {.seed = 1})[0], {.batch_size = 10}}) !=
        batches_of({data::random_split(whole, {10, 0}, {.seed = 2})[0], {.batch_size = 10}}));
}

TEST_CASE("a mistake with data is answered with one sentence") {
  const data::TensorDataset five(arange(5));
  CHECK(
      error_of([] { return data::TensorDataset(arange(5), arange(4)), 0; }) ==
      "TensorDataset: x and y hold different numbers of examples: their shapes are [5] and [4] at "
      "HERE.");
  CHECK(error_of([&] {
          return data::Subset(five, tensor({0., 1.})), 0;
        }) == "Subset: the index is float32 [2] at HERE. Hint: it is int64 [n]");
  CHECK(error_of([] { return data::TensorDataset(tensor(1.)), 0; }) ==
        "TensorDataset: a 0-d tensor holds no examples at HERE.");
  CHECK(error_of([&] { return data::DataLoader(five, {.batch_size = 0}), 0; }) ==
        "DataLoader: the batch size is 0, it is at least 1 at HERE.");
  CHECK(
      error_of([&] {
        return data::random_split(five, {3, 3}), 0;
      }) ==
      "random_split: the lengths add up to 6, and there are 5 examples at HERE. Hint: lengths add "
      "up to the number of examples, fractions to 1");
  CHECK(error_of([&] {
          return data::random_split(five, {6, -1}), 0;
        }) == "random_split: a length is negative: -1 at HERE.");
  CHECK(tensors::refused([&] { return data::random_split(five, {1e300, 1}).size(); }));
  CHECK(tensors::refused([&] { return data::random_split(five, {}).size(); }));
  for (const double length : {1e300, std::numeric_limits<double>::infinity()})
    CHECK(tensors::refused([&] { return data::random_split(five, {length}), 0; }));
  CHECK(error_of([&] {
          return data::random_split(five, {1e30}), 0;
        }).find("random_split: the lengths add up to 1e+30, and there are 5 examples") == 0);
  CHECK(error_of([&] {
          return data::random_split(five, {2.5, 2.5}), 0;
        }) == "random_split: a length is not a whole number at HERE.");

  struct Ragged : data::Dataset {
    std::int64_t size() const override { return 2; }
    data::Example get(std::int64_t i) const override { return {zeros({i + 1}), {}}; }
  };
  const std::string text = error_of([] {
    return batches_of({Ragged(), {.batch_size = 2}}).size();
  });
  CHECK(text.find("DataLoader: the shapes differ: [1] and [2] at test_files.cpp:") == 0);
  struct Half : data::Dataset {
    std::int64_t size() const override { return 2; }
    data::Example get(std::int64_t i) const override {
      return {zeros({1}), i == 0 ? zeros({1}) : Tensor()};
    }
  };
  const std::string half = error_of([] { return batches_of({Half(), {.batch_size = 2}}).size(); });
  CHECK(half.find("DataLoader: some examples have a y and some have none at test_files.cpp:") == 0);
}

TEST_CASE("a batch is what the dataset has made of it, where it is") {
  struct Whole : data::Dataset {
    Tensor x = ones({2}, {.requires_grad = true});
    std::int64_t size() const override { return 2; }
    data::Example get(std::int64_t i) const override { return {x[i], {}}; }
    data::Example batch(const Tensor&) const override { return {x, {}}; }
  };
  const Whole whole;
  for (auto [x, y] : data::DataLoader(whole, {.batch_size = 2})) CHECK(x.id() == whole.x.id());
  CHECK(whole.x.requires_grad());
}

// Hears of tensors that are made, and of operations.
struct Ears : Observer {
  int made_count = 0, op_count = 0;
  void made(const Tensor&, Loc) override { ++made_count; }
  void op(const Node*, const Facts&, const Given&, Span<const Tensor*>, Span<Tensor>,
          Loc) override {
    ++op_count;
  }
};

TEST_CASE("an observer sees a batch as made, and nothing of how it comes about") {
  const data::DataLoader loader(Noisy(4), {.batch_size = 2});
  Ears ears;
  observe(&ears);
  for (auto [x, y] : loader) static_cast<void>(x);
  observe(nullptr);
  CHECK(ears.made_count == 4);
  CHECK(ears.op_count == 0);
}

// ---- Mistakes of other readers, with their numbers in our collection: see test_cases.cpp ----------

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}
// A .npy file as NumPy writes it: the prefix is filled up to a multiple of 64 bytes.
std::string numpy_file(int version, const std::string& fields, const std::string& elements) {
  const std::size_t before = version == 1 ? 10 : 12;
  std::string header = "{" + fields + ", }";
  header += std::string(63 - (before + header.size()) % 64, ' ') + "\n";
  std::string bytes = "\x93NUMPY" + std::string{static_cast<char>(version), '\0'};
  if (version == 1)
    mt::files::append_bytes(bytes, static_cast<std::uint16_t>(header.size()));
  else
    mt::files::append_bytes(bytes, static_cast<std::uint32_t>(header.size()));
  return bytes + header + from_hex(elements);
}
std::string fields(const std::string& kind, const std::string& columns, const std::string& shape) {
  return "'descr': '" + kind + "', 'fortran_order': " + columns + ", 'shape': " + shape;
}
std::vector<double> numbers_of(const std::string& npy) {
  return mt::files::read_npy(npy, source()).to_vector<double>();
}

TEST_CASE("B148: a matrix whose columns come first is read as the matrix that it is") {
  CHECK(numbers_of(numpy_file(1, fields("<f4", "True", "(2, 3)"),
                              "0000803f00008040000000400000a040000040400000c040")) ==
        std::vector<double>{1, 2, 3, 4, 5, 6});
}
TEST_CASE("B150 and B153: a shape of one number, and a header of version 2") {
  CHECK(numbers_of(numpy_file(1, fields("<f4", "False", "(3,)"), "0000803f0000004000004040")) ==
        std::vector<double>{1, 2, 3});
  CHECK(numbers_of(numpy_file(2, fields("<i4", "False", "(2,)"), "07000000f9ffffff")) ==
        std::vector<double>{7, -7});
}
TEST_CASE("B156 and B157: nothing keeps its shape, and a file that ends early is refused") {
  const std::string none = numpy_file(1, fields("<f4", "False", "(0, 3)"), "");
  CHECK(mt::files::read_npy(none, source()).shape() == Shape(0, 3));
  const std::string cut = numpy_file(1, fields("<f4", "False", "(3,)"), "0000803f00000040");
  for (const std::string& bytes : {cut, cut.substr(0, 40), std::string(), cut.substr(0, 8)})
    CHECK(refusal_of(bytes) != "no error");
}

// Written by NumPy 1.24.2: np.savez(file, first=np.arange(3, dtype='i4'), second=np.array([[1.5,
// -2.5]], dtype='f4')). Each member has 20 bytes more than its name in front of its data.
TEST_CASE("B159: an archive is read whatever stands between a member's name and its data") {
  const NamedTensors all = mt::files::read_npz(
      from_hex(
          "504b03041400000000000000210002ecbda98c0000008c0000000900140066697273742e6e707901001000"
          "8c000000000000008c00000000000000934e554d5059010076007b276465736372273a20273c6934272c20"
          "27666f727472616e5f6f72646572273a2046616c73652c20277368617065273a2028332c292c207d202020"
          "20202020202020202020202020202020202020202020202020202020202020202020202020202020202020"
          "20202020202020202020202020200a000000000100000002000000504b0304140000000000000021005feb"
          "219d88000000880000000a0014007365636f6e642e6e707901001000880000000000000088000000000000"
          "00934e554d5059010076007b276465736372273a20273c6634272c2027666f727472616e5f6f7264657227"
          "3a2046616c73652c20277368617065273a2028312c2032292c207d20202020202020202020202020202020"
          "2020202020202020202020202020202020202020202020202020202020202020202020202020202020200a"
          "0000c03f000020c0504b010214031400000000000000210002ecbda98c0000008c00000009000000000000"
          "000000000080010000000066697273742e6e7079504b01021403140000000000000021005feb219d880000"
          "00880000000a00000000000000000000008001c70000007365636f6e642e6e7079504b0506000000000200"
          "02006f0000008b0100000000"),
      source());
  CHECK(all.size() == 2);
  CHECK(all.at("first").to_vector() == std::vector<double>{0, 1, 2});
  CHECK(all.at("second").to_vector() == std::vector<double>{1.5, -2.5});
  CHECK(all.at("second").shape() == Shape(1, 2));
}

#if MINITENSOR_JSON
TEST_CASE("B163 and B165: a safetensors header is not believed") {
  const std::string sixty = from_hex("6400000000000000") + std::string(52, '{');
  for (const std::string& bytes :
       {from_hex("0000000000000080") + std::string(16, '{'), sixty, std::string(7, '\0'),
        std::string(8, '\0'),
        safetensors_of(R"({"w":{"dtype":"F32","shape":[3,3],"data_offsets":[0,4]}})",
                       std::string(4, '\0'))})
    CHECK(refusal_of_safetensors(bytes) != "no error");
}
TEST_CASE("B169 and B170: tensors of nothing, of no axes, and at an odd place") {
  const std::string bytes =
      safetensors_of(R"({"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                     R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                     R"("m":{"dtype":"F32","shape":[2,0,3],"data_offsets":[4,4]}})",
                     from_hex("00002040"));
  const NamedTensors all = mt::files::read_safetensors(bytes, nullptr, source());
  CHECK(all.at("e").shape() == Shape(0));
  CHECK(all.at("s").item() == 2.5);
  CHECK(all.at("m").shape() == Shape(2, 0, 3));
  const NamedTensors odd = mt::files::read_safetensors(
      safetensors_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                     from_hex("0000c03f000000c0")),
      nullptr, source());
  CHECK(odd.at("w").to_vector() == std::vector<double>{1.5, -2});
}

// Written by safetensors 0.8.0 with NumPy 1.24.2: save_file({'w': [[1.5, -2.5]] in f4, 'b': 7, 'm':
// [True, False, True], 'h': [0.5, 65504] in f2, 'e': zeros((0, 3))}, path, {'by': 'package'}). It
// has put the largest type first.
TEST_CASE("a file of the safetensors package is read from its bytes") {
  Metadata metadata;
  const NamedTensors tensors = mt::files::read_safetensors(
      from_hex(
          "38010000000000007b225f5f6d657461646174615f5f223a7b226279223a227061636b616765227d2c22"
          "62223a7b226474797065223a22493634222c227368617065223a5b5d2c22646174615f6f666673657473"
          "223a5b302c385d7d2c2265223a7b226474797065223a22463634222c227368617065223a5b302c335d2c"
          "22646174615f6f666673657473223a5b382c385d7d2c2277223a7b226474797065223a22463332222c22"
          "7368617065223a5b312c325d2c22646174615f6f666673657473223a5b382c31365d7d2c2268223a7b22"
          "6474797065223a22463136222c227368617065223a5b325d2c22646174615f6f666673657473223a5b31"
          "362c32305d7d2c226d223a7b226474797065223a22424f4f4c222c227368617065223a5b335d2c226461"
          "74615f6f666673657473223a5b32302c32335d7d7d202020202007000000000000000000c03f000020c0"
          "0038ff7b010001"),
      &metadata, source());
  CHECK(metadata == Metadata{{"by", "package"}});
  CHECK(lines_about(tensors) ==
        "b int64 [] 7\ne float64 [0, 3]\nh float32 [2] 1056964608 1199562752\nm bool [3] 1 0 1\n"
        "w float32 [1, 2] 1069547520 3223322624\n");
}

// The package is not among Debian's: python3 -m pip install safetensors.
TEST_CASE("the safetensors package reads the files that we write, and we read its own") {
  if (!python_has("numpy") || !python_has("safetensors")) return;
  shell::TemporaryFolder folder;
  NamedTensors all = various_named();
  save_safetensors(folder / "ours.safetensors", all, {{"by", "us"}});
  CHECK(python(folder, R"(
sys.stdout.reconfigure(encoding='utf-8')
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
arrays = load_file('ours.safetensors')
assert safe_open('ours.safetensors', 'np').metadata() == {'by': 'us'}
for name in sorted(arrays): print(name, describe(arrays[name]))
save_file(arrays, 'theirs.safetensors', {'by': 'them'})
)") == lines_about(all));
  Metadata metadata;
  CHECK(lines_about(load_safetensors(folder / "theirs.safetensors", &metadata)) ==
        lines_about(all));
  CHECK(metadata == Metadata{{"by", "them"}});
}
#endif

}  // namespace
