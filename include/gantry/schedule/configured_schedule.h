// The schedules of a run, as the configuration names them: by a generator or from a file.
#pragma once

#include <optional>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/layer_work.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"

namespace gantry {

class ScheduleSource {
 public:
  // ConfigError for a schedule that is not defined for these sizes, a file that is not for `pipeline` ranks, or one
  // whose microbatches the configuration contradicts.
  ScheduleSource(const ScheduleConfig& config, int pipeline);

  const std::vector<std::vector<int>>& stages_of_rank() const { return stages_of_rank_; }

  // How the samples of one replica become microbatches: as even as possible, each at least one sample.
  int microbatches(int stages, std::int64_t replica_samples) const;

  // The compute actions of a step of so many microbatches. A file's last microbatches are left out where a short batch
  // has fewer.
  schedule::Schedule make(int microbatches) const;

  // From now on all ranks compute embedding and head, as parallel.vocabulary: pipeline says, of a model whose layers
  // and head weigh so. And whether a step of many microbatches with these layers a stage is then shorter.
  void share_vocabulary(const LayerWork& work);
  bool gains_by_vocabulary(const LayerWork& work, const std::vector<int>& layers_of_stage) const;

 private:
  schedule::Schedule make_stages(int microbatches) const;

  std::optional<schedule::VocabularyCosts> vocabulary_;  // of a rank that takes 3 for its layers; absent: stages'
  ScheduleConfig config_;
  int pipeline_;
  std::optional<schedule::Schedule> file_;
  std::vector<std::vector<int>> stages_of_rank_;
};

}  // namespace gantry
