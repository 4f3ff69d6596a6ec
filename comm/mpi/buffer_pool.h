// Memory for what arrives, kept between uses: in steady state nothing is allocated and no page is touched for the first
// time.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/torch.h>

namespace gantry {

class BufferPool {
 public:
  // Of the process; never destroyed, since tensors give their memory back at any time.
  static BufferPool& instance();

  // At least `bytes`, aligned for vector loads; goes back when the last handle is dropped. Any thread may do either.
  std::shared_ptr<char> take(std::size_t bytes);
  // A tensor on such memory.
  torch::Tensor tensor(at::IntArrayRef shape, torch::ScalarType dtype);

  std::size_t idle_bytes() const;

 private:
  void give_back(char* memory, std::size_t capacity);

  static constexpr std::size_t kMostIdleBytes = std::size_t{256} << 20;  // what is beyond is freed
  mutable std::mutex mutex_;
  std::multimap<std::size_t, char*> idle_;  // by capacity; guarded by mutex_, as is the sum below
  std::size_t idle_bytes_ = 0;
};

}  // namespace gantry
