// Where episodes begin: what is on the screen together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <unordered_set>
#include <variant>
#include <vector>

#include "viewer/trace.hpp"

namespace viewer {

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

}  // namespace viewer
