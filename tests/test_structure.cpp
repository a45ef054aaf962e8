// Who may know whom (the map is in README.md, "How it is built"), and the order of the one header:
// tests that read the sources as text.
#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/shell.hpp"

namespace {

namespace fs = std::filesystem;

// ---- Includes -----------------------------------------------------------------------------------

using Sources = std::map<std::string, std::string>;  // path from the repository's root -> text

std::set<std::string> includes_of(const std::string& text) {
  static const std::regex include(R"((?:^|\n)\s*#\s*include\s*["<]([^">]+)[">])");
  std::set<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), include), end; match != end; ++match)
    found.insert((*match)[1]);
  return found;
}

// All that `path` includes, directly or through our own files.
std::set<std::string> reached_from(const Sources& sources, const std::string& path) {
  std::set<std::string> reached;
  std::vector<std::string> open{path};
  while (!open.empty()) {
    const std::string next = open.back();
    open.pop_back();
    auto source = sources.find(next);
    if (source == sources.end()) continue;
    for (const std::string& include : includes_of(source->second))
      if (reached.insert(include).second) open.push_back(include);
  }
  return reached;
}

bool is_window(const std::string& include) {
  return std::regex_search(include, std::regex("imgui|GLFW/|GL/|EGL/"));
}
bool is_tensor(const std::string& include) { return include == "minitensor.hpp"; }
bool is_trace(const std::string& include) { return include == "viewer/trace.hpp"; }
bool is_graphviz(const std::string& include) {
  return std::regex_search(include, std::regex("gvc\\.h|cgraph\\.h"));
}

// A file of the viewer may include those of its own layer and of the ones before it, and reach of
// tensors, traces and the window what its layer allows.
struct Layer {
  std::set<std::string> stems;  // viewer/stem.hpp and viewer/stem.cpp
  bool tensors, traces, window;
};
const std::vector<Layer> layers = {
    {{"frames", "variables"}, false, false, false},
    {{"trace", "statistics", "value", "facts", "episodes", "keeper", "process", "options"},
     false,
     true,
     false},
    {{"recorder", "attach", "course"}, true, true, false},  // the side of the watched program
    {{"timeline", "timeline_index", "timeline_names", "timeline_state", "timeline_ledger",
      "timeline_plots", "timeline_prose"},
     false,
     true,
     false},
    {{"chart", "layout", "camera", "scene", "export", "desk", "session"}, false, true, false},
    {{"theme", "fonts", "paint", "canvas", "cells", "inspector", "plots", "panels", "app", "main"},
     false,
     true,
     true},
};

auto layer_of(const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  return std::find_if(layers.begin(), layers.end(),
                      [&](const Layer& one) { return one.stems.count(stem) != 0; });
}

// One sentence for each forbidden edge.
std::vector<std::string> forbidden_edges(const Sources& sources) {
  std::vector<std::string> sentences;
  for (const auto& [path, text] : sources) {
    if (path == "minitensor.hpp") {
      for (const std::string& include : includes_of(text))
        if (sources.count(include) != 0) sentences.push_back("minitensor.hpp includes " + include);
      continue;
    }
    if (path == "kernels.cu") {
      for (const std::string& include : includes_of(text))
        if (sources.count(include) != 0 && !is_tensor(include))
          sentences.push_back("kernels.cu includes " + include);
      continue;
    }
    if (includes_of(text).count("kernels.cu") != 0)
      sentences.push_back(path + " includes kernels.cu, which is to be linked");
    if (path.rfind("viewer/", 0) != 0) continue;
    const std::string stem = fs::path(path).stem().string();
    const auto layer = layer_of(path);
    if (layer == layers.end()) {
      sentences.push_back(path + " belongs to no layer");
      continue;
    }
    for (const std::string& include : includes_of(text)) {
      if (sources.count("viewer/" + include) != 0)
        sentences.push_back(path + " includes " + include + " without its folder");
      if (include.rfind("viewer/", 0) == 0 && layer_of(include) > layer)
        sentences.push_back(path + " includes " + include + " of a later layer");
    }
    if (includes_of(text).count("viewer/timeline_index.hpp") != 0 && stem.rfind("timeline", 0) != 0)
      sentences.push_back(path + " looks into the timeline");
    for (const std::string& include : reached_from(sources, path)) {
      const bool allowed =
          (layer->tensors || !is_tensor(include)) && (layer->traces || !is_trace(include)) &&
          (layer->window || !is_window(include)) && (stem == "layout" || !is_graphviz(include));
      if (!allowed) sentences.push_back(path + " must not know " + include);
    }
  }
  return sentences;
}

