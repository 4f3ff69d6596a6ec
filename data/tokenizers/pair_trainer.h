// Learns the merges of byte pair encoding: Sennrich et al., arXiv 1508.07909.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gantry {

using WordCounts = std::unordered_map<std::string, std::int64_t>;

struct PairTraining {
  std::int64_t vocabulary_size = 0;
  std::int64_t min_frequency = 0;     // occurrences of a pair that is merged
  std::vector<std::string> specials;  // the first tokens
  std::vector<std::string> alphabet;  // tokens besides the characters of the words
};

struct TrainedPairs {
  std::vector<std::string> tokens;  // by id: specials, then characters by code point, then merged pairs
  std::vector<std::pair<std::string, std::string>> merges;
};

// `words` in valid UTF-8. Gives the same tokens and merges as the BpeTrainer of Hugging Face's tokenizers: of the most
// frequent pairs, the one with the smallest ids is merged first. There are fewer tokens than vocabulary_size if no pair
// is left, and more if specials and characters alone are more.
TrainedPairs train_pairs(const WordCounts& words, const PairTraining& training);

}  // namespace gantry
