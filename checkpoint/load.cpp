#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/checkpoint_files.h"
#include "gantry/checkpoint/format/checked_read.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/checkpoint/slices.h"
#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"
#include "gantry/models/hidden_states.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr const char* kModel = "model";
constexpr const char* kMaster = "optimizer.master";

// A tensor of the checkpoint that this rank needs, and its destination.
struct Need {
  const ManifestTensor* tensor;
  std::vector<AppliedShard> shards;  // the part of this rank
  torch::Tensor target;
  bool is_filled = false;
};

bool lies_as_needed(const ManifestSlice& slice, const Need& need) {
  return slice.shards == need.shards && need.target.is_contiguous() && need.target.is_cpu() &&
         stored_type_of(need.target.scalar_type()).name == need.tensor->type->name;
}

using Checked = std::function<void(std::uint64_t)>;  // called with bytes

// Hashes the file, and fills the tensors that it stores in the form that this rank needs. If two tensors need
// the same bytes, because the checkpoint lacks the kind of one of them, only the first is filled here.
void check_file(const std::string& folder, const std::string& name, const Manifest& manifest, std::vector<Need>& needs,
                const Checked& checked) {
  std::vector<WantedBytes> wanted;
  std::set<std::uint64_t> begins;
  try {
    const StoredFile file(folder + "/" + name);
    check_file_slices(manifest, name, file);
    for (Need& need : needs)
      for (const auto& slice : need.tensor->slices) {
        if (slice.file != name || !lies_as_needed(slice, need)) continue;
        const StoredTensor& stored = file.at(need.tensor->key());
        if (!begins.insert(stored.begin).second && stored.end > stored.begin) continue;
        wanted.push_back({file.header().data_start + stored.begin, stored.end - stored.begin,
                          static_cast<unsigned char*>(need.target.data_ptr())});
        need.is_filled = true;
      }
  } catch (const Error& error) {
    check_file_hash(folder, name, manifest.files.at(name));  // throws the standard error for damage
    throw CheckpointError(error.what());
  }
  read_checked(folder, name, manifest.files.at(name), std::move(wanted), checked);
}

// Each rank checks its share of the files, beginning with the file that it would write itself.
void check_files(const std::string& folder, const Manifest& manifest, std::vector<Need>& needs,
                 const ProcessGroupMesh& mesh, const Checked& checked) {
  int index = 0;
  for (const auto& [name, file] : manifest.files)
    if (index++ % mesh.mesh().size() == mesh.rank()) check_file(folder, name, manifest, needs, checked);
}

std::set<std::string> kinds_of(const Manifest& manifest) {
  std::set<std::string> kinds;
  for (const auto& [key, tensor] : manifest.tensors) kinds.insert(tensor.kind);
  return kinds;
}

const ManifestTensor& find_tensor(const Manifest& manifest, const StateEntry& entry, const std::string& folder) {
  const Placement& placement = entry.held.placement;
  auto found = manifest.tensors.find(entry.kind + "/" + placement.name);
  if (found == manifest.tensors.end() && !entry.fallback.empty())
    found = manifest.tensors.find(entry.fallback + "/" + placement.name);
  if (found == manifest.tensors.end())
    throw CheckpointError({folder, "the checkpoint has no " + entry.kind + " of '" + placement.name + "'",
                           "a checkpoint of this model", "check the model and checkpoint.resume"});
  // A run of higher precision loads the master weights instead, which have more digits.
  if (entry.kind == kModel && entry.held.tensor.element_size() * 8 > found->second.type->bits)
    if (const auto master = manifest.tensors.find(std::string(kMaster) + "/" + placement.name);
        master != manifest.tensors.end())
      found = master;
  if (found->second.shape != placement.global_shape)
    throw CheckpointError(
        {placement.name,
         fmt::format("the parameter has the shape [{}] in {}", fmt::join(found->second.shape, ", "), folder),
         fmt::format("[{}]", fmt::join(placement.global_shape, ", ")),
         "use the checkpoint's model; layout, schedule, batch size, learning rate and steps may change"});
  return found->second;
}

// Throws if the checkpoint has more parameters than the model. A matrix of the training alone is not counted, because
// programs that use the model do not have it. Collective over pp.
void check_model_size(const Manifest& manifest, const std::vector<StateEntry>& entries, const StateSource& state,
                      const ProcessGroupMesh& mesh, const std::string& folder) {
  std::int64_t mine = 0, stored = 0;
  const auto is_counted = [](const std::string& kind, const std::string& name) {
    return kind == kModel && !models::is_hidden_projection(name);
  };
  for (const auto& entry : entries)
    if (is_counted(entry.kind, entry.held.placement.name) &&
        state.first_holder(entry.held.placement) == mesh.coordinate(axis::kPipeline))
      ++mine;
  for (const auto& [key, tensor] : manifest.tensors)
    if (is_counted(tensor.kind, tensor.name)) ++stored;
  const auto held = static_cast<std::int64_t>(all_reduce_number(mesh[axis::kPipeline], static_cast<double>(mine)));
  if (held == stored) return;
  std::set<std::string> names;
  for (const auto& entry : entries) names.insert(entry.kind + "/" + entry.held.placement.name);
  std::vector<std::string> unexpected;  // as far as this rank can know
  for (const auto& [key, tensor] : manifest.tensors)
    if (mesh.size(axis::kPipeline) == 1 && tensor.kind == kModel && !names.contains(key) && unexpected.size() < 5)
      unexpected.push_back(tensor.name);
  throw CheckpointError(
      {folder,
       fmt::format("the checkpoint has {} parameters{}{}", stored,
                   unexpected.empty() ? "" : ", including unexpected ones: ", fmt::join(unexpected, ", ")),
       fmt::format("the {} parameters of this model", held),
       "use the checkpoint's model; layout, schedule, batch size, learning rate and steps may change"});
}

