#include "gantry/policies/model_map.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::vector<NamedTensor> group_by_tensor(const torch::OrderedDict<std::string, torch::Tensor>& named) {
  std::vector<NamedTensor> tensors;
  std::map<void*, std::size_t> places;
  for (const auto& item : named) {
    if (!item.value().defined()) continue;
    const auto [place, fresh] = places.emplace(item.value().unsafeGetTensorImpl(), tensors.size());
    if (fresh) tensors.push_back({item.value(), {}});
    tensors[place->second].names.push_back(item.key());
  }
  return tensors;
}

}  // namespace

ModelMap::ModelMap(torch::nn::Module& model)
    : parameters(group_by_tensor(model.named_parameters())), buffers(group_by_tensor(model.named_buffers())) {
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    modules.emplace_back(item.key(), item.value());
}

std::vector<std::string> ModelMap::module_names() const {
  std::vector<std::string> names;
  for (const auto& [name, module] : modules) names.push_back(name);
  return names;
}

bool is_within(const std::string& path, const std::string& ancestor) {
  return path.starts_with(ancestor) && (path.size() == ancestor.size() || path[ancestor.size()] == '.');
}

}  // namespace gantry
