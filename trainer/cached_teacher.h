// The teacher of a distillation with train.objective.top_k, whose log-probabilities are stored in a directory.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gantry/booster/booster.h"
#include "gantry/comm/world.h"
#include "gantry/data/dataset.h"
#include "gantry/plugins/objective_parts.h"
#include "gantry/trainer/teacher_cache.h"

namespace gantry {

class CachedTeacher {
 public:
  // Finds the stored log-probabilities of the run's samples in train.objective.teacher_cache, or loads the teacher,
  // computes and stores them. `logits`: those that the teacher keeps; empty afterwards, as the teacher is gone. Rank 0
  // writes, and every rank of the last stage reads the directory. Throws the errors of Teacher and TeacherCache, and
  // ConfigError if the vocabulary has fewer tokens than top_k. Collective over the world.
  CachedTeacher(const Config& config, World& world, Booster& booster, const Boosted& student,
                const std::shared_ptr<TeacherLogits>& logits);

  // Returns the batch with kTeacherTops: the numbers of its samples, which have kSampleNumbers; on ranks without the
  // last stage on the meta device.
  Batch prepare(Batch batch) const;

 private:
  std::int64_t tokens_ = 0, k_ = 0;
  torch::ScalarType type_;
  bool reads_;
  std::unique_ptr<TeacherCache> trained_, held_out_;  // null: not read by this rank, or no such samples
};

}  // namespace gantry
