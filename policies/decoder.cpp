#include "gantry/policies/decoder.h"

#include <algorithm>
#include <fmt/format.h>

#include <torch/torch.h>

#include "gantry/models/decoder_model_family.h"
#include "gantry/models/described/work_of_keys.h"

namespace gantry {
namespace {

using models::AttentionSpec;
using models::DecoderNames;
using models::DecoderSpec;
using models::LayerSpec;
using models::ProjectionRows;

// The rules of one layer, whose paths begin with `at`.
class LayerRules {
 public:
  LayerRules(std::string at, ShardPlan& plan) : at_(std::move(at)), plan_(plan) {}
  void add(const std::string& path, ShardStyle style) { plan_.push_back({at_ + path, std::move(style)}); }

 private:
  std::string at_;
  ShardPlan& plan_;
};

Column fused_column(const AttentionSpec& attention) {
  const std::int64_t size = attention.head_size;
  if (attention.rows == ProjectionRows::kPerHead) return {.unit = 3 * size};
  if (attention.rows == ProjectionRows::kPerGroup) return {.unit = size, .groups = attention.key_heads};
  if (attention.heads == attention.key_heads) return {.segments = 3, .unit = size};
  const Part keys{attention.key_heads * size, size, attention.heads};
  return {.parts = {{attention.heads * size, size}, keys, keys}};
}

void add_latent_attention(LayerRules& rules, const AttentionSpec& attention, const DecoderNames& names) {
  const models::LatentSpec& latent = *attention.latent;
  rules.add(latent.query_rank > 0 ? names.q_b_proj : names.query, Column{.unit = attention.head_size});
  rules.add(names.kv_b_proj, Column{.unit = latent.plain + latent.value});
  rules.add(names.rope_key, Column{});
  rules.add(names.output, Row{.unit = latent.value});
}

void add_attention(LayerRules& rules, const AttentionSpec& attention, const DecoderNames& names) {
  if (attention.latent) return add_latent_attention(rules, attention, names);
  const std::int64_t size = attention.head_size;
  if (attention.rows == ProjectionRows::kSeparate) {
    rules.add(names.query, Column{.unit = size});
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
  if (!attention.head_norm.exists()) return;
  rules.add(names.query_norm, OnHeads{});
  rules.add(names.key_norm, OnHeads{});
}

void add_mlp(LayerRules& rules, const models::MlpSpec& mlp, const DecoderNames& names) {
  if (mlp.fused_gate) {
    rules.add(names.fused_gate, Column{.segments = 2});
  } else {
    if (mlp.gated) rules.add(names.gate, Column{});
    rules.add(names.up, Column{});
  }
  rules.add(names.down, Row{});
}

void add_experts(LayerRules& rules, const models::ExpertsSpec& experts, const DecoderNames& names) {
  rules.add(names.experts, Expert{});
  if (experts.shared_width == 0) return;
  rules.add(names.shared + ".gate_proj", Column{});
  rules.add(names.shared + ".up_proj", Column{});
  rules.add(names.shared + ".down_proj", Row{});
}

// Layers of one description are split alike: by the first of those with experts, and of those without.
void add_layers(ShardPlan& plan, const DecoderSpec& spec) {
  const DecoderNames& names = spec.names;
  LayerRules rules(names.layers + ".*.", plan);
  if (!spec.layers.empty()) add_attention(rules, spec.layers.front().attention, names);
  const auto first = [&](bool with_experts) {
    return std::find_if(spec.layers.begin(), spec.layers.end(),
                        [&](const LayerSpec& layer) { return layer.experts.has_value() == with_experts; });
  };
  if (const auto layer = first(false); layer != spec.layers.end()) add_mlp(rules, layer->mlp, names);
  if (const auto layer = first(true); layer != spec.layers.end()) add_experts(rules, *layer->experts, names);
}

}  // namespace

PolicyFit DecoderPolicy::fit(const torch::nn::Module& model) const {
  const auto* decoder = dynamic_cast<const models::DecoderImpl*>(&model);
  if (!decoder || (!family_.empty() && decoder->spec.family != family_)) return PolicyFit::kNone;
  return PolicyFor::fit(model);
}

void DecoderPolicy::validate_model(const models::DecoderImpl& model) const {
  if (!family_.empty() && model.spec.family != family_)
    throw ConfigError({"model.policy",
                       fmt::format("the policy is {}, but the model is a {}", family_, model.spec.family),
                       "the model's own family", fmt::format("set model.policy to {}", model.spec.family)});
}

ShardPlan DecoderPolicy::shard_plan(const models::DecoderImpl& model) const {
  const DecoderSpec& spec = model.spec;
  const DecoderNames& names = spec.names;
  ShardPlan plan;
  add_layers(plan, spec);
  if (!spec.layers.empty()) plan.push_back({names.layers + ".*", SequenceParallel{}});  // norms, dropouts, routers
  plan.push_back({names.tokens, Vocab{}});
  if (spec.learned_positions)
    plan.push_back({names.positions, SequenceParallel{.dim = -1}});  // [tokens] or [samples, tokens]
  if (!names.dropout.empty()) plan.push_back({names.dropout, SequenceParallel{}});
  if (model.has_embedding_noise()) plan.push_back({models::kEmbeddingNoise, SequenceParallel{}});
  if (spec.embedding_norm.exists()) plan.push_back({names.embedding_norm, SequenceParallel{}});
  if (spec.norm.exists()) plan.push_back({names.norm, SequenceParallel{}});
  if (spec.embedding_width > 0)
    for (const auto& projection : {names.project_in, names.project_out})
      plan.push_back({projection, SequenceParallel{}});
  plan.push_back({names.head, Column{}});
  return plan;
}

StageLayout DecoderPolicy::stage_layout(const models::DecoderImpl& model) const {
  const DecoderNames& names = model.spec.names;
  StageLayout layout{.first = {names.tokens}, .repeated = names.layers, .last = {}};
  if (model.spec.embedding_width > 0) layout.first.push_back(names.project_in);
  if (model.spec.norm.exists()) layout.last.push_back(names.norm);
  if (model.spec.embedding_width > 0) layout.last.push_back(names.project_out);
  layout.last.push_back(names.head);
  if (model.spec.learned_positions) layout.first.push_back(names.positions);
  if (!names.dropout.empty()) layout.first.push_back(names.dropout);
  if (model.has_embedding_noise()) layout.first.push_back(models::kEmbeddingNoise);
  if (model.spec.embedding_norm.exists()) layout.first.push_back(names.embedding_norm);
  return layout;
}

LayerWork DecoderPolicy::layer_work(const models::DecoderImpl& model) const {
  return models::layer_work_of(model.spec);
}

std::string DecoderPolicy::joint_loss(const models::DecoderImpl& model) const {
  return model.spec.router_loss > 0 ? "model.config.output_router_logits" : "";
}

std::optional<AttentionHeads> DecoderPolicy::context_heads(const models::DecoderImpl& model) const {
  return models::fewest_heads(model.spec);
}

std::optional<VocabularyModules> DecoderPolicy::vocabulary(const models::DecoderImpl& model) const {
  const DecoderSpec& spec = model.spec;
  return VocabularyModules{.embedding = spec.names.tokens,
                           .head = spec.names.head,
                           .scale = spec.logit_scale,
                           .soft_cap = spec.logit_soft_cap};
}

SharedParameters DecoderPolicy::shared_parameters(const models::DecoderImpl& model) const {
  const DecoderNames& names = model.spec.names;
  if (!model.spec.tied) return {};
  return {{names.tokens + ".weight", names.head + ".weight"}};
}

std::vector<SplitOutput> DecoderPolicy::split_outputs(const models::DecoderImpl& model) const {
  return {{"logits", model.spec.names.head}};
}

Continuation DecoderPolicy::continuation(const models::DecoderImpl& model) const {
  return {.is_cached = true, .positions = model.spec.unlimited_positions ? 0 : model.spec.positions};
}

void add_decoder_family(const models::DecoderFamily& family) {
  models::families().add(family.model_type, models::model_family(family));
  policies().Registry::add(family.model_type,
                           [type = family.model_type] { return std::make_shared<const DecoderPolicy>(type); });
}

}  // namespace gantry
