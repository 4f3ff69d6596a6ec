// Saves the weights of a model as one safetensors file per tensor- and pipeline-parallel rank (format/parallelized.h),
// or merged into one file for other programs. OSLO has the same functions save_parallelized and from_parallelized.
// Checkpoints (checkpoint.h) also contain the optimizer state.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantry/checkpoint/disk_work.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

struct ParallelizedOptions {
  // Write one model.safetensors instead of a file per rank. This is always done if tp and pp have one rank.
  bool merge = false;
  // A registered model family ("gpt2"): a merged model then has Hugging Face's names and orientation. Empty: Gantry's
  // names.
  std::string family;
  // Directory of the model that the run began with. A merged model has copies of its tensors of parts that the family
  // does not load (ModelFamily::other_parts). Empty: none.
  std::string model_directory;
  DiskLimits disk;  // limits for waiting for the disks of other ranks
};

// Writes the parts that the ranks of the first replica hold, and config.json: the family's full configuration derived
// from `config`, or `config` itself without a family. Creates the directory. Merging uses files and needs memory for
// one tensor. Throws UsageError if the path is a file, and ResourceError. Collective over the world.
void save_parallelized(const std::string& directory, const nlohmann::json& config, const std::vector<HeldTensor>& held,
                       const ProcessGroupMesh& mesh, const ParallelizedOptions& options = {});

// Loads this rank's tensors from a directory that was written in any layout. `names`: all parameters of the model, held
// or not. Throws InputError, before anything is changed, for missing files (with a list of the expected ones), missing
// or unexpected names, or other shapes. Collective over the world.
void from_parallelized(const std::string& directory, const std::vector<HeldTensor>& held,
                       const std::vector<std::string>& names, const ProcessGroupMesh& mesh);

// Merges the files of a directory into model.safetensors (or shards) in another directory, without ranks.
void merge_parallelized(const std::string& directory, const std::string& output, const ExportOptions& options = {});

}  // namespace gantry
