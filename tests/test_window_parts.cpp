// Parts of the window that need no window: numbers in columns, characters, lines of a source.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/traces.hpp"
#include "viewer/canvas.hpp"
#include "viewer/chart.hpp"
#include "viewer/desk.hpp"
#include "viewer/fonts.hpp"
#include "viewer/inspector.hpp"
#include "viewer/panels.hpp"
#include "viewer/plots.hpp"
#include "viewer/theme.hpp"

using namespace viewer;

TEST_CASE("numbers in columns stand point above point") {
  const std::vector<std::string> columns = aligned({"-3.75", "10.0", "1e-05", "nan", "7"});
  CHECK(columns == std::vector<std::string>{" -3.75 ", " 10.0  ", "  1e-05", "nan    ", "  7    "});
}

TEST_CASE("characters are read from UTF-8, and bytes that are none read as a replacement") {
  std::string_view text = "aé→𝛼";
  CHECK(next_character(text) == U'a');
  CHECK(next_character(text) == U'é');
  CHECK(next_character(text) == U'→');
  CHECK(next_character(text) == U'𝛼');
  CHECK(text.empty());

  std::string_view broken = "\xE2\x86x\xFF\xC3";
  std::u32string read;
  while (!broken.empty()) read += next_character(broken);
  CHECK(read == U"\uFFFD\uFFFDx\uFFFD\uFFFD");
}

TEST_CASE("text is as wide as its characters, at every size, and wider when bold") {
  Fonts fonts;
  const float one = fonts.width(Face::mono, 14, "0");
  CHECK(one > 0);
  CHECK(fonts.width(Face::mono, 14, "0000") == Approx(4 * one));
  CHECK(fonts.width(Face::mono, 28, "0") == Approx(2 * one).epsilon(0.02));
  CHECK(fonts.width(Face::bold, 14, "gradient") > fonts.width(Face::sans, 14, "gradient"));
}

TEST_CASE("a line of the source is found by its number, and none beyond the last") {
  Trace trace;
  trace.sources["a.cpp"] = "one\r\ntwo\n\nfour";
  CHECK(source_line(trace, {"a.cpp", 1}) == "one");
  CHECK(source_line(trace, {"a.cpp", 2}) == "two");
  CHECK(source_line(trace, {"a.cpp", 3}).empty());
  CHECK(source_line(trace, {"a.cpp", 4}) == "four");
  CHECK(source_line(trace, {"a.cpp", 5}).empty());
  CHECK(source_line(trace, {"b.cpp", 1}).empty());
  CHECK(last_part("lessons/05_chain_rule.cpp") == "05_chain_rule.cpp");
}

