// Runs a command in the engine, the program with LibTorch.
#pragma once

#include <string>

namespace gantry::cli {

std::string engine_path();  // relative to this program, in the build and in the installation
// Replaces this process by the engine, with the same arguments. Throws InternalError if the engine cannot be started,
// and the errors of prepare_torch_library() if LibTorch is missing.
[[noreturn]] void run_engine(char** argv);

}  // namespace gantry::cli
