// Where ranks share sequences (the axis cp): which part of a batch a rank computes, and how outputs become whole again.
#pragma once

#include <memory>
#include <optional>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/config.h"
#include "gantry/core/config/context_choice.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/plugins/criterion.h"
#include "gantry/plugins/parallel_options.h"
#include "gantry/policies/policy.h"
#include "gantry/tensors/batch.h"

namespace gantry {

// One model's way to share sequences over a group of ranks.
class SequenceParts {
 public:
  // Absent where parallel.context is 1. ConfigError, which names the policy, where the model needs full sequences, and
  // as choose_context. Collective over the world: it may make groups.
  static std::optional<SequenceParts> of(const ContextOptions& options, const ModelSplit& split,
                                         const std::string& policy, const ProcessGroupMesh& mesh, torch::Device device);
  // Throws ConfigError if outputs are of single tokens and the criterion is not a sum over tokens.
  void require(const Criterion& criterion) const;

  // How many tokens of a batch's sequences this rank has.
  std::int64_t tokens_here(const Batch& batch) const;
  // Every entry [samples, tokens, ...] becomes this rank's part of it, masks and documents are kept whole beside.
  // Labels are aligned with what they are compared with, and positions in documents counted, before that. InputError
  // where there are fewer tokens than ranks.
  Batch shard(Batch batch, const Criterion& criterion) const;
  // The context of a forward of a microbatch of a sharded batch; and for one causal text of that many tokens, with the
  // masks and documents of full sequences as nn::AttentionOptions has them.
  std::shared_ptr<const nn::SequencePart> part_of(const Batch& microbatch) const;
  std::shared_ptr<const nn::SequencePart> part_of(std::int64_t tokens, torch::Tensor keep,
                                                  torch::Tensor documents) const;
  // Of what an encoder reads of a batch of full sequences, beside texts that are continued: the batch with this rank's
  // part of it; and what a forward knows of it. At least a token a rank.
  TensorDict own_read(TensorDict batch) const;
  std::shared_ptr<const nn::SequencePart> part_of_read(const TensorDict& batch) const;
  // Of an output [samples, tokens here, ...]: all tokens, in order. Collective over the ranks that share the sequence.
  // Returns the output itself for a model that returns full outputs.
  torch::Tensor join(const torch::Tensor& part, std::int64_t tokens) const;
  // Whether this rank's outputs are compared with labels: of full ones one rank's are.
  bool compares_outputs() const { return !split_.gathers_outputs || group_->rank() == 0; }

  // The criterion for the result of shard().
  Criterion sharded_criterion(const Criterion& criterion) const {
    return criterion && !split_.gathers_outputs ? criterion.of_part(*group_) : criterion;
  }
  ContextMethod method() const { return choice_.method; }
  // The shard of output sequences of that many tokens; and
  SequenceShard shard_of(std::int64_t tokens) const { return choice_.split(tokens, group_->size(), causal_); }
  // how those of a batch of full ones are: for each list of layers.
  std::vector<SequenceShard> shards_of(const TensorDict& batch, std::int64_t tokens_per_sample) const;
  ProcessGroup& group() const { return *group_; }  // of the ranks that share sequences
  torch::Device device() const { return device_; }

 private:
  SequenceParts(ContextChoice choice, ContextSplit split, const ProcessGroupMesh& mesh, torch::Device device);
  std::vector<TokenStream> streams_of(const TensorDict& batch, std::int64_t tokens_per_sample) const;
  SequenceShard shard_of(const TokenStream& stream) const;
  std::shared_ptr<nn::SequencePart> part(const SequenceShard& shard, torch::Tensor keep, torch::Tensor documents) const;
  // With the masks and documents of full sequences in `full`.
  std::shared_ptr<nn::SequencePart> part(const TokenStream& stream, const TensorDict& full) const;

  ContextChoice choice_;
  ContextSplit split_;
  bool causal_;
  ProcessGroup* group_;
  std::shared_ptr<ProcessGroup> exchanging_, ring_;  // of ulysses_ring: ranks that exchange heads; those of equal heads
  torch::Device device_;
};

}  // namespace gantry
