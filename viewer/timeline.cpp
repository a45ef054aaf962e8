#include "viewer/timeline.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lessons/words.hpp"

namespace viewer {

// ---- Values --------------------------------------------------------------------------------------

namespace {

std::size_t size_of(DType dtype) {
  if (dtype == DType::boolean) return 1;
  return dtype == DType::float32 ? 4 : 8;
}

template <class T>
T element(const std::vector<std::byte>& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// An expanded view can have any number of elements over a storage of one: beyond this many they are
// not listed.
constexpr std::int64_t most_elements = std::int64_t{1} << 16;

// The number of elements, or none if it is more than `most_elements`.
std::optional<std::int64_t> small_count(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) {
    if (size == 0) return 0;
    if (size > most_elements / count) return std::nullopt;
    count *= size;
  }
  return count;
}

// The elements that a window shows of a storage, row by row; none if it reaches outside.
std::optional<std::vector<std::byte>> through_window(const Seen& window, const Snapshot& storage,
                                                     std::int64_t count) {
  const std::size_t size = size_of(storage.dtype), rank = window.shape.size();
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size);
  Shape index(rank, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    // Unsigned, so that offsets of any size wrap around instead of overflowing.
    auto place = static_cast<std::uint64_t>(window.offset);
    for (std::size_t axis = 0; axis < rank; ++axis)
      place += static_cast<std::uint64_t>(index[axis]) *
               static_cast<std::uint64_t>(window.strides[axis]);
    if (place >= static_cast<std::uint64_t>(storage.count)) return std::nullopt;
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * size,
                storage.bytes.data() + static_cast<std::size_t>(place) * size, size);
    for (std::size_t axis = rank; axis-- > 0;) {
      if (++index[axis] < window.shape[axis]) break;
      index[axis] = 0;
    }
  }
  return bytes;
}

Value unknown(const Seen& seen, std::string why) {
  Value value;
  value.dtype = seen.dtype;
  value.shape = seen.shape;
  value.note = std::move(why);
  return value;
}

Value read_window(const Seen& seen, const Snapshot* storage) {
  if (storage == nullptr) return unknown(seen, "changed, not kept");
  if (seen.dtype != storage->dtype) return unknown(seen, "not kept");
  Value value = unknown(seen, "");
  if (!storage->in_full()) {
    value.kept = Value::Kept::statistics;
    value.statistics = storage->statistics;
    if (storage->count <= Snapshot::kept_in_full) value.note = "the budget is used up";
    return value;
  }
  const std::optional<std::int64_t> count = small_count(seen.shape);
  if (!count) return unknown(seen, "too many elements to list");
  std::optional<std::vector<std::byte>> bytes = through_window(seen, *storage, *count);
  if (!bytes) return unknown(seen, "not kept");
  value.kept = Value::Kept::in_full;
  value.bytes = std::move(*bytes);
  return value;
}

template <class T>
void add_elements(std::vector<std::byte>& sum, const std::vector<std::byte>& term) {
  for (std::size_t i = 0; i < sum.size() / sizeof(T); ++i) {
    const T total = static_cast<T>(element<T>(sum, i) + element<T>(term, i));
    std::memcpy(sum.data() + i * sizeof(T), &total, sizeof(T));
  }
}

// As the program adds gradients: element by element, in their dtype.
void add_to(Value& sum, const Value& term) {
  const bool possible = sum.kept == Value::Kept::in_full && term.kept == Value::Kept::in_full &&
                        sum.dtype == term.dtype && sum.shape == term.shape;
  if (possible && sum.dtype == DType::float32)
    add_elements<float>(sum.bytes, term.bytes);
  else if (possible && sum.dtype == DType::float64)
    add_elements<double>(sum.bytes, term.bytes);
  else {
    sum.kept = Value::Kept::nothing;
    sum.bytes.clear();
    sum.note = "too large to be added up here";
  }
}

}  // namespace

std::int64_t Value::count() const {
  std::uint64_t product = 1;  // unsigned: a shape in a file may be anything
  for (std::int64_t size : shape) product *= static_cast<std::uint64_t>(size);
  return static_cast<std::int64_t>(product);
}

double Value::at(std::size_t i) const {
  switch (dtype) {
    case DType::float32:
      return element<float>(bytes, i);
    case DType::float64:
      return element<double>(bytes, i);
    case DType::int64:
      return static_cast<double>(element<std::int64_t>(bytes, i));
    case DType::boolean:
      return element<std::uint8_t>(bytes, i) != 0;
  }
  return 0;
}

std::string Value::text(std::size_t i, int room) const {
  if (dtype == DType::boolean) return at(i) != 0 ? "true" : "false";
  if (dtype != DType::int64) return words::field(at(i), true, room);
  std::string digits = std::to_string(element<std::int64_t>(bytes, i));
  return digits.size() <= static_cast<std::size_t>(room) ? digits
                                                         : words::field(at(i), false, room);
}

bool Value::operator==(const Value& other) const {
  const auto numbers = [](const Statistics& s) {
    return std::array<double, 6>{
        s.min, s.max, s.mean, s.std, static_cast<double>(s.nan), static_cast<double>(s.inf)};
  };
  const auto mine = numbers(statistics), theirs = numbers(other.statistics);
  return kept == other.kept && dtype == other.dtype && shape == other.shape &&
         bytes == other.bytes && note == other.note &&
         std::memcmp(mine.data(), theirs.data(), sizeof mine) == 0;
}

// ---- Variables on source lines -------------------------------------------------------------------

namespace {

// What a line of source assigns: `auto z = x * y;` assigns z, `auto [v, i] = x.max(0);` v and i.
struct Assignment {
  std::vector<std::string> names;
  bool uses_itself = false;  // h = h * w + x
  int operations = 0;        // on its right side, as far as the text tells
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return text;
}

std::string_view line_of_text(std::string_view text, int number) {
  for (int line = 1; line < number; ++line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

// Calls `at` with each character outside parentheses, braces and brackets, and its place.
template <class At>
void for_each_outside(std::string_view text, At at) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ')' || c == '}' || c == ']') --depth;
    if (depth <= 0) at(i, c);
    if (c == '(' || c == '{' || c == '[') ++depth;
  }
}

// The places of assigning '=' signs outside parentheses.
std::vector<std::size_t> assignments_in(std::string_view text) {
  std::vector<std::size_t> found;
  for_each_outside(text, [&](std::size_t i, char c) {
    const char before = i > 0 ? text[i - 1] : ' ', after = i + 1 < text.size() ? text[i + 1] : ' ';
    if (c == '=' && after != '=' &&
        std::string_view("=!<>+-*/%&|^").find(before) == std::string::npos)
      found.push_back(i);
  });
  return found;
}

// The variables that stand on the left of an '='.
std::vector<std::string> assigned_names(std::string_view left) {
  left = trimmed(left);
  std::vector<std::string> names;
  const std::size_t bracket = left.rfind('[');
  if (!left.empty() && left.back() == ']' && bracket != std::string_view::npos) {
    if (left.substr(0, bracket).find("auto") == std::string_view::npos) return {};  // x[0] = ...
    left = left.substr(bracket + 1, left.size() - bracket - 2);
    while (!left.empty()) {
      const std::size_t comma = std::min(left.find(','), left.size());
      names.emplace_back(trimmed(left.substr(0, comma)));
      left.remove_prefix(std::min(comma + 1, left.size()));
    }
    return names;
  }
  std::size_t begin = left.size();
  while (begin > 0 && is_word(left[begin - 1])) --begin;
  if (begin < left.size() && !std::isdigit(static_cast<unsigned char>(left[begin])))
    names.emplace_back(left.substr(begin));
  return names;
}

bool mentions(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const bool begins = at == 0 || !is_word(text[at - 1]);
    const std::size_t end = at + word.size();
    if (begins && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

// How many tensors an expression makes on its way, as far as its text tells: one a call, index or
// sign between two operands.
int operations_in(std::string_view text) {
  static constexpr std::array<std::string_view, 14> not_operations = {
      "grad",  "item",   "named", "requires_grad_", "size",        "dim",  "numel", "data",
      "float", "double", "int",   "int64_t",        "static_cast", "shape"};
  int count = 0;
  char before = '(';  // the last character that is not blank
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (std::isspace(static_cast<unsigned char>(c))) continue;
    const bool after_operand = is_word(before) || before == ')' || before == ']';
    if (is_word(c)) {
      const std::size_t begin = i;
      while (i + 1 < text.size() && (is_word(text[i + 1]) || text[i + 1] == '.') &&
             (std::isdigit(static_cast<unsigned char>(c)) || text[i + 1] != '.'))
        ++i;
      const std::string_view word = text.substr(begin, i + 1 - begin);
      const bool called = i + 1 < text.size() && text[i + 1] == '(';
      if (called &&
          std::find(not_operations.begin(), not_operations.end(), word) == not_operations.end())
        ++count;
    } else if (after_operand && std::string_view("+-*/[").find(c) != std::string_view::npos) {
      ++count;
    }
    before = text[i];
  }
  return count;
}

Assignment assignment_on(std::string_view line) {
  line = line.substr(0, line.find("//"));
  const std::vector<std::size_t> signs = assignments_in(line);
  if (signs.size() != 1) return {};  // several statements: nobody can tell which one it was
  Assignment found;
  found.names = assigned_names(line.substr(0, signs[0]));
  const std::string_view right = trimmed(line.substr(signs[0] + 1));
  if (right.starts_with('[')) return {};  // a lambda: what it computes has other names
  for (const std::string& name : found.names)
    found.uses_itself = found.uses_itself || mentions(right, name);
  found.operations = operations_in(right);
  return found;
}

}  // namespace

// ---- Episodes ------------------------------------------------------------------------------------

namespace {

// Tells where episodes begin. An episode begins with the first recorded op after a pass has ended
// that uses no result of the current episode; or with the closed box that this op is in.
class EpisodeRule {
 public:
  struct Opened {
    Id scope;
    bool composed;
    std::size_t event;
  };

