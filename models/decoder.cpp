#include "gantry/models/decoder.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/models/decoder_experts.h"
#include "gantry/models/latent_attention.h"
#include "gantry/models/register_at.h"
#include "gantry/models/router_loss.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/embedding_noise.h"
#include "gantry/nn/layer_watch.h"
#include "gantry/nn/sequence_part.h"

namespace gantry::models {
namespace {

nn::Dropout dropout_at(torch::nn::Module& root, const std::string& path, double probability) {
  return path.empty() ? nn::Dropout(nullptr) : register_at(root, path, nn::Dropout(probability));
}

torch::Tensor dropped(nn::Dropout& dropout, const torch::Tensor& input) { return dropout ? dropout(input) : input; }

// Rounded as the models that were trained so have it: to float32, then to the dtype that it multiplies.
torch::Tensor scaled(const torch::Tensor& input, double scale) {
  if (scale == 1) return input;
  return input * torch::tensor(static_cast<float>(scale)).to(input.scalar_type()).item();
}

nn::LayerNormParameters parameters_of(const NormSpec& norm) {
  if (!norm.weight) return nn::LayerNormParameters::kNone;
  return norm.bias ? nn::LayerNormParameters::kWeightAndBias : nn::LayerNormParameters::kWeight;
}

torch::Tensor multiplied(const torch::Tensor& input, double scale) { return scale == 1 ? input : input * scale; }

// Query, key and value of a projection whose rows lie group by group: this rank's rows of each, put together.
std::vector<torch::Tensor> grouped_parts(nn::HeadRange& queries, nn::HeadRange& keys, const torch::Tensor& fused,
                                         const nn::Linear& projection, const AttentionSpec& attention) {
  const std::int64_t size = attention.head_size, group = attention.heads / attention.key_heads;
  const Cut& held = projection->weight_placement();
  const Cut rows = held.sharded() ? held : shard_groups(0, fused_rows(attention), attention.key_heads, size, 1);
  const int rank = held.sharded() ? projection->group()->rank() : 0;
  queries = {0, 0, attention.heads};
  keys = {0, 0, attention.key_heads};
  std::vector<torch::Tensor> found[3];
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < rows.segments.size(); ++i) {
    const Segment& segment = rows.segments[i];
    const Range range = segment.range_of_rank[rank];
    if (range.size() == 0) continue;
    const auto index = static_cast<std::int64_t>(i / 3);
    if (i % 3 == 0 && queries.count == 0) queries.first = index * group + (range.begin - segment.extent.begin) / size;
    if (i % 3 == 0) queries.count += range.size() / size;
    if (i % 3 == 1 && keys.count++ == 0) keys.first = index;
    found[i % 3].push_back(fused.narrow(-1, offset, range.size()));
    offset += range.size();
  }
  return {torch::cat(found[0], -1), torch::cat(found[1], -1), torch::cat(found[2], -1)};
}

std::int64_t layers_with_experts(const DecoderSpec& spec) {
  return std::count_if(spec.layers.begin(), spec.layers.end(),
                       [](const LayerSpec& layer) { return layer.experts.has_value(); });
}

// Whether the graph of a layer that runs now ends between its parts: a part that is recomputed has to be whole.
bool is_cut_at_parts(int layer) {
  const Forward& now = forward_now();
  if (!now.watch || !now.watch->cuts() || !now.stage) return false;
  const Recomputation how = now.stage->recomputation(layer);
  return how == Recomputation::kNone || how == Recomputation::kSelective;
}

torch::Tensor capped(const torch::Tensor& input, double cap) { return cap > 0 ? (input / cap).tanh() * cap : input; }

}  // namespace

DecoderNorm::DecoderNorm(torch::nn::Module& root, const std::string& path, const NormSpec& spec, std::int64_t size) {
  if (spec.kind == NormSpec::Kind::kRms)
    rms_ = register_at(
        root, path,
        nn::RmsNorm(size, spec.eps, spec.one_plus_weight ? nn::NormScale::kOnePlusWeight : nn::NormScale::kWeight));
  if (spec.kind == NormSpec::Kind::kLayer)
    layer_ = register_at(root, path, nn::LayerNorm(size, spec.eps, parameters_of(spec)));
}