namespace {

// The contrast of two colours as the Web Content Accessibility Guidelines define it.
double luminance(ImU32 color) {
  const auto part = [&](int shift) {
    const double value = ((color >> shift) & 255) / 255.0;
    return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * part(IM_COL32_R_SHIFT) + 0.7152 * part(IM_COL32_G_SHIFT) +
         0.0722 * part(IM_COL32_B_SHIFT);
}
double contrast(ImU32 one, ImU32 other) {
  const double a = luminance(one) + 0.05, b = luminance(other) + 0.05;
  return a > b ? a / b : b / a;
}

}  // namespace

TEST_CASE("every text has at least 4.5 times the contrast of the ground it stands on") {
  for (const Theme* theme : {&dark_theme, &light_theme}) {
    for (const ImU32 ground : {theme->panel, theme->desk, theme->canvas, theme->box, theme->card}) {
      CHECK(contrast(theme->text, ground) >= 4.5);
      CHECK(contrast(theme->faint, ground) >= 4.5);
      CHECK(contrast(theme->value, ground) >= 4.5);
      CHECK(contrast(theme->gradient, ground) >= 4.5);
      CHECK(contrast(theme->warning, ground) >= 4.5);
    }
    CHECK(contrast(theme->now, theme->panel) >= 4.5);
    CHECK(contrast(theme->gradient, theme->card_now) >= 4.5);
    CHECK(contrast(theme->faint, theme->source_now) >= 4.5);
    CHECK(contrast(theme->gradient, theme->pill_backward) >= 4.5);
    CHECK(contrast(theme->value, theme->pill_forward) >= 4.5);
    CHECK(contrast(theme->leaf, theme->pill_update) >= 4.5);
  }
}

TEST_CASE("what is still to come can be seen on a projector, and told from what is there") {
  for (const Theme* theme : {&dark_theme, &light_theme}) {
    for (const ImU32 ground : {theme->canvas, theme->pending_fill, theme->box})
      CHECK(contrast(theme->pending_text, ground) >= 4.5);
    CHECK(contrast(theme->tick_ahead, theme->desk) >= 2.3);
    for (const auto& [pending, done] :
         {std::pair(theme->pending_outline, theme->outline), {theme->pending_edge, theme->edge}}) {
      CHECK(contrast(pending, theme->canvas) >= 2.3);
      CHECK(contrast(done, pending) >= 1.6);
    }
  }
}

// "0 20 40 60 80 100"
std::string labels(const Axis& axis) {
  std::string text;
  for (std::size_t i = 0; i < axis.ticks(); ++i) text += (i == 0 ? "" : " ") + axis.label(i);
  return text;
}

TEST_CASE("an axis has round numbers, few of them, and holds all that is plotted") {
  CHECK(labels(axis_over(1, 100, 5)) == "0 20 40 60 80 100");
  CHECK(labels(axis_over(0.0074, 6.75, 6)) == "0 2 4 6 8");
  CHECK(labels(axis_over(-220, 1090, 4)) == "-500 0 500 1000 1500");
  CHECK(labels(axis_over(0, 0.3, 3)) == "0 0.1 0.2 0.3");
  CHECK(labels(axis_over(1e-9, 3e-9, 4)) == "1e-09 1.5e-09 2e-09 2.5e-09 3e-09");
  CHECK(labels(axis_over(1000000, 1000002, 2)) == "1000000 1000001 1000002");
  CHECK(labels(axis_over(3, 3, 4)) == "1 2 3 4 5");
  CHECK(labels(axis_over(0, 0, 4)) == "-1 -0.5 0 0.5 1");
  CHECK(labels(axis_over(INFINITY, -INFINITY, 4)) == "0 1");  // there are no numbers
  CHECK(axis_over(1, 3, 4).part(2) == 0.5);
  const std::vector<std::pair<double, double>> ranges = {
      {-1e308, 1e308}, {1e16, 1e16 + 2}, {-7, -6.999}, {5e-324, 1e-323}, {0.1, 0.7}, {-3, 1e6}};
  for (const auto& [low, high] : ranges)
    for (int most = 1; most <= 12; ++most) {
      CAPTURE(low, high, most);
      const Axis axis = axis_over(low, high, most);
      CHECK(axis.ticks() >= 2);
      CHECK(axis.ticks() <= static_cast<std::size_t>(most) + 2);
      CHECK(axis.part(std::clamp(low, -1e300, 1e300)) >= -1e-6);
      CHECK(axis.part(std::clamp(high, -1e300, 1e300)) <= 1 + 1e-6);
    }
}

TEST_CASE("a long curve is drawn with few points, and its peaks stay") {
  Curve curve;
  for (int i = 0; i < 100000; ++i) curve.points.push_back({double(i), std::sin(0.01 * i), 0});
  curve.points[50001].y = 9;
  curve.points[70001].y = -9;
  curve.points[90001].y = NAN;
  const Axes axes = axes_of(std::span(&curve, 1), 5, 5);
  CHECK(axes.up.high == 10);
  const std::vector<std::size_t> needed = needed_for_a_line(curve.points, axes, 300);
  CHECK(needed.size() <= 4 * 301);
  CHECK(std::is_sorted(needed.begin(), needed.end()));
  CHECK(needed.front() == 0);
  CHECK(needed.back() == 99999);
  for (const std::size_t peak : {50001U, 70001U})
    CHECK(std::binary_search(needed.begin(), needed.end(), peak));
  CHECK_FALSE(std::binary_search(needed.begin(), needed.end(), 90001U));

  curve.points.resize(3);
  CHECK(needed_for_a_line(curve.points, axes, 300000) == std::vector<std::size_t>{0, 1, 2});
  CHECK(needed_for_a_line({}, axes, 300).empty());
}

// ---- Cases from public bug reports: the drawing, without a window --------------------------------

namespace {

// Draws frames as the window does, into lists of triangles that nobody shows.
class Sheet {
 public:
  Sheet() {
    ImGui::CreateContext();
    ImGuiIO& io = ImGui::GetIO();
    io.IniFilename = nullptr;
    io.BackendFlags |= ImGuiBackendFlags_RendererHasVtxOffset;  // as that of OpenGL 3.3 sets it
    unsigned char* pixels = nullptr;
    int width = 0, height = 0;
    io.Fonts->GetTexDataAsRGBA32(&pixels, &width, &height);
  }
  ~Sheet() { ImGui::DestroyContext(); }
  Sheet(const Sheet&) = delete;
  Sheet& operator=(const Sheet&) = delete;

