// What stands around the graph: the bar at the top, the lessons and their words, the output, the
// source, the timeline, and the list of keys.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "viewer/desk.hpp"
#include "viewer/paint.hpp"

namespace viewer {

void draw_top_bar(const Paint& paint, Frame frame, float middle, const Shown& shown, Desk& desk);
// Of the bar at the top only where one is: "step 13 of 18", backward.
void draw_place(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk);
// Answers the height that all of the words need.
float draw_words(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk);
void draw_keys(const Paint& paint, Frame window, Desk& desk);
void draw_notice(const Paint& paint, Frame canvas, std::string_view words);

// In the place of the graph, while there is none: what the run is doing, or why it came to nothing,
// with what was printed (the compiler's errors, for one).
void draw_no_graph(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk);

class LessonList {
 public:
  float height(const Paint& paint, const Shown& shown) const;  // of all rows
  // Of those that fit into half of the room: the other half is for the words.
  float height_in(float room, const Paint& paint, const Shown& shown) const;
  void draw(const Paint& paint, Frame frame, const Shown& shown, Desk& desk);
  ImVec2 place_of(std::size_t lesson) const;  // on the screen, for tests

 private:
  ImVec2 first_row_;
  float pitch_ = 0;
  std::optional<std::size_t> revealed_;
};

class OutputPane {
 public:
  void draw(const Paint& paint, Frame frame, const Shown& shown, const Desk& desk);
  bool shows_end() const { return shows_end_; }  // for tests

 private:
  bool shows_end_ = false;
  bool follows_ = true;  // the newest line; not while the reader has scrolled up
  float scrolled_ = 0;   // in the frame before
};

// From which character on each line answers a question of the lesson: all that follows the first
// argument of ask(...). npos: it answers none.
std::vector<std::size_t> answers_in(const std::vector<std::string>& lines);

// The answers to a lesson's questions are covered, except on the line that is pointed at.
class SourcePane {
 public:
  void draw(const Paint& paint, Frame frame, const Shown& shown, Desk& desk);
  ImVec2 place() const { return place_; }  // of the line of this step on the screen, for tests

 private:
  void split(const std::string& text);
  void row(const Paint& paint, const Pane& pane, int number, const Shown& shown, Desk& desk);

  std::string path_;
  std::size_t length_ = 0;  // of the text that was split
  std::vector<std::string> lines_;
  std::vector<std::size_t> answers_;
  Line now_, linked_;  // of the step; of what is pointed at or selected
  Line revealed_;      // the line that was last scrolled to
  ImVec2 place_;
  float numbers_right_ = 0;  // where the numbers of the lines end
};

class TimelineBar {
 public:
  static float height(const Shown& shown);  // in points
  void draw(const Paint& paint, Frame frame, const Shown& shown, Desk& desk);
  // For tests: the bar from step 0 to the last one, and where the buttons are.
  using Places = std::vector<std::pair<const char*, ImVec2>>;
  Frame bar() const { return bar_; }
  const Places& places() const { return places_; }

 private:
  void read_phases(const Timeline& timeline, int episode);
  void steps(const Paint& paint, const Timeline& timeline, Desk& desk);
  void ticks(const Paint& paint, std::int64_t now) const;
  void phase_labels(const Paint& paint) const;
  void episodes(const Paint& paint, Frame bar, const Timeline& timeline, Desk& desk) const;
  void buttons(const Paint& paint, Frame row, const Shown& shown, Desk& desk);
  float tick(std::size_t number) const;  // its x

  Frame bar_;
  Places places_;
  int episode_ = 0;
  std::size_t read_ = 0;       // positions of the run that were read
  std::vector<Phase> phases_;  // of the numbered steps of the episode: [0] is step 1
};

}  // namespace viewer
