// 14  Two moons: a boundary that no straight line can be.
#include "lessons/lesson.hpp"

using namespace mt;
using namespace lesson;

LESSON("14_two_moons", "Two moons", "Learning") {
  const double lr = knob("lr", 0.05);
  const auto hidden = static_cast<int64_t>(knob("hidden", 16));
  const int64_t steps = 200;

  say("1. Points of two kinds\n"
      "Two half moons that reach into each other, 100 points on each, blurred a little. Which moon "
      "does a point belong to?");
  manual_seed(14);
  auto drawn = rand({100}, {.dtype = float64});
  auto angle = 3.14159265358979 * drawn;
  auto cosine = angle.cos();
  auto sine = angle.sin();
  auto upper = stack({cosine, sine}, 1);
  auto lower_x = 1.0 - cosine;
  auto lower_y = 0.5 - sine;
  auto lower = stack({lower_x, lower_y}, 1);
  auto both = cat({upper, lower});
  auto noise = randn({200, 2}, {.dtype = float64});
  auto blur = 0.1 * noise;
  auto points = both + blur;
  auto zero = zeros({100, 1}, {.dtype = float64});
  auto one = ones({100, 1}, {.dtype = float64});
  auto kinds = cat({zero, one});
  const std::vector<double> xy = points.to_vector<double>();
  for (size_t i = 0; i < xy.size(); i += 2)
    plot(i < 200 ? "upper moon" : "lower moon", xy[i], xy[i + 1]);

  // How many of the points it tells right.
  const auto right = [&](nn::Module& net) {
    const Quiet quiet;
    return ((net(points) > 0) == (kinds > 0.5)).sum().item<int64_t>();
  };
  // What it says about each place of the plane, from the lower moon for sure (bright) to the upper
  // one (dark).
  const auto map_of = [](nn::Module& net) {
    const Quiet quiet;
    auto x = linspace(-1.5, 2.5, 61, {.dtype = float64}).unsqueeze(0).expand({16, 61});
    auto y = linspace(1.5, -1.0, 16, {.dtype = float64}).unsqueeze(1).expand({16, 61});
    return net(stack({x, y}, -1).reshape({16 * 61, 2})).sigmoid().reshape({16, 61}).detach();
  };

  say("2. A straight line\n"
      "Linear(2, 1) computes w · x + b for a point x. Above 0 it says \"lower moon\", below 0 "
      "\"upper moon\"; where it is 0 is a straight line. Its loss, the binary cross entropy, is "
      "small if it is sure and right, and large if it is sure and wrong.");
  nn::Linear line(2, 1);
  line.to(float64);
  optim::Adam line_walk(line.parameters(), {.lr = lr});
  for (int64_t i = 0; i < steps; ++i) {
    auto score = line(points);
    auto loss = binary_cross_entropy_with_logits(score, kinds);
    loss.backward();
    line_walk.step();
    line_walk.zero_grad();
    plot("loss of the line", static_cast<double>(i), loss.item());
  }
  std::cout << "the line tells " << right(line) << " of 200 right\n";
  picture(map_of(line), "what the line says");
  step("It does what a line can do: it cuts off the horns.");

  say("3. A bend in it\n"
      "Now two layers with a bend between them: 16 lines, each bent by tanh, and then a mix of "
      "them. (Without the bend, a mix of lines would be a line again.)");
  struct Net : nn::Module {
    explicit Net(int64_t count)
        : first(add("first", nn::Linear(2, count))), second(add("second", nn::Linear(count, 1))) {}
    Tensor forward(const Tensor& x) override {
      auto lines = first(x);
      auto bent = lines.tanh();
      auto mix = second(bent);
      return mix;
    }
    nn::Linear first, second;
  };
  Net net(hidden);
  net.to(float64);
  int64_t weights = 0;
  for (const Tensor& w : net.parameters()) weights += w.numel();
  ask("How many numbers can it learn, weights and biases together?", static_cast<double>(weights),
      {"Each of the 16 bent lines has two weights and a bias.", "16 · 3, and then 16 + 1."});
  optim::Adam walk(net.parameters(), {.lr = lr});
  for (int64_t i = 0; i < steps; ++i) {
    auto score = net(points);
    auto loss = binary_cross_entropy_with_logits(score, kinds);
    loss.backward();
    walk.step();
    walk.zero_grad();
    plot("loss of the network", static_cast<double>(i), loss.item());
  }
  std::cout << "the network tells " << right(net) << " of 200 right\n";
  picture(map_of(net), "what the network says");
  say("The boundary has grown a bend where the points asked for one. Nobody drew it: there are "
      "numbers, slopes, and a loss.");

  say("Challenge: how few bent lines suffice? --knob hidden=2. And blur the points by 0.3: does "
      "the network then learn the moons, or the blur?");
  say("The road not taken: one could help the line with columns made by hand, x², y² and x · y, "
      "and it would bend. That works where one can guess the right columns. A hidden layer is a "
      "machine that finds columns of its own.");
}

