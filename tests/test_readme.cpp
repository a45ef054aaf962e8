// The README's promises: its program, the numbers beside it, and its table of the reading order.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/book.hpp"
#include "tests/shell.hpp"

namespace {

std::string readme() { return shell::read_file(SOURCE_DIRECTORY "/README.md"); }

// The text between the first ```cpp and the ``` that closes it.
std::string first_program() {
  const std::string text = readme(), opening = "```cpp\n";
  const std::size_t begin = text.find(opening) + opening.size();
  return text.substr(begin, text.find("```", begin) - begin);
}

TEST_CASE("the README's program prints the numbers that stand beside it") {
  const std::string program = first_program();
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
  CHECK(shell::run((folder / "prog").string()).out == promised);
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
