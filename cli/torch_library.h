// Finds LibTorch on this machine. The engine needs it, and packages of Gantry do not contain it.
#pragma once

#include <string>
#include <vector>

namespace gantry::cli {

struct TorchLibrary {
  std::string folder;              // directory of LibTorch, with lib/libtorch.so in it; empty: not found
  bool is_on_loader_path = false;  // the dynamic loader finds it; `folder` is then empty
  std::vector<std::string>
      passed_over;  // directories with a version that the engine was not built for, with the version
};

// Uses only GANTRY_TORCH if it is set: the directory of LibTorch, or of a Python environment with torch. Throws
// UsageError if it is neither. Otherwise tries the directories of the dynamic loader, the directory with which Gantry
// was built, /opt/libtorch, and the directories of pip.
TorchLibrary find_torch_library();

// Returns one line for `gantry doctor`.
std::string describe(const TorchLibrary& found);

// Sets the environment so that the engine, which replaces this process, finds LibTorch. Throws ResourceError with the
// commands that install LibTorch if it is missing.
void prepare_torch_library();

}  // namespace gantry::cli
