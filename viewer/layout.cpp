#include "viewer/layout.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#ifdef MINITENSOR_GRAPHVIZ
#include <cgraph.h>
#include <gvc.h>
#endif

namespace viewer {

// ---- Structures ----------------------------------------------------------------------------------

namespace {
void write(std::string& key, double number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  key.append(bytes, sizeof number);
}
void write(std::string& key, int number) { write(key, static_cast<double>(number)); }
}  // namespace

std::string Structure::key() const {
  std::string key;
  for (const Node& node : nodes) {
    write(key, node.width);
    write(key, node.height);
    write(key, node.round ? 1 : 0);
    write(key, node.cluster);
  }
  write(key, -2);
  for (const Edge& edge : edges) {
    write(key, edge.from);
    write(key, edge.to);
    write(key, edge.result ? 1 : 0);
  }
  write(key, -2);
  for (const Cluster& cluster : clusters) {
    write(key, cluster.parent);
    write(key, cluster.title_width);
  }
  return key;
}

// ---- Dot text ------------------------------------------------------------------------------------

namespace {

std::string inches(double points) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", points / 72);
  return text;
}

std::string whole_points(double points) { return std::to_string(static_cast<long>(points + 0.5)); }

const std::string& at(const std::vector<std::string>& texts, std::size_t i) {
  static const std::string none;
  return i < texts.size() ? texts[i] : none;
}

// A text that takes the same room whatever it says, also nothing.
std::string room_for(const std::string& text, double width, double height, const char* align) {
  return "<<TABLE BORDER=\"0\" CELLBORDER=\"0\" CELLSPACING=\"0\" CELLPADDING=\"0\"><TR>"
         "<TD FIXEDSIZE=\"TRUE\" WIDTH=\"" +
         whole_points(width) + "\" HEIGHT=\"" + whole_points(height) + "\" ALIGN=\"" + align +
         "\">" + text + "</TD></TR></TABLE>>";
}

}  // namespace

std::string dot_of(const Structure& structure, const Dress& dress) {
  std::string text =
      "digraph {\n"
      "  rankdir=LR; ranksep=0.38; nodesep=0.5; pad=0.15;\n"
      "  node [label=\"\" shape=box fixedsize=true];\n"
      "  edge [tailport=e headport=w arrowhead=none];\n";
  if (!dress.graph.empty()) text += "  " + dress.graph + "\n";
  // Clusters are opened in order and closed when the next one is not inside: parents come first,
  // and members are named inside their innermost cluster.
  std::vector<std::vector<std::size_t>> children(structure.clusters.size() + 1),
      members(structure.clusters.size() + 1);
  for (std::size_t i = 0; i < structure.clusters.size(); ++i)
    children[static_cast<std::size_t>(structure.clusters[i].parent + 1)].push_back(i);
  for (std::size_t i = 0; i < structure.nodes.size(); ++i)
    members[static_cast<std::size_t>(structure.nodes[i].cluster + 1)].push_back(i);
  struct Open {
    std::size_t cluster, next_child;
  };
  std::vector<Open> open{{0, 0}};  // 0: the whole graph; others are counted from 1
  while (!open.empty()) {
    auto& [cluster, next_child] = open.back();
    if (next_child < children[cluster].size()) {
      const std::size_t child = children[cluster][next_child++];
      text += "  subgraph cluster_" + std::to_string(child) + " {\n    graph [label=" +
              room_for(at(dress.titles, child), structure.clusters[child].title_width, title_height,
                       "LEFT") +
              " labeljust=l margin=10 " + at(dress.clusters, child) + "];\n";
      open.push_back({child + 1, 0});
      continue;
    }
    if (cluster != 0) {
      text += "   ";
      for (std::size_t member : members[cluster]) text += " n" + std::to_string(member) + ";";
      text += "\n  }\n";
    }
    open.pop_back();
  }
  // In a graph from left to right dot puts what comes first at the bottom: so the last comes first.
  for (std::size_t i = structure.nodes.size(); i-- > 0;) {
    const Structure::Node& node = structure.nodes[i];
    text += "  n" + std::to_string(i) + " [width=" + inches(node.width) +
            " height=" + inches(node.height) + (node.round ? " shape=ellipse" : "") +
            (at(dress.nodes, i).empty() ? "" : " ") + at(dress.nodes, i) + "];\n";
  }
  for (std::size_t i = structure.edges.size(); i-- > 0;) {
    const Structure::Edge& edge = structure.edges[i];
    text += "  n" + std::to_string(edge.from) + " -> n" + std::to_string(edge.to) + " [id=e" +
            std::to_string(i) +
            (edge.result ? " weight=4"
                         : " xlabel=" +
                               room_for(at(dress.labels, i), label_width, label_height, "CENTER")) +
            (at(dress.edges, i).empty() ? "" : " ") + at(dress.edges, i) + "];\n";
  }
  return text + "}\n";
}

