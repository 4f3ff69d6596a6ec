#include "gantry/checkpoint/format/parallelized.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <regex>

#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/stored_file.h"
#include "gantry/checkpoint/format/tiling.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/io/strict_json.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr const char* kKey = "gantry.parallelized";
constexpr std::int64_t kMostRanks = 1 << 16;  // tensor * pipeline; limits the file names that are tried

// The contents of one file: its sizes, its save, and its tensors with one slice each.
struct RankFile {
  ParallelizedSizes sizes;
  std::string save;
  std::vector<ManifestTensor> tensors;
};

// The name of the file in any of the spellings, or "".
std::string find_part(const std::string& directory, int tensor, int pipeline) {
  for (const std::string& name : {parallelized_file_name(tensor, pipeline),
                                  fmt::format("pytorch_model_tp_{}_pp_{}.safetensors", tensor, pipeline),
                                  fmt::format("pytorch_model_tp={}_pp={}.safetensors", tensor, pipeline),
                                  fmt::format("model_tp={}_pp={}.safetensors", tensor, pipeline)})
    if (path_exists(directory + "/" + name)) return name;
  return "";
}

// The existing file with the lowest ranks, or "". Every file states the number of files.
std::string first_part(const std::string& directory) {
  static const std::regex kName("(pytorch_)?model_tp([_=])([0-9]{1,7})_pp\\2([0-9]{1,7})\\.safetensors");
  std::string first;
  std::pair<int, int> lowest;  // pipeline, tensor
  if (!is_folder(directory)) return first;
  for (const auto& entry : entries_of(directory)) {
    std::smatch ranks;
    const std::string name = entry.filename();
    if (!std::regex_match(name, ranks, kName)) continue;
    const std::pair place{std::stoi(ranks[4]), std::stoi(ranks[3])};
    if (!first.empty() && place >= lowest) continue;
    if (const std::string found = find_part(directory, place.second, place.first); !found.empty())
      first = found, lowest = place;
  }
  return first;
}

[[noreturn]] void refuse_files(const std::string& path, const std::string& what, const std::string& remedy = "") {
  throw InputError({path, what, "a file that save_parallelized wrote", remedy.empty() ? "save it again" : remedy});
}

json metadata_in(const StoredFile& file) {
  const auto& metadata = file.header().metadata;
  const auto found = metadata.find(kKey);
  if (found == metadata.end()) refuse_files(file.path(), fmt::format("there is no '{}' in its metadata", kKey));
  json parsed;
  if (const auto fault = parse_strict(found->second, parsed); !fault.empty())
    refuse_files(file.path(), std::string(kKey) + ": " + fault);
  return parsed;
}

int size_in(const json& all, const char* key, const std::string& path) {
  const auto size = all.is_object() && all.contains(key) ? count_in(all[key]) : std::nullopt;
  if (!size || *size < 1 || *size > kMostRanks) refuse_files(path, fmt::format("'{}' is not a number of ranks", key));
  return static_cast<int>(*size);
}

ParallelizedSizes sizes_in(const json& all, const std::string& path) {
  const ParallelizedSizes sizes{size_in(all, "tensor", path), size_in(all, "pipeline", path)};
  if (std::int64_t{sizes.tensor} * sizes.pipeline > kMostRanks)
    refuse_files(path, fmt::format("its metadata states {} x {} files", sizes.tensor, sizes.pipeline));
  return sizes;
}

// Checks that the stored tensor matches the metadata.
void check_stored(const StoredFile& file, const ManifestTensor& tensor) {
  const auto found = file.header().tensors.find(tensor.name);
  const auto shape = tensor.slice_of(tensor.slices.front()).shape;
  if (found == file.header().tensors.end() || found->second.type != tensor.type || found->second.shape != shape)
    refuse_files(file.path(), "the tensor '" + tensor.name + "' does not match the metadata");
}

RankFile read_part(const std::string& directory, const std::string& name) {
  const StoredFile file(directory + "/" + name);
  const json all = metadata_in(file);
  RankFile part{sizes_in(all, file.path()), "", {}};
  if (!all.contains("save") || !all["save"].is_string())
    refuse_files(file.path(), "the metadata does not identify the save");
  part.save = all["save"].get<std::string>();
  if (!all.contains("tensors") || !all["tensors"].is_array())
    refuse_files(file.path(), "the metadata has no list of tensors");
  try {
    for (const auto& value : all["tensors"]) {
      ManifestTensor tensor = tensor_from_json(value);
      if (tensor.slices.size() != 1) refuse_files(file.path(), "'" + tensor.name + "' does not have exactly one slice");
      tensor.slices.front().file = name;
      check_stored(file, tensor);
      part.tensors.push_back(std::move(tensor));
    }
  } catch (const CheckpointError& error) {  // from tensor_from_json(), names the tensor
    refuse_files(file.path(), error.what());
  }
  if (part.tensors.size() != file.header().tensors.size())
    refuse_files(file.path(), "the file has more tensors than its metadata lists");
  return part;
}