  // Reads the next event (null: not kept). Answers the event with which a new episode begins, if
  // this one shows that it does.
  std::optional<std::size_t> read(std::size_t index, const Event* event) {
    if (event == nullptr) {  // an episode that has gone, and its passes with it
      pass_ended(index);
      return std::nullopt;
    }
    if (auto* opens = std::get_if<ScopeOpens>(&event->what))
      open_.push_back({opens->scope, opens->composed, index});
    if (auto* closes = std::get_if<ScopeCloses>(&event->what)) close(closes->scope);
    if (std::holds_alternative<PassBegins>(event->what)) in_pass_ = true;
    if (std::holds_alternative<PassEnds>(event->what)) pass_ended(index);
    auto* op = std::get_if<Op>(&event->what);
    if (op == nullptr) return std::nullopt;
    std::optional<std::size_t> begin;
    if (begins_with(*op)) {
      begin = outermost_box_or(index);
      results_.clear();
      passed_at_.reset();
    }
    for (const Seen& output : op->outputs)
      if (!output.is_leaf) results_.insert(output.tensor);
    return begin;
  }

  std::span<const Opened> open() const { return open_; }
  bool in_pass() const { return in_pass_; }

 private:
  void pass_ended(std::size_t index) {
    in_pass_ = false;
    passed_at_ = index;
  }
  bool begins_with(const Op& op) const {
    if (op.node == 0 || !passed_at_ || in_pass_) return false;
    return std::none_of(op.inputs.begin(), op.inputs.end(),
                        [this](const Seen& input) { return results_.contains(input.tensor); });
  }
  std::size_t outermost_box_or(std::size_t index) const {
    for (const Opened& scope : open_)
      if (scope.composed && scope.event > *passed_at_) return scope.event;
    return index;
  }
  void close(Id scope) {
    auto opened = std::find_if(open_.rbegin(), open_.rend(),
                               [scope](const Opened& o) { return o.scope == scope; });
    if (opened != open_.rend()) open_.erase(opened.base() - 1, open_.end());
  }

  std::unordered_set<Id> results_;        // non-leaf tensors of the current episode
  std::optional<std::size_t> passed_at_;  // where a pass of this episode has ended
  bool in_pass_ = false;
  std::vector<Opened> open_;
};

}  // namespace

bool schedule_keeps(int number) {
  int every = 1;
  while (number / every >= 64) every *= 2;
  return number % every == 0;
}

// ---- The index: where each thing is concerned ------------------------------------------------------

namespace {

// All lists hold events, in ascending order.
using Events = std::vector<std::size_t>;

// The last event of a sorted list before `cut`; the first at or after it.
std::optional<std::size_t> last_before(const Events& list, std::size_t cut) {
  auto at = std::lower_bound(list.begin(), list.end(), cut);
  return at == list.begin() ? std::nullopt : std::optional(*std::prev(at));
}
std::optional<std::size_t> first_from(const Events& list, std::size_t cut) {
  auto at = std::lower_bound(list.begin(), list.end(), cut);
  return at == list.end() ? std::nullopt : std::optional(*at);
}

// Where a tensor was made among the ops of one source line, for its name. A *run* is an unbroken
// row of ops on one line; a composed op counts as one *unit* of it.
struct OnLine {
  Line line;
  std::size_t run = 0;
  int unit = 0;                                    // its place in the run, from 0
  int output = 0;                                  // which of the op's results
  bool used_in_run = false, used_in_unit = false;  // by a later op of the same run or unit
};

struct TensorTrack {
  Seen first;
  std::size_t born = 0;  // from the event after this one on it exists, if `birth_seen`
  bool birth_seen = false;
  Events makers;  // ops that it results from; more than one if it is written in place
  std::string given_name;
  Id gradient_of = 0;
  OnLine on_line;
  std::vector<Use> uses;
  Events arrivals, hooks;
  Events settled;  // landed and let go
  Events roots;    // passes that begin at it
  bool asked_for = false;
};

struct StorageTrack {
  struct Version {
    std::size_t event;
    std::int64_t version;
    std::int64_t before;  // what it was until then
  };
  std::vector<Version> versions;
};

struct NodeTrack {
  std::size_t op = 0;
  Events arrivals;
};

struct PassTrack {
  std::size_t begin = 0;
  std::optional<std::size_t> end;
};

struct ScopeTrack {
  ScopeOpens opens;
  Id parent = 0;
  Id box = 0;  // the outermost scope around it, or itself, that is closed by default; or 0
  std::size_t opened = 0;
  std::optional<std::size_t> last_step;
};

}  // namespace

struct Timeline::Index {
  explicit Index(Timeline& timeline) : owner(&timeline) {}

  Timeline* owner;
  std::size_t unread = 0;  // the first event that has not been read
  EpisodeRule rule;
  std::unordered_map<Id, TensorTrack> tensors;
  std::unordered_map<Id, StorageTrack> storages;
  std::unordered_map<Id, NodeTrack> nodes;
  std::unordered_map<Id, ScopeTrack> scopes;
  std::map<std::int64_t, PassTrack> passes;
  Events ops, failures, makings, words, pass_begins;
  std::map<std::pair<std::string, int>, Events> lines;    // ops on a source line
  std::vector<std::pair<std::size_t, std::size_t>> gaps;  // events of episodes that were not kept
  std::string printed;
  std::vector<std::pair<std::size_t, std::size_t>> printed_until;  // event, length
  bool over_budget = false;
  std::optional<std::size_t> ended;

  // For the names of the tensors on the line that is being executed.
  OnLine current;
  std::uint64_t current_unit = 0;
  mutable std::map<std::pair<std::string, int>, Assignment> assignments;

  const Event* event(std::size_t i) const {
    const auto& events = owner->trace_->events;
    return i < events.size() ? events[i].get() : nullptr;
  }
  template <class What>
  const What* get(std::size_t i) const {
    const Event* found = event(i);
    return found == nullptr ? nullptr : std::get_if<What>(&found->what);
  }
  const TensorTrack* track(Id tensor) const {
    auto found = tensors.find(tensor);
    return found == tensors.end() || tensor == 0 ? nullptr : &found->second;
  }

  // ---- Reading events

  void read_new();
  void read(std::size_t i, const Event& event);
  void read(std::size_t i, const Event& event, const Made& made);
  void read(std::size_t i, const Event& event, const Op& op);
  void read(std::size_t i, const Event& event, const Failed& failed);
  void read(std::size_t i, const Event& event, const PassBegins& begins);
  void read(std::size_t i, const Event& event, const PassEnds& ends);
  void read(std::size_t i, const Event& event, const Arrived& arrived);
  void read(std::size_t i, const Event& event, const Hooked& hooked);
  void read(std::size_t i, const Event& event, const Landed& landed);
  void read(std::size_t i, const Event& event, const Wrote& wrote);
  void read(std::size_t i, const Event& event, const LetGo& let_go);
  void read(std::size_t i, const Event& event, const Named& named);
  void read(std::size_t i, const Event& event, const ScopeOpens& opens);
  void read(std::size_t i, const Event& event, const ScopeCloses& closes);
  void read(std::size_t i, const Event& event, const Said& said);
  void read(std::size_t i, const Event& event, const Asked& asked);
  void read(std::size_t i, const Event& event, const Plotted& plotted);
  void read(std::size_t i, const Event& event, const Printed& text);
  void read(std::size_t i, const Event& event, const Ended& how);

  TensorTrack& see(std::size_t i, const Seen& seen);
  void see_version(std::size_t i, const Seen& seen, std::optional<std::int64_t> before = {});
  void born(std::size_t i, const Event& event, const Seen& seen, int output);
  void enter_line(std::size_t i, const Event& event);
  void begin_episode(std::size_t at);
  void settle(Episode& episode);
  void add_step(std::size_t i, const Event& event, bool visible);
  void number(Step& step, bool visible);
  void end_box(const ScopeTrack& scope);

  // ---- Questions

  Id box_of(Id scope) const;
  bool is_open(Id scope, const Toggled& toggled) const;
  std::optional<Id> closed_around(Id scope, const Toggled& toggled) const;
  std::optional<Id> hidden_in(Id tensor, const Toggled& toggled) const;
  bool gap_between(std::size_t begin, std::size_t end) const;
  std::int64_t version_at(Id storage, std::size_t cut) const;
  const Assignment& assignment(const Line& line) const;
  std::optional<std::string> variable(const TensorTrack& tensor) const;
  std::string name(Id tensor, int depth) const;
  std::string expression(std::size_t op, int depth) const;
  words::Letters names_of_inputs(const Op& op, int depth) const;
  words::Letters numbers_of(const Op& op) const;

  std::pair<Events::const_iterator, Events::const_iterator> in_pass(const Events& list,
                                                                    std::int64_t pass) const;
  std::optional<Value> seed(const TensorTrack& tensor, std::int64_t pass) const;
  std::optional<Value> sum(const TensorTrack& tensor, std::int64_t pass, std::size_t cut) const;
  bool more_to_come(const TensorTrack& tensor, std::int64_t pass, std::size_t cut) const;
  std::optional<Value> held(const TensorTrack& tensor, std::size_t cut) const;
  Gradient gradient(Id tensor, std::size_t cut, std::optional<std::int64_t> pass) const;
  std::optional<double> letter(const Op& op, const Arrived& arrived, std::size_t i,
                               std::string_view name, std::size_t element) const;
  std::string numbers(std::size_t i, std::optional<std::size_t> element) const;
  Contribution row(std::size_t op, int slot, std::int64_t pass) const;
  std::vector<Use> still_expected(const TensorTrack& tensor, std::size_t begin, std::size_t end,
                                  std::int64_t pass) const;
};

Timeline::Timeline() : index_(std::make_unique<Index>(*this)) {}
Timeline::~Timeline() = default;
Timeline::Timeline(Timeline&& other) noexcept
    : trace_(std::move(other.trace_)),
      steps_(std::move(other.steps_)),
      episodes_(std::move(other.episodes_)),
      index_(std::move(other.index_)) {
  index_->owner = this;
}
Timeline& Timeline::operator=(Timeline&& other) noexcept {
  trace_ = std::move(other.trace_);
  steps_ = std::move(other.steps_);
  episodes_ = std::move(other.episodes_);
  index_ = std::move(other.index_);
  index_->owner = this;
  return *this;
}

