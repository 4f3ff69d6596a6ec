// Enumerates the layouts of a request in steps: sizes, placement of stages, recomputation, and memory state (zero,
// shard and gather). The search continues only with promising values of each step.
#pragma once

#include <functional>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/config.h"

namespace gantry::planner {

class Candidates {
 public:
  using Take = std::function<void(const Layout&)>;

  // Both must outlive this object.
  Candidates(const PlanRequest& request, const Cluster& cluster);

  // Values of tensor, pipeline, context, data and expert that multiply to the cluster's ranks, and of microbatches.
  // Other values are those of the request, with the fastest recomputation.
  void visit_sizes(const Take& take) const;
  // Values of schedule, chunks, layers and vocabulary for these sizes. A schedule may still reject them.
  void visit_placements(const Layout& sizes, const Take& take) const;
  const std::vector<Recompute>& recomputations() const { return recomputations_; }
  // Values of zero, shard and gather for a placement.
  void visit_states(const Layout& placed, const Take& take) const;
  std::vector<int> zeros(const Layout& sizes) const;

  bool may_share_vocabulary() const;
  // Whether the search may try stages without layers.
  bool may_leave_stages_empty() const;

 private:
  bool is_open(const std::string& key) const { return request_.open.contains(key); }
  template <class Value>
  std::vector<Value> choices(const std::string& key, const Value& stated, std::vector<Value> open) const {
    return is_open(key) ? std::move(open) : std::vector<Value>{stated};
  }
  void visit_pipelines(Layout layout, const Take& take) const;
  void visit_experts(Layout layout, const Take& take) const;
  void visit_microbatches(Layout layout, const Take& take) const;
  std::vector<int> chunks_of(const Layout& layout) const;

  const PlanRequest& request_;
  const Cluster& cluster_;
  std::vector<Recompute> recomputations_;
};

}  // namespace gantry::planner
