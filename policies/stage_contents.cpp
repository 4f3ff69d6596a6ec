#include "gantry/policies/stage_contents.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

// The name of the nearest module, or advice on finding one.
std::string suggest_module(const std::string& path, const ModelMap& map) {
  const std::string near = nearest_name(path, map.module_names());
  return near.empty() ? "check the names of the model's modules" : "did you mean '" + near + "'?";
}

}  // namespace

StageContents::StageContents(const ModelMap& map, const Policy& policy, const torch::nn::Module& model,
                             const std::vector<LayerRange>& ranges)
    : policy_(policy), shared_(policy.shared_parameters(model)) {
  const int stages = static_cast<int>(ranges.size());
  for (int stage = 0; stage < stages; ++stage)
    paths_.push_back(policy.held_layers(model, stage, stages, ranges[stage]));
  check_paths(map);
  check_shared(map);
}

void StageContents::check_paths(const ModelMap& map) const {
  std::set<std::string> known;
  for (const auto& name : map.module_names()) known.insert(name);
  for (const auto* tensors : {&map.parameters, &map.buffers})
    for (const auto& tensor : *tensors) known.insert(tensor.names.begin(), tensor.names.end());
  for (std::size_t stage = 0; stage < paths_.size(); ++stage)
    for (const auto& path : paths_[stage])
      if (!known.contains(path))
        throw ConfigError({policy_.name(), fmt::format("stage {} has '{}', which the model does not have", stage, path),
                           "the path of a module or parameter", suggest_module(path, map)});
}

void StageContents::check_shared(const ModelMap& map) const {
  const std::string where = policy_.name() + "::shared_parameters";
  for (const auto& names : shared_) {
    std::set<void*> tensors;
    for (const auto& name : names) {
      const auto found = std::ranges::find_if(
          map.parameters, [&](const NamedTensor& parameter) { return std::ranges::count(parameter.names, name) > 0; });
      if (found == map.parameters.end())
        throw ConfigError({where, "the model has no parameter '" + name + "'", "the path of a parameter", ""});
      tensors.insert(found->tensor.unsafeGetTensorImpl());
    }
    if (tensors.size() > 1)
      throw ConfigError({where, fmt::format("{} are {} different tensors", fmt::join(names, " and "), tensors.size()),
                         "one tensor",
                         "tie them in the model (gantry::nn::Linear::tie_weight), or do not declare them as shared"});
  }
}

std::vector<int> StageContents::stages_of(const std::vector<std::string>& names) const {
  std::vector<int> stages;
  for (std::size_t stage = 0; stage < paths_.size(); ++stage) {
    const auto is_held = [&](const std::string& name) {
      return std::ranges::any_of(paths_[stage], [&](const std::string& path) { return is_within(name, path); });
    };
    if (std::ranges::any_of(names, is_held)) stages.push_back(static_cast<int>(stage));
  }
  return stages;
}

bool StageContents::is_shared(const std::vector<std::string>& names) const {
  return std::ranges::any_of(shared_, [&](const auto& set) { return std::ranges::count(set, names.front()) > 0; });
}

std::vector<int> StageContents::stages_of_parameter(const NamedTensor& parameter) const {
  const std::vector<int> stages = stages_of(parameter.names);
  const bool is_stated = std::ranges::any_of(paths_, [](const auto& paths) { return !paths.empty(); });
  if (!is_stated)
    throw ConfigError({policy_.name() + "::split", "it states no modules for any stage", "the modules of all stages",
                       "override split(), and set ModelSplit::stages"});
  if (stages.empty())
    throw ConfigError({parameter.names.front(), "no stage has this parameter", "one stage for every parameter",
                       "add its module to the stages of " + policy_.name() + "::split"});
  if (stages.size() > 1 && !is_shared(parameter.names))
    throw ConfigError(
        {parameter.names.front(),
         fmt::format("stages {} have this parameter, but it is not declared as shared", fmt::join(stages, " and ")),
         "one stage for a parameter that is not shared",
         "add it to " + policy_.name() + "::shared_parameters, or keep it in one stage only"});
  return stages;
}

}  // namespace gantry
