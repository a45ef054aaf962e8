// The appendix: modules, layers, first values, optimisers, schedules, clipping. (That whole
// trainings end with PyTorch's numbers is checked by tests/parity.)
#include <memory>
#include <sstream>

#include "tests/tensors.hpp"

using namespace mt;
using namespace tensors;

namespace {

// ---- Modules ------------------------------------------------------------------------------------

struct Net : nn::Module {
  nn::Linear fc1 = add("fc1", nn::Linear(4, 8));
  nn::Linear fc2 = add("fc2", nn::Linear(8, 3, {.bias = false}));
  Tensor forward(const Tensor& x) override {
    const Tensor hidden = fc1(x).relu();
    return fc2(hidden);
  }
};
struct Twice : nn::Module {
  nn::ModuleList<Net> nets = add("nets", nn::ModuleList<Net>());
  Tensor scale = register_parameter("scale", ones({1}));
  Tensor seen = register_buffer("seen", zeros({1}));
  Twice() {
    nets.push_back(Net());
    nets.push_back(Net());
  }
  Tensor forward(const Tensor& x) override { return (nets[0](x) + nets[1](x)) * scale; }
};

std::vector<std::string> names(const nn::StateDict& state) {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : state) found.push_back(name);
  return found;
}
using Names = std::vector<std::string>;

TEST_CASE("a module lists its parameters and those of its parts under PyTorch's names") {
  const Twice net;
  CHECK(names(net.named_parameters()) == Names{"scale", "nets.0.fc1.weight", "nets.0.fc1.bias",
                                               "nets.0.fc2.weight", "nets.1.fc1.weight",
                                               "nets.1.fc1.bias", "nets.1.fc2.weight"});
  CHECK(names(net.state_dict())[1] == "seen");
  CHECK(net.parameters().size() == 7);
  CHECK(names(nn::Sequential(nn::Linear(2, 2), nn::ReLU(), nn::BatchNorm1d(2)).state_dict()) ==
        Names{"0.weight", "0.bias", "2.weight", "2.bias", "2.running_mean", "2.running_var",
              "2.num_batches_tracked"});
  CHECK(names(nn::MultiheadAttention(4, 2).state_dict()) ==
        Names{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"});
  CHECK(names(nn::LSTM(2, 3, {.bidirectional = true}).state_dict()) ==
        Names{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_ih_l0_reverse",
              "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse"});
}

TEST_CASE("parameters are leaves that require grad and are called by their full names") {
  Twice net;
  CHECK(net.nets[1].fc2.weight.name() == "nets.1.fc2.weight");
  for (const Tensor& w : net.parameters()) CHECK((w.is_leaf() && w.requires_grad()));
  CHECK_FALSE(net.seen.requires_grad());
  CHECK_FALSE(net.nets[0].fc2.bias.defined());
}

TEST_CASE("a parameter that two parts share is listed once") {
  struct Tied : nn::ModuleBase {
    Tied() {
      const Tensor w = register_parameter("a", ones({2}));
      static_cast<void>(register_parameter("b", w));
    }
  };
  CHECK(names(Tied().named_parameters()) == Names{"a"});
  CHECK(names(Tied().state_dict()) == Names{"a", "b"});
}

TEST_CASE("a copy of a network is the same network, also in a vector") {
  manual_seed(1);
  Net net;
  Net copy = net;
  std::vector<Net> nets{net};
  for (int i = 0; i < 20; ++i) nets.push_back(net);
  const Tensor x = randn({2, 4});
  {
    const NoGrad guard;
    net.fc1.weight.fill_(0.5);
  }
  copy.eval();
  CHECK_FALSE(net.is_training());
  CHECK_FALSE(nets[20].fc1.is_training());
  CHECK(difference(nets[20](x), net(x)) == "");
  CHECK(difference(copy(x), net(x)) == "");
  STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<Net>);
  STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<nn::Linear>);
}

TEST_CASE("a network lives on in its copies") {
  auto net = std::make_unique<nn::Sequential>(nn::Linear(2, 2), nn::Tanh());
  nn::Sequential copy = *net;
  net.reset();
  CHECK(copy(ones({1, 2})).shape() == Shape(1, 2));
  CHECK(copy.parameters().size() == 2);
}

TEST_CASE("what is pushed onto a copy of a row stands in the row itself") {
  nn::Sequential row(nn::Linear(2, 3));
  nn::Sequential copy = row;
  copy.push_back(nn::Linear(3, 5));
  CHECK(row(ones({1, 2})).shape() == Shape(1, 5));
  CHECK(row.size() == 2);
  nn::ModuleList<nn::Linear> list;
  nn::ModuleList<nn::Linear> same = list;
  same.push_back(nn::Linear(2, 3));
  CHECK(list[0].weight.id() == same[0].weight.id());
  const std::size_t at = 1;
  CHECK(error_of([&] { return list[at].weight; }) ==
        "ModuleList: there is no module 1 among 1 at HERE.");
}

TEST_CASE("a module is no part of itself") {
  nn::Sequential row{nn::Tanh()};
  const nn::Sequential around(nn::ReLU(), row);
  const std::string refusal =
      "add: a module can't be a part of itself at HERE. Hint: make another one for \"1\"";
  CHECK(error_of([&] { return row.push_back(row), 0; }) == refusal);
  CHECK(error_of([&] { return row.push_back(around), 0; }) == refusal);
  CHECK(row.size() == 1);
}

TEST_CASE("zero_grad and requires_grad_ reach every parameter") {
  Net net;
  net(ones({1, 4})).sum().backward();
  CHECK(net.fc1.weight.grad().defined());
  net.zero_grad();
  CHECK_FALSE(net.fc1.weight.grad().defined());
  net.requires_grad_(false);
  CHECK_FALSE(net(ones({1, 4})).requires_grad());
}

TEST_CASE("a state goes from one network into another") {
  Twice from, to;
  to.load_state_dict(from.state_dict());
  const Tensor x = randn({3, 4});
  CHECK(difference(to(x), from(x)) == "");
  CHECK_FALSE(to.scale.shares_storage_with(from.scale));
  CHECK(from.state_dict()["scale"].shares_storage_with(from.scale));
  CHECK_FALSE(from.state_dict().get("nothing").defined());
}

