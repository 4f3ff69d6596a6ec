// The effect of context parallelism in a configuration: the tokens of each rank, and the bytes that attention sends.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/core/config.h"
#include "gantry/core/config/context_choice.h"

namespace gantry::planner {

struct ResolvedContext {
  ContextChoice choice;
  SequenceShard shard;
  // Bytes that a rank sends in the forward of one layer with attention for one sample, by method; empty: the heads are
  // unknown, or no layer has attention.
  std::map<std::string, std::int64_t> bytes_of_layer = {};
  std::int64_t bytes_of_mixer = 0;  // the same for the mixer that sends the most; 0: no layer has one
  // Bytes that the largest layer keeps of one sample on a rank for its backward, with the configured parallel.context
  // and with parallel.context 1; 0: unknown.
  double kept_bytes = 0, kept_alone = 0;
};

// Empty if parallel.context is 1, or if the configuration has no data section. Throws ConfigError like
// choose_context().
std::optional<ResolvedContext> resolve_context(const Config& config, const nlohmann::json& model_keys);

}  // namespace gantry::planner
