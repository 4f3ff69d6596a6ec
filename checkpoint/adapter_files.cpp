#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/adapter_config.h"
#include "gantry/checkpoint/adapter_starts.h"
#include "gantry/checkpoint/checkpoint_files.h"
#include "gantry/checkpoint/exported_tensor.h"
#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/checkpoint/format/safetensors_header.h"
#include "gantry/checkpoint/format/staged_files.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/checkpoint/stored_parts.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/adapter_modules.h"
#include "gantry/models/peft_names.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

using nlohmann::json;

// The names of a checkpoint's trained tensors.
std::vector<std::string> model_names(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const auto& [key, tensor] : manifest.tensors)
    if (tensor.kind == "model") names.push_back(tensor.name);
  return names;
}

// Factors of a stack of experts are read in full, because the factor of one expert is not contiguous in the
// file.
torch::Tensor read_factor(const SafetensorsFile& file, const models::TensorName& name, const Placement& placement,
                          const Coordinates& coordinates) {
  if (!is_stack_adapter(name.name)) return read_held(file, name.hugging_face, name.transposed, placement, coordinates);
  const torch::Tensor full =
      models::from_stored_factor(name.name, file.read(name.hugging_face), placement.global_shape.front());
  return take_slice(full, held_slice(placement, coordinates));
}

// PEFT's task type of a model with this architecture; empty: none.
std::string task_type(const models::ModelFamily& family, const json& config) {
  if (models::continues_text(family, config)) return "CAUSAL_LM";
  const json full = family.hugging_face_config(config);
  const auto architecture = full.value("architectures", std::vector<std::string>{""}).front();
  const auto is_for = [&](const char* task) { return architecture.ends_with(task); };
  if (is_for("ForSequenceClassification")) return "SEQ_CLS";
  if (is_for("ForTokenClassification")) return "TOKEN_CLS";
  if (is_for("ForQuestionAnswering")) return "QUESTION_ANS";
  const bool is_pair = is_for("T5ForConditionalGeneration") || is_for("BartForConditionalGeneration");
  return is_pair ? "SEQ_2_SEQ_LM" : "";
}

// PEFT saves every module whose path ends with an entry, even in the middle of a word: "norm" also matches
// "input_layernorm". If an entry would match modules that are not trained, it is replaced by the full paths.
std::vector<std::string> saved_as_peft_reads(const LoraConfig& lora, const std::vector<models::TensorName>& names) {
  std::set<std::string> paths;
  for (const auto& name : names)
    for (std::size_t end = name.hugging_face.rfind('.'); end != std::string::npos && end > 0;
         end = name.hugging_face.rfind('.', end - 1))
      paths.insert(name.hugging_face.substr(0, end));
  std::vector<std::string> entries;
  for (const auto& entry : lora.modules_to_save) {
    std::vector<std::string> named;
    bool others = false;
    for (const auto& path : paths) {
      if (models::names_module(entry, path))
        named.push_back(path);
      else
        others = others || path.ends_with(entry);
    }
    if (others)
      entries.insert(entries.end(), named.begin(), named.end());
    else
      entries.push_back(entry);
  }
  return entries;
}

void write_adapter_file(const std::string& path, const TensorDict& tensors, FileSystem& files) {
  std::vector<NamedTensorShape> shapes;
  for (const auto& [name, tensor] : tensors)
    shapes.push_back({name, &stored_type_of(tensor.scalar_type()), tensor.sizes().vec()});
  const std::string header = make_safetensors_header(shapes, {{"format", "pt"}});
  OutputFile file(files, path);
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : tensors)
    if (tensor.nbytes() > 0) file.write(tensor.data_ptr(), tensor.nbytes());
  file.finish();
}

}  // namespace

void check_adapter_names(const std::vector<std::string>& stored, const std::vector<models::TensorName>& trained,
                         const std::string& path, const std::vector<std::string>& other_parts) {
  const std::set<std::string> found(stored.begin(), stored.end());
  std::set<std::string> expected;
  for (const auto& name : trained) expected.insert(name.hugging_face);
  for (const auto& name : stored)
    if (models::is_of_other_part(other_parts, name) && !expected.contains(name))
      throw InputError({path, fmt::format("the adapter changes {}, but Gantry adapts only the text decoder", name),
                        fmt::format("no adapters of {}", fmt::join(other_parts, ", ")),
                        "train an adapter whose target_modules are within the text decoder"});
  std::vector<std::string> missing, unexpected;
  for (const auto& name : expected)
    if (!found.contains(name)) missing.push_back(name);
  // PEFT also writes the base's table for an adapter of an embedding.
  for (const auto& name : stored)
    if (!expected.contains(name) && !is_base_table(name)) unexpected.push_back(name);
  if (missing.empty() && unexpected.empty()) return;
  constexpr std::size_t kShown = 4;
  for (auto* names : {&missing, &unexpected})
    if (names->size() > kShown) names->resize(kShown);
  throw InputError({path,
                    fmt::format("the adapter belongs to another base model: missing ({}), unexpected ({})",
                                fmt::join(missing, ", "), fmt::join(unexpected, ", ")),
                    fmt::format("the {} tensors of this model's adapter", expected.size()),
                    "check that adapter_config.json and the base model belong to it"});
}

