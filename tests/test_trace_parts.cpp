// What a trace is made of: lists that share their chunks, snapshots by their key, statistics.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "tests/catch.hpp"
#include "viewer/statistics.hpp"
#include "viewer/trace.hpp"

using namespace viewer;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Growing<int> numbers(int count) {
  Growing<int> list;
  for (int i = 0; i < count; ++i) list.push_back(std::make_shared<int>(i));
  return list;
}

TEST_CASE("a growing list holds its elements in order, below, at and above the end of a chunk") {
  for (int count : {0, 1, 1023, 1024, 1025, 5000}) {
    const Growing<int> list = numbers(count);
    REQUIRE(list.size() == static_cast<std::size_t>(count));
    CHECK(list.empty() == (count == 0));
    int next = 0;
    for (const auto& element : list) REQUIRE(*element == next++);
    CHECK(next == count);
    if (count > 0) CHECK(*list.back() == count - 1);
  }
}

TEST_CASE("a copy of a growing list stays as it is while the original grows and forgets") {
  Growing<int> list = numbers(3000);
  const Growing<int> copy = list;
  for (int i = 3000; i < 6000; ++i) list.push_back(std::make_shared<int>(i));
  list.forget(1000, 3100);
  REQUIRE(copy.size() == 3000);
  for (std::size_t i = 0; i < copy.size(); ++i) REQUIRE(*copy[i] == static_cast<int>(i));
  REQUIRE(list.size() == 6000);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i >= 1000 && i < 3100)
      REQUIRE(list[i] == nullptr);
    else
      REQUIRE(*list[i] == static_cast<int>(i));
  }
}

TEST_CASE("a growing list forgets in its unfinished chunk, and nothing when the range is empty") {
  Growing<int> list = numbers(1030);
  list.forget(1025, 1027);
  list.forget(500, 500);
  CHECK(*list[1024] == 1024);
  CHECK(list[1025] == nullptr);
  CHECK(list[1026] == nullptr);
  CHECK(*list[1027] == 1027);
  CHECK(*list[500] == 500);
  list.push_back(std::make_shared<int>(1030));
  CHECK(*list.back() == 1030);
}

std::shared_ptr<const Snapshot> snapshot(Id storage, std::int64_t version, std::int64_t count = 0) {
  auto result = std::make_shared<Snapshot>();
  result->storage = storage;
  result->version = version;
  result->count = count;
  return result;
}

TEST_CASE("snapshots are found by storage and version, in whatever order they came") {
  std::vector<SnapshotKey> keys;
  for (Id storage = 1; storage <= 300; ++storage)
    for (std::int64_t version = 0; version < 5; ++version) keys.push_back({storage, version});
  std::shuffle(keys.begin(), keys.end(), std::mt19937(1));
  Snapshots snapshots;
  for (const SnapshotKey& key : keys) {
    CHECK(snapshots.find(key) == nullptr);
    snapshots.insert(snapshot(key.storage, key.version));
  }
  CHECK(snapshots.size() == keys.size());
  for (const SnapshotKey& key : keys) {
    const Snapshot* found = snapshots.find(key);
    REQUIRE(found);
    CHECK((found->storage == key.storage && found->version == key.version));
  }
  CHECK(snapshots.find({301, 0}) == nullptr);
  CHECK(snapshots.find({1, 5}) == nullptr);
}

TEST_CASE("the first snapshot of a key stays, so that what has been shown never changes") {
  Snapshots snapshots;
  snapshots.insert(snapshot(1, 0, 10));
  snapshots.insert(snapshot(1, 0, 20));
  CHECK(snapshots.size() == 1);
  CHECK(snapshots.find({1, 0})->count == 10);
}

TEST_CASE("a copy of the snapshots keeps what the original erases") {
  Snapshots snapshots;
  for (Id storage = 1; storage <= 1000; ++storage) snapshots.insert(snapshot(storage, 0));
  const Snapshots copy = snapshots;
  snapshots.erase_if([](const Snapshot& one) { return one.storage % 2 == 0; });
  CHECK(snapshots.size() == 500);
  CHECK(snapshots.find({2, 0}) == nullptr);
  CHECK(snapshots.find({3, 0}) != nullptr);
  CHECK(copy.size() == 1000);
  CHECK(copy.find({2, 0}) != nullptr);
  int visited = 0;
  snapshots.for_each([&](const Snapshot&) { ++visited; });
  CHECK(visited == 500);
}

