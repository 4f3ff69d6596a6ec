#include "gantry/cli/engine/model_images.h"

#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/core/error.h"
#include "gantry/generation/image_format.h"
#include "gantry/models/described/work_of_keys.h"

namespace gantry::cli {
namespace {

// The directory with the configuration of the model's image processor.
std::string processor_folder(const TrainedModel& model) {
  for (const std::string& folder : {model.path + "/" + kCompanionFolder, model.config.model.path})
    if (has_image_processor(folder)) return folder;
  return model.path;
}

}  // namespace

std::shared_ptr<const ImageReader> image_reader_of(const TrainedModel& model, const std::string& flag) {
  const auto spec = models::described_decoder(nlohmann::json::parse(model.config.model.config_json));
  if (!spec || !spec->vision)
    throw UsageError({flag, "the model " + model.path + " has no image encoder",
                      "a gemma3, llava, mistral3 or qwen2_5_vl model that was trained with its image encoder",
                      "remove the images, or set model.config.image_encoder to true if the weights have the encoder"});
  return std::make_shared<const ImageReader>(image_format_of(*spec->vision), processor_folder(model));
}

}  // namespace gantry::cli
