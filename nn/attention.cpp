#include "gantry/nn/attention.h"

#include <functional>
#include <limits>

#include "gantry/core/error.h"
#include "gantry/nn/attention_chunks.h"
#include "gantry/nn/attention_core.h"
#include "gantry/nn/attention_kernels.h"
#include "gantry/nn/attention_scores.h"
#include "gantry/nn/context_attention.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/recompute.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stage_context.h"
#include "gantry/nn/token_entries.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

namespace {

// Returns the mask of this kind. `make` computes it once for all layers of a forward.
template <class Make>
torch::Tensor once(AttentionMasks::Kind kind, const AttentionOptions& options, std::int64_t queries, std::int64_t keys,
                   torch::ScalarType type, Make make) {
  const auto& stage = forward_now().stage;
  if (!stage) return make();
  return stage->masks().get({kind, options.keep, options.documents, options.causal, options.window, queries, keys, type,
                             kind == AttentionMasks::Kind::kSeen ? torch::Tensor() : options.images},
                            make);
}

// The keys that this rank's tokens of a sequence see by position: bool [queries, keys].
torch::Tensor seen_by_part(const AttentionOptions& options, std::int64_t keys) {
  const torch::Tensor rows = options.sequence->positions.view({-1, 1});
  const torch::Tensor columns = torch::arange(keys, rows.options());
  torch::Tensor seen = options.causal ? columns <= rows : torch::ones_like(columns <= rows);
  if (options.window > 0) seen = seen & (columns > rows - options.window);
  return options.window > 0 && !options.causal ? seen & (columns < rows + options.window) : seen;
}

// The keys, of `keys`, that each of the last `queries` tokens sees by position: bool [queries, keys];
// undefined: all.
torch::Tensor seen_keys(const AttentionOptions& options, std::int64_t queries, std::int64_t keys,
                        const torch::Device& device) {
  if (options.sequence)
    return once(AttentionMasks::Kind::kSeen, options, queries, keys, torch::kBool,
                [&] { return seen_by_part(options, keys); });
  const bool hides_later = options.causal && queries > 1, hides_early = options.window > 0 && keys > options.window;
  if (!hides_later && !hides_early) return {};
  return once(AttentionMasks::Kind::kSeen, options, queries, keys, torch::kBool, [&] {
    torch::Tensor seen = torch::ones({queries, keys}, torch::TensorOptions(torch::kBool).device(device));
    if (hides_later) seen = seen.tril(keys - queries);
    if (hides_early) seen = seen.triu(keys - queries - options.window + 1);
    return hides_early && !options.causal ? seen.tril(keys - queries + options.window - 1) : seen;
  });
}

// True if a mask, documents or images also decide which keys count, and not only their positions.
bool leaves_out_keys(const AttentionOptions& options) {
  return options.keep.defined() || options.documents.defined() || options.images.defined();
}

// The keys that are seen by position, and the keys of the query's image: bool, broadcast over heads. Earlier keys of
// the image count within the window alone.
torch::Tensor with_own_image(const torch::Tensor& seen, const AttentionOptions& options, std::int64_t queries,
                             std::int64_t keys) {
  const torch::Tensor& images = options.images;
  const torch::Tensor all = images.narrow(1, images.size(1) - keys, keys).unsqueeze(1);
  const torch::Tensor of_queries = images.narrow(1, images.size(1) - queries, queries).unsqueeze(2);
  torch::Tensor own = ((of_queries == all) & (of_queries > 0)).unsqueeze(1);
  if (options.window > 0 && options.window < keys) own = own.triu(keys - queries - options.window + 1);
  return seen.defined() ? seen | own : torch::ones_like(own);
}

// Whether each of the last `keys` keys counts for each query: bool, broadcast over heads. Undefined if only
// positions decide this.
torch::Tensor counted_keys(const AttentionOptions& options, std::int64_t queries, std::int64_t keys) {
  if (!leaves_out_keys(options)) return {};
  return once(AttentionMasks::Kind::kCounted, options, queries, keys, torch::kBool, [&] {
    const torch::Tensor &keep = options.keep, &documents = options.documents;
    torch::Tensor counted;
    if (keep.defined()) counted = keep.narrow(1, keep.size(1) - keys, keys).unsqueeze(1).unsqueeze(1);
    if (documents.defined()) {
      const auto last = [&](std::int64_t count) { return documents.narrow(1, documents.size(1) - count, count); };
      const torch::Tensor of_queries =
          options.sequence ? documents.index_select(1, options.sequence->positions.view({-1})) : last(queries);
      const torch::Tensor own = (of_queries.unsqueeze(2) == last(keys).unsqueeze(1)).unsqueeze(1);
      counted = counted.defined() ? counted & own : own;
    }
    const torch::Device device = options.images.defined() ? options.images.device() : counted.device();
    torch::Tensor seen = seen_keys(options, queries, keys, device);
    if (options.images.defined()) seen = with_own_image(seen, options, queries, keys);
    if (!counted.defined()) return seen;
    return seen.defined() ? counted & seen : counted;
  });
}

// The score of a key that does not count, as in Hugging Face's models. The result of a query without any key
// is then the mean of all values, not NaN. Such a query is padding itself.
double lowest(torch::ScalarType type) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "attention",
                                         [] { return static_cast<double>(std::numeric_limits<scalar_t>::lowest()); });
}

