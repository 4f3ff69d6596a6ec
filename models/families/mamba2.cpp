#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/ssd.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// A number of config.json, where transformers 5 writes infinity as {"__float__": "Infinity"}.
double limit_of(const json& value, const json& pair) {
  if (value.is_number()) return value.get<double>();
  if (value == json{{"__float__", "Infinity"}}) return std::numeric_limits<double>::infinity();
  refuse_key("time_step_limit", pair, "two numbers, of which the second may be {\"__float__\": \"Infinity\"}");
}

// Norm and mixer in each layer, without attention and MLP.
DecoderSpec read_mamba2(ConfigReader& reader) {
  DecoderSpec spec = read_mamba_decoder(reader, {.vocabulary = 32768, .hidden = 4096, .layers = 64, .tied = false});
  SsdSizes sizes;
  sizes.heads = reader.size("num_heads", 128);
  sizes.head_size = reader.size("head_dim", 64);
  sizes.groups = reader.size("n_groups", 8);
  sizes.state = reader.size("state_size", 128);
  sizes.kernel = reader.size("conv_kernel", 4, 2);
  sizes.input_bias = sizes.output_bias = reader.flag("use_bias", false);
  sizes.convolution_bias = reader.flag("use_conv_bias", true);
  sizes.eps = spec.norm.eps;
  sizes.first_initial_step =
      std::max(reader.number("time_step_min", 0.001, 1e-12, 1), reader.number("time_step_floor", 1e-4, 0, 1));
  sizes.last_initial_step = reader.number("time_step_max", 0.1, 1e-12, 1e6);
  read_step_limit(reader, sizes);
  check_ssd(sizes, {"num_heads", "n_groups"});
  if (const std::int64_t inner = reader.size("expand", 2) * spec.hidden; inner != sizes.inner())
    refuse_key("head_dim", sizes.head_size, fmt::format("expand * hidden_size {} / num_heads {}", inner, sizes.heads));
  reader.only("hidden_act", "silu", "the convolution of Gantry's mixer computes silu");
  reader.only("rms_norm", true, "transformers has no mamba2 without the norm");
  reader.only("norm_before_gate", false, "transformers has no other mamba2");
  const auto mixer = std::make_shared<const Ssd>(sizes);
  for (LayerSpec& layer : spec.layers) layer.mixer = mixer;
  return spec;
}

}  // namespace

DecoderSpec read_mamba_decoder(ConfigReader& reader, const MambaDefaults& defaults) {
  DecoderSpec spec;
  spec.vocabulary = reader.size("vocab_size", defaults.vocabulary);
  spec.hidden = reader.size("hidden_size", defaults.hidden);
  spec.unlimited_positions = true;
  spec.norm = {NormSpec::Kind::kRms, reader.number("layer_norm_epsilon", 1e-5, 0, 1)};
  LayerSpec layer;
  layer.input = spec.norm;
  layer.has_mlp = false;
  spec.layers.assign(static_cast<std::size_t>(reader.size("num_hidden_layers", defaults.layers)), layer);
  spec.initializer_range = reader.number("initializer_range", 0.1, 0, 100);
  spec.tied = reader.flag("tie_word_embeddings", defaults.tied);
  spec.names.tokens = "embeddings";
  spec.names.norm = "norm_f";
  spec.names.input = "norm";
  return spec;
}

void read_step_limit(ConfigReader& reader, SsdSizes& sizes) {
  reader.ignore("time_step_limit");
  if (reader.has("time_step_limit")) {
    const json& pair = reader.keys()["time_step_limit"];
    if (!pair.is_array() || pair.size() != 2) refuse_key("time_step_limit", pair, "a list of two numbers");
    sizes.least_step = limit_of(pair[0], pair);
    sizes.largest_step = limit_of(pair[1], pair);
    if (!(sizes.least_step <= sizes.largest_step)) refuse_key("time_step_limit", pair, "the smaller limit first");
  }
  const bool is_limited = std::isfinite(sizes.largest_step);
  reader.decides("time_step_limit", {sizes.least_step, is_limited ? json(sizes.largest_step) : json("none")});
}

void check_ssd(const SsdSizes& sizes, const SsdKeys& keys) {
  if (sizes.heads % sizes.groups != 0)
    refuse_key(keys.groups, sizes.groups, fmt::format("a divisor of {} {}", keys.heads, sizes.heads));
}

std::vector<std::pair<std::string, std::string>> mamba_file_names(const std::string& theirs) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const char* parameter : {"A_log", "D", "dt_bias"})
    names.emplace_back(std::string("mamba.recurrence.") + parameter, theirs + "." + parameter);
  if (theirs == "mamba") return names;
  for (const char* module : {"in_proj", "conv1d", "x_proj", "dt_proj", "norm", "out_proj"})
    names.emplace_back(std::string("mamba.") + module, theirs + "." + module);
  return names;
}

DecoderFamily mamba2_family() {
  return {.model_type = "mamba2",
          .architecture = "Mamba2ForCausalLM",
          .read = read_mamba2,
          .files = {.prefix = "backbone.", .renamed = mamba_file_names("mixer")},
          .harmless = {"chunk_size", "rescale_prenorm_residual", "residual_in_fp32", "time_step_rank"},
          .small = {{"vocab_size", 256},
                    {"hidden_size", 64},
                    {"num_hidden_layers", 4},
                    {"num_heads", 8},
                    {"head_dim", 16},
                    {"n_groups", 2},
                    {"state_size", 16}}};
}

}  // namespace gantry::models
