#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/adapter_config.h"
#include "gantry/checkpoint/checkpoint_files.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/checkpoint/stored_parts.h"
#include "gantry/core/adapter_split.h"
#include "gantry/core/error.h"
#include "gantry/core/paths.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/lora.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr const char* kStoredPrefix = "base_model.model.";  // of PEFT's names
constexpr const char* kStoredA = ".lora_A.weight";
constexpr const char* kStoredB = ".lora_B.weight";
constexpr const char* kStoredTableA = ".lora_embedding_A";
constexpr const char* kStoredTableB = ".lora_embedding_B";

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
      throw InputError({directory + "/" + kAdapterModel, "the file has a tensor '" + name + "'",
                        std::string("names that begin with ") + kStoredPrefix, ""});
    adapter.tensors[name.substr(std::string(kStoredPrefix).size())] = file.read(name);
  }
  return adapter;
}

Adapter adapter_of_checkpoint(const std::string& folder) {
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
  Adapter adapter{folder, config.lora, config.model.path, {}};
  CheckpointFiles files(folder, &manifest);
  for (const auto& name : models::trained_names(parameters, config.lora, names)) {
    const torch::Tensor whole = files.read(manifest.tensors.at("model/" + name.name));
    const torch::Tensor stored = models::as_stored_factor(name.name, name.transposed ? whole.t() : whole);
    adapter.tensors[name.hugging_face.substr(std::string(kStoredPrefix).size())] = stored;
  }
  return adapter;
}

// What an adapter adds to one of the base's tensors.
struct Addition {
  std::string factors;  // what the names of both begin with
  std::string path;     // that ranks and scales go by
  std::string a = kStoredA, b = kStoredB;
  bool transposed = false;                             // the product is turned
  std::int64_t experts = 0;                            // of a stack of adapters
  std::optional<std::vector<AppliedShard>> cuts = {};  // what files have of the stack apart
};

// What of the base the adapter changes, by the family's names.
class Additions {
 public:
  Additions(const Adapter& adapter, const std::string& family, const json& config,
            const std::vector<models::TensorName>& names)
      : adapter_(adapter), family_(family), config_(config) {
    for (const auto& name : names)
      if (name.name.ends_with(".weight"))
        add_matrix(name, models::hugging_face_path(adapted_layer(name.name), names).path);
      else if (name.name.ends_with(kStacks[0]) || name.name.ends_with(kStacks[1]))
        add_stack(name, models::hugging_face_path(adapted_layer(name.name), names).path);
  }

  const Addition* find(const std::string& stored) const {
    const auto found = all_.find(stored);
    return found == all_.end() ? nullptr : &found->second;
  }
  bool changes_table() const { return changes_table_; }

 private:
  static constexpr const char* kStacks[] = {".gate_up_proj", ".down_proj"};

  void add_matrix(const models::TensorName& name, const std::string& path) {
    if (adapter_.tensors.contains(path + kStoredA)) {
      all_[name.hugging_face] = {.factors = path, .path = path, .transposed = name.transposed};
    } else if (adapter_.tensors.contains(path + kStoredTableA)) {
      all_[name.hugging_face] = {
          .factors = path, .path = path, .a = kStoredTableA, .b = kStoredTableB, .transposed = true};
      changes_table_ = true;
    }
  }

  // Of two stacks of one module the first is wrapped by the second.
  void add_stack(const models::TensorName& name, const std::string& module) {
    const std::string stack = name.name.substr(name.name.rfind('.')), path = module + stack;
    const auto& entries = adapter_.lora.target_modules;
    if (std::none_of(entries.begin(), entries.end(), [&](const auto& one) { return models::names_module(one, path); }))
      return;
    const bool both = adapter_.tensors.contains(module + kInner + kStoredA);
    const models::DecoderSpec spec = models::decoder_spec(family_, config_);
    const auto layer = std::find_if(spec.layers.begin(), spec.layers.end(),
                                    [](const models::LayerSpec& one) { return one.experts.has_value(); });
    Addition addition{.factors = module + (both && stack == kStacks[0] ? kInner : ""),
                      .path = path,
                      .transposed = layer->experts->interleaved,
                      .experts = layer->experts->count};
    if (name.parts.empty()) all_[name.hugging_face] = addition;
    for (const auto& part : name.parts) {
      addition.cuts = part.cuts;
      all_[part.hugging_face] = addition;
    }
  }

