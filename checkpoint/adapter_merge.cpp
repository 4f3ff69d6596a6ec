#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/adapter_additions.h"
#include "gantry/checkpoint/adapter_config.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/stored_adapter.h"
#include "gantry/checkpoint/stored_model.h"
#include "gantry/checkpoint/stored_parts.h"
#include "gantry/checkpoint/tied_tensors.h"
#include "gantry/core/config/adapter_names.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/adapter_modules.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/lora.h"
#include "gantry/models/peft_names.h"
#include "gantry/policies/policy.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using nlohmann::json;

// Merges an adapter into the tensors of its base.
class Merge {
 public:
  // `type`: type of the result; unset: the base's type.
  Merge(StoredAdapter adapter, const std::string& family, const json& config,
        const std::vector<models::TensorName>& names, std::optional<torch::ScalarType> type)
      : adapter_(std::move(adapter)), additions_(adapter_, family, config, names), type_(type) {}
  Merge(const Merge&) = delete;
  Merge& operator=(const Merge&) = delete;

  bool changes(const std::string& name) const { return adapter_.tensors.contains(name) || additions_.find(name); }

  // Throws for shapes that do not fit, before anything is written.
  void use(const std::string& name, const std::vector<std::int64_t>& shape) {
    if (const auto full = adapter_.tensors.find(name); full != adapter_.tensors.end()) {
      require_shape(name, full->second.sizes().vec(), shape);
      used_.insert(name);
      return;
    }
    const Addition& addition = *additions_.find(name);
    if (addition.is_tokens) return use_tokens(addition, shape);
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
    if (addition.shards) product = shape_of_part(apply_shards(product, *addition.shards));
    require_shape(name, product, shape);
    used_.insert(addition.factors + addition.a);
    used_.insert(addition.factors + addition.b);
    if (adapter_.lora.use_dora) {
      require_shape(addition.path + kStoredMagnitude, magnitudes(addition).sizes().vec(), {b.size(0)});
      used_.insert(addition.factors + kStoredMagnitude);
    }
  }

