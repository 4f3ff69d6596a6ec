#include "gantry/schedule/simulated_memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "gantry/schedule/extra_actions.h"

namespace gantry::schedule {
namespace {

// Memory that one rank allocates or releases, in the order of the row.
class Changes {
 public:
  Changes(bool has_backward, const std::vector<StageCosts>& costs) : has_backward_(has_backward), costs_(costs) {}

  void see(const TimedAction& timed) {
    const auto& [action, start, end] = timed;
    const StageCosts& of = costs_[action.stage];
    if (action.kind == ActionKind::kOffloadState) add(0, of.state);  // left here by the previous step
    if (action.is_extra()) {
      const ExtraCost cost = extra_cost(action, of);
      bytes += cost.bytes;
      add(start, cost.held_from_start - cost.released_at_start);
      add(end, -cost.released_at_end);
    }
    const bool makes_gradients = action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGradient;
    if (makes_gradients && with_gradients_.insert(action.stage).second) add(start, of.gradients);
    if (action.kind == ActionKind::kForward) add(start, of.activation);
    if (action.kind == ActionKind::kInputGradient) add(end, of.weight_input - of.activation);
    if (action.kind == ActionKind::kWeightGradient) add(end, -of.weight_input);
    if (action.kind == ActionKind::kBackward || (!has_backward_ && action.kind == ActionKind::kForward))
      add(end, -of.activation);
  }

  // The memory that is held after each change. Simultaneous changes keep the order of the row.
  std::vector<HeldMemory> curve() {
    std::ranges::stable_sort(changes_, {}, &HeldMemory::time);
    double held = 0;
    for (auto& [time, memory] : changes_) memory = held += memory;
    return std::move(changes_);
  }

  double bytes = 0;  // memory that extra actions move

 private:
  void add(double time, double memory) {
    if (memory != 0) changes_.push_back({time, memory});
  }

  bool has_backward_;
  const std::vector<StageCosts>& costs_;
  std::set<int> with_gradients_;  // stages whose gradients have memory
  std::vector<HeldMemory> changes_;
};

}  // namespace

void measure_memory(Simulation& simulation, const Schedule& schedule, bool has_backward,
                    const std::vector<StageCosts>& costs) {
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    Changes changes(has_backward, costs);
    auto computed = simulation.timeline[rank].begin();
    auto extra = simulation.extra[rank].begin();
    for (const auto& action : schedule.actions[rank]) changes.see(action.is_extra() ? *extra++ : *computed++);
    simulation.extra_bytes.push_back(changes.bytes);
    simulation.memory.push_back(changes.curve());
    double peak = 0;
    for (const auto& held : simulation.memory.back()) peak = std::max(peak, held.memory);
    simulation.peak_memory.push_back(peak);
  }
}

int peak_activations(const std::vector<Action>& row, bool has_backward) {
  int held = 0, peak = 0;
  for (const Action& action : row) {
    if (action.kind == ActionKind::kForward || action.kind == ActionKind::kReload) peak = std::max(peak, ++held);
    if (action.kind == ActionKind::kOffload) --held;
    if (action.kind == ActionKind::kWeightGradient || action.kind == ActionKind::kBackward ||
        (!has_backward && action.kind == ActionKind::kForward))
      --held;
  }
  return peak;
}

}  // namespace gantry::schedule