// What it prints with --brief, held by CTest:
//
// expect: drawn = [100], from 0.0111018 to 0.987509
// expect: angle = drawn · 3.14159 = [100], from 0.0348774 to 3.10235
// expect: cosine = cos(angle) = [100], from -0.99923 to 0.999392
// expect: sine = sin(angle) = [100], from 0.0348703 to 0.999983
// expect: upper = stack(cosine, sine) = [100, 2], from -0.99923 to 0.999983
// expect: lower_x = 1 - cosine = [100], from 0.000608155 to 1.99923
// expect: lower_y = 0.5 - sine = [100], from -0.499983 to 0.46513
// expect: lower = stack(lower_x, lower_y) = [100, 2], from -0.499983 to 1.99923
// expect: both = cat(upper, lower) = [200, 2], from -0.99923 to 1.99923
// expect: noise = [200, 2], from -3.52005 to 2.97209
// expect: blur = noise · 0.1 = [200, 2], from -0.352005 to 0.297209
// expect: points = both + blur = [200, 2], from -1.17186 to 2.14367
// expect: zero = [100, 1], from 0 to 0
// expect: one = [100, 1], from 1 to 1
// expect: kinds = cat(zero, one) = [200, 1], from 0 to 1
// expect: upper moon (o): 100 points, from 0.958524 at -0.212699 to 0.687673 at -0.713715
// expect: lower moon (.): 100 points, from -0.574761 at 1.17408 to -0.108271 at 1.45201
// expect: weight = [1, 2], from -0.325474 to 0.574494
// expect: bias = [-0.0057098]
// expect: score = linear(weight, points, bias) = [200, 1], from -0.831463 to 0.734078
// expect: loss = binary_cross_entropy_with_logits(score, kinds) = 0.924541
// expect: backwards from loss, which receives 1
// expect: score receives [200, 1], from 0 to 0.005 from loss = binary_cross_entropy_with_logits(score, kinds)
// expect: score receives [200, 1], from -0.00348332 to -0.0016215 from loss = binary_cross_entropy_with_logits(score, kinds)
// expect: its second contribution
// expect: bias receives summed over axis 0 = [-0.00564542] from score = linear(weight, points, bias)
// expect: weight receives [1, 2], from -0.346792 to 0.257875 from score = linear(weight, points, bias)
// expect: bias.grad = [-0.00564542]
// expect: weight.grad = [1, 2], from -0.346792 to 0.257875
// expect: weight is now [1, 2], from -0.275474 to 0.524494 (Adam)
// expect: bias is now [0.0442901] (Adam)
// expect: weight.grad is let go
// expect: bias.grad is let go
// expect: the line tells 176 of 200 right
// expect: what the line says
// expect: ░░░░░░
// expect: ░░░░░░░░░░░░░░▒▒
// expect: ░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒▒▓
// expect: ░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓▓
// expect: ░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓▓▓▓▓▓██████
// expect: ░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓▓▓▓▓▓████████████████
// expect: ░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓▓▓▓▓██████████████████████████
// expect: ▒▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓▓▓▓▓▓███████████████████████████████████
// expect: ▒▒▓▓▓▓▓▓▓▓▓▓▓▓▓▓█████████████████████████████████████████████
// expect: ▓▓▓▓▓▓███████████████████████████████████████████████████████
// expect: █████████████████████████████████████████████████████████████
// expect: █████████████████████████████████████████████████████████████
// expect: █████████████████████████████████████████████████████████████
// expect: loss of the line (o): 200 points, from 0.924541 at 0 to 0.242669 at 199
// expect: weight = [16, 2], from -0.695421 to 0.695
// expect: bias = [16], from -0.693165 to 0.703222
// expect: weight = [1, 16], from -0.234735 to 0.221022
// expect: bias = [-0.101798]
// expect: Answer: 65
// expect: lines = linear(first.weight, points, first.bias) = [200, 16], from -2.12938 to 1.90541
// expect: bent = tanh(lines) = [200, 16], from -0.972115 to 0.956698
// expect: mix = linear(second.weight, bent, second.bias) = [200, 1], from -0.33861 to -0.00831267
// expect: score = [200, 1], from -0.33861 to -0.00831267
// expect: loss = binary_cross_entropy_with_logits(score, kinds) = 0.741181
// expect: backwards from loss, which receives 1
// expect: score receives [200, 1], from 0 to 0.005 from loss = binary_cross_entropy_with_logits(score, kinds)
// expect: score receives [200, 1], from -0.00291926 to -0.00251039 from loss = binary_cross_entropy_with_logits(score, kinds)
// expect: its second contribution
// expect: second.bias receives summed over axis 0 = [-0.0471602] from mix = linear(second.weight, bent, second.bias)
// expect: bent receives [200, 16], from -0.000645221 to 0.000685252 from mix = linear(second.weight, bent, second.bias)
// expect: second.weight receives [1, 16], from -0.20089 to 0.237335 from mix = linear(second.weight, bent, second.bias)
// expect: lines receives dy · (1 - (y · y)) = [200, 16], from -0.000608557 to 0.000684247 from bent = tanh(lines)
// expect: first.bias receives summed over axis 0 = [16], from -0.00998062 to 0.0166825 from lines = linear(first.weight, points, first.bias)
// expect: first.weight receives [16, 2], from -0.044306 to 0.0659591 from lines = linear(first.weight, points, first.bias)
// expect: second.bias.grad = [-0.0471602]
// expect: second.weight.grad = [1, 16], from -0.20089 to 0.237335
// expect: first.bias.grad = [16], from -0.00998062 to 0.0166825
// expect: first.weight.grad = [16, 2], from -0.044306 to 0.0659591
// expect: first.weight is now [16, 2], from -0.719207 to 0.645 (Adam)
// expect: first.bias is now [16], from -0.643165 to 0.753222 (Adam)
// expect: second.weight is now [1, 16], from -0.278097 to 0.207595 (Adam)
// expect: second.bias is now [-0.0517982] (Adam)
// expect: first.weight.grad is let go
// expect: first.bias.grad is let go
// expect: second.weight.grad is let go
// expect: second.bias.grad is let go
// expect: the network tells 200 of 200 right
// expect: what the network says
// expect: ░▒▓
// expect: ░▒▓██
// expect: ░▒▓████
// expect: ░▒▓██████
// expect: ░░░                          ░▒▓████████
// expect: ░▒█████▓▒░                    ░▒▓██████████
// expect: ▒▓█████████▓▒                ░▒▓████████████
// expect: ░▓██████████████▓░           ░▒▓██████████████
// expect: ▒▓██████████████████▒░      ░▒▓████████████████
// expect: ░▒████████████████████████▓▓▓▓███████████████████
// expect: ░▓████████████████████████████████████████████████
// expect: ░▒██████████████████████████████████████████████████
// expect: ░▓███████████████████████████████████████████████████
// expect: ░▒▓████████████████████████████████████████████████████
// expect: ░▒██████████████████████████████████████████████████████
// expect: loss of the network (o): 200 points, from 0.741181 at 0 to 0.00508164 at 199
