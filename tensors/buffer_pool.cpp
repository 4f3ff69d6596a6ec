#include "gantry/tensors/buffer_pool.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// For smaller tensors the allocator is as fast, and an ordinary tensor is cheaper to create.
constexpr std::size_t kLeastPooledTensor = std::size_t{64} << 10;

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kUsualIdle = 1024;

}  // namespace

void PooledMemory::give_back() {
  if (data_) BufferPool::instance().give_back(std::exchange(data_, nullptr), capacity_);
}

BufferPool& BufferPool::instance() {
  static auto* pool = [] {
    auto* made = new BufferPool;
    made->idle_.reserve(kUsualIdle);
    return made;
  }();
  return *pool;
}

PooledMemory BufferPool::take(std::size_t bytes) {
  const std::size_t wanted = (std::max<std::size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
  char* memory = nullptr;
  std::size_t capacity = wanted;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::lower_bound(idle_.begin(), idle_.end(), wanted,
                                        [](const Idle& one, std::size_t bytes) { return one.capacity < bytes; });
    if (found != idle_.end() && found->capacity <= 2 * wanted) {  // larger requests need the others
      capacity = found->capacity;
      memory = found->data;
      idle_bytes_ -= capacity;
      idle_.erase(found);
    }
  }
  if (!memory) memory = static_cast<char*>(std::aligned_alloc(kPageBytes, capacity));
  if (!memory) throw std::bad_alloc();
  return {memory, capacity};
}

void BufferPool::give_back(char* memory, std::size_t capacity) {
  {
    const std::lock_guard lock(mutex_);
    if (idle_bytes_ + capacity <= kMostIdleBytes) {
      const auto behind = std::upper_bound(idle_.begin(), idle_.end(), capacity,
                                           [](std::size_t bytes, const Idle& one) { return bytes < one.capacity; });
      idle_.insert(behind, {capacity, memory});
      idle_bytes_ += capacity;
      return;
    }
  }
  std::free(memory);
}

torch::Tensor BufferPool::tensor(at::IntArrayRef shape, torch::ScalarType dtype) {
  std::size_t bytes = c10::elementSize(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  if (bytes < kLeastPooledTensor) return torch::empty(shape, dtype);
  PooledMemory memory = take(bytes);
  const std::size_t capacity = memory.capacity_;
  char* const data = std::exchange(memory.data_, nullptr);
  return torch::from_blob(
      data, shape, [this, capacity](void* back) { give_back(static_cast<char*>(back), capacity); },
      torch::TensorOptions().dtype(dtype));
}

std::size_t BufferPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

}  // namespace gantry