torch::Tensor DecoderNorm::operator()(const torch::Tensor& input) {
  if (rms_) return rms_(input);
  return layer_ ? layer_(input) : input;
}

DecoderLayerImpl::DecoderLayerImpl(const DecoderSpec& spec, int index) : spec_(spec.layers.at(index)), index_(index) {
  const DecoderNames& names = spec.names;
  input_ = DecoderNorm(*this, names.input, spec_.input, spec.hidden);
  make_attention(names, spec.hidden, spec.output_dropout);
  after_attention_ = DecoderNorm(*this, names.after_attention, spec_.after_attention, spec.hidden);
  before_mlp_ = DecoderNorm(*this, names.before_mlp, spec_.before_mlp, spec.hidden);
  make_mlp(names, spec.hidden, spec.output_dropout);
  after_mlp_ = DecoderNorm(*this, names.after_mlp, spec_.after_mlp, spec.hidden);
  const AttentionSpec& attention = spec_.attention;
  const std::int64_t turning = attention.latent ? attention.latent->turning : attention.head_size;
  if (attention.rotary >= 0) rotary_.emplace(turning, spec.rotaries.at(attention.rotary));
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
    query_ = linear_at(*this, names.query, hidden, queries, attention.bias);
    key_ = linear_at(*this, names.key, hidden, keys, attention.bias);
    value_ = linear_at(*this, names.value, hidden, keys, attention.bias);
  } else {
    fused_ = linear_at(*this, names.fused, hidden, fused_rows(attention), attention.bias);
  }
  query_norm_ = DecoderNorm(*this, names.query_norm, attention.head_norm, attention.head_size);
  key_norm_ = DecoderNorm(*this, names.key_norm, attention.head_norm, attention.head_size);
  if (attention.wide_norm.exists()) {
    wide_query_norm_ = register_at(*this, names.query_norm, nn::SplitRmsNorm(queries, attention.wide_norm.eps));
    wide_key_norm_ = register_at(*this, names.key_norm, nn::SplitRmsNorm(keys, attention.wide_norm.eps));
  }
  if (attention.own_norm.exists()) {
    const auto norm_of = [&](std::int64_t heads) {
      return nn::HeadsLayerNorm(heads, attention.head_size, attention.own_norm.eps);
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
  down_ = linear_at(*this, names.down, mlp.width, hidden, mlp.bias);
}

// By the rows of the projections.
DecoderLayerImpl::Heads DecoderLayerImpl::project(const torch::Tensor& input) {
  const AttentionSpec& attention = spec_.attention;
  const std::int64_t size = attention.head_size;
  Heads heads;
  std::vector<torch::Tensor> parts;
  if (attention.rows == ProjectionRows::kSeparate) {
    heads.queries = nn::held_heads(query_, size, attention.heads);
    heads.keys = nn::held_heads(key_, size, attention.key_heads);
    parts = nn::together(input, {query_, key_, value_});
    if (wide_query_norm_) {
      parts[0] = wide_query_norm_(parts[0]);
      parts[1] = wide_key_norm_(parts[1]);
    }
  } else if (attention.rows == ProjectionRows::kSegments) {
    heads.queries = nn::held_heads(fused_, size, attention.heads, 0);
    heads.keys = nn::held_heads(fused_, size, attention.key_heads, 1);
    const std::int64_t keys = heads.keys.count * size;
    parts = fused_(input).split_with_sizes({heads.queries.count * size, keys, keys}, -1);
  } else if (attention.rows == ProjectionRows::kPerHead) {
    heads.queries = heads.keys = nn::held_heads(fused_, 3 * size, attention.heads);
    const torch::Tensor fused = fused_(input);
    parts = fused.view({fused.size(0), fused.size(1), heads.queries.count, 3, size}).unbind(3);
  } else {
    parts = grouped_parts(heads.queries, heads.keys, fused_(input), fused_, attention);
  }
  if (attention.clip > 0)
    for (torch::Tensor& part : parts) part = part.clamp(-attention.clip, attention.clip);
  const auto by_head = [&](const torch::Tensor& part, std::int64_t count) {
    return part.dim() == 4 ? part : part.view({part.size(0), part.size(1), count, size});
  };
  heads.query = query_norm_(by_head(parts[0], heads.queries.count));
  heads.key = key_norm_(by_head(parts[1], heads.keys.count));
  if (own_query_norm_) {
    heads.query = own_query_norm_(heads.query);
    heads.key = own_key_norm_(heads.key);
  }
  heads.query = heads.query.transpose(1, 2);
  heads.key = heads.key.transpose(1, 2);
  heads.value = by_head(parts[2], heads.keys.count).transpose(1, 2);
  return heads;
}

// `cached`: tokens before these.
DecoderLayerImpl::Heads DecoderLayerImpl::turned_heads(const torch::Tensor& input, const nn::TokenContext& tokens,
                                                       std::int64_t cached) {
  const auto turn = [&](const torch::Tensor& part) {
    return rotary_ ? (*rotary_)(part, tokens.positions, tokens.length > 0 ? tokens.length : part.size(2) + cached)
                   : part;
  };
  if (latent_) {
    const LatentHeads latent = latent_->project(input, turn);
    return {latent.query, latent.key, latent.value, latent.heads, latent.heads};
  }
  Heads heads = project(input);
  heads.query = turn(heads.query);
  heads.key = turn(heads.key);
  return heads;
}

torch::Tensor DecoderLayerImpl::attention(const torch::Tensor& input, const nn::TokenContext& tokens) {
  const AttentionSpec& attention = spec_.attention;
  nn::KeyValueCache* cache = tokens.cache(index_);
  const Heads heads = turned_heads(input, tokens, cache ? cache->tokens() : 0);
  torch::Tensor slopes;
  if (!attention.slopes.empty())
    slopes =
        torch::tensor(attention.slopes, torch::kFloat64)
            .narrow(0, heads.queries.first, heads.queries.count)
            .to(torch::TensorOptions(at::promote_types(input.scalar_type(), torch::kFloat32)).device(input.device()));
  const nn::AttentionOptions options{.causal = true,
                                     .keep = tokens.keep,
                                     .cache = cache,
                                     .window = attention.window,
                                     .scale = attention.scale,
                                     .soft_cap = attention.soft_cap,
                                     .slopes = slopes,
                                     .sinks = sinks_ ? sinks_->weight : torch::Tensor(),
                                     .documents = tokens.documents,
                                     .sequence = tokens.sequence};
  const torch::Tensor mixed =
      nn::attention(heads.query, heads.key, heads.value, heads.queries, heads.keys, options, *attention_dropout_);
  return dropped(output_dropout_, output_(nn::merge_heads(mixed)));
}

torch::Tensor DecoderLayerImpl::mlp(const torch::Tensor& input) {
  if (experts_) return dropped(mlp_dropout_, experts_->forward(input).output);
  const MlpSpec& mlp = spec_.mlp;
  torch::Tensor wide;
  if (mlp.fused_gate) {
    const auto parts = fused_gate_(input).chunk(2, -1);
    wide = nn::activate(parts[0], mlp.activation) * parts[1];
  } else if (mlp.gated) {
    const auto parts = nn::together(input, {gate_, up_});
    wide = nn::activate(parts[0], mlp.activation) * parts[1];
  } else {
    wide = nn::activate(up_(input), mlp.activation);
  }
  return dropped(mlp_dropout_, down_(wide));
}

// The MLP's part of a layer whose experts add to the sums of the routers.
TensorDict DecoderLayerImpl::experts_with_sums(const TensorDict& state, const torch::Tensor& keep) {
  const torch::Tensor& hidden = state.at("hidden");
  const auto made = experts_->forward(before_mlp_(hidden));
  const torch::Tensor added = after_mlp_(dropped(mlp_dropout_, made.output));
  TensorDict changed = with_router_sums(state, made.routing, keep);
  changed.set("hidden", hidden + multiplied(added, spec_.residual_scale));
  return changed;
}

LayerParts DecoderLayerImpl::parts(const nn::TokenContext& tokens, bool sums_routers) {
  const double scale = spec_.residual_scale;
  if (experts_ && sums_routers)
    return {{"attention",
             [this, tokens, scale](const TensorDict& state) -> TensorDict {
               const torch::Tensor& hidden = state.at("hidden");
               return {{"hidden", hidden + multiplied(after_attention_(attention(input_(hidden), tokens)), scale)}};
             }},
            {"mlp", [this, keep = tokens.keep](const TensorDict& state) { return experts_with_sums(state, keep); }}};
  if (spec_.norms_behind)
    return {{"attention",
             [this, tokens, scale](const torch::Tensor& hidden) {
               return input_(hidden + multiplied(attention(hidden, tokens), scale));
             }},
            {"mlp", [this, scale](const torch::Tensor& hidden) {
               return before_mlp_(hidden + multiplied(mlp(hidden), scale));
             }}};
  if (!spec_.parallel) {
    const auto added = [this, scale](const torch::Tensor& hidden, const torch::Tensor& made) {
      return hidden + multiplied(after_mlp_(made), scale);
    };
    LayerParts parts{{"attention", [this, tokens, scale](const torch::Tensor& hidden) {
                        return hidden + multiplied(after_attention_(attention(input_(hidden), tokens)), scale);
                      }}};
    if (experts_ && experts_->travels() && is_cut_at_parts(index_))
      experts_->add_parts(
          parts, [this](const torch::Tensor& hidden) { return before_mlp_(hidden); },
          [this, added](const torch::Tensor& hidden, const torch::Tensor& made) {
            return added(hidden, dropped(mlp_dropout_, made));
          });
    else
      parts.emplace_back(
          "mlp", [this, added](const torch::Tensor& hidden) { return added(hidden, mlp(before_mlp_(hidden))); });
    return parts;
  }
  // The second part needs what the first one read.
  const auto attend = [this, tokens, scale](const TensorDict& state) -> TensorDict {
    const torch::Tensor &hidden = state.at("hidden"), normed = input_(hidden);
    return {{"hidden", hidden + multiplied(after_attention_(attention(normed, tokens)), scale)},
            {"before_mlp", spec_.before_mlp.exists() ? hidden : normed}};
  };
  const auto add_mlp = [this, scale](const TensorDict& state) -> TensorDict {
    const torch::Tensor made = mlp(before_mlp_(state.at("before_mlp")));
    return {{"hidden", state.at("hidden") + multiplied(after_mlp_(made), scale)}, {"before_mlp", {}}};
  };
  return {{"attention", attend}, {"mlp", add_mlp}};
}

DecoderImpl::DecoderImpl(DecoderSpec description) : spec(std::move(description)) {
  const DecoderNames& names = spec.names;
  const std::int64_t columns = embedding_columns(spec);
  auto table = torch::nn::EmbeddingOptions(spec.vocabulary, columns);
  if (spec.padding) table.padding_idx(spec.padding);
  tokens_ = register_at(*this, names.tokens, nn::Embedding(table));
  if (spec.embedding_width > 0) project_in_ = linear_at(*this, names.project_in, columns, spec.hidden, false);
  if (spec.learned_positions)
    positions_ = register_at(*this, names.positions, nn::Embedding(spec.positions + spec.position_offset, spec.hidden));
  embedding_norm_ = DecoderNorm(*this, names.embedding_norm, spec.embedding_norm, spec.hidden);
  dropout_ = dropout_at(*this, names.dropout, spec.embedding_dropout);
  layers_ = register_at(*this, names.layers, torch::nn::ModuleList());
  for (int index = 0; index < static_cast<int>(spec.layers.size()); ++index)
    layers_->push_back(DecoderLayer(spec, index));
  norm_ = DecoderNorm(*this, names.norm, spec.norm, spec.hidden);
  if (spec.embedding_width > 0) project_out_ = linear_at(*this, names.project_out, spec.hidden, columns, false);
  head_ = linear_at(*this, names.head, columns, spec.vocabulary, spec.head_bias);
  initialise();
  if (spec.tied) head_->tie_weight(tokens_->weight);
}

// The initial weights of Hugging Face's models.
void DecoderImpl::initialise() {
  const torch::NoGradGuard no_grad;
  const double range = spec.initializer_range;
  const double into_residual =
      spec.initial_by_depth ? range / std::sqrt(2.0 * static_cast<double>(spec.layers.size())) : range;
  for (const auto& item : named_modules("", /*include_self=*/false)) {
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(item.value().get())) {
      const bool residual =
          item.key().ends_with("." + spec.names.output) || item.key().ends_with("." + spec.names.down);
      torch::nn::init::normal_(linear->weight, 0, residual ? into_residual : range);
      if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
    } else if (auto* embedding = dynamic_cast<nn::EmbeddingImpl*>(item.value().get())) {
      torch::nn::init::normal_(embedding->weight, 0, range);
    } else if (auto* router = dynamic_cast<nn::RouterImpl*>(item.value().get())) {
      torch::nn::init::normal_(router->weight, 0, range);
    } else if (auto* experts = dynamic_cast<nn::ExpertsImpl*>(item.value().get())) {
      torch::nn::init::normal_(experts->gate_up_proj, 0, range);
      torch::nn::init::normal_(experts->down_proj, 0, into_residual);
    }
  }
  if (spec.padding) tokens_->weight.select(0, *spec.padding).zero_();
}

