// A run is a process of its own: whatever it does, the window never waits, nothing that it wrote is
// lost, and the last event says how it ended.
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/catch.hpp"
#include "tests/shell.hpp"
#include "viewer/process.hpp"

using namespace viewer;
using namespace std::chrono_literals;

namespace {

// Runs that end by themselves end far sooner; this only keeps a broken test from hanging.
constexpr auto patience = 240s;

std::unique_ptr<Process> start(const std::string& way, RunOptions options = {}) {
  return Process::start({.arguments = {WAYS_PROGRAM, way}}, std::move(options));
}

std::unique_ptr<Process> start_by_hand(const std::string& way) {
  return Process::start({.arguments = {BY_HAND_PROGRAM, way}});
}

std::shared_ptr<const Trace> trace_of(Process& run) {
  REQUIRE(run.wait(patience));
  return run.latest();
}

template <class What>
std::vector<What> all(const Trace& trace) {
  std::vector<What> found;
  for (const auto& event : trace.events)
    if (const What* what = event ? std::get_if<What>(&event->what) : nullptr)
      found.push_back(*what);
  return found;
}

std::string printed(const Trace& trace) {
  std::string text;
  for (const Printed& part : all<Printed>(trace)) text += part.text;
  return text;
}

// How it ended; exactly one event says so, and it is the last.
Ended end_of(const Trace& trace) {
  REQUIRE(all<Ended>(trace).size() == 1);
  const Ended* last = std::get_if<Ended>(&trace.events.back()->what);
  REQUIRE(last);
  return *last;
}

bool has_first_graph(const Trace& trace) {
  return !all<Made>(trace).empty() && !all<Op>(trace).empty() && !all<Landed>(trace).empty() &&
         !all<PassEnds>(trace).empty();
}

// Waits for what must come; false after a long time.
template <class Condition>
bool comes(Condition condition) {
  for (auto until = std::chrono::steady_clock::now() + patience; !condition();
       std::this_thread::sleep_for(5ms))
    if (std::chrono::steady_clock::now() > until) return false;
  return true;
}

int open_descriptors() {
  int count = 0;
  for (int i = 0; i < 256; ++i) count += fcntl(i, F_GETFD) != -1;
  return count;
}

bool lives(pid_t id) {  // a zombie does not
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string text(std::istreambuf_iterator<char>(file), {});
  std::size_t name_ends = text.rfind(')');
  return name_ends != std::string::npos && text.substr(name_ends + 2, 1) != "Z";
}

// ---- How runs end -------------------------------------------------------------------------------

struct Way {
  std::string word;
  Ended::How how;
  int number;
  std::string text;  // found in Ended::text
};

TEST_CASE("however a program ends, its graph is kept and the last event says how") {
  const std::vector<Way> table = {
      {"finish", Ended::How::finished, 0, ""},
      {"exit_with_3", Ended::How::exit_code, 3, "exited with code 3"},
      {"exit_quickly", Ended::How::exit_code, 4, "exited with code 4"},
      {"call_abort", Ended::How::signal, SIGABRT, "SIGABRT"},
      {"use_foreign_memory", Ended::How::signal, SIGSEGV, "SIGSEGV"},
      {"divide_by_zero", Ended::How::signal, SIGFPE, "SIGFPE"},
      {"throw_error", Ended::How::threw, 0,
       "minitensor::Error: matmul: inner sizes differ: [2, 3] x [4, 5]"},
      {"throw_number", Ended::How::threw, 0, "int"},
      {"throw_in_thread", Ended::How::threw, 0, "std::runtime_error: from a thread"},
      {"swallow", Ended::How::finished, 0, ""},
      {"swallow_and_terminate", Ended::How::threw, 0, "std::runtime_error: swallowed"},
      {"terminate_without_reason", Ended::How::signal, SIGABRT, "SIGABRT"},
      {"close_output", Ended::How::finished, 0, ""},
      {"redirect_output", Ended::How::finished, 0, ""},
  };
  for (const Way& way : table) {
    INFO(way.word);
    auto run = start(way.word);
    std::shared_ptr<const Trace> trace = trace_of(*run);
    Ended ended = end_of(*trace);
    INFO(words(ended));
    CHECK(ended.how == way.how);
    CHECK(ended.number == way.number);
    CHECK(ended.text.find(way.text) != std::string::npos);
    CHECK(has_first_graph(*trace));
    CHECK_FALSE(run->running());
  }
}

TEST_CASE("what happens after the program's output is closed or redirected is still seen") {
  for (const char* way : {"close_output", "redirect_output"}) {
    auto run = start(way);
    std::shared_ptr<const Trace> trace = trace_of(*run);
    CHECK(all<Op>(*trace).back().op == "exp");
    CHECK(printed(*trace) == "");
  }
}

TEST_CASE("a failed operation is seen, and a program that swallows its error goes on") {
  auto run = start("swallow");
  std::shared_ptr<const Trace> trace = trace_of(*run);
  REQUIRE(all<Failed>(*trace).size() == 1);
  CHECK(all<Failed>(*trace)[0].op == "matmul");
}

TEST_CASE("a program that is not there is said so") {
  auto run = Process::start({.arguments = {"/no/such/program"}});
  std::shared_ptr<const Trace> trace = trace_of(*run);
  CHECK(trace->events.size() == 1);
  CHECK(end_of(*trace).how == Ended::How::exit_code);
  CHECK(words(end_of(*trace)) == "cannot run /no/such/program: No such file or directory");
}

TEST_CASE("the words for an end fit a status line") {
  CHECK(words({Ended::How::finished, 0, ""}) == "finished");
  CHECK(words({Ended::How::stopped, 0, ""}) == "stopped");
  CHECK(words({Ended::How::exit_code, 3, "exited with code 3"}) == "exited with code 3");
  CHECK(words({Ended::How::threw, 0, "int"}) == "threw int");
  CHECK(words({Ended::How::signal, SIGSEGV, "SIGSEGV, ..."}) == "crashed: SIGSEGV, ...");
}

// ---- Text ---------------------------------------------------------------------------------------

TEST_CASE("a program that reads finds nothing to read, and does not wait for it") {
  auto run = start("read_input");
  CHECK(printed(*trace_of(*run)) == "there is nothing to read");
}

TEST_CASE(
    "text stands between the events where it was printed, newline or not, bytes as they were") {
  auto run = start("print_in_between");
  std::shared_ptr<const Trace> trace = trace_of(*run);
  std::vector<std::string> seen;
  for (const auto& event : trace->events) {
    if (auto* text = std::get_if<Printed>(&event->what)) seen.push_back(text->text);
    if (auto* op = std::get_if<Op>(&event->what)) seen.push_back(op->op);
  }
  CHECK(seen == std::vector<std::string>{"mul", "one ", "add_number", "two ", "add_number", "three",
                                         "add_number", std::string("\0\xff\x80 four", 8)});
}

TEST_CASE("much text arrives whole") {
  auto run = start("print_much");
  std::string expected;
  for (int i = 0; i < 40000; ++i) expected += "line " + std::to_string(i) + "\n";
  expected += std::string(200000, 'x') + "\n";
  CHECK(printed(*trace_of(*run)) == expected);
}

TEST_CASE("what a program printed before it crashed is there") {
  auto run = start("print_and_crash");
  CHECK(printed(*trace_of(*run)) == "last words\n");
  CHECK(end_of(*run->latest()).number == SIGSEGV);
}

TEST_CASE("an exception ends the text as it does in a terminal") {
  auto run = start("throw_in_thread");
  CHECK(printed(*trace_of(*run)).find("terminate called after throwing") != std::string::npos);
}

TEST_CASE("text is passed on to our own output on request") {
  for (bool echo : {false, true}) {
    shell::TemporaryFolder folder;
    std::fflush(stdout);
    int ours = dup(1);
    int file = open((folder / "out").c_str(), O_CREAT | O_WRONLY, 0600);
    dup2(file, 1);
    auto run = start_by_hand("speak");
    if (echo) run = Process::start({.arguments = {BY_HAND_PROGRAM, "speak"}}, {.echo = true});
    bool over = run->wait(patience);
    dup2(ours, 1);
    close(ours);
    close(file);
    CHECK(over);
    CHECK(shell::read_file(folder / "out") == (echo ? "beforebetweenafter" : ""));
  }
}

TEST_CASE(
    "a program that prints without end is kept within bounds, shown while it runs, and stopped") {
  auto run = start("print_without_end");
  CHECK(comes(
      [&] { return printed(*run->latest()).find("no more of it is kept") != std::string::npos; }));
  CHECK(run->running());
  std::size_t size = printed(*run->latest()).size();
  CHECK(size < 20'000'000);
  std::this_thread::sleep_for(100ms);
  CHECK(printed(*run->latest()).size() == size);
  run->stop();
  std::shared_ptr<const Trace> trace = trace_of(*run);
  CHECK(end_of(*trace).how == Ended::How::stopped);
  CHECK(has_first_graph(*trace));
}

// ---- Running and stopping -----------------------------------------------------------------------

TEST_CASE("a program that never ends is seen as far as it went, and can be stopped") {
  for (const char* way : {"never_end", "ignore_signals"}) {
    auto run = start(way);
    CHECK(run->stage() == Process::Stage::running);
    CHECK(comes([&] { return has_first_graph(*run->latest()); }));
    CHECK_FALSE(run->wait(20ms));
    run->stop();
    CHECK(end_of(*trace_of(*run)).how == Ended::How::stopped);
  }
}

TEST_CASE("a stop before the program has begun, or after it has ended, does no harm") {
  auto run = start("never_end");
  run->stop();
  CHECK(end_of(*trace_of(*run)).how == Ended::How::stopped);
  run->stop();

  auto finished = start("finish");
  REQUIRE(finished->wait(patience));
  finished->stop();
  CHECK(end_of(*finished->latest()).how == Ended::How::finished);
}

TEST_CASE("a run that goes out of sight is stopped, and leaves no descriptor open") {
  const int before = open_descriptors();
  for (int i = 0; i < 30; ++i) start(i % 2 == 0 ? "never_end" : "print_without_end");
  CHECK(open_descriptors() == before);
}

TEST_CASE("runs side by side do not hold each other's pipes open") {
  auto one = start("never_end");
  auto other = start("finish");
  auto third = start("never_end");
  CHECK(other->wait(patience));
  CHECK(one->running());
  CHECK(third->running());
}

TEST_CASE("what a program started goes with it") {
  auto run = start("leave_a_process_behind");
  std::shared_ptr<const Trace> trace = trace_of(*run);
  CHECK(end_of(*trace).how == Ended::How::finished);
  const pid_t left = std::stoi(printed(*trace));
  CHECK(comes([&] { return !lives(left); }));
}

TEST_CASE("a process that goes on printing does not keep a run from ending") {
  auto run = start("leave_a_printer_behind");
  CHECK(end_of(*trace_of(*run)).how == Ended::How::finished);
}

TEST_CASE("a forked process and a shell print, but only the program itself is watched") {
  auto forked = start("fork_a_printer");
  std::shared_ptr<const Trace> trace = trace_of(*forked);
  CHECK(printed(*trace) == "from the child\nfrom the parent\n");
  CHECK(all<PassBegins>(*trace).size() == 2);  // the parent's, at the beginning and in the end
  CHECK(end_of(*trace).how == Ended::How::finished);

  auto shell = start("run_a_shell");
  CHECK(printed(*trace_of(*shell)) == "before, in the shell unwatched, after");
}

TEST_CASE("text of another thread tears no event") {
  auto run = start("two_threads");
  std::shared_ptr<const Trace> trace = trace_of(*run);
  std::string lines;
  for (int i = 0; i < 20000; ++i) lines += "other\n";
  CHECK(printed(*trace) == lines);
  CHECK(all<Op>(*trace).size() == 2001);
}

// ---- The hand-over ------------------------------------------------------------------------------

// Under the thread sanitizer everything takes ten times as long.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t many = 50'000;
#else
constexpr std::size_t many = 1'000'000;
#endif

TEST_CASE("a million events arrive, each in its place, while a reader looks") {
  auto run = Process::start({.arguments = {BY_HAND_PROGRAM, "count", std::to_string(many)}});
  auto text = [](const Trace& trace, std::size_t i) -> const std::string& {
    return std::get<Said>(trace.events[i]->what).text;
  };
  std::size_t seen = 0;
  while (run->running()) {
    std::shared_ptr<const Trace> trace = run->latest();
    CHECK(trace->events.size() >= seen);
    seen = trace->events.size();
    if (seen > 1) CHECK(text(*trace, seen - 2) == std::to_string(seen - 2));
    std::this_thread::sleep_for(1ms);
  }
  std::shared_ptr<const Trace> trace = trace_of(*run);
  REQUIRE(trace->events.size() == many + 1);
  for (std::size_t i = 0; i < many; ++i)
    if (text(*trace, i) != std::to_string(i)) FAIL("event " << i << " is another");
}

TEST_CASE("what was handed over never changes") {
  auto run = start("many_events");
  REQUIRE(comes([&] { return run->latest()->events.size() > 1000; }));
  std::shared_ptr<const Trace> early = run->latest();
  const std::size_t size = early->events.size();
  const Event* last = early->events.back().get();
  REQUIRE(run->wait(patience));
  CHECK(early->events.size() == size);
  CHECK(early->events.back().get() == last);
  CHECK(run->latest()->events.size() > 50000);
}

TEST_CASE("a reader is told of news about thirty times a second at most, and in the end") {
  std::atomic<int> calls{0};
  const auto begun = std::chrono::steady_clock::now();
  auto run = start("many_events", {.changed = [&] { ++calls; }});
  REQUIRE(run->wait(patience));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  CHECK(calls <= 31 * seconds.count() + 5);
  CHECK(
      comes([&] { return calls >= 3; }));  // at the beginning, with the last events, and after them
}

TEST_CASE("once the budget is used up, new snapshots are statistics only") {
  auto count_full = [](const Trace& trace) {
    int full = 0;
    trace.snapshots.for_each([&](const Snapshot& one) { full += one.in_full(); });
    return full;
  };
  auto rich = start_by_hand("large");
  CHECK(count_full(*trace_of(*rich)) == 200);
  CHECK_FALSE(rich->statistics_only());
  auto poor = Process::start({.arguments = {BY_HAND_PROGRAM, "large"}}, {.budget = 1'000'000});
  std::shared_ptr<const Trace> trace = trace_of(*poor);
  CHECK(trace->snapshots.size() == 200);
  CHECK(count_full(*trace) > 80);
  CHECK(count_full(*trace) < 125);
  CHECK(poor->statistics_only());
}

TEST_CASE("a trace holds so many events at once and says when it holds no more") {
  auto run =
      Process::start({.arguments = {BY_HAND_PROGRAM, "count", "20000"}}, {.most_events = 5000});
  std::shared_ptr<const Trace> trace = trace_of(*run);
  CHECK(all<Said>(*trace).size() == 5000);
  CHECK(printed(*trace) == "\n[it goes on; no more events are kept]\n");
  CHECK(end_of(*trace).how == Ended::How::finished);
}

TEST_CASE("a trace holds 64 megabytes of pictures and says when it holds no more") {
  auto run = start_by_hand("pictures");
  std::shared_ptr<const Trace> trace = trace_of(*run);
  CHECK(all<Pictured>(*trace).size() == 256);  // of 256 · 256 · 4 bytes each
  CHECK(printed(*trace) == "\n[no more of its pictures are kept]\n");
  CHECK(all<Said>(*trace).size() == 1);  // all else goes on
}

TEST_CASE("a program that sends nonsense is read on, with one complaint") {
  auto run = start_by_hand("nonsense");
  std::shared_ptr<const Trace> trace = trace_of(*run);
  REQUIRE(all<Said>(*trace).size() == 1);
  CHECK(all<Said>(*trace)[0].text == "good");
  const std::string text = printed(*trace);
  const std::string complaint = "cannot be read";
  CHECK(text.find(complaint) != std::string::npos);
  CHECK(text.find(complaint) == text.rfind(complaint));
  CHECK(end_of(*trace).how == Ended::How::finished);
}

TEST_CASE("the system knows better than the program how it ended") {
  auto run = start_by_hand("lie");
  std::shared_ptr<const Trace> trace = trace_of(*run);
  CHECK(end_of(*trace).how == Ended::How::finished);
  CHECK(all<Said>(*trace).size() == 1);
}

TEST_CASE("a program that ends in mid-sentence loses that sentence only") {
  auto run = start_by_hand("torn");
  std::shared_ptr<const Trace> trace = trace_of(*run);
  CHECK(all<Said>(*trace).size() == 1);
  CHECK(printed(*trace) == "");
}

// ---- A student's own file -----------------------------------------------------------------------

Tools tools() {
  return {.compiler = COMPILER, .repository = SOURCE_DIRECTORY, .attach_library = ATTACH_LIBRARY};
}

TEST_CASE("a student's file is compiled unchanged, run with its arguments, and watched") {
  shell::TemporaryFolder folder;
  shell::write_file(folder / "numbers.hpp", "inline double two() { return 2; }\n");
  shell::write_file(folder / "my program.cpp",
                    "#include <minitensor.hpp>\n"
                    "#include \"numbers.hpp\"\n"
                    "using namespace mt;\n"
                    "Tensor w = tensor(5.0, {.requires_grad = true}).named(\"w\");\n"
                    "int main(int count, char** words) {\n"
                    "  auto z = w * two() * FACTOR;\n"
                    "  z.backward();\n"
                    "  std::cout << words[count - 1];\n"
                    "  return count;\n"
                    "}\n");
  const std::string file = (folder / "my program.cpp").string();
  auto run = Process::start(compiled(file, tools(), {"-DFACTOR=3.0"}, {"--data", "a b.csv"}));
  CHECK(run->running());
  std::shared_ptr<const Trace> trace = trace_of(*run);
  INFO(printed(*trace));
  CHECK(printed(*trace) == "a b.csv");
  CHECK(end_of(*trace).number == 3);
  REQUIRE(all<Landed>(*trace).size() == 1);
  const Snapshot* gradient = trace->find(all<Landed>(*trace)[0].after);
  REQUIRE(gradient);
  CHECK(*reinterpret_cast<const float*>(gradient->bytes.data()) == 6);
  REQUIRE(trace->sources.count(file) == 1);
  CHECK(trace->sources.at(file) == shell::read_file(file));
  REQUIRE(!all<Made>(*trace).empty());  // also what is made before main
  CHECK(trace->events[0]->line == Line{file, 4});
}

TEST_CASE("a file that does not compile shows what the compiler says") {
  shell::TemporaryFolder folder;
  const std::string file = (folder / "broken.cpp").string();
  shell::write_file(file, "int main() { return nothing; }\n");
  auto run = Process::start(compiled(file, tools()));
  std::shared_ptr<const Trace> trace = trace_of(*run);
  CHECK(words(end_of(*trace)) == "broken.cpp does not compile");
  CHECK(end_of(*trace).how == Ended::How::exit_code);
  CHECK(end_of(*trace).number == 1);
  CHECK(printed(*trace).find(file + ":1:") != std::string::npos);
  CHECK(printed(*trace).find("nothing") != std::string::npos);
}

TEST_CASE("a compilation can be stopped") {
  shell::TemporaryFolder folder;
  const std::string file = (folder / "slow.cpp").string();
  shell::write_file(file, "#include <minitensor.hpp>\nint main() {}\n");
  auto run = Process::start(compiled(file, tools()));
  CHECK(run->stage() == Process::Stage::compiling);
  run->stop();
  CHECK(end_of(*trace_of(*run)).how == Ended::How::stopped);
}

TEST_CASE("a compiler that is not there is said so") {
  Tools none = tools();
  none.compiler = "/no/such/compiler";
  auto run = Process::start(compiled("any.cpp", none));
  CHECK(words(end_of(*trace_of(*run))) ==
        "cannot run /no/such/compiler: No such file or directory");
}

TEST_CASE("the library is linked only while it is newer than what it is made from") {
  auto has = [](const Command& command, const std::string& word) {
    return std::find(command.compiler.begin(), command.compiler.end(), word) !=
           command.compiler.end();
  };
  const std::string source =
      (std::filesystem::path(SOURCE_DIRECTORY) / "viewer/recorder.cpp").string();

  shell::TemporaryFolder folder;
  Tools there = tools();
  there.attach_library = (folder / "library.a").string();
  shell::write_file(there.attach_library, "");
  Command with = compiled("any.cpp", there);
  CHECK(has(with, there.attach_library));
  CHECK_FALSE(has(with, source));

  std::filesystem::last_write_time(there.attach_library,
                                   std::filesystem::file_time_type::clock::now() - 10000h);
  Command stale = compiled("any.cpp", there);
  CHECK_FALSE(has(stale, there.attach_library));
  CHECK(has(stale, source));

  // A header of its own beside the student's file is the one that counts.
  shell::write_file(folder / "minitensor.hpp", "#pragma once\n");
  there.attach_library = (folder / "newer.a").string();
  shell::write_file(there.attach_library, "");
  CHECK(has(compiled((folder / "any.cpp").string(), there), source));
}

}  // namespace
