// Reference cases of train.objective (tests/golden/preferences and distillation): one training step in any layout.
#pragma once

#include <functional>
#include <string>

#include "gantry/booster/preference_step.h"
#include "ranks.h"

namespace gantry::testing {

struct ObjectiveCase {
  std::string folder;                             // the model
  std::string expected = "expected.safetensors";  // a file in the folder
  ObjectiveConfig objective;
  TensorDict batch;
  // Completes the objective's parts before the step. `mine`: the batch of this replica.
  std::function<void(const ObjectiveParts& parts, Batch& mine, Booster& booster, Boosted& boosted)> prepare;
};

// Runs the teacher of a distillation case (its folder/teacher) on the batch of this replica, so that parts.teacher has
// its logits. Collective.
void run_teacher_of_case(const std::string& folder, const ObjectiveParts& parts, Batch& mine, Booster& booster);

struct ObjectiveLayout {
  Layout layout;
  int microbatches = 1;
  std::string recompute = "none";
  std::int64_t logit_limit = 0;  // bytes of logits up to which they are computed in full; 0: the default
};

struct ObjectiveStep {
  double loss = 0;
  std::int64_t counted = 0;  // samples, or tokens for distill
  RewardMetrics rewards;
  torch::Tensor scores;  // with a reference of pairs: log-probabilities by preference_scores()
  TensorDict gradients;
};

// Runs one forward and backward in float64.
ObjectiveStep run_objective(const ObjectiveCase& one, const ObjectiveLayout& how = {});

// A sequence of the case's inputs: the tokens of a sample, and whether each is counted. `which`: a prefix
// ("chosen_").
struct CaseText {
  torch::Tensor ids, counts;
};
CaseText case_text(const TensorDict& inputs, const std::string& which, std::int64_t sample);

// Expects (gtest) that the loss and the gradients match the file of expected values.
void expect_reference(const ObjectiveCase& one, const ObjectiveStep& step);
void expect_same_step(const ObjectiveStep& expected, const ObjectiveStep& actual, const std::string& label);

// Expects that the step is equal in several layouts and matches the reference.
void expect_equal_in_layouts(const ObjectiveCase& one);

}  // namespace gantry::testing
