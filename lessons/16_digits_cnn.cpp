// 16  Handwritten digits: a small convolutional network reads them.
//
// lessons/optical_digits.npz is "Optical Recognition of Handwritten Digits" by E. Alpaydin and C.
// Kaynak (1998), UCI Machine Learning Repository, doi.org/10.24432/C50P49, licence CC BY 4.0: 1797
// images of 8x8 from 13 people (the test half of that collection), values 0 to 16, with their
// labels. Another file with `images` [n, 8, 8] and `labels` [n]: --data FILE.
#include <chrono>

#include "lessons/lesson.hpp"
#include "lessons/words.hpp"
#include "minitensor_files.hpp"

using namespace mt;
using namespace lesson;

LESSON("16_digits_cnn", "Reading handwritten digits", "Learning") {
  const double lr = knob("lr", 0.01);
  const auto epochs = static_cast<int64_t>(knob("epochs", 8));

  say("1. The digits\n"
      "13 people wrote digits, a scanner saw them, and 4x4 of its dots at a time were counted into "
      "one number from 0 to 16. What is left are 8x8 numbers an image. These are the first eight.");
  NamedTensors file = load_npz(data_file("optical_digits.npz"));
  if (!file.contains("images") || !file.contains("labels"))
    throw Mistake("The data should be a .npz file with images and labels in it.");
  auto scanned = file["images"].named("scanned");
  auto labels = file["labels"].named("labels");
  auto pixels = scanned.to(float64);
  auto bright = pixels / 16.0;
  auto images = bright.unsqueeze(1);

  const auto side_by_side = [](const Tensor& some) {  // [n, 1, 8, 8] -> [8, 9n], with gaps
    const Quiet quiet;
    return pad(some, {0, 1}).squeeze(1).transpose(0, 1).reshape({8, -1});
  };
  picture(side_by_side(images.slice(0, 0, 8)), "the first eight");

  say("Whoever learns a thing by heart does well on what he has seen. So a fifth of the digits is "
      "put away. The network is never shown them, until it is asked how it reads.");
  const data::TensorDataset all(images, labels);
  const std::vector<data::Subset> parts = data::random_split(all, {0.8, 0.2}, {.seed = 16});
  const data::DataLoader train(parts[0], {.batch_size = 32, .seed = 16, .shuffle = true});
  const data::DataLoader held_out(parts[1], {.batch_size = parts[1].size()});
  std::cout << parts[0].size() << " digits to learn from, " << parts[1].size() << " held out\n";

  say("2. The network\n"
      "A kernel is a little picture of 3x3 weights. It is laid on every place of the image, and "
      "says how well that place agrees with it: a stroke like this, a corner like that. The same "
      "nine weights serve all places, as a 7 is a 7 wherever it stands. Then the largest answer in "
      "each 2x2 is kept, and the next kernels look at those.\n"
      "Between the two stands a norm: it gives each channel the mean 0 and the spread 1 over the "
      "batch, so that no layer has to follow another one's moods.");
  manual_seed(16);
  struct Net : nn::Module {
    nn::Conv2d conv1 = add("conv1", nn::Conv2d(1, 8, 3, {.padding = 1, .bias = false}));
    nn::BatchNorm2d norm1 = add("norm1", nn::BatchNorm2d(8));
    nn::Conv2d conv2 = add("conv2", nn::Conv2d(8, 16, 3, {.padding = 1, .bias = false}));
    nn::BatchNorm2d norm2 = add("norm2", nn::BatchNorm2d(16));
    nn::Linear out = add("out", nn::Linear(16 * 2 * 2, 10));

    Tensor forward(const Tensor& x) override {  // [n, 1, 8, 8]
      auto strokes = conv1(x);                  // [n, 8, 8, 8]
      auto normed = norm1(strokes);
      auto bent = normed.relu();
      auto coarse = max_pool2d(bent, 2);  // [n, 8, 4, 4]
      auto shapes = conv2(coarse);        // [n, 16, 4, 4]
      auto normed2 = norm2(shapes);
      auto bent2 = normed2.relu();
      auto coarsest = max_pool2d(bent2, 2);  // [n, 16, 2, 2]
      auto row = coarsest.flatten(1);        // [n, 64]
      auto votes = out(row);                 // [n, 10]
      return votes;
    }
  } net;
  net.to(float64);
  int64_t weights = 0;
  for (const Tensor& w : net.parameters()) weights += w.numel();
  ask("How many weights do the eight kernels of conv1 have together?", 8 * 3 * 3,
      {"They are 3x3, and each looks at one channel."});
  std::cout << "all in all the network learns " << weights << " numbers\n";

  say("3. Learning\n"
      "32 digits at a time: read them, compare with the labels, walk downhill. The cross entropy "
      "is -log of the share that the right digit got. Here is the first batch in full.");
  ask("A network that knows nothing gives each of ten digits a tenth. What is its loss?",
      std::log(10.0), {"-log(1/10)", "log here is the natural one."});
  const auto count_right = [&] {
    const Quiet quiet;
    const NoGrad guard;
    net.eval();  // the norms now use the mean and the spread that they saw in training
    int64_t right = 0;
    for (auto [x, y] : held_out) right += (net(x).argmax(1) == y).sum().item<int64_t>();
    net.train();
    return right;
  };
  optim::Adam adam(net.parameters(), {.lr = lr});
  optim::CosineAnnealingLR slower(adam, epochs);
  std::vector<double> losses;
  double per_cent = 0.0;
  for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    double sum = 0.0;
    for (auto [x, y] : train) {
      x.named("x");
      y.named("y");
      auto scores = net(x);
      auto loss = cross_entropy(scores, y);
      loss.backward();
      adam.step();
      adam.zero_grad();
      losses.push_back(loss.item());
      sum += loss.item() * static_cast<double>(x.size(0));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const auto count = static_cast<double>(parts[0].size());
    slower.step();
    per_cent = 100.0 * static_cast<double>(count_right()) / static_cast<double>(parts[1].size());
    say("epoch " + std::to_string(epoch) + ": loss " + words::number(sum / count, 3) + ", " +
        words::number(per_cent, 3) + " % of the held out right, " +
        std::to_string(std::lround(count / seconds.count())) + " images a second");
  }
  for (size_t i = 0; i < losses.size(); ++i) plot("loss", static_cast<double>(i + 1), losses[i]);
  std::cout << "at least 98 % of the held out digits are read: "
            << (per_cent >= 98.0 ? "yes" : "no") << '\n';

  say("4. What it takes for what\n"
      "A row for each digit as it is, a column for each as it was read, from 0 to 9. A bright "
      "diagonal was read well. Below are digits that were not, as many as fit.");
  std::vector<double> taken(100);
  std::vector<Tensor> misread;
  std::string words_for_them;
  net.eval();
  for (auto [x, y] : held_out) {
    const Quiet quiet;
    const NoGrad guard;
    auto read = net(x).argmax(1);
    for (int64_t i = 0; i < y.size(0); ++i) {
      const auto is = y[i].item<int64_t>();
      const auto seen_as = read[i].item<int64_t>();
      taken[static_cast<size_t>(10 * is + seen_as)] += 1.0;
      if (is == seen_as || misread.size() == 8) continue;
      misread.push_back(x[i]);
      words_for_them += " a " + std::to_string(is) + " as " + std::to_string(seen_as) + ",";
    }
  }
  auto confusion = tensor(taken).reshape({10, 10});
  picture(confusion, "taken for what");
  if (!misread.empty()) {
    words_for_them.back() = '.';
    std::cout << "misread:" << words_for_them << '\n';
    auto them = stack(misread);
    picture(side_by_side(them), "misread");
  }
  say("Would you have read those?");

  say("Challenge: leave out the norms, or one of the two convolutions. How much worse is it? And "
      "--knob epochs=2: when does it know most of what it will ever know?");
  say("The road not taken: a plain network takes the 64 pixels as a list. It reads these digits "
      "nearly as well, as they all stand in the middle of their frames. Move them by two pixels, "
      "and it has to learn each of them anew at each place, while a kernel goes everywhere.");
}

