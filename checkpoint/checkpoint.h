// Checkpoints: a folder `step-000012` with one safetensors file a writing rank and a manifest.
//
// Global tensors under global names: each rank writes the slices it owns, once (of replicas the first, of stages that
// share a parameter the lowest), and the manifest says where every slice lies, so any layout can read them. The
// manifest is written last, then the folder gets its name by one rename; a folder with a manifest is complete.
// docs/checkpoints.md has the format.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/state_source.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

struct SaveRequest {
  std::string directory;  // the parent of step folders
  std::int64_t step = 0;
  std::string config_text;  // the resolved configuration
  nlohmann::json model_config;
  std::string policy;
  int keep = 0;  // how many of the newest to keep; 0: all
  int threads_per_rank = 1;
};

// Writes the checkpoint and returns its folder. Collective over the world. ResourceError if it can't be written: then
// the former checkpoints stand.
std::string save_checkpoint(const SaveRequest& request, StateSource& state, const ProcessGroupMesh& mesh);

struct CheckpointInfo {
  std::string path;
  std::int64_t step = 0;
  std::string config_text;
  nlohmann::json model_config;
  std::string policy;
  int threads_per_rank = 1;
};

// The folder itself if it is complete, or the newest complete one in it; nothing if there is none.
std::optional<std::string> find_checkpoint(const std::string& path);

CheckpointInfo read_checkpoint_info(const std::string& folder);  // CheckpointError

// Writes every entry of the state from the checkpoint, whatever layout wrote it, after checking the files' hashes.
// CheckpointError for damage, a missing tensor or another shape. Each rank reads what it needs.
void load_checkpoint(const std::string& folder, StateSource& state, const ProcessGroupMesh& mesh);

// Whole tensors of one kind ("model"), by global name.
TensorDict read_checkpoint_tensors(const std::string& folder, const std::string& kind);

}  // namespace gantry
