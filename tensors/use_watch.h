// Tells somebody before an operation uses memory that may be away: that of a module's parameters, which are unsharded
// for as long as they are computed with. LibTorch's modules have no hooks around their forwards, and a backward has no
// module; but whatever computes with a parameter, or with a view of it that autograd has saved, is dispatched.
//
// How: a watched tensor has the dispatcher's DeferredInit key, which its views inherit, and the fallback of that key
// (deferred_init.cpp) asks here. Code that reads the memory by pointer is not noticed.
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
  // An operation that runs next on this thread reads or writes the memories of these numbers; ascending, each once.
  virtual void before_use(const std::vector<int>& memories) = 0;
};

// A watched memory, for as long as this is there.
class WatchedMemory {
 public:
  // `over`: any tensor over the memory. `number`: what the watch knows it by.
  WatchedMemory(const torch::Tensor& over, std::weak_ptr<UseWatch> watch, int number);
  ~WatchedMemory();
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

 private:
  const c10::StorageImpl* storage_;
};

// A memory that is one rank's part of something: operations that take its norm throw UsageError with this text, for as
// long as this is there. It keeps no memory.
class PartialMemory {
 public:
  // `tensor`: over all of the memory; views of it have norms refused too.
  PartialMemory(const torch::Tensor& tensor, std::string error);
  ~PartialMemory();
  PartialMemory(const PartialMemory&) = delete;
  PartialMemory& operator=(const PartialMemory&) = delete;

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;  // no other memory gets its address meanwhile
};

// Has uses of the tensor, and of views that are made of it from now on, noticed.
void notice_uses(const torch::Tensor& tensor);
bool notices_uses(const torch::Tensor& tensor);

// For the fallback: refuses norms of partial memories; tells the watches of what the call uses; and has uses of what it
// returned noticed, where that is a view of a watched memory: not every device's views inherit keys.
void tell_watches(const torch::jit::Stack& stack, std::size_t arguments);
void refuse_partial_norms(const std::string& operation, const torch::jit::Stack& stack, std::size_t arguments);
void notice_views(const torch::jit::Stack& stack, std::size_t returns);

}  // namespace gantry