  torch::Tensor merged(const std::string& name, const torch::Tensor& base) const {
    if (const auto full = adapter_.tensors.find(name); full != adapter_.tensors.end()) return full->second;
    const Addition& addition = *additions_.find(name);
    const bool wide = base.scalar_type() == torch::kFloat64 || type_ == torch::kFloat64;
    const auto type = wide ? torch::kFloat64 : torch::kFloat32;
    if (addition.is_tokens) return with_tokens(base.to(type), addition);
    const torch::Tensor sum =
        base.to(type) + product(addition, type).view(base.sizes()) * models::scale_of(adapter_.lora, addition.path);
    return adapter_.lora.use_dora ? with_magnitudes(sum, addition) : sum;
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

  // Another base may have fewer rows than the adapter's token ids need.
  void use_tokens(const Addition& addition, const std::vector<std::int64_t>& shape) {
    const std::string name = addition.path + kStoredTokens;
    const auto& tokens = adapter_.lora.trainable_token_indices;
    const std::int64_t most = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
    require_shape(name, adapter_.tensors.at(name).sizes().vec(),
                  {static_cast<std::int64_t>(tokens.size()), shape.size() == 2 ? shape[1] : 0});
    if (most >= shape[0])
      throw InputError({adapter_.from, fmt::format("it trains token {}, but the base has {} tokens", most, shape[0]),
                        "an adapter of this base model", "pass the adapter's own base model with --model"});
    used_.insert(name);
  }

  torch::Tensor with_tokens(const torch::Tensor& base, const Addition& addition) const {
    const auto& tokens = adapter_.lora.trainable_token_indices;
    const torch::Tensor rows = torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end()), torch::kInt64);
    return base.index_copy(0, rows, adapter_.tensors.at(addition.path + kStoredTokens).to(base.scalar_type()));
  }

  const torch::Tensor& magnitudes(const Addition& addition) const {
    const auto found = adapter_.tensors.find(addition.factors + kStoredMagnitude);
    if (found == adapter_.tensors.end())
      throw InputError({adapter_.from, "the magnitudes of " + addition.path + " are missing, but use_dora is true",
                        "a lora_magnitude_vector for each layer", ""});
    return found->second;
  }

  // DoRA's weight, in which rows of zeros stay zeros. A part that files store separately consists of complete
  // rows of the full weight.
  torch::Tensor with_magnitudes(const torch::Tensor& sum, const Addition& addition) const {
    torch::Tensor own = magnitudes(addition).to(sum.scalar_type());
    if (addition.shards) {
      const Range rows = addition.shards->back().ranges.front();
      own = own.narrow(0, rows.begin, rows.size());
    }
    const int inputs = addition.transposed ? 0 : 1;
    const torch::Tensor norms = torch::linalg_vector_norm(sum, 2, {inputs}, /*keepdim=*/true);
    return own.unsqueeze(inputs) / norms.clamp_min(std::numeric_limits<float>::min()) * sum;
  }

  torch::Tensor product(const Addition& addition, torch::ScalarType type) const {
    auto [a, b] = factors(addition);
    a = a.to(type);
    b = b.to(type);
    if (addition.experts > 0) {
      a = models::from_stored_factor(kStackAdapterA, a, addition.experts);
      b = models::from_stored_factor(kStackAdapterB, b, addition.experts);
      if (addition.shards) {  // the factors of one expert are enough
        const Range own = addition.shards->front().ranges.front();
        a = a.narrow(0, own.begin, own.size());
        b = b.narrow(0, own.begin, own.size());
      }
    }
    torch::Tensor made = torch::matmul(b, a);
    if (addition.transposed) made = made.transpose(-2, -1);
    if (addition.shards && (addition.shards->size() > 1 || addition.experts == 0)) {
      const AppliedShard& rows = addition.shards->back();
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

  StoredAdapter adapter_;
  Additions additions_;
  std::optional<torch::ScalarType> type_;
  std::set<std::string> used_;
};

// The names of an adapter's tensors for this model, as in training.
std::vector<models::TensorName> trained_of(const LoraConfig& lora, const std::string& family, const json& keys,
                                           const std::vector<models::TensorName>& names) {
  const DeferredInit deferred;
  const auto model = models::families().at(family).build(keys);
  std::vector<std::string> outputs, parameters;
  if (lora.target_modules == std::vector<std::string>{kAllLinear})
    outputs = output_layers(*policies().at(family)(), *model);
  models::add_adapters(*model, lora, names, outputs);
  std::set<const void*> seen;  // a tied parameter has several names
  for (const auto& item : model->named_parameters())
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) parameters.push_back(item.key());
  return models::trained_names(parameters, lora, names);
}

// The keys of the merged model. If the adapter changes a tied embedding table or its output layer, the output
// layer gets a separate tensor.
json keys_of_merged(const StoredAdapter& adapter, const models::ModelFamily& family, json keys) {
  const auto tied = family.tied_tensors ? family.tied_tensors(keys) : std::vector<models::TiedTensor>();
  const auto changes = [&](const models::TiedTensor& one) {
    const std::string path = one.hugging_face.substr(0, one.hugging_face.rfind('.'));
    return adapter.tensors.contains(one.hugging_face) || adapter.tensors.contains(path + kStoredA) ||
           adapter.tensors.contains(path + kStoredTableA);
  };
  const auto is_head = [](const models::TiedTensor& one) {
    return one.apart.contains("tie_word_embeddings") || one.apart.contains(models::kTextConfig);
  };
  const bool table = !tied.empty() && changes(tied.front());
  for (const auto& one : tied)
    if (changes(one) || (table && is_head(one))) keys.update(one.apart);
  return keys;
}

// The tensors of the merged model.
class MergedTensors {
 public:
  MergedTensors(const std::string& directory, const models::ModelFamily& family, const json& keys, Merge& merge)
      : model_(std::make_shared<const StoredModel>(directory, family, keys)), merge_(merge) {
    for (const auto& name : model_->names()) add(model_->stored_name(name), name, name);
    for (const auto& place : model_->buffers())
      tensors_.push_back(
          {place.name, place.shape(), place.type(), [model = model_, place] { return place.file->read(place.name); }});
  }

