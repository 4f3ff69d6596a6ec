// Checkpoints: a directory `step-000012` with a manifest and one safetensors file per writing rank.
//
// A checkpoint stores global tensors under global names. Each rank writes the slices that it owns, and each slice is
// written once: replicas share the work, and if stages share a parameter, the lowest stage writes it. The manifest has
// the position of every slice, so a checkpoint can be loaded in any layout. For commits, see
// format/checkpoint_folder.h; for completeness, format/find.h; for the format, docs/design.md.
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

// The content of a checkpoint in addition to the state, and the checkpoints to keep.
struct SaveRequest {
  std::string directory;  // parent of the step directories
  std::int64_t step = 0;
  std::string config_text;  // the resolved configuration
  nlohmann::json model_config;
  std::string policy;
  // Directory of the model that the run started from, or "". Its files besides the weights (tokenizer, templates,
  // generation_config.json, ...) are copied into the checkpoint. A writer reads them once, at its first save.
  std::string model_directory = {};
  int keep = 0;                                      // number of newest checkpoints to keep; 0: all
  std::optional<std::int64_t> stays = std::nullopt;  // a step that is kept in addition to those
  int threads_per_rank = 1;
  nlohmann::json progress = {};  // a JSON object: learning rate, data cursor, random state
  nlohmann::json user = {};      // a JSON object with values of the caller (epoch, best loss, ...)
};

// Writes a checkpoint and returns its directory. Collective over the world. Throws ResourceError if it cannot be
// written; earlier checkpoints are then unchanged. Throws CheckpointError if another job writes to the directory. For
// many saves, and for saving in the background, use writer.h.
std::string save_checkpoint(const SaveRequest& request, StateSource& state, const ProcessGroupMesh& mesh);

// The manifest of a checkpoint without its tensors; the fields are those of SaveRequest.
struct CheckpointInfo {
  std::string path;
  std::int64_t step = 0;
  std::string config_text;
  nlohmann::json model_config;
  std::string policy;
  int threads_per_rank = 1;
  nlohmann::json progress, user;
};

CheckpointInfo read_checkpoint_info(const std::string& folder);  // throws CheckpointError

// A checkpoint that rank 0 has selected for all ranks, with its manifest as read by rank 0.
struct AgreedCheckpoint {
  std::string folder;
  std::shared_ptr<const Manifest> manifest;
  CheckpointInfo info() const;
};

// Returns rank 0's choice on every rank; empty if it chooses none. `choose` is called on rank 0 only; an exception from
// it ends the job. Throws CheckpointError on a rank that finds another manifest in this directory, for example because
// file systems are cached or not shared. Without this check, ranks could resume from different steps. Waits for slow
// disks as in disk_work.h. Collective over the world.
std::optional<AgreedCheckpoint> agree_on_checkpoint(const ProcessGroupMesh& mesh,
                                                    const std::function<std::optional<CompleteCheckpoint>()>& choose,
                                                    const DiskLimits& limits = {});

// Loads every entry of the state from a checkpoint that was written in any layout. Each rank reads what it needs. The
// ranks also share the work of checking the hashes of all files, and call `checked` with the number of bytes of each
// checked piece. A checkpoint of step 0 without optimizer state (an imported model) leaves the optimizer state
// unchanged, and the matrix that projects hidden states for a teacher. A state without this matrix can be loaded from a
// checkpoint that has it. Collective over the world.
// Throws CheckpointError for missing or unexpected tensors and for other shapes, before anything is changed. Throws it
// for damaged files too; do not use the state after that.
void load_checkpoint(const AgreedCheckpoint& checkpoint, StateSource& state, const ProcessGroupMesh& mesh,
                     const std::function<void(std::uint64_t)>& checked = {}, const DiskLimits& limits = {});
// The same for the step directory that rank 0 passes.
void load_checkpoint(const std::string& folder, StateSource& state, const ProcessGroupMesh& mesh,
                     const std::function<void(std::uint64_t)>& checked = {}, const DiskLimits& limits = {});

// Returns the full tensors of one kind ("model"), by global name. Throws CheckpointError with the existing kinds if the
// checkpoint has none of this kind.
TensorDict read_checkpoint_tensors(const std::string& folder, const std::string& kind);

}  // namespace gantry
