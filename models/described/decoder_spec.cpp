#include "gantry/models/described/decoder_spec.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/core/shard_style.h"
#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/models/described/vision_modules.h"

namespace gantry::models {
namespace {

// Collects the parameters of modules below one path.
class Shapes {
 public:
  void table(const std::string& path, std::int64_t rows, std::int64_t columns) {
    tensor(path + ".weight", {rows, columns});
  }
  void vector(const std::string& name, std::int64_t size) { tensor(name, {size}); }
  void linear(const std::string& path, std::int64_t in, std::int64_t out, bool bias) {
    table(path, out, in);
    if (bias) tensor(path + ".bias", {out});
  }
  void norm(const std::string& path, const NormSpec& norm, std::int64_t size) {
    if (!norm.exists() || !norm.weight) return;
    tensor(path + ".weight", {size});
    if (norm.kind == NormSpec::Kind::kLayer && norm.bias) tensor(path + ".bias", {size});
  }
  void tensor(const std::string& name, std::vector<std::int64_t> shape, double used = 1) {
    shapes_.push_back({prefix_ + name, std::move(shape), used});
  }
  void below(std::string prefix) { prefix_ = std::move(prefix); }
  std::vector<ParameterShape> take() { return std::move(shapes_); }

 private:
  std::string prefix_;
  std::vector<ParameterShape> shapes_;
};

void add_latent_attention(Shapes& shapes, const DecoderSpec& spec, const AttentionSpec& attention) {
  const DecoderNames& names = spec.names;
  const LatentSpec& latent = *attention.latent;
  const std::int64_t queries = attention.heads * attention.head_size;
  if (latent.query_rank > 0) {
    shapes.linear(names.q_a_proj, spec.hidden, latent.query_rank, latent.bias);
    shapes.norm(names.q_a_norm, latent.norm, latent.query_rank);
    shapes.linear(names.q_b_proj, latent.query_rank, queries, false);
  } else {
    shapes.linear(names.query, spec.hidden, queries, false);
  }
  shapes.linear(names.kv_a_proj, spec.hidden, latent.key_rank + latent.rope, latent.bias);
  shapes.norm(names.kv_a_norm, latent.norm, latent.key_rank);
  shapes.linear(names.kv_b_proj, latent.key_rank, attention.heads * (latent.plain + latent.value), false);
  shapes.linear(names.output, attention.heads * latent.value, spec.hidden, attention.output_bias);
}

void add_attention(Shapes& shapes, const DecoderSpec& spec, const AttentionSpec& attention) {
  const DecoderNames& names = spec.names;
  const std::int64_t queries = attention.heads * attention.head_size, keys = attention.key_heads * attention.head_size;
  if (attention.rows == ProjectionRows::kSeparate) {
    shapes.linear(names.query, spec.hidden, attention.gated ? 2 * queries : queries, attention.bias);
    if (attention.keys_of < 0) {
      shapes.linear(names.key, spec.hidden, keys, attention.bias);
      shapes.linear(names.value, spec.hidden, keys, attention.bias);
    }
  } else {
    shapes.linear(names.fused, spec.hidden, fused_rows(attention), attention.bias);
  }
  shapes.norm(names.query_norm, attention.head_norm, attention.head_size);
  if (attention.keys_of < 0) {
    shapes.norm(names.key_norm, attention.head_norm, attention.head_size);
    shapes.norm(names.value_norm, attention.value_norm, attention.head_size);
  }
  shapes.norm(names.query_norm, attention.qk_norm, queries);
  shapes.norm(names.key_norm, attention.qk_norm, keys);
  if (attention.per_head_norm.exists()) {
    shapes.table(names.query_norm, attention.heads, attention.head_size);
    shapes.table(names.key_norm, attention.key_heads, attention.head_size);
  }
  shapes.linear(names.output, queries, spec.hidden, attention.output_bias);
  if (attention.sinks) shapes.vector(names.sinks + ".weight", attention.heads);
}

void add_mlp(Shapes& shapes, const DecoderSpec& spec, const MlpSpec& mlp) {
  const DecoderNames& names = spec.names;
  if (mlp.fused_gate) {
    shapes.linear(names.fused_gate, spec.hidden, 2 * mlp.width, mlp.bias);
  } else {
    if (mlp.gated) shapes.linear(names.gate, spec.hidden, mlp.width, mlp.bias);
    shapes.linear(names.up, spec.hidden, mlp.width, mlp.bias);
  }
  if (mlp.activation == kTrainedActivation)
    for (const char* number : {".alpha_p", ".alpha_n", ".beta", ".eps"}) shapes.vector(names.activation + number, 1);
  shapes.linear(names.down, mlp.width, spec.hidden, mlp.bias);
}

// The parts of a layer with streams.
void add_altup(Shapes& shapes, const DecoderSpec& spec, const LayerSpec& layer) {
  const DecoderNames& names = spec.names;
  const std::int64_t streams = layer.altup->streams;
  shapes.vector(names.altup + ".correct_output_scale", spec.hidden);
  shapes.table(names.altup + ".correction_coefs", streams, streams);
  shapes.table(names.altup + ".prediction_coefs", streams * streams, streams);
  shapes.tensor(names.altup + ".modality_router.weight", {streams, spec.hidden}, 2);  // before and after the layer
  shapes.norm(names.altup + ".router_norm", layer.input, spec.hidden);
  if (layer.laurel_rank > 0) {
    shapes.linear(names.laurel + ".linear_left", spec.hidden, layer.laurel_rank, false);
    shapes.linear(names.laurel + ".linear_right", layer.laurel_rank, spec.hidden, false);
    shapes.norm(names.laurel + ".post_laurel_norm", layer.input, spec.hidden);
  }
  if (layer.input_width == 0) return;
  shapes.linear(names.input_gate, spec.hidden, layer.input_width, false);
  shapes.linear(names.input_projection, layer.input_width, spec.hidden, false);
  shapes.norm(names.input_norm, layer.input, spec.hidden);
}

// The parameters of streams and layer inputs outside of layers.
void add_ends_of_streams(Shapes& shapes, const DecoderSpec& spec) {
  const DecoderNames& names = spec.names;
  if (spec.layer_inputs) {
    shapes.table(names.layer_tokens, spec.layer_inputs->vocabulary, spec.layer_inputs->columns());
    shapes.linear(names.layer_projection, spec.hidden, spec.layer_inputs->columns(), false);
    shapes.norm(names.layer_projection_norm, spec.norm, spec.layer_inputs->width);
  }
  for (std::int64_t stream = 1; stream < spec.streams; ++stream)
    for (const std::string& path : {names.streams_in, names.streams_out})
      shapes.linear(fmt::format("{}.{}", path, stream - 1), spec.hidden, spec.hidden, false);
}

void add_experts(Shapes& shapes, const DecoderSpec& spec, const ExpertsSpec& experts) {
  const DecoderNames& names = spec.names;
  shapes.linear(names.router, spec.hidden, experts.count, experts.router_bias);
  const std::string bias = names.router + ".e_score_correction_bias";
  if (experts.correction && experts.correction_row) shapes.tensor(bias, {1, experts.count});
  if (experts.correction && !experts.correction_row) shapes.vector(bias, experts.count);
  const double used = static_cast<double>(experts.used) / static_cast<double>(experts.count);
  for (const auto& [name, shape] : expert_parameters(expert_shape(experts, spec.hidden)))
    shapes.tensor(names.experts + "." + name, shape, used);
  if (experts.shared_width == 0) return;
  if (experts.shared_fused) {
    shapes.linear(names.shared + ".gate_up_proj", spec.hidden, 2 * experts.shared_width, false);
  } else {
    if (experts.gated) shapes.linear(names.shared + ".gate_proj", spec.hidden, experts.shared_width, false);
    shapes.linear(names.shared + ".up_proj", spec.hidden, experts.shared_width, false);
  }
  shapes.linear(names.shared + ".down_proj", experts.shared_width, spec.hidden, false);
  if (experts.shared_gate) shapes.linear(names.shared_gate, spec.hidden, 1, false);
}

void add_mtp(Shapes& shapes, const DecoderSpec& spec) {
  const DecoderNames& names = spec.names;
  shapes.norm(names.mtp_embedding_norm, spec.norm, spec.hidden);
  shapes.norm(names.mtp_hidden_norm, spec.norm, spec.hidden);
  shapes.linear(names.mtp_projection, 2 * spec.hidden, spec.hidden, false);
  shapes.norm(names.mtp_norm, spec.norm, spec.hidden);
}

}  // namespace

int main_layers(const DecoderSpec& spec) {
  return static_cast<int>(std::ranges::find_if(spec.layers, &LayerSpec::mtp) - spec.layers.begin());
}

int mtp_depths(const DecoderSpec& spec) { return static_cast<int>(spec.layers.size()) - main_layers(spec); }

ExpertShape expert_shape(const ExpertsSpec& experts, std::int64_t hidden) {
  return {.experts = experts.count,
          .hidden = hidden,
          .width = experts.width,
          .bias = experts.bias,
          .interleaved = experts.interleaved,
          .gated = experts.gated,
          .transposed = experts.transposed};
}

std::int64_t fused_rows(const AttentionSpec& attention) {
  return (attention.heads + 2 * attention.key_heads) * attention.head_size;
}

bool predicts_tokens(const DecoderSpec& spec) { return spec.labels == 0 && !spec.sentence; }

std::int64_t head_rows(const DecoderSpec& spec) {
  if (spec.sentence) return 0;
  return spec.labels > 0 ? spec.labels : spec.vocabulary;
}

std::int64_t embedding_columns(const DecoderSpec& spec) {
  return spec.embedding_width > 0 ? spec.embedding_width : spec.hidden;
}

std::vector<ParameterShape> parameter_shapes(const DecoderSpec& spec) {
  const DecoderNames& names = spec.names;
  const std::int64_t columns = embedding_columns(spec);
  Shapes shapes;
  shapes.table(names.tokens, spec.vocabulary, columns);
  if (spec.embedding_width > 0) shapes.linear(names.project_in, columns, spec.hidden, false);
  if (spec.learned_positions) shapes.table(names.positions, spec.positions + spec.position_offset, spec.hidden);
  shapes.norm(names.embedding_norm, spec.embedding_norm, spec.hidden);
  add_ends_of_streams(shapes, spec);
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    const LayerSpec& layer = spec.layers[index];
    shapes.below(fmt::format("{}.{}.", names.layers, index));
    shapes.norm(names.input, layer.input, spec.hidden);
    if (layer.mixer)
      for (auto& [name, shape, used] : layer.mixer->parameters(spec.hidden)) shapes.tensor(name, shape, used);
    if (layer.has_attention()) {
      if (layer.attention.latent)
        add_latent_attention(shapes, spec, layer.attention);
      else
        add_attention(shapes, spec, layer.attention);
    }
    shapes.norm(names.after_attention, layer.after_attention, spec.hidden);
    shapes.norm(names.before_mlp, layer.before_mlp, spec.hidden);
    if (layer.experts)
      add_experts(shapes, spec, *layer.experts);
    else if (layer.has_mlp)
      add_mlp(shapes, spec, layer.mlp);
    shapes.norm(names.after_mlp, layer.after_mlp, spec.hidden);
    if (layer.mtp) add_mtp(shapes, spec);
    if (layer.altup) add_altup(shapes, spec, layer);
  }
  shapes.below("");
  shapes.norm(names.norm, spec.norm, spec.hidden);
  if (spec.embedding_width > 0) shapes.linear(names.project_out, spec.hidden, columns, false);
  if (!spec.tied && !spec.sentence) shapes.table(names.head, head_rows(spec), columns);
  if (spec.head_bias) shapes.vector(names.head + ".bias", head_rows(spec));
  if (spec.vision)
    for (auto& [name, shape, used] : vision_parameters(*spec.vision, spec.hidden))
      shapes.tensor(name, std::move(shape), used);
  return shapes.take();
}

// The slopes for the largest power of two that is not above `heads`, and then every other slope of the next
// power.
std::vector<double> alibi_slopes(std::int64_t heads) {
  std::int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const auto add = [&](std::vector<double>& slopes, std::int64_t of, std::int64_t count, std::int64_t step) {
    for (std::int64_t i = 0; i < count; ++i)
      slopes.push_back(std::pow(2.0, -8.0 * static_cast<double>(1 + i * step) / static_cast<double>(of)));
  };
  std::vector<double> slopes;
  add(slopes, power, power, 1);
  add(slopes, 2 * power, heads - power, 2);
  return slopes;
}

}  // namespace gantry::models
