#include <optional>

#include "gantry/models/altup.h"
#include "gantry/models/decoder.h"
#include "gantry/models/decoder_experts.h"
#include "gantry/models/grouped_rows.h"
#include "gantry/models/latent_attention.h"
#include "gantry/models/laurel.h"
#include "gantry/models/layer_inputs.h"
#include "gantry/models/mixers/layer_mixer.h"
#include "gantry/models/optional_parts.h"
#include "gantry/models/register_at.h"
#include "gantry/models/router_loss.h"
#include "gantry/models/shared_keys.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/layer_watch.h"
#include "gantry/nn/sparse_gate.h"
#include "gantry/nn/xielu.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// Whether the graph of the layer that runs now is split between its parts. A part that is recomputed must not
// be split.
bool is_split_at_parts(int layer) {
  const Forward& now = forward_now();
  if (!now.watch || !now.watch->splits() || !now.stage) return false;
  const Recomputation how = now.stage->recomputation(layer);
  return how == Recomputation::kNone || how == Recomputation::kSelective;
}

}  // namespace

DecoderLayerImpl::DecoderLayerImpl(const DecoderSpec& spec, int index)
    : spec_(spec.layers.at(index)), index_(index), users_of_keys_(users_of_keys(spec, index)) {
  const DecoderNames& names = spec.names;
  input_ = DecoderNorm(*this, names.input, spec_.input, spec.hidden);
  if (spec_.mixer) mixer_ = make_mixer(*spec_.mixer, *this, spec.hidden);
  if (spec_.has_attention()) make_attention(names, spec.hidden, spec.output_dropout);
  after_attention_ = DecoderNorm(*this, names.after_attention, spec_.after_attention, spec.hidden);
  before_mlp_ = DecoderNorm(*this, names.before_mlp, spec_.before_mlp, spec.hidden);
  if (spec_.has_mlp) make_mlp(names, spec.hidden, spec.output_dropout);
  after_mlp_ = DecoderNorm(*this, names.after_mlp, spec_.after_mlp, spec.hidden);
  if (spec_.mtp) {
    mtp_embedding_norm_ = DecoderNorm(*this, names.mtp_embedding_norm, spec.norm, spec.hidden);
    mtp_hidden_norm_ = DecoderNorm(*this, names.mtp_hidden_norm, spec.norm, spec.hidden);
    mtp_projection_ = linear_at(*this, names.mtp_projection, 2 * spec.hidden, spec.hidden, false);
    mtp_norm_ = DecoderNorm(*this, names.mtp_norm, spec.norm, spec.hidden);
  }
  if (spec_.altup) make_streams(spec);
  const AttentionSpec& attention = spec_.attention;
  const std::int64_t rope = attention.latent ? attention.latent->rope : attention.head_size;
  if (spec_.has_attention() && attention.rotary >= 0) rotary_.emplace(rope, spec.rotaries.at(attention.rotary));
}

void DecoderLayerImpl::make_attention(const DecoderNames& names, std::int64_t hidden, double output_dropout) {
  const AttentionSpec& attention = spec_.attention;
  attention_dropout_ = dropout_at(*this, names.attention_dropout, attention.dropout);
  output_dropout_ = dropout_at(*this, names.output_dropout, output_dropout);
  if (attention.latent) {
    latent_ = std::make_shared<LatentAttention>(*this, attention, names, hidden);
    output_ = linear_at(*this, names.output, attention.heads * attention.latent->value, hidden, attention.output_bias);
    return;
  }
  const std::int64_t queries = attention.heads * attention.head_size, keys = attention.key_heads * attention.head_size;
  if (attention.rows == ProjectionRows::kSeparate) {
    query_ = linear_at(*this, names.query, hidden, attention.gated ? 2 * queries : queries, attention.bias);
    if (attention.keys_of < 0) {
      key_ = linear_at(*this, names.key, hidden, keys, attention.bias);
      value_ = linear_at(*this, names.value, hidden, keys, attention.bias);
    }
  } else {
    fused_ = linear_at(*this, names.fused, hidden, fused_rows(attention), attention.bias);
  }
  query_norm_ = DecoderNorm(*this, names.query_norm, attention.head_norm, attention.head_size);
  if (attention.keys_of < 0) {
    key_norm_ = DecoderNorm(*this, names.key_norm, attention.head_norm, attention.head_size);
    value_norm_ = DecoderNorm(*this, names.value_norm, attention.value_norm, attention.head_size);
  }
  if (attention.qk_norm.exists()) {
    wide_query_norm_ = register_at(*this, names.query_norm, nn::SplitRmsNorm(queries, attention.qk_norm.eps));
    wide_key_norm_ = register_at(*this, names.key_norm, nn::SplitRmsNorm(keys, attention.qk_norm.eps));
  }
  if (attention.per_head_norm.exists()) {
    const auto norm_of = [&](std::int64_t heads) {
      return nn::HeadsLayerNorm(heads, attention.head_size, attention.per_head_norm.eps);
    };
    own_query_norm_ = register_at(*this, names.query_norm, norm_of(attention.heads));
    own_key_norm_ = register_at(*this, names.key_norm, norm_of(attention.key_heads));
  }
  if (attention.sinks) sinks_ = register_at(*this, names.sinks, nn::Sinks(attention.heads));
  output_ = linear_at(*this, names.output, queries, hidden, attention.output_bias);
}

