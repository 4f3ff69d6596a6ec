#include "gantry/checkpoint/format/stored_form.h"

#include <filesystem>

#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/manifest.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/parallelized.h"

namespace gantry {

StoredForm stored_form(const std::string& path) {
  namespace fs = std::filesystem;
  if (fs::is_regular_file(path)) return StoredForm::kFile;
  if (!fs::is_directory(path) || fs::exists(path + "/" + kManifestName)) return StoredForm::kCheckpoint;
  if (is_parallelized_directory(path)) return StoredForm::kParallelized;
  for (const char* weights : {kModelFile, kModelIndex})
    if (fs::exists(path + "/" + weights)) return StoredForm::kHuggingFace;
  if (!find_pickle(path).empty()) return StoredForm::kHuggingFace;
  if (holds_checkpoints(path)) return StoredForm::kCheckpoint;
  return fs::exists(path + "/config.json") ? StoredForm::kHuggingFace : StoredForm::kCheckpoint;
}

}  // namespace gantry
