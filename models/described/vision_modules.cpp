#include "gantry/models/described/vision_modules.h"

#include <fmt/format.h>
#include <utility>

namespace gantry::models {
namespace {

class TowerShapes {
 public:
  explicit TowerShapes(std::vector<ParameterShape>& shapes) : shapes_(shapes) {}
  void tensor(const std::string& name, std::vector<std::int64_t> shape) { shapes_.push_back({name, std::move(shape)}); }
  void linear(const std::string& path, std::int64_t in, std::int64_t out, bool bias = true) {
    tensor(path + ".weight", {out, in});
    if (bias) tensor(path + ".bias", {out});
  }
  void norm(const std::string& path, std::int64_t size) {
    tensor(path + ".weight", {size});
    tensor(path + ".bias", {size});
  }

 private:
  std::vector<ParameterShape>& shapes_;
};

void add_projector(TowerShapes& shapes, const VisionSpec& vision, std::int64_t hidden) {
  const std::string at = std::string(kImageProjector) + ".";
  const std::int64_t features = vision.tower.hidden;
  if (vision.projector == VisionSpec::Projector::kPooled) {
    shapes.tensor(at + "mm_input_projection_weight", {features, hidden});
    shapes.tensor(at + "mm_soft_emb_norm.weight", {features});
    return;
  }
  shapes.linear(at + "linear_1", features, hidden, vision.projector_bias);
  shapes.linear(at + "linear_2", hidden, hidden, vision.projector_bias);
}

}  // namespace

void add_tower_layers(std::vector<ParameterShape>& shapes, const TowerSpec& tower, const std::string& prefix) {
  TowerShapes all(shapes);
  for (std::int64_t layer = 0; layer < tower.layers; ++layer) {
    const std::string at = fmt::format("{}{}.", prefix, layer);
    all.norm(at + "layer_norm1", tower.hidden);
    for (const char* projection : {"q_proj", "k_proj", "v_proj", "out_proj"})
      all.linear(at + "self_attn." + projection, tower.hidden, tower.hidden);
    all.norm(at + "layer_norm2", tower.hidden);
    all.linear(at + "mlp.fc1", tower.hidden, tower.width);
    all.linear(at + "mlp.fc2", tower.width, tower.hidden);
  }
}

std::vector<ParameterShape> vision_parameters(const VisionSpec& vision, std::int64_t hidden) {
  std::vector<ParameterShape> shapes;
  TowerShapes all(shapes);
  const std::string at = std::string(kVisionTower) + ".";
  const std::int64_t size = vision.tower.hidden;
  if (vision.class_token) all.tensor(at + "embeddings.class_embedding", {size});
  all.tensor(at + "embeddings.patch_embedding.weight", {size, vision.channels, vision.patch, vision.patch});
  if (!vision.class_token) all.tensor(at + "embeddings.patch_embedding.bias", {size});
  all.tensor(at + "embeddings.position_embedding.weight", {vision.places(), size});
  if (vision.class_token) all.norm(at + "pre_layrnorm", size);
  add_tower_layers(shapes, vision.tower, at + "encoder.layers.");
  if (vision.final_norm) all.norm(at + "post_layernorm", size);
  add_projector(all, vision, hidden);
  return shapes;
}

// Inputs and outputs are full also with sequence parallelism: an image has few tokens, and none of its own batch entry.
void add_tower_shards(std::vector<ModuleShard>& shards, const TowerSpec& tower, const std::string& prefix) {
  const std::int64_t head = tower.head_size();
  for (const char* projection : {"q_proj", "k_proj", "v_proj"})
    shards.push_back({prefix + ".*.self_attn." + projection, Column{.unit = head, .input = Replicate{}}});
  shards.push_back({prefix + ".*.self_attn.out_proj", Row{.unit = head, .output = Replicate{}}});
  shards.push_back({prefix + ".*.mlp.fc1", Column{.input = Replicate{}}});
  shards.push_back({prefix + ".*.mlp.fc2", Row{.output = Replicate{}}});
}

std::vector<ModuleShard> vision_shards(const VisionSpec& vision) {
  std::vector<ModuleShard> shards;
  add_tower_shards(shards, vision.tower, std::string(kVisionTower) + ".encoder.layers");
  return shards;
}

}  // namespace gantry::models
