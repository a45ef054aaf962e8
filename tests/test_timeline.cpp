// What is known at a cursor. Numbers of lesson 05 are worked out by hand; everything else is
// compared with a naive walk over the events from the beginning.
#include <algorithm>
#include <cstring>
#include <set>

#include "tests/catch.hpp"
#include "tests/traces.hpp"
#include "viewer/keeper.hpp"
#include "viewer/timeline.hpp"
#include "viewer/variables.hpp"

namespace {

using namespace viewer;
using traces::Machine;

Timeline timeline_of(const Machine& machine) {
  Timeline timeline;
  timeline.extend(machine.share());
  return timeline;
}

Id find(const Timeline& timeline, const std::string& name) {
  for (Id tensor : timeline.graph(1).tensors)
    if (timeline.name(tensor) == name) return tensor;
  FAIL("no tensor is called " << name);
  return 0;
}

// "x <- 1 × 3 = 3, sum 3": the step in the words of the design.
std::string in_short(const Timeline& timeline, Cursor cursor) {
  const Event& event = *timeline.trace().events[timeline.step(cursor)->event];
  const auto show = [&](Id tensor) {
    return timeline.name(tensor) + " = " + timeline.value(cursor, tensor).text(0);
  };
  if (auto* made = std::get_if<Made>(&event.what)) return show(made->tensor.tensor);
  if (auto* op = std::get_if<Op>(&event.what)) return show(op->outputs[0].tensor);
  if (auto* begins = std::get_if<PassBegins>(&event.what)) {
    const Id root = begins->roots[0].tensor;
    return timeline.name(root) + " <- " + timeline.gradient(cursor, root).value.text(0);
  }
  if (auto* landed = std::get_if<Landed>(&event.what))
    return timeline.name(landed->tensor) +
           ".grad = " + timeline.gradient(cursor, landed->tensor).value.text(0);
  if (auto* arrived = std::get_if<Arrived>(&event.what)) {
    const std::size_t op = timeline.op_of_node(arrived->node).value();
    return timeline.name(arrived->to) + " <- " + timeline.edge_numbers(cursor, op, arrived->slot) +
           " = " + timeline.value(arrived->given).text(0) + ", sum " +
           timeline.gradient(cursor, arrived->to).value.text(0);
  }
  return "something else";
}

// ---- Lesson 05 -----------------------------------------------------------------------------------

TEST_CASE("lesson 05 has exactly the 18 steps of the design") {
  const Timeline timeline = timeline_of(traces::chain_rule());
  const std::vector<std::string> expected = {
      "x = 2.0",
      "y = 3.0",
      "a = 4.0",
      "b = 27.0",
      "c = 6.0",
      "s = 31.0",
      "z = 37.0",
      "z <- 1.0",
      "s <- 1 = 1.0, sum 1.0",
      "c <- 1 = 1.0, sum 1.0",
      "a <- 1 = 1.0, sum 1.0",
      "b <- 1 = 1.0, sum 1.0",
      "x <- 1 × 3 = 3.0, sum 3.0",
      "y <- 1 × 2 = 2.0, sum 2.0",
      "y <- 1 · 3 · 3² = 27.0, sum 29.0",
      "x <- 1 × 2 × 2 = 4.0, sum 7.0",
      "y.grad = 29.0",
      "x.grad = 7.0",
  };
  REQUIRE(timeline.episodes().size() == 1);
  REQUIRE(timeline.episode(1).steps == 18);
  for (std::int64_t n = 1; n <= 18; ++n) {
    CAPTURE(n);
    CHECK(in_short(timeline, timeline.at(1, n)) == expected[static_cast<std::size_t>(n - 1)]);
    CHECK(timeline.label(timeline.at(1, n)) == std::to_string(n));
    CHECK(timeline.phase(timeline.at(1, n)) == (n <= 7 ? Phase::forward : Phase::backward));
  }
}

TEST_CASE("step 13 of lesson 05 is the picture of the design") {
  const Timeline timeline = timeline_of(traces::chain_rule());
  const Cursor cursor = timeline.at(1, 13);
  const Id x = find(timeline, "x"), y = find(timeline, "y");
  CHECK(timeline.gradient(cursor, x).state == Gradient::State::so_far);
  CHECK(timeline.gradient(cursor, y).state == Gradient::State::not_yet);
  CHECK(timeline.gradient(cursor, find(timeline, "a")).state == Gradient::State::complete);
  CHECK(timeline.prose(cursor) ==
        "x receives dy · b = 1 × 3 = 3 from mul, its first contribution.");
  CHECK(timeline.line(cursor).number == 5);
  CHECK(timeline.factors(cursor) == std::vector<Id>{y});

  const std::vector<Contribution> rows = timeline.ledger(cursor, x);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].from == "c = x · y");
  CHECK(rows[0].formula == "dy · b");
  CHECK(rows[0].numbers == "1 × 3");
  CHECK(rows[0].arrived);
  CHECK(rows[0].active);
  CHECK(rows[0].sum.text(0) == "3.0");
  CHECK(rows[1].from == "a = x²");
  CHECK(rows[1].formula == "dy · n · aⁿ⁻¹");
  CHECK_FALSE(rows[1].arrived);

  const std::size_t square = timeline.maker(find(timeline, "a")).value();
  const std::size_t product = timeline.maker(find(timeline, "c")).value();
  CHECK(timeline.circle(square) == "x²");
  CHECK(timeline.circle(product) == "×");
  CHECK(timeline.backward(cursor, product) == Progress::active);
  CHECK(timeline.backward(cursor, square) == Progress::pending);
  CHECK(timeline.edge_backward(cursor, product, 0) == Progress::active);
  CHECK(timeline.edge_backward(cursor, product, 1) == Progress::pending);
}

