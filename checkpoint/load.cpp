#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/files.h"
#include "gantry/checkpoint/manifest.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

bool is_complete(const fs::path& folder) { return fs::exists(folder / kManifestName); }

// The files of a checkpoint, opened when first read.
class CheckpointFiles {
 public:
  CheckpointFiles(std::string folder, const Manifest& manifest) : folder_(std::move(folder)), manifest_(manifest) {}

  // Hashed before it is trusted; a file that fails is a damaged checkpoint.
  const SafetensorsFile& open(const std::string& name) {
    auto& file = files_[name];
    if (file) return *file;
    const std::string path = folder_ + "/" + name;
    const auto hash = manifest_.hashes.find(name);
    if (hash == manifest_.hashes.end() || hash_file(path) != hash->second)
      throw CheckpointError(
          {path, "does not have the hash that the manifest states", "", "the checkpoint is damaged; use another"});
    try {
      file = std::make_unique<SafetensorsFile>(path);
    } catch (const InputError& error) {
      throw CheckpointError(error.what());
    }
    return *file;
  }

 private:
  std::string folder_;
  const Manifest& manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
};

// Copies what `slice` has of `wanted` (ranges along dim of the global tensor, laid one after the other in `target`).
void copy_overlap(const torch::Tensor& slice, const std::vector<Range>& stored, torch::Tensor& target,
                  const std::vector<Range>& wanted, int dim) {
  std::int64_t target_offset = 0;
  for (const Range& want : wanted) {
    std::int64_t slice_offset = 0;
    for (const Range& have : stored) {
      const std::int64_t begin = std::max(want.begin, have.begin), end = std::min(want.end, have.end);
      if (begin < end)
        target.narrow(dim, target_offset + begin - want.begin, end - begin)
            .copy_(slice.narrow(dim, slice_offset + begin - have.begin, end - begin));
      slice_offset += have.size();
    }
    target_offset += want.size();
  }
}

// Fills `target`, which is the ranges `wanted` along `wanted_dim` of the tensor (all of it for -1).
void read_into(CheckpointFiles& files, const ManifestTensor& tensor, torch::Tensor target, int wanted_dim,
               const std::vector<Range>& wanted) {
  const torch::NoGradGuard no_grad;
  for (const auto& slice : tensor.slices) {
    const torch::Tensor stored = files.open(slice.file).read(tensor.key());
    if (slice.dim < 0 && wanted_dim < 0) {
      target.copy_(stored);
    } else if (slice.dim < 0) {
      copy_overlap(stored, {{0, tensor.shape[wanted_dim]}}, target, wanted, wanted_dim);
    } else {
      const std::vector<Range> all{{0, tensor.shape[slice.dim]}};
      if (wanted_dim >= 0 && wanted_dim != slice.dim)
        throw CheckpointError(
            {tensor.key(), "is split along another dim than the model splits it", "", "export and import it"});
      copy_overlap(stored, slice.ranges, target, wanted_dim < 0 ? all : wanted, slice.dim);
    }
  }
}

}  // namespace

std::optional<std::string> find_checkpoint(const std::string& path) {
  if (path.empty() || !fs::is_directory(path)) return std::nullopt;
  if (is_complete(path)) return path;
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_directory() && entry.path().filename().string().starts_with("step-") && is_complete(entry.path()))
      folders.push_back(entry.path());
  if (folders.empty()) return std::nullopt;
  return *std::max_element(folders.begin(), folders.end());
}

CheckpointInfo read_checkpoint_info(const std::string& folder) {
  const Manifest manifest = read_manifest(folder);
  try {
    const auto& header = manifest.header;
    return {folder,
            header.at("step"),
            header.at("config"),
            header.at("model_config"),
            header.at("policy"),
            header.at("threads_per_rank")};
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError({folder, error.what(), "a manifest", "the checkpoint is damaged; use another"});
  }
}

void load_checkpoint(const std::string& folder, StateSource& state, const ProcessGroupMesh& mesh) {
  const Manifest manifest = read_manifest(folder);
  CheckpointFiles files(folder, manifest);
  for (const auto& [kind, held, fallback] : state.state_entries()) {
    auto found = manifest.tensors.find(kind + "/" + held.placement.name);
    if (found == manifest.tensors.end() && !fallback.empty())
      found = manifest.tensors.find(fallback + "/" + held.placement.name);
    if (found == manifest.tensors.end())
      throw CheckpointError({folder, "has no " + kind + " of '" + held.placement.name + "'",
                             "a checkpoint of this model", "check model and checkpoint.resume"});
    if (found->second.shape != held.placement.global_shape) {
      throw CheckpointError({held.placement.name,
                             fmt::format("has the shape [{}] in {}", fmt::join(found->second.shape, ", "), folder),
                             fmt::format("[{}]", fmt::join(held.placement.global_shape, ", ")),
                             "a resumed run may change anything but the model"});
    }
    const AxisPlacement& along = held.placement.along("tp");
    read_into(files, found->second, held.tensor.detach(), along.dim,
              along.sharded() ? along.ranges(mesh.coordinate("tp")) : std::vector<Range>());
  }
  state.load_state_numbers(manifest.header.at("numbers"));
}

TensorDict read_checkpoint_tensors(const std::string& folder, const std::string& kind) {
  const Manifest manifest = read_manifest(folder);
  CheckpointFiles files(folder, manifest);
  TensorDict tensors;
  for (const auto& [key, tensor] : manifest.tensors) {
    if (tensor.kind != kind) continue;
    torch::Tensor whole = torch::empty(tensor.shape, dtype_of(tensor.dtype));
    read_into(files, tensor, whole, -1, {});
    tensors.set(tensor.name, whole);
  }
  return tensors;
}

}  // namespace gantry
