// build/minitensor as a person meets it: words, answers, exit codes.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/expected_output.hpp"
#include "tests/shell.hpp"

namespace {

namespace fs = std::filesystem;

// Without a display, wherever the test itself runs.
shell::Outcome minitensor(const std::string& words) {
  return shell::run("unset DISPLAY WAYLAND_DISPLAY; '" MINITENSOR_PROGRAM "' " + words);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("list names the lessons, one a line, and nothing else") {
  const auto listed = minitensor("list");
  CHECK(listed.exit_code == 0);
  CHECK(listed.err == "");
  std::vector<std::string> lessons;
  for (const std::string& name : names_in(SOURCE_DIRECTORY "/lessons"))
    if (name.ends_with(".cpp") && name != "main.cpp")
      lessons.push_back(name.substr(0, name.size() - 4));
  const std::vector<std::string> lines = expected_output::lines_of(listed.out);
  REQUIRE(lines.size() == lessons.size());
  for (std::size_t i = 0; i < lines.size(); ++i) CHECK(lines[i].rfind(lessons[i] + "  ", 0) == 0);
  CHECK(contains(listed.out, "05_chain_rule  The chain rule\n"));
}

TEST_CASE("05, 5, chain_rule and 05_chain_rule all name one lesson") {
  const auto played = minitensor("lesson 05_chain_rule");
  CHECK(played.exit_code == 0);
  CHECK(contains(played.out, "z = 37"));
  for (const char* word : {"05", "5", "chain_rule"})
    CHECK(minitensor(std::string("lesson ") + word).out == played.out);
}

TEST_CASE("whatever is typed wrong gets one sentence on stderr and the exit code 2") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"veiw 05", "no word \"veiw\"; ./run --help"},
      {"lesson", "which lesson"},
      {"lesson 99", "there is no lesson \"99\"; ./run list"},
      {"lesson 05 --colour", "--colour"},
      {"play 99", "there is no lesson \"99\""},
      {"list 05", "\"05\""},
      {"view 99", "there is no lesson \"99\""},
      {"view nowhere.cpp", "there is no file \"nowhere.cpp\""},
      {"view 05 --step", "--step needs a value"},
      {"view 05 --step thirteen", "not \"thirteen\""},
      {"view 05 --step -1", "not \"-1\""},
      {"view 05 --speed 3", "no option \"--speed\"; ./run view --help"},
      {"export", "which lesson, or which file?"},
      {"export 99 --to out", "there is no lesson \"99\""},
      {"export nowhere.cpp --to out", "there is no file \"nowhere.cpp\""},
      {"export 05 extra --to out", "\"extra\""},
      {"export 05 --format gif", "there is no format \"gif\"; there are dot, svg, png and pdf"},
      {"export 05 --episode 9", "there is no episode 9: this run has 1"},
      {"export 05 --step 99", "there is no step 99: episode 1 has 18"},
      {"export " + std::string(300, 'a') + ".cpp --to out", "there is no file \"aaa"},
      {"export self.cpp --to out", "there is no file \"self.cpp\""},
      {"view 05 --step 99999999999", "not \"99999999999\""},
      {"shot", "which lesson, or which file?"},
      {"shot 05", "--to"},
      {"shot 05 --to a.svg", "ends in .png, not \"a.svg\"; ./run export writes dot, svg, png"},
      {"shot 05 --to a", "ends in .png, not \"a\""},
  };
  shell::TemporaryFolder folder;
  fs::create_symlink("self.cpp", folder / "self.cpp");
  for (const auto& [words, named] : wrong) {
    INFO("minitensor " << words);
    const auto answered = shell::run("unset DISPLAY; cd '" + folder.path().string() +
                                     "' && '" MINITENSOR_PROGRAM "' " + words);
    CHECK(answered.exit_code == 2);
    CHECK(std::count(answered.err.begin(), answered.err.end(), '\n') == 1);
    CHECK(contains(answered.err, named));
  }
  CHECK(names_in(folder.path()) == std::vector<std::string>{"self.cpp"});
}

TEST_CASE("a window that is too small or too large is refused, also without a window") {
  // Without a display, or without a window in this build, that is said after what was typed.
  for (const char* words : {"shot 05 --to a.png --width 99999999", "view 05 --height 199"}) {
    const auto refused = minitensor(words);
    CHECK(refused.exit_code == 2);
    if (contains(refused.err, "this build has no window")) continue;
    CHECK(contains(refused.err, "needs a whole number from 200 to 16384, not "));
  }
}

