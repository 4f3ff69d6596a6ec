// A cluster's constants from measured times, by least squares of relative errors: free of LibTorch.
#pragma once

#include <vector>

#include "gantry/planner/cluster.h"

namespace gantry::planner {

// A matrix product of so many operations (2 m n k).
struct ProductTime {
  double flops = 0, seconds = 0;
};

// In Device's words: a product takes (flops + half_flops) / (peak * efficiency).
struct FittedProducts {
  double peak = 0;        // the fastest product's rate, or what the largest tend to
  double efficiency = 1;  // of it, that large products reach; at most 1
  double half_flops = 0;
};
// Of products of at least two sizes. UsageError for fewer.
FittedProducts fit_products(const std::vector<ProductTime>& times);

// A collective whose ring takes `rounds` * (ranks - 1) steps: 2 of an all-reduce, 1 of a gather. `bytes`: of the whole
// tensor.
struct CollectiveTime {
  int ranks = 2, rounds = 2;
  double bytes = 0, seconds = 0;
};
// UsageError without any.
Link fit_link(const std::vector<CollectiveTime>& times);

// The coefficients, none below 0, that make sum(c * terms) nearest to each `target` in relative size. A column that
// adds nothing to others gets 0.
struct Observation {
  std::vector<double> terms;
  double target = 1;
};
std::vector<double> fit_non_negative(const std::vector<Observation>& all);

}  // namespace gantry::planner
