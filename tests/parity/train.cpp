// Trains the networks of tests/parity/run: reads first values and batches, writes the values after
// the last step. Both programs have the same tables of networks and optimisers.
//
//     train FOLDER STEPS DEVICE mlp:adam lenet:sgd ...
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "minitensor_files.hpp"

using namespace mt;

namespace {

struct Mlp : nn::Module {
  nn::Sequential layers = add(
      "layers",
      nn::Sequential(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 8), nn::SiLU(), nn::Linear(8, 3)));
  Tensor forward(const Tensor& x) override { return layers(x); }
};

struct LeNet : nn::Module {  // LeNet-5 on images of 20 x 20
  nn::Conv2d conv1 = add("conv1", nn::Conv2d(1, 6, 5, {.bias = false}));
  nn::BatchNorm2d norm1 = add("norm1", nn::BatchNorm2d(6));
  nn::Conv2d conv2 = add("conv2", nn::Conv2d(6, 16, 5, {.bias = false}));
  nn::BatchNorm2d norm2 = add("norm2", nn::BatchNorm2d(16, {.momentum = {}}));
  nn::MaxPool2d pool = add("pool", nn::MaxPool2d(2));
  nn::Sequential head = add("head", nn::Sequential(nn::Flatten(), nn::Linear(64, 20), nn::ReLU(),
                                                   nn::Dropout(0.0), nn::Linear(20, 3)));
  Tensor forward(const Tensor& x) override {
    const Tensor small = pool(norm1(conv1(x)).relu());
    return head(pool(norm2(conv2(small)).relu()));
  }
};

struct Block : nn::Module {
  nn::LayerNorm norm1 = add("norm1", nn::LayerNorm(8));
  nn::MultiheadAttention attention =
      add("attention", nn::MultiheadAttention(8, 2, {.batch_first = true}));
  nn::LayerNorm norm2 = add("norm2", nn::LayerNorm(8));
  nn::Linear wide = add("wide", nn::Linear(8, 16));
  nn::Linear narrow = add("narrow", nn::Linear(16, 8));
  Tensor forward(const Tensor& x) override {
    const Tensor y = norm1(x);
    const Tensor causal =
        ones({x.size(1), x.size(1)}, {.dtype = boolean, .device = x.device()}).triu(1);
    const Tensor seen = attention(y, y, y, {.attn_mask = causal}).output;
    const Tensor sum = x + seen;
    const Tensor inner = gelu(wide(norm2(sum)));
    return sum + narrow(inner);
  }
};
struct Transformer : nn::Module {
  nn::Embedding words = add("words", nn::Embedding(11, 8));
  nn::ModuleList<Block> blocks = add("blocks", nn::ModuleList<Block>{Block(), Block()});
  nn::Linear head = add("head", nn::Linear(8, 3));
  Tensor forward(const Tensor& x) override {
    Tensor y = words(x);
    for (Block& block : blocks) y = block(y);
    return head(y.mean({1}));
  }
};

struct Sequences : nn::Module {
  nn::Embedding words = add("words", nn::Embedding(11, 5));
  nn::LSTM lstm = add("lstm", nn::LSTM(5, 4, {.num_layers = 2, .bidirectional = true}));
  nn::GRU gru = add("gru", nn::GRU(8, 4, {.bidirectional = true}));
  nn::RNN rnn = add("rnn", nn::RNN(8, 4, {.num_layers = 2}));
  nn::Linear head = add("head", nn::Linear(4, 3));
  Tensor forward(const Tensor& x) override {
    const Tensor long_term = lstm(words(x).transpose(0, 1)).output;
    const Tensor gated = gru(long_term).output;
    return head(rnn(gated).hidden[1]);
  }
};

using Parameters = std::vector<Tensor>;
using Schedule = std::unique_ptr<optim::LRScheduler>;

struct Trainer {
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<Schedule> schedules = {};
  double clip_norm = 0, clip_value = 0;
};

