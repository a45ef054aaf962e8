// Every rule against central differences, over contiguous, transposed, sliced and broadcast inputs.
// An operation is a row of the table in gradient_rows.hpp; an operation without a row fails, and so
// does one whose rows would not notice a gradient that is wrong by one per cent.
#include "tests/gradient_rows.hpp"
#include "tests/rules.hpp"

namespace {

using namespace mt;
using namespace tensors;
using namespace gradient_rows;

struct Check {
  Function f;
  In inputs;
};
Check check_of(const OperationRow& row, const std::vector<Shape>& shapes, Layout layout) {
  manual_seed(7);
  Check check;
  for (const Shape& shape : shapes) check.inputs.push_back(input(shape, layout, row));
  check.f = [&row, shapes](const In& in) {
    In whole;
    for (std::size_t i = 0; i < in.size(); ++i) whole.push_back(in[i].expand(shapes[i]));
    return row.f(whole);
  };
  return check;
}

// ---- The tests ----------------------------------------------------------------------------------

TEST_CASE("every derivative equals central differences, however its inputs lie in memory") {
  for (const OperationRow& row : table())
    for (const std::vector<Shape>& shapes : row.shapes)
      for (Layout layout : layouts) {
        CAPTURE(row.op, to_string(shapes[0]), layout_names[static_cast<int>(layout)]);
        const Check check = check_of(row, shapes, layout);
        CHECK(gradcheck(check.f, check.inputs, {.eps = row.eps}));
      }
}

TEST_CASE("every second derivative equals central differences of the first") {
  for (const OperationRow& row : table()) {
    if (row.eps != 1e-6) continue;  // `to` float32 is too coarse
    for (const std::vector<Shape>& shapes : row.shapes)
      for (Layout layout : {Layout::contiguous, Layout::broadcast}) {
        CAPTURE(row.op, to_string(shapes[0]), layout_names[static_cast<int>(layout)]);
        const Check check = check_of(row, shapes, layout);
        // Squared, so that the gradient that arrives at the rule depends on the inputs as well.
        CHECK(gradgradcheck([&](const In& in) { return check.f(in).square(); }, check.inputs));
      }
  }
}

TEST_CASE("every gradient has the shape and the dtype of its input") {
  for (const OperationRow& row : table())
    for (const std::vector<Shape>& shapes : row.shapes)
      for (DType dtype : {float32, float64}) {
        CAPTURE(row.op, to_string(shapes[0]));
        In inputs;
        for (const Shape& shape : shapes)
          inputs.push_back(rand(shape, {.dtype = dtype, .requires_grad = true}));
        row.f(inputs).sum().backward();
        for (const Tensor& x : inputs) {
          REQUIRE(x.grad().defined());
          CHECK(x.grad().shape() == x.shape());
          CHECK(x.grad().dtype() == dtype);
          CHECK(x.grad().is_contiguous());
        }
      }
}

TEST_CASE("the list of rules holds every row of facts in the header") {
  CHECK(rules::names_of(rules::all()) == rules::names_in_header());
}

// A factor shows nothing where the gradient is 0 whatever the inputs are.
bool always_zero(const char* derivative) { return std::string(derivative) == "0 * dy"; }

bool table_catches(const Sabotage& sabotage) {
  for (const OperationRow& row : table()) {
    if (std::string(row.op) != sabotage.op) continue;
    const Check check = check_of(row, row.shapes[0], Layout::contiguous);
    current.sabotage = &sabotage;
    const bool caught = refused([&] { gradcheck(check.f, check.inputs, {.eps = row.eps}); });
    current.sabotage = nullptr;
    if (caught) return true;
  }
  return false;
}

TEST_CASE("a gradient that is wrong by one per cent is caught, for every rule and input") {
  for (const Recipe* recipe : rules::all()) {
    const Facts& facts = *recipe->facts;
    for (int slot = 0; slot < 3; ++slot) {
      const bool another_part = recipe == &recipe_of<rule::Cat>;  // each input has the same text
      const char* derivative = facts.derivatives[static_cast<std::size_t>(another_part ? 0 : slot)];
      if (!derivative || always_zero(derivative)) continue;
      CAPTURE(facts.name, slot);
      CHECK(table_catches({facts.name, slot}));
    }
  }
}

TEST_CASE("the gradients that are always zero are") {
  const Tensor x = leaf({-1., 0., 2.});
  x.sign().sum().backward();
  CHECK(values(x.grad()) == Values{0, 0, 0});
  for (const Tensor& y : {floor(x), ceil(x), round(x), trunc(x)}) {
    x.zero_grad();
    y.sum().backward();
    CHECK(values(x.grad()) == Values{0, 0, 0});
  }
  const Tensor divisor = leaf({2., 0., 0.5});
  for (const char* rounding : {"floor", "trunc"}) {
    x.zero_grad();
    div(x, divisor, {.rounding = rounding}).sum().backward();
    CHECK(values(x.grad()) == Values{0, 0, 0});
    CHECK(values(divisor.grad()) == Values{0, 0, 0});
  }
  const Tensor y = x * 1;
  y.copy_(tensor({4., 5., 6.}));
  x.zero_grad();
  y.sum().backward();
  CHECK(values(x.grad()) == Values{0, 0, 0});
}

TEST_CASE("an operation without a row in the table would be noticed") {
  CHECK_FALSE(table_catches({"no such operation", 0}));
  CHECK(table_catches({"mul", 1}));
}

// ---- gradcheck itself ---------------------------------------------------------------------------

TEST_CASE("gradcheck names the element where a rule is wrong") {
  const Tensor x = leaf({1., 2.}, float64);
  const auto f = [](const Tensor& a) { return where(a > 1.5, a * a.detach(), a * a); };
  CHECK(error_of([&] { return gradcheck(f, x); }) ==
        "gradcheck: element 1 of input 0 has the gradient 2.472136, and central differences give "
        "4.944272 at HERE.");
}

TEST_CASE("gradcheck refuses what it could not check") {
  const Tensor plain = tensor({1., 2.}, {.dtype = float64});
  CHECK(error_of([&] { return gradcheck([](const Tensor& a) { return a * 3; }, plain); }) ==
        "gradcheck: no input requires grad, so there is nothing to check at HERE. Hint: make one "
        "with {.dtype = float64, .requires_grad = true}");
  const Tensor x = tensor(2.0, {.dtype = float64, .requires_grad = true});
  CHECK(error_of([&] { return gradcheck([](const Tensor& a) { return a * a; }, x.expand({3})); }) ==
        "gradcheck: several elements of an expanded input are one place in memory at HERE. "
        "Hint: clone() it first");
}

TEST_CASE("a constant has second derivatives, too: they are 0") {
  const Tensor x = tensor(2.0, {.dtype = float64, .requires_grad = true});
  CHECK(gradgradcheck([](const std::vector<Tensor>& in) { return in[0].detach() * 2; }, {x}));
}

TEST_CASE("gradcheck wants float64") {
  const Tensor x = leaf({1., 2.});
  CHECK(error_of([&] { return gradcheck([](const Tensor& a) { return a * a; }, x); }) ==
        "gradcheck: an input is float32, too coarse for small differences at HERE. Hint: make it "
        "with {.dtype = float64}");
}

TEST_CASE("gradcheck notices outputs that are exchanged, and leaves the inputs as they were") {
  const Tensor x = leaf({1., 2., 3.}, float64);
  const auto turned = [](const Tensor& a) { return cat({a.slice(0, 1), a.slice(0, 0, 1)}) * a; };
  CHECK(gradcheck(turned, x));
  CHECK(values(x) == Values{1, 2, 3});
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a constant has the gradient 0") {
  const Tensor x = leaf({1., 2.}, float64);
  CHECK(gradcheck([](const Tensor& a) { return a.detach().sign(); }, x));
  CHECK(refused([&] { return gradcheck([](const Tensor& a) { return a.detach() * 2; }, x); }));
}

}  // namespace
