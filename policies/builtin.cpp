// Gantry's own policies: one for each family of described decoders, and BERT's.
#include "gantry/models/described/decoder_family.h"
#include "gantry/policies/bert.h"
#include "gantry/policies/decoder.h"

namespace gantry {

PolicyRegistry& policies() {
  struct Filled : PolicyRegistry {
    Filled() {
      PolicyRegistry::add<BertPolicy>("bert");
      for (const auto& family : models::decoder_families())
        Registry::add(family.model_type,
                      [type = family.model_type] { return std::make_shared<const DecoderPolicy>(type); });
    }
  };
  static Filled registry;
  return registry;
}

}  // namespace gantry
