#include "viewer/recorder.hpp"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <typeinfo>

#include "viewer/attach.hpp"
#include "viewer/frames.hpp"
#include "viewer/statistics.hpp"

namespace viewer {
namespace {

namespace mt = minitensor;

constexpr std::size_t longest_source = 1 << 20;  // bytes

std::string text_or_nothing(const char* text) { return text ? text : ""; }

DType kind(mt::DType dtype) {
  switch (dtype) {
    case mt::float32:
      return DType::float32;
    case mt::float64:
      return DType::float64;
    case mt::int64:
      return DType::int64;
    default:
      return DType::boolean;
  }
}

// ---- Attributes ----
//
// The header names what was written in a call: "n", "axis start stop step", "axes n". A list
// ("axes", "shape") lies in Given::dims and a number beside it in Given::n; without a list the
// numbers other than n lie in Given::dims one by one. A trace has the numbers under their names,
// and the list apart.

bool is_list(std::string_view attribute) { return attribute == "axes" || attribute == "shape"; }

std::vector<std::string> attributes_of(const mt::Facts& facts) {
  std::istringstream text(text_or_nothing(facts.attributes));
  return {std::istream_iterator<std::string>(text), {}};
}

std::string names_of_numbers(const mt::Facts& facts) {
  std::string names;
  for (const std::string& attribute : attributes_of(facts))
    if (!is_list(attribute)) names += (names.empty() ? "" : " ") + attribute;
  return names;
}

Attributes attributes_of(const mt::Facts& facts, const mt::Given& given) {
  Attributes result;
  result.dims.assign(given.dims.begin(), given.dims.end());
  const std::vector<std::string> names = attributes_of(facts);
  const bool has_list = std::any_of(names.begin(), names.end(), is_list);
  std::size_t next = 0;
  for (const std::string& name : names) {
    if (is_list(name)) continue;
    if (has_list || name == "n")
      result.numbers.push_back(given.n);
    else if (next < result.dims.size())
      result.numbers.push_back(static_cast<double>(result.dims[next++]));
  }
  return result;
}

// ---- Statistics of what lies on another machine -------------------------------------------------
//
// The same numbers as statistics.hpp's, by the operations of the library, where the elements lie: a
// few numbers and a thumbnail come home, and they wait for what was ordered before. Nobody is told
// of these operations and no graph grows, because who is told of an event is muted meanwhile.

mt::Tensor tensor_of(const mt::View& elements, const mt::Ref<mt::Storage>& storage) {
  return mt::Tensor(mt::Ref<mt::TensorData>::make(elements, storage));
}

void fill_numbers(Statistics& result, const mt::Tensor& elements) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const mt::Tensor x = elements.to(mt::float64), finite = x.isfinite();
  const mt::Tensor count = finite.sum(), mean = where(finite, x, 0).sum() / count;
  const mt::Tensor min = where(finite, x, infinity).amin();
  const mt::Tensor max = where(finite, x, -infinity).amax();
  const mt::Tensor squares = where(finite, (x - mean).square(), 0).sum();
  std::vector<mt::Tensor> numbers = {x.isnan().sum(), x.isinf().sum(), count, min, max, mean,
                                     squares};
  // How many are in bin 1 or beyond, in bin 2 or beyond, ... Where all are the same, 0 / 0 is in
  // none.
  const std::size_t bins = result.histogram.size(), first = numbers.size() - 1;
  const mt::Tensor place =
      where(finite, (x / 2 - min / 2) / (max / 2 - min / 2) * static_cast<double>(bins), -1);
  for (std::size_t bin = 1; bin < bins; ++bin)
    numbers.push_back((place >= static_cast<double>(bin)).sum());
  for (mt::Tensor& number : numbers) number = number.to(mt::float64);

