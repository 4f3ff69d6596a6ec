// By which method the ranks that share a sequence attend to each other's tokens.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/core/config.h"
#include "gantry/core/layer_work.h"
#include "gantry/core/sequence_shard.h"

namespace gantry {

// kAllGather: each rank gathers all keys and values (Llama 3, arXiv 2407.21783). kRing: keys and values travel from
// rank to rank, and results merge by their log-sum-exp (Liu et al., arXiv 2310.01889). kUlysses: ranks exchange heads
// for tokens before attention, and back behind it (Jacobs et al., arXiv 2309.14509). kUlyssesRing: adjacent ranks
// exchange heads, and those that then have equal heads are a ring (Fang and Zhao, arXiv 2405.07719).
enum class ContextMethod { kAllGather, kRing, kUlysses, kUlyssesRing };
const char* name_of(ContextMethod method);  // "all_gather", as parallel.context_method has it

struct ContextChoice {
  ContextMethod method = ContextMethod::kAllGather;
  std::string reason;  // why it was chosen
  int exchanging = 1;  // of kUlyssesRing: so many adjacent ranks exchange heads; more than 1 and fewer than all
  // The cut that the method computes with; `causal`: of tokens that see none behind them.
  SequenceShard cut(std::int64_t tokens, int ranks, bool causal = true) const;
};

// What `auto` looks at beside heads.
struct ContextPlace {
  std::int64_t tokens = 0;  // of a sequence; 0: not known
  int ranks_of_host = 0;    // adjacent ranks of those that share a sequence, on one host; 0: all of them
};

// What parallel.context_method says, or what `auto` chooses for layers with the fewest heads of `heads`: an exchange of
// heads where the ranks divide them, within hosts where links are slow between them; else a ring, or gathered keys
// where a rank has too few tokens for a ring to compute while they travel. ConfigError where more ranks exchange heads
// than a tensor-parallel rank has, and where parallel.ulysses does not divide the ranks.
ContextChoice choose_context(const ParallelConfig& parallel, const AttentionHeads& heads,
                             const ContextPlace& place = {});

// Elements that a rank of `ranks` sends for one layer's forward over `tokens` tokens of one sample, with the heads of
// one tensor-parallel rank: keys, and values of the same size. Where nothing divides, of the rank that sends most.
std::int64_t context_elements(const ContextChoice& choice, std::int64_t tokens, int ranks, const AttentionHeads& heads,
                              std::int64_t head_size);

}  // namespace gantry
