// Megatron's files as samples to train on: documents packed over their boundaries.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gantry/data/dataset.h"

namespace gantry {

// InputError for files that are broken, have fewer than sequence_length + 1 tokens, or, when it is read, a token
// outside 0 .. vocabulary_size - 1. See megatron.h for `prefix`.
std::unique_ptr<Dataset> open_megatron_dataset(const std::string& prefix, std::int64_t sequence_length,
                                               std::int64_t vocabulary_size);

}  // namespace gantry
