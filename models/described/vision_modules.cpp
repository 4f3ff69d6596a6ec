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

void add_mlp(TowerShapes& shapes, const VisionSpec& vision, std::int64_t hidden) {
  const std::string at = std::string(kImageProjector) + ".";
  shapes.linear(at + "linear_1", vision.tower.hidden, hidden, vision.projector_bias);
  shapes.linear(at + "linear_2", hidden, hidden, vision.projector_bias);
}

void add_projector(TowerShapes& shapes, const VisionSpec& vision, std::int64_t hidden) {
  const std::string at = std::string(kImageProjector) + ".";
  const std::int64_t features = vision.tower.hidden;
  if (vision.projector == VisionSpec::Projector::kPooled) {
    shapes.tensor(at + "mm_input_projection_weight", {features, hidden});
    shapes.tensor(at + "mm_soft_emb_norm.weight", {features});
    return;
  }
  add_mlp(shapes, vision, hidden);
}

void add_grid_tower(std::vector<ParameterShape>& shapes, const VisionSpec& vision) {
  TowerShapes all(shapes);
  const GridTowerSpec& grid = *vision.grid_tower;
  const TowerSpec& tower = vision.tower;
  const std::string root = std::string(kGridTower) + ".";
  all.tensor(root + "patch_embed.proj.weight",
             {tower.hidden, vision.channels, grid.frames, vision.patch, vision.patch});
  for (std::int64_t layer = 0; layer < tower.layers; ++layer) {
    const std::string at = fmt::format("{}blocks.{}.", root, layer);
    for (const char* norm : {"norm1", "norm2"}) all.tensor(at + norm + ".weight", {tower.hidden});
    all.linear(at + "attn.qkv", tower.hidden, 3 * tower.hidden);
    all.linear(at + "attn.proj", tower.hidden, tower.hidden);
    all.linear(at + "mlp.gate_proj", tower.hidden, tower.width);
    all.linear(at + "mlp.up_proj", tower.hidden, tower.width);
    all.linear(at + "mlp.down_proj", tower.width, tower.hidden);
  }
  const std::int64_t square = grid.merge * grid.merge * tower.hidden;
  all.tensor(root + "merger.ln_q.weight", {tower.hidden});
  all.linear(root + "merger.mlp.0", square, square);
  all.linear(root + "merger.mlp.2", square, grid.outputs);
}

void add_grid_shards(std::vector<ModuleShard>& shards, const TowerSpec& tower) {
  const std::string root = std::string(kGridTower) + ".", layers = root + "blocks.*.";
  const std::int64_t head = tower.head_size();
  shards.push_back({layers + "attn.qkv", Column{.segments = 3, .unit = head, .input = Replicate{}}});
  shards.push_back({layers + "attn.proj", Row{.unit = head, .output = Replicate{}}});
  for (const char* column : {"mlp.gate_proj", "mlp.up_proj"})
    shards.push_back({layers + column, Column{.input = Replicate{}}});
  shards.push_back({layers + "mlp.down_proj", Row{.output = Replicate{}}});
  shards.push_back({root + "merger.mlp.0", Column{.input = Replicate{}}});
  shards.push_back({root + "merger.mlp.2", Row{.output = Replicate{}}});
}

std::string pixtral_layers() { return std::string(kVisionTower) + ".transformer.layers."; }

void add_pixtral(std::vector<ParameterShape>& shapes, const VisionSpec& vision, std::int64_t hidden) {
  TowerShapes all(shapes);
  const TowerSpec& tower = vision.tower;
  const std::string root = std::string(kVisionTower) + ".", projector = std::string(kImageProjector) + ".";
  all.tensor(root + "patch_conv.weight", {tower.hidden, vision.channels, vision.patch, vision.patch});
  all.tensor(root + "ln_pre.weight", {tower.hidden});
  for (std::int64_t layer = 0; layer < tower.layers; ++layer) {
    const std::string at = fmt::format("{}{}.", pixtral_layers(), layer);
    for (const char* norm : {"attention_norm", "ffn_norm"}) all.tensor(at + norm + ".weight", {tower.hidden});
    for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj"})
      all.linear(at + "attention." + projection, tower.hidden, tower.hidden, false);
    for (const char* projection : {"gate_proj", "up_proj"})
      all.linear(at + "feed_forward." + projection, tower.hidden, tower.width, false);
    all.linear(at + "feed_forward.down_proj", tower.width, tower.hidden, false);
  }
  const std::int64_t merge = vision.pixtral->merge;
  all.tensor(projector + "norm.weight", {tower.hidden});
  all.linear(projector + "patch_merger.merging_layer", merge * merge * tower.hidden, tower.hidden, false);
  add_mlp(all, vision, hidden);
}

