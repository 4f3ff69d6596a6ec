// The caching allocator of the pretended devices, ordered by streams as CUDA's is: a freed block can be had again at
// once on the stream that it was allocated on. One that other streams were recorded for waits until they have come by.
// New and freed memory is filled with 0xFF: NaN, or -1.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace gantry::testing {

// On the current device and stream of the calling thread.
c10::Allocator& device_allocator();

// `stream` uses the memory: see recordDataPtrOnStream.
void record_use(const c10::DataPtr& memory, const c10::Stream& stream);

}  // namespace gantry::testing