Trainer trainer_for(const std::string& name, const Parameters& p) {
  const auto sgd = [&](optim::SGDOptions o) { return std::make_unique<optim::SGD>(p, o); };
  const auto adam = [&](optim::AdamOptions o) { return std::make_unique<optim::Adam>(p, o); };
  const auto rms = [&](optim::RMSpropOptions o) { return std::make_unique<optim::RMSprop>(p, o); };
  const auto grad = [&](optim::AdagradOptions o) { return std::make_unique<optim::Adagrad>(p, o); };
  if (name == "sgd") return {sgd({.lr = 0.05})};
  if (name == "sgd_decay") return {sgd({.lr = 0.05, .weight_decay = 0.01})};
  if (name == "momentum") return {sgd({.lr = 0.02, .momentum = 0.9})};
  if (name == "dampening")
    return {sgd({.lr = 0.02, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01})};
  if (name == "nesterov")
    return {sgd({.lr = 0.02, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true})};
  if (name == "adam") return {adam({.lr = 0.01})};
  if (name == "adam_decay")
    return {adam({.lr = 0.01, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.02})};
  if (name == "amsgrad") return {adam({.lr = 0.01, .amsgrad = true})};
  if (name == "adamw") return {std::make_unique<optim::AdamW>(p, optim::AdamOptions{.lr = 0.01})};
  if (name == "adamw_amsgrad")
    return {std::make_unique<optim::AdamW>(
        p, optim::AdamOptions{.lr = 0.01, .weight_decay = 0.1, .amsgrad = true})};
  if (name == "rmsprop") return {rms({.lr = 0.005})};
  if (name == "rmsprop_momentum")
    return {rms({.lr = 0.002, .alpha = 0.9, .weight_decay = 0.01, .momentum = 0.8})};
  if (name == "rmsprop_variance") return {rms({.lr = 0.005, .centered = true})};
  if (name == "rmsprop_centered") return {rms({.lr = 0.005, .momentum = 0.5, .centered = true})};
  if (name == "adagrad") return {grad({.lr = 0.05})};
  if (name == "adagrad_decay")
    return {grad({.lr = 0.05,
                  .lr_decay = 0.02,
                  .weight_decay = 0.01,
                  .initial_accumulator_value = 0.1,
                  .eps = 1e-6})};
  Trainer t;
  if (name == "clip_value") {
    t.optimizer = sgd({.lr = 0.05});
    t.clip_value = 0.02;
  } else if (name == "one_cycle") {
    t.optimizer = adam({.lr = 0.001});
    t.schedules.push_back(std::make_unique<optim::OneCycleLR>(
        *t.optimizer, 0.02, optim::OneCycleLROptions{.total_steps = 200}));
    t.clip_norm = 0.5;
  } else if (name == "warm_up") {
    t.optimizer = sgd({.lr = 0.05, .momentum = 0.9});
    t.schedules.push_back(std::make_unique<optim::LinearLR>(
        *t.optimizer, optim::LinearLROptions{.start_factor = 0.1, .total_iters = 20}));
    t.schedules.push_back(std::make_unique<optim::CosineAnnealingLR>(*t.optimizer, 200));
    t.clip_norm = 1;
  } else {
    throw Error("there is no trainer called " + name);
  }
  return t;
}

std::unique_ptr<nn::Module> network_for(const std::string& name) {
  if (name == "mlp") return std::make_unique<Mlp>();
  if (name == "lenet") return std::make_unique<LeNet>();
  if (name == "transformer") return std::make_unique<Transformer>();
  if (name == "sequences") return std::make_unique<Sequences>();
  throw Error("there is no network called " + name);
}

void train(const std::string& folder, const std::string& network, const std::string& trainer,
           int steps, Device device) {
  NamedTensors given = load_safetensors(folder + "/" + network + ".safetensors");
  NamedTensors first;
  for (const auto& [name, x] : given)
    if (name.rfind("state.", 0) == 0) first.emplace(name.substr(6), x);
  for (auto& [name, x] : given) x = x.to(device);
  const std::unique_ptr<nn::Module> net = network_for(network);
  net->to(float64);
  net->load_state_dict(first);
  net->to(device);
  const Trainer t = trainer_for(trainer, net->parameters());
  for (int step = 0; step < steps; ++step) {
    const std::string batch = std::to_string(step % 4);
    t.optimizer->zero_grad();
    const Tensor logits = (*net)(given["x." + batch]);
    cross_entropy(logits, given["y." + batch]).backward();
    if (t.clip_norm > 0) static_cast<void>(optim::clip_grad_norm_(net->parameters(), t.clip_norm));
    if (t.clip_value > 0) optim::clip_grad_value_(net->parameters(), t.clip_value);
    t.optimizer->step();
    for (const Schedule& schedule : t.schedules) schedule->step();
  }
  net->eval();
  const Tensor logits = (*net)(given["x.0"]).detach().cpu();
  net->to(cpu);
  nn::StateDict last = net->state_dict();
  last.emplace_back("logits", logits);
  save_safetensors(folder + "/" + network + "." + trainer + ".safetensors", last);
}

}  // namespace

int main(int count, char** words) try {
  for (int i = 4; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t colon = word.find(':');
    train(words[1], word.substr(0, colon), word.substr(colon + 1), std::atoi(words[2]), words[3]);
  }
} catch (const Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
