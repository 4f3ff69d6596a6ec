#include "gantry/cli/engine/trained_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gantry/booster/parallelized_model.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/cli/warnings.h"
#include "gantry/data/tokenizers/tokenizer.h"
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
                          const std::string& adapter) {
  TrainedModel model{.form = form, .path = path, .config = {}, .tokenizer = has_tokenizer(path) ? path : ""};
  json keys = {{"model", {{"path", path}}}};
  if (!adapter.empty()) keys["lora"] = {{"path", adapter}};
  model.config = Config::parse(keys.dump(), "--model", sets);
  load_libraries(model.config);
  model.config = resolve_model(std::move(model.config));
  return model;
}

// The base that the run has read, and its adapters' shapes. CheckpointError where nothing says where the base is.
void take_adapters(const Config& made, const std::string& folder, Config& config) {
  if (made.model.path.empty())
    throw CheckpointError({folder, "holds adapters alone, and its run's base was in no files", "a run with model.path",
                           "continue texts in the program that made the base"});
  config.model.path = made.model.path;
  config.lora = made.lora;
  config.lora.path.clear();
}

// In a layout of its own: the one that made the checkpoint was for training.
TrainedModel of_checkpoint(const std::string& folder, const std::vector<std::string>& sets) {
  const CheckpointInfo info = read_checkpoint_info(folder);
  TrainedModel model{.form = StoredForm::kCheckpoint, .path = folder, .config = {}, .tokenizer = {}};
  json keys = {{"model", {{"policy", info.policy}}}};
  std::optional<Config> adapted;
  if (!info.config_text.empty()) {
    const Config made = Config::parse_written(info.config_text, folder);
    if (made.lora.is_on()) adapted = made;
    if (!made.libraries.empty()) keys["libraries"] = made.libraries;
    if (is_byte_tokenizer(made.data.tokenizer) || std::filesystem::exists(made.data.tokenizer))
      model.tokenizer = made.data.tokenizer;
    else if (has_tokenizer(made.model.path))
      model.tokenizer = made.model.path;
  }
  model.config = Config::parse(keys.dump(), folder, sets);
  load_libraries(model.config);
  // As the checkpoint's own config.json has them: resolve_model() is for what a user writes.
  model.config.model.config_json = info.model_config.dump();
  if (adapted) take_adapters(*adapted, folder, model.config);
  policies().at(model.config.model.policy);
  models::families().at(model.config.model.policy);
  return model;
}

}  // namespace

TrainedModel find_trained_model(const std::string& path, const std::vector<std::string>& sets,
                                const std::string& adapter) {
  TrainedModel model;
  const StoredForm form = stored_form(path);
  if (!adapter.empty() && form != StoredForm::kHuggingFace)
    throw UsageError({"--adapter", path + " is no model in Hugging Face's form", "the directory of the adapter's base",
                      "gantry checkpoint export writes one"});
  if (form == StoredForm::kParallelized || form == StoredForm::kHuggingFace)
    model = of_directory(path, form, sets, adapter);
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
    case StoredForm::kHuggingFace:
      load_weights(model.config, boosted, plugin.mesh());
      return;
    case StoredForm::kFile:  // require_checkpoint() has refused it
    case StoredForm::kCheckpoint:
      if (model.config.lora.is_on()) load_weights(model.config, boosted, plugin.mesh());
      return load_checkpoint(model.path, plugin.state(boosted), plugin.mesh());
    case StoredForm::kParallelized:
      return from_parallelized(model.path, boosted, plugin);
  }
}

}  // namespace gantry::cli
