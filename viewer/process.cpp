#include "viewer/process.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <random>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "viewer/frames.hpp"
#include "viewer/keeper.hpp"
#include "viewer/statistics.hpp"

extern char** environ;

namespace viewer {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds between_publications{33};
constexpr milliseconds between_looks{50};       // at whether it has ended while its pipe stays open
constexpr std::size_t most_printed = 16 << 20;  // bytes of text that a trace keeps
constexpr std::size_t most_pictured = 64 << 20;  // bytes of pictures, likewise

// A pipe holds less. Whoever fills it again and again must have escaped from what was killed.
constexpr ssize_t most_left_in_pipe = 4 << 20;

// ---- Descriptors --------------------------------------------------------------------------------

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  int get() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_;
};

// Held while descriptors are made that no child may inherit, and while a child is forked: with both
// under one lock no run can hold another run's pipe open.
std::mutex spawning;

struct Pipe {
  Descriptor reads, writes;
};

// The same file under a number above 2, and closed in whatever is executed.
Descriptor private_copy(Descriptor original) {
  Descriptor copy(fcntl(original.get(), F_DUPFD_CLOEXEC, 3));
  if (copy.get() < 0) throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  return copy;
}

Pipe make_pipe() {
  int ends[2];
  if (pipe(ends) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  Descriptor reads(ends[0]), writes(ends[1]);
  return {private_copy(std::move(reads)), private_copy(std::move(writes))};
}

ssize_t read_some(int descriptor, char* bytes, std::size_t most) {
  ssize_t n;
  do n = read(descriptor, bytes, most);
  while (n < 0 && errno == EINTR);
  return n;
}

// ---- Starting a program -------------------------------------------------------------------------
// A child that is not waited for yet, and all that it started.
void kill_all(pid_t id) {
  kill(-id, SIGKILL);
  kill(id, SIGKILL);  // it may have left its group
}

// When this goes, nothing of the child is left. Until then its number and its group's are its own.
class Child {
 public:
  Child(pid_t id, Descriptor output) : id_(id), output_(std::move(output)) {}
  Child(Child&& other) noexcept
      : id_(std::exchange(other.id_, 0)), output_(std::move(other.output_)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (id_ == 0) return;
    kill_all(id_);
    waitpid(id_, nullptr, 0);
  }
  pid_t id() const { return id_; }
  int output() const { return output_.get(); }  // reads its stdout and stderr

 private:
  pid_t id_;
  Descriptor output_;
};

std::vector<std::string> environment_with(const std::vector<std::string>& additions) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable)
    if (!std::string_view(*variable).starts_with("MINITENSOR_WATCH="))
      variables.push_back(*variable);
  // The first of two of the same name counts.
  variables.insert(variables.begin(), additions.begin(), additions.end());
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Runs in the child, where between fork and exec only plain system calls are safe.
[[noreturn]] void become(char** arguments, char** variables, int input, int output, int failed) {
  setpgid(0, 0);
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody is left to look at it
#endif
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  dup2(input, 0);
  dup2(output, 1);
  dup2(output, 2);
  environ = variables;
  execvp(arguments[0], arguments);
  int error = errno;
  [[maybe_unused]] ssize_t told = write(failed, &error, sizeof error);
  _exit(127);
}

// Starts `arguments` in a process group of its own, with nothing to read and one pipe for all that
// it writes.
Child spawn(std::vector<std::string> arguments, const std::vector<std::string>& additions) {
  std::vector<std::string> variables = environment_with(additions);
  std::vector<char*> argv = pointers(arguments), envp = pointers(variables);
  std::unique_lock lock(spawning);
  Descriptor nothing = private_copy(Descriptor(open("/dev/null", O_RDONLY)));
  Pipe output = make_pipe(), failed = make_pipe();
#ifdef F_SETPIPE_SZ
  fcntl(output.writes.get(), F_SETPIPE_SZ, 1 << 20);  // the program waits for us less often
#endif
  pid_t id = fork();
  if (id < 0) throw std::system_error(errno, std::generic_category(), "cannot start a process");
  if (id == 0)
    become(argv.data(), envp.data(), nothing.get(), output.writes.get(), failed.writes.get());
  setpgid(id, id);  // here as well: whoever comes first
  lock.unlock();
  output.writes.close();
  failed.writes.close();
  int error = 0;
  if (read_some(failed.reads.get(), reinterpret_cast<char*>(&error), sizeof error) > 0) {
    waitpid(id, nullptr, 0);
    throw std::system_error(error, std::generic_category(), "cannot run " + arguments[0]);
  }
  return Child(id, std::move(output.reads));
}