TEST_CASE("each step is told in a sentence") {
  const Timeline timeline = timeline_of(traces::chain_rule());
  const auto prose = [&](std::int64_t n) { return timeline.prose(timeline.at(1, n)); };
  CHECK(prose(0) == "");
  CHECK(prose(1) == "x = 2, a leaf that wants a gradient.");
  CHECK(prose(3) == "a = x² = 2² = 4.");
  CHECK(prose(5) == "c = x · y = 2 × 3 = 6.");
  CHECK(prose(8) == "The pass begins at z: the gradient of z with respect to itself is 1.");
  CHECK(prose(9) == "s receives dy = 1 from add.");
  CHECK(prose(16) ==
        "x receives dy · n · aⁿ⁻¹ = 1 × 2 × 2 = 4 from pow, its second contribution: 3 + 4 = 7.");
  CHECK(prose(17) == "All contributions to y are in: y.grad = 29.");
  CHECK(prose(18) ==
        "All contributions to x are in: x.grad = 7. The pass is over, and the graph lets go of "
        "what it has saved.");

  Machine m;
  m.add(Failed{"matmul", {}, "matmul: inner sizes differ."});
  m.add(Failed{"pow", {}, "it cannot be told why."});
  const Timeline failed = timeline_of(m);
  CHECK(failed.prose(failed.at(1, 1)) == "matmul: inner sizes differ.");
  CHECK(failed.prose(failed.at(1, 2)) == "pow failed: it cannot be told why.");
}

TEST_CASE("at the start nothing exists and nothing is told") {
  const Timeline timeline = timeline_of(traces::chain_rule());
  const Cursor start = timeline.start(1);
  CHECK(timeline.step(start) == nullptr);
  CHECK(timeline.label(start) == "0");
  CHECK(timeline.printed(start).empty());
  for (Id tensor : timeline.graph(1).tensors) {
    CHECK_FALSE(timeline.exists(start, tensor));
    CHECK(timeline.value(start, tensor).kept == Value::Kept::nothing);
    CHECK(timeline.gradient(start, tensor).state == Gradient::State::not_yet);
  }
}

TEST_CASE("words and prints belong to the step before them") {
  const Timeline timeline = timeline_of(traces::chain_rule());
  CHECK(timeline.said(timeline.start(1)) == std::vector<std::string>{"How fast does z grow?"});
  CHECK(timeline.printed(timeline.at(1, 6)).empty());
  CHECK(timeline.printed(timeline.at(1, 7)) == "z = 37\n");
  CHECK(timeline.said(timeline.at(1, 17)).size() == 1);
  CHECK(timeline.said(timeline.at(1, 18)).back() == "7 and 29, as on paper.");
  REQUIRE(timeline.ended() != nullptr);
  CHECK(timeline.ended()->how == Ended::How::finished);
}

// ---- Plots, pictures, pauses ---------------------------------------------------------------------

// "loss 2 of 3, valid 1 of 3": what a reader sees of the chart.
std::string chart_in_short(const Timeline& timeline, Cursor cursor) {
  std::string text;
  for (const Curve& curve : timeline.chart(cursor))
    text += (text.empty() ? "" : ", ") + curve.name + " " +
            std::to_string(timeline.plotted(cursor, curve)) + " of " +
            std::to_string(curve.points.size());
  return text;
}

TEST_CASE("a chart grows with the steps, and a word between plots begins another") {
  Machine m;
  m.leaf("a", {1});
  m.add(Plotted{"loss", 0, 3});
  m.add(Plotted{"valid", 0, 4});
  m.leaf("b", {1});
  m.add(Plotted{"loss", 1, 2});
  m.add(Said{"And now?"});
  m.leaf("c", {1});
  m.add(Plotted{"loss", 0, 9});
  const Timeline timeline = timeline_of(m);
  const std::vector<std::string> expected = {"", "loss 1 of 2, valid 1 of 1",
                                             "loss 2 of 2, valid 1 of 1", "loss 1 of 1"};
  for (std::int64_t n = 0; n <= 3; ++n) {
    CAPTURE(n);
    CHECK(chart_in_short(timeline, timeline.at(1, n)) == expected[static_cast<std::size_t>(n)]);
  }
  const Curve loss = timeline.chart(timeline.at(1, 2))[0];
  CHECK(loss.points[1].x == 1);
  CHECK(loss.points[1].y == 2);
  CHECK(timeline.after(loss.points[0].event) == timeline.at(1, 1));
  CHECK(timeline.after(loss.points[1].event) == timeline.at(1, 2));
}

TEST_CASE("a curve is a line as long as it goes to the right, one y for each x") {
  Machine m;
  m.leaf("a", {1});
  for (double x : {0., 1., 1., 2.}) m.add(Plotted{"line", x, 2 * x});
  for (double x : {0., 2., 1.}) m.add(Plotted{"cloud", x, x});
  for (double y : {0., 1.}) m.add(Plotted{"upright", 3, y});
  const Timeline timeline = timeline_of(m);
  const auto curves = timeline.chart(timeline.at(1, 1));
  REQUIRE(curves.size() == 3);
  CHECK(curves[0].to_the_right);
  CHECK_FALSE(curves[1].to_the_right);
  CHECK_FALSE(curves[2].to_the_right);
}

// "digits field": the titles of the pictures that a reader sees.
std::string pictures_in_short(const Timeline& timeline, Cursor cursor) {
  std::string text;
  for (const Pictured* picture : timeline.pictures(cursor))
    text += picture->title + std::to_string(static_cast<int>(picture->numbers.at(0))) + " ";
  return text;
}

TEST_CASE("a later picture takes the place of the one with its title, and a word that of all") {
  Machine m;
  const auto show = [&](const std::string& title, float number) {
    m.add(Pictured{title, 1, 1, {number}});
  };
  m.leaf("a", {1});
  show("seven", 1);
  show("seven", 2);  // two of one step stand side by side
  show("field", 3);
  m.leaf("b", {1});
  show("field", 4);
  m.add(Said{"Something else."});
  m.leaf("c", {1});
  show("error", 5);
  const Timeline timeline = timeline_of(m);
  CHECK(pictures_in_short(timeline, timeline.at(1, 0)) == "");
  CHECK(pictures_in_short(timeline, timeline.at(1, 1)) == "seven1 seven2 field3 ");
  CHECK(pictures_in_short(timeline, timeline.at(1, 2)) == "seven1 seven2 field4 ");
  CHECK(pictures_in_short(timeline, timeline.at(1, 3)) == "error5 ");
}

