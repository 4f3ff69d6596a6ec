#include "gantry/cli/recompute_text.h"

#include <fmt/format.h>

#include "gantry/planner/config.h"

namespace gantry::cli {
namespace {

constexpr double kGibibyte = 1 << 30;

}  // namespace

std::string to_text(const planner::RecomputeChoice& choice, const std::vector<LayerRange>& layers) {
  std::string text =
      choice.layers.empty()
          ? std::string("\nrecomputed: nothing\n")
          : fmt::format("\nrecomputed: {} of {} layers, {}; in simulation the step is {:.1f}% longer\n",
                        choice.recomputed(), layers.back().end, planner::name_of(choice.how), 100 * choice.longer);
  for (std::size_t stage = 0; stage < choice.layers.size(); ++stage)
    if (const int count = choice.layers[stage]; count > 0)
      text += fmt::format("  stage {}: layers {} to {} ({})\n", stage, layers[stage].begin,
                          layers[stage].begin + count - 1, count);
  for (std::size_t rank = 0; rank < choice.memory.size(); ++rank)
    text += fmt::format("  pipeline rank {}: peak memory {:.3f} GiB\n", rank, choice.memory[rank].sum() / kGibibyte);
  return text;
}

nlohmann::ordered_json to_json(const planner::RecomputeChoice& choice) {
  std::vector<double> bytes;
  for (const auto& memory : choice.memory) bytes.push_back(memory.sum());
  return {{"how", planner::name_of(choice.how)},
          {"layers", choice.layers},
          {"memory_bytes", bytes},
          {"longer", choice.longer}};
}

}  // namespace gantry::cli
