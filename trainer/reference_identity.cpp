#include "gantry/trainer/reference_identity.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "gantry/booster/run_task.h"
#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/checkpoint/format/adapter_files.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/models/model_family.h"
#include "gantry/trainer/model_digest.h"

namespace gantry {
namespace {

using nlohmann::json;

// Raise it with each change of the log-probabilities of a model.
constexpr int kScoresVersion = 1;

std::string digest_of_adapter(const std::string& directory, const OpenProgress& progress) {
  return digest_of_files({directory + "/" + kAdapterConfig, directory + "/" + kAdapterModel}, progress);
}

// The keys of new adapters whose initial values may change the outputs, such as those of PiSSA and LoftQ.
json start_of_adapters(const Config& config) {
  const LoraConfig& lora = config.lora;
  if (!lora.is_on() || lora.init_lora_weights == LoraConfig().init_lora_weights) return nullptr;
  return json::array({lora.init_lora_weights, lora.r, lora.alpha, lora.rslora, lora.target_modules, lora.rank_pattern,
                      lora.alpha_pattern, config.train.seed});
}

}  // namespace

ReferenceForm reference_form(const Config& config) {
  const std::string& directory = config.train.objective.reference;
  if (directory.empty()) return ReferenceForm::kInitial;
  return is_adapter_directory(directory) ? ReferenceForm::kAdapter : ReferenceForm::kModel;
}

std::string digest_of_settings(const Config& config, ReferenceForm form, const OpenProgress& progress) {
  const bool is_initial = form == ReferenceForm::kInitial, has_files = !config.model.path.empty();
  const json keys = model_json(config);
  const json model = has_files ? models::config_fingerprint(models::families().at(config.model.policy), keys) : keys;
  json facts = {{"version", kScoresVersion},
                {"samples", config.train.objective.name == "kto" ? "completions" : "pairs"},
                {"precision", config.precision},
                {"quantize", config.model.quantize},
                {"quantize_double", config.model.quantize_double},
                {"policy", config.model.policy},
                {"model", model}};
  if (form != ReferenceForm::kAdapter) facts["start"] = start_of_adapters(config);
  if (!has_files) facts["seed"] = config.train.seed;
  if (has_files && form != ReferenceForm::kModel) facts["base"] = digest_of_model(config.model.path, progress);
  if (is_initial && !config.lora.path.empty()) facts["adapter"] = digest_of_adapter(config.lora.path, progress);
  return hash_of(facts.dump());
}

std::string digest_of_reference_files(const Config& config, ReferenceForm form, const OpenProgress& progress) {
  const std::string& directory = config.train.objective.reference;
  if (form == ReferenceForm::kInitial) return "";
  if (form == ReferenceForm::kAdapter) return digest_of_adapter(directory, progress);
  return digest_of_model(directory, progress);
}

}  // namespace gantry
