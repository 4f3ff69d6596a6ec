#include "gantry/models/described/contrastive_spec.h"

#include "gantry/models/described/vision_modules.h"

namespace gantry::models {
namespace {

class Parameters {
 public:
  void tensor(const std::string& name, std::vector<std::int64_t> shape) { all.push_back({name, std::move(shape)}); }
  void linear(const std::string& path, std::int64_t in, std::int64_t out, bool bias) {
    tensor(path + ".weight", {out, in});
    if (bias) tensor(path + ".bias", {out});
  }
  void norm(const std::string& path, std::int64_t size) {
    tensor(path + ".weight", {size});
    tensor(path + ".bias", {size});
  }
  std::vector<ParameterShape> all;
};

void add_image_head(Parameters& parameters, const TowerSpec& tower) {
  const std::string at = "vision_model.head.";
  const std::int64_t size = tower.hidden;
  parameters.tensor(at + "probe", {1, 1, size});
  parameters.tensor(at + "attention.in_proj_weight", {3 * size, size});
  parameters.tensor(at + "attention.in_proj_bias", {3 * size});
  parameters.linear(at + "attention.out_proj", size, size, true);
  parameters.norm(at + "layernorm", size);
  parameters.linear(at + "mlp.fc1", size, tower.width, true);
  parameters.linear(at + "mlp.fc2", tower.width, size, true);
}

}  // namespace

std::vector<ParameterShape> parameter_shapes(const ContrastiveSpec& spec) {
  Parameters parameters;
  const std::int64_t text = spec.text.hidden, image = spec.vision.tower.hidden;
  parameters.tensor("logit_scale", {1});
  if (!spec.is_clip) parameters.tensor("logit_bias", {1});
  parameters.tensor("text_model.embeddings.token_embedding.weight", {spec.vocabulary, text});
  parameters.tensor("text_model.embeddings.position_embedding.weight", {spec.positions, text});
  add_tower_layers(parameters.all, spec.text, "text_model.encoder.layers.");
  parameters.norm("text_model.final_layer_norm", text);
  if (!spec.is_clip) parameters.linear("text_model.head", text, spec.width, true);
  add_tower(parameters.all, spec.vision, "vision_model.");
  if (!spec.is_clip) add_image_head(parameters, spec.vision.tower);
  if (spec.is_clip) {
    parameters.linear("text_projection", text, spec.width, false);
    parameters.linear("visual_projection", image, spec.width, false);
  }
  return parameters.all;
}

std::vector<ModuleShard> contrastive_shards(const ContrastiveSpec& spec) {
  std::vector<ModuleShard> shards = {{"text_model.embeddings.token_embedding", Vocab{.output = Replicate{}}}};
  add_tower_shards(shards, spec.text, "text_model.encoder.layers");
  add_tower_shards(shards, spec.vision.tower, "vision_model.encoder.layers");
  return shards;
}

}  // namespace gantry::models
