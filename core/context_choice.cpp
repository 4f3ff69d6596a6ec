#include "gantry/core/context_choice.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {

const char* name_of(ContextMethod method) {
  if (method == ContextMethod::kRing) return "ring";
  return method == ContextMethod::kUlysses ? "ulysses" : "all_gather";
}

// Rings pass causal blocks: their cut gives every rank equal work. The other methods need the tokens in order.
SequenceCut ContextChoice::cut(std::int64_t tokens, int ranks) const {
  return {tokens, ranks, method == ContextMethod::kRing ? SequenceLayout::kZigzag : SequenceLayout::kContiguous};
}

ContextChoice choose_context(const ParallelConfig& parallel, const AttentionHeads& heads) {
  const int local = heads.heads / parallel.tensor, local_keys = heads.key_heads / parallel.tensor;
  const std::string& name = parallel.context_method;
  if (name == "ulysses" && parallel.context > local)
    throw ConfigError({"parallel.context_method",
                       fmt::format("ulysses over {} ranks, with {} heads over tensor {} = {} heads a rank",
                                   parallel.context, heads.heads, parallel.tensor, local),
                       "at most as many ranks as heads", "use ring or all_gather, which have no such limit"});
  if (name == "all_gather") return {ContextMethod::kAllGather, "stated"};
  if (name == "ring") return {ContextMethod::kRing, "stated"};
  if (name == "ulysses") return {ContextMethod::kUlysses, "stated"};
  if (local_keys > 0 && local % parallel.context == 0 && local_keys % parallel.context == 0)
    return {ContextMethod::kUlysses, fmt::format("{} ranks divide the {} heads and {} key heads of a rank",
                                                 parallel.context, local, local_keys)};
  return {ContextMethod::kRing, fmt::format("{} ranks do not divide the {} heads and {} key heads of a rank",
                                            parallel.context, local, std::max(1, local_keys))};
}

std::int64_t context_elements(const ContextChoice& choice, std::int64_t tokens, int ranks, const AttentionHeads& heads,
                              std::int64_t head_size) {
  const auto sizes = choice.cut(tokens, ranks).sizes();
  const std::int64_t part = *std::max_element(sizes.begin(), sizes.end());
  const std::int64_t keys = 2 * part * heads.key_heads * head_size, queries = 2 * part * heads.heads * head_size;
  if (choice.method == ContextMethod::kUlysses) return (queries + keys) / ranks * (ranks - 1);
  return keys * (ranks - 1);
}

}  // namespace gantry
