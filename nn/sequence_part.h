// The part of a sequence that a rank computes, where ranks share sequences (the axis cp).
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

// Of texts that ranks share and continue: what a rank has in its caches behind a forward of new tokens that all of them
// compute alike.
struct CachedTokens {
  std::int64_t first = 0;            // the place of the first new token
  std::vector<std::int64_t> places;  // ascending: those of its earlier tokens, and of the new ones that it keeps
  torch::Tensor kept;                // int64: which of the new tokens it keeps
  torch::Tensor columns;             // int64 [places], on the device
  torch::Tensor keep;                // bool [samples, places]: which of them count; undefined: all
};

// One microbatch's. Masks and documents are small compared with activations: each rank has those of full sequences, and
// so knows what any token may see without asking.
struct SequencePart {
  SequenceShard shard;
  ContextMethod method = ContextMethod::kAllGather;
  ProcessGroup* group = nullptr;  // of the ranks that share the sequence; not owned
  // Of those among them that exchange heads, by Ulysses and by ulysses_ring; not owned.
  ProcessGroup* exchanging = nullptr;
  // Of ulysses_ring: the part that they have together, in the ring of those with equal heads.
  std::shared_ptr<const SequencePart> together;
  torch::Tensor positions;        // int64 [1, tokens here]: their places in the sequence
  torch::Tensor keep, documents;  // [samples, tokens] of full sequences, see AttentionOptions
  torch::Tensor in_documents;     // int64 [samples, tokens here]: places in their documents; undefined: there are none
  std::shared_ptr<const CachedTokens> cached;  // null: ranks have parts of these tokens, also where a cache takes them
  std::string prefix;                          // of the names of the tokens' entries in a batch: "decoder_"
  // Of a model with several lists of layers, whose tokens have lengths of their own: each list's part. This one is then
  // the last list's.
  std::vector<std::shared_ptr<const SequencePart>> streams;
  // Cross-attention: whose keys these tokens see, with masks of those; null: their own.
  std::shared_ptr<const SequencePart> read;

  const SequencePart& keys() const { return read ? *read : *this; }
  std::vector<Range> runs() const { return shard.runs(group->rank()); }
  // How many tokens each of the ranks that exchange heads has.
  std::vector<std::int64_t> sizes_of_exchanging() const;
};

// Of an entry [samples, tokens here, ...] of every rank: all tokens, in order. Collective over the ranks that share the
// sequence.
torch::Tensor join_parts(const torch::Tensor& entry, ProcessGroup& group, const SequenceShard& shard);

// The same for activations that all ranks go on with: gradients of a rank's own tokens are summed over the ranks.
torch::Tensor joined(const torch::Tensor& hidden, const SequencePart& part);

// Of activations [samples, tokens here, ...] of every rank those of the first token, [samples, 1, ...].
torch::Tensor first_token(const torch::Tensor& hidden, const SequencePart& part);

// This rank's tokens of activations [samples, tokens, ...] that all ranks have made; `part` null: all.
torch::Tensor own_tokens(const torch::Tensor& hidden, const std::shared_ptr<const SequencePart>& part);

// `part` with its queries reading the tokens of `of`; null where ranks have full sequences.
std::shared_ptr<const SequencePart> reading(const std::shared_ptr<const SequencePart>& part,
                                            const std::shared_ptr<const SequencePart>& of);

// Of tokens in their documents, which are runs of one number: [samples, tokens].
torch::Tensor positions_in(const torch::Tensor& documents);

// What `make` gives for each run of tokens [begin, begin + like.size(dim)) of those that this rank has of a sequence,
// one after the other along `dim`: it is given the run's part of `like` and where that begins in the sequence.
torch::Tensor run_by_run(const torch::Tensor& like, std::int64_t dim, const SequencePart& part, std::int64_t begin,
                         const std::function<torch::Tensor(const torch::Tensor& piece, std::int64_t place)>& make);

// The mask of dropout for tokens [begin, begin + count) of those that this rank has of a sequence, along `dim` of
// `like`: as of one tensor over all tokens. `offset` and `global` as dropout_mask has them; the entries of `dim` are
// not used.
torch::Tensor dropout_mask_of_part(const torch::Tensor& like, double p, const std::string& name,
                                   const RandomContext& context, std::vector<std::int64_t> offset,
                                   std::vector<std::int64_t> global, std::int64_t dim, const SequencePart& part,
                                   std::int64_t begin = 0);

}  // namespace gantry::nn
