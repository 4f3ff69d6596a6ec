// BERT and RoBERTa as Hugging Face has them: configuration keys and tensor names.
#pragma once

#include "gantry/models/bert.h"
#include "gantry/models/model_family.h"

namespace gantry::models {

// ConfigError for wrong types and values BERT here can't do; keys that do not change the mathematics are ignored. The
// head is the one of `architectures` (BertForMaskedLM where it does not say), its labels are counted by num_labels or
// id2label.
BertConfig bert_config(const nlohmann::json& config);
ModelFamily bert_family();
ModelFamily roberta_family();

}  // namespace gantry::models
