#include "gantry/planner/calibrate.h"

#include <algorithm>
#include <cmath>

#include "gantry/core/error.h"

namespace gantry::planner {
namespace {

constexpr double kMostFactor = 1e4;  // of links' times, either way
constexpr int kRounds = 50;          // halvings of that range

double collectives(const Seconds& seconds) { return seconds.tensor + seconds.context + seconds.expert + seconds.data; }

// The geometric mean of measured / estimated over the steps that have the part.
class MeanFactor {
 public:
  void add(double measured, double estimated) {
    if (measured <= 0 || estimated <= 0) return;
    sum_ += std::log(measured / estimated);
    ++count_;
  }
  double value() const { return count_ > 0 ? std::exp(sum_ / count_) : 1; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

}  // namespace

// The rates stay the cluster's description of its peaks; what is reached of them is what a step says.
void slow_device(Device& device, double factor) {
  const auto slow_share = [&](double& share) {
    share /= factor;
    const double above = std::max(1.0, share);
    share /= above;
    return above;  // of a share above 1 the rest goes to the peak
  };
  const double peak = slow_share(device.matrix_efficiency);
  for (auto& [precision, flops] : device.matrix_flops) flops *= peak;
  device.attention_efficiency /= factor * peak;
  if (device.attention_efficiency > 1) device.attention_efficiency = 1;
  const double memory = slow_share(device.memory_efficiency);
  for (auto& [name, share] : device.operation_efficiency) share = std::min(1.0, share / (factor * memory));
  device.memory_bytes_per_second *= memory;
  device.optimizer_efficiency = std::min(1.0, device.optimizer_efficiency / (factor * memory));
  device.operation_seconds *= factor;
}

void slow_link(Link& link, double factor) {
  link.bytes_per_second /= factor;
  link.latency_seconds *= factor;
  link.call_seconds *= factor;
}

Calibration calibrate(const Cluster& cluster, const std::vector<MeasuredStep>& steps) {
  if (steps.empty()) throw UsageError({"calibrate", "was given no measured steps", "at least one", ""});
  Calibration result{.cluster = cluster};
  const auto estimated = [](const Cluster& on, const MeasuredStep& step) {
    return estimate(step.workload, step.layout, with_ranks(on, step.layout.ranks(), /*grows=*/true)).seconds;
  };
  // What is computed depends on no link, and in proportion on the devices' times.
  MeanFactor device;
  for (const MeasuredStep& step : steps) device.add(step.seconds.compute, estimated(cluster, step).compute);
  result.device = device.value();
  slow_device(result.cluster.device, result.device);
  result.cluster.step_seconds = 0;
  double besides = 0;
  for (const MeasuredStep& step : steps) besides += step.seconds.optimizer - estimated(result.cluster, step).optimizer;
  result.cluster.step_seconds = std::max(0.0, besides / static_cast<double>(steps.size()));
  // Reductions hide behind computing, so their time is in no proportion to the links', but it grows with them.
  const auto with_links = [&](double factor) {
    Cluster slowed = result.cluster;
    slow_link(slowed.within, factor);
    slow_link(slowed.between, factor);
    return slowed;
  };
  const auto still = [&](double factor) {
    MeanFactor links;
    for (const MeasuredStep& step : steps)
      links.add(collectives(step.seconds), collectives(estimated(with_links(factor), step)));
    return links.value();
  };
  if (still(1) == 1) return result;
  double low = 1 / kMostFactor, high = kMostFactor;
  for (int round = 0; round < kRounds; ++round) {
    const double middle = std::sqrt(low * high);
    (still(middle) > 1 ? low : high) = middle;
  }
  result.links = std::sqrt(low * high);
  result.cluster = with_links(result.links);
  return result;
}

}  // namespace gantry::planner
