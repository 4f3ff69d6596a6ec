// What autograd saves for backwards while a scope is open, so that it can be moved out of the way.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Storage.h>
#include <c10/core/UndefinedTensorImpl.h>

#include "gantry/tensors/tensor.h"

namespace gantry {

class SavedTensors {
 public:
  // Their memory, each once, of at least `least` bytes: as far as nothing but autograd holds it. What a model, another
  // microbatch or a message has too stays.
  std::vector<c10::Storage> held_by_autograd_alone(std::size_t least) const;

 private:
  friend class SavedTensorsHook;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> saved_;
};

// Notes what the forwards of this thread save, for its lifetime. `saved` may be null: nothing is noted.
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
