// A quick end of a process.
#pragma once

namespace gantry {

// Call it at the beginning of main(). From then on std::exit() and the return from main() run only the exit functions
// and static destructors that are registered after this call, flush the standard streams, and end the process. The
// static destructors of shared libraries do not run: those of LibTorch remove thousands of operators from its tables,
// which takes more than a third of the processor time of a command without work. No effect with the sanitizers, which
// report at the end.
void skip_library_destructors();

}  // namespace gantry
