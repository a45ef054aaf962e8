// What tests of whole programs need: a folder that goes away, files as text, and a command line's
// outcome.
#pragma once

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace shell {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "minitensor-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Outcome {
  int exit_code = 0;  // 128 + signal, as a shell counts
  std::string out, err;
  double seconds = 0;         // of processor time, all processes of the line together
  double peak_megabytes = 0;  // of the largest of them
};

// Runs a line of shell with an empty standard input.
inline Outcome run(const std::string& line) {
  TemporaryFolder folder;
  const std::string redirected = "{ " + line + "\n} >'" + (folder / "out").string() + "' 2>'" +
                                 (folder / "err").string() + "' </dev/null";
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", redirected.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, 0, &usage) < 0) {
  }
  auto in_seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  Outcome outcome;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_file(folder / "out");
  outcome.err = read_file(folder / "err");
  outcome.seconds = in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
  outcome.peak_megabytes = static_cast<double>(usage.ru_maxrss) / 1024;
  return outcome;
}

}  // namespace shell
