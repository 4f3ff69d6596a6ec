// Automatic recomputation (schedule.recompute: auto): its costs, and the choice of layers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/planner/costs.h"
#include "gantry/planner/estimate.h"
#include "gantry/planner/layout.h"
#include "gantry/planner/operations.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"

namespace gantry::planner {

// Times and bytes of a schedule in which the first layers of each stage are recomputed. Times are numbers of
// multiplications, so that no cluster is needed.
class RecomputeCosts {
 public:
  // `layers`: of each stage. Workload and schedule must outlive this object.
  RecomputeCosts(const Workload& workload, const Layout& layout, const schedule::Schedule& schedule,
                 std::vector<int> layers);

  int ranks() const { return schedule_.ranks(); }
  int stages() const { return static_cast<int>(layers_.size()); }
  int layers_of(int stage) const { return layers_[stage]; }
  const std::vector<int>& stages_of(int rank) const { return schedule_.stages_of_rank[rank]; }

  // `counts`: the number of recomputed layers of each stage. The memory of a rank depends only on its own stages.
  Memory memory(int rank, Recompute how, const std::vector<int>& counts) const;
  schedule::Costs costs(Recompute how, const std::vector<int>& counts) const;
  double makespan(Recompute how, const std::vector<int>& counts) const;

 private:
  schedule::StageCosts stage_costs(int stage, Recompute how, int count) const;
  double working(int stage, Recompute how, int count) const;
  double peak(int rank, Recompute how, const std::vector<int>& counts) const;

  const Workload& workload_;
  Layout layout_;
  const schedule::Schedule& schedule_;
  std::vector<int> layers_, first_layer_;  // for each stage
  std::vector<PartOperations> parts_;      // for each layer
  PartOperations patches_, features_, embedding_, head_;
  int embedding_stage_;  // also has the features of an image encoder
  LayoutCosts held_;     // has only the parameters of the stages
};

struct RecomputeChoice {
  Recompute how = Recompute::kNone;
  std::vector<int> layers;     // number of recomputed layers of each stage, from its first; empty: none
  std::vector<Memory> memory;  // peak of each pipeline rank
  double longer = 0;           // relative increase of the simulated step over one without recomputation

  int recomputed() const;  // total number of layers
};

// Selects the layers to recompute so that every rank fits into `limit` bytes in the least time: the meaning of
// schedule.recompute: auto. `layers`: of each stage of the schedule; `hows`: the alternatives to kNone. Throws
// ConfigError if a rank needs more than `limit` bytes with every choice.
//
// Bytes are those of an estimate (rank_memory()). The peak of a rank depends only on its own actions, so each rank has
// its minimal choices. The simulator selects the fastest combination of these: among all of them if they are few,
// otherwise by coordinate descent over the ranks.
RecomputeChoice choose_recompute(const Workload& workload, const Layout& layout, const schedule::Schedule& schedule,
                                 const std::vector<int>& layers, std::int64_t limit,
                                 const std::vector<Recompute>& hows);

// For a configuration with `recompute: auto` and `data` replicas; empty for other configurations. Throws ConfigError if
// the configuration sets something whose memory is not known.
std::optional<RecomputeChoice> chosen_recompute(const Config& config, int data);

// Sets schedule.recompute and schedule.recompute_layers to the choice.
void apply(const RecomputeChoice& choice, ScheduleConfig& schedule);

}  // namespace gantry::planner