void load_adapter(const std::string& directory, const std::vector<models::TensorName>& trained,
                  const std::vector<HeldTensor>& held, const Coordinates& coordinates,
                  const std::function<void(std::uint64_t)>& loaded, const std::vector<std::string>& other_parts) {
  const std::string path = directory + "/" + kAdapterModel;
  const SafetensorsFile file(path);
  check_adapter_names(file.names(), trained, path, other_parts);
  const torch::NoGradGuard no_grad;
  for (const auto& tensor : held) {
    const auto name = std::find_if(trained.begin(), trained.end(),
                                   [&](const auto& one) { return one.name == tensor.placement.name; });
    if (name == trained.end()) continue;
    std::vector<std::int64_t> expected = tensor.placement.global_shape;
    if (name->transposed) std::reverse(expected.begin(), expected.end());
    expected = models::stored_factor_shape(name->name, expected);
    if (file.shape(name->hugging_face) != expected)
      throw InputError({path,
                        fmt::format("{} has the shape [{}], so the adapter has another base model or rank",
                                    name->hugging_face, fmt::join(file.shape(name->hugging_face), ", ")),
                        fmt::format("[{}]", fmt::join(expected, ", ")), ""});
    const torch::Tensor part = read_factor(file, *name, tensor.placement, coordinates);
    torch::Tensor target = tensor.tensor;
    target.copy_(part);
    if (loaded) loaded(part.nbytes());
  }
}

bool holds_adapters(const std::string& folder) {
  const auto names = model_names(read_manifest(folder));
  return std::any_of(names.begin(), names.end(), is_adapter);
}

void export_adapter(const std::string& folder, const std::string& directory, const ExportOptions& options) {
  const Manifest manifest = read_manifest(folder);
  const Config config = Config::parse_written(manifest.config_text, folder);
  const models::ModelFamily* family =
      models::families().contains(manifest.policy) ? &models::families().at(manifest.policy) : nullptr;
  const auto names = family ? family->tensor_names(manifest.model_config) : std::vector<models::TensorName>();
  const auto module_name = [&](const std::string& stored) {
    return family ? models::to_module_name(*family, stored) : stored;
  };
  if (options.average) require_averages(folder, manifest);
  check_all_hashes(folder, manifest);
  CheckpointFiles checkpoint(folder, &manifest);
  std::optional<OriginalBase> original;
  if (models::is_pissa(config.lora)) original.emplace(config.model.path, manifest, config.lora);
  std::map<std::string, torch::Tensor> sorted;
  std::vector<std::string> layers;
  bool transposed = false;
  for (const auto& name : models::trained_names(model_names(manifest), config.lora, names)) {
    const ManifestTensor& weight = exported_tensor(folder, manifest, name.name, /*average=*/false);
    const torch::Tensor trained = checkpoint.read(exported_tensor(folder, manifest, name.name, options.average));
    const torch::Tensor full = original ? original->adapted(name.name, trained) : trained;
    const auto type = options.type.value_or(scalar_type_of(*weight.type, name.name));
    const torch::Tensor stored = models::as_stored_factor(name.name, full);
    sorted[module_name(name.hugging_face)] = (name.transposed ? stored.t() : stored).to(type).contiguous();
    if (!name.name.ends_with(std::string(".") + kAdapterA)) continue;
    const auto layer = models::hugging_face_path(adapted_layer(name.name), names);
    layers.push_back(module_name(layer.path));
    transposed = transposed || layer.transposed;
  }
  TensorDict tensors;
  for (const auto& [name, tensor] : sorted) tensors.set(name, tensor);
  FileSystem& files = options.files ? *options.files : system_files();
  StagedFiles staged(directory, files);
  write_adapter_file(staged.path(kAdapterModel), tensors, files);
  copy_companion_files(companion_directory(folder, manifest), StagedFiles::folder(directory), files);
  const auto parameters = models::entries_of_parameters(model_names(manifest), config.lora, names);
  LoraConfig lora = original ? models::of_original_base(config.lora) : config.lora;
  lora.modules_to_save = saved_as_peft_reads(lora, names);
  for (auto& entry : lora.modules_to_save) entry = module_name(entry);
  if (family && !family->other_parts.empty()) lora.target_modules = layers;  // names alone may fit other parts as well
  const std::string task = family ? task_type(*family, manifest.model_config) : "";
  const std::string text =
      adapter_config_json(lora, config.model.path, {layers, parameters, transposed, task}).dump(2) + "\n";
  OutputFile file(files, staged.path(kAdapterConfig));
  file.write(text.data(), text.size());
  file.finish();
  staged.place();
}

}  // namespace gantry
