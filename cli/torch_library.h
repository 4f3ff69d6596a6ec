// Where LibTorch is on this machine: the engine needs it, and packages of Gantry don't carry it.
#pragma once

#include <string>
#include <vector>

namespace gantry::cli {

struct TorchLibrary {
  std::string folder;                    // LibTorch's, with lib/libtorch.so in it; empty: not found
  bool is_on_loader_path = false;        // the loader finds one by itself; `folder` is then empty
  std::vector<std::string> passed_over;  // folders with another version than the engine was built for, and theirs
};

// GANTRY_TORCH alone where it is set: the folder of LibTorch, or of a Python environment with torch in it (UsageError
// if it is neither). Else the loader's own folders, the folder that Gantry was built with, /opt/libtorch, and where pip
// puts torch.
TorchLibrary find_torch_library();

// One line for `gantry doctor`.
std::string describe(const TorchLibrary& found);

// Has the engine, which this process becomes, find it. ResourceError that says how to get it where it is missing.
void prepare_torch_library();

}  // namespace gantry::cli