void Timeline::extend(std::shared_ptr<const Trace> trace) {
  if (trace == nullptr || trace == trace_) return;
  trace_ = std::move(trace);
  index_->read_new();
}

void Timeline::Index::read_new() {
  const std::size_t size = owner->trace_->events.size();
  for (; unread < size; ++unread) {
    const Event* event = this->event(unread);
    if (std::optional<std::size_t> begin = rule.read(unread, event)) begin_episode(*begin);
    if (event != nullptr) read(unread, *event);
  }
  Episode& episode = owner->episodes_.back();
  episode.event_end = size;
  episode.last = owner->steps_.size();
  episode.ended = ended.has_value();
}

void Timeline::Index::read(std::size_t i, const Event& event) {
  std::visit([&](const auto& what) { read(i, event, what); }, event.what);
}

// Closes the current episode where the new one begins. Steps that have been read already are in the
// box with which it begins, and move into it.
void Timeline::Index::begin_episode(std::size_t at) {
  auto& steps = owner->steps_;
  std::size_t first = steps.size();
  while (first > 0 && steps[first - 1].event >= at) --first;
  Episode& last = owner->episodes_.back();
  for (std::size_t i = first; i < steps.size(); ++i) last.steps -= steps[i].inner == 0;
  last.last = first;
  last.event_end = at;
  last.ended = true;
  settle(last);
  Episode begun;
  begun.first = begun.last = first;
  begun.event_begin = begun.event_end = at;
  owner->episodes_.push_back(begun);
  const std::vector<Step> moved(steps.begin() + static_cast<std::ptrdiff_t>(first), steps.end());
  steps.resize(first);
  for (const Step& step : moved) {
    steps.push_back(step);
    number(steps.back(), step.inner == 0);
  }
}

// An episode that the Keeper has thinned can only be looked at as a whole.
void Timeline::Index::settle(Episode& episode) {
  for (std::size_t i = episode.event_begin; i < episode.event_end && episode.kept; ++i)
    episode.kept = event(i) != nullptr;
  if (episode.kept) return;
  gaps.emplace_back(episode.event_begin, episode.event_end);
  episode.last = episode.first;
}

void Timeline::Index::number(Step& step, bool visible) {
  Episode& episode = owner->episodes_.back();
  const std::size_t before = owner->steps_.size() - 1;  // `step` is the last one
  const bool first = before == episode.first;
  step.episode = static_cast<int>(owner->episodes_.size());
  step.number = visible ? ++episode.steps : episode.steps;
  step.inner = visible ? 0 : first ? 1 : owner->steps_[before - 1].inner + 1;
  episode.last = owner->steps_.size();
}

void Timeline::Index::add_step(std::size_t i, const Event& event, bool visible) {
  auto& steps = owner->steps_;
  steps.emplace_back();
  steps.back().event = i;
  steps.back().phase = rule.in_pass() ? Phase::backward : Phase::forward;
  number(steps.back(), visible);
  for (Id scope = event.scope; scope != 0;) {
    auto found = scopes.find(scope);
    if (found == scopes.end()) break;
    found->second.last_step = steps.size() - 1;
    scope = found->second.parent;
  }
}

// The last step in a box that is closed by default is the one that is seen.
void Timeline::Index::end_box(const ScopeTrack& scope) {
  auto& steps = owner->steps_;
  if (steps.empty() || scope.last_step != steps.size() - 1 || steps.back().inner == 0) return;
  number(steps.back(), true);
}

TensorTrack& Timeline::Index::see(std::size_t i, const Seen& seen) {
  if (seen.tensor != 0) see_version(i, seen);  // 0: an optional input that was left out
  auto [found, fresh] = tensors.try_emplace(seen.tensor);
  if (fresh) found->second.first = seen;
  if (!seen.name.empty()) found->second.given_name = seen.name;
  return found->second;
}

void Timeline::Index::see_version(std::size_t i, const Seen& seen,
                                  std::optional<std::int64_t> before) {
  auto& versions = storages[seen.storage].versions;
  if (!versions.empty() && versions.back().version >= seen.version) return;
  versions.push_back({i, seen.version, before.value_or(seen.version)});
}

void Timeline::Index::born(std::size_t i, const Event& event, const Seen& seen, int output) {
  const bool fresh = !tensors.contains(seen.tensor);
  TensorTrack& tensor = see(i, seen);
  if (!fresh) return;  // written in place
  tensor.born = i;
  tensor.birth_seen = true;
  tensor.on_line = current;
  tensor.on_line.line = event.line;
  tensor.on_line.output = output;
}

void Timeline::Index::enter_line(std::size_t i, const Event& event) {
  const Id box = box_of(event.scope);
  const std::uint64_t unit = box != 0 ? box : std::uint64_t{i} | (std::uint64_t{1} << 63);
  if (!(current.line == event.line)) {
    current = OnLine{};
    current.line = event.line;
    current.run = i + 1;
  } else if (unit != current_unit) {
    ++current.unit;
  }
  current_unit = unit;
}

void Timeline::Index::read(std::size_t i, const Event& event, const Made& made) {
  enter_line(i, event);
  born(i, event, made.tensor, 0);
  makings.push_back(i);
  add_step(i, event, box_of(event.scope) == 0);
}

void Timeline::Index::read(std::size_t i, const Event& event, const Op& op) {
  enter_line(i, event);
  for (std::size_t slot = 0; slot < op.inputs.size(); ++slot) {
    TensorTrack& input = see(i, op.inputs[slot]);
    input.uses.push_back({i, static_cast<int>(slot)});
    if (input.on_line.run == current.run && current.run != 0) {
      input.on_line.used_in_run = true;
      input.on_line.used_in_unit |= input.on_line.unit == current.unit;
    }
  }
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    const Seen& output = op.outputs[k];
    born(i, event, output, static_cast<int>(k));
    tensors[output.tensor].makers.push_back(i);
    const Snapshot* snapshot = owner->trace_->find(output);
    over_budget |=
        snapshot != nullptr && !snapshot->in_full() && snapshot->count <= Snapshot::kept_in_full;
  }
  if (op.node != 0) nodes[op.node].op = i;
  ops.push_back(i);
  lines[{event.line.file, event.line.number}].push_back(i);
  add_step(i, event, box_of(event.scope) == 0);
}

void Timeline::Index::read(std::size_t i, const Event& event, const Failed& failed) {
  for (const Seen& input : failed.inputs) see(i, input);
  failures.push_back(i);
  add_step(i, event, true);
}

void Timeline::Index::read(std::size_t i, const Event& event, const PassBegins& begins) {
  passes[begins.pass].begin = i;
  pass_begins.push_back(i);
  for (const Seen& root : begins.roots) {
    Events& roots = see(i, root).roots;
    if (roots.empty() || roots.back() != i) roots.push_back(i);
  }
  for (const Seen& asked : begins.asked) see(i, asked).asked_for = true;
  add_step(i, event, true);
}

void Timeline::Index::read(std::size_t i, const Event&, const PassEnds& ends) {
  passes[ends.pass].end = i;
}

void Timeline::Index::read(std::size_t i, const Event& event, const Arrived& arrived) {
  nodes[arrived.node].arrivals.push_back(i);
  tensors[arrived.to].arrivals.push_back(i);
  add_step(i, event, !hidden_in(arrived.to, {}));
}

void Timeline::Index::read(std::size_t i, const Event& event, const Hooked& hooked) {
  tensors[hooked.tensor].hooks.push_back(i);
  add_step(i, event, !hidden_in(hooked.tensor, {}));
}

void Timeline::Index::read(std::size_t i, const Event& event, const Landed& landed) {
  tensors[landed.tensor].settled.push_back(i);
  const bool fresh = !tensors.contains(landed.after.tensor);
  TensorTrack& gradient = see(i, landed.after);
  gradient.gradient_of = landed.tensor;
  if (fresh) {
    gradient.born = i;
    gradient.birth_seen = true;
  }
  add_step(i, event, !hidden_in(landed.tensor, {}));
}

void Timeline::Index::read(std::size_t i, const Event& event, const Wrote& wrote) {
  see_version(i, wrote.tensor, wrote.version_before);
  see(i, wrote.tensor);
  if (wrote.node == 0) add_step(i, event, box_of(event.scope) == 0);
}

void Timeline::Index::read(std::size_t i, const Event& event, const LetGo& let_go) {
  tensors[let_go.tensor].settled.push_back(i);
  add_step(i, event, box_of(event.scope) == 0);
}

void Timeline::Index::read(std::size_t, const Event&, const Named& named) {
  tensors[named.tensor].given_name = named.name;
}

void Timeline::Index::read(std::size_t i, const Event&, const ScopeOpens& opens) {
  auto [found, fresh] = scopes.try_emplace(opens.scope);
  if (!fresh) return;
  const auto open = rule.open();  // with this one at its end
  const Id parent = open.size() > 1 ? open[open.size() - 2].scope : 0;
  const Id outer_box = box_of(parent);
  const Id own_box = opens.composed ? opens.scope : 0;
  found->second = {opens, parent, outer_box != 0 ? outer_box : own_box, i, {}};
}

void Timeline::Index::read(std::size_t, const Event&, const ScopeCloses& closes) {
  auto found = scopes.find(closes.scope);
  if (found != scopes.end() && found->second.box == closes.scope) end_box(found->second);
}

void Timeline::Index::read(std::size_t i, const Event&, const Said&) { words.push_back(i); }
void Timeline::Index::read(std::size_t i, const Event&, const Asked&) { words.push_back(i); }
void Timeline::Index::read(std::size_t, const Event&, const Plotted&) {}

void Timeline::Index::read(std::size_t i, const Event&, const Printed& text) {
  printed += text.text;
  printed_until.emplace_back(i, printed.size());
}