// ---- Without Graphviz: columns by the longest way, rows in order ------------------------------------

namespace {

constexpr double column_gap = 40, row_gap = 24, margin = 16;

// The column of each node: one more than the largest of its inputs'. Nodes on a cycle (a tensor
// that is written in place) come where their first input puts them.
std::vector<int> columns_of(const Structure& structure) {
  std::vector<int> column(structure.nodes.size(), 0), waiting(structure.nodes.size(), 0);
  std::vector<std::vector<std::size_t>> after(structure.nodes.size());
  for (const Structure::Edge& edge : structure.edges) {
    after[static_cast<std::size_t>(edge.from)].push_back(static_cast<std::size_t>(edge.to));
    ++waiting[static_cast<std::size_t>(edge.to)];
  }
  std::vector<bool> placed(structure.nodes.size(), false);
  std::vector<std::size_t> ready;
  for (std::size_t seed = 0; seed < structure.nodes.size(); ++seed) {
    // Nodes that wait for nothing first; what is left then is on cycles, and breaks them in order.
    for (std::size_t i = 0; i < structure.nodes.size(); ++i)
      if (seed == 0 && waiting[i] == 0) ready.push_back(i);
    if (!placed[seed] && ready.empty()) ready.push_back(seed);
    for (; !ready.empty();) {
      const std::size_t node = ready.back();
      ready.pop_back();
      if (placed[node]) continue;
      placed[node] = true;
      for (std::size_t next : after[node]) {
        if (!placed[next]) column[next] = std::max(column[next], column[node] + 1);
        if (--waiting[next] == 0) ready.push_back(next);
      }
    }
  }
  return column;
}

std::vector<Point> straight(Point from, Point to) {
  const double middle = (from.x + to.x) / 2;
  return {from, {middle, from.y}, {middle, to.y}, to};
}

void surround_clusters(const Structure& structure, Placement& placement) {
  struct Bounds {
    double left = 1e9, top = 1e9, right = -1e9, bottom = -1e9;
  };
  std::vector<Bounds> bounds(structure.clusters.size());
  for (std::size_t i = 0; i < structure.nodes.size(); ++i)
    for (int c = structure.nodes[i].cluster; c >= 0;
         c = structure.clusters[static_cast<std::size_t>(c)].parent) {
      Bounds& b = bounds[static_cast<std::size_t>(c)];
      const Point center = placement.centers[i];
      const double w = structure.nodes[i].width / 2 + 8, h = structure.nodes[i].height / 2 + 8;
      b.left = std::min(b.left, center.x - w);
      b.right = std::max(b.right, center.x + w);
      b.top = std::min(b.top, center.y - h);
      b.bottom = std::max(b.bottom, center.y + h);
    }
  for (const Bounds& b : bounds)
    placement.clusters.push_back({b.left, b.top, b.right - b.left, b.bottom - b.top});
}

}  // namespace

