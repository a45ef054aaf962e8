// What was plotted and pictured up to a cursor.
#include <algorithm>
#include <iterator>

#include "viewer/timeline_index.hpp"

namespace viewer {

// So many pictures back something is looked for that no later one has replaced.
static constexpr std::ptrdiff_t most_pictures = 64;

bool Timeline::Index::word_between(std::size_t begin, std::size_t end) const {
  const std::optional<std::size_t> word = last_before(words, end);
  return word && *word > begin;
}

std::span<const Curve> Timeline::chart(Cursor cursor) const {
  const auto& charts = index_->charts;
  const std::size_t cut = cut_at(*this, clamp(cursor).position);
  const auto next =
      std::lower_bound(charts.begin(), charts.end(), cut,
                       [](const ChartTrack& chart, std::size_t at) { return chart.begin < at; });
  if (next == charts.begin()) return {};
  return std::prev(next)->curves;
}

std::size_t Timeline::plotted(Cursor cursor, const Curve& curve) const {
  const std::size_t cut = cut_at(*this, clamp(cursor).position);
  const auto next =
      std::lower_bound(curve.points.begin(), curve.points.end(), cut,
                       [](const Curve::Point& point, std::size_t at) { return point.event < at; });
  return static_cast<std::size_t>(next - curve.points.begin());
}

std::vector<const Pictured*> Timeline::pictures(Cursor cursor) const {
  const Events& all = index_->pictures;
  const std::size_t cut = cut_at(*this, clamp(cursor).position);
  struct Shown {
    const Pictured* picture;
    std::size_t position;  // of its step
  };
  std::vector<Shown> shown;
  auto next = std::lower_bound(all.begin(), all.end(), cut);
  const auto first = next - std::min(next - all.begin(), most_pictures);
  for (auto i = next; i != first; next = i) {
    --i;
    if (!shown.empty() && index_->word_between(*i, *next)) break;
    const Pictured* picture = index_->get<Pictured>(*i);
    if (picture == nullptr) continue;
    const std::size_t position = after(*i).position;
    const bool replaced = std::any_of(shown.begin(), shown.end(), [&](const Shown& later) {
      return later.picture->title == picture->title && later.position != position;
    });
    if (!replaced) shown.push_back({picture, position});
  }
  std::vector<const Pictured*> pictures;
  for (auto one = shown.rbegin(); one != shown.rend(); ++one) pictures.push_back(one->picture);
  return pictures;
}

Cursor Timeline::after(std::size_t event) const {
  const auto episode =
      std::upper_bound(episodes_.begin() + 1, episodes_.end(), event,
                       [](std::size_t at, const Episode& one) { return at < one.event_begin; });
  const auto step =
      std::upper_bound(steps_.begin(), steps_.end(), event,
                       [](std::size_t at, const Step& one) { return at < one.event; });
  return clamp({static_cast<int>(episode - episodes_.begin()),
                static_cast<std::size_t>(step - steps_.begin())});
}

}  // namespace viewer
