// Losses of preferences compared with reference cases, in every layout.
#include "gantry/plugins/preference_loss.h"

#include <cmath>
#include <gtest/gtest.h>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "objective_case.h"

namespace gantry::testing {
namespace {

std::string preference_case(const std::string& name) {
  return std::string(GANTRY_SOURCE_DIR "/tests/golden/preferences/") + name;
}

ObjectiveConfig objective_of_case(const std::string& name) {
  if (name == "simpo") return {.name = "simpo", .beta = 2, .gamma = 0.7};
  if (name == "cpo") return {.name = "cpo", .beta = 0.3, .label_smoothing = 0.1, .cpo_alpha = 0.7};
  if (name == "cpo_hinge") return {.name = "cpo", .beta = 0.3, .loss_type = "hinge", .cpo_alpha = 1};
  if (name == "cpo_ipo") return {.name = "cpo", .beta = 0.3, .loss_type = "ipo"};
  if (name == "cpo_simpo") return {.name = "simpo", .beta = 2, .cpo_alpha = 0.5, .gamma = 0.7};
  if (name == "orpo") return {.name = "orpo", .beta = 0.2};
  if (name == "dpo_ipo") return {.name = "ipo", .beta = 0.3};
  return {.name = "dpo", .beta = 0.3, .loss_type = name == "dpo_hinge" ? "hinge" : "sigmoid"};
}

// Writes a text without its last token to a row: its tokens and its labels.
void write_text(const CaseText& text, std::int64_t place, torch::Tensor ids, torch::Tensor labels) {
  const std::int64_t places = text.ids.size(0) - 1;
  ids.narrow(0, place, places).copy_(text.ids.narrow(0, 0, places));
  const torch::Tensor ignored = text.counts.narrow(0, 1, places) == 0;
  labels.narrow(0, place, places).copy_(text.ids.narrow(0, 1, places).masked_fill(ignored, -100));
}

// A row for each pair: the chosen text and the rejected one without their last tokens, and padding.
TensorDict packed_pairs(const std::string& folder) {
  const auto read = read_safetensors(folder + "/inputs.safetensors");
  const std::int64_t pairs = read.at("chosen_input_ids").size(0), places = 2 * read.at("chosen_input_ids").size(1);
  const auto filled = [&](std::int64_t value) { return torch::full({pairs, places}, value, torch::kInt64); };
  TensorDict packed = {{"input_ids", filled(0)},
                       {"labels", filled(-100)},
                       {"document_ids", filled(2)},
                       {"sample_numbers", torch::arange(pairs)}};
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    std::int64_t place = 0;
    for (const auto& [which, document] : {std::pair("chosen_", kChosen), std::pair("rejected_", kRejected)}) {
      const CaseText text = case_text(read, which, pair);
      write_text(text, place, packed.at("input_ids")[pair], packed.at("labels")[pair]);
      packed.at("document_ids")[pair].narrow(0, place, text.ids.size(0) - 1).fill_(document);
      place += text.ids.size(0) - 1;
    }
  }
  return packed;
}

// The labels of the chosen texts' other tokens.
torch::Tensor prompt_labels(const TensorDict& packed) {
  const torch::Tensor &ids = packed.at("input_ids"), &labels = packed.at("labels");
  const torch::Tensor next = torch::cat({ids.slice(1, 1), torch::full({ids.size(0), 1}, -100, torch::kInt64)}, 1);
  return next.masked_fill((labels != -100) | (packed.at("document_ids") != kChosen), -100);
}

// The reference of a case, with its two columns.
void set_reference(const ObjectiveParts& parts, const torch::Tensor& first, const torch::Tensor& second) {
  parts.reference->scores = torch::stack({first, second}, 1).to(torch::kFloat64);
  parts.reference->trained = first.size(0);
}

// The cases of cpo are further files of simpo's folder.
ObjectiveCase pairs_case(const std::string& name) {
  ObjectiveCase one{.folder = preference_case(name), .objective = objective_of_case(name), .batch = {}, .prepare = {}};
  if (name.starts_with("cpo")) {
    one.folder = preference_case("simpo");
    one.expected = name + ".safetensors";
  }
  one.batch = packed_pairs(one.folder);
  if (name == "orpo") one.batch.set("prompt_labels", prompt_labels(one.batch));
  one.prepare = [file = one.folder + "/" + one.expected](const ObjectiveParts& parts, Batch& mine, Booster& booster,
                                                         Boosted& boosted) {
    const auto read = read_safetensors(file);
    if (parts.reference) set_reference(parts, read.at("reference_chosen_logps"), read.at("reference_rejected_logps"));
    prepare_step(parts, mine, booster, boosted);
  };
  return one;
}

// Completions with their labels, and the prompts with the completions of other rows.
TensorDict judged_completions(const std::string& folder) {
  const auto read = read_safetensors(folder + "/inputs.safetensors");
  const std::int64_t rows = read.at("desirable").size(0), places = read.at("kl_input_ids").size(1);
  const auto filled = [&](std::int64_t value) { return torch::full({rows, places}, value, torch::kInt64); };
  TensorDict batch = {{"input_ids", filled(0)},
                      {"labels", filled(-100)},
                      {"kl_input_ids", filled(0)},
                      {"kl_labels", filled(-100)},
                      {"desirable", read.at("desirable")},
                      {"sample_numbers", torch::arange(rows)}};
  for (std::int64_t row = 0; row < rows; ++row) {
    write_text(case_text(read, "completion_", row), 0, batch.at("input_ids")[row], batch.at("labels")[row]);
    write_text(case_text(read, "kl_", row), 0, batch.at("kl_input_ids")[row], batch.at("kl_labels")[row]);
  }
  return batch;
}

// Runs the model with the reference weights to get the scores of both columns, as training does.
torch::Tensor reference_of_judged(const std::string& folder, const TensorDict& batch) {
  ObjectiveCase one{.folder = folder, .objective = {.name = "kto"}, .batch = batch, .prepare = {}};
  torch::Tensor scores;
  one.prepare = [&](const ObjectiveParts& parts, Batch& mine, Booster& booster, Boosted& boosted) {
    set_reference(parts, torch::zeros({mine.samples}), torch::zeros({mine.samples}));
    const auto score = [&](const Batch& texts, std::int64_t column) {
      booster.execute_pipeline(
          texts, boosted,
          {.broadcast_loss = true, .forward_only = true, .criterion = preference_scores(parts.reference, column)});
    };
    score(mine, 0);
    score(with_other_completions(mine), 1);
    scores = parts.reference->scores.clone();
  };
  run_objective(one);
  return scores;
}

TEST(PreferenceLoss, EqualsTheReferenceInEveryLayout) {
  for (const char* name :
       {"dpo", "dpo_hinge", "dpo_ipo", "simpo", "cpo", "cpo_hinge", "cpo_ipo", "cpo_simpo", "orpo"}) {
    const ObjectiveCase one = pairs_case(name);
    expect_equal_in_layouts(one);
    const ObjectiveStep step = run_objective(one);
    const auto expected = read_safetensors(one.folder + "/" + one.expected);
    const auto& chosen = expected.at("chosen_rewards");
    EXPECT_EQ(step.counted, chosen.size(0)) << name;
    EXPECT_NEAR(step.rewards.chosen.value(), chosen.mean().item<double>(), 1e-5) << name;
    EXPECT_NEAR(step.rewards.rejected.value(), expected.at("rejected_rewards").mean().item<double>(), 1e-5) << name;
    EXPECT_EQ(step.rewards.accuracy,
              (chosen > expected.at("rejected_rewards")).to(torch::kFloat64).mean().item<double>())
        << name;
    if (step.scores.defined())
      EXPECT_LE((step.scores.select(1, 0) - expected.at("policy_chosen_logps")).abs().max().item<double>(), 1e-5)
          << name;
  }
}

// The divergence of the second case is negative, so it is taken as 0.
TEST(PreferenceLoss, EqualsTheReferenceOfJudgedCompletions) {
  for (const char* name : {"kto", "kto_clamped"}) {
    ObjectiveCase one{.folder = preference_case(name),
                      .objective = {.name = "kto", .beta = 0.3},
                      .batch = judged_completions(preference_case(name)),
                      .prepare = {}};
    const torch::Tensor reference = reference_of_judged(one.folder + "/reference", one.batch);
    const auto expected = read_safetensors(one.folder + "/expected.safetensors");
    EXPECT_LE((reference.select(1, 0) - expected.at("reference_logps")).abs().max().item<double>(), 1e-5) << name;
    double divergence = 0;
    one.prepare = [&](const ObjectiveParts& parts, Batch& mine, Booster& booster, Boosted& boosted) {
      set_reference(parts, reference.select(1, 0), reference.select(1, 1));
      prepare_step(parts, mine, booster, boosted);
      if (booster.mesh().rank() == 0) divergence = parts.step->divergence;
    };
    expect_equal_in_layouts(one);
    EXPECT_NEAR(divergence, std::max(0.0, expected.at("kl").item<double>()), 1e-6) << name;
  }
}

// A row for each pair: both full texts.
TEST(PreferenceLoss, EqualsTheReferenceOfARewardModel) {
  ObjectiveCase one{.folder = preference_case("reward_margin"),
                    .objective = {.name = "reward", .center_rewards_coefficient = 0.02},
                    .batch = {},
                    .prepare = {}};
  const auto read = read_safetensors(one.folder + "/inputs.safetensors");
  const std::int64_t pairs = read.at("margin").size(0), places = 2 * read.at("chosen_input_ids").size(1);
  one.batch = {{"input_ids", torch::zeros({pairs, places}, torch::kInt64)},
               {"document_ids", torch::full({pairs, places}, 2, torch::kInt64)},
               {"pooled_tokens", torch::zeros({pairs, 2}, torch::kInt64)},
               {"margins", read.at("margin")}};
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    std::int64_t place = 0;
    for (const auto& [which, document] : {std::pair("chosen_", kChosen), std::pair("rejected_", kRejected)}) {
      const torch::Tensor ids = case_text(read, which, pair).ids;
      one.batch.at("input_ids")[pair].narrow(0, place, ids.size(0)).copy_(ids);
      one.batch.at("document_ids")[pair].narrow(0, place, ids.size(0)).fill_(document);
      place += ids.size(0);
      one.batch.at("pooled_tokens")[pair][document] = place - 1;
    }
  }
  expect_equal_in_layouts(one);
  const auto expected = read_safetensors(one.folder + "/expected.safetensors");
  EXPECT_NEAR(run_objective(one).rewards.margin().value(),
              (expected.at("chosen_rewards") - expected.at("rejected_rewards")).mean().item<double>(), 1e-6);
}

TEST(PreferenceLoss, RefusesMissingParts) {
  EXPECT_THROW(preference_loss({.name = "dpo"}, {}), UsageError);
  EXPECT_THROW(preference_loss({.name = "orpo"}, {}), UsageError);
  EXPECT_THROW(preference_loss({.name = "kto"}, {.reference = std::make_shared<ReferenceScores>()}), UsageError);
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
  const Loss loss = preference_loss(objective, {.reference = reference})({{"logits", logits}}, batch, {});
  const double margin = 0.5 * -1.0;  // the reference prefers the chosen one by 1
  const auto softplus = [](double x) { return std::log1p(std::exp(x)); };
  EXPECT_NEAR(loss.sum.item<double>(), 0.8 * softplus(-margin) + 0.2 * softplus(margin), 1e-12);
}

}  // namespace
}  // namespace gantry::testing
