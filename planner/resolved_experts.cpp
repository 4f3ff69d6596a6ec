#include "gantry/planner/resolved_experts.h"

#include <nlohmann/json.hpp>

#include "gantry/models/described/work_of_keys.h"

namespace gantry::planner {
namespace {

std::int64_t bytes_of_number(const std::string& precision) {
  if (precision == "float64") return 8;
  return precision == "float32" ? 4 : 2;
}

}  // namespace

std::optional<ResolvedExperts> resolve_experts(const Config& config, const nlohmann::json& model_keys, int samples) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.expert == 1) return std::nullopt;
  const auto spec = models::described_decoder(model_keys, config.model.policy);
  if (!spec) return std::nullopt;  // only the policy of a library knows
  ResolvedExperts experts{.layers = 0};
  for (const auto& layer : spec->layers)
    if (layer.experts) {
      experts.experts = layer.experts->count;
      experts.used = layer.experts->used;
      ++experts.layers;
    }
  experts.held = partition(experts.experts, 1, parallel.expert);
  const std::int64_t tokens = static_cast<std::int64_t>(samples) * config.data.sequence_length /
                              (static_cast<std::int64_t>(parallel.tensor) * parallel.context);
  experts.bytes = tokens * experts.used * spec->hidden * bytes_of_number(config.precision) * (parallel.expert - 1) /
                  parallel.expert;
  return experts;
}

}  // namespace gantry::planner
