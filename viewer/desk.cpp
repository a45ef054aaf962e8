#include "viewer/desk.hpp"

#include "viewer/variables.hpp"

namespace viewer {

namespace {

Item tensor_item(Id tensor) { return {Item::Kind::tensor, tensor}; }

// What each kind of event is about, from the reader's point of view.
struct About {
  const Timeline& timeline;
  std::size_t event;
  Item operator()(const Made& made) const { return tensor_item(made.tensor.tensor); }
  Item operator()(const Op& op) const {
    return op.outputs.empty() ? Item{Item::Kind::op, event} : tensor_item(op.outputs[0].tensor);
  }
  Item operator()(const Failed&) const {
    return {Item::Kind::op, timeline.op_that_failed(event).value_or(event)};
  }
  Item operator()(const PassBegins& pass) const {
    return pass.roots.empty() ? Item{} : tensor_item(pass.roots[0].tensor);
  }
  Item operator()(const Arrived& arrived) const { return tensor_item(arrived.to); }
  Item operator()(const Hooked& hooked) const { return tensor_item(hooked.tensor); }
  Item operator()(const Landed& landed) const { return tensor_item(landed.tensor); }
  Item operator()(const Wrote& wrote) const { return tensor_item(wrote.tensor.tensor); }
  Item operator()(const LetGo& gone) const { return tensor_item(gone.tensor); }
  template <class Other>
  Item operator()(const Other&) const {
    return {};
  }
};

}  // namespace

Item subject(const Timeline& timeline, Cursor cursor) {
  const Step* step = timeline.step(cursor);
  if (step == nullptr) return {};
  const auto& event = timeline.trace().events[step->event];
  return event == nullptr ? Item{} : std::visit(About{timeline, step->event}, event->what);
}

Item Shown::inspected(const Desk& desk) const {
  return desk.selected.kind != Item::Kind::none ? desk.selected : subject(timeline, desk.cursor);
}

Line Shown::line_of(Item item) const {
  using Kind = Item::Kind;
  if (item.kind == Kind::op || item.kind == Kind::line)
    return timeline.line_of(static_cast<std::size_t>(item.id));
  if (item.kind != Kind::tensor) return {};
  if (const auto maker = timeline.maker(item.id)) return timeline.line_of(*maker);
  const auto made = made_at.find(item.id);
  return made == made_at.end() ? Line{} : timeline.line_of(made->second);
}

const Failed* failed_at(const Timeline& timeline, std::size_t event) {
  const auto& found = timeline.trace().events[event];
  return found == nullptr ? nullptr : std::get_if<Failed>(&found->what);
}

std::string_view source_line(const Trace& trace, const Line& line) {
  const auto source = trace.sources.find(line.file);
  if (source == trace.sources.end() || line.number < 1) return {};
  const std::string_view text = line_of_text(source->second, line.number);
  return text.substr(0, text.find('\r'));
}

std::string_view last_part(std::string_view path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace viewer
