#include "gantry/cli/plan_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <utility>
#include <vector>

#include "gantry/core/base/number_text.h"
#include "gantry/planner/calibration.h"

namespace gantry::cli {
namespace {

using Json = nlohmann::ordered_json;
using planner::Estimate;
using planner::parts_of;

constexpr double kGibi = 1024.0 * 1024 * 1024;

std::string memory_text(const Estimate& estimate, double device_bytes) {
  std::string text = fmt::format("memory of each pipeline rank, of {}:\n", bytes_text(device_bytes));
  for (std::size_t rank = 0; rank < estimate.memory.size(); ++rank) {
    const planner::Memory& memory = estimate.memory[rank];
    text += fmt::format("  {}: {} (parameters {}, gradients {}, optimizer {}, activations {}, working {}{})\n", rank,
                        bytes_text(memory.sum()), bytes_text(memory.parameters), bytes_text(memory.gradients),
                        bytes_text(memory.optimizer), bytes_text(memory.activations), bytes_text(memory.working),
                        memory.teacher > 0 ? ", teacher " + bytes_text(memory.teacher) : "");
  }
  return text;
}

// The two largest parts of a step: "compute 74%, pipeline 20%".
std::string largest_parts(const Estimate& estimate) {
  auto parts = parts_of(estimate.seconds);
  std::ranges::stable_sort(parts, std::greater{}, [](const auto& part) { return part.second; });
  return fmt::format("{} {:.0f}%, {} {:.0f}%", parts[0].first, 100 * parts[0].second / estimate.step_seconds,
                     parts[1].first, 100 * parts[1].second / estimate.step_seconds);
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
  std::string text = fmt::format("{} on {} of {} ({})\n", describe(layout), quantity(cluster.hosts, "host"),
                                 cluster.per_host, cluster.name);
  text += fmt::format("step: {:.4g} s, {:.4g} tokens/s, MFU {:.1f}%, bubble {:.1f}%\n", estimate.step_seconds,
                      estimate.tokens_per_second, 100 * estimate.mfu, 100 * estimate.bubble);
  text += fmt::format("{} samples of {} tokens, {} microbatches per replica\n", request.workload.batch,
                      request.workload.sequence, layout.microbatches_of(request.workload.batch));
  for (const auto& [name, value] : parts_of(estimate.seconds))
    if (value > 0) text += fmt::format("  {}: {:.4g} s ({:.1f}%)\n", name, value, 100 * value / estimate.step_seconds);
  text += memory_text(estimate, cluster.device.memory_bytes);
  return text + (estimate.fits ? "the layout fits into memory\n" : "the layout does not fit into memory\n");
}

Json plan_json(const planner::SearchResult& found) {
  Json best = Json::array();
  for (const auto& [layout, estimate] : found.best) {
    Json entry = {
        {"layout", describe(layout)}, {"set", planner::overrides_of(layout)}, {"bound_by", largest_parts(estimate)}};
    entry.update(estimate_json(estimate));
    best.push_back(std::move(entry));
  }
  return {{"best", std::move(best)},
          {"layouts", found.layouts},
          {"too_large", found.too_large},
          {"estimated", found.estimated}};
}

std::string plan_text(const planner::SearchResult& found, const planner::Cluster& cluster, int top) {
  std::string text =
      fmt::format("{} of {} ({}): {}, {} too large for memory, {} simulated\n\n", quantity(cluster.hosts, "host"),
                  cluster.per_host, cluster.name, quantity(found.layouts, "layout"), found.too_large, found.estimated);
  text += fmt::format("{:>10}  {:>5}  {:>6}  {:>7}  {:<24}  {}\n", "step s", "MFU", "bubble", "GiB", "largest parts",
                      "layout");
  for (int row = 0; row < std::min(top, static_cast<int>(found.best.size())); ++row) {
    const auto& [layout, estimate] = found.best[row];
    text += fmt::format("{:>10.4g}  {:>4.1f}%  {:>5.1f}%  {:>7.1f}  {:<24}  {}\n", estimate.step_seconds,
                        100 * estimate.mfu, 100 * estimate.bubble, estimate.most_memory() / kGibi,
                        largest_parts(estimate), describe(layout));
  }
  text += "\nflags of the first layout:";
  for (const auto& set : planner::overrides_of(found.best.front().layout)) text += " --set " + set;
  return text + "\n";
}

std::string comparison_text(const planner::PlannedLayout& one, const planner::PlannedLayout& other) {
  std::string text = fmt::format("A: {}\nB: {}\n{:<10}  {:>10}  {:>10}  {:>10}\n", describe(one.layout),
                                 describe(other.layout), "seconds", "A", "B", "B - A");
  const auto a = parts_of(one.estimate.seconds), b = parts_of(other.estimate.seconds);
  const auto row = [&](const char* name, double first, double second) {
    text += fmt::format("{:<10}  {:>10.4g}  {:>10.4g}  {:>+10.4g}\n", name, first, second, second - first);
  };
  for (std::size_t part = 0; part < a.size(); ++part)
    if (a[part].second > 0 || b[part].second > 0) row(a[part].first, a[part].second, b[part].second);
  row("step", one.estimate.step_seconds, other.estimate.step_seconds);
  row("GiB", one.estimate.most_memory() / kGibi, other.estimate.most_memory() / kGibi);
  return text;
}

}  // namespace gantry::cli