TEST_CASE("a pause belongs to the step before it, and is met once") {
  Machine m;
  m.add(Paused{});  // before any step: there is nothing to play yet
  m.leaf("a", {1});
  m.leaf("b", {1});
  m.add(Paused{});
  m.leaf("c", {1});
  m.open("box", true);  // two steps, the first of them hidden
  const Id d = m.leaf("d", {1});
  m.add(Paused{});
  m.add_(d, d);
  m.close();
  const Timeline timeline = timeline_of(m);
  std::vector<std::string> met;
  for (Cursor cursor = timeline.start(1); cursor != timeline.end(1);) {
    const Cursor next = timeline.next(cursor);
    if (timeline.pauses(cursor, next)) met.push_back(timeline.label(next));
    CHECK_FALSE(timeline.pauses(next, cursor));
    cursor = next;
  }
  CHECK(met == std::vector<std::string>{"2", "4"});
  CHECK_FALSE(timeline.pauses(timeline.end(1), timeline.end(1)));
}

TEST_CASE("a cursor that does not exist becomes the nearest one") {
  const Timeline timeline = timeline_of(traces::chain_rule());
  CHECK(timeline.at(1, 99) == timeline.end(1));
  CHECK(timeline.at(1, -5) == timeline.start(1));
  CHECK(timeline.at(7, 3) == timeline.at(1, 3));
  CHECK(timeline.next(timeline.end(1)) == timeline.end(1));
  CHECK(timeline.previous(timeline.start(1)) == timeline.start(1));
  const Timeline empty;
  CHECK(empty.at(3, 3) == empty.start(1));
  CHECK(empty.next(empty.start(1)) == empty.start(1));
  CHECK(empty.graph(1).tensors.empty());
}

// ---- Gradients over several passes ------------------------------------------------------------------

TEST_CASE("a second pass adds to what the leaf holds, and shows both until it lands") {
  Machine m;
  const Id x = m.leaf("x", {2});
  const Id y = m.pow(x, 2);
  m.backward(y);
  m.backward(y);
  const Timeline timeline = timeline_of(m);
  CHECK(timeline.episodes().size() == 1);
  // made, pow, [begins, arrived, landed] twice
  const Cursor arrived = timeline.at(1, 7), landed = timeline.at(1, 8);
  CHECK(timeline.gradient(arrived, x).state == Gradient::State::so_far);
  CHECK(timeline.gradient(arrived, x).value.text(0) == "4.0");
  CHECK(timeline.gradient(arrived, x).before.value().text(0) == "4.0");
  CHECK(timeline.gradient(landed, x).value.text(0) == "8.0");
  CHECK(timeline.ledger(landed, x).size() == 2);
  CHECK(timeline.prose(landed).find("x.grad held 4 already; this pass is added: 8. The pass is") ==
        0);
}

TEST_CASE("a leaf that lets go of its gradient reads cleared, never 0") {
  Machine m;
  const Id x = m.leaf("x", {2});
  m.backward(m.pow(x, 2));
  m.let_go(x);
  const Timeline timeline = timeline_of(m);
  CHECK(timeline.gradient(timeline.end(1), x).state == Gradient::State::cleared);
  CHECK(timeline.ledger(timeline.end(1), x).empty());
  CHECK(timeline.prose(timeline.end(1)) == "x lets go of its gradient.");
}

TEST_CASE("a gradient that was set to 0 in place begins its ledger anew") {
  Machine m;
  const Id w = m.leaf("w", {2});
  m.backward(m.pow(w, 2));
  m.backward(m.pow(w, 3));
  m.zero_gradient(w);
  m.backward(m.pow(w, 2));
  const Timeline timeline = timeline_of(m);
  REQUIRE(timeline.episodes().size() == 3);
  const std::vector<Contribution> both = timeline.ledger(timeline.at(2, 4), w);
  REQUIRE(both.size() == 2);
  CHECK(both[0].pass != both[1].pass);
  const std::vector<Contribution> last = timeline.ledger(timeline.end(3), w);
  REQUIRE(last.size() == 1);
  CHECK(last[0].pass == 3);
  CHECK(timeline.gradient(timeline.end(3), w).value.text(0) == "4.0");
}

TEST_CASE("the sum of a grad() stands by itself, and is no part of the next pass's") {
  Machine m;
  const Id x = m.leaf("x", {2});
  const Id y = m.pow(x, 2);
  m.backward(y);
  m.backward(y, false, x);  // grad(y, x)
  const Timeline timeline = timeline_of(m);
  // made, pow, begins, arrived, landed; begins, arrived
  const std::vector<Contribution> of_grad = timeline.ledger(timeline.at(1, 7), x);
  REQUIRE(of_grad.size() == 1);
  CHECK(of_grad[0].pass == 2);
  CHECK(timeline.of_grad(2));
  CHECK(timeline.gradient(timeline.end(1), x).value.text(0) == "4.0");
  CHECK(timeline.gradient(timeline.end(1), x).before.value().text(0) == "4.0");

  m.backward(y);
  const Timeline after = timeline_of(m);
  const std::vector<Contribution> both = after.ledger(after.end(1), x);
  REQUIRE(both.size() == 2);
  CHECK(both[0].pass == 1);
  CHECK(both[1].pass == 3);
  CHECK_FALSE(after.of_grad(3));
  CHECK_FALSE(after.of_grad(0));
}

TEST_CASE("a tensor used twice by one op has two rows") {
  Machine m;
  const Id x = m.leaf("x", {3});
  m.backward(m.mul(x, x));
  const Timeline timeline = timeline_of(m);
  const std::vector<Contribution> rows = timeline.ledger(timeline.end(1), x);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].slot == 0);
  CHECK(rows[1].slot == 1);
  CHECK(rows[1].sum.text(0) == "6.0");
}