TEST_CASE("export of a program that makes no tensor says so and exits with 1") {
  shell::TemporaryFolder folder;
  shell::write_file(folder / "own.cpp", "int main() {}\n");
  const auto exported = minitensor("export '" + (folder / "own.cpp").string() + "' --to '" +
                                   folder.path().string() + "'");
  CHECK(exported.exit_code == 1);
  CHECK(exported.err == "minitensor: own: this program has made no tensor\n");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"own.cpp"});
}

TEST_CASE("every word explains itself when asked for --help") {
  const auto help = minitensor("--help");
  CHECK(help.exit_code == 0);
  CHECK(minitensor("help").out == help.out);
  for (const char* word : {"list", "lesson", "view", "export", "shot"}) {
    INFO(word);
    CHECK(contains(help.out, std::string("\n  ") + word));
    const auto one = minitensor(std::string(word) + " --help");
    CHECK(one.exit_code == 0);
    CHECK(one.err == "");
    CHECK(contains(one.out, std::string("./run ") + word));
  }
  CHECK(contains(minitensor("export --help").out, "--frames"));
  CHECK(contains(minitensor("shot --help").out, "light colours; --present has them anyway"));
}

TEST_CASE("run --help names every word of the program and of its own") {
  const auto help = shell::run("cd / && '" SOURCE_DIRECTORY "/run' --help");
  CHECK(help.exit_code == 0);
  for (const char* word : {"list", "lesson", "view", "export", "shot", "test", "bench", "install"})
    CHECK(contains(help.out, std::string("./run ") + word));
}

TEST_CASE("run explains test, install and bench when asked for --help, and does nothing") {
  for (const std::string word : {"test", "install", "bench"}) {
    INFO(word);
    const auto help = shell::run("cd / && '" SOURCE_DIRECTORY "/run' " + word + " --help");
    CHECK(help.exit_code == 0);
    CHECK(help.err == "");
    CHECK(contains(help.out, "./run " + word));
  }
}

TEST_CASE("without words and without a display the first lesson is told, and how to export it") {
  const auto told = minitensor("");
  CHECK(told.exit_code == 0);
  CHECK(contains(told.out, "The computation graph"));
  CHECK(contains(told.out, "./run export 04 --to out"));
}

TEST_CASE("the viewer without a display says what to do instead and exits with 2") {
  for (const char* words : {"view 05", "view"}) {
    const auto refused = minitensor(words);
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, "./run shot"));
    CHECK(contains(refused.err, "./run lesson"));
  }
}

TEST_CASE("B192: without a display the viewer says so at once, and all the rest goes on") {
  const auto start = std::chrono::steady_clock::now();
  const auto refused = minitensor("view 05");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "there is no display here"));
  CHECK(contains(refused.err, "./run shot"));  // the hint
  CHECK(minitensor("lesson 05").exit_code == 0);
  shell::TemporaryFolder folder;
  CHECK(minitensor("export 05 --format dot --to '" + (folder / "out").string() + "'").exit_code ==
        0);
  CHECK(fs::exists(folder / "out" / "05_chain_rule.dot"));
}

TEST_CASE(
    "export of lesson 05 writes one figure a step, and the last one shows the gradients 7 and 29") {
  shell::TemporaryFolder folder;
  const auto exported =
      minitensor("export 05 --frames --format dot --to '" + (folder / "out").string() + "'");
  CHECK(exported.err == "");
  REQUIRE(exported.exit_code == 0);
  const std::vector<std::string> names = names_in(folder / "out");
  REQUIRE(names.size() == 20);  // steps 0 to 18, and the figure itself
  CHECK(names.front() == "05_chain_rule.000.dot");
  CHECK(names[18] == "05_chain_rule.018.dot");
  CHECK(names.back() == "05_chain_rule.dot");
  const std::string last = shell::read_file(folder / "out" / "05_chain_rule.018.dot");
  CHECK(contains(last, ">7.0<"));
  CHECK(contains(last, ">29.0<"));
  CHECK_FALSE(contains(shell::read_file(folder / "out" / "05_chain_rule.016.dot"), ">7.0<"));
  for (const std::string& name : names) CHECK(contains(exported.out, name + "\n"));
}

