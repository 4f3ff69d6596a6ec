// What the parts of the pretended device share: putting kernels on streams, and counting.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <c10/core/StorageImpl.h>

#include "pretend_device.h"

namespace gantry::testing {

// A kernel on this thread's current stream of the device: at once, or late.
void launch_kernel(int device, const std::string& what, const std::vector<Access>& accesses,
                   std::function<void()> kernel);
// The same at once in both timings: the host waits for the stream before it, and has seen it afterwards.
void run_and_wait(int device, const std::string& what, const std::vector<Access>& accesses,
                  const std::function<void()>& kernel);

// The host waits until the stream has done what it was given; not counted.
void host_waits_for(PretendStream& stream);

void count(int device, const std::function<void(DeviceCounts&)>& change);

// Gives a storage of a device another size; what fits stays.
void resize_storage(c10::StorageImpl& storage, std::size_t bytes);

}  // namespace gantry::testing