// Fills the tensors that were not filled while files were checked.
void fill_rest(const std::string& folder, const Manifest& manifest, std::vector<Need>& needs, DiskProgress& progress) {
  CheckpointFiles files(folder, &manifest);
  for (const Need& need : needs) {
    if (!need.is_filled) files.read_into(*need.tensor, need.target, apply_shards(need.tensor->shape, need.shards));
    progress.add(need.target.nbytes() + 1);
  }
}

CheckpointInfo info_of(const Manifest& manifest, const std::string& folder) {
  return {folder,
          manifest.step,
          manifest.config_text,
          manifest.model_config,
          manifest.policy,
          manifest.threads_per_rank,
          manifest.progress,
          manifest.user};
}

// Checks that this rank's file system has the same checkpoint there as rank 0's.
void require_same_manifest(const std::string& folder, const std::string& chosen, const ProcessGroupMesh& mesh) {
  const std::string found = stated_manifest_hash(folder);
  if (found == chosen) return;
  throw CheckpointError({folder,
                         fmt::format("{} on {} finds {} in this directory", mesh.mesh().describe_rank(mesh.rank()),
                                     host_name(), found.empty() ? "no manifest" : "a manifest with the hash " + found),
                         "the manifest with the hash " + chosen + ", which rank 0 selected for all ranks",
                         "let all hosts see one file system in this directory, and start again"});
}

}  // namespace

CheckpointInfo AgreedCheckpoint::info() const { return info_of(*manifest, folder); }

CheckpointInfo read_checkpoint_info(const std::string& folder) { return info_of(read_manifest(folder), folder); }

std::optional<AgreedCheckpoint> agree_on_checkpoint(const ProcessGroupMesh& mesh,
                                                    const std::function<std::optional<CompleteCheckpoint>()>& choose,
                                                    const DiskLimits& limits) {
  ProcessGroup& world = mesh.world_group();
  const DiskProgress progress;
  std::optional<CompleteCheckpoint> chosen;
  work_on_disk(world, limits, progress, [&] {
    if (mesh.rank() == 0) chosen = choose();
  });
  const std::string folder = broadcast_text(world, chosen ? chosen->folder : "", 0);
  if (folder.empty()) return std::nullopt;
  const std::string text = broadcast_text(world, chosen ? chosen->manifest : "", 0);
  work_on_disk(world, limits, progress, [&] { require_same_manifest(folder, stated_hash(text), mesh); });
  return AgreedCheckpoint{folder, std::make_shared<const Manifest>(parse_manifest(text, folder + "/" + kManifestName))};
}

void load_checkpoint(const AgreedCheckpoint& checkpoint, StateSource& state, const ProcessGroupMesh& mesh,
                     const Checked& checked, const DiskLimits& limits) {
  const std::string& folder = checkpoint.folder;
  const Manifest& manifest = *checkpoint.manifest;
  std::vector<StateEntry> entries = state.state_entries();
  const auto kinds = kinds_of(manifest);
  const bool model_alone = manifest.step == 0 && kinds == std::set<std::string>{kModel};
  if (model_alone)
    std::erase_if(entries, [](const StateEntry& entry) {
      return (entry.kind != kModel && entry.fallback != kModel) ||
             models::is_hidden_projection(entry.held.placement.name);
    });
  for (const auto& entry : entries) find_tensor(manifest, entry, folder);  // before a rank waits for the others
  check_model_size(manifest, entries, state, mesh, folder);
  std::vector<Need> needs;
  for (const auto& entry : entries)
    needs.push_back({&find_tensor(manifest, entry, folder), held_shards(entry.held.placement, mesh.coordinates()),
                     entry.held.tensor.detach()});
  DiskProgress progress;
  const auto seen = [&](std::uint64_t bytes) {
    progress.add(bytes);
    if (checked) checked(bytes);
  };
  // Check all files before any rank continues.
  work_on_disk(mesh.world_group(), limits, progress, [&] { check_files(folder, manifest, needs, mesh, seen); });
  work_on_disk(mesh.world_group(), limits, progress, [&] { fill_rest(folder, manifest, needs, progress); });
  try {
    state.load_state_numbers(model_alone ? nlohmann::json{{"optimizer_steps", 0}} : manifest.numbers);
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        {folder, std::string("its numbers cannot be read: ") + error.what(), "the numbers of this version", ""});
  }
}

void load_checkpoint(const std::string& folder, StateSource& state, const ProcessGroupMesh& mesh,
                     const Checked& checked, const DiskLimits& limits) {
  const auto named = [&] { return CompleteCheckpoint{folder, read_manifest_text(folder)}; };
  load_checkpoint(*agree_on_checkpoint(mesh, named, limits), state, mesh, checked, limits);
}

TensorDict read_checkpoint_tensors(const std::string& folder, const std::string& kind) {
  const Manifest manifest = read_manifest(folder);
  if (const auto kinds = kinds_of(manifest); !kinds.contains(kind))
    throw CheckpointError({folder, "the checkpoint has no tensors of kind '" + kind + "'",
                           fmt::format("one of {}", fmt::join(kinds, ", ")), ""});
  for (const auto& [name, file] : manifest.files) check_file_hash(folder, name, file);
  CheckpointFiles files(folder, &manifest);
  TensorDict tensors;
  for (const auto& [key, tensor] : manifest.tensors) {
    if (tensor.kind != kind) continue;
    tensors.set(tensor.name, files.read(tensor));
  }
  return tensors;
}

}  // namespace gantry