TEST_CASE("a misspelt name is refused, and the closest ones are named") {  // distances by hand
  const nn::StateDict state = Net().state_dict();
  CHECK(error_of([&] { return state["fc1.wieght"]; }) ==
        "[]: there is no \"fc1.wieght\" among 3 names at HERE. Hint: the closest are "
        "\"fc1.weight\", \"fc2.weight\", \"fc1.bias\"");
  CHECK(error_of([&] { return Net().named_parameters()["fc2"]; }) ==
        "[]: there is no \"fc2\" among 3 names at HERE. Hint: the closest are \"fc1.bias\", "
        "\"fc2.weight\", \"fc1.weight\"");
  CHECK(error_of([] { return nn::Linear(2, 3, {.bias = false}).state_dict()["w"]; }) ==
        "[]: there is no \"w\", only \"weight\" at HERE.");
  CHECK(error_of([] { return nn::StateDict()["w"]; }) ==
        "[]: there is no \"w\", and nothing else either at HERE. Hint: emplace(name, tensor) adds "
        "one");
  CHECK(state[0].first == "fc1.weight");
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("bias", "bias") == 0);
}

TEST_CASE("a state that does not fit is refused before anything is changed") {
  Net net;
  const Tensor before = net.fc1.bias.detach().clone();
  nn::StateDict state = Net().state_dict();
  state.pop_back();
  CHECK(error_of([&] { return net.load_state_dict(state), 0; }) ==
        "load_state_dict: the state lacks fc2.weight at HERE. Hint: {.strict = false} loads what "
        "there is");
  state.emplace_back("fc2.weight", zeros({8, 3}));
  CHECK(error_of([&] { return net.load_state_dict(state), 0; }) ==
        "load_state_dict: \"fc2.weight\" has the shape [8, 3], and here it is [3, 8] at HERE.");
  state.back() = {"fc2.weight", zeros({3, 8})};
  state.emplace_back("fc3.weight", zeros({1}));
  CHECK(
      error_of([&] { return net.load_state_dict(state), 0; }) ==
      "load_state_dict: this module has no fc3.weight at HERE. Hint: {.strict = false} loads what "
      "it has");
  CHECK(difference(net.fc1.bias, before) == "");
  net.load_state_dict(state, {.strict = false});
  CHECK(difference(net.fc1.bias, state["fc1.bias"]) == "");
}

TEST_CASE("a part needs a name of its own, without a dot") {
  struct Wrong : nn::ModuleBase {
    explicit Wrong(const char* name) {
      static_cast<void>(register_buffer("a", ones({1})));
      static_cast<void>(add(name, nn::ReLU()));
    }
  };
  CHECK(error_of([] { return Wrong("a"), 0; }).find("add: this module already has a \"a\" at") ==
        0);
  CHECK(error_of([] { return Wrong("b.c"), 0; }).find("add: \"b.c\" is not a name for a part") ==
        0);
  CHECK(refused([] { return Wrong(""), 0; }));
  CHECK_FALSE(refused([] { return Wrong("b"), 0; }));
}

TEST_CASE("to() converts a network where it is, with its gradients") {
  Net net;
  nn::BatchNorm1d norm(3);
  optim::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  const Tensor x = randn({5, 4});
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    net(x).square().sum().backward();
    optimizer.step();
    net.to(float64);
    CHECK(net.fc1.weight.dtype() == float64);
    CHECK(net.fc1.weight.grad().dtype() == float64);
    CHECK(net.fc1.weight.is_leaf());
    const Tensor before = net.fc1.weight.detach().clone();
    net(x.to(float64)).sum().backward();
    optimizer.step();
    CHECK_FALSE(difference(net.fc1.weight, before) == "");
    net.to(float32);
  }
  norm.to(float64);
  CHECK(norm.running_var.dtype() == float64);
  CHECK(norm.num_batches_tracked.dtype() == int64);
  CHECK(error_of([&] { return net.to(int64), 0; }) ==
        "to: parameters are floats, not int64 at HERE. Hint: write float32 or float64");
}

TEST_CASE("a graph from before a network was converted is refused") {
  nn::Linear layer(2, 2);
  const Tensor saved = layer.weight.square().sum(), unsaved = layer(ones({1, 2})).sum();
  layer.to(float64);
  CHECK(error_of([&] { return saved.backward(), 0; }).find("was overwritten") != std::string::npos);
  CHECK(
      error_of([&] { return unsaved.backward(), 0; }) ==
      "backward: a leaf was converted after it was used: its gradient is float32 on cpu, and it is "
      "float64 on cpu at HERE. Hint: call to() before the forward pass");
}

// ---- Boxes and lines ----------------------------------------------------------------------------

struct Watcher : Observer {
  Watcher() { observe(this); }
  ~Watcher() override { observe(nullptr); }
  void scope_opens(Id, const char* name, bool composed, Loc line) override {
    if (!composed) scopes.push_back(name + (":" + std::to_string(line.line())));
  }
  void op(const Node*, const Facts& facts, const Given&, Span<const Tensor*>, Span<Tensor>,
          Loc line) override {
    ops.push_back(facts.name + (":" + std::to_string(line.line())));
  }
  void wrote(const Tensor& x, std::int64_t before, const char* by, const Node*, Loc line) override {
    writes.push_back(by + (":" + std::to_string(line.line())));
    CHECK(x.version() == before + 1);
  }
  Names scopes, ops, writes;
};

struct Small : nn::Module {
  nn::Linear fc = add("fc", nn::Linear(2, 2, {.bias = false}));
  nn::Sequential rest = add("rest", nn::Sequential(nn::Tanh()));
  static constexpr int line = __LINE__ + 2;
  Tensor forward(const Tensor& x) override {
    const Tensor y = fc(x);
    return rest(y);
  }
};

TEST_CASE("each module is a box of its name, and a layer carries the line of its caller") {
  Small net;
  const Tensor x = ones({1, 2});
  Watcher watcher;
  const Tensor y = net(x);
  const std::string here = ":" + std::to_string(__LINE__ - 1),
                    fc = ":" + std::to_string(Small::line),
                    rest = ":" + std::to_string(Small::line + 1);
  CHECK(watcher.scopes == Names{"Small" + here, "fc" + fc, "rest" + rest, "Tanh" + rest});
  CHECK(watcher.ops == Names{"transpose" + fc, "matmul" + fc, "tanh" + rest});
}

TEST_CASE("an error in a network names the line of forward() where the shapes differ") {
  Small net;
  const std::string text = error_of([&] { return net(ones({1, 3})); });
  CHECK(text.find("linear: the input [1, 3] and the weight [2, 2] do not fit at "
                  "test_learning.cpp:" +
                  std::to_string(Small::line)) == 0);
}

TEST_CASE("a step of an optimiser is one write for each parameter, under its name") {
  Small net;
  net(ones({1, 2})).sum().backward();
  optim::AdamW optimizer(net.parameters());
  Watcher watcher;
  optimizer.step();
  CHECK(watcher.writes == Names{"AdamW:" + std::to_string(__LINE__ - 1)});
  CHECK(watcher.ops.empty());
}

// ---- Layers against PyTorch ---------------------------------------------------------------------
//
// The numbers were made with torch 1.13 in float64: parameters are sin(1), sin(2), ... in the order
// of parameters(), and inputs cos(1), cos(2), ...