void Timeline::Index::read(std::size_t i, const Event&, const Ended&) {
  ended = i;
  for (const EpisodeRule::Opened& open : rule.open()) {
    const ScopeTrack& scope = scopes[open.scope];
    if (scope.box == open.scope) end_box(scope);
  }
}

bool Timeline::over_budget() const { return index_->over_budget; }

const Ended* Timeline::ended() const {
  return index_->ended ? index_->get<Ended>(*index_->ended) : nullptr;
}

// ---- Steps and episodes --------------------------------------------------------------------------

namespace {
// The first event that has not happened yet when the cursor stands at `position`.
std::size_t cut_at(const Timeline& timeline, std::size_t position) {
  const auto steps = timeline.steps();
  return position < steps.size() ? steps[position].event : timeline.trace().events.size();
}
}  // namespace

Cursor Timeline::start(int episode) const {
  return {episode, this->episode(std::clamp(episode, 1, static_cast<int>(episodes_.size()))).first};
}

Cursor Timeline::end(int episode) const {
  return {episode, this->episode(std::clamp(episode, 1, static_cast<int>(episodes_.size()))).last};
}

Cursor Timeline::clamp(Cursor cursor) const {
  cursor.episode = std::clamp(cursor.episode, 1, static_cast<int>(episodes_.size()));
  const Episode& episode = this->episode(cursor.episode);
  cursor.position = std::clamp(cursor.position, episode.first, episode.last);
  return cursor;
}

Cursor Timeline::at(int episode, std::int64_t number) const {
  Cursor cursor = clamp({episode, 0});
  const Episode& found = this->episode(cursor.episode);
  const auto begin = steps_.begin() + static_cast<std::ptrdiff_t>(found.first);
  const auto end = steps_.begin() + static_cast<std::ptrdiff_t>(found.last);
  // Hidden steps follow the one whose number they have, so the first of a number is the seen one.
  auto step = std::lower_bound(begin, end, std::max<std::int64_t>(number, 0),
                               [](const Step& s, std::int64_t n) { return s.number < n; });
  if (number <= 0) return cursor;
  cursor.position = static_cast<std::size_t>(step - steps_.begin()) + (step == end ? 0 : 1);
  return cursor;
}

bool Timeline::visible(std::size_t step, const Toggled& toggled) const {
  if (toggled.empty()) return steps_[step].inner == 0;
  const Event* event = index_->event(steps_[step].event);
  if (event == nullptr) return false;
  if (auto* arrived = std::get_if<Arrived>(&event->what)) return !hidden_in(arrived->to, toggled);
  if (auto* hooked = std::get_if<Hooked>(&event->what)) return !hidden_in(hooked->tensor, toggled);
  if (auto* landed = std::get_if<Landed>(&event->what)) return !hidden_in(landed->tensor, toggled);
  if (std::holds_alternative<Failed>(event->what)) return true;
  const std::optional<Id> closed = index_->closed_around(event->scope, toggled);
  return !closed || index_->scopes.at(*closed).last_step == step;
}

Cursor Timeline::next(Cursor cursor, const Toggled& toggled) const {
  cursor = clamp(cursor);
  const std::size_t end = episode(cursor.episode).last;
  for (std::size_t step = cursor.position; step < end; ++step)
    if (visible(step, toggled)) return {cursor.episode, step + 1};
  return {cursor.episode, end};
}

Cursor Timeline::previous(Cursor cursor, const Toggled& toggled) const {
  cursor = clamp(cursor);
  const std::size_t begin = episode(cursor.episode).first;
  // Back over the step that was taken last, to the end of the one before it that is seen.
  for (std::size_t position = cursor.position; position > begin + 1; --position)
    if (visible(position - 2, toggled)) return {cursor.episode, position - 1};
  return {cursor.episode, begin};
}

const Step* Timeline::step(Cursor cursor) const {
  cursor = clamp(cursor);
  return cursor.position == episode(cursor.episode).first ? nullptr : &steps_[cursor.position - 1];
}

std::int64_t Timeline::number(Cursor cursor) const {
  const Step* step = this->step(cursor);
  return step == nullptr ? 0 : step->number;
}

std::string Timeline::label(Cursor cursor) const {
  const Step* step = this->step(cursor);
  if (step == nullptr) return "0";
  const std::string number = std::to_string(step->number);
  return step->inner == 0 ? number : number + "." + std::to_string(step->inner);
}

Phase Timeline::phase(Cursor cursor) const {
  const Step* step = this->step(cursor);
  return step == nullptr ? Phase::forward : step->phase;
}

Line Timeline::line_of(std::size_t event) const {
  const Event* found = index_->event(event);
  return found == nullptr ? Line{} : found->line;
}

Line Timeline::line(Cursor cursor) const {
  const Step* step = this->step(cursor);
  if (step == nullptr) return {};
  const Event* event = index_->event(step->event);
  if (event == nullptr) return {};
  if (auto* arrived = std::get_if<Arrived>(&event->what))
    if (std::optional<std::size_t> op = op_of_node(arrived->node)) return line_of(*op);
  if (event->line.number != 0) return event->line;
  // A gradient lands on the line where its pass began.
  std::optional<std::size_t> begin = last_before(index_->pass_begins, step->event);
  return step->phase == Phase::backward && begin ? line_of(*begin) : event->line;
}

std::vector<std::string> Timeline::said(Cursor cursor) const {
  cursor = clamp(cursor);
  const std::size_t cut = cut_at(*this, cursor.position);
  std::vector<std::string> texts;
  auto word = std::lower_bound(index_->words.begin(), index_->words.end(),
                               episode(cursor.episode).event_begin);
  for (; word != index_->words.end() && *word < cut; ++word) {
    if (auto* said = index_->get<Said>(*word)) texts.push_back(said->text);
    if (auto* asked = index_->get<Asked>(*word)) texts.push_back(asked->text);
  }
  return texts;
}

std::string_view Timeline::printed(Cursor cursor) const {
  const std::size_t cut = cut_at(*this, clamp(cursor).position);
  const auto& until = index_->printed_until;
  auto after =
      std::lower_bound(until.begin(), until.end(), std::pair<std::size_t, std::size_t>(cut, 0));
  if (after == until.begin()) return {};
  return std::string_view(index_->printed).substr(0, std::prev(after)->second);
}

const Failed* Timeline::failure(Cursor cursor) const {
  cursor = clamp(cursor);
  const std::optional<std::size_t> last =
      last_before(index_->failures, cut_at(*this, cursor.position));
  if (!last || *last < episode(cursor.episode).event_begin) return nullptr;
  return index_->get<Failed>(*last);
}

// ---- The graph -----------------------------------------------------------------------------------

EpisodeGraph Timeline::graph(int number) const {
  const Episode& episode = this->episode(number);
  EpisodeGraph graph;
  std::unordered_set<Id> met;
  const auto meet = [&](const Seen& seen) {
    if (seen.tensor != 0 && met.insert(seen.tensor).second) graph.tensors.push_back(seen.tensor);
  };
  for (std::size_t i = episode.event_begin; i < episode.event_end; ++i) {
    if (auto* made = index_->get<Made>(i)) meet(made->tensor);
    if (auto* failed = index_->get<Failed>(i)) {
      graph.failed.push_back(i);
      for (const Seen& input : failed->inputs) meet(input);
    }
    auto* op = index_->get<Op>(i);
    if (op == nullptr) continue;
    graph.ops.push_back(i);
    for (const Seen& input : op->inputs) meet(input);
    for (const Seen& output : op->outputs) meet(output);
  }
  return graph;
}

const Op& Timeline::op(std::size_t event) const {
  static const Op none;
  const Op* found = index_->get<Op>(event);
  return found == nullptr ? none : *found;
}

const OpFacts* Timeline::facts(const std::string& op) const {
  auto found = trace_->facts.find(op);
  return found == trace_->facts.end() ? nullptr : &found->second;
}

std::optional<std::size_t> Timeline::maker(Id tensor) const {
  const TensorTrack* track = index_->track(tensor);
  if (track == nullptr || track->makers.empty()) return std::nullopt;
  const std::size_t first = track->makers.front();
  return index_->event(first) == nullptr ? std::nullopt : std::optional(first);
}

std::optional<std::size_t> Timeline::op_of_node(Id node) const {
  auto found = index_->nodes.find(node);
  if (node == 0 || found == index_->nodes.end()) return std::nullopt;
  return index_->get<Op>(found->second.op) == nullptr ? std::nullopt
                                                      : std::optional(found->second.op);
}

std::vector<Use> Timeline::uses(Id tensor) const {
  std::vector<Use> kept;
  if (const TensorTrack* track = index_->track(tensor))
    for (const Use& use : track->uses)
      if (index_->event(use.op) != nullptr) kept.push_back(use);
  return kept;
}

std::vector<std::size_t> Timeline::ops_on_line(int number, const Line& line) const {
  auto found = index_->lines.find({line.file, line.number});
  if (found == index_->lines.end()) return {};
  const Episode& episode = this->episode(number);
  const Events& all = found->second;
  return {std::lower_bound(all.begin(), all.end(), episode.event_begin),
          std::lower_bound(all.begin(), all.end(), episode.event_end)};
}

const Seen* Timeline::seen(Id tensor) const {
  const TensorTrack* track = index_->track(tensor);
  return track == nullptr || track->first.tensor == 0 ? nullptr : &track->first;
}

bool Timeline::is_leaf(Id tensor) const {
  const Seen* found = seen(tensor);
  return found == nullptr || found->is_leaf;
}

std::vector<Id> Timeline::scopes_around(std::size_t event) const {
  std::vector<Id> around;
  const Event* found = index_->event(event);
  for (Id scope = found == nullptr ? 0 : found->scope; scope != 0;) {
    auto track = index_->scopes.find(scope);
    if (track == index_->scopes.end()) break;
    around.push_back(scope);
    scope = track->second.parent;
  }
  std::reverse(around.begin(), around.end());
  return around;
}

