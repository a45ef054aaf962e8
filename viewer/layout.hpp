// Where the boxes of an episode stand: Graphviz's dot, once per structure.
//
// A structure knows sizes and connections only: no ids, no values, no cursor. So all frames of an
// episode have one layout, and stepping moves nothing. Lengths are in points; x grows to the right
// and y downwards.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace viewer {

struct Point {
  double x = 0, y = 0;
  bool operator==(const Point&) const = default;
};
struct Rect {
  double x = 0, y = 0, width = 0, height = 0;  // x, y: the upper left corner
  Point center() const { return {x + width / 2, y + height / 2}; }
  bool contains(Point p) const {
    return p.x >= x && p.y >= y && p.x <= x + width && p.y <= y + height;
  }
  bool operator==(const Rect&) const = default;
};
inline Rect around(Rect a, Rect b) {  // the least that holds both
  const double x = std::min(a.x, b.x), y = std::min(a.y, b.y);
  return {x, y, std::max(a.x + a.width, b.x + b.width) - x,
          std::max(a.y + a.height, b.y + b.height) - y};
}

struct Structure {
  struct Node {
    double width = 0, height = 0;
    bool round = false;  // an ellipse, else a box
    int cluster = -1;    // the innermost one around it, or none
    bool operator==(const Node&) const = default;
  };
  struct Edge {
    int from = 0, to = 0;
    bool result = false;  // from an op to what it makes: short, straight and without a label
    bool operator==(const Edge&) const = default;
  };
  struct Cluster {
    int parent = -1;         // comes before its children
    double title_width = 0;  // of the text; its height is `title_height`
    bool operator==(const Cluster&) const = default;
  };
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<Cluster> clusters;
  bool operator==(const Structure&) const = default;
  std::string key() const;  // equal for equal structures
};

inline constexpr double title_height = 18;
// What an edge's label has at most. Every frame keeps this room at every edge that can have a
// label: Graphviz would move the whole picture otherwise.
inline constexpr double label_width = 90, label_height = 16;

struct Placement {
  std::vector<Point> centers;  // of the nodes
  std::vector<std::vector<Point>>
      splines;  // of the edges: Bezier, 1 + 3n points from the tail's rim to the head's
  std::vector<Rect> clusters;
  double width = 0, height = 0;
  bool by_graphviz = false;
};

bool have_graphviz();

// Lays out now, in the calling thread. Never fails: where Graphviz is missing, in columns.
Placement place(const Structure&);

// The plain layout without Graphviz: each node in the column behind its inputs, lines straight.
Placement place_in_columns(const Structure&);

// The structure as dot text. `place` lays out exactly this; a figure is the same text with more
// attributes, one text a node, edge and cluster, which change how things look and never where they
// stand.
struct Dress {
  std::string graph;                                // statements: "bgcolor=white;"
  std::vector<std::string> nodes, edges, clusters;  // attributes: "penwidth=2 color=red"
  std::vector<std::string> titles, labels;          // of clusters and edges, in HTML-like text
};
std::string dot_of(const Structure&, const Dress& = {});

// Graphviz's rendering of dot text that has positions, as svg, png or pdf, by the engine nop2.
// Throws std::runtime_error with one sentence, as it does where Graphviz is missing.
std::string render(const std::string& dot, const std::string& format);

// Lays out on one worker thread and remembers what it has laid out.
class Layouts {
 public:
  Layouts();
  ~Layouts();
  Layouts(const Layouts&) = delete;
  Layouts& operator=(const Layouts&) = delete;
  // The placement if it is known; else null, and the worker begins. Never waits. A newer request
  // replaces one that has not begun.
  std::shared_ptr<const Placement> request(const Structure&);

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, std::shared_ptr<const Placement>> known_;
  std::deque<std::string> order_;  // of `known_`, oldest first
  std::shared_ptr<const Structure> wanted_;
  std::string working_on_;
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace viewer
