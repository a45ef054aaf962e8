// The lessons: what they print, which steps they take, and what they answer to a mistake.
#include <cmath>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "lessons/csv.hpp"
#include "lessons/player.hpp"
#include "tests/catch.hpp"
#include "tests/expected_output.hpp"
#include "tests/shell.hpp"

namespace {

using Arguments = std::vector<std::string>;

struct Played {
  int exit_code = 0;
  std::string out, err;
};

// Catches a stream's text for as long as it lives.
class Caught {
 public:
  explicit Caught(std::ostream& stream) : stream_(stream), before_(stream.rdbuf(text_.rdbuf())) {}
  ~Caught() { stream_.rdbuf(before_); }
  Caught(const Caught&) = delete;
  Caught& operator=(const Caught&) = delete;
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::ostream& stream_;
  std::streambuf* before_;
};

Played play(const lesson::Lesson& one, const Arguments& arguments) {
  Caught out(std::cout), err(std::cerr);
  const int exit_code = lesson::run_lesson(one, arguments);
  return {exit_code, out.text(), err.text()};
}

Played play(const std::string& word, const Arguments& arguments) {
  const lesson::Lesson* found = lesson::find_lesson(word);
  REQUIRE(found != nullptr);
  return play(*found, arguments);
}

std::vector<std::string> expectations_of(const lesson::Lesson& one) {
  return expected_output::expectations_in(shell::read_file(one.file));
}

// ---- What they print ----------------------------------------------------------------------------

TEST_CASE("every lesson prints exactly what its source expects") {
  REQUIRE(lesson::lessons().size() >= 3);
  for (const lesson::Lesson& one : lesson::lessons()) {
    INFO("lesson " << one.id);
    const Played played = play(one, {"--brief"});
    CHECK(played.exit_code == 0);
    CHECK(played.err == "");
    REQUIRE_FALSE(expectations_of(one).empty());
    CHECK(expected_output::difference(expectations_of(one),
                                      expected_output::lines_of(played.out)) == "");
  }
}

TEST_CASE("with its prose a lesson prints the same things in the same order") {
  for (const lesson::Lesson& one : lesson::lessons()) {
    INFO("lesson " << one.id);
    const Played played = play(one, {});
    CHECK(played.exit_code == 0);
    CHECK(expected_output::missing(expectations_of(one), expected_output::lines_of(played.out)) ==
          "");
    CHECK(played.out.find("Challenge:") != std::string::npos);
    CHECK(played.out.find("The road not taken:") != std::string::npos);
  }
}

TEST_CASE("prose is at most 78 characters wide, and no chart is wider") {
  for (const lesson::Lesson& one : lesson::lessons()) {
    const std::vector<std::string> expected = expectations_of(one);
    for (const std::string& line : expected_output::lines_of(play(one, {}).out)) {
      INFO(line);
      const bool is_fact = std::any_of(
          expected.begin(), expected.end(),
          [&](const std::string& wanted) { return expected_output::agree(wanted, line); });
      CHECK((is_fact || words::length(line) <= 78));
    }
  }
}

TEST_CASE("expected words are compared exactly and expected numbers to 1e-4") {
  using expected_output::agree;
  CHECK(agree("w = 2.0001, b = 1", "w = 2.00011, b = 1.00005"));
  CHECK(agree("slope 454.158", "slope 454.16"));
  CHECK(agree("x <- 1e-9", "x <- 0"));
  CHECK_FALSE(agree("w = 2", "w = 2.001"));
  CHECK_FALSE(agree("w = 2", "v = 2"));
  CHECK_FALSE(agree("w = 2", "w = -2"));
  CHECK_FALSE(agree("w = 2", "w = 2 "));
  CHECK_FALSE(agree("w = 2", "w = nan"));
  CHECK_FALSE(agree("w = 2", "w = "));
}

TEST_CASE("a line too many, too few or out of order is a difference") {
  using expected_output::difference;
  CHECK(difference({"a", "b"}, {"a", "b"}) == "");
  CHECK(difference({"a", "b"}, {"a"}) != "");
  CHECK(difference({"a"}, {"a", "b"}) != "");
  CHECK(difference({"a", "b"}, {"b", "a"}) != "");
  CHECK(expected_output::missing({"a", "c"}, {"a", "b", "c"}) == "");
  CHECK(expected_output::missing({"c", "a"}, {"a", "b", "c"}) == "a");
}

// ---- The steps of lesson 05 ---------------------------------------------------------------------

// Lists the steps in the words of the design: "c = 6", "x <- 3", "y <- 27, sum 29", "x.grad = 7".
class Steps : public mt::Observer {
 public:
  std::vector<std::string> list;