const ScopeOpens* Timeline::scope(Id scope) const {
  auto found = index_->scopes.find(scope);
  return found == index_->scopes.end() ? nullptr : &found->second.opens;
}

Id Timeline::Index::box_of(Id scope) const {
  auto found = scopes.find(scope);
  return found == scopes.end() ? 0 : found->second.box;
}

bool Timeline::Index::is_open(Id scope, const Toggled& toggled) const {
  auto found = scopes.find(scope);
  const bool open = found == scopes.end() || !found->second.opens.composed;
  return open != toggled.contains(scope);
}

std::optional<Id> Timeline::Index::closed_around(Id scope, const Toggled& toggled) const {
  std::optional<Id> closed;
  while (scope != 0) {
    auto found = scopes.find(scope);
    if (found == scopes.end()) break;
    if (!is_open(scope, toggled)) closed = scope;
    scope = found->second.parent;
  }
  return closed;
}

// What is used nowhere but in the box where it was made, and is not the box's last result.
std::optional<Id> Timeline::Index::hidden_in(Id id, const Toggled& toggled) const {
  const TensorTrack* tensor = track(id);
  if (tensor == nullptr || !tensor->birth_seen) return std::nullopt;
  const auto closed_at = [&](std::size_t i) {
    const Event* found = event(i);
    return found == nullptr ? std::nullopt : closed_around(found->scope, toggled);
  };
  const std::optional<Id> box = closed_at(tensor->born);
  if (!box || !tensor->roots.empty() || tensor->asked_for) return std::nullopt;
  if (tensor->uses.empty()) {
    const std::optional<std::size_t> last = scopes.at(*box).last_step;
    return last && owner->steps_[*last].event == tensor->born ? std::nullopt : box;
  }
  for (const Use& use : tensor->uses)
    if (closed_at(use.op) != box) return std::nullopt;
  return box;
}

bool Timeline::is_open(Id scope, const Toggled& toggled) const {
  return index_->is_open(scope, toggled);
}

std::optional<Id> Timeline::closed_around(std::size_t event, const Toggled& toggled) const {
  const Event* found = index_->event(event);
  return found == nullptr ? std::nullopt : index_->closed_around(found->scope, toggled);
}

std::optional<Id> Timeline::hidden_in(Id tensor, const Toggled& toggled) const {
  return index_->hidden_in(tensor, toggled);
}

// ---- Names ---------------------------------------------------------------------------------------

namespace {
// How many formulas may stand inside each other in a name; deeper ones show only their op.
constexpr int deepest_name = 3;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!(text = trimmed(text)).empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

// What an input of an op receives, as the facts state it. An op with any number of inputs has one
// text for all.
std::string_view derivative(const OpFacts* facts, int slot) {
  if (facts == nullptr || slot < 0) return {};
  const auto& all = facts->derivatives;
  if (static_cast<std::size_t>(slot) < all.size()) return all[static_cast<std::size_t>(slot)];
  return all.size() == 1 ? std::string_view(all[0]) : std::string_view();
}

// An op's name for readers: "pow_number" is a pow.
std::string plain_name(const std::string& op) {
  constexpr std::string_view after = "_number", before = "number_";
  if (op.ends_with(after)) return op.substr(0, op.size() - after.size());
  if (op.starts_with(before)) return op.substr(before.size());
  return op;
}

std::string input_letter(std::size_t slot) {
  return slot < 3 ? std::string(1, static_cast<char>('a' + slot)) : "";
}
}  // namespace

const Assignment& Timeline::Index::assignment(const Line& line) const {
  static const Assignment none;
  auto source = owner->trace_->sources.find(line.file);
  if (source == owner->trace_->sources.end() || line.number <= 0) return none;
  auto [found, fresh] = assignments.try_emplace({line.file, line.number});
  if (fresh) found->second = assignment_on(line_of_text(source->second, line.number));
  return found->second;
}

// The variable that a tensor was assigned to: the result of the last op of its line.
std::optional<std::string> Timeline::Index::variable(const TensorTrack& tensor) const {
  const OnLine& place = tensor.on_line;
  if (!tensor.birth_seen || place.used_in_unit) return std::nullopt;
  const Assignment& assigned = assignment(place.line);
  // In `h = h * w + x` an earlier result on the line is used by a later one in either case: within
  // the statement, or in the next turn of the loop. The number of ops tells them apart.
  const bool last = assigned.uses_itself ? (place.unit + 1) % std::max(assigned.operations, 1) == 0
                                         : !place.used_in_run;
  const auto output = static_cast<std::size_t>(place.output);
  if (!last || output >= assigned.names.size()) return std::nullopt;
  return assigned.names[output];
}

std::string Timeline::Index::name(Id id, int depth) const {
  std::string ending;
  const TensorTrack* tensor = track(id);
  for (int i = 0; tensor != nullptr && tensor->gradient_of != 0 && tensor->given_name.empty() &&
                  i < deepest_name;
       ++i) {
    ending += ".grad";
    tensor = track(tensor->gradient_of);
  }
  if (tensor == nullptr) return "tensor" + ending;
  if (!tensor->given_name.empty()) return tensor->given_name + ending;
  if (std::optional<std::string> found = variable(*tensor)) return *found + ending;
  if (tensor->makers.empty()) return "tensor" + ending;
  return expression(tensor->makers.front(), depth) + ending;
}

words::Letters Timeline::Index::names_of_inputs(const Op& op, int depth) const {
  words::Letters names;
  for (std::size_t slot = 0; slot < op.inputs.size(); ++slot)
    if (std::string letter = input_letter(slot); !letter.empty())
      names[letter] = name(op.inputs[slot].tensor, depth);
  return names;
}

words::Letters Timeline::Index::numbers_of(const Op& op) const {
  words::Letters numbers;
  const OpFacts* facts = owner->facts(op.op);
  if (facts == nullptr) return numbers;
  const std::vector<std::string> names = split(facts->attributes);
  for (std::size_t i = 0; i < std::min(names.size(), op.attributes.numbers.size()); ++i)
    numbers[names[i]] = words::number(op.attributes.numbers[i]);
  return numbers;
}

std::string Timeline::Index::expression(std::size_t event, int depth) const {
  const Op& op = owner->op(event);
  const OpFacts* facts = owner->facts(op.op);
  if (depth == 0) return plain_name(op.op);
  words::Letters letters = names_of_inputs(op, depth - 1);
  std::string arguments;
  for (const Seen& input : op.inputs)
    arguments += (arguments.empty() ? "" : ", ") + name(input.tensor, depth - 1);
  if (facts != nullptr) {
    letters.merge(numbers_of(op));
    std::string text = words::put_in(facts->formula, letters);
    if (!text.empty()) return text;
  }
  return plain_name(op.op) + "(" + arguments + ")";
}

std::string Timeline::name(Id tensor) const { return index_->name(tensor, deepest_name); }

bool Timeline::is_named(Id tensor) const {
  const TensorTrack* track = index_->track(tensor);
  return track != nullptr && !track->given_name.empty();
}

std::string Timeline::describe_op(std::size_t event) const {
  const Op& op = this->op(event);
  const std::string text = index_->expression(event, deepest_name);
  if (op.outputs.empty()) return text;
  const Id output = op.outputs[0].tensor;
  const bool in_place = std::any_of(op.inputs.begin(), op.inputs.end(),
                                    [&](const Seen& input) { return input.tensor == output; });
  const std::string result = name(output);
  return in_place || result == text ? text : result + " = " + text;
}

std::string Timeline::circle(std::size_t event) const {
  const Op& op = this->op(event);
  const OpFacts* facts = this->facts(op.op);
  if (facts == nullptr) return op.op;
  return words::circle(op.op, facts->symbol, facts->formula, index_->names_of_inputs(op, 1),
                       index_->numbers_of(op));
}

// ---- The state at a cursor -----------------------------------------------------------------------

bool Timeline::Index::gap_between(std::size_t begin, std::size_t end) const {
  auto gap = std::lower_bound(gaps.begin(), gaps.end(), begin,
                              [](const auto& g, std::size_t at) { return g.second <= at; });
  return gap != gaps.end() && gap->first < end;
}

// The version of a storage when the events before `cut` have happened. Where events in between are
// not kept, what comes next tells more than what was seen last.
std::int64_t Timeline::Index::version_at(Id storage, std::size_t cut) const {
  auto found = storages.find(storage);
  if (found == storages.end() || found->second.versions.empty()) return 0;
  const auto& versions = found->second.versions;
  auto next = std::lower_bound(versions.begin(), versions.end(), cut,
                               [](const auto& v, std::size_t at) { return v.event < at; });
  const bool known = next != versions.begin();
  if (known && (next == versions.end() || !gap_between(std::prev(next)->event, cut)))
    return std::prev(next)->version;
  return next->before;
}

bool Timeline::exists(Cursor cursor, Id tensor) const {
  const TensorTrack* track = index_->track(tensor);
  if (track == nullptr) return false;
  return !track->birth_seen || track->born < cut_at(*this, clamp(cursor).position);
}

Value Timeline::value(const Seen& seen) const { return read_window(seen, trace_->find(seen)); }

Value Timeline::value(Cursor cursor, Id tensor) const {
  const Seen* window = seen(tensor);
  if (window == nullptr) return unknown({}, "not yet");
  if (!exists(cursor, tensor)) return unknown(*window, "not yet");
  Seen now = *window;
  now.version = index_->version_at(now.storage, cut_at(*this, clamp(cursor).position));
  return value(now);
}

std::pair<Events::const_iterator, Events::const_iterator> Timeline::Index::in_pass(
    const Events& list, std::int64_t pass) const {
  auto found = passes.find(pass);
  if (found == passes.end()) return {list.end(), list.end()};
  auto begin = std::lower_bound(list.begin(), list.end(), found->second.begin);
  auto next = std::next(found);  // passes do not overlap
  auto end =
      next == passes.end() ? list.end() : std::lower_bound(begin, list.end(), next->second.begin);
  return {begin, end};
}