// ---- Statistics ---------------------------------------------------------------------------------

// A window onto a storage, as a pointer good until the next call.
const Seen* window(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides,
                   std::int64_t offset = 0) {
  static Seen seen;
  seen.shape = std::move(shape);
  seen.strides = std::move(strides);
  seen.offset = offset;
  return &seen;
}

TEST_CASE("statistics are of the finite elements, and the others are counted") {
  const std::vector<double> elements{1, nan, 2, infinity, 3, -infinity, 6, nan};
  const Statistics s = statistics_of(elements, window({8}, {1}));
  CHECK(s.min == 1);
  CHECK(s.max == 6);
  CHECK(s.mean == 3);
  CHECK(s.std == Approx(2.1602469));  // numpy: std([1, 2, 3, 6], ddof=1)
  CHECK(s.nan == 2);
  CHECK(s.inf == 2);
  CHECK(s.histogram.front() == 1);
  CHECK(s.histogram.back() == 1);
  CHECK(std::accumulate(s.histogram.begin(), s.histogram.end(), std::int64_t{0}) == 4);
}

TEST_CASE(
    "statistics of nothing finite are NaN, of one value have no width, and survive the largest "
    "numbers") {
  const Statistics none = statistics_of(std::vector<double>{nan, infinity}, window({2}, {1}));
  CHECK(std::isnan(none.min));
  CHECK(std::isnan(none.mean));
  const Statistics same = statistics_of(std::vector<double>{5, 5, 5}, window({3}, {1}));
  CHECK(same.std == 0);
  CHECK(same.histogram[0] == 3);
  const Statistics one = statistics_of(std::vector<double>{5}, window({}, {}));
  CHECK(one.std == 0);
  const double most = std::numeric_limits<double>::max();
  const Statistics wide = statistics_of(std::vector<double>{-most, 0, most}, window({3}, {1}));
  CHECK(wide.histogram.front() == 1);
  CHECK(wide.histogram[16] == 1);
  CHECK(wide.histogram.back() == 1);
  const Statistics empty = statistics_of(std::vector<double>{}, window({0, 3}, {3, 1}));
  CHECK(empty.thumbnail.empty());
}

TEST_CASE("a thumbnail shows block means of the window, its last dimension across") {
  std::vector<double> elements(128 * 256);
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements[i] = static_cast<double>(i / 256);  // its row
  const Statistics upright = statistics_of(elements, window({128, 256}, {256, 1}));
  CHECK(upright.rows == 64);
  CHECK(upright.columns == 64);
  REQUIRE(upright.thumbnail.size() == 64 * 64);
  CHECK(upright.thumbnail[0] == 0.5f);  // rows 0 and 1
  CHECK(upright.thumbnail[63] == 0.5f);
  CHECK(upright.thumbnail[64] == 2.5f);
  CHECK(upright.thumbnail.back() == 126.5f);
  const Statistics lying = statistics_of(elements, window({256, 128}, {1, 256}));  // transposed
  CHECK(lying.thumbnail[0] == 0.5f);
  CHECK(lying.thumbnail[1] == 2.5f);
  const Statistics part = statistics_of(elements, window({3, 2}, {256, 1}, 256 * 10));
  CHECK(part.rows == 3);
  CHECK(part.columns == 2);
  CHECK(part.thumbnail == std::vector<float>{10, 10, 11, 11, 12, 12});
  const Statistics deep = statistics_of(elements, window({2, 2, 2}, {256 * 4, 256, 1}));
  CHECK(deep.rows == 4);
  CHECK(deep.thumbnail == std::vector<float>{0, 0, 1, 1, 4, 4, 5, 5});
  const Statistics scalar = statistics_of(elements, window({}, {}, 256 * 7));
  CHECK(scalar.thumbnail == std::vector<float>{7});
}

TEST_CASE("a window that reaches beyond its storage shows what there is") {
  const std::vector<double> elements{1, 2, 3};
  const Statistics s = statistics_of(elements, window({2, 2}, {2, 1}, -1));
  CHECK(s.thumbnail == std::vector<float>{0, 1, 2, 3});
}

}  // namespace