Tensor wave(const Shape& shape) {
  return arange(1., shape.numel() + 1, 1, {.dtype = float64}).cos().reshape(shape);
}
template <class M>
M filled(M net) {
  net.to(float64);
  const NoGrad guard;
  std::int64_t i = 1;
  for (const Tensor& w : net.parameters()) {
    w.copy_(arange(i, i + w.numel()).to(float64).sin().reshape(w.shape()));
    i += w.numel();
  }
  return net;
}
std::string apart(const Tensor& got, const Shape& shape, const Values& want) {
  return difference(got.detach(), tensor(want, {.dtype = float64}).reshape(shape), 1e-8, 1e-9);
}

TEST_CASE("layers compute what PyTorch's do") {
  CHECK(apart(filled(nn::Linear(3, 2))(wave({2, 3})), {2, 2},
              {0.5935263154, 1.256128663, 0.5003969913, 0.9437403555}) == "");
  CHECK(
      apart(filled(nn::Conv1d(2, 4, 3, {.stride = 2, .padding = 1, .groups = 2}))(wave({1, 2, 5})),
            {1, 4, 3},
            {0.8527358883, -0.9224482743, 0.1280781908, 0.5887762346, 2.437514315, 1.213275924,
             1.910937286, 0.6261462363, -0.7784548684, -1.652587732, -0.06365562642,
             1.046834092}) == "");
  CHECK(apart(filled(nn::Conv2d(1, 2, {2, 3},
                                {.stride = {2, 1}, .padding = {0, 1}, .dilation = {1, 2}}))(
                  wave({1, 1, 4, 4})),
              {1, 2, 2, 2},
              {-0.9305520351, -0.9629933017, -0.08724960502, -0.3007731739, -0.5725790733,
               -0.542091599, 0.8853510969, 0.6623958515}) == "");
  CHECK(apart(filled(nn::LayerNorm({2, 2}))(wave({2, 2, 2})), {2, 2, 2},
              {0.4017603008, -0.3373827234, 0.5056811397, 1.353460176, -1.311257168, 0.7756027708,
               0.7527827773, 2.064300525}) == "");
  CHECK(apart(filled(nn::GroupNorm(2, 4))(wave({1, 4, 2})), {1, 4, 2},
              {0.4017603008, -1.0125676, -1.254342204, -0.7168835947, 0.5978981433, 0.8207220083,
               0.4756197061, 2.064300525}) == "");
}

TEST_CASE("batch norm follows its batches in training and uses what it has seen after eval") {
  nn::BatchNorm1d norm = filled(nn::BatchNorm1d(2));
  const Tensor x = wave({3, 2});
  CHECK(apart(norm(x), {3, 2},
              {0.8901477686, -1.241990847, -1.03420875, -1.545543575, 0.5674210053,
               0.5171269358}) == "");
  CHECK(apart(norm.running_mean, {2}, {-0.005534266842, -0.003654005692}) == "");
  CHECK(apart(norm.running_var, {2}, {0.9671643764, 0.9759174812}) == "");
  CHECK(norm.num_batches_tracked.item<std::int64_t>() == 1);
  CHECK(apart(norm(x * 2), {3, 2},
              {0.8901540416, -1.241994442, -1.034218593, -1.545549419, 0.5674245755,
               0.5171363748}) == "");
  norm.eval();
  CHECK(apart(norm(x), {3, 2},
              {0.5797564186, -1.095990766, -0.626752061, -1.294624917, 0.3774173131,
               0.05511359026}) == "");
  CHECK(norm.num_batches_tracked.item<std::int64_t>() == 2);
}

TEST_CASE("without a momentum batch norm keeps the means over all batches") {
  nn::BatchNorm1d norm(2, {.momentum = {}});
  norm.to(float64);
  for (const Tensor& x : {wave({3, 2}), wave({3, 2}) * 2, wave({3, 2}) * 3 + 1})
    static_cast<void>(norm(x));
  CHECK(apart(norm.running_mean, {2}, {0.2226479965, 0.2602532195}) == "");
  CHECK(apart(norm.running_var, {2}, {3.134337565, 3.542815791}) == "");
}

TEST_CASE("batch norm's options leave out parameters and running values") {
  nn::BatchNorm2d norm(2, {.affine = false});
  norm.to(float64);
  CHECK(norm.parameters().empty());
  CHECK(apart(norm(wave({1, 2, 2, 2})), {1, 2, 2, 2},
              {1.61703089, -0.0637494658, -1.072175811, -0.4811056136, -0.418710686, 1.160256521,
               0.6788277572, -1.420373592}) == "");
  CHECK(apart(norm.running_var, {2}, {0.9431744846, 0.9244745582}) == "");
  nn::BatchNorm1d untracked(2, {.track_running_stats = false});
  CHECK(names(untracked.state_dict()) == Names{"weight", "bias"});
  const Tensor x = randn({4, 2}), in_training = untracked(x);
  untracked.eval();
  CHECK(difference(untracked(x), in_training) == "");
}

TEST_CASE("batch norm refuses what it can't do, and has then seen nothing") {
  nn::BatchNorm1d norm(3);
  CHECK(error_of([&] {
          return norm(ones({1, 3}));
        }) ==
        "batch_norm: one value per channel has no variance to train with: [1, 3] at HERE. "
        "Hint: hand over more than one example, or call eval() first");
  CHECK(
      error_of([&] {
        return norm(ones({2, 3, 4, 5}));
      }) ==
      "BatchNorm1d: the input has the shape [2, 3, 4, 5] at HERE. Hint: it is [N, C] or [N, C, L]");
  CHECK(error_of([&] {
          return nn::BatchNorm2d(3)(ones({2, 3}));
        }) == "BatchNorm2d: the input has the shape [2, 3] at HERE. Hint: it is [N, C, H, W]");
  CHECK(norm.num_batches_tracked.item<std::int64_t>() == 0);
  norm.eval();
  CHECK(norm(ones({1, 3})).shape() == Shape(1, 3));
}

TEST_CASE("an embedding's padding row is zero at first and learns nothing") {
  CHECK(difference(nn::Embedding(4, 2, {.padding_idx = -3}).weight[1].detach(), zeros({2})) == "");
  nn::Embedding words = filled(nn::Embedding(4, 2, {.padding_idx = 1}));
  const Tensor y = words(tensor({{0, 1}, {3, 1}}));
  CHECK(apart(y, {2, 2, 2},
              {0.8414709848, 0.9092974268, 0.1411200081, -0.7568024953, 0.6569865987, 0.9893582466,
               0.1411200081, -0.7568024953}) == "");
  y.sum().backward();
  CHECK(apart(words.weight.grad(), {4, 2}, {1, 1, 0, 0, 0, 0, 1, 1}) == "");
  CHECK(error_of([] { return nn::Embedding(4, 2, {.padding_idx = 4}), 0; }) ==
        "Embedding: padding_idx is 4, and there are 4 rows at HERE.");
}