  void made(const mt::Tensor& x, mt::Loc line) override { value(x, line); }
  void op(const mt::Node*, const mt::Facts&, const mt::Given&, mt::Span<const mt::Tensor*>,
          mt::Span<mt::Tensor> outputs, mt::Loc line) override {
    for (const mt::Tensor& output : outputs) value(output, line);
  }
  void pass_begins(const mt::PassSeen& pass) override {
    for (std::size_t i = 0; i < pass.roots.size(); ++i)
      gradient(pass.roots[i].id(), pass.seeds[i].item());
  }
  void arrived(std::int64_t, const mt::Node& node, int slot, const mt::Tensor&, const mt::Shape&,
               const mt::Tensor& given) override {
    gradient(node.input_id(slot), given.item());
  }
  void landed(std::int64_t, const mt::Tensor& leaf, const mt::Tensor&,
              const mt::Tensor& after) override {
    list.push_back(names_.at(leaf.id()) + ".grad = " + words::number(after.item()));
  }

 private:
  void value(const mt::Tensor& x, mt::Loc line) {
    names_[x.id()] = lesson::naming_on(lesson::source_line(line.path(), line.line())).variable;
    list.push_back(names_[x.id()] + " = " + words::number(x.item()));
  }
  void gradient(std::uint64_t id, double given) {
    std::string text = names_.at(id) + " <- " + words::number(given);
    const bool is_first = sums_.count(id) == 0;
    sums_[id] += given;
    if (!is_first) text += ", sum " + words::number(sums_[id]);
    list.push_back(text);
  }

