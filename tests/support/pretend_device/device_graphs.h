// Recordings of the pretended devices (tensors/device_graph.h), as CUDA's graphs are: what a stream is given meanwhile
// is noted with the addresses of its memory and does not run. Memory that is allocated meanwhile is a pool's, and what
// is freed of it is spoilt in each replay, so that whoever reads it afterwards, or has another recording write there,
// sees no numbers. What CUDA refuses is refused: the default stream, waits of the host, and waits of a stream for what
// is not recorded.
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
  std::function<void()> run;  // as often as it is called
};

struct GraphRecording {
  int pool = 0;  // its number among the process's, from 1
  std::vector<RecordedKernel> kernels;
};

// Throws where the stream is recorded: `what` has the host wait, or needs its memory.
void refuse_while_recording(PretendStream& stream, const std::string& what);

}  // namespace gantry::testing