TEST_CASE(
    "multi-head attention gives PyTorch's outputs and weights, with either mask and without") {
  nn::MultiheadAttention attention = filled(nn::MultiheadAttention(4, 2));
  const Tensor q = wave({2, 2, 4}), k = wave({3, 2, 4}) * 2, v = wave({3, 2, 4}) * 0.5;
  const Tensor padding = tensor({{false, false, true}, {false, true, false}});
  const auto [y, weights] = attention(q, k, v, {.key_padding_mask = padding});
  CHECK(apart(y, {2, 2, 4},
              {-0.5474424753, 0.2343730436, 1.468374554, -3.214453387, -0.5865006379, 0.3687701939,
               1.331737036, -3.170226054, -0.4023666295, 0.9204142165, 0.426445835, -2.53839444,
               0.5396644808, 0.2064264605, 0.4178018089, -1.813106458}) == "");
  CHECK(apart(weights, {2, 2, 3},
              {0.003311644392, 0.9966883556, 0, 0.8322531481, 0.1677468519, 0, 0.09549911679, 0,
               0.9045008832, 0.4681364975, 0, 0.5318635025}) == "");
  const Tensor scores = zeros({4, 2, 3}, {.dtype = float64});
  scores.at({1, 0, 2}) = -1.5;
  scores.at({3, 1, 0}) = 2;
  CHECK(apart(attention(q, k, v, {.attn_mask = scores}).output, {2, 2, 4},
              {-0.41422445, 0.6270021518, 0.8218775044, -2.761925151, -0.6039045, 0.3984267889,
               1.31037121, -3.171951377, -0.3466067399, 1.534740978, -0.4324155916, -2.029942615,
               0.6826188627, 0.1949222575, 0.2898867249, -1.634380498}) == "");
  const nn::AttentionResult alone =
      attention(q.select(1, 0), k.select(1, 0), v.select(1, 0), {.need_weights = false});
  CHECK_FALSE(alone.weights.defined());
  CHECK(apart(alone.output, {2, 4},
              {-0.3993253902, 0.6259347734, 0.8083738147, -2.743204572, -0.3466067399, 1.534740978,
               -0.4324155916, -2.029942615}) == "");
}

TEST_CASE("multi-head attention returns its weights as it used them, after dropout") {
  nn::MultiheadAttention attention(4, 2, {.dropout = 1});
  const Tensor x = randn({3, 1, 4});
  CHECK(difference(attention(x, x, x).weights.detach(), zeros({1, 3, 3})) == "");
}

TEST_CASE("multi-head attention of a query that may look at nothing is its bias") {
  nn::MultiheadAttention attention(4, 2, {.batch_first = true});
  const Tensor x = randn({1, 3, 4});
  const auto [y, weights] =
      attention(x, x, x, {.key_padding_mask = ones({1, 3}, {.dtype = boolean})});
  CHECK(difference(y.detach(), zeros({1, 3, 4})) == "");
  CHECK(difference(weights.detach(), zeros({1, 3, 3})) == "");
  CHECK(error_of([] { return nn::MultiheadAttention(4, 3), 0; }) ==
        "MultiheadAttention: 4 features do not make 3 equal heads at HERE.");
  CHECK(error_of([&] {
          return attention(x, x, ones({1, 2, 4})).output;
        }).find("MultiheadAttention: the shapes are [1, 3, 4], [1, 3, 4] and [1, 2, 4] at") == 0);
  CHECK(refused([&] { return attention(x, ones({2, 3, 4}), ones({2, 3, 4})).output; }));
  CHECK(error_of([&] { return attention(x, x, x, {.attn_mask = eye(3).to(int64)}).output; }) ==
        "MultiheadAttention: a mask is boolean, or floats that are added, not int64 at HERE. Hint: "
        "mask == 1 makes booleans of it");
  CHECK(refused(
      [&] { return scaled_dot_product_attention(x, x, x, {.attn_mask = eye(3).to(int64)}); }));
  CHECK(error_of([&] {
          return attention(x, x, randn({1, 3, 5})).output;
        }) ==
        "MultiheadAttention: the shapes are [1, 3, 4], [1, 3, 4] and [1, 3, 5] at HERE. Hint: each "
        "is [N, L, 4], or [L, 4] without a batch, and keys and values have one L");
}

TEST_CASE("recurrent layers compute what PyTorch's do") {
  const auto [rectified, last] =
      filled(nn::RNN(2, 2, {.nonlinearity = "relu", .batch_first = true}))(wave({1, 3, 2}));
  CHECK(apart(rectified, {1, 3, 2}, {0, 0, 0, 0, 0.5239021482, 0}) == "");
  CHECK(apart(last, {1, 1, 2}, {0.5239021482, 0}) == "");
  const auto [gated, end] = filled(nn::GRU(2, 2))(wave({3, 2}));
  CHECK(apart(gated, {3, 2},
              {-0.06331117883, -0.313568819, -0.08224228895, -0.2349248687, -0.2076900598,
               -0.3487998239}) == "");
  CHECK(apart(end, {1, 2}, {-0.2076900598, -0.3487998239}) == "");
  const Tensor x = wave({2, 1, 2});
  const auto [y, hidden, cell] = filled(nn::LSTM(2, 2, {.bidirectional = true}))(x, x, x * 2);
  CHECK(apart(y, {2, 1, 4},
              {0.2891801616, 0.07931252877, -0.207529234, -0.6517606102, 0.117266136, 0.1769374436,
               -0.4651594145, -0.708259456}) == "");
  CHECK(apart(hidden, {2, 1, 2}, {0.117266136, 0.1769374436, -0.207529234, -0.6517606102}) == "");
  CHECK(apart(cell, {2, 1, 2}, {0.2739466721, 0.5284294262, -1.394690076, -1.041708361}) == "");
}

TEST_CASE("recurrent layers say what they take") {
  nn::LSTM lstm(3, 2);
  CHECK(
      error_of([&] {
        return lstm(ones({4, 1, 2})).output;
      }) ==
      "LSTM: the input has the shape [4, 1, 2] at HERE. Hint: it is [L, N, 3], or [L, 3] without a "
      "batch");
  CHECK(error_of([&] {
          return lstm(ones({4, 1, 3}), ones({1, 2, 2})).output;
        }) == "LSTM: the state is [1, 2, 2], and it has to be [1, 1, 2] at HERE.");
  CHECK(lstm(zeros({4, 0, 3})).output.shape() == Shape(4, 0, 2));  // as in PyTorch
  CHECK(error_of([&] {
          return lstm(zeros({0, 1, 3}));
        }) == "LSTM: there is no step in the input [0, 1, 3] at HERE.");
  CHECK(
      error_of([] { return nn::GRU(3, 2, {.nonlinearity = "relu"}), 0; }) ==
      "nonlinearity: it is \"relu\" at HERE. Hint: an RNN takes \"tanh\" and \"relu\", the others "
      "\"tanh\"");
  CHECK(refused([&] { return lstm(ones({0, 1, 3})).output; }));
  CHECK(error_of([] { return nn::RNN(3, 2, {.num_layers = 0}), 0; }) ==
        "num_layers: it is 0, and has to be positive at HERE.");
}

