// 05  The chain rule: every operation knows its own slope, and that is enough.
#include "lessons/lesson.hpp"

using namespace mt;
using namespace lesson;

LESSON("05_chain_rule", "The chain rule", "Autograd") {
  say("z = x² + y³ + x · y. At x = 2, y = 3: how fast does z grow when x grows, or when y does?");

  auto x = tensor(2.0, {.requires_grad = true}).named("x");
  auto y = tensor(3.0, {.requires_grad = true}).named("y");
  auto a = x.pow(2);
  auto b = y.pow(3);
  auto c = x * y;
  auto s = a + b;
  auto z = s + c;
  show(z);

  say("No operation knows the whole of z. Each knows one thing only: the slopes of its own result "
      "along its own inputs.");
  say("We now walk backwards from z. In the rules below, whatever the program calls them, a and b "
      "are the first and second input of an operation, and dy is the gradient that has reached its "
      "result. The operation multiplies dy by its slope and hands the product to its input. That "
      "is the chain rule. There is no more to it.");

  when_arrives(x,
               "This is the first contribution. Another one, by way of a = x², is still to "
               "come, and it will be added.");
  when_arrives(x, "It is added, because x reaches z by two roads, and a push on x travels both.");
  when_arrives(y, "The roles are exchanged: what c = x · y did to y was to multiply it by x.");
  when_arrives(y, "The second road of y is the steep one: y³ has the slope 3y², which is 27 here.");
  ask("What will x.grad be in the end?", 2 * x.item() + y.item(),
      {"Two roads lead from x to z: one by a = x², one by c = x · y.",
       "The slope of x² is 2x. The slope of x · y along x is y."});
  z.backward();

  say("On paper: dz/dx = 2x + y = 7, and dz/dy = 3y² + x = 29. Nobody in the program had these "
      "formulas. And a leaf keeps its gradient only when all contributions have arrived: a sum is "
      "not done before its last term.");

  say("Challenge: change c to x · x and predict x.grad before you run it. How many contributions "
      "will x receive?");
  say("The road not taken: one can also walk forwards and carry the slope along x with each value. "
      "That is forward mode. It needs one walk for each input, while the walk backwards needs one "
      "for each output. A network has a million weights and one loss, so we walk backwards. And a "
      "third way, to derive one formula for the whole program as one does on paper, fails on "
      "length: the formula grows far faster than the program, and an if has no formula.");
}

// What it prints with --brief, held by CTest:
//
// expect: x = 2
// expect: y = 3
// expect: a = x² = 2² = 4
// expect: b = y³ = 3³ = 27
// expect: c = x · y = 2 × 3 = 6
// expect: s = a + b = 4 + 27 = 31
// expect: z = s + c = 31 + 6 = 37
// expect: z = 37
// expect: Answer: 7
// expect: backwards from z, which receives 1
// expect: s receives dy = 1 from z = s + c
// expect: c receives dy = 1 from z = s + c
// expect: a receives dy = 1 from s = a + b
// expect: b receives dy = 1 from s = a + b
// expect: x receives dy · b = 1 × 3 = 3 from c = x · y
// expect: y receives dy · a = 1 × 2 = 2 from c = x · y
// expect: y receives dy · n · aⁿ⁻¹ = 1 · 3 · 3² = 27 from b = y³
// expect: its second contribution: 2 + 27 = 29
// expect: x receives dy · n · aⁿ⁻¹ = 1 × 2 × 2 = 4 from a = x²
// expect: its second contribution: 3 + 4 = 7
// expect: y.grad = 29
// expect: x.grad = 7
