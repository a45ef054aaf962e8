// How the header may be written, and how it may not: the forms of programs/spelling.cpp compile
// without a warning and do what they say; the lines below do not compile, because they would do
// something else than they seem to.
#include <iostream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/shell.hpp"

namespace {

const std::string flags = " -std=c++20 -Wall -Wextra -Wshadow -Wconversion -Werror ";

bool is_there(const std::string& compiler) {
  const bool found = shell::run("command -v " + compiler).exit_code == 0;
  if (!found) std::cout << "skipped: " << compiler << " is not installed\n";
  return found;
}

// ---- What compiles ------------------------------------------------------------------------------

void check_forms_under(const std::string& compiler) {
  if (!is_there(compiler)) return;
  shell::TemporaryFolder folder;
  const std::string program = (folder / "spelling").string();
  const auto compiled = shell::run(compiler + flags +
                                   "-I'" SOURCE_DIRECTORY "' '" SOURCE_DIRECTORY
                                   "/tests/programs/spelling.cpp' -o '" +
                                   program + "'");
  CHECK(compiled.err == "");
  REQUIRE(compiled.exit_code == 0);
  const auto ran = shell::run("'" + program + "'");
  CHECK(ran.out == "");
  CHECK(ran.exit_code == 0);
}

TEST_CASE("under g++ every form that is promised compiles without a warning and works") {
  check_forms_under("g++");
}
TEST_CASE("under clang++ every form that is promised compiles without a warning and works") {
  check_forms_under("clang++");
}

// ---- What does not ------------------------------------------------------------------------------

// Each line stands in a function of the tensors x, y, w and a std::vector<Tensor> list.
const std::vector<std::string> wrong = {
    // Tensors are made by name, not from whatever stands there.
    "Tensor t = 3.0;",
    "Tensor t = {1, 2};",
    "auto t = tensor({1, 2}, float64);",
    "auto t = tensor(x);",
    "auto t = zeros(2.5);",
    "auto t = zeros({2.5, 1.0});",
    "auto t = zeros(true);",
    "auto t = randint(0, 10, {});",
    // A name is not written to by assigning a number.
    "x = 5.0;",
    "auto row = x[0]; row = 5.0;",
    "const Tensor k = x; k += 1;",
    // Numbers come out explicitly.
    "float f = x;",
    "bool b = x < 1;",
    "double total = 0; total += x;",
    // Operands are tensors and numbers.
    "auto t = x + nullptr;",
    "auto t = x + \"a\";",
    "auto t = x + std::vector<double>{1, 2};",
    "enum Color { red }; auto t = x + red;",
    "Operand kept = x; Operand other = kept;",
    // Members are functions.
    "auto n = x.shape[0];",
    "w -= 0.1 * w.grad;",
    // A list in the wrong place is not taken for something else.
    "auto t = x.max({0, 1});",
    "auto t = x.sum({0}, {true});",
    "auto t = x.sum({0}, true);",
    "y.backward({});",
    "optim::SGD optimizer(list, {0.1});",
    // What a module was made of stays.
    "nn::Linear fc(2, 3); fc = nn::Linear(2, 3);",
    "nn::Linear fc(2, 3); fc.weight = x;",
    "nn::Linear fc(2, 3, {false});",
    // grad() gives a list.
    "Tensor dx = grad(y, x);",
    "Tensor v, i; std::tie(v, i) = x.max(0);",
    // Results that are thrown away, and guards without a name, which end at once.
    "x + 1;",
    "x.relu();",
    "x[0] == 5.0;",
    "grad(y, x)[0];",
    "NoGrad();",
    "EnableGrad();",
    "AnomalyMode();",
    "Scope(\"name\");",
};

// One program with a function for each wrong line: every function has to be complained about, and
// the one that is right has not. (One compilation for all of them costs seconds, not minutes.)
void check_wrong_lines_under(const std::string& compiler) {
  if (!is_there(compiler)) return;
  shell::TemporaryFolder folder;
  std::string program = "#include \"minitensor.hpp\"\nusing namespace mt;\n";
  const std::string head = "void line(Tensor x, Tensor y, Tensor w, std::vector<Tensor> list) { ";
  const std::string use = "static_cast<void>(list); ";
  const std::string right =
      "x += 1; x.add_(1); w.named(\"w\"); x[0] = 5.0; NoGrad guard; Tensor dx = grad(y, x)[0];";
  program += "namespace right { " + head + use + right + " } }\n";
  int number = 3;
  for (const std::string& line : wrong)
    program += "namespace n" + std::to_string(++number) + " { " + head + use + line + " }}\n";
  shell::write_file(folder / "lines.cpp", program);
  const std::string all = compiler == "clang++" ? " -ferror-limit=0" : " -fmax-errors=0";
  const auto compiled = shell::run(
      "cd '" + folder.path().string() + "' && " + compiler + flags + "-fsyntax-only" + all +
      " -Wno-unused-variable -Wno-unused-but-set-variable -I'" SOURCE_DIRECTORY "' lines.cpp");
  const auto complained_at = [&](int line) {
    return ("\n" + compiled.err).find("\nlines.cpp:" + std::to_string(line) + ":") !=
           std::string::npos;
  };
  INFO(compiled.err);
  CHECK_FALSE(complained_at(3));
  number = 3;
  for (const std::string& line : wrong) {
    CAPTURE(line);
    CHECK(complained_at(++number));
  }
}

TEST_CASE("under g++ lines that mean something else than they seem to do not compile") {
  check_wrong_lines_under("g++");
}
TEST_CASE("under clang++ lines that mean something else than they seem to do not compile") {
  check_wrong_lines_under("clang++");
}

}  // namespace
