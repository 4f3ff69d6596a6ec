// A tokenizer.json: added tokens, normalizer, pre-tokenizer, model, post-processor and decoder, as in Hugging Face's
// tokenizers. Other files are converted to a tokenizer.json first (tokenizer_files.h).
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantry/data/tokenizers/added_tokens.h"
#include "gantry/data/tokenizers/piece_model.h"
#include "gantry/data/tokenizers/piece_step.h"
#include "gantry/data/tokenizers/post_processor.h"
#include "gantry/data/tokenizers/token_decoder.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

class PieceCache;

// The number of equal ids at the begin of two lists.
std::size_t common_ids(std::span<const std::int64_t> one, std::span<const std::int64_t> other);

class TokenizerPipeline final : public Tokenizer {
 public:
  // `file`: a parsed tokenizer.json. `path`: its path, for messages, and to find the special and added tokens of
  // tokenizer_config.json and special_tokens_map.json in the same directory. `special`: those that these files lack.
  // `follows_flags`: add_bos_token and add_eos_token of tokenizer_config.json replace the post-processor. Throws
  // InputError for a damaged file, and for an unsupported part, which it names.
  TokenizerPipeline(const nlohmann::json& file, const std::filesystem::path& path, bool follows_flags,
                    const SpecialTokenIds& special = {});
  ~TokenizerPipeline() override;

  std::string kind() const override { return kind_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  SpecialTokenIds special() const override { return special_; }
  bool is_special(std::int64_t id) const override { return id < size() && is_special_[static_cast<std::size_t>(id)]; }
  const SurroundingTokens& surrounding() const override { return processor_.single; }
  TypedTokens join(const TokenIds& first, const TokenIds& second) const override;
  void append(std::string_view text, TokenIds& ids) const override;
  std::vector<std::size_t> append_and_count(std::string_view text, std::span<const std::size_t> places,
                                            TokenIds& ids) const override;
  std::string decode(std::span<const std::int64_t> ids, bool skip_specials) const override;
  using Tokenizer::decode;

 private:
  class BorrowedCache;
  void read_steps(const JsonView& file, bool reads_bytes);
  void take_added(const std::vector<AddedToken>& added, const std::shared_ptr<const Normalizer>& normalizer);
  void read_surrounding(const JsonView& file, const std::filesystem::path& folder, bool follows_flags);
  void read_decode(const JsonView& file);
  void append_part(const TextPart& part, PieceCache& cache, TokenIds& ids) const;
  void append_piece(std::string_view piece, bool at_start, std::size_t step, PieceCache& cache, TokenIds& ids) const;

  std::string kind_;
  std::vector<std::string> tokens_;  // by id
  std::vector<bool> is_special_;     // by id
  SpecialTokenIds special_;
  PostProcessor processor_;
  AddedTokens added_;
  std::vector<std::unique_ptr<PieceStep>> steps_;
  std::unique_ptr<PieceModel> model_;
  std::unique_ptr<TokenDecoder> decoder_;  // null: tokens with blanks between them
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<PieceCache>> idle_;  // one for each thread that encodes at the same time
};

}  // namespace gantry
