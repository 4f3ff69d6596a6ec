// Context-parallel generation (axis cp). Each rank computes its shard of the prompts, as in training, and all
// ranks compute the new tokens. The keys and values of token p of a text are cached on the rank p modulo the
// number of ranks. The caches of all ranks are therefore equally large, also for tokens in a sliding window.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gantry/nn/sequence_part.h"
#include "gantry/plugins/sequence_parts.h"

namespace gantry::generation {

class TextParts {
 public:
  // `prompt`: tokens of the prompts, including padding. If the model has an encoder (`reads_encoder`), the
  // encoder's input is sharded, and all ranks compute the few tokens that texts begin with. `parts` must
  // outlive this object.
  TextParts(const SequenceParts& parts, std::int64_t prompt, bool reads_encoder);

  // True if each rank has at least one token of the prompts. Otherwise all ranks compute all prompt tokens,
  // like the new tokens.
  bool shards_prompts() const { return is_sharded_; }
  // Returns the rank that has the last tokens of the prompts; 0 if prompts are not sharded.
  int rank_of_last() const;
  // Returns this rank's shard of [sequences, tokens of the prompts]. Only if prompts are sharded.
  torch::Tensor own_of(const torch::Tensor& prompts) const;
  // Returns the indices of the tokens that this rank caches for texts of `tokens` tokens, ascending.
  std::vector<std::int64_t> kept_of(std::int64_t tokens) const;

  // Return the sequence context of a forward: for this rank's shard of the prompts, and for tokens [first,
  // end), which all ranks compute. `keep`: bool [texts, tokens so far], false for masked tokens; undefined:
  // none is masked.
  std::shared_ptr<const nn::SequencePart> of_prompts(const torch::Tensor& keep) const;
  std::shared_ptr<const nn::SequencePart> of_new(std::int64_t first, std::int64_t end, const torch::Tensor& keep) const;

  // Sets the unsharded input of the encoder, so that of_new() includes this rank's shard of it.
  void set_read(const TensorDict& entries);
  // Returns this rank's shard of the encoder's input.
  TensorDict own_read(TensorDict entries) const { return parts_.own_read(std::move(entries)); }
  // Replaces the mask of the encoder's input, after the rows of the texts have changed; undefined: no mask.
  void set_mask_of_read(const torch::Tensor& mask);

 private:
  const SequenceParts& parts_;
  std::shared_ptr<const nn::SequencePart> read_;  // null before set_read()
  SequenceShard shard_;                           // the shard of the prompts
  bool is_sharded_;
};

}  // namespace gantry::generation
