#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/files.h"
#include "gantry/checkpoint/manifest.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string folder_name(std::int64_t step) { return fmt::format("step-{:06}", step); }

// What of a held tensor this rank writes: the part it owns, or nothing.
std::optional<std::pair<ManifestSlice, torch::Tensor>> owned_slice(const HeldTensor& held,
                                                                   const std::map<std::string, int>& coordinates,
                                                                   int lowest_pipeline_rank, const std::string& file) {
  if (coordinates.at("pp") != lowest_pipeline_rank || coordinates.at("dp") != 0) return std::nullopt;
  const AxisPlacement& along = held.placement.along("tp");
  const int rank = coordinates.at("tp");
  if (!along.sharded()) {
    if (rank != 0) return std::nullopt;
    return std::pair(ManifestSlice{file, -1, {}}, held.tensor.detach());
  }
  ManifestSlice slice{file, along.dim, along.owned(rank)};
  if (!along.overlaps()) return std::pair(slice, held.tensor.detach());
  std::vector<torch::Tensor> parts;
  std::int64_t offset = 0;
  const auto held_ranges = along.ranges(rank);
  for (std::size_t i = 0; i < held_ranges.size(); ++i) {
    parts.push_back(held.tensor.detach().narrow(along.dim, offset + slice.ranges[i].begin - held_ranges[i].begin,
                                                slice.ranges[i].size()));
    offset += held_ranges[i].size();
  }
  return std::pair(slice, torch::cat(parts, along.dim));
}

std::map<std::string, int> coordinates_of(const ProcessGroupMesh& mesh) {
  std::map<std::string, int> coordinates;
  for (const auto& axis : mesh.mesh().axes()) coordinates[axis.name] = mesh.coordinate(axis.name);
  return coordinates;
}

// Writes this rank's file and its part of the manifest beside it.
void write_rank(const std::string& folder, StateSource& state, const ProcessGroupMesh& mesh) {
  const std::string file = fmt::format("rank-{:05}.safetensors", mesh.rank());
  const auto coordinates = coordinates_of(mesh);
  TensorDict tensors;
  json entries = json::array();
  for (const auto& [kind, held, fallback] : state.state_entries()) {
    const auto slice = owned_slice(held, coordinates, state.first_holder(held.placement), file);
    if (!slice) continue;
    ManifestTensor entry{
        kind, held.placement.name, dtype_name(held.tensor.scalar_type()), held.placement.global_shape, {slice->first}};
    tensors.set(entry.key(), slice->second);
    entries.push_back(to_json(entry));
  }
  write_safetensors(folder + "/" + file, tensors);
  const json part = {{"file", file}, {"hash", hash_file(folder + "/" + file)}, {"tensors", entries}};
  write_text_durably(folder + "/" + file + ".part", part.dump());
}

Manifest assemble(const std::string& folder, const SaveRequest& request, StateSource& state,
                  const ProcessGroupMesh& mesh) {
  Manifest manifest;
  json layout;
  for (const auto& axis : mesh.mesh().axes()) layout[axis.name] = axis.size;
  manifest.header = {{"format_version", kManifestVersion},
                     {"step", request.step},
                     {"policy", request.policy},
                     {"model_config", request.model_config},
                     {"config", request.config_text},
                     {"numbers", state.state_numbers()},
                     {"layout", layout},
                     {"threads_per_rank", request.threads_per_rank}};
  for (int rank = 0; rank < mesh.mesh().size(); ++rank) {
    const std::string part_path = fmt::format("{}/rank-{:05}.safetensors.part", folder, rank);
    const json part = json::parse(read_text(part_path));
    manifest.hashes[part["file"]] = part["hash"];
    for (const auto& value : part["tensors"]) {
      ManifestTensor tensor = tensor_from_json(value);
      auto [found, fresh] = manifest.tensors.try_emplace(tensor.key(), tensor);
      if (!fresh) found->second.slices.push_back(tensor.slices.front());
    }
    fs::remove(part_path);
  }
  return manifest;
}

void remove_old(const std::string& directory, int keep, const std::string& newest) {
  if (keep <= 0) return;
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().filename().string().starts_with("step-") && fs::exists(entry.path() / kManifestName))
      folders.push_back(entry.path().filename());
  std::sort(folders.begin(), folders.end());
  for (std::size_t i = 0; i + keep < folders.size(); ++i)
    if (folders[i] != newest) fs::remove_all(fs::path(directory) / folders[i]);
}

}  // namespace

std::string save_checkpoint(const SaveRequest& request, StateSource& state, const ProcessGroupMesh& mesh) {
  const std::string name = folder_name(request.step), final_path = request.directory + "/" + name;
  const std::string partial = request.directory + "/." + name + ".partial";
  ProcessGroup& world = mesh.world_group();
  try {
    if (mesh.rank() == 0) {
      fs::remove_all(partial);
      fs::create_directories(partial);
    }
    world.barrier().wait();
    write_rank(partial, state, mesh);
    world.barrier().wait();
    if (mesh.rank() == 0) {
      const Manifest manifest = assemble(partial, request, state, mesh);
      write_text_durably(partial + "/" + kManifestName, to_json(manifest).dump(1));
      sync_folder(partial);
      fs::remove_all(final_path);
      fs::rename(partial, final_path);
      sync_folder(request.directory);
      write_text_durably(request.directory + "/latest", name + "\n");
      remove_old(request.directory, request.keep, name);
    }
  } catch (const fs::filesystem_error& error) {
    throw ResourceError({"checkpoint.path " + request.directory, error.code().message(), "a folder that can be written",
                         "free some space, or choose another folder"});
  }
  world.barrier().wait();
  return final_path;
}

}  // namespace gantry