void DecoderImpl::add_embedding_noise(double alpha) {
  noise_ = register_module(kEmbeddingNoise, std::make_shared<nn::EmbeddingNoiseImpl>(alpha));
}

torch::Tensor DecoderImpl::embed(const torch::Tensor& input_ids, const nn::TokenContext& known,
                                 const torch::Tensor& positions, const torch::Tensor& rows) {
  const std::int64_t tokens = known.length > 0 ? known.length : input_ids.size(1);
  if (tokens > spec.positions && !spec.unlimited_positions) {
    throw InputError({"input_ids", fmt::format("{} tokens per sample", tokens),
                      fmt::format("at most the model's {} positions", spec.positions), "shorten the samples"});
  }
  const torch::Tensor found = rows.defined() ? rows : tokens_(input_ids);
  torch::Tensor hidden = scaled(noise_ ? noise_->forward(found) : found, spec.embedding_scale);
  if (project_in_) hidden = project_in_(hidden);
  if (positions_)
    hidden = hidden + positions_(positions.defined() ? positions : torch::arange(tokens, input_ids.options()));
  return dropped(dropout_, embedding_norm_(hidden));
}

torch::Tensor DecoderImpl::rows_of_positions(const StageContext& stage, const torch::Tensor& positions) const {
  if (spec.position_offset == 0) return positions;
  const auto& part = stage.sequence();
  const torch::Tensor mask = part ? part->keep : stage.batch().get("attention_mask");
  // Then the mask, if any, has a say.
  const bool are_places = part && !part->documents.defined() && !stage.batch().contains("position_ids");
  if (positions.defined() && !(are_places && mask.defined())) return positions + spec.position_offset;
  const torch::Tensor ids = stage.batch().at("input_ids");
  const torch::Tensor counted = mask.defined() ? mask.to(torch::kInt64) : torch::ones_like(ids);
  // Of tokens that count; padding has the row before.
  const torch::Tensor rows = counted.cumsum(1) * counted - 1 + spec.position_offset;
  return part ? rows.index_select(1, part->positions.view({-1})) : rows;
}

