#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "gantry/booster/class_names.h"
#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/models/described/lora_names.h"
#include "gantry/models/model_family.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr const char* kRemedy =
    "use the checkpoint's model; layout, schedule, batch size, learning rate and steps may change";

json stored_keys(const CheckpointInfo& info, const models::ModelFamily& family) try {
  return models::config_fingerprint(family, info.model_config);
} catch (const Error& error) {
  throw CheckpointError({info.path, std::string("the keys of its model are invalid: ") + error.what(),
                         "the keys of this model", kRemedy});
}

// A base with another quantisation has other values.
void require_same_base(const CheckpointInfo& info, const ModelConfig& mine) {
  const ModelConfig theirs = Config::parse_written(info.config_text, info.path).model;
  const auto kind = [](const ModelConfig& model) {
    if (model.quantize.empty()) return std::string("no quantisation");
    return model.quantize + (model.quantize_double ? " with model.quantize_double" : "");
  };
  if (kind(theirs) != kind(mine))
    throw CheckpointError({info.path, "the adapters were trained on a base with model.quantize: " + kind(theirs),
                           kind(mine) + ", as in this run", "use the checkpoint's model.quantize"});
}

// The names decide which label a sample has, so the classes keep their numbers.
void require_same_classes(const CheckpointInfo& info, const json& mine) {
  const auto theirs = stated_classes(info.model_config), ours = stated_classes(mine);
  if (theirs.empty() || ours.empty() || theirs == ours) return;
  throw CheckpointError({info.path, fmt::format("the checkpoint's classes are {}", fmt::join(theirs, ", ")),
                         fmt::format("{}, as in this run", fmt::join(ours, ", ")),
                         "use the checkpoint's model.config.id2label"});
}

// A different rank would change the shapes, but a different scale would not be noticed from them.
void require_same_adapters(const CheckpointInfo& info, const LoraConfig& mine) {
  const LoraConfig theirs = Config::parse_written(info.config_text, info.path).lora;
  if (theirs.is_on() != mine.is_on())
    throw CheckpointError(
        {info.path,
         theirs.is_on() ? "the checkpoint contains only adapters" : "the checkpoint is from a run without adapters",
         mine.is_on() ? "a checkpoint of a run with lora" : "a checkpoint of the full model",
         "set model.path to the base model for lora, or write a full model with gantry checkpoint merge"});
  const auto base = [](const LoraConfig& lora) {
    return models::is_pissa(lora) ? ", " + lora.init_lora_weights : std::string();
  };
  const auto scale = [&](const LoraConfig& lora) {
    return std::make_tuple(lora.r, lora.alpha, lora.rslora, lora.use_dora, lora.trainable_token_indices, base(lora));
  };
  const auto patterns = [](const LoraConfig& lora) { return std::tie(lora.rank_pattern, lora.alpha_pattern); };
  const auto kind = [&](const LoraConfig& lora) {
    return fmt::format("{}{}{}{}", lora.rslora ? ", rslora" : "", lora.use_dora ? ", use_dora" : "", base(lora),
                       lora.trainable_token_indices.empty()
                           ? ""
                           : fmt::format(", tokens {}", fmt::join(lora.trainable_token_indices, " ")));
  };
  if (scale(theirs) != scale(mine) || patterns(theirs) != patterns(mine))
    throw CheckpointError(
        {info.path,
         fmt::format("the checkpoint has adapters of r {}, alpha {}{}", theirs.r, theirs.alpha, kind(theirs)),
         fmt::format("r {}, alpha {}{} and the same patterns, as in this run", mine.r, mine.alpha, kind(mine)),
         "use the checkpoint's lora keys; dropout may change"});
}

// The optimizers of a class have the same state.
std::string class_of_optimizer(const std::string& name) { return name.starts_with("adamw") ? "adamw" : name; }

}  // namespace

void require_same_optimizer(const CheckpointInfo& info, const Config& config) {
  if (info.config_text.empty()) return;
  const std::string theirs = Config::parse_written(info.config_text, info.path).optimizer.name,
                    mine = config.optimizer.name;
  if (class_of_optimizer(theirs) == class_of_optimizer(mine)) return;
  throw CheckpointError({info.path, "the checkpoint has the state of optimizer.name " + theirs,
                         mine + ", as in this run",
                         "use the checkpoint's optimizer.name, or set checkpoint.load to start a new run from its "
                         "weights"});
}

void require_same_model(const CheckpointInfo& info, const Config& config) {
  if (info.policy.empty()) return;
  if (info.policy != config.model.policy)
    throw CheckpointError({info.path, fmt::format("the checkpoint is from a model with the policy '{}'", info.policy),
                           fmt::format("'{}', as in this run", config.model.policy), kRemedy});
  if (!info.config_text.empty()) {
    require_same_adapters(info, config.lora);
    require_same_base(info, config.model);
  }
  // A custom program may save without these keys. `gantry train` without them uses the family's defaults.
  if (info.model_config.empty() && info.config_text.empty()) return;
  // A policy of the program, which checks its own keys.
  if (!models::families().contains(config.model.policy)) return;
  const auto& family = models::families().at(config.model.policy);
  const std::string text = config.model.config_json;
  const json keys = json::parse(text.empty() ? "{}" : text);
  const json stored = stored_keys(info, family), mine = models::config_fingerprint(family, keys);
  std::set<std::string> names;
  for (const json* keys : {&stored, &mine})
    for (const auto& [name, value] : keys->items()) names.insert(name);
  for (const auto& name : names) {
    const json theirs = stored.value(name, json(nullptr)), ours = mine.value(name, json(nullptr));
    if (theirs != ours)
      throw CheckpointError({info.path, fmt::format("the checkpoint is from a model with {} {}", name, theirs.dump()),
                             fmt::format("{} {}, as in this run", name, ours.dump()), kRemedy});
  }
  require_same_classes(info, keys);
}

}  // namespace gantry
