#include "gantry/schedule/measured.h"

#include <algorithm>

namespace gantry::schedule {
namespace {

class Mean {
 public:
  void add(double value) { sum_ += value, ++count_; }
  bool any() const { return count_ > 0; }
  double value() const { return any() ? sum_ / count_ : 0; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

struct StageTimes {
  Mean forward, backward, input_gradient, weight_gradient;
  Mean& of(ActionKind kind) {
    if (kind == ActionKind::kForward) return forward;
    if (kind == ActionKind::kBackward) return backward;
    return kind == ActionKind::kInputGradient ? input_gradient : weight_gradient;
  }
};

}  // namespace

Simulation figures_of(const Timeline& timeline, const Schedule& schedule) {
  Simulation figures = simulate(schedule);
  figures.timeline = timeline;
  double first = 0, last = 0, longest = 0, busy = 0;
  bool any = false;
  for (const auto& lane : timeline) {
    for (const auto& timed : lane) busy += timed.end - timed.start;
    if (lane.empty()) continue;
    longest = std::max(longest, lane.back().end - lane.front().start);
    first = any ? std::min(first, lane.front().start) : lane.front().start;
    last = any ? std::max(last, lane.back().end) : lane.back().end;
    any = true;
  }
  figures.makespan_global = last - first;
  figures.makespan_max_rank = longest;
  const double ranks = std::max<double>(1, static_cast<double>(timeline.size()));
  figures.bubble_rate = longest > 0 ? (longest - busy / ranks) / longest : 0;
  return figures;
}

Costs costs_of(const Timeline& timeline, int num_stages) {
  std::vector<StageTimes> times(num_stages);
  for (const auto& lane : timeline)
    for (const auto& [action, start, end] : lane) times[action.stage].of(action.kind).add(end - start);
  Costs costs;
  for (const auto& [forward, backward, input_gradient, weight_gradient] : times) {
    const bool splits = input_gradient.any();
    costs.stages.push_back({.forward = forward.value(),
                            .input_gradient = splits ? input_gradient.value() : backward.value(),
                            .weight_gradient = weight_gradient.value()});
  }
  return costs;
}

}  // namespace gantry::schedule