void DecoderLayerImpl::make_mlp(const DecoderNames& names, std::int64_t hidden, double output_dropout) {
  mlp_dropout_ = dropout_at(*this, names.mlp_dropout, output_dropout);
  if (spec_.experts) {
    experts_ = std::make_shared<ExpertsOfLayer>(*this, *spec_.experts, names, hidden);
    return;
  }
  const MlpSpec& mlp = spec_.mlp;
  if (mlp.fused_gate) {
    fused_gate_ = linear_at(*this, names.fused_gate, hidden, 2 * mlp.width, mlp.bias);
  } else {
    if (mlp.gated) gate_ = linear_at(*this, names.gate, hidden, mlp.width, mlp.bias);
    up_ = linear_at(*this, names.up, hidden, mlp.width, mlp.bias);
  }
  if (mlp.activation == kTrainedActivation) xielu_ = register_at(*this, names.activation, nn::Xielu()).ptr();
  down_ = linear_at(*this, names.down, mlp.width, hidden, mlp.bias);
}

std::vector<torch::Tensor> DecoderLayerImpl::projected(const torch::Tensor& input, Heads& heads) {
  const AttentionSpec& attention = spec_.attention;
  const std::int64_t size = attention.head_size;
  if (attention.rows == ProjectionRows::kSeparate) {
    heads.queries = nn::held_heads(query_, attention.gated ? 2 * size : size, attention.heads);
    if (!key_) return {query_(input)};
    heads.keys = nn::held_heads(key_, size, attention.key_heads);
    auto parts = nn::together(input, {query_, key_, value_});
    if (attention.gated) {
      const auto both = parts[0].unflatten(-1, {heads.queries.count, 2, size}).unbind(-2);
      parts[0] = both[0].flatten(-2);
      heads.gate = both[1].flatten(-2);
    }
    if (wide_query_norm_) {
      parts[0] = wide_query_norm_(parts[0]);
      parts[1] = wide_key_norm_(parts[1]);
    }
    return parts;
  }
  if (attention.rows == ProjectionRows::kSegments) {
    heads.queries = nn::held_heads(fused_, size, attention.heads, 0);
    heads.keys = nn::held_heads(fused_, size, attention.key_heads, 1);
    const std::int64_t keys = heads.keys.count * size;
    return fused_(input).split_with_sizes({heads.queries.count * size, keys, keys}, -1);
  }
  if (attention.rows == ProjectionRows::kPerHead) {
    heads.queries = heads.keys = nn::held_heads(fused_, 3 * size, attention.heads);
    const torch::Tensor fused = fused_(input);
    return fused.view({fused.size(0), fused.size(1), heads.queries.count, 3, size}).unbind(3);
  }
  return grouped_parts(heads.queries, heads.keys, fused_(input), fused_, attention);
}

