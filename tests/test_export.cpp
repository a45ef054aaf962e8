// Figures. What they must look like to Graphviz is asked of Graphviz's own programs, where they are
// installed.
#include <cmath>
#include <map>
#include <regex>
#include <stdexcept>

#include "lessons/words.hpp"
#include "tests/catch.hpp"
#include "tests/shell.hpp"
#include "tests/traces.hpp"
#include "viewer/export.hpp"

namespace {

using namespace viewer;
using traces::Machine;

Timeline timeline_of(const Machine& machine) {
  Timeline timeline;
  timeline.extend(machine.share());
  return timeline;
}

ExportOptions options(const shell::TemporaryFolder& folder, std::vector<std::string> formats) {
  ExportOptions chosen;
  chosen.to = folder.path();
  chosen.name = "05_chain_rule";
  chosen.formats = std::move(formats);
  return chosen;
}

std::vector<std::string> frames_of(const Machine& machine) {
  const shell::TemporaryFolder folder;
  ExportOptions chosen = options(folder, {"dot"});
  chosen.frames = true;
  std::vector<std::string> texts;
  for (const auto& path : export_figures(timeline_of(machine), chosen).files)
    texts.push_back(shell::read_file(path));
  texts.erase(texts.begin());  // the first file is the figure without a number
  return texts;
}

std::vector<std::string> all_matches(const std::string& text, const std::string& expression) {
  const std::regex pattern(expression);
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
    found.push_back(match->str());
  return found;
}

// What stands in the figure, without its tags: "x[] leaf2.03.0 so far".
std::string words_in(const std::string& dot) {
  return std::regex_replace(dot, std::regex("<[^<>]*>"), "");
}

// What a reader of XML reads: "&#45;&gt;" -> "->".
std::string without_references(const std::string& xml) {
  static const std::map<std::string, std::string> named = {
      {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}};
  std::string text;
  for (std::size_t i = 0; i < xml.size(); ++i) {
    const std::size_t end = xml[i] == '&' ? xml.find(';', i) : std::string::npos;
    if (end == std::string::npos) {
      text += xml[i];
      continue;
    }
    const std::string reference = xml.substr(i + 1, end - i - 1);
    text += reference[0] != '#' ? named.at(reference)
            : reference == "#160"
                ? " "
                : std::string(1, static_cast<char>(std::stoi(reference.substr(1))));
    i = end;
  }
  return text;
}

bool have(const std::string& program) { return shell::run("command -v " + program).exit_code == 0; }

// The place of each node as one of Graphviz's programs gives it.
std::map<std::string, std::pair<double, double>> places(const std::string& command,
                                                        const std::filesystem::path& file) {
  const shell::Outcome outcome = shell::run(command + " -Tplain '" + file.string() + "'");
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  std::map<std::string, std::pair<double, double>> found;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind, name;
    double x = 0, y = 0;
    if (words >> kind >> name >> x >> y && kind == "node") found[name] = {x, y};
  }
  return found;
}

Machine with_boxes() {
  Machine m;
  const Id x = m.leaf("x", {1, 2, 3}), w = m.leaf("w", {2});
  m.open("Linear", false);
  m.open("softmax", true);
  const Id y = m.add_(m.mul(x, w), w);
  m.close();
  const Id z = m.mul(y, y);
  m.close();
  m.backward(m.sum(z));
  return m;
}

// ---- Names and contents --------------------------------------------------------------------------

TEST_CASE("figures have the names of the design, with digits by their count") {
  const shell::TemporaryFolder folder;
  ExportOptions chosen = options(folder, {"dot"});
  chosen.frames = true;
  const Exported exported = export_figures(timeline_of(traces::chain_rule()), chosen);
  REQUIRE(exported.files.size() == 20);
  CHECK(exported.files[0].filename() == "05_chain_rule.dot");
  CHECK(exported.files[1].filename() == "05_chain_rule.000.dot");
  CHECK(exported.files[19].filename() == "05_chain_rule.018.dot");
  CHECK(exported.note == "");
}

TEST_CASE("the last frame of lesson 05 shows the gradients 7 and 29, and the others their step") {
  const std::vector<std::string> frames = frames_of(traces::chain_rule());
  REQUIRE(frames.size() == 19);
  CHECK(words_in(frames[18]).find("x[] leaf2.07.0") != std::string::npos);
  CHECK(words_in(frames[18]).find("y[] leaf3.029.0") != std::string::npos);
  CHECK(words_in(frames[16]).find("x[] leaf2.07.0 so far") != std::string::npos);
  CHECK(words_in(frames[13]).find("y[] leaf3.0not yet") != std::string::npos);
  CHECK(words_in(frames[13]).find("1 × 3") != std::string::npos);
  CHECK(frames[13].find("step 13 of 18") != std::string::npos);
}

TEST_CASE("one step can be asked for") {
  const shell::TemporaryFolder folder;
  ExportOptions chosen = options(folder, {"dot"});
  chosen.step = 13;
  const Exported exported = export_figures(timeline_of(traces::chain_rule()), chosen);
  REQUIRE(exported.files.size() == 1);
  CHECK(shell::read_file(exported.files[0]) == frames_of(traces::chain_rule())[13]);
}

TEST_CASE("done, active and pending look different") {
  const std::vector<std::string> frames = frames_of(traces::chain_rule());
  const auto fill_of = [&](std::size_t frame) {
    return all_matches(frames[frame], "  n3 \\[.*")[0];  // a
  };
  const std::string pending = fill_of(2), active = fill_of(3), done = fill_of(4);
  const auto color = [](const std::string& node) {
    return all_matches(node, " color=\"#[0-9a-f]*\"")[0];
  };
  CHECK(color(pending) != color(active));
  CHECK(color(active) != color(done));
  CHECK(color(pending) != color(done));
}

