#include "gantry/booster/image_encoder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gantry/booster/run_task.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/data/chat_line.h"
#include "gantry/data/completion_line.h"
#include "gantry/data/dataset.h"
#include "gantry/data/line_rows.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/model_family.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr const char* kImages = "pixel_values";

// The keys of the file, overridden by those of model.config.
json keys_of(const Config& config) {
  json keys = config.model.path.empty() ? json::object() : read_model_config(config.model.path);
  models::override_keys(keys, model_json(config));
  return keys;
}

[[noreturn]] void refuse(const std::string& key, const std::string& value) {
  throw ConfigError({key, value + " but models with an image encoder do not support it",
                     "a model without its image encoder (model.config.image_encoder: false)", "remove the key"});
}

bool begins_with_images(const std::string& path) try {
  const auto files = data_files("jsonl", path);
  FoundLine line;
  if (!FoundLines(files).next(line)) return false;
  nlohmann::ordered_json object;
  return parse_strict(line.text, object).empty() &&
         std::ranges::any_of(chats_of_line(object), [](const auto& chat) { return has_image_parts(chat["messages"]); });
} catch (const InputError&) {
  return false;  // opening the data reports it
}

}  // namespace

bool has_image_encoder(const json& keys) { return models::flag_key(keys, models::kImageEncoder, false); }

Config with_image_encoder(Config config) {
  const json keys = keys_of(config);
  const std::string name = config.model.policy.empty() ? models::family_of(keys) : config.model.policy;
  if (!models::families().contains(name) || keys.contains(models::kImageEncoder)) return config;
  if (!models::reads_images(models::families().at(name))) return config;
  json own = model_json(config);
  own[models::kImageEncoder] = true;
  config.model.config_json = own.dump();
  return config;
}

bool has_images(const std::string& path) {
  const SafetensorsFile file(path);
  return std::ranges::count(file.names(), kImages) > 0;
}

bool has_images_for_text(const Config& config) {
  const DataConfig& data = config.data;
  if (data.format == "jsonl")
    return data.sources.empty() ? begins_with_images(data.path)
                                : std::ranges::any_of(data.sources, begins_with_images, &DataSourceConfig::path);
  return data.format == "tensors" && std::filesystem::is_regular_file(data.path) && has_images(data.path);
}

void refuse_with_image_encoder(const Config& config) {
  if (!has_image_encoder(model_json(config))) return;
  if (config.train.device_graphs) refuse("train.device_graphs", "CUDA graphs are configured,");
  if (!config.model.quantize.empty()) refuse("model.quantize", "the value is " + config.model.quantize + ",");
}

}  // namespace gantry
