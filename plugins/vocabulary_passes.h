// The passes of an embedding and a head whose rows are sharded over all ranks of a pipeline
// (shared_vocabulary.h), in one step: computation and communication. Yeung et al., Balancing Pipeline
// Parallelism with Vocabulary Parallelism (arXiv 2411.05288), both algorithms.
#pragma once

#include <optional>
#include <vector>

#include "gantry/nn/split_head.h"
#include "gantry/plugins/criterion.h"
#include "gantry/plugins/shared_vocabulary.h"
#include "gantry/schedule/schedule.h"
#include "gantry/tensors/batch.h"

namespace gantry {

// The passes of one step. A pass of a microbatch is called once. The order is that of the schedule, which is
// the same on all ranks for each kind of pass. After give_up() passes compute nothing, and the ranks exchange
// zeros.
class VocabularyPasses {
 public:
  struct Options {
    double seed = 1;              // gradient of the loss's sum
    bool needs_gradients = true;  // false: there are no backward passes
    bool keeps_outputs = false;
    bool is_aligned = false;  // labels are already aligned with their logits
    std::optional<LabelledLoss> loss = {};
    std::int64_t logit_limit = 0;  // largest number of bytes of a tensor of logits, if outputs are not kept
  };
  // `schedule` defines the order of the passes. Microbatches are kept by reference.
  VocabularyPasses(const SharedVocabulary& shared, const std::vector<Batch>& microbatches,
                   const schedule::Schedule& schedule, Options options);

  void give_up() { is_aborted_ = true; }
  // IF, IB, S, C or T.
  void run(schedule::ActionKind pass, int microbatch);

  // On the first stage's rank: embedded() returns the embeddings of its tokens, as a leaf, once all ranks
  // have run IF. give_embedding_gradient() sends the gradient that the backward has computed for the leaf.
  torch::Tensor embedded(int microbatch);
  void give_embedding_gradient(int microbatch);
  // On the last stage's rank: give_hidden() sends the result of the forward, before S. hidden_gradient()
  // returns the gradient of that result once all ranks have run C, or T if there is no C.
  void give_hidden(int microbatch, const torch::Tensor& hidden);
  torch::Tensor hidden_gradient(int microbatch);

  // After the step, on the last stage's ranks: sums of losses, and counts, for each microbatch with a loss.
  // Waits for them.
  struct Losses {
    std::vector<torch::Tensor> sums, counts;
  };
  Losses losses();
  // The full outputs of all microbatches. Collective over pp and tp.
  TensorDict outputs();

 private:
  struct Sent {
    torch::Tensor tensor;
    Work work = {};  // declared after the tensor, so that it is destroyed first
  };
  struct OfMicrobatch {
    Sent embedded, embedding_gradient, hidden, statistics, hidden_gradient;
    torch::Tensor leaf;  // on the first stage's rank
    nn::HeadShare share;
    nn::HeadTotals totals;  // set once they are known
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
  std::vector<Sent> under_way_;  // messages that only other ranks need
  bool is_aborted_ = false;
};

}  // namespace gantry
