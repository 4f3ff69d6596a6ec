// The metrics of a run, and the interface of their sinks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/expert_load.h"
#include "gantry/core/reward_metrics.h"

namespace gantry {

// The metrics of one training step: a line of metrics.jsonl.
struct StepMetrics {
  std::int64_t step = 0;  // counted from 1
  double loss = 0;
  std::map<std::string, double> added_losses = {};  // name -> part of the loss that stages added
  double grad_norm = 0;                             // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // number of counted tokens in this step, or of pairs with train.objective
  std::int64_t images = 0;  // number of images in this step
  int replicas = 0;         // that computed the step, in an elastic job; else 0
  std::optional<RewardMetrics> rewards = std::nullopt;  // only with train.objective
  double step_seconds = 0;
  // Peak memory of tensors, per rank, since the start of the run.
  std::vector<std::int64_t> peak_memory_bytes;
  double bubble = 0;            // fraction of the pipeline's time that was idle
  double predicted_bubble = 0;  // the bubble of a simulation with equal stages
  ExpertLoads experts = {};     // empty for models without experts
  // Dispatch and combine of tokens between expert-parallel ranks, as means over the ranks: bytes that a rank sends, and
  // seconds in which its thread is busy with them or waits. 0 without expert parallelism.
  double all_to_all_bytes = 0, all_to_all_seconds = 0;
};

// Results of multiple-choice questions that are scored by likelihood, as in lm-evaluation-harness.
struct ChoiceScores {
  std::int64_t questions = 0;
  double accuracy = 0;             // fraction of questions whose most likely choice is the answer
  double normalised_accuracy = 0;  // the same with the log-likelihood divided by the number of characters
};

struct ContinuedPrompt {
  std::string prompt, text;  // the prompt, and its greedy continuation
};

// The metrics of one evaluation on held-out data, after `step` steps.
struct EvaluationMetrics {
  std::int64_t step = 0;
  double loss = 0;          // mean over all counted tokens
  std::int64_t tokens = 0;  // number of counted tokens
  // Quality of predictions. For classification: `accuracy` is the fraction of counted labels whose logit is the largest
  // (the lowest class wins ties), `f1` is the macro F1 over the classes that occur as a label or a prediction. For
  // spans: the fraction with both ends correct, and the mean F1 of the common positions. For several labels per sample:
  // the fraction of samples whose labels are all correct, and the macro F1. For numbers: `pearson` is the correlation
  // of predictions and labels, and the loss is their mean squared error.
  std::optional<double> accuracy = std::nullopt, f1 = std::nullopt, pearson = std::nullopt;
  std::optional<RewardMetrics> rewards = std::nullopt;  // only with preferences
  std::optional<ChoiceScores> choices = std::nullopt;   // results of evaluation.choices
  std::vector<ContinuedPrompt> samples = {};            // continuations of evaluation.prompts, in order
};

// Receives the metrics of a run: a file, a web page, a terminal. Called on rank 0 only, in the order of the steps; an
// evaluation follows its step. An exception that it throws ends the run; after a ResourceError, the run is saved first.
class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void write(const StepMetrics& metrics) = 0;
  virtual void write(const EvaluationMetrics& metrics) = 0;
};

}  // namespace gantry
