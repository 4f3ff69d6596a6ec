// Notifies a UseWatch before an operation uses memory that may be released: that of parameters that are
// unsharded only during their use. LibTorch's modules have no hooks around their forwards, and a backward has
// no module. But every operation on a parameter, or on a view of it that autograd has saved, passes through
// the dispatcher.
//
// Implementation: a watched tensor has the dispatch key DeferredInit, which its views inherit. The fallback
// of this key (deferred_init.cpp) calls the functions at the end of this header. Accesses through a raw
// pointer are not detected.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "gantry/tensors/tensor.h"

namespace gantry {

class UseWatch {
 public:
  virtual ~UseWatch() = default;
  // Called before an operation on this thread reads or writes the memories with these numbers (ascending,
  // each once).
  virtual void before_use(const std::vector<int>& memories) = 0;
};

// Watches a memory during the lifetime of the object.
class WatchedMemory {
 public:
  // `over`: any tensor over the memory. `number`: identifies the memory in UseWatch::before_use().
  WatchedMemory(const torch::Tensor& over, std::weak_ptr<UseWatch> watch, int number);
  ~WatchedMemory();
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

 private:
  const c10::StorageImpl* storage_;
};

// Marks a memory that holds one rank's part of a tensor: during the lifetime of the object, operations that
// compute its norm throw UsageError with the text `error`. It does not keep the memory alive.
class PartialMemory {
 public:
  // `tensor`: over all of the memory. Norms of its views are rejected too.
  PartialMemory(const torch::Tensor& tensor, std::string error);
  ~PartialMemory();
  PartialMemory(const PartialMemory&) = delete;
  PartialMemory& operator=(const PartialMemory&) = delete;

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;  // keeps the address from being used again
};

// Enables notifications for uses of the tensor, and of views that are created from now on.
void notice_uses(const torch::Tensor& tensor);
bool notices_uses(const torch::Tensor& tensor);

// For the fallback of the dispatch key. They notify the watches of the memories that a call uses, reject
// norms of partial memories, and enable notifications for results that are views of a watched memory. The
// last one is needed because views do not inherit keys on every device.
void tell_watches(const torch::jit::Stack& stack, std::size_t arguments);
void refuse_partial_norms(const std::string& operation, const torch::jit::Stack& stack, std::size_t arguments);
void notice_views(const torch::jit::Stack& stack, std::size_t returns);

}  // namespace gantry
