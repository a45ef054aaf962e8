#include "viewer/facts.hpp"

#include <algorithm>

#include "viewer/variables.hpp"

namespace viewer {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!(text = trimmed(text)).empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::string_view derivative(const OpFacts* facts, int slot) {
  if (facts == nullptr || slot < 0) return {};
  const auto& all = facts->derivatives;
  if (static_cast<std::size_t>(slot) < all.size()) return all[static_cast<std::size_t>(slot)];
  return all.size() == 1 ? std::string_view(all[0]) : std::string_view();
}

std::string plain_name(const std::string& op, const OpFacts* facts) {
  return facts == nullptr || facts->called.empty() ? op : facts->called;
}

std::string input_letter(std::size_t slot) {
  return slot < 3 ? std::string(1, static_cast<char>('a' + slot)) : "";
}

words::Letters numbers_of(const Op& op, const OpFacts* facts) {
  words::Letters numbers;
  if (facts == nullptr) return numbers;
  const std::vector<std::string> names = split(facts->attributes);
  for (std::size_t i = 0; i < std::min(names.size(), op.attributes.numbers.size()); ++i)
    numbers[names[i]] = words::number(op.attributes.numbers[i]);
  return numbers;
}

}  // namespace viewer
