#include "gantry/checkpoint/parallelized.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "gantry/checkpoint/checkpoint_files.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/parallelized.h"
#include "gantry/checkpoint/format/staged_files.h"
#include "gantry/checkpoint/quantized_load.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/slices.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr const char* kRanksFolder = "/.ranks";  // one file per rank, for a model that will be merged

// One number for all files of a save, from rank 0's clock.
std::string name_of_save(const ProcessGroupMesh& mesh) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  torch::Tensor number = torch::tensor(static_cast<std::int64_t>(now.count()), torch::kInt64);
  mesh.world_group().broadcast(number, 0).wait();
  return fmt::format("{:x}", number.item<std::int64_t>());
}

void write_rank(const std::string& directory, const std::string& save, const std::vector<HeldTensor>& held,
                const ProcessGroupMesh& mesh, FileSystem& files) {
  if (mesh.batch_group().rank() != 0) return;
  const int tensor = mesh.coordinate(axis::kTensor), pipeline = mesh.coordinate(axis::kPipeline);
  const std::string file = parallelized_file_name(tensor, pipeline);
  const auto& coordinates = mesh.coordinates();
  TensorDict tensors;
  std::vector<ManifestTensor> entries;
  for (const HeldTensor& one : held) refuse_records(one);
  for (const auto& [placement, values] : held) {
    tensors.set(placement.name, values);
    entries.push_back({"",
                       placement.name,
                       &stored_type_of(values.scalar_type()),
                       placement.global_shape,
                       {{file, held_shards(placement, coordinates)}}});
  }
  write_safetensors(directory + "/" + file, tensors,
                    parallelized_metadata({mesh.size(axis::kTensor), mesh.size(axis::kPipeline)}, save, entries),
                    files);
}

// Every tensor keeps its name.
std::vector<models::TensorName> own_names(const ParallelizedModel& model) {
  std::vector<models::TensorName> names;
  for (const auto& [name, tensor] : model.tensors) names.push_back({name, name});
  return names;
}

// `model_directory`: the directory with the tensors of parts that the family does not load; empty: none.
void merge(const std::string& directory, const json& config, const models::ModelFamily* family,
           const std::string& model_directory, const std::string& output, const ExportOptions& options) {
  const ParallelizedModel model = read_parallelized(directory);
  CheckpointFiles files(directory);
  const auto find = [&](const std::string& name) -> const ManifestTensor& {
    const auto found = model.tensors.find(name);
    if (found == model.tensors.end())
      throw InputError(
          {directory, "the files have no parameter '" + name + "'", "the parameters that config.json describes", ""});
    return found->second;
  };
  const auto names = family ? family->tensor_names(config) : own_names(model);
  auto tensors = hugging_face_tensors(names, files, find);
  if (family && !model_directory.empty())
    for (auto& tensor : tensors_of_other_parts(model_directory, *family, config)) tensors.push_back(std::move(tensor));
  save_hugging_face(output, config, tensors, options);
}

