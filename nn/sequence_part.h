// The part of a sequence that a rank computes if ranks share sequences (the axis cp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/config/context_choice.h"
#include "gantry/tensors/random_context.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// For texts that ranks share and continue: the tokens in a rank's caches after a forward of new tokens. All
// ranks compute the new tokens identically.
struct CachedTokens {
  std::int64_t first = 0;            // the position of the first new token
  std::vector<std::int64_t> places;  // ascending positions of its earlier tokens and of the new ones it keeps
  torch::Tensor kept;                // int64: the indices of the new tokens that it keeps
  torch::Tensor columns;             // int64 [places]: `places` on the device
  torch::Tensor keep;                // bool [samples, places]: whether they count; undefined: all do
};

// The part of one microbatch. Masks and documents are small compared with activations. So each rank has those
// of full sequences, and needs no communication to decide which keys a token sees.
struct SequencePart {
  SequenceShard shard;
  ContextMethod method = ContextMethod::kAllGather;
  ProcessGroup* group = nullptr;  // the ranks that share the sequence; not owned
  // The ranks of `group` that exchange heads with Ulysses and ulysses_ring; not owned.
  ProcessGroup* exchanging = nullptr;
  // For ulysses_ring: the part that the exchanging ranks hold together, in the ring of the ranks with the
  // same heads.
  std::shared_ptr<const SequencePart> together;
  torch::Tensor positions;        // int64 [1, tokens here]: positions in the sequence
  torch::Tensor keep, documents;  // [samples, tokens] of full sequences, see AttentionOptions
  torch::Tensor in_documents;     // int64 [samples, tokens here]: positions in documents; undefined: none
  // Null: ranks have parts of these tokens, even if a cache stores them.
  std::shared_ptr<const CachedTokens> cached;
  // The beginning of the names of these tokens' entries in a batch, such as "decoder_".
  std::string prefix;
  // For a model with several lists of layers, whose tokens have different lengths: the part of each list.
  // This object is then the part of the last list.
  std::vector<std::shared_ptr<const SequencePart>> streams;
  // Cross-attention: the part whose keys these tokens see, with its masks; null: this part.
  std::shared_ptr<const SequencePart> read;

  const SequencePart& keys() const { return read ? *read : *this; }
  std::vector<Range> runs() const { return shard.runs(group->rank()); }
  // The number of tokens of each rank that exchanges heads.
  std::vector<std::int64_t> sizes_of_exchanging() const;
};

// Gathers all tokens, in order, from an entry [samples, tokens here, ...] of every rank. Collective over the
// ranks that share the sequence.
torch::Tensor join_parts(const torch::Tensor& entry, ProcessGroup& group, const SequenceShard& shard);

// The same for activations that all ranks use afterwards: the gradients of a rank's tokens are summed over
// the ranks.
torch::Tensor joined(const torch::Tensor& hidden, const SequencePart& part);

// Returns the activations of the first token, [samples, 1, ...], from [samples, tokens here, ...] of every
// rank.
torch::Tensor first_token(const torch::Tensor& hidden, const SequencePart& part);

// This rank's tokens of activations [samples, tokens, ...] that all ranks have computed; `part` null: all
// tokens.
torch::Tensor own_tokens(const torch::Tensor& hidden, const std::shared_ptr<const SequencePart>& part);

// `part`, with queries that read the tokens of `of`. Null if ranks have full sequences.
std::shared_ptr<const SequencePart> reading(const std::shared_ptr<const SequencePart>& part,
                                            const std::shared_ptr<const SequencePart>& of);

// The positions of tokens in their documents, [samples, tokens]. A document is a run of equal numbers.
torch::Tensor positions_in(const torch::Tensor& documents);

// Calls `make` for each run of positions in this rank's tokens [begin, begin + like.size(dim)) of a sequence,
// and joins the results along `dim`. `make` gets the run's part of `like` and the position where the run
// begins in the sequence.
torch::Tensor run_by_run(const torch::Tensor& like, std::int64_t dim, const SequencePart& part, std::int64_t begin,
                         const std::function<torch::Tensor(const torch::Tensor& piece, std::int64_t place)>& make);

// The dropout mask for this rank's tokens [begin, begin + like.size(dim)) of a sequence, along `dim` of
// `like`. It is the same as for one tensor over all tokens. `offset` and `global`: see dropout_mask(); their
// entries of `dim` are not used.
torch::Tensor dropout_mask_of_part(const torch::Tensor& like, double p, const std::string& name,
                                   const RandomContext& context, std::vector<std::int64_t> offset,
                                   std::vector<std::int64_t> global, std::int64_t dim, const SequencePart& part,
                                   std::int64_t begin = 0);

}  // namespace gantry::nn
