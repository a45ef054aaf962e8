// kernels.cu as a file: nvcc compiles it where there is one, without a word. (What its kernels
// compute is tested in test_cuda.cpp, without nvcc.)
#include <iostream>
#include <string>

#include "tests/book.hpp"
#include "tests/catch.hpp"
#include "tests/shell.hpp"

namespace {

// ptxas, the assembler, tells of each kernel what it needs. A kernel that spills keeps numbers in
// memory for which it has no registers.
void check_compiles(const std::string& target) {
  if (shell::run("nvcc --version").exit_code != 0) {
    std::cout << "skipped: nvcc is not installed\n";
    return;
  }
  shell::TemporaryFolder folder;
  const shell::Outcome compiled =
      shell::run("nvcc -std=c++20 --expt-relaxed-constexpr -diag-suppress 2810 -Xptxas -v " +
                 target + " -I" SOURCE_DIRECTORY " -c " SOURCE_DIRECTORY "/kernels.cu -o '" +
                 (folder / "kernels.o").string() + "'");
  CHECK(compiled.exit_code == 0);
  CHECK(compiled.out == "");
  int kernels = 0;
  for (const std::string& line : book::lines_of(compiled.err)) {
    const bool of_kernel = line.find(" bytes stack frame, ") != std::string::npos;
    kernels += of_kernel;
    INFO(line);
    if (of_kernel)
      CHECK(line.ends_with(", 0 bytes spill stores, 0 bytes spill loads"));
    else
      CHECK(line.starts_with("ptxas info "));
  }
  CHECK(kernels > 100);
}

TEST_CASE("nvcc compiles kernels.cu for the A100 without a warning, and no kernel spills") {
  check_compiles("-arch=sm_80");
}
TEST_CASE("nvcc compiles kernels.cu for the H100 and later ones, and no kernel spills") {
  check_compiles("-gencode arch=compute_90,code=[sm_90,compute_90]");
}

TEST_CASE("kernels.cu is one text for every compiler, of 100 columns") {
  for (const std::string& line : book::lines_of(shell::read_file(SOURCE_DIRECTORY "/kernels.cu"))) {
    INFO(line);
    CHECK(book::columns(line) <= 100);
    CHECK(line.rfind("#if", 0) != 0);
  }
}

}  // namespace
