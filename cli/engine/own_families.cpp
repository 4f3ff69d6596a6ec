#include "gantry/cli/engine/own_families.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "gantry/booster/plugin_library.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/model_family.h"
#include "gantry/planner/config.h"
#include "gantry/policies/model_outline.h"
#include "gantry/tensors/deferred_init.h"

namespace gantry::cli {
namespace {

models::ModelOutline outline_of_family(const std::string& name, const nlohmann::json& keys) {
  const DeferredInit deferred;
  const auto model = models::families().at(name).build(keys);
  return outline_of(*model, policies().contains(name) ? *policies().at(name)() : *policy_for(*model));
}

}  // namespace

void outline_own_families(const std::string& path, const std::vector<std::string>& sets) {
  for (const auto& library : planner::stated_libraries(path, sets)) load_plugin_library(library.c_str());
  for (const auto& name : models::families().names()) {
    if (models::find_family_reader(name) || models::outlines().contains(name)) continue;
    const auto known = std::make_shared<std::map<std::string, models::ModelOutline>>();
    models::outlines().add(name, [name, known](const nlohmann::json& keys) -> const models::ModelOutline& {
      const std::string key = keys.dump();
      const auto found = known->find(key);
      return found != known->end() ? found->second : known->emplace(key, outline_of_family(name, keys)).first->second;
    });
  }
}

}  // namespace gantry::cli