  const std::vector<double> home = stack(numbers).to_vector();
  const auto whole = [&](std::size_t i) { return static_cast<std::int64_t>(home[i]); };
  const std::int64_t all_finite = whole(2);
  result.nan = whole(0);
  result.inf = whole(1);
  result.min = result.max = result.mean = result.std = std::numeric_limits<double>::quiet_NaN();
  if (all_finite == 0) return;
  result.min = home[3];
  result.max = home[4];
  result.mean = home[5];
  result.std = all_finite > 1 ? std::sqrt(home[6] / static_cast<double>(all_finite - 1)) : 0;
  for (std::size_t bin = 0; bin < bins; ++bin)
    result.histogram[bin] = (bin == 0 ? all_finite : whole(first + bin)) -
                            (bin + 1 == bins ? 0 : whole(first + bin + 1));
}

// The means of at most `thumbnail_side` blocks of an axis; the axis itself, if it is no longer.
mt::Tensor block_means(const mt::Tensor& x, int axis) {
  const std::int64_t size = x.size(axis), blocks = thumbnail_side;
  if (size <= blocks) return x;
  const auto begin = [&](std::int64_t block) { return (block * size + blocks - 1) / blocks; };
  std::vector<mt::Tensor> means;
  for (std::int64_t block = 0; block < blocks; ++block)
    means.push_back(
        x.slice(axis, begin(block), begin(block + 1)).mean({axis}, {.dtype = mt::float64}));
  return stack(means, axis);
}

void fill_thumbnail(Statistics& result, const mt::Tensor& window) {
  const std::int64_t columns = window.dim() == 0 ? 1 : window.size(-1);
  if (window.numel() == 0) return;
  const mt::Tensor matrix = window.reshape({window.numel() / columns, columns});
  const mt::Tensor means = block_means(block_means(matrix, 0), 1).to(mt::float64);
  result.rows = means.size(0);
  result.columns = means.size(1);
  result.thumbnail = means.to(mt::float32).to_vector<float>();
}

// Of the whole storage; the thumbnail is the tensor's. None if there is no memory for it there.
std::optional<Statistics> statistics_there(const mt::Tensor& tensor, std::int64_t count) {
  const mt::Pin same_last_line(mt::current.last_line);
  const mt::Ref<mt::Storage>& storage = tensor.get().storage;
  const mt::View all{storage->data, tensor.dtype(), mt::Shape(count), mt::Shape(1),
                     storage->device};
  try {
    Statistics result;
    fill_numbers(result, tensor_of(all, storage));
    fill_thumbnail(result, tensor_of(tensor.elements(), storage));
    return result;
  } catch (const mt::Error&) {
    return std::nullopt;
  }
}

std::vector<std::byte> brought_home(const mt::Tensor& tensor, std::int64_t count) {
  const mt::Storage& storage = *tensor.get().storage;
  std::vector<std::byte> bytes(static_cast<std::size_t>(storage.bytes));
  const mt::Shape all(count), step(1);
  mt::copy({bytes.data(), tensor.dtype(), all, step, mt::cpu},
           {storage.data, tensor.dtype(), all, step, storage.device});
  return bytes;
}

}  // namespace

bool Remembered::add(Id storage, std::int64_t version) {
  auto known = recent_.find(storage);
  if (known == recent_.end()) {
    auto old = older_.find(storage);
    const std::int64_t none = version - 1;
    known = recent_.emplace(storage, old == older_.end() ? none : old->second).first;
  }
  if (std::exchange(known->second, version) == version) return false;
  if (++added_ >= Snapshot::sent_again_after / 2) {
    added_ = 0;
    older_ = std::exchange(recent_, {});
  }
  return true;
}

// ---- What an event needs ------------------------------------------------------------------------

Seen Recorder::seen(const mt::Tensor& tensor) {
  Seen result;
  if (!tensor.defined()) return result;
  result.tensor = tensor.id();
  result.storage = tensor.storage_id();
  result.version = tensor.version();
  result.offset = tensor.storage_offset();
  const mt::Shape shape = tensor.shape(), strides = tensor.stride();
  result.shape.assign(shape.begin(), shape.end());
  result.strides.assign(strides.begin(), strides.end());
  result.dtype = kind(tensor.dtype());
  result.requires_grad = tensor.requires_grad();
  result.is_leaf = tensor.is_leaf();
  result.name = tensor.name();
  keep_storage(tensor, result);
  return result;
}

std::vector<Seen> Recorder::seen(mt::Span<const mt::Tensor*> tensors) {
  std::vector<Seen> result;
  for (const mt::Tensor* tensor : tensors) result.push_back(seen(*tensor));
  return result;
}

