#include "gantry/checkpoint/hugging_face.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/base_weights.h"
#include "gantry/checkpoint/checkpoint_files.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/staged_files.h"
#include "gantry/checkpoint/quantized_load.h"
#include "gantry/checkpoint/stored_model.h"
#include "gantry/checkpoint/stored_parts.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/peft_names.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

using nlohmann::json;

// Integers that encode weights would be loaded as the weights.
void check_real(const TensorPlace& place, const std::string& name, const HeldTensor& held) {
  if (c10::isFloatingType(held.tensor.scalar_type())) check_stored_real(place, name);
}

// Throws for missing and unexpected names. Returns the names in the files that are ignored.
std::vector<std::string> check_names(const StoredModel& model, const std::vector<models::TensorName>& forms,
                                     const models::ModelFamily& family, const json& keys,
                                     const std::string& directory) {
  std::vector<std::string> missing, unexpected, passed_over;
  for (const auto& form : forms)
    for (const auto& name : names_in_files(form))
      if (!model.contains(name) && !form.new_allowed) missing.push_back(name);
  for (const auto& name : model.names()) {
    if (model.known_names().is_known(name)) continue;
    if (models::is_of_other_part(family.other_parts, name)) continue;
    const bool ignored = family.is_ignored_tensor && family.is_ignored_tensor(keys, name);
    (ignored ? passed_over : unexpected).push_back(model.stored_name(name));
  }
  for (const auto& place : model.buffers()) passed_over.push_back(place.name);
  if (missing.empty() && unexpected.empty()) return passed_over;
  throw InputError({directory,
                    fmt::format("{} tensors are missing ({}) and {} unexpected ({})", missing.size(),
                                fmt::join(missing, ", "), unexpected.size(), fmt::join(unexpected, ", ")),
                    "the tensors that config.json describes", "check that config.json belongs to these weights"});
}

// Returns the number of bytes that were read.
std::uint64_t load_one(const TensorPlace& place, const models::TensorName& name, const HeldTensor& held,
                       const Coordinates& coordinates) {
  std::vector<std::int64_t> expected = held.placement.global_shape;
  if (name.transposed) std::reverse(expected.begin(), expected.end());
  check_stored_shape(place, name.hugging_face, expected);
  check_real(place, name.hugging_face, held);
  const torch::Tensor part = read_held(*place.file, place.name, name.transposed, held.placement, coordinates);
  const torch::NoGradGuard no_grad;
  torch::Tensor target = held.tensor;
  target.copy_(part);
  return part.nbytes();
}

// The same for a tensor that files store in parts. Parts that this rank does not hold are not read.
std::uint64_t load_parts(const StoredModel& model, const models::TensorName& name, const HeldTensor& held,
                         const Coordinates& coordinates) {
  const Slice mine = held_slice(held.placement, coordinates);
  std::uint64_t bytes = 0;
  for (const auto& part : name.parts) {
    const Slice slice = slice_of_part(held.placement.global_shape, part);
    if (const EncodedTensor* encoded = model.encoded(part.hugging_face)) {
      encoded->check(shape_of_part(slice));
    } else {
      check_stored_shape(model.place(part.hugging_face), part.hugging_face, shape_of_part(slice));
      check_real(model.place(part.hugging_face), part.hugging_face, held);
    }
    if (!have_common(mine, slice)) continue;
    const torch::Tensor read = model.read(part.hugging_face).view(slice.shape);
    copy_common(held.tensor, mine, read, slice);
    bytes += read.nbytes();
  }
  return bytes;
}

// The same for an encoded tensor. Only some of its rows are in memory at a time. Rows that this rank does not
// hold are not read.
std::uint64_t load_encoded(const EncodedTensor& encoded, const models::TensorName& name, const HeldTensor& held,
                           const Coordinates& coordinates) {
  const Shape& full = held.placement.global_shape;
  Shape expected = full;
  if (name.transposed) std::reverse(expected.begin(), expected.end());
  encoded.check(expected);
  const Slice mine = held_slice(held.placement, coordinates);
  const int dim = name.transposed ? static_cast<int>(full.size()) - 1 : 0;
  std::uint64_t bytes = 0;
  for (std::int64_t row = 0; row < expected.front(); row += encoded.rows_at_once()) {
    const Range rows{row, std::min(row + encoded.rows_at_once(), expected.front())};
    const Slice slice = apply_shards(full, {{dim, 0, {rows}}});
    if (!have_common(mine, slice)) continue;
    const torch::Tensor values = encoded.decode(rows);
    copy_common(held.tensor, mine, name.transposed ? values.t().contiguous() : values, slice);
    bytes += values.nbytes();
  }
  return bytes;
}