// The mask for fused kernels, which add it to the scores in float32 or wider. It is 0 for queries without any
// key.
torch::Tensor additive_mask(const AttentionOptions& options, const torch::Tensor& query, std::int64_t keys) {
  const torch::ScalarType type = query.scalar_type();
  return once(AttentionMasks::Kind::kAdditive, options, query.size(2), keys, type, [&] {
    const torch::Tensor counted = counted_keys(options, query.size(2), keys);
    return torch::zeros(counted.sizes(), query.options().requires_grad(false))
        .masked_fill(~counted & counted.any(-1, /*keepdim=*/true), lowest(type));
  });
}

// Sets queries without any key to 0, because equal scores of 0 average all keys. Equal scores of lowest()
// would have the same result, but the backward of LibTorch's kernels would use 1 as the weight of each key.
torch::Tensor with_lost_queries(const torch::Tensor& query, const AttentionOptions& options, std::int64_t keys) {
  if (!options.keep.defined()) return query;  // each token sees itself
  const torch::Tensor counted = counted_keys(options, query.size(2), keys);
  const torch::Tensor is_lost = ~counted.any(-1, /*keepdim=*/true);
  if (is_lost.is_cpu() && number_of(is_lost.any()) == 0) return query;
  return query.masked_fill(is_lost, 0);
}

// The softmax of scores [samples, heads, queries, keys], to which each head's sink is added as one more
// score.
torch::Tensor weights_of(const torch::Tensor& scores, const torch::Tensor& sinks) {
  if (!sinks.defined()) return scores.softmax(-1);
  std::vector<std::int64_t> shape = scores.sizes().vec();
  shape.back() = 1;
  const torch::Tensor extra = sinks.to(scores.scalar_type()).view({1, -1, 1, 1}).expand(shape);
  return torch::cat({scores, extra}, -1).softmax(-1).narrow(-1, 0, scores.size(-1));
}

// Attention in separate operations, for options that no fused kernel supports. `dropped` applies dropout to
// the weights.
torch::Tensor plain_core(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                         const ByKeyHead& by, const AttentionOptions& options,
                         const std::function<torch::Tensor(const torch::Tensor&)>& dropped) {
  const std::int64_t queries = query.size(2), keys = key.size(2);
  const torch::Tensor places =
      options.slopes.defined() ? torch::arange(keys, options.slopes.options()) : torch::Tensor();
  torch::Tensor scores = scores_of(query, key, by, options, places).values;
  // Filled, not added: in float16 the sum with a score would be infinite.
  if (const torch::Tensor counted = counted_keys(options, queries, keys); counted.defined())
    scores = scores.masked_fill(~counted, lowest(scores.scalar_type()));
  else if (const torch::Tensor seen = seen_keys(options, queries, keys, query.device()); seen.defined())
    scores = scores.masked_fill(~seen, -std::numeric_limits<double>::infinity());
  return by.product(dropped(weights_of(scores, options.sinks)), value);
}

}  // namespace

HeadRange held_heads(const Linear& projection, std::int64_t head_size, std::int64_t total, std::size_t segment) {
  const ShardSpec& placement = projection->weight_placement();
  if (!placement.sharded()) return {0, total, total};
  const Segment& part = placement.segments.at(segment);
  const Range held = part.range_of_rank[projection->group()->rank()];
  return {(held.begin - part.extent.begin) / head_size, held.size() / head_size, total};
}

