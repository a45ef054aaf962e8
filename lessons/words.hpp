// Words for readers: how numbers, formulas and operations are written in prose, in boxes and beside
// edges.
//
// Needs nothing but the standard library, so that a lesson builds alone. Used by the lessons'
// player and by the viewer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace words {

// ---- What is offered ----------------------------------------------------------------------------

// A number in prose: 3, 2.5, 0.001, 1e-09, -0, nan, inf. At most `digits` significant ones, and no
// zeros at the end.
inline std::string number(double value, int digits = 6);

// A number in a box: as above, but a float shows that it is one (3.0), and the text has at most
// `room` characters, giving up digits for it. `room` is at least 7.
inline std::string field(double value, bool is_float = true, int room = 14);

// The facts' ASCII as a reader writes it: "dy * n * a^(n - 1)" -> "dy · n · aⁿ⁻¹", "sqrt(a)" ->
// "√a", "a <= b" -> "a ≤ b". In a text that is no formula ("sum over j of dy[i,j] * b[k,j]") only
// the signs between blanks change.
inline std::string pretty(std::string_view formula);

// What stands for the letters of a formula: {"dy", "1"}, {"b", "3"}.
using Letters = std::map<std::string, std::string, std::less<>>;

// The formula with something put in for its letters: names ("a * b" -> "x · y") or numbers
// ("dy * b" -> "1 × 3", "dy * n * a^(n - 1)" -> "1 · 3 · 3²"). Exponents of numbers are worked out.
// A product of plain numbers alone takes ×, every other product ·. Empty if the text is no formula,
// or if one of its letters is missing.
inline std::string put_in(std::string_view formula, const Letters& letters);

// The formula's value; none if the text is no formula, or if a letter or function is unknown.
inline std::optional<double> evaluate(std::string_view formula,
                                      const std::map<std::string, double, std::less<>>& letters);

// The letters of a formula, each once, in order: "dy * b" -> dy, b. Empty if it is no formula.
inline std::vector<std::string> letters_of(std::string_view formula);

// Whether the text is a formula all of whose functions are known: then each element of its value is
// made of the same element of its letters. (A sum or a transpose is not.)
inline bool is_elementwise(std::string_view formula);

// What stands in an op's circle. `symbol` and `formula` are the facts', `names` what its inputs are
// called, `numbers` the plain numbers in the code under their attributes' names: pow with
// {"n", "2"} over x gives "x²", mul "×", a multiplication by the number 2 "×2".
inline std::string circle(std::string_view op, std::string_view symbol, std::string_view formula,
                          const Letters& names, const Letters& numbers);

// 1 -> "first", 2 -> "second", ... 12 -> "twelfth", 13 -> "13th", 21 -> "21st".
inline std::string ordinal(std::int64_t n);

// "axis 0", "axes 0 and 1", "axes 0, 2 and 3".
inline std::string axes(const std::vector<std::int64_t>& list);

// Text that can be shown, whatever its bytes: what is not UTF-8 becomes �, and a control character
// its picture, so that a line break is ␊ and a label stays one line.
inline std::string clean(std::string_view text);

// What a program printed, as a terminal shows it: tabs become blanks up to the next multiple of 8,
// escape sequences (colours, a title) go, and what follows a carriage return takes the place of its
// line.
inline std::string printed(std::string_view text);

// How many characters a reader sees in UTF-8 text, and the text cut to `most` of them with an
// ellipsis.
inline std::size_t length(std::string_view text);
inline std::string cut(std::string_view text, std::size_t most);

// ---- Numbers ------------------------------------------------------------------------------------

