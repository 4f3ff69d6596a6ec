#include "gantry/planner/trained_part.h"

#include <algorithm>

#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/core/adapter_names.h"
#include "gantry/core/error.h"
#include "gantry/core/wildcard.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/lora_names.h"

namespace gantry::planner {
namespace {

using models::DecoderSpec;

// A module as it is registered, and as Hugging Face's model has it.
struct Paths {
  std::string own, theirs;

  bool are_named(const std::string& entry) const {
    return models::names_module(entry, own) || models::names_module(entry, theirs);
  }
  bool are_saved(const std::string& entry) const {  // a module to save may hold others
    for (const std::string& path : {own, theirs})
      for (std::size_t end = path.size(); end != std::string::npos && end > 0; end = path.rfind('.', end - 1))
        if (models::names_module(entry, path.substr(0, end))) return true;
    return false;
  }
};

// Reads the model's names once.
class AdaptedModel {
 public:
  explicit AdaptedModel(const DecoderSpec& model) : names_(model.names) {
    for (const auto& family : models::decoder_families())
      if (family.model_type == model.family) files_ = family.files;
  }

  Paths paths(const std::string& parameter) const {
    const std::string own = parameter.substr(0, parameter.rfind('.'));
    std::string theirs = own;
    for (const auto& [ours, renamed] : files_.renamed)
      if (const auto at = own.rfind("." + ours); at != std::string::npos && at + 1 + ours.size() == own.size())
        theirs = own.substr(0, at + 1) + renamed;
    return {own, own == names_.head ? files_.head : files_.prefix + theirs};
  }
  bool is_stack(const std::string& parameter) const {
    const std::string end = "." + names_.experts;
    return paths(parameter).own.ends_with(end) && !parameter.ends_with("_bias");
  }
  // A weight of a linear layer that is not the output layer.
  bool is_linear(const models::ParameterShape& parameter) const {
    const std::string own = paths(parameter.name).own;
    return parameter.name.ends_with(".weight") && parameter.shape.size() == 2 && own != names_.head &&
           own != names_.tokens && own != names_.positions && !own.ends_with("." + names_.router);
  }
  bool is_chosen(const models::ParameterShape& parameter, const std::string& entry) const {
    const Paths module = paths(parameter.name);
    const std::string last = parameter.name.substr(parameter.name.rfind('.'));
    if (is_stack(parameter.name)) return Paths{module.own + last, module.theirs + last}.are_named(entry);
    if (last != ".weight" || parameter.shape.size() != 2) return false;
    const bool is_router = module.own.ends_with("." + names_.router);
    return module.are_named(entry) || (is_router && Paths{module.own + last, module.theirs + last}.are_named(entry));
  }

 private:
  const models::DecoderNames& names_;
  models::FileNames files_;
};

void require_use(const char* key, const std::string& entry, bool is_used) {
  if (!is_used)
    throw ConfigError({key, "'" + entry + "' matches nothing of the model", "names of its layers or parameters",
                       "gantry train names the nearest one"});
}

TrainedPart of_freeze(const std::vector<std::string>& patterns, const DecoderSpec& model) {
  TrainedPart trained;
  for (const auto& pattern : patterns) {
    bool is_used = false;
    for (const auto& parameter : models::parameter_shapes(model))
      if (matches_pattern(pattern, parameter.name, Star::kAnyText)) {
        trained.frozen.insert(parameter.name);
        is_used = true;
      }
    require_use("train.freeze", pattern, is_used);
  }
  return trained;
}

TrainedPart of_adapters(const LoraConfig& lora, const DecoderSpec& model) {
  const AdaptedModel names(model);
  TrainedPart trained;
  const auto shapes = models::parameter_shapes(model);
  const bool all = lora.target_modules == std::vector<std::string>{kAllLinear};
  for (const auto& parameter : shapes) {
    const Paths module = names.paths(parameter.name);
    const bool is_saved = std::any_of(lora.modules_to_save.begin(), lora.modules_to_save.end(),
                                      [&](const auto& entry) { return module.are_saved(entry); });
    if (!is_saved) trained.frozen.insert(parameter.name);
    const bool is_adapted = all ? names.is_linear(parameter)
                                : std::any_of(lora.target_modules.begin(), lora.target_modules.end(),
                                              [&](const auto& entry) { return names.is_chosen(parameter, entry); });
    if (!is_adapted) continue;
    const std::string path = names.is_stack(parameter.name)
                                 ? module.theirs + parameter.name.substr(parameter.name.rfind('.'))
                                 : module.theirs;
    trained.adapters[parameter.name] = models::rank_of(lora, path);
  }
  for (const auto& entry : lora.target_modules)
    require_use("lora.target_modules", entry, all || std::any_of(shapes.begin(), shapes.end(), [&](const auto& one) {
                                                return names.is_chosen(one, entry);
                                              }));
  return trained;
}

}  // namespace

TrainedPart trained_part(const Config& config, const DecoderSpec& model) {
  return config.lora.is_on() ? of_adapters(resolve_lora(config.lora), model) : of_freeze(config.train.freeze, model);
}

}  // namespace gantry::planner
