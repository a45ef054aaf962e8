// How numbers, formulas and operations are written for readers. Expected texts are written by hand.
#include <cmath>
#include <limits>

#include "lessons/words.hpp"
#include "tests/catch.hpp"

namespace {

TEST_CASE("a number in prose has no zeros at its end and six digits at most") {
  CHECK(words::number(3) == "3");
  CHECK(words::number(2.5) == "2.5");
  CHECK(words::number(0.001) == "0.001");
  CHECK(words::number(1e-9) == "1e-09");
  CHECK(words::number(-0.0) == "-0");
  CHECK(words::number(double(0.1F)) == "0.1");
  CHECK(words::number(1.0 / 3) == "0.333333");
  CHECK(words::number(std::nan("")) == "nan");
  CHECK(words::number(-std::nan("")) == "nan");
  CHECK(words::number(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("a number in a box shows its kind and never exceeds its room") {
  CHECK(words::field(3) == "3.0");
  CHECK(words::field(31) == "31.0");
  CHECK(words::field(3, false) == "3");
  CHECK(words::field(double(0.1F)) == "0.1");
  CHECK(words::field(1e10) == "1e+10");
  CHECK(words::field(std::nan("")) == "nan");
  CHECK(words::field(-1.0 / 3) == "-0.333333");
  CHECK(words::field(-1.0 / 3, true, 7) == "-0.3333");
  for (double value : {1.0, -1.0, 1.0 / 3, -123456.789, 1.23456789e-300, -9.87654321e300, 5e-324})
    for (int room : {7, 8, 14}) {
      CAPTURE(value, room);
      CHECK(words::field(value, true, room).size() <= std::size_t(room));
      CHECK(words::field(value, false, room).size() <= std::size_t(room));
    }
  CHECK(words::field(double(1LL << 40), false) == "1099511627776");
}

TEST_CASE("a formula is prettified") {
  CHECK(words::pretty("dy * n * a^(n - 1)") == "dy · n · aⁿ⁻¹");
  CHECK(words::pretty("a * b") == "a · b");
  CHECK(words::pretty("-dy * a / b^2") == "-dy · a / b²");
  CHECK(words::pretty("dy / (2 * y)") == "dy / (2 · y)");
  CHECK(words::pretty("dy * (1 - y^2)") == "dy · (1 - y²)");
  CHECK(words::pretty("dy * (a > 0)") == "dy · (a > 0)");
  CHECK(words::pretty("a <= b") == "a ≤ b");
  CHECK(words::pretty("sqrt(a)") == "√a");
  CHECK(words::pretty("sqrt(a + 1)") == "√(a + 1)");
  CHECK(words::pretty("abs(a - b)") == "|a - b|");
  CHECK(words::pretty("a - (b - c)") == "a - (b - c)");
  CHECK(words::pretty("a^b^c") == "a^bᶜ");
  CHECK(words::pretty("(a + b)^2") == "(a + b)²");
  CHECK(words::pretty("maximum(a, b)") == "maximum(a, b)");
}

TEST_CASE("a text that is no formula keeps its words") {
  CHECK(words::pretty("sum over j of dy[i,j] * b[k,j]") == "sum over j of dy[i,j] · b[k,j]");
  CHECK(words::pretty("dy.reshape(shape of a)") == "dy.reshape(shape of a)");
  CHECK(words::pretty("") == "");
  CHECK(words::pretty("a +") == "a +");
  CHECK(words::put_in("sum of a", {{"a", "1"}}) == "");
  CHECK(words::letters_of("sum of a").empty());
}

TEST_CASE("numbers are put in for letters") {
  CHECK(words::put_in("dy * b", {{"dy", "1"}, {"b", "3"}}) == "1 × 3");
  const words::Letters cube = {{"dy", "1"}, {"n", "3"}, {"a", "3"}};
  CHECK(words::put_in("dy * n * a^(n - 1)", cube) == "1 · 3 · 3²");
  const words::Letters square = {{"dy", "1"}, {"n", "2"}, {"a", "2"}};
  CHECK(words::put_in("dy * n * a^(n - 1)", square) == "1 × 2 × 2");
  CHECK(words::put_in("dy", {{"dy", "1"}}) == "1");
  CHECK(words::put_in("dy * b", {{"dy", "-1"}, {"b", "-3"}}) == "-1 × (-3)");
  CHECK(words::put_in("-dy * b", {{"dy", "-1"}, {"b", "2"}}) == "-(-1) · 2");
  CHECK(words::put_in("a - b", {{"a", "2"}, {"b", "-3"}}) == "2 - (-3)");
  CHECK(words::put_in("a^n", {{"a", "-2"}, {"n", "2"}}) == "(-2)²");
  CHECK(words::put_in("a^n", {{"a", "2"}, {"n", "0.5"}}) == "2^0.5");
  CHECK(words::put_in("a^n", {{"a", "x"}, {"n", "-1"}}) == "x⁻¹");
  CHECK(words::put_in("dy * (a > 0)", {{"dy", "2"}, {"a", "3"}}) == "2 · (3 > 0)");
  CHECK(words::put_in("dy * b", {{"dy", "1"}}) == "");
}

TEST_CASE("names are put in for letters, in parentheses where a name is a formula itself") {
  CHECK(words::put_in("a * b", {{"a", "x"}, {"b", "y"}}) == "x · y");
  CHECK(words::put_in("a + b", {{"a", "x · y"}, {"b", "z"}}) == "x · y + z");
  CHECK(words::put_in("a * b", {{"a", "x + y"}, {"b", "z"}}) == "(x + y) · z");
  CHECK(words::put_in("a^n", {{"a", "x · y"}, {"n", "2"}}) == "(x · y)²");
}

TEST_CASE("a formula has a value where its letters have one") {
  CHECK(words::evaluate("dy * n * a^(n - 1)", {{"dy", 1}, {"n", 3}, {"a", 3}}) == 27.0);
  CHECK(words::evaluate("dy * (a > 0)", {{"dy", 2}, {"a", -1}}) == 0.0);
  CHECK(words::evaluate("-a^2", {{"a", 3}}) == -9.0);
  CHECK(words::evaluate("2^3^2", {}) == 512.0);
  CHECK(words::evaluate("8 / 4 / 2", {}) == 1.0);
  CHECK(words::evaluate("10 - 4 - 3", {}) == 3.0);
  CHECK(words::evaluate("exp(a)", {{"a", 1}}) == std::exp(1.0));
  CHECK(words::evaluate("maximum(a, b)", {{"a", 1}, {"b", 2}}) == 2.0);
  CHECK_FALSE(words::evaluate("a + b", {{"a", 1}}).has_value());
  CHECK_FALSE(words::evaluate("nonsense(a)", {{"a", 1}}).has_value());
  CHECK(words::letters_of("dy * n * a^(n - 1)") == std::vector<std::string>{"dy", "n", "a"});
}

TEST_CASE("a formula is elementwise if all its functions are known") {
  CHECK(words::is_elementwise("dy * a^b * log(a)"));
  CHECK(words::is_elementwise("0 * dy"));
  CHECK_FALSE(words::is_elementwise("transpose(dy)"));
  CHECK_FALSE(words::is_elementwise("dy / count(a == y) if a == y else 0"));
  CHECK_FALSE(words::is_elementwise("dy reshaped back"));
}

TEST_CASE("a formula may choose between two") {
  const char* relu = "dy if y > 0 else 0";
  CHECK(words::pretty(relu) == "dy if y > 0 else 0");
  CHECK(words::put_in(relu, {{"dy", "2"}, {"y", "3"}}) == "2 if 3 > 0 else 0");
  CHECK(words::evaluate(relu, {{"dy", 2}, {"y", 3}}) == 2.0);
  CHECK(words::evaluate(relu, {{"dy", 2}, {"y", -3}}) == 0.0);
  const char* maximum = "dy if a > b else dy / 2 if a == b else 0";
  CHECK(words::evaluate(maximum, {{"dy", 2}, {"a", 1}, {"b", 1}}) == 1.0);
  CHECK(words::evaluate(maximum, {{"dy", 2}, {"a", 0}, {"b", 1}}) == 0.0);
  CHECK(words::pretty("2 * (a if a >= b else b)") == "2 · (a if a ≥ b else b)");
  CHECK(words::letters_of("dy at i, else 0").empty());
  CHECK(words::letters_of("a if").empty());
  CHECK(words::pretty("a at b") == "a at b");
}

TEST_CASE("parentheses without an end are refused, not followed into the depth") {
  CHECK(words::letters_of(std::string(100000, '(') + "a").empty());
  CHECK(words::letters_of(std::string(100000, '-') + "a").empty());
  std::string chain = "a";
  for (int i = 0; i < 100000; ++i) chain += " + a";
  CHECK(words::letters_of(chain).empty());
}

TEST_CASE("a circle shows the symbol, and the numbers written in the code") {
  CHECK(words::circle("mul", "*", "a * b", {{"a", "x"}, {"b", "y"}}, {}) == "×");
  CHECK(words::circle("pow", "^n", "a^n", {{"a", "x"}}, {{"n", "2"}}) == "x²");
  CHECK(words::circle("pow", "^n", "a^n", {{"a", "distance"}}, {{"n", "3"}}) == "a³");
  CHECK(words::circle("mul", "*", "a * n", {{"a", "x"}}, {{"n", "2"}}) == "×2");
  CHECK(words::circle("sub", "-", "n - a", {{"a", "x"}}, {{"n", "1"}}) == "1 −");
  CHECK(words::circle("pow_number", "aⁿ", "a^n", {{"a", "x"}}, {{"n", "3"}}) == "x³");
  CHECK(words::circle("mul_number", "×n", "a * n", {{"a", "x"}}, {{"n", "2"}}) == "×2");
  CHECK(words::circle("tanh", "tanh", "tanh(a)", {{"a", "x"}}, {}) == "tanh");
  CHECK(words::circle("reshape", "", "reshape of a", {{"a", "x"}}, {}) == "reshape");
}

TEST_CASE("a place in an order has its word") {
  CHECK(words::ordinal(1) == "first");
  CHECK(words::ordinal(2) == "second");
  CHECK(words::ordinal(12) == "twelfth");
  CHECK(words::ordinal(13) == "13th");
  CHECK(words::ordinal(21) == "21st");
  CHECK(words::ordinal(111) == "111th");
  CHECK(words::ordinal(112) == "112th");
  CHECK(words::ordinal(122) == "122nd");
  CHECK(words::axes({1}) == "axis 1");
  CHECK(words::axes({0, 1}) == "axes 0 and 1");
  CHECK(words::axes({0, 2, 3}) == "axes 0, 2 and 3");
}

TEST_CASE("any bytes become text that can be shown") {
  CHECK(words::clean("x² · β 😀") == "x² · β 😀");
  CHECK(words::clean("a\nb\tc") == "a␊b␉c");
  CHECK(words::clean(std::string("\0", 1)) == "␀");
  CHECK(words::clean("\x7f") == "␡");
  CHECK(words::clean("a\xff b") == "a\xEF\xBF\xBD b");
  CHECK(words::clean("\xC3") == "\xEF\xBF\xBD");                          // cut short
  CHECK(words::clean("\xC0\xAF") == "\xEF\xBF\xBD\xEF\xBF\xBD");          // longer than needed
  CHECK(words::clean("\xED\xA0\x80").find('\xED') == std::string::npos);  // half of a pair
}

TEST_CASE("what a program printed is shown as a terminal shows it") {
  CHECK(words::printed("a line\nand one more") == "a line\nand one more");
  CHECK(words::printed("\ta\tbb\n12345678\tc") == "        a       bb\n12345678        c");
  CHECK(words::printed("β²\tx") == "β²      x");  // characters are counted, not bytes
  CHECK(words::printed("\x1b[1;31mred\x1b[0m\tx\x1b[K") == "red     x");
  CHECK(words::printed("\x1b]0;a title\a1\x1b]8;;http://a\x1b\\2\x1b(B3\x1b[?25l4") == "1234");
  CHECK(words::printed("one\r\ntwo\r\n") == "one\ntwo\n");
  CHECK(words::printed("epoch\n 10 %\r 55 %\r100 %\r") == "epoch\n100 %");
  for (const char* cut_short : {"x\x1b", "x\x1b[", "x\x1b[31", "x\x1b]0;title"})
    CHECK(words::printed(cut_short) == "x");
  CHECK(words::printed("\x1b[31\nthe next line\x1b]0;title\nand one") ==
        "\nthe next line\nand one");
}

TEST_CASE("text is cut between characters, never inside one") {
  CHECK(words::length("αβγ") == 3);
  CHECK(words::cut("αβγ", 3) == "αβγ");
  CHECK(words::cut("αβγδ", 3) == "αβ…");
  CHECK(words::cut("", 3) == "");
}

}  // namespace
