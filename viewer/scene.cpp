#include "viewer/scene.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "lessons/words.hpp"

namespace viewer {

// ---- Texts in boxes ------------------------------------------------------------------------------

namespace {

// A number in as few characters as `room`, giving up digits; more only if one digit does not fit.
std::string brief(double value, int room) {
  if (!std::isfinite(value)) return words::number(value);
  std::string text;
  for (int digits = 4; digits > 0; --digits) {
    text = words::number(value, digits);
    if (text.size() <= static_cast<std::size_t>(room)) break;
  }
  return text;
}

struct Range {
  double min = 0, max = 0;
  std::int64_t finite = 0, nan = 0, inf = 0;
};

Range range_of(const Value& value) {
  Range range;
  if (value.kept == Value::Kept::statistics) {
    const Statistics& s = value.statistics;
    return {s.min, s.max, 1, s.nan, s.inf};
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(value.count()); ++i) {
    const double x = value.at(i);
    range.nan += std::isnan(x);
    range.inf += std::isinf(x);
    if (!std::isfinite(x)) continue;
    range.min = range.finite == 0 ? x : std::min(range.min, x);
    range.max = range.finite == 0 ? x : std::max(range.max, x);
    ++range.finite;
  }
  return range;
}

// "[1.0, 2.0]", or nothing if it does not fit.
std::string as_list(const Value& value, int room) {
  constexpr std::int64_t most = 6;
  if (value.shape.size() != 1 || value.count() > most) return "";
  std::string list = "[";
  for (std::size_t i = 0; i < static_cast<std::size_t>(value.count()); ++i)
    list += (i == 0 ? "" : ", ") + value.text(i, 7);
  list += "]";
  return list.size() <= static_cast<std::size_t>(room) ? list : "";
}

// What a tensor of many elements shows: what is wrong with it, else from where to where it goes.
std::string as_range(const Value& value, int room) {
  if (value.dtype == DType::boolean && value.kept == Value::Kept::in_full) {
    std::int64_t yes = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(value.count()); ++i)
      yes += value.at(i) != 0;
    return std::to_string(yes) + " of " + std::to_string(value.count());
  }
  const Range range = range_of(value);
  if (range.nan > 0) return std::to_string(range.nan) + " nan";
  if (range.inf > 0) return std::to_string(range.inf) + " inf";
  const int each = std::max(3, (room - 3) / 2);
  if (value.dtype == DType::int64 &&
      range.min < range.max) {  // whole numbers in whole, if they fit
    const std::string whole = words::number(range.min, 15) + " … " + words::number(range.max, 15);
    if (words::length(whole) <= static_cast<std::size_t>(room)) return whole;
  }
  if (range.min == range.max) return "all " + brief(range.min + 0.0, room - 4);  // never -0
  return brief(range.min, each) + " … " + brief(range.max, each);
}

}  // namespace

std::string in_a_box(const Value& value, int room) {
  const auto most = static_cast<std::size_t>(room);
  if (value.kept == Value::Kept::nothing) return words::cut(value.note, most);
  if (value.count() == 0) return "empty";
  if (value.kept == Value::Kept::in_full) {
    if (value.shape.empty()) return words::cut(value.text(0, std::max(room, 7)), most);
    if (std::string list = as_list(value, room); !list.empty()) return list;
  }
  return words::cut(as_range(value, room), most);
}

// ---- Sizes: by structure alone -------------------------------------------------------------------

namespace {

constexpr double inset = 11;  // between a box's rim and its texts
constexpr double name_size = 15, shape_size = 11, number_size = 13, symbol_size = 15;
constexpr double title_size = 12, label_size = 13;
constexpr double tensor_height = 70, circle_diameter = 38, scope_box_height = 52;
constexpr double mono_advance = 0.602;  // of the size: DejaVu Sans Mono's, and near all others'

// How wide the character that begins with a byte is at most in a bold sans serif font, in ems.
// DejaVu's, rounded up: fonts differ, boxes must not.
double advance(char first) {
  const auto among = [first](std::string_view set) { return set.find(first) != set.npos; };
  const auto byte = static_cast<unsigned char>(first);
  if (byte >= 0xE0) return 1.05;
  if (byte >= 0xC0) return 0.86;
  if (among("iljtfrI.,:;'\"|!()[]-_ ")) return 0.53;
  if (among("mwMW%@")) return 1.11;
  const bool small = (first >= 'a' && first <= 'z') || (first >= '0' && first <= '9');
  return small ? 0.72 : 0.87;
}

double width_of(std::string_view text, double size) {
  double width = 0;
  for (char c : text)
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) width += advance(c);
  return width * size;
}

double mono_width(std::string_view text, double size) {
  return static_cast<double>(words::length(text)) * mono_advance * size;
}

