#include "gantry/core/config/context_choice.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {

const char* name_of(ContextMethod method) {
  if (method == ContextMethod::kRing) return "ring";
  if (method == ContextMethod::kUlyssesRing) return "ulysses_ring";
  return method == ContextMethod::kUlysses ? "ulysses" : "all_gather";
}

namespace {

[[noreturn]] void refuse_more_than_heads(const char* key, const std::string& what, int heads, int tensor,
                                         const char* remedy) {
  throw ConfigError(
      {key, fmt::format("{}, but {} heads over tensor {} leave {} heads per rank", what, heads, tensor, heads / tensor),
       "at most as many ranks as heads", remedy});
}

// The largest number of ranks, of the divisors of `context`, that can exchange heads; preferably with the same number
// of heads and KV heads on each rank.
int most_exchanging(int context, int heads, int key_heads) {
  int even = 1, any = 1;
  for (int ranks = 2; ranks < context && ranks <= heads; ++ranks) {
    if (context % ranks != 0) continue;
    any = ranks;
    if (heads % ranks == 0 && key_heads % ranks == 0) even = ranks;
  }
  return even > 1 ? even : any;
}

ContextChoice choose_ulysses_ring(const ContextRequest& request, const AttentionHeads& heads) {
  const int local = heads.heads / request.tensor, local_keys = std::max(1, heads.key_heads / request.tensor);
  if (request.ulysses > 0 && request.ranks % request.ulysses != 0)
    throw ConfigError(
        {"parallel.ulysses",
         fmt::format("{} ranks exchange heads, of {} that share sequences", request.ulysses, request.ranks),
         "a divisor of parallel.context", ""});
  if (request.ulysses > local)
    refuse_more_than_heads("parallel.ulysses", fmt::format("{} ranks exchange heads", request.ulysses), heads.heads,
                           request.tensor, "set a smaller divisor of parallel.context");
  const bool stated = request.ulysses > 0;
  const int exchanging = stated ? request.ulysses : most_exchanging(request.ranks, local, local_keys);
  const std::string reason = stated ? "stated" : fmt::format("heads are exchanged by {} ranks", exchanging);
  if (exchanging == 1) return {ContextMethod::kRing, reason};
  if (exchanging == request.ranks) return {ContextMethod::kUlysses, reason};
  return {ContextMethod::kUlyssesRing, reason, exchanging};
}

// With fewer tokens, a rank computes a block in less time than the next block needs to arrive on any link.
constexpr std::int64_t kFewTokens = 256;

// The largest number of adjacent ranks on a host that divides the ranks of the host, the heads and the KV heads.
int most_within(int ranks_of_host, int heads, int key_heads) {
  for (int ranks = ranks_of_host; ranks > 1; --ranks)
    if (ranks_of_host % ranks == 0 && heads % ranks == 0 && key_heads % ranks == 0) return ranks;
  return 1;
}

ContextChoice choose_by_itself(int context, int heads, int key_heads, const ContextPlace& place) {
  const int near = place.ranks_of_host > 0 ? place.ranks_of_host : context;
  if (near < context) {
    const std::string apart = fmt::format("{} of {} ranks are on a host", near, context);
    const int exchanging = most_within(near, heads, key_heads);
    if (exchanging == 1)
      return {ContextMethod::kRing, apart + ", and communication between hosts is hidden by computation"};
    return {ContextMethod::kUlyssesRing, fmt::format("{}, of which {} exchange heads", apart, exchanging), exchanging};
  }
  if (key_heads > 0 && heads % context == 0 && key_heads % context == 0)
    return {ContextMethod::kUlysses,
            fmt::format("{} ranks divide the {} heads and {} KV heads of a rank", context, heads, key_heads)};
  const std::string odd = fmt::format("{} ranks do not divide the {} heads and {} KV heads of a rank", context, heads,
                                      std::max(1, key_heads));
  if (place.tokens == 0 || place.tokens >= context * kFewTokens) return {ContextMethod::kRing, odd};
  return {ContextMethod::kAllGather, fmt::format("{}, and {} tokens over {} ranks are fewer than {} each", odd,
                                                 place.tokens, context, kFewTokens)};
}

}  // namespace

// A ring of causal blocks needs a layout with equal work for every rank. Without causality every layout has equal work,
// and one contiguous run per rank makes the fewest tiles. The other methods need the tokens in order.
SequenceShard ContextChoice::split(std::int64_t tokens, int ranks, bool causal) const {
  const bool passes = method == ContextMethod::kRing || method == ContextMethod::kUlyssesRing;
  return {tokens, ranks, passes && causal ? SequenceLayout::kZigzag : SequenceLayout::kContiguous, exchanging};
}

std::optional<ContextMethod> context_method_of(const std::string& name) {
  if (name == "auto") return std::nullopt;
  for (const auto method :
       {ContextMethod::kAllGather, ContextMethod::kRing, ContextMethod::kUlysses, ContextMethod::kUlyssesRing})
    if (name == name_of(method)) return method;
  throw ConfigError(
      {"parallel.context_method", "'" + name + "'", "auto, all_gather, ring, ulysses or ulysses_ring", ""});
}

ContextRequest context_request(const ParallelConfig& parallel) {
  return {.ranks = parallel.context,
          .tensor = parallel.tensor,
          .method = context_method_of(parallel.context_method),
          .ulysses = parallel.ulysses};
}

ContextChoice choose_context(const ContextRequest& request, const AttentionHeads& heads, const ContextPlace& place) {
  const int local = heads.heads / request.tensor, local_keys = heads.key_heads / request.tensor;
  const bool needs_heads = request.method != ContextMethod::kRing && request.method != ContextMethod::kAllGather;
  if (heads.heads == 0 && needs_heads) return {ContextMethod::kAllGather, "no layer has attention"};
  if (!request.method) return choose_by_itself(request.ranks, local, local_keys, place);
  if (request.method == ContextMethod::kUlysses && request.ranks > local)
    refuse_more_than_heads("parallel.context_method", fmt::format("ulysses over {} ranks", request.ranks), heads.heads,
                           request.tensor, "use ring or all_gather, which have no such limit");
  if (request.method == ContextMethod::kUlyssesRing) return choose_ulysses_ring(request, heads);
  return {*request.method, "stated"};
}

std::int64_t context_elements(const ContextChoice& choice, std::int64_t tokens, int ranks, const AttentionHeads& heads,
                              std::int64_t head_size) {
  const auto sizes = choice.split(tokens, ranks).sizes();
  const std::int64_t part = *std::max_element(sizes.begin(), sizes.end());
  const std::int64_t keys = 2 * part * heads.key_heads * head_size, queries = 2 * part * heads.heads * head_size;
  if (choice.method == ContextMethod::kUlysses) return (queries + keys) / ranks * (ranks - 1);
  if (choice.method == ContextMethod::kUlyssesRing) {
    const int apart = choice.exchanging;
    // The keys of the tokens of all ranks in the group, for a part of the heads.
    const std::int64_t passed = keys * apart / std::min(apart, heads.key_heads);
    return (queries + keys) / apart * (apart - 1) + passed * (ranks / apart - 1);
  }
  return keys * (ranks - 1);
}

}  // namespace gantry
