#include "gantry/checkpoint/stored_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/eight_bit.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/four_bit.h"
#include "gantry/checkpoint/fp8.h"
#include "gantry/checkpoint/mxfp4.h"
#include "gantry/core/error.h"
#include "gantry/models/described/shared_keys.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using nlohmann::json;

// The name without a suffix; "" if it has another suffix.
std::string without(const std::string& name, const std::string& ending) {
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : "";
}

}  // namespace

void check_stored_shape(const TensorPlace& place, const std::string& name, const Shape& expected) {
  if (place.shape() == expected) return;
  throw InputError({name, fmt::format("the tensor has the shape [{}]", fmt::join(place.shape(), ", ")),
                    fmt::format("[{}]", fmt::join(expected, ", ")), "check that config.json belongs to these weights"});
}

void check_stored_real(const TensorPlace& place, const std::string& name) {
  if (c10::isFloatingType(place.type())) return;
  throw InputError({name, std::string("the tensor is ") + dtype_name(place.type()), "real numbers",
                    "use weights that are not quantised"});
}

StoredModel::StoredModel(const std::string& directory, const models::ModelFamily& family, const json& keys)
    : known_(family, keys) {
  const ModelFiles found = find_model_files(directory);
  for (const auto& path : found.paths) {
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    check_index(found, path, [&](const std::string& name) { return files_.back()->contains(name); });
    for (const auto& name : files_.back()->names()) add({files_.back().get(), name}, path);
  }
  find_encoded(keys);
}

void StoredModel::add(const TensorPlace& place, const std::string& path) {
  const std::string known = known_.find(place.name);
  if (known.empty()) return buffers_.push_back(place);
  const auto [other, fresh] = places_.try_emplace(known, place);
  if (fresh) return;
  const std::string& first = other->second.name;
  throw InputError({path,
                    first == place.name ? fmt::format("the tensor '{}' is stored twice", first)
                                        : fmt::format("the tensors '{}' and '{}' are the same one", first, place.name),
                    "each tensor once", "remove one of them"});
}

// Finds weights in blocks of four bits, and weights of eight bits that have scales.
void StoredModel::find_encoded(const json& keys) {
  const auto sizes = models::fp8_block(keys);
  const Fp8Block block = sizes ? Fp8Block{(*sizes)[0], (*sizes)[1]} : Fp8Block();
  std::vector<std::string> used;
  for (const auto& [name, place] : places_) {
    if (const std::string weight = without(name, kMxfp4Blocks);
        known_.is_known(weight) && !places_.contains(weight) && places_.contains(weight + kMxfp4Scales)) {
      encoded_[weight] = mxfp4_tensor(place, places_.at(weight + kMxfp4Scales));
      used.insert(used.end(), {name, weight + kMxfp4Scales});
    }
    for (const char* ending : {kFp8Scale, kFp8PlainScale})
      if (const std::string weight = without(name, ending); known_.is_known(weight) && places_.contains(weight)) {
        const TensorPlace& values = places_.at(weight);
        if (values.type() != torch::kFloat8_e4m3fn && values.type() != torch::kFloat8_e5m2)
          throw InputError(
              {values.name,
               fmt::format("the tensor is {}, but it has the scales {}", dtype_name(values.type()), place.name),
               "float8_e4m3fn", "use weights with another encoding"});
        encoded_[weight] = fp8_tensor(values, place, block);
        used.insert(used.end(), {name, weight});
      }
  }
  find_four_bit(used);
  find_eight_bit(used);
  for (const auto& name : used) places_.erase(name);
}

// Adds the names of the tensors that belong to encoded weights to `used`.
void StoredModel::find_four_bit(std::vector<std::string>& used) {
  for (const auto& [name, place] : places_)
    for (const char* ending : {kNf4State, kFp4State}) {
      const std::string weight = without(name, ending);
      if (!known_.is_known(weight)) continue;
      for (const char* part : {"", kFourBitScales, kFourBitTable})
        if (!places_.contains(weight + part))
          throw InputError({place.name, "the quantisation state belongs to " + weight + part + ", which is missing",
                            "all tensors of the quantised weight", "download the files again"});
      const WeightCode code = ending == kNf4State ? WeightCode::kNf4 : WeightCode::kFp4;
      FourBitPlaces parts{code, places_.at(weight), place, places_.at(weight + kFourBitScales),
                          places_.at(weight + kFourBitTable)};
      used.insert(used.end(), {name, weight, weight + kFourBitScales, weight + kFourBitTable});
      for (const auto& [part, target] :
           {std::pair(kFourBitNestedScales, &parts.nested_scales), std::pair(kFourBitNestedTable, &parts.nested_table)})
        if (const auto found = places_.find(weight + part); found != places_.end()) {
          *target = found->second;
          used.push_back(found->first);
        }
      encoded_[weight] = four_bit_tensor(std::move(parts));
    }
}

// The same for weights in int8.
void StoredModel::find_eight_bit(std::vector<std::string>& used) {
  for (const auto& [name, place] : places_) {
    const std::string module = without(name, kEightBitScales), weight = module + ".weight";
    if (module.empty() || !known_.is_known(weight) || !places_.contains(weight)) continue;
    const auto format = places_.find(module + kEightBitFormat);
    const bool has_format = format != places_.end();
    encoded_[weight] =
        eight_bit_tensor(places_.at(weight), place, has_format ? std::optional(format->second) : std::nullopt);
    used.insert(used.end(), {name, weight});
    if (has_format) used.push_back(format->first);
  }
}

std::vector<std::string> StoredModel::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  for (const auto& [name, tensor] : encoded_) names.push_back(name);
  return names;
}

const EncodedTensor* StoredModel::encoded(const std::string& name) const {
  const auto found = encoded_.find(name);
  return found == encoded_.end() ? nullptr : found->second.get();
}

std::string StoredModel::stored_name(const std::string& name) const {
  const EncodedTensor* tensor = encoded(name);
  return tensor ? tensor->stored_name() : place(name).name;
}

Shape StoredModel::shape(const std::string& name) const {
  const EncodedTensor* tensor = encoded(name);
  return tensor ? tensor->shape() : place(name).shape();
}

torch::ScalarType StoredModel::type(const std::string& name) const {
  const EncodedTensor* tensor = encoded(name);
  return tensor ? tensor->type() : place(name).type();
}

torch::Tensor StoredModel::read(const std::string& name) const {
  const EncodedTensor* tensor = encoded(name);
  if (!tensor) return place(name).file->read(place(name).name);
  tensor->check(tensor->shape());
  torch::Tensor full = torch::empty(tensor->shape(), torch::kFloat32);
  for (std::int64_t row = 0; row < full.size(0); row += tensor->rows_at_once()) {
    const Range rows{row, std::min(row + tensor->rows_at_once(), full.size(0))};
    full.narrow(0, row, rows.size()).copy_(tensor->decode(rows));
  }
  return full;
}

}  // namespace gantry
