// Gantry's own policies: a line each.
#include "gantry/policies/bert.h"
#include "gantry/policies/gpt2.h"
#include "gantry/policies/llama.h"

namespace gantry {

PolicyRegistry& policies() {
  struct Filled : PolicyRegistry {
    Filled() {
      PolicyRegistry::add<Gpt2Policy>("gpt2");
      PolicyRegistry::add<BertPolicy>("bert");
      PolicyRegistry::add<LlamaPolicy>("llama");
    }
  };
  static Filled registry;
  return registry;
}

}  // namespace gantry
