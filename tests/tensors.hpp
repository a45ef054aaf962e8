// What the tests of the header share: short ways to write and compare tensors, the text of an
// error, and a check after each test that no node of any graph is left.
#pragma once

#if __has_include(<catch2/catch.hpp>)
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // for the listener
#include <catch2/catch.hpp>
using TestListener = Catch::TestEventListenerBase;
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
using TestListener = Catch::EventListenerBase;
#endif

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "minitensor.hpp"

namespace tensors {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

using Values = std::vector<double>;

inline Values values(const mt::Tensor& x) { return x.to_vector<double>(); }

inline mt::Tensor leaf(const mt::Nested& numbers, mt::DType dtype = mt::float32) {
  return mt::tensor(numbers, {.dtype = dtype, .requires_grad = true});
}

// Empty if the tensors have the same dtype, shape and elements: |got - want| <= atol + rtol |want|,
// NaN equals NaN, infinities are equal, and the sign of a zero does not count. Otherwise a sentence
// about the first difference.
inline std::string difference(const mt::Tensor& got, const mt::Tensor& want, double rtol = 0,
                              double atol = 0) {
  if (!got.defined() || !want.defined())
    return got.defined() == want.defined() ? "" : "one of them is undefined";
  if (got.dtype() != want.dtype())
    return std::string(mt::name_of(got.dtype())) + " instead of " + mt::name_of(want.dtype());
  if (got.shape() != want.shape())
    return mt::to_string(got.shape()) + " instead of " + mt::to_string(want.shape());
  const Values a = values(got), b = values(want);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
    if (both_nan || a[i] == b[i] || std::abs(a[i] - b[i]) <= atol + rtol * std::abs(b[i])) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(a[i]) + " instead of " +
           std::to_string(b[i]);
  }
  return "";
}

// The text of the Error that f throws, or "no error". The place of the caller's line is marked
// HERE, so a text in which another line stands is seen to be wrong.
template <class F>
std::string error_of(F f, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  try {
    static_cast<void>(f());
  } catch (const mt::Error& error) {
    std::string text = error.what();
    const std::string path = file;
    const std::string here = path.substr(path.find_last_of('/') + 1) + ":" + std::to_string(line);
    const std::size_t at = text.find(here);
    return at == std::string::npos ? text : text.replace(at, here.size(), "HERE");
  }
  return "no error";
}
template <class F>
bool refused(F f) {
  return error_of(f) != "no error";
}

// An optimiser as a program may bring one: it steps by half against the sign of the gradient.
class SignSGD : public mt::optim::Optimizer {
 public:
  explicit SignSGD(const mt::Tensor& w) : Optimizer("SignSGD", {w}, 0.5, mt::Loc::here()) {}

 private:
  struct Rule {
    static constexpr std::size_t states = 0, numbers = 1;
    template <class T>
    static void step(T& w, T g, std::array<T, 0>&, const std::array<T, 1>& k) {
      w = w - k[0] * mt::formula::Sign::of(g);
    }
  };
  void update(Parameter& p) override { apply<Rule>(p, std::array{lr()}); }
};

// Every test leaves no node behind: a graph that nobody can reach any more is gone. A listener
// cannot fail a test, so the program ends with an exit code of its own.
class NoNodesLeft : public TestListener {
 public:
  using TestListener::TestListener;
  void testCaseEnded(const Catch::TestCaseStats&) override {
    if (mt::live_nodes() == 0) return;
    std::cerr << '"' << Catch::getResultCapture().getCurrentTestName() << "\" has left "
              << mt::live_nodes() << " nodes\n";
    std::exit(1);
  }
};
CATCH_REGISTER_LISTENER(NoNodesLeft)

}  // namespace tensors
