#include <algorithm>
#include <fmt/format.h>

#include "gantry/booster/measure_cluster.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/cli/progress_bar.h"
#include "gantry/core/error.h"
#include "gantry/core/host/usable_cores.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/output.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/launch.h"

namespace gantry::cli {
namespace {

constexpr int kMostThreadRanks = 8;

// Returns the measured cluster, on every rank. Rank 0 shows the progress.
planner::Cluster measure(World& world) {
  ProgressBar bar("measuring");
  return measure_cluster(world, [&](int done, int all) {
    if (world.is_main()) bar.show_steps(done, all);
  });
}

}  // namespace

int run_plan_measure(const PlanMeasureArguments& arguments) {
  Config config;
  if (!under_launcher()) config.parallel.data = arguments.ranks.value_or(std::min(usable_cores(), kMostThreadRanks));
  if (under_launcher() && arguments.ranks)
    throw UsageError(
        {"--ranks",
         fmt::format("the value {} has no effect, because a launcher has started the ranks", *arguments.ranks),
         "no --ranks", "set the number of ranks in the launcher"});
  return launch(config, [&](World& world) {
    const planner::Cluster cluster = measure(world);
    if (!world.is_main()) return;
    const std::string text = fmt::format("# gantry plan measure: {} ranks over {}\n{}", world.size(),
                                         world.backend().name(), planner::to_yaml(cluster));
    if (arguments.output.empty()) return print_output(text);
    write_text_durably(arguments.output, text);
    print_output(fmt::format("cluster: {}\n", arguments.output));
  });
}

}  // namespace gantry::cli