TEST_CASE("export of all lessons at a step goes on behind those that are shorter, and names them") {
  shell::TemporaryFolder folder;
  const auto exported =
      minitensor("export all --step 15 --format dot --to '" + (folder / "out").string() + "'");
  CHECK(exported.exit_code == 2);
  CHECK(exported.err ==
        "minitensor: 04_computation_graph: there is no step 15: episode 1 has 14\n"
        "minitensor: 21_exchange: there is no step 15: episode 1 has 7\n");
  const std::size_t lessons = expected_output::lines_of(minitensor("list").out).size();
  CHECK(names_in(folder / "out").size() == lessons - 2);
}

const char* const own_program = R"(#include "minitensor.hpp"
using namespace mt;

int main(int count, char** words) {
  double typed = count > 1 ? std::atof(words[1]) : 2.0;
  Tensor speed = tensor(typed, {.requires_grad = true}).named("speed");
  Tensor energy = speed * speed;
  energy.backward();
  std::cout << "dE/dv = " << speed.grad().item() << '\n';
  return RESULT;
}
)";

TEST_CASE("export watches a program that is not ours, with its flags, arguments and output") {
  shell::TemporaryFolder folder;
  shell::write_file(folder / "own.cpp", own_program);
  const auto exported =
      minitensor("export '" + (folder / "own.cpp").string() + "' -DRESULT=0 --format dot --to '" +
                 (folder / "out").string() + "' -- 3.5");
  CHECK(exported.err == "");
  REQUIRE(exported.exit_code == 0);
  CHECK(contains(exported.out, "dE/dv = 7"));
  const std::string figure = shell::read_file(folder / "out" / "own.dot");
  CHECK(contains(figure, "speed"));
  CHECK(contains(figure, ">12.25<"));
  CHECK(contains(figure, ">7.0<"));
}

TEST_CASE("export says how a program ended that did not simply finish") {
  shell::TemporaryFolder folder;
  shell::write_file(folder / "own.cpp", own_program);
  const auto exported =
      minitensor("export '" + (folder / "own.cpp").string() + "' -DRESULT=3 --format dot --to '" +
                 folder.path().string() + "'");
  CHECK(exported.exit_code == 0);
  CHECK(contains(exported.err, "exited with code 3"));
  CHECK(fs::exists(folder / "own.dot"));
}

TEST_CASE("export hands on the exit code of a lesson that cannot be told") {
  shell::TemporaryFolder folder;
  const auto exported = minitensor("export 13 --data '" + (folder / "nowhere.csv").string() +
                                   "' --to '" + (folder / "out").string() + "'");
  CHECK(exported.exit_code == 2);
  CHECK(contains(exported.out + exported.err, "nowhere.csv"));
}

TEST_CASE("an export that is interrupted leaves nothing behind, and ends by the signal") {
  shell::TemporaryFolder folder;
  shell::write_file(
      folder / "own.cpp",
      "#include <iostream>\nint main() { std::cout << 1 << std::endl; for (;;) {} }\n");
  fs::create_directory(folder / "temporary");
  // Not SIGINT: a shell starts what is to run beside it deaf to that, and it stays so.
  for (const auto& [signal, code] : {std::pair("TERM", 143), {"HUP", 129}}) {
    INFO(signal);
    const auto ended =
        shell::run("cd '" + folder.path().string() +
                   "'; TMPDIR=$PWD/temporary '" MINITENSOR_PROGRAM
                   "' export own.cpp --to out >told 2>&1 & "
                   "for i in $(seq 600); do grep -q 1 '" +
                   (folder / "told").string() + "' && break; sleep 0.1; done; ls '" +
                   (folder / "temporary").string() + "'; kill -" + signal + " $!; wait $!");
    CHECK(contains(ended.out, "minitensor-"));
    CHECK(ended.exit_code == code);
    CHECK(names_in(folder / "temporary").empty());
    fs::remove(folder / "told");
  }
}

TEST_CASE("export of a program that does not compile shows the compiler's words and exits with 1") {
  shell::TemporaryFolder folder;
  shell::write_file(folder / "own.cpp", "int main() { return undeclared_name; }\n");
  const auto exported = minitensor("export '" + (folder / "own.cpp").string() + "' --to '" +
                                   folder.path().string() + "'");
  CHECK(exported.exit_code == 1);
  CHECK(contains(exported.out + exported.err, "undeclared_name"));
  CHECK(contains(exported.err, "does not compile"));
  CHECK(names_in(folder.path()) == std::vector<std::string>{"own.cpp"});
}

}  // namespace
