#include "gantry/plugins/gathered_stages.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "gantry/core/sharding/adapter_split.h"
#include "gantry/policies/model_map.h"

namespace gantry {
namespace {

// The number of the layer with the parameter, or a value of ParameterShards for its place outside of layers.
int place_of(const std::string& name, const std::vector<std::string>& paths,
             const std::optional<VocabularyModules>& vocabulary) {
  const auto path = std::find_if(paths.begin(), paths.end(), [&](const auto& each) { return is_within(name, each); });
  if (path != paths.end()) return static_cast<int>(path - paths.begin());
  // The backward of an embedding's adapter reads its values, after the last layer's: they stay unsharded.
  if (vocabulary && is_within(name, vocabulary->embedding) && !is_adapter(name)) return ParameterShards::kBeforeLayers;
  if (vocabulary && is_within(name, vocabulary->head)) return ParameterShards::kAfterLayers;
  return ParameterShards::kNoLayer;
}

bool contains(const std::vector<int>& units, int unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

}  // namespace

std::vector<int> layers_of_parameters(const StageModule& module) {
  std::vector<std::string> paths;
  for (const auto& list : module.lists())
    for (std::size_t i = 0; i < list.layers.size(); ++i) paths.push_back(list.path + "." + std::to_string(i));
  const auto vocabulary = module.split().vocabulary;
  std::vector<int> layers;
  for (const auto& held : module.parameters) {
    std::set<int> found = {place_of(held.placement.name, paths, vocabulary)};
    for (const auto& name : held.placement.aliases) found.insert(place_of(name, paths, vocabulary));
    const bool is_around = found == std::set<int>{ParameterShards::kBeforeLayers, ParameterShards::kAfterLayers};
    layers.push_back(found.size() == 1 ? *found.begin()
                     : is_around       ? ParameterShards::kAroundLayers
                                       : ParameterShards::kNoLayer);
  }
  return layers;
}

void GatheredStages::begin(const Step& step) {
  // An earlier step may have thrown in the middle.
  if (stage_ >= 0) end();
  for (const int stage : std::exchange(unsharded_, {})) release(shards_.of_stage(stage));
  step_ = step;
}

LayerRange GatheredStages::layers() const { return module_.layer_ranges().at(stage_); }

void GatheredStages::start(const std::vector<int>& units) {
  for (const int unit : units) shards_.start(unit);
}

void GatheredStages::wait(const std::vector<int>& units) {
  for (const int unit : units) shards_.wait(unit);
}

void GatheredStages::release(const std::vector<int>& units) {
  for (const int unit : units) shards_.release(unit);
}

void GatheredStages::open(const std::vector<int>& units) {
  for (const int unit : units) step_.gradients->open_unit(unit);
}

void GatheredStages::start_layer(int layer) {
  if (layer >= layers().begin && layer < layers().end) start(shards_.of_layer(layer));
}

void GatheredStages::run(const schedule::Action& action) {
  const int stage = action.stage;
  if (action.kind == schedule::ActionKind::kUnshard) {
    unsharded_.insert(stage);
    start(step_.layer_by_layer ? shards_.outside_of_layers(stage) : shards_.of_stage(stage));
  } else if (action.kind == schedule::ActionKind::kReshard) {
    unsharded_.erase(stage);
    for (const int unit : shards_.of_stage(stage)) {
      const bool shared = std::any_of(unsharded_.begin(), unsharded_.end(),
                                      [&](int other) { return contains(shards_.of_stage(other), unit); });
      if (!shared) shards_.release(unit);
    }
  } else if (step_.gradients && step_.reduces) {
    auto units = shards_.of_stage(stage);
    std::reverse(units.begin(), units.end());
    reduce(units);
  }
}

void GatheredStages::reduce(const std::vector<int>& units) {
  for (const int unit : units) step_.gradients->reduce_unit(unit);
}

void GatheredStages::begin(int stage, Kind kind, bool is_last) {
  stage_ = stage;
  is_last_ = is_last;
  const bool is_backward = kind == Kind::kBackward;
  const std::vector<int> all = shards_.of_stage(stage);
  if (kind == Kind::kWeights) return open(all);
  if (!step_.layer_by_layer) {
    // Layers are not gathered one by one, so their hooks wait for nothing. All full gradients are allocated
    // here.
    wait(all);
    if (is_backward) open(all);
    return;
  }
  const bool has_layers = layers().size() > 0;
  const std::vector<int>& first = is_backward ? shards_.after_layers(stage) : shards_.before_layers(stage);
  start(first);
  if (has_layers) start_layer(is_backward ? layers().end - 1 : layers().begin);
  wait(shards_.outside_of_layers(stage));
  wait(first);
  if (!has_layers && !is_backward) wait(shards_.after_layers(stage));
  if (!is_backward) return;
  open(shards_.outside_of_layers(stage));
  open(first);
  if (!has_layers) open(shards_.before_layers(stage));
}

void GatheredStages::end() {
  if (step_.layer_by_layer && stage_ >= 0) {
    for (int layer = layers().begin; layer < layers().end; ++layer) release(shards_.of_layer(layer));
    release(shards_.before_layers(stage_));
    release(shards_.after_layers(stage_));
  }
  stage_ = -1;
}

void GatheredStages::before_forward(int layer) {
  if (!step_.layer_by_layer || stage_ < 0) return;
  if (layer == layers().begin) release(shards_.before_layers(stage_));
  wait(shards_.of_layer(layer));
  start_layer(layer + 1);
  if (layer + 1 == layers().end) start(shards_.after_layers(stage_));
}

void GatheredStages::after_forward(int layer) {
  if (!step_.layer_by_layer || stage_ < 0) return;
  release(shards_.of_layer(layer));
  if (layer + 1 == layers().end) wait(shards_.after_layers(stage_));
}

void GatheredStages::before_backward(int layer) {
  if (!step_.layer_by_layer || stage_ < 0) return;
  if (layer + 1 == layers().end) {
    release(shards_.after_layers(stage_));
    // The embedding adds to the gradient of a tied head too.
    std::vector<int> heads = shards_.after_layers(stage_);
    std::erase_if(heads, [&](int unit) { return contains(shards_.before_layers(stage_), unit); });
    if (is_last_ && step_.reduces) reduce(heads);
  }
  wait(shards_.of_layer(layer));
  start_layer(layer - 1);
  open(shards_.of_layer(layer));
}

void GatheredStages::after_backward(int layer) {
  if (!step_.layer_by_layer || stage_ < 0) return;
  release(shards_.of_layer(layer));
  // The backward of the embedding adds to its gradient, but does not read its values.
  if (layer == layers().begin) open(shards_.before_layers(stage_));
  // The first layer is reduced later: the backward may reach the stage's input before all of its gradients
  // are added.
  if (is_last_ && step_.reduces && layer > layers().begin) reduce(shards_.of_layer(layer));
}

void GatheredStages::release_shard(MasterParameters& masters) {
  masters.fill();
  shards_.release_shard(
      {.has = [&masters](std::size_t parameter) { return masters.has_values(parameter); },
       .write = [&masters](std::size_t parameter, torch::Tensor& rows) { masters.write_values(parameter, rows); }});
}

std::shared_ptr<void> GatheredStages::gather_all(const std::vector<int>& stages) {
  for (const int stage : stages) start(shards_.of_stage(stage));
  for (const int stage : stages) wait(shards_.of_stage(stage));
  return {this, [stages](GatheredStages* gathered) {
            for (const int stage : stages) gathered->release(gathered->shards_.of_stage(stage));
          }};
}

}  // namespace gantry
