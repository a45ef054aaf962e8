// 15  Optimisers: three ways down one ravine.
#include "lessons/lesson.hpp"

using namespace mt;
using namespace lesson;

LESSON("15_optimizers", "Three ways down a ravine", "Learning") {
  const double lr = knob("lr", 0.09);
  const double momentum = knob("momentum", 0.5);
  const double start_x = -8.0;
  const double start_y = 1.5;

  say("1. A ravine\n"
      "The loss of two weights is (x² + 20 y²) / 2. From above it looks like this: dark is low, x "
      "runs from -10 to 10 and y from 2 to -2.");
  const auto ravine = [] {  // its root, so that the floor can be told from the walls
    const Quiet quiet;
    auto x = linspace(-10.0, 10.0, 61, {.dtype = float64});
    auto y = linspace(2.0, -2.0, 11, {.dtype = float64}).unsqueeze(1);
    return ((x.pow(2) + 20.0 * y.pow(2)) / 2.0).sqrt();
  };
  picture(ravine(), "the ravine from above");
  say("You see the bottom at once. A walker does not: it feels nothing but the slope under its "
      "feet. Along x the ground falls gently, across, along y, it is 20 times as steep.");

  // Walks until the loss is below 0.001 of its unit, for at most 100 steps.
  const auto descend = [](const Tensor& x, const Tensor& y, optim::Optimizer& optimiser,
                          const std::string& path, double unit) {
    const double half = 0.5 * unit;
    for (int64_t steps = 0; steps <= 100; ++steps) {
      const double here_x = x.item();
      const double here_y = y.item();
      auto xx = x.pow(2);
      auto yy = y.pow(2);
      auto steep = 20.0 * yy;
      auto sum = xx + steep;
      auto loss = half * sum;
      loss.backward();
      optimiser.step();
      optimiser.zero_grad();
      if (!path.empty()) plot(path, here_x, here_y);
      if (loss.item() < 0.001 * unit) return "arrives after " + std::to_string(steps) + " steps";
    }
    return std::string("is not there after 100 steps");
  };

  say("2. Plain steps\n"
      "SGD goes lr times the slope downhill: w becomes w - lr · dw. Here is its first step in "
      "full.");
  ask("The slope along y is 20 y. Where is y = 1.5 after one step?", start_y - lr * 20 * start_y,
      {"The slope is 20 · 1.5 = 30. The step is lr times that, downhill.",
       "It will be on the other side of the ravine."});
  auto x = tensor(start_x, {.dtype = float64, .requires_grad = true}).named("x");
  auto y = tensor(start_y, {.dtype = float64, .requires_grad = true}).named("y");
  optim::SGD plain({x, y}, {.lr = lr});
  const std::string by_steps = descend(x, y, plain, "SGD", 1.0);
  std::cout << "SGD " << by_steps << '\n';
  step(
      "It leaps from wall to wall while it creeps along the floor: each step multiplies y by 1 - "
      "20 lr and x by 1 - lr. A longer lr would help x, but from lr = 0.1 on y leaps higher and "
      "higher. The steepest direction sets the pace for all.");

  say("3. Steps with momentum\n"
      "Now the walker is a heavy ball. Its velocity v keeps a part of what it was and gains the "
      "slope: v becomes momentum · v + dw, and w becomes w - lr · v. Leaps to and fro cancel in v, "
      "and what points the same way each time adds up.");
  ask("If the slope were 1 at every step and the momentum 0.5, how large would v become?", 2.0,
      {"1, 1.5, 1.75, ...", "v = 0.5 v + 1 when it no longer changes."});
  auto x2 = tensor(start_x, {.dtype = float64, .requires_grad = true}).named("x");
  auto y2 = tensor(start_y, {.dtype = float64, .requires_grad = true}).named("y");
  optim::SGD heavy({x2, y2}, {.lr = lr, .momentum = momentum});
  const std::string by_momentum = descend(x2, y2, heavy, "momentum", 1.0);
  std::cout << "SGD with momentum " << by_momentum << '\n';

  say("4. Steps that measure the slope by itself\n"
      "Adam divides the running mean of each slope by the root of the running mean of its square. "
      "What is left has no unit: it is near 1 where the slopes of late agree, and near 0 where "
      "they contradict each other. That, times lr, is the step, for each weight on its own.");
  ask("With lr = 0.5, how far does the first step go along x, where the slope is 8?", 0.5,
      {"One slope alone agrees with itself.", "8 / √(8²) is 1."});
  auto x3 = tensor(start_x, {.dtype = float64, .requires_grad = true}).named("x");
  auto y3 = tensor(start_y, {.dtype = float64, .requires_grad = true}).named("y");
  optim::Adam adam({x3, y3}, {.lr = 0.5});
  const std::string by_adam = descend(x3, y3, adam, "Adam", 1.0);
  std::cout << "Adam " << by_adam << '\n';
  step(
      "It sets out diagonally, as if the ravine were a bowl. Then it overshoots, as its mean over "
      "ten slopes or so is slow to turn. It is not the fastest here, where we had chosen lr so "
      "well for the others. What, then, is it good for?");

  say("5. The same ravine in other units\n"
      "Measure the loss in thousandths: all slopes are 1000 times as large, the bottom is where it "
      "was. Nobody changes any lr.");
  auto x4 = tensor(start_x, {.dtype = float64, .requires_grad = true}).named("x");
  auto y4 = tensor(start_y, {.dtype = float64, .requires_grad = true}).named("y");
  optim::SGD lost({x4, y4}, {.lr = lr});
  const std::string by_steps_again = descend(x4, y4, lost, "", 1000.0);
  std::cout << "SGD " << by_steps_again << '\n';
  auto x5 = tensor(start_x, {.dtype = float64, .requires_grad = true}).named("x");
  auto y5 = tensor(start_y, {.dtype = float64, .requires_grad = true}).named("y");
  optim::Adam calm({x5, y5}, {.lr = 0.5});
  const std::string by_adam_again = descend(x5, y5, calm, "", 1000.0);
  std::cout << "Adam " << by_adam_again << '\n';
  say("Adam does not notice. In a network each layer has slopes of its own size, and nobody knows "
      "them beforehand: that is why so many begin with Adam.");

  say("Challenge: --knob momentum=0.9 lets the ball run past the bottom and back. Which momentum "
      "arrives first? (For a ravine that is k times as steep across, theory says ((√k - 1) / (√k + "
      "1))², with an lr of its own.) And turn lr to 0.11.");
  say("The road not taken: Newton's method divides by the curvature, which is 1 along x and 20 "
      "along y, and is at the bottom in one step. But n weights have n² curvatures. Adam's roots "
      "are a cheap stand-in for them: n numbers, made of slopes that one has anyway.");
}

