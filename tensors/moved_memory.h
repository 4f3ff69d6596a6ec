// Offloads the memory of tensors while it is not needed: from a device to pinned host memory, and from the
// CPU to a file mapped from disk. The tensor objects stay the same, and tensors that share memory continue to
// share it. Using a tensor while its memory is offloaded throws. Copies overlap with computation: they run on
// a separate stream, or for the CPU on a separate thread.
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

// The buffers for offloaded memory, which are reused from step to step. One thread at a time may use the
// pool.
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
  // `storages`: on the device of `rooms`, each listed once. `rooms` is not owned.
  MovedMemory(OffloadBufferPool& rooms, std::vector<c10::Storage> storages);
  ~MovedMemory();
  MovedMemory(const MovedMemory&) = delete;
  MovedMemory& operator=(const MovedMemory&) = delete;

  std::int64_t bytes() const { return bytes_; }
  // Starts to move the memory out. Only work that was already submitted to the current stream may still use
  // it.
  void start_out();
  // Starts to copy the memory back.
  void start_in();
  // Completes start_in(), and calls it if it has not been called: work that is submitted to the current stream from now
  // on may use the memory.
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
  std::future<void> copying_;  // for the CPU
  std::optional<c10::Event> arrived_;
};

}  // namespace gantry
