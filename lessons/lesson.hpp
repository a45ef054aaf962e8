// What a lesson may say beside what it computes, and the list of all lessons.
//
//   #include "lessons/lesson.hpp"
//   using namespace mt;
//   using namespace lesson;
//
//   LESSON("04_computation_graph", "The computation graph", "Autograd") {
//     say("A program that computes leaves a graph behind.");
//     ...
//   }
//
// The voice speaks through the observer (minitensor.hpp, chapter 14). In a terminal that is the
// Narrator of lessons/narrator.hpp, which prints; in the viewer it is the Recorder, which records.
// A lesson cannot tell the difference, and neither can the functions below.
//
// A lesson stands alone: g++ -std=c++20 -I. lessons/04_computation_graph.cpp lessons/main.cpp. What
// it prints with --brief stands at its end, in lines that begin with "// expect: "; the tests hold
// it to them, words exactly and numbers to 1e-4. Write one operation a statement: in which order
// C++ runs two of them in one expression is the compiler's choice.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lessons/names.hpp"
#include "minitensor.hpp"

namespace lesson {

// ---- The list of lessons ------------------------------------------------------------------------

struct Lesson {
  std::string number;  // "05"
  std::string id;      // "05_chain_rule"
  std::string title;   // "The chain rule"
  std::string part;    // "Autograd"
  std::string file;    // the lesson's source, as the compiler was given it
  void (*function)() = nullptr;
};

namespace detail {
// Lessons enter themselves before main begins, in an order that the linker chooses: so keep the
// list sorted.
struct Entry {
  Entry(const char* i, const char* t, const char* p, const char* f, void (*start)())
      : id(i), title(t), part(p), file(f), function(start) {
    Entry** place = &first;
    while (*place != nullptr && std::string_view((*place)->id) < id) place = &(*place)->next;
    next = std::exchange(*place, this);
  }
  const char *id, *title, *part, *file;
  void (*function)();
  Entry* next;
  static inline Entry* first = nullptr;
};
}  // namespace detail

// All lessons of this program, in order. (Link lessons as objects: a static library would leave
// them out, because nobody calls them by name.)
inline const std::vector<Lesson>& lessons() {
  static const std::vector<Lesson> all = [] {
    std::vector<Lesson> list;
    for (const detail::Entry* one = detail::Entry::first; one != nullptr; one = one->next)
      list.push_back({std::string(one->id).substr(0, 2), one->id, one->title, one->part, one->file,
                      one->function});
    return list;
  }();
  return all;
}

// The lesson that a person means by `word`: "05", "5", "chain_rule" and "05_chain_rule" all name
// one. Null if none.
inline const Lesson* find_lesson(const std::string& word) {
  for (const Lesson& one : lessons()) {
    std::string short_number = one.number[0] == '0' ? one.number.substr(1) : one.number;
    std::string short_id = one.id.size() > 3 ? one.id.substr(3) : one.id;
    for (const std::string& name : {one.id, short_id, one.number, short_number})
      if (word == name) return &one;
  }
  return nullptr;
}

// A mistake of the person at the keyboard (a flag, a file): one sentence, and exit code 2.
struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---- What belongs to one run of a lesson --------------------------------------------------------

namespace detail {
struct Run {
  const Lesson* lesson = nullptr;
  std::vector<std::pair<std::string, double>> knobs;  // --knob name=value
  std::vector<std::string> knobs_used;
  std::string data;  // --data FILE
  bool data_read = false;
  // Of tensors: a text for each contribution that one of them will receive, in that order.
  std::vector<std::pair<mt::Id, std::string>> when_arrives;
  std::vector<mt::Id> predicted;
};

inline Run& run() {
  static thread_local Run current;
  return current;
}

// A picture in characters. numbers[0] is how many columns it has, all others are its elements.
inline std::string in_characters(const std::string& title, mt::Span<double> numbers) {
  const std::string shades[] = {" ", "░", "▒", "▓", "█"};
  const auto columns = static_cast<std::size_t>(numbers[0]);
  double low = INFINITY, high = -INFINITY;
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    if (!std::isfinite(numbers[i])) continue;
    low = std::min(low, numbers[i]);
    high = std::max(high, numbers[i]);
  }
  const double range = high > low ? high - low : 1.0;
  std::string text = title.empty() ? "" : title + '\n';
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    const bool known = std::isfinite(numbers[i]);
    text += known ? shades[static_cast<std::size_t>((numbers[i] - low) / range * 4.999)] : "?";
    if (i % columns == 0) text += '\n';
  }
  return text;
}

