// What a shared library named under `libraries:` exports: its check against this Gantry, and what it registers.
//
//   void add_policies() { gantry::policies().add<MyPolicy>("mine"); }
//   GANTRY_PLUGIN_LIBRARY(add_policies)
#pragma once

#include <torch/version.h>

#include "gantry/core/version.h"

namespace gantry {

struct PluginLibrary {
  const char* built_for;  // what its headers were: kBuiltFor of its build
  void (*add)();          // registers policies, families and plugins; called once, before ranks start
};

#define GANTRY_TEXT_OF_(value) #value
#define GANTRY_TEXT_OF(value) GANTRY_TEXT_OF_(value)
// All that must be equal for C++ objects to be handed between a library and Gantry.
inline constexpr const char* kBuiltFor =
    "Gantry " GANTRY_VERSION ", LibTorch " TORCH_VERSION ", C++ ABI " GANTRY_TEXT_OF(__GXX_ABI_VERSION);

#define GANTRY_PLUGIN_LIBRARY(add_function)                                                            \
  extern "C" __attribute__((visibility("default"))) const gantry::PluginLibrary gantry_plugin_library; \
  const gantry::PluginLibrary gantry_plugin_library{gantry::kBuiltFor, add_function};

// Loads one library, checks it and has it register. ConfigError that says what the file is, what it was built for, or
// what the loader misses.
void load_plugin_library(const char* path);

}  // namespace gantry
