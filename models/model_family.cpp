#include "gantry/models/model_family.h"

#include "gantry/models/bert_family.h"
#include "gantry/models/gpt2_family.h"
#include "gantry/models/llama_family.h"

namespace gantry::models {

Registry<ModelFamily>& families() {
  struct Filled : Registry<ModelFamily> {
    Filled() : Registry("model family") {
      add("gpt2", gpt2_family());
      add("bert", bert_family());
      add("llama", llama_family());
    }
  };
  static Filled registry;
  return registry;
}

}  // namespace gantry::models
