// How well a model tells classes apart or marks spans, beside its loss.
#pragma once

#include <optional>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Sums over samples, so that every layout has the numbers of one rank. Classes: outputs "logits" [..., classes] against
// batch "labels" [...], of which kNotCounted does not count; the largest logit is the prediction, of equal ones the
// lowest. Spans: "logits" [B, S, 2] against "start_positions" and "end_positions" [B]; the prediction is the pair of a
// start and an end not before it with the largest sum, where attention_mask, if the batch has it, is set. A sample
// with a position outside the sequence does not count.
class HeldOutScores {
 public:
  struct Means {
    double accuracy = 0;  // the share of right predictions: classes, or spans with both ends
    // Classes: the mean of the F1 of each class that is a label or a prediction (macro). Spans: the mean over samples
    // of the F1 of the positions that both spans share.
    double f1 = 0;
  };

  // Of this replica's samples; nothing where the rank has no logits, which are whole on the others.
  void add(const TensorDict& outputs, const TensorDict& batch);
  // Over all replicas. Collective over the world.
  Means over(const ProcessGroupMesh& mesh) const;

 private:
  void add_classes(const torch::Tensor& logits, const torch::Tensor& labels);
  void add_spans(const torch::Tensor& logits, const TensorDict& batch);

  // Of each class how often it is right, predicted, and the label; of spans their right ones, the sum of their F1, and
  // their number.
  std::vector<double> right_, predicted_, labelled_;
  bool are_spans_ = false;
};

}  // namespace gantry
