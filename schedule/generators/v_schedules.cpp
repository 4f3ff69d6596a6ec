// The schedules with V placement of "Pipeline Parallelism with Controllable Memory" (Qi et al., arXiv 2405.15362). The
// first and the last stage are on one rank, so that activations have short lifetimes on the rank that holds many. The
// schedules differ in the number of chunk activations that each rank may hold. ZB-V may hold as many as 1F1B, 2 p
// chunks; if necessary, waiting weight gradients count half. V-Half may hold about half of that, and V-Min about a
// third. V-1F1B is V-Half without split backwards. Each schedule is the best of several orders, of which the first is
// the authors' own. Orders that are longer or hold more activations are discarded.
#include <algorithm>

#include "gantry/schedule/generators/fill_search.h"
#include "gantry/schedule/generators/squeezed_blocks.h"
#include "gantry/schedule/generators/v_pattern.h"
#include "gantry/schedule/generators/v_placement.h"
#include "gantry/schedule/generators/zb_v_heuristic.h"
#include "gantry/schedule/simulate.h"

namespace gantry::schedule {
namespace {

struct VSchedule {
  std::string name;
  Schedule (*published)(const Schedule& placed, const OrderOptions& times);  // the authors' order
  bool split_backward = true;
  bool tries_blocks = true;
};

Schedule v_min_order(const Schedule& placed, const OrderOptions&) { return squeezed_v_min(placed); }
Schedule v_half_order(const Schedule& placed, const OrderOptions&) { return squeezed_v_half(placed); }
Schedule v_one_f_one_b_order(const Schedule& placed, const OrderOptions&) { return squeezed_v_one_f_one_b(placed); }

int largest_peak(const Schedule& schedule) { return std::ranges::max(simulate(schedule).peak_activations); }

// The authors count a waiting weight gradient as half of an activation. If the schedule then holds more than 2 p
// activations, it counts as a full one, unless that makes the schedule longer.
Schedule zb_v_order(const Schedule& placed, const OrderOptions& times) {
  OrderOptions options = times;
  options.limit = 2 * placed.ranks();
  options.waiting_share = 0.5;
  Schedule order = zb_v_heuristic(placed, options);
  if (largest_peak(order) <= options.limit) return order;
  options.waiting_share = 1;
  Schedule within = zb_v_heuristic(placed, options);
  const Length length = length_of(within, options), theirs = length_of(order, options);
  return length[0] <= theirs[0] && length[1] <= theirs[1] ? within : order;
}

Schedule make_v(const VSchedule& kind, const PipelineSizes& sizes, const GeneratorOptions& options) {
  const Schedule placed = empty_v_schedule(kind.name, sizes);
  OrderOptions filled = full_times({.forward = options.forward / 2,
                                    .input_gradient = options.input_gradient / 2,
                                    .weight_gradient = options.weight_gradient / 2,
                                    .hop = options.hop,
                                    .split_backward = kind.split_backward});
  Schedule published = kind.published(placed, filled);
  filled.limit = largest_peak(published);
  FillSearch search(filled);
  search.begin_with(published);
  search.try_order(without_weights(std::move(published)));
  if (kind.tries_blocks) search.try_orders(v_pattern_orders(placed, filled.limit, kind.split_backward));
  return search.best();
}

Generator v_generator(const VSchedule& kind) {
  auto make = [kind](const PipelineSizes& sizes, const GeneratorOptions& options) {
    return make_v(kind, sizes, options);
  };
  return {.name = kind.name, .default_chunks = 2, .max_chunks = 2, .make = make};
}

}  // namespace

// Other blocks find nothing better than ZB-V, whose ranks are hardly ever idle.
Generator zb_v() { return v_generator({.name = "zb_v", .published = zb_v_order, .tries_blocks = false}); }
Generator v_half() { return v_generator({.name = "v_half", .published = v_half_order}); }
Generator v_min() { return v_generator({.name = "v_min", .published = v_min_order}); }
Generator v_one_f_one_b() {
  return v_generator({.name = "v_1f1b", .published = v_one_f_one_b_order, .split_backward = false});
}

}  // namespace gantry::schedule
