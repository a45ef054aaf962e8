// Words for readers: how numbers, formulas and operations are written in prose, in boxes and beside
// edges.
//
// Needs nothing but the standard library, so that a lesson builds alone. Used by lessons/lesson.hpp
// and by the viewer.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace words {

// A number in prose: 3, 2.5, 0.001, 1e-09, -0, nan, inf. The shortest text that a reader can use:
// at most `digits` significant ones, and no zeros at the end.
std::string number(double value, int digits = 6);

// A number in a box: as above, but a float shows that it is one (3.0), and the text has at most
// `room` characters, giving up digits for it. `room` is at least 7.
std::string field(double value, bool is_float = true, int room = 14);

// The facts' ASCII as a reader writes it: "dy * n * a^(n - 1)" -> "dy · n · aⁿ⁻¹", "sqrt(a)" ->
// "√a", "a <= b" -> "a ≤ b". A text that is no formula ("sum over j of dy[i,j] * b[k,j]") changes
// only its signs.
std::string pretty(std::string_view formula);

// What stands for the letters of a formula: {"dy", "1"}, {"b", "3"}.
using Letters = std::map<std::string, std::string, std::less<>>;

// The formula with something put in for its letters: names ("a * b" -> "x · y") or numbers ("dy *
// b" -> "1 × 3", "dy * n * a^(n - 1)" -> "1 · 3 · 3²"). Exponents of numbers are worked out. A
// product of plain numbers alone takes ×, every other product ·. Empty if the text is no formula,
// or if one of its letters is missing.
std::string put_in(std::string_view formula, const Letters& letters);

// The formula's value; none if the text is no formula or a letter is missing.
std::optional<double> evaluate(std::string_view formula,
                               const std::map<std::string, double, std::less<>>& letters);

// The letters that occur in a formula, each once, in order: "dy * b" -> dy, b. Empty if the text is
// no formula.
std::vector<std::string> letters_of(std::string_view formula);

// What stands in an op's circle. `symbol` and `formula` are the facts', `names` what its inputs are
// called, `numbers` the plain numbers in the code under their attributes' names: pow with {"n",
// "2"} over x gives "x²", mul gives "×".
std::string circle(std::string_view op, std::string_view symbol, std::string_view formula,
                   const Letters& names, const Letters& numbers);

// 1 -> "first", 2 -> "second", ... 12 -> "twelfth", 13 -> "13th", 21 -> "21st".
std::string ordinal(long n);

}  // namespace words
