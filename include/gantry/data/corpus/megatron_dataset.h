// Megatron's files as samples to train on: documents packed over their boundaries.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gantry/data/dataset.h"

namespace gantry {

// InputError for files that are broken, have fewer than sequence_length + 1 tokens, or, when it is read, a token
// outside 0 .. vocabulary_size - 1. See megatron.h for `prefix`. With `document_mask` there are document_ids beside
// input_ids and labels, and nothing is trained to follow a document's last token.
std::unique_ptr<Dataset> open_megatron_dataset(const std::string& prefix, std::int64_t sequence_length,
                                               std::int64_t vocabulary_size, bool document_mask = false);

}  // namespace gantry
