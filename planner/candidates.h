// The layouts that a request leaves open, step by step: sizes first, then where stages lie, then what is recomputed,
// and what is cut over replicas. A search goes on only with those that promise something.
#pragma once

#include <functional>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/configured.h"

namespace gantry::planner {

class Candidates {
 public:
  using Take = std::function<void(const Layout&)>;

  // Both must outlive it.
  Candidates(const PlanRequest& request, const Cluster& cluster);

  // Tensor, pipeline, context, data, expert and microbatches, which multiply to the cluster's ranks; the rest is as
  // stated, of recomputation the way that takes least time.
  void visit_sizes(const Take& take) const;
  // Of such sizes: schedule, chunks, layers and vocabulary. Schedules may still refuse them.
  void visit_placements(const Layout& sizes, const Take& take) const;
  const std::vector<Recompute>& recomputations() const { return recomputations_; }
  // Of a placement: zero, shard and gather.
  void visit_states(const Layout& placed, const Take& take) const;
  std::vector<int> zeros(const Layout& sizes) const;

  bool may_share_vocabulary() const;
  // Some stage may have no layer.
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