// How a child ended, if it has: it stays a zombie, so that its number and its group's stay its own.
std::optional<siginfo_t> ended(pid_t id, int options) {
  siginfo_t info{};
  int result;
  do result = waitid(P_PID, static_cast<id_t>(id), &info, WEXITED | WNOWAIT | options);
  while (result != 0 && errno == EINTR);
  if (result != 0 || info.si_pid == 0) return std::nullopt;
  return info;
}

// ---- How it ended -------------------------------------------------------------------------------

std::string signal_words(int number) {
  switch (number) {
    case SIGSEGV:
      return "SIGSEGV, it used memory that is not its own";
    case SIGBUS:
      return "SIGBUS, it used memory that is not there";
    case SIGFPE:
      return "SIGFPE, it divided an integer by zero";
    case SIGILL:
      return "SIGILL, it ran into an instruction that does not exist";
    case SIGABRT:
      return "SIGABRT, it called abort()";
    case SIGTRAP:
      return "SIGTRAP";
    case SIGKILL:
      return "SIGKILL, it was killed, perhaps for want of memory";
    case SIGTERM:
      return "SIGTERM, it was asked to end";
    case SIGINT:
      return "SIGINT, it was interrupted";
    case SIGPIPE:
      return "SIGPIPE, it wrote where nobody reads";
    default:
      return "signal " + std::to_string(number);
  }
}

Ended how_it_ended(const siginfo_t& info, const std::optional<Ended>& told, bool stopped) {
  int number = info.si_status;
  if (info.si_code == CLD_EXITED) {
    if (number == 0) return {Ended::How::finished, 0, ""};
    return {Ended::How::exit_code, number, "exited with code " + std::to_string(number)};
  }
  if (stopped && number == SIGKILL) return {Ended::How::stopped, 0, ""};
  if (told && number == SIGABRT) return *told;
  return {Ended::How::signal, number, signal_words(number)};
}