namespace detail {
inline std::string printed(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

inline bool is_number(std::string_view text) {
  if (text.empty()) return false;
  const std::string copy(text);
  char* end = nullptr;
  std::strtod(copy.c_str(), &end);
  return *end == '\0' && end != copy.c_str();
}
}  // namespace detail

inline std::string number(double value, int digits) {
  if (std::isnan(value)) return "nan";
  return detail::printed(value, digits);
}

inline std::string field(double value, bool is_float, int room) {
  if (!std::isfinite(value)) return number(value);
  for (int digits = is_float ? 6 : std::max(room, 7); digits > 1; --digits) {
    std::string text = detail::printed(value, digits);
    if (is_float && text.find_first_of(".e") == std::string::npos) text += ".0";
    if (text.size() <= static_cast<std::size_t>(room)) return text;
  }
  return detail::printed(value, 1);
}

inline std::string ordinal(std::int64_t n) {
  static const char* const small[] = {"first", "second", "third",    "fourth",
                                      "fifth", "sixth",  "seventh",  "eighth",
                                      "ninth", "tenth",  "eleventh", "twelfth"};
  if (n >= 1 && n <= 12) return small[n - 1];
  const std::int64_t ones = n % 10, tens = n / 10 % 10;
  const char* ending = "th";
  if (tens != 1 && ones == 1) ending = "st";
  if (tens != 1 && ones == 2) ending = "nd";
  if (tens != 1 && ones == 3) ending = "rd";
  return std::to_string(n) + ending;
}

inline std::string axes(const std::vector<std::int64_t>& list) {
  std::string text = list.size() == 1 ? "axis " : "axes ";
  for (std::size_t i = 0; i < list.size(); ++i)
    text += (i == 0 ? "" : i + 1 == list.size() ? " and " : ", ") + std::to_string(list[i]);
  return text;
}

// ---- Characters ---------------------------------------------------------------------------------

namespace detail {
inline bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The length in bytes of the character that begins at `i`, or 0 if there is no whole valid one.
inline std::size_t character_at(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[i + k]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (length == 0 || first > 0xF4 || i + length > text.size()) return 0;
  for (std::size_t k = 1; k < length; ++k)
    if (!continues(text[i + k])) return 0;
  // Longer than needed, one half of a pair, or beyond the last character there is.
  const bool wrong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
                     (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F);
  return wrong ? 0 : length;
}

inline std::string picture_of_control(unsigned char control) {
  if (control == 0x7F) return "␡";
  std::string picture = "␀";
  picture.back() = static_cast<char>(static_cast<unsigned char>(picture.back()) + control);
  return picture;
}
}  // namespace detail

inline std::string clean(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = detail::character_at(text, i);
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0)
      shown += "\xEF\xBF\xBD";
    else if (byte < 0x20 || byte == 0x7F)
      shown += detail::picture_of_control(byte);
    else
      shown.append(text.substr(i, length));
    i += std::max<std::size_t>(length, 1);
  }
  return shown;
}

namespace detail {
// How many bytes the escape sequence at the text's beginning has; all of them if it is cut short.
inline std::size_t escape_length(std::string_view text) {
  const auto until = [&](std::size_t i, char final) {  // and with it; a control character ends it
    while (i < text.size() && text[i] >= ' ' && text[i] < final) ++i;
    return i < text.size() && text[i] >= final ? i + 1 : i;
  };
  const char kind = text.size() > 1 ? text[1] : '\0';
  if (kind == '[') return until(2, '@');
  if (std::string_view("]PX^_").find(kind) == std::string_view::npos) return until(1, '0');
  // A text for the terminal, such as its title. It ends with a bell, or with an escape and \.
  for (std::size_t i = 2; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == '\a') return i + 1;
    if (text.substr(i).starts_with("\x1b\\")) return i + 2;
  }
  return std::min(text.find('\n'), text.size());
}
}  // namespace detail

inline std::string printed(std::string_view text) {
  std::string shown;
  std::size_t line = 0, column = 0;  // where the last line of `shown` begins, and its length
  bool returned = false;
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t read = c == '\x1b' ? detail::escape_length(text) : 1;
    text.remove_prefix(read);
    if (c == '\x1b' || c == '\a') continue;
    if (c == '\r') {
      returned = true;
      continue;
    }
    if (c == '\n') {
      shown += c;
      line = shown.size();
      column = 0;
      returned = false;
      continue;
    }
    if (std::exchange(returned, false)) {
      shown.resize(line);
      column = 0;
    }
    const std::size_t blanks = 8 - column % 8;
    if (c == '\t')
      shown.append(blanks, ' ');
    else
      shown += c;
    column += c == '\t' ? blanks : detail::continues(c) ? 0 : 1;
  }
  return shown;
}

inline std::size_t length(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !detail::continues(c); }));
}

inline std::string cut(std::string_view text, std::size_t most) {
  if (length(text) <= most) return std::string(text);
  std::size_t end = 0, seen = 0;
  while (end < text.size() && (detail::continues(text[end]) || ++seen < most)) ++end;
  return std::string(text.substr(0, end)) + "…";
}

