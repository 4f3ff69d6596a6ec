// SQuAD-format JSON as samples for a model that marks answers in a text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"

namespace gantry {

// input_ids, token_type_ids and attention_mask [samples, S], start_positions and end_positions [samples].
std::vector<SampleEntry> answer_span_entries(std::int64_t sequence_length);

// A sample is a window: [CLS] question [SEP] part of the context [SEP], truncated or padded to sequence_length, as of
// make_squad_features with a stride of a third of the sequence. A window without the whole answer, and a question that
// has none, is answered at [CLS], 0. `tokenizer`: as of WordPiece::load. InputError for what these refuse, a vocabulary
// beyond the model's, and a question without an answer that is not marked as impossible.
std::unique_ptr<Dataset> open_squad_dataset(const std::string& path, const std::string& tokenizer,
                                            std::int64_t sequence_length, std::int64_t vocabulary_size);

}  // namespace gantry
