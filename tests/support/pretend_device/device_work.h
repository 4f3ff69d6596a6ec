// Functions shared by the sources of the pretended device: kernel launches and counters.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <c10/core/StorageImpl.h>

#include "pretend_device.h"

namespace gantry::testing {

// Launches a kernel on the calling thread's current stream of the device, at once or late (KernelTiming).
void launch_kernel(int device, const std::string& what, const std::vector<Access>& accesses,
                   std::function<void()> kernel);
// Runs a kernel at once with either timing: the host waits for the stream and then runs the kernel itself.
void run_and_wait(int device, const std::string& what, const std::vector<Access>& accesses,
                  const std::function<void()>& kernel);

// Blocks until the stream has completed its pending work. DeviceCounts does not count this wait.
void host_waits_for(PretendStream& stream);

void count(int device, const std::function<void(DeviceCounts&)>& change);

// Resizes a storage of a device. Keeps the contents up to the smaller size.
void resize_storage(c10::StorageImpl& storage, std::size_t bytes);

}  // namespace gantry::testing
