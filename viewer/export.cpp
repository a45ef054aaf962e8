#include "viewer/export.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "lessons/words.hpp"

namespace viewer {

// ---- Text in dot files ---------------------------------------------------------------------------

// HTML-like labels are read as XML: characters that mean something there, or in other labels of
// dot, are written by their numbers. After that Graphviz still reads \N and the like as the names
// of things, so a backslash is written twice.
std::string html_label_escape(std::string_view text) {
  std::string escaped;
  for (char c : words::clean(text))
    if (c == '\\')
      escaped += "&#92;&#92;";
    else if (std::string_view("&<>\"'{}|").find(c) != std::string_view::npos)
      escaped += "&#" + std::to_string(static_cast<int>(c)) + ";";
    else
      escaped += c;
  return escaped;
}

// ---- Colours of paper ----------------------------------------------------------------------------

namespace {

const char* on_paper(Role role) {
  switch (role) {
    case Role::canvas:
    case Role::box:
      return "#ffffff";
    case Role::circle:
      return "#eef1f6";
    case Role::pending_fill:
      return "#fcfcfd";
    case Role::closed_scope:
      return "#e9f0fa";
    case Role::open_scope:
      return "#f6f7f9";
    case Role::outline:
      return "#57616f";
    case Role::pending_outline:
      return "#9aa5b4";
    case Role::scope_outline:
      return "#c9d0da";
    case Role::active:
      return "#e0a100";
    case Role::factor:
      return "#2f9e5f";
    case Role::failed:
      return "#c92a2a";
    case Role::name:
      return "#171b22";
    case Role::faint:
      return "#5c6675";
    case Role::pending_text:
      return "#626d7d";
    case Role::value:
      return "#1c66b5";
    case Role::gradient:
      return "#c25a00";
    case Role::edge:
      return "#6b7789";
    case Role::pending_edge:
      return "#9aa5b4";
    case Role::backward_edge:
      return "#d99a58";
    case Role::active_edge:
      return "#e36a00";
    case Role::forward_edge:
      return "#1c66b5";
    case Role::count:
      break;
  }
  return "#000000";
}

// ---- One figure ----------------------------------------------------------------------------------

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string in_quotes(std::string_view value) { return "\"" + std::string(value) + "\""; }

class Figure {
 public:
  explicit Figure(const Scene& scene) : scene_(scene), height_(scene.bounds.height) {}

  Dress dress() const {
    Dress dress;
    dress.graph = "bgcolor=\"" + std::string(on_paper(Role::canvas)) +
                  "\"; fontname=\"DejaVu Sans\"; bb=\"0,0," + number(scene_.bounds.width) + "," +
                  number(height_) +
                  "\"; notranslate=true;\n  node [fontname=\"DejaVu Sans\" margin=0]; "
                  "edge [fontname=\"DejaVu Sans\" fontsize=13 arrowsize=1.1];";
    for (const Box& box : scene_.scopes) {
      dress.clusters.push_back(cluster(box));
      dress.titles.push_back(box.texts.empty() ? "" : ink(box.texts[0]));
    }
    for (const Box& box : scene_.boxes) dress.nodes.push_back(node(box));
    for (const Stroke& line : scene_.lines) {
      dress.edges.push_back(edge(line));
      dress.labels.push_back(line.label ? ink(*line.label) : "");
    }
    return dress;
  }

 private:
  // Graphviz's y grows upwards.
  std::string at(Point point) const { return number(point.x) + "," + number(height_ - point.y); }

  static std::string ink(const Text& text, const char* around = "") {
    const std::string open = *around == '\0' ? "" : "<" + std::string(around) + ">";
    const std::string close = *around == '\0' ? "" : "</" + std::string(around) + ">";
    const std::string content = text.text.empty() ? "&#160;" : html_label_escape(text.text);
    return std::string("<FONT FACE=\"DejaVu Sans") + (text.font == Font::mono ? " Mono" : "") +
           "\" POINT-SIZE=\"" + std::to_string(static_cast<int>(text.size)) + "\" COLOR=\"" +
           on_paper(text.role) + "\">" + open + content + close + "</FONT>";
  }
  static const char* weight(const Text& text) {
    return text.font == Font::bold ? "B" : text.font == Font::italic ? "I" : "";
  }

  std::string cluster(const Box& box) const {
    const Rect& r = box.rect;
    std::string text = "style=\"rounded,filled\" fillcolor=" + in_quotes(on_paper(box.fill)) +
                       " color=" + in_quotes(on_paper(box.outline)) + " bb=\"" +
                       at({r.x, r.y + r.height}) + "," + at({r.x + r.width, r.y}) + "\"";
    return text;
  }

  std::string node(const Box& box) const {
    std::string style = box.round ? "filled" : "rounded,filled";
    if (box.dashed) style += ",dashed";
    return "pos=" + in_quotes(at(box.rect.center())) + " style=" + in_quotes(style) +
           " fillcolor=" + in_quotes(on_paper(box.fill)) +
           " color=" + in_quotes(on_paper(box.outline)) + " penwidth=" + number(box.outline_width) +
           " label=<" + label(box) + ">";
  }

  static std::string label(const Box& box) {
    if (box.item.kind == Item::Kind::tensor) return tensor_label(box);
    std::string rows;
    for (const Text& text : box.texts)
      rows += (rows.empty() ? "" : "<BR/>") + ink(text, weight(text));
    return rows;
  }

