// The teacher of a run with distillation.
#pragma once

#include "gantry/booster/booster.h"
#include "gantry/plugins/objective_parts.h"

namespace gantry {

// A second model in the layout of the run, without an optimizer.
class Teacher {
 public:
  // Loads the model of train.objective.teacher. Throws ConfigError if it does not have the vocabulary of the student.
  // `booster` is not owned. Collective over the world.
  Teacher(const Config& config, Booster& booster, std::shared_ptr<TeacherLogits> logits);

  // Computes the teacher's logits of a batch, and returns the batch with the entry that finds them. Collective over the
  // world.
  Batch prepare(Batch batch);

 private:
  Booster& booster_;
  Boosted boosted_;
  std::shared_ptr<TeacherLogits> logits_;
};

}  // namespace gantry