void Recorder::keep_storage(const mt::Tensor& tensor, const Seen& window) {
  if (!storages_.add(window.storage, window.version)) return;
  const mt::Storage& storage = *tensor.get().storage;
  Snapshot snapshot;
  snapshot.storage = window.storage;
  snapshot.version = window.version;
  snapshot.count = storage.bytes / mt::bytes_of(tensor.dtype());
  snapshot.dtype = window.dtype;
  const bool here = storage.device == mt::cpu, large = snapshot.count > Snapshot::kept_in_full;
  if (large && !here) {
    if (std::optional<Statistics> found = statistics_there(tensor, snapshot.count)) {
      snapshot.statistics = *std::move(found);
      records_.push_back(std::move(snapshot));
      return;
    }
  }
  std::vector<std::byte> brought;
  if (!here) brought = brought_home(tensor, snapshot.count);
  const std::byte* data = here ? storage.data : brought.data();
  if (large)
    snapshot.statistics = statistics_of(
        as_doubles(window.dtype, data, static_cast<std::size_t>(snapshot.count)), &window);
  else
    snapshot.bytes.assign(data, data + storage.bytes);
  records_.push_back(std::move(snapshot));
}

void Recorder::keep_facts(const mt::Facts& facts) {
  if (!facts_.insert(facts.name).second) return;
  OpFacts row{facts.name, text_or_nothing(facts.symbol), text_or_nothing(facts.formula),
              {},         names_of_numbers(facts),       facts.plain_name()};
  for (const char* derivative : facts.derivatives)
    row.derivatives.push_back(text_or_nothing(derivative));
  while (!row.derivatives.empty() && row.derivatives.back().empty()) row.derivatives.pop_back();
  records_.push_back(std::move(row));
}

void Recorder::keep_source(const std::string& file) {
  if (file.empty() || !sources_.insert(file).second) return;
  std::ifstream source(file, std::ios::binary);
  std::string text(longest_source + 1, '\0');
  source.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(source.gcount()));
  if (!text.empty() && text.size() <= longest_source)
    records_.push_back(std::pair(file, std::move(text)));
}

Line Recorder::line(mt::Loc where) {
  Line result{where.path(), where.line()};
  keep_source(result.file);
  return result;
}

void Recorder::send(What what, Line where) {
  records_.push_back(
      Event{std::move(what), std::move(where), scopes_.empty() ? 0 : scopes_.back()});
  sink_(std::exchange(records_, {}));
}

// ---- Events -------------------------------------------------------------------------------------

void Recorder::made(const mt::Tensor& tensor, mt::Loc where) {
  send(Made{seen(tensor)}, line(where));
}

void Recorder::op(const mt::Node* node, const mt::Facts& facts, const mt::Given& given,
                  mt::Span<const mt::Tensor*> inputs, mt::Span<mt::Tensor> outputs, mt::Loc where) {
  keep_facts(facts);
  Op op;
  op.node = node ? node->id() : 0;
  op.op = facts.name;
  op.attributes = attributes_of(facts, given);
  op.inputs = seen(inputs);
  for (int i = 0; node && i < node->saved.size(); ++i)
    op.saved.emplace_back(std::string(1, node->saved[i].letter), seen(node->saved[i].tensor));
  for (const mt::Tensor& output : outputs) op.outputs.push_back(seen(output));
  send(std::move(op), line(where));
}

void Recorder::failed(const char* op, const mt::Node* node, mt::Span<Id> inputs,
                      const std::string& text, mt::Loc where) {
  send(Failed{text_or_nothing(op), {inputs.begin(), inputs.end()}, text, node ? node->id() : 0},
       line(where));
}

void Recorder::pass_begins(const mt::PassSeen& pass) {
  PassBegins begins;
  begins.pass = pass.number;
  for (const mt::Tensor& root : pass.roots) begins.roots.push_back(seen(root));
  for (const mt::Tensor& seed : pass.seeds) begins.seeds.push_back(seen(seed));
  begins.retain_graph = pass.retain_graph;
  begins.create_graph = pass.create_graph;
  if (pass.asked)
    for (const mt::Tensor& input : *pass.asked) begins.asked.push_back(seen(input));
  pass_line_ = line(pass.line);
  send(std::move(begins), pass_line_);
}

void Recorder::pass_ends(std::int64_t pass) { send(PassEnds{pass}, pass_line_); }

void Recorder::arrived(std::int64_t pass, const mt::Node& node, int slot, const mt::Tensor& before,
                       const mt::Shape& folded_axes, const mt::Tensor& given) {
  Arrived arrived;
  arrived.pass = pass;
  arrived.node = node.id();
  arrived.slot = slot;
  arrived.to = node.input_id(slot);
  arrived.before = seen(before);
  arrived.folded.assign(folded_axes.begin(), folded_axes.end());
  arrived.given = seen(given);
  send(std::move(arrived), line(node.line()));
}

