// kernels.cu as a file: nvcc compiles it where there is one, without a word. (What its kernels
// compute is tested in test_cuda.cpp, without nvcc.)
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <iostream>
#include <string>

#include "tests/book.hpp"
#include "tests/shell.hpp"

namespace {

TEST_CASE("nvcc compiles kernels.cu without a warning") {
  if (shell::run("nvcc --version").exit_code != 0) {
    std::cout << "skipped: nvcc is not installed\n";
    return;
  }
  shell::TemporaryFolder folder;
  const shell::Outcome compiled = shell::run(
      "nvcc -std=c++20 --expt-relaxed-constexpr -diag-suppress 2810 -arch=sm_80 -I" SOURCE_DIRECTORY
      " -c " SOURCE_DIRECTORY "/kernels.cu -o '" +
      (folder / "kernels.o").string() + "'");
  CHECK(compiled.exit_code == 0);
  CHECK(compiled.out == "");
  CHECK(compiled.err == "");
}

TEST_CASE("kernels.cu is one text for every compiler, of 100 columns") {
  for (const std::string& line : book::lines_of(shell::read_file(SOURCE_DIRECTORY "/kernels.cu"))) {
    INFO(line);
    CHECK(book::columns(line) <= 100);
    CHECK(line.rfind("#if", 0) != 0);
  }
}

}  // namespace
