#include "viewer/variables.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <utility>

namespace viewer {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return text;
}

std::string_view line_of_text(std::string_view text, int number) {
  for (int line = 1; line < number; ++line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Calls `at` with each character outside parentheses, braces and brackets, and its place.
template <class At>
void for_each_outside(std::string_view text, At at) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ')' || c == '}' || c == ']') --depth;
    if (depth <= 0) at(i, c);
    if (c == '(' || c == '{' || c == '[') ++depth;
  }
}

// The places of assigning '=' signs outside parentheses.
std::vector<std::size_t> assignments_in(std::string_view text) {
  std::vector<std::size_t> found;
  for_each_outside(text, [&](std::size_t i, char c) {
    const char before = i > 0 ? text[i - 1] : ' ', after = i + 1 < text.size() ? text[i + 1] : ' ';
    if (c == '=' && after != '=' &&
        std::string_view("=!<>+-*/%&|^").find(before) == std::string::npos)
      found.push_back(i);
  });
  return found;
}

// The variables that stand on the left of an '='.
std::vector<std::string> assigned_names(std::string_view left) {
  left = trimmed(left);
  std::vector<std::string> names;
  const std::size_t bracket = left.rfind('[');
  if (!left.empty() && left.back() == ']' && bracket != std::string_view::npos) {
    if (left.substr(0, bracket).find("auto") == std::string_view::npos) return {};  // x[0] = ...
    left = left.substr(bracket + 1, left.size() - bracket - 2);
    while (!left.empty()) {
      const std::size_t comma = std::min(left.find(','), left.size());
      names.emplace_back(trimmed(left.substr(0, comma)));
      left.remove_prefix(std::min(comma + 1, left.size()));
    }
    return names;
  }
  std::size_t begin = left.size();
  while (begin > 0 && is_word(left[begin - 1])) --begin;
  if (begin < left.size() && !std::isdigit(static_cast<unsigned char>(left[begin])))
    names.emplace_back(left.substr(begin));
  return names;
}

// The code of a line: without its comment, and with nothing inside its quotes. What stands there is
// no code: `auto y = (x * w).named("y");` does not use y.
std::string code_of(std::string_view line) {
  std::string code;
  char quote = 0;  // that is open
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == '\\')
        ++i;
      else if (c == quote)
        code += std::exchange(quote, '\0');
      continue;
    }
    if (line.substr(i).starts_with("//")) break;
    const bool in_number = c == '\'' && i > 0 && is_word(line[i - 1]);  // 1'000
    if (c == '"' || (c == '\'' && !in_number)) quote = c;
    code += c;
  }
  return code;
}

bool mentions(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const bool begins = at == 0 || !is_word(text[at - 1]);
    const std::size_t end = at + word.size();
    if (begins && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

// How many tensors an expression makes on its way, as far as its text tells: one a call, index or
// sign between two operands.
int operations_in(std::string_view text) {
  static constexpr std::array<std::string_view, 14> not_operations = {
      "grad",  "item",   "named", "requires_grad_", "size",        "dim",  "numel", "data",
      "float", "double", "int",   "int64_t",        "static_cast", "shape"};
  int count = 0;
  char before = '(';  // the last character that is not blank
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (std::isspace(static_cast<unsigned char>(c))) continue;
    const bool after_operand = is_word(before) || before == ')' || before == ']';
    if (is_word(c)) {
      const std::size_t begin = i;
      while (i + 1 < text.size() && (is_word(text[i + 1]) || text[i + 1] == '.') &&
             (std::isdigit(static_cast<unsigned char>(c)) || text[i + 1] != '.'))
        ++i;
      const std::string_view word = text.substr(begin, i + 1 - begin);
      const bool called = i + 1 < text.size() && text[i + 1] == '(';
      if (called &&
          std::find(not_operations.begin(), not_operations.end(), word) == not_operations.end())
        ++count;
    } else if (after_operand && std::string_view("+-*/[").find(c) != std::string_view::npos) {
      ++count;
    }
    before = text[i];
  }
  return count;
}

}  // namespace

Assignment assignment_on(std::string_view text) {
  const std::string code = code_of(text);
  const std::string_view line = code;
  const std::vector<std::size_t> signs = assignments_in(line);
  if (signs.size() != 1) return {};
  Assignment found;
  found.names = assigned_names(line.substr(0, signs[0]));
  const std::string_view right = trimmed(line.substr(signs[0] + 1));
  if (right.starts_with('[')) return {};  // a lambda: what it computes has other names
  for (const std::string& name : found.names)
    found.uses_itself = found.uses_itself || mentions(right, name);
  found.operations = operations_in(right);
  return found;
}

}  // namespace viewer