json full_config(const json& config, const ParallelizedOptions& options) {
  return options.family.empty() ? config : models::families().at(options.family).hugging_face_config(config);
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

// A reader could not know which of the two forms to use.
void refuse_two_forms(const std::string& directory, bool full) {
  std::string other;
  if (full && is_parallelized_directory(directory)) other = parallelized_file_name(0, 0);
  for (const char* name : {kModelFile, kModelIndex})
    if (!full && path_exists(directory + "/" + name)) other = name;
  if (!other.empty())
    throw UsageError({directory, "the directory already has " + other + ", from a save in another form",
                      "one form per directory", "remove it, or choose another directory"});
}

// The work of rank 0 before and after all ranks write.
class ParallelizedSave {
 public:
  ParallelizedSave(const std::string& directory, bool full, FileSystem& files) : directory_(directory), files_(files) {
    if (path_exists(directory_) && !is_folder(directory_))
      throw UsageError({directory_, "the path is a file", "a directory to write to", "choose another path"});
    make_folders(directory_, files_);
    refuse_two_forms(directory_, full);
    remove_tree(directory_ + kRanksFolder, files_);  // left by a job that was killed
    if (full)
      make_folders(directory_ + kRanksFolder, files_);
    else
      staged_ = std::make_unique<StagedFiles>(directory_, files_);
  }

  // Call it after all ranks have written.
  void finish(const json& config, const std::vector<HeldTensor>& held, const ParallelizedOptions& options) {
    if (staged_) return place(config, held);
    merge(directory_ + kRanksFolder, config, options.family.empty() ? nullptr : &models::families().at(options.family),
          options.model_directory, directory_, {.files = &files_});
    remove_tree(directory_ + kRanksFolder, files_);
  }

 private:
  void place(json config, const std::vector<HeldTensor>& held) {
    if (!held.empty()) set_weight_type(config, dtype_name(held.front().tensor.scalar_type()));
    write_text_durably(staged_->path("config.json"), config.dump(2) + "\n", files_);
    staged_->place();
  }

  std::string directory_;
  FileSystem& files_;
  std::unique_ptr<StagedFiles> staged_;  // null if the ranks' files are merged
};

}  // namespace

void save_parallelized(const std::string& directory, const json& config, const std::vector<HeldTensor>& held,
                       const ProcessGroupMesh& mesh, const ParallelizedOptions& options) {
  if (mesh.mesh().has_expert_view())
    throw ConfigError(
        {"parallel.expert",
         fmt::format("the value is {}, so the first replica only has a part of the experts", mesh.size(axis::kExpert)),
         "1 for save_parallelized", "save a checkpoint, and convert it with gantry checkpoint export"});
  const bool full = options.merge || mesh.size(axis::kTensor) * mesh.size(axis::kPipeline) == 1;
  const std::string name = name_of_save(mesh);
  DiskProgress progress;
  WatchedFiles files(system_files(), progress);
  const auto on_disk = [&](const std::function<void()>& work) {
    work_on_disk(mesh.world_group(), options.disk, progress, work);
  };
  std::unique_ptr<ParallelizedSave> save;  // only on rank 0
  on_disk([&] {
    if (mesh.rank() == 0) save = std::make_unique<ParallelizedSave>(directory, full, files);
  });
  const std::string ranks = full ? directory + kRanksFolder : StagedFiles::folder(directory);
  on_disk([&] { write_rank(ranks, name, held, mesh, files); });
  on_disk([&] {
    if (save) save->finish(full_config(config, options), held, options);
  });
}

void from_parallelized(const std::string& directory, const std::vector<HeldTensor>& held,
                       const std::vector<std::string>& names, const ProcessGroupMesh& mesh) {
  const ParallelizedModel model = read_parallelized(directory);
  check_names(model, names, directory);
  for (const HeldTensor& one : held) refuse_records(one);
  for (const auto& [placement, tensor] : held)
    if (const auto& shape = model.tensors.at(placement.name).shape; shape != placement.global_shape)
      throw InputError({placement.name,
                        fmt::format("the parameter has the shape [{}] in {}", fmt::join(shape, ", "), directory),
                        fmt::format("[{}]", fmt::join(placement.global_shape, ", ")), ""});
  mesh.world_group().barrier().wait();  // a rank that throws ends the others before they write
  DiskProgress progress;
  work_on_disk(mesh.world_group(), {}, progress, [&] {
    CheckpointFiles files(directory);
    const auto& coordinates = mesh.coordinates();
    for (const auto& [placement, tensor] : held) {
      files.read_into(model.tensors.at(placement.name), tensor.detach(), held_slice(placement, coordinates));
      progress.add(tensor.nbytes() + 1);
    }
  });
}

void merge_parallelized(const std::string& directory, const std::string& output, const ExportOptions& options) {
  const json config = read_json_object(directory + "/config.json");
  const std::string family = models::family_of(config);
  ExportOptions complete = options;
  complete.model_directory = directory;
  merge(directory, config, family.empty() ? nullptr : &models::families().at(family), "", output, complete);
}

}  // namespace gantry
