// Byte-level BPE: GPT-2, Llama 3 and their relatives. Added tokens, then a split by regular expressions, then merges.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gantry/data/tokenizers/added_tokens.h"
#include "gantry/data/tokenizers/byte_pair.h"
#include "gantry/data/tokenizers/text_split.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

// A step of the split: every part of the step before is put through it.
struct SplitStep {
  std::string pattern;            // empty: leave the part whole
  bool add_prefix_space = false;  // before the part, where it does not begin with one
};

struct BytePairModel {
  std::vector<std::string> tokens;  // by id, as the vocabulary spells them; empty where an id is not used
  std::vector<Merge> merges;
  std::vector<SplitStep> steps;
  std::vector<AddedToken> added;                 // their ids may be beyond `tokens`
  std::shared_ptr<const Normalizer> normalizer;  // may be null
  bool ignore_merges = false;                    // a part that is a token is not merged
  SpecialTokenIds special;
};

class BytePairTokenizer final : public Tokenizer {
 public:
  // InputError for a pattern that can't be compiled.
  explicit BytePairTokenizer(const BytePairModel& model);
  ~BytePairTokenizer() override;

  std::string kind() const override { return "byte-level BPE"; }
  std::int64_t size() const override { return static_cast<std::int64_t>(bytes_.size()); }
  SpecialTokenIds special() const override { return special_; }
  void append(std::string_view text, TokenIds& ids) const override;
  std::string decode(std::span<const std::int64_t> ids) const override;

 private:
  struct Worker;  // what one thread needs while it encodes; taken from idle_ and put back
  struct Step {
    std::unique_ptr<TextSplit> split;
    bool add_prefix_space = false;
  };
  void append_valid(std::string_view text, Worker& worker, TokenIds& ids) const;
  void append_part(std::string_view part, std::size_t step, Worker& worker, TokenIds& ids) const;

  std::vector<std::string> bytes_;  // by id
  SpecialTokenIds special_;
  AddedTokens added_;
  std::vector<Step> steps_;
  BytePair pairs_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Worker>> idle_;
};

// The model of a tokenizer.json, given by its text, whose kind is byte-level BPE; nullptr if it is of another kind.
// InputError for one that is broken, or asks for what is not supported. `path` is for messages and for the files beside
// it.
std::unique_ptr<BytePairModel> parse_tokenizer_json(std::string_view text, const std::filesystem::path& path);
// The model of a vocab.json and the merges.txt beside it.
BytePairModel read_vocab_json(const std::filesystem::path& path);

}  // namespace gantry
