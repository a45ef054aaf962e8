// build/minitensor: one program, and a word for each thing it does.
//
// Whatever a person types wrong gets one clear sentence on stderr and the exit code 2.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "viewer/course.hpp"
#include "viewer/export.hpp"
#include "viewer/process.hpp"
#ifdef MINITENSOR_WINDOW
#include "viewer/app.hpp"
#endif

using namespace viewer;
namespace fs = std::filesystem;

namespace {

struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Lacking : Mistake {  // a step or an episode that a run does not have
  using Mistake::Mistake;
};

std::string in_quotes(const std::string& text) { return "\"" + text + "\""; }

// ---- The command line ---------------------------------------------------------------------------

struct Option {
  std::string name;   // "--step"
  std::string value;  // "N"; empty for a switch
  std::string about;
};

// What stood behind a word.
struct Request {
  std::vector<std::string> plain;  // in order: a lesson or a file, then flags for the compiler
  std::map<std::string, std::string> options;
  std::vector<std::string>
      for_the_program;  // --knob and --data with their values, and all behind "--"

  bool has(const std::string& option) const { return options.count(option) != 0; }
  std::string value(const std::string& option, const std::string& otherwise) const {
    auto found = options.find(option);
    return found == options.end() ? otherwise : found->second;
  }
  long number(const std::string& option, long otherwise, long least,
              long most = std::numeric_limits<int>::max()) const {
    auto found = options.find(option);
    if (found == options.end()) return otherwise;
    const std::string& text = found->second;
    long result = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
    if (error != std::errc() || end != text.data() + text.size() || result < least ||
        result > most) {
      const bool no_end = most == std::numeric_limits<int>::max();
      throw Mistake(option + " needs a whole number from " + std::to_string(least) +
                    (no_end ? " on" : " to " + std::to_string(most)) + ", not " + in_quotes(text));
    }
    return result;
  }
};

struct Word {
  std::string name;
  std::string usage;  // what stands behind the name
  std::string about;
  std::vector<Option> options;
  int (*act)(const Request&);
};

const std::vector<Option> of_a_lesson = {
    {"--data", "FILE", "a lesson's data comes from FILE"},
    {"--knob", "NAME=X", "turns a lesson's knob (may be repeated)"},
};

Request sort_out(const Word& word, const std::vector<std::string>& typed) {
  Request request;
  for (std::size_t i = 0; i < typed.size(); ++i) {
    const std::string& text = typed[i];
    if (text == "--") {
      request.for_the_program.insert(request.for_the_program.end(),
                                     typed.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                     typed.end());
      break;
    }
    if (text.rfind("--", 0) != 0) {
      request.plain.push_back(text);
      continue;
    }
    const Option* option = nullptr;
    for (const Option& one : word.options)
      if (one.name == text) option = &one;
    if (option == nullptr)
      throw Mistake(word.name + " has no option " + in_quotes(text) + "; ./run " + word.name +
                    " --help lists them");
    if (!option->value.empty() && i + 1 == typed.size())
      throw Mistake(text + " needs a value: " + option->value);
    const std::string value = option->value.empty() ? "" : typed[++i];
    if (text == "--data" || text == "--knob") {
      request.for_the_program.insert(request.for_the_program.end(), {text, value});
    } else {
      request.options[text] = value;
    }
  }
  return request;
}

// ---- What is to be run --------------------------------------------------------------------------

std::string this_program;  // a path that can be executed

Tools tools() {
  return {.compiler = MINITENSOR_COMPILER,
          .repository = MINITENSOR_SOURCES,
          .attach_library = MINITENSOR_ATTACH_LIBRARY};
}

bool is_program_file(const std::string& text) {
  const std::string extension = fs::path(text).extension().string();
  return extension == ".cpp" || extension == ".cc" || extension == ".cxx" || extension == ".C";
}

LessonName lesson_called(const std::string& word) {
  if (std::optional<LessonName> found = find_lesson(word)) return *found;
  throw Mistake("there is no lesson " + in_quotes(word) + "; ./run list shows them all");
}

const std::string& the_lesson_or_file(const Request& request) {
  if (request.plain.empty())
    throw Mistake("which lesson, or which file? For example: 05, or mine.cpp");
  return request.plain[0];
}

Command command_for(const LessonName& lesson, const std::vector<std::string>& arguments) {
  Command command{.arguments = {this_program, "play", lesson.id}};
  command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
  return command;
}

Command command_for(const Request& request) {
  const std::string& subject = the_lesson_or_file(request);
  const std::vector<std::string> rest(request.plain.begin() + 1, request.plain.end());
  if (is_program_file(subject)) {
    std::error_code none;  // a name that is too long is that of no file
    if (!fs::is_regular_file(subject, none))
      throw Mistake("there is no file " + in_quotes(subject));
    return compiled(subject, tools(), rest, request.for_the_program);
  }
  if (!rest.empty())
    throw Mistake("a lesson takes no " + in_quotes(rest[0]) +
                  "; flags for a compiler go with a file");
  return command_for(lesson_called(subject), request.for_the_program);
}

// "05_chain_rule", or "mine" for mine.cpp: what files that belong to it are called.
std::string name_for(const std::string& subject) {
  return is_program_file(subject) ? fs::path(subject).stem().string() : lesson_called(subject).id;
}

// ---- list, lesson, play -------------------------------------------------------------------------

int list_lessons(const Request& request) {
  if (!request.plain.empty()) throw Mistake("list takes no " + in_quotes(request.plain[0]));
  for (const LessonName& lesson : course()) std::cout << lesson.id << "  " << lesson.title << '\n';
  return 0;
}

// Both words are one function: whether a viewer or a terminal is told is decided by whether a
// viewer is listening.
int tell_lesson(const std::vector<std::string>& typed) {
  if (typed.empty()) throw Mistake("which lesson? ./run list shows them all");
  return play(lesson_called(typed[0]), {typed.begin() + 1, typed.end()});
}

// ---- export -------------------------------------------------------------------------------------

std::vector<std::string> formats_in(const std::string& list) {
  std::vector<std::string> formats;
  std::istringstream text(list);
  for (std::string format; std::getline(text, format, ',');) {
    if (const std::string why = lacks_format(format); !why.empty()) throw Mistake(why);
    formats.push_back(format);
  }
  return formats;
}

Exported write_figures(const Timeline& timeline, const ExportOptions& options) {
  try {
    return export_figures(timeline, options);
  } catch (const std::runtime_error& error) {  // a folder that cannot be written
    throw Mistake(error.what());
  }
}

// A person's own program may exit as it likes; a lesson that does not finish was asked for
// something that is not there, and says so to scripts as well.
int exit_code_of(const Ended* ended, const Request& request) {
  if (ended == nullptr || ended->how == Ended::How::finished) return 0;
  if (is_program_file(request.plain[0])) return 0;
  return ended->how == Ended::How::exit_code ? ended->number : 1;
}

// Nothing of the run is left afterwards, also when it was interrupted.
std::shared_ptr<const Trace> trace_of(const Command& command) {
  std::shared_ptr<const Trace> trace;
  {
    const Interruptible here;
    const auto run = Process::start(command, {.echo = true});
    while (!run->wait(std::chrono::milliseconds(50)))
      if (interrupted() != 0) run->stop();
    trace = run->latest();
  }
  end_if_interrupted();
  return trace;
}

int export_run(const Command& command, const std::string& name, const Request& request) {
  ExportOptions options;
  options.to = request.value("--to", ".");
  options.name = name;
  if (request.has("--format")) options.formats = formats_in(request.value("--format", ""));
  options.frames = request.has("--frames");
  options.episode = static_cast<int>(request.number("--episode", 1, 1));
  if (request.has("--step")) options.step = request.number("--step", 0, 0);

  Timeline timeline;
  timeline.extend(trace_of(command));
  const int code = exit_code_of(timeline.ended(), request);
  if (const Ended* ended = timeline.ended(); ended != nullptr && ended->how != Ended::How::finished)
    std::cerr << "minitensor: " << name << ": " << words(*ended) << '\n';
  if (timeline.steps().empty()) {
    const Ended* ended = timeline.ended();
    const bool finished = ended == nullptr || ended->how == Ended::How::finished;
    std::cerr << "minitensor: " << name
              << (finished ? ": this program has made no tensor\n" : " left nothing to draw\n");
    return std::max(code, 1);
  }
  if (const std::string why = timeline.lacks(options.episode, options.step.value_or(0));
      !why.empty())
    throw Lacking(why);
  const Exported exported = write_figures(timeline, options);
  for (const fs::path& file : exported.files) std::cout << file.string() << '\n';
  if (!exported.note.empty()) std::cerr << "minitensor: " << exported.note << '\n';
  return code;
}

int export_word(const Request& request) {
  if (the_lesson_or_file(request) != "all")
    return export_run(command_for(request), name_for(request.plain[0]), request);
  int worst = 0;
  for (const LessonName& lesson : course()) {
    const Command command = command_for(lesson, request.for_the_program);
    try {
      worst = std::max(worst, export_run(command, lesson.id, request));
    } catch (const Lacking& lacking) {  // this one is too short; the others may not be
      std::cerr << "minitensor: " << lesson.id << ": " << lacking.what() << '\n';
      worst = std::max(worst, 2);
    }
  }
  return worst;
}

// ---- view, shot ---------------------------------------------------------------------------------

#ifdef MINITENSOR_WINDOW
const char* const no_window = "there is no display here";

bool have_display() {
#ifdef __linux__
  auto is_set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  return is_set("DISPLAY") || is_set("WAYLAND_DISPLAY");
#else
  return true;
#endif
}

// `instead`: what a reader can do where no window can be opened.
int open_window(const Request& request, const std::string& shot, const std::string& instead) {
  (void)command_for(request);  // says what is wrong with it
  AppOptions options;
  for (const LessonName& one : course())
    options.lessons.push_back({one.number, one.id, one.title, one.file});
  options.target = request.plain[0];
  options.compiler_flags.assign(request.plain.begin() + 1, request.plain.end());
  options.program_args = request.for_the_program;
  options.tools = tools();
  options.self = this_program;
  options.step = static_cast<int>(request.number("--step", -1, 0));
  options.episode = static_cast<int>(request.number("--episode", 0, 1));
  options.report = request.value("--report", "");
  options.light = request.has("--light");
  options.present = request.has("--present");
  options.cover = request.has("--cover");
  options.select = request.value("--select", "");
  options.shot = shot;
  constexpr long least = 200, most = 16384;  // pixels; the most that OpenGL draws at once here
  options.width = static_cast<int>(request.number("--width", options.width, least, most));
  options.height = static_cast<int>(request.number("--height", options.height, least, most));
  if (!have_display()) throw Mistake(no_window + instead);
  const int code = [&] {
    const Interruptible here;
    return run_app(options);
  }();
  end_if_interrupted();
  return code;
}
#else
const char* const no_window = "this build has no window (CMake said what it lacks)";

bool have_display() { return false; }

int open_window(const Request& request, const std::string&, const std::string&) {
  (void)command_for(request);
  throw Mistake(std::string(no_window) +
                ": ./run lesson NAME and ./run export NAME --to out need none");
}
#endif

Request with_first_lesson_if_none(Request request) {
  if (request.plain.empty()) request.plain.push_back(course().front().number);
  return request;
}

int view(const Request& request) {
  return open_window(with_first_lesson_if_none(request), "",
                     ": ./run lesson NAME tells a lesson in the terminal, ./run export NAME --to "
                     "out writes figures, ./run shot NAME --to a.png draws the window into a file");
}

int shot(const Request& request) {
  (void)command_for(request);
  if (!request.has("--to")) throw Mistake("shot needs --to FILE.png");
  const std::string file = request.value("--to", "");
  const std::string ending = fs::path(file).extension().string();
  if (ending != ".png" && ending != ".PNG")
    throw Mistake("shot writes a PNG, so --to needs a name that ends in .png, not " +
                  in_quotes(file) + "; ./run export writes " + all_formats());
  return open_window(request, file, "; ./run shot brings its own");
}

// minitensor without a word.
int first_lesson() {
  if (have_display()) return view({});
  const LessonName& first = course().front();
  const int code = play(first, {});
  std::cout << "\n(" << no_window << ", so the lesson was told. ./run export " << first.number
            << " --to out writes its figures, and ./run --help lists what else there is.)\n";
  return code;
}

// ---- The words ----------------------------------------------------------------------------------

std::vector<Option> operator+(std::vector<Option> some, const std::vector<Option>& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

const std::vector<Option> of_a_figure = {
    {"--step", "N", "after which step (the last)"},
    {"--episode", "K", "of which episode (1)"},
};
const std::vector<Option> where = {
    {"--step", "N", "where the cursor stands (a lesson: 0; a program: the episode's last)"},
    {"--episode", "K", "in which episode (1; a program without --step: the last)"},
};
const std::vector<Option> looks = {
    {"--select", "NAME", "the tensor that is selected"},
    {"--light", "", "light colours; --present has them anyway"},
    {"--present", "", "large, on white, for a room full of people"},
    {"--cover", "", "gradients stay hidden until asked for"},
    {"--width", "PIXELS", "of the window"},
    {"--height", "PIXELS", "of the window"},
};

const std::vector<Word> all_words = {
    {"list", "", "the lessons, one a line", {}, list_lessons},
    {"lesson",
     "05 [options]",
     "tells a lesson in this terminal; ./run lesson 05 --help lists its options",
     {},
     nullptr},
    {"view", "05 | mine.cpp [flags] [options] [-- arguments]",
     "opens the viewer on a lesson, or on your own program, which is compiled with these flags and "
     "run with these "
     "arguments",
     where + looks + of_a_lesson +
         std::vector<Option>{{"--report", "FILE", "what is shown, a line a change"}},
     view},
    {"export", "05 | mine.cpp [flags] | all [options] [-- arguments]", "writes figures of it",
     std::vector<Option>{
         {"--to", "FOLDER", "where to (.)"},
         {"--format", "LIST", "of " + all_formats() + ", as in dot,svg (which is the default)"},
         {"--frames", "", "one figure for each step of the episode"}} +
         of_a_figure + of_a_lesson,
     export_word},
    {"shot", "05 | mine.cpp [flags] --to FILE.png [options] [-- arguments]",
     "a picture of the viewer's window",
     std::vector<Option>{{"--to", "FILE", "the picture"}} + where + looks + of_a_lesson, shot},
};

void explain(const Word& word) {
  std::cout << "./run " << word.name << ' ' << word.usage << "\n\n  " << word.about << '\n';
  if (!word.options.empty()) std::cout << '\n';
  for (const Option& option : word.options) {
    std::string left = option.name + ' ' + option.value;
    left.resize(std::max<std::size_t>(left.size(), 18), ' ');
    std::cout << "  " << left << option.about << '\n';
  }
}

int explain_all() {
  std::cout << "minitensor: tensors and gradients that can be watched\n\n";
  for (const Word& word : all_words) {
    std::string left = word.name;
    left.resize(8, ' ');
    std::cout << "  " << left << word.about << '\n';
  }
  std::cout << "\n./run WORD --help tells the rest. Without a word the viewer opens on the "
               "first lesson.\n";
  return 0;
}

int act(const std::vector<std::string>& typed) {
  if (typed.empty()) return first_lesson();
  const std::string& name = typed[0];
  const std::vector<std::string> rest(typed.begin() + 1, typed.end());
  if (name == "help" || name == "--help" || name == "-h") return explain_all();
  if (name == "play") return tell_lesson(rest);  // what the viewer runs
  for (const Word& word : all_words) {
    if (word.name != name) continue;
    if (!rest.empty() && (rest[0] == "--help" || rest[0] == "-h")) {
      explain(word);
      return 0;
    }
    return word.act == nullptr ? tell_lesson(rest) : word.act(sort_out(word, rest));
  }
  throw Mistake("there is no word " + in_quotes(name) + "; ./run --help lists them");
}

}  // namespace

int main(int count, char** texts) {
  std::error_code none;
  this_program = fs::read_symlink("/proc/self/exe", none).string();
  if (none) this_program = texts[0];
  try {
    return act({texts + 1, texts + count});
  } catch (const Mistake& mistake) {
    std::cerr << "minitensor: " << mistake.what() << '\n';
    return 2;
  }
}
