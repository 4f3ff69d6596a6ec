// The caching allocator of the pretended devices. Like CUDA's, it follows the order of streams: a freed block
// can be reused at once on the stream that it was allocated on. If other streams were recorded as its users,
// it is reused only after they have passed the point of the free. New and freed memory is filled with 0xFF:
// NaN, or -1.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace gantry::testing {

// Allocates on the current device and stream of the calling thread.
c10::Allocator& device_allocator();

// Records that `stream` uses the memory: see recordDataPtrOnStream.
void record_use(const c10::DataPtr& memory, const c10::Stream& stream);

}  // namespace gantry::testing