Placement place_in_columns(const Structure& structure) {
  Placement placement;
  const std::vector<int> column = columns_of(structure);
  std::vector<double> width, height;
  for (std::size_t i = 0; i < structure.nodes.size(); ++i) {
    const auto c = static_cast<std::size_t>(column[i]);
    if (width.size() <= c) width.resize(c + 1, 0), height.resize(c + 1, -row_gap);
    width[c] = std::max(width[c], structure.nodes[i].width);
    height[c] += structure.nodes[i].height + row_gap;
  }
  std::vector<double> left(width.size(), margin);
  for (std::size_t c = 1; c < width.size(); ++c) left[c] = left[c - 1] + width[c - 1] + column_gap;
  const double tallest = height.empty() ? 0 : *std::max_element(height.begin(), height.end());
  std::vector<double> next(width.size());
  for (std::size_t c = 0; c < width.size(); ++c) next[c] = margin + (tallest - height[c]) / 2;
  for (std::size_t i = 0; i < structure.nodes.size(); ++i) {
    const auto c = static_cast<std::size_t>(column[i]);
    placement.centers.push_back({left[c] + width[c] / 2, next[c] + structure.nodes[i].height / 2});
    next[c] += structure.nodes[i].height + row_gap;
  }
  for (const Structure::Edge& edge : structure.edges) {
    const auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
    placement.splines.push_back(straight(
        {placement.centers[from].x + structure.nodes[from].width / 2, placement.centers[from].y},
        {placement.centers[to].x - structure.nodes[to].width / 2, placement.centers[to].y}));
  }
  surround_clusters(structure, placement);
  placement.width = width.empty() ? 0 : left.back() + width.back() + margin;
  placement.height = tallest + 2 * margin;
  return placement;
}

// ---- With Graphviz -------------------------------------------------------------------------------

#ifdef MINITENSOR_GRAPHVIZ

namespace {

std::mutex one_at_a_time;  // Graphviz keeps global state
std::string complaints;    // guarded by it

int complain(char* text) {
  complaints += text;
  return 0;
}

class Graphviz {
 public:
  explicit Graphviz(const std::string& dot) : lock_(one_at_a_time) {
    complaints.clear();
    agseterrf(complain);
    graph_ = agmemread(dot.c_str());
  }
  Graphviz(const Graphviz&) = delete;
  Graphviz& operator=(const Graphviz&) = delete;
  ~Graphviz() {
    if (laid_out_) gvFreeLayout(context_, graph_);
    if (graph_ != nullptr) agclose(graph_);
    agseterrf(nullptr);
  }
  bool lay_out(const char* engine) {
    laid_out_ = graph_ != nullptr && gvLayout(context_, graph_, engine) == 0;
    return laid_out_;
  }
  std::string render(const std::string& format) {
    char* data = nullptr;
    unsigned int size = 0;
    if (!laid_out_ || gvRenderData(context_, graph_, format.c_str(), &data, &size) != 0 ||
        data == nullptr)
      throw std::runtime_error("Graphviz cannot write " + format + ": " + complaints);
    std::string text(data, size);
    gvFreeRenderData(data);
    return text;
  }
  Agraph_t* graph() { return graph_; }

