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
  Mean embedding_forward, embedding_backward, head_forward, head_combine, head_backward;
  Mean& of(ActionKind kind) {
    if (kind == ActionKind::kEmbeddingForward) return embedding_forward;
    if (kind == ActionKind::kEmbeddingBackward) return embedding_backward;
    if (kind == ActionKind::kHeadForward) return head_forward;
    if (kind == ActionKind::kHeadCombine) return head_combine;
    if (kind == ActionKind::kHeadBackward) return head_backward;
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
  StageTimes all;
  for (const auto& lane : timeline)
    for (const auto& [action, start, end] : lane)
      if (is_of_vocabulary(action.kind)) all.of(action.kind).add(end - start);
  costs.vocabulary = {.embedding_forward = all.embedding_forward.value(),
                      .embedding_backward = all.embedding_backward.value(),
                      .head_forward = all.head_forward.value(),
                      .head_backward = all.head_backward.value(),
                      .head_combine = all.head_combine.value()};
  for (const StageTimes& of : times) {
    const bool splits = of.input_gradient.any();
    costs.stages.push_back({.forward = of.forward.value(),
                            .input_gradient = splits ? of.input_gradient.value() : of.backward.value(),
                            .weight_gradient = of.weight_gradient.value()});
  }
  return costs;
}

LayerWork work_of(const Costs& costs, const std::vector<LayerRange>& ranges, const ForwardTimes& forwards) {
  LayerWork work{std::vector<double>(forwards.layers.size(), 0.0)};
  for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
    const StageCosts& cost = costs.stages.at(stage);
    const double total = cost.forward + cost.input_gradient + cost.weight_gradient;
    const double before = stage == 0 ? forwards.before : 0, after = stage + 1 == ranges.size() ? forwards.after : 0;
    double seen = before + after;
    for (int layer = ranges[stage].begin; layer < ranges[stage].end; ++layer) seen += forwards.layers.at(layer);
    if (seen <= 0) continue;
    for (int layer = ranges[stage].begin; layer < ranges[stage].end; ++layer)
      work.layers[layer] = total * forwards.layers[layer] / seen;
    work.first += total * before / seen;
    work.last += total * after / seen;
  }
  return work;
}

}  // namespace gantry::schedule