// ---- Formulas -----------------------------------------------------------------------------------
//
// The texts of the facts are small expressions:
//
//   choice     = comparison ["if" comparison "else" choice]
//   comparison = sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
//   sum        = product {("+" | "-") product}
//   product    = sign {("*" | "/") sign}
//   sign       = ["-"] power
//   power      = atom ["^" sign]
//   atom       = number | letter | name "(" [choice {"," choice}] ")" | "(" choice ")"
//
// What cannot be read as one ("sum over j of ...") is plain text.

namespace detail {

struct Expression;
using Part = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind { number, letter, call, negative, binary, choice };
  Kind kind;
  std::string text;  // the number, the letter, the function's name, or the sign of a binary one
  std::vector<Part> parts;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Part parse() {  // null if the text is no formula
    Part whole = choice();
    skip_blanks();
    return at_ == text_.size() ? std::move(whole) : nullptr;
  }

 private:
  static constexpr int deepest = 60;  // parentheses inside each other; a file may hold anything

  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view sign) {
    skip_blanks();
    if (text_.substr(at_, sign.size()) != sign) return false;
    at_ += sign.size();
    return true;
  }
  static Part make(Expression::Kind kind, std::string_view text, Part a = nullptr,
                   Part b = nullptr) {
    auto made = std::make_unique<Expression>(Expression{kind, std::string(text), {}});
    if (a) made->parts.push_back(std::move(a));
    if (b) made->parts.push_back(std::move(b));
    return made;
  }

  // `next` {sign `next`}: a chain that groups to the left.
  template <class Next>
  Part chain(std::initializer_list<const char*> signs, Next next) {
    Part left = next();
    while (left) {
      const char* found = nullptr;
      for (const char* sign : signs)
        if (!found && take(sign)) found = sign;
      if (!found) return left;
      Part right = next();
      if (!right) return nullptr;
      left = make(Expression::Kind::binary, found, std::move(left), std::move(right));
    }
    return nullptr;
  }

  bool take_word(std::string_view word) {
    const std::size_t begin = at_;
    if (take(word) && at_ < text_.size() && text_[at_] == ' ') return true;
    at_ = begin;
    return false;
  }

  // `a if c else b`; its parts stand in this order.
  Part choice() {
    if (++depth_ > deepest) return nullptr;
    Part result = comparison();
    if (result && take_word("if")) {
      Part condition = comparison();
      Part other = condition && take_word("else") ? choice() : nullptr;
      if (!other) return nullptr;
      result = make(Expression::Kind::choice, "if", std::move(result), std::move(condition));
      result->parts.push_back(std::move(other));
    }
    --depth_;
    return result;
  }
  Part comparison() {
    return chain({"<=", ">=", "==", "!=", "<", ">"}, [this] { return sum(); });
  }
  Part sum() {
    return chain({"+", "-"}, [this] { return product(); });
  }
  Part product() {
    return chain({"*", "/"}, [this] { return sign(); });
  }
  Part sign() {
    if (++depth_ > deepest) return nullptr;
    Part result;
    if (!take("-")) {
      result = power();
    } else if (Part inner = sign()) {
      result = make(Expression::Kind::negative, "-", std::move(inner));
    }
    --depth_;
    return result;
  }
  Part power() {
    Part base = atom();
    if (!base || !take("^")) return base;
    Part exponent = sign();
    if (!exponent) return nullptr;
    return make(Expression::Kind::binary, "^", std::move(base), std::move(exponent));
  }
  Part atom() {
    if (take("(")) {
      Part inner = choice();
      return inner && take(")") ? std::move(inner) : nullptr;
    }
    skip_blanks();
    const std::size_t begin = at_;
    if (at_ < text_.size() && is_digit(text_[at_])) {
      while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.')) ++at_;
      return make(Expression::Kind::number, text_.substr(begin, at_ - begin));
    }
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty() || name == "if" || name == "else") return nullptr;
    if (at_ < text_.size() && text_[at_] == '(') return call(name);
    return make(Expression::Kind::letter, name);
  }
  Part call(std::string_view name) {
    take("(");
    Part result = make(Expression::Kind::call, name);
    if (take(")")) return result;
    do {
      Part argument = choice();
      if (!argument) return nullptr;
      result->parts.push_back(std::move(argument));
    } while (take(","));
    return take(")") ? std::move(result) : nullptr;
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// Chains of any length would make trees of any depth, and a trace file may hold any text.
inline constexpr std::size_t longest_formula = 400;

inline Part parse(std::string_view text) {
  return text.size() > longest_formula ? nullptr : Parser(text).parse();
}

// ---- The value of a formula

using Values = std::map<std::string, double, std::less<>>;

inline std::optional<double> value_of_call(const std::string& name, const std::vector<double>& v) {
  if (v.size() == 1) {
    static const std::map<std::string, double (*)(double), std::less<>> functions = {
        {"exp", [](double a) { return std::exp(a); }},
        {"log", [](double a) { return std::log(a); }},
        {"sqrt", [](double a) { return std::sqrt(a); }},
        {"tanh", [](double a) { return std::tanh(a); }},
        {"sin", [](double a) { return std::sin(a); }},
        {"cos", [](double a) { return std::cos(a); }},
        {"abs", [](double a) { return std::fabs(a); }},
        {"sign", [](double a) { return double(a > 0) - double(a < 0); }},
        {"sigmoid", [](double a) { return 1 / (1 + std::exp(-a)); }},
        {"relu", [](double a) { return a > 0 ? a : 0; }},
        {"tan", [](double a) { return std::tan(a); }},
        {"asin", [](double a) { return std::asin(a); }},
        {"acos", [](double a) { return std::acos(a); }},
        {"atan", [](double a) { return std::atan(a); }},
        {"sinh", [](double a) { return std::sinh(a); }},
        {"cosh", [](double a) { return std::cosh(a); }},
        {"erf", [](double a) { return std::erf(a); }},
        {"floor", [](double a) { return std::floor(a); }},
        {"ceil", [](double a) { return std::ceil(a); }},
        {"round", [](double a) { return std::nearbyint(a); }},
        {"trunc", [](double a) { return std::trunc(a); }},
    };
    auto found = functions.find(name);
    if (found != functions.end()) return found->second(v[0]);
  }
  if (v.size() == 2 && (name == "max" || name == "maximum")) return std::max(v[0], v[1]);
  if (v.size() == 2 && (name == "min" || name == "minimum")) return std::min(v[0], v[1]);
  if (v.size() == 2 && name == "atan2") return std::atan2(v[0], v[1]);
  if (v.size() == 2 && name == "fmod") return std::fmod(v[0], v[1]);
  if (v.size() == 3 && name == "where") return v[0] != 0 ? v[1] : v[2];
  return std::nullopt;
}

inline double value_of_binary(const std::string& sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "/") return a / b;
  if (sign == "^") return std::pow(a, b);
  if (sign == "<") return a < b;
  if (sign == "<=") return a <= b;
  if (sign == ">") return a > b;
  if (sign == ">=") return a >= b;
  return sign == "==" ? a == b : a != b;
}