std::uint64_t load_tensor(const StoredModel& model, const models::TensorName& form, const HeldTensor& held,
                          const Coordinates& coordinates) {
  if (!form.parts.empty()) return load_parts(model, form, held, coordinates);
  if (const EncodedTensor* encoded = model.encoded(form.hugging_face))
    return load_encoded(*encoded, form, held, coordinates);
  return load_one(model.place(form.hugging_face), form, held, coordinates);
}

}  // namespace

torch::Tensor full_weight(const StoredModel& model, const models::TensorName& form, const Shape& shape,
                          torch::ScalarType type) {
  HeldTensor full{.placement = {}, .tensor = torch::empty(shape, type)};
  full.placement.name = form.name;
  full.placement.global_shape = shape;
  load_tensor(model, form, full, {});
  return full.tensor;
}

std::vector<models::TensorName> forms_of(const StoredModel& model, const models::ModelFamily& family,
                                         const json& keys) {
  std::vector<models::TensorName> forms;
  for (const auto& name : family.tensor_names(keys))
    forms.push_back(form_in_files(name, [&](const std::string& one) { return model.contains(one); }));
  return forms;
}

bool is_stored(const StoredModel& model, const models::TensorName& form) {
  return !form.parts.empty() || model.contains(form.hugging_face);
}

torch::Tensor read_held(const SafetensorsFile& file, const std::string& stored, bool transposed,
                        const Placement& placement, const Coordinates& coordinates) {
  const auto turned = [&](const torch::Tensor& tensor) { return transposed ? tensor.t() : tensor; };
  if (placement.shards.empty()) return turned(file.read(stored));
  const auto shards = held_shards(placement, coordinates);
  if (shards.size() > 1 || shards.front().row > 0)
    return take_slice(turned(file.read(stored)), apply_shards(placement.global_shape, shards));
  const int dim = shards.front().dim, dims = static_cast<int>(placement.global_shape.size());
  return turned(file.read_slice(stored, transposed ? dims - 1 - dim : dim, shards.front().ranges));
}

json read_model_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  if (const std::string unfinished = unfinished_placing(directory); !unfinished.empty() && !path_exists(path))
    throw InputError(
        {directory, "the directory has no config.json" + unfinished, "a completely saved model", "save it again"});
  return read_json_object(path);
}

LoadedModel load_hugging_face(const std::string& directory, const models::ModelFamily& family, const json& keys,
                              const std::vector<HeldTensor>& held, const Coordinates& coordinates,
                              const std::function<void(std::uint64_t)>& loaded, std::optional<WeightCode> code) {
  const StoredModel model(directory, family, keys);
  const std::vector<models::TensorName> forms = forms_of(model, family, keys);
  LoadedModel result{.fresh = {}, .passed_over = check_names(model, forms, family, keys, directory)};
  std::map<std::string, const models::TensorName*> by_name;
  for (const auto& form : forms) {
    by_name[form.name] = &form;
    if (!is_stored(model, form)) result.fresh.push_back(form.name);
  }
  for (const auto& tensor : held) {
    const auto found = by_name.find(tensor.placement.name);
    if (found == by_name.end())
      throw InternalError({tensor.placement.name, "the tensor has no name in Hugging Face's files", "", ""});
    const models::TensorName& form = *found->second;
    const bool is_quantised = code && has_records(tensor.tensor);
    if (!is_stored(model, form)) {
      if (is_quantised)
        throw InputError({directory,
                          "the files have no " + form.name + ", whose initial values model.quantize would lose",
                          "weights for every quantised layer", "add the layer to lora.modules_to_save"});
      continue;
    }
    const std::uint64_t bytes = is_quantised ? load_records(model, form, tensor, coordinates, *code)
                                             : load_tensor(model, form, tensor, coordinates);
    if (loaded) loaded(bytes);
  }
  return result;
}

TensorDict to_hugging_face(const std::vector<models::TensorName>& names, const TensorDict& tensors) {
  TensorDict renamed;
  for (const auto& name : names) {
    if (!tensors.contains(name.name)) continue;
    const torch::Tensor& tensor = tensors.at(name.name);
    for (const auto& part : name.parts) {
      const Slice slice = slice_of_part(tensor.sizes().vec(), part);
      renamed.set(part.hugging_face, take_slice(tensor, slice).view(shape_of_part(slice)));
    }
    if (!name.parts.empty()) continue;
    const torch::Tensor stored = models::as_stored_factor(name.name, tensor);
    const torch::Tensor turned = name.transposed ? stored.t().contiguous() : stored;
    renamed.set(name.hugging_face, turned);
    for (const auto& copy : name.copies) renamed.set(copy, turned);
  }
  return renamed;
}

}  // namespace gantry
