// Gantry's own policies: one for each family of described decoders, and those for the other models.
#include "gantry/models/described/decoder_family.h"
#include "gantry/policies/bart.h"
#include "gantry/policies/bert.h"
#include "gantry/policies/contrastive.h"
#include "gantry/policies/decoder.h"
#include "gantry/policies/modern_bert.h"
#include "gantry/policies/t5.h"
#include "gantry/policies/vit.h"
#include "gantry/policies/whisper.h"

namespace gantry {

PolicyRegistry& policies() {
  struct Filled : PolicyRegistry {
    Filled() {
      for (const char* family : {"bert", "roberta", "xlm-roberta", "distilbert", "nomic_bert", "electra"})
        Registry::add(family, [family] { return std::make_shared<const BertPolicy>(family); });
      for (const char* family : {"t5", "mt5", "umt5"})
        Registry::add(family, [family] { return std::make_shared<const T5Policy>(family); });
      for (const char* family : {"bart", "pegasus"})
        Registry::add(family, [family] { return std::make_shared<const BartPolicy>(family); });
      for (const char* family : {"clip", "siglip"})
        Registry::add(family, [family] { return std::make_shared<const ContrastivePolicy>(family); });
      PolicyRegistry::add<ModernBertPolicy>("modernbert");
      PolicyRegistry::add<VitPolicy>("vit");
      PolicyRegistry::add<WhisperPolicy>("whisper");
      for (const auto& family : models::decoder_families())
        Registry::add(family.model_type,
                      [type = family.model_type] { return std::make_shared<const DecoderPolicy>(type); });
    }
  };
  static Filled registry;
  return registry;
}

}  // namespace gantry
