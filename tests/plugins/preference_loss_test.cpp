// Losses of preferences against reference cases, in every layout.
#include "gantry/plugins/preference_loss.h"

#include <gtest/gtest.h>

#include "family_case.h"
#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/gather.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

std::string preference_case(const std::string& name) {
  return std::string(GANTRY_SOURCE_DIR "/tests/golden/preferences/") + name;
}

ObjectiveConfig objective_of_case(const std::string& name) {
  if (name == "simpo") return {.name = "simpo", .beta = 2, .gamma = 0.7};
  if (name == "dpo_ipo") return {.name = "ipo", .beta = 0.3};
  return {.name = "dpo", .beta = 0.3, .loss_type = name == "dpo_hinge" ? "hinge" : "sigmoid"};
}

// A row for each pair: the chosen text and the rejected one without their last tokens, and padding.
TensorDict packed_pairs(const std::string& folder) {
  const auto read = read_safetensors(folder + "/inputs.safetensors");
  const std::int64_t pairs = read.at("chosen_input_ids").size(0), places = 2 * read.at("chosen_input_ids").size(1);
  TensorDict packed = {{"input_ids", torch::zeros({pairs, places}, torch::kInt64)},
                       {"labels", torch::full({pairs, places}, -100, torch::kInt64)},
                       {"document_ids", torch::full({pairs, places}, 2, torch::kInt64)},
                       {"sample_numbers", torch::arange(pairs)}};
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    std::int64_t place = 0;
    for (const auto& [which, document] : {std::pair("chosen_", kChosen), std::pair("rejected_", kRejected)}) {
      const auto row = [&, which = which](const char* entry) { return read.at(std::string(which) + entry)[pair]; };
      const torch::Tensor keep = row("attention_mask") == 1;
      const torch::Tensor ids = row("input_ids").masked_select(keep);
      const torch::Tensor counts = row("completion_mask").masked_select(keep);
      const std::int64_t tokens = ids.size(0) - 1;
      packed.at("input_ids")[pair].narrow(0, place, tokens).copy_(ids.narrow(0, 0, tokens));
      packed.at("labels")[pair]
          .narrow(0, place, tokens)
          .copy_(ids.narrow(0, 1, tokens).masked_fill(counts.narrow(0, 1, tokens) == 0, -100));
      packed.at("document_ids")[pair].narrow(0, place, tokens).fill_(document);
      place += tokens;
    }
  }
  return packed;
}

std::shared_ptr<ReferenceScores> reference_of_case(const std::string& folder) {
  const auto read = read_safetensors(folder + "/expected.safetensors");
  if (!read.contains("reference_chosen_logps")) return nullptr;
  auto reference = std::make_shared<ReferenceScores>();
  reference->scores =
      torch::stack({read.at("reference_chosen_logps"), read.at("reference_rejected_logps")}, 1).to(torch::kFloat64);
  reference->trained = reference->scores.size(0);
  return reference;
}

struct PreferenceStep {
  double loss = 0;
  std::int64_t pairs = 0;
  RewardMetrics rewards;
  torch::Tensor scores;
  TensorDict gradients;
};

PreferenceStep run_case(const std::string& name, const Layout& layout, int microbatches, const std::string& recompute) {
  const std::string folder = preference_case(name);
  Config config = layout_config(layout);
  config.model.path = folder;
  config.precision = "float64";
  config.schedule.microbatches = microbatches;
  config.schedule.recompute = recompute;
  config = resolve_model(config);
  PreferenceStep outcome;
  const int code = start_ranks()(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_model(config);
    const auto reference = reference_of_case(folder);
    const auto meter = std::make_shared<RewardMeter>();
    auto boosted = booster.boost(model, build_optimizer(config, *model),
                                 preference_loss(objective_of_case(name), reference, meter));
    load_weights(config, boosted, plugin->mesh());
    const Batch all = make_batch(packed_pairs(folder));
    const auto replica = static_cast<std::size_t>(plugin->mesh().coordinate("dp"));
    const auto [begin, end] = split_evenly(all.samples, plugin->mesh().size("dp"))[replica];
    Batch mine = slice(all, begin, end);
    mine.global_samples = all.samples;
    const auto result = booster.execute_pipeline(mine, boosted, {.broadcast_loss = true});
    auto gradients = gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                                    [&](std::size_t i) { return boosted.optimizer->gradients().gradient(i); });
    const RewardMetrics rewards = meter->means(plugin->mesh().world_group());

    auto scores = std::make_shared<ReferenceScores>();
    scores->trained = all.samples;
    scores->scores = torch::full({all.samples, 2}, -1e300, torch::kFloat64);
    booster.execute_pipeline(mine, boosted,
                             {.broadcast_loss = true, .forward_only = true, .criterion = preference_scores(scores)});
    plugin->mesh().world_group().all_reduce(scores->scores, ReduceOp::kMax).wait();
    if (world.is_main()) outcome = {*result.loss, result.tokens, rewards, scores->scores, std::move(gradients)};
  });
  EXPECT_EQ(code, 0) << name;
  return outcome;
}