  std::map<std::uint64_t, std::string> names_;
  std::map<std::uint64_t, double> sums_;
};

TEST_CASE("lesson 05 takes its eighteen steps in their order") {
  Steps steps;
  {
    lesson::detail::Listening listening(&steps);
    play("05", {});
  }
  const std::vector<std::string> reference = {
      "x = 2",  "y = 3",  "a = 4",           "b = 27",        "c = 6",       "s = 31",
      "z = 37", "z <- 1", "s <- 1",          "c <- 1",        "a <- 1",      "b <- 1",
      "x <- 3", "y <- 2", "y <- 27, sum 29", "x <- 4, sum 7", "y.grad = 29", "x.grad = 7"};
  CHECK(steps.list == reference);
}

// ---- Being listened to --------------------------------------------------------------------------

// Writes down what the voice says.
class Notes : public mt::Observer {
 public:
  std::vector<std::string> list;
  void note(const char* kind, const std::string& text, mt::Span<double> numbers) override {
    std::string line = std::string(kind) + ": " + text;
    for (double number : numbers) line += " " + words::number(number);
    list.push_back(line);
  }
  void arrived(std::int64_t, const mt::Node& node, int, const mt::Tensor&, const mt::Shape&,
               const mt::Tensor& given) override {
    list.push_back(std::string(node.facts().name) + " gives " + words::number(given.item()));
  }
};

// Runs `function` as a lesson that `listener` watches.
void run_watched(void (*function)(), mt::Observer& listener) {
  const lesson::Lesson one{"99", "99_test", "Test", "Test", __FILE__, function};
  lesson::detail::Listening listening(&listener);
  REQUIRE(lesson::run_lesson(one, {}) == 0);
}

TEST_CASE("what a lesson says goes to the observer that is set, and nothing is printed") {
  Notes notes;
  Caught out(std::cout);
  run_watched(
      [] {
        lesson::say("Good morning.");
        lesson::step("Look up.");
        lesson::ask("What is 1 + 1?", 2, {"Count."});
        lesson::plot("loss", 0, 0.5);
        lesson::picture(mt::tensor({{1., 2., 3.}, {4., 5., 6.}}), "digits");
      },
      notes);
  CHECK(out.text() == "");
  CHECK(notes.list == std::vector<std::string>{"said: Good morning.", "said: Look up.",
                                               "paused: ", "hint: Count.",
                                               "asked: What is 1 + 1? 2", "plotted: loss 0 0.5",
                                               "pictured: digits 3 1 2 3 4 5 6"});
}

TEST_CASE("words said in advance are heard when their contribution arrives") {
  Notes notes;
  run_watched(
      [] {
        auto x = mt::tensor(2.0, {.requires_grad = true});
        auto a = x * 3.0;
        auto z = a * x;
        lesson::when_arrives(x, "the first");
        lesson::when_arrives(x, "the second");
        z.backward();
      },
      notes);
  CHECK(notes.list == std::vector<std::string>{"mul gives 2", "mul gives 6", "said: the first",
                                               "mul_number gives 6", "said: the second"});
}

TEST_CASE("a predicted contribution is asked for before it arrives") {
  Notes notes;
  run_watched(
      [] {
        auto x = mt::tensor(2.0, {.requires_grad = true});
        auto z = x * x;
        lesson::predict(x);
        z.backward();
      },
      notes);
  const std::string question = "asked: A contribution is on its way. What will the sum be then?";
  CHECK(notes.list ==
        std::vector<std::string>{question + " 2", "mul gives 2", question + " 4", "mul gives 2"});
}

TEST_CASE("show names a tensor after its variable and prints it") {
  Caught out(std::cout);
  auto total = mt::tensor(37.0);
  lesson::show(total);
  auto pair = mt::tensor({1., 2.});
  lesson::show(pair, "p");
  CHECK(total.name() == "total");
  CHECK(pair.name() == "p");
  CHECK(out.text() == "total = 37\np = tensor([1., 2.])\n");
}

TEST_CASE("a picture has a character for each element, from dark to bright") {
  Caught out(std::cout);
  lesson::picture(mt::tensor({{0., 1.}, {0.5, 0.25}}));
  CHECK(out.text() == " █\n▒░\n");
}

TEST_CASE("a picture is printed under its title, and what is no number is a question mark") {
  Caught out(std::cout);
  lesson::picture(mt::tensor({{0., NAN}, {-INFINITY, 2.}}), "a field");
  CHECK(out.text() == "a field\n ?\n?█\n");
}

// ---- The narrator -------------------------------------------------------------------------------

std::string narrated(void (*function)()) {
  const lesson::Lesson one{"99", "99_test", "Test", "Test", __FILE__, function};
  return play(one, {"--brief"}).out;
}

TEST_CASE("the narrator tells a rule, its numbers, and the sum of contributions") {
  const std::string told = narrated([] {
    auto x = mt::tensor(3.0, {.requires_grad = true});
    auto z = x * x;
    z.backward();
  });
  CHECK(told ==
        "  x = 3\n"
        "  z = x · x = 3 × 3 = 9\n"
        "  backwards from z, which receives 1\n"
        "  x receives dy · b = 1 × 3 = 3 from z = x · x\n"
        "  x receives dy · a = 1 × 3 = 3 from z = x · x\n"
        "    its second contribution: 3 + 3 = 6\n"
        "  x.grad = 6\n");
}

TEST_CASE("the narrator says over which axis a broadcast gradient was summed") {
  const std::string told = narrated([] {
    auto w = mt::tensor(3.0, {.requires_grad = true});
    auto x = mt::tensor({1., 2.});
    auto y = w * x;
    auto total = y.sum();
    total.backward();
  });
  CHECK(told.find("w receives dy · b summed over axis 0 = 3 from y = w · x\n") !=
        std::string::npos);
}

TEST_CASE(
    "the narrator calls what comes out of a network, and no layer inside it, by its variable") {
  const std::string told = narrated([] {
    mt::nn::Sequential net(mt::nn::Linear(1, 1), mt::nn::ReLU());
    {
      const mt::NoGrad guard;
      net.parameters()[0].fill_(2);
      net.parameters()[1].fill_(1);
    }
    auto x = mt::ones({1, 1});
    for (int i = 0; i < 2; ++i) {
      auto y = net(x);
      auto loss = y.sum();
      loss.backward();
    }
  });
  CHECK(told.find("  linear(0.weight, x, 0.bias) = [1, 1], from 3 to 3\n") != std::string::npos);
  CHECK(told.find("  y = [1, 1], from 3 to 3\n  loss = sum(y) = 3\n") != std::string::npos);
  CHECK(told.find("  0.bias receives summed over axis 0 = [1]") != std::string::npos);
  CHECK(told.find("  y = ") == told.rfind("  y = "));
}

TEST_CASE("a write among the operations of a line does not change what its variable is called") {
  const std::string told = narrated([] {
    const auto count = mt::zeros({});
    const auto next = [&](const mt::Tensor& x, mt::Loc loc = mt::Loc::here()) {
      const mt::Pin pin(loc);
      count.add_(1);
      return x * 2.0;
    };
    auto x = mt::tensor(3.0);
    auto y = next(x);
  });
  CHECK(told.find("  y = x · 2 = 3 × 2 = 6\n") != std::string::npos);
}

TEST_CASE("the narrator tells a loop once") {
  const std::string told = narrated([] {
    auto h = mt::tensor(1.0);
    for (int i = 0; i < 1000; ++i) {
      auto twice = h + h;
      h = twice * 0.5;
    }
  });
  CHECK(expected_output::lines_of(told).size() == 3);
}

TEST_CASE("curves are summed up when the next word is said, and drawn where there is prose") {
  const auto function = [] {
    for (int i = 0; i <= 10; ++i) lesson::plot("square", i, i * i);
    lesson::say("Done.");
  };
  const std::string sentence = "square (o): 11 points, from 0 at 0 to 100 at 10";
  CHECK(narrated(function) == "  " + sentence + "\n");
  const lesson::Lesson one{"99", "99_test", "Test", "Test", __FILE__, function};
  const std::string full = play(one, {}).out;
  CHECK(full.find("100 |" + std::string(59, ' ') + "o\n") != std::string::npos);
  CHECK(full.find(sentence) < full.find("Done."));
}

TEST_CASE("the narrator shows a picture and goes on with its curves") {
  const std::string told = narrated([] {
    lesson::plot("loss", 0, 1);
    lesson::picture(mt::tensor({{0., 1.}}));
    lesson::plot("loss", 1, 0);
  });
  CHECK(told == " █\n  loss (o): 2 points, from 1 at 0 to 0 at 1\n");
}

TEST_CASE("a variable is read from the source line that names it") {
  using lesson::naming_on;
  CHECK(naming_on("  auto z = s + c;").variable == "z");
  CHECK(naming_on("  auto z = s + c;").operations == 1);
  CHECK(naming_on("  h = tanh(w * h + x);").variable == "h");
  CHECK(naming_on("  h = tanh(w * h + x);").operations == 3);
  CHECK(naming_on("  auto y = (2.0 * x + 1.0).named(\"y\");").operations == 2);
  CHECK(naming_on("  Tensor loss = mse_loss(guess, y);").operations == 1);
  CHECK(naming_on("  x[0] = y;").variable == "");
  CHECK(naming_on("  loss.backward();").variable == "");
  CHECK(lesson::shown_on("  show(loss);") == "loss");
  CHECK(lesson::shown_on("  show(a + b);") == "");
}

TEST_CASE("a person is offered a hint after each wrong answer, and told when it is right") {
  std::istringstream typed("five\n5\n 2.0 \n");
  std::streambuf* before = std::cin.rdbuf(typed.rdbuf());
  std::ostringstream out;
  lesson::Narrator narrator(out, false, true);
  const double answer = 2;
  narrator.note("hint", "Count.", {});
  narrator.note("hint", "Use your fingers.", {});
  narrator.note("asked", "What is 1 + 1?", {&answer, 1});
  std::cin.rdbuf(before);
  CHECK(out.str() ==
        "\nWhat is 1 + 1?\n> A number, please.\n> Not quite. Hint: Count.\n> Right.\nAnswer: 2\n");
}

TEST_CASE("a person who has gone away is not waited for") {
  std::istringstream nothing;
  std::streambuf* before = std::cin.rdbuf(nothing.rdbuf());
  std::ostringstream out;
  lesson::Narrator narrator(out, false, true);
  const double answer = 2;
  narrator.note("asked", "What is 1 + 1?", {&answer, 1});
  std::cin.rdbuf(before);
  CHECK(out.str() == "\nWhat is 1 + 1?\n> Answer: 2\n");
}

// ---- What the reader may change, and mistakes ---------------------------------------------------

TEST_CASE("05, 5, chain_rule and 05_chain_rule all name the lesson, and other words none") {
  for (const char* word : {"05", "5", "chain_rule", "05_chain_rule"}) {
    REQUIRE(lesson::find_lesson(word) != nullptr);
    CHECK(lesson::find_lesson(word)->id == "05_chain_rule");
  }
  for (const char* word : {"", "0", "55", "chain", "05_"})
    CHECK(lesson::find_lesson(word) == nullptr);
}

TEST_CASE("lessons are listed in order") {
  std::vector<std::string> ids;
  for (const lesson::Lesson& one : lesson::lessons()) ids.push_back(one.id);
  CHECK(std::is_sorted(ids.begin(), ids.end()));
}

TEST_CASE("a turned knob changes the numbers") {
  const Played standard = play("13", {"--brief"});
  const Played slower = play("13", {"--brief", "--knob", "lr=0.001"});
  CHECK(slower.exit_code == 0);
  CHECK(slower.out != standard.out);
  CHECK(play("13", {"--brief", "--knob=lr=0.1"}).out == standard.out);
}

TEST_CASE("a wrong flag is answered with one sentence and exit code 2") {
  struct Wrong {
    std::string lesson;
    Arguments arguments;
    std::string sentence;
  };
  for (const Wrong& wrong :
       std::vector<Wrong>{{"05",
                           {"--dta", "x"},
                           "A lesson does not know \"--dta\". It knows --data FILE, --knob "
                           "NAME=NUMBER, --brief and --help.\n"},
                          {"05", {"--data"}, "--data needs a value behind it.\n"},
                          {"13",
                           {"--knob", "lr"},
                           "--knob takes a name and a number, as in --knob lr=0.1, not "
                           "\"lr\".\n"},
                          {"13",
                           {"--knob", "lr=fast"},
                           "--knob takes a name and a number, as in --knob lr=0.1, "
                           "not \"lr=fast\".\n"},
                          {"13", {"--knob", "rate=1"}, "Lesson 13 has no knob rate. It has lr.\n"},
                          {"05", {"--knob", "lr=1"}, "Lesson 05 has no knob lr (it has none).\n"},
                          {"05",
                           {"--data", "x.csv"},
                           "Lesson 05 reads no data, so --data means nothing here.\n"}}) {
    const Played played = play(wrong.lesson, wrong.arguments);
    CHECK(played.exit_code == 2);
    CHECK(played.err == wrong.sentence);
  }
  const std::string data = shell::TemporaryFolder().path() / "none.csv";
  const Played played = play("13", {"--data", data});
  CHECK(played.exit_code == 2);
  CHECK(played.err.find("load_csv: there is no file " + data + " at 13_linear_regression.cpp") ==
        0);
}

TEST_CASE("a lesson that fails says why, and its exit code is 1") {
  const lesson::Lesson one{"99",   "99_test", "Test",
                           "Test", __FILE__,  [] { throw std::runtime_error("the sky fell"); }};
  const Played played = play(one, {});
  CHECK(played.exit_code == 1);
  CHECK(played.err == "Lesson 99 stopped: the sky fell\n");
}

// ---- Measured data ------------------------------------------------------------------------------

TEST_CASE("two columns are read with or without names") {
  shell::TemporaryFolder folder;
  const std::string path = folder / "data.csv";
  shell::write_file(path, "\"distance, far\",speed\n1.5,-2\n3,4e2\n");
  const lesson::TwoColumns table = lesson::read_two_columns(path);
  CHECK(table.x_name == "distance, far");
  CHECK(table.y_name == "speed");
  CHECK(table.x == std::vector<double>{1.5, 3});
  CHECK(table.y == std::vector<double>{-2, 400});
  shell::write_file(path, "1,2\n3,4\n");
  CHECK(lesson::read_two_columns(path).x == std::vector<double>{1, 3});
  CHECK(lesson::read_two_columns(path).x_name == "x");
}

TEST_CASE("a table that no line can be drawn through is answered with a sentence") {
  struct Bad {
    std::string text, sentence;
  };
  shell::TemporaryFolder folder;
  const std::string path = folder / "data.csv";
  for (const Bad& bad :
       std::vector<Bad>{{"1,2,3\n", ": there should be 2 columns, and the number of columns is 3."},
                        {"7\n", ": there should be 2 columns, and the number of columns is 1."},
                        {"a,b\n1,2\n", ": a line needs at least 2 rows of numbers, found 1."},
                        {"1,2\n3,inf\n", ": a number is infinite, and no line gets there."},
                        {"1,2\n1,3\n",
                         ", column 1: all numbers are equal, and a slope needs two different "
                         "ones."}}) {
    shell::write_file(path, bad.text);
    CHECK_THROWS_WITH(lesson::read_two_columns(path), path + bad.sentence);
  }
  shell::write_file(path, "a,b\n1,2\n3,x\n");  // what load_csv says is passed on
  CHECK_THROWS_WITH(lesson::read_two_columns(path),
                    Catch::StartsWith("load_csv: " + path + ", line 3, column 2: \"x\" is not"));
  CHECK_THROWS_AS(lesson::read_two_columns(folder.path()), lesson::Mistake);
}

TEST_CASE("lesson 13 fits a table of the reader's own") {
  shell::TemporaryFolder folder;
  const std::string path = folder / "data.csv";
  shell::write_file(path, "year,length\n2000,1e6\n2010,3e6\n2020,5e6\n");  // 200000 a year
  const Played played = play("13", {"--brief", "--data", path});
  CHECK(played.exit_code == 0);
  CHECK(played.out.find("3 rows: year, length\n") != std::string::npos);
  CHECK(played.out.find("slope 200000, intercept -3.99e+08\n") != std::string::npos);
  CHECK(played.out.find("Hubble") == std::string::npos);
}

// ---- Each one alone -----------------------------------------------------------------------------

void check_alone(const std::string& compiler) {
  if (shell::run("command -v " + compiler).exit_code != 0) {
    std::cout << "skipped: " << compiler << " is not installed\n";
    return;
  }
  shell::TemporaryFolder folder;
  const auto in_folder = [&](const char* name) { return " '" + (folder / name).string() + "' "; };
  const auto compile = [&](const std::string& what) {
    const shell::Outcome compiled =
        shell::run("cd '" SOURCE_DIRECTORY "' && " + compiler +
                   " -std=c++20 -Wall -Wextra -Wshadow -Wconversion -I. " + what);
    CHECK(compiled.err == "");
    REQUIRE(compiled.exit_code == 0);
  };
  compile("-c lessons/main.cpp -o" + in_folder("main.o"));  // once: it is the same for all
  for (const lesson::Lesson& one : lesson::lessons()) {
    INFO("lesson " << one.id << " under " << compiler);
    compile("lessons/" + one.id + ".cpp" + in_folder("main.o") + "-o" + in_folder("lesson"));
    const shell::Outcome ran =
        shell::run("cd '" SOURCE_DIRECTORY "' &&" + in_folder("lesson") + "--brief");
    CHECK(ran.exit_code == 0);
    CHECK(expected_output::difference(expectations_of(one), expected_output::lines_of(ran.out)) ==
          "");
  }
}

TEST_CASE("g++ builds each lesson alone, without a warning, and it prints what it expects") {
  check_alone("g++");
}

TEST_CASE("clang++ builds each lesson alone, without a warning, and it prints what it expects") {
  check_alone("clang++");
}

}  // namespace
