#include "gantry/checkpoint/adapter_starts.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/base_weights.h"
#include "gantry/checkpoint/quantized_load.h"
#include "gantry/checkpoint/slices.h"
#include "gantry/core/adapter_split.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

bool starts_from_base(const std::string& name) {
  return name.ends_with(std::string(".") + kAdapterMagnitude) || name.ends_with(std::string(".") + kTrainedTokens);
}

// The full starting value of an adapter's parameter. `weight`: of its layer.
torch::Tensor start_of(const std::string& name, const torch::Tensor& weight, const std::vector<int>& tokens) {
  if (name.ends_with(kTrainedTokens))
    return weight.index_select(0, torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end())));
  const bool wide = weight.scalar_type() == torch::kFloat64;
  return torch::linalg_vector_norm(weight.to(wide ? torch::kFloat64 : torch::kFloat32), 2, {1});
}

}  // namespace

void load_adapter_starts(const std::string& directory, const models::ModelFamily& family, const nlohmann::json& keys,
                         const std::vector<int>& tokens, const std::vector<HeldTensor>& held,
                         const Coordinates& coordinates, const std::function<void(std::uint64_t)>& loaded,
                         std::optional<WeightCode> code) {
  const StoredModel model(directory, family, keys);
  std::map<std::string, models::TensorName> forms;
  for (const auto& form : forms_of(model, family, keys)) forms[form.name] = form;
  std::map<std::string, const HeldTensor*> by_name;
  for (const auto& tensor : held) by_name[tensor.placement.name] = &tensor;
  const torch::NoGradGuard no_grad;
  for (const auto& tensor : held) {
    if (!starts_from_base(tensor.placement.name)) continue;
    const std::string name = adapted_layer(tensor.placement.name) + ".weight";
    if (!forms.contains(name) || !is_stored(model, forms.at(name)))
      throw InputError({directory, "the files have no " + name + ", but an adapter starts from its values",
                        "a base model with this weight",
                        "remove the layer from lora.target_modules, or lora.trainable_token_indices"});
    const HeldTensor& weight = *by_name.at(name);
    const torch::Tensor full =
        code && has_records(weight.tensor)
            ? values_of(*code, coded_weight(model, forms.at(name), weight.placement.global_shape, *code))
            : full_weight(model, forms.at(name), weight, coordinates);
    const torch::Tensor start = start_of(tensor.placement.name, full, tokens);
    torch::Tensor target = tensor.tensor;
    target.copy_(take_slice(start, held_slice(tensor.placement, coordinates)).view(target.sizes()));
    if (loaded) loaded(full.nbytes());
  }
}

}  // namespace gantry
