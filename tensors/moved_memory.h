// Memory of tensors that waits outside of the device while nobody needs it: in pinned memory of the host, and of the
// CPU's own tensors in a file mapped from disk. The tensors stay the same, and what shares memory goes on sharing it;
// using one while it is away throws. Copies run beside what is computed: on a stream of their own, on the CPU on a
// thread.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Storage.h>

#include "gantry/core/io/scratch_file.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// The rooms where memory waits, used again from step to step. For one thread at a time.
class OffloadBufferPool {
 public:
  explicit OffloadBufferPool(torch::Device device);

  struct OffloadBuffer {
    std::unique_ptr<ScratchFile> file;  // for the CPU
    torch::Tensor pinned;               // for a device
    std::int64_t size = 0;
  };
  OffloadBuffer take(std::int64_t bytes);
  void give_back(OffloadBuffer room);

  torch::Device device() const { return device_; }
  const std::optional<c10::Stream>& stream() const { return stream_; }  // absent for the CPU

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;
  std::vector<OffloadBuffer> free_;
};

class MovedMemory {
 public:
  // All on the rooms' device, each once. The rooms are not owned.
  MovedMemory(OffloadBufferPool& rooms, std::vector<c10::Storage> storages);
  ~MovedMemory();
  MovedMemory(const MovedMemory&) = delete;
  MovedMemory& operator=(const MovedMemory&) = delete;

  std::int64_t bytes() const { return bytes_; }
  // Begins to move it. Nothing may be using it but what the current stream was given before.
  void start_out();
  // Begins to bring it back.
  void start_in();
  // After start_in(): it is there, for what the current stream is given from now on.
  void wait();

 private:
  struct Part {
    c10::Storage storage;
    std::size_t bytes, offset;
  };

  void copy_out_of_cpu();
  void copy_into_cpu();
  void copy_out_of_device();
  void copy_into_device();
  torch::Tensor on_device(const Part& part) const;
  torch::Tensor in_room(const Part& part) const;
  void release(const Part& part) const;
  void allocate(const Part& part) const;

  OffloadBufferPool& rooms_;
  std::vector<Part> parts_;
  std::int64_t bytes_ = 0;
  OffloadBufferPool::OffloadBuffer room_;
  bool is_out_ = false, is_coming_ = false;
  std::future<void> copying_;  // on the CPU
  std::optional<c10::Event> arrived_;
};

}  // namespace gantry
