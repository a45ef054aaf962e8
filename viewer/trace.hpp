// What a run leaves behind: plain, copied data, and nothing that knows a tensor, a window or
// Graphviz.
//
// A trace is a list of events in the order in which they happened, plus three tables that events
// refer to: snapshots of storages, the facts of the operations met, and the text of the source
// files named. Everything that the viewer shows and everything that it exports is derived from
// (trace, cursor). Nothing else holds state about a run.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace viewer {

// Tensors, storages, nodes and scopes are numbered by one counter of the program; a number is never
// used twice. 0 means none.
using Id = std::uint64_t;

enum class DType : std::uint8_t { float32, float64, int64, boolean };

// A line of the user's source. `file` is the path as the compiler was given it; show only its last
// part.
struct Line {
  std::string file;
  int number = 0;  // 0: unknown
  bool operator==(const Line&) const = default;
};

// A tensor as it was at one moment: a window onto a storage of a certain version.
struct Seen {
  Id tensor = 0;
  Id storage = 0;
  std::int64_t version = 0;
  std::int64_t offset = 0;  // in elements, as are the strides
  std::vector<std::int64_t> shape, strides;
  DType dtype = DType::float32;
  bool requires_grad = false;
  bool is_leaf = true;
  std::string name;  // given by named(); empty if none
};

// The elements of a storage at one version. Up to `kept_in_full` elements: all of them, as the
// program held them. Beyond that: what a reader can use instead.
struct Statistics {
  double min = 0, max = 0, mean = 0, std = 0;  // over the finite elements
  std::int64_t nan = 0, inf = 0;
  std::array<std::int64_t, 32> histogram{};  // 32 equal bins from min to max
  std::int64_t rows = 0, columns = 0;        // of the thumbnail, each at most 64
  std::vector<float> thumbnail;  // rows * columns, row-major, of the tensor that was first seen
};
struct Snapshot {
  static constexpr std::int64_t kept_in_full = 4096;
  // A program forgets that it has sent a snapshot that no event has used while so many others were
  // sent, and sends it again when one does. Whoever collects them may then have let go of it.
  static constexpr std::int64_t sent_again_after = 2048;
  Id storage = 0;
  std::int64_t version = 0;
  std::int64_t count = 0;  // elements in the storage
  DType dtype = DType::float32;
  std::vector<std::byte> bytes;  // all elements, or empty
  Statistics statistics;         // meaningful only when `bytes` is empty and count > 0
  bool in_full() const { return count == 0 || !bytes.empty(); }
};

// The facts of an operation, as the header states them (mt::Facts): one row an operation name.
struct OpFacts {
  std::string name;     // "mul"
  std::string symbol;   // "×": what stands in the op's circle
  std::string formula;  // "a * b": y in the letters a b c (inputs) and n m dims (attributes)
  std::vector<std::string> derivatives;  // one a slot: "dy * b"; empty if none exists
  std::string attributes;   // the attributes' names, blank-separated: "n", "dim start stop step"
  std::string called = {};  // for readers: "mul", also for "mul_number"
};

struct Attributes {  // the plain numbers written in the code
  std::vector<double> numbers;
  std::vector<std::int64_t> dims;
  bool operator==(const Attributes&) const = default;
};

// ---- Events -------------------------------------------------------------------------------------

