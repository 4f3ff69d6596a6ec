// The methods by which the ranks that share a sequence attend to the tokens of the other ranks.
#pragma once

namespace gantry {

enum class ContextMethod {
  kAllGather,   // each rank gathers all keys and values (Llama 3, arXiv 2407.21783)
  kRing,        // keys and values pass from rank to rank; results merge by log-sum-exp (Liu et al., arXiv 2310.01889)
  kUlysses,     // ranks exchange tokens for heads, and back after attention (Jacobs et al., arXiv 2309.14509)
  kUlyssesRing  // groups of adjacent ranks exchange heads; the groups form rings (Fang and Zhao, arXiv 2405.07719)
};
const char* name_of(ContextMethod method);  // the name in parallel.context_method: "all_gather"

// The number of attention heads of a layer, over all ranks.
struct AttentionHeads {
  int heads = 1;
  int key_heads = 1;
  bool operator==(const AttentionHeads&) const = default;
};

}  // namespace gantry
