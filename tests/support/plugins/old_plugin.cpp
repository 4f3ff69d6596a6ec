// A library that says it was built for another Gantry: the tests see that it is refused.
#include "gantry/booster/plugin_library.h"

extern "C" __attribute__((visibility("default"))) const gantry::PluginLibrary gantry_plugin_library;
const gantry::PluginLibrary gantry_plugin_library{"Gantry 0.0.9, LibTorch 2.5.0, C++ ABI 1014", nullptr};
