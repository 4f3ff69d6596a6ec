// The loss of distillation compared with reference cases, in every layout.
#include "gantry/plugins/distillation_loss.h"

#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "objective_case.h"

namespace gantry::testing {
namespace {

std::string distillation_case(const std::string& name) {
  return std::string(GANTRY_SOURCE_DIR "/tests/golden/distillation/") + name;
}

// The labels of the case are not shifted.
TensorDict batch_of_case(const std::string& folder) {
  TensorDict batch = read_safetensors(folder + "/inputs.safetensors");
  const torch::Tensor labels = batch.at("labels");
  batch.set("labels", torch::cat({labels.slice(1, 1), torch::full({labels.size(0), 1}, -100, torch::kInt64)}, 1));
  return batch;
}

ObjectiveCase distillation(const std::string& name, const ObjectiveConfig& objective) {
  ObjectiveCase one{.folder = distillation_case(name), .objective = objective, .batch = {}, .prepare = {}};
  one.batch = batch_of_case(one.folder);
  one.prepare = [folder = one.folder](const ObjectiveParts& parts, Batch& mine, Booster& booster, Boosted&) {
    run_teacher_of_case(folder, parts, mine, booster);
  };
  return one;
}

TEST(DistillationLoss, EqualsTheReferenceInEveryLayout) {
  expect_equal_in_layouts(
      distillation("forward", {.name = "distill", .loss_type = "forward", .temperature = 2, .alpha = 0.4}));
  expect_equal_in_layouts(distillation("reverse", {.name = "distill", .loss_type = "reverse", .temperature = 1.5}));
  expect_equal_in_layouts(distillation("jsd", {.name = "distill", .beta = 0.3, .loss_type = "jsd"}));
}

TEST(DistillationLoss, IsZeroForTheTeacherItself) {
  for (const char* kind : {"forward", "reverse", "jsd"}) {
    auto teacher = std::make_shared<TeacherLogits>();
    teacher->logits = torch::randn({2, 3, 7}, torch::kFloat64);
    const TensorDict batch = {{"labels", torch::tensor({{1, 2, -100}, {3, 4, 5}})},
                              {kTeacherRows, torch::tensor({1, 0})}};
    const torch::Tensor logits = teacher->logits.flip({0}).clone().set_requires_grad(true);
    const Loss loss = distillation_loss({.name = "distill", .beta = 0.5, .loss_type = kind}, teacher)(
        {{"logits", logits}}, batch, {});
    loss.sum.backward();
    EXPECT_NEAR(loss.sum.item<double>(), 0, 1e-12) << kind;
    EXPECT_EQ(loss.count.item<std::int64_t>(), 5) << kind;
    EXPECT_LE(logits.grad().abs().max().item<double>(), 1e-12) << kind;
  }
}

TEST(DistillationLoss, AddsTheMeanDistanceOfHiddenStates) {
  const auto options = torch::TensorOptions(torch::kFloat64);
  const auto numbers = [&](std::vector<std::int64_t> shape, double factor) {
    const torch::Tensor index = torch::arange(torch::tensor(shape).prod().item<std::int64_t>(), options);
    return (index * factor).sin().view(shape);
  };
  auto teacher = std::make_shared<TeacherLogits>();
  teacher->logits = numbers({2, 3, 7}, 1.7);
  teacher->hidden = numbers({2, 3, 5}, 2.3);
  const torch::Tensor logits = teacher->logits.flip({0});  // so that the divergence is zero
  const torch::Tensor input = numbers({2, 3, 4}, 0.9), projection = numbers({5, 4}, 3.1).set_requires_grad(true);
  const TensorDict batch = {{"labels", torch::tensor({{1, 2, -100}, {3, 4, 5}})},
                            {kTeacherRows, torch::tensor({1, 0})}};
  const Loss loss = distillation_loss({.name = "distill", .loss_type = "forward", .hidden_weight = 0.7}, teacher)(
      {{"logits", logits}, {"hidden_states", torch::matmul(input, projection.t())}}, batch, {});
  loss.sum.backward();
  const torch::NoGradGuard no_grad;
  torch::Tensor difference = torch::matmul(input, projection.t()) - teacher->hidden.flip({0});
  difference[0][2].zero_();  // the token without a label
  EXPECT_NEAR(loss.sum.item<double>(), 0.7 / 5 * difference.square().sum().item<double>(), 1e-12);
  EXPECT_EQ(loss.count.item<std::int64_t>(), 5);
  const torch::Tensor expected = 0.7 * 2 / 5 * torch::matmul(difference.reshape({6, 5}).t(), input.reshape({6, 4}));
  EXPECT_LE((projection.grad() - expected).abs().max().item<double>(), 1e-12);
}

TEST(DistillationLoss, RefusesMissingAndOtherHiddenStates) {
  auto teacher = std::make_shared<TeacherLogits>();
  teacher->logits = torch::zeros({1, 2, 4});
  const Criterion loss = distillation_loss({.name = "distill", .hidden_weight = 1}, teacher);
  TensorDict outputs = {{"logits", torch::zeros({1, 2, 4})}};
  const TensorDict batch = {{"labels", torch::tensor({{1, 2}})}, {kTeacherRows, torch::tensor({0})}};
  EXPECT_THROW(loss(outputs, batch, {}), UsageError);
  teacher->hidden = torch::zeros({1, 2, 3});
  EXPECT_THROW(loss(outputs, batch, {}), UsageError);
  outputs.set("hidden_states", torch::zeros({1, 2, 6}));
  EXPECT_THROW(loss(outputs, batch, {}), UsageError);
}

TEST(DistillationLoss, RefusesLogitsOfAnotherShape) {
  auto teacher = std::make_shared<TeacherLogits>();
  const Criterion loss = distillation_loss({.name = "distill"}, teacher);
  const TensorDict outputs = {{"logits", torch::zeros({1, 2, 4})}};
  const TensorDict batch = {{"labels", torch::tensor({{1, 2}})}, {kTeacherRows, torch::tensor({0})}};
  EXPECT_THROW(loss(outputs, batch, {}), UsageError);
  teacher->logits = torch::zeros({1, 2, 5});
  EXPECT_THROW(loss(outputs, batch, {}), UsageError);
}

}  // namespace
}  // namespace gantry::testing
