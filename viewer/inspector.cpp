#include "viewer/inspector.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "lessons/words.hpp"
#include "viewer/cells.hpp"
#include "viewer/facts.hpp"

namespace viewer {

std::vector<std::string> aligned(const std::vector<std::string>& numbers) {
  const auto before_point = [](const std::string& text) {
    return std::min(text.find_first_of(".e"), text.size());
  };
  std::size_t before = 0, after = 0;
  for (const std::string& text : numbers) {
    before = std::max(before, before_point(text));
    after = std::max(after, text.size() - before_point(text));
  }
  std::vector<std::string> columns;
  columns.reserve(numbers.size());
  for (const std::string& text : numbers)
    columns.push_back(std::string(before - before_point(text), ' ') + text +
                      std::string(after - (text.size() - before_point(text)), ' '));
  return columns;
}

namespace {

// Numbers are written out for at most so many columns and rows; beyond, a heat map shows them.
constexpr std::size_t most_columns = 8, most_rows = 12;

// How a tensor of any rank lies on a plane: the last axis to the right, all others downwards.
Plane plane_of(const Value& value) {
  Plane plane;
  if (!value.shape.empty()) plane.columns = static_cast<std::size_t>(value.shape.back());
  if (plane.columns > 0) plane.rows = static_cast<std::size_t>(value.count()) / plane.columns;
  return plane;
}

std::string brackets(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::int64:
      return "int64";
    case DType::boolean:
      return "bool";
  }
  return "";
}

// "[1, 0]": where the i-th element stands.
std::string place(const Shape& shape, std::size_t element) {
  Shape index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[axis]);
    index[axis] = static_cast<std::int64_t>(element % size);
    element /= size;
  }
  return brackets(index);
}

// A value in one line: its number, or the number of the hovered element, or as a box shows it.
std::string in_a_line(const Value& value, std::optional<std::size_t> element) {
  if (value.kept == Value::Kept::in_full && element &&
      *element < static_cast<std::size_t>(value.count()))
    return value.text(*element);
  return in_a_box(value);
}

class Inspector {
 public:
  Inspector(const Paint& paint, const Pane& pane, const Shown& shown, Desk& desk)
      : paint_(paint),
        theme_(paint.theme),
        shown_(shown),
        timeline_(shown.timeline),
        desk_(desk),
        left_(pane.origin().x + paint.px(20)),
        right_(pane.frame().right - paint.px(16)),
        top_(pane.origin().y),
        y_(pane.origin().y) {}

  // Answers the height of what was drawn.
  float draw(Item item) {
    if (item.kind == Item::Kind::tensor) tensor(item.id);
    if (item.kind == Item::Kind::op) operation(static_cast<std::size_t>(item.id));
    if (item.kind == Item::Kind::scope) scope(item.id);
    if (item.kind == Item::Kind::line) line_of_ops(static_cast<std::size_t>(item.id));
    if (item.kind == Item::Kind::none) nothing();
    return y_ - top_ + px(20);
  }

 private:
  const Paint& paint_;
  const Theme& theme_;
  const Shown& shown_;
  const Timeline& timeline_;
  Desk& desk_;
  float left_, right_, top_, y_;

  float px(float points) const { return paint_.px(points); }

  // ---- Parts that repeat -------------------------------------------------------------------------

  void title(std::string_view name, std::string_view facts, bool italic = false) {
    const Ink big{italic ? Face::bold_oblique : Face::bold, 20, theme_.text};
    const Ink small{Face::mono, 12, theme_.faint};
    const float room = right_ - left_;
    const std::string shown = paint_.cut(big, name, room);
    const float wide = paint_.text({left_, y_ + px(34)}, big, shown);
    if (wide + px(14) + paint_.width(small, facts) <= room) {
      paint_.text({left_ + wide + px(14), y_ + px(33)}, small, facts);
      y_ += px(48);
    } else {
      paint_.text({left_, y_ + px(54)}, small, paint_.cut(small, facts, room));
      y_ += px(68);
    }
  }

