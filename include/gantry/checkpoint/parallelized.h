// A model as one safetensors file per tensor- and pipeline-parallel rank (format/parallelized.h), or merged into one
// that Hugging Face's programs read: what OSLO's users call save_parallelized and from_parallelized. Weights alone; a
// checkpoint (checkpoint.h) has the optimizer's state too.
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
  // One model.safetensors instead of a file for each rank. A mesh of one rank along tp and pp always does that.
  bool merge = false;
  // A registered model family ("gpt2"): a merged model then has Hugging Face's names and orientation, else its own.
  std::string family;
  DiskLimits disk;  // how long ranks wait for each other's disks
};

// Writes what the ranks of the first replica hold, and config.json: the family's whole config made of `config`, or
// `config` itself. The directory is made. Merging goes through files and needs memory for one tensor. UsageError where
// the path is a file; ResourceError. Collective over the world.
void save_parallelized(const std::string& directory, const nlohmann::json& config, const std::vector<HeldTensor>& held,
                       const ProcessGroupMesh& mesh, const ParallelizedOptions& options = {});

// Fills what this rank holds from such a directory, whatever layout wrote it. `names`: every parameter of the model,
// held here or not. InputError, before anything is written, for missing files (the expected ones are listed), names
// that are missing or unexpected, or other shapes. Collective over the world.
void from_parallelized(const std::string& directory, const std::vector<HeldTensor>& held,
                       const std::vector<std::string>& names, const ProcessGroupMesh& mesh);

// The directory's files merged into another directory's model.safetensors (or shards), without ranks.
void merge_parallelized(const std::string& directory, const std::string& output, const ExportOptions& options = {});

}  // namespace gantry
