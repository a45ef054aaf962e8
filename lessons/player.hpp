// Plays a lesson. In a terminal a Narrator prints what happens; in the viewer, where a Recorder is
// listening already, everything goes to that one.
#pragma once

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lessons/lesson.hpp"
#include "lessons/narrator.hpp"
#include "minitensor.hpp"

namespace lesson {

// Stands between the program and the observer, and puts in the words that a lesson has said in
// advance (when_arrives, predict) at the moment that they were said for. All else passes through.
class Prompter : public mt::Observer {
 public:
  explicit Prompter(mt::Observer& listener) : listener_(listener) {}

  void arrived(std::int64_t pass, const mt::Node& node, int slot, const mt::Tensor& before,
               const mt::Shape& folded_axes, const mt::Tensor& given) override {
    const mt::Id target = node.input_id(slot);
    const detail::Run& run = detail::run();
    const std::size_t already = arrivals_[target]++;
    if (std::count(run.predicted.begin(), run.predicted.end(), target) > 0 && given.numel() == 1) {
      sums_[target] += given.item();
      const double sum = sums_[target];
      listener_.note("asked", "A contribution is on its way. What will the sum be then?",
                     {&sum, 1});
    }
    listener_.arrived(pass, node, slot, before, folded_axes, given);
    std::size_t texts = 0;
    for (const auto& [tensor, text] : run.when_arrives)
      if (tensor == target && texts++ == already) listener_.note("said", text, {});
  }
  void pass_begins(const mt::PassSeen& pass) override {
    sums_.clear();
    listener_.pass_begins(pass);
  }

  void made(const mt::Tensor& x, mt::Loc line) override { listener_.made(x, line); }
  void op(const mt::Node* node, const mt::Facts& facts, const mt::Given& given,
          mt::Span<const mt::Tensor*> inputs, mt::Span<mt::Tensor> outputs, mt::Loc line) override {
    listener_.op(node, facts, given, inputs, outputs, line);
  }
  void failed(const char* op, const mt::Node* node, mt::Span<mt::Id> inputs,
              const std::string& text, mt::Loc line) override {
    listener_.failed(op, node, inputs, text, line);
  }
  void pass_ends(std::int64_t pass) override { listener_.pass_ends(pass); }
  void hooked(std::int64_t pass, mt::Id tensor, const mt::Tensor& before,
              const mt::Tensor& after) override {
    listener_.hooked(pass, tensor, before, after);
  }
  void landed(std::int64_t pass, const mt::Tensor& leaf, const mt::Tensor& before,
              const mt::Tensor& after) override {
    listener_.landed(pass, leaf, before, after);
  }
  void wrote(const mt::Tensor& x, std::int64_t version_before, const char* by, const mt::Node* node,
             mt::Loc line) override {
    listener_.wrote(x, version_before, by, node, line);
  }
  void let_go(const mt::Tensor& leaf, mt::Loc line) override { listener_.let_go(leaf, line); }
  void named(const mt::Tensor& x) override { listener_.named(x); }
  void scope_opens(mt::Id scope, const char* name, bool composed, mt::Loc line) override {
    listener_.scope_opens(scope, name, composed, line);
  }
  void scope_closes(mt::Id scope) override { listener_.scope_closes(scope); }
  void note(const char* kind, const std::string& text, mt::Span<double> numbers) override {
    listener_.note(kind, text, numbers);
  }

