#include "gantry/cli/plan_text.h"

#include <fmt/format.h>
#include <utility>
#include <vector>

namespace gantry::cli {
namespace {

using Json = nlohmann::ordered_json;
using planner::Estimate;

constexpr double kGibi = 1024.0 * 1024 * 1024;

std::vector<std::pair<const char*, double>> parts_of(const planner::Seconds& seconds) {
  return {{"compute", seconds.compute},    {"tensor", seconds.tensor},     {"context", seconds.context},
          {"expert", seconds.expert},      {"pipeline", seconds.pipeline}, {"data", seconds.data},
          {"optimizer", seconds.optimizer}};
}

std::string memory_text(const Estimate& estimate, double device_bytes) {
  std::string text = fmt::format("memory of each pipeline rank, of {:.1f} GiB:\n", device_bytes / kGibi);
  for (std::size_t rank = 0; rank < estimate.memory.size(); ++rank) {
    const planner::Memory& memory = estimate.memory[rank];
    text += fmt::format(
        "  {}: {:.2f} GiB (parameters {:.2f}, gradients {:.2f}, optimizer {:.2f}, activations {:.2f}, working "
        "{:.2f})\n",
        rank, memory.sum() / kGibi, memory.parameters / kGibi, memory.gradients / kGibi, memory.optimizer / kGibi,
        memory.activations / kGibi, memory.working / kGibi);
  }
  return text;
}

}  // namespace

Json estimate_json(const Estimate& estimate) {
  Json memory = Json::array(), seconds = Json::object();
  for (const auto& rank : estimate.memory) memory.push_back(rank.sum());
  for (const auto& [name, value] : parts_of(estimate.seconds)) seconds[name] = value;
  return {{"step_seconds", estimate.step_seconds},
          {"tokens_per_second", estimate.tokens_per_second},
          {"mfu", estimate.mfu},
          {"memory_bytes", std::move(memory)},
          {"bubble", estimate.bubble},
          {"seconds", std::move(seconds)},
          {"fits", estimate.fits}};
}

std::string estimate_text(const planner::PlanRequest& request, const planner::Layout& layout,
                          const planner::Cluster& cluster, const Estimate& estimate) {
  std::string text =
      fmt::format("{} on {} hosts of {} ({})\n", describe(layout), cluster.hosts, cluster.per_host, cluster.name);
  text += fmt::format("step: {:.4g} s, {:.4g} tokens/s, MFU {:.1f}%, bubble {:.1f}%\n", estimate.step_seconds,
                      estimate.tokens_per_second, 100 * estimate.mfu, 100 * estimate.bubble);
  text += fmt::format("{} samples of {} tokens, {} microbatches a replica\n", request.workload.batch,
                      request.workload.sequence, layout.microbatches_of(request.workload.batch));
  for (const auto& [name, value] : parts_of(estimate.seconds))
    if (value > 0) text += fmt::format("  {}: {:.4g} s ({:.1f}%)\n", name, value, 100 * value / estimate.step_seconds);
  text += memory_text(estimate, cluster.device.memory_bytes);
  return text + (estimate.fits ? "fits\n" : "does not fit\n");
}

}  // namespace gantry::cli