TEST_CASE("dropout works between the layers of a recurrent net, in training") {
  nn::GRU gru(2, 4, {.num_layers = 2, .dropout = 1});
  const Tensor x = randn({3, 2});
  const auto first = [](const nn::RecurrentResult& y) { return y.hidden[1].detach(); };
  const Tensor in_training = first(gru(x));
  CHECK(difference(in_training, first(gru(x * 2))) == "");  // the second layer sees zeros
  gru.eval();
  CHECK_FALSE(difference(in_training, first(gru(x))) == "");
}

TEST_CASE("layers without weights are the functions of their names") {
  const Tensor x = randn({2, 3, 4, 4});
  CHECK(difference(nn::ReLU()(x), relu(x)) == "");
  CHECK(difference(nn::Tanh()(x), tanh(x)) == "");
  CHECK(difference(nn::Sigmoid()(x), sigmoid(x)) == "");
  CHECK(difference(nn::LogSigmoid()(x), logsigmoid(x)) == "");
  CHECK(difference(nn::SiLU()(x), silu(x)) == "");
  CHECK(difference(nn::GELU({.approximate = "tanh"})(x), gelu(x, {.approximate = "tanh"})) == "");
  CHECK(difference(nn::ELU(0.5)(x), elu(x, 0.5)) == "");
  CHECK(difference(nn::LeakyReLU(0.2)(x), leaky_relu(x, 0.2)) == "");
  CHECK(difference(nn::Softplus({.beta = 2})(x), softplus(x, {.beta = 2})) == "");
  CHECK(difference(nn::Softmax(1)(x), softmax(x, 1)) == "");
  CHECK(difference(nn::LogSoftmax(-1)(x), log_softmax(x, -1)) == "");
  CHECK(nn::Flatten()(x).shape() == Shape(2, 48));
  CHECK(nn::Flatten(0, 1)(x).shape() == Shape(6, 4, 4));
  CHECK(difference(nn::MaxPool2d(2, {.stride = 1})(x), max_pool2d(x, 2, {.stride = 1})) == "");
  CHECK(difference(nn::AvgPool2d({2, 1})(x), avg_pool2d(x, {2, 1})) == "");
  CHECK(difference(nn::AdaptiveAvgPool2d(3)(x), adaptive_avg_pool2d(x, 3)) == "");
}

TEST_CASE("dropout drops in training alone") {
  manual_seed(3);
  nn::Dropout half(0.5);
  const Tensor x = ones({1000}), y = half(x);
  const double kept = (y == 2).sum().item();
  CHECK(kept + (y == 0).sum().item() == 1000);
  CHECK((kept > 420 && kept < 580));  // five standard deviations
  half.eval();
  CHECK(half(x).id() == x.id());
  CHECK(error_of([] { return nn::Dropout(1.5), 0; }) ==
        "Dropout: the probability is 1.5, it has to be between 0 and 1 at HERE.");
}

TEST_CASE("what can't be a layer is refused where it is made") {
  CHECK(error_of([] { return nn::Linear(-1, 2), 0; }) ==
        "Linear: a size is negative: [2, -1] at HERE.");
  CHECK(error_of([] { return nn::Conv2d(3, 4, 3, {.groups = 2}), 0; }) ==
        "Conv: 3 and 4 channels do not make 2 groups at HERE.");
  CHECK(refused([] { return nn::Conv1d(2, 2, 3, {.groups = 0}), 0; }));
}

// ---- First values -------------------------------------------------------------------------------

double largest(const Tensor& x) { return x.detach().abs().max().item(); }
double spread(const Tensor& x) { return x.detach().std({.correction = 0}).item(); }

// A uniform distribution reaches to its bound, and its deviation is bound / sqrt(3): of 20,000
// numbers the largest misses it by less than a thousandth, the deviation by less than two per cent.
void check_uniform(const Tensor& w, double bound) {
  CHECK(largest(w) <= bound);
  CHECK(largest(w) > bound * 0.999);
  CHECK(spread(w) == Approx(bound / std::sqrt(3.0)).epsilon(0.02));
}

TEST_CASE("layers draw their first values from PyTorch's distributions") {
  manual_seed(5);
  const nn::Linear linear(100, 200);
  check_uniform(linear.weight, 0.1);
  CHECK(largest(linear.bias) <= 0.1);
  CHECK(largest(linear.bias) > 0.09);
  check_uniform(nn::Conv2d(8, 400, {2, 4}, {.groups = 4}).weight, 0.25);  // fan_in 2 * 2 * 4
  check_uniform(nn::LSTM(100, 49).parameters()[0], 1 / 7.0);              // 1 / sqrt(hidden)
  check_uniform(nn::MultiheadAttention(80, 2).in_proj_weight, std::sqrt(6.0 / (80 + 240)));
  check_uniform(nn::MultiheadAttention(160, 2).out_proj.weight, std::sqrt(1 / 160.0));
  CHECK(largest(nn::MultiheadAttention(8, 2).out_proj.bias) == 0);
  CHECK(spread(nn::Embedding(200, 100).weight) == Approx(1).epsilon(0.02));
  CHECK(difference(nn::BatchNorm1d(2).running_var, ones({2})) == "");
  CHECK(nn::Linear(0, 3).bias.detach().abs().sum().item() == 0);
}

TEST_CASE("a seed makes the same network again") {
  manual_seed(7);
  const Tensor first = nn::Linear(3, 3).weight.detach();
  manual_seed(7);
  CHECK(difference(nn::Linear(3, 3).weight.detach(), first) == "");
}

