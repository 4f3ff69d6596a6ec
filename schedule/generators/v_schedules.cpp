// The schedules with V placement of "Pipeline Parallelism with Controllable Memory" (Qi et al., arXiv 2405.15362): the
// first and the last stage are on one rank, so that activations live shortly where many are held. They differ in how
// many chunk activations a rank may hold: zb_v as many as 1F1B (2 p chunks), v_half about half, v_min about a third;
// v_1f1b is v_half without splitting the backward.
#include "gantry/schedule/generators/fill_search.h"
#include "gantry/schedule/generators/v_pattern.h"
#include "gantry/schedule/generators/v_placement.h"

namespace gantry::schedule {
namespace {

Generator v_generator(const std::string& name, int (*limit)(int ranks), bool split_backward) {
  auto make = [=](const PipelineSizes& sizes, const GeneratorOptions& options) {
    const Schedule placed = empty_v_schedule(name, sizes);
    const GreedyOptions filled{.forward = options.forward / 2,
                               .input_gradient = options.input_gradient / 2,
                               .weight_gradient = options.weight_gradient / 2,
                               .hop = options.hop,
                               .limit = limit(sizes.ranks),
                               .split_backward = split_backward};
    FillSearch search(filled);
    const Schedule greedy = make_greedy(placed, filled);
    search.try_finished(greedy);
    if (split_backward) {
      search.try_order(without_weights(greedy));
      search.try_order(v_zero_bubble_order(placed));
    }
    search.try_orders(v_pattern_orders(placed, filled.limit, split_backward));
    return search.best();
  };
  return {.name = name, .default_chunks = 2, .max_chunks = 2, .make = make};
}

int whole(int ranks) { return 2 * ranks; }
int half(int ranks) { return ranks + 2; }
int third(int ranks) { return ranks < 2 ? 2 : (2 * ranks + 2) / 3 + (ranks < 4 ? 2 : 1); }

}  // namespace

Generator zb_v() { return v_generator("zb_v", whole, true); }
Generator v_half() { return v_generator("v_half", half, true); }
Generator v_min() { return v_generator("v_min", third, true); }
Generator v_one_f_one_b() { return v_generator("v_1f1b", half, false); }

}  // namespace gantry::schedule
