// 13  Linear regression: a line through points, by hand, by autograd, and through measured data.
//
// lessons/hubble1929.csv is table 1 of E. Hubble, "A relation between distance and radial velocity
// among extra-galactic nebulae", PNAS 15 (1929), 168-173: 24 nebulae, their distance in megaparsec
// and their radial velocity in km/s. Any other file of two columns: --data FILE.
#include "lessons/csv.hpp"
#include "lessons/lesson.hpp"

using namespace mt;
using namespace lesson;

LESSON("13_linear_regression", "Linear regression", "Learning") {
  const double lr = knob("lr", 0.1);
  const int64_t steps = 100;
  const TwoColumns table = read_two_columns(data_file("hubble1929.csv"));  // for part 3

  say("1. Points whose line we know\n"
      "Take y = 2x + 1, blur it with a little noise, and forget the 2 and the 1. Can they be found "
      "again from the points alone?");
  manual_seed(13);
  auto x = linspace(-2.0, 2.0, 20, {.dtype = float64});
  auto line = 2.0 * x + 1.0;
  auto noise = randn({20}, {.dtype = float64});
  auto blur = 0.1 * noise;
  auto y = line + blur;

  say("A guess is a line w · x + b. Its loss is the mean of (w · x + b - y)² over the points. "
      "Small loss, good guess: so walk downhill. On paper, the slopes of the loss are\n"
      "dw = mean of 2 (w · x + b - y) · x\n"
      "db = mean of 2 (w · x + b - y)\n"
      "and each step takes lr times the slope away from w and b.");

  const std::vector<double> xs = x.to_vector<double>();
  const std::vector<double> ys = y.to_vector<double>();
  std::vector<double> w_by_hand = {0.0};
  std::vector<double> b_by_hand = {0.0};
  for (int64_t i = 0; i < steps; ++i) {
    double dw = 0.0;
    double db = 0.0;
    for (size_t k = 0; k < xs.size(); ++k) {
      const double error = w_by_hand.back() * xs[k] + b_by_hand.back() - ys[k];
      dw += 2.0 * error * xs[k] / static_cast<double>(xs.size());
      db += 2.0 * error / static_cast<double>(xs.size());
    }
    w_by_hand.push_back(w_by_hand.back() - lr * dw);
    b_by_hand.push_back(b_by_hand.back() - lr * db);
  }
  std::cout << "by hand: w = " << w_by_hand.back() << ", b = " << b_by_hand.back() << '\n';

  say("2. The same walk by autograd\n"
      "Now write the loss only. backward() finds dw and db. Here is the first step in full; the "
      "others do the same with other numbers.");
  auto w = tensor(0.0, {.dtype = float64, .requires_grad = true}).named("w");
  auto b = tensor(0.0, {.dtype = float64, .requires_grad = true}).named("b");
  when_arrives(w,
               "Each of the 20 points has its own opinion on w. The one w serves them all, so it "
               "receives the sum: what was spread out forwards is summed backwards.");
  ask("At the bottom of the valley, where the loss is smallest, what is dw?", 0.0,
      {"If it were not that, one could go further down."});
  double difference = 0.0;
  for (size_t i = 1; i < w_by_hand.size(); ++i) {
    auto wx = w * x;
    auto guess = wx + b;
    auto loss = mse_loss(guess, y);
    loss.backward();
    {
      NoGrad guard;
      w -= lr * w.grad();
      b -= lr * b.grad();
    }
    w.zero_grad();
    b.zero_grad();
    plot("loss", static_cast<double>(i), loss.item());
    difference += std::abs(w.item() - w_by_hand[i]) + std::abs(b.item() - b_by_hand[i]);
  }
  std::cout << "by autograd: w = " << w.item() << ", b = " << b.item() << '\n';
  std::cout << "all steps together, the two walks are " << difference << " apart\n";
  if (std::abs(w.item() - 2.0) < 0.2 && std::abs(b.item() - 1.0) < 0.2)
    say("w is about 2 and b is about 1: found again, as well as the noise allows. And autograd "
        "went the very same way, because it does the same sums.");
  else
    say("w and b are not yet, or no longer, near 2 and 1. With a small lr the steps are too short. "
        "With a large one each step leaps over the valley and lands higher on the other side.");

  say("3. Measured points");
  if (!data_was_given())
    say("In 1929 Edwin Hubble compared how far 24 nebulae are from us, in megaparsec, with the "
        "speed at which they recede, in km/s. A few come nearer: their velocity is negative.");
  std::cout << table.x.size() << " rows: " << table.x_name << ", " << table.y_name << '\n';
  auto measured_x = tensor(table.x, {.dtype = float64});
  auto measured_y = tensor(table.y, {.dtype = float64});

  say("Measured columns come in all sizes, and a single lr cannot suit them all. So measure each "
      "column from its own mean in units of its own spread: u and v. On those, any table looks "
      "alike to the walk.");
  const auto size_of = [](const Tensor& t) {  // of its numbers; 1 if all are 0, to divide by it
    const double size = std::sqrt((t * t).mean().item());
    return size > 0.0 ? size : 1.0;
  };
  const double x_mean = measured_x.mean().item();
  const double y_mean = measured_y.mean().item();
  auto from_x_mean = measured_x - x_mean;
  auto from_y_mean = measured_y - y_mean;
  const double x_spread = size_of(from_x_mean);
  const double y_spread = size_of(from_y_mean);
  auto u = (from_x_mean / x_spread).named("u");
  auto v = (from_y_mean / y_spread).named("v");

  auto k = tensor(0.0, {.dtype = float64, .requires_grad = true}).named("k");
  auto c = tensor(0.0, {.dtype = float64, .requires_grad = true}).named("c");
  optim::SGD walk({k, c}, {.lr = 0.1});
  for (int64_t i = 0; i < steps; ++i) {
    walk.zero_grad();
    auto ku = k * u;
    auto fit = ku + c;
    auto loss = mse_loss(fit, v);
    loss.backward();
    walk.step();
  }
  const double slope = k.item() * y_spread / x_spread;
  const double intercept = y_mean + c.item() * y_spread - slope * x_mean;
  for (size_t i = 0; i < table.x.size(); ++i) plot(table.y_name, table.x[i], table.y[i]);
  for (double x_now : table.x) plot("the line", x_now, slope * x_now + intercept);
  std::cout << "slope " << slope << ", intercept " << intercept << '\n';

  say("And if the line must go through the origin? Then it has a slope alone. Nothing is moved to "
      "a mean now, only measured in a unit.");
  const double x_size = size_of(measured_x);
  const double y_size = size_of(measured_y);
  auto p = (measured_x / x_size).named("p");
  auto q = (measured_y / y_size).named("q");
  auto m = tensor(0.0, {.dtype = float64, .requires_grad = true}).named("m");
  optim::SGD second_walk({m}, {.lr = 0.1});
  for (int64_t i = 0; i < steps; ++i) {
    second_walk.zero_grad();
    auto mp = m * p;
    auto loss = mse_loss(mp, q);
    loss.backward();
    second_walk.step();
  }
  std::cout << "slope through the origin " << m.item() * y_size / x_size << '\n';
  if (!data_was_given())
    say("So the nebulae recede by some 454 km/s for each megaparsec, or 424 if we insist that "
        "at distance 0 nothing recedes. Hubble himself gave about 500. Today's value is near 70: "
        "his line was right, but his yardstick for distances was too short by a factor of seven.");

  say("Challenge: turn the knob, --knob lr=0.7, and watch part 2 run away. Then find the largest "
      "lr "
      "that does not. (The slope dw changes by 2 · mean of x² when w changes by 1. How long may a "
      "step be, if it must not leap as far up the other side?) And bring a table of your own: "
      "--data FILE.");
  say("The road not taken: for a straight line, school algebra gives w and b at once, without a "
      "walk (the normal equations). It is quicker, and exact. But it works for lines only, whereas "
      "the walk asks for nothing but a slope: it trains a network in just the same way.");
}

