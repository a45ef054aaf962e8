// Figures: the scene as dot text, and as SVG, PNG and PDF by Graphviz from exactly that text.
//
// Every frame of an episode has all its nodes and edges in the same order, fixed sizes and
// positions, so plain `dot` and `neato -n2` give the same places, and a reader can leaf through the
// frames. Writing dot text needs no Graphviz.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/scene.hpp"

namespace viewer {

struct ExportOptions {
  std::filesystem::path to = ".";  // a folder; made if it is not there
  std::string name = "figure";  // "05_chain_rule" -> 05_chain_rule.dot, 05_chain_rule.000.dot ...
  std::vector<std::string> formats{"dot", "svg"};
  int episode = 1;
  std::optional<std::int64_t> step;  // none: the last one of the episode
  bool frames = false;               // one figure a step, from step 0, besides the one above
  Toggled toggled;
};

struct Exported {
  std::vector<std::filesystem::path> files;  // written, in order
  std::string note;  // one sentence about what could not be written and why; empty if nothing
};

std::string lacks_format(const std::string& format);  // one sentence; empty: there is such a format
std::string all_formats();                            // "dot, svg, png and pdf"

// Throws std::runtime_error with one sentence if a folder or file cannot be written or a format is
// unknown.
Exported export_figures(const Timeline&, const ExportOptions&);

// One figure as dot text.
std::string dot_text(const Diagram&, const Scene&, std::string_view title);

// Text as it may stand in a dot file's HTML-like label, whatever its characters: see export.cpp.
std::string html_label_escape(std::string_view text);

}  // namespace viewer