  void rule() {
    y_ += px(10);
    paint_.rule(left_ - px(4), right_, y_);
    y_ += px(10);
  }

  void heading(std::string_view words) {
    y_ += paint_.output({left_, y_}, right_ - left_, 22, {Face::bold, 14, theme_.text}, words) +
          px(3);
  }

  void note(std::string_view words) {
    y_ += paint_.prose({left_, y_}, right_ - left_, 20, {Face::sans, 13, theme_.faint}, words);
  }

  std::string facts_of(const Seen& seen, Line line) const {
    std::string facts = std::string(type_name(seen.dtype)) + " " + brackets(seen.shape);
    if (timeline_.is_leaf(seen.tensor)) facts += "   leaf";
    // A layer makes its buffers somewhere in the header, which is nothing to look for.
    if (line.number != 0 && !line.file.ends_with("minitensor.hpp"))
      facts += "   line " + std::to_string(line.number);
    return facts;
  }

  bool covered(Id tensor) const {
    return desk_.view.cover_gradients && !desk_.view.uncovered.contains(tensor);
  }

  // ---- A tensor ----------------------------------------------------------------------------------

  void tensor(Id id) {
    const Seen* seen = timeline_.seen(desk_.cursor, id);
    if (seen == nullptr) return;
    title(timeline_.name(id), facts_of(*seen, shown_.line_of({Item::Kind::tensor, id})),
          !timeline_.is_named(id));
    if (!timeline_.exists(desk_.cursor, id)) {
      note("Not made yet at this step.");
      return;
    }
    const Value value = timeline_.value(desk_.cursor, id);
    labelled("value", value, theme_.value, 16);
    gradient_row(id, *seen);
    rule();
    ledger(id, *seen);
    if (desk_.presenting) return;  // the ledger alone
    rule();
    used_by(id);
  }

  void gradient_row(Id id, const Seen& seen) {
    if (!seen.requires_grad &&
        timeline_.gradient(desk_.cursor, id).state == Gradient::State::not_yet) {
      label_and_words("gradient", "none is asked for");
      return;
    }
    const Gradient gradient = timeline_.gradient(desk_.cursor, id);
    using State = Gradient::State;
    if (gradient.state == State::not_yet) return label_and_words("gradient", "not yet");
    if (gradient.state == State::cleared)
      return label_and_words("gradient", "cleared by zero_grad()");
    if (covered(id)) return cover("gradient", id);
    // What grad() holds is one thing, what has arrived so far another: the ledger sums it up.
    if (gradient.state != State::landed && timeline_.is_leaf(id)) {
      const bool of_grad = timeline_.of_grad(timeline_.pass(desk_.cursor).value_or(0));
      if (!gradient.before) return label_and_words("gradient", of_grad ? "none" : "not yet");
      labelled("gradient", *gradient.before, theme_.gradient, 16);
      return label_and_words("", "from the pass before");
    }
    labelled("gradient", gradient.value, theme_.gradient, 16);
    if (gradient.state == State::so_far) label_and_words("", "so far");
  }

  void label_and_words(std::string_view label, std::string_view words) {
    paint_.text({left_, y_ + px(20)}, {Face::sans, 13, theme_.faint}, label);
    const Ink ink{Face::mono, label.empty() ? 12.0f : 14.0f, theme_.faint};
    paint_.text({left_ + px(90), y_ + px(label.empty() ? 16 : 21)}, ink,
                paint_.cut(ink, words, right_ - left_ - px(90)));
    y_ += px(label.empty() ? 24 : 30);
  }

  void cover(std::string_view label, Id id) {
    const Frame row{left_ + px(84), y_ + px(4), left_ + px(208), y_ + px(28)};
    paint_.text({left_, y_ + px(20)}, {Face::sans, 13, theme_.faint}, label);
    if (paint_.button("uncover", row, "? uncover")) desk_.view.uncovered.insert(id);
    y_ += px(34);
  }

