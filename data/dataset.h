// Samples of tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "gantry/core/config.h"

namespace gantry {

// Sample i is sequence_length() + 1 tokens: the input is the first sequence_length(), the labels are the last.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;  // samples, at least 1
  virtual std::int64_t sequence_length() const = 0;
  // `tokens` has room for sequence_length() + 1. May be called from any thread.
  virtual void read(std::int64_t index, std::int64_t* tokens) const = 0;
};

// text: the bytes of a file, of all files below a folder (sorted by path), or of a glob's files, one after the other,
// as tokens 0 to 255. tokens: little-endian uint16. Sample i reads tokens [i * S, i * S + S]. InputError for what can't
// be read, text shorter than a sequence, or a token outside the vocabulary, with its place.
std::unique_ptr<Dataset> open_dataset(const DataConfig& config, std::int64_t vocabulary_size);

}  // namespace gantry
