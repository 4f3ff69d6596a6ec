// The same kernels on every rank that is a thread.
#pragma once

namespace gantry {

// MKL looks at the processor when it is first called. Threads that call it first at the same time may be answered
// before it has, and one of them by other kernels, whose cosine, say, ends in another bit: a run in some hundreds then
// had other numbers. So the thread that starts the ranks calls it first.
void prepare_math();

}  // namespace gantry
