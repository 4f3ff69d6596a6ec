// Graphs of the pretended devices (tensors/device_graph.h), modelled on CUDA graphs. During a capture, the
// kernels of a stream do not run; they are recorded with the addresses of their memory. Memory that is
// allocated during a capture belongs to a pool. Each replay overwrites the memory that the capture has freed
// with 0xFF bytes (NaN), so that later reads of it, and two graphs that use the same memory, give wrong
// results visibly. The same calls are errors as in CUDA: a capture on the default stream, waits of the host,
// and waits of a stream for an event outside of the capture.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "race_checker.h"

namespace gantry::testing {

class PretendStream;

struct RecordedKernel {
  std::string what;
  std::vector<Access> accesses;
  std::function<void()> run;  // callable any number of times
};

struct GraphRecording {
  int pool = 0;  // number of the memory pool in this process, from 1
  std::vector<RecordedKernel> kernels;
};

// Throws if the stream is being captured. `what`: an operation that waits on the host or uses host memory.
void refuse_while_recording(PretendStream& stream, const std::string& what);

}  // namespace gantry::testing