  static constexpr const char* kInner = ".base_layer";
  const Adapter& adapter_;
  const std::string& family_;
  const json& config_;
  std::map<std::string, Addition> all_;
  bool changes_table_ = false;
};

// What the adapter makes of one of the base's tensors.
class Merge {
 public:
  Merge(Adapter adapter, const std::string& family, const json& config, const std::vector<models::TensorName>& names)
      : adapter_(std::move(adapter)), additions_(adapter_, family, config, names) {}
  Merge(const Merge&) = delete;
  Merge& operator=(const Merge&) = delete;

  bool changes(const std::string& name) const { return adapter_.tensors.contains(name) || additions_.find(name); }
  bool changes_table() const { return additions_.changes_table(); }

  // Refuses shapes that don't fit, before anything is written.
  void use(const std::string& name, const std::vector<std::int64_t>& shape) {
    if (const auto whole = adapter_.tensors.find(name); whole != adapter_.tensors.end()) {
      require_shape(name, whole->second.sizes().vec(), shape);
      used_.insert(name);
      return;
    }
    const Addition& addition = *additions_.find(name);
    const auto [a, b] = factors(addition);
    const std::int64_t stacked = std::max<std::int64_t>(addition.experts, 1);
    const std::int64_t rank = models::rank_of(adapter_.lora, addition.path);
    if (a.size(0) != b.size(1) || a.size(0) != rank * stacked)
      throw InputError({adapter_.from,
                        fmt::format("the factors of {} have the ranks {} and {}", addition.path, a.size(0), b.size(1)),
                        fmt::format("rank {}", rank * stacked), ""});
    std::vector<std::int64_t> product = {b.size(0), a.size(1)};
    if (addition.transposed) std::swap(product[0], product[1]);
    if (addition.experts > 0) product.insert(product.begin(), addition.experts);
    if (addition.cuts) product = shape_of_part(apply_cuts(product, *addition.cuts));
    require_shape(name, product, shape);
    used_.insert(addition.factors + addition.a);
    used_.insert(addition.factors + addition.b);
  }

  torch::Tensor merged(const std::string& name, const torch::Tensor& base) const {
    if (const auto whole = adapter_.tensors.find(name); whole != adapter_.tensors.end()) return whole->second;
    const Addition& addition = *additions_.find(name);
    const auto type = base.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
    return base.to(type) + product(addition, type).view(base.sizes()) * models::scale_of(adapter_.lora, addition.path);
  }

  void refuse_unused(const std::string& base) const {
    for (const auto& [name, tensor] : adapter_.tensors)
      if (!used_.contains(name) && !is_base_table(name))
        throw InputError({adapter_.from, "it has " + name + ", but " + base + " has no such weight",
                          "an adapter of this base model", "pass the adapter's own base model with --model"});
  }

 private:
  std::pair<torch::Tensor, torch::Tensor> factors(const Addition& addition) const {
    const auto a = adapter_.tensors.find(addition.factors + addition.a),
               b = adapter_.tensors.find(addition.factors + addition.b);
    if (a == adapter_.tensors.end() || b == adapter_.tensors.end() || a->second.dim() != 2 || b->second.dim() != 2)
      throw InputError(
          {adapter_.from, "the two matrices of " + addition.path + " are missing", "lora_A and lora_B", ""});
    return {a->second, b->second};
  }

