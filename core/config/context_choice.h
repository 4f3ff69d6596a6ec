// The method by which the ranks that share a sequence attend to the tokens of the other ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gantry/core/config.h"
#include "gantry/core/context_method.h"
#include "gantry/core/sharding/sequence_shard.h"

namespace gantry {

// The method that a program or a configuration requests.
struct ContextRequest {
  int ranks = 1;                        // that share a sequence
  int tensor = 1;                       // over which heads are sharded
  std::optional<ContextMethod> method;  // not set: auto
  int ulysses = 0;                      // kUlyssesRing: number of ranks that exchange heads; 0: auto
};
// The same of a configuration. Throws ConfigError if it names no method.
ContextRequest context_request(const ParallelConfig& parallel);
// The method with this name in parallel.context_method. Throws ConfigError for an unknown name.
std::optional<ContextMethod> context_method_of(const std::string& name);

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

// The requested method, or the choice of `auto` for the layers with the fewest heads. `auto`
// exchanges heads if the ranks divide them, within hosts if the ranks are on several hosts. Otherwise it chooses a
// ring, or all_gather if a rank has too few tokens to hide the communication of a ring. If no layer has attention
// (`heads` is 0), methods that exchange heads and `auto` are all_gather, whose shards are contiguous. Throws
// ConfigError if more ranks exchange heads than a tensor-parallel rank has heads, or if parallel.ulysses does not
// divide the ranks.
ContextChoice choose_context(const ContextRequest& request, const AttentionHeads& heads,
                             const ContextPlace& place = {});

// Number of elements that one rank of `ranks` sends in the forward pass of one layer, for one sample of `tokens` tokens
// and the heads of one tensor-parallel rank. Keys and values have the same size. If the sizes differ by rank, the
// largest number.
std::int64_t context_elements(const ContextChoice& choice, std::int64_t tokens, int ranks, const AttentionHeads& heads,
                              std::int64_t head_size);

}  // namespace gantry
