// The ways of a program, good and bad: each begins with the same small graph and then does what its
// word says. The tests of runs start it with one word; it is watched as a student's program is
// (viewer/attach.hpp).
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "minitensor.hpp"

namespace {

using mt::Tensor;

Tensor begin() {
  Tensor x = mt::tensor(3.0, {.requires_grad = true}).named("x");
  Tensor z = x * x;
  z.backward();
  return x;
}

void finish() { std::cout << "that is all\n"; }
void exit_with_3() { std::exit(3); }
void exit_quickly() { _exit(4); }
void call_abort() { std::abort(); }
void use_foreign_memory() {
  volatile int* volatile nowhere = nullptr;  // volatile twice, or a clever compiler leaves it out
  *nowhere = 1;
}
void divide_by_zero() {
  volatile int zero = 0;
  std::cout << 7 / zero;  // 1 / zero is a comparison to a clever compiler
}
void throw_error() { static_cast<void>(mt::matmul(mt::ones({2, 3}), mt::ones({4, 5}))); }
void throw_number() { throw 7; }
void throw_in_thread() {
  std::thread([] { throw std::runtime_error("from a thread"); }).join();
}
void swallow() {
  try {
    throw_error();
  } catch (...) {
  }
}
void swallow_and_terminate() {
  try {
    throw std::runtime_error("swallowed");
  } catch (...) {
    std::terminate();
  }
}
void terminate_without_reason() { std::terminate(); }

void read_input() {
  std::string word;
  std::cout << (std::cin >> word ? "read something" : "there is nothing to read");
}
void print_in_between() {
  Tensor y = mt::tensor(1.0).named("y");
  std::printf("one ");
  y = y + 1;
  std::cout << "two ";
  y = y + 1;
  std::cerr << "three";
  y = y + 1;
  std::cout << std::string("\0\xff\x80 four", 8);
}
void print_much() {
  for (int i = 0; i < 40000; ++i) std::printf("line %d\n", i);
  std::cout << std::string(200000, 'x') << std::endl;
}
void print_and_crash() {
  std::cout << "last words\n";
  use_foreign_memory();
}
void close_output() {
  Tensor y = begin();
  std::fclose(stdout);
  close(1);
  close(2);
  y = mt::exp(y);
}
void redirect_output() {
  if (!std::freopen("/dev/null", "w", stdout)) std::abort();
  std::cout << "not for the reader" << std::endl;
  static_cast<void>(mt::exp(begin()));
}

void never_end() {
  for (std::atomic<unsigned long> i{0};; ++i) {
  }
}
void print_without_end() {
  for (unsigned long i = 0;; ++i) std::printf("%lu is not the end\n", i);
}
void ignore_signals() {
  for (int number = 1; number < 32; ++number) signal(number, SIG_IGN);
  setpgid(0, 0);
  never_end();
}

void fork_a_printer() {
  pid_t child = fork();
  if (child == 0) {
    Tensor unseen = mt::exp(begin());
    std::cout << "from the child\n";
    std::exit(9);
  }
  waitpid(child, nullptr, 0);
  std::cout << "from the parent\n";
  static_cast<void>(mt::exp(begin()));
}
void run_a_shell() {
  std::cout << "before, " << std::flush;
  if (std::system("printf 'in the shell %s, ' \"${MINITENSOR_WATCH-unwatched}\"") != 0)
    std::abort();
  std::cout << "after";
}
void leave_a_process_behind() {
  pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  std::cout << child << std::endl;
}
void leave_a_printer_behind() {
  if (fork() == 0) print_without_end();
}

void many_events() {
  mt::NoGrad guard;
  Tensor y = mt::tensor(0.0).named("y");
  for (int i = 0; i < 50000; ++i) y = y + 1;
}
void two_threads() {
  std::thread other([] {
    for (int i = 0; i < 20000; ++i) std::fputs("other\n", stderr);
  });
  Tensor y = mt::tensor(0.0);
  for (int i = 0; i < 2000; ++i) y = y + 1;
  other.join();
}

const std::map<std::string, void (*)()> ways = {
    {"finish", finish},
    {"exit_with_3", exit_with_3},
    {"exit_quickly", exit_quickly},
    {"call_abort", call_abort},
    {"use_foreign_memory", use_foreign_memory},
    {"divide_by_zero", divide_by_zero},
    {"throw_error", throw_error},
    {"throw_number", throw_number},
    {"throw_in_thread", throw_in_thread},
    {"swallow", swallow},
    {"swallow_and_terminate", swallow_and_terminate},
    {"terminate_without_reason", terminate_without_reason},
    {"read_input", read_input},
    {"print_in_between", print_in_between},
    {"print_much", print_much},
    {"print_and_crash", print_and_crash},
    {"close_output", close_output},
    {"redirect_output", redirect_output},
    {"never_end", never_end},
    {"print_without_end", print_without_end},
    {"ignore_signals", ignore_signals},
    {"fork_a_printer", fork_a_printer},
    {"run_a_shell", run_a_shell},
    {"leave_a_process_behind", leave_a_process_behind},
    {"leave_a_printer_behind", leave_a_printer_behind},
    {"many_events", many_events},
    {"two_threads", two_threads},
};

}  // namespace

int main(int count, char** words) {
  const Tensor x = begin();
  ways.at(count > 1 ? words[1] : "finish")();
}