  template <class Draw>
  void frame(float width, float height, Draw draw) {
    ImGuiIO& io = ImGui::GetIO();
    io.DisplaySize = {width, height};
    io.DeltaTime = 1 / 60.0f;
    ImGui::NewFrame();
    ImGui::SetNextWindowPos({0, 0});
    ImGui::SetNextWindowSize(io.DisplaySize);
    ImGui::Begin("window", nullptr, ImGuiWindowFlags_NoDecoration);
    draw(Paint(fonts_, dark_theme, 1), Frame{0, 0, width, height});
    ImGui::End();
    ImGui::Render();
    check_indices();
  }
  int vertices() const { return ImGui::GetDrawData()->TotalVtxCount; }
  std::vector<ImVec2> corners() const {  // of all triangles
    std::vector<ImVec2> corners;
    const ImDrawData* data = ImGui::GetDrawData();
    for (int i = 0; i < data->CmdListsCount; ++i)
      for (const ImDrawVert& vertex : data->CmdLists[i]->VtxBuffer) corners.push_back(vertex.pos);
    return corners;
  }

 private:
  static void check_indices() {
    const ImDrawData* data = ImGui::GetDrawData();
    std::size_t beyond = 0, nowhere = 0;
    for (int i = 0; i < data->CmdListsCount; ++i) {
      const ImDrawList& list = *data->CmdLists[i];
      for (const ImDrawCmd& command : list.CmdBuffer)
        for (unsigned k = 0; k < command.ElemCount; ++k) {
          const int index = list.IdxBuffer[static_cast<int>(command.IdxOffset + k)];
          beyond += index + static_cast<int>(command.VtxOffset) >= list.VtxBuffer.Size;
        }
      for (const ImDrawVert& vertex : list.VtxBuffer)
        nowhere += !std::isfinite(vertex.pos.x) || !std::isfinite(vertex.pos.y);
    }
    CHECK(beyond == 0);
    CHECK(nowhere == 0);
  }
  Fonts fonts_;
};

Box box_at(std::uint64_t op, double x, double y) {
  Box box;
  box.item = {Item::Kind::op, op};
  box.rect = {x, y, 40, 20};
  return box;
}

// A scene beside the run of lesson 05.
struct Stand {
  explicit Stand(Scene what) { shown.scene = std::make_shared<Scene>(std::move(what)); }
  Timeline timeline = [] {
    Timeline run;
    run.extend(traces::chain_rule().share());
    return run;
  }();
  AppOptions options;
  MadeAt made_at;
  Shown shown{options, "", "", timeline, made_at, nullptr, ""};
  Desk desk;
};

}  // namespace

TEST_CASE("B184: a window without any room is survived, and afterwards all is as it was") {
  Scene scene;
  scene.boxes = {box_at(1, 0, 0), box_at(2, 300, 200)};
  scene.bounds = {0, 0, 340, 220};
  Stand stand(scene);
  Sheet sheet;
  Canvas canvas;
  const auto draw = [&](const Paint& paint, Frame frame) {
    canvas.draw(paint, frame, stand.shown, stand.desk);
  };
  sheet.frame(800, 600, draw);
  const ImVec2 before = canvas.place_of({300, 200});
  CHECK(before.x > 400);
  for (const auto& [width, height] : {std::pair(0, 0), {800, 0}, {0, 600}, {1, 1}}) {
    CAPTURE(width, height);
    sheet.frame(static_cast<float>(width), static_cast<float>(height), draw);
    const ImVec2 place = canvas.place_of({300, 200});
    CHECK(std::isfinite(place.x));
    CHECK(std::isfinite(place.y));
  }
  sheet.frame(800, 600, draw);
  CHECK(canvas.place_of({300, 200}).x == before.x);
  CHECK(canvas.place_of({300, 200}).y == before.y);
}

TEST_CASE("a graph is seen whole while its texts are legible, else larger and in part") {
  const auto zoom_of = [](double width, double height, bool presenting) {
    Scene scene;
    scene.boxes = {box_at(1, 0, 0), box_at(2, width - 40, height - 20)};
    scene.bounds = {0, 0, width, height};
    Stand stand(scene);
    stand.desk.presenting = presenting;
    Sheet sheet;
    Canvas canvas;
    sheet.frame(800, 600, [&](const Paint& paint, Frame frame) {
      canvas.draw(paint, frame, stand.shown, stand.desk);
    });
    CHECK(canvas.overview().empty() == (canvas.place_of({width, 0}).x <= 800));
    return (canvas.place_of({100, 0}).x - canvas.place_of({0, 0}).x) / 100;
  };
  CHECK(zoom_of(400, 200, false) == Approx(1.5));          // never larger
  CHECK(zoom_of(900, 400, false) == Approx(768.0 / 900));  // whole
  CHECK(zoom_of(1000, 300, false) == Approx(1));           // low: there is room for all of it
  CHECK(zoom_of(1000, 550, false) == Approx(0.85).margin(0.05));
  CHECK(zoom_of(3000, 2000, false) == Approx(0.85));        // in neither direction
  CHECK(zoom_of(1200, 300, true) == Approx(768.0 / 1200));  // presenting: whole a little longer
  CHECK(zoom_of(3000, 2000, true) == Approx(0.72));
}

TEST_CASE("B185: more than 65,535 corners in one picture are told apart") {
  Scene scene;
  for (int i = 0; i < 5000; ++i)
    scene.boxes.push_back(box_at(static_cast<std::uint64_t>(i), 60 * (i % 100), 40 * (i / 100)));
  for (int i = 0; i < 10000; ++i) {
    Stroke line;
    const double x = 60 * (i % 100) + 40, y = 40 * (i / 200) + 10;
    line.curve = {{x, y}, {x + 10, y}, {x + 10, y + 40}, {x + 20, y + 40}};
    scene.lines.push_back(line);
  }
  scene.bounds = {0, 0, 6000, 2000};
  Stand stand(scene);
  Sheet sheet;
  Canvas canvas;
  sheet.frame(1440, 880, [&](const Paint& paint, Frame frame) {
    canvas.draw(paint, frame, stand.shown, stand.desk);
  });
  CHECK(sheet.vertices() > 65535);
}

TEST_CASE(
    "B186: of three operations that are all called add, the one that is clicked is selected") {
  Scene scene;
  for (int i = 0; i < 3; ++i) {
    scene.boxes.push_back(box_at(static_cast<std::uint64_t>(i), 100 * i, 50 * i));
    scene.boxes.back().texts.push_back({"add", {100.0 * i + 20, 50.0 * i + 14}, 1});
  }
  scene.bounds = {0, 0, 240, 120};
  Stand stand(scene);
  Sheet sheet;
  Canvas canvas;
  const auto draw = [&](const Paint& paint, Frame frame) {
    canvas.draw(paint, frame, stand.shown, stand.desk);
  };
  for (int i = 0; i < 3; ++i) sheet.frame(800, 600, draw);
  for (const Box& box : scene.boxes) {
    ImGuiIO& io = ImGui::GetIO();
    io.MousePos = canvas.place_of({box.rect.x + 20, box.rect.y + 10});
    for (const bool down : {false, true, false, false}) {
      io.MouseDown[0] = down;
      sheet.frame(800, 600, draw);
    }
    CHECK(stand.desk.selected == box.item);
  }
}

TEST_CASE("five digits of a line's number are seen, and the file's name covers no code") {
  traces::Machine m;
  std::string text;
  for (int i = 0; i < 12000; ++i) text += "code\n";
  m.source(text);
  m.line = 11910;
  m.leaf("x", {1});
  Stand stand({});
  stand.timeline = Timeline();
  stand.timeline.extend(m.share());
  stand.desk.cursor = stand.timeline.latest();
  SourcePane source;
  Sheet sheet;
  constexpr float left = 300, top = 100;
  for (int i = 0; i < 3; ++i)
    sheet.frame(1000, 400, [&](const Paint& paint, Frame frame) {
      source.draw(paint, {left, top, frame.right, top + 22 + 26}, stand.shown, stand.desk);
    });
  CHECK(source.place().y == Approx(top + 22 + 13));  // below the strip of the name
  int of_digits = 0;
  for (const ImVec2 corner : sheet.corners()) {
    if (corner.y <= top + 22 || corner.y >= top + 22 + 26) continue;  // not of the row
    CHECK(corner.x >= left);
    of_digits += corner.x > left + 13 && corner.x < left + 14 + 5 * 8;
  }
  CHECK(of_digits >= 5 * 4);
}

TEST_CASE(
    "the list of this course stands without a scrollbar, in whole rows where it has to scroll") {
  Stand stand({});
  stand.options.lessons.resize(8);
  Sheet sheet;
  sheet.frame(1440, 880, [&](const Paint& paint, Frame frame) {
    const LessonList list;
    const float whole = list.height(paint, stand.shown);
    const float bars = 44 + 140 + 150;  // at the top, the source, the timeline of several episodes
    CHECK(list.height_in(frame.height() - bars, paint, stand.shown) == whole);
    CHECK(list.height_in(400, paint, stand.shown) == Approx(16 + 6 * 28));
  });
}

TEST_CASE("what answers a lesson's question is found in its source") {
  constexpr std::size_t none = std::string::npos;
  CHECK(answers_in({"ask(\"Why, \"", "    \"or (not)?\", f(2, 3),", "    {\"Hint: \\\" }\",",
                    "     \"2\"});", "auto x = f(1, 2);"}) ==
        std::vector<std::size_t>{none, 16, 4, 5, none});
  CHECK(answers_in({"  ask(\"How much?\", 0.5);", "  task(1, 2);", ""}) ==
        std::vector<std::size_t>{18, none, none});
}

TEST_CASE("the answer to a lesson's question is covered in its source until it is pointed at") {
  traces::Machine m;
  m.source("ask(\"?\", " + std::string(60, '1') + ");\n");
  m.line = 1;
  m.leaf("x", {1});
  Stand stand({});
  stand.timeline = Timeline();
  stand.timeline.extend(m.share());
  stand.desk.cursor = stand.timeline.latest();
  Sheet sheet;
  const auto corners = [&](ImVec2 mouse) {
    SourcePane source;
    for (int i = 0; i < 3; ++i) {
      ImGui::GetIO().MousePos = mouse;
      sheet.frame(1000, 200, [&](const Paint& paint, Frame frame) {
        source.draw(paint, frame, stand.shown, stand.desk);
      });
    }
    return sheet.vertices();
  };
  const ImVec2 elsewhere{500, 190}, there{500, 22 + 13};
  const int open = corners(elsewhere);  // in a program of one's own
  stand.desk.lesson = 0;
  CHECK(corners(elsewhere) < open - 4 * 30);
  CHECK(corners(there) == open);
}

TEST_CASE("how a run without tensors ended stands in the place of the graph, and nowhere else") {
  Stand stand({});
  Sheet sheet;
  const auto corners = [&](const std::string& status) {
    stand.shown.status = status;
    TimelineBar bar;
    sheet.frame(1000, 150, [&](const Paint& paint, Frame frame) {
      bar.draw(paint, frame, stand.shown, stand.desk);
    });
    return sheet.vertices();
  };
  CHECK(corners("finished") > corners(""));
  stand.timeline = Timeline();
  CHECK(corners("this program has made no tensor") == corners(""));
}

TEST_CASE("B189: NaN and infinities widen no axis, and are counted in words") {
  traces::Machine m;
  const double series[] = {0, 1, NAN, 4, INFINITY, 5, -INFINITY, NAN};
  for (std::size_t i = 0; i < 8; ++i) m.add(Plotted{"loss", static_cast<double>(i), series[i]});
  Stand stand({});
  stand.timeline = Timeline();
  stand.timeline.extend(m.share());
  stand.desk.cursor = stand.timeline.latest();
  const std::vector<Curve> curves = [&] {
    const auto found = stand.timeline.chart(stand.desk.cursor);
    return std::vector<Curve>(found.begin(), found.end());
  }();
  REQUIRE(curves.size() == 1);
  const Axes axes = axes_of(curves, 5, 5);
  CHECK(axes.up.low == 0);
  CHECK(axes.up.high == 5);
  CHECK(reading(curves[0], 8) == "nan at 7, 4 not finite");
  CHECK(reading(curves[0], 4) == "4 at 3, 1 not finite");
  CHECK(reading(curves[0], 2) == "1 at 1");
  CHECK(reading(curves[0], 0) == "not yet");

  Sheet sheet;
  sheet.frame(400, 300, [&](const Paint& paint, Frame frame) {
    draw_plots(paint, frame, stand.shown, stand.desk);
  });
  CHECK(sheet.vertices() < 20000);
}