// What it prints with --brief, held by CTest:
//
// expect: the ravine from above
// expect: █████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓█████████████
// expect: ██████▓▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓▓▓▓▓██████
// expect: ███▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓███
// expect: ▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒░░░░░░░░░░░░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓
// expect: ▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒░░░░░░░░░             ░░░░░░░░░▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓
// expect: ▓▓▓▓▓▓▒▒▒▒▒▒▒▒░░░░░░░░                 ░░░░░░░░▒▒▒▒▒▒▒▒▓▓▓▓▓▓
// expect: ▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒░░░░░░░░░             ░░░░░░░░░▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓
// expect: ▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒░░░░░░░░░░░░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓
// expect: ███▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓███
// expect: ██████▓▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓▓▓▓▓██████
// expect: █████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓█████████████
// expect: Answer: -1.2
// expect: x = -8
// expect: y = 1.5
// expect: xx = x² = (-8)² = 64
// expect: yy = y² = 1.5² = 2.25
// expect: steep = yy · 20 = 2.25 × 20 = 45
// expect: sum = xx + steep = 64 + 45 = 109
// expect: loss = sum · 0.5 = 109 × 0.5 = 54.5
// expect: backwards from loss, which receives 1
// expect: sum receives dy · n = 1 × 0.5 = 0.5 from loss = sum · 0.5
// expect: xx receives dy = 0.5 from sum = xx + steep
// expect: steep receives dy = 0.5 from sum = xx + steep
// expect: yy receives dy · n = 0.5 × 20 = 10 from steep = yy · 20
// expect: y receives dy · n · aⁿ⁻¹ = 10 × 2 × 1.5 = 30 from yy = y²
// expect: x receives dy · n · aⁿ⁻¹ = 0.5 × 2 × (-8) = -8 from xx = x²
// expect: y.grad = 30
// expect: x.grad = -8
// expect: x is now -7.28 (SGD)
// expect: y is now -1.2 (SGD)
// expect: x.grad is let go
// expect: y.grad is let go
// expect: SGD arrives after 55 steps
// expect: SGD (o): 56 points, from 1.5 at -8 to -7.01521e-06 at -0.0447061
// expect: Answer: 2
// expect: x2 = -8
// expect: y2 = 1.5
// expect: x.grad is let go
// expect: y.grad is let go
// expect: SGD with momentum arrives after 19 steps
// expect: momentum (o): 20 points, from 1.5 at -8 to -0.00282877 at -0.0424465
// expect: Answer: 0.5
// expect: x3 = -8
// expect: y3 = 1.5
// expect: x.grad is let go
// expect: y.grad is let go
// expect: Adam arrives after 88 steps
// expect: Adam (o): 89 points, from 1.5 at -8 to 0.00390176 at 0.0318018
// expect: x4 = -8
// expect: y4 = 1.5
// expect: x.grad is let go
// expect: y.grad is let go
// expect: SGD is not there after 100 steps
// expect: x5 = -8
// expect: y5 = 1.5
// expect: x.grad is let go
// expect: y.grad is let go
// expect: Adam arrives after 88 steps
