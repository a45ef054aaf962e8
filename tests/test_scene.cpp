// What is drawn: which boxes and lines, where they stand, and what they look like at a step.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>

#include "lessons/words.hpp"
#include "tests/catch.hpp"
#include "tests/traces.hpp"
#include "viewer/scene.hpp"

namespace {

using namespace viewer;
using traces::Machine;

Timeline timeline_of(const Machine& machine) {
  Timeline timeline;
  timeline.extend(machine.share());
  return timeline;
}

struct Drawn {
  Timeline timeline;
  Diagram diagram;
  Placement placement;
  explicit Drawn(const Machine& machine, int episode = 1, const Toggled& toggled = {})
      : timeline(timeline_of(machine)),
        diagram(make_diagram(timeline, episode, toggled)),
        placement(place(diagram.structure)) {}
  Scene at(std::int64_t step, const View& view = {}) const {
    return make_scene(timeline, timeline.at(diagram.episode, step), diagram, placement, view);
  }
};

const Box& box_called(const Scene& scene, const std::string& name) {
  for (const Box& box : scene.boxes)
    if (!box.texts.empty() && box.texts[0].text == name) return box;
  FAIL("no box is called " << name);
  return scene.boxes[0];
}

std::vector<std::string> texts(const Box& box) {
  std::vector<std::string> all;
  for (const Text& text : box.texts) all.push_back(text.text);
  return all;
}

const Stroke& line_between(const Scene& scene, const std::string& from, const std::string& to) {
  const Item a = box_called(scene, from).item, b = box_called(scene, to).item;
  for (const Stroke& line : scene.lines)
    if (line.from == a && line.to == b) return line;
  FAIL("no line from " << from << " to " << to);
  return scene.lines[0];
}

bool overlap(const Rect& a, const Rect& b) {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

// ---- Lesson 05 -----------------------------------------------------------------------------------

TEST_CASE("step 13 of lesson 05 looks like the picture of the design") {
  const Drawn drawn(traces::chain_rule());
  const Scene scene = drawn.at(13);
  REQUIRE(scene.boxes.size() == 12);  // seven tensors, five ops
  REQUIRE(scene.lines.size() == 13);

  const Box& x = box_called(scene, "x");
  CHECK(texts(x) == std::vector<std::string>{"x", "[] leaf", "2.0", "3.0 so far"});
  CHECK(x.outline == Role::active);
  CHECK(x.texts[0].font == Font::bold);
  CHECK(x.texts[2].role == Role::value);
  CHECK(x.texts[3].role == Role::gradient);
  const Box& y = box_called(scene, "y");
  CHECK(y.texts[3].text == "not yet");
  CHECK(y.texts[3].role == Role::faint);
  CHECK(y.outline == Role::factor);
  CHECK(box_called(scene, "a").texts[0].font == Font::italic);
  CHECK(box_called(scene, "×").outline == Role::active);
  CHECK(box_called(scene, "×").round);
  CHECK(box_called(scene, "x²").outline == Role::outline);

  const Stroke& active = line_between(scene, "x", "×");
  CHECK(active.role == Role::active_edge);
  CHECK(active.reversed);
  REQUIRE(active.label.has_value());
  CHECK(active.label->text == "1 × 3");
  CHECK(line_between(scene, "y", "×").role == Role::edge);
  CHECK(line_between(scene, "x", "x²").role == Role::edge);
  CHECK(line_between(scene, "×", "c").role == Role::backward_edge);
  CHECK(line_between(scene, "x²", "a").role == Role::backward_edge);
}

TEST_CASE("what has not happened yet is pale and says nothing") {
  const Drawn drawn(traces::chain_rule());
  const Scene scene = drawn.at(4);
  CHECK(texts(box_called(scene, "z")) == std::vector<std::string>{"z", "[]"});
  CHECK(box_called(scene, "z").progress == Progress::pending);
  CHECK(box_called(scene, "z").fill == Role::pending_fill);
  CHECK(box_called(scene, "b").progress == Progress::active);
  CHECK(box_called(scene, "a").progress == Progress::done);
  CHECK(line_between(scene, "y", "y³").role == Role::forward_edge);
  CHECK(line_between(scene, "x", "x²").role == Role::edge);
  CHECK(line_between(scene, "x", "×").role == Role::pending_edge);
  for (const Box& box : drawn.at(0).boxes) CHECK(box.progress == Progress::pending);
}

TEST_CASE("nothing moves while one steps") {
  const Drawn drawn(traces::chain_rule());
  const Scene first = drawn.at(0);
  for (std::int64_t n = 1; n <= 18; ++n) {
    const Scene scene = drawn.at(n);
    REQUIRE(scene.boxes.size() == first.boxes.size());
    for (std::size_t i = 0; i < scene.boxes.size(); ++i) {
      REQUIRE(scene.boxes[i].item == first.boxes[i].item);
      REQUIRE(scene.boxes[i].rect == first.boxes[i].rect);
    }
  }
}

TEST_CASE("the numbers beside a line cover no box") {
  if (!have_graphviz()) return;  // plain columns may stand too close for that
  Machine product;               // lesson 04
  const Id x = product.leaf("x", {2}), y = product.leaf("y", {1}), w = product.leaf("w", {4});
  product.backward(product.mul(product.add_(x, y), w));
  Machine chain;  // its lines are shorter than its numbers
  chain.backward(chain.pow(chain.pow(chain.leaf("x", {1.25F}), 2), 3));
  std::size_t labels = 0;
  for (const Machine& machine : {traces::chain_rule(), product, chain}) {
    const Drawn drawn(machine);
    for (std::int64_t n = 1; n <= drawn.timeline.episode(1).steps; ++n) {
      const Scene scene = drawn.at(n);
      for (const Stroke& line : scene.lines) {
        if (!line.label) continue;
        ++labels;
        CAPTURE(n, line.label->text);
        const double size = line.label->size;
        const double width = 0.55 * size * static_cast<double>(words::length(line.label->text));
        const Rect rect{line.label->at.x - width / 2, line.label->at.y - 0.8 * size, width, size};
        for (const Box& box : scene.boxes) CHECK_FALSE(overlap(rect, box.rect));
      }
    }
  }
  CHECK(labels >= 10);
}

TEST_CASE("covered gradients are asked about, but for those uncovered") {
  const Drawn drawn(traces::chain_rule());
  View view;
  view.cover_gradients = true;
  view.uncovered = {box_called(drawn.at(18), "y").item.id};
  CHECK(texts(box_called(drawn.at(18, view), "x")).back() == "?");
  CHECK(texts(box_called(drawn.at(18, view), "y")).back() == "29.0");
  CHECK(texts(box_called(drawn.at(1, view), "x")).back() == "not yet");
  CHECK(line_between(drawn.at(13, view), "x", "×").label->text == "?");
}

TEST_CASE("a point hits the topmost box") {
  const Drawn drawn(traces::chain_rule());
  const Scene scene = drawn.at(18);
  const Box& x = box_called(scene, "x");
  REQUIRE(scene.hit(x.rect.center()) != nullptr);
  CHECK(scene.hit(x.rect.center())->item == x.item);
  CHECK(scene.hit({-100, -100}) == nullptr);
  CHECK(scene.find(x.item) == &x);
  CHECK(scene.find({Item::Kind::scope, 999}) == nullptr);
}

// ---- Structures and places -----------------------------------------------------------------------------

TEST_CASE("a structure knows neither values nor numbers of things") {
  const auto program = [](Machine& m, float value) {
    const Id x = m.leaf("x", {value});
    m.backward(m.mul(m.pow(x, 2), x));
  };
  Machine one, other;
  program(one, 2);
  for (int i = 0; i < 5; ++i) other.leaf("", {1});  // gives all numbers a shift
  Machine shifted;
  program(other, -1.23456e-20F);
  program(shifted, 7);
  CHECK(Drawn(one).diagram.structure == Drawn(shifted).diagram.structure);
  CHECK(Drawn(one).diagram.structure.key() == Drawn(shifted).diagram.structure.key());
  CHECK(Drawn(one).diagram.structure.key() != Drawn(other).diagram.structure.key());
}

TEST_CASE("boxes never overlap, with Graphviz and without it") {
  Machine m = traces::chain_rule();
  const Drawn drawn(m);
  for (const Placement& placement : {drawn.placement, place_in_columns(drawn.diagram.structure)}) {
    const Scene scene = make_scene(drawn.timeline, drawn.timeline.end(1), drawn.diagram, placement);
    for (std::size_t i = 0; i < scene.boxes.size(); ++i) {
      const Rect& r = scene.boxes[i].rect;
      CHECK(r.x >= 0);
      CHECK(r.y >= 0);
      CHECK(r.x + r.width <= placement.width);
      CHECK(r.y + r.height <= placement.height);
      for (std::size_t k = 0; k < i; ++k) CHECK_FALSE(overlap(r, scene.boxes[k].rect));
    }
    for (const Stroke& line : scene.lines) {
      CHECK(line.curve.size() % 3 == 1);
      CHECK(line.arrow.size() == 3);
    }
  }
}

TEST_CASE("the first tensor stands on top and inputs stand to the left of results") {
  const Scene scene = Drawn(traces::chain_rule()).at(18);
  CHECK(box_called(scene, "x").rect.y < box_called(scene, "y").rect.y);
  CHECK(box_called(scene, "x").rect.x < box_called(scene, "c").rect.x);
  CHECK(box_called(scene, "c").rect.x < box_called(scene, "z").rect.x);
}

TEST_CASE("columns bear cycles, which a write in place makes") {
  Structure structure;
  structure.nodes.resize(3, {10, 10, false, -1});
  structure.edges = {{0, 1, false}, {1, 2, true}, {2, 1, false}};
  const Placement placement = place_in_columns(structure);
  CHECK(placement.centers.size() == 3);
  CHECK(place(structure).centers.size() == 3);
  CHECK(place({}).centers.empty());
  CHECK(place_in_columns({}).centers.empty());
}

TEST_CASE("names of any length and any characters have room") {
  Machine m;
  m.leaf(std::string(300, 'W'), {1});
  m.leaf("a\nb\"<>{}|\\ \xff é", {1});
  const Drawn drawn(m);
  CHECK(drawn.diagram.nodes[0].title == std::string(23, 'W') + "…");
  CHECK(drawn.diagram.structure.nodes[0].width > drawn.diagram.structure.nodes[1].width);
}

// ---- Boxes of scopes and lines ---------------------------------------------------------------------------

struct Boxed {
  Machine m;
  Id scope = 0, module = 0;
  Boxed() {
    const Id x = m.leaf("x", {2});
    module = m.open("Linear", false);
    scope = m.open("softmax", true);
    const Id y = m.add_(m.pow(x, 2), x);
    m.close();
    const Id z = m.mul(y, y);
    m.close();
    m.backward(m.mul(z, z));
  }
};

TEST_CASE("a closed scope is one box, and open it is a frame around what is inside") {
  const Boxed boxed;
  const Drawn closed(boxed.m);
  const Scene scene = closed.at(2);
  CHECK(texts(box_called(scene, "softmax")) == std::vector<std::string>{"softmax", "2 ops"});
  CHECK(box_called(scene, "softmax").progress == Progress::active);
  CHECK(closed.diagram.clusters == std::vector<Id>{boxed.module});
  CHECK(closed.diagram.nodes.size() == 7);  // x, softmax, y, mul, z, mul, result, and none inside

  const Drawn open(boxed.m, 1, {boxed.scope});
  CHECK(open.diagram.clusters == std::vector<Id>{boxed.module, boxed.scope});
  CHECK(open.diagram.structure.clusters[1].parent == 0);
  const Scene inside = open.at(2);
  REQUIRE(inside.scopes.size() == 2);
  const Rect outer = inside.scopes[0].rect, inner = inside.scopes[1].rect;
  CHECK(outer.contains({inner.x, inner.y}));
  CHECK(inner.contains(box_called(inside, "x²").rect.center()));
  CHECK_FALSE(inner.contains(box_called(inside, "x").rect.center()));
  CHECK(inside.scopes[1].texts[0].text == "softmax");
  CHECK(inside.hit({inner.x + 1, inner.y + 1})->item == inside.scopes[1].item);
}

TEST_CASE("lines into a closed box are one, however many ops inside use the tensor") {
  const Boxed boxed;
  const Drawn drawn(boxed.m);
  const Scene scene = drawn.at(99);
  std::size_t lines = 0;
  for (const Stroke& line : scene.lines)
    lines +=
        line.from == box_called(scene, "x").item && line.to == box_called(scene, "softmax").item;
  CHECK(lines == 1);
  CHECK(line_between(scene, "x", "softmax").role == Role::backward_edge);
}

TEST_CASE("beyond a thousand boxes the ops of one source line share one") {
  Machine m;
  m.source("auto h = x;\nh = h * w + x;\nloss = h.sum();\n");
  m.line = 1;
  const Id x = m.leaf("x", {1}), w = m.leaf("w", {0.5F});
  Id h = x;
  m.line = 2;
  for (int i = 0; i < 500; ++i) h = m.add_(m.mul(h, w), x);
  m.line = 3;
  const Id loss = m.sum(h);
  m.backward(loss);
  const Drawn drawn(m);
  CHECK(drawn.diagram.nodes.size() == 6);  // x, w, the line, h, sum, loss
  const Scene scene = drawn.at(500);
  CHECK(texts(box_called(scene, "program.cpp 2")) ==
        std::vector<std::string>{"program.cpp 2", "500 times"});
  CHECK(box_called(scene, "program.cpp 2").progress == Progress::active);
}

TEST_CASE("an op that is not recorded is dashed, and its result waits for no gradient") {
  Machine m;
  const Id x = m.leaf("x", {1}, false);
  m.pow(x, 2);
  const Scene scene = Drawn(m).at(2);
  CHECK(box_called(scene, "x²").dashed);
  CHECK(line_between(scene, "x", "x²").dashed);
  CHECK(texts(box_called(scene, "x")) == std::vector<std::string>{"x", "[]", "1.0"});
}

TEST_CASE("an op that failed is drawn in the colour of failure") {
  Machine m;
  const Id x = m.leaf("x", {1});
  m.add(Failed{"matmul", {x}, "inner sizes differ"});
  const Scene scene = Drawn(m).at(2);
  CHECK(box_called(scene, "matmul").outline == Role::failed);
  CHECK(line_between(scene, "x", "matmul").arrow.size() == 3);
}

TEST_CASE("what fails in a pass is shown at the op whose rule failed, also in a closed box") {
  Machine m;
  const Id x = m.leaf("x", {2});
  const Id h = m.pow(x, 2);
  const Id box = m.open("softmax", true);
  const Id y = m.pow(h, 3);
  m.close();
  m.add(PassBegins{1, {m.seen(y)}, {}, false, false, {}});
  m.add(Failed{"pow", {}, "the value was overwritten", m.node(h)});
  m.add(Failed{"pow", {}, "the value was overwritten", m.node(y)});
  const Drawn drawn(m);
  CHECK(drawn.diagram.nodes.size() == 5);  // x, its pow, h, the box, y; nothing for the failures
  const Scene before = drawn.at(4), at_h = drawn.at(5), at_y = drawn.at(6);
  CHECK(box_called(before, "x²").outline == Role::outline);
  CHECK(box_called(at_h, "x²").outline == Role::failed);
  CHECK(box_called(at_h, "x²").progress == Progress::active);
  CHECK(at_y.find({Item::Kind::scope, box})->outline == Role::failed);
}

TEST_CASE("a pass that fails in an episode before this one is drawn by itself") {
  Machine m;
  const Id x = m.leaf("x", {2});
  const Id y = m.pow(x, 2);
  m.backward(y);
  m.pow(x, 3);
  m.add(Failed{"backward", {}, "used up", m.node(y)});
  const Timeline timeline = timeline_of(m);
  REQUIRE(timeline.episodes().size() == 2);
  CHECK(timeline.graph(2).failed.size() == 1);
}

TEST_CASE("a sum so far stands in its box in whole, with the words where there is room") {
  Machine m;
  const Id narrow = m.leaf("x", {1, -2, 3, -4, 5, -6, 7});
  const Id wide = m.leaf("a_name_of_some_length", {1, -2, 3, -4, 5, -6, 7});
  const Id y = m.sum(m.add_(m.mul(narrow, wide), m.mul(wide, narrow)));
  m.backward(y);
  std::set<std::string> seen;
  const Drawn drawn(m);
  for (std::int64_t step = 0; step < 30; ++step)
    for (const Id leaf : {narrow, wide}) {
      const Scene scene = drawn.at(step);
      for (const Text& text : scene.find({Item::Kind::tensor, leaf})->texts)
        if (text.role == Role::gradient) seen.insert(text.text);
    }
  CHECK(seen == std::set<std::string>{"-6 … 7 so far", "-12 … 14 so far", "-12 … 14"});
}

// ---- Values in boxes ------------------------------------------------------------------------------------------

Value value_of(const std::vector<float>& values) {
  Value value;
  value.kept = Value::Kept::in_full;
  if (values.size() != 1) value.shape = {static_cast<std::int64_t>(values.size())};
  value.bytes.resize(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(value.bytes.data(), values.data(), value.bytes.size());
  return value;
}

TEST_CASE("a value fits its box whatever it is") {
  CHECK(in_a_box(value_of({2})) == "2.0");
  CHECK(in_a_box(value_of({1, 2})) == "[1.0, 2.0]");
  CHECK(in_a_box(value_of({})) == "empty");
  CHECK(in_a_box(value_of({-0.3F, 1, 2, 1.5F, 0, 2.1F, 1})) == "-0.3 … 2.1");
  CHECK(in_a_box(value_of({5, 5, 5, 5, 5})) == "all 5");
  Value whole = value_of({});  // of int64
  whole.dtype = DType::int64;
  whole.shape = {7};
  const std::vector<std::int64_t> numbers{1, 2, 3, 40, 50, -600000, 0};
  whole.bytes.resize(numbers.size() * sizeof numbers[0]);
  std::memcpy(whole.bytes.data(), numbers.data(), whole.bytes.size());
  CHECK(in_a_box(whole) == "-600000 … 50");
  CHECK(in_a_box(value_of({5, std::nanf(""), 5, std::nanf(""), 5})) == "2 nan");
  CHECK(in_a_box(value_of({5, 0, 5, HUGE_VALF, 5})) == "1 inf");
  Value nothing;
  nothing.note = "changed, not kept";
  CHECK(in_a_box(nothing) == "changed, not …");
  Value large;
  large.kept = Value::Kept::statistics;
  large.shape = {1000, 1000};
  large.statistics.min = -1;
  large.statistics.max = 12.5;
  CHECK(in_a_box(large) == "-1 … 12.5");
  for (float a : {1.0F, -123456.0F, 1.17549e-38F, -3.40282e38F})
    for (int room : {7, 14})
      CHECK(words::length(in_a_box(value_of({a, -a, 0, 1, 2, 3, 4}), room)) <=
            static_cast<std::size_t>(room));
}

// ---- The stage ---------------------------------------------------------------------------------------------------

// Looks until the scene stands still, with a clock of its own; answers the time.
std::shared_ptr<const Scene> settled(Stage& stage, const Timeline& timeline, Cursor cursor,
                                     double& now, const View& view = {}) {
  for (int i = 0; i < 2000; ++i) {
    std::shared_ptr<const Scene> scene = stage.look(timeline, cursor, view, now);
    if (scene->settled) return scene;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    now += 0.02;
  }
  FAIL("the scene never settles");
  return nullptr;
}

TEST_CASE("the stage never waits, settles, and then gives the same scene for the same question") {
  const Timeline timeline = timeline_of(traces::chain_rule());
  Stage stage;
  double now = 0;
  const auto scene = settled(stage, timeline, timeline.at(1, 13), now);
  CHECK(scene->boxes.size() == 12);
  CHECK(stage.look(timeline, timeline.at(1, 13), {}, now + 1) == scene);
  const auto next = stage.look(timeline, timeline.at(1, 14), {}, now + 1);
  CHECK(next != scene);
  CHECK(next->settled);
  CHECK(next->boxes[0].rect == scene->boxes[0].rect);
}

TEST_CASE("an empty run is an empty scene that stands still") {
  const Timeline timeline;
  Stage stage;
  double now = 0;
  CHECK(settled(stage, timeline, timeline.start(1), now)->boxes.empty());
}

TEST_CASE("a growing episode is laid out anew at most twice a second, and eases into place") {
  Machine m;
  Id h = m.leaf("x", {1});
  h = m.mul(h, h);
  Timeline timeline;
  timeline.extend(m.share());
  Stage stage;
  double now = 10;
  CHECK(settled(stage, timeline, timeline.latest(), now)->boxes.size() == 3);
  const double before = now;
  for (int i = 0; i < 3; ++i) h = m.add_(h, m.leaf("", {1}));
  timeline.extend(m.share());
  const auto early = stage.look(timeline, timeline.latest(), {}, before + 0.01);
  CHECK(early->boxes.size() == 3);
  CHECK_FALSE(early->settled);
  now = before + 1;
  const auto late = settled(stage, timeline, timeline.latest(), now);
  CHECK(late->boxes.size() == 12);
  CHECK(late->boxes.size() > early->boxes.size());
}

TEST_CASE("opening a box moves what was there before, it does not jump") {
  const Boxed boxed;
  const Timeline timeline = timeline_of(boxed.m);
  Stage stage;
  double now = 0;
  const Cursor end = timeline.end(1);
  const auto closed = settled(stage, timeline, end, now);
  View view;
  view.toggled = {boxed.scope};
  std::vector<double> places;
  for (int i = 0; i < 2000; ++i) {
    const auto scene = stage.look(timeline, end, view, now);
    places.push_back(scene->boxes.back().rect.x);
    if (scene->settled) break;
    now += 0.02;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const double from = closed->boxes.back().rect.x, to = places.back();
  REQUIRE(to > from + 50);
  CHECK(std::any_of(places.begin(), places.end(),
                    [&](double x) { return x > from + 5 && x < to - 5; }));
}

}  // namespace
