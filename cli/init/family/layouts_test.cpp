// Tests that a step in several layouts has the results of one rank.
// Usage: layouts_test CONFIG.yaml [KEY=VALUE...]
#include <gantry/booster/gantry.h>

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](gantry::Config config) {
    config = gantry::resolve_model(std::move(config));
    const auto batch = gantry::build_loader(config)->next().tensors;
    const auto comparisons =
        gantry::compare_layouts(config, [&] { return gantry::build_model(config); }, batch,
                                {"parallel.tensor=2,parallel.pipeline=1", "parallel.tensor=1,parallel.pipeline=2",
                                 "parallel.tensor=2,parallel.pipeline=2,parallel.sequence_parallel=true"});
    return gantry::print_comparisons(comparisons);
  });
}