TEST_CASE("a broadcast gradient shows the axes that were folded, and numbers for one element") {
  Machine m;
  const Id x = m.leaf("x", {1, 2, 3});
  const Id w = m.leaf("w", {10});
  m.backward(m.sum(m.mul(x, w)));
  const Timeline timeline = timeline_of(m);
  const std::vector<Contribution> of_w = timeline.ledger(timeline.end(1), w);
  REQUIRE(of_w.size() == 1);
  CHECK(of_w[0].shape_before == Shape{3});
  CHECK(of_w[0].shape_given.empty());
  CHECK(of_w[0].folded == std::vector<std::int64_t>{0});
  CHECK(of_w[0].given.text(0) == "6.0");
  CHECK(timeline.ledger(timeline.end(1), x)[0].numbers == "");
  CHECK(timeline.ledger(timeline.end(1), x, 2)[0].numbers == "1 × 10");
  CHECK(timeline.ledger(timeline.end(1), x, 3)[0].numbers == "");
}

// ---- Names --------------------------------------------------------------------------------------------

TEST_CASE("a result is called after its variable, and in mid-expression after its facts") {
  Machine m;
  m.source("auto z = x * y + x;\nh = z * y;\nauto [v, i] = h.max(0);\nreturn x * z;\n");
  const Id x = m.leaf("x", {1}), y = m.leaf("y", {2});
  m.line = 1;
  const Id product = m.mul(x, y);
  const Id z = m.add_(product, x);
  m.line = 2;
  const Id h = m.mul(z, y);
  m.line = 4;
  const Id nameless = m.mul(x, z);
  const Timeline timeline = timeline_of(m);
  CHECK(timeline.name(product) == "x · y");
  CHECK(timeline.name(z) == "z");
  CHECK(timeline.name(h) == "h");
  CHECK(timeline.name(nameless) == "x · z");
  CHECK(timeline.is_named(x));
  CHECK_FALSE(timeline.is_named(z));
  CHECK(timeline.describe_op(timeline.maker(z).value()) == "z = x · y + x");
  CHECK(timeline.describe_op(timeline.maker(product).value()) == "x · y");
}

TEST_CASE("a line that fails before it assigns gives its variable's name to nothing") {
  Machine m;
  m.source("auto h = relu(matmul(x, w * 2));\n");
  const Id x = m.leaf("x", {1}), w = m.leaf("w", {2});
  m.line = 1;
  const Id product = m.mul(w, w);
  m.add(Failed{"matmul", {x, product}, "matmul: inner sizes differ."});
  CHECK(timeline_of(m).name(product) == "w · w");
}

TEST_CASE("what a pass computes has no variable, though it has the line of an operation") {
  Machine m;
  m.source("auto y = x * x;\n");
  const Id x = m.leaf("x", {2});
  m.line = 1;
  const Id y = m.mul(x, x);
  PassBegins begins;
  begins.pass = 1;
  m.add(begins);
  const Id slope = m.mul(y, x);
  m.add(PassEnds{1});
  const Id again = m.mul(x, x);
  const Timeline timeline = timeline_of(m);
  CHECK(timeline.name(y) == "y");
  CHECK(timeline.name(slope) == "y · x");
  CHECK(timeline.name(again) == "y");
}

TEST_CASE("in a loop every turn's last result is the variable") {
  Machine m;
  m.source("for (int i = 0; i < 3; ++i)\n  h = h * w + x;  // each turn\n");
  const Id w = m.leaf("w", {1}), x = m.leaf("x", {2});
  Id h = m.leaf("h0", {1});
  m.line = 2;
  std::vector<Id> products, sums;
  for (int i = 0; i < 3; ++i) {
    products.push_back(m.mul(h, w));
    h = m.add_(products.back(), x);
    sums.push_back(h);
  }
  const Timeline timeline = timeline_of(m);
  for (Id sum : sums) CHECK(timeline.name(sum) == "h");
  CHECK(timeline.name(products[0]) == "h0 · w");
  CHECK(timeline.name(products[2]) == "h · w");
}

TEST_CASE("a name that no tensor has is answered with some that there are") {
  Machine m;
  const Id x = m.leaf("x", {1});
  m.named(m.mul(x, m.leaf("w", {2})), "y");
  const Timeline timeline = timeline_of(m);
  CHECK(timeline.lacks(1, "w") == "");
  CHECK(timeline.lacks(1, "q") == "no tensor is called \"q\": episode 1 has x, w, y");
  for (int i = 0; i < 8; ++i) m.leaf("v" + std::to_string(i), {1});
  CHECK(timeline_of(m).lacks(1, "q") ==
        "no tensor is called \"q\": episode 1 has x, w, y, v0, v1, v2, v3, v4 and 3 more");
}

TEST_CASE("a name given at the end of a line is its last result's, and no other's, in every turn") {
  Machine m;
  m.source("auto loss = f(x * w).named(\"loss\");  // loss\n");
  const Id w = m.leaf("w", {1}), x = m.leaf("x", {2});
  std::vector<Id> products, losses;
  for (int i = 0; i < 3; ++i) {
    m.line = 1;
    products.push_back(m.mul(x, w));
    losses.push_back(m.pow(products.back(), 2));
    m.named(losses.back(), "loss");
    m.line = 0;
    m.backward(losses.back());
  }
  const Timeline timeline = timeline_of(m);
  for (const Id product : products) CHECK(timeline.name(product) == "x · w");
  for (const Id loss : losses) CHECK(timeline.name(loss) == "loss");
}

TEST_CASE("of a network that takes its own result only the last result is the variable") {
  Machine m;
  m.source("h = net(h);\n");
  const Id w = m.leaf("w", {1});
  Id h = m.leaf("h0", {1});
  m.line = 1;
  std::vector<Id> inner, results;
  for (int turn = 0; turn < 2; ++turn) {
    m.open("Sequential", false);
    inner.push_back(m.mul(h, w));
    h = m.pow(inner.back(), 2);
    results.push_back(h);
    m.close();
  }
  const Timeline timeline = timeline_of(m);
  CHECK(timeline.name(inner[0]) == "h0 · w");
  CHECK(timeline.name(inner[1]) == "h · w");
  for (const Id result : results) CHECK(timeline.name(result) == "h");
}

