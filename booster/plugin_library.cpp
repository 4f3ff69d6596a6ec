#include "gantry/booster/plugin_library.h"

#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <set>
#include <string>

#include "gantry/core/error.h"

namespace gantry {

void load_plugin_library(const char* path) {
  const std::string where = std::string("libraries: ") + path;
  // Local symbols, because two libraries may have classes with the same name.
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw ConfigError({where, dlerror(), "a shared library that registers policies",
                       std::string("check the path, or build it against this ") + kBuiltFor});
  const auto* plugin = static_cast<const PluginLibrary*>(dlsym(library, "gantry_plugin_library"));
  if (!plugin)
    throw ConfigError(
        {where, "the library does not export gantry_plugin_library", "a plugin library for Gantry",
         "end one of its sources with GANTRY_PLUGIN_LIBRARY(FUNCTION), where FUNCTION registers the policies"});
  if (std::strcmp(plugin->built_for, kBuiltFor) != 0)
    throw ConfigError({where, std::string("the library was built for ") + plugin->built_for, kBuiltFor,
                       "build it again against this Gantry and its LibTorch"});
  static std::mutex mutex;
  // The same path may be given twice, and two paths may name one file.
  static std::set<const PluginLibrary*> added;
  const std::lock_guard lock(mutex);
  if (added.insert(plugin).second) plugin->add();
}

}  // namespace gantry
