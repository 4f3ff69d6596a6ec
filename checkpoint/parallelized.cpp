#include "gantry/checkpoint/parallelized.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/parallelized.h"
#include "gantry/checkpoint/slices.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPartsFolder = "/.parts";

// One number for all files of a save, rank 0's clock.
std::string name_of_save(const ProcessGroupMesh& mesh) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  torch::Tensor number = torch::tensor(static_cast<std::int64_t>(now.count()), torch::kInt64);
  mesh.world_group().broadcast(number, 0).wait();
  return fmt::format("{:x}", number.item<std::int64_t>());
}

void write_rank(const std::string& directory, const std::vector<HeldTensor>& held, const ProcessGroupMesh& mesh) {
  const std::string save = name_of_save(mesh);
  if (mesh.coordinate("dp") != 0) return;
  const int tensor = mesh.coordinate("tp"), pipeline = mesh.coordinate("pp");
  const std::string file = parallelized_file_name(tensor, pipeline);
  const auto coordinates = mesh.coordinates();
  TensorDict tensors;
  std::vector<ManifestTensor> entries;
  for (const auto& [placement, values] : held) {
    const HeldPart part = part_held(placement, coordinates);
    tensors.set(placement.name, values);
    entries.push_back({"",
                       placement.name,
                       &stored_type_of(values.scalar_type()),
                       placement.global_shape,
                       {{file, part.dim, part.ranges}}});
  }
  write_safetensors(directory + "/" + file, tensors,
                    parallelized_metadata({mesh.size("tp"), mesh.size("pp")}, save, entries));
}

// Every tensor by its own name.
std::vector<models::TensorName> own_names(const ParallelizedModel& model) {
  std::vector<models::TensorName> names;
  for (const auto& [name, tensor] : model.tensors) names.push_back({name, name});
  return names;
}

void merge(const std::string& directory, const json& config, const models::ModelFamily* family,
           const std::string& output, const ExportOptions& options) {
  const ParallelizedModel model = read_parallelized(directory);
  CheckpointFiles files(directory);
  const auto find = [&](const std::string& name) -> const ManifestTensor& {
    const auto found = model.tensors.find(name);
    if (found == model.tensors.end())
      throw InputError({directory, "has no parameter '" + name + "'", "those that config.json describes", ""});
    return found->second;
  };
  const auto names = family ? family->tensor_names(config) : own_names(model);
  save_hugging_face(output, config, hugging_face_tensors(names, files, find), options);
}

json whole_config(const json& config, const ParallelizedOptions& options) {
  return options.family.empty() ? config : models::families().at(options.family).hugging_face_config(config);
}

void make_directory(const std::string& directory, const ProcessGroupMesh& mesh) {
  if (mesh.rank() == 0) {
    if (fs::exists(directory) && !fs::is_directory(directory))
      throw UsageError({directory, "is a file", "a directory to write into", "choose another"});
    make_folders(directory);
  }
  mesh.world_group().barrier().wait();
}

void check_names(const ParallelizedModel& model, const std::vector<std::string>& names, const std::string& directory) {
  std::vector<std::string> missing, unexpected;
  const std::set<std::string> expected(names.begin(), names.end());
  for (const auto& name : names)
    if (!model.tensors.contains(name)) missing.push_back(name);
  for (const auto& [name, tensor] : model.tensors)
    if (!expected.contains(name)) unexpected.push_back(name);
  if (missing.empty() && unexpected.empty()) return;
  throw InputError({directory,
                    fmt::format("{} tensors are missing ({}) and {} unexpected ({})", missing.size(),
                                fmt::join(missing, ", "), unexpected.size(), fmt::join(unexpected, ", ")),
                    "the parameters of this model", ""});
}

// A reader could not tell which of the two is meant.
void refuse_two_forms(const std::string& directory, bool whole) {
  std::string other;
  if (whole && is_parallelized_directory(directory)) other = parallelized_file_name(0, 0);
  for (const char* name : {kModelFile, kModelIndex})
    if (!whole && std::filesystem::exists(directory + "/" + name)) other = name;
  if (!other.empty())
    throw UsageError({directory, "has " + other + " already, of a save in another form", "one form a directory",
                      "remove it, or choose another directory"});
}

// Every file was written before the first former one is replaced: a job that is killed while it writes leaves the
// former save, and one that is killed here leaves files that say that they are of different saves.
void put_parts_in_place(const std::string& parts, const std::string& directory, const ParallelizedSizes& sizes) {
  for (int pipeline = 0; pipeline < sizes.pipeline; ++pipeline)
    for (int tensor = 0; tensor < sizes.tensor; ++tensor) {
      const std::string file = "/" + parallelized_file_name(tensor, pipeline);
      rename_durably(parts + file, directory + file, system_files());
    }
}

}  // namespace

void save_parallelized(const std::string& directory, const json& config, const std::vector<HeldTensor>& held,
                       const ProcessGroupMesh& mesh, const ParallelizedOptions& options) {
  const bool whole = options.merge || mesh.size("tp") * mesh.size("pp") == 1;
  const std::string parts = directory + kPartsFolder;
  make_directory(directory, mesh);
  if (mesh.rank() == 0) {
    refuse_two_forms(directory, whole);
    remove_tree(parts, system_files());  // of a job that was killed
  }
  make_directory(parts, mesh);
  write_rank(parts, held, mesh);
  mesh.world_group().barrier().wait();
  if (mesh.rank() == 0) {
    const json full = whole_config(config, options);
    if (whole) {
      merge(parts, full, options.family.empty() ? nullptr : &models::families().at(options.family), directory, {});
    } else {
      put_parts_in_place(parts, directory, {mesh.size("tp"), mesh.size("pp")});
      json named = full;
      if (!held.empty()) set_weight_type(named, dtype_name(held.front().tensor.scalar_type()));
      write_text_durably(directory + "/config.json", named.dump(2) + "\n");
    }
    remove_tree(parts, system_files());
  }
  mesh.world_group().barrier().wait();
}

void from_parallelized(const std::string& directory, const std::vector<HeldTensor>& held,
                       const std::vector<std::string>& names, const ProcessGroupMesh& mesh) {
  const ParallelizedModel model = read_parallelized(directory);
  check_names(model, names, directory);
  for (const auto& [placement, tensor] : held)
    if (const auto& shape = model.tensors.at(placement.name).shape; shape != placement.global_shape)
      throw InputError({placement.name, fmt::format("has the shape [{}] in {}", fmt::join(shape, ", "), directory),
                        fmt::format("[{}]", fmt::join(placement.global_shape, ", ")), ""});
  mesh.world_group().barrier().wait();  // a rank that refuses ends the others before they write
  CheckpointFiles files(directory);
  const auto coordinates = mesh.coordinates();
  for (const auto& [placement, tensor] : held) {
    const HeldPart part = part_held(placement, coordinates);
    files.read_into(model.tensors.at(placement.name), tensor.detach(), part.dim, part.ranges);
  }
  mesh.world_group().barrier().wait();
}

void merge_parallelized(const std::string& directory, const std::string& output, const ExportOptions& options) {
  const json config = read_json_object(directory + "/config.json");
  const std::string family = models::family_of(config);
  merge(directory, config, family.empty() ? nullptr : &models::families().at(family), output, options);
}

}  // namespace gantry