struct Made {
  Seen tensor;
};
struct Op {
  Id node = 0;     // 0: not recorded
  std::string op;  // key into Trace::facts
  Attributes attributes;
  std::vector<Seen> inputs;
  std::vector<std::pair<std::string, Seen>> saved;  // letter and tensor
  std::vector<Seen> outputs;
};
struct Failed {
  std::string op;
  std::vector<Id> inputs;  // those that it had already looked at
  std::string text;
  Id node = 0;  // whose rule failed while a pass ran; 0: it failed by itself
};
struct PassBegins {
  std::int64_t pass = 0;  // 1, 2, ... over the whole run
  std::vector<Seen> roots, seeds;
  bool retain_graph = false, create_graph = false;
  std::vector<Seen> asked;  // the inputs that grad() was asked for; empty for backward()
};
struct PassEnds {
  std::int64_t pass = 0;
};
struct Arrived {  // an operation handed one of its inputs a contribution to its gradient
  std::int64_t pass = 0;
  Id node = 0;
  int slot = 0;
  Id to = 0;                         // the tensor of that slot, as it was called in the op's event
  Seen before;                       // the gradient before folding, in the shape of the output
  std::vector<std::int64_t> folded;  // axes of `before` that were summed
  Seen given;                        // the gradient as given, in the shape of the input
};
struct Hooked {
  std::int64_t pass = 0;
  Id tensor = 0;
  Seen before, after;
};
struct Landed {  // a gradient was written to a leaf's (or a retaining tensor's) grad()
  std::int64_t pass = 0;
  Id tensor = 0;
  bool had_before = false;
  Seen before, after;
};
struct Wrote {  // in place
  Seen tensor;  // as it is afterwards
  std::int64_t version_before = 0;
  std::string by;  // the op: "sub_", "copy_"
  Id node = 0;     // the op event of this node tells the rest; 0: not recorded
};
struct LetGo {
  Id tensor = 0;
};
struct Named {
  Id tensor = 0;
  std::string name;
};
struct ScopeOpens {
  Id scope = 0;  // one number an opening
  std::string name;
  bool composed = false;  // a composed op: drawn closed until opened; else a module or a user's
                          // scope, drawn open
};
struct ScopeCloses {
  Id scope = 0;
};
struct Said {
  std::string text;
};
struct Asked {
  std::string text;
  double answer = 0;
};
struct Plotted {
  std::string series;
  double x = 0, y = 0;
};
struct Printed {
  std::string text;  // stdout and stderr, as they came
};
struct Ended {
  enum class How : std::uint8_t { finished, threw, stopped, exit_code, signal };
  How how = How::finished;
  int number = 0;  // the exit code or the signal
  std::string text;
};
struct Paused {};  // a lesson's step(): whoever plays the run stops here
struct Pictured {  // a matrix as a picture, row by row; a larger one in block means
  static constexpr std::int64_t most_side = 256;
  std::string title;
  std::int64_t rows = 0, columns = 0;
  std::vector<float> numbers;
};

// A kind stands in the bytes as its place in this list: new ones come at the end.
using What = std::variant<Made, Op, Failed, PassBegins, PassEnds, Arrived, Hooked, Landed, Wrote,
                          LetGo, Named, ScopeOpens, ScopeCloses, Said, Asked, Plotted, Printed,
                          Ended, Paused, Pictured>;

struct Event {
  What what;
  Line line;
  Id scope = 0;  // the innermost open scope
};

// ---- The trace ----------------------------------------------------------------------------------
// A list that grows at its end. A copy shares every full chunk with the original and copies
// the pointers of at most one: publishing a list of a million elements to another thread costs
// about a thousand pointers, not a million.
template <class T>
class Growing {
 public:
  using Pointer = std::shared_ptr<const T>;
  static constexpr std::size_t chunk_size = 1024;

  std::size_t size() const { return full_.size() * chunk_size + last_.size(); }
  bool empty() const { return size() == 0; }
  const Pointer& operator[](std::size_t i) const {
    std::size_t chunk = i / chunk_size;
    return chunk < full_.size() ? (*full_[chunk])[i % chunk_size] : last_[i % chunk_size];
  }
  const Pointer& back() const { return (*this)[size() - 1]; }
  void push_back(Pointer element) {
    last_.push_back(std::move(element));
    if (last_.size() < chunk_size) return;
    full_.push_back(std::make_shared<const Chunk>(std::move(last_)));
    last_.clear();
  }
  // The elements from `begin` up to `end` become null pointers; all others keep their places.
  void forget(std::size_t begin, std::size_t end) {
    for (std::size_t chunk = begin / chunk_size; chunk * chunk_size < end; ++chunk) {
      std::size_t first = chunk * chunk_size;
      bool full = chunk < full_.size();
      Chunk changed = full ? *full_[chunk] : std::move(last_);  // other lists may share a full one
      for (std::size_t i = std::max(begin, first); i < std::min(end, first + chunk_size); ++i)
        changed.at(i - first) = nullptr;
      if (full)
        full_[chunk] = std::make_shared<const Chunk>(std::move(changed));
      else
        last_ = std::move(changed);
    }
  }