  torch::Tensor product(const Addition& addition, torch::ScalarType type) const {
    auto [a, b] = factors(addition);
    a = a.to(type);
    b = b.to(type);
    if (addition.experts > 0) {
      a = models::from_stored_factor(kStackAdapterA, a, addition.experts);
      b = models::from_stored_factor(kStackAdapterB, b, addition.experts);
      if (addition.cuts) {  // one expert's is enough
        const Range own = addition.cuts->front().ranges.front();
        a = a.narrow(0, own.begin, own.size());
        b = b.narrow(0, own.begin, own.size());
      }
    }
    torch::Tensor made = torch::matmul(b, a);
    if (addition.transposed) made = made.transpose(-2, -1);
    if (addition.cuts && addition.cuts->size() > 1) {
      const AppliedShard& rows = (*addition.cuts)[1];
      made = made.narrow(rows.dim, rows.ranges.front().begin, rows.ranges.front().size());
    }
    return made.contiguous();
  }

  void require_shape(const std::string& name, const std::vector<std::int64_t>& made,
                     const std::vector<std::int64_t>& shape) const {
    if (made != shape)
      throw InputError({adapter_.from,
                        fmt::format("its {} would have the shape [{}], so it belongs to another base model", name,
                                    fmt::join(made, ", ")),
                        fmt::format("[{}]", fmt::join(shape, ", ")), "pass the adapter's own base model with --model"});
  }

  Adapter adapter_;
  Additions additions_;
  std::set<std::string> used_;
};

// A merged table is no longer the output layer's, which gets a tensor of its own: the base's.
void untie(json& config, const models::ModelFamily& family, std::vector<ExportTensor>& tensors,
           const std::map<std::string, ExportTensor>& bases) {
  const auto tied = family.tensor_names(config);
  if (!bases.contains(tied.front().hugging_face)) return;  // another table than that of tokens
  config["tie_word_embeddings"] = false;
  std::set<std::string> known;
  for (const auto& name : tied) known.insert(name.hugging_face);
  for (const auto& name : family.tensor_names(config)) {
    if (known.contains(name.hugging_face)) continue;
    ExportTensor head = bases.at(tied.front().hugging_face);
    head.name = name.hugging_face;
    std::erase_if(tensors, [&](const ExportTensor& one) { return one.name == head.name; });
    tensors.push_back(std::move(head));
  }
}

}  // namespace

void merge_adapter(const std::string& from, const std::string& base, const std::string& directory,
                   const ExportOptions& options) {
  Adapter adapter = is_adapter_directory(from) ? adapter_of_directory(from) : adapter_of_checkpoint(from);
  const std::string model = base.empty() ? adapter.base : base;
  if (model.empty() || !path_exists(model + "/config.json"))
    throw UsageError(
        {from, model.empty() ? "it does not state its base model" : "its base model " + model + " does not exist",
         "the directory of the base model", "pass it with --model"});
  json config = read_model_config(model);
  const std::string family_name = models::family_of(config);
  if (family_name.empty())
    throw InputError(
        {model + "/config.json", "Gantry does not support this model family", "the base model of the adapter", ""});
  const auto& family = models::families().at(family_name);
  const auto names = family.tensor_names(config);
  const auto merge = std::make_shared<Merge>(std::move(adapter), family_name, config, names);
  std::vector<ExportTensor> tensors;
  std::map<std::string, ExportTensor> bases;  // of what is changed, as they were
  for (const auto& path : find_model_files(model).paths) {
    const auto file = std::make_shared<SafetensorsFile>(path);
    for (const auto& stored : file->names()) {
      const std::string known = family.normalise_name ? family.normalise_name(config, stored) : stored;
      const bool changed = !known.empty() && merge->changes(known);
      const auto read = [=] { return file->read(stored); };
      if (changed) merge->use(known, file->shape(stored));
      if (changed) bases[known] = {stored, file->shape(stored), file->dtype(stored), read};
      tensors.push_back({stored, file->shape(stored), file->dtype(stored),
                         [=] { return changed ? merge->merged(known, read()) : read(); }});
    }
  }
  merge->refuse_unused(model);
  if (merge->changes_table()) untie(config, family, tensors, bases);
  ExportOptions complete = options;
  complete.model_directory = model;
  save_hugging_face(directory, config, tensors, complete);
}

}  // namespace gantry
