// The pieces of a Unigram model, by the trainer of the SentencePiece library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gantry {

struct TrainedPieces {
  std::vector<std::pair<std::string, double>> pieces;  // with their log probabilities; <0x00> to <0xFF> for bytes
  std::int64_t unknown = 0;
};

// `next_line` writes the next line of text, and returns false at the end. `specials` are the first pieces. Throws
// InputError with the library's reason, such as a vocabulary that is too large for the text.
TrainedPieces train_pieces(const std::function<bool(std::string& line)>& next_line, std::int64_t vocabulary_size,
                           const std::vector<std::string>& specials, int threads);

}  // namespace gantry
