// The passes of an embedding and a head whose rows are sharded over all ranks of a pipeline (shared_vocabulary.h), in
// one step: computations and messages. Yeung et al., Balancing Pipeline Parallelism with Vocabulary Parallelism (arXiv
// 2411.05288), both algorithms.
#pragma once

#include <optional>
#include <vector>

#include "gantry/nn/split_head.h"
#include "gantry/plugins/criterion.h"
#include "gantry/plugins/shared_vocabulary.h"
#include "gantry/schedule/schedule.h"
#include "gantry/tensors/batch.h"

namespace gantry {

// Of one step. A pass of a microbatch is called once, in the order of the schedule, which is the same on all ranks for
// each kind. After give_up() passes compute nothing, and the ranks exchange zeros.
class VocabularyPasses {
 public:
  struct Options {
    double seed = 1;              // of the loss's sum
    bool needs_gradients = true;  // else there are no backward passes
    bool keeps_outputs = false;
    bool is_aligned = false;  // labels stand beside their logits already
    std::optional<LabelledLoss> loss = {};
    std::int64_t logit_limit = 0;  // largest number of bytes of a tensor of logits, if outputs are not kept
  };
  // `schedule`: says in which order the passes come. Microbatches are kept by reference.
  VocabularyPasses(const SharedVocabulary& shared, const std::vector<Batch>& microbatches,
                   const schedule::Schedule& schedule, Options options);

  void give_up() { is_aborted_ = true; }
  // IF, IB, S, C or T.
  void run(schedule::ActionKind pass, int microbatch);

  // On the first stage's rank: the rows of its tokens, a leaf; needs all ranks' IF. And what its backward gave it.
  torch::Tensor embedded(int microbatch);
  void give_embedding_gradient(int microbatch);
  // On the last stage's rank: what its forward made, before S; and the gradient of that, after all ranks' C, or T
  // where there is no C.
  void give_hidden(int microbatch, const torch::Tensor& hidden);
  torch::Tensor hidden_gradient(int microbatch);

  // After the step, on the last stage's ranks: sums of losses and counts, of each microbatch that has a loss. Waits.
  struct Losses {
    std::vector<torch::Tensor> sums, counts;
  };
  Losses losses();
  // Of all microbatches, whole. Collective over pp and tp.
  TensorDict outputs();

 private:
  struct Sent {
    torch::Tensor tensor;
    Work work = {};  // after the tensor, so that it ends first
  };
  struct OfMicrobatch {
    Sent embedded, embedding_gradient, hidden, statistics, hidden_gradient;
    torch::Tensor leaf;  // on the first stage's rank
    nn::HeadShare share;
    nn::HeadTotals totals;  // once they are known
    torch::Tensor logits;   // kept
    torch::Tensor sum, count;
  };
  bool is_first() const;
  bool is_last() const;
  std::vector<std::int64_t> hidden_shape(int microbatch) const;
  torch::Tensor empty_hidden(int microbatch) const;
  torch::Tensor own_tokens(const torch::Tensor& full) const;
  torch::Tensor full_sequence(const torch::Tensor& part, int microbatch) const;
  torch::Tensor tokens_of(int microbatch) const;
  torch::Tensor labels_of(int microbatch);
  void await_hidden(int microbatch);
  void await_embedding_gradient(int microbatch);
  void embed(int microbatch);
  void embed_backward(int microbatch);
  void head(int microbatch);
  void head_combine(int microbatch);
  void head_backward(int microbatch);
  void send_hidden_gradient(int microbatch, const torch::Tensor& part);
  void await_totals(int microbatch);

  const SharedVocabulary& shared_;
  const std::vector<Batch>& microbatches_;
  const Options options_;
  const nn::SplitHeadOptions head_options_;
  const bool combines_;                            // algorithm 2
  std::vector<int> head_order_, embedding_order_;  // microbatches, by S and by IB
  std::vector<OfMicrobatch> of_;
  std::vector<Sent> under_way_;  // that other ranks alone need
  bool is_aborted_ = false;
};

}  // namespace gantry