TEST_CASE("what stands in quotes or in a comment of a line is no code") {
  CHECK_FALSE(assignment_on("auto y = x.named(\"y\");").uses_itself);
  CHECK(assignment_on("y = (y * x).named(\"a = (b\");").uses_itself);
  CHECK(assignment_on("y = (y * x).named(\"a = (b\");").operations == 1);
  CHECK(assignment_on("auto y = f(x, \"http://a\\\"b\", '\"') + x;  // = x").operations == 2);
  CHECK(assignment_on("auto y = x * 1'000 * x;").operations == 2);
}

TEST_CASE("a gradient that is used as a tensor is called after its leaf") {
  Machine m;
  const Id w = m.leaf("w", {1});
  m.backward(m.pow(w, 2));
  const Timeline timeline = timeline_of(m);
  const Landed* landed = nullptr;
  for (const auto& event : m.trace().events)
    if (auto* found = std::get_if<Landed>(&event->what)) landed = found;
  REQUIRE(landed != nullptr);
  CHECK(timeline.name(landed->after.tensor) == "w.grad");
}

TEST_CASE("names of long chains stay short, however long the chain") {
  Machine m;
  const Id x = m.leaf("x", {1});
  Id h = x;
  for (int i = 0; i < 1000; ++i) h = m.mul(h, h);
  const Timeline timeline = timeline_of(m);
  CHECK(timeline.name(h).size() < 200);
}

// ---- Storages and versions -------------------------------------------------------------------------------

TEST_CASE(
    "a write in place shows in every view of the storage, and is taken back by stepping back") {
  Machine m;
  const Id x = m.leaf("x", {1, 2}, false);
  const Id second = m.element_of(x, 1);
  m.write(x, {1, 5});
  const Timeline timeline = timeline_of(m);
  CHECK(timeline.value(timeline.at(1, 2), second).text(0) == "2.0");
  CHECK(timeline.value(timeline.at(1, 3), second).text(0) == "5.0");
  CHECK(timeline.value(timeline.at(1, 2), x).text(1) == "2.0");
}

TEST_CASE("what comes of the gradients is an update, and no forward pass") {
  Machine m;
  const Id w = m.leaf("w", {3});
  const Id mean = m.leaf("running_mean", {0}, false);
  m.write(w, {2});  // its start
  const Id loss = m.pow(w, 2);
  m.write(mean, {2});
  m.backward(loss);
  m.recording = false;
  m.add_(w, w);  // has to do with no gradient
  const Id dw = m.gradient_of(w);
  m.add_(dw, dw);
  m.write(w, {1.5});
  m.let_go(w);
  const Timeline timeline = timeline_of(m);
  std::string phases;
  for (std::int64_t n = 1; n <= timeline.episode(1).steps; ++n)
    phases += word_for(timeline.phase(timeline.at(1, n)))[0];
  CHECK(phases == "fffffbbbfuuu");
  CHECK(timeline.prose(timeline.at(1, 3)) == "w is changed in place by sub_: 2.");
  CHECK(timeline.prose(timeline.at(1, 11)) == "sub_ updates w in place, from 2 to 1.5.");
}

TEST_CASE("an op of a broken trace whose result has no number is a step as well") {
  Trace trace;
  Op op;
  op.outputs = {Seen{}};
  add(trace, Event{op, {}, 0});
  Timeline timeline;
  timeline.extend(std::make_shared<Trace>(trace));
  CHECK(timeline.phase(timeline.at(1, 1)) == Phase::forward);
}

TEST_CASE("a window that reaches outside its storage is not read") {
  Trace trace;
  Snapshot snapshot;
  snapshot.storage = 1;
  snapshot.count = 1;
  snapshot.bytes.resize(4);
  add(trace, Snapshot(snapshot));
  Seen seen;
  seen.tensor = 2;
  seen.storage = 1;
  seen.shape = {2};
  seen.strides = {std::int64_t{1} << 62};
  add(trace, Event{Made{seen}, {}, 0});
  seen.tensor = 3;
  seen.strides = {0};
  seen.shape = {std::int64_t{1} << 40};
  add(trace, Event{Made{seen}, {}, 0});
  seen.tensor = 4;
  seen.shape = {3};
  add(trace, Event{Made{seen}, {}, 0});
  Timeline timeline;
  timeline.extend(std::make_shared<Trace>(trace));
  CHECK(timeline.value(timeline.end(1), 2).kept == Value::Kept::nothing);
  CHECK(timeline.value(timeline.end(1), 3).kept == Value::Kept::nothing);
  CHECK(timeline.value(timeline.end(1), 4).kept == Value::Kept::in_full);  // one element, thrice
}

// ---- Scopes -------------------------------------------------------------------------------------------------

struct Boxed {
  Machine m;
  Id x = 0, inner = 0, result = 0, scope = 0;
  Boxed() {
    x = m.leaf("x", {2});
    scope = m.open("softmax", true);
    inner = m.pow(x, 2);
    result = m.add_(inner, x);
    m.close();
    m.backward(m.mul(result, result));
  }
};

TEST_CASE("the result of a box is called after the box, and what is inside after its formula") {
  Boxed boxed;
  const Timeline timeline = timeline_of(boxed.m);
  CHECK(timeline.name(boxed.result) == "softmax(…)");
  CHECK(timeline.name(boxed.inner) == "x²");
}