  // Adds a tensor that the base stores under the name of another tensor.
  void add_untied(const std::string& name, const std::string& table) {
    if (!model_->contains(name)) add(name, name, table);
  }
  bool contains(const std::string& name) const { return model_->contains(name); }
  bool has_encoded() const {
    const auto names = model_->names();
    return std::any_of(names.begin(), names.end(), [&](const auto& name) { return model_->encoded(name) != nullptr; });
  }
  const std::vector<ExportTensor>& all() const { return tensors_; }

 private:
  void add(const std::string& written, const std::string& name, const std::string& source) {
    const Shape shape = model_->shape(source);
    const bool changed = merge_.changes(name);
    if (changed) merge_.use(name, shape);
    const auto read = [model = model_, &merge = merge_, changed, name, source] {
      const torch::Tensor base = model->read(source);
      return changed ? merge.merged(name, base) : base;
    };
    tensors_.push_back({written, shape, model_->type(source), read});
  }

  std::shared_ptr<const StoredModel> model_;
  Merge& merge_;
  std::vector<ExportTensor> tensors_;
};

// True if the adapter has full modules of an image encoder.
bool trains_other_parts(const StoredAdapter& adapter, const models::ModelFamily& family) {
  return std::ranges::any_of(adapter.lora.modules_to_save, [&](const std::string& entry) {
    return models::is_of_other_part(family.other_parts, entry + ".");
  });
}

}  // namespace

void merge_adapter(const std::string& from, const std::string& base, const std::string& directory,
                   const ExportOptions& options) {
  StoredAdapter adapter = read_stored_adapter(from, base);
  const std::string model = base.empty() ? adapter.base : base;
  if (model.empty() || !path_exists(model + "/config.json"))
    throw UsageError(
        {from, model.empty() ? "it does not state its base model" : "its base model " + model + " does not exist",
         "the directory of the base model", "pass it with --model"});
  require_other_directory(directory, {from, model});
  json config = read_model_config(model);
  const std::string family_name = models::family_of(config);
  if (family_name.empty())
    throw InputError(
        {model + "/config.json", "Gantry does not support this model family", "the base model of the adapter", ""});
  const auto& family = models::families().at(family_name);
  if (models::reads_images(family) && trains_other_parts(adapter, family)) config[models::kImageEncoder] = true;
  config.update(compare_tied_tensors(model, family, config).keys);
  const auto tied = family.tied_tensors ? family.tied_tensors(config) : std::vector<models::TiedTensor>();
  const json keys = keys_of_merged(adapter, family, config);
  const auto names = family.tensor_names(keys);
  adapter.lora = models::with_trained_heads(models::from_module_names(family, std::move(adapter.lora)), names);
  std::map<std::string, torch::Tensor> tensors_of_files;
  for (const auto& [name, tensor] : adapter.tensors) tensors_of_files[models::from_module_name(family, name)] = tensor;
  adapter.tensors = std::move(tensors_of_files);
  if (adapter.is_directory)
    check_adapter_names(adapter.stored_names(), trained_of(adapter.lora, family_name, keys, names), from,
                        family.other_parts);
  Merge merge(std::move(adapter), family_name, keys, names, options.type);
  MergedTensors tensors(model, family, keys, merge);
  const auto table =
      std::find_if(tied.begin(), tied.end(), [&](const auto& one) { return tensors.contains(one.hugging_face); });
  for (const auto& name : names)
    if (table != tied.end() &&
        std::any_of(tied.begin(), tied.end(), [&](const auto& one) { return one.hugging_face == name.hugging_face; }))
      tensors.add_untied(name.hugging_face, table->hugging_face);
  merge.refuse_unused(model);
  json merged = keys;
  if (tensors.has_encoded()) merged.erase("quantization_config");
  ExportOptions complete = options;
  complete.model_directory = model;
  save_hugging_face(directory, merged, tensors.all(), complete);
}

}  // namespace gantry
