// A library that states another version of Gantry. Tests expect that it is rejected.
#include "gantry/booster/plugin_library.h"

extern "C" __attribute__((visibility("default"))) const gantry::PluginLibrary gantry_plugin_library;
const gantry::PluginLibrary gantry_plugin_library{"Gantry 0.0.9, LibTorch 2.5.0, C++ ABI 1014", nullptr};
