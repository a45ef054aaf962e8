// 04  The computation graph: what a program leaves behind when it computes.
#include "lessons/lesson.hpp"

using namespace mt;
using namespace lesson;

LESSON("04_computation_graph", "The computation graph", "Autograd") {
  say("Three numbers go in, one comes out: z = (x + y) · w. While the program computes it, it also "
      "writes down how. What it writes down is the computation graph.");

  auto x = tensor(2.0, {.requires_grad = true}).named("x");
  auto y = tensor(1.0, {.requires_grad = true}).named("y");
  auto w = tensor(4.0, {.requires_grad = true}).named("w");
  say("x, y and w are leaves: no operation made them. requires_grad asks for their gradients, so "
      "whatever is computed from them is recorded.");

  auto s = x + y;
  step(
      "s knows which operation made it, and the operation knows its inputs: x and y. The arrows "
      "show the way the numbers went.");

  auto z = s * w;
  step(
      "Multiplication has saved both of its inputs. It needs them later: the slope of s · w along "
      "s is w, and along w it is s. Addition saved nothing: its slopes are 1, whatever x and y "
      "are.");

  say("Each result holds the operation that made it, and a leaf holds none:");
  std::cout << "z was made by " << z.grad_fn()->name() << '\n';
  std::cout << "s was made by " << s.grad_fn()->name() << '\n';
  std::cout << "x is a leaf: " << (x.is_leaf() ? "yes" : "no") << '\n';

  say("What is the graph good for? It can be walked from its end to its beginning. On the way, "
      "each operation turns the gradient of its result into the gradients of its inputs.");
  ask("If x grows by 0.01, by how much does z grow?", 0.01 * w.item(),
      {"First s grows. By how much?", "s grows by 0.01 as well. Then it is multiplied by w."});
  when_arrives(
      w,
      "In a product each one's share is as large as its partner. w is multiplied by s = 3, "
      "so a push on w counts three times.");
  when_arrives(x, "Addition hands on what it was given, unchanged, to both.");
  z.backward();

  say("Read the gradients as answers: push x or y a little, and z moves 4 times as far. Push w, "
      "and z moves 3 times as far.");

  NoGrad guard;
  auto p = x * y;
  say("p was computed under NoGrad. The numbers are the same as ever, but nothing was written "
      "down, so nobody can walk back from p.");
  std::cout << "p requires grad: " << (p.requires_grad() ? "yes" : "no") << '\n';

  say("Challenge: write z = x · w + y · w instead. It is the same z. Is it the same graph? Count "
      "the operations, and then the contributions that w receives.");
  say("The road not taken: one could describe the whole graph first and compute with it later. "
      "Theano and the first TensorFlow did. Such a graph can be improved as a whole before it "
      "runs. But then a loop and an if must become parts of the graph, and a mistake shows itself "
      "far from the line that made it. Here, as in PyTorch, the graph is a record of what the "
      "program did: the C++ that you know is the whole language.");
}

// What it prints with --brief, held by CTest:
//
// expect: x = 2
// expect: y = 1
// expect: w = 4
// expect: s = x + y = 2 + 1 = 3
// expect: z = s · w = 3 × 4 = 12
// expect: z was made by MulBackward0
// expect: s was made by AddBackward0
// expect: x is a leaf: yes
// expect: Answer: 0.04
// expect: backwards from z, which receives 1
// expect: s receives dy · b = 1 × 4 = 4 from z = s · w
// expect: w receives dy · a = 1 × 3 = 3 from z = s · w
// expect: x receives dy = 4 from s = x + y
// expect: y receives dy = 4 from s = x + y
// expect: w.grad = 3
// expect: y.grad = 4
// expect: x.grad = 4
// expect: p = x · y = 2 × 1 = 2
// expect: p requires grad: no