inline std::optional<double> value_of(const Expression& e, const Values& letters) {
  if (e.kind == Expression::Kind::number) return std::strtod(e.text.c_str(), nullptr);
  if (e.kind == Expression::Kind::letter) {
    auto found = letters.find(e.text);
    return found == letters.end() ? std::nullopt : std::optional<double>(found->second);
  }
  std::vector<double> values;
  for (const Part& part : e.parts) {
    std::optional<double> value = value_of(*part, letters);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  if (e.kind == Expression::Kind::call) return value_of_call(e.text, values);
  if (e.kind == Expression::Kind::negative) return -values[0];
  if (e.kind == Expression::Kind::choice) return values[1] != 0 ? values[0] : values[2];
  return value_of_binary(e.text, values[0], values[1]);
}

// ---- The text of a formula

// How tightly a text holds together: looser ones are put into parentheses inside tighter ones.
enum Hold { choosing, comparing, adding, multiplying, signing, raising, whole };

struct Written {
  std::string text;
  Hold hold;
  std::string in_parentheses(Hold at_least) const {
    return hold < at_least ? "(" + text + ")" : text;
  }
};

// The text as superscripts, or empty if one of its characters has none.
inline std::string superscript(std::string_view text) {
  static const std::map<char, const char*> raised = {
      {'0', "⁰"}, {'1', "¹"}, {'2', "²"}, {'3', "³"}, {'4', "⁴"}, {'5', "⁵"}, {'6', "⁶"},
      {'7', "⁷"}, {'8', "⁸"}, {'9', "⁹"}, {'+', "⁺"}, {'-', "⁻"}, {'n', "ⁿ"}, {'a', "ᵃ"},
      {'b', "ᵇ"}, {'c', "ᶜ"}, {'m', "ᵐ"}, {'y', "ʸ"}, {' ', ""}};
  std::string result;
  for (char c : text) {
    auto found = raised.find(c);
    if (found == raised.end()) return "";
    result += found->second;
  }
  return result;
}

class Writer {
 public:
  // Without letters a formula is written as it stands.
  explicit Writer(const Letters* letters) : letters_(letters) {}

  Written write(const Expression& e) {
    switch (e.kind) {
      case Expression::Kind::number:
        return {e.text, whole};
      case Expression::Kind::letter:
        return letter(e.text);
      case Expression::Kind::call:
        return call(e);
      case Expression::Kind::negative:
        return {"-" + write(*e.parts[0]).in_parentheses(raising), signing};
      case Expression::Kind::choice:
        return {write(*e.parts[0]).text + " if " + write(*e.parts[1]).text + " else " +
                    write(*e.parts[2]).text,
                choosing};
      case Expression::Kind::binary:
        break;
    }
    if (e.text == "^") return power(e);
    if (e.text == "*" || e.text == "/") return product(e);
    const bool sum = e.text == "+" || e.text == "-";
    const std::string left = write(*e.parts[0]).in_parentheses(sum ? adding : multiplying);
    const Written right = write(*e.parts[1]);
    const bool negative = right.text[0] == '-';  // 2 - (-3)
    return {left + " " + pretty_sign(e.text) + " " +
                right.in_parentheses(negative || e.text == "-" ? raising : multiplying),
            sum ? adding : comparing};
  }
  bool complete() const { return complete_; }

  static std::string pretty_sign(const std::string& sign) {
    static const std::map<std::string, const char*, std::less<>> signs = {
        {"*", "·"}, {"<=", "≤"}, {">=", "≥"}, {"!=", "≠"}, {"==", "="}};
    auto found = signs.find(sign);
    return found == signs.end() ? sign : found->second;
  }

 private:
  Written letter(const std::string& name) {
    if (!letters_) return {name, whole};
    auto found = letters_->find(name);
    if (found == letters_->end() || found->second.empty()) {
      complete_ = false;
      return {name, whole};
    }
    const std::string& text = found->second;
    if (is_number(text)) return {text, text[0] == '-' ? signing : whole};
    if (text.find(' ') == std::string::npos) return {text, whole};
    // The text of another formula: a name in mid-expression.
    const bool product = text.find(" + ") == std::string::npos &&
                         text.find(" - ") == std::string::npos &&
                         text.find(" · ") != std::string::npos;
    return {text, product ? multiplying : comparing};
  }

  Written call(const Expression& e) {
    if (e.parts.size() == 1 && e.text == "sqrt")
      return {"√" + write(*e.parts[0]).in_parentheses(whole), whole};
    if (e.parts.size() == 1 && e.text == "abs") return {"|" + write(*e.parts[0]).text + "|", whole};
    std::string arguments;
    for (const Part& part : e.parts)
      arguments += (arguments.empty() ? "" : ", ") + write(*part).text;
    return {e.text + "(" + arguments + ")", whole};
  }

  Written power(const Expression& e) {
    const Written base = write(*e.parts[0]);
    const Expression& exponent = *e.parts[1];
    std::string raised = write(exponent).text;
    const bool computed =
        exponent.kind == Expression::Kind::binary || exponent.kind == Expression::Kind::negative;
    if (std::optional<double> value = numeric(exponent)) raised = number(*value);
    if (computed && raised == "1") return base;
    const std::string above = superscript(raised);
    if (!above.empty()) return {base.in_parentheses(whole) + above, raising};
    const bool simple = raised.find(' ') == std::string::npos && raised[0] != '-';
    return {base.in_parentheses(whole) + "^" + (simple ? raised : "(" + raised + ")"), raising};
  }

  // A chain of factors: × between them if all are plain numbers, else ·.
  Written product(const Expression& e) {
    std::vector<const Expression*> chain{&e};
    while (is_product(*chain.back()->parts[0])) chain.push_back(chain.back()->parts[0].get());
    std::vector<Written> factors{write(*chain.back()->parts[0])};
    for (auto link = chain.rbegin(); link != chain.rend(); ++link)
      factors.push_back(write(*(*link)->parts[1]));
    const bool plain = letters_ && std::all_of(factors.begin(), factors.end(),
                                               [](const Written& f) { return is_number(f.text); });
    std::string text = factors[0].in_parentheses(multiplying);
    for (std::size_t i = 1; i < factors.size(); ++i) {
      const bool divides = chain[chain.size() - i]->text == "/";
      text += divides ? " / " : plain ? " × " : " · ";
      text += factors[i].in_parentheses(raising);
    }
    return {text, multiplying};
  }
  static bool is_product(const Expression& e) {
    return e.kind == Expression::Kind::binary && (e.text == "*" || e.text == "/");
  }

  std::optional<double> numeric(const Expression& e) const {
    Values values;
    if (letters_)
      for (const auto& [name, text] : *letters_)
        if (is_number(text)) values[name] = std::strtod(text.c_str(), nullptr);
    return value_of(e, values);
  }

  const Letters* letters_;
  bool complete_ = true;
};

inline void collect_letters(const Expression& e, std::vector<std::string>& found) {
  if (e.kind == Expression::Kind::letter &&
      std::find(found.begin(), found.end(), e.text) == found.end())
    found.push_back(e.text);
  for (const Part& part : e.parts) collect_letters(*part, found);
}

// Free text: signs that stand between blanks change, all else stays.
inline std::string pretty_text(std::string_view text) {
  std::string result;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    result += Writer::pretty_sign(std::string(text.substr(begin, end - begin)));
    if (end < text.size()) result += ' ';
    begin = end + 1;
  }
  return result;
}
}  // namespace detail

