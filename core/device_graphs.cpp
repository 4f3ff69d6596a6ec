#include "gantry/core/device_graphs.h"

#include <fmt/format.h>
#include <string>

namespace gantry {
namespace {

struct Obstacle {
  bool is_there;
  const char* key;
  std::string what, expected;
};

}  // namespace

std::optional<ErrorText> fault_of_device_graphs(const Config& config) {
  if (!config.train.device_graphs) return std::nullopt;
  const ParallelConfig& parallel = config.parallel;
  const auto is = [](const auto& value) { return fmt::format("is {}", value); };
  const Obstacle all[] = {
      {parallel.tensor > 1, "parallel.tensor", is(parallel.tensor) + ", whose messages lie within a stage's work", "1"},
      {parallel.context > 1, "parallel.context", is(parallel.context) + ", whose messages lie within a stage's work",
       "1"},
      {parallel.expert > 1, "parallel.expert", is(parallel.expert) + ", whose messages lie within a stage's work", "1"},
      {parallel.zero > 1, "parallel.zero",
       is(parallel.zero) + ", where gradients" + (parallel.zero > 2 ? " and parameters" : "") +
           " have no lasting memory",
       "0 or 1"},
      {parallel.vocabulary != "stages", "parallel.vocabulary",
       is(parallel.vocabulary) + ", which takes embedding and head out of the stages", "stages"},
      {config.schedule.name == "dualpipe_v", "schedule.name",
       is(config.schedule.name) + ", whose pairs run a backward between the parts of a forward", "another schedule"},
      {config.train.offload != "none", "train.offload",
       is(config.train.offload) + ", which moves what a recording has the addresses of", "none"},
      {config.train.neftune_alpha > 0, "train.neftune_alpha",
       "draws other noise each step, and a recording repeats its own", "0"},
      {config.lora.is_on() && config.lora.dropout > 0, "lora.dropout",
       "draws other masks each step, and a recording repeats its own", "0"},
  };
  for (const Obstacle& one : all)
    if (one.is_there)
      return ErrorText{one.key, one.what, one.expected + " with train.device_graphs", "take one of the two out"};
  return std::nullopt;
}

}  // namespace gantry