// What a pass begins with, for its root.
std::optional<Value> Timeline::Index::seed(const TensorTrack& tensor, std::int64_t pass) const {
  auto [begin, end] = in_pass(tensor.roots, pass);
  if (begin == end) return std::nullopt;
  const PassBegins* begins = get<PassBegins>(*begin);
  if (begins == nullptr) return std::nullopt;
  std::optional<Value> sum;
  for (std::size_t i = 0; i < std::min(begins->roots.size(), begins->seeds.size()); ++i) {
    if (begins->roots[i].tensor != tensor.first.tensor) continue;
    Value given = owner->value(begins->seeds[i]);
    if (sum)
      add_to(*sum, given);
    else
      sum = std::move(given);
  }
  return sum;
}

// The sum of what has arrived at a tensor in a pass; none if nothing has.
std::optional<Value> Timeline::Index::sum(const TensorTrack& tensor, std::int64_t pass,
                                          std::size_t cut) const {
  auto [hook, last_hook] = in_pass(tensor.hooks, pass);
  std::optional<Value> sum;
  for (; hook != last_hook && *hook < cut; ++hook)
    if (const Hooked* hooked = get<Hooked>(*hook)) sum = owner->value(hooked->after);
  if (sum) return sum;
  sum = seed(tensor, pass);
  auto [begin, end] = in_pass(tensor.arrivals, pass);
  for (auto i = begin; i != end && *i < cut; ++i) {
    const Arrived* arrived = get<Arrived>(*i);
    if (arrived == nullptr) continue;
    Value given = owner->value(arrived->given);
    if (sum)
      add_to(*sum, given);
    else
      sum = std::move(given);
  }
  return sum;
}

// Uses whose contributions may still come in a pass that is not over.
std::vector<Use> Timeline::Index::still_expected(const TensorTrack& tensor, std::size_t begin,
                                                 std::size_t end, std::int64_t pass) const {
  std::set<std::pair<std::size_t, int>> arrived;
  auto [first, last] = in_pass(tensor.arrivals, pass);
  for (auto i = first; i != last; ++i)
    if (const Arrived* a = get<Arrived>(*i))
      if (auto node = nodes.find(a->node); node != nodes.end())
        arrived.insert({node->second.op, a->slot});
  std::vector<Use> expected;
  auto use = std::lower_bound(tensor.uses.begin(), tensor.uses.end(), begin,
                              [](const Use& u, std::size_t at) { return u.op < at; });
  for (; use != tensor.uses.end() && use->op < end; ++use)
    if (owner->op(use->op).node != 0 && !arrived.contains({use->op, use->slot}))
      expected.push_back(*use);
  return expected;
}

bool Timeline::Index::more_to_come(const TensorTrack& tensor, std::int64_t pass,
                                   std::size_t cut) const {
  auto [begin, end] = in_pass(tensor.arrivals, pass);
  if (begin != end && *std::prev(end) >= cut) return true;
  const PassTrack& track = passes.at(pass);
  if (track.end) return false;
  // The pass is not over in the trace. A result whose own op has been reached has all it gets.
  for (std::size_t maker : tensor.makers)
    if (auto node = nodes.find(owner->op(maker).node); node != nodes.end()) {
      auto [reached, none] = in_pass(node->second.arrivals, pass);
      if (reached != none) return false;
    }
  return !still_expected(tensor, 0, track.begin, pass).empty();
}

// What grad() holds; none if it is not defined.
std::optional<Value> Timeline::Index::held(const TensorTrack& tensor, std::size_t cut) const {
  const std::optional<std::size_t> last = last_before(tensor.settled, cut);
  const std::optional<std::size_t> next = first_from(tensor.settled, cut);
  if (last && gap_between(*last, cut) && next) {  // what happened in between is not kept
    const Landed* landed = get<Landed>(*next);
    return landed != nullptr && landed->had_before ? std::optional(owner->value(landed->before))
                                                   : std::nullopt;
  }
  const Landed* landed = last ? get<Landed>(*last) : nullptr;
  if (landed == nullptr) return std::nullopt;
  Seen now = landed->after;
  now.version = std::max(now.version, version_at(now.storage, cut));
  return owner->value(now);
}

Gradient Timeline::Index::gradient(Id id, std::size_t cut, std::optional<std::int64_t> pass) const {
  using State = Gradient::State;
  const TensorTrack* tensor = track(id);
  if (tensor == nullptr) return {};
  const std::optional<std::size_t> arrival = last_before(tensor->arrivals, cut);
  const std::optional<std::size_t> root = last_before(tensor->roots, cut);
  const std::optional<std::size_t> settled = last_before(tensor->settled, cut);
  const std::optional<std::size_t> running = std::max(arrival, root);  // none is less than any
  std::optional<Value> before = held(*tensor, cut);
  if (!running || settled > running || gap_between(*running, cut))
    return before ? Gradient{State::landed, std::move(*before), {}} : Gradient{};

  const std::optional<std::size_t> begin = last_before(pass_begins, *running + 1);
  const PassBegins* begins = begin ? get<PassBegins>(*begin) : nullptr;
  if (begins == nullptr) return {};
  const std::int64_t its_pass = begins->pass;
  const bool leaf = tensor->first.is_leaf;
  if (pass && its_pass != *pass && !leaf) {  // another pass runs, and has not come here yet
    auto [first, last] = in_pass(tensor->arrivals, *pass);
    if (first != last) return {};
  }
  std::optional<Value> value = sum(*tensor, its_pass, cut);
  if (!value) return {};
  const std::optional<std::size_t> end = passes.at(its_pass).end;
  const bool over = end && *end < cut;
  if (over || (!leaf && !more_to_come(*tensor, its_pass, cut)))
    return {State::complete, std::move(*value), {}};
  return {State::so_far, std::move(*value), std::move(before)};
}

Gradient Timeline::gradient(Cursor cursor, Id tensor) const {
  cursor = clamp(cursor);
  return index_->gradient(tensor, cut_at(*this, cursor.position), pass(cursor));
}

std::optional<std::int64_t> Timeline::pass(Cursor cursor) const {
  cursor = clamp(cursor);
  const std::optional<std::size_t> begin =
      last_before(index_->pass_begins, cut_at(*this, cursor.position));
  if (!begin || *begin < episode(cursor.episode).event_begin) return std::nullopt;
  const PassBegins* begins = index_->get<PassBegins>(*begin);
  return begins == nullptr ? std::nullopt : std::optional(begins->pass);
}

Progress Timeline::forward(Cursor cursor, std::size_t op) const {
  cursor = clamp(cursor);
  if (op >= cut_at(*this, cursor.position)) return Progress::pending;
  const Step* step = this->step(cursor);
  return step != nullptr && step->event == op ? Progress::active : Progress::done;
}

Progress Timeline::backward(Cursor cursor, std::size_t op) const {
  cursor = clamp(cursor);
  const std::optional<std::int64_t> pass = this->pass(cursor);
  auto node = index_->nodes.find(this->op(op).node);
  if (!pass || node == index_->nodes.end()) return Progress::pending;
  auto [begin, end] = index_->in_pass(node->second.arrivals, *pass);
  if (begin == end || *begin >= cut_at(*this, cursor.position)) return Progress::pending;
  const Step* step = this->step(cursor);
  const bool now = step != nullptr && std::binary_search(begin, end, step->event);
  return now ? Progress::active : Progress::done;
}

namespace {
// The arrival in one slot among those of a node in one pass.
template <class Range, class Get>
std::optional<std::size_t> arrival_in_slot(const Range& range, int slot, Get get) {
  for (auto i = range.first; i != range.second; ++i) {
    const Arrived* arrived = get(*i);
    if (arrived != nullptr && arrived->slot == slot) return *i;
  }
  return std::nullopt;
}
}  // namespace

Progress Timeline::edge_backward(Cursor cursor, std::size_t op, int slot) const {
  cursor = clamp(cursor);
  const std::optional<std::int64_t> pass = this->pass(cursor);
  auto node = index_->nodes.find(this->op(op).node);
  if (!pass || node == index_->nodes.end()) return Progress::pending;
  const std::optional<std::size_t> arrival =
      arrival_in_slot(index_->in_pass(node->second.arrivals, *pass), slot,
                      [this](std::size_t i) { return index_->get<Arrived>(i); });
  if (!arrival || *arrival >= cut_at(*this, cursor.position)) return Progress::pending;
  const Step* step = this->step(cursor);
  return step != nullptr && step->event == *arrival ? Progress::active : Progress::done;
}

bool Timeline::edge_takes_part(Cursor cursor, std::size_t op, int slot) const {
  const std::optional<std::int64_t> pass = this->pass(cursor);
  auto node = index_->nodes.find(this->op(op).node);
  if (!pass || node == index_->nodes.end()) return false;
  return arrival_in_slot(index_->in_pass(node->second.arrivals, *pass), slot,
                         [this](std::size_t i) { return index_->get<Arrived>(i); })
      .has_value();
}

std::string Timeline::edge_numbers(Cursor cursor, std::size_t op, int slot) const {
  const std::optional<std::int64_t> pass = this->pass(cursor);
  auto node = index_->nodes.find(this->op(op).node);
  if (!pass || node == index_->nodes.end()) return "";
  const std::optional<std::size_t> arrival =
      arrival_in_slot(index_->in_pass(node->second.arrivals, *pass), slot,
                      [this](std::size_t i) { return index_->get<Arrived>(i); });
  if (!arrival || *arrival >= cut_at(*this, clamp(cursor).position)) return "";
  return index_->numbers(*arrival, {});
}

// ---- The ledger ----------------------------------------------------------------------------------

