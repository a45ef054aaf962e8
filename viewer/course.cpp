#include "viewer/course.hpp"

#include "lessons/player.hpp"
#include "viewer/attach.hpp"  // if a viewer started this process, it is told all from here on

namespace viewer {
namespace {

LessonName name_of(const lesson::Lesson& one) {
  return {one.number, one.id, one.title, one.part, one.file};
}

}  // namespace

const std::vector<LessonName>& course() {
  static const std::vector<LessonName> all = [] {
    std::vector<LessonName> names;
    for (const lesson::Lesson& one : lesson::lessons()) names.push_back(name_of(one));
    return names;
  }();
  return all;
}

std::optional<LessonName> find_lesson(const std::string& word) {
  const lesson::Lesson* found = lesson::find_lesson(word);
  if (found == nullptr) return std::nullopt;
  return name_of(*found);
}

int play(const LessonName& name, const std::vector<std::string>& arguments) {
  return lesson::run_lesson(*lesson::find_lesson(name.id), arguments);
}

}  // namespace viewer
