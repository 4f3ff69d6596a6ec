#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

ExpertsSpec read_ernie_experts(ConfigReader& reader, const std::string& activation) {
  ExpertsSpec experts;
  experts.count = reader.size("moe_num_experts", 64);
  experts.used = reader.size("moe_k", 6);
  experts.width = reader.size("moe_intermediate_size", 1536);
  experts.shared_width = reader.size("moe_num_shared_experts", 2, 0) * experts.width;
  experts.activation = activation;
  experts.normalised = true;
  experts.least_sum = reader.number("moe_norm_min", 1e-12, 0, 1);
  experts.correction = experts.correction_row = true;
  check_experts(experts);
  return experts;
}

// Gives experts to every moe_layer_interval-th layer from moe_layer_start_index to moe_layer_end_index.
void give_ernie_experts(ConfigReader& reader, DecoderSpec& spec, const ExpertsSpec& experts) {
  const auto layers = static_cast<std::int64_t>(spec.layers.size());
  const std::int64_t first = reader.size("moe_layer_start_index", 1, 0),
                     last = reader.size("moe_layer_end_index", -1, -1), interval = reader.size("moe_layer_interval", 1);
  for (std::int64_t layer = first; layer < layers && (last < 0 || layer <= last); ++layer)
    if ((layer + 1) % interval == 0) spec.layers[static_cast<std::size_t>(layer)].experts = experts;
}

// ERNIE 4.5 with experts, whose router has an expert bias next to a softmax over all experts.
DecoderSpec read_ernie4_5_moe(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 103424,
                                          .hidden = 2560,
                                          .width = 12288,
                                          .layers = 28,
                                          .heads = 20,
                                          .key_heads = 4,
                                          .positions = 131072,
                                          .eps = 1e-5,
                                          .theta = 500000,
                                          .padding = 0,
                                          .tied = true,
                                          .paired = true});
  give_ernie_experts(reader, spec, read_ernie_experts(reader, spec.layers.front().mlp.activation));
  spec.names.shared = "mlp.shared_experts";
  spec.router_loss = read_router_loss(reader);
  reader.only("use_bias", false, "Gantry has no shared experts with biases");
  return spec;
}

}  // namespace

DecoderFamily ernie4_5_moe_family() {
  FileNames files = separate_expert_files();
  files.renamed = {{"mlp.gate.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias"}};
  files.further_layers = true;
  return {.model_type = "ernie4_5_moe",
          .architecture = "Ernie4_5_MoeForCausalLM",
          .read = read_ernie4_5_moe,
          .files = files,
          .small = small_keys_with({{"moe_num_experts", 4}, {"moe_k", 2}, {"moe_intermediate_size", 64}})};
}

}  // namespace gantry::models
