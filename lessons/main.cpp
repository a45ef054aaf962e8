// Makes a program of one lesson, or of several:
//
//   g++ -std=c++20 -I. lessons/05_chain_rule.cpp lessons/main.cpp && ./a.out
#include <iostream>
#include <string>
#include <vector>

#include "lessons/player.hpp"

int main(int count, char** words) {
  std::vector<std::string> args(words + 1, words + count);
  if (lesson::lessons().size() == 1) return lesson::run_lesson(lesson::lessons().front(), args);

  const lesson::Lesson* chosen = args.empty() ? nullptr : lesson::find_lesson(args[0]);
  if (chosen != nullptr) return lesson::run_lesson(*chosen, {args.begin() + 1, args.end()});
  std::cerr << "Which lesson? There are:\n";
  for (const lesson::Lesson& one : lesson::lessons())
    std::cerr << "  " << one.id << "  " << one.title << '\n';
  return 2;
}
