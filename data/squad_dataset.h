// SQuAD-format JSON as samples for extractive question answering: the model predicts the span of the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"

namespace gantry {

// input_ids, token_type_ids and attention_mask [samples, S], start_positions and end_positions [samples].
std::vector<SampleEntry> answer_span_entries(std::int64_t sequence_length);

// A sample is a window: [CLS] question [SEP] part of the context [SEP], truncated or padded to
// sequence_length. Windows are those of make_squad_features() with a stride of a third of the sequence. If a
// window does not contain the complete answer, or the question has no answer, the labels are the position of
// [CLS], 0. `tokenizer`: the argument of WordPiece::load(). Throws the errors of these functions. Also throws
// InputError for a tokenizer larger than the model's vocabulary, and for a question without an answer that is
// not marked as impossible.
std::unique_ptr<Dataset> open_squad_dataset(const std::string& path, const std::string& tokenizer,
                                            std::int64_t sequence_length, std::int64_t vocabulary_size);

}  // namespace gantry
