// Texts that ranks share (the axis cp) while they are continued. Each rank computes a part of the prompts, as it would
// of a batch, and all ranks compute the tokens that follow. The keys and values of token p of a text are kept by the
// rank p modulo their number: so each keeps as much as the others, of a window too.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gantry/nn/sequence_part.h"
#include "gantry/plugins/sequence_parts.h"

namespace gantry::generation {

class TextParts {
 public:
  // For prompts of that many tokens, padding included. If the model has an encoder, the encoder's input is sharded, and
  // the tokens that texts begin with are few: all ranks compute them. `parts` must outlive it.
  TextParts(const SequenceParts& parts, std::int64_t prompt, bool reads_encoder);

  // True where each rank has a token of the prompts. Else all ranks compute all of them, as they do what follows.
  bool shards_prompts() const { return is_sharded_; }
  // The rank that has the prompts' last tokens.
  int rank_of_last() const;
  // This rank's part of [sequences, tokens of the prompts], if prompts are sharded.
  torch::Tensor own_of(const torch::Tensor& prompts) const;
  // The places of what this rank keeps of texts of so many tokens, ascending.
  std::vector<std::int64_t> kept_of(std::int64_t tokens) const;

  // What a forward knows: of its part of the prompts, and of tokens [first, end) that all ranks compute. `keep`: bool
  // [texts, tokens so far], which of them count; undefined: all.
  std::shared_ptr<const nn::SequencePart> of_prompts(const torch::Tensor& keep) const;
  std::shared_ptr<const nn::SequencePart> of_new(std::int64_t first, std::int64_t end, const torch::Tensor& keep) const;

  // An encoder reads these, whole: of_new() then knows of this rank's part; and what it is given of them.
  void set_read(const TensorDict& entries);
  TensorDict own_read(TensorDict entries) const { return parts_.own_read(std::move(entries)); }
  // Texts go on with these rows of what they read, by its mask; undefined: it has none.
  void set_mask_of_read(const torch::Tensor& mask);

 private:
  const SequenceParts& parts_;
  std::shared_ptr<const nn::SequencePart> read_;  // null: no encoder, or not yet
  SequenceShard shard_;                           // the shard of the prompts
  bool is_sharded_;
};

}  // namespace gantry::generation
