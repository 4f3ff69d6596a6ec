// Files of raw tokens, text among them, as samples to train on: mapped into memory, so that ranks of one host share
// them. A process has about 65,530 mappings: of more than `most_mapped` files, each is opened when it is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "gantry/data/corpus/packed_dataset.h"

namespace gantry {

// All files one after the other, each a document, as one row of tokens: bytes (token_bytes 1) or little-endian uint16
// (2). `place` names them in errors. InputError for a file that can't be read or has half a token, for fewer than
// sequence_length + 1 tokens, and, when it is read, for a token outside 0 .. vocabulary_size - 1.
std::unique_ptr<PackedDataset> open_token_files(const std::vector<std::filesystem::path>& files, int token_bytes,
                                                std::int64_t sequence_length, std::int64_t vocabulary_size,
                                                const std::string& place, std::size_t most_mapped = 16384);

}  // namespace gantry
