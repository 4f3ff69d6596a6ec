// The common state of a rank's operations on the shared device: its events, and the memory and events of
// other ranks that it has opened.
//
// Order on the device: each stream on which operations are called has one shared event, which is recorded
// after their work. Its handle is sent to the other ranks over MPI, and their streams wait for the event. So
// a stream only waits for work that was issued to another stream before, and no two streams can wait for each
// other. If an event was recorded again meanwhile, the streams wait for more work of the same stream, which
// is also correct.
//
// Guarded by the engine's mutex: operations call non-const functions only in advance(). `sends_` has its own
// mutex.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/comm/processes/process_operation.h"
#include "gantry/comm/shared_device/device_sharing.h"

namespace gantry {

// A signal, as it is sent to another rank: the present work of the sender's stream is complete.
struct SharedSignal {
  SharedHandle event = {};
  std::int64_t number = 0;  // number of the event among the events of its rank
};

class SharedDeviceJob {
 public:
  SharedDeviceJob(std::shared_ptr<ProcessEngine> engine, DeviceSharing& sharing);
  ~SharedDeviceJob();
  SharedDeviceJob(const SharedDeviceJob&) = delete;
  SharedDeviceJob& operator=(const SharedDeviceJob&) = delete;

  const std::shared_ptr<ProcessEngine>& engine() const { return engine_; }
  torch::Device device() const { return device_; }
  c10::Stream current_stream() const { return guard_.getStream(device_); }  // current in the calling thread
  // True for tensors on the device, false for tensors on the host. Throws UsageError for any other device.
  bool holds(const torch::Device& device, const char* call) const;
  // Prevents the reuse of the memory after it is freed, until `stream` has completed its present work.
  void record_use(const c10::Storage& storage, const c10::Stream& stream) const;
  // The host waits until the device has completed all work of this process.
  void synchronize() const { guard_.synchronizeDevice(device_.index()); }

  // Keeps a send in flight, for which no caller can wait.
  void keep(std::shared_ptr<ProcessOperation> send);
  void await_sends();
  // Waits until the device has completed all work of this process, and closes everything that was opened of
  // other ranks. No operation may follow.
  void let_go();

  // Returns the location of memory of this process.
  SharedPlace find_place(const void* memory) { return memory ? sharing_.find_place(memory) : SharedPlace{}; }
  // Returns the address of a location of world rank `rank` for kernels of this process. Throws ResourceError
  // if the memory cannot be opened.
  char* reach(int rank, const SharedPlace& place);
  SharedSignal signal(const c10::Stream& stream);
  // Makes later work on `stream` wait for the work of that rank that precedes its signal.
  void follow(const c10::Stream& stream, int rank, const SharedSignal& signal);

  // Returns a tensor over such memory, which must outlive all use of the tensor.
  torch::Tensor at(char* memory, std::int64_t elements, torch::ScalarType type) const;

 private:
  struct OwnEvent {
    std::int64_t number;
    std::unique_ptr<SharedEvent> event;
  };
  struct Opened {
    SharedHandle allocation;
    char* memory;
  };

  const std::shared_ptr<ProcessEngine> engine_;
  DeviceSharing& sharing_;
  const torch::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  std::map<c10::StreamId, OwnEvent> events_;
  std::map<std::pair<int, std::int64_t>, std::unique_ptr<SharedEvent>> opened_events_;  // by rank and number
  std::map<std::pair<int, std::uint64_t>, Opened> opened_;  // by rank and the address in its process
  std::mutex sends_mutex_;                                  // guards the next member
  std::deque<std::shared_ptr<ProcessOperation>> sends_;
};

}  // namespace gantry