namespace {
// A tensor that is never let go can have received thousands of passes: the ledger shows the last.
constexpr std::size_t most_passes = 8;

// Which element of a tensor of shape `small` an element of the shape `large` is made of when the
// smaller one is broadcast.
std::optional<std::size_t> broadcast_element(std::size_t i, const Shape& large,
                                             const Shape& small) {
  if (small.size() > large.size()) return std::nullopt;
  std::size_t result = 0, stride = 1;
  for (std::size_t back = 1; back <= large.size(); ++back) {
    const auto size = static_cast<std::size_t>(large[large.size() - back]);
    if (size == 0) return std::nullopt;
    const std::size_t index = i % size;
    i /= size;
    if (back > small.size()) continue;
    const auto small_size = static_cast<std::size_t>(small[small.size() - back]);
    if (small_size != size && small_size != 1) return std::nullopt;
    if (small_size != 1) result += index * stride;
    stride *= small_size;
  }
  return result;
}
}  // namespace

// What a letter of a derivative's formula stands for, at one element of the gradient.
std::optional<double> Timeline::Index::letter(const Op& op, const Arrived& arrived, std::size_t i,
                                              std::string_view name, std::size_t element) const {
  Value value;
  if (name == "dy" && !op.outputs.empty()) {
    const TensorTrack* output = track(op.outputs[0].tensor);
    std::optional<Value> gradient =
        output == nullptr ? std::nullopt : sum(*output, arrived.pass, i);
    if (!gradient) return std::nullopt;
    value = std::move(*gradient);
  } else if (name == "y" && !op.outputs.empty()) {
    value = owner->value(op.outputs[0]);
  } else {
    std::size_t slot = 0;
    while (slot < op.inputs.size() && input_letter(slot) != name) ++slot;
    if (slot == op.inputs.size()) return std::nullopt;
    value = owner->value(op.inputs[slot]);
  }
  // The result of a sum over an axis has elements that belong to no single one of the gradient's.
  const bool result = name == "dy" || name == "y";
  if (result && value.count() != 1 && value.shape != arrived.before.shape) return std::nullopt;
  const std::optional<std::size_t> place =
      broadcast_element(element, arrived.before.shape, value.shape);
  if (value.kept != Value::Kept::in_full || !place) return std::nullopt;
  return value.at(*place);
}

// The formula of an arrival with its numbers put in: for a scalar, or for one element.
std::string Timeline::Index::numbers(std::size_t i, std::optional<std::size_t> element) const {
  const Arrived* arrived = get<Arrived>(i);
  auto node = arrived == nullptr ? nodes.end() : nodes.find(arrived->node);
  if (node == nodes.end() || !arrived->folded.empty()) return "";
  const Op& op = owner->op(node->second.op);
  const std::string_view formula = derivative(owner->facts(op.op), arrived->slot);
  const std::optional<std::int64_t> count = small_count(arrived->before.shape);
  if (count == 1) element = 0;
  if (!count || !element || *element >= static_cast<std::size_t>(*count)) return "";
  words::Letters letters = numbers_of(op);
  for (const std::string& name : words::letters_of(formula)) {
    if (letters.contains(name)) continue;
    const std::optional<double> value = letter(op, *arrived, i, name, *element);
    if (!value) return "";
    letters[name] = words::number(*value);
  }
  return words::is_elementwise(formula) ? words::put_in(formula, letters) : "";
}

Contribution Timeline::Index::row(std::size_t op, int slot, std::int64_t pass) const {
  Contribution row;
  row.pass = pass;
  row.op = op;
  row.slot = slot;
  row.from = owner->describe_op(op);
  row.formula = words::pretty(derivative(owner->facts(owner->op(op).op), slot));
  return row;
}

std::vector<Contribution> Timeline::ledger(Cursor cursor, Id id,
                                           std::optional<std::size_t> hovered) const {
  cursor = clamp(cursor);
  const TensorTrack* tensor = index_->track(id);
  if (tensor == nullptr) return {};
  const std::size_t cut = cut_at(*this, cursor.position);
  const Step* step = this->step(cursor);

  // The passes since the last let go that have begun; else the next one, if this episode has it.
  std::size_t since = 0;
  for (std::size_t i : tensor->settled)
    if (i < cut && index_->get<LetGo>(i) != nullptr) since = i;
  std::vector<std::int64_t> passes;
  for (std::size_t i : tensor->arrivals) {
    const Arrived* arrived = index_->get<Arrived>(i);
    if (arrived == nullptr || i < since) continue;
    auto begun = index_->passes.find(arrived->pass);
    if (begun == index_->passes.end()) continue;
    const bool to_come = begun->second.begin >= cut;
    if (to_come && (!passes.empty() || i >= episode(cursor.episode).event_end)) break;
    if (passes.empty() || passes.back() != arrived->pass) passes.push_back(arrived->pass);
  }
  if (passes.size() > most_passes)
    passes.erase(passes.begin(), passes.end() - static_cast<std::ptrdiff_t>(most_passes));

  std::vector<Contribution> rows;
  for (std::int64_t pass : passes) {
    std::optional<Value> sum = index_->seed(*tensor, pass);
    auto [begin, end] = index_->in_pass(tensor->arrivals, pass);
    for (auto i = begin; i != end; ++i) {
      const Arrived* arrived = index_->get<Arrived>(*i);
      const std::optional<std::size_t> op = op_of_node(arrived->node);
      if (!op) continue;
      Contribution row = index_->row(*op, arrived->slot, pass);
      row.arrived = *i < cut;
      row.active = step != nullptr && step->event == *i;
      if (row.arrived) {
        row.numbers = index_->numbers(*i, hovered);
        row.shape_before = arrived->before.shape;
        row.shape_given = arrived->given.shape;
        row.folded = arrived->folded;
        row.given = value(arrived->given);
        if (sum)
          add_to(*sum, row.given);
        else
          sum = row.given;
        row.sum = *sum;
      }
      rows.push_back(std::move(row));
    }
  }

  // What the trace does not know yet: the rest of a running pass, or all of one that may come.
  const bool running = !passes.empty() && !index_->passes.at(passes.back()).end;
  if ((passes.empty() && tensor->first.requires_grad) || running) {
    const Episode& episode = this->episode(cursor.episode);
    const std::int64_t pass = passes.empty() ? 0 : passes.back();
    for (const Use& use :
         index_->still_expected(*tensor, episode.event_begin, episode.event_end, pass))
      rows.push_back(index_->row(use.op, use.slot, pass));
  }
  return rows;
}

std::vector<Id> Timeline::factors(Cursor cursor) const {
  const Step* step = this->step(cursor);
  const Arrived* arrived = step == nullptr ? nullptr : index_->get<Arrived>(step->event);
  const std::optional<std::size_t> event =
      arrived == nullptr ? std::nullopt : op_of_node(arrived->node);
  if (!event) return {};
  const Op& op = this->op(*event);
  std::vector<Id> found;
  for (const std::string& letter : words::letters_of(derivative(facts(op.op), arrived->slot))) {
    if (letter == "y" && !op.outputs.empty()) found.push_back(op.outputs[0].tensor);
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      if (input_letter(i) == letter) found.push_back(op.inputs[i].tensor);
  }
  return found;
}

// ---- Prose ---------------------------------------------------------------------------------------

namespace {

// "20 numbers", "[20, 30] numbers".
std::string elements(const Value& value) {
  std::string shape;
  for (std::int64_t size : value.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  if (value.shape.size() != 1) shape = "[" + shape + "]";
  return shape + (value.dtype == DType::boolean ? " truth values" : " numbers");
}

// " (-2 … 2)": from the least to the greatest, where they are known and there are any.
std::string range(const Value& value) {
  double min = value.statistics.min, max = value.statistics.max;
  bool known = value.kept == Value::Kept::statistics;
  if (value.kept == Value::Kept::in_full)
    for (std::size_t i = 0; i < static_cast<std::size_t>(value.count()); ++i) {
      const double element = value.at(i);
      if (std::isnan(element)) return " (with nan)";
      min = known ? std::min(min, element) : element;
      max = known ? std::max(max, element) : element;
      known = true;
    }
  if (!known || value.dtype == DType::boolean) return "";
  if (value.statistics.nan > 0) return " (with nan)";
  return " (" + words::number(min, 4) + " … " + words::number(max, 4) + ")";
}

// A value in a sentence: 3, or [1, 2], or "20 numbers (-2 … 2)".
std::string in_prose(const Value& value) {
  constexpr std::int64_t few = 4;
  const auto one = [&](std::size_t i) {
    if (value.dtype == DType::boolean || value.dtype == DType::int64) return value.text(i, 20);
    return words::number(value.at(i));
  };
  const bool full = value.kept == Value::Kept::in_full;
  if (full && value.shape.empty()) return one(0);
  if (full && value.shape.size() == 1 && value.count() <= few) {
    std::string list;
    for (std::size_t i = 0; i < static_cast<std::size_t>(value.count()); ++i)
      list += (i == 0 ? "" : ", ") + one(i);
    return "[" + list + "]";
  }
  return elements(value) + range(value);
}

bool is_number(const Value& value) {
  return value.kept == Value::Kept::in_full && value.shape.empty();
}

std::string axes(const std::vector<std::int64_t>& folded) {
  std::string list;
  for (std::size_t i = 0; i < folded.size(); ++i)
    list += (i == 0 ? "" : ", ") + std::to_string(folded[i]);
  return (folded.size() == 1 ? "axis " : "axes ") + list;
}

// " = 1 × 3": the middle part of a chain of equations, unless it only repeats what follows.
std::string equals(const std::string& middle, const std::string& result) {
  return middle.empty() || middle == result ? "" : " = " + middle;
}

}  // namespace

namespace {

// One sentence about a step.
class Sentence {
 public:
  Sentence(const Timeline& timeline, Cursor cursor) : timeline_(timeline), cursor_(cursor) {}

