#include "gantry/checkpoint/hugging_face.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>

#include <torch/torch.h>

#include "gantry/checkpoint/checkpoint_files.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/staged_files.h"
#include "gantry/checkpoint/mxfp4.h"
#include "gantry/checkpoint/stored_parts.h"
#include "gantry/core/error.h"
#include "gantry/core/paths.h"
#include "gantry/models/lora.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

using nlohmann::json;

// The directory's tensors by the family's names, wherever they lie.
class TensorSource {
 public:
  TensorSource(const std::string& directory, const models::ModelFamily& family, const json& keys) {
    const ModelFiles found = find_model_files(directory);
    for (const auto& path : found.paths) {
      files_.push_back(std::make_unique<SafetensorsFile>(path));
      check_index(found, path, directory);
      for (const auto& name : files_.back()->names()) add(family, keys, name, path);
    }
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, place] : places_) names.push_back(name);
    return names;
  }
  bool contains(const std::string& name) const { return places_.contains(name); }
  // In blocks of four-bit numbers, where it is not there itself.
  bool is_packed(const std::string& name) const {
    return !contains(name) && contains(name + kMxfp4Blocks) && contains(name + kMxfp4Scales);
  }
  std::pair<const SafetensorsFile*, std::string> at(const std::string& name) const { return places_.at(name); }

 private:
  // The file that was opened last has what the index says of it.
  void check_index(const ModelFiles& found, const std::string& path, const std::string& directory) const {
    for (const auto& [name, file] : found.file_of_name)
      if (directory + "/" + file == path && !files_.back()->contains(name))
        throw InputError(
            {path, "the file has no tensor '" + name + "', which the index lists", "", "download both again"});
  }

  void add(const models::ModelFamily& family, const json& keys, const std::string& name, const std::string& path) {
    const std::string known = family.normalise_name ? family.normalise_name(keys, name) : name;
    if (known.empty()) return;
    if (!places_.try_emplace(known, files_.back().get(), name).second)
      throw InputError({path, "the tensor '" + name + "' is stored twice", "each tensor once", ""});
  }

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::pair<const SafetensorsFile*, std::string>> places_;
};

// Those that files must have of a tensor.
std::vector<std::string> stored_names(const models::TensorName& name) {
  if (name.parts.empty()) return {name.hugging_face};
  std::vector<std::string> names;
  for (const auto& part : name.parts) names.push_back(part.hugging_face);
  return names;
}

void check_shape(const SafetensorsFile& file, const std::string& stored, const std::string& name,
                 const std::vector<std::int64_t>& expected) {
  if (file.shape(stored) == expected) return;
  throw InputError({name, fmt::format("the tensor has the shape [{}]", fmt::join(file.shape(stored), ", ")),
                    fmt::format("[{}]", fmt::join(expected, ", ")), "check that config.json belongs to these weights"});
}

// Whole numbers would be taken for weights that they only encode.
void check_real(const SafetensorsFile& file, const std::string& stored, const std::string& name,
                const HeldTensor& held) {
  if (c10::isFloatingType(file.dtype(stored)) || !c10::isFloatingType(held.tensor.scalar_type())) return;
  throw InputError({name, std::string("the tensor is ") + dtype_name(file.dtype(stored)), "real numbers",
                    "use weights that are not quantised"});
}

// Refuses missing and unexpected names.
void check_names(const TensorSource& source, const std::vector<models::TensorName>& names,
                 const models::ModelFamily& family, const json& keys, const std::string& directory) {
  std::set<std::string> expected;
  std::vector<std::string> missing, unexpected;
  for (const auto& name : names)
    for (const auto& stored : stored_names(name)) {
      if (source.is_packed(stored)) {
        expected.insert({stored + kMxfp4Blocks, stored + kMxfp4Scales});
        continue;
      }
      expected.insert(stored);
      if (!source.contains(stored) && !name.new_allowed) missing.push_back(stored);
    }
  for (const auto& name : source.names())
    if (!expected.contains(name) && !(family.is_ignored_tensor && family.is_ignored_tensor(keys, name)))
      unexpected.push_back(name);
  if (missing.empty() && unexpected.empty()) return;
  throw InputError({directory,
                    fmt::format("{} tensors are missing ({}) and {} unexpected ({})", missing.size(),
                                fmt::join(missing, ", "), unexpected.size(), fmt::join(unexpected, ", ")),
                    "the tensors that config.json describes", "check that config.json belongs to these weights"});
}

// Returns the bytes that were read.
std::uint64_t load_one(const TensorSource& source, const models::TensorName& name, const HeldTensor& held,
                       const Coordinates& coordinates) {
  const auto [file, stored] = source.at(name.hugging_face);
  std::vector<std::int64_t> expected = held.placement.global_shape;
  if (name.transposed) std::reverse(expected.begin(), expected.end());
  check_shape(*file, stored, name.hugging_face, expected);
  check_real(*file, stored, name.hugging_face, held);
  const torch::Tensor part = read_held(*file, stored, name.transposed, held.placement, coordinates);
  const torch::NoGradGuard no_grad;
  torch::Tensor target = held.tensor;
  target.copy_(part);
  return part.nbytes();
}

// The same of a tensor that files store in parts. Those that this rank has nothing of are not read.
std::uint64_t load_parts(const TensorSource& source, const models::TensorName& name, const HeldTensor& held,
                         const Coordinates& coordinates) {
  const Slice mine = held_slice(held.placement, coordinates);
  std::uint64_t bytes = 0;
  for (const auto& part : name.parts) {
    const Slice slice = slice_of_part(held.placement.global_shape, part);
    const auto [file, stored] = source.at(part.hugging_face);
    check_shape(*file, stored, part.hugging_face, shape_of_part(slice));
    check_real(*file, stored, part.hugging_face, held);
    if (!have_common(mine, slice)) continue;
    const torch::Tensor read = file->read(stored).view(slice.shape);
    copy_common(held.tensor, mine, read, slice);
    bytes += read.nbytes();
  }
  return bytes;
}

