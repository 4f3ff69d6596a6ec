// Recomputation in a plain loop compared with the same run
// without it, and attention's masks in every precision.
#include "gantry/nn/recompute.h"

#include <gtest/gtest.h>
#include <thread>

#include "gantry/nn/attention.h"
#include "gantry/nn/dropout.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

using Tensors = std::vector<torch::Tensor>;

torch::Tensor wave(std::vector<std::int64_t> shape, double scale = 1) {
  return torch::sin(torch::arange(c10::multiply_integers(shape), torch::kFloat64) * scale + 0.3).view(shape);
}

nn::Dropout dropout_named(const std::string& name, double p) {
  nn::Dropout made(p);
  made->set_global_name(name);
  return made;
}

// Two dropouts around a linear layer, and attention with its own dropout.
struct Part {
  Part() {
    layer->to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(wave({6, 6}));
    layer->bias.copy_(wave({6}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor heads = nn::split_heads(before(layer(x)), 2);
    const torch::Tensor mixed = nn::attention(heads, heads, heads, {0, 2, 2}, {0, 2, 2}, {.causal = true}, *inside);
    return after(nn::merge_heads(mixed));
  }
  nn::Linear layer{6, 6};
  nn::Dropout before = dropout_named("before", 0.5), inside = dropout_named("inside", 0.3),
              after = dropout_named("after", 0.4);
};

// Output, input's gradient and weight's gradient of one pass.
Tensors pass(const std::function<torch::Tensor(Part&, const torch::Tensor&)>& forward) {
  Part part;
  torch::Tensor x = wave({2, 5, 6}, 0.7).requires_grad_();
  const torch::Tensor y = forward(part, x);
  y.square().sum().backward();
  return {y.detach(), x.grad(), part.layer->weight.grad(), part.layer->bias.grad()};
}

void expect_same(const Tensors& expected, const Tensors& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(expected[i], actual[i])) << i;
}

// Outside of a step, each thread counts the random states of
// dropout itself, so a new thread starts from the first one.
template <class F>
auto on_new_thread(F make) {
  decltype(make()) made;
  std::thread([&] { made = make(); }).join();
  return made;
}

TEST(Recompute, DropoutInAPlainLoopDrawsTheSameMasksInBothForwards) {
  const Tensors expected = pass([](Part& part, const torch::Tensor& x) {
    const ForwardScope scope({.random = RandomContext{.step = 0}});  // the first random state of a thread
    return part.forward(x);
  });
  const Tensors actual = on_new_thread([] {
    return pass([](Part& part, const torch::Tensor& x) {
      return nn::recompute([&part](const Tensors& inputs) { return part.forward(inputs[0]); }, {x});
    });
  });
  expect_same(expected, actual);
}

TEST(Recompute, AttentionAloneInAPlainLoopDrawsItsMaskAgain) {
  Part part;
  const ForwardScope selective({.recomputes_attention = true});
  // With values of one, the output is the mask's row sums. It is linear in the values, so the gradient shows
  // which entries were kept.
  torch::Tensor values = torch::ones({1, 1, 4, 2}, torch::kFloat64).requires_grad_();
  const torch::Tensor same = torch::zeros({1, 1, 4, 2}, torch::kFloat64);
  const torch::Tensor out = nn::attention(same, same, values, {0, 1, 1}, {0, 1, 1}, {}, *part.inside);
  out.sum().backward();
  EXPECT_NEAR(out.sum().item<double>(), (values.grad() * values).sum().item<double>(), 1e-12);
}

TEST(Recompute, CallsDrawAgain) {
  nn::Dropout drop = dropout_named("drop", 0.5);
  const torch::Tensor x = torch::ones({64}, torch::kFloat64).requires_grad_();
  const auto call = [&] {
    return nn::recompute([drop](const Tensors& inputs) mutable { return drop(inputs[0]); }, {x}).detach();
  };
  const torch::Tensor first = call();
  EXPECT_FALSE(torch::equal(first, call()));
}

TEST(Recompute, EveryInputGetsItsGradient) {
  const torch::Tensor index = torch::tensor({2, 0, 1});
  const auto part = [](const Tensors& in) {
    EXPECT_EQ(in.size(), 6u);
    EXPECT_FALSE(in[2].defined());
    return (in[0] * in[1] + in[3]).index_select(0, in[4]) * in[5];
  };
  const auto leaves = [] {
    Tensors all;
    for (int i = 0; i < 4; ++i) all.push_back(wave({3, 2}, 1 + i).requires_grad_());
    return all;
  };
  const Tensors a = leaves(), b = leaves();
  part({a[0], a[1], {}, a[2], index, a[3]}).square().sum().backward();
  nn::recompute(part, {b[0], b[1], {}, b[2], index, b[3]}).square().sum().backward();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i].grad(), b[i].grad())) << i;
}