  // A label, and the value beside it if it is short, else below it.
  void labelled(std::string_view label, const Value& value, ImU32 color, float size) {
    const Ink words{Face::sans, 13, theme_.faint};
    paint_.text({left_, y_ + px(20)}, words, label);
    if (value.kept == Value::Kept::nothing || value.count() == 0) {
      const std::string why = value.kept == Value::Kept::nothing ? value.note : "no elements";
      paint_.text({left_ + px(90), y_ + px(21)}, {Face::mono, 14, theme_.faint},
                  why.empty() ? "not kept" : why);
      y_ += px(30);
    } else if (value.kept == Value::Kept::statistics) {
      y_ += px(28);
      statistics(value, color);
    } else if (value.count() == 1) {
      paint_.text({left_ + px(90), y_ + px(21)}, {Face::mono, size, color}, value.text(0));
      if (!value.shape.empty()) point_at(0, {left_ + px(90), y_, right_, y_ + px(28)});
      y_ += px(30);
    } else {
      many(value, color);
    }
  }

  // Remembers that the pointer is on this element, and lights it up wherever it is shown.
  bool point_at(std::size_t element, Frame cell) {
    if (ImGui::IsWindowHovered() && cell.holds(ImGui::GetIO().MousePos))
      desk_.pointed.element = element;
    return desk_.pointed_before.element == element;
  }

  void many(const Value& value, ImU32 color) {
    Plane plane = plane_of(value);
    const auto count = static_cast<std::size_t>(value.count());
    if (count <= most_columns * most_rows) {
      std::vector<std::string> numbers;
      for (std::size_t i = 0; i < count; ++i) numbers.push_back(value.text(i, 9));
      numbers = aligned(numbers);
      const float step = paint_.width({Face::mono, 14, color}, numbers[0]) + px(16);
      const auto room = [&](float left) {
        return static_cast<std::size_t>((right_ + px(16) - left) / step);
      };
      const std::size_t fit = std::clamp<std::size_t>(room(left_), 1, most_columns);
      if (value.shape.size() == 1 && count > fit)  // a vector goes on in the next row
        plane = {(count + fit - 1) / fit, fit};
      if (plane.columns <= fit && plane.rows <= most_rows) {
        const float beside = left_ + px(90);
        const bool fits_beside = plane.columns <= room(beside);
        if (!fits_beside) y_ += px(24);
        return grid(value, numbers, plane, fits_beside ? beside : left_, step, color);
      }
    }
    y_ += px(28);
    heat_map(value, plane_of(value), color);
  }

  void grid(const Value& value, const std::vector<std::string>& numbers, Plane plane, float left,
            float step, ImU32 color) {
    // A blank half line stands between the matrices of a tensor of higher rank.
    const std::size_t block = value.shape.size() > 2
                                  ? static_cast<std::size_t>(value.shape[value.shape.size() - 2])
                                  : plane.rows;
    float top = y_ + px(3);
    for (std::size_t row = 0; row < plane.rows; ++row) {
      if (row > 0 && row % block == 0) top += px(10);
      for (std::size_t column = 0; column < plane.columns; ++column) {
        const std::size_t i = row * plane.columns + column;
        if (i >= numbers.size()) break;
        const float x = left + step * static_cast<float>(column);
        const Frame cell{x - px(8), top, x + step - px(8), top + px(24)};
        if (point_at(i, cell)) paint_.fill(cell, theme_.chosen, 4);
        paint_.text({x, top + px(17)}, {Face::mono, 14, color}, numbers[i]);
      }
      top += px(24);
    }
    y_ = top + px(6);
  }

