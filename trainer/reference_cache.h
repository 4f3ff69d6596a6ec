// The directory train.objective.reference_cache: log-probabilities of references, which later runs read.
//
// A file has the log-probabilities of the samples of one data set, training data or held-out data. Its name consists of
// the digest of the samples and that of the reference. It is a safetensors file whose metadata have both, so that
// another reference or other samples never get its values. It is written under a name of its own, synced and renamed.
#pragma once

#include <string>

#include "gantry/core/config.h"
#include "gantry/core/file_system.h"
#include "gantry/tensors/tensor.h"
#include "gantry/trainer/reference_identity.h"

namespace gantry {

// Used by one rank, which reads and writes for all.
class ReferenceCache {
 public:
  // Computes the identity of the reference and creates the directory. `config` must outlive the object. `progress` is
  // called with bytes. Throws InputError if files of the reference cannot be read, and ResourceError or ConfigError if
  // the directory cannot be created.
  ReferenceCache(const Config& config, const OpenProgress& progress);

  // Returns the log-probabilities [samples, 2] (ReferenceScores) of the samples with this digest, or an undefined
  // tensor if they are not stored. If the directory of the reference no longer exists, returns those of a reference
  // that was at this path. Throws InputError for a damaged file or a file of another program. Also throws it if the
  // reference no longer exists and the cache has the log-probabilities of none or of several at its path.
  torch::Tensor find(const std::string& samples, const OpenProgress& progress) const;

  // Stores log-probabilities that find() has not found. Keeps the file of another run that has stored them meanwhile.
  // Throws ResourceError.
  void store(const std::string& samples, const torch::Tensor& scores, FileSystem& files) const;

 private:
  std::string path_of(const std::string& samples) const;
  torch::Tensor find_without_reference(const std::string& samples, const OpenProgress& progress) const;

  const Config& config_;
  const std::string directory_;
  std::string reference_;  // the absolute path of train.objective.reference; empty: the initial weights
  bool exists_ = true;     // false if train.objective.reference does not exist; the other members are then empty
  ReferenceForm form_ = ReferenceForm::kInitial;
  std::string settings_, files_;  // digests
};

}  // namespace gantry
