// The tensors of a checkpoint, a directory of model files or a single file, by name. Without LibTorch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/manifest.h"
#include "gantry/checkpoint/format/open_files.h"
#include "gantry/checkpoint/format/stored_file.h"

namespace gantry {

class TensorCatalog {
 public:
  // Opens a step folder or its parent directory, a Hugging Face directory, a directory written by
  // save_parallelized, or a file. `passed_over`: see require_checkpoint(). Throws CheckpointError or
  // InputError.
  static TensorCatalog open(const std::string& path,
                            const std::function<void(const std::string& fault)>& passed_over = {});

  // The opened file or directory; for a checkpoint its step folder.
  const std::string& path() const { return path_; }
  // By key. The keys of a checkpoint contain a kind ("model/..."), other keys do not.
  const std::map<std::string, ManifestTensor>& tensors() const { return tensors_; }
  const Manifest* manifest() const { return manifest_.get(); }  // null unless it is a checkpoint
  // Returns the full tensor, row-major. The files of a checkpoint are checked against their hashes at the
  // first read. Memory is allocated only after the manifest's sizes were compared with the files.
  std::vector<unsigned char> read(const std::string& key);

 private:
  const StoredFile& file(const std::string& name);

  std::string path_, folder_;
  std::unique_ptr<Manifest> manifest_;
  std::map<std::string, ManifestTensor> tensors_;
  OpenFiles<StoredFile> files_;
  std::set<std::string> checked_;  // files whose hash was checked
};

}  // namespace gantry