// False if nobody listens (a student's own main that includes this file).
inline bool note(const char* kind, std::string_view text, mt::Span<double> numbers = {}) {
  mt::Observer* listener = mt::observer();
  if (listener != nullptr) listener->note(kind, std::string(text), numbers);
  return listener != nullptr;
}

inline std::string trimmed(const std::string& text) {
  const char* blanks = " \t\r";
  std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// The whole of `text` as a number, whatever the language of the machine: the point is a point.
inline std::optional<double> number_in(const std::string& text) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') ++begin;
  double number = 0;
  auto [stopped, problem] = std::from_chars(begin, end, number);
  if (problem != std::errc() || stopped != end) return std::nullopt;
  return number;
}

inline std::string directory_of(const std::string& path) {
  std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace detail

// ---- The voice ----------------------------------------------------------------------------------

// Prose. Line breaks in `text` are kept, all else is wrapped where it is shown. With nobody
// listening it is simply printed.
inline void say(std::string_view text) {
  if (!detail::note("said", text)) std::cout << text << '\n';
}

// Prose after which playing pauses: the place to look up and think. A terminal with a person in
// front of it waits there.
inline void step(std::string_view text) {
  say(text);
  detail::note("paused", "");
}

// Names a tensor, after its variable if no name is given, and prints it: `show(z)` prints "z = 37".
inline void show(const mt::Tensor& x, std::string name = "", mt::Loc line = mt::Loc::here()) {
  if (name.empty()) name = x.name();
  if (name.empty()) name = shown_on(source_line(line.path(), line.line()));
  if (!name.empty() && name != x.name()) x.named(name);
  if (!name.empty()) std::cout << name << " = ";
  if (x.numel() == 1)
    std::cout << x.item() << '\n';
  else
    std::cout << x << '\n';
}

// A question whose right answer the lesson has computed. At a terminal it waits for an answer and
// offers one hint after each wrong one.
inline void ask(std::string_view question, double answer, mt::Span<std::string_view> hints = {}) {
  for (std::string_view hint : hints) detail::note("hint", hint);  // for the question that follows
  if (!detail::note("asked", question, {answer})) std::cout << question << '\n';
}

// A number that the reader may change: `standard`, or what `--knob name=value` says.
inline double knob(const std::string& name, double standard) {
  detail::Run& run = detail::run();
  if (std::count(run.knobs_used.begin(), run.knobs_used.end(), name) == 0)
    run.knobs_used.push_back(name);
  for (const auto& [turned, value] : run.knobs)
    if (turned == name) standard = value;
  return standard;
}

// One point of a curve. Curves that are plotted without a word in between share one chart.
inline void plot(std::string_view curve, double x, double y) {
  detail::note("plotted", curve, {x, y});
}

// A matrix as a picture: dark is the smallest, bright the largest. In a terminal it has a character
// an element.
inline void picture(const mt::Tensor& x, const std::string& title = "") {
  if (x.dim() != 2) throw std::invalid_argument("picture: needs a matrix");
  if (x.numel() == 0) return;
  std::vector<double> numbers = x.to_vector<double>();
  numbers.insert(numbers.begin(), static_cast<double>(x.size(1)));  // how many columns it has
  if (!detail::note("pictured", title, numbers)) std::cout << detail::in_characters(title, numbers);
}

// ---- Words about what backward() will do --------------------------------------------------------
//
// backward() is one statement, so nothing can be said in the middle of it. These are said before,
// and wait there until it happens.

// Said when x receives a contribution to its gradient: the first text with the first one, the
// second text with the second.
inline void when_arrives(const mt::Tensor& x, std::string_view text) {
  detail::run().when_arrives.emplace_back(x.id(), text);
}

// Asks for the sum before each contribution to x is shown. (x must hold one number.)
inline void predict(const mt::Tensor& x) { detail::run().predicted.push_back(x.id()); }

// ---- Files --------------------------------------------------------------------------------------

inline bool data_was_given() { return !detail::run().data.empty(); }

// The file that a lesson reads: the one that came with it, or what `--data FILE` says.
inline std::string data_file(const std::string& standard) {
  detail::Run& run = detail::run();
  run.data_read = true;
  if (!run.data.empty()) return run.data;
  return run.lesson == nullptr ? standard : detail::directory_of(run.lesson->file) + "/" + standard;
}

}  // namespace lesson

// Opens a lesson: LESSON("05_chain_rule", "The chain rule", "Autograd") { ... }
#define LESSON(id, title, part)                                                            \
  static void lesson_function();                                                           \
  static ::lesson::detail::Entry lesson_entry(id, title, part, __FILE__, lesson_function); \
  static void lesson_function()