Sources the_sources() {
  Sources sources;
  const fs::path root = SOURCE_DIRECTORY;
  for (const char* file : {"minitensor.hpp", "kernels.cu"})
    sources[file] = shell::read_file(root / file);
  for (const char* folder : {"viewer", "lessons"})
    for (const auto& entry : fs::directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".hpp" && extension != ".cpp") continue;
      sources[std::string(folder) + "/" + entry.path().filename().string()] =
          shell::read_file(entry.path());
    }
  return sources;
}

TEST_CASE("no file of the viewer knows more than its layer allows") {
  CHECK(forbidden_edges(the_sources()) == std::vector<std::string>{});
}

TEST_CASE("a forbidden edge is found, also through another file") {
  const Sources sources = {
      {"minitensor.hpp", "#include <vector>\n#include \"viewer/trace.hpp\"\n"},
      {"viewer/trace.hpp", "#include <map>\n"},
      {"viewer/scene.hpp", "#include \"viewer/theme.hpp\"\n"},
      {"viewer/theme.hpp", "#include <imgui.h>\n"},
      {"viewer/timeline.cpp", "#include \"lessons/words.hpp\"\n"},
      {"lessons/words.hpp", "#include \"minitensor.hpp\"\n"},
      {"lessons/18_gpu.cpp", "#include \"kernels.cu\"\n"},
      {"kernels.cu", "#include \"minitensor.hpp\"\n#include \"viewer/trace.hpp\"\n"},
      {"viewer/newcomer.cpp", ""},
      {"viewer/layout.cpp", "#include \"scene.hpp\"\n"},
      {"viewer/export.cpp", "#include \"viewer/timeline_index.hpp\"\n"},
  };
  const std::vector<std::string> expected = {
      "kernels.cu includes viewer/trace.hpp",
      "lessons/18_gpu.cpp includes kernels.cu, which is to be linked",
      "minitensor.hpp includes viewer/trace.hpp",
      "viewer/export.cpp looks into the timeline",
      "viewer/layout.cpp includes scene.hpp without its folder",
      "viewer/newcomer.cpp belongs to no layer",
      "viewer/scene.hpp includes viewer/theme.hpp of a later layer",
      "viewer/scene.hpp must not know imgui.h",
      "viewer/timeline.cpp must not know minitensor.hpp",
  };
  CHECK(forbidden_edges(sources) == expected);
}

// ---- Tests that nobody runs ---------------------------------------------------------------------

TEST_CASE("every test file is built") {
  const fs::path folder = fs::path(SOURCE_DIRECTORY) / "tests";
  const std::string list = shell::read_file(folder / "CMakeLists.txt");
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".cpp") continue;
    INFO(name);
    CHECK(std::regex_search(list, std::regex("\\b" + name + "\\b")));
  }
}

TEST_CASE("every test of the window is run") {
  const fs::path folder = fs::path(SOURCE_DIRECTORY) / "tests";
  const std::string list = shell::read_file(folder / "CMakeLists.txt");
  const std::string script = shell::read_file(folder / "ui/test_window.py");
  const std::regex test(R"(\ndef (\w+)\(open_viewer\))");
  int found = 0;
  for (std::sregex_iterator match(script.begin(), script.end(), test), end; match != end; ++match) {
    INFO((*match)[1]);
    CHECK(std::regex_search(list, std::regex("\\b" + (*match)[1].str() + "\\b")));
    ++found;
  }
  CHECK(found > 0);
}

}  // namespace
