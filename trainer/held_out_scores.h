// How well a model tells classes apart or marks spans, beside its loss.
#pragma once

#include <optional>
#include <vector>

#include "gantry/booster/recipe.h"
#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Sums over samples, so that every layout has the numbers of one rank. Classes: outputs "logits" [..., classes] against
// batch "labels" [...], of which kNotCounted does not count; the largest logit is the prediction, of equal ones the
// lowest. Spans: "logits" [B, S, 2] against "start_positions" and "end_positions" [B]; the prediction is the pair of a
// start and an end not before it with the largest sum, where attention_mask, if the batch has it, is set. A sample
// with a position outside the sequence does not count. Several labels: a logit above 0 predicts its label; samples are
// right whose labels all are. Numbers: Pearson's correlation for each of the outputs, and their mean.
class HeldOutScores {
 public:
  struct Means {
    std::optional<double> accuracy = {};  // the share of right predictions: classes, or spans with both ends
    // Classes: the mean of the F1 of each class that is a label or a prediction (macro). Spans: the mean over samples
    // of the F1 of the positions that both spans share.
    std::optional<double> f1 = {};
    std::optional<double> pearson = {};  // 0 where predictions or labels are all equal
  };

  explicit HeldOutScores(Predictions predictions) : predictions_(predictions) {}

  // Of this replica's samples; nothing where the rank has no logits, which are whole on the others.
  void add(const TensorDict& outputs, const TensorDict& batch);
  // Over all replicas. Collective over the world.
  Means over(const ProcessGroupMesh& mesh) const;

 private:
  void add_classes(const torch::Tensor& logits, const torch::Tensor& labels);
  void add_spans(const torch::Tensor& logits, const TensorDict& batch);
  void add_several(const torch::Tensor& logits, const torch::Tensor& labels);
  void add_numbers(const torch::Tensor& logits, const torch::Tensor& labels);
  Means means_of(const double* sums, std::int64_t width) const;
  // Adds a row of sums for each tensor [width].
  void add_rows(const std::vector<torch::Tensor>& rows);

  Predictions predictions_;
  // Classes: for each the number of times that it is right, predicted, and the label; for several labels also the
  // number of samples that are right, and of samples. Spans: the number of right ones, the sum of their F1, and their
  // number. Numbers: for each output their count, and the sums of predictions, labels, their squares and their
  // products.
  std::vector<std::vector<double>> sums_;
};

}  // namespace gantry