// What it prints with --brief, held by CTest:
//
// expect: x = [20], from -2 to 2
// expect: x · 2 = [20], from -4 to 4
// expect: line = x · 2 + 1 = [20], from -3 to 5
// expect: noise = [20], from -2.04107 to 1.87478
// expect: blur = noise · 0.1 = [20], from -0.204107 to 0.187478
// expect: y = line + blur = [20], from -2.91568 to 4.99516
// expect: by hand: w = 1.97448, b = 1.00049
// expect: w = 0
// expect: b = 0
// expect: Answer: 0
// expect: wx = w · x = [20], from 0 to 0
// expect: guess = wx + b = [20], from 0 to 0
// expect: loss = mse_loss(guess, y) = 6.75368
// expect: backwards from loss, which receives 1
// expect: guess receives [20], from -0.499516 to 0.291568 from loss = mse_loss(guess, y)
// expect: wx receives dy = [20], from -0.499516 to 0.291568 from guess = wx + b
// expect: b receives dy summed over axis 0 = -2.00098 from guess = wx + b
// expect: w receives dy · b summed over axis 0 = -5.81953 from wx = w · x
// expect: b.grad = -2.00098
// expect: w.grad = -5.81953
// expect: w.grad · 0.1 = -5.81953 × 0.1 = -0.581953
// expect: w is now 0.581953 (sub_)
// expect: b.grad · 0.1 = -2.00098 × 0.1 = -0.200098
// expect: b is now 0.200098 (sub_)
// expect: w.grad is let go
// expect: b.grad is let go
// expect: by autograd: w = 1.97448, b = 1.00049
// expect: all steps together, the two walks are 3.94129e-15 apart
// expect: loss (o): 100 points, from 6.75368 at 1 to 0.00740942 at 100
// expect: 24 rows: distance_mpc, velocity_km_s
// expect: measured_x = [24], from 0.032 to 2
// expect: measured_y = [24], from -220 to 1090
// expect: mean(measured_x) = 0.911375
// expect: mean(measured_y) = 373.125
// expect: from_x_mean = measured_x - 0.911375 = [24], from -0.879375 to 1.08862
// expect: from_y_mean = measured_y - 373.125 = [24], from -593.125 to 716.875
// expect: from_x_mean · from_x_mean = [24], from 0.000129391 to 1.1851
// expect: mean(from_x_mean · from_x_mean) = 0.399304
// expect: from_y_mean · from_y_mean = [24], from 5347.27 to 513910
// expect: mean(from_y_mean · from_y_mean) = 132087
// expect: u = from_x_mean / 0.631905 = [24], from -1.39163 to 1.72277
// expect: v = from_y_mean / 363.438 = [24], from -1.63198 to 1.97248
// expect: k = 0
// expect: c = 0
// expect: ku = k · u = [24], from 0 to 0
// expect: fit = ku + c = [24], from 0 to 0
// expect: loss = mse_loss(fit, v) = 1
// expect: backwards from loss, which receives 1
// expect: fit receives [24], from -0.164374 to 0.135999 from loss = mse_loss(fit, v)
// expect: ku receives dy = [24], from -0.164374 to 0.135999 from fit = ku + c
// expect: c receives dy summed over axis 0 = -2.77556e-17 from fit = ku + c
// expect: k receives dy · b summed over axis 0 = -1.57928 from ku = k · u
// expect: c.grad = -2.77556e-17
// expect: k.grad = -1.57928
// expect: k is now 0.157928 (SGD)
// expect: c is now 2.77556e-18 (SGD)
// expect: k.grad is let go
// expect: c.grad is let go
// expect: slope 454.158, intercept -40.7836
// expect: velocity_km_s (o): 24 points, from 170 at 0.032 to 1090 at 2
// expect: the line (.): 24 points, from -26.2506 at 0.032 to 867.533 at 2
// expect: p = measured_x / 1.10901 = [24], from 0.0288545 to 1.80341
// expect: q = measured_y / 520.874 = [24], from -0.422367 to 2.09264
// expect: m = 0
// expect: mp = m · p = [24], from 0 to 0
// expect: loss = mse_loss(mp, q) = 1
// expect: backwards from loss, which receives 1
// expect: mp receives [24], from -0.174386 to 0.0351973 from loss = mse_loss(mp, q)
// expect: m receives dy · b summed over axis 0 = -1.80524 from mp = m · p
// expect: m.grad = -1.80524
// expect: m is now 0.180524 (SGD)
// expect: m.grad is let go
// expect: slope through the origin 423.937
