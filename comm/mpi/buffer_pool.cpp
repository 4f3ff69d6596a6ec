#include "gantry/comm/mpi/buffer_pool.h"

#include <cstdlib>
#include <new>

#include "gantry/comm/mpi/host_memory.h"

namespace gantry {
namespace {

// Below this the allocator is as good and a plain tensor is cheaper to make.
constexpr std::size_t kLeastPooledTensor = std::size_t{64} << 10;

}  // namespace

BufferPool& BufferPool::instance() {
  static auto* pool = new BufferPool;
  return *pool;
}

std::shared_ptr<char> BufferPool::take(std::size_t bytes) {
  const std::size_t wanted =
      static_cast<std::size_t>(whole_pages(std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 1)));
  char* memory = nullptr;
  std::size_t capacity = wanted;
  {
    const std::lock_guard lock(mutex_);
    const auto found = idle_.lower_bound(wanted);
    if (found != idle_.end() && found->first <= 2 * wanted) {  // not a far larger one: others need it
      capacity = found->first;
      memory = found->second;
      idle_bytes_ -= capacity;
      idle_.erase(found);
    }
  }
  if (!memory) memory = static_cast<char*>(std::aligned_alloc(kPageBytes, capacity));
  if (!memory) throw std::bad_alloc();
  return {memory, [this, capacity](char* back) { give_back(back, capacity); }};
}

void BufferPool::give_back(char* memory, std::size_t capacity) {
  {
    const std::lock_guard lock(mutex_);
    if (idle_bytes_ + capacity <= kMostIdleBytes) {
      idle_.emplace(capacity, memory);
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
  auto memory = take(bytes);
  char* data = memory.get();
  return torch::from_blob(
      data, shape, [memory = std::move(memory)](void*) mutable { memory.reset(); },
      torch::TensorOptions().dtype(dtype));
}

std::size_t BufferPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

}  // namespace gantry
