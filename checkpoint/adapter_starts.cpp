#include "gantry/checkpoint/adapter_starts.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/base_weights.h"
#include "gantry/checkpoint/quantized_load.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/slices.h"
#include "gantry/checkpoint/stored_names.h"
#include "gantry/core/config/adapter_names.h"
#include "gantry/core/error.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/described/lora_names.h"
#include "gantry/models/peft_names.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/principal_factors.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

bool is_factor(const std::string& name, const char* factor) { return name.ends_with(std::string(".") + factor); }

// The weights of the base by the registered names of their layers.
class LayersOfBase {
 public:
  LayersOfBase(const std::string& directory, const models::ModelFamily& family, const nlohmann::json& keys)
      : directory_(directory), model_(directory, family, keys), names_(family.tensor_names(keys)) {
    for (const auto& form : forms_of(model_, family, keys)) forms_[form.name] = form;
  }

  // Returns the full weight in this type.
  torch::Tensor weight(const std::string& layer, const Shape& shape, torch::ScalarType type) const {
    return full_weight(model_, form(layer), shape, type);
  }
  CodedWeight coded(const std::string& layer, const Shape& shape, WeightCode code) const {
    return coded_weight(model_, form(layer), shape, code);
  }
  void require_uncoded(const std::string& layer) const {
    for (const std::string& stored : names_in_files(form(layer)))
      if (model_.encoded(stored))
        throw InputError({directory_,
                          "its weights are quantized, so lora.init_lora_weights: loftq cannot approximate "
                          "the errors of their codes",
                          "the base with unquantized weights", "set lora.init_lora_weights to default"});
  }
  std::string path(const std::string& layer) const { return models::hugging_face_path(layer, names_).path; }

 private:
  const models::TensorName& form(const std::string& layer) const {
    const auto found = forms_.find(layer + ".weight");
    if (found == forms_.end() || !is_stored(model_, found->second))
      throw InputError({directory_, "the files have no " + layer + ".weight, but an adapter starts from its values",
                        "a base model with this weight",
                        "remove the layer from lora.target_modules, or lora.trainable_token_indices"});
    return found->second;
  }

  const std::string directory_;
  const StoredModel model_;
  const std::vector<models::TensorName> names_;
  std::map<std::string, models::TensorName> forms_;
};

class AdapterStarts {
 public:
  AdapterStarts(const LayersOfBase& base, const LoraConfig& lora, const std::vector<HeldTensor>& held,
                const Coordinates& coordinates, std::optional<WeightCode> code)
      : base_(base), lora_(lora), coordinates_(coordinates), code_(code) {
    for (const auto& tensor : held) held_[tensor.placement.name] = &tensor;
  }

  // Returns the number of bytes that were read.
  std::uint64_t load(const HeldTensor& tensor) {
    const std::string& name = tensor.placement.name;
    const std::string layer = adapted_layer(name);
    if (is_factor(name, kAdapterMagnitude)) return set_magnitudes(tensor, layer);
    if (is_factor(name, kTrainedTokens)) return set_tokens(tensor, layer);
    if (!is_factor(name, kAdapterA)) return 0;
    if (models::is_pissa(lora_)) return set_principal(layer);
    return lora_.init_lora_weights == kLoftq ? set_errors(layer) : 0;
  }

 private:
  const HeldTensor& held(const std::string& layer, const char* parameter) const {
    return *held_.at(layer + "." + parameter);
  }
  bool is_coded(const HeldTensor& weight) const { return code_ && has_records(weight.tensor); }
  void set(const HeldTensor& tensor, const torch::Tensor& full) const {
    torch::Tensor target = tensor.tensor;
    target.copy_(take_slice(full, held_slice(tensor.placement, coordinates_)).view(target.sizes()));
  }

  std::uint64_t set_magnitudes(const HeldTensor& magnitudes, const std::string& layer) const {
    const HeldTensor& weight = held(layer, "weight");
    const Shape& shape = weight.placement.global_shape;
    const torch::Tensor full = is_coded(weight) ? values_of(*code_, base_.coded(layer, shape, *code_))
                                                : base_.weight(layer, shape, weight.tensor.scalar_type());
    const bool wide = full.scalar_type() == torch::kFloat64;
    set(magnitudes, torch::linalg_vector_norm(full.to(wide ? torch::kFloat64 : torch::kFloat32), 2, {1}));
    return full.nbytes();
  }