TEST_CASE("init draws with the spread that fans and gain ask for") {
  manual_seed(11);
  const Tensor w = empty({50, 100, 2, 2}, {.requires_grad = true});  // fan_in 400, fan_out 200
  nn::init::kaiming_uniform_(w, {.nonlinearity = "relu"});
  check_uniform(w, std::sqrt(2.0) * std::sqrt(3 / 400.0));
  nn::init::kaiming_uniform_(w, {.a = std::sqrt(5.0)});
  check_uniform(w, std::sqrt(1 / 400.0));
  nn::init::kaiming_normal_(w, {.mode = "fan_out", .nonlinearity = "tanh"});
  CHECK(spread(w) == Approx(5.0 / 3 / std::sqrt(200.0)).epsilon(0.02));
  nn::init::xavier_uniform_(w);
  check_uniform(w, std::sqrt(6 / 600.0));
  nn::init::xavier_normal_(w, 2);
  CHECK(spread(w) == Approx(2 * std::sqrt(2 / 600.0)).epsilon(0.02));
  nn::init::normal_(w, 1, 0.1);
  CHECK(w.mean().item() == Approx(1).epsilon(0.01));
  nn::init::uniform_(w, 2, 3);
  CHECK((w.min().item() >= 2 && w.max().item() < 3));
  nn::init::ones_(w);
  CHECK(w.sum().item() == 20000);
  nn::init::zeros_(w);
  CHECK(largest(w) == 0);
  nn::init::constant_(w, 0.5);
  CHECK(largest(w) == 0.5);
  CHECK(w.is_leaf());
  CHECK(
      error_of([] { return nn::init::xavier_normal_(ones({3})), 0; }) ==
      "xavier_normal_: a weight [3] has no inputs and outputs at HERE. Hint: it is [out, in, ...]");
  CHECK(error_of([&] { return nn::init::kaiming_normal_(w, {.mode = "fan"}), 0; }) ==
        "kaiming_normal_: mode is \"fan\" at HERE. Hint: write \"fan_in\" or \"fan_out\"");
  CHECK(error_of([&] {
          return nn::init::kaiming_normal_(w, {.nonlinearity = "sin"}), 0;
        }).find("calculate_gain: there is no gain for \"sin\" at HERE") == 0);
}

// ---- Optimisers ---------------------------------------------------------------------------------