  struct Iterator {  // enough for a range-based for
    const Growing* list;
    std::size_t i;
    const Pointer& operator*() const { return (*list)[i]; }
    Iterator& operator++() { return ++i, *this; }
    bool operator==(const Iterator&) const = default;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  using Chunk = std::vector<Pointer>;
  std::vector<std::shared_ptr<const Chunk>> full_;
  Chunk last_;
};

struct SnapshotKey {
  Id storage = 0;
  std::int64_t version = 0;
  auto operator<=>(const SnapshotKey&) const = default;
};

// The snapshots by their key; the first one of a key stays. Kept as sorted runs, each more than
// twice as long as the next: a look-up is a binary search in each of the few runs, and a copy
// shares them all.
class Snapshots {
 public:
  void insert(std::shared_ptr<const Snapshot> snapshot) {
    if (find(key(*snapshot))) return;
    Run last{std::move(snapshot)};
    while (!runs_.empty() && runs_.back()->size() <= 2 * last.size()) {
      Run merged;
      merged.reserve(runs_.back()->size() + last.size());
      std::merge(runs_.back()->begin(), runs_.back()->end(), last.begin(), last.end(),
                 std::back_inserter(merged),
                 [](const auto& a, const auto& b) { return key(*a) < key(*b); });
      last = std::move(merged);
      runs_.pop_back();
    }
    runs_.push_back(std::make_shared<const Run>(std::move(last)));
  }
  const Snapshot* find(SnapshotKey wanted) const {
    for (const auto& run : runs_) {
      auto found =
          std::lower_bound(run->begin(), run->end(), wanted,
                           [](const auto& one, const SnapshotKey& k) { return key(*one) < k; });
      if (found != run->end() && key(**found) == wanted) return found->get();
    }
    return nullptr;
  }
  std::size_t size() const {
    std::size_t count = 0;
    for (const auto& run : runs_) count += run->size();
    return count;
  }
  template <class Predicate>
  void erase_if(Predicate unwanted) {
    std::vector<std::shared_ptr<const Run>> all;
    all.swap(runs_);
    for (const auto& run : all) {
      Run kept;
      for (const auto& snapshot : *run)
        if (!unwanted(*snapshot)) kept.push_back(snapshot);
      if (!kept.empty()) runs_.push_back(std::make_shared<const Run>(std::move(kept)));
    }
  }
  template <class Visit>
  void for_each(Visit visit) const {  // in no particular order
    for (const auto& run : runs_)
      for (const auto& snapshot : *run) visit(*snapshot);
  }

 private:
  using Run = std::vector<std::shared_ptr<const Snapshot>>;
  static SnapshotKey key(const Snapshot& snapshot) { return {snapshot.storage, snapshot.version}; }
  std::vector<std::shared_ptr<const Run>> runs_;
};

// Grows at its end only. Events and snapshots are immutable once added, and a copy shares them: it
// is cheap enough to be published to another thread thirty times a second.
struct Trace {
  Growing<Event> events;  // elements are std::shared_ptr<const Event>; null: not kept
  Snapshots snapshots;
  std::map<std::string, OpFacts> facts;
  std::map<std::string, std::string> sources;  // path -> text

  const Snapshot* find(const Seen& seen) const {
    return snapshots.find({seen.storage, seen.version});
  }
};

// ---- The stream: the same bytes cross the pipe and stand in a trace file ------------------------

using Record = std::variant<Event, Snapshot, OpFacts,
                            std::pair<std::string, std::string> /* source: path, text */>;

std::string encode(const Record&);  // throws nothing; the bytes of one record, without framing
Record decode(const char* bytes,
              std::size_t n);  // throws std::runtime_error with one sentence on malformed bytes
void add(Trace&, Record&&);

}  // namespace viewer
