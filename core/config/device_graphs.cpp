#include "gantry/core/config/device_graphs.h"

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
  const auto is = [](const auto& value) { return fmt::format("the value {}", value); };
  const Obstacle all[] = {
      {parallel.tensor > 1, "parallel.tensor",
       is(parallel.tensor) + " needs communication within a stage, which cannot be captured", "1"},
      {parallel.context > 1, "parallel.context",
       is(parallel.context) + " needs communication within a stage, which cannot be captured", "1"},
      {parallel.expert > 1, "parallel.expert",
       is(parallel.expert) + " needs communication within a stage, which cannot be captured", "1"},
      {parallel.zero > 1, "parallel.zero",
       is(parallel.zero) + " gives gradients" + (parallel.zero > 2 ? " and parameters" : "") +
           " new memory in every step, so their addresses change",
       "0 or 1"},
      {parallel.vocabulary != "stages", "parallel.vocabulary",
       is(parallel.vocabulary) + " moves embedding and output layer out of the stages", "stages"},
      {config.schedule.name == "dualpipe_v", "schedule.name",
       is(config.schedule.name) + " runs a backward pass between the parts of a forward pass", "another schedule"},
      {config.train.offload != "none", "train.offload",
       is(config.train.offload) + " moves tensors whose addresses a captured graph contains", "none"},
      {config.model.quantize == "nf4" || config.model.quantize == "fp4", "model.quantize",
       is(config.model.quantize) + " reads its table of values from the host in every step",
       "int8, or no quantisation"},
      {config.train.neftune_alpha > 0, "train.neftune_alpha",
       "the noise differs in every step, but a captured graph repeats it", "0"},
      {config.lora.is_on() && config.lora.dropout > 0, "lora.dropout",
       "the dropout masks differ in every step, but a captured graph repeats them", "0"},
  };
  for (const Obstacle& one : all)
    if (one.is_there)
      return ErrorText{one.key, one.what, one.expected + " with train.device_graphs", "remove one of the two keys"};
  return std::nullopt;
}

}  // namespace gantry