TEST_CASE("a closed box is one step, and an open one is stepped into") {
  const Boxed boxed;
  const Timeline timeline = timeline_of(boxed.m);
  // made, box, mul, begins, arrivals at result twice, [inner hidden], x by add, x by pow, landed
  CHECK(timeline.episode(1).steps == 9);
  const Cursor box = timeline.at(1, 2);
  CHECK(timeline.exists(box, boxed.result));
  CHECK(timeline.previous(box) == timeline.at(1, 1));
  CHECK_FALSE(timeline.exists(timeline.at(1, 1), boxed.inner));
  CHECK(timeline.hidden_in(boxed.inner, {}) == boxed.scope);
  CHECK_FALSE(timeline.hidden_in(boxed.result, {}).has_value());

  const Toggled open = {boxed.scope};
  const Cursor inside = timeline.next(timeline.at(1, 1), open);
  CHECK(timeline.label(inside) == "1.1");
  CHECK(timeline.exists(inside, boxed.inner));
  CHECK_FALSE(timeline.exists(inside, boxed.result));
  CHECK(timeline.next(inside, open) == box);
  CHECK(timeline.previous(box, open) == inside);
  CHECK_FALSE(timeline.hidden_in(boxed.inner, open).has_value());
}

TEST_CASE("stepping on and back visits the same cursors, whatever is open") {
  const Boxed boxed;
  const Timeline timeline = timeline_of(boxed.m);
  for (const Toggled& toggled : {Toggled{}, Toggled{boxed.scope}}) {
    std::vector<std::size_t> there, back;
    for (Cursor c = timeline.start(1);;) {
      there.push_back(c.position);
      const Cursor next = timeline.next(c, toggled);
      if (next == c) break;
      c = next;
    }
    for (Cursor c = timeline.end(1);;) {
      back.push_back(c.position);
      const Cursor previous = timeline.previous(c, toggled);
      if (previous == c) break;
      c = previous;
    }
    std::reverse(back.begin(), back.end());
    CHECK(there == back);
    CHECK(there.size() == (toggled.empty() ? 10 : 12));
  }
}

TEST_CASE("a module's box is open, so its steps are counted") {
  Machine m;
  const Id x = m.leaf("x", {2});
  m.open("Linear", false);
  m.mul(x, x);
  m.pow(x, 2);
  m.close();
  CHECK(timeline_of(m).episode(1).steps == 3);
}

// ---- Episodes ---------------------------------------------------------------------------------------------------

void train(Machine& m, Id w, int turns, bool zero_grad = true) {
  for (int i = 0; i < turns; ++i) {
    const Id loss = m.pow(m.mul(w, w), 2);
    m.add(Plotted{"loss", double(i), 1});
    m.backward(loss);
    m.write(w, {m.values(w)[0] * 0.99F});
    if (zero_grad) m.let_go(w);
  }
}

TEST_CASE("after zero_grad() the next iteration has its gradient still to come") {
  Machine m;
  const Id w = m.leaf("w", {1});
  train(m, w, 2);
  const Timeline timeline = timeline_of(m);
  CHECK(timeline.gradient(timeline.end(1), w).state == Gradient::State::cleared);
  CHECK(timeline.gradient(timeline.start(2), w).state == Gradient::State::not_yet);
  CHECK(timeline.ledger(timeline.start(2), w).size() == 2);
}

TEST_CASE("a training iteration is one episode, with its update and zero_grad as its tail") {
  Machine m;
  const Id w = m.leaf("w", {1});
  train(m, w, 3);
  const Timeline timeline = timeline_of(m);
  REQUIRE(timeline.episodes().size() == 3);
  // two ops, begins, the product, w twice, landed, wrote, let go
  CHECK(timeline.episode(1).steps == 10);
  CHECK(timeline.episode(2).steps == 9);
  CHECK(timeline.episode(2).ended);
  CHECK_FALSE(timeline.episode(3).ended);
  const Cursor start = timeline.start(2);
  CHECK(timeline.exists(start, w));
  CHECK(timeline.value(start, w).text(0) == "0.99");
  CHECK(timeline.prose(timeline.end(2)) == "w lets go of its gradient.");
  CHECK(timeline.graph(2).ops.size() == 2);
}

TEST_CASE("a recorded update makes one episode that grows") {
  Machine m;
  Id w = m.leaf("w", {1});
  const Id rate = m.leaf("rate", {0.9F}, false);
  for (int i = 0; i < 5; ++i) {
    m.backward(m.pow(w, 2));
    w = m.mul(w, rate);
  }
  // The first pass ends before w is a result: the recorded update begins an episode of its own.
  CHECK(timeline_of(m).episodes().size() == 2);
}

TEST_CASE("an episode that begins inside a closed box begins with the box") {
  Machine m;
  const Id w = m.leaf("w", {1});
  for (int i = 0; i < 2; ++i) {
    m.open("softmax", true);
    m.recording = false;
    m.pow(w, 2);
    m.recording = true;
    const Id y = m.mul(w, w);
    m.close();
    m.backward(y);
  }
  const Timeline timeline = timeline_of(m);
  REQUIRE(timeline.episodes().size() == 2);
  CHECK(timeline.graph(2).ops.size() == 2);
  CHECK(timeline.episode(1).steps == timeline.episode(2).steps + 1);  // w was made in the first
  CHECK(timeline.steps()[timeline.episode(2).first].inner == 1);
}

TEST_CASE("the schedule keeps all up to 64 and then 32 a doubling") {
  int kept = 0;
  for (int n = 1; n <= 64; ++n) kept += schedule_keeps(n);
  CHECK(kept == 64);
  kept = 0;
  for (int n = 65; n <= 128; ++n) kept += schedule_keeps(n);
  CHECK(kept == 32);
  kept = 0;
  for (int n = 129; n <= 256; ++n) kept += schedule_keeps(n);
  CHECK(kept == 32);
  CHECK(schedule_keeps(1024));
  CHECK_FALSE(schedule_keeps(1025));
}

// The same records, through the Keeper; `live` looks at the trace while it grows.
Trace kept(const Machine& machine, int standing_in, Timeline* live, std::size_t every) {
  Trace trace;
  Keeper keeper;
  keeper.stand_in(standing_in);
  std::size_t i = 0;
  for (const Record& record : machine.records()) {
    keeper.add(trace, Record(record));
    if (++i % every == 0) live->extend(std::make_shared<Trace>(trace));
  }
  live->extend(std::make_shared<Trace>(trace));
  return trace;
}