TEST_CASE("an optimiser takes the same steps however a weight lies in memory") {
  // A transposed weight is not contiguous, so its rule runs on a copy that is.
  const auto train = [](const auto& make, DType dtype, bool transposed) {
    Tensor w = arange(6).to(dtype).sin().reshape({2, 3});
    if (transposed) w = w.t().contiguous().t();
    CHECK(w.is_contiguous() != transposed);
    w = w.detach().requires_grad_();
    const auto optimizer = make(std::vector<Tensor>{w});
    for (int i = 0; i < 5; ++i) {
      optimizer->zero_grad();
      (w.square() * (i - 1)).sum().backward();
      optimizer->step();
    }
    CHECK(w.version() == 5);
    return w.detach();
  };
  const auto check = [&](const auto& make) {
    CHECK(difference(train(make, float64, true), train(make, float64, false)) == "");
    CHECK(difference(train(make, float32, true), train(make, float32, false)) == "");
    CHECK(difference(train(make, float32, false).to(float64), train(make, float64, false), 1e-5,
                     1e-6) == "");
  };
  using Parameters = std::vector<Tensor>;
  check([](const Parameters& p) { return std::make_unique<optim::SGD>(p); });
  check([](const Parameters& p) {
    return std::make_unique<optim::SGD>(
        p, optim::SGDOptions{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
  });
  check([](const Parameters& p) { return std::make_unique<optim::Adam>(p); });
  check([](const Parameters& p) {
    return std::make_unique<optim::AdamW>(p, optim::AdamOptions{.amsgrad = true});
  });
  check([](const Parameters& p) { return std::make_unique<optim::RMSprop>(p); });
  check([](const Parameters& p) {
    return std::make_unique<optim::RMSprop>(
        p, optim::RMSpropOptions{.momentum = 0.5, .centered = true});
  });
  check([](const Parameters& p) {
    return std::make_unique<optim::RMSprop>(p, optim::RMSpropOptions{.momentum = 0.5});
  });
  check([](const Parameters& p) {
    return std::make_unique<optim::RMSprop>(p, optim::RMSpropOptions{.centered = true});
  });
  check([](const Parameters& p) { return std::make_unique<optim::Adagrad>(p); });
}

TEST_CASE("a number alone is the learning rate, for every optimiser") {
  const std::vector<Tensor> w = {leaf({1.})};
  CHECK(optim::SGD(w, 0.5).lr() == 0.5);
  CHECK(optim::Adam(w, 0.25).lr() == 0.25);
  CHECK(optim::AdamW(w, 0.125).lr() == 0.125);
  CHECK(optim::RMSprop(w, 1).lr() == 1);
  CHECK(optim::Adagrad(w, 0.5f).lr() == 0.5);
  CHECK(optim::Adam(w, {}).lr() == 1e-3);
  CHECK(error_of([&] { return optim::Adam(w, -1.), 0; }) ==
        "Adam: the learning rate is negative: -1 at HERE.");
}

TEST_CASE("an optimiser of one's own needs a rule and nothing else") {
  const Tensor w = leaf({1., 2., 3.});
  SignSGD optimizer(w);
  w.set_grad(tensor({5., -0.1, 0.}));
  optimizer.step();
  CHECK(w.to_vector() == std::vector<double>{0.5, 2.5, 3});  // by hand
  CHECK(w.version() == 1);
}

TEST_CASE("a loss as a module remembers its options") {
  const Tensor x = tensor({{0.2, 0.9}, {0.7, 0.4}}), y = tensor({{0., 1.}, {1., 0.}});
  CHECK(nn::MSELoss()(x, y).equal(mse_loss(x, y)));
  CHECK(nn::L1Loss({.reduction = "sum"})(x, y).equal(l1_loss(x, y, {.reduction = "sum"})));
  CHECK(nn::HuberLoss({.delta = 0.2})(x, y).equal(huber_loss(x, y, {.delta = 0.2})));
  CHECK(nn::SmoothL1Loss({.beta = 0.2})(x, y).equal(smooth_l1_loss(x, y, {.beta = 0.2})));
  CHECK(nn::BCELoss()(x, y).equal(binary_cross_entropy(x, y)));
  const Tensor twice = tensor(2.);
  CHECK(nn::BCEWithLogitsLoss({.pos_weight = twice})(x, y).equal(
      binary_cross_entropy_with_logits(x, y, {.pos_weight = twice})));
  CHECK(nn::KLDivLoss({.reduction = "batchmean"})(x, y).equal(
      kl_div(x, y, {.reduction = "batchmean"})));
  const Tensor classes = tensor({1, 0});
  CHECK(nn::NLLLoss({.ignore_index = 0})(x, classes)
            .equal(nll_loss(x, classes, {.ignore_index = 0})));
  nn::CrossEntropyLoss criterion({.label_smoothing = 0.1});
  CHECK(criterion(x, classes).equal(cross_entropy(x, classes, {.label_smoothing = 0.1})));
  criterion.to(float64);  // a module as all are, without parameters
  CHECK(criterion.parameters().empty());
  CHECK(error_of([&] { return criterion(x, x[0]); }) ==
        "cross_entropy: the target is float32, not class numbers in int64 at HERE. Hint: convert "
        "with .to(int64)");
}

TEST_CASE("an infinite gradient takes a weight to infinity, with momentum as without") {
  for (const double momentum : {0., 0.9}) {
    const Tensor w = leaf({1.});
    w.set_grad(tensor({std::numeric_limits<double>::infinity()}));
    optim::SGD({w}, {.lr = 0.1, .momentum = momentum}).step();
    CHECK(w[0].item() == -std::numeric_limits<double>::infinity());
  }
}

TEST_CASE("an optimiser counts the steps of each parameter, and skips those without a gradient") {
  const Tensor a = leaf(1.0, float64), b = leaf(1.0, float64);
  optim::Adam optimizer({a, b}, {.lr = 0.1});
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    (i < 2 ? a * 3 : a * 3 + b * 3).backward();
    optimizer.step();
  }
  CHECK(b.item() == Approx(0.9).epsilon(1e-8));  // Adam's first step is lr, whatever the gradient
  CHECK(b.version() == 1);
}

TEST_CASE("a gradient that lies in memory in another way is used all the same") {
  const Tensor w = leaf({{1., 2.}, {3., 4.}});
  w.sum().backward();  // an expanded 1
  optim::SGD({w}, {.lr = 1}).step();
  CHECK(difference(w.detach(), tensor({{0., 1.}, {2., 3.}})) == "");
}

TEST_CASE("an optimiser refuses what it can't work with") {
  const Tensor w = leaf(1.0);
  CHECK(error_of([&] {
          return optim::Adam({w, w}), 0;
        }) == "Adam: a parameter is there twice at HERE. Hint: name each once");
  CHECK(
      error_of([&] { return optim::AdamW({}), 0; }) ==
      "AdamW: there are no parameters at HERE. Hint: hand over net.parameters(); they are those of "
      "the layers that went through add(...)");
  CHECK(error_of([&] { return optim::Adam({w * 2}), 0; }) ==
        "Adam: parameter 0 is not a leaf that requires grad at HERE. Hint: make it with "
        "{.requires_grad = true}");
  CHECK(error_of([&] { return optim::RMSprop({w}, {.lr = -1}), 0; }) ==
        "RMSprop: the learning rate is negative: -1 at HERE.");
  CHECK(error_of([&] {
          return optim::Adam({w}, {.betas = {0.9, 1}}), 0;
        }) == "Adam: a beta is 1, it has to be from 0 to below 1 at HERE.");
  CHECK(error_of([&] { return optim::Adagrad({w}, {.lr_decay = -0.5}), 0; }) ==
        "Adagrad: lr_decay is -0.5, it cannot be negative at HERE.");
  CHECK(error_of([&] { return optim::SGD({w}, {.nesterov = true}), 0; }) ==
        "SGD: nesterov needs a momentum, and no dampening at HERE.");
  CHECK(error_of([] { return optim::SGD({ones({1}).expand({3}).requires_grad_()}), 0; }) ==
        "SGD: several elements of this expanded tensor [3] are one place in memory at HERE. Hint: "
        "clone() it first");
  CHECK(refused([&] { return optim::SGD({w}, {.momentum = -0.9}), 0; }));
  CHECK(refused([&] { return optim::RMSprop({w}, {.alpha = not_a_number}), 0; }));
}

TEST_CASE("a few steps of Adam find the bottom of a bowl") {
  const Tensor w = leaf({3., -2.});
  optim::Adam optimizer({w}, {.lr = 0.1});
  for (int i = 0; i < 300; ++i) {
    optimizer.zero_grad();
    (w - tensor({1., 2.})).square().sum().backward();
    optimizer.step();
  }
  CHECK(difference(w.detach(), tensor({1., 2.}), 0, 1e-2) == "");
}

// ---- Schedules: the rates that torch 1.13 gives from lr = 1 -------------------------------------

struct Rates {
  const Tensor w = leaf(1.0);
  optim::SGD optimizer{{w}, {.lr = 1, .momentum = 0.9}};
  Values of(const std::vector<optim::LRScheduler*>& schedules, int count) {
    Values rates;
    for (int i = 0; i < count; ++i) {
      rates.push_back(optimizer.lr());
      for (optim::LRScheduler* schedule : schedules) schedule->step();
    }
    return rates;
  }
};
std::string differ(const Values& got, const Values& want) {
  return difference(tensor(got, {.dtype = float64}), tensor(want, {.dtype = float64}), 1e-9);
}

TEST_CASE("schedules give PyTorch's rates") {
  {
    Rates r;
    optim::lr_scheduler::StepLR schedule(r.optimizer, 2, 0.5);
    CHECK(differ(r.of({&schedule}, 6), {1, 1, 0.5, 0.5, 0.25, 0.25}) == "");
  }
  {
    Rates r;
    optim::ExponentialLR schedule(r.optimizer, 0.9);
    CHECK(differ(r.of({&schedule}, 4), {1, 0.9, 0.81, 0.729}) == "");
  }
  {
    Rates r;
    optim::CosineAnnealingLR schedule(r.optimizer, 4, 0.1);
    CHECK(differ(r.of({&schedule}, 11), {1, 0.8681980515, 0.55, 0.2318019485, 0.1, 0.2318019485,
                                         0.55, 0.8681980515, 1, 0.8681980515, 0.55}) == "");
  }
  {
    Rates r;
    optim::LinearLR schedule(r.optimizer,
                             {.start_factor = 0.25, .end_factor = 0.75, .total_iters = 4});
    CHECK(differ(r.of({&schedule}, 7), {0.25, 0.375, 0.5, 0.625, 0.75, 0.75, 0.75}) == "");
  }
}

TEST_CASE("a warm-up and another schedule work together") {
  Rates r;
  optim::LinearLR warm_up(r.optimizer, {.start_factor = 0.25, .total_iters = 3});
  optim::CosineAnnealingLR cosine(r.optimizer, 8);
  CHECK(differ(r.of({&warm_up, &cosine}, 8), {0.25, 0.4809698831, 0.6401650429, 0.6913417162, 0.5,
                                              0.3086582838, 0.1464466094, 0.03806023374}) == "");
  // Back up, to the rate from before the warm-up.
  Rates again;
  optim::LinearLR rise(again.optimizer, {.start_factor = 0.25, .total_iters = 3});
  optim::CosineAnnealingLR wave(again.optimizer, 3);
  CHECK(differ(again.of({&rise, &wave}, 7), {0.25, 0.375, 0.1875, 0, 0.25, 0.75, 1}) == "");
}

TEST_CASE("one cycle moves rate and momentum against each other") {
  Rates r;
  optim::OneCycleLR schedule(r.optimizer, 2, {.total_steps = 10});
  Values rates, momenta;
  for (int i = 0; i < 10; ++i) {
    rates.push_back(r.optimizer.lr());
    momenta.push_back(*r.optimizer.momentum());
    schedule.step();
  }
  CHECK(differ(rates, {0.08, 1.04, 2, 1.900969264, 1.623491308, 1.222524044, 0.7774839561,
                       0.3765166921, 0.09903873597, 8e-06}) == "");
  CHECK(differ(momenta, {0.95, 0.9, 0.85, 0.8549515566, 0.8688255099, 0.8888739533, 0.9111260467,
                         0.9311744901, 0.9450484434, 0.95}) == "");
  CHECK(error_of([&] {
          return schedule.step(), 0;
        }).find("OneCycleLR: there are more than 10 steps") == 0);
}

TEST_CASE("one cycle whose rise is a single step begins at its top") {
  Rates r;
  optim::OneCycleLR schedule(r.optimizer, 2, {.total_steps = 10, .pct_start = 0.1});
  CHECK(r.optimizer.lr() == 2);
}

TEST_CASE("one cycle in three phases along straight lines") {
  const Tensor w = leaf(1.0);
  optim::Adam optimizer({w}, {.lr = 1});
  optim::OneCycleLR schedule(optimizer, 2,
                             {.total_steps = 10, .anneal_strategy = "linear", .three_phase = true});
  Values rates, momenta;
  for (int i = 0; i < 10; ++i) {
    rates.push_back(optimizer.lr());
    momenta.push_back(*optimizer.momentum());
    schedule.step();
  }
  CHECK(differ(rates, {0.08, 1.04, 2, 1.04, 0.08, 0.0640016, 0.0480032, 0.0320048, 0.0160064,
                       8e-06}) == "");
  CHECK(differ(momenta, {0.95, 0.9, 0.85, 0.9, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95}) == "");
}

TEST_CASE("a phase of one cycle that has no length is at its end at once") {
  Rates r;  // PyTorch divides by zero here
  optim::OneCycleLR schedule(r.optimizer, 1, {.total_steps = 2, .pct_start = 0.5});
  CHECK(differ(r.of({&schedule}, 2), {1, 4e-6}) == "");
}

TEST_CASE("a schedule refuses what leads nowhere") {
  Rates r;
  CHECK(error_of([&] { return optim::StepLR(r.optimizer, 0), 0; }) ==
        "StepLR: step_size is 0, it has to be positive at HERE.");
  CHECK(refused([&] { return optim::CosineAnnealingLR(r.optimizer, 0), 0; }));
  CHECK(refused([&] { return optim::LinearLR(r.optimizer, {.start_factor = 0}), 0; }));
  CHECK(refused([&] { return optim::LinearLR(r.optimizer, {.total_iters = 0}), 0; }));
  CHECK(error_of([&] { return optim::OneCycleLR(r.optimizer, 1, {}), 0; }) ==
        "OneCycleLR: total_steps is 0, it has to be positive at HERE.");
  CHECK(refused([&] {
    return optim::OneCycleLR(r.optimizer, 1, {.total_steps = 5, .anneal_strategy = "sin"}), 0;
  }));
  const Tensor w = leaf(1.0);
  optim::Adagrad adagrad({w});
  CHECK(
      error_of([&] { return optim::OneCycleLR(adagrad, 1, {.total_steps = 5}), 0; }) ==
      "OneCycleLR: this optimiser has no momentum at HERE. Hint: write {.cycle_momentum = false}");
}

// ---- Printing -----------------------------------------------------------------------------------

TEST_CASE("a module is printed with its parts and the shapes of what they keep") {
  struct Printed : nn::Module {
    nn::Linear fc1 = add("fc1", nn::Linear(2, 8));
    nn::Sequential rest =
        add("rest", nn::Sequential{nn::Tanh(), nn::Linear(8, 1, {.bias = false})});
    Tensor forward(const Tensor& x) { return rest(fc1(x)); }
  };
  std::ostringstream text;
  text << Printed() << '\n' << nn::ReLU();
  CHECK(text.str() ==
        "Printed(\n"
        "  (fc1): Linear(weight [8, 2], bias [8])\n"
        "  (rest): Sequential(\n"
        "    (0): Tanh()\n"
        "    (1): Linear(weight [1, 8])\n"
        "  )\n"
        ")\n"
        "ReLU()");
}

// ---- Clipping: the norms and gradients of torch 1.13 --------------------------------------------

TEST_CASE("gradients are clipped by their norm, of any kind, or by their values") {
  const Tensor w = leaf({0., 0.}), v = leaf({0.}), without = leaf(0.0);
  const auto clipped = [&](double most, double kind) {
    w.set_grad(tensor({3., 4.}));
    v.set_grad(tensor({12.}));
    const double norm = optim::clip_grad_norm_({w, v, without}, most, {.norm_type = kind}).item();
    return Values{norm, w.grad()[0].item(), w.grad()[1].item(), v.grad()[0].item()};
  };
  CHECK(difference(tensor(clipped(6.5, 2)), tensor({13., 1.5, 2., 6.}), 1e-5) == "");
  CHECK(difference(tensor(clipped(6, infinity)), tensor({12., 1.5, 2., 6.}), 1e-5) == "");
  CHECK(difference(tensor(clipped(6, 1)), tensor({19., 0.94736842, 1.2631579, 3.7894737}), 1e-5) ==
        "");
  CHECK(difference(tensor(clipped(14, 2)), tensor({13., 3., 4., 12.})) == "");
  optim::clip_grad_value_({w, v, without}, 3.5);
  CHECK(difference(w.grad(), tensor({3., 3.5})) == "");
  CHECK(difference(v.grad(), tensor({3.5})) == "");
  CHECK(optim::clip_grad_norm_({without}, 1).item() == 0);
  const Tensor wide = tensor({1.}, {.dtype = float64, .requires_grad = true});
  (wide * 1e39).sum().backward();  // more than a float32 holds, and not to be cut to 0
  CHECK(optim::clip_grad_norm_({w, wide}, 1e39).dtype() == float64);
  CHECK(wide.grad().item() == Approx(1e39));
}

TEST_CASE("a norm that is no number is refused on request") {
  const Tensor w = leaf({0., 0.});
  w.set_grad(tensor({not_a_number, 1.}));
  CHECK(error_of([&] { return optim::clip_grad_norm_({w}, 1, {.error_if_nonfinite = true}); }) ==
        "clip_grad_norm_: the norm of the gradients is nan at HERE.");
  static_cast<void>(nn::utils::clip_grad_norm_({w}, 1));
  CHECK(std::isnan(w.grad()[1].item()));  // as in PyTorch: all of them are NaN
}

}  // namespace