  void heat_map(const Value& value, Plane plane, ImU32 color) {
    double largest = 0, low = std::numeric_limits<double>::infinity(), high = -low;
    for (std::size_t i = 0; i < static_cast<std::size_t>(value.count()); ++i) {
      const double number = value.at(i);
      if (!std::isfinite(number)) continue;
      largest = std::max(largest, std::abs(number));
      low = std::min(low, number);
      high = std::max(high, number);
    }
    const auto number = [&](std::size_t row, std::size_t column) {
      return value.at(row * plane.columns + column);
    };
    const auto hovered = picture(plane, largest, color, number);
    if (hovered) desk_.pointed.element = *hovered;
    const std::optional<std::size_t> element = desk_.pointed_before.element;
    if (element && *element < static_cast<std::size_t>(value.count()))
      caption(place(value.shape, *element) + "  " + value.text(*element));
    else
      caption(brackets(value.shape) + "   from " + words::field(low, true, 9) + " to " +
              words::field(high, true, 9));
  }

  void caption(std::string_view words) {
    paint_.text({left_, y_ + px(14)}, {Face::mono, 12, theme_.faint}, words);
    y_ += px(26);
  }

  // Answers the cell under the pointer.
  template <class Number>
  std::optional<std::size_t> picture(Plane plane, double largest, ImU32 color, Number number) {
    const CellsDrawn drawn = draw_cells(paint_, {left_, y_}, right_ - left_, px(240), plane,
                                        [&](std::size_t row, std::size_t column) {
                                          return heat(theme_, number(row, column), largest, color);
                                        });
    y_ += drawn.height + px(2);
    return drawn.hovered;
  }

  void statistics(const Value& value, ImU32 color) {
    const Statistics& facts = value.statistics;
    const Ink name{Face::sans, 12, theme_.faint}, figure{Face::mono, 13, color};
    const float half = left_ + (right_ - left_) / 2;
    const float characters = (half - left_ - px(52)) / paint_.width(figure, "0");
    const int room = std::clamp(static_cast<int>(characters) - 2, 5, 10);
    const auto field = [room](double number) { return words::field(number, true, room); };
    const auto pair = [&](float x, float y, std::string_view what, const std::string& text) {
      paint_.text({x, y}, name, what);
      paint_.text({x + px(52), y}, figure, text);
    };
    pair(left_, y_ + px(14), "least", field(facts.min));
    pair(half, y_ + px(14), "greatest", "  " + field(facts.max));
    pair(left_, y_ + px(36), "mean", field(facts.mean));
    pair(half, y_ + px(36), "spread", "  " + field(facts.std));
    y_ += px(46);
    if (facts.nan + facts.inf > 0) {
      paint_.text({left_, y_ + px(12)}, {Face::mono, 13, theme_.warning},
                  std::to_string(facts.nan) + " NaN, " + std::to_string(facts.inf) + " infinite");
      y_ += px(22);
    }
    histogram(facts, color);
    if (facts.thumbnail.empty()) return;
    const Plane plane{static_cast<std::size_t>(facts.rows),
                      static_cast<std::size_t>(facts.columns)};
    const double largest = std::max(std::abs(facts.min), std::abs(facts.max));
    picture(plane, largest, color, [&](std::size_t row, std::size_t column) {
      return static_cast<double>(facts.thumbnail[row * plane.columns + column]);
    });
    caption("a thumbnail of " + std::to_string(value.count()) + " elements");
  }

  void histogram(const Statistics& facts, ImU32 color) {
    const std::int64_t most = *std::max_element(facts.histogram.begin(), facts.histogram.end());
    if (most == 0) return;
    const float wide = (right_ - left_) / static_cast<float>(facts.histogram.size());
    const float base = y_ + px(44);
    for (std::size_t i = 0; i < facts.histogram.size(); ++i) {
      const float part = static_cast<float>(facts.histogram[i]) / static_cast<float>(most);
      const float x = left_ + wide * static_cast<float>(i);
      paint_.fill({x, base - px(40) * part, x + wide - px(1), base}, faded(color, 0.7f));
    }
    paint_.rule(left_, right_, base);
    y_ = base + px(10);
  }

  // ---- The ledger --------------------------------------------------------------------------------

