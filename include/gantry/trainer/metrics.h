// The numbers of a run, and who takes them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/expert_load.h"

namespace gantry {

// One training step, as a line of metrics.jsonl has it.
struct StepMetrics {
  std::int64_t step = 0;  // from 1
  double loss = 0;
  std::map<std::string, double> added_losses = {};  // the parts of it that stages added, by their names
  double grad_norm = 0;                             // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // counted in this step
  double step_seconds = 0;
  std::vector<std::int64_t> peak_memory_bytes;  // of tensors, by rank, since the run began
  double bubble = 0;                            // share of the pipeline's time that was idle
  double predicted_bubble = 0;                  // the same as simulated, with equal stages
  ExpertLoads experts = {};                     // of models with experts
  // Of the rows that ranks send to each other's experts and back: bytes that a rank hands in, and the time that its
  // thread is busy with them or waits, as means over the ranks. 0 where ranks share no experts.
  double all_to_all_bytes = 0, all_to_all_seconds = 0;
};

// Questions whose choices were scored by their likelihood, as lm-evaluation-harness counts them.
struct ChoiceScores {
  std::int64_t questions = 0;
  double accuracy = 0;             // the likeliest choice is the answer
  double normalised_accuracy = 0;  // the same by log-likelihood over a choice's characters
};

struct ContinuedPrompt {
  std::string prompt, text;  // and what the likeliest tokens make of it
};

// One evaluation on held-out data, after so many steps.
struct EvaluationMetrics {
  std::int64_t step = 0;
  double loss = 0;          // mean over every counted token
  std::int64_t tokens = 0;  // counted
  // Of a model that is trained on classes: the share of counted labels whose largest logit is the label's (of equal
  // ones the lowest counts), and the mean over the classes that are a label or a prediction of each one's F1 (macro).
  // Of one that marks spans: the share with both ends right, and the mean F1 of the positions that two spans share.
  std::optional<double> accuracy = std::nullopt, f1 = std::nullopt;
  std::optional<ChoiceScores> choices = std::nullopt;  // of evaluation.choices
  std::vector<ContinuedPrompt> samples = {};           // of evaluation.prompts, in their order
};

// Takes a run's numbers: a file, a page, a terminal. Called on rank 0 alone, in the order of the steps, an evaluation
// after its step. What it throws ends the run.
class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void write(const StepMetrics& metrics) = 0;
  virtual void write(const EvaluationMetrics& metrics) = 0;
};

}  // namespace gantry
