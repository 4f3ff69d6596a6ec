#include "gantry/plugins/gathered_stages.h"

#include <algorithm>

#include "gantry/core/planted.h"
#include "gantry/policies/model_map.h"

namespace gantry {
std::vector<int> layers_of_parameters(const StageModule& module) {
  std::vector<std::string> paths;
  for (const auto& list : module.lists())
    for (std::size_t i = 0; i < list.layers.size(); ++i) paths.push_back(list.path + "." + std::to_string(i));
  std::vector<int> layers;
  for (const auto& held : module.parameters) {
    auto names = held.placement.aliases;
    names.push_back(held.placement.name);
    std::set<int> found;
    for (const auto& name : names) {
      const auto path =
          std::find_if(paths.begin(), paths.end(), [&](const auto& each) { return is_within(name, each); });
      found.insert(path == paths.end() ? ParameterShards::kNoLayer : static_cast<int>(path - paths.begin()));
    }
    layers.push_back(found.size() == 1 ? *found.begin() : ParameterShards::kNoLayer);
  }
  return layers;
}

void GatheredStages::begin(const Step& step) {
  step_ = step;
  stage_ = -1;
}

bool GatheredStages::is_of_stage(int layer) const {
  const LayerRange range = module_.layer_ranges().at(stage_);
  return layer >= range.begin && layer < range.end;
}

void GatheredStages::start_layer(int layer) {
  if (!is_of_stage(layer)) return;
  for (const int unit : shards_.of_layer(layer)) shards_.start(unit);
}

void GatheredStages::wait_layer(int layer) {
  for (const int unit : shards_.of_layer(layer)) shards_.wait(unit);
}

void GatheredStages::release_layer(int layer) {
  for (const int unit : shards_.of_layer(layer)) shards_.release(unit);
}

void GatheredStages::run(const schedule::Action& action) {
  const int stage = action.stage;
  if (action.kind == schedule::ActionKind::kUnshard) {
    whole_.insert(stage);
    for (const int unit : step_.layer_by_layer ? shards_.outside_of_layers(stage) : shards_.of_stage(stage))
      shards_.start(unit);
  } else if (action.kind == schedule::ActionKind::kReshard) {
    whole_.erase(stage);
    for (const int unit : shards_.of_stage(stage)) {
      const bool shared = std::any_of(whole_.begin(), whole_.end(), [&](int other) {
        const auto& units = shards_.outside_of_layers(other);
        return std::find(units.begin(), units.end(), unit) != units.end();
      });
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
  const LayerRange range = module_.layer_ranges().at(stage);
  if (kind == Kind::kWeights) {
    for (const int unit : shards_.of_stage(stage)) step_.gradients->open_unit(unit);
    return;
  }
  // What the forward hooks don't wait for.
  for (const int unit : step_.layer_by_layer ? shards_.outside_of_layers(stage) : shards_.of_stage(stage))
    shards_.wait(unit);
  if (kind == Kind::kBackward)
    for (const int unit : shards_.outside_of_layers(stage)) step_.gradients->open_unit(unit);
  // A layer whose backward nobody can tell of gets its gradients here.
  if (kind == Kind::kBackward && !step_.layer_by_layer)
    for (const int unit : shards_.of_stage(stage)) step_.gradients->open_unit(unit);
  if (step_.layer_by_layer && range.size() > 0) start_layer(kind == Kind::kForward ? range.begin : range.end - 1);
}

void GatheredStages::end() {
  if (step_.layer_by_layer && stage_ >= 0) {
    const LayerRange range = module_.layer_ranges().at(stage_);
    for (int layer = range.begin; layer < range.end; ++layer) release_layer(layer);
  }
  stage_ = -1;
}

void GatheredStages::before_forward(int layer) {
  if (!step_.layer_by_layer || stage_ < 0) return;
  wait_layer(layer);
  start_layer(layer + 1);
}

void GatheredStages::after_forward(int layer) {
  if (step_.layer_by_layer && stage_ >= 0) release_layer(layer);
}

void GatheredStages::before_backward(int layer) {
  if (!step_.layer_by_layer || stage_ < 0) return;
  if (!planted("not-gathered-for-backwards")) wait_layer(layer);
  start_layer(layer - 1);
  for (const int unit : shards_.of_layer(layer)) step_.gradients->open_unit(unit);
}

void GatheredStages::after_backward(int layer) {
  if (!step_.layer_by_layer || stage_ < 0) return;
  release_layer(layer);
  // What a stage is given may end its backward before all of the first layer's gradients are added.
  if (is_last_ && step_.reduces && layer > module_.layer_ranges().at(stage_).begin) reduce(shards_.of_layer(layer));
}

std::shared_ptr<void> GatheredStages::gather_all(const std::vector<int>& stages) {
  for (const int stage : stages)
    for (const int unit : shards_.of_stage(stage)) shards_.start(unit);
  for (const int stage : stages)
    for (const int unit : shards_.of_stage(stage)) shards_.wait(unit);
  return {this, [stages](GatheredStages* gathered) {
            for (const int stage : stages)
              for (const int unit : gathered->shards_.of_stage(stage)) gathered->shards_.release(unit);
          }};
}

}  // namespace gantry
