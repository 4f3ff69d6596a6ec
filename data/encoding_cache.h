// The directory of encoded data, in which a second start and other processes of a host find what one has encoded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/encoded_rows.h"

namespace gantry {

// Resources for encoding.
struct EncodingResources {
  std::string cache = {};  // directory; empty: none
  int threads = 0;         // 0: as many as the process may use cores
};

// Those of data.cache and data.workers. data.cache auto is the directory gantry/data below $XDG_CACHE_HOME or ~/.cache,
// and none without a home.
EncodingResources encoding_resources(const DataConfig& data);
std::size_t encoding_threads(const EncodingResources& resources);

// The files of a tokenizer: `tokenizer` itself, or the files of this directory that a tokenizer or a chat template may
// be in. Weights are not among them.
std::vector<std::filesystem::path> tokenizer_files(const std::string& tokenizer);

// Everything that the encoded rows depend on.
struct EncodingInput {
  std::vector<std::filesystem::path> files;  // by content
  std::string tokenizer;                     // by the content of its files
  std::string rules;                         // everything else, as text
  // The state of files that these files name, as text; "" if they name none. Called for rows that may be stored in a
  // directory.
  std::function<std::string(const OpenProgress& progress)> state = {};
};

// Returns the rows that `encode` writes, or those of an earlier call with the same input: of another rank of this
// process that still holds them, or from `folder`. With a folder, the rows of files of 1 MiB or more, or of files that
// name others, are written there and mapped. Processes that need the same rows wait for the one that encodes. Other
// rows are in memory. A directory that cannot be written is a warning. Throws what `encode` throws. Thread-safe.
using EncodeRows = std::function<void(EncodedRowsWriter&)>;
std::shared_ptr<const EncodedRows> encoded_rows(const std::string& folder, const EncodingInput& input,
                                                const OpenProgress& progress, const EncodeRows& encode);

}  // namespace gantry
