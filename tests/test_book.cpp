// The order of minitensor.hpp: it is a book, and a book's contents list must be true.
#include <iostream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/book.hpp"
#include "tests/catch.hpp"

namespace {

using book::Chapter;

std::vector<std::string> numbers_of(const std::vector<Chapter>& chapters) {
  std::vector<std::string> numbers;
  for (const Chapter& chapter : chapters) numbers.push_back(chapter.number);
  return numbers;
}

// The lines of chapter 0 that look like "//   4. Tensor" or "//   4  Tensor   what is in it".
std::vector<std::string> contents_list(const Chapter& first) {
  static const std::regex entry(R"(// +(\d+|A)\.? +(\S.*))");
  std::vector<std::string> entries;
  bool begun = false;
  for (const std::string& line : first.lines) {
    std::smatch match;
    begun = begun || line.find("Contents") != std::string::npos;
    if (begun && std::regex_match(line, match, entry))
      entries.push_back(match[1].str() + " " + match[2].str());
  }
  return entries;
}

// Names of classes and namespaces ("optim::") that a chapter introduces at the left margin.
std::set<std::string> introduced_in(const Chapter& chapter) {
  static const std::regex introduction(R"(^(class|struct|namespace)(?: \[\[.*\]\])? (\w+))");
  std::set<std::string> names;
  for (const std::string& line : chapter.lines) {
    std::smatch match;
    if (std::regex_search(line, match, introduction))
      names.insert(match[2].str() + (match[1] == "namespace" ? "::" : ""));
  }
  return names;
}

TEST_CASE("the chapters stand in order, from 0 to 14 and the appendix") {
  const std::vector<std::string> expected = {"0", "1", "2",  "3",  "4",  "5",  "6",  "7",
                                             "8", "9", "10", "11", "12", "13", "14", "A"};
  CHECK(numbers_of(book::chapters()) == expected);
}

TEST_CASE("the contents list of the header names each chapter as its banner does") {
  const std::vector<Chapter> chapters = book::chapters();
  const std::vector<std::string> entries = contents_list(chapters.at(0));
  REQUIRE(entries.size() == chapters.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    INFO("entry: " << entries[i]);
    CHECK(entries[i].rfind(chapters[i].number + " " + chapters[i].title, 0) == 0);
  }
}

TEST_CASE("no chapter uses the appendix") {
  const std::vector<Chapter> chapters = book::chapters();
  std::set<std::string> names = introduced_in(chapters.back());
  REQUIRE(names.count("optim::") == 1);
  REQUIRE(names.count("Linear") == 1);
  for (const Chapter& chapter : chapters)  // formula::Tanh and rule::Tanh are not nn::Tanh
    if (&chapter != &chapters.back())
      for (const std::string& own : introduced_in(chapter)) names.erase(own);
  for (const Chapter& chapter : chapters) {
    if (&chapter == &chapters.back()) break;
    const std::string code = book::code_of(chapter);
    for (const std::string& name : names) {
      INFO("chapter " << chapter.number << " and " << name);
      CHECK_FALSE(
          std::regex_search(code, std::regex("\\b" + name + (name.ends_with(":") ? "" : "\\b"))));
    }
  }
}

TEST_CASE("conditional compilation and intrinsics stand in chapters 5 to 7 alone") {
  const std::regex machine_dependent(
      R"(^\s*#\s*(if|ifdef|ifndef|elif)\b|\b_mm\d*_|\b__m\d+|immintrin|target_clones|__CUDA)");
  for (const Chapter& chapter : book::chapters()) {
    if (chapter.number == "5" || chapter.number == "6" || chapter.number == "7") continue;
    for (const std::string& line : chapter.lines) {
      INFO("chapter " << chapter.number << ": " << line);
      CHECK_FALSE(std::regex_search(line, machine_dependent));
    }
  }
}

TEST_CASE("the header's code never names the viewer") {
  for (const Chapter& chapter : book::chapters()) {
    const std::string code = book::code_of(chapter);
    CHECK(code.find("viewer") == std::string::npos);
  }
}

TEST_CASE("no line of the header is longer than 100 columns") {
  for (const Chapter& chapter : book::chapters())
    for (const std::string& line : chapter.lines) {
      INFO("chapter " << chapter.number << ": " << line);
      CHECK(book::columns(line) <= 100);
    }
}

TEST_CASE("the student's path through the header can be told in lines") {
  const int lines = book::students_path();
  std::cout << "chapters 0, 1, 2, 4, 8, 9 and the first ten boxes of 10: " << lines << " lines\n";
  CHECK(lines > 0);
}

// ---- The tests above can fail -------------------------------------------------------------------

TEST_CASE("a book is cut at its banners") {
  const std::vector<Chapter> chapters = book::chapters(
      "// a title page\n"
      "// ====\n// 0. First\n// ====\n// Contents\n//   0. First\n//   1. Second\n"
      "// ====\n// 1. Second\n// ====\nint x;  // optim\n// 2. not a banner\n");
  REQUIRE(chapters.size() == 2);
  CHECK(chapters[0].title == "First");
  CHECK(chapters[0].lines.size() == 7);
  CHECK(chapters[1].lines.size() == 5);
  CHECK(contents_list(chapters[0]) == std::vector<std::string>{"0 First", "1 Second"});
  CHECK(book::code_of(chapters[1]).find("optim") == std::string::npos);
}

}  // namespace
