// How `gantry config` shows sequences that ranks share: who has which tokens, and what attention sends.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "gantry/core/config.h"
#include "gantry/core/context_choice.h"

namespace gantry::cli {

struct ContextPicture {
  ContextChoice choice;
  SequenceShard cut;
  // That a rank sends for one layer's forward of one sample, by method; empty where nothing says the model's heads.
  std::map<std::string, std::int64_t> bytes_of_layer = {};
  // That the largest layer keeps of one sample on a rank for its backward, and would with parallel.context 1; 0: not
  // known.
  double kept_bytes = 0, kept_alone = 0;
};

// Absent where parallel.context is 1, or no data say how long sequences are. ConfigError as choose_context.
std::optional<ContextPicture> picture_context(const Config& config, const nlohmann::json& model_keys);

std::string to_text(const std::optional<ContextPicture>& picture);
nlohmann::ordered_json to_json(const ContextPicture& picture);

}  // namespace gantry::cli