  void ledger(Id id, const Seen& seen) {
    heading("Where the gradient comes from");
    y_ += px(10);
    const std::optional<std::size_t> element = desk_.pointed_before.element;
    const std::vector<Contribution> rows = timeline_.ledger(desk_.cursor, id, element);
    if (rows.empty()) return note(why_no_ledger(id, seen));
    const bool many_passes = rows.front().pass != rows.back().pass;
    const bool hidden = covered(id);
    const Widths widths = measure(rows);
    std::int64_t pass = -1;
    for (const Contribution& row : rows) {
      if (many_passes && row.pass != pass) {
        const std::string which =
            row.pass == 0 ? "in a pass that has not begun" : "pass " + std::to_string(row.pass);
        paint_.text({left_, y_ + px(14)}, {Face::sans, 12, theme_.faint}, which);
        y_ += px(22);
      }
      pass = row.pass;
      card(row, widths, hidden, id, element);
    }
    sum_row(rows, many_passes, hidden, element);
    if (timeline_.of_grad(rows.back().pass) && seen.is_leaf)
      note("grad() hands this sum to the program. What " + timeline_.name(id) +
           ".grad() holds stays as it is.");
    else if (many_passes && seen.is_leaf)
      note("It is added to what the passes before have left: no zero_grad() came in between.");
    if (!seen.shape.empty() && !element && !hidden && timeline_.value(desk_.cursor, id).count() > 1)
      note("Point at an element to see its own numbers.");
  }

  std::string why_no_ledger(Id id, const Seen& seen) const {
    if (!seen.requires_grad)
      return "No gradient is asked for: " + timeline_.name(id) + " does not require one.";
    const Gradient::State state = timeline_.gradient(desk_.cursor, id).state;
    if (state == Gradient::State::cleared)
      return "zero_grad() has let go of it. The next backward pass begins anew.";
    if (state != Gradient::State::not_yet)
      return "The backward pass starts here: " + timeline_.name(id) +
             " was asked for its own derivative.";
    return "No recorded operation uses " + timeline_.name(id) +
           ": a gradient comes only when a backward pass starts here.";
  }

  struct Widths {
    float formula = 0;     // where the second column starts
    bool stacked = false;  // the first column is so wide that the formula stands below it
  };
  Widths measure(const std::vector<Contribution>& rows) const {
    float widest = 0;
    for (const Contribution& row : rows)
      widest = std::max(widest, paint_.width({Face::mono_bold, 13, 0}, row.from));
    const bool narrow = right_ - left_ < px(260);
    if (widest <= px(90) && !narrow) return {px(114), false};
    if (!narrow && widest <= px(150)) return {widest + px(28), false};
    return {px(12), true};
  }

  static std::string folding(const Contribution& row) {
    return brackets(row.shape_before) + " → " + brackets(row.shape_given) + "  summed over " +
           words::axes(row.folded);
  }

  void card(const Contribution& row, Widths widths, bool hidden, Id id,
            std::optional<std::size_t> element) {
    const Ink faint{Face::mono, 13, theme_.faint};
    const Ink plain{Face::mono, 13, theme_.text};
    const Ink small{Face::mono, 12, theme_.faint};
    const std::string result = !row.arrived ? "" : hidden ? "?" : in_a_line(row.given, element);
    const float result_size = paint_.width({Face::mono, 16, 0}, result) > px(110) ? 13.0f : 16.0f;
    const Ink sum{Face::mono, result_size, theme_.gradient};
    const float left = left_ + px(8), column = left_ - px(4) + widths.formula;
    const float edge = right_ - px(14), room = edge - paint_.width(sum, result) - px(10);
    // How a broadcast gradient was folded takes the place of its numbers, if it fits there.
    const std::string folds = row.folded.empty() ? "" : folding(row);
    const bool below = !widths.stacked && paint_.width(small, folds) > room - left;
    const float lines = (widths.stacked ? 3.0f : 2.0f) + (below ? 1.0f : 0.0f);
    const Frame card{left_ - px(4), y_, right_, y_ + px(12 + 19 * lines)};
    const Paint::Press pressed = press_card(row, card);
    paint_.fill(card,
                row.active        ? theme_.card_now
                : pressed.hovered ? theme_.hovered
                                  : theme_.card,
                6);
    paint_.outline(card, row.active ? theme_.gradient : theme_.line, 6);
    if (pressed.clicked && hidden) desk_.view.uncovered.insert(id);
    paint_.text_right({edge, (card.top + card.bottom) / 2 + px(6)}, sum, result);

    float y = y_ + px(21);
    const Ink from{Face::mono_bold, 13, row.arrived ? theme_.text : theme_.faint};
    paint_.text({left, y}, from, paint_.cut(from, row.from, room - left));
    if (widths.stacked) y += px(19);
    paint_.text({column, y}, faint, paint_.cut(faint, row.formula, room - column));
    y += px(19);
    if (!row.arrived)
      paint_.text({column, y}, {Face::sans, 12, theme_.faint}, "still to come");
    else if (!folds.empty())
      paint_.text({left, below ? y + px(19) : y}, small, paint_.cut(small, folds, edge - left));
    else if (!hidden)
      paint_.text({column, y}, plain, paint_.cut(plain, row.numbers, room - column));
    y_ = card.bottom + px(8);
  }

