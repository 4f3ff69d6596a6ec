// The interface of a shared library that is listed under `libraries:`. It registers policies, model families and
// plugins:
//
//   void add_policies() { gantry::policies().add<MyPolicy>("mine"); }
//   GANTRY_PLUGIN_LIBRARY(add_policies)
#pragma once

#include <torch/version.h>

#include "gantry/core/version.h"

namespace gantry {

// The symbol that a library exports; GANTRY_PLUGIN_LIBRARY defines it.
struct PluginLibrary {
  const char* built_for;  // kBuiltFor of the headers that the library was compiled with
  void (*add)();          // registers policies, families and plugins; called once, before ranks start
};

#define GANTRY_TEXT_OF_(value) #value
#define GANTRY_TEXT_OF(value) GANTRY_TEXT_OF_(value)
// Identifies the versions that must be equal to pass C++ objects between a library and Gantry.
inline constexpr const char* kBuiltFor =
    "Gantry " GANTRY_VERSION ", LibTorch " TORCH_VERSION ", C++ ABI " GANTRY_TEXT_OF(__GXX_ABI_VERSION);

#define GANTRY_PLUGIN_LIBRARY(add_function)                                                            \
  extern "C" __attribute__((visibility("default"))) const gantry::PluginLibrary gantry_plugin_library; \
  const gantry::PluginLibrary gantry_plugin_library{gantry::kBuiltFor, add_function};

// Loads a library, checks its version and calls its add(), once even if the same file is loaded again. Throws
// ConfigError if the file cannot be loaded, has another format, or was built for another version.
void load_plugin_library(const char* path);

}  // namespace gantry
