// Directories with config.json and one safetensors file per tensor- and pipeline-parallel rank, in the form
// that OSLO uses: model_tp_0_pp_0.safetensors, model_tp_1_pp_0.safetensors, ... Each file contains the
// tensors of its rank. Its metadata has their places in the full tensors, so that any layout can read them.
// Without LibTorch.
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

// The metadata of one rank's file. `save` is the same text in all files of one save. Each tensor has one
// slice: the part that the rank holds.
std::map<std::string, std::string> parallelized_metadata(const ParallelizedSizes& sizes, const std::string& save,
                                                         const std::vector<ManifestTensor>& tensors);

// The full tensors and the places of their slices, by name. Slices of ranks that share elements overlap. The
// names of other versions (pytorch_model_tp_0_pp_0, pytorch_model_tp=0_pp=0) are found too. Throws InputError
// if `directory` is not such a directory, if files are missing (the error lists all of them) or belong to
// different saves, or if a tensor is not covered.
struct ParallelizedModel {
  ParallelizedSizes sizes;
  std::map<std::string, ManifestTensor> tensors;
};
ParallelizedModel read_parallelized(const std::string& directory);

}  // namespace gantry
