// A trained model in any supported form: a Hugging Face directory, a checkpoint, or a directory of save_parallelized.
#pragma once

#include <string>
#include <vector>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/format/stored_form.h"
#include "gantry/cli/engine/adapter_choice.h"

namespace gantry::cli {

struct TrainedModel {
  StoredForm form = StoredForm::kHuggingFace;  // not kFile
  std::string path;                            // the directory, or the step folder of the checkpoint
  Config config;                               // resolved, in the layout of --set
  std::string tokenizer;  // "bytes", or the tokenizer file or directory of the model; empty: unknown
  std::string chat_template, template_kwargs;  // as in DataConfig, for a checkpoint of a run; empty: none
  std::int64_t vocabulary = 0;
};

// Detects the form of `path`, and loads the libraries that the model needs. For a checkpoint of adapters, the base
// model is included, so it cannot have others. `adapters`: for a Hugging Face model; the one without a name becomes a
// part of it. `reads_images`: the model of a directory has its image encoder. Throws CheckpointError, InputError,
// UsageError or ConfigError.
TrainedModel find_trained_model(const std::string& path, const std::vector<std::string>& sets,
                                const AdapterChoice& adapters = {}, bool reads_images = false);

// Loads the libraries `named`. If the list is empty, loads the libraries in `config_text`, the configuration of the
// checkpoint (empty: unknown). Throws ConfigError.
void load_named_libraries(const std::vector<std::string>& named, const std::string& config_text,
                          const std::string& folder);

// Sets `precision` to the dtype of the weights in model.path if the configuration does not set it. `config` is
// resolved.
Config with_stored_precision(Config config);

// Loads the weights into a boosted model. Warns, on the main rank, of a new head. Collective over the world.
void load_trained_weights(const TrainedModel& model, Boosted& boosted, HybridParallelPlugin& plugin);

}  // namespace gantry::cli
