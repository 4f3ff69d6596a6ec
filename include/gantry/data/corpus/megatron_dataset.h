// A data set of Megatron's files: documents packed into samples across their boundaries.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gantry/data/dataset.h"

namespace gantry {

// Opens the files; for `prefix`, see megatron.h. With `document_mask`, samples also have document_ids, and the last
// token of a document has no label. Throws InputError if the files are damaged or have fewer than sequence_length + 1
// tokens. Reading throws InputError for a token outside of 0 .. vocabulary_size - 1.
std::unique_ptr<Dataset> open_megatron_dataset(const std::string& prefix, std::int64_t sequence_length,
                                               std::int64_t vocabulary_size, bool document_mask = false);

}  // namespace gantry
