// Records to bytes and back, and bytes that are no records.
#include <limits>
#include <random>
#include <stdexcept>

#include "tests/catch.hpp"
#include "tests/traces.hpp"
#include "viewer/timeline.hpp"

namespace {

using namespace viewer;

Seen a_seen(Id tensor) {
  Seen seen;
  seen.tensor = tensor;
  seen.storage = tensor + 1;
  seen.version = 3;
  seen.offset = -4;
  seen.shape = {2, 0, 5};
  seen.strides = {0, -1, std::numeric_limits<std::int64_t>::max()};
  seen.dtype = DType::int64;
  seen.requires_grad = true;
  seen.is_leaf = false;
  seen.name = std::string("a \"name\" with \0 and ü", 22);
  return seen;
}

// One event of each kind, with every field different from its default.
std::vector<What> one_of_each() {
  const Seen a = a_seen(10), b = a_seen(20);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return {
      Made{a},
      Op{7, "pow", {{2.5, nan}, {-1, 3}}, {a, b}, {{"a", a}, {"y", b}}, {b}},
      Failed{"matmul", {10, 20}, "inner sizes differ", 7},
      PassBegins{4, {a}, {b}, true, true, {a, b}},
      PassEnds{4},
      Arrived{4, 7, 1, 10, a, {0, 2}, b},
      Hooked{4, 10, a, b},
      Landed{4, 10, true, a, b},
      Wrote{a, 2, "sub_", 9},
      LetGo{10},
      Named{10, "w"},
      ScopeOpens{30, "softmax", true},
      ScopeCloses{30},
      Said{"words"},
      Asked{"how many?", -0.0},
      Plotted{"loss", 1, 2},
      Printed{std::string("z = 37\n\xff", 8)},
      Ended{Ended::How::signal, 11, "SIGSEGV"},
      Paused{},
      Pictured{"digits", 2, 3, {1, 2, 3, 4, 5, 6}},
  };
}

std::vector<Record> all_records() {
  std::vector<Record> records;
  for (What& what : one_of_each()) records.push_back(Event{std::move(what), {"a.cpp", 12}, 30});
  Snapshot full;
  full.storage = 11;
  full.version = 3;
  full.count = 3;
  full.dtype = DType::float32;
  full.bytes.resize(12, std::byte{7});
  records.push_back(full);
  Snapshot large;
  large.count = 1 << 20;
  large.statistics = {-1, 1, 0.5, 0.25, 3, 4, {1, 2, 3}, 2, 3, {1, 2, 3, 4, 5, 6}};
  records.push_back(large);
  records.push_back(OpFacts{"mul", "×", "a * b", {"dy * b", "dy * a"}, "n", "mul"});
  records.push_back(std::pair<std::string, std::string>("a.cpp", "int main() {}\n"));
  return records;
}

TEST_CASE("every record survives its bytes") {
  for (const Record& record : all_records()) {
    const std::string bytes = encode(record);
    const Record again = decode(bytes.data(), bytes.size());
    CAPTURE(record.index());
    CHECK(again.index() == record.index());
    CHECK(encode(again) == bytes);  // all fields are in the bytes, see the next test
  }
}

TEST_CASE("all fields are in the bytes") {
  const std::string bytes = encode(Event{Op{7, "pow", {{2.5}, {3}}, {a_seen(1)}, {}, {}}, {}, 5});
  const Event event = std::get<Event>(decode(bytes.data(), bytes.size()));
  const Op& op = std::get<Op>(event.what);
  CHECK(event.scope == 5);
  CHECK(op.node == 7);
  CHECK(op.op == "pow");
  CHECK(op.attributes == Attributes{{2.5}, {3}});
  REQUIRE(op.inputs.size() == 1);
  const Seen seen = op.inputs[0], expected = a_seen(1);
  CHECK(seen.tensor == 1);
  CHECK(seen.storage == 2);
  CHECK(seen.version == 3);
  CHECK(seen.offset == -4);
  CHECK(seen.shape == expected.shape);
  CHECK(seen.strides == expected.strides);
  CHECK(seen.dtype == DType::int64);
  CHECK(seen.requires_grad);
  CHECK_FALSE(seen.is_leaf);
  CHECK(seen.name == expected.name);
}

TEST_CASE("what is cut short is refused with a sentence, at every length") {
  for (const Record& record : all_records()) {
    const std::string bytes = encode(record);
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      CAPTURE(record.index(), n);
      REQUIRE_THROWS_AS(decode(bytes.data(), n), std::runtime_error);
    }
  }
  CHECK_THROWS_WITH(decode("", 0), Catch::Contains("not a record"));
}