  // A row of the ledger stands for its operation: pointing at it lights the circle up.
  Paint::Press press_card(const Contribution& row, Frame card) {
    ImGui::PushID(static_cast<int>(row.op));
    ImGui::PushID(row.slot);
    ImGui::PushID(static_cast<int>(row.pass));
    const Paint::Press pressed = Paint::press("card", card);
    ImGui::PopID();
    ImGui::PopID();
    ImGui::PopID();
    if (pressed.hovered) desk_.pointed.item = {Item::Kind::op, row.op};
    return pressed;
  }

  void sum_row(const std::vector<Contribution>& rows, bool many_passes, bool hidden,
               std::optional<std::size_t> element) {
    const auto arrived = std::find_if(rows.rbegin(), rows.rend(),
                                      [](const Contribution& row) { return row.arrived; });
    const bool all =
        std::all_of(rows.begin(), rows.end(), [](const Contribution& row) { return row.arrived; });
    const float y = y_ + px(20);
    std::string what = "sum";
    if (many_passes) what += " of pass " + std::to_string(rows.back().pass);
    if (!all) what += " so far";
    paint_.text({left_, y}, {Face::sans, 13, theme_.faint}, what);
    const float edge = right_ - px(14);
    if (arrived == rows.rend())
      paint_.text_right({edge, y}, {Face::mono, 14, theme_.faint}, "not yet");
    else
      paint_.text_right({edge, y}, {Face::mono_bold, 17, theme_.gradient},
                        hidden ? "?" : in_a_line(arrived->sum, element));
    y_ += px(30);
  }

  // ---- Uses --------------------------------------------------------------------------------------

  void used_by(Id id) {
    heading("Used by");
    const Episode& episode = timeline_.episode(desk_.cursor.episode);
    std::size_t rows = 0, more = 0;
    std::size_t last = std::numeric_limits<std::size_t>::max();
    for (const Use& use : timeline_.uses(id)) {
      if (use.op < episode.event_begin || use.op >= episode.event_end || use.op == last) continue;
      last = use.op;
      if (rows < 12)
        op_row(use.op);
      else
        ++more;
      ++rows;
    }
    if (more > 0) note("and " + std::to_string(more) + " more");
    if (rows == 0) note("nothing in this episode");
  }

