#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/ssd.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// The MLP that all tokens use, and experts next to it unless there are none.
void read_granite_experts(ConfigReader& reader, DecoderSpec& spec) {
  ExpertsSpec experts;
  experts.count = reader.size("num_local_experts", 8, 0);
  experts.used = reader.size("num_experts_per_tok", 2, 0);
  experts.scores = ExpertsSpec::Scores::kSoftmaxOfUsed;
  experts.width = spec.layers.front().mlp.width;
  experts.activation = spec.layers.front().mlp.activation;
  experts.shared_width = reader.size("shared_intermediate_size", 1024);
  experts.shared_fused = true;
  if (experts.count > 0) check_experts(experts);
  spec.names.fused_gate = "shared_mlp.input_linear";
  spec.names.down = "shared_mlp.output_linear";
  for (LayerSpec& layer : spec.layers) {
    layer.mlp.width = experts.shared_width;
    layer.mlp.fused_gate = true;
    if (experts.count > 0) layer.experts = experts;
  }
  const double loss = read_router_loss(reader);
  spec.router_loss = experts.count > 0 ? loss : 0;
}

// Granite whose layers have attention, or mixers of Mamba-2 in most layers.
DecoderSpec read_granitemoehybrid(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {});
  read_granite_multipliers(reader, spec);
  const std::string positions = reader.choice("position_embedding_type", "nope", {"nope", "rope"});
  const auto types =
      reader.words("layer_types", spec.layers.size(), {"mamba", "attention", "linear_attention", "full_attention"});
  const auto mixer = std::make_shared<const Ssd>(read_named_ssd(reader, spec));
  nlohmann::json attending = nlohmann::json::array();
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    const bool attends = !types.empty() && types[layer].ends_with("attention") && types[layer] != "linear_attention";
    if (!attends) spec.layers[layer].mixer = mixer;
    if (positions == "nope") spec.layers[layer].attention.rotary = -1;
    attending.push_back(attends);
  }
  reader.decides("attending_layers", attending);
  read_granite_experts(reader, spec);
  return spec;
}

}  // namespace

SsdSizes read_named_ssd(ConfigReader& reader, const DecoderSpec& spec) {
  SsdSizes sizes;
  const std::int64_t expanded = reader.size("mamba_expand", 2) * spec.hidden;
  const std::int64_t inner = reader.size("mamba_d_ssm", expanded);
  sizes.heads = reader.size("mamba_n_heads", 128);
  const bool is_derived = reader.has("mamba_d_head") && reader.keys()["mamba_d_head"] == "auto";
  sizes.head_size = is_derived ? inner / sizes.heads : reader.size("mamba_d_head", inner / sizes.heads, 1);
  reader.ignore("mamba_d_head");
  if (sizes.inner() != inner)
    refuse_key("mamba_n_heads", sizes.heads,
               fmt::format("a number that gives, times mamba_d_head {}, the {} features of the mixer", sizes.head_size,
                           inner));
  sizes.groups = reader.size("mamba_n_groups", 1);
  sizes.state = reader.size("mamba_d_state", 256);
  sizes.kernel = reader.size("mamba_d_conv", 4, 2);
  sizes.convolution_bias = reader.flag("mamba_conv_bias", true);
  sizes.input_bias = sizes.output_bias = reader.flag("mamba_proj_bias", false);
  sizes.eps = spec.norm.eps;
  read_step_limit(reader, sizes);
  check_ssd(sizes, {"mamba_n_heads", "mamba_n_groups"});
  if (spec.layers.front().mlp.activation != "silu")
    refuse_key("hidden_act", spec.layers.front().mlp.activation, "silu", "the mixers have no other activation");
  return sizes;
}

DecoderFamily granitemoehybrid_family() {
  FileNames files{.renamed = {{"mlp.gate", "block_sparse_moe.router.layer"},
                              {"mlp.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"},
                              {"mlp.experts.down_proj", "block_sparse_moe.output_linear.weight"},
                              {"mlp.shared_expert.gate_up_proj", "shared_mlp.input_linear"},
                              {"mlp.shared_expert.down_proj", "shared_mlp.output_linear"}}};
  for (auto& name : mamba_file_names("mamba")) files.renamed.push_back(std::move(name));
  return {.model_type = "granitemoehybrid",
          .architecture = "GraniteMoeHybridForCausalLM",
          .read = read_granitemoehybrid,
          .files = std::move(files),
          .harmless = {"init_method", "mamba_chunk_size", "normalization_function"},
          .small = small_keys_with({{"intermediate_size", 64},
                                    {"shared_intermediate_size", 64},
                                    {"num_local_experts", 4},
                                    {"mamba_n_heads", 8},
                                    {"mamba_d_state", 16},
                                    {"layer_types", {"mamba", "mamba", "attention", "mamba"}}})};
}

}  // namespace gantry::models
