// Gantry's own policies: a line each.
#include "gantry/policies/gpt2.h"

namespace gantry {

PolicyRegistry& policies() {
  struct Filled : PolicyRegistry {
    Filled() { PolicyRegistry::add<Gpt2Policy>("gpt2"); }
  };
  static Filled registry;
  return registry;
}

}  // namespace gantry
