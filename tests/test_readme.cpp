// The README's promises: its programs, the numbers beside them, and its table of the reading order.
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/book.hpp"
#include "tests/catch.hpp"
#include "tests/shell.hpp"

namespace {

std::string readme() { return shell::read_file(SOURCE_DIRECTORY "/README.md"); }

// What stands between each ```cpp and the ``` that closes it.
std::vector<std::string> programs() {
  const std::string text = readme(), opening = "```cpp\n";
  std::vector<std::string> found;
  for (std::size_t at = 0; (at = text.find(opening, at)) != text.npos;) {
    at += opening.size();
    found.push_back(text.substr(at, text.find("```", at) - at));
  }
  return found;
}

void check(const std::string& program) {
  INFO(program);
  std::string promised;
  const std::regex printing(R"(std::cout << .*// +([^,]+))");
  std::istringstream lines(program);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, printing)) promised += match[1].str() + "\n";
  }
  REQUIRE(promised != "");

  shell::TemporaryFolder folder;
  shell::write_file(folder / "prog.cpp", program);
  const auto compiled =
      shell::run("cd '" + folder.path().string() +
                 "' && '" COMPILER "' -std=c++20 -I'" SOURCE_DIRECTORY "' prog.cpp -o prog");
  CHECK(compiled.err == "");
  REQUIRE(compiled.exit_code == 0);
  CHECK(shell::run("cd '" + folder.path().string() + "' && ./prog").out == promised);
}

TEST_CASE("the README's programs print the numbers that stand beside them") {
  REQUIRE(programs().size() == 4);
  for (const std::string& program : programs()) check(program);
}

// The code in the right column of the table of idioms.
std::vector<std::string> idioms() {
  const std::string text = readme();
  std::size_t at = text.find("| Python | here |");
  REQUIRE(at != text.npos);
  std::istringstream lines(text.substr(at, text.find("\n\n", at) - at));
  std::vector<std::string> found;
  const std::regex code("`([^`]+)`");
  for (std::string line; std::getline(lines, line);) {
    const std::string right = line.substr(line.rfind('|', line.size() - 2));
    for (std::sregex_iterator match(right.begin(), right.end(), code), end; match != end; ++match)
      found.push_back((*match)[1]);
  }
  return found;
}

TEST_CASE("what the README gives for idioms of Python compiles, and runs") {
  REQUIRE(idioms().size() == 18);
  std::string program = "#include \"minitensor.hpp\"\nusing namespace mt;\nint main() {\n";
  for (const std::string& idiom : idioms())
    program +=
        "  {\n    Tensor x = randn({3, 4}), a = ones({4, 4}), b = ones({4, 4}), "
        "w = ones({2}, {.requires_grad = true}), loss = w.pow(2).sum();\n"
        "    loss.backward({.retain_graph = true});\n    " +
        idiom + ";\n  }\n";
  program += "}\n";
  INFO(program);
  shell::TemporaryFolder folder;
  shell::write_file(folder / "prog.cpp", program);
  const auto compiled =
      shell::run("cd '" + folder.path().string() +
                 "' && '" COMPILER "' -std=c++20 -w -I'" SOURCE_DIRECTORY "' prog.cpp -o prog");
  INFO(compiled.err);
  REQUIRE(compiled.exit_code == 0);
  const auto ran = shell::run("'" + (folder / "prog").string() + "'");
  INFO(ran.err);
  CHECK(ran.exit_code == 0);
}

TEST_CASE("the README's reading order tells the chapters of the header and their true lengths") {
  std::string table;
  for (const book::Chapter& chapter : book::chapters())
    table += "| " + chapter.number + " | " + chapter.title + " | " +
             std::to_string(chapter.lines.size()) + " |\n";
  INFO("the table as it should be:\n" << table);
  CHECK(readme().find(table) != std::string::npos);
}

TEST_CASE("the README tells how long the student's path through the header is") {
  const std::string sentence = "together " + std::to_string(book::students_path()) + " lines";
  INFO("the README should say: " << sentence);
  CHECK(readme().find(sentence) != std::string::npos);
}

TEST_CASE("every picture and file that the README points to is there") {
  const std::string text = readme();
  const std::regex link(R"(\]\(([^)#:]+)\))");
  for (std::sregex_iterator match(text.begin(), text.end(), link), end; match != end; ++match) {
    INFO((*match)[1]);
    CHECK(std::filesystem::exists(std::string(SOURCE_DIRECTORY "/") + (*match)[1].str()));
  }
}

}  // namespace
