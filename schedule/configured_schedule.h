// The schedules of a run according to the configuration: from a generator or from a file.
#pragma once

#include <optional>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/schedule/layer_work.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"

namespace gantry {

class ScheduleSource {
 public:
  // Throws ConfigError if the schedule is not defined for these sizes, if a file is not for `pipeline` ranks, or if its
  // microbatches contradict the configuration.
  ScheduleSource(const ScheduleOptions& config, int pipeline);

  const std::vector<std::vector<int>>& stages_of_rank() const { return stages_of_rank_; }

  // The number of microbatches for the samples of one replica. They are as even as possible, and each has at least one
  // sample.
  int microbatches(int stages, std::int64_t replica_samples) const;

  // Returns the compute actions of a step with `microbatches` microbatches. If a short batch has fewer than a file, the
  // last ones of the file are omitted.
  schedule::Schedule make(int microbatches) const;

  // share_vocabulary(): from now on, all ranks compute embedding and head (parallel.vocabulary: pipeline), for a model
  // with these costs. gains_by_vocabulary(): whether this makes a step of many microbatches shorter, with these layers
  // per stage.
  void share_vocabulary(const LayerWork& work);
  bool gains_by_vocabulary(const LayerWork& work, const std::vector<int>& layers_of_stage) const;

 private:
  schedule::Schedule make_stages(int microbatches) const;

  // Costs in units in which the layers of a rank cost 3 (F + I + W); not set: stages compute embedding and head.
  std::optional<schedule::VocabularyCosts> vocabulary_;
  ScheduleOptions config_;
  int pipeline_;
  std::optional<schedule::Schedule> file_;
  std::vector<std::vector<int>> stages_of_rank_;
};

}  // namespace gantry
