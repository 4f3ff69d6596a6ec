#include "gantry/schedule/generators/order_options.h"

#include <algorithm>
#include <cmath>

#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

OrderOptions full_times(OrderOptions options) {
  double* const times[] = {&options.forward, &options.input_gradient, &options.weight_gradient, &options.hop};
  double largest = 0;
  for (const double* time : times) largest = std::max(largest, *time);
  if (!(largest > 0) || !std::isfinite(largest)) return options;
  // A power of ten, because times are mostly given in decimals.
  const double scale = std::pow(10.0, 9 - std::ceil(std::log10(largest)));
  for (double* time : times) *time = std::round(*time * scale);
  return options;
}

Length length_of(const Schedule& schedule, const OrderOptions& options) {
  const auto chunks = static_cast<double>(schedule.stages_of_rank.front().size());
  const Simulation simulation = simulate(schedule, {.forward = options.forward * chunks,
                                                    .input_gradient = options.input_gradient * chunks,
                                                    .weight_gradient = options.weight_gradient * chunks,
                                                    .hop = options.hop});
  return {simulation.makespan_max_rank, simulation.makespan_global,
          static_cast<double>(std::ranges::max(simulation.peak_activations))};
}

}  // namespace gantry::schedule