std::string shape_text(const Seen& seen) {
  std::string text = "[";
  for (std::size_t i = 0; i < seen.shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(seen.shape[i]);
  text += "]";
  if (seen.dtype == DType::float64) text = "f64 " + text;
  if (seen.dtype == DType::int64) text = "int " + text;
  if (seen.dtype == DType::boolean) text = "bool " + text;
  return seen.is_leaf && seen.requires_grad ? text + " leaf" : text;
}

std::string count_text(std::size_t n, const char* one, const char* many) {
  return std::to_string(n) + " " + (n == 1 ? one : many);
}

std::string short_name(std::string_view name) {
  return words::cut(words::clean(name), longest_name);
}

std::string last_part(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

}  // namespace

// ---- The diagram ---------------------------------------------------------------------------------

namespace {

class DiagramMaker {
 public:
  DiagramMaker(const Timeline& timeline, int episode, const Toggled& toggled)
      : timeline_(timeline), toggled_(toggled), graph_(timeline.graph(episode)) {
    diagram_.episode = episode;
  }

  Diagram make() {
    assign_ops();
    const std::size_t boxes = groups_.size() + count_shown_tensors();
    if (boxes > most_boxes) {
      by_line_ = true;
      assign_ops();
    }
    for (Id tensor : graph_.tensors)
      if (!made_here(tensor)) tensor_node(tensor);
    for (std::size_t op : graph_.ops) add_op(op);
    for (std::size_t failed : graph_.failed) add_failed(failed);
    for (Diagram::Node& node : diagram_.nodes) node.cluster = cluster_of(node);
    measure();
    return std::move(diagram_);
  }

 private:
  // ---- Which box an op is in: its own, that of a closed scope, or that of its source line.

  void assign_ops() {
    groups_.clear();
    item_of_op_.clear();
    std::map<std::pair<std::string, int>, std::uint64_t> first_on_line;
    for (std::size_t op : graph_.ops) {
      Item item{Item::Kind::op, op};
      if (std::optional<Id> closed = timeline_.closed_around(op, toggled_)) {
        item = {Item::Kind::scope, *closed};
      } else if (by_line_) {
        const Line line = timeline_.line_of(op);
        auto [first, fresh] = first_on_line.try_emplace({line.file, line.number}, op);
        item = {Item::Kind::line, first->second};
      }
      item_of_op_[op] = item;
      groups_[item].push_back(op);
    }
    // A line that was run once is shown as it is.
    for (auto& [item, ops] : groups_) {
      if (item.kind != Item::Kind::line || ops.size() > 1) continue;
      item_of_op_[ops[0]] = {Item::Kind::op, ops[0]};
    }
    std::map<Item, std::vector<std::size_t>> groups;
    for (std::size_t op : graph_.ops) groups[item_of_op_[op]].push_back(op);
    groups_ = std::move(groups);
  }

  std::optional<Item> item_of(std::size_t op) const {
    auto found = item_of_op_.find(op);
    return found == item_of_op_.end() ? std::nullopt : std::optional(found->second);
  }

  bool made_here(Id tensor) const {
    const std::optional<std::size_t> maker = timeline_.maker(tensor);
    return maker && item_of(*maker).has_value();
  }

  bool is_hidden(Id tensor) const {
    if (timeline_.hidden_in(tensor, toggled_)) return true;
    const std::optional<std::size_t> maker = timeline_.maker(tensor);
    const std::optional<Item> item = maker ? item_of(*maker) : std::nullopt;
    if (!item || item->kind != Item::Kind::line) return false;
    const std::vector<Use> uses = timeline_.uses(tensor);
    return !uses.empty() && std::all_of(uses.begin(), uses.end(),
                                        [&](const Use& use) { return item_of(use.op) == item; });
  }

  std::size_t count_shown_tensors() const {
    return static_cast<std::size_t>(std::count_if(graph_.tensors.begin(), graph_.tensors.end(),
                                                  [this](Id t) { return !is_hidden(t); }));
  }

  // ---- Nodes and edges

  int node(Item item) {
    auto [found, fresh] = node_of_.try_emplace(item, static_cast<int>(diagram_.nodes.size()));
    if (fresh) {
      Diagram::Node made;
      made.item = item;
      diagram_.nodes.push_back(std::move(made));
    }
    return found->second;
  }

  std::optional<int> tensor_node(Id tensor) {
    if (tensor == 0) return std::nullopt;
    auto [hidden, fresh] = hidden_.try_emplace(tensor, false);
    if (fresh) hidden->second = is_hidden(tensor);
    return hidden->second ? std::nullopt : std::optional(node({Item::Kind::tensor, tensor}));
  }

  // An edge of its own for each slot of an op; the ops in one box share theirs.
  void connect(int from, int to, Use part, bool shared) {
    const std::pair<int, int> ends(from, to);
    if (shared) {
      auto [found, fresh] = shared_.try_emplace(ends, diagram_.edges.size());
      if (!fresh) {
        diagram_.edges[found->second].parts.push_back(part);
        return;
      }
    }
    diagram_.edges.push_back({from, to, {part}});
  }

  void add_op(std::size_t event) {
    const Op& op = timeline_.op(event);
    const Item item = item_of_op_[event];
    const bool shared = item.kind != Item::Kind::op;
    std::vector<std::optional<int>> inputs;
    for (const Seen& input : op.inputs) inputs.push_back(tensor_node(input.tensor));
    const int own = node(item);
    diagram_.nodes[static_cast<std::size_t>(own)].ops.push_back(event);
    for (std::size_t slot = 0; slot < inputs.size(); ++slot)
      if (inputs[slot]) connect(*inputs[slot], own, {event, static_cast<int>(slot)}, shared);
    for (const Seen& output : op.outputs)
      if (std::optional<int> result = tensor_node(output.tensor))
        connect(own, *result, {event, -1}, shared);
  }

  void add_failed(std::size_t event) {
    const int own = node({Item::Kind::op, event});
    const auto* failed = std::get_if<Failed>(&timeline_.trace().events[event]->what);
    for (std::size_t slot = 0; failed != nullptr && slot < failed->inputs.size(); ++slot)
      if (std::optional<int> input = tensor_node(failed->inputs[slot]))
        connect(*input, own, {event, static_cast<int>(slot)}, false);
  }

  // ---- Clusters: the open scopes. A result stands in the innermost one that it does not leave; a
  // leaf only in a module or a user's scope, of which it is a parameter.

  std::vector<Id> open_scopes_around(std::size_t event) const {
    std::vector<Id> open;
    for (Id scope : timeline_.scopes_around(event)) {
      if (!timeline_.is_open(scope, toggled_)) break;
      open.push_back(scope);
    }
    return open;
  }

  std::vector<Id> common_scopes(Id tensor) const {
    std::optional<std::vector<Id>> common;
    const auto narrow = [&](std::size_t event) {
      std::vector<Id> around = open_scopes_around(event);
      if (!common) {
        common = std::move(around);
        return;
      }
      const auto end = std::mismatch(common->begin(), common->end(), around.begin(), around.end());
      common->erase(end.first, common->end());
    };
    if (const std::optional<std::size_t> maker = timeline_.maker(tensor)) narrow(*maker);
    for (const Use& use : timeline_.uses(tensor))
      if (item_of(use.op)) narrow(use.op);
    if (!common) return {};
    if (timeline_.maker(tensor)) return *common;
    const Seen* leaf = timeline_.seen(tensor);
    if (leaf == nullptr || !leaf->requires_grad) return {};
    const auto composed = std::find_if(common->begin(), common->end(), [this](Id scope) {
      return timeline_.scope(scope)->composed;
    });
    return {common->begin(), composed};
  }

  int cluster_of(const Diagram::Node& node) {
    const std::vector<Id> scopes = node.item.kind == Item::Kind::tensor
                                       ? common_scopes(node.item.id)
                                   : node.ops.empty() ? open_scopes_around(node.item.id)
                                                      : open_scopes_around(node.ops[0]);
    int cluster = -1;
    for (Id scope : scopes) {
      auto [found, fresh] =
          cluster_of_scope_.try_emplace(scope, static_cast<int>(diagram_.clusters.size()));
      if (fresh) {
        diagram_.clusters.push_back(scope);
        const ScopeOpens* opens = timeline_.scope(scope);
        const std::string title = short_name(opens == nullptr ? "" : opens->name);
        diagram_.titles.push_back(title);
        diagram_.structure.clusters.push_back({cluster, width_of(title, title_size) + 4});
      }
      cluster = found->second;
    }
    return cluster;
  }

  // ---- Texts and sizes

  void measure() {
    for (Diagram::Node& node : diagram_.nodes) {
      Structure::Node box;
      box.cluster = node.cluster;
      switch (node.item.kind) {
        case Item::Kind::tensor:
          measure_tensor(node, box);
          break;
        case Item::Kind::op:
          measure_op(node, box);
          break;
        default:
          measure_group(node, box);
      }
      diagram_.structure.nodes.push_back(box);
    }
    for (const Diagram::Edge& edge : diagram_.edges)
      diagram_.structure.edges.push_back({edge.from, edge.to, edge.parts[0].slot < 0});
  }

  void measure_tensor(Diagram::Node& node, Structure::Node& box) const {
    node.title = short_name(timeline_.name(node.item.id));
    node.named = timeline_.is_named(node.item.id);
    if (const Seen* seen = timeline_.seen(node.item.id)) node.detail = shape_text(*seen);
    const double titles =
        width_of(node.title, name_size) + 10 + mono_width(node.detail, shape_size);
    const double numbers = number_field * mono_advance * number_size;
    box.width = std::ceil(2 * inset + std::max(titles, numbers));
    box.height = tensor_height;
  }

  void measure_op(Diagram::Node& node, Structure::Node& box) const {
    const bool failed = node.ops.empty();
    if (failed) {
      const Event* event = timeline_.trace().events[node.item.id].get();
      const auto* what = event == nullptr ? nullptr : std::get_if<Failed>(&event->what);
      node.title = what == nullptr ? "failed" : short_name(what->op);
    } else {
      node.title = short_name(timeline_.circle(node.item.id));
      node.dashed = timeline_.op(node.item.id).node == 0;
    }
    const double width = width_of(node.title, symbol_size);
    box.round = words::length(node.title) <= 2;
    box.width = box.round ? circle_diameter : std::max(circle_diameter, std::ceil(width + 20));
    box.height = circle_diameter;
  }

  void measure_group(Diagram::Node& node, Structure::Node& box) const {
    if (node.item.kind == Item::Kind::scope) {
      const ScopeOpens* opens = timeline_.scope(node.item.id);
      node.title = short_name(opens == nullptr ? "" : opens->name);
      node.detail = count_text(node.ops.size(), "op", "ops");
    } else {
      const Line line = timeline_.line_of(node.item.id);
      node.title = short_name(last_part(line.file) + " " + std::to_string(line.number));
      node.detail = count_text(times_run(node.ops), "time", "times");
    }
    node.dashed = std::all_of(node.ops.begin(), node.ops.end(),
                              [this](std::size_t op) { return timeline_.op(op).node == 0; });
    box.width = std::ceil(2 * inset + std::max(width_of(node.title, name_size),
                                               mono_width("100000 times", shape_size)));
    box.height = scope_box_height;
  }

  // How often a line was run: as often as its rarest op.
  std::size_t times_run(const std::vector<std::size_t>& ops) const {
    std::map<std::string, std::size_t> counts;
    for (std::size_t op : ops) ++counts[timeline_.op(op).op];
    std::size_t rarest = ops.size();
    for (const auto& [name, count] : counts) rarest = std::min(rarest, count);
    return rarest;
  }

  const Timeline& timeline_;
  const Toggled& toggled_;
  const EpisodeGraph graph_;
  Diagram diagram_;
  bool by_line_ = false;
  std::unordered_map<std::size_t, Item> item_of_op_;
  std::map<Item, std::vector<std::size_t>> groups_;
  std::map<Item, int> node_of_;
  std::unordered_map<Id, bool> hidden_;
  std::map<std::pair<int, int>, std::size_t> shared_;
  std::unordered_map<Id, int> cluster_of_scope_;
};

}  // namespace

Diagram make_diagram(const Timeline& timeline, int episode, const Toggled& toggled) {
  return DiagramMaker(timeline, episode, toggled).make();
}

// ---- Curves --------------------------------------------------------------------------------------

namespace {

constexpr double arrow_length = 11, arrow_half_width = 5.5;

Point between(Point a, Point b, double t) { return {a.x + (b.x - a.x) * t, a.y + (b.y - a.y) * t}; }
double distance(Point a, Point b) { return std::hypot(a.x - b.x, a.y - b.y); }

Point on_curve(const Point* p, double t) {
  const Point a = between(p[0], p[1], t), b = between(p[1], p[2], t), c = between(p[2], p[3], t);
  return between(between(a, b, t), between(b, c, t), t);
}

// Takes `length` off the end of a curve; returns the tip that stood there.
Point shorten_end(std::vector<Point>& curve, double length) {
  const Point tip = curve.back();
  Point* last = &curve[curve.size() - 4];
  if (distance(last[0], last[3]) <= length * 1.2) return tip;  // too short to be cut
  double low = 0, high = 1;  // the cut is as far from the tip as the arrow is long
  for (int i = 0; i < 30; ++i) {
    const double middle = (low + high) / 2;
    (distance(on_curve(last, middle), tip) > length ? low : high) = middle;
  }
  const Point a = between(last[0], last[1], low), b = between(last[1], last[2], low),
              c = between(last[2], last[3], low);
  last[1] = a;
  last[2] = between(a, b, low);
  last[3] = between(last[2], between(b, c, low), low);
  return tip;
}

std::vector<Point> triangle(Point base, Point tip) {
  const double length = std::max(distance(base, tip), 1e-6);
  const Point along{(tip.x - base.x) / length, (tip.y - base.y) / length};
  const Point from{tip.x - along.x * arrow_length, tip.y - along.y * arrow_length};
  const Point across{-along.y * arrow_half_width, along.x * arrow_half_width};
  return {tip, {from.x + across.x, from.y + across.y}, {from.x - across.x, from.y - across.y}};
}

void put_arrow(Stroke& stroke) {
  if (stroke.curve.size() < 4) return;
  if (stroke.reversed) std::reverse(stroke.curve.begin(), stroke.curve.end());
  const Point tip = shorten_end(stroke.curve, arrow_length);
  stroke.arrow = triangle(stroke.curve.back(), tip);
  if (stroke.reversed) std::reverse(stroke.curve.begin(), stroke.curve.end());
}

// Where a text has its middle beside a curve, `part` of the way along it: to its right, or above it
// where it is level; or on its other side.
Point beside(const std::vector<Point>& curve, double part, bool other_side, double width,
             double height) {
  constexpr double gap = 5;
  const double segments = static_cast<double>((curve.size() - 1) / 3);
  const double number = std::min(std::floor(part * segments), segments - 1);
  const Point* segment = &curve[static_cast<std::size_t>(number) * 3];
  const double at = std::clamp(part * segments - number, 0.1, 0.9);
  const Point middle = on_curve(segment, at);
  const Point before = on_curve(segment, at - 0.1), after = on_curve(segment, at + 0.1);
  const double length = std::max(distance(before, after), 1e-6);
  Point normal{(after.y - before.y) / length, -(after.x - before.x) / length};
  if (normal.x < 0) normal = {-normal.x, -normal.y};
  if (normal.x < 0.3) normal = {0, -1};
  const double away = normal.x * width / 2 + std::abs(normal.y) * height / 2 + gap;
  const double side = other_side ? -1 : 1;
  return {middle.x + side * normal.x * away, middle.y + side * normal.y * away};
}

// ---- The scene -----------------------------------------------------------------------------------

class SceneMaker {
 public:
  SceneMaker(const Timeline& timeline, Cursor cursor, const Diagram& diagram,
             const Placement& placement, const View& view)
      : timeline_(timeline),
        cursor_(timeline.clamp(cursor)),
        diagram_(diagram),
        placement_(placement),
        view_(view) {
    read_step();
  }

  Scene make() {
    Scene scene;
    scene.bounds = {0, 0, placement_.width, placement_.height};
    for (std::size_t i = 0; i < diagram_.clusters.size(); ++i)
      scene.scopes.push_back(cluster_box(i));
    for (std::size_t i = 0; i < diagram_.nodes.size(); ++i) scene.boxes.push_back(node_box(i));
    for (std::size_t i = 0; i < diagram_.edges.size(); ++i)
      scene.lines.push_back(stroke(diagram_.edges[i], placement_.splines[i]));
    return scene;
  }

 private:
  // What the step is about: these are drawn as active.
  void read_step() {
    if (const std::optional<std::size_t> failure = timeline_.failure(cursor_))
      failed_op_ = timeline_.op_that_failed(*failure);
    const Step* step = timeline_.step(cursor_);
    const Event* event = step == nullptr ? nullptr : timeline_.trace().events[step->event].get();
    if (event == nullptr) return;
    if (auto* made = std::get_if<Made>(&event->what)) active_.insert(made->tensor.tensor);
    if (auto* op = std::get_if<Op>(&event->what)) {
      active_op_ = step->event;
      for (const Seen& output : op->outputs) active_.insert(output.tensor);
    }
    if (std::get_if<Failed>(&event->what) != nullptr)
      active_op_ = timeline_.op_that_failed(step->event).value_or(step->event);
    if (auto* begins = std::get_if<PassBegins>(&event->what))
      for (const Seen& root : begins->roots) active_.insert(root.tensor);
    if (auto* arrived = std::get_if<Arrived>(&event->what)) {
      active_.insert(arrived->to);
      active_arrival_ = timeline_.op_of_node(arrived->node);
    }
    if (auto* landed = std::get_if<Landed>(&event->what)) active_.insert(landed->tensor);
    if (auto* hooked = std::get_if<Hooked>(&event->what)) active_.insert(hooked->tensor);
    if (auto* let_go = std::get_if<LetGo>(&event->what)) active_.insert(let_go->tensor);
    if (auto* wrote = std::get_if<Wrote>(&event->what)) active_.insert(wrote->tensor.tensor);
    const std::vector<Id> factors = timeline_.factors(cursor_);
    factors_.insert(factors.begin(), factors.end());
  }

  Box cluster_box(std::size_t i) const {
    Box box;
    box.item = {Item::Kind::scope, diagram_.clusters[i]};
    box.rect = placement_.clusters[i];
    box.rounding = 10;
    box.fill = Role::open_scope;
    box.outline = Role::scope_outline;
    box.outline_width = 1;
    box.texts.push_back({diagram_.titles[i],
                         {box.rect.x + 10, box.rect.y + 16},
                         title_size,
                         Font::regular,
                         Align::left,
                         Role::faint});
    return box;
  }

  Box node_box(std::size_t i) const {
    const Diagram::Node& node = diagram_.nodes[i];
    const Structure::Node& size = diagram_.structure.nodes[i];
    const Point center = placement_.centers[i];
    Box box;
    box.item = node.item;
    box.rect = {center.x - size.width / 2, center.y - size.height / 2, size.width, size.height};
    box.round = size.round;
    box.dashed = node.dashed;
    if (node.item.kind == Item::Kind::tensor) {
      dress_tensor(node, box);
    } else {
      dress_op(node, box);
    }
    return box;
  }

  void dress_tensor(const Diagram::Node& node, Box& box) const {
    const Id tensor = node.item.id;
    const bool exists = timeline_.exists(cursor_, tensor);
    box.progress = !exists                    ? Progress::pending
                   : active_.contains(tensor) ? Progress::active
                                              : Progress::done;
    box.fill = exists ? Role::box : Role::pending_fill;
    box.outline = exists ? Role::outline : Role::pending_outline;
    if (factors_.contains(tensor)) box.outline = Role::factor;
    if (box.progress == Progress::active) {
      box.outline = Role::active;
      box.outline_width = 2.5;
    }
    const double left = box.rect.x + inset, right = box.rect.x + box.rect.width - inset;
    const auto row = [&](double y) { return Point{left, box.rect.y + y}; };
    box.texts.push_back({node.title, row(21), name_size, node.named ? Font::bold : Font::italic,
                         Align::left, exists ? Role::name : Role::pending_text});
    box.texts.push_back({node.detail,
                         {right, box.rect.y + 20},
                         shape_size,
                         Font::mono,
                         Align::right,
                         exists ? Role::faint : Role::pending_text});
    if (!exists) return;
    box.texts.push_back({in_a_box(timeline_.value(cursor_, tensor)), row(42), number_size,
                         Font::mono, Align::left, Role::value});
    const int room = static_cast<int>((right - left) / (mono_advance * number_size));
    if (Text text = gradient_text(tensor, room); !text.text.empty()) {
      text.at = row(60);
      box.texts.push_back(std::move(text));
    }
  }

  Text gradient_text(Id tensor, int room) const {
    Text text;
    text.size = number_size;
    text.font = Font::mono;
    text.role = Role::gradient;
    const Gradient gradient = timeline_.gradient(cursor_, tensor);
    const Seen* seen = timeline_.seen(tensor);
    using State = Gradient::State;
    if (gradient.state == State::not_yet || gradient.state == State::cleared) {
      if (seen == nullptr || !seen->requires_grad) return text;  // it will never have one
      text.text = gradient.state == State::cleared ? "cleared" : "not yet";
      text.size = number_size - 1;
      text.role = Role::faint;
    } else if (view_.cover_gradients && !view_.uncovered.contains(tensor)) {
      text.text = "?";
    } else if (gradient.state == State::so_far) {
      text.text = in_a_box(gradient.value, std::max(7, room - 7)) + " so far";
      if (text.text.find("… so far") != text.text.npos)  // it was cut: the numbers matter more
        text.text = in_a_box(gradient.value, room);
    } else {
      text.text = in_a_box(gradient.value);
    }
    return text;
  }

  // An op's circle, and the box of a closed scope or of a source line.
  void dress_op(const Diagram::Node& node, Box& box) const {
    const bool by_itself = node.ops.empty();  // it has no result
    const bool group = node.item.kind != Item::Kind::op;
    const bool failed =
        by_itself || std::find(node.ops.begin(), node.ops.end(), failed_op_) != node.ops.end();
    const Progress progress =
        by_itself ? timeline_.forward(cursor_, node.item.id) : progress_of(node);
    const bool pending = progress == Progress::pending;
    box.progress = progress;
    box.fill = pending ? Role::pending_fill : group ? Role::closed_scope : Role::circle;
    box.outline = pending ? Role::pending_outline : Role::outline;
    if (progress == Progress::active) {
      box.outline = Role::active;
      box.outline_width = 2.5;
    }
    if (failed && !pending) box.outline = Role::failed;
    box.rounding = group ? 10 : box.rect.height / 2;
    const Point center = box.rect.center();
    const Role role = pending ? Role::pending_text : failed ? Role::failed : Role::name;
    if (!group) {
      box.texts.push_back({node.title,
                           {center.x, center.y + symbol_size * 0.35},
                           symbol_size,
                           Font::regular,
                           Align::middle,
                           role});
      return;
    }
    box.texts.push_back(
        {node.title, {center.x, center.y - 2}, name_size, Font::bold, Align::middle, role});
    box.texts.push_back({node.detail,
                         {center.x, center.y + 16},
                         shape_size,
                         Font::mono,
                         Align::middle,
                         pending ? Role::pending_text : Role::faint});
  }

  Progress progress_of(const Diagram::Node& node) const {
    bool all = true, some = false;
    for (std::size_t op : node.ops) {
      if (active_op_ == op || active_arrival_ == op) return Progress::active;
      const bool done = timeline_.forward(cursor_, op) != Progress::pending;
      all = all && done;
      some = some || done;
    }
    return all ? Progress::done : some ? Progress::active : Progress::pending;
  }

  // ---- Lines

  Stroke stroke(const Diagram::Edge& edge, const std::vector<Point>& spline) const {
    Stroke stroke;
    stroke.from = diagram_.nodes[static_cast<std::size_t>(edge.from)].item;
    stroke.to = diagram_.nodes[static_cast<std::size_t>(edge.to)].item;
    stroke.op = edge.parts[0].op;
    stroke.slot = edge.parts[0].slot;
    stroke.curve = spline;
    stroke.role = Role::pending_edge;
    stroke.width = 2;
    stroke.dashed = std::all_of(edge.parts.begin(), edge.parts.end(), [this](const Use& part) {
      return timeline_.op(part.op).node == 0;
    });
    for (const Use& part : edge.parts)
      if (part.slot < 0)
        dress_result(edge, part, stroke);
      else
        dress_input(part, stroke);
    put_arrow(stroke);
    if (stroke.role == Role::active_edge) stroke.label = label_of(stroke);
    return stroke;
  }

  // Of several parts the most advanced one gives the line its look.
  static void look(Stroke& stroke, Role role) {
    const auto rank = [](Role r) {
      return r == Role::active_edge     ? 4
             : r == Role::backward_edge ? 3
             : r == Role::forward_edge  ? 2
             : r == Role::edge          ? 1
                                        : 0;
    };
    if (rank(role) <= rank(stroke.role)) return;
    stroke.role = role;
    stroke.reversed = role == Role::backward_edge || role == Role::active_edge;
    stroke.width = role == Role::active_edge     ? 3.5
                   : role == Role::backward_edge ? 2.5
                   : role == Role::forward_edge  ? 3
                                                 : 2;
  }

  void dress_forward(std::size_t op, Stroke& stroke) const {
    const Progress forward = timeline_.forward(cursor_, op);
    if (forward == Progress::active) look(stroke, Role::forward_edge);
    if (forward == Progress::done) look(stroke, Role::edge);
  }

  // From a tensor into an op: a gradient comes back along it when it arrives in this slot.
  void dress_input(const Use& part, Stroke& stroke) const {
    dress_forward(part.op, stroke);
    const Progress backward = timeline_.edge_backward(cursor_, part.op, part.slot);
    if (backward == Progress::pending) return;
    const bool now = backward == Progress::active;
    if (now) {
      stroke.op = part.op;
      stroke.slot = part.slot;
    }
    look(stroke, now ? Role::active_edge : Role::backward_edge);
  }

  // From an op to its result: a gradient comes back along it when the result's is complete.
  void dress_result(const Diagram::Edge& edge, const Use& part, Stroke& stroke) const {
    dress_forward(part.op, stroke);
    const Id tensor = diagram_.nodes[static_cast<std::size_t>(edge.to)].item.id;
    if (timeline_.op(part.op).node == 0 || timeline_.is_leaf(tensor)) return;
    const Gradient::State state = timeline_.gradient(cursor_, tensor).state;
    if (state == Gradient::State::complete || state == Gradient::State::landed)
      look(stroke, Role::backward_edge);
  }

  // "dy · b", or nothing where the formula is too long to stand beside a line.
  std::string short_formula(const Stroke& stroke) const {
    constexpr std::size_t longest = 9;
    const OpFacts* facts = timeline_.facts(timeline_.op(stroke.op).op);
    const auto slot = static_cast<std::size_t>(stroke.slot);
    if (facts == nullptr || slot >= facts->derivatives.size()) return "";
    const std::string formula = words::pretty(facts->derivatives[slot]);
    return words::length(formula) <= longest ? formula : "";
  }

  // The middle of a text beside a curve that covers no box, as near to the middle as may be. Where
  // the curve is too short for it: above or below the op, or its row. If there is no such place: at
  // the middle.
  Point free_place(const Stroke& stroke, double width, double height) const {
    const std::vector<Point>& curve = stroke.curve;
    for (const double part : {0.5, 0.35, 0.65, 0.2, 0.8})
      for (const bool other_side : {false, true}) {
        const Point middle = beside(curve, part, other_side, width, height);
        if (is_free(middle, width, height)) return middle;
      }
    for (std::size_t i = 0; i < diagram_.nodes.size(); ++i) {
      if (diagram_.nodes[i].item != stroke.to) continue;
      for (const double row : {diagram_.structure.nodes[i].height, tensor_height})
        for (const double side : {-1.0, 1.0}) {
          const double away = (row + height) / 2 + 3;
          const Point place{placement_.centers[i].x, placement_.centers[i].y + side * away};
          if (is_free(place, width, height)) return place;
        }
    }
    return beside(curve, 0.5, false, width, height);
  }

  bool is_free(Point middle, double width, double height) const {
    constexpr double margin = 2;
    for (std::size_t i = 0; i < diagram_.nodes.size(); ++i) {
      const Structure::Node& box = diagram_.structure.nodes[i];
      const Point& center = placement_.centers[i];
      if (std::abs(center.x - middle.x) < (box.width + width) / 2 + margin &&
          std::abs(center.y - middle.y) < (box.height + height) / 2 + margin)
        return false;
    }
    return true;
  }

  std::optional<Text> label_of(const Stroke& stroke) const {
    std::string text = timeline_.edge_numbers(cursor_, stroke.op, stroke.slot);
    if (view_.cover_gradients && !view_.uncovered.contains(stroke.from.id)) text = "?";
    if (text.empty()) text = short_formula(stroke);
    if (text.empty() || stroke.curve.size() < 4) return std::nullopt;
    // A long text is written smaller, so that it fits the room that a label has.
    const double whole = width_of(text, label_size);
    const double size = std::max(9.0, std::floor(label_size * std::min(1.0, label_width / whole)));
    while (width_of(text, size) > label_width) text = words::cut(text, words::length(text) - 1);
    const Point middle = free_place(stroke, width_of(text, size), size);
    return Text{text,          {middle.x, middle.y + size * 0.35},
                size,          Font::regular,
                Align::middle, Role::active_edge};
  }

  const Timeline& timeline_;
  const Cursor cursor_;
  const Diagram& diagram_;
  const Placement& placement_;
  const View& view_;
  std::set<Id> active_, factors_;
  std::optional<std::size_t> active_op_, active_arrival_, failed_op_;
};

}  // namespace

Scene make_scene(const Timeline& timeline, Cursor cursor, const Diagram& diagram,
                 const Placement& placement, const View& view) {
  return SceneMaker(timeline, cursor, diagram, placement, view).make();
}

const Box* Scene::find(Item item) const {
  for (const Box& box : boxes)
    if (box.item == item) return &box;
  for (const Box& box : scopes)
    if (box.item == item) return &box;
  return nullptr;
}

const Box* Scene::hit(Point point) const {
  for (auto box = boxes.rbegin(); box != boxes.rend(); ++box)
    if (box->rect.contains(point)) return &*box;
  for (auto box = scopes.rbegin(); box != scopes.rend(); ++box)
    if (box->rect.contains(point)) return &*box;
  return nullptr;
}

// ---- The stage -----------------------------------------------------------------------------------

namespace {

constexpr double between_layouts = 0.5;  // seconds, while an episode grows
constexpr double easing_time = 0.35;

struct Laid {
  Diagram diagram;
  std::shared_ptr<const Placement> placement;
};

std::vector<Point> direct(const Placement& placement, const Structure& structure,
                          std::size_t edge) {
  const auto from = static_cast<std::size_t>(structure.edges[edge].from);
  const auto to = static_cast<std::size_t>(structure.edges[edge].to);
  const Point a{placement.centers[from].x + structure.nodes[from].width / 2,
                placement.centers[from].y};
  const Point b{placement.centers[to].x - structure.nodes[to].width / 2, placement.centers[to].y};
  const double middle = (a.x + b.x) / 2;
  return {a, {middle, a.y}, {middle, b.y}, b};
}

// On the way from an old placement to a new one, `part` between 0 and 1. What is new stands still.
Placement eased(const Laid& before, const Laid& after, double part) {
  Placement placement = *after.placement;
  std::map<Item, Point> old;
  for (std::size_t i = 0; i < before.diagram.nodes.size(); ++i)
    old[before.diagram.nodes[i].item] = before.placement->centers[i];
  bool moved = false;
  for (std::size_t i = 0; i < after.diagram.nodes.size(); ++i) {
    auto from = old.find(after.diagram.nodes[i].item);
    if (from == old.end()) continue;
    moved = moved || distance(from->second, placement.centers[i]) > 0.5;
    placement.centers[i] = between(from->second, placement.centers[i], part);
  }
  if (moved)
    for (std::size_t i = 0; i < placement.splines.size(); ++i)
      placement.splines[i] = direct(placement, after.diagram.structure, i);
  for (std::size_t i = 0; i < after.diagram.clusters.size(); ++i)
    for (std::size_t k = 0; k < before.diagram.clusters.size(); ++k) {
      if (after.diagram.clusters[i] != before.diagram.clusters[k]) continue;
      const Rect from = before.placement->clusters[k], to = placement.clusters[i];
      const Point low = between({from.x, from.y}, {to.x, to.y}, part);
      const Point size = between({from.width, from.height}, {to.width, to.height}, part);
      placement.clusters[i] = {low.x, low.y, size.x, size.y};
    }
  placement.width = between({before.placement->width, 0}, {placement.width, 0}, part).x;
  placement.height = between({before.placement->height, 0}, {placement.height, 0}, part).x;
  return placement;
}

}  // namespace

struct Stage::State {
  Layouts layouts;

  // What the last look was about.
  std::shared_ptr<const Trace> trace;
  Cursor cursor;
  View view;
  std::shared_ptr<const Scene> scene = std::make_shared<const Scene>();

  std::optional<Diagram> wanted;  // waits for its layout
  std::optional<Laid> shown, before;
  Toggled toggled_of_diagram;
  int episode_of_diagram = 0;
  const Event* first_event = nullptr;  // tells one run from another
  double made_at = -1e9, eased_at = -1e9;

  bool is_stale(const Timeline& timeline, const View& look, Cursor at, double now) const;
  void renew(const Timeline& timeline, const View& look, Cursor at, double now);
  void take_placement(double now);
};

namespace {
const Event* first_event_of(const Timeline& timeline) {
  return timeline.trace().events.empty() ? nullptr : timeline.trace().events[0].get();
}
}  // namespace

// Whether the diagram must be made anew.
bool Stage::State::is_stale(const Timeline& timeline, const View& look, Cursor at,
                            double now) const {
  const bool other = episode_of_diagram != at.episode || toggled_of_diagram != look.toggled ||
                     first_event != first_event_of(timeline);
  if (other) return true;
  if (trace == timeline.shared_trace()) return false;
  return timeline.episode(at.episode).ended || now - made_at >= between_layouts;
}

void Stage::State::renew(const Timeline& timeline, const View& look, Cursor at, double now) {
  if (episode_of_diagram != at.episode || first_event != first_event_of(timeline)) {
    shown.reset();  // another picture: nothing in it moves into place
    before.reset();
  }
  wanted = make_diagram(timeline, at.episode, look.toggled);
  episode_of_diagram = at.episode;
  toggled_of_diagram = look.toggled;
  first_event = first_event_of(timeline);
  made_at = now;
}

void Stage::State::take_placement(double now) {
  if (!wanted) return;
  std::shared_ptr<const Placement> placement;
  if (wanted->nodes.empty())
    placement = std::make_shared<const Placement>();
  else
    placement = layouts.request(wanted->structure);
  if (!placement) return;
  const bool same = shown && shown->placement == placement;
  if (shown && !same) {
    before = std::move(shown);
    eased_at = now;
  }
  shown = Laid{std::move(*wanted), std::move(placement)};
  wanted.reset();
}

std::shared_ptr<const Scene> Stage::look(const Timeline& timeline, Cursor cursor, const View& view,
                                         double now) {
  if (!state_) state_ = std::make_shared<State>();
  State& s = *state_;
  cursor = timeline.clamp(cursor);
  const bool stale = s.is_stale(timeline, view, cursor, now);
  const bool grown = s.trace != timeline.shared_trace();
  const bool same_question = !grown && cursor == s.cursor &&
                             view.cover_gradients == s.view.cover_gradients &&
                             view.uncovered == s.view.uncovered;
  if (!stale && same_question && s.scene->settled) return s.scene;
  if (stale) s.renew(timeline, view, cursor, now);
  const bool waiting_for_growth = grown && !stale;
  s.take_placement(now);
  if (!waiting_for_growth) s.trace = timeline.shared_trace();
  s.cursor = cursor;
  s.view = view;
  const double part = (now - s.eased_at) / easing_time;
  if (part >= 1) s.before.reset();

  if (!s.shown) {  // the first layout is on its way: the last picture stays a little longer
    auto waiting = std::make_shared<Scene>(*s.scene);
    waiting->settled = false;
    s.scene = std::move(waiting);
    return s.scene;
  }
  Scene scene;
  if (s.before) {
    const double smooth = part * part * (3 - 2 * part);
    const Placement placement = eased(*s.before, *s.shown, smooth);
    scene = make_scene(timeline, cursor, s.shown->diagram, placement, view);
  } else {
    scene = make_scene(timeline, cursor, s.shown->diagram, *s.shown->placement, view);
  }
  scene.settled = !s.before && !s.wanted && !waiting_for_growth;
  s.scene = std::make_shared<const Scene>(std::move(scene));
  return s.scene;
}

}  // namespace viewer
