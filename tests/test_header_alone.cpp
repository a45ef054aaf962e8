// What a student does first: one file, one include, one command, in either compiler.
#include <iostream>
#include <string>

#include "tests/catch.hpp"
#include "tests/shell.hpp"

namespace {

const char* const program = R"(#include "minitensor.hpp"
using namespace mt;

int main() {
  Tensor x = tensor({{1., 2.}, {3., 4.}}, {.requires_grad = true}).named("x");
  Tensor z = (x * x).sum();
  z.backward();
  std::cout << x.grad() << '\n';
}
)";

const char* const what_it_prints = "tensor([[2., 4.],\n        [6., 8.]])\n";

// From a folder that is not ours, with -I to where the header is.
shell::Outcome compile(const shell::TemporaryFolder& folder, const std::string& compiler,
                       const std::string& files_and_flags) {
  return shell::run("cd '" + folder.path().string() + "' && " + compiler +
                    " -std=c++20 -I'" SOURCE_DIRECTORY "' " + files_and_flags);
}

bool is_there(const std::string& compiler) {
  const bool found = shell::run("command -v " + compiler).exit_code == 0;
  if (!found) std::cout << "skipped: " << compiler << " is not installed\n";
  return found;
}

void check_program_under(const std::string& compiler) {
  if (!is_there(compiler)) return;
  shell::TemporaryFolder folder;
  shell::write_file(folder / "prog.cpp", program);
  const auto compiled =
      compile(folder, compiler, "-Wall -Wextra -Wshadow -Wconversion prog.cpp -o prog");
  CHECK(compiled.err == "");
  REQUIRE(compiled.exit_code == 0);
  const auto ran = shell::run((folder / "prog").string());
  CHECK(ran.exit_code == 0);
  CHECK(ran.out == what_it_prints);
}

TEST_CASE("g++ compiles a program with the header alone, without a warning") {
  check_program_under("g++");
}

TEST_CASE("clang++ compiles a program with the header alone, without a warning") {
  check_program_under("clang++");
}

TEST_CASE("two files of one program can both include the header") {
  shell::TemporaryFolder folder;
  shell::write_file(
      folder / "one.cpp",
      "#include \"minitensor.hpp\"\nmt::Tensor twice(const mt::Tensor& x) { return x + x; }\n");
  shell::write_file(folder / "two.cpp",
                    "#include \"minitensor.hpp\"\nmt::Tensor twice(const mt::Tensor&);\n"
                    "int main() { std::cout << twice(mt::tensor(2.0)).item() << '\\n'; }\n");
  const auto compiled = compile(folder, COMPILER, "one.cpp two.cpp -o prog");
  CHECK(compiled.err == "");
  REQUIRE(compiled.exit_code == 0);
  CHECK(shell::run((folder / "prog").string()).out == "4\n");
}

TEST_CASE("flags that give up NaN and rounding are refused, with what to write instead") {
  shell::TemporaryFolder folder;
  shell::write_file(folder / "prog.cpp", program);
  const auto compiled = compile(folder, COMPILER, "-Ofast -fsyntax-only prog.cpp");
  CHECK(compiled.exit_code != 0);
  CHECK(compiled.err.find("write -O3, not -Ofast or -ffast-math") != std::string::npos);
}

// How long it takes is told here and by ./run bench: a time depends on what else the machine does.
TEST_CASE("a small program costs at most 400 MB to compile with g++ -O2, and holds no layers") {
  if (!is_there("g++")) return;
  shell::TemporaryFolder folder;
  shell::write_file(folder / "prog.cpp", program);
  const auto compiled = compile(folder, "g++", "-O2 -c prog.cpp");
  REQUIRE(compiled.exit_code == 0);
  std::cout << "compiled in " << compiled.seconds << " s with " << compiled.peak_megabytes
            << " MB\n";
  CHECK(compiled.peak_megabytes < 400);
  // A virtual function that is defined outside of its class would bring all of its class along.
  const auto names = shell::run("nm -C '" + (folder / "prog.o").string() + "'");
  CHECK(names.out.find(" T main") != std::string::npos);
  CHECK(names.out.find("minitensor::nn::") == std::string::npos);
  CHECK(names.out.find("minitensor::optim::") == std::string::npos);
}

}  // namespace
