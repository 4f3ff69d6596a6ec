// A trained model of any form that Gantry knows: a Hugging Face directory, a checkpoint, a directory of
// save_parallelized.
#pragma once

#include <string>
#include <vector>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/format/stored_form.h"

namespace gantry::cli {

struct TrainedModel {
  StoredForm form = StoredForm::kHuggingFace;  // never a single file
  std::string path;                            // the directory, or the checkpoint's own step folder
  Config config;                               // resolved, in the layout that --set asks for
  std::string tokenizer;                       // "bytes", a file or a folder that goes with it; empty: none is known
  std::int64_t vocabulary = 0;
};

// Reads what `path` is, and loads the libraries that it needs. A checkpoint of adapters brings their base along.
// `adapter`: a directory of PEFT's for a base in Hugging Face's form; empty: none. CheckpointError, InputError,
// UsageError or ConfigError.
TrainedModel find_trained_model(const std::string& path, const std::vector<std::string>& sets,
                                const std::string& adapter = {});

// Loads the libraries that a command names; where it names none, those of the configuration that made the checkpoint
// (empty: none is known). ConfigError.
void load_named_libraries(const std::vector<std::string>& named, const std::string& config_text,
                          const std::string& folder);

// Fills a boosted model with its weights. Collective over the world.
void load_trained_weights(const TrainedModel& model, Boosted& boosted, HybridParallelPlugin& plugin);

}  // namespace gantry::cli
