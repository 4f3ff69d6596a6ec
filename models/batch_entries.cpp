#include "gantry/models/batch_entries.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using EntryShape = std::vector<std::int64_t>;

bool has_classes(const std::string& task) { return task == "classes" || task == "images"; }

std::vector<std::string> known_entries(const ModelFamily& family, const std::string& task) {
  std::vector<std::string> known = family.inputs;
  if (task == "spans") known.insert(known.end(), {"start_positions", "end_positions"});
  known.emplace_back("labels");
  return known;
}

// Models with parts that are not loaded cannot read the entries of those parts.
void refuse_image_entry(const std::string& name, const ModelFamily& family, const std::string& where) {
  if (family.other_parts.empty() || !name.starts_with("pixel_values")) return;
  if (std::ranges::count(family.inputs, name) > 0) return;
  throw InputError(
      {where,
       fmt::format("the file has an entry '{}', but Gantry loads only the text decoder of {}", name, family.model_type),
       "a batch of text", "remove the entry"});
}

void check_entry_names(const TensorDict& batch, const ModelFamily& family, const std::string& task,
                       const std::string& where) {
  const auto known = known_entries(family, task);
  for (const auto& [name, tensor] : batch) {
    refuse_image_entry(name, family, where);
    if (std::ranges::count(known, name) == 0)
      throw InputError({where, "the file has an entry '" + name + "' that the model does not read",
                        fmt::format("entries of {}", fmt::join(known, ", ")),
                        "remove it; docs/data_labelled.md, \"Tensors\", lists masks and packed documents"});
  }
}

// Labels of classification heads may be real numbers: of a regression, or probabilities of several labels. The values
// of a floating-point mask are checked by the model.
void check_entry_type(const std::string& name, const torch::Tensor& tensor, const std::string& task,
                      const std::string& where) {
  if (is_real_entry(name) && !tensor.is_floating_point())
    throw InputError({where, name + " is " + describe(tensor), "real numbers", "store it as float32"});
  if (is_real_entry(name) || name.ends_with("attention_mask") || (name == "labels" && has_classes(task))) return;
  if (!c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true))
    throw InputError({where, name + " is " + describe(tensor), "integers", "store it as int64"});
}

// The shape of the labels and of all entries for the tokens of a decoder. `tensor`: one of them.
EntryShape shape_of_decoder(const torch::Tensor& tensor, const TensorDict& batch, const torch::Tensor& first) {
  torch::Tensor tokens = batch.get(batch.contains("labels") ? "labels" : "decoder_input_ids");
  if (!tokens.defined()) tokens = tensor;
  return {first.size(0), tokens.dim() == 2 ? tokens.size(1) : 1};
}

// Positions in three rows are [3, samples, tokens] in a batch, and [samples, tokens, 3] in a file of samples.
EntryShape shape_of_positions(const torch::Tensor& positions, const torch::Tensor& first) {
  if (positions.dim() != 3 || first.dim() != 2) return first.sizes().vec();
  const EntryShape rows_first = {3, first.size(0), first.size(1)};
  return positions.sizes() == rows_first ? rows_first : EntryShape{first.size(0), first.size(1), 3};
}

EntryShape expected_shape(const std::string& name, const torch::Tensor& tensor, const TensorDict& batch,
                          const torch::Tensor& first, const std::string& task) {
  if (is_real_entry(name) || name == "image_grid_thw" || name == "image_sizes") return tensor.sizes().vec();
  if (name == "start_positions" || name == "end_positions") return {first.size(0)};
  if (task == "pairs" && (name == "labels" || name.starts_with("decoder_")))
    return shape_of_decoder(tensor, batch, first);
  if (name == "labels" && task != "tokens" && tensor.dim() > 0) {
    EntryShape of_samples = tensor.sizes().vec();
    of_samples.front() = first.size(0);
    return of_samples;
  }
  return name == "position_ids" ? shape_of_positions(tensor, first) : first.sizes().vec();
}

}  // namespace

bool is_real_entry(const std::string& name) { return name == "pixel_values" || name == "input_features"; }

void check_batch_entries(const TensorDict& batch, const ModelFamily& family, const std::string& task,
                         const std::string& where) {
  check_entry_names(batch, family, task, where);
  const std::string& main = family.inputs.front();
  const torch::Tensor& first = batch.at(main);
  const bool of_choices = (task == "classes" || task == "contrast") && first.dim() == 3;
  if (is_real_entry(main) ? first.dim() < 3 : first.dim() != 2 && !of_choices)
    throw InputError({where, main + " is " + describe(first),
                      is_real_entry(main) ? "[samples, ...], the shape that the model reads" : "[samples, tokens]",
                      ""});
  for (const auto& [name, tensor] : batch) {
    check_entry_type(name, tensor, task, where);
    const EntryShape expected = expected_shape(name, tensor, batch, first, task);
    if (tensor.sizes() != expected)
      throw InputError({where, fmt::format("{} is {}, but {} is {}", name, describe(tensor), main, describe(first)),
                        fmt::format("the shape [{}]", fmt::join(expected, ", ")), ""});
  }
}

}  // namespace gantry::models
