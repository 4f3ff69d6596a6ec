#include "gantry/models/described/model_outline.h"

#include "gantry/core/error.h"

namespace gantry::models {

Registry<OutlineOfKeys>& outlines() {
  static Registry<OutlineOfKeys> registry("outlined family");
  return registry;
}

const DecoderSpec& require_spec(const ModelOutline& outline, const std::string& family) {
  if (outline.spec) return *outline.spec;
  throw ConfigError(
      {"model", "a plan cannot estimate the family '" + family + "': " + outline.without_spec,
       "one list of layers without experts between an embedding and an output layer of the same vocabulary",
       "measure layouts with gantry train"});
}

}  // namespace gantry::models
