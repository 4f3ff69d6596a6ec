// Hands a command on to the engine.
#pragma once

#include <string>

namespace gantry::cli {

std::string engine_path();  // beside this program, in the build and in the install
// Becomes the engine, with the same arguments. Returns only by throwing: InternalError, or what torch_library.h says
// where there is no LibTorch.
[[noreturn]] void run_engine(char** argv);

}  // namespace gantry::cli
