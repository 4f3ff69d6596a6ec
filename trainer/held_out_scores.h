// Held-out scores in addition to the loss: accuracy, F1 and correlation of a model's predictions.
#pragma once

#include <optional>
#include <vector>

#include "gantry/booster/recipe.h"
#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/tensor_dict.h"
#include "gantry/trainer/moments.h"

namespace gantry {

// The scores are computed from sums and moments over samples, so every layout has the results of one rank. By
// kind of prediction:
// - Classes: outputs "logits" [..., classes] are compared with batch "labels" [...]. Labels equal to
//   kNotCounted are ignored. The prediction is the class with the largest logit, and the first of them if
//   several are equal.
// - Spans: "logits" [B, S, 2] are compared with "start_positions" and "end_positions" [B]. The prediction is
//   the pair start <= end with the largest sum of logits. Positions with attention_mask 0 are excluded if the
//   batch has a mask. A sample with a position outside the sequence does not count.
// - Several labels: a logit above 0 predicts its label. A sample is right if all its labels are right.
// - Numbers: Pearson's correlation of each output, and the mean over the outputs.
class HeldOutScores {
 public:
  struct Means {
    std::optional<double> accuracy = {};  // share of right predictions; a span is right if both ends are
    // Classes: macro F1, the mean over the classes that occur as a label or a prediction. Spans: the mean
    // over samples of the F1 of the overlap in positions.
    std::optional<double> f1 = {};
    std::optional<double> pearson = {};  // 0 if all predictions or all labels are equal
  };

  explicit HeldOutScores(Predictions predictions) : predictions_(predictions) {}

  // Adds this replica's samples. A rank without logits adds nothing; on the other ranks the logits are
  // unsharded.
  void add(const TensorDict& outputs, const TensorDict& batch);
  // Returns the scores over all replicas. Collective over the world.
  Means over(const ProcessGroupMesh& mesh) const;

 private:
  void add_classes(const torch::Tensor& logits, const torch::Tensor& labels);
  void add_spans(const torch::Tensor& logits, const TensorDict& batch);
  void add_several(const torch::Tensor& logits, const torch::Tensor& labels);
  void add_numbers(const torch::Tensor& logits, const torch::Tensor& labels);
  Means means_of(const double* sums, std::int64_t width) const;
  // The correlation over all ranks; `width`: the number of outputs.
  double pearson_over(const ProcessGroupMesh& mesh, std::int64_t width) const;
  // Adds a row of sums for each tensor [width].
  void add_rows(const std::vector<torch::Tensor>& rows);

  Predictions predictions_;
  // Rows of sums. Classes: per class the counts of right predictions, predictions and labels. Several labels:
  // also the number of right samples and the number of samples. Spans: the number of right spans, the sum of
  // F1, and the number of samples.
  std::vector<std::vector<double>> sums_;
  std::vector<Moments> moments_;  // numbers: those of predictions and labels, per output
};

}  // namespace gantry