double largest(const torch::Tensor& values) { return values.abs().max().item<double>(); }

void expect_reference(const std::string& name, const PreferenceStep& step) {
  const auto expected = read_safetensors(preference_case(name) + "/expected.safetensors");
  EXPECT_NEAR(step.loss, expected.at("loss").item<double>(), 1e-6) << name;
  EXPECT_EQ(step.pairs, expected.at("losses").size(0)) << name;
  EXPECT_NEAR(step.rewards.chosen, expected.at("chosen_rewards").mean().item<double>(), 1e-5) << name;
  EXPECT_NEAR(step.rewards.rejected, expected.at("rejected_rewards").mean().item<double>(), 1e-5) << name;
  const auto correct = (expected.at("chosen_rewards") > expected.at("rejected_rewards")).to(torch::kFloat64).mean();
  EXPECT_EQ(step.rewards.accuracy, correct.item<double>()) << name;
  if (name != "simpo") EXPECT_LE(largest(step.scores.select(1, 0) - expected.at("policy_chosen_logps")), 1e-5) << name;
  double most = 0;
  for (const auto& [key, tensor] : expected)
    if (key.starts_with("grad.")) most = std::max(most, largest(tensor));
  std::size_t compared = 0;
  for (const auto& [key, tensor] : expected) {
    if (!key.starts_with("grad.")) continue;
    ++compared;
    const std::string parameter = key.substr(key.starts_with("grad.model.") ? 11 : 5);
    EXPECT_LE(largest(step.gradients.at(parameter) - tensor), 2e-5 * most) << name << " " << key;
  }
  EXPECT_EQ(compared, step.gradients.size()) << name;
}

void expect_same_step(const PreferenceStep& expected, const PreferenceStep& actual, const std::string& label) {
  EXPECT_NEAR(actual.loss, expected.loss, 1e-10) << label;
  EXPECT_EQ(actual.pairs, expected.pairs) << label;
  EXPECT_NEAR(actual.rewards.chosen, expected.rewards.chosen, 1e-10) << label;
  EXPECT_NEAR(actual.rewards.margin(), expected.rewards.margin(), 1e-10) << label;
  EXPECT_NEAR(actual.rewards.accuracy, expected.rewards.accuracy, 1e-12) << label;
  EXPECT_LE(largest(actual.scores - expected.scores), 1e-10) << label;
  for (const auto& [name, gradient] : expected.gradients)
    EXPECT_LE(largest(actual.gradients.at(name) - gradient), 1e-10) << label << " " << name;
}

TEST(PreferenceLoss, EqualsTheReferenceInEveryLayout) {
  for (const char* name : {"dpo", "dpo_hinge", "dpo_ipo", "simpo"}) {
    const PreferenceStep alone = run_case(name, {}, 1, "none");
    expect_reference(name, alone);
    expect_same_step(alone, run_case(name, {.tensor = 2}, 4, "full"), name + std::string(" tp 2"));
    expect_same_step(alone, run_case(name, {.pipeline = 2, .data = 2}, 2, "none"), name + std::string(" pp 2 dp 2"));
    expect_same_step(alone, run_case(name, {.context = 2}, 3, "none"), name + std::string(" cp 2"));
    expect_same_step(alone, run_case(name, {.pipeline = 2, .tensor = 2, .context = 2}, 2, "selective"),
                     name + std::string(" pp 2 tp 2 cp 2"));
    expect_same_step(alone, run_case(name, {.data = 3}, 2, "none"), name + std::string(" dp 3"));
  }
}

TEST(PreferenceLoss, SmoothsLikelyWrongPreferences) {
  const ObjectiveConfig objective{.name = "dpo", .beta = 0.5, .label_smoothing = 0.2};
  auto reference = std::make_shared<ReferenceScores>();
  reference->scores = torch::tensor({{-1.0, -2.0}}, torch::kFloat64);
  reference->trained = 1;
  const torch::Tensor logits = torch::zeros({1, 2, 4}, torch::kFloat64);  // each token has the log-probability -ln 4
  const TensorDict batch = {{"labels", torch::tensor({{1, 2}})},
                            {"document_ids", torch::tensor({{0, 1}})},
                            {"sample_numbers", torch::tensor({0})}};
  const Loss loss = preference_loss(objective, reference)({{"logits", logits}}, batch, {});
  const double margin = 0.5 * -1.0;  // the reference prefers the chosen one by 1
  const auto softplus = [](double x) { return std::log1p(std::exp(x)); };
  EXPECT_NEAR(loss.sum.item<double>(), 0.8 * softplus(-margin) + 0.2 * softplus(margin), 1e-12);
}

}  // namespace
}  // namespace gantry::testing
