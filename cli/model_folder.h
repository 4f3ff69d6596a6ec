// The parts of a published model's directory, and for each of them whether Gantry reads it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/models/described/model_sizes.h"

namespace gantry::cli {

struct StoredWeights {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::map<std::string, std::size_t> types;  // number of tensors of each type
};

struct ModelFolder {
  std::string path, model_type;
  std::string architecture, head;        // as config.json names it, and as Gantry builds it
  std::string dtype;                     // the dtype of the weights in config.json; empty: none
  bool embeds_sentences = false;         // by the modules of sentence-transformers
  std::vector<std::string> passed_over;  // keys without effect
  std::vector<std::string> not_loaded;   // parts of the model besides its text decoder: vision_tower, ...
  std::optional<models::ModelSizes> sizes;
  std::optional<StoredWeights> weights;
  std::string tokenizer, chat_template;  // empty: none
  std::int64_t tokens = 0;
  bool has_generation_config = false;
  std::map<std::string, std::string> refused;  // by part: configuration, weights, tokenizer, chat template
};

// Throws InputError if there is no config.json or if it is not a JSON object.
ModelFolder read_model_folder(const std::string& path);

// Bytes of the weights by precision.
std::map<std::string, double> bytes_by_precision(double parameters);

}  // namespace gantry::cli
