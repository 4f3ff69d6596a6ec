// The tensors of whatever holds some (a checkpoint, a Hugging Face directory, a safetensors file), by name. Without
// LibTorch.
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
  // A step folder or its parent, a directory of Hugging Face's or of save_parallelized, or a file. `passed_over` is
  // require_checkpoint()'s. CheckpointError or InputError.
  static TensorCatalog open(const std::string& path,
                            const std::function<void(const std::string& fault)>& passed_over = {});

  const std::string& path() const { return path_; }  // what was opened
  // By key; a checkpoint's have kinds, others none ("").
  const std::map<std::string, ManifestTensor>& tensors() const { return tensors_; }
  const Manifest* manifest() const { return manifest_.get(); }  // of a checkpoint, else null
  // The full tensor, row-major. A checkpoint's files are checked against their hashes when first read; memory is asked
  // for once the files were seen to hold what is claimed.
  std::vector<unsigned char> read(const std::string& key);

 private:
  const StoredFile& file(const std::string& name);

  std::string path_, folder_;
  std::unique_ptr<Manifest> manifest_;
  std::map<std::string, ManifestTensor> tensors_;
  OpenFiles<StoredFile> files_;
  std::set<std::string> checked_;  // against their hashes
};

}  // namespace gantry