  // Name and shape side by side, the value and the gradient below them.
  static std::string tensor_label(const Box& box) {
    const std::string width = std::to_string(static_cast<int>(box.rect.width - 20));
    const auto row = [&](std::size_t i) {
      return "<TR><TD COLSPAN=\"2\" ALIGN=\"LEFT\" HEIGHT=\"19\" WIDTH=\"" + width + "\">" +
             ink(i < box.texts.size() ? box.texts[i] : Text{}) + "</TD></TR>";
    };
    return "<TABLE BORDER=\"0\" CELLBORDER=\"0\" CELLSPACING=\"0\" CELLPADDING=\"0\">"
           "<TR><TD ALIGN=\"LEFT\" HEIGHT=\"24\">" +
           ink(box.texts[0], weight(box.texts[0])) + "</TD><TD ALIGN=\"RIGHT\">" +
           ink(box.texts[1]) + "</TD></TR>" + row(2) + row(3) + "</TABLE>";
  }

  std::string edge(const Stroke& line) const {
    std::string text =
        "color=" + in_quotes(on_paper(line.role)) + " penwidth=" + number(line.width);
    if (line.dashed) text += " style=dashed";
    if (line.curve.empty() || line.arrow.empty()) return text;
    text += line.reversed ? " dir=back arrowtail=normal" : " dir=forward arrowhead=normal";
    text += " pos=\"" + std::string(line.reversed ? "s," : "e,") + at(line.arrow[0]);
    for (const Point& point : line.curve) text += " " + at(point);
    text += "\"";
    if (line.slot < 0) return text;
    const Point label = line.label
                            ? Point{line.label->at.x, line.label->at.y - line.label->size * 0.35}
                            : line.curve[0];
    return text + " xlp=" + in_quotes(at(label));
  }

  const Scene& scene_;
  const double height_;
};

}  // namespace

std::string dot_text(const Diagram& diagram, const Scene& scene, std::string_view title) {
  const Dress dress = Figure(scene).dress();
  return "// " + html_label_escape(title) + "\n" + dot_of(diagram.structure, dress);
}

// ---- Files ---------------------------------------------------------------------------------------

namespace {

constexpr std::array<const char*, 4> known_formats = {"dot", "svg", "png", "pdf"};

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

class Exporter {
 public:
  Exporter(const Timeline& timeline, const ExportOptions& options)
      : timeline_(timeline),
        options_(options),
        start_(timeline.start(options.episode)),
        diagram_(make_diagram(timeline, start_.episode, options.toggled)),
        placement_(place(diagram_.structure)) {
    for (const std::string& format : options.formats)
      if (const std::string why = lacks_format(format); !why.empty()) throw std::runtime_error(why);
  }

  Exported write() {
    std::error_code error;
    std::filesystem::create_directories(options_.to, error);
    if (error) throw std::runtime_error("cannot make the folder " + options_.to.string());
    figure(options_.name, options_.step ? timeline_.at(start_.episode, *options_.step)
                                        : timeline_.end(start_.episode));
    if (options_.frames) frames();
    return std::move(exported_);
  }

 private:
  // One figure a step that is seen, from step 0.
  void frames() {
    std::vector<Cursor> cursors{start_};
    for (;;) {
      const Cursor next = timeline_.next(cursors.back(), options_.toggled);
      if (next == cursors.back()) break;
      cursors.push_back(next);
    }
    const std::size_t digits = std::max<std::size_t>(3, std::to_string(cursors.size() - 1).size());
    for (std::size_t i = 0; i < cursors.size(); ++i) {
      const std::string n = std::to_string(i);
      figure(options_.name + "." + std::string(digits - n.size(), '0') + n, cursors[i]);
    }
  }

  void figure(const std::string& name, Cursor cursor) {
    const Scene scene = make_scene(timeline_, cursor, diagram_, placement_);
    const std::string title = options_.name + ", step " + timeline_.label(cursor) + " of " +
                              std::to_string(timeline_.episode(start_.episode).steps) + ": " +
                              timeline_.prose(cursor);
    const std::string dot = dot_text(diagram_, scene, title);
    for (const std::string& format : options_.formats) {
      if (format != "dot" && !have_graphviz()) {
        exported_.note =
            "Only dot text was written: svg, png and pdf need Graphviz, which this "
            "program was built without.";
        continue;
      }
      const std::filesystem::path path = options_.to / (name + "." + format);
      write_file(path, format == "dot" ? dot : render(dot, format));
      exported_.files.push_back(path);
    }
  }

  const Timeline& timeline_;
  const ExportOptions& options_;
  const Cursor start_;
  const Diagram diagram_;
  const Placement placement_;
  Exported exported_;
};

}  // namespace

std::string all_formats() {
  std::string list = known_formats.front();
  for (std::size_t i = 1; i + 1 < known_formats.size(); ++i)
    list += std::string(", ") + known_formats[i];
  return list + " and " + known_formats.back();
}

std::string lacks_format(const std::string& format) {
  const bool known =
      std::find(known_formats.begin(), known_formats.end(), format) != known_formats.end();
  return known ? "" : "there is no format " + in_quotes(format) + "; there are " + all_formats();
}

Exported export_figures(const Timeline& timeline, const ExportOptions& options) {
  return Exporter(timeline, options).write();
}

}  // namespace viewer
