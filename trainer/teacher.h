// The teacher of a run with distillation.
#pragma once

#include <memory>

#include "gantry/booster/booster.h"
#include "gantry/comm/world.h"
#include "gantry/plugins/objective_parts.h"
#include "gantry/trainer/teacher_layouts.h"

namespace gantry {

// A second model without an optimizer, in the layout of the run or in one of its own over the same ranks.
class Teacher {
 public:
  // Loads the model of train.objective.teacher. Throws ConfigError if it does not have the vocabulary of the student,
  // or does not fit train.objective.teacher_parallel. `world`, and `booster` of the student, are not owned. Collective
  // over the world. `is_temporary`: the teacher is released with this object. Else the student's plugin may keep it.
  Teacher(const Config& config, World& world, Booster& booster, const Boosted& student,
          std::shared_ptr<TeacherLogits> logits, bool is_temporary = false);

  // Computes the teacher's logits and hidden states of a batch, and returns the batch with the entry that finds them.
  // Collective over the world.
  Batch prepare(Batch batch);

 private:
  // A plugin of the teacher's own, with the student's layout or another one.
  struct OwnPlugin {
    OwnPlugin(World& base, const Config& teacher, Mesh mesh);
    World world;
    Booster booster;
  };

  Booster& booster() { return own_ ? own_->booster : student_; }
  Boosted boost(const Config& teacher, const ObjectiveConfig& objective);
  // Computes the outputs of a batch of the teacher's layout.
  void run(Batch& batch);

  Booster& student_;
  std::shared_ptr<TeacherLogits> logits_;  // in the student's layout
  std::unique_ptr<OwnPlugin> own_;         // null: the student's plugin
  // In the teacher's layout.
  std::shared_ptr<TeacherLogits> computed_ = std::make_shared<TeacherLogits>();
  Boosted boosted_;
  // Null: each rank has the parts that the student compares there. Two models in one layout may divide a sequence in
  // different ways over the ranks of cp, by their numbers of heads.
  std::unique_ptr<TeacherLayouts> layouts_;
};

}  // namespace gantry
