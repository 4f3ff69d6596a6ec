#include "gantry/cli/engine/trained_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gantry/booster/image_encoder.h"
#include "gantry/booster/parallelized_model.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/cli/warnings.h"
#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/models/described/shared_keys.h"
#include "gantry/models/model_family.h"

namespace gantry::cli {
namespace {

using nlohmann::json;

constexpr std::int64_t kBytes = 256;

void set_vocabulary(TrainedModel& model) {
  model.vocabulary =
      models::families().at(model.config.model.policy).vocabulary_size(json::parse(model.config.model.config_json));
  if (model.tokenizer.empty() && model.vocabulary == kBytes) model.tokenizer = "bytes";
}

TrainedModel of_directory(const std::string& path, StoredForm form, const std::vector<std::string>& sets,
                          const std::string& adapter, bool reads_images) {
  TrainedModel model{.form = form, .path = path};
  if (has_tokenizer(path)) model.tokenizer = path;
  json keys = {{"model", {{"path", path}}}};
  if (!adapter.empty()) keys["lora"] = {{"path", adapter}};
  model.config = Config::parse(keys.dump(), "--model", sets);
  load_libraries(model.config);
  if (reads_images) model.config = with_image_encoder(std::move(model.config));
  model.config = with_stored_precision(resolve_model(std::move(model.config)));
  return model;
}

// Sets the base model of the run, as it was quantised there, and the shapes of its adapters. Throws CheckpointError if
// the base model was not read from files.
void take_adapters(const Config& made, const std::string& folder, Config& config) {
  if (made.model.path.empty())
    throw CheckpointError({folder,
                           "the checkpoint has only adapters, and the base model of its run was not read from files",
                           "a run with model.path", "generate text in the program that created the base model"});
  config.model.path = made.model.path;
  if (config.model.quantize.empty()) {
    config.model.quantize = made.model.quantize;
    config.model.quantize_double = made.model.quantize_double;
  }
  config.lora = made.lora;
  config.lora.path.clear();
}

// The layout comes from `sets` only, because the layout of the checkpoint was chosen for training.
TrainedModel of_checkpoint(const std::string& folder, const std::vector<std::string>& sets) {
  const CheckpointInfo info = read_checkpoint_info(folder);
  TrainedModel model{.form = StoredForm::kCheckpoint, .path = folder};
  json keys = {{"model", {{"policy", info.policy}}}};
  std::optional<Config> adapted;
  if (!info.config_text.empty()) {
    const Config made = Config::parse_written(info.config_text, folder);
    if (made.lora.is_on()) {
      adapted = made;
      keys["model"]["path"] = made.model.path;
    }
    if (!made.libraries.empty()) keys["libraries"] = made.libraries;
    model.chat_template = made.data.chat_template;
    model.template_kwargs = made.data.template_kwargs;
    if (is_byte_tokenizer(made.data.tokenizer) || std::filesystem::exists(made.data.tokenizer))
      model.tokenizer = made.data.tokenizer;
    else if (const std::string own = folder + "/" + kCompanionFolder; has_tokenizer(own))
      model.tokenizer = own;
    else if (has_tokenizer(made.model.path))
      model.tokenizer = made.model.path;
  }
  model.config = Config::parse(keys.dump(), folder, sets);
  load_libraries(model.config);
  // Use the keys in the checkpoint without resolve_model(), which is for keys that a user has written.
  model.config.model.config_json = info.model_config.dump();
  if (adapted) take_adapters(*adapted, folder, model.config);
  policies().at(model.config.model.policy);
  models::families().at(model.config.model.policy);
  return model;
}

}  // namespace

Config with_stored_precision(Config config) {
  if (config.used_keys->is_given("precision") || config.model.path.empty()) return config;
  const std::string stated = models::stated_dtype(json::parse(config.model.config_json));
  if (!stated.empty()) config.precision = stated;
  return config;
}

TrainedModel find_trained_model(const std::string& path, const std::vector<std::string>& sets,
                                const AdapterChoice& adapters, bool reads_images) {
  TrainedModel model;
  const StoredForm form = stored_form(path);
  if (!(adapters.own.empty() && adapters.named.empty()) && form != StoredForm::kHuggingFace)
    throw UsageError({"--adapter", path + " is not a Hugging Face model", "the directory of the adapter's base model",
                      "write one with gantry checkpoint export"});
  if (form == StoredForm::kParallelized || form == StoredForm::kHuggingFace)
    model = of_directory(path, form, sets, adapters.own, reads_images);
  else
    model = of_checkpoint(require_checkpoint(path, warn_of_passed_over), sets);
  set_vocabulary(model);
  return model;
}

void load_named_libraries(const std::vector<std::string>& named, const std::string& config_text,
                          const std::string& folder) {
  Config config;
  config.libraries = named;
  if (named.empty() && !config_text.empty()) config.libraries = Config::parse_written(config_text, folder).libraries;
  load_libraries(config);
}

void load_trained_weights(const TrainedModel& model, Boosted& boosted, HybridParallelPlugin& plugin) {
  switch (model.form) {
    case StoredForm::kHuggingFace: {
      const auto fresh = load_weights(model.config, boosted, plugin.mesh());
      if (plugin.mesh().rank() == 0) warn_of_new_weights(fresh);
      return;
    }
    case StoredForm::kFile:  // rejected by require_checkpoint()
    case StoredForm::kCheckpoint:
      if (model.config.lora.is_on()) load_weights(model.config, boosted, plugin.mesh());
      return load_checkpoint(model.path, plugin.state(boosted), plugin.mesh());
    case StoredForm::kParallelized:
      return from_parallelized(model.path, boosted, plugin);
  }
}

}  // namespace gantry::cli