 private:
  mt::Observer& listener_;
  std::map<mt::Id, std::size_t> arrivals_;  // by the tensor's id
  std::map<mt::Id, double> sums_;           // of the predicted tensors, in this pass
};

namespace detail {

// Sets an observer for as long as it lives, also when the lesson throws.
class Listening {
 public:
  explicit Listening(mt::Observer* observer) : before_(mt::observe(observer)) {}
  ~Listening() { mt::observe(before_); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  mt::Observer* before_;
};

inline bool person_at_the_terminal() {
#if __has_include(<unistd.h>)
  return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
#else
  return false;
#endif
}

struct Flags {
  Run run;
  bool brief = false, help = false;
};

inline void turn_knob(Run& run, const std::string& turn) {
  const std::size_t equals = turn.find('=');
  const std::optional<double> value =
      equals == std::string::npos ? std::nullopt : number_in(trimmed(turn.substr(equals + 1)));
  if (!value || equals == 0)
    throw Mistake("--knob takes a name and a number, as in --knob lr=0.1, not \"" + turn + "\".");
  run.knobs.emplace_back(turn.substr(0, equals), *value);
}

// A flag's value stands behind it ("--data FILE") or in it ("--data=FILE").
inline Flags flags_of(const std::vector<std::string>& args) {
  Flags flags;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::size_t equals = args[i].find('=');
    const std::string flag = args[i].substr(0, equals);
    const auto value = [&] {
      if (equals != std::string::npos) return args[i].substr(equals + 1);
      if (++i == args.size()) throw Mistake(flag + " needs a value behind it.");
      return args[i];
    };
    if (flag == "--data")
      flags.run.data = value();
    else if (flag == "--knob")
      turn_knob(flags.run, value());
    else if (args[i] == "--brief")
      flags.brief = true;
    else if (args[i] == "--help" || args[i] == "-h")
      flags.help = true;
    else
      throw Mistake("A lesson does not know \"" + args[i] +
                    "\". It knows --data FILE, --knob NAME=NUMBER, --brief and --help.");
  }
  return flags;
}

inline void print_help(const Lesson& lesson) {
  std::cout << lesson.number << "  " << lesson.title << "\n\n"
            << "  --data FILE         takes the lesson's data from FILE, where it reads any\n"
               "  --knob NAME=NUMBER  turns one of its knobs (may be repeated)\n"
               "  --brief             prints what happens, without the prose\n"
               "  --help              prints this\n";
}

inline void refuse_unused(const Run& run) {
  const std::set<std::string> knobs(run.knobs_used.begin(), run.knobs_used.end());
  for (const auto& [name, value] : run.knobs) {
    if (knobs.contains(name)) continue;
    std::string has;
    for (const std::string& used : knobs) has += (has.empty() ? "" : ", ") + used;
    throw Mistake("Lesson " + run.lesson->number + " has no knob " + name +
                  (has.empty() ? " (it has none)." : ". It has " + has + "."));
  }
  if (!run.data.empty() && !run.data_read)
    throw Mistake("Lesson " + run.lesson->number + " reads no data, so --data means nothing here.");
}

inline void tell_in_terminal(const Lesson& lesson, bool brief) {
  const bool person = person_at_the_terminal();
  Narrator narrator(std::cout, brief, person);
  Prompter prompter(narrator);
  if (!brief) std::cout << lesson.number << "  " << lesson.title << '\n';
  {
    Listening listening(&prompter);
    lesson.function();
  }
  narrator.finish_chart();
}

}  // namespace detail

// Runs one lesson with the words that stood behind its name on the command line:
//
//   --data FILE         the lesson's data comes from FILE
//   --knob NAME=NUMBER  turns a knob (may be repeated)
//   --brief             prints what happens, without the prose
//   --help
//
// Returns the exit code: 0; or 2 with one sentence on stderr for a mistake of the reader; or 1 for
// a lesson that failed. Where an observer is set already (mt::observer()), that one hears
// everything, the voice prints nothing, and what a failing lesson throws goes through.
inline int run_lesson(const Lesson& lesson, std::vector<std::string> args) {
  try {
    detail::Flags flags = detail::flags_of(args);
    if (flags.help) return detail::print_help(lesson), 0;
    detail::run() = flags.run;
    detail::run().lesson = &lesson;
    if (mt::Observer* listener = mt::observer()) {
      Prompter prompter(*listener);
      detail::Listening listening(&prompter);
      lesson.function();
    } else {
      detail::tell_in_terminal(lesson, flags.brief);
    }
    detail::refuse_unused(detail::run());
    return 0;
  } catch (const Mistake& mistake) {
    std::cout << std::flush;
    std::cerr << mistake.what() << '\n';
    return 2;
  } catch (const std::exception& failure) {
    if (mt::observer() != nullptr) throw;
    std::cout << std::flush;
    std::cerr << "Lesson " << lesson.number << " stopped: " << failure.what() << '\n';
    return 1;
  }
}

}  // namespace lesson
