#include "gantry/data/tokenizers/pair_trainer.h"

#include <algorithm>
#include <queue>
#include <set>

#include "gantry/core/base/utf8.h"

namespace gantry {
namespace {

using TokenId = std::uint32_t;
using TokenPair = std::pair<TokenId, TokenId>;

struct PairHash {
  std::size_t operator()(const TokenPair& pair) const {
    return (std::uint64_t{pair.first} << 32 | pair.second) * 0x9E3779B97F4A7C15u >> 7;
  }
};

struct CountedWord {
  std::vector<TokenId> tokens;
  std::int64_t count = 0;
};

// A pair with some of the words that have it.
struct MergeCandidate {
  TokenPair pair;
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;
  bool operator<(const MergeCandidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class PairTrainer {
 public:
  PairTrainer(const WordCounts& words, const PairTraining& training) : training_(training) {
    for (const auto& special : training.specials) add_token(special);
    add_characters(words);
    for (const auto& [word, count] : words) add_word(word, count);
    queue_changed();
  }

  TrainedPairs train() {
    const auto limit = static_cast<std::size_t>(std::max<std::int64_t>(0, training_.vocabulary_size));
    while (made_.tokens.size() < limit && !queue_.empty()) {
      MergeCandidate best = queue_.top();
      queue_.pop();
      if (const std::int64_t count = counts_[best.pair]; count != best.count) {
        best.count = count;
        queue_.push(std::move(best));
        continue;
      }
      if (best.count < 1 || best.count < training_.min_frequency) break;
      merge(best);
    }
    keep_last_merges();
    return std::move(made_);
  }

 private:
  TokenId add_token(const std::string& token) {
    const auto [found, is_new] = ids_.try_emplace(token, static_cast<TokenId>(made_.tokens.size()));
    if (is_new) made_.tokens.push_back(token);
    return found->second;
  }

  template <class Take>
  static void for_each_character(const std::string& word, const Take& take) {
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t length = std::max<std::size_t>(1, utf8_length(word[at]));
      take(word.substr(at, length));
      at += length;
    }
  }

  // UTF-8 has the order of code points.
  void add_characters(const WordCounts& words) {
    std::set<std::string> characters(training_.alphabet.begin(), training_.alphabet.end());
    for (const auto& [word, count] : words)
      for_each_character(word, [&](std::string character) { characters.insert(std::move(character)); });
    for (const auto& character : characters) add_token(character);
  }

  void add_word(const std::string& word, std::int64_t count) {
    CountedWord added{.tokens = {}, .count = count};
    for_each_character(word, [&](const std::string& character) { added.tokens.push_back(ids_.at(character)); });
    const auto index = static_cast<std::uint32_t>(words_.size());
    for (std::size_t i = 1; i < added.tokens.size(); ++i) change({added.tokens[i - 1], added.tokens[i]}, count, index);
    words_.push_back(std::move(added));
  }

  void change(const TokenPair& pair, std::int64_t difference, std::uint32_t word) {
    counts_[pair] += difference;
    if (difference <= 0) return;
    auto& words = changed_[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void queue_changed() {
    for (auto& [pair, words] : changed_)
      if (const std::int64_t count = counts_[pair]; count > 0) queue_.push({pair, count, std::move(words)});
    changed_.clear();
  }

  void merge(const MergeCandidate& best) {
    const std::string &first = made_.tokens[best.pair.first], &second = made_.tokens[best.pair.second];
    made_.merges.emplace_back(first, second);
    const TokenId merged = add_token(first + second);
    for (const std::uint32_t word : best.words) merge_in(word, best.pair, merged);
    queue_changed();
  }

  void merge_in(std::uint32_t index, const TokenPair& pair, TokenId merged) {
    auto& [tokens, count] = words_[index];
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i, ++kept) {
      const bool matches = i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second;
      if (!matches) {
        tokens[kept] = tokens[i];
        continue;
      }
      if (kept > 0) {
        change({tokens[kept - 1], pair.first}, -count, index);
        change({tokens[kept - 1], merged}, count, index);
      }
      if (i + 2 < tokens.size()) {
        change({pair.second, tokens[i + 2]}, -count, index);
        change({merged, tokens[i + 2]}, count, index);
      }
      tokens[kept] = merged;
      ++i;
    }
    tokens.resize(kept);
  }

  // A pair that came up again in other words was merged twice. The last time decides its rank.
  void keep_last_merges() {
    std::set<std::pair<std::string, std::string>> known;
    std::vector<std::pair<std::string, std::string>> merges;
    for (auto merge = made_.merges.rbegin(); merge != made_.merges.rend(); ++merge)
      if (known.insert(*merge).second) merges.push_back(*merge);
    std::ranges::reverse(merges);
    made_.merges = std::move(merges);
  }

  const PairTraining& training_;
  TrainedPairs made_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<CountedWord> words_;
  std::unordered_map<TokenPair, std::int64_t, PairHash> counts_;
  std::unordered_map<TokenPair, std::vector<std::uint32_t>, PairHash> changed_;  // since the queue was filled
  std::priority_queue<MergeCandidate> queue_;
};

}  // namespace

TrainedPairs train_pairs(const WordCounts& words, const PairTraining& training) {
  return PairTrainer(words, training).train();
}

}  // namespace gantry
