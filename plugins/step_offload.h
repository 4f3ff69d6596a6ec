// Runs what a schedule says of host memory (schedule/offload_actions.h): moves there what forwards keep for their
// backwards, and the optimizer's state of a stage, and brings it back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gantry/plugins/boosted.h"
#include "gantry/schedule/action.h"
#include "gantry/schedule/offload_actions.h"
#include "gantry/tensors/moved_memory.h"
#include "gantry/tensors/saved_tensors.h"

namespace gantry {

class StepOffload {
 public:
  // `stages`: those of this rank. The optimizer is not owned.
  StepOffload(schedule::Offload what, BoostedOptimizer& optimizer, std::vector<int> stages, torch::Device device);

  const schedule::Offload& what() const { return what_; }

  // Where a forward notes what it keeps; null where activations stay.
  std::shared_ptr<SavedTensors> begin_forward(int stage, int microbatch);
  // OFFLOAD and RELOAD.
  void run(const schedule::Action& action);
  // Before the backward: what its forward has kept is back.
  void wait(int stage, int microbatch);
  // After the row: all is back.
  void finish();
  // Where it threw: likewise, as far as that goes.
  void give_up() noexcept;

 private:
  using Key = std::pair<int, int>;  // stage and microbatch; kNoMicrobatch: the stage's state

  std::vector<c10::Storage> state_of(int stage) const;
  void move_out(const Key& key, std::vector<c10::Storage> storages);

  schedule::Offload what_;
  BoostedOptimizer& optimizer_;
  std::vector<int> stages_;
  OffloadBufferPool rooms_;
  std::map<Key, std::shared_ptr<SavedTensors>> saved_;
  std::map<Key, std::unique_ptr<MovedMemory>> moved_;
};

}  // namespace gantry
