// Directories with one safetensors file a tensor- and pipeline-parallel rank, as OSLO's users know them:
// model_tp_0_pp_0.safetensors, model_tp_1_pp_0.safetensors, ... beside config.json. Each file holds what its rank
// holds, and its metadata has the place in the full tensor, so that any layout can read them. Without LibTorch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/manifest.h"

namespace gantry {

struct ParallelizedSizes {
  int tensor = 1, pipeline = 1;
};

std::string parallelized_file_name(int tensor, int pipeline);
bool is_parallelized_directory(const std::string& directory);  // has any rank's file

// The metadata of one rank's file. `save` is the same text in all files of one save. Each tensor has one slice: what
// the rank holds of it.
std::map<std::string, std::string> parallelized_metadata(const ParallelizedSizes& sizes, const std::string& save,
                                                         const std::vector<ManifestTensor>& tensors);

// The full tensors and the places of their slices, by name; slices of ranks that share elements overlap. Files that
// other versions name pytorch_model_tp_0_pp_0 or pytorch_model_tp=0_pp=0 are found too. Throws InputError if
// `directory` is not one, if files are missing (all expected ones are listed) or belong to different saves, and if a
// tensor is not covered.
struct ParallelizedModel {
  ParallelizedSizes sizes;
  std::map<std::string, ManifestTensor> tensors;
};
ParallelizedModel read_parallelized(const std::string& directory);

}  // namespace gantry
