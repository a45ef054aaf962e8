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

}  // namespace viewer