TEST_CASE("what goes on after its end is refused") {
  const std::string bytes = encode(Event{Said{"words"}, {}, 0}) + "x";
  CHECK_THROWS_WITH(decode(bytes.data(), bytes.size()), Catch::Contains("goes on after its end"));
}

TEST_CASE("a length that cannot be does not allocate") {
  std::string bytes = encode(std::pair<std::string, std::string>("path", "text"));
  for (std::size_t i = 1; i <= 8; ++i) bytes[i] = '\xff';  // the length of the path
  CHECK_THROWS_WITH(decode(bytes.data(), bytes.size()), Catch::Contains("longer than its bytes"));
}

TEST_CASE("shapes and snapshots that do not fit are refused") {
  Seen seen = a_seen(1);
  seen.strides.pop_back();
  std::string bytes = encode(Event{Made{seen}, {}, 0});
  CHECK_THROWS_WITH(decode(bytes.data(), bytes.size()), Catch::Contains("strides"));
  seen = a_seen(1);
  seen.shape[0] = -1;
  bytes = encode(Event{Made{seen}, {}, 0});
  CHECK_THROWS_WITH(decode(bytes.data(), bytes.size()), Catch::Contains("negative"));
  Snapshot snapshot;
  snapshot.count = 4;
  snapshot.bytes.resize(15);
  bytes = encode(snapshot);
  CHECK_THROWS_WITH(decode(bytes.data(), bytes.size()), Catch::Contains("does not fit"));
  snapshot.bytes.clear();
  snapshot.statistics.rows = snapshot.statistics.columns = 2;
  bytes = encode(snapshot);
  CHECK_THROWS_WITH(decode(bytes.data(), bytes.size()), Catch::Contains("thumbnail"));
  bytes = encode(Event{Pictured{"", 2, 2, {1, 2, 3}}, {}, 0});
  CHECK_THROWS_WITH(decode(bytes.data(), bytes.size()), Catch::Contains("picture"));
  bytes = encode(Event{Pictured{"", 1, 257, std::vector<float>(257)}, {}, 0});
  CHECK_THROWS_WITH(decode(bytes.data(), bytes.size()), Catch::Contains("picture"));
}

// Traces that were written before a kind was added are read as before.
TEST_CASE("the kinds of events keep their places") {
  CHECK(What(Made{}).index() == 0);
  CHECK(What(Plotted{}).index() == 15);
  CHECK(What(Ended{}).index() == 17);
  CHECK(What(Paused{}).index() == 18);
  CHECK(What(Pictured{}).index() == 19);
}

TEST_CASE("bytes that were changed at random are refused or read, and never do harm") {
  std::mt19937 random(1);
  const std::vector<Record> records = all_records();
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = encode(records[random() % records.size()]);
    for (std::uint32_t k = 0, n = 1 + random() % 4; k < n; ++k)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    try {
      Trace trace;
      add(trace, decode(bytes.data(), bytes.size()));
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
  CHECK(refused < 20000);
}

TEST_CASE("records are added where they belong") {
  Trace trace;
  for (Record& record : all_records()) add(trace, std::move(record));
  CHECK(trace.events.size() == 20);
  CHECK(trace.snapshots.size() == 2);
  CHECK(trace.facts.at("mul").formula == "a * b");
  CHECK(trace.sources.at("a.cpp") == "int main() {}\n");
  Seen seen;
  seen.storage = 11;
  seen.version = 3;
  REQUIRE(trace.find(seen) != nullptr);
  CHECK(trace.find(seen)->bytes.size() == 12);
  seen.version = 4;
  CHECK(trace.find(seen) == nullptr);
}

TEST_CASE("a whole run survives its bytes") {
  const traces::Machine machine = traces::chain_rule();
  Trace again;
  for (const Record& record : machine.records()) {
    const std::string bytes = encode(record);
    add(again, decode(bytes.data(), bytes.size()));
  }
  Timeline before, after;
  before.extend(machine.share());
  after.extend(std::make_shared<Trace>(again));
  REQUIRE(after.episode(1).steps == 18);
  for (std::int64_t n = 0; n <= 18; ++n) {
    const Cursor cursor = before.at(1, n);
    CAPTURE(n);
    REQUIRE(after.prose(cursor) == before.prose(cursor));
    REQUIRE(after.line(cursor) == before.line(cursor));
    REQUIRE(after.said(cursor) == before.said(cursor));
    REQUIRE(after.printed(cursor) == before.printed(cursor));
    for (Id tensor : before.graph(1).tensors)
      REQUIRE(after.gradient(cursor, tensor).value == before.gradient(cursor, tensor).value);
  }
}

}  // namespace