DecoderLayerImpl::Heads DecoderLayerImpl::project(const torch::Tensor& input) {
  const AttentionSpec& attention = spec_.attention;
  const std::int64_t size = attention.head_size;
  Heads heads;
  std::vector<torch::Tensor> parts = projected(input, heads);
  if (attention.clip > 0)
    for (torch::Tensor& part : parts) part = part.clamp(-attention.clip, attention.clip);
  const auto by_head = [&](const torch::Tensor& part, std::int64_t count) {
    return part.dim() == 4 ? part : part.view({part.size(0), part.size(1), count, size});
  };
  heads.query = by_head(parts[0], heads.queries.count);
  if (parts.size() == 1) {  // the keys are those of another layer
    heads.query = query_norm_(heads.query).transpose(1, 2);
    return heads;
  }
  heads.key = multiplied(by_head(parts[1], heads.keys.count), attention.key_scale);
  if (!attention.norm_after_rotary) {
    heads.query = query_norm_(heads.query);
    heads.key = key_norm_(heads.key);
  }
  if (own_query_norm_) {
    heads.query = own_query_norm_(heads.query);
    heads.key = own_key_norm_(heads.key);
  }
  heads.query = heads.query.transpose(1, 2);
  heads.key = heads.key.transpose(1, 2);
  heads.value = value_norm_(by_head(parts[2], heads.keys.count)).transpose(1, 2);
  return heads;
}

// Multiplies queries by factors that depend on their positions.
torch::Tensor DecoderLayerImpl::tempered(const torch::Tensor& query, const nn::TokenContext& tokens,
                                         std::int64_t cached) const {
  const AttentionSpec& attention = spec_.attention;
  const torch::ScalarType wide = at::promote_types(query.scalar_type(), torch::kFloat32);
  const auto integers = torch::TensorOptions(torch::kInt64).device(query.device());
  const torch::Tensor positions = tokens.positions.defined()
                                      ? tokens.positions
                                      : torch::arange(cached, cached + query.size(2), integers).unsqueeze(0);
  const torch::Tensor steps = (positions + 1).floor_divide(attention.temperature_step).to(wide);
  const torch::Tensor factors = 1 + attention.temperature * torch::log1p(steps);
  return (query * factors.unsqueeze(1).unsqueeze(-1)).to(query.scalar_type());
}

// `cached`: the number of tokens before these.
DecoderLayerImpl::Heads DecoderLayerImpl::turned_heads(const torch::Tensor& input, const nn::TokenContext& tokens,
                                                       std::int64_t cached) {
  const auto turn = [&](const torch::Tensor& part) {
    return rotary_ ? (*rotary_)(part, tokens.positions, tokens.length > 0 ? tokens.length : part.size(2) + cached)
                   : part;
  };
  if (latent_) {
    const LatentHeads latent = latent_->project(input, turn);
    return {latent.query, latent.key, latent.value, latent.heads, latent.heads, {}};
  }
  Heads heads = project(input);
  heads.query = turn(heads.query);
  if (heads.key.defined()) heads.key = turn(heads.key);
  if (spec_.attention.temperature != 0) heads.query = tempered(heads.query, tokens, cached);
  if (spec_.attention.norm_after_rotary) {
    heads.query = query_norm_(heads.query);
    heads.key = key_norm_(heads.key);
  }
  return heads;
}

// Takes the keys of another layer from the state, or adds the keys of this layer to the state for other
// layers.
void DecoderLayerImpl::share_keys(Heads& heads, const SharedState& shared) const {
  if (users_of_keys_.empty()) return;
  const int source = users_of_keys_.front();
  if (source == index_) {
    shared.made->set(keys_entry(index_), heads.key);
    shared.made->set(values_entry(index_), heads.value);
    return;
  }
  heads.key = shared.read->at(keys_entry(source));
  heads.value = shared.read->at(values_entry(source));
  const AttentionSpec& attention = spec_.attention;
  heads.keys = {heads.queries.first * attention.key_heads / attention.heads, heads.key.size(1), attention.key_heads};
}

