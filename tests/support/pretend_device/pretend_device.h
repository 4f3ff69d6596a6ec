// Fake devices for machines without accelerators: LibTorch's PrivateUse1 with memory that the host cannot
// access (device_memory.h), race detection between streams (race_checker.h), and counters of kernels, copies
// and waits.
//
// Operators run the CPU kernels on the device's memory, without copies, so the values are those of the CPU.
// Like in CUDA, an operator throws if its tensors are on two devices, or if a tensor on the host is not a
// scalar. A process has kPretendDevices devices. Autograd has one thread per device index, so each rank
// thread needs a device of its own and has to set it (c10::DeviceGuard).
//
// A program that links this library has the devices from its start. A test fails if its kernels raced.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "device_memory.h"
#include "device_stream.h"
#include "race_checker.h"

namespace gantry::testing {

inline constexpr c10::DeviceType kPretendType = c10::DeviceType::PrivateUse1;
inline c10::Device pretend_device(int index) { return {kPretendType, static_cast<c10::DeviceIndex>(index)}; }

// Operations of a device since reset_device_counts().
struct DeviceCounts {
  std::int64_t kernels = 0;          // kernels that the host has launched, without those of replays
  std::int64_t replays = 0;          // replays of graphs
  std::int64_t host_reads = 0;       // waits of the host for values or streams of the device
  std::int64_t copies_to_host = 0;   // tensors copied to the host
  std::int64_t pageable_copies = 0;  // tensors (no scalars) copied from host memory that is not pinned
  std::int64_t bytes_to_device = 0, bytes_to_host = 0;
};
// Synchronisation faults to inject, for tests that they are detected.
struct DeviceFaults {
  int drops_wait = 0;          // N > 0: every N-th wait of a stream for an event is omitted
  bool drops_records = false;  // recordDataPtrOnStream() has no effect
};
void set_device_faults(const DeviceFaults& faults);

// Sets the number of bytes that can be allocated on each device. The initial value is kDeviceBytes.
void set_device_limit(std::size_t bytes);

DeviceCounts device_counts(int device);
void reset_device_counts();

}  // namespace gantry::testing
