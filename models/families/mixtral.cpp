#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Mistral whose layers have experts. A token uses two of them, and their weights are normalised.
DecoderSpec read_mixtral(ConfigReader& reader) {
  DecoderSpec spec =
      read_common(reader, {.width = 14336, .key_heads = 8, .positions = 131072, .eps = 1e-5, .theta = 1e6});
  ExpertsSpec experts;
  experts.count = reader.size("num_local_experts", 8);
  experts.used = reader.size("num_experts_per_tok", 2);
  experts.normalised = true;
  experts.width = spec.layers.front().mlp.width;
  experts.activation = spec.layers.front().mlp.activation;
  check_experts(experts);
  for (LayerSpec& layer : spec.layers) layer.experts = experts;
  reader.only("router_jitter_noise", 0.0, "Gantry adds no noise to the router in training");
  spec.router_loss = read_router_loss(reader);
  set_window_of_all(spec, reader.size_or_none("sliding_window", 0));
  return spec;
}

}  // namespace

double read_router_loss(ConfigReader& reader, double missing) {
  const double coefficient = reader.number("router_aux_loss_coef", missing, 0, 1e6);
  return reader.flag("output_router_logits", false) ? coefficient : 0;
}

void check_experts(const ExpertsSpec& experts) {
  if (experts.count % experts.groups != 0 ||
      (experts.groups > 1 && experts.count < experts.group_scores * experts.groups))
    refuse_key("n_group", experts.groups,
               fmt::format("a divisor of the {} experts, with at least {} experts per group", experts.count,
                           experts.group_scores));
  if (experts.used_groups > experts.groups)
    refuse_key("topk_group", experts.used_groups, fmt::format("at most n_group {}", experts.groups));
  const std::int64_t choice = experts.count / experts.groups * experts.used_groups;
  if (experts.used > choice)
    refuse_key("num_experts_per_tok", experts.used,
               fmt::format("a number from 1 to the {} experts that a token can choose", choice));
}

nlohmann::json small_keys_with(const nlohmann::json& more) {
  nlohmann::json keys = small_keys();
  keys.update(more);
  return keys;
}

DecoderFamily mixtral_family() {
  return {.model_type = "mixtral",
          .architecture = "MixtralForCausalLM",
          .read = read_mixtral,
          .files = {.renamed = {{"mlp.gate", "block_sparse_moe.gate"}},
                    .transposed = {},
                    .expert_gate = "block_sparse_moe.experts.{}.w1",
                    .expert_up = "block_sparse_moe.experts.{}.w3",
                    .expert_down = "block_sparse_moe.experts.{}.w2"},
          .harmless = {},
          .small = small_keys_with({{"intermediate_size", 96}, {"num_local_experts", 4}})};
}

}  // namespace gantry::models