void add_pixtral_shards(std::vector<ModuleShard>& shards, const TowerSpec& tower) {
  const std::string layers = pixtral_layers() + "*.", projector = std::string(kImageProjector) + ".";
  const std::int64_t head = tower.head_size();
  for (const char* column : {"q_proj", "k_proj", "v_proj"})
    shards.push_back({layers + "attention." + column, Column{.unit = head, .input = Replicate{}}});
  shards.push_back({layers + "attention.o_proj", Row{.unit = head, .output = Replicate{}}});
  for (const char* column : {"gate_proj", "up_proj"})
    shards.push_back({layers + "feed_forward." + column, Column{.input = Replicate{}}});
  shards.push_back({layers + "feed_forward.down_proj", Row{.output = Replicate{}}});
  shards.push_back({projector + "linear_1", Column{.input = Replicate{}}});
  shards.push_back({projector + "linear_2", Row{.output = Replicate{}}});
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

void add_tower(std::vector<ParameterShape>& shapes, const VisionSpec& vision, const std::string& at) {
  TowerShapes all(shapes);
  const std::int64_t size = vision.tower.hidden;
  if (vision.class_token) all.tensor(at + "embeddings.class_embedding", {size});
  all.tensor(at + "embeddings.patch_embedding.weight", {size, vision.channels, vision.patch, vision.patch});
  if (!vision.class_token) all.tensor(at + "embeddings.patch_embedding.bias", {size});
  all.tensor(at + "embeddings.position_embedding.weight", {vision.places(), size});
  if (vision.class_token) all.norm(at + "pre_layrnorm", size);
  add_tower_layers(shapes, vision.tower, at + "encoder.layers.");
  if (vision.final_norm) all.norm(at + "post_layernorm", size);
}

std::vector<ParameterShape> vision_parameters(const VisionSpec& vision, std::int64_t hidden) {
  std::vector<ParameterShape> shapes;
  if (vision.grid_tower) {
    add_grid_tower(shapes, vision);
    return shapes;
  }
  if (vision.pixtral) {
    add_pixtral(shapes, vision, hidden);
    return shapes;
  }
  add_tower(shapes, vision, std::string(kVisionTower) + ".");
  TowerShapes all(shapes);
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

EncoderPaths encoder_paths(const VisionSpec& vision) {
  const std::string grid = std::string(kGridTower) + ".", tower = std::string(kVisionTower) + ".";
  if (vision.grid_tower) return {{grid + "patch_embed"}, grid + "blocks", {grid + "merger"}};
  if (vision.pixtral)
    return {{tower + "patch_conv", tower + "ln_pre"}, tower + "transformer.layers", {kImageProjector}};
  EncoderPaths paths{{tower + "embeddings"}, tower + "encoder.layers", {kImageProjector}};
  if (vision.class_token) paths.before.push_back(tower + "pre_layrnorm");
  if (vision.final_norm) paths.after.push_back(tower + "post_layernorm");
  return paths;
}

int tower_layers(const DecoderSpec& spec) { return spec.vision ? static_cast<int>(spec.vision->tower.layers) : 0; }

double patches_of_feature(const VisionSpec& vision) {
  const auto square = [](std::int64_t merge) { return static_cast<double>(merge * merge); };
  if (vision.grid_tower) return square(vision.grid_tower->merge);
  if (vision.pixtral) return square(vision.pixtral->merge);
  return static_cast<double>(vision.places()) / static_cast<double>(vision.features());
}

double tower_layer_weights(const VisionSpec& vision) {
  const bool is_gated = vision.grid_tower || vision.pixtral;
  const auto hidden = static_cast<double>(vision.tower.hidden), width = static_cast<double>(vision.tower.width);
  return hidden * (4 * hidden + (is_gated ? 3 : 2) * width);
}

std::vector<ModuleShard> vision_shards(const VisionSpec& vision) {
  std::vector<ModuleShard> shards;
  if (vision.grid_tower) {
    add_grid_shards(shards, vision.tower);
    return shards;
  }
  if (vision.pixtral) {
    add_pixtral_shards(shards, vision.tower);
    return shards;
  }
  add_tower_shards(shards, vision.tower, std::string(kVisionTower) + ".encoder.layers");
  return shards;
}

}  // namespace gantry::models