namespace {

// Attention by the kernel that LibTorch chooses. The mask consists of bools or of numbers that are added to
// the scores.
torch::Tensor fused_core(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                         const AttentionOptions& options, bool grouped) {
  std::optional<torch::Tensor> mask;
  const std::int64_t queries = query.size(2), keys = key.size(2);
  const bool plainly_causal = options.causal && queries > 1 && !options.sequence && keys == queries &&
                              !leaves_out_keys(options) && (options.window == 0 || keys <= options.window);
  const torch::Tensor asking = leaves_out_keys(options) ? with_lost_queries(query, options, keys) : query;
  if (leaves_out_keys(options))
    mask = additive_mask(options, query, keys);
  else if (!plainly_causal)
    if (const torch::Tensor seen = seen_keys(options, queries, keys, query.device()); seen.defined()) mask = seen;
  return at::scaled_dot_product_attention(asking, key, value, mask, 0.0, plainly_causal,
                                          options.scale > 0 ? std::optional(options.scale) : std::nullopt,
                                          /*enable_gqa=*/grouped);
}

// The CPU's kernel requires values of the size of the queries; without it, LibTorch stores all scores. So the
// narrower values of latent attention are padded. A single query is an exception: it has few scores, and
// padding would copy all values of a cache.
template <class Core>
torch::Tensor with_padded_values(const torch::Tensor& query, const torch::Tensor& value, const Core& core) {
  const std::int64_t missing = query.size(3) - value.size(3);
  if (missing <= 0 || !query.is_cpu() || query.size(2) == 1) return core(value);
  return core(at::constant_pad_nd(value, {0, missing})).narrow(3, 0, value.size(3));
}

}  // namespace

torch::Tensor attention_core(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                             const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                             const DropoutImpl& dropout) {
  const bool drops = dropout.is_training() && dropout.p() > 0;
  const ByKeyHead by(heads, key_heads);
  if (!needs_plain_products(options, drops) && !options.sinks.defined()) {
    const bool grouped = by.is_grouped();
    return with_padded_values(query, grouped ? value : by.repeated(value), [&](const torch::Tensor& values) {
      return fused_core(query, grouped ? key : by.repeated(key), values, options, grouped);
    });
  }
  return plain_core(query, key, value, by, options, [&](const torch::Tensor& weights) {
    if (!drops) return weights;
    const RandomContext context = random_context();
    const std::vector<std::int64_t> offset{context.first_sample, heads.first, 0, 0},
        global{0, heads.total, weights.size(2), weights.size(3)};
    if (options.sequence)
      return weights * dropout_mask_of_part(weights, dropout.p(), dropout.global_name(), context, offset, global, 2,
                                            *options.sequence);
    return weights * dropout_mask(weights, dropout.p(), dropout.global_name(), context, offset, global);
  });
}

torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                        const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& given,
                        const DropoutImpl& dropout) {
  const AttentionOptions options = within_chunks(given, query);
  if (options.cache && options.sequence)
    return continued_attention(query, key, value, heads, key_heads, options, dropout);
  if (options.cache) {
    const std::int64_t window = options.chunk > 0 ? options.chunk : options.window;
    const auto [keys, values] =
        options.cache_has_keys ? options.cache->kept() : options.cache->append(key, value, window);
    return attention_core(query, keys, values, heads, key_heads, options, dropout);
  }
  const auto attend = options.sequence ? context_attention : attention_core;
  if (!forward_now().recomputes_attention) return attend(query, key, value, heads, key_heads, options, dropout);
  std::vector<torch::Tensor> inputs = {query, key, value};
  if (options.bias.defined()) inputs.push_back(options.bias);
  // The module outlives the graph, like its parameters.
  return recompute(
      [=, &dropout](const std::vector<torch::Tensor>& parts) {
        AttentionOptions again = options;
        if (parts.size() > 3) again.bias = parts[3];
        return attend(parts[0], parts[1], parts[2], heads, key_heads, again, dropout);
      },
      inputs);
}

SinksImpl::SinksImpl(std::int64_t heads) : heads_(heads) {
  weight = register_parameter("weight", torch::empty({heads}));
  torch::nn::init::zeros_(weight);
}

Placements SinksImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (!std::holds_alternative<Column>(style)) refuse_style("Sinks", style, "Column{}");
  const Placements placements = split_parameters({{"weight", {heads_}}}, style, axes);
  shard_parameters(*this, placements, axes);
  return placements;
}

torch::Tensor kept_tokens(const torch::Tensor& attention_mask, const std::string& name) {
  if (!attention_mask.defined()) return {};
  if (const torch::Tensor known = on_host(attention_mask); known.defined()) {
    if (number_of((known == 1).all()) != 0) return {};
    check_mask_values(known, name);
  }
  return attention_mask != 0;
}

torch::Tensor split_heads(const torch::Tensor& features, std::int64_t heads) {
  return features.view({features.size(0), features.size(1), heads, features.size(2) / heads}).transpose(1, 2);
}

torch::Tensor merge_heads(const torch::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0), heads.size(2), heads.size(1) * heads.size(3)});
}

}  // namespace gantry::nn
