#include "gantry/cli/engine/forward_batch.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::cli {
namespace {

bool is_real(const std::string& name) { return name == "pixel_values" || name == "input_features"; }

std::vector<std::string> known_entries(const models::ModelFamily& family, const std::string& task) {
  std::vector<std::string> known = family.inputs;
  if (task == "spans") known.insert(known.end(), {"start_positions", "end_positions"});
  known.push_back("labels");
  return known;
}

// Labels of classification heads may be real numbers: of a regression, or probabilities of several labels.
bool keeps_type(const std::string& name, const std::string& task) {
  return is_real(name) || (name == "labels" && (task == "classes" || task == "images"));
}

// Models with parts that are not loaded cannot read the entries of those parts.
void refuse_images(const std::string& path, const std::string& name, const models::ModelFamily& family) {
  if (family.other_parts.empty() || !name.starts_with("pixel_values")) return;
  if (std::ranges::count(family.inputs, name) > 0) return;
  throw InputError(
      {path,
       fmt::format("the file has an entry '{}', but Gantry loads only the text decoder of {}", name, family.model_type),
       "a batch of text", "remove the entry"});
}

TensorDict read_entries(const std::string& path, const models::ModelFamily& family, const std::string& task) {
  const auto known = known_entries(family, task);
  TensorDict batch;
  for (auto& [name, tensor] : read_safetensors(path)) {
    refuse_images(path, name, family);
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw InputError({path, "the file has an entry '" + name + "' that the model does not read",
                        fmt::format("entries of {}", fmt::join(known, ", ")), ""});
    if (is_real(name) && !tensor.is_floating_point())
      throw InputError({path, name + " is " + describe(tensor), "real numbers", "store it as float32"});
    const bool keeps = keeps_type(name, task) && tensor.is_floating_point();
    batch.set(name, keeps ? tensor : tensor.to(torch::kInt64));
  }
  return batch;
}

// Adds labels of tokens and positions that are missing, with -100, which the loss ignores. A classification head has no
// loss without labels.
void fill_labels(TensorDict& batch, const torch::Tensor& first, const std::string& task) {
  const torch::Tensor of_samples = torch::full({first.size(0)}, -100, torch::kInt64);
  for (const char* name : {"start_positions", "end_positions"})
    if (task == "spans" && !batch.contains(name)) batch.set(name, of_samples);
  if ((task == "tokens" || task == "pairs") && !batch.contains("labels"))
    batch.set("labels", torch::full_like(task == "pairs" ? batch.at("decoder_input_ids") : first, -100));
}

std::vector<std::int64_t> expected_shape(const std::string& name, const torch::Tensor& tensor, const TensorDict& batch,
                                         const torch::Tensor& first, const std::string& task) {
  const bool is_label = name == "labels";
  if (is_real(name) || name == "image_grid_thw" || name == "image_sizes") return tensor.sizes().vec();
  // The criterion compares labels of a sample with its logits.
  if (is_label && (task == "images" || task == "classes") && tensor.dim() > 0 && tensor.size(0) == first.size(0))
    return tensor.sizes().vec();
  if (task == "pairs" && (is_label || name.starts_with("decoder_"))) {
    const torch::Tensor& labels = batch.at("labels");
    return {first.size(0), labels.dim() == 2 ? labels.size(1) : 1};
  }
  const bool of_samples =
      name == "start_positions" || name == "end_positions" || (is_label && (task == "images" || tensor.dim() == 1));
  if (name == "position_ids" && tensor.dim() == 3) return {3, first.size(0), first.size(1)};
  return of_samples ? std::vector<std::int64_t>{first.size(0)} : first.sizes().vec();
}

}  // namespace

TensorDict read_batch(const std::string& path, const models::ModelFamily& family, const std::string& task) {
  TensorDict batch = read_entries(path, family, task);
  const std::string& main = family.inputs.front();
  const torch::Tensor first = batch.at(main);
  const bool of_choices = (task == "classes" || task == "contrast") && first.dim() == 3;
  if (is_real(main) ? first.dim() < 3 : first.dim() != 2 && !of_choices)
    throw InputError({path, main + " is " + describe(first),
                      is_real(main) ? "[samples, ...], the shape that the model reads" : "[samples, tokens]", ""});
  fill_labels(batch, first, task);
  for (const auto& [name, tensor] : batch) {
    const auto expected = expected_shape(name, tensor, batch, first, task);
    if (tensor.sizes() != expected)
      throw InputError({path, fmt::format("{} is {}, but {} is {}", name, describe(tensor), main, describe(first)),
                        fmt::format("the shape [{}]", fmt::join(expected, ", ")), ""});
  }
  return batch;
}

}  // namespace gantry::cli
