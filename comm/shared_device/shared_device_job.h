// What a rank's operations on the shared device have in common: its events, and what it has opened of others.
//
// Order on the device. Each stream that operations are called on has one shared event, which is recorded after what
// they have put there; its handle goes to the others over MPI, and their streams wait for the event. So a stream only
// ever waits for what was given to another one before, and no streams can wait for each other. An event that was
// recorded again meanwhile makes them wait for more of the same stream, which is right too.
//
// Guarded by the engine's mutex: operations call what is not const within advance() alone. `sends_` has a mutex of its
// own.
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

// That what the sender's stream held is there; as it goes to another rank.
struct SharedSignal {
  SharedHandle event = {};
  std::int64_t number = 0;  // of the event among its rank's
};

class SharedDeviceJob {
 public:
  SharedDeviceJob(std::shared_ptr<ProcessEngine> engine, DeviceSharing& sharing);
  ~SharedDeviceJob();
  SharedDeviceJob(const SharedDeviceJob&) = delete;
  SharedDeviceJob& operator=(const SharedDeviceJob&) = delete;

  const std::shared_ptr<ProcessEngine>& engine() const { return engine_; }
  torch::Device device() const { return device_; }
  c10::Stream current_stream() const { return guard_.getStream(device_); }  // of this thread
  // True of tensors on the device; false of the host's. UsageError for any other device.
  bool holds(const torch::Device& device, const char* call) const;
  // Keeps memory that is freed from being used anew until `stream` has done what it holds by then.
  void record_use(const c10::Storage& storage, const c10::Stream& stream) const;
  // The host waits for all that the device was given by this process.
  void synchronize() const { guard_.synchronizeDevice(device_.index()); }

  // A send under way, which nobody else may wait for.
  void keep(std::shared_ptr<ProcessOperation> send);
  void await_sends();
  // When the device has done all that this process gave it, what was opened of others is closed. No operation follows.
  void let_go();

  // Of memory of this process.
  SharedPlace find_place(const void* memory) { return memory ? sharing_.find_place(memory) : SharedPlace{}; }
  // Where world rank `rank` has that, for kernels of this process. ResourceError where it can't be opened.
  char* reach(int rank, const SharedPlace& place);
  SharedSignal signal(const c10::Stream& stream);
  // What `stream` is given from now on comes after what rank's signal is behind.
  void follow(const c10::Stream& stream, int rank, const SharedSignal& signal);

  // A tensor over such memory, which must outlive what is done with it.
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
  std::map<std::pair<int, std::uint64_t>, Opened> opened_;                              // by rank and its address there
  std::mutex sends_mutex_;                                                              // guards the next
  std::deque<std::shared_ptr<ProcessOperation>> sends_;
};

}  // namespace gantry
