// Records the tensors that autograd saves for the backward, so that their memory can be offloaded.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Storage.h>
#include <c10/core/UndefinedTensorImpl.h>

#include "gantry/tensors/tensor.h"

namespace gantry {

class SavedTensors {
 public:
  // Returns the storages of at least `least` bytes that only autograd holds, each once. Storages that a
  // model, another microbatch or a message holds too are left out.
  std::vector<c10::Storage> held_by_autograd_alone(std::size_t least) const;

 private:
  friend class SavedTensorsHook;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> saved_;
};

// Records in `saved` the tensors that forwards of this thread save, during the lifetime of the object. If
// `saved` is null, nothing is recorded.
class SavedTensorsScope {
 public:
  explicit SavedTensorsScope(std::shared_ptr<SavedTensors> saved);
  ~SavedTensorsScope();
  SavedTensorsScope(const SavedTensorsScope&) = delete;
  SavedTensorsScope& operator=(const SavedTensorsScope&) = delete;

 private:
  std::shared_ptr<SavedTensors> former_;
};

}  // namespace gantry