// The dims of the first slice's shards. The shards of the other slices have the same dims.
std::vector<int> dims_of(const ManifestTensor& tensor) {
  std::vector<int> dims;
  for (const AppliedShard& shard : tensor.slices.front().shards) dims.push_back(shard.row > 0 ? -1 : shard.dim);
  return dims;
}

void add(ParallelizedModel& model, const ManifestTensor& tensor, const std::string& path) {
  const auto [found, fresh] = model.tensors.try_emplace(tensor.name, tensor);
  if (fresh) return;
  ManifestTensor& known = found->second;
  if (known.shape != tensor.shape || known.type != tensor.type || dims_of(known) != dims_of(tensor))
    refuse_files(path, "'" + tensor.name + "' differs from the other files");
  // One copy of a full tensor is enough. Replicas of a slice (a parameter that stages share) do no harm.
  if (!tensor.slices.front().shards.empty()) known.slices.push_back(tensor.slices.front());
}

// Slices may overlap, because ranks share KV heads.
void check_covered(const ManifestTensor& tensor, const std::string& directory) {
  const Covering covering = covering_of(tensor);
  if (!covering.is_known || covering.has_hole) refuse_files(directory, fmt::format("'{}' is incomplete", tensor.name));
}

}  // namespace

std::string parallelized_file_name(int tensor, int pipeline) {
  return fmt::format("model_tp_{}_pp_{}.safetensors", tensor, pipeline);
}

bool is_parallelized_directory(const std::string& directory) { return !first_part(directory).empty(); }

std::map<std::string, std::string> parallelized_metadata(const ParallelizedSizes& sizes, const std::string& save,
                                                         const std::vector<ManifestTensor>& tensors) {
  json list = json::array();
  for (const auto& tensor : tensors) list.push_back(to_json(tensor));
  const json all = {{"tensor", sizes.tensor}, {"pipeline", sizes.pipeline}, {"save", save}, {"tensors", list}};
  return {{"format", "pt"}, {kKey, all.dump()}};
}

ParallelizedModel read_parallelized(const std::string& directory) {
  if (!is_folder(directory))
    throw InputError(
        {directory, "the path is not a directory", "a directory that save_parallelized wrote", "check the path"});
  const std::string first = first_part(directory);
  if (first.empty())
    throw InputError({directory, "the directory has no " + parallelized_file_name(0, 0),
                      "a file for every tensor- and pipeline-parallel rank", "check the path"});
  for (const char* full : {kModelFile, kModelIndex})
    if (path_exists(directory + "/" + full))
      throw InputError({directory, fmt::format("the directory has both {} and {}", first, full), "one model",
                        "remove the older one"});
  ParallelizedModel model;
  const RankFile start = read_part(directory, first);
  model.sizes = start.sizes;
  std::vector<std::string> expected, missing, names;
  for (int pipeline = 0; pipeline < model.sizes.pipeline; ++pipeline)
    for (int tensor = 0; tensor < model.sizes.tensor; ++tensor) {
      expected.push_back(parallelized_file_name(tensor, pipeline));
      names.push_back(find_part(directory, tensor, pipeline));
      if (names.back().empty()) missing.push_back(expected.back());
    }
  if (!missing.empty())
    throw InputError({directory, fmt::format("the directory lacks {}", fmt::join(missing, ", ")),
                      fmt::format("all of {}", fmt::join(expected, ", ")), "copy the missing files, or save it again"});
  for (const auto& name : names) {
    const RankFile part = name == first ? start : read_part(directory, name);
    const std::string path = directory + "/" + name;
    if (part.save != start.save || part.sizes.tensor != model.sizes.tensor ||
        part.sizes.pipeline != model.sizes.pipeline)
      refuse_files(path, "the file is from another save than " + first);
    for (const auto& tensor : part.tensors) add(model, tensor, path);
  }
  for (const auto& [name, tensor] : model.tensors) check_covered(tensor, directory);
  return model;
}

}  // namespace gantry