// The same of a stack of experts' weights [experts, in, out] that files have in blocks of four-bit numbers, turned.
// One expert at a time is in memory, and those that this rank has nothing of are not read.
std::uint64_t load_packed(const TensorSource& source, const models::TensorName& name, const HeldTensor& held,
                          const Coordinates& coordinates) {
  const Shape& whole = held.placement.global_shape;
  const auto [blocks, blocks_name] = source.at(name.hugging_face + kMxfp4Blocks);
  const auto [scales, scales_name] = source.at(name.hugging_face + kMxfp4Scales);
  if (whole.size() != 3 || whole[1] % kMxfp4Block != 0)
    throw InputError({blocks_name, fmt::format("the blocks belong to a weight [{}]", fmt::join(whole, ", ")),
                      fmt::format("[experts, in, out] with a multiple of {} inputs", kMxfp4Block),
                      "check that config.json belongs to these weights"});
  const std::int64_t in_row = whole[1] / kMxfp4Block;
  check_shape(*blocks, blocks_name, blocks_name, {whole[0], whole[2], in_row, kMxfp4Block / 2});
  check_shape(*scales, scales_name, scales_name, {whole[0], whole[2], in_row});
  for (const auto& [file, stored] : {std::pair(blocks, blocks_name), std::pair(scales, scales_name)})
    if (file->dtype(stored) != torch::kUInt8)
      throw InputError({stored, std::string("the tensor is ") + dtype_name(file->dtype(stored)), "uint8",
                        "download the file again, because other kinds of blocks are not supported"});
  const Slice mine = held_slice(held.placement, coordinates);
  std::uint64_t bytes = 0;
  for (std::int64_t expert = 0; expert < whole[0]; ++expert) {
    const std::vector<Range> one = {{expert, expert + 1}};
    const Slice slice = apply_cuts(whole, {{0, 0, one}});
    if (!have_common(mine, slice)) continue;
    const torch::Tensor values =
        mxfp4_values(blocks->read_slice(blocks_name, 0, one), scales->read_slice(scales_name, 0, one));
    copy_common(held.tensor, mine, values.transpose(1, 2).contiguous(), slice);
    bytes += static_cast<std::uint64_t>(values.numel()) / 2;
  }
  return bytes;
}

}  // namespace

torch::Tensor read_held(const SafetensorsFile& file, const std::string& stored, bool transposed,
                        const Placement& placement, const Coordinates& coordinates) {
  const auto turned = [&](const torch::Tensor& tensor) { return transposed ? tensor.t() : tensor; };
  if (placement.cuts.empty()) return turned(file.read(stored));
  const auto cuts = held_shards(placement, coordinates);
  if (cuts.size() > 1 || cuts.front().row > 0)
    return cut_out(turned(file.read(stored)), apply_cuts(placement.global_shape, cuts));
  const int dim = cuts.front().dim, dims = static_cast<int>(placement.global_shape.size());
  return turned(file.read_slice(stored, transposed ? dims - 1 - dim : dim, cuts.front().ranges));
}

json read_model_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  if (const std::string unfinished = unfinished_placing(directory); !unfinished.empty() && !path_exists(path))
    throw InputError(
        {directory, "the directory has no config.json" + unfinished, "a completely saved model", "save it again"});
  return read_json_object(path);
}

std::vector<std::string> load_hugging_face(const std::string& directory, const models::ModelFamily& family,
                                           const json& keys, const std::vector<HeldTensor>& held,
                                           const Coordinates& coordinates,
                                           const std::function<void(std::uint64_t)>& loaded) {
  const TensorSource source(directory, family, keys);
  const auto names = family.tensor_names(keys);
  check_names(source, names, family, keys, directory);
  std::map<std::string, const models::TensorName*> by_name;
  std::vector<std::string> fresh;
  for (const auto& name : names) {
    by_name[name.name] = &name;
    if (name.parts.empty() && !source.contains(name.hugging_face) && !source.is_packed(name.hugging_face))
      fresh.push_back(name.name);
  }
  for (const auto& tensor : held) {
    const auto found = by_name.find(tensor.placement.name);
    if (found == by_name.end())
      throw InternalError({tensor.placement.name, "the tensor has no name in Hugging Face's files", "", ""});
    const models::TensorName& name = *found->second;
    if (source.is_packed(name.hugging_face)) {
      const std::uint64_t bytes = load_packed(source, name, tensor, coordinates);
      if (loaded) loaded(bytes);
      continue;
    }
    if (name.parts.empty() && !source.contains(name.hugging_face)) continue;
    const std::uint64_t bytes = name.parts.empty() ? load_one(source, name, tensor, coordinates)
                                                   : load_parts(source, name, tensor, coordinates);
    if (loaded) loaded(bytes);
  }
  return fresh;
}

TensorDict to_hugging_face(const std::vector<models::TensorName>& names, const TensorDict& tensors) {
  TensorDict renamed;
  for (const auto& name : names) {
    if (!tensors.contains(name.name)) continue;
    const torch::Tensor& tensor = tensors.at(name.name);
    for (const auto& part : name.parts) {
      const Slice slice = slice_of_part(tensor.sizes().vec(), part);
      renamed.set(part.hugging_face, cut_out(tensor, slice).view(shape_of_part(slice)));
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