inline std::string pretty(std::string_view formula) {
  detail::Part parsed = detail::parse(formula);
  return parsed ? detail::Writer(nullptr).write(*parsed).text : detail::pretty_text(formula);
}

inline std::string put_in(std::string_view formula, const Letters& letters) {
  detail::Part parsed = detail::parse(formula);
  if (!parsed) return "";
  detail::Writer writer(&letters);
  std::string text = writer.write(*parsed).text;
  return writer.complete() ? text : "";
}

inline std::optional<double> evaluate(std::string_view formula,
                                      const std::map<std::string, double, std::less<>>& letters) {
  detail::Part parsed = detail::parse(formula);
  return parsed ? detail::value_of(*parsed, letters) : std::nullopt;
}

inline std::vector<std::string> letters_of(std::string_view formula) {
  std::vector<std::string> found;
  if (detail::Part parsed = detail::parse(formula)) detail::collect_letters(*parsed, found);
  return found;
}

inline bool is_elementwise(std::string_view formula) {
  std::map<std::string, double, std::less<>> ones;
  for (const std::string& letter : letters_of(formula)) ones[letter] = 1;
  return evaluate(formula, ones).has_value();
}

// ---- Circles ------------------------------------------------------------------------------------

namespace detail {
inline std::string circle_sign(std::string_view symbol) {
  static const std::map<std::string, const char*, std::less<>> signs = {
      {"*", "×"},  {"·", "×"},  {"/", "÷"},   {"-", "−"},   {"<=", "≤"},
      {">=", "≥"}, {"!=", "≠"}, {"sum", "Σ"}, {"sqrt", "√"}};
  auto found = signs.find(symbol);
  return found == signs.end() ? std::string(symbol) : found->second;
}
}  // namespace detail

inline std::string circle(std::string_view op, std::string_view symbol, std::string_view formula,
                          const Letters& names, const Letters& numbers) {
  using detail::Expression;
  constexpr std::size_t longest_name = 3;  // a circle is small; the letter a stands for a long name
  const std::string sign = detail::circle_sign(symbol.empty() ? op : symbol);
  detail::Part parsed = detail::parse(formula);
  if (!parsed || parsed->kind != Expression::Kind::binary) return sign;
  const Expression &left = *parsed->parts[0], &right = *parsed->parts[1];
  if (left.kind != Expression::Kind::letter || right.kind != Expression::Kind::letter) return sign;
  auto left_number = numbers.find(left.text), right_number = numbers.find(right.text);
  if (left_number == numbers.end() && right_number == numbers.end()) return sign;
  if (parsed->text == "^") {
    Letters short_names = numbers;
    for (const auto& [letter, name] : names)
      short_names[letter] = length(name) <= longest_name ? name : letter;
    return put_in(formula, short_names);
  }
  const std::string between = detail::circle_sign(parsed->text);
  if (right_number != numbers.end()) return between + right_number->second;
  return left_number->second + " " + between;
}

}  // namespace words
