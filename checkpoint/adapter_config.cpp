#include "gantry/checkpoint/adapter_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/core/config/adapter_names.h"

namespace gantry {
namespace {

using nlohmann::json;

template <class Value>
json or_null(const std::vector<Value>& values) {
  return values.empty() ? json(nullptr) : json(values);
}

}  // namespace

bool is_base_table(const std::string& stored) { return stored.ends_with(".base_layer.weight"); }

json adapter_config_json(const LoraConfig& lora, const std::string& base, const AdaptedModel& model) {
  const bool all = lora.target_modules == std::vector<std::string>{kAllLinear};
  std::vector<std::string> modules = all ? model.layers : lora.target_modules;
  std::erase_if(modules, [&](const std::string& entry) {
    return std::find(model.parameters.begin(), model.parameters.end(), entry) != model.parameters.end();
  });
  json keys = {{"auto_mapping", nullptr},
               {"base_model_name_or_path", base.empty() ? json(nullptr) : json(base)},
               {"bias", "none"},
               {"fan_in_fan_out", model.transposed},
               {"inference_mode", true},
               {"init_lora_weights", true},
               {"lora_alpha", lora.alpha},
               {"lora_dropout", lora.dropout},
               {"modules_to_save", or_null(lora.modules_to_save)},
               {"peft_type", "LORA"},
               {"r", lora.r},
               {"rank_pattern", json(lora.rank_pattern)},
               {"alpha_pattern", json(lora.alpha_pattern)},
               {"revision", nullptr},
               {"target_modules", modules},
               {"target_parameters", or_null(model.parameters)},
               {"trainable_token_indices", or_null(lora.trainable_token_indices)},
               {"task_type", model.task.empty() ? json(nullptr) : json(model.task)},
               {"use_dora", lora.use_dora},
               {"use_rslora", lora.rslora}};
  // PEFT writes a whole number as an integer.
  if (lora.alpha == static_cast<double>(static_cast<std::int64_t>(lora.alpha)))
    keys["lora_alpha"] = static_cast<std::int64_t>(lora.alpha);
  return keys;
}

}  // namespace gantry