TEST(Recompute, SeveralOutputsGiveTheirGradientsTogether) {
  const auto part = [](const Tensors& in) { return Tensors{in[0].exp(), in[0].square(), torch::ones({2})}; };
  const torch::Tensor a = wave({3}).requires_grad_(), b = wave({3}).requires_grad_();
  const Tensors plain = part({a}), again = nn::recompute_all(part, {b});
  ASSERT_EQ(again.size(), 3u);
  (plain[0].sum() + 2 * plain[1].sum()).backward();
  (again[0].sum() + 2 * again[1].sum()).backward();
  EXPECT_TRUE(torch::equal(a.grad(), b.grad()));
}

// The first layer after a frozen embedding: no input requires a gradient, but the parameters do.
TEST(Recompute, ParametersTrainWhereNoInputNeedsAGradient) {
  const Part plain, again;
  torch::Tensor x = wave({2, 6});
  nn::Linear first = plain.layer, second = again.layer;
  int forwards = 0;
  first(x).square().sum().backward();
  nn::recompute(
      [&](const Tensors& in) {
        ++forwards;
        return second(in[0]);
      },
      {x})
      .square()
      .sum()
      .backward();
  EXPECT_EQ(forwards, 2);
  ASSERT_TRUE(second->weight.grad().defined());
  EXPECT_TRUE(torch::equal(first->weight.grad(), second->weight.grad()));
  for (auto& parameter : second->parameters()) parameter.requires_grad_(false);
  EXPECT_FALSE(nn::recompute([&](const Tensors& in) { return second(in[0]); }, {x}).requires_grad());
}

// One row has three tokens after two of padding, whose queries see no key at all. The other row has no
// padding. Scores are large, so that in float16 the sum of the mask's value and a score exceeds the range.
TEST(Attention, MasksInEveryPrecision) {
  const torch::Tensor keep = torch::tensor({{0, 0, 1, 1, 1}, {1, 1, 1, 1, 1}}).to(torch::kBool);
  const auto run = [&](torch::ScalarType type, bool causal, double dropout) {
    const torch::Tensor query = (3.5 * wave({2, 2, 5, 4})).to(type).requires_grad_();
    const torch::Tensor key = (-3.5 * wave({2, 2, 5, 4})).to(type).requires_grad_();
    const torch::Tensor value = wave({2, 2, 5, 4}, 0.5).to(type).requires_grad_();
    const ForwardScope scope({.random = RandomContext{.step = 0}});
    const nn::Dropout drop = dropout_named("drop", dropout);
    const torch::Tensor out =
        nn::attention(query, key, value, {0, 2, 2}, {0, 2, 2}, {.causal = causal, .keep = keep}, *drop);
    EXPECT_TRUE(torch::isfinite(out).all().item<bool>());
    torch::Tensor counts = torch::ones({2, 1, 5, 1}, torch::kFloat64);
    if (causal) counts[0].narrow(1, 0, 2).zero_();  // queries without any key
    (out.to(torch::kFloat64) * counts).square().sum().backward();
    return Tensors{out.detach().to(torch::kFloat64) * counts, value.grad().to(torch::kFloat64)};
  };
  for (const bool causal : {false, true})
    for (const double dropout : {0.0, 0.25}) {
      const Tensors exact = run(torch::kFloat64, causal, dropout);
      for (const auto& [type, tolerance] : std::vector<std::pair<torch::ScalarType, double>>{
               {torch::kFloat32, 1e-5}, {torch::kHalf, 2e-2}, {torch::kBFloat16, 1e-1}}) {
        const Tensors low = run(type, causal, dropout);
        for (std::size_t i = 0; i < exact.size(); ++i)
          EXPECT_LE((low[i] - exact[i]).abs().max().item<double>(), tolerance)
              << c10::toString(type) << " causal " << causal << " dropout " << dropout << " " << i;
      }
    }
}

}  // namespace
}  // namespace gantry::testing
