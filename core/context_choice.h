// The method by which the ranks that share a sequence attend to the tokens of the other ranks.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/core/config.h"
#include "gantry/core/layer_work.h"
#include "gantry/core/sequence_shard.h"

namespace gantry {

enum class ContextMethod {
  kAllGather,   // each rank gathers all keys and values (Llama 3, arXiv 2407.21783)
  kRing,        // keys and values pass from rank to rank; results merge by log-sum-exp (Liu et al., arXiv 2310.01889)
  kUlysses,     // ranks exchange tokens for heads, and back after attention (Jacobs et al., arXiv 2309.14509)
  kUlyssesRing  // groups of adjacent ranks exchange heads; the groups form rings (Fang and Zhao, arXiv 2405.07719)
};
const char* name_of(ContextMethod method);  // the name in parallel.context_method: "all_gather"

struct ContextChoice {
  ContextMethod method = ContextMethod::kAllGather;
  std::string reason;  // why it was chosen, for messages
  int exchanging = 1;  // kUlyssesRing: number of ranks that exchange heads, more than 1 and fewer than all
  // The sharding of the sequence for this method. `causal`: tokens do not attend to later ones.
  SequenceShard split(std::int64_t tokens, int ranks, bool causal = true) const;
};

// Inputs of `auto` in addition to the heads.
struct ContextPlace {
  std::int64_t tokens = 0;  // tokens per sequence; 0: unknown
  int ranks_of_host = 0;    // number of adjacent ranks on one host that share a sequence; 0: all of them
};

// The method that parallel.context_method names, or the choice of `auto` for the layers with the fewest heads. `auto`
// exchanges heads if the ranks divide them, within hosts if the ranks are on several hosts. Otherwise it chooses a
// ring, or all_gather if a rank has too few tokens to hide the communication of a ring. Throws ConfigError if more
// ranks exchange heads than a tensor-parallel rank has heads, or if parallel.ulysses does not divide the ranks.
ContextChoice choose_context(const ParallelConfig& parallel, const AttentionHeads& heads,
                             const ContextPlace& place = {});

// Number of elements that one rank of `ranks` sends in the forward pass of one layer, for one sample of `tokens` tokens
// and the heads of one tensor-parallel rank. Keys and values have the same size. If the sizes differ by rank, the
// largest number.
std::int64_t context_elements(const ContextChoice& choice, std::int64_t tokens, int ranks, const AttentionHeads& heads,
                              std::int64_t head_size);

}  // namespace gantry