// What it prints with --brief, held by CTest:
//
// expect: scanned = [1797, 8, 8], from 0 to 16
// expect: labels = [1797], from 0 to 9
// expect: pixels = scanned = [1797, 8, 8], from 0 to 16
// expect: bright = pixels / 16 = [1797, 8, 8], from 0 to 1
// expect: images = unsqueeze(bright) = [1797, 1, 8, 8], from 0 to 1
// expect: slice(images) = [8, 1, 8, 8], from 0 to 1
// expect: the first eight
// expect: ░█▒       ▓█░      ░█▓     ▒██        ▓      ▓▓        ▓█      ▒▒███
// expect: ██▓█░     ▓█▒      ███    ▒█░█░      ▒▒      ████     ░█▒      ▒▒░▓▓
// expect: █  ▓▒     ██░     ▒█▒█      ██       █░      ███▓     ██         ▒█
// expect: ░▓  ▒▒   ▒███       ░█▓      █▓      ▒█ ▒▒    ▓██▒     ██      ░▒▒██░
// expect: ░▒  ▒▒     ██      ▒██        ▓▓    ░█▓ █░     ░▒█▒    █▓▒      ▓██░
// expect: ░▓  ▓▒     ██░    ▒██░         ▓▒   ░████       ░█▒    ████      █░
// expect: █░▓▓      ██░     ███▓░    ▒░░█▒      █▓     ░░▓█░    ▒█▓█▒    ▒█
// expect: ░█▓       ▓█▓       ▓█▒    ▒██▒       █░     ▒██▓      ▒█▓     █░
// expect: 1438 digits to learn from, 359 held out
// expect: weight = [8, 1, 3, 3], from -0.322258 to 0.332507
// expect: weight = [8], from 1 to 1
// expect: bias = [8], from 0 to 0
// expect: running_mean = [8], from 0 to 0
// expect: running_var = [8], from 1 to 1
// expect: num_batches_tracked = 0
// expect: Answer: 72
// expect: all in all the network learns 1922 numbers
// expect: Answer: 2.30259
// expect: x = [32, 1, 8, 8], from 0 to 1
// expect: y = [32], from 0 to 9
// expect: strokes = conv2d(x, conv1.weight) = [32, 8, 8, 8], from -0.81076 to 1.13452
// expect: norm1.running_mean is now [8], from -0.0193421 to 0.0263665 (copy_)
// expect: norm1.running_var is now [8], from 0.901554 to 0.908595 (copy_)
// expect: normed = batch_norm(strokes, norm1.running_mean, norm1.running_var, norm1.weight, norm1.bias) = [32, 8, 8, 8], from -3.6917 to 3.38328
// expect: norm1.num_batches_tracked is now 1 (add_)
// expect: bent = max(normed, 0) = [32, 8, 8, 8], from 0 to 3.38328
// expect: coarse = max_pool2d(bent) = [32, 8, 4, 4], from 0 to 3.38328
// expect: shapes = conv2d(coarse, conv2.weight) = [32, 16, 4, 4], from -1.77348 to 1.88232
// expect: norm2.running_mean is now [16], from -0.0410751 to 0.0360407 (copy_)
// expect: norm2.running_var is now [16], from 0.909443 to 0.940787 (copy_)
// expect: normed2 = batch_norm(shapes, norm2.running_mean, norm2.running_var, norm2.weight, norm2.bias) = [32, 16, 4, 4], from -3.55072 to 3.78296
// expect: norm2.num_batches_tracked is now 1 (add_)
// expect: bent2 = max(normed2, 0) = [32, 16, 4, 4], from 0 to 3.78296
// expect: coarsest = max_pool2d(bent2) = [32, 16, 2, 2], from 0 to 3.78296
// expect: row = reshape(coarsest) = [32, 64], from 0 to 3.78296
// expect: votes = linear(out.weight, row, out.bias) = [32, 10], from -1.66759 to 2.54095
// expect: scores = [32, 10], from -1.66759 to 2.54095
// expect: loss = cross_entropy(y, scores) = 2.78389
// expect: backwards from loss, which receives 1
// expect: scores receives [32, 10], from -0.0307702 to 0.0134369 from loss = cross_entropy(y, scores)
// expect: out.bias receives summed over axis 0 = [10], from -0.0962409 to 0.149301 from votes = linear(out.weight, row, out.bias)
// expect: row receives [32, 64], from -0.00477494 to 0.00566388 from votes = linear(out.weight, row, out.bias)
// expect: out.weight receives [10, 64], from -0.228623 to 0.279701 from votes = linear(out.weight, row, out.bias)
// expect: coarsest receives dy reshaped back = [32, 16, 2, 2], from -0.00477494 to 0.00566388 from row = reshape(coarsest)
// expect: bent2 receives [32, 16, 4, 4], from -0.00477494 to 0.00566388 from coarsest = max_pool2d(bent2)
// expect: normed2 receives 0 if y ≤ 0 else dy = [32, 16, 4, 4], from -0.00477494 to 0.00566388 from bent2 = max(normed2, 0)
// expect: norm2.bias receives [16], from -0.0384987 to 0.0719965 from normed2 = batch_norm(shapes, norm2.running_mean, norm2.running_var, norm2.weight, norm2.bias)
// expect: norm2.weight receives [16], from -0.0174358 to 0.112511 from normed2 = batch_norm(shapes, norm2.running_mean, norm2.running_var, norm2.weight, norm2.bias)
// expect: shapes receives [32, 16, 4, 4], from -0.013538 to 0.0157093 from normed2 = batch_norm(shapes, norm2.running_mean, norm2.running_var, norm2.weight, norm2.bias)
// expect: shapes receives [32, 16, 4, 4], from -0.000379827 to 0.000217733 from normed2 = batch_norm(shapes, norm2.running_mean, norm2.running_var, norm2.weight, norm2.bias)
// expect: its second contribution
// expect: conv2.weight receives [16, 8, 3, 3], from -0.211293 to 0.32422 from shapes = conv2d(coarse, conv2.weight)
// expect: coarse receives [32, 8, 4, 4], from -0.00870605 to 0.0068531 from shapes = conv2d(coarse, conv2.weight)
// expect: bent receives [32, 8, 8, 8], from -0.00870605 to 0.0068531 from coarse = max_pool2d(bent)
// expect: normed receives 0 if y ≤ 0 else dy = [32, 8, 8, 8], from -0.00870605 to 0.0068531 from bent = max(normed, 0)
// expect: norm1.bias receives [8], from -0.0382173 to 0.0589784 from normed = batch_norm(strokes, norm1.running_mean, norm1.running_var, norm1.weight, norm1.bias)
// expect: norm1.weight receives [8], from -0.0600066 to 0.107419 from normed = batch_norm(strokes, norm1.running_mean, norm1.running_var, norm1.weight, norm1.bias)
// expect: strokes receives [32, 8, 8, 8], from -0.0521006 to 0.0440133 from normed = batch_norm(strokes, norm1.running_mean, norm1.running_var, norm1.weight, norm1.bias)
// expect: strokes receives [32, 8, 8, 8], from -0.000157339 to 0.000149681 from normed = batch_norm(strokes, norm1.running_mean, norm1.running_var, norm1.weight, norm1.bias)
// expect: its second contribution
// expect: conv1.weight receives [8, 1, 3, 3], from -0.173735 to 0.225044 from strokes = conv2d(x, conv1.weight)
// expect: out.bias.grad = [10], from -0.0962409 to 0.149301
// expect: out.weight.grad = [10, 64], from -0.228623 to 0.279701
// expect: norm2.bias.grad = [16], from -0.0384987 to 0.0719965
// expect: norm2.weight.grad = [16], from -0.0174358 to 0.112511
// expect: conv2.weight.grad = [16, 8, 3, 3], from -0.211293 to 0.32422
// expect: norm1.bias.grad = [8], from -0.0382173 to 0.0589784
// expect: norm1.weight.grad = [8], from -0.0600066 to 0.107419
// expect: conv1.weight.grad = [8, 1, 3, 3], from -0.173735 to 0.225044
// expect: conv1.weight is now [8, 1, 3, 3], from -0.332258 to 0.322507 (Adam)
// expect: norm1.weight is now [8], from 0.99 to 1.01 (Adam)
// expect: norm1.bias is now [8], from -0.01 to 0.01 (Adam)
// expect: conv2.weight is now [16, 8, 3, 3], from -0.127597 to 0.127123 (Adam)
// expect: norm2.weight is now [16], from 0.99 to 1.01 (Adam)
// expect: norm2.bias is now [16], from -0.01 to 0.01 (Adam)
// expect: out.weight is now [10, 64], from -0.134951 to 0.134572 (Adam)
// expect: out.bias is now [10], from -0.105106 to 0.0747886 (Adam)
// expect: conv1.weight.grad is let go
// expect: norm1.weight.grad is let go
// expect: norm1.bias.grad is let go
// expect: conv2.weight.grad is let go
// expect: norm2.weight.grad is let go
// expect: norm2.bias.grad is let go
// expect: out.weight.grad is let go
// expect: out.bias.grad is let go
// expect: at least 98 % of the held out digits are read: yes
// expect: loss (o): 360 points, from 2.78389 at 1 to 0.00792113 at 360
// expect: confusion = reshape(a tensor) = [10, 10], from 0 to 45
// expect: taken for what
// expect: ▓
// expect: █
// expect: ▒
// expect: ▓
// expect: █
// expect: ▓
// expect: █
// expect: ▓
// expect: ▓
// expect: ▓
// expect: misread: a 9 as 8, a 0 as 4, a 8 as 1, a 9 as 7.
// expect: them = stack(a tensor) = [4, 1, 8, 8], from 0 to 1
// expect: misread
// expect: ▓█▓      ▒█░     ▒██░     ░▓█░
// expect: █▒▒█     ░███     ▒██▓    ░█▒▓█
// expect: ▒▒ ▒▓     ██░█     ▒██     ▒█▒██
// expect: ▒▒ ██     █░ ▓▒    ░█░      ▓██░
// expect: ██▒█    ░█  █░    ░█        ▓▓
// expect: ▒░    ▓███     ▒█░       █░
// expect: ░█░▒▒     ███     ▓▓█       █
// expect: ▓██░     ▒█░     ░█▓      ░▓