TEST_CASE("episodes that are not kept keep their numbers, and the kept ones all they show") {
  Machine m;
  const Id w = m.leaf("w", {1});
  train(m, w, 200, false);
  const Timeline whole = timeline_of(m);
  const std::size_t every = GENERATE(1U, 5U, 7U, 50U);
  Timeline live;
  const Trace thin = kept(m, 67, &live, every);
  Timeline late;
  late.extend(std::make_shared<Trace>(thin));
  std::size_t gone = 0;
  for (const auto& event : thin.events) gone += event == nullptr;
  CHECK(gone > thin.events.size() / 3);
  for (const Timeline* timeline : {&live, &late}) {
    REQUIRE(timeline->episodes().size() == 200);
    for (int n = 1; n <= 200; ++n) {
      CAPTURE(n);
      const bool stays = schedule_keeps(n) || n == 67 || n == 200;
      REQUIRE(timeline->episode(n).kept == stays);
      if (!stays) continue;
      REQUIRE(timeline->episode(n).steps == whole.episode(n).steps);
      for (std::int64_t step = 0; step <= whole.episode(n).steps; ++step) {
        const Cursor here = timeline->at(n, step), there = whole.at(n, step);
        CAPTURE(step, timeline == &live, every);
        REQUIRE(timeline->value(here, w) == whole.value(there, w));
        REQUIRE(timeline->gradient(here, w).value == whole.gradient(there, w).value);
      }
    }
  }
  std::size_t plots = 0;
  for (const auto& event : thin.events)
    plots += event != nullptr && std::holds_alternative<Plotted>(event->what);
  CHECK(plots == 200);
}

// ---- Seeking equals walking -----------------------------------------------------------------------------------------

// A random program: what is known of it is only that the events are in order.
Machine random_program(std::uint32_t seed) {
  Machine m;
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const auto number = [&] { return static_cast<float>(random() % 1000) / 250.0F - 2.0F; };
  std::vector<Id> leaves, all;
  for (int i = 0; i < 3; ++i) {
    std::vector<float> values;
    for (std::size_t k = 0, n = i == 0 ? 1 : 3; k < n; ++k) values.push_back(number());
    leaves.push_back(m.leaf("leaf" + std::to_string(i), values, i < 2));
  }
  all = leaves;
  for (int action = 0; action < 40; ++action) {
    m.line = static_cast<int>(below(6));
    const auto any = [&] { return all[below(all.size())]; };
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        all.push_back(m.mul(any(), any()));
        break;
      case 3:
      case 4:
        all.push_back(m.add_(any(), any()));
        break;
      case 5:
        all.push_back(m.pow(any(), static_cast<double>(below(4))));
        break;
      case 6:
        all.push_back(m.sum(any()));
        break;
      case 7: {
        const Id root = all.back();
        if (m.seen(root).requires_grad) m.backward(root);
        break;
      }
      case 8:
        m.let_go(leaves[below(2)]);
        break;
      case 9: {
        const Id leaf = leaves[below(3)];
        std::vector<float> values = m.values(leaf);
        for (float& v : values) v = number();
        m.write(leaf, values);
        break;
      }
      case 10:
        if (m.any_open())
          m.close();
        else
          m.open("scope", below(2) == 0);
        break;
      case 11:
        m.add(Said{"word"});
        break;
    }
  }
  return m;
}

// The state by walking from the first event, with no index and no look at what comes later, except
// for how many contributions a pass will bring.
struct Walk {
  const Trace& trace;
  std::map<Id, std::int64_t> versions;
  std::set<Id> existing;
  std::map<Id, Seen> windows;
  std::map<Id, std::vector<float>> held, running;
  std::map<Id, std::int64_t> running_pass;
  std::map<std::pair<Id, std::int64_t>, int> to_come;
  std::set<Id> landed_last;
  std::set<Id> let_go_last;

  explicit Walk(const Trace& whole) : trace(whole) {
    for (const auto& event : trace.events)
      if (auto* a = std::get_if<Arrived>(&event->what)) ++to_come[{a->to, a->pass}];
  }
  std::vector<float> read(const Seen& seen) const {
    const Snapshot* s = trace.find(seen);
    std::vector<float> storage(static_cast<std::size_t>(s->count)), values;
    if (!storage.empty()) std::memcpy(storage.data(), s->bytes.data(), s->bytes.size());
    const std::int64_t n = seen.shape.empty() ? 1 : seen.shape[0];
    for (std::int64_t i = 0; i < n; ++i)
      values.push_back(storage[static_cast<std::size_t>(
          seen.offset + (seen.shape.empty() ? 0 : i * seen.strides[0]))]);
    return values;
  }
  void see(const Seen& seen) {
    std::int64_t& version = versions[seen.storage];
    version = std::max(version, seen.version);
    windows.emplace(seen.tensor, seen);
  }
  void receive(Id tensor, std::int64_t pass, const std::vector<float>& given) {
    std::vector<float>& sum = running[tensor];
    if (running_pass[tensor] != pass || sum.empty()) sum.assign(given.size(), 0.0F);
    const bool fresh = running_pass[tensor] != pass;
    for (std::size_t i = 0; i < given.size(); ++i) sum[i] = fresh ? given[i] : sum[i] + given[i];
    running_pass[tensor] = pass;
    landed_last.erase(tensor);
  }
  void take(const Event& event) {
    if (auto* made = std::get_if<Made>(&event.what)) {
      see(made->tensor);
      existing.insert(made->tensor.tensor);
    }
    if (auto* op = std::get_if<Op>(&event.what)) {
      for (const Seen& input : op->inputs) see(input);
      for (const Seen& output : op->outputs) {
        see(output);
        existing.insert(output.tensor);
      }
    }
    if (auto* begins = std::get_if<PassBegins>(&event.what)) {
      for (auto& [tensor, pass] : running_pass)
        if (!windows.at(tensor).is_leaf && to_come.contains({tensor, begins->pass})) {
          running.erase(tensor);
          pass = 0;
        }
      receive(begins->roots[0].tensor, begins->pass, read(begins->seeds[0]));
    }
    if (auto* arrived = std::get_if<Arrived>(&event.what)) {
      receive(arrived->to, arrived->pass, read(arrived->given));
      --to_come[{arrived->to, arrived->pass}];
    }
    if (auto* landed = std::get_if<Landed>(&event.what)) {
      held[landed->tensor] = read(landed->after);
      landed_last.insert(landed->tensor);
      let_go_last.erase(landed->tensor);
      running.erase(landed->tensor);
    }
    if (auto* let_go = std::get_if<LetGo>(&event.what)) {
      let_go_last.insert(let_go->tensor);
      held.erase(let_go->tensor);
      running.erase(let_go->tensor);
    }
    if (auto* wrote = std::get_if<Wrote>(&event.what)) see(wrote->tensor);
  }
};

