#include "gantry/models/described/decoder_shards.h"

#include <algorithm>
#include <set>
#include <utility>

#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/models/described/vision_modules.h"

namespace gantry::models {
namespace {

// Adds the rules of a layer, with paths below `prefix`.
class LayerRules {
 public:
  LayerRules(std::string prefix, std::vector<ModuleShard>& all) : prefix_(std::move(prefix)), all_(all) {}
  void add(const std::string& path, ShardStyle style) { all_.push_back({prefix_ + path, std::move(style)}); }

 private:
  std::string prefix_;
  std::vector<ModuleShard>& all_;
};

Column fused_column(const AttentionSpec& attention) {
  const std::int64_t size = attention.head_size;
  if (attention.rows == ProjectionRows::kPerHead) return {.unit = 3 * size};
  if (attention.rows == ProjectionRows::kPerGroup) return {.unit = size, .groups = attention.key_heads};
  if (attention.rows == ProjectionRows::kBlocks) return {.unit = size, .blocks = kRowBlocks};
  if (attention.heads == attention.key_heads) return {.segments = 3, .unit = size};
  const Part keys{attention.key_heads * size, size, attention.heads};
  return {.parts = {{attention.heads * size, size}, keys, keys}};
}

void add_latent_attention(LayerRules& rules, const AttentionSpec& attention, const DecoderNames& names) {
  const LatentSpec& latent = *attention.latent;
  rules.add(latent.query_rank > 0 ? names.q_b_proj : names.query, Column{.unit = attention.head_size});
  rules.add(names.kv_b_proj, Column{.unit = latent.plain + latent.value});
  rules.add(names.rope_key, Column{});
  rules.add(names.output, Row{.unit = latent.value});
}

void add_attention(LayerRules& rules, const AttentionSpec& attention, const DecoderNames& names) {
  if (attention.latent) return add_latent_attention(rules, attention, names);
  const std::int64_t size = attention.head_size;
  if (attention.rows == ProjectionRows::kSeparate) {
    rules.add(names.query, Column{.unit = attention.gated ? 2 * size : size});
    rules.add(names.key, Column{.unit = size, .users = attention.heads});
    rules.add(names.value, Column{.unit = size, .users = attention.heads});
  } else {
    rules.add(names.fused, fused_column(attention));
  }
  rules.add(names.output, Row{.unit = size});
  if (attention.sinks) rules.add(names.sinks, Column{});
  if (attention.qk_norm.exists()) {
    rules.add(names.query_norm, Column{.unit = size});
    rules.add(names.key_norm, Column{.unit = size, .users = attention.heads});
  }
  if (attention.per_head_norm.exists()) {
    rules.add(names.query_norm, Column{});
    rules.add(names.key_norm, Column{.users = attention.heads});
  }
  if (!attention.head_norm.exists() || !attention.head_norm.weight) return;
  rules.add(names.query_norm, OnHeads{});
  rules.add(names.key_norm, OnHeads{});
}

void add_mlp(LayerRules& rules, const MlpSpec& mlp, const DecoderNames& names) {
  if (mlp.fused_gate) {
    rules.add(names.fused_gate, Column{.segments = 2});
  } else {
    if (mlp.gated) rules.add(names.gate, Column{});
    rules.add(names.up, Column{});
  }
  if (mlp.activation == kTrainedActivation) rules.add(names.activation, OnHeads{});
  rules.add(names.down, Row{});
}

void add_experts(LayerRules& rules, const ExpertsSpec& experts, const DecoderNames& names) {
  rules.add(names.experts, Expert{});
  if (experts.shared_width == 0) return;
  if (experts.shared_fused) {
    rules.add(names.shared + ".gate_up_proj", Column{.segments = 2});
  } else {
    if (experts.gated) rules.add(names.shared + ".gate_proj", Column{});
    rules.add(names.shared + ".up_proj", Column{});
  }
  rules.add(names.shared + ".down_proj", Row{});
}

// Adds the rules of the first layer with the kind of each mixer.
void add_mixers(LayerRules& rules, const std::vector<LayerSpec>& layers) {
  std::set<std::string> added;
  for (const LayerSpec& layer : layers) {
    if (!layer.mixer || !added.insert(layer.mixer->name()).second) continue;
    for (auto& [path, style] : layer.mixer->shards()) rules.add(path, std::move(style));
  }
}

void add_layers(std::vector<ModuleShard>& all, const DecoderSpec& spec) {
  const DecoderNames& names = spec.names;
  LayerRules rules(names.layers + ".*.", all);
  const auto first = [&](const auto& property) { return std::ranges::find_if(spec.layers, property); };
  const auto attends = [](const LayerSpec& layer) { return layer.has_attention(); };
  const auto routes = [](const LayerSpec& layer) { return layer.experts.has_value(); };
  const auto has_mlp = [](const LayerSpec& layer) { return layer.has_mlp && !layer.experts; };
  if (const auto layer = first(attends); layer != spec.layers.end()) add_attention(rules, layer->attention, names);
  add_mixers(rules, spec.layers);
  if (const auto layer = first(has_mlp); layer != spec.layers.end()) add_mlp(rules, layer->mlp, names);
  if (const auto layer = first(routes); layer != spec.layers.end()) add_experts(rules, *layer->experts, names);
}

}  // namespace

std::vector<ModuleShard> decoder_shards(const DecoderSpec& spec) {
  std::vector<ModuleShard> all;
  add_layers(all, spec);
  all.push_back({spec.names.tokens, Vocab{}});
  if (spec.layer_inputs) all.push_back({spec.names.layer_tokens, Vocab{}});
  if (predicts_tokens(spec)) all.push_back({spec.names.head, Column{}});
  if (spec.vision)
    for (ModuleShard& shard : vision_shards(*spec.vision)) all.push_back(std::move(shard));
  return all;
}

}  // namespace gantry::models