// A folder that is there as long as the object.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_((std::filesystem::temp_directory_path() / "minitensor-XXXXXX").string()) {
    if (!mkdtemp(path_.data()))
      throw std::system_error(errno, std::generic_category(), "cannot make " + path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Token random_token() {
  std::random_device random;
  Token token;
  for (char& c : token) c = static_cast<char>(random());
  return token;
}

std::string last_part(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// ---- What is kept of what a program sends -------------------------------------------------------

// The trace as it grows, within bounds whatever the program does.
class Collection {
 public:
  explicit Collection(const RunOptions& options)
      : budget_(options.budget), most_events_(options.most_events) {}

  void add(Record&& record) {
    add_text();
    if (!has_room()) return;
    if (auto* snapshot = std::get_if<Snapshot>(&record)) fit_into_budget(*snapshot);
    if (auto* event = std::get_if<Event>(&record))
      if (auto* picture = std::get_if<Pictured>(&event->what); picture && !fits(*picture)) return;
    keeper_.add(trace_, std::move(record));
    news_ = true;
  }

  // Many short pieces make one event.
  void print(std::string_view piece) {
    if (printed_ > most_printed) return;
    printed_ += piece.size();
    text_ += piece;
    if (printed_ > most_printed) text_ += "\n[it prints on; no more of it is kept]\n";
    news_ = true;
  }

  void end(Ended how) {
    add_text();
    keeper_.add(trace_, Event{std::move(how), {}, 0});
    news_ = true;
  }

  bool has_news() const { return news_; }  // since the last copy
  std::shared_ptr<const Trace> copy() {
    add_text();
    news_ = false;
    return std::make_shared<const Trace>(trace_);
  }

  // From any thread.
  void stand_in(int episode) { keeper_.stand_in(episode); }
  bool statistics_only() const { return statistics_only_; }

 private:
  void add_text() {
    if (!text_.empty()) keeper_.add(trace_, Event{Printed{std::exchange(text_, {})}, {}, 0});
  }

  bool fits(const Pictured& picture) {
    if (pictured_ > most_pictured) return false;
    pictured_ += picture.numbers.size() * sizeof(float);
    if (pictured_ > most_pictured) print("\n[no more of its pictures are kept]\n");
    return pictured_ <= most_pictured;
  }

  // Once the budget is used up, a snapshot longer than statistics becomes statistics.
  void fit_into_budget(Snapshot& snapshot) {
    held_ += size_of(snapshot);
    if (held_ > budget_ && !statistics_only_) {  // the keeper may have let some go: count again
      held_ = 0;
      trace_.snapshots.for_each([this](const Snapshot& one) { held_ += size_of(one); });
      statistics_only_ = held_ > budget_ - budget_ / 8;
    }
    if (!statistics_only_ || snapshot.bytes.size() <= sizeof(Statistics)) return;
    const auto count = static_cast<std::size_t>(snapshot.count);
    snapshot.statistics =
        statistics_of(as_doubles(snapshot.dtype, snapshot.bytes.data(), count), nullptr);
    snapshot.bytes = {};
  }
  static std::int64_t size_of(const Snapshot& snapshot) {
    return static_cast<std::int64_t>(sizeof snapshot + snapshot.bytes.size() +
                                     snapshot.statistics.thumbnail.size() * sizeof(float));
  }

  // Counts only now and then what the keeper has left of so many events.
  bool has_room() {
    if (full_ || trace_.events.size() < count_at_) return !full_;
    std::size_t kept = 0;
    for (const auto& event : trace_.events) kept += event != nullptr;
    full_ = kept >= most_events_;
    count_at_ = trace_.events.size() + most_events_ - std::min(kept, most_events_);
    if (full_)
      keeper_.add(trace_, Event{Printed{"\n[it goes on; no more events are kept]\n"}, {}, 0});
    return !full_;
  }

  const std::int64_t budget_;
  const std::size_t most_events_;
  Trace trace_;
  Keeper keeper_;
  std::string text_;          // printed, and not yet an event
  std::size_t printed_ = 0;   // bytes, of the whole run
  std::size_t pictured_ = 0;  // likewise
  std::int64_t held_ = 0;     // bytes of snapshots, at most
  std::size_t count_at_ = most_events_;
  bool full_ = false;
  bool news_ = false;
  std::atomic<bool> statistics_only_{false};
};

}  // namespace

// ---- A run --------------------------------------------------------------------------------------

struct Process::Run {
  Run(Command what, RunOptions how)
      : command(std::move(what)), options(std::move(how)), collected(options) {}

  void all();  // the thread
  std::optional<Ended> compile();
  Ended run_program();
  std::optional<siginfo_t> follow(const Child& followed);
  void adopt(pid_t id);
  struct Adopted {  // while it lives, a stop kills this child
    Adopted(Run& r, pid_t id) : run(r) { run.adopt(id); }
    ~Adopted() { run.adopt(0); }
    Adopted(const Adopted&) = delete;
    Adopted& operator=(const Adopted&) = delete;
    Run& run;
  };
  void take(std::string_view bytes);
  void take_message(std::string_view message);
  void print(std::string_view piece);
  void publish(bool now);
  bool asked_to_stop() const {
    std::lock_guard lock(mutex);
    return stop_asked;
  }

  Command command;
  const RunOptions options;

  // The thread's own.
  Collection collected;
  std::optional<FrameReader> frames;  // none while compiling: all is text
  std::optional<Ended> told;          // what the program itself said about its end
  std::optional<TemporaryFolder> folder;
  bool complained = false;
  Clock::time_point published_at{};

  // Shared.
  mutable std::mutex mutex;  // held for a few instructions only
  std::condition_variable over;
  std::shared_ptr<const Trace> published = std::make_shared<Trace>();
  Stage stage = Stage::running;
  pid_t child = 0;  // 0: none that may be killed
  bool stop_asked = false;

  std::thread thread;
};

void Process::Run::all() {
  Ended how;
  try {
    std::optional<Ended> failed;
    if (!command.compiler.empty()) failed = compile();
    how = failed ? *failed : run_program();
  } catch (const std::exception& error) {
    how = {Ended::How::exit_code, 127, error.what()};
  }
  collected.end(std::move(how));
  publish(true);
  {
    std::lock_guard lock(mutex);
    stage = Stage::ended;
  }
  over.notify_all();
  if (options.changed) options.changed();
}

// Nothing, if the program is there afterwards.
std::optional<Ended> Process::Run::compile() {
  folder.emplace();
  std::string program =
      folder->path() + "/" + std::filesystem::path(command.compiled_file).stem().string();
  command.compiler.insert(command.compiler.end(), {"-o", program});
  command.arguments[0] = program;
  // A compiler that is killed leaves its own temporary files behind: they go with the folder.
  std::optional<siginfo_t> info = follow(spawn(command.compiler, {"TMPDIR=" + folder->path()}));
  if (asked_to_stop()) return Ended{Ended::How::stopped, 0, ""};
  if (info && info->si_code == CLD_EXITED && info->si_status == 0) return std::nullopt;
  int code = info && info->si_code == CLD_EXITED ? info->si_status : 1;
  return Ended{Ended::How::exit_code, code, last_part(command.compiled_file) + " does not compile"};
}

Ended Process::Run::run_program() {
  {
    std::lock_guard lock(mutex);
    if (stop_asked) return {Ended::How::stopped, 0, ""};
    stage = Stage::running;
  }
  Token token = random_token();
  frames.emplace(token);
  const Child program = spawn(command.arguments, {"MINITENSOR_WATCH=" + hex(token)});
  std::optional<siginfo_t> info = follow(program);
  frames->finish([this](std::string_view piece) { print(piece); });
  if (!info) return {Ended::How::exit_code, 127, "nobody knows how it ended"};
  return how_it_ended(*info, told, asked_to_stop());
}

// Reads a child's output until it has ended, and says how it ended. A child may close its output
// and go on, and what it started may hold the pipe open when it is gone: neither is waited for in
// the wrong place.
std::optional<siginfo_t> Process::Run::follow(const Child& followed) {
  const Adopted adopted(*this, followed.id());
  std::vector<char> buffer(1 << 18);
  auto read_once = [&] {
    ssize_t n = read_some(followed.output(), buffer.data(), buffer.size());
    if (n > 0) take({buffer.data(), static_cast<std::size_t>(n)});
    return n;
  };
  std::optional<siginfo_t> info;
  bool open = true;
  Clock::time_point look_at = Clock::now() + between_looks;
  while (open && !info) {
    pollfd readable{followed.output(), POLLIN, 0};
    milliseconds most = collected.has_news() ? between_publications : between_looks;
    if (poll(&readable, 1, static_cast<int>(most.count())) > 0) open = read_once() > 0;
    publish(false);
    if (Clock::now() < look_at) continue;
    info = ended(followed.id(), WNOHANG);
    look_at = Clock::now() + between_looks;
  }
  if (!info) {
    publish(true);
    info = ended(followed.id(), 0);
  }
  kill_all(followed.id());
  if (open) {  // what was written and is not yet read
    fcntl(followed.output(), F_SETFL, O_NONBLOCK);
    for (ssize_t n, left = most_left_in_pipe; left > 0 && (n = read_once()) > 0;) left -= n;
  }
  return info;
}

void Process::Run::adopt(pid_t id) {
  std::lock_guard lock(mutex);
  child = id;
  if (stop_asked && id > 0) kill_all(id);
}

void Process::Run::take(std::string_view bytes) {
  if (!frames) return print(bytes);
  frames->feed(
      bytes, [this](std::string_view piece) { print(piece); },
      [this](std::string_view message) { take_message(message); });
}

// A program can write what it likes, so a record may be anything.
void Process::Run::take_message(std::string_view message) {
  try {
    bool whole = unpack(message, [this](std::string_view bytes) {
      Record record = decode(bytes.data(), bytes.size());
      auto* event = std::get_if<Event>(&record);
      if (event && std::holds_alternative<Ended>(event->what)) {
        told = std::get<Ended>(event->what);  // it comes last, when the system says that it is so
      } else {
        collected.add(std::move(record));
      }
    });
    if (!whole) throw std::runtime_error("a message is not a list of records");
  } catch (const std::exception& error) {
    if (!std::exchange(complained, true))
      print("[what the program sent about itself cannot be read: " + std::string(error.what()) +
            "]\n");
  }
}

void Process::Run::print(std::string_view piece) {
  if (options.echo)
    for (std::string_view rest = piece; !rest.empty();) {
      ssize_t n = write(STDOUT_FILENO, rest.data(), rest.size());
      if (n < 0 && errno != EINTR) break;
      if (n > 0) rest.remove_prefix(static_cast<std::size_t>(n));
    }
  collected.print(piece);
}

void Process::Run::publish(bool now) {
  Clock::time_point time = Clock::now();
  if (!collected.has_news() || (!now && time - published_at < between_publications)) return;
  std::shared_ptr<const Trace> fresh = collected.copy();
  {
    std::lock_guard lock(mutex);
    published.swap(fresh);
  }
  published_at = time;
  if (options.changed) options.changed();
}

// ---- The interface ------------------------------------------------------------------------------

Process::Process(std::unique_ptr<Run> run) : run_(std::move(run)) {}

std::unique_ptr<Process> Process::start(Command command, RunOptions options) {
  if (command.arguments.empty()) command.arguments.emplace_back();
  std::unique_ptr<Process> process(
      new Process(std::make_unique<Run>(std::move(command), std::move(options))));
  Run* run = process->run_.get();
  if (!run->command.compiler.empty()) run->stage = Stage::compiling;
  run->thread = std::thread([run] { run->all(); });
  return process;
}

Process::~Process() {
  stop();
  run_->thread.join();
}

Process::Stage Process::stage() const {
  std::lock_guard lock(run_->mutex);
  return run_->stage;
}

std::shared_ptr<const Trace> Process::latest() const {
  std::lock_guard lock(run_->mutex);
  return run_->published;
}

void Process::stop() {
  std::lock_guard lock(run_->mutex);
  run_->stop_asked = true;
  if (run_->child > 0) kill_all(run_->child);
}

void Process::stand_in(int episode) { run_->collected.stand_in(episode); }

bool Process::statistics_only() const { return run_->collected.statistics_only(); }

bool Process::wait(milliseconds most) {
  std::unique_lock lock(run_->mutex);
  return run_->over.wait_for(lock, most, [this] { return run_->stage == Stage::ended; });
}

namespace {
constexpr std::array<int, 3> asking{SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t asked_by = 0;

void handle_by(void (*handler)(int)) {
  for (const int number : asking) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = handler;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
}
}  // namespace

Interruptible::Interruptible() {
  handle_by([](int number) { asked_by = number; });
}

Interruptible::~Interruptible() { handle_by(SIG_DFL); }

int interrupted() { return asked_by; }

void end_if_interrupted() {
  if (asked_by == 0) return;
  signal(asked_by, SIG_DFL);
  raise(asked_by);
}

Command compiled(const std::string& file, const Tools& tools, const std::vector<std::string>& flags,
                 const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  const fs::path repository(tools.repository), source(file);
  const std::vector<fs::path> ours{repository / "viewer/recorder.cpp",
                                   repository / "viewer/trace.cpp"};
  const std::vector<fs::path> read{ours[0],
                                   ours[1],
                                   repository / "minitensor.hpp",
                                   repository / "viewer/recorder.hpp",
                                   repository / "viewer/frames.hpp",
                                   repository / "viewer/trace.hpp"};
  std::error_code none;
  auto time = [&none](const fs::path& path) { return fs::last_write_time(path, none); };
  bool fresh = fs::exists(tools.attach_library, none);
  for (const fs::path& path : read) fresh = fresh && time(path) <= time(tools.attach_library);
  // A header of its own beside the student's file is what the file includes; then ours must be
  // built with that as well.
  fs::path folder = source.has_parent_path() ? source.parent_path() : fs::path(".");
  fs::path own_header = folder / "minitensor.hpp";
  if (fs::exists(own_header, none) &&
      !fs::equivalent(own_header, repository / "minitensor.hpp", none))
    fresh = false;

  Command command;
  command.compiled_file = file;
  command.compiler = {tools.compiler, "-std=c++20",           "-g1",
                      "-O1",          "-I" + folder.string(), "-I" + tools.repository};
  command.compiler.insert(command.compiler.end(),
                          {"-include", (repository / "viewer/attach.hpp").string(),
                           source.has_parent_path() ? file : "./" + file});
  if (fresh) {
    command.compiler.push_back(tools.attach_library);
  } else {
    for (const fs::path& path : ours) command.compiler.push_back(path.string());
  }
  command.compiler.insert(command.compiler.end(), flags.begin(), flags.end());
  command.arguments = {file};
  command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
  return command;
}

std::string words(const Ended& ended) {
  switch (ended.how) {
    case Ended::How::finished:
      return "finished";
    case Ended::How::threw:
      return "threw " + ended.text;
    case Ended::How::stopped:
      return "stopped";
    case Ended::How::exit_code:
      return ended.text;
    case Ended::How::signal:
      return "crashed: " + ended.text;
  }
  return "";
}

}  // namespace viewer