std::vector<float> floats(const Value& value) {
  std::vector<float> values(value.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), value.bytes.data(), value.bytes.size());
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void check_against_walk(const Timeline& timeline, Cursor cursor, const Walk& walk) {
  for (const auto& [tensor, window] : walk.windows) {
    CAPTURE(cursor.position, tensor, timeline.name(tensor));
    REQUIRE(timeline.exists(cursor, tensor) == walk.existing.contains(tensor));
    Seen now = window;
    now.version = walk.versions.at(window.storage);
    REQUIRE(same_bits(floats(timeline.value(cursor, tensor)), walk.read(now)));
    const Gradient gradient = timeline.gradient(cursor, tensor);
    if (auto running = walk.running.find(tensor); running != walk.running.end()) {
      REQUIRE(same_bits(floats(gradient.value), running->second));
      const auto left = walk.to_come.find({tensor, walk.running_pass.at(tensor)});
      const bool more = left != walk.to_come.end() && left->second > 0;
      if (!window.is_leaf)
        REQUIRE(gradient.state == (more ? Gradient::State::so_far : Gradient::State::complete));
      else if (gradient.state == Gradient::State::so_far)
        REQUIRE(gradient.before.has_value() == walk.held.contains(tensor));
    } else if (auto held = walk.held.find(tensor); held != walk.held.end()) {
      REQUIRE(gradient.state == Gradient::State::landed);
      REQUIRE(same_bits(floats(gradient.value), held->second));
    } else {
      const bool cleared = gradient.state == Gradient::State::cleared;
      REQUIRE((gradient.state == Gradient::State::not_yet || cleared));
      if (cleared) REQUIRE(walk.let_go_last.contains(tensor));
    }
  }
}

TEST_CASE("over random programs the state by seeking equals the state by walking") {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const Machine m = random_program(seed);
    const Timeline timeline = timeline_of(m);
    Walk walk(m.trace());
    std::size_t taken = 0;
    for (const Episode& episode : timeline.episodes())
      for (std::size_t position = episode.first; position <= episode.last; ++position) {
        const Cursor cursor{timeline.steps().empty() ? 1
                            : position < timeline.steps().size()
                                ? timeline.steps()[position].episode
                                : static_cast<int>(timeline.episodes().size()),
                            position};
        const std::size_t cut = position < timeline.steps().size()
                                    ? timeline.steps()[position].event
                                    : m.trace().events.size();
        for (; taken < cut; ++taken) walk.take(*m.trace().events[taken]);
        check_against_walk(timeline, cursor, walk);
      }
  }
}

TEST_CASE("at the end the timeline holds what the program holds, bit for bit") {
  for (std::uint32_t seed = 100; seed < 130; ++seed) {
    CAPTURE(seed);
    Machine m = random_program(seed);
    const Timeline timeline = timeline_of(m);
    for (Id leaf : timeline.graph(1).tensors) {
      if (!timeline.is_leaf(leaf) || !timeline.is_named(leaf)) continue;
      REQUIRE(same_bits(floats(timeline.value(timeline.latest(), leaf)), m.values(leaf)));
      const Gradient gradient = timeline.gradient(timeline.latest(), leaf);
      REQUIRE((gradient.state == Gradient::State::landed) == m.has_gradient(leaf));
      if (m.has_gradient(leaf)) REQUIRE(same_bits(floats(gradient.value), m.gradient(leaf)));
    }
  }
}

TEST_CASE("a trace that grows gives the same steps as one that is there at once") {
  for (std::uint32_t seed = 200; seed < 220; ++seed) {
    CAPTURE(seed);
    const Machine m = random_program(seed);
    const Timeline whole = timeline_of(m);
    Timeline growing;
    Trace trace;
    std::mt19937 random(seed);
    for (const Record& record : m.records()) {
      add(trace, Record(record));
      if (random() % 5 == 0) growing.extend(std::make_shared<Trace>(trace));
    }
    growing.extend(std::make_shared<Trace>(trace));
    REQUIRE(growing.steps().size() == whole.steps().size());
    REQUIRE(growing.episodes().size() == whole.episodes().size());
    for (std::size_t i = 0; i < whole.steps().size(); ++i) {
      REQUIRE(growing.steps()[i].number == whole.steps()[i].number);
      REQUIRE(growing.steps()[i].inner == whole.steps()[i].inner);
      REQUIRE(growing.steps()[i].episode == whole.steps()[i].episode);
    }
  }
}

TEST_CASE("stepping back retraces stepping on, in every episode of random programs") {
  for (std::uint32_t seed = 300; seed < 340; ++seed) {
    CAPTURE(seed);
    const Machine m = random_program(seed);
    const Timeline timeline = timeline_of(m);
    for (int episode = 1; episode <= static_cast<int>(timeline.episodes().size()); ++episode) {
      std::vector<std::size_t> there, back;
      for (Cursor c = timeline.start(episode);; c = timeline.next(c)) {
        if (!there.empty() && there.back() == c.position) break;
        there.push_back(c.position);
      }
      for (Cursor c{episode, there.back()};; c = timeline.previous(c)) {
        if (!back.empty() && back.back() == c.position) break;
        back.push_back(c.position);
      }
      std::reverse(back.begin(), back.end());
      REQUIRE(there == back);
    }
  }
}

}  // namespace
