#include <algorithm>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/selective_scan.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using Norms = SelectiveScanSizes::Norms;

DecoderSpec read_mamba_with(ConfigReader& reader, Norms norms) {
  DecoderSpec spec = read_mamba_decoder(reader, {});
  SelectiveScanSizes sizes;
  sizes.channels = reader.size("expand", 2) * spec.hidden;
  sizes.state = reader.size("state_size", 16);
  sizes.rank = read_step_rank(reader, "time_step_rank", spec.hidden);
  sizes.kernel = reader.size("conv_kernel", 4, 2);
  sizes.bias = reader.flag("use_bias", false);
  sizes.convolution_bias = reader.flag("use_conv_bias", true);
  sizes.norms = norms;
  if (norms != Norms::kNone) sizes.eps = reader.number("mixer_rms_eps", 1e-6, 0, 1);
  sizes.first_initial_step =
      std::max(reader.number("time_step_min", 0.001, 1e-12, 1), reader.number("time_step_floor", 1e-4, 0, 1));
  sizes.last_initial_step = reader.number("time_step_max", 0.1, 1e-12, 1e6);
  reader.only("hidden_act", "silu", "the convolution of Gantry's mixer computes silu");
  const auto mixer = std::make_shared<const SelectiveScan>(sizes);
  for (LayerSpec& layer : spec.layers) layer.mixer = mixer;
  return spec;
}

DecoderSpec read_mamba(ConfigReader& reader) { return read_mamba_with(reader, Norms::kNone); }
DecoderSpec read_falcon_mamba(ConfigReader& reader) { return read_mamba_with(reader, Norms::kWeightless); }

}  // namespace

std::int64_t read_step_rank(ConfigReader& reader, const std::string& key, std::int64_t hidden) {
  const std::int64_t derived = (hidden + 15) / 16;
  const bool is_derived = reader.has(key) && reader.keys()[key] == "auto";
  reader.ignore(key);
  const std::int64_t rank = is_derived ? derived : reader.size(key, derived);
  reader.decides(key, rank);
  return rank;
}

std::vector<std::pair<std::string, std::string>> scan_file_names(const std::string& theirs) {
  auto names = mamba_file_names(theirs);
  for (auto& [ours, name] : names)
    if (ours.ends_with(".dt_bias")) name = theirs + ".dt_proj.bias";
  return names;
}

DecoderFamily mamba_family() {
  return {
      .model_type = "mamba",
      .architecture = "MambaForCausalLM",
      .read = read_mamba,
      .files = {.prefix = "backbone.", .renamed = scan_file_names("mixer")},
      .harmless = {"d_inner", "d_model", "intermediate_size", "n_layer", "rescale_prenorm_residual", "residual_in_fp32",
                   "time_step_init_scheme", "time_step_scale", "use_associative_scan", "use_mambapy"},
      .small = {{"vocab_size", 256}, {"hidden_size", 64}, {"num_hidden_layers", 4}, {"state_size", 8}}};
}

DecoderFamily falcon_mamba_family() {
  DecoderFamily family = mamba_family();
  family.model_type = "falcon_mamba";
  family.architecture = "FalconMambaForCausalLM";
  family.read = read_falcon_mamba;
  return family;
}

}  // namespace gantry::models
