// Allocates objects that are created and destroyed repeatedly (one for each message or operation) without the general
// allocator.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gantry {

// Blocks of one size, the size of the first request. Shared between threads, because the last handle of an object may
// be dropped on any thread; guarded by its mutex.
class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() {
    for (void* block : free_) ::operator delete(block);
  }
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes != bytes_ || free_.empty()) {
      if (bytes_ == 0) bytes_ = bytes;
      return ::operator new(bytes);
    }
    void* block = free_.back();
    free_.pop_back();
    return block;
  }
  void give(void* block, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes == bytes_)
      free_.push_back(block);
    else
      ::operator delete(block);
  }

 private:
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::vector<void*> free_;
};

template <class T>
struct PoolAllocator {
  using value_type = T;
  explicit PoolAllocator(std::shared_ptr<BlockPool> pool) : pool(std::move(pool)) {}
  template <class U>
  PoolAllocator(const PoolAllocator<U>& other) : pool(other.pool) {}
  T* allocate(std::size_t n) { return static_cast<T*>(pool->take(n * sizeof(T))); }
  void deallocate(T* block, std::size_t n) { pool->give(block, n * sizeof(T)); }
  template <class U>
  bool operator==(const PoolAllocator<U>& other) const {
    return pool == other.pool;
  }
  std::shared_ptr<BlockPool> pool;
};

// Creates an object in the memory of a pool that is shared by all objects of the type. The memory returns to the pool
// with the last handle.
template <class T, class... Arguments>
std::shared_ptr<T> make_pooled(const std::shared_ptr<BlockPool>& pool, Arguments&&... arguments) {
  return std::allocate_shared<T>(PoolAllocator<T>(pool), std::forward<Arguments>(arguments)...);
}

}  // namespace gantry