  // "a = x.pow(2)   line 12", as the source has it, or "a = x²"; a click selects the operation.
  void op_row(std::size_t op, bool as_in_source = true) {
    const Line line = timeline_.line_of(op);
    std::string words(statement(source_line(timeline_.trace(), line)));
    if (words.empty() || !as_in_source) words = timeline_.describe_op(op);
    const Frame row{left_ - px(4), y_, right_, y_ + px(24)};
    ImGui::PushID(static_cast<int>(op));
    const Paint::Press pressed = Paint::press("use", row);
    ImGui::PopID();
    const Item item{Item::Kind::op, op};
    if (pressed.hovered) desk_.pointed.item = item;
    if (pressed.clicked) desk_.selected = item;
    if (desk_.pointed_before.item == item) paint_.fill(row, theme_.hovered, 4);
    const Ink ink{Face::mono, 13, theme_.faint};
    const std::string number = line.number == 0 ? "" : "line " + std::to_string(line.number);
    const float wide = paint_.width(ink, number);
    const float room = right_ - px(10) - wide - px(14) - (left_ + px(8));
    const float used = paint_.text({left_ + px(8), y_ + px(17)}, ink, paint_.cut(ink, words, room));
    const float column = left_ + px(8) + std::max(used + px(20), px(142));
    paint_.text({std::min(column, right_ - px(10) - wide), y_ + px(17)}, ink, number);
    y_ += px(24);
  }

  // "  auto a = x.pow(2);  // squared" -> "a = x.pow(2)"
  static std::string_view statement(std::string_view line) {
    line = line.substr(0, std::min(line.find("//"), line.size()));
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    line.remove_prefix(first);
    while (!line.empty() && (line.back() == ' ' || line.back() == ';')) line.remove_suffix(1);
    for (std::string_view type : {"const ", "auto ", "Tensor "})
      if (line.starts_with(type)) line.remove_prefix(type.size());
    return line;
  }

  // ---- An operation ------------------------------------------------------------------------------

  void operation(std::size_t event) {
    if (const Failed* failed = failed_at(timeline_, event)) return failure(*failed, event);
    const Op& op = timeline_.op(event);
    const Line line = timeline_.line_of(event);
    const OpFacts* known = timeline_.facts(op.op);
    std::string facts = plain_name(op.op, known) + (op.node == 0 ? "   not recorded" : "");
    if (line.number != 0) facts += "   line " + std::to_string(line.number);
    title(timeline_.circle(event), facts);
    const std::optional<std::size_t> failure = timeline_.failure(desk_.cursor);
    if (failure && timeline_.op_that_failed(*failure) == event)
      warning(failed_at(timeline_, *failure)->text);
    if (known != nullptr && !known->formula.empty()) {
      y_ += px(4);
      formula("y", words::pretty(known->formula));
    }
    rule();
    heading("Inputs");
    for (std::size_t slot = 0; slot < op.inputs.size(); ++slot)
      tensor_row(label(slot), op.inputs[slot].tensor);
    y_ += px(6);
    heading("Result");
    for (const Seen& output : op.outputs) tensor_row("y", output.tensor);
    if (known == nullptr || op.node == 0 || known->derivatives.empty()) return;
    rule();
    heading("What it does to a gradient");
    for (std::size_t slot = 0; slot < std::min(op.inputs.size(), known->derivatives.size()); ++slot)
      if (!known->derivatives[slot].empty())
        formula("d" + input_letter(slot), words::pretty(known->derivatives[slot]));
    y_ += px(6);
    note("dy is the gradient of its result; each line is what it hands to that input.");
  }

  void failure(const Failed& failed, std::size_t event) {
    const Line line = timeline_.line_of(event);
    title(failed.op, "failed   line " + std::to_string(line.number));
    warning(failed.text);
    if (failed.inputs.empty()) return;
    rule();
    heading("Inputs");
    for (std::size_t slot = 0; slot < failed.inputs.size(); ++slot)
      tensor_row(label(slot), failed.inputs[slot]);
  }

  void warning(const std::string& text) {
    y_ += paint_.prose({left_, y_}, right_ - left_, 22, {Face::sans, 14, theme_.warning}, text);
  }

  void formula(const std::string& letter, const std::string& text) {
    const Ink name{Face::mono, 14, theme_.faint}, body{Face::mono, 14, theme_.text};
    paint_.text({left_, y_ + px(16)}, name, letter);
    paint_.text({left_ + px(34), y_ + px(16)}, name, "=");
    paint_.text({left_ + px(56), y_ + px(16)}, body,
                paint_.cut(body, text, right_ - left_ - px(56)));
    y_ += px(25);
  }