// ---- Places --------------------------------------------------------------------------------------

TEST_CASE("all frames have the same nodes and lines in the same order and places") {
  for (const Machine& machine : {traces::chain_rule(), with_boxes()}) {
    const std::vector<std::string> frames = frames_of(machine);
    const std::string places =
        "  n[0-9]+ \\[width=[0-9.]+ height=[0-9.]+( shape=ellipse)? pos=\"[^\"]*\"";
    const std::string lines = "  n[0-9]+ -> n[0-9]+ \\[id=e[0-9]+";
    const std::vector<std::string> nodes = all_matches(frames[0], places);
    REQUIRE(nodes.size() > 5);
    for (const std::string& frame : frames) {
      REQUIRE(all_matches(frame, places) == nodes);
      REQUIRE(all_matches(frame, lines) == all_matches(frames[0], lines));
    }
  }
}

TEST_CASE("dot and neato accept every frame without a warning and give the same places") {
  if (!have_graphviz() || !have("dot") || !have("neato")) {
    WARN("skipped: Graphviz is not installed");
    return;
  }
  for (const Machine& machine : {traces::chain_rule(), with_boxes()}) {
    const shell::TemporaryFolder folder;
    ExportOptions chosen = options(folder, {"dot"});
    chosen.frames = true;
    std::map<std::string, std::pair<double, double>> first;
    for (const auto& path : export_figures(timeline_of(machine), chosen).files) {
      CAPTURE(path.filename().string());
      const auto by_dot = places("dot", path), by_neato = places("neato -n2", path);
      if (first.empty()) first = by_neato;
      REQUIRE(by_neato == first);
      REQUIRE(by_dot.size() == by_neato.size());
      for (const auto& [node, place] : by_dot) {  // -Tplain writes five digits
        CHECK(std::abs(place.first - by_neato.at(node).first) < 0.002);
        CHECK(std::abs(place.second - by_neato.at(node).second) < 0.002);
      }
    }
  }
}

TEST_CASE("svg, png and pdf are written, and open with the signs of their kind") {
  if (!have_graphviz()) {
    WARN("skipped: built without Graphviz");
    return;
  }
  const shell::TemporaryFolder folder;
  const Exported exported =
      export_figures(timeline_of(traces::chain_rule()), options(folder, {"svg", "png", "pdf"}));
  REQUIRE(exported.files.size() == 3);
  const std::string svg = shell::read_file(exported.files[0]);
  CHECK(svg.find("<svg") != std::string::npos);
  CHECK(svg.find("29.0") != std::string::npos);
  CHECK(svg.find("x²") != std::string::npos);
  CHECK(shell::read_file(exported.files[1]).substr(1, 3) == "PNG");
  CHECK(shell::read_file(exported.files[2]).substr(0, 4) == "%PDF");
}

TEST_CASE("what cannot be written is said in one sentence") {
  const shell::TemporaryFolder folder;
  const Timeline timeline = timeline_of(traces::chain_rule());
  CHECK_THROWS_WITH(export_figures(timeline, options(folder, {"bmp"})),
                    "there is no format \"bmp\"; there are dot, svg, png and pdf");
  shell::write_file(folder / "file", "");
  ExportOptions chosen = options(folder, {"dot"});
  chosen.to = folder / "file";
  CHECK_THROWS_AS(export_figures(timeline, chosen), std::runtime_error);
  CHECK_THROWS_AS(render("this is no graph", "svg"), std::runtime_error);
}

TEST_CASE("an empty run is an empty figure") {
  const shell::TemporaryFolder folder;
  const Exported exported = export_figures(Timeline(), options(folder, {"dot"}));
  REQUIRE(exported.files.size() == 1);
  CHECK(shell::read_file(exported.files[0]).find("digraph {") != std::string::npos);
}

// ---- Every character -----------------------------------------------------------------------------

TEST_CASE("what means something in dot is written by its number, and what is no text is replaced") {
  CHECK(html_label_escape("x² · β") == "x² · β");
  CHECK(html_label_escape("a<b>&\"c\"") == "a&#60;b&#62;&#38;&#34;c&#34;");
  CHECK(html_label_escape("{|}\\n") == "&#123;&#124;&#125;&#92;&#92;n");
  CHECK(html_label_escape("a\nb\xff") == "a␊b\xEF\xBF\xBD");
}

TEST_CASE("a tensor may be called by any characters, and Graphviz shows them") {
  std::string bytes;
  for (int c = 0; c < 256; ++c) bytes += static_cast<char>(c);
  std::vector<std::string> names = {"\"quoted\"", "a\\nb\\", "<b>bold</b>", "{a|b}", "&amp;",
                                    "a\nb\r\n",   "ü Ω 漢",  "-->",         "]];",   "\\N \\G"};
  for (std::size_t i = 0; i < bytes.size(); i += 16) names.push_back(bytes.substr(i, 16));
  for (const std::string& name : names) {
    CAPTURE(name);
    Machine m;
    const Id x = m.leaf(name, {1});
    m.open(name, false);
    m.backward(m.mul(x, x));
    m.close();
    const shell::TemporaryFolder folder;
    const Exported exported = export_figures(timeline_of(m), options(folder, {"dot"}));
    const std::string dot = shell::read_file(exported.files[0]);
    REQUIRE(words_in(dot).find(html_label_escape(words::cut(words::clean(name), longest_name))) !=
            std::string::npos);
    if (!have("dot")) continue;
    const shell::Outcome outcome = shell::run("dot -Tsvg '" + exported.files[0].string() + "'");
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.err == "");
    CHECK(without_references(outcome.out).find(words::cut(words::clean(name), longest_name)) !=
          std::string::npos);
  }
}

}  // namespace
