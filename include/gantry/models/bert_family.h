// The model families bert, roberta, xlm-roberta, distilbert, nomic_bert and electra: configuration keys and tensor
// names of Hugging Face's models.
#pragma once

#include "gantry/models/bert.h"
#include "gantry/models/model_family.h"

namespace gantry::models {

// Reads a config.json. The head follows from `architectures` (BertForMaskedLM if it is missing), and the number of
// labels from num_labels or id2label. Throws ConfigError for wrong types and for unsupported values. Keys that do not
// affect the computation are ignored.
BertConfig bert_config(const nlohmann::json& config);
ModelFamily bert_family();
ModelFamily roberta_family();
ModelFamily xlm_roberta_family();
ModelFamily distilbert_family();
ModelFamily nomic_bert_family();
ModelFamily electra_family();

}  // namespace gantry::models