  std::string operator()(const Made& made) const {
    const std::string kind = made.tensor.requires_grad ? ", a leaf that wants a gradient" : "";
    return name(made.tensor.tensor) + " = " + in_prose(timeline_.value(made.tensor)) + kind + ".";
  }
  std::string operator()(const Op& op) const {
    const std::size_t event = timeline_.step(cursor_)->event;
    const std::string recorded = op.node == 0 ? " (not recorded)" : "";
    if (op.outputs.empty()) return timeline_.describe_op(event) + recorded + ".";
    const std::string result = in_prose(timeline_.value(op.outputs[0]));
    return timeline_.describe_op(event) + equals(with_numbers(op), result) + " = " + result +
           recorded + ".";
  }
  std::string operator()(const Failed& failed) const {
    return failed.op + " failed: " + failed.text;
  }
  std::string operator()(const PassBegins& begins) const {
    if (begins.roots.empty()) return "A pass begins.";
    const std::string root = name(begins.roots[0].tensor);
    std::string text = "The pass begins at " + root;
    if (begins.seeds.empty()) return text + ".";
    const Value seed = timeline_.value(begins.seeds[0]);
    text += is_number(seed) && seed.at(0) == 1 ? ": the gradient of " + root + " by itself is "
                                               : ", with the gradient ";
    return text + in_prose(seed) + ".";
  }
  std::string operator()(const Arrived& arrived) const {
    const std::optional<std::size_t> event = timeline_.op_of_node(arrived.node);
    const Value given = timeline_.value(arrived.given);
    std::string text = name(arrived.to) + " receives ";
    if (event) {
      const std::string& op = timeline_.op(*event).op;
      text += words::pretty(derivative(timeline_.facts(op), arrived.slot));
      text += equals(timeline_.edge_numbers(cursor_, *event, arrived.slot), in_prose(given));
      text += " = " + in_prose(given) + " from " + plain_name(op) + box_around(*event);
    } else {
      text += in_prose(given);
    }
    if (!arrived.folded.empty())
      text += ", summed over " + axes(arrived.folded) + ", along which it was broadcast";
    return text + place_in_sum(arrived) + ".";
  }
  std::string operator()(const Hooked& hooked) const {
    return "A hook changes the gradient of " + name(hooked.tensor) + " from " +
           in_prose(timeline_.value(hooked.before)) + " to " +
           in_prose(timeline_.value(hooked.after)) + ".";
  }
  std::string operator()(const Landed& landed) const {
    const std::string after = in_prose(timeline_.value(landed.after));
    if (!landed.had_before)
      return "All contributions to " + name(landed.tensor) + " are in: " + name(landed.tensor) +
             ".grad = " + after + ".";
    return name(landed.tensor) + ".grad held " + in_prose(timeline_.value(landed.before)) +
           " already; this pass is added: " + after + ".";
  }
  std::string operator()(const Wrote& wrote) const {
    return name(wrote.tensor.tensor) + " is changed in place by " + wrote.by + ": " +
           in_prose(timeline_.value(wrote.tensor)) + ".";
  }
  std::string operator()(const LetGo& let_go) const {
    return name(let_go.tensor) + " lets go of its gradient.";
  }
  template <class Other>
  std::string operator()(const Other&) const {
    return "";
  }

 private:
  std::string name(Id tensor) const { return timeline_.name(tensor); }

  // " in softmax", for an op inside a box that is closed unless the reader opens it.
  std::string box_around(std::size_t op) const {
    const std::optional<Id> box = timeline_.closed_around(op, {});
    const ScopeOpens* opens = box ? timeline_.scope(*box) : nullptr;
    return opens == nullptr ? "" : " in " + opens->name;
  }

  // "2 × 3", when all inputs are numbers.
  std::string with_numbers(const Op& op) const {
    const OpFacts* facts = timeline_.facts(op.op);
    if (facts == nullptr) return "";
    words::Letters letters;
    const std::vector<std::string> names = split(facts->attributes);
    for (std::size_t i = 0; i < std::min(names.size(), op.attributes.numbers.size()); ++i)
      letters[names[i]] = words::number(op.attributes.numbers[i]);
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const Value value = timeline_.value(op.inputs[i]);
      if (!is_number(value)) return "";
      letters[input_letter(i)] = words::number(value.at(0));
    }
    return words::put_in(facts->formula, letters);
  }

  // ", its second contribution: 4 + 3 = 7"
  std::string place_in_sum(const Arrived& arrived) const {
    std::vector<Contribution> rows = timeline_.ledger(cursor_, arrived.to);
    std::erase_if(rows, [&](const Contribution& row) { return row.pass != arrived.pass; });
    std::int64_t place = 0;
    const Contribution* before = nullptr;
    for (const Contribution& row : rows) {
      ++place;
      if (!row.active) {
        before = &row;
        continue;
      }
      std::string text = ", its " + words::ordinal(place) + " contribution";
      if (place == 1) return rows.size() == 1 ? "" : text;
      if (is_number(row.sum) && is_number(row.given))
        text +=
            ": " + in_prose(before->sum) + " + " + in_prose(row.given) + " = " + in_prose(row.sum);
      return text;
    }
    return "";
  }

  const Timeline& timeline_;
  Cursor cursor_;
};

}  // namespace

std::string Timeline::prose(Cursor cursor) const {
  cursor = clamp(cursor);
  const Step* step = this->step(cursor);
  const Event* event = step == nullptr ? nullptr : index_->event(step->event);
  return event == nullptr ? "" : std::visit(Sentence(*this, cursor), event->what);
}

// ---- Keeping -------------------------------------------------------------------------------------

struct Keeper::State {
  EpisodeRule rule;
  int episode = 1;
  std::size_t begin = 0;  // of the current episode
  // Snapshots that only episodes that may go have used so far, and how many had come at that time.
  std::map<SnapshotKey, std::int64_t> loose;
  std::vector<SnapshotKey> used;  // those of them that the current episode has used
  std::int64_t snapshots = 0;     // how many have come

  void came(const Trace& trace, const Snapshot& snapshot);
  void use(const Event& event);
  void settle(Trace& trace, std::size_t end, bool keep);
  void forget_events(Trace& trace, std::size_t end) const;
  void forget_snapshots(Trace& trace);
};

namespace {
// The tensors that an event shows.
template <class Visit>
void for_each_seen(const Event& event, Visit visit) {
  auto all = [&visit](const std::vector<Seen>& list) {
    for (const Seen& seen : list) visit(seen);
  };
  if (auto* made = std::get_if<Made>(&event.what)) visit(made->tensor);
  if (auto* wrote = std::get_if<Wrote>(&event.what)) visit(wrote->tensor);
  if (auto* failed = std::get_if<Failed>(&event.what)) all(failed->inputs);
  if (auto* op = std::get_if<Op>(&event.what)) {
    all(op->inputs);
    all(op->outputs);
    for (const auto& [letter, seen] : op->saved) visit(seen);
  }
  if (auto* pass = std::get_if<PassBegins>(&event.what)) {
    all(pass->roots);
    all(pass->seeds);
    all(pass->asked);
  }
  if (auto* arrived = std::get_if<Arrived>(&event.what))
    visit(arrived->before), visit(arrived->given);
  if (auto* hooked = std::get_if<Hooked>(&event.what)) visit(hooked->before), visit(hooked->after);
  if (auto* landed = std::get_if<Landed>(&event.what)) visit(landed->before), visit(landed->after);
}

// What stays of an episode that is not kept: its first op, what was plotted, printed and named, and
// what else later ones need.
bool stays(const Event& event) {
  return std::holds_alternative<Plotted>(event.what) ||
         std::holds_alternative<Printed>(event.what) || std::holds_alternative<Named>(event.what) ||
         std::holds_alternative<ScopeOpens>(event.what) ||
         std::holds_alternative<ScopeCloses>(event.what);
}
}  // namespace

Keeper::Keeper() : state_(std::make_unique<State>()) {}
Keeper::~Keeper() = default;

void Keeper::add(Trace& trace, Record&& record) {
  if (auto* snapshot = std::get_if<Snapshot>(&record)) state_->came(trace, *snapshot);
  const bool is_event = std::holds_alternative<Event>(record);
  viewer::add(trace, std::move(record));
  if (!is_event) return;
  const std::size_t last = trace.events.size() - 1;
  const Event& event = *trace.events[last];
  if (const std::optional<std::size_t> begin = state_->rule.read(last, &event)) {
    const bool keep = schedule_keeps(state_->episode) || state_->episode == standing_;
    state_->settle(trace, *begin, keep);
    ++state_->episode;
    state_->begin = *begin;
  }
  state_->use(event);
}

void Keeper::State::came(const Trace& trace, const Snapshot& snapshot) {
  ++snapshots;
  const SnapshotKey key{snapshot.storage, snapshot.version};
  const bool there = trace.snapshots.find(key) != nullptr;  // and not loose: it stays anyway
  if (!there || loose.contains(key)) loose[key] = snapshots;
}

void Keeper::State::use(const Event& event) {
  for_each_seen(event, [this](const Seen& seen) {
    auto found = loose.find({seen.storage, seen.version});
    if (found == loose.end()) return;
    found->second = snapshots;
    used.push_back(found->first);
  });
}

void Keeper::State::settle(Trace& trace, std::size_t end, bool keep) {
  if (keep)
    for (const SnapshotKey& key : used) loose.erase(key);
  else
    forget_events(trace, end);
  used.clear();
  if (loose.size() >= 2 * Snapshot::sent_again_after) forget_snapshots(trace);
}

void Keeper::State::forget_events(Trace& trace, std::size_t end) const {
  bool first_op = true;
  std::size_t forget = begin;  // [forget, i) goes
  for (std::size_t i = begin; i < end; ++i) {
    const bool op = std::holds_alternative<Op>(trace.events[i]->what);
    if (!stays(*trace.events[i]) && !(op && std::exchange(first_op, false))) continue;
    trace.events.forget(forget, i);
    forget = i + 1;
  }
  trace.events.forget(forget, end);
}

// Those that have not been used for so long that the program would send them again.
void Keeper::State::forget_snapshots(Trace& trace) {
  std::set<SnapshotKey> gone;
  for (const auto& [key, used_at] : loose)
    if (snapshots - used_at > Snapshot::sent_again_after) gone.insert(gone.end(), key);
  for (const SnapshotKey& key : gone) loose.erase(key);
  trace.snapshots.erase_if([&gone](const Snapshot& snapshot) {
    return gone.contains({snapshot.storage, snapshot.version});
  });
}

}  // namespace viewer
