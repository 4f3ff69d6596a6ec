#include "gantry/checkpoint/format/stored_form.h"

#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/manifest.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/parallelized.h"
#include "gantry/core/io/paths.h"

namespace gantry {

StoredForm stored_form(const std::string& path) {
  if (is_file(path)) return StoredForm::kFile;
  if (!is_folder(path) || path_exists(path + "/" + kManifestName)) return StoredForm::kCheckpoint;
  if (is_parallelized_directory(path)) return StoredForm::kParallelized;
  if (has_model_files(path)) return StoredForm::kHuggingFace;
  if (!find_pickle(path).empty()) return StoredForm::kHuggingFace;
  if (holds_checkpoints(path)) return StoredForm::kCheckpoint;
  return path_exists(path + "/config.json") ? StoredForm::kHuggingFace : StoredForm::kCheckpoint;
}

}  // namespace gantry
