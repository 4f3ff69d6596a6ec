// Runs a schedule's actions for host memory (schedule/offload_actions.h): moves the optimizer state of a
// stage, and the tensors that a forward saves for its backward, to host memory and back.
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
  // `stages`: the stages of this rank. The optimizer is not owned.
  StepOffload(schedule::Offload what, BoostedOptimizer& optimizer, std::vector<int> stages, torch::Device device);

  const schedule::Offload& what() const { return what_; }

  // Returns the list to which a forward adds the tensors that it saves; null if activations stay on the
  // device.
  std::shared_ptr<SavedTensors> begin_forward(int stage, int microbatch);
  // OFFLOAD and RELOAD.
  void run(const schedule::Action& action);
  // Called before the backward: waits until the tensors that its forward has saved are back.
  void wait(int stage, int microbatch);
  // Called after the row: waits until everything is back.
  void finish();
  // Called after an exception: brings everything back as far as possible.
  void give_up() noexcept;

 private:
  using Key = std::pair<int, int>;  // stage and microbatch; kNoMicrobatch: the state of the stage

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