void Recorder::hooked(std::int64_t pass, Id tensor, const mt::Tensor& before,
                      const mt::Tensor& after) {
  send(Hooked{pass, tensor, seen(before), seen(after)}, pass_line_);
}

void Recorder::landed(std::int64_t pass, const mt::Tensor& leaf, const mt::Tensor& before,
                      const mt::Tensor& after) {
  send(Landed{pass, leaf.id(), before.defined(), seen(before), seen(after)}, pass_line_);
}

void Recorder::wrote(const mt::Tensor& tensor, std::int64_t version_before, const char* by,
                     const mt::Node* node, mt::Loc where) {
  send(Wrote{seen(tensor), version_before, text_or_nothing(by), node ? node->id() : 0},
       line(where));
}

void Recorder::let_go(const mt::Tensor& leaf, mt::Loc where) {
  send(LetGo{leaf.id()}, line(where));
}

void Recorder::named(const mt::Tensor& tensor) { send(Named{tensor.id(), tensor.name()}); }

void Recorder::scope_opens(Id scope, const char* name, bool composed, mt::Loc where) {
  send(ScopeOpens{scope, text_or_nothing(name), composed}, line(where));
  scopes_.push_back(scope);
}

void Recorder::scope_closes(Id scope) {
  std::erase_if(scopes_,
                [scope](Id open) { return open >= scope; });  // inner ones have greater numbers
  send(ScopeCloses{scope});
}

void Recorder::note(const char* kind, const std::string& text, mt::Span<double> numbers) {
  auto number = [numbers](std::size_t i) { return i < numbers.size() ? numbers[i] : 0; };
  const std::string what = text_or_nothing(kind);
  if (what == "said") send(Said{text});
  if (what == "asked") send(Asked{text, number(0)});
  if (what == "plotted") send(Plotted{text, number(0), number(1)});
  if (what == "paused") send(Paused{});
  if (what == "pictured" && number(0) >= 1)
    send(picture_of(text, static_cast<std::int64_t>(number(0)),
                    {numbers.begin() + 1, numbers.end()}));
}

// ---- In a process that a viewer has started -----------------------------------------------------

namespace {

// Never destroyed: another thread may still end the program while this one is on its way out.
class Watch {
 public:
  explicit Watch(const Token& token)
      : writer_(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3),
                token),  // ours, whatever becomes of stdout
        recorder_([this](std::vector<Record>&& records) { send(records); }),
        observer_before_(mt::observe(&recorder_)),
        terminate_before_(std::set_terminate(end_by_exception)) {}

  static Watch* only;

  void end() { mt::observe(observer_before_); }

 private:
  // Text and events leave in the order in which they happened.
  void send(const std::vector<Record>& records) {
    std::cout.flush();
    std::fflush(stdout);
    std::string message;
    for (const Record& record : records) pack(message, encode(record));
    writer_.write(message);
  }

  // What std::terminate() calls. The exception is told, and all goes on as it would unwatched.
  [[noreturn]] static void end_by_exception() {
    std::set_terminate(only->terminate_before_);
    if (std::exception_ptr exception = std::current_exception())
      only->send({Event{Ended{Ended::How::threw, 0, describe(exception)}, {}, 0}});
    std::terminate();
  }

  static std::string describe(const std::exception_ptr& exception) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    int failed = 0;
    std::unique_ptr<char, decltype(&std::free)> name(
        type ? abi::__cxa_demangle(type->name(), nullptr, nullptr, &failed) : nullptr, &std::free);
    const std::string type_name = name ? name.get() : "something";
    try {
      std::rethrow_exception(exception);
    } catch (const std::exception& error) {
      return type_name + ": " + error.what();
    } catch (...) {
      return type_name;
    }
  }

  FrameWriter writer_;
  Recorder recorder_;
  mt::Observer* observer_before_;
  std::terminate_handler terminate_before_;
};

Watch* Watch::only = nullptr;

}  // namespace

Attached::Attached() {
  const char* watch = std::getenv("MINITENSOR_WATCH");
  const std::optional<Token> token = token_from(watch ? watch : "");
  unsetenv("MINITENSOR_WATCH");  // what the program starts is not watched
  if (!token || Watch::only) return;
  std::setvbuf(stdout, nullptr, _IOLBF,
               BUFSIZ);  // a pipe would get its text late, and a crash would lose it
  Watch::only = new Watch(*token);
}

Attached::~Attached() {
  if (Watch::only) Watch::only->end();
}

}  // namespace viewer
