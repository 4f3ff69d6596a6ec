// Context parallelism in the output of `gantry config`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/planner/resolved_context.h"

namespace gantry::cli {

std::string to_text(const std::optional<planner::ResolvedContext>& context);
nlohmann::ordered_json to_json(const planner::ResolvedContext& context);

}  // namespace gantry::cli