torch::Tensor DecoderLayerImpl::attention(const torch::Tensor& input, const nn::TokenContext& tokens,
                                          const SharedState& shared) {
  const AttentionSpec& attention = spec_.attention;
  const auto& stage = forward_now().stage;
  const int holder = users_of_keys_.empty() || !stage ? index_ : holder_of_cache(users_of_keys_, stage->layer_range());
  nn::KeyValueCache* cache = tokens.cache(holder);
  const std::int64_t added = holder == index_ ? 0 : input.size(1), cached = cache ? cache->tokens() - added : 0;
  Heads heads = turned_heads(multiplied(input, attention.input_scale), tokens, cached);
  share_keys(heads, shared);
  torch::Tensor slopes;
  if (!attention.slopes.empty())
    slopes =
        torch::tensor(attention.slopes, torch::kFloat64)
            .narrow(0, heads.queries.first, heads.queries.count)
            .to(torch::TensorOptions(at::promote_types(input.scalar_type(), torch::kFloat32)).device(input.device()));
  const nn::AttentionOptions options{.causal = true,
                                     .cache_has_keys = holder != index_,
                                     .keep = tokens.keep,
                                     .cache = cache,
                                     .window = attention.window,
                                     .chunk = attention.chunk,
                                     .scale = attention.scale,
                                     .soft_cap = attention.soft_cap,
                                     .slopes = slopes,
                                     .sinks = sinks_ ? sinks_->weight : torch::Tensor(),
                                     .documents = tokens.documents,
                                     .images = tokens.images,
                                     .sequence = tokens.sequence};
  const torch::Tensor mixed =
      nn::attention(heads.query, heads.key, heads.value, heads.queries, heads.keys, options, *attention_dropout_);
  torch::Tensor merged = nn::merge_heads(mixed);
  if (heads.gate.defined()) merged = merged * torch::sigmoid(heads.gate);
  return dropped(output_dropout_, multiplied(output_(merged), attention.output_scale));
}

torch::Tensor DecoderLayerImpl::mixed(const torch::Tensor& input, const nn::TokenContext& tokens,
                                      const SharedState& shared) {
  if (!mixer_) return attention(input, tokens, shared);
  const torch::Tensor made = mixer_->forward(input, tokens, index_);
  return spec_.has_attention() ? made + attention(input, tokens, shared) : made;
}

torch::Tensor DecoderLayerImpl::mlp(const torch::Tensor& input) {
  if (experts_) return dropped(mlp_dropout_, experts_->forward(input).output);
  const MlpSpec& mlp = spec_.mlp;
  torch::Tensor wide;
  if (mlp.fused_gate) {
    wide = nn::gated_halves(fused_gate_(input), mlp.activation);  // only separate gates have a gate_scale
  } else if (mlp.gated) {
    auto parts = nn::together(input, {gate_, up_});
    if (mlp.sparsity > 0) parts[0] = nn::sparse_gate(parts[0], mlp.sparsity, gate_);
    wide = nn::gated(multiplied(parts[0], mlp.gate_scale), parts[1], mlp.activation);
  } else {
    wide = xielu_ ? xielu_->forward(up_(input)) : nn::activate(up_(input), mlp.activation);
  }
  return dropped(mlp_dropout_, multiplied(down_(wide), mlp.output_scale));
}

torch::Tensor DecoderLayerImpl::mtp_input(const torch::Tensor& embedded, const torch::Tensor& hidden) {
  return mtp_projection_(torch::cat({mtp_embedding_norm_(embedded), mtp_hidden_norm_(hidden)}, -1));
}

LayerParts DecoderLayerImpl::parts(const nn::TokenContext& tokens, bool sums_routers) {
  if (altup_) return parts_with_streams(tokens);
  if (experts_ && sums_routers) return parts_with_sums(tokens);
  if (spec_.post_norm) return parts_with_norms_behind(tokens);
  return spec_.parallel ? parts_side_by_side(tokens) : parts_in_turn(tokens);
}

// The sum of the residual and the output of a part, each times its factor for normed residuals.
torch::Tensor DecoderLayerImpl::weighted(const torch::Tensor& residual, const torch::Tensor& made,
                                         const ResidualFactors& factors) {
  return multiplied(residual, factors.kept) + multiplied(made, factors.added);
}

// The sum of `hidden` and the output of attention. With normed residuals, the second norm is a part of the result.
torch::Tensor DecoderLayerImpl::with_attention(const torch::Tensor& hidden, const nn::TokenContext& tokens,
                                               const SharedState& shared) {
  if (spec_.normed_residual) {
    const torch::Tensor normed = input_(hidden);
    return before_mlp_(weighted(normed, after_attention_(mixed(normed, tokens, shared)), spec_.mixer_factors));
  }
  return hidden + multiplied(after_attention_(mixed(input_(hidden), tokens, shared)), spec_.residual_scale);
}

