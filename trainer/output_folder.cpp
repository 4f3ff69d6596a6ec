#include "gantry/trainer/output_folder.h"

#include <fmt/format.h>

#include "gantry/checkpoint/disk_work.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/trainer/report/earlier_run.h"

namespace gantry {
namespace {

struct EarlierRun {
  std::string kept_as;           // the path of its metrics, or ""
  bool owes_evaluation = false;  // the last completed step was not evaluated
};

EarlierRun make_output(const Config& config, std::int64_t done) {
  make_folders(config.output);
  EarlierRun earlier;
  if (done == 0) {
    earlier.kept_as = keep_earlier_run(config.output);
  } else {
    const KeptMetrics kept = keep_metrics_until(config.output, done);
    earlier = {kept.kept_as, kept.owes_evaluation};
  }
  write_text_durably(config.output + "/config.yaml", config.to_yaml());
  return earlier;
}

}  // namespace

bool open_output(const Config& config, std::int64_t done, const ProcessGroupMesh& mesh) {
  if (config.output.empty()) return false;
  EarlierRun earlier;
  const DiskProgress progress;
  ProcessGroup& world = mesh.world_group();
  work_on_disk(world, disk_limits(config.comm.timeout_seconds), progress, [&] {
    if (world.rank() == 0) earlier = make_output(config, done);
  });
  if (!earlier.kept_as.empty())
    fmt::print("{}: kept as {}\n", done > 0 ? "metrics of steps that are trained again" : "metrics of an earlier run",
               earlier.kept_as);
  return all_reduce_number(world, earlier.owes_evaluation ? 1 : 0) > 0;
}

}  // namespace gantry
