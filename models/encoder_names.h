// Facts about the heads of models::TextEncoder that its families share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gantry/models/described/bert_config.h"
#include "gantry/models/described/config_keys.h"

namespace gantry::models {

inline bool is_classifier(BertHead head) {
  return head == BertHead::kSequenceClassification || head == BertHead::kTokenClassification;
}

inline bool is_tied_head(const BertConfig& config) {
  return config.head == BertHead::kMaskedLm && config.tie_word_embeddings;
}

// See ModelFamily::task.
inline std::string task_of(const BertConfig& config) {
  if (config.head == BertHead::kNone) return config.sentence && config.sentence->compares ? "contrast" : "none";
  if (config.head == BertHead::kQuestionAnswering) return "spans";
  return config.head == BertHead::kMaskedLm ? "tokens" : "classes";
}

// See ModelFamily::problem_type.
inline std::string problem_type_of_head(const nlohmann::json& keys, const BertConfig& config) {
  if (config.head != BertHead::kSequenceClassification) return "single_label_classification";
  return problem_type_of(keys, config.num_labels);
}

}  // namespace gantry::models