torch::Tensor DecoderLayerImpl::with_mlp(const torch::Tensor& hidden, const torch::Tensor& made) {
  if (spec_.normed_residual) return weighted(hidden, after_mlp_(made), spec_.mlp_factors);
  return hidden + multiplied(after_mlp_(made), spec_.residual_scale);
}

torch::Tensor DecoderLayerImpl::input_of_mlp(const torch::Tensor& hidden) {
  return spec_.normed_residual ? hidden : before_mlp_(hidden);
}

// The MLP part of a layer whose experts add to the sums of the routers.
TensorDict DecoderLayerImpl::experts_with_sums(const TensorDict& state, const torch::Tensor& keep) {
  const torch::Tensor& hidden = state.at("hidden");
  auto made = experts_->forward(input_of_mlp(hidden));
  // transformers counts the experts with the largest logits, also if an expert bias has selected others.
  if (spec_.experts->correction)
    made.routing.ids = nn::RouterImpl::largest(made.routing.logits.detach(), made.routing.ids.size(-1));
  const torch::Tensor added = with_mlp(hidden, dropped(mlp_dropout_, made.output));
  TensorDict changed = with_router_sums(state, made.routing, keep);
  changed.set("hidden", added);
  return changed;
}

LayerParts DecoderLayerImpl::parts_with_sums(const nn::TokenContext& tokens) {
  LayerParts parts;
  if (!spec_.only_mlp)
    parts.emplace_back("attention", [this, tokens](const TensorDict& state) -> TensorDict {
      return {{"hidden", with_attention(state.at("hidden"), tokens)}};
    });
  parts.emplace_back("mlp",
                     [this, keep = tokens.keep](const TensorDict& state) { return experts_with_sums(state, keep); });
  return parts;
}

LayerParts DecoderLayerImpl::parts_with_norms_behind(const nn::TokenContext& tokens) {
  const double scale = spec_.residual_scale;
  return {{"attention",
           [this, tokens, scale](const torch::Tensor& hidden) {
             return input_(hidden + multiplied(mixed(hidden, tokens), scale));
           }},
          {"mlp", [this, scale](const torch::Tensor& hidden) {
             return before_mlp_(hidden + multiplied(mlp(hidden), scale));
           }}};
}

LayerParts DecoderLayerImpl::parts_in_turn(const nn::TokenContext& tokens) {
  LayerParts parts;
  if (!spec_.only_mlp)
    parts.emplace_back("attention", [this, tokens](const TensorDict& state) {
      TensorDict made{{"hidden", {}}};
      made.set("hidden", with_attention(state.at("hidden"), tokens, {&state, &made}));
      return made;
    });
  if (!spec_.has_mlp) return parts;
  if (experts_ && experts_->travels() && is_split_at_parts(index_))
    experts_->add_parts(
        parts, [this](const torch::Tensor& hidden) { return input_of_mlp(hidden); },
        [this](const torch::Tensor& hidden, const torch::Tensor& made) {
          return with_mlp(hidden, dropped(mlp_dropout_, made));
        });
  else
    parts.emplace_back("mlp",
                       [this](const torch::Tensor& hidden) { return with_mlp(hidden, mlp(input_of_mlp(hidden))); });
  return parts;
}

// The second part needs the input of the first one.
LayerParts DecoderLayerImpl::parts_side_by_side(const nn::TokenContext& tokens) {
  const auto attend = [this, tokens](const TensorDict& state) -> TensorDict {
    const torch::Tensor &hidden = state.at("hidden"), normed = input_(hidden);
    return {{"hidden", hidden + multiplied(after_attention_(mixed(normed, tokens)), spec_.residual_scale)},
            {"before_mlp", spec_.before_mlp.exists() ? hidden : normed}};
  };
  const auto add_mlp = [this](const TensorDict& state) -> TensorDict {
    const torch::Tensor made = mlp(before_mlp_(state.at("before_mlp")));
    return {{"hidden", with_mlp(state.at("hidden"), made)}, {"before_mlp", {}}};
  };
  return {{"attention", attend}, {"mlp", add_mlp}};
}

}  // namespace gantry::models