 private:
  std::unique_lock<std::mutex> lock_;
  // One for all: the text plugin of Graphviz keeps pointers into a context that has been freed.
  static inline GVC_t* context_ = gvContext();
  Agraph_t* graph_ = nullptr;
  bool laid_out_ = false;
};

Agnode_t* node(Agraph_t* graph, std::size_t i) {
  std::string name = "n" + std::to_string(i);
  return agnode(graph, name.data(), 0);
}

// The number in a name like "e12" or "cluster_12".
std::size_t number_in(const char* name) {
  const char* digit = std::strpbrk(name, "0123456789");
  return digit == nullptr ? 0 : static_cast<std::size_t>(std::strtoul(digit, nullptr, 10));
}

void read_splines(Agraph_t* graph, double top, Placement& placement) {
  std::string id = "id";
  for (Agnode_t* from = agfstnode(graph); from != nullptr; from = agnxtnode(graph, from))
    for (Agedge_t* edge = agfstout(graph, from); edge != nullptr; edge = agnxtout(graph, edge)) {
      const std::size_t number = number_in(agget(edge, id.data()));
      if (ED_spl(edge) == nullptr || number >= placement.splines.size()) continue;
      std::vector<Point>& points = placement.splines[number];
      for (int b = 0; b < ED_spl(edge)->size; ++b) {
        const bezier& curve = ED_spl(edge)->list[b];
        for (int p = b == 0 ? 0 : 1; p < curve.size; ++p)
          points.push_back({curve.list[p].x, top - curve.list[p].y});
      }
    }
}

void read_clusters(Agraph_t* graph, double top, Placement& placement) {
  std::vector<Agraph_t*> open{graph};
  while (!open.empty()) {
    Agraph_t* outer = open.back();
    open.pop_back();
    for (int c = 1; c <= GD_n_cluster(outer); ++c) {
      Agraph_t* inner = GD_clust(outer)[c];
      open.push_back(inner);
      const std::size_t number = number_in(agnameof(inner));
      const boxf box = GD_bb(inner);
      if (number < placement.clusters.size())
        placement.clusters[number] = {box.LL.x, top - box.UR.y, box.UR.x - box.LL.x,
                                      box.UR.y - box.LL.y};
    }
  }
}

// Whether all that a scene needs is there.
bool is_complete(const Placement& placement) {
  return std::all_of(placement.splines.begin(), placement.splines.end(), [](const auto& spline) {
    return spline.size() % 3 == 1 && spline.size() >= 4;
  });
}

}  // namespace

bool have_graphviz() { return true; }

Placement place(const Structure& structure) {
  if (structure.nodes.empty()) return {};
  Graphviz graphviz(dot_of(structure));
  if (!graphviz.lay_out("dot")) return place_in_columns(structure);
  Placement placement;
  placement.by_graphviz = true;
  Agraph_t* graph = graphviz.graph();
  const double top = GD_bb(graph).UR.y;
  placement.width = GD_bb(graph).UR.x;
  placement.height = top;
  for (std::size_t i = 0; i < structure.nodes.size(); ++i) {
    const pointf center = ND_coord(node(graph, i));
    placement.centers.push_back({center.x, top - center.y});
  }
  placement.splines.resize(structure.edges.size());
  placement.clusters.resize(structure.clusters.size());
  read_splines(graph, top, placement);
  read_clusters(graph, top, placement);
  return is_complete(placement) ? placement : place_in_columns(structure);
}

std::string render(const std::string& dot, const std::string& format) {
  Graphviz graphviz(dot);
  if (!graphviz.lay_out("nop2"))
    throw std::runtime_error("Graphviz cannot read the figure: " + complaints);
  return graphviz.render(format);
}

#else

bool have_graphviz() { return false; }
Placement place(const Structure& structure) { return place_in_columns(structure); }
std::string render(const std::string&, const std::string& format) {
  throw std::runtime_error("writing " + format +
                           " needs Graphviz, which this program was built "
                           "without");
}

#endif

// ---- One worker ----------------------------------------------------------------------------------

namespace {
constexpr std::size_t most_known = 64;  // placements that are remembered
}

Layouts::Layouts() : worker_([this] { work(); }) {}

Layouts::~Layouts() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  worker_.join();
}

std::shared_ptr<const Placement> Layouts::request(const Structure& structure) {
  const std::string key = structure.key();
  std::lock_guard lock(mutex_);
  if (auto found = known_.find(key); found != known_.end()) return found->second;
  if (key == working_on_ || (wanted_ && wanted_->key() == key)) return nullptr;
  wanted_ = std::make_shared<const Structure>(structure);
  wake_.notify_all();
  return nullptr;
}

void Layouts::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || wanted_; });
    if (stopping_) return;
    const std::shared_ptr<const Structure> structure = std::exchange(wanted_, nullptr);
    working_on_ = structure->key();
    lock.unlock();
    auto placement = std::make_shared<const Placement>(place(*structure));
    lock.lock();
    known_[working_on_] = std::move(placement);
    order_.push_back(std::exchange(working_on_, ""));
    if (order_.size() > most_known) {
      known_.erase(order_.front());
      order_.pop_front();
    }
  }
}

}  // namespace viewer
