#include "objective_case.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/gather.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

Config config_of(const ObjectiveCase& one, const ObjectiveLayout& how) {
  Config config = layout_config(how.layout);
  config.model.path = one.folder;
  config.precision = "float64";
  config.schedule.microbatches = how.microbatches;
  config.schedule.recompute = how.recompute;
  return resolve_model(config);
}

Criterion criterion_of(const ObjectiveConfig& objective, const ObjectiveParts& parts) {
  return objective.has_preferences() ? preference_loss(objective, parts) : distillation_loss(objective, parts.teacher);
}

double largest_of(const torch::Tensor& values) { return values.abs().max().item<double>(); }

torch::Tensor scores_of_pairs(const Batch& mine, std::int64_t samples, Booster& booster, Boosted& boosted) {
  auto scores = std::make_shared<ReferenceScores>();
  scores->trained = samples;
  scores->scores = torch::full({samples, 2}, -1e300, torch::kFloat64);
  booster.execute_pipeline(mine, boosted,
                           {.broadcast_loss = true, .forward_only = true, .criterion = preference_scores(scores)});
  booster.mesh().world_group().all_reduce(scores->scores, ReduceOp::kMax).wait();
  return scores->scores;
}

ObjectiveStep step_of(const ObjectiveCase& one, const ObjectiveLayout& how, const Config& config, World& world) {
  auto* plugin = new HybridParallelPlugin(world, config);
  Booster booster{std::unique_ptr<Plugin>(plugin)};
  auto model = build_model(config);
  const ObjectiveParts parts = objective_parts(one.objective);
  Criterion criterion = criterion_of(one.objective, parts);
  if (how.logit_limit > 0) criterion.set_logit_limit(how.logit_limit);
  auto boosted = booster.boost(model, build_optimizer(config, *model), criterion);
  load_weights(config, boosted, plugin->mesh());
  const Batch all = make_batch(one.batch);
  const auto replica = static_cast<std::size_t>(plugin->mesh().coordinate("dp"));
  const auto [begin, end] = split_evenly(all.samples, plugin->mesh().size("dp"))[replica];
  Batch mine = slice(all, begin, end);
  mine.global_samples = all.samples;
  if (one.prepare) one.prepare(parts, mine, booster, boosted);
  const auto result = booster.execute_pipeline(mine, boosted, {.broadcast_loss = true});
  ObjectiveStep step{.loss = *result.loss, .counted = result.tokens, .rewards = {}, .scores = {}, .gradients = {}};
  step.gradients = gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                                  [&](std::size_t i) { return boosted.optimizer->gradients().gradient(i); });
  if (parts.rewards) step.rewards = parts.rewards->means(plugin->mesh().world_group());
  if (parts.reference && one.objective.name != "kto")
    step.scores = scores_of_pairs(mine, all.samples, booster, boosted);
  return step;
}

}  // namespace

CaseText case_text(const TensorDict& inputs, const std::string& which, std::int64_t sample) {
  const auto row = [&](const char* entry) { return inputs.at(which + entry)[sample]; };
  const torch::Tensor keep = row("attention_mask") == 1;
  return {row("input_ids").masked_select(keep), row("completion_mask").masked_select(keep)};
}

void run_teacher_of_case(const std::string& folder, const ObjectiveParts& parts, Batch& mine, Booster& booster) {
  Config config;
  config.model.path = folder + "/teacher";
  config.precision = "float64";
  config = resolve_model(config);
  auto teacher = booster.boost(build_model(config), nullptr, keep_logits(parts.teacher));
  load_weights(config, teacher, booster.mesh());
  mine.tensors.set(kTeacherRows, torch::arange(mine.samples));
  parts.teacher->samples = mine.samples;
  booster.execute_pipeline(mine, teacher, {.broadcast_loss = true, .forward_only = true});
}

ObjectiveStep run_objective(const ObjectiveCase& one, const ObjectiveLayout& how) {
  ObjectiveStep outcome;
  const Config config = config_of(one, how);
  const int code = start_ranks()(config, [&](World& world) {
    ObjectiveStep step = step_of(one, how, config, world);
    if (world.is_main()) outcome = std::move(step);
  });
  EXPECT_EQ(code, 0) << one.folder;
  return outcome;
}

void expect_reference(const ObjectiveCase& one, const ObjectiveStep& step) {
  const auto expected = read_safetensors(one.folder + "/" + one.expected);
  EXPECT_NEAR(step.loss, expected.at("loss").item<double>(), 1e-6) << one.folder << " " << one.expected;
  double most = 0;
  for (const auto& [key, tensor] : expected)
    if (key.starts_with("grad.")) most = std::max(most, largest_of(tensor));
  std::size_t compared = 0;
  for (const auto& [key, tensor] : expected) {
    if (!key.starts_with("grad.")) continue;
    ++compared;
    const std::string parameter = key.substr(key.starts_with("grad.model.") ? 11 : 5);
    EXPECT_LE(largest_of(step.gradients.at(parameter) - tensor), 2e-5 * most)
        << one.folder << " " << one.expected << " " << key;
  }
  EXPECT_EQ(compared, step.gradients.size()) << one.folder;
}

void expect_same_step(const ObjectiveStep& expected, const ObjectiveStep& actual, const std::string& label) {
  EXPECT_NEAR(actual.loss, expected.loss, 1e-10) << label;
  EXPECT_EQ(actual.counted, expected.counted) << label;
  EXPECT_NEAR(actual.rewards.chosen.value_or(0), expected.rewards.chosen.value_or(0), 1e-10) << label;
  EXPECT_NEAR(actual.rewards.rejected.value_or(0), expected.rewards.rejected.value_or(0), 1e-10) << label;
  EXPECT_EQ(actual.rewards.accuracy, expected.rewards.accuracy) << label;
  if (expected.scores.defined()) EXPECT_LE(largest_of(actual.scores - expected.scores), 1e-10) << label;
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size()) << label;
  for (const auto& [name, gradient] : expected.gradients)
    EXPECT_LE(largest_of(actual.gradients.at(name) - gradient), 1e-10) << label << " " << name;
}

void expect_equal_in_layouts(const ObjectiveCase& one) {
  constexpr std::int64_t kTiled = 400;
  const ObjectiveStep alone = run_objective(one);
  expect_reference(one, alone);
  const auto expect_same = [&](const ObjectiveLayout& how, const char* label) {
    expect_same_step(alone, run_objective(one, how), one.folder + " " + one.expected + " " + label);
  };
  expect_same({{.tensor = 2}, 4, "full"}, "tp 2");
  expect_same({{.pipeline = 2, .data = 2}, 2}, "pp 2 dp 2");
  expect_same({{.data = 3}, 2}, "dp 3");
  expect_same({{.context = 2}, 3}, "cp 2");
  expect_same({{.tensor = 2}, 2, "none", kTiled}, "tp 2 with deferred logits");
  expect_same({{.context = 2}, 1, "none", kTiled}, "cp 2 with deferred logits");
  expect_same({{.pipeline = 2, .tensor = 2, .context = 2}, 2, "selective"}, "pp 2 tp 2 cp 2");
}

}  // namespace gantry::testing