  // "a   x   2.0"; a click selects the tensor.
  // Of an input: its letter in the formulas, or its place.
  static std::string label(std::size_t slot) {
    const std::string letter = input_letter(slot);
    return letter.empty() ? std::to_string(slot + 1) : letter;
  }

  void tensor_row(const std::string& letter, Id id) {
    const Frame row{left_ - px(4), y_, right_, y_ + px(26)};
    ImGui::PushID(static_cast<int>(id));
    ImGui::PushID(letter.c_str());
    const Paint::Press pressed = Paint::press("tensor", row);
    ImGui::PopID();
    ImGui::PopID();
    const Item item{Item::Kind::tensor, id};
    if (pressed.hovered) desk_.pointed.item = item;
    if (pressed.clicked) desk_.selected = item;
    if (desk_.pointed_before.item == item) paint_.fill(row, theme_.hovered, 4);
    const float y = y_ + px(18);
    paint_.text({left_, y}, {Face::mono, 14, theme_.faint}, letter);
    const Ink name{timeline_.is_named(id) ? Face::bold : Face::bold_oblique, 14, theme_.text};
    const std::string called = paint_.cut(name, timeline_.name(id), px(150));
    paint_.text({left_ + px(34), y}, name, called);
    const bool there = timeline_.exists(desk_.cursor, id);
    const Ink ink{Face::mono, 14, there ? theme_.value : theme_.faint};
    const std::string text = there ? in_a_box(timeline_.value(desk_.cursor, id)) : "not yet";
    paint_.text_right({right_ - px(14), y}, ink, text);
    // The shape, where there is room for it.
    const Seen* seen = timeline_.seen(id);
    if (seen != nullptr && !seen->shape.empty()) {
      const Ink faint{Face::mono, 12, theme_.faint};
      const std::string shape = brackets(seen->shape);
      const float begin = left_ + px(44) + paint_.width(name, called);
      const float end = right_ - px(24) - paint_.width(ink, text);
      if (begin + paint_.width(faint, shape) <= end) paint_.text({begin, y}, faint, shape);
    }
    y_ += px(26);
  }

  // ---- Boxes -------------------------------------------------------------------------------------

  void scope(Id id) {
    const ScopeOpens* scope = timeline_.scope(id);
    if (scope == nullptr) return;
    const bool open = timeline_.is_open(id, desk_.view.toggled);
    title(scope->name, scope->composed ? "composed operation" : "scope");
    note(open ? "Double click its ground to close it." : "Double click it to see what is inside.");
    rule();
    heading("Inside");
    std::size_t rows = 0;
    for (const std::size_t op : timeline_.graph(desk_.cursor.episode).ops) {
      const std::vector<Id> around = timeline_.scopes_around(op);
      if (std::find(around.begin(), around.end(), id) == around.end()) continue;
      if (++rows <= 20) op_row(op, false);  // all of them stand on the line of the box
    }
    if (rows > 20) note("and " + std::to_string(rows - 20) + " more");
  }

  void line_of_ops(std::size_t first) {
    const Line line = timeline_.line_of(first);
    const std::vector<std::size_t> ops = timeline_.ops_on_line(desk_.cursor.episode, line);
    title("line " + std::to_string(line.number), std::to_string(ops.size()) + " operations");
    note("This line ran many times, so its operations share one box.");
    rule();
    heading("The first of them");
    for (std::size_t i = 0; i < std::min<std::size_t>(ops.size(), 20); ++i) op_row(ops[i]);
  }

  void nothing() {
    if (timeline_.steps().empty()) return;
    y_ += px(20);
    note("Step with → and ←. A click on a tensor or an operation shows it here.");
  }
};

}  // namespace

void draw_inspector(const Paint& paint, Frame frame, const Shown& shown, Desk& desk) {
  const Pane pane(paint, "inspector", frame, paint.theme.panel);
  const float height = Inspector(paint, pane, shown, desk).draw(shown.inspected(desk));
  pane.grows(height);
  pane.fade(paint.theme.panel, paint.px(28));
}

}  // namespace viewer
