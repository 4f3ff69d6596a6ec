#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/selective_scan.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

DecoderNames jamba_names() {
  DecoderNames names;
  names.norm = "final_layernorm";
  names.before_mlp = "pre_ff_layernorm";
  names.gate = "feed_forward.gate_proj";
  names.up = "feed_forward.up_proj";
  names.down = "feed_forward.down_proj";
  names.router = "feed_forward.router";
  names.experts = "feed_forward.experts";
  return names;
}

// Every `period`-th layer, beginning with layer `offset`.
struct Recurring {
  std::size_t period, offset;
  bool contains(std::size_t layer) const { return layer % period == offset; }
};

Recurring read_recurring(ConfigReader& reader, const std::string& kind, std::int64_t period, std::int64_t offset) {
  const std::string period_key = kind + "_layer_period", offset_key = kind + "_layer_offset";
  period = reader.size(period_key, period);
  offset = reader.size(offset_key, offset, 0);
  if (offset >= period) refuse_key(offset_key, offset, fmt::format("a number below {} {}", period_key, period));
  return {static_cast<std::size_t>(period), static_cast<std::size_t>(offset)};
}

ExpertsSpec read_jamba_experts(ConfigReader& reader, const MlpSpec& mlp) {
  ExpertsSpec experts;
  experts.count = reader.size("num_experts", 16);
  experts.used = reader.size("num_experts_per_tok", 2);
  experts.width = mlp.width;
  experts.activation = mlp.activation;
  if (experts.count > 1) check_experts(experts);
  return experts;
}

std::shared_ptr<const SelectiveScan> read_jamba_mixer(ConfigReader& reader, const DecoderSpec& spec) {
  SelectiveScanSizes sizes;
  sizes.channels = reader.size("mamba_expand", 2) * spec.hidden;
  sizes.state = reader.size("mamba_d_state", 16);
  sizes.rank = read_step_rank(reader, "mamba_dt_rank", spec.hidden);
  sizes.kernel = reader.size("mamba_d_conv", 4, 2);
  sizes.bias = reader.flag("mamba_proj_bias", false);
  sizes.convolution_bias = reader.flag("mamba_conv_bias", true);
  sizes.norms = SelectiveScanSizes::Norms::kWeighted;
  sizes.eps = spec.norm.eps;
  if (spec.layers.front().mlp.activation != "silu")
    refuse_key("hidden_act", spec.layers.front().mlp.activation, "silu", "the mixers have no other activation");
  return std::make_shared<const SelectiveScan>(sizes);
}

// Mixers of Mamba with norms of dt, b and c; attention without positions in some layers; experts in every second layer.
DecoderSpec read_jamba(ConfigReader& reader) {
  DecoderSpec spec =
      read_common(reader, {.vocabulary = 65536, .width = 14336, .key_heads = 8, .positions = 262144, .padding = 0});
  spec.names = jamba_names();
  const Recurring attends = read_recurring(reader, "attn", 8, 4), routes = read_recurring(reader, "expert", 2, 1);
  const ExpertsSpec experts = read_jamba_experts(reader, spec.layers.front().mlp);
  const auto mixer = read_jamba_mixer(reader, spec);
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    LayerSpec& layer = spec.layers[index];
    layer.attention.rotary = -1;
    if (!attends.contains(index)) layer.mixer = mixer;
    if (experts.count > 1 && routes.contains(index)) layer.experts = experts;
  }
  const double loss = read_router_loss(reader);
  spec.router_loss = experts.count > 1 ? loss : 0;
  return spec;
}

}  // namespace

DecoderFamily jamba_family() {
  return {.model_type = "jamba",
          .architecture = "JambaForCausalLM",
          .read = read_jamba,
          .files = {.renamed = scan_file_names("mamba"),
                    .expert_gate = "feed_forward.experts.{}.gate_proj",
                    .expert_up = "feed_forward.experts.{}.up_proj",
                    .expert_down = "feed_forward.experts.{}.down_proj"},
          .harmless = {"calc_logits_for_entire_prompt", "num_logits_to_keep", "use_associative_scan",
                       "use_mamba_kernels", "use_mambapy"},
          .small = small_keys_with({{"intermediate_size", 96},
                                    {"num_experts", 4},
                                    {"mamba_d_state", 8},
                                    {"attn_layer_period", 4},
                                    {"attn_layer_offset", 2}})};
}

}  // namespace gantry::models
