#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include <torch/torch.h>

#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/adapter_config.h"
#include "gantry/checkpoint/checkpoint_files.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/core/adapter_split.h"
#include "gantry/core/error.h"
#include "gantry/core/paths.h"
#include "gantry/models/lora.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr const char* kStoredPrefix = "base_model.model.";  // of PEFT's names
constexpr const char* kStoredA = ".lora_A.weight";
constexpr const char* kStoredB = ".lora_B.weight";

// An adapter, wherever it comes from: whole tensors by PEFT's names without their prefix.
struct Adapter {
  std::string from;
  LoraConfig lora;
  std::string base;  // that it names
  std::map<std::string, torch::Tensor> tensors;
};

Adapter adapter_of_directory(const std::string& directory) {
  Adapter adapter{directory, read_adapter_config(directory), stated_base(directory), {}};
  const SafetensorsFile file(directory + "/" + kAdapterModel);
  for (const auto& name : file.names()) {
    if (!name.starts_with(kStoredPrefix))
      throw InputError({directory + "/" + kAdapterModel, "has a tensor '" + name + "'",
                        std::string("names that begin with ") + kStoredPrefix, ""});
    adapter.tensors[name.substr(std::string(kStoredPrefix).size())] = file.read(name);
  }
  return adapter;
}

Adapter adapter_of_checkpoint(const std::string& folder) {
  const Manifest manifest = read_manifest(folder);
  const Config config = Config::parse_written(manifest.config_text, folder);
  if (!config.lora.is_on())
    throw CheckpointError({folder, "has no adapters to merge", "a checkpoint of a run with lora",
                           "gantry checkpoint export writes its model"});
  for (const auto& [name, file] : manifest.files) check_file_hash(folder, name, file);
  const auto names = models::families().at(manifest.policy).tensor_names(manifest.model_config);
  std::vector<std::string> parameters;
  for (const auto& [key, tensor] : manifest.tensors)
    if (tensor.kind == "model") parameters.push_back(tensor.name);
  Adapter adapter{folder, config.lora, config.model.path, {}};
  CheckpointFiles files(folder, &manifest);
  for (const auto& name : models::trained_names(parameters, config.lora, names)) {
    const torch::Tensor whole = files.read(manifest.tensors.at("model/" + name.name));
    adapter.tensors[name.hugging_face.substr(std::string(kStoredPrefix).size())] = name.transposed ? whole.t() : whole;
  }
  return adapter;
}

// What the adapter makes of one of the base's tensors.
class Merge {
 public:
  explicit Merge(Adapter adapter) : adapter_(std::move(adapter)) {}

  bool changes(const std::string& name) const {
    return adapter_.tensors.contains(name) || adapter_.tensors.contains(path_of(name) + kStoredA);
  }

  // Refuses shapes that don't fit, before anything is written.
  void use(const std::string& name, const std::vector<std::int64_t>& shape, bool transposed) {
    if (const auto whole = adapter_.tensors.find(name); whole != adapter_.tensors.end()) {
      require_shape(name, whole->second.sizes().vec(), shape);
      used_.insert(name);
      return;
    }
    const std::string path = path_of(name);
    const auto [a, b] = factors(path);
    const std::vector<std::int64_t> product = {b.size(0), a.size(1)}, turned = {a.size(1), b.size(0)};
    if (a.size(0) != b.size(1) || a.size(0) != models::rank_of(adapter_.lora, path))
      throw InputError({adapter_.from, fmt::format("has factors of ranks {} and {} of {}", a.size(0), b.size(1), path),
                        fmt::format("rank {}", models::rank_of(adapter_.lora, path)), ""});
    require_shape(name, transposed ? turned : product, shape);
    used_.insert(path + kStoredA);
    used_.insert(path + kStoredB);
  }

  // `transposed`: the base has it as [in, out].
  torch::Tensor merged(const std::string& name, const torch::Tensor& base, bool transposed) const {
    if (const auto whole = adapter_.tensors.find(name); whole != adapter_.tensors.end()) return whole->second;
    const std::string path = path_of(name);
    const auto [a, b] = factors(path);
    const auto type = base.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
    const torch::Tensor delta = torch::mm(b.to(type), a.to(type)) * models::scale_of(adapter_.lora, path);
    return base.to(type) + (transposed ? delta.t() : delta);
  }

  void refuse_unused(const std::string& base) const {
    for (const auto& [name, tensor] : adapter_.tensors)
      if (!used_.contains(name))
        throw InputError({adapter_.from, "has " + name + ", of which " + base + " has no weight",
                          "an adapter of this base", "name its own with --model"});
  }

 private:
  static std::string path_of(const std::string& name) {
    return name.ends_with(".weight") ? name.substr(0, name.size() - std::string(".weight").size()) : name;
  }
  std::pair<torch::Tensor, torch::Tensor> factors(const std::string& path) const {
    const auto a = adapter_.tensors.find(path + kStoredA), b = adapter_.tensors.find(path + kStoredB);
    if (b == adapter_.tensors.end() || a->second.dim() != 2 || b->second.dim() != 2)
      throw InputError({adapter_.from, "has no two matrices of " + path, "lora_A and lora_B", ""});
    return {a->second, b->second};
  }
  void require_shape(const std::string& name, const std::vector<std::int64_t>& made,
                     const std::vector<std::int64_t>& shape) const {
    if (made != shape)
      throw InputError({adapter_.from,
                        fmt::format("makes {} of the shape [{}], of another base", name, fmt::join(made, ", ")),
                        fmt::format("[{}]", fmt::join(shape, ", ")), "name its own base with --model"});
  }

  Adapter adapter_;
  std::set<std::string> used_;
};

}  // namespace

void merge_adapter(const std::string& from, const std::string& base, const std::string& directory,
                   const ExportOptions& options) {
  Adapter adapter = is_adapter_directory(from) ? adapter_of_directory(from) : adapter_of_checkpoint(from);
  const std::string model = base.empty() ? adapter.base : base;
  if (model.empty() || !path_exists(model + "/config.json"))
    throw UsageError({from, model.empty() ? "names no base model" : "names the base " + model + ", which is not there",
                      "the directory of the base", "give it with --model"});
  const json config = read_model_config(model);
  const std::string family_name = models::family_of(config);
  if (family_name.empty())
    throw InputError({model + "/config.json", "is of no family that Gantry has", "the base of the adapter", ""});
  const auto& family = models::families().at(family_name);
  std::set<std::string> transposed;
  for (const auto& name : family.tensor_names(config))
    if (name.transposed) transposed.insert(name.hugging_face);
  const auto merge = std::make_shared<Merge>(std::move(adapter));
  std::vector<ExportTensor> tensors;
  for (const auto& path : find_model_files(model).paths) {
    const auto file = std::make_shared<SafetensorsFile>(path);
    for (const auto& stored : file->names()) {
      const std::string known = family.normalise_name ? family.normalise_name(config, stored) : stored;
      const bool changed = !known.empty() && merge->changes(known);
      const bool turned = transposed.contains(known);
      if (changed) merge->use(known, file->shape(stored), turned);
      tensors.push_back({stored, file->shape(stored), file->dtype(stored), [=] {
                           const torch::Tensor whole = file->read(stored);
                           return changed ? merge->merged(known, whole, turned) : whole;
                         }});
    }
  }
  merge->refuse_unused(model);
  save_hugging_face(directory, config, tensors, options);
}

}  // namespace gantry
