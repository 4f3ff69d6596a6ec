#include "gantry/checkpoint/format/catalog.h"

#include <cstring>
#include <filesystem>

#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/parallelized.h"
#include "gantry/checkpoint/format/stored_form.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

// Copies the elements of a slice to their places in the full tensor.
void place_slice(const ManifestTensor& tensor, const ManifestSlice& slice, std::span<const unsigned char> bytes,
                 std::vector<unsigned char>& full) {
  if (slice.shards.empty()) {
    std::memcpy(full.data(), bytes.data(), bytes.size());
    return;
  }
  const std::uint64_t element = static_cast<std::uint64_t>(tensor.type->bits) / 8;
  const unsigned char* from = bytes.data();
  visit_runs(tensor.slice_of(slice), [&](std::int64_t first, std::int64_t count) {
    std::memcpy(full.data() + static_cast<std::uint64_t>(first) * element, from,
                static_cast<std::uint64_t>(count) * element);
    from += static_cast<std::uint64_t>(count) * element;
  });
}

}  // namespace

TensorCatalog TensorCatalog::open(const std::string& path, const std::function<void(const std::string&)>& passed_over) {
  TensorCatalog catalog;
  ModelFiles files;
  catalog.path_ = catalog.folder_ = path;
  switch (stored_form(path)) {
    case StoredForm::kParallelized:
      catalog.tensors_ = read_parallelized(path).tensors;
      return catalog;
    case StoredForm::kCheckpoint: {
      const CompleteCheckpoint found = require_complete_checkpoint(path, passed_over);
      catalog.path_ = catalog.folder_ = found.folder;
      catalog.manifest_ =
          std::make_unique<Manifest>(parse_manifest(found.manifest, found.folder + "/" + kManifestName));
      catalog.tensors_ = catalog.manifest_->tensors;
      return catalog;
    }
    case StoredForm::kFile:
      catalog.folder_ = fs::absolute(path).parent_path().string();
      files.paths = {path};
      break;
    case StoredForm::kHuggingFace:
      files = find_model_files(path);
      break;
  }
  for (const auto& file : files.paths) {
    const std::string name = fs::path(file).filename();
    const auto& found = catalog.file(name).header().tensors;
    check_index(files, file, [&](const std::string& tensor) { return found.contains(tensor); });
    for (const auto& [tensor, stored] : found)
      catalog.tensors_[tensor] = {"", tensor, stored.type, stored.shape, {{name, {}}}};
  }
  return catalog;
}

const StoredFile& TensorCatalog::file(const std::string& name) {
  return files_.get(name, [&] {
    if (!manifest_) return std::make_unique<StoredFile>(folder_ + "/" + name);
    try {
      if (!checked_.contains(name)) check_file_hash(folder_, name, manifest_->files.at(name));
      checked_.insert(name);
      auto opened = std::make_unique<StoredFile>(folder_ + "/" + name);
      check_file_slices(*manifest_, name, *opened);
      return opened;
    } catch (const InputError& error) {
      throw CheckpointError(error.what());
    }
  });
}

std::vector<unsigned char> TensorCatalog::read(const std::string& key) {
  const ManifestTensor& tensor = tensors_.at(key);
  // Open the files before allocating memory: opening compares the sizes in the manifest with the files.
  for (const auto& slice : tensor.slices) file(slice.file);
  std::vector<unsigned char> full(tensor.bytes());
  for (const auto& slice : tensor.slices) {
    const StoredFile& stored = file(slice.file);
    const StoredTensor& found = stored.at(key);
    if (!found.strides.empty())
      full = stored.elements(found);  // only PyTorch files have strides; they store one slice
    else if (!full.empty())
      place_slice(tensor, slice, stored.bytes(found), full);
  }
  return full;
}

}  // namespace gantry
