// Checkpoints: a folder `step-000012` with one safetensors file a writing rank and a manifest.
//
// Global tensors under global names: each rank writes the slices it owns, once (replicas share the work; of stages that
// share a parameter the lowest writes it), and the manifest says where every slice lies, so any layout can read them.
// format/checkpoint_folder.h says how a checkpoint is committed, format/find.h which are complete;
// docs/design.md has the format.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "gantry/checkpoint/disk_work.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/state_source.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

struct Manifest;

struct SaveRequest {
  std::string directory;  // the parent of step folders
  std::int64_t step = 0;
  std::string config_text;  // the resolved configuration
  nlohmann::json model_config;
  std::string policy;
  int keep = 0;                                      // how many of the newest to keep; 0: all
  std::optional<std::int64_t> stays = std::nullopt;  // a step that stays beside those
  int threads_per_rank = 1;
  nlohmann::json progress = {};  // learning rate, data cursor, random state: an object
  nlohmann::json user = {};      // values of the caller's own (epoch, best loss, ...): an object
};

// Writes the checkpoint and returns its folder. Collective over the world. ResourceError if it can't be written: then
// the former checkpoints stand. CheckpointError where another job writes into the directory. writer.h has the parts,
// for many saves and for saving in the background.
std::string save_checkpoint(const SaveRequest& request, StateSource& state, const ProcessGroupMesh& mesh);

struct CheckpointInfo {
  std::string path;
  std::int64_t step = 0;
  std::string config_text;
  nlohmann::json model_config;
  std::string policy;
  int threads_per_rank = 1;
  nlohmann::json progress, user;
};

CheckpointInfo read_checkpoint_info(const std::string& folder);  // CheckpointError

// A checkpoint that all ranks go by: rank 0 has chosen it and read its manifest, for all of them.
struct AgreedCheckpoint {
  std::string folder;
  std::shared_ptr<const Manifest> manifest;
  CheckpointInfo info() const;
};

// Rank 0's choice on every rank; nothing where it chooses nothing. `choose` is called on rank 0 alone, and what it
// throws ends the job. Hosts whose file systems show different things (caches, folders that are not shared) could
// otherwise go on from different steps: CheckpointError on a rank that finds another manifest in that folder. A disk
// may take its time. Collective over the world.
std::optional<AgreedCheckpoint> agree_on_checkpoint(const ProcessGroupMesh& mesh,
                                                    const std::function<std::optional<CompleteCheckpoint>()>& choose,
                                                    const DiskLimits& limits = {});

// Writes every entry of the state from the checkpoint, whatever layout wrote it, and checks every file's hash (the
// ranks share that). CheckpointError, before anything is written, for a missing or unexpected tensor or another shape;
// for damage too, and then the state is not to be used. A checkpoint of step 0 without an optimizer's state (an
// imported model) leaves the optimizer's as it is. Each rank reads what it needs, and calls `checked` with the bytes of
// each piece of its share. Collective over the world.
void load_checkpoint(const AgreedCheckpoint& checkpoint, StateSource& state, const ProcessGroupMesh& mesh,
                     const std::function<void(std::uint64_t)>& checked = {}, const DiskLimits& limits = {});
// The same of the step folder that rank 0 names.
void load_checkpoint(const std::string& folder, StateSource& state, const ProcessGroupMesh& mesh,
                     const std::function<void(std::uint64_t)>& checked = {}, const DiskLimits& limits = {});

// Whole tensors of one kind ("model"), by global name. CheckpointError naming the kinds there are if it has none of it.
TensorDict read_checkpoint_tensors(const std::string& folder, const std::string& kind);

}  // namespace gantry
