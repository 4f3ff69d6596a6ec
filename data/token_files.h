// Files of raw tokens, or of text as bytes, as training samples. Files are mapped into memory, so that the
// ranks of a host share them. A process can have about 65,530 mappings. If there are more than `most_mapped`
// files, each file is opened when it is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "gantry/data/corpus/packed_dataset.h"

namespace gantry {

// Concatenates all files, each of which is a document. Tokens are bytes (token_bytes 1) or little-endian
// uint16 (2). `place` names the files in errors. Throws InputError for a file that cannot be read or ends
// within a token, and for fewer than sequence_length + 1 tokens. Reading a sample throws it for a token
// outside 0 .. vocabulary_size - 1.
std::unique_ptr<PackedDataset> open_token_files(const std::vector<std::filesystem::path>& files, int token_bytes,
                                                std::int64_t sequence_length, std::int64_t vocabulary_size,
                                                const std::string& place, std::size_t most_mapped = 16384);

}  // namespace gantry
