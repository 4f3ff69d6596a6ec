// Reference cases of train.objective (tests/golden/preferences and distillation): one training step in any layout.
#pragma once

#include <functional>
#include <string>

#include "gantry/booster/preference_step.h"
#include "ranks.h"

namespace gantry::testing {

struct ObjectiveCase {
  std::string folder;  // the model, with expected.safetensors
  ObjectiveConfig objective;
  TensorDict batch;
  // Completes the parts before the step, with this replica's batch.
  std::function<void(const ObjectiveParts& parts, Batch& mine, Booster& booster, Boosted& boosted)> prepare;
};

struct ObjectiveLayout {
  Layout layout;
  int microbatches = 1;
  std::string recompute = "none";
  std::int64_t logit_limit = 0;  // bytes of logits that are computed in full; 0: the default
};

struct ObjectiveStep {
  double loss = 0;
  std::int64_t counted = 0;  // samples, or tokens for distill
  RewardMetrics rewards;
  torch::Tensor scores;  // with a reference of pairs: log-probabilities by preference_scores()
  TensorDict gradients;
};

// One forward and backward in float64.
ObjectiveStep run_objective(const ObjectiveCase& one, const ObjectiveLayout& how = {});

// Texts of the case's inputs, those of `which` ("chosen_"): for each sample its tokens and whether they are counted.
struct CaseText {
  torch::Tensor ids, counts;
};
CaseText case_text(const TensorDict& inputs, const std::string& which, std::int64_t sample);

// gtest-checks the loss and the gradients against expected.safetensors.
void expect_reference(const ObjectiveCase& one, const ObjectiveStep& step);
void expect_same_step(const ObjectiveStep& expected, const ObjectiveStep& actual, const std::string& label);

// The step is equal in several layouts, and to the reference.
void expect_equal_in_layouts(const ObjectiveCase& one);

}  // namespace gantry::testing