  std::uint64_t set_tokens(const HeldTensor& rows, const std::string& layer) const {
    const torch::Tensor full =
        base_.weight(layer, held(layer, "weight").placement.global_shape, rows.tensor.scalar_type());
    const auto& tokens = lora_.trainable_token_indices;
    set(rows, full.index_select(0, torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end()))));
    return full.nbytes();
  }

  double scale_of(const std::string& layer) const { return models::scale_of(lora_, base_.path(layer)); }

  PrincipalFactors set_factors(const std::string& layer, const torch::Tensor& matrix) const {
    const HeldTensor& a = held(layer, kAdapterA);
    const auto factors = adapter_factors(matrix, a.placement.global_shape[0], scale_of(layer),
                                         models::power_steps(lora_), a.tensor.scalar_type());
    set(a, factors.a);
    set(held(layer, kAdapterB), factors.b);
    return factors;
  }

  std::uint64_t set_principal(const std::string& layer) const {
    const HeldTensor& weight = held(layer, "weight");
    if (is_coded(weight))
      throw ConfigError({"lora.init_lora_weights",
                         "pissa changes the weights of the base, but " + layer + " is quantized",
                         "loftq, or a base without model.quantize", "remove one of the two"});
    const torch::Tensor full = base_.weight(layer, weight.placement.global_shape, weight.tensor.scalar_type());
    const auto [a, b] = set_factors(layer, full);
    set(weight, full.to(torch::kFloat64) - scale_of(layer) * torch::mm(b, a));
    return full.nbytes();
  }

  // LoftQ's first step (arXiv 2310.08659): the base keeps its codes.
  std::uint64_t set_errors(const std::string& layer) const {
    const HeldTensor& weight = held(layer, "weight");
    if (!code_)
      throw ConfigError({"lora.init_lora_weights",
                         "loftq approximates the errors of a quantized base, but " + layer + " is not quantized",
                         "model.quantize", "set model.quantize, or remove the key"});
    if (!is_coded(weight)) return 0;
    base_.require_uncoded(layer);
    const Shape& shape = weight.placement.global_shape;
    const torch::Tensor full = base_.weight(layer, shape, torch::kFloat64);
    set_factors(layer, full - values_of(*code_, base_.coded(layer, shape, *code_)));
    return full.nbytes();
  }

  const LayersOfBase& base_;
  const LoraConfig& lora_;
  const Coordinates& coordinates_;
  const std::optional<WeightCode> code_;
  std::map<std::string, const HeldTensor*> held_;
};

}  // namespace

void load_adapter_starts(const std::string& directory, const models::ModelFamily& family, const nlohmann::json& keys,
                         const LoraConfig& lora, const std::vector<HeldTensor>& held, const Coordinates& coordinates,
                         const std::function<void(std::uint64_t)>& loaded, std::optional<WeightCode> code) {
  const LayersOfBase base(directory, family, keys);
  AdapterStarts starts(base, lora, held, coordinates, code);
  const torch::NoGradGuard no_grad;
  for (const auto& tensor : held)
    if (const std::uint64_t bytes = starts.load(tensor); loaded && bytes > 0) loaded(bytes);
}

struct OriginalBase::Parts {
  LayersOfBase base;
  const Manifest& manifest;
  LoraConfig lora;
  std::string layer = {};  // the last layer that was read, whose factors these are
  PrincipalFactors factors = {};
};

OriginalBase::OriginalBase(const std::string& directory, const Manifest& manifest, LoraConfig lora)
    : parts_(new Parts{LayersOfBase(directory, models::families().at(manifest.policy), manifest.model_config), manifest,
                       std::move(lora)}) {}

OriginalBase::~OriginalBase() = default;

torch::Tensor OriginalBase::adapted(const std::string& name, const torch::Tensor& tensor) {
  const bool is_a = is_factor(name, kAdapterA);
  if (!is_a && !is_factor(name, kAdapterB)) return tensor;
  Parts& parts = *parts_;
  if (const std::string layer = adapted_layer(name); layer != parts.layer) {
    const auto& a = parts.manifest.tensors.at("model/" + layer + "." + kAdapterA);
    const auto& b = parts.manifest.tensors.at("model/" + layer + "." + kAdapterB);
    const auto type = scalar_type_of(*a.type, a.name);
    parts.factors =
        adapter_factors(parts.base.weight(layer, {b.shape[0], a.shape[1]}, type), a.shape[0],
                        models::scale_of(parts.lora, parts.base.path(layer)), models::power_steps(parts.lora), type);
    parts.layer = layer;
  }
  const torch::Tensor initial = (is_a ? parts.factors.a : -parts.factors.b).to(tensor.scalar_type());
  return torch::cat({tensor, initial}, is_a ? 0 : 1);
}

}  // namespace gantry
