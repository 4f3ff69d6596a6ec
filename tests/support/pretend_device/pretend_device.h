// A device that this machine does not have: LibTorch's PrivateUse1 with memory that the host can't touch
// (device_memory.h), streams that are watched for races (race_checker.h), and counts of what waits for the device.
//
// Operators run by the CPU's kernels on the device's memory, without copies, so numbers are the CPU's. What CUDA
// refuses is refused: tensors of two devices, or a tensor of the host's that is no scalar, in one operator. There are
// kPretendDevices of them in one process. Autograd has one thread a device index: rank threads each need one of their
// own, and set it (c10::DeviceGuard).
//
// A program that links this has the devices from its start. A test whose kernels raced fails by itself.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "device_memory.h"
#include "device_stream.h"
#include "race_checker.h"

namespace gantry::testing {

inline constexpr c10::DeviceType kPretendType = c10::DeviceType::PrivateUse1;
inline c10::Device pretend_device(int index) { return {kPretendType, static_cast<c10::DeviceIndex>(index)}; }

// What a device was asked to do since reset_device_counts().
struct DeviceCounts {
  std::int64_t kernels = 0;          // that the host has put on a stream, each by itself
  std::int64_t replays = 0;          // of recordings
  std::int64_t host_reads = 0;       // the host waited for the device's numbers, or for its streams
  std::int64_t copies_to_host = 0;   // of them those that copy a tensor
  std::int64_t pageable_copies = 0;  // of tensors with a shape, from memory of the host's that is not pinned
  std::int64_t bytes_to_device = 0, bytes_to_host = 0;
};
// Faults of a program that the devices pretend, so that tests see them found.
struct DeviceFaults {
  int drops_wait = 0;          // every so many-th wait of a stream for an event is left out
  bool drops_records = false;  // who uses memory on other streams is not remembered
};
void set_device_faults(const DeviceFaults& faults);

// No more than so many bytes can be allocated of each device from now on; kDeviceBytes at first.
void set_device_limit(std::size_t bytes);

DeviceCounts device_counts(int device);
void reset_device_counts();

}  // namespace gantry::testing
