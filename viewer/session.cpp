#include "viewer/session.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace viewer {

namespace {

// The words that find_lesson in lessons/lesson.hpp takes for a lesson.
bool names(const LessonEntry& lesson, const std::string& word) {
  const std::string short_number =
      lesson.number.starts_with('0') ? lesson.number.substr(1) : lesson.number;
  const std::string short_id = lesson.id.size() > 3 ? lesson.id.substr(3) : lesson.id;
  return word == lesson.id || word == lesson.number || word == short_number || word == short_id;
}

// A word as a shell takes it for one.
std::string for_a_shell(const std::string& word) {
  const std::string plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./=+-,:@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

Session::Session(const AppOptions& options, std::function<void()> wake)
    : options_(options),
      wake_(std::move(wake)),
      arguments_(options.program_args),
      wanted_name_(options.select) {}

bool Session::open(const std::string& target, Desk& desk) {
  const auto found = std::find_if(options_.lessons.begin(), options_.lessons.end(),
                                  [&](const LessonEntry& one) { return names(one, target); });
  std::error_code none;
  if (found == options_.lessons.end() && !std::filesystem::is_regular_file(target, none))
    return false;
  if (found != options_.lessons.end())
    lesson_ = static_cast<std::size_t>(found - options_.lessons.begin());
  else
    file_ = target;
  const int episode = std::max(options_.episode, 1);
  if (options_.step >= 0 || lesson_)
    wanted_ = Wanted{episode, std::max(options_.step, 0)};
  else if (options_.episode > 0)
    wanted_ = Wanted{episode, std::numeric_limits<std::int64_t>::max()};  // its end
  desk.following = !wanted_;
  start(desk);
  return true;
}

void Session::open_lesson(std::size_t lesson, Desk& desk) {
  lesson_ = lesson;
  file_.clear();
  arguments_.clear();  // they were meant for what was opened first
  wanted_ = Wanted{};
  wanted_name_.clear();
  desk.following = desk.playing = false;
  start(desk);
}

void Session::start(Desk& desk) {
  if (process_ != nullptr) {
    process_->stop();
    leaving_.push_back(std::move(process_));
  }
  Command command;
  if (lesson_) {
    command.arguments = {options_.self, "play", options_.lessons[*lesson_].id};
    command.arguments.insert(command.arguments.end(), arguments_.begin(), arguments_.end());
  } else {
    std::error_code none;
    file_time_ = std::filesystem::last_write_time(file_, none);
    command = compiled(file_, options_.tools, options_.compiler_flags, arguments_);
  }
  process_ = Process::start(std::move(command), {.echo = true, .changed = wake_});
  fresh_ = true;
  placed_ = desk.cursor;
  desk.lesson = lesson_;
}

// Saving happens in steps, and a look at the file costs a system call: every third of a second.
bool Session::saved_since(double now) {
  if (file_.empty() || now - looked_at_ < 0.33) return false;
  looked_at_ = now;
  std::error_code none;
  const auto time = std::filesystem::last_write_time(file_, none);
  return !none && time != file_time_;
}

bool Session::take_over(const std::shared_ptr<const Trace>& trace) {
  if (trace == trace_) return false;
  if (fresh_) {
    // The picture of the run before stays until there is something to put in its place.
    if (trace->events.empty()) return false;
    timeline_ = Timeline();
    made_at_.clear();
    events_read_ = 0;
    stage_ = std::make_unique<Stage>();
    fresh_ = false;
  }
  trace_ = trace;
  timeline_.extend(trace);
  for (; events_read_ < trace->events.size(); ++events_read_) {
    const auto& event = trace->events[events_read_];
    if (event == nullptr) continue;
    if (const auto* made = std::get_if<Made>(&event->what))
      made_at_.emplace(made->tensor.tensor, events_read_);
  }
  return true;
}

bool Session::update(Desk& desk, double now) {
  if (!(desk.cursor == placed_)) wanted_.reset();  // the reader has moved it
  std::erase_if(leaving_, [](const auto& process) { return !process->running(); });
  if (saved_since(now)) {
    if (!desk.following && !wanted_)
      wanted_ = Wanted{desk.cursor.episode, timeline_.number(desk.cursor)};
    if (desk.selected.kind == Item::Kind::tensor) wanted_name_ = timeline_.name(desk.selected.id);
    start(desk);
  }
  if (process_ == nullptr) return false;
  // The stage is asked for first: once it is `ended`, the trace is complete.
  const Process::Stage stage = process_->stage();
  const bool was_fresh = fresh_;
  const bool news = take_over(process_->latest());
  if (news && was_fresh) {  // numbers of tensors mean nothing in another run
    desk.selected = {};
    desk.view.toggled.clear();
    desk.view.uncovered.clear();
  }
  if (news) place_cursor(desk);
  if (news) select_by_name(desk);
  if (stage == Process::Stage::ended && !fresh_) wanted_.reset();
  placed_ = desk.cursor;
  process_->stand_in(desk.cursor.episode);
  return std::exchange(stage_seen_, stage) != stage || news;
}

void Session::place_cursor(Desk& desk) {
  if (desk.following)
    desk.cursor = timeline_.latest();
  else if (wanted_)
    desk.cursor = timeline_.at(
        std::min(wanted_->episode, static_cast<int>(timeline_.episodes().size())), wanted_->step);
  else
    desk.cursor = timeline_.clamp(desk.cursor);
}

void Session::select_by_name(Desk& desk) {
  if (wanted_name_.empty()) return;
  for (const Id tensor : timeline_.graph(desk.cursor.episode).tensors) {
    if (timeline_.name(tensor) != wanted_name_) continue;
    desk.selected = {Item::Kind::tensor, tensor};
    wanted_name_.clear();
    return;
  }
}

std::string Session::not_selected(const Desk& desk) const {
  if (wanted_name_.empty() || running() || timeline_.steps().empty()) return "";
  return timeline_.lacks(desk.cursor.episode, wanted_name_);
}

void Session::stop() {
  if (process_ != nullptr) process_->stop();
}

bool Session::failed() const {
  const Ended* ended = timeline_.ended();
  if (running() || ended == nullptr) return false;
  return ended->how != Ended::How::finished && ended->how != Ended::How::stopped;
}

std::string Session::status() const {
  if (process_ == nullptr) return "";
  const Process::Stage stage = process_->stage();
  const std::string more =
      process_->statistics_only() ? "; large memory: new values are kept as statistics only" : "";
  if (stage == Process::Stage::compiling) return "compiling " + std::string(last_part(file_));
  if (stage == Process::Stage::running) return "running" + more;
  const Ended* ended = timeline_.ended();
  if (ended == nullptr) return "";
  if (ended->how == Ended::How::finished && timeline_.steps().empty())
    return "this program has made no tensor";
  return words(*ended) + more;
}

std::string Session::title() const {
  if (!lesson_) return std::string(last_part(file_));
  const LessonEntry& lesson = options_.lessons[*lesson_];
  return lesson.number + "  " + lesson.title;
}

std::string Session::name() const {
  if (lesson_) return options_.lessons[*lesson_].id;
  return std::filesystem::path(file_).stem().string();
}

std::string Session::command(Cursor cursor) const {
  std::string text =
      "./run view " + (lesson_ ? options_.lessons[*lesson_].number : for_a_shell(file_));
  for (const std::string& flag : options_.compiler_flags)
    if (!lesson_) text += " " + for_a_shell(flag);
  text += " --step " + std::to_string(timeline_.number(cursor));
  if (cursor.episode != 1) text += " --episode " + std::to_string(cursor.episode);
  if (!arguments_.empty()) text += " --";
  for (const std::string& argument : arguments_) text += " " + for_a_shell(argument);
  return text;
}

}  // namespace viewer