TensorDict DecoderImpl::stage_forward(const StageContext& stage, TensorDict input) {
  const nn::TokenContext tokens = stage.tokens();
  torch::Tensor hidden = stage.is_first()
                             ? embed(input.at("input_ids"), tokens, rows_of_positions(stage, tokens.positions),
                                     stage.vocabulary_apart() ? input.at("embedded") : torch::Tensor())
                             : input.at("hidden");
  // The routers' loss is joint over all layers: a stage that has only some does without. A continued text has none.
  const bool is_continued = tokens.caches || (!is_training() && !stage.batch().contains("labels"));
  const bool sums_routers = spec.router_loss > 0 && stage.num_stages() == 1 && !is_continued;
  const TensorDict state = stage.run_layers(TensorDict{{"hidden", hidden}}, [&](int index) {
    return layers_->at<DecoderLayerImpl>(index).parts(tokens, sums_routers);
  });
  hidden = state.at("hidden");
  if (sums_routers) add_router_loss(stage, state, spec.router_loss, layers_with_experts(spec));
  if (!stage.is_last()) return {{"hidden", hidden}};
  hidden = norm_(tokens.for_head(hidden));
  if (project_out_) hidden = project_out_(hidden);
  if (stage.vocabulary_apart()) return {{"hidden", hidden}};
  const torch::Tensor logits = head_(hidden);
  return {{"logits", capped(multiplied(logits, spec.logit_scale), spec.logit_soft_cap)}};
}

TensorDict DecoderImpl::forward(const TensorDict& inputs) {
  return stage_forward(*StageContext::whole(layers_->size(), inputs), inputs);
}

}  // namespace gantry::models
