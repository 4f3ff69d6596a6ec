// A pool of memory for received data. Memory is reused, so in steady state nothing is allocated and no page
// is touched for the first time.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry {

// Memory from the pool. The destructor returns it.
class PooledMemory {
 public:
  PooledMemory() = default;  // no memory
  PooledMemory(PooledMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), capacity_(other.capacity_) {}
  PooledMemory& operator=(PooledMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
    other.give_back();
    return *this;
  }
  ~PooledMemory() { give_back(); }
  char* get() const { return data_; }

 private:
  friend class BufferPool;
  PooledMemory(char* data, std::size_t capacity) : data_(data), capacity_(capacity) {}
  void give_back();

  char* data_ = nullptr;
  std::size_t capacity_ = 0;
};

class BufferPool {
 public:
  // The pool of the process. Never destroyed, because tensors can return their memory at any time.
  static BufferPool& instance();

  // Returns at least `bytes`, aligned for vector loads. Any thread may take memory or return it.
  PooledMemory take(std::size_t bytes);
  // Returns an uninitialized tensor in memory of the pool. Small tensors use LibTorch's allocator.
  torch::Tensor tensor(at::IntArrayRef shape, torch::ScalarType dtype);

  std::size_t idle_bytes() const;

 private:
  friend class PooledMemory;
  struct Idle {
    std::size_t capacity;
    char* data;
  };
  void give_back(char* memory, std::size_t capacity);

  static constexpr std::size_t kMostIdleBytes = std::size_t{256} << 20;  // more idle memory is freed
  mutable std::mutex mutex_;
  std::vector<Idle> idle_;  // smallest first; mutex_ guards it and the sum below
  std::size_t idle_bytes_ = 0;
};

}  // namespace gantry
