// Context parallelism (the axis cp): the part of a batch that a rank computes, and the gathering of outputs.
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

// The way in which a group of ranks shares the sequences of one model.
class SequenceParts {
 public:
  // Returns nothing if parallel.context is 1. Throws ConfigError, naming the policy, if the model needs full
  // sequences; see also choose_context(). Collective over the world, because it may make groups.
  static std::optional<SequenceParts> of(const ContextOptions& options, const ModelSplit& split,
                                         const std::string& policy, const ProcessGroupMesh& mesh, torch::Device device);
  // Throws ConfigError if outputs belong to single tokens and the criterion is not a sum over tokens.
  void require(const Criterion& criterion) const;

  // The number of tokens that this rank has of each sequence of a batch.
  std::int64_t tokens_here(const Batch& batch) const;
  // Replaces every entry [samples, tokens, ...] by this rank's part of it, and keeps full masks and documents
  // in Batch::full. Labels are aligned with their logits before that. Throws InputError if there are fewer
  // tokens than ranks.
  Batch shard(Batch batch, const Criterion& criterion) const;
  // The context for the forward of a microbatch of a sharded batch. The second overload is for one causal
  // text of `tokens` tokens, with masks and documents of full sequences as in nn::AttentionOptions.
  std::shared_ptr<const nn::SequencePart> part_of(const Batch& microbatch) const;
  std::shared_ptr<const nn::SequencePart> part_of(std::int64_t tokens, torch::Tensor keep,
                                                  torch::Tensor documents) const;
  // For a batch of full sequences whose texts are continued: own_read() replaces the encoder's input by this
  // rank's part of it, and part_of_read() returns the context of the encoder's forward. Requires one token
  // per rank or more.
  TensorDict own_read(TensorDict batch) const;
  std::shared_ptr<const nn::SequencePart> part_of_read(const TensorDict& batch) const;
  // Returns all tokens, in order, of an output [samples, tokens of this rank, ...]. Collective over the ranks
  // that share the sequence. Returns the output itself for a model that returns full outputs.
  torch::Tensor join(const torch::Tensor& part, std::int64_t tokens) const;
  // Whether this rank compares its outputs with labels. Full outputs are compared on one rank only.
  bool compares_outputs() const { return !split_.gathers_outputs || group_->rank() == 0; }

  // The criterion for the result of shard().
  Criterion sharded_criterion(const Criterion& criterion) const {
    return criterion && !split_.gathers_outputs ? criterion.of_part(*group_) : criterion;
  }
  ContextMethod method() const { return choice_.method; }
  // The shard of output sequences with this number of tokens.
  SequenceShard shard_of(std::int64_t tokens) const { return choice_.split(tokens, group_->size(), causal_); }
  // The shards of a batch of full sequences, one for each list of layers.
  std::vector<SequenceShard> shards_of(const TensorDict& batch, std::int64_t tokens_per_sample) const;
  ProcessGroup& group() const { return *group_; }  // the ranks that share sequences
  torch::Device device() const { return device_; }

 private:
  SequenceParts(ContextChoice choice, ContextSplit split, const ProcessGroupMesh& mesh, torch::Device device);
  std::vector<TokenStream> streams_of(const TensorDict& batch, std::int64_t tokens_per_sample) const;
  SequenceShard shard_of(const TokenStream& stream) const;
  std::shared_ptr<nn::SequencePart> part(const SequenceShard& shard, torch::Tensor keep, torch::Tensor documents) const;
  // `full` contains the masks and documents of full sequences.
  std::shared_ptr<nn::SequencePart> part(const TokenStream& stream, const TensorDict& full) const;

  ContextChoice choice_;
  ContextSplit split_;
  bool causal_;
  ProcessGroup* group_;
  // For ulysses_ring: the ranks that exchange heads, and the ranks with equal heads.
  std::shared_ptr<ProcessGroup> exchanging_, ring_;
  torch::Device device_;
};

}  // namespace gantry
