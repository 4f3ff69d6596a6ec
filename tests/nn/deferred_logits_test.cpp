// Losses of logits that are not computed in full, compared
// with those of full logits: loss and gradients in float64.
#include "gantry/nn/deferred_logits.h"

#include <gtest/gtest.h>
#include <limits>

#include <ATen/record_function.h>

#include "gantry/core/config/logit_limit.h"
#include "gantry/nn/forward.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kRows = 17, kFeatures = 8, kColumns = 91;

struct DeferredCase {
  nn::LogitForm form = {};
  nn::CrossEntropyOptions options = {};
  std::int64_t limit = 600;  // tiles of 8 columns and 9 rows at most
  bool bias = false, adapter = false;
  torch::ScalarType type = torch::kFloat64;
  std::int64_t ignored_until = 0;  // labels of rows before this one are ignored
  bool closes = false;             // columns of a full tile have a bias of minus infinity
  std::string frozen;              // parameters with this prefix; "input": the input of the head
};

// The head's input, the head and random factors of the losses, the same for all cases.
struct HeadRun {
  explicit HeadRun(const DeferredCase& what) : options(what.options) {
    torch::manual_seed(3);
    input = torch::randn({kRows, kFeatures}).to(what.type).requires_grad_(what.frozen != "input");
    head = nn::Linear(torch::nn::LinearOptions(kFeatures, kColumns).bias(what.bias));
    if (what.adapter) head->add_adapter({.rank = 3, .scale = 0.7});
    head->to(what.type);
    for (auto& item : head->named_parameters()) {
      torch::nn::init::normal_(item.value(), 0, 1);
      item.value().set_requires_grad(what.frozen.empty() || !item.key().starts_with(what.frozen));
    }
    if (what.closes) head->bias.detach().narrow(0, 71, 12).fill_(-std::numeric_limits<double>::infinity());
    factors = torch::rand({kRows}, torch::kFloat64);
    labels = torch::arange(kRows) * 7 % (options.vocabulary > 0 ? options.vocabulary : kColumns);
    labels[3] = labels[11] = options.ignore_index;
    labels.narrow(0, 0, what.ignored_until).fill_(options.ignore_index);
  }

  // The sum of the losses with their factors, and all gradients.
  std::map<std::string, torch::Tensor> results(const torch::Tensor& losses) {
    std::map<std::string, torch::Tensor> all{{"loss", (losses * factors).sum()}};
    all.at("loss").backward();
    for (const auto& item : head->named_parameters()) all[item.key()] = item.value().grad();
    all["input"] = input.grad();
    all["loss"] = all["loss"].detach();
    return all;
  }
  std::map<std::string, torch::Tensor> of_full(const nn::LogitForm& form) {
    return results(nn::token_losses(nn::head_output(head, input, form).at("logits"), labels, options));
  }
  std::map<std::string, torch::Tensor> of_deferred(const nn::LogitForm& form, std::int64_t limit) {
    nn::DeferredLogits logits{.rows = kRows, .limit = limit};
    TensorDict made;
    {
      const ForwardScope scope({.logits = &logits});
      made = nn::head_output(head, input, form);
    }
    EXPECT_TRUE(logits.are_deferred());
    EXPECT_FALSE(made.contains("logits"));
    logits.hidden = made.at("hidden");
    return results(nn::token_losses(logits, labels, options));
  }

  nn::CrossEntropyOptions options;
  torch::Tensor input, factors, labels;
  nn::Linear head{nullptr};
};

void expect_equal_to_full(const DeferredCase& what, double tolerance = 1e-12) {
  const auto expected = HeadRun(what).of_full(what.form), actual = HeadRun(what).of_deferred(what.form, what.limit);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(actual.at(name).defined(), tensor.defined()) << name;
    if (!tensor.defined()) continue;
    EXPECT_LE((actual.at(name) - tensor).abs().max().item<double>(), tolerance * tensor.abs().max().item<double>())
        << name;
  }
}

TEST(DeferredLogits, HaveTheLossesAndGradientsOfFullOnes) {
  expect_equal_to_full({});
  expect_equal_to_full({.bias = true});
  expect_equal_to_full({.limit = 1});
  expect_equal_to_full({.limit = 8 * kRows * kColumns - 1});
  expect_equal_to_full({.options = {.ignore_index = 2, .label_smoothing = 0.1, .z_loss = 1e-3}});
  expect_equal_to_full({.form = {.scale = 0.7}, .bias = true});
  expect_equal_to_full({.form = {.soft_cap = 2}, .options = {.label_smoothing = 0.1}});
  expect_equal_to_full({.form = {.scale = 1.3, .soft_cap = 3}, .options = {.z_loss = 1e-3, .vocabulary = 64}});
}

