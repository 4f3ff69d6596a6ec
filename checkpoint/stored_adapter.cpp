#include "gantry/checkpoint/stored_adapter.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/adapter_config.h"
#include "gantry/checkpoint/adapter_starts.h"
#include "gantry/checkpoint/checkpoint_files.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/core/error.h"
#include "gantry/models/peft_names.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

StoredAdapter adapter_of_directory(const std::string& directory) {
  StoredAdapter adapter{directory, read_adapter_config(directory), stated_base(directory), {}, /*is_directory=*/true};
  const SafetensorsFile file(directory + "/" + kAdapterModel);
  for (const auto& name : file.names()) {
    if (!name.starts_with(models::kPeftPrefix))
      throw InputError({directory + "/" + kAdapterModel, "the file has a tensor '" + name + "'",
                        std::string("the prefix ") + models::kPeftPrefix + " in every name", ""});
    adapter.tensors[name.substr(std::string(models::kPeftPrefix).size())] = file.read(name);
  }
  return adapter;
}

StoredAdapter adapter_of_checkpoint(const std::string& folder, const std::string& base) {
  const Manifest manifest = read_manifest(folder);
  const Config config = Config::parse_written(manifest.config_text, folder);
  if (!config.lora.is_on())
    throw CheckpointError({folder, "the checkpoint has no adapters to merge", "a checkpoint of a run with lora",
                           "write its model with gantry checkpoint export"});
  check_all_hashes(folder, manifest);
  const auto names = models::families().at(manifest.policy).tensor_names(manifest.model_config);
  std::vector<std::string> parameters;
  for (const auto& [key, tensor] : manifest.tensors)
    if (tensor.kind == "model") parameters.push_back(tensor.name);
  StoredAdapter adapter{folder, config.lora, config.model.path, {}};
  CheckpointFiles files(folder, &manifest);
  std::optional<OriginalBase> original;
  if (models::is_pissa(config.lora)) {
    original.emplace(base.empty() ? config.model.path : base, manifest, config.lora);
    adapter.lora = models::of_original_base(config.lora);
  }
  for (const auto& name : models::trained_names(parameters, config.lora, names)) {
    const torch::Tensor trained = files.read(manifest.tensors.at("model/" + name.name));
    const torch::Tensor full = original ? original->adapted(name.name, trained) : trained;
    const torch::Tensor stored = models::as_stored_factor(name.name, name.transposed ? full.t() : full);
    adapter.tensors[name.hugging_face.substr(std::string(models::kPeftPrefix).size())] = stored;
  }
  return adapter;
}

}  // namespace

std::vector<std::string> StoredAdapter::stored_names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(models::kPeftPrefix + name);
  return names;
}

StoredAdapter read_stored_adapter(const std::string& from, const std::string& base) {
  return is_adapter_directory(from) ? adapter_of_directory(from) : adapter_of_checkpoint(from, base);
}

}  // namespace gantry
