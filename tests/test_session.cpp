// A session: one lesson or one file, run in a process of its own, without a window.
#include <chrono>
#include <functional>
#include <thread>

#include "tests/catch.hpp"
#include "tests/shell.hpp"
#include "viewer/session.hpp"

using namespace viewer;

namespace {

AppOptions options() {
  AppOptions options;
  options.lessons = {{"04", "04_computation_graph", "The computation graph", ""},
                     {"05", "05_chain_rule", "The chain rule", ""}};
  options.self = MINITENSOR_PROGRAM;
  options.tools = {
      .compiler = COMPILER, .repository = SOURCE_DIRECTORY, .attach_library = ATTACH_LIBRARY};
  return options;
}

// Updates as a window does, until `done` or until four minutes have gone.
bool until(Session& session, Desk& desk, const std::function<bool()>& done) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (;;) {
    const std::chrono::duration<double> gone = Clock::now() - begin;
    session.update(desk, gone.count());
    if (done()) return true;
    if (gone.count() > 240) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool until_ended(Session& session, Desk& desk) {
  return until(session, desk, [&] { return !session.running() && session.timeline().ended(); });
}

const std::string program = R"(#include "minitensor.hpp"
using namespace mt;
int main() {
  auto x = tensor(2.0, {.requires_grad = true}).named("x");
  auto y = x * x;
  y.backward();
)";

}  // namespace

TEST_CASE("a lesson opens at its beginning, or at the step asked for") {
  AppOptions wanted = options();
  Desk desk;
  Session first(wanted, [] {});
  REQUIRE(first.open("05", desk));
  REQUIRE(until_ended(first, desk));
  CHECK(first.timeline().number(desk.cursor) == 0);

  wanted.step = 13;
  Session second(wanted, [] {});
  REQUIRE(second.open("chain_rule", desk));
  REQUIRE(until_ended(second, desk));
  CHECK(second.timeline().number(desk.cursor) == 13);
  CHECK(second.title() == "05  The chain rule");
  CHECK(second.command(desk.cursor) == "./run view 05 --step 13");
}

TEST_CASE("a name that is neither a lesson nor a file opens nothing") {
  const AppOptions none = options();
  Desk desk;
  Session session(none, [] {});
  CHECK_FALSE(session.open("06_no_such_lesson", desk));
}

TEST_CASE("another lesson takes the place of the one before, and selects nothing") {
  AppOptions wanted = options();
  wanted.select = "y";
  Desk desk;
  Session session(wanted, [] {});
  REQUIRE(session.open("05", desk));
  REQUIRE(until_ended(session, desk));
  CHECK(desk.selected.kind == Item::Kind::tensor);
  session.open_lesson(0, desk);
  REQUIRE(until(session, desk, [&] { return session.timeline().episode(1).steps != 18; }));
  REQUIRE(until_ended(session, desk));
  CHECK(session.name() == "04_computation_graph");
  CHECK(desk.selected.kind == Item::Kind::none);
}

TEST_CASE("a program's run is followed to its end until the reader steps") {
  const shell::TemporaryFolder folder;
  const std::string file = folder / "mine.cpp";
  shell::write_file(file, program + "}\n");
  const AppOptions wanted = options();
  Desk desk;
  Session session(wanted, [] {});
  REQUIRE(session.open(file, desk));
  REQUIRE(until_ended(session, desk));
  CHECK(session.status() == "finished");
  CHECK(desk.cursor == session.timeline().latest());
}

TEST_CASE("an episode that is asked for without a step is stood in at its end") {
  const shell::TemporaryFolder folder;
  const std::string file = folder / "mine.cpp";
  shell::write_file(file, program + "  for (int i = 0; i < 3; ++i) (x * x * x).backward();\n}\n");
  AppOptions wanted = options();
  wanted.episode = 2;
  Desk desk;
  Session session(wanted, [] {});
  REQUIRE(session.open(file, desk));
  REQUIRE(until_ended(session, desk));
  REQUIRE(session.timeline().episodes().size() == 4);
  CHECK(desk.cursor == session.timeline().end(2));
}

TEST_CASE("a file that is saved runs anew and keeps the reader's step") {
  const shell::TemporaryFolder folder;
  const std::string file = folder / "mine.cpp";
  shell::write_file(file, program + "}\n");
  AppOptions wanted = options();
  wanted.step = 2;
  Desk desk;
  Session session(wanted, [] {});
  REQUIRE(session.open(file, desk));
  REQUIRE(until_ended(session, desk));
  REQUIRE(session.timeline().episodes().size() == 1);

  shell::write_file(file, program + "  auto z = x + 1; (void)z;\n}\n");
  REQUIRE(until(session, desk, [&] { return session.timeline().episodes().size() == 2; }));
  REQUIRE(until_ended(session, desk));
  CHECK(session.timeline().number(desk.cursor) == 2);
}

TEST_CASE("a file that does not compile shows the compiler's words") {
  const shell::TemporaryFolder folder;
  const std::string file = folder / "mine.cpp";
  shell::write_file(file, program + "  auto z = ;\n}\n");
  const AppOptions wanted = options();
  Desk desk;
  Session session(wanted, [] {});
  REQUIRE(session.open(file, desk));
  REQUIRE(until_ended(session, desk));
  CHECK(session.failed());
  CHECK(session.status() == "mine.cpp does not compile");
  CHECK(session.timeline().printed(desk.cursor).find("mine.cpp:7") != std::string_view::npos);
}

TEST_CASE("a program that never ends is stopped") {
  const shell::TemporaryFolder folder;
  const std::string file = folder / "endless.cpp";
  shell::write_file(file, program + "  for (volatile bool on = true; on;) {\n  }\n}\n");
  const AppOptions wanted = options();
  Desk desk;
  Session session(wanted, [] {});
  REQUIRE(session.open(file, desk));
  REQUIRE(until(session, desk, [&] { return session.timeline().episode(1).steps >= 4; }));
  CHECK(session.running());
  session.stop();
  REQUIRE(until_ended(session, desk));
  CHECK(session.status() == "stopped");
  CHECK_FALSE(session.failed());
}

TEST_CASE("a command with blanks in it can be pasted into a shell") {
  const shell::TemporaryFolder folder;
  const std::string file = folder / "my program.cpp";
  shell::write_file(file, program + "}\n");
  AppOptions wanted = options();
  wanted.program_args = {"it's"};
  Desk desk;
  Session session(wanted, [] {});
  REQUIRE(session.open(file, desk));
  session.stop();
  CHECK(session.command(desk.cursor) == "./run view '" + file + "' --step 0 -- 'it'\\''s'");
}