TEST(DeferredLogits, OfRowsThatDoNotCount) {
  expect_equal_to_full({.bias = true, .adapter = true, .ignored_until = 9});
  expect_equal_to_full({.options = {.label_smoothing = 0.1}, .ignored_until = kRows - 1});
  const auto none = HeadRun({.ignored_until = kRows}).of_deferred({}, 600);
  EXPECT_EQ(none.at("loss").item<double>(), 0);
  EXPECT_EQ(none.at("weight").abs().sum().item<double>(), 0);
}

TEST(DeferredLogits, OfColumnsThatAreMinusInfinity) { expect_equal_to_full({.bias = true, .closes = true}); }

TEST(DeferredLogits, OfAdaptersAndFrozenParts) {
  expect_equal_to_full({.adapter = true});
  expect_equal_to_full({.form = {.scale = 0.7, .soft_cap = 3}, .bias = true, .adapter = true, .frozen = "weight"});
  expect_equal_to_full({.adapter = true, .frozen = "lora_A"});
  expect_equal_to_full({.bias = true, .frozen = "weight"});
  expect_equal_to_full({.bias = true, .frozen = "input"});
}

// Sums are in float32, and logits and their gradients are rounded like full ones.
TEST(DeferredLogits, OfLowPrecision) {
  for (const auto type : {torch::kBFloat16, torch::kFloat16})
    expect_equal_to_full({.form = {.soft_cap = 5}, .bias = true, .adapter = true, .type = type}, 0.03);
}

TEST(DeferredLogits, OfSmallSizesAreComputedInFull) {
  HeadRun run({});
  nn::DeferredLogits logits{.rows = kRows, .limit = 8 * kRows * kColumns};
  const ForwardScope scope({.logits = &logits});
  EXPECT_TRUE(nn::head_output(run.head, run.input).contains("logits"));
  EXPECT_FALSE(logits.are_deferred());
  // DoRA divides by the norms of the full rows of the weight.
  logits.limit = 1;
  nn::Linear dora(torch::nn::LinearOptions(kFeatures, kColumns).bias(false));
  dora->add_adapter({.rank = 3, .dora = true});
  EXPECT_TRUE(nn::head_output(dora, run.input.to(torch::kFloat32)).contains("logits"));
  EXPECT_FALSE(logits.are_deferred());
}

thread_local std::size_t largest_bytes = 0;

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction&) { return nullptr; }

void note_outputs(const at::RecordFunction& function, at::ObserverContext*) {
  for (const c10::IValue& output : function.outputs())
    if (output.isTensor() && output.toTensor().defined())
      largest_bytes = std::max(largest_bytes, output.toTensor().nbytes());
}

// Measured by the outputs of all operators. The limit is the default one; the logits are 40 MB.
TEST(DeferredLogits, NoTensorIsLargerThanTheLimit) {
  constexpr std::int64_t kTokens = 100, kWords = 50000;
  nn::Linear head(torch::nn::LinearOptions(4, kWords).bias(false));
  head->to(torch::kFloat64);
  const torch::Tensor input = torch::randn({kTokens, 4}, torch::kFloat64).requires_grad_();
  const torch::Tensor labels = torch::arange(kTokens) * 379;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&begin_operator, &note_outputs)
                                                     .needsOutputs(true)
                                                     .scopes({at::RecordScope::FUNCTION}));
  largest_bytes = 0;
  nn::DeferredLogits logits{.rows = kTokens, .limit = kLogitLimit};
  {
    const ForwardScope scope({.logits = &logits});
    logits.hidden = nn::head_output(head, input, {.soft_cap = 5}).at("hidden");
  }
  nn::cross_entropy(logits, labels).sum.backward();
  EXPECT_LE(largest_bytes, static_cast<std::size_t>(kLogitLimit));
  EXPECT_GT(largest_bytes, static_cast<std::size_t>(kLogitLimit) / 4);
  largest_bytes = 0;
  nn::head_output(head, input);
  EXPECT_EQ(largest_bytes, static_cast<std::size_t>(8 * kTokens * kWords));
  at::removeCallback(handle);
}

}  // namespace
}  // namespace gantry::testing
