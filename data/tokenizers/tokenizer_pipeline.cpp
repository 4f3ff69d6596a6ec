#include "gantry/data/tokenizers/tokenizer_pipeline.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/byte_level.h"
#include "gantry/data/tokenizers/piece_cache.h"
#include "gantry/data/tokenizers/post_processor.h"
#include "gantry/data/tokenizers/special_tokens.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

bool ends_with_bytes(const JsonView& file) {
  const auto pre_tokenizer = file.find("pre_tokenizer");
  if (!pre_tokenizer) return false;
  const auto steps = list_steps(*pre_tokenizer);
  return !steps.empty() && steps.back().at("type").text() == "ByteLevel";
}

}  // namespace

TokenizerPipeline::~TokenizerPipeline() = default;

TokenizerPipeline::TokenizerPipeline(const nlohmann::json& json, const fs::path& path, bool follows_flags,
                                     const SpecialTokenIds& special) {
  const JsonView file(json, path.string());
  const JsonView model = file.at("model");
  const fs::path folder = path.parent_path();
  const auto listed = file.find("added_tokens");
  const bool reads_bytes = ends_with_bytes(file) && can_read_bytes(model);
  LoadedPieceModel loaded = read_piece_model(model, listed ? listed->list().size() : 0, reads_bytes);
  model_ = std::move(loaded.model);
  kind_ = reads_bytes ? "byte-level BPE" : model_->kind();
  const auto added = read_added_tokens(file, folder, loaded.vocabulary);
  const auto normalizer_view = file.find("normalizer");
  const auto normalizer = normalizer_view ? read_normalizer(*normalizer_view) : nullptr;
  read_steps(file, reads_bytes);
  special_ =
      read_special_tokens(folder, [&](const auto& token) { return find_token(added, loaded.vocabulary, token); });
  for (const auto member :
       {&SpecialTokenIds::begin, &SpecialTokenIds::end, &SpecialTokenIds::padding, &SpecialTokenIds::unknown})
    if (!(special_.*member)) special_.*member = special.*member;
  for (const char* name : {"[MASK]", "<mask>"})
    if (!special_.mask) special_.mask = find_token(added, loaded.vocabulary, name);
  tokens_ = std::move(loaded.vocabulary.tokens);
  take_added(added, normalizer);
  read_decode(file);
  read_surrounding(file, folder, follows_flags);
}

void TokenizerPipeline::read_steps(const JsonView& file, bool reads_bytes) {
  const auto pre_tokenizer = file.find("pre_tokenizer");
  if (!pre_tokenizer) return;
  const auto listed = list_steps(*pre_tokenizer);
  for (std::size_t i = 0; i < listed.size(); ++i)
    for (auto& step : read_piece_steps(listed[i], !reads_bytes || i + 1 < listed.size()))
      steps_.push_back(std::move(step));
}

void TokenizerPipeline::take_added(const std::vector<AddedToken>& added,
                                   const std::shared_ptr<const Normalizer>& normalizer) {
  added_ = AddedTokens(added, normalizer);
  is_special_.resize(tokens_.size());
  for (const auto& token : added) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= tokens_.size()) tokens_.resize(id + 1), is_special_.resize(id + 1);
    tokens_[id] = token.is_normalized && normalizer ? normalizer->apply(token.content) : token.content;
    is_special_[id] = token.is_special;
  }
}

void TokenizerPipeline::read_decode(const JsonView& file) {
  const auto decoder = file.find("decoder");
  if (!decoder) return;
  decoder_ = read_decoder(*decoder);
  if (decoder->at("type").text() != "ByteLevel") return;
  for (auto& token : tokens_) token = bytes_of_token(token);  // once, and not in each call
  decoder_ = make_joining_decoder();
}

void TokenizerPipeline::read_surrounding(const JsonView& file, const fs::path& folder, bool follows_flags) {
  if (const auto processor = file.find("post_processor")) processor_ = read_post_processor(*processor);
  const fs::path path = folder / "tokenizer_config.json";
  if (follows_flags && path_exists(path)) {
    const auto json = read_json_file(path, kMostTokenizerBytes);
    const JsonView config(json, path.string());
    if (config.object().contains("add_bos_token") || config.object().contains("add_eos_token")) {
      TokenIds before, after;
      if (special_.begin && config.flag_or("add_bos_token", false)) before = {*special_.begin};
      if (special_.end && config.flag_or("add_eos_token", false)) after = {*special_.end};
      processor_ = {.single = {before, after}, .pair = {{.tokens = before}, {.text = 1}, {.tokens = after}}};
      for (const PairPart& part : {PairPart{.tokens = before}, PairPart{.text = 2}, PairPart{.tokens = after}})
        processor_.pair.push_back({part.text, 1, part.tokens});
    }
  }
  const TokenIds of_pairs = join_texts(processor_.pair, {}, {}).ids;
  for (const TokenIds* tokens :
       std::initializer_list<const TokenIds*>{&processor_.single.before, &processor_.single.after, &of_pairs})
    for (const std::int64_t id : *tokens)
      if (id >= size())
        throw InputError({file.place() + ".post_processor", fmt::format("token {} is not in the vocabulary", id),
                          fmt::format("0 to {}", size() - 1), "download the file again"});
}

TypedTokens TokenizerPipeline::join(const TokenIds& first, const TokenIds& second) const {
  if (processor_.pair.empty())
    throw InputError({"tokenizer.json: post_processor.pair", "the template does not have the texts A and B once each",
                      "a tokenizer that can join two texts", "put both texts into text, without text_pair"});
  return join_texts(processor_.pair, first, second);
}

// A cache for one call. Calls at the same time have different ones.
class TokenizerPipeline::BorrowedCache {
 public:
  explicit BorrowedCache(const TokenizerPipeline& owner) : owner_(owner) {
    if (const std::lock_guard lock(owner_.mutex_); !owner_.idle_.empty()) {
      cache_ = std::move(owner_.idle_.back());
      owner_.idle_.pop_back();
    }
    if (!cache_) cache_ = std::make_unique<PieceCache>();
  }
  ~BorrowedCache() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(cache_));
  }
  BorrowedCache(const BorrowedCache&) = delete;
  BorrowedCache& operator=(const BorrowedCache&) = delete;
  PieceCache& operator*() const { return *cache_; }

 private:
  const TokenizerPipeline& owner_;
  std::unique_ptr<PieceCache> cache_;
};

void TokenizerPipeline::append(std::string_view text, TokenIds& ids) const {
  const bool is_valid = valid_utf8_prefix(text) == text.size();
  const std::string replaced = is_valid ? "" : valid_utf8(text);
  const BorrowedCache cache(*this);
  for (const TextPart& part : added_.split(is_valid ? text : replaced)) append_part(part, *cache, ids);
}

// Only the part in which a place is has to be encoded up to there.
std::vector<std::size_t> TokenizerPipeline::append_and_count(std::string_view text, std::span<const std::size_t> places,
                                                             TokenIds& ids) const {
  if (valid_utf8_prefix(text) != text.size()) return Tokenizer::append_and_count(text, places, ids);
  const BorrowedCache cache(*this);
  std::vector<std::size_t> counts;
  std::size_t end = 0;
  for (const TextPart& part : added_.split(text)) {
    const std::size_t begin = end, first = ids.size();
    end += part.text.size();
    append_part(part, *cache, ids);
    while (counts.size() < places.size() && places[counts.size()] < end) {
      std::string_view before = part.text.substr(0, places[counts.size()] - begin);
      before = before.substr(0, valid_utf8_prefix(before));
      TokenIds ids_before;
      for (TextPart each : added_.split(before)) {  // white space behind a token may be a part of it
        each.at_start = each.at_start && part.at_start;
        append_part(each, *cache, ids_before);
      }
      counts.push_back(first + common_ids(std::span(ids).subspan(first), ids_before));
    }
  }
  counts.resize(places.size(), ids.size());
  return counts;
}

void TokenizerPipeline::append_part(const TextPart& part, PieceCache& cache, TokenIds& ids) const {
  added_.split_normalized(part, [&](const TextPart& each) {
    if (each.id == TextPart::kText)
      append_piece(each.text, each.at_start, 0, cache, ids);
    else
      ids.push_back(each.id);
  });
}

void TokenizerPipeline::append_piece(std::string_view piece, bool at_start, std::size_t step, PieceCache& cache,
                                     TokenIds& ids) const {
  if (step == steps_.size())
    return cache.append(piece, ids, [&](std::string_view each, TokenIds& all) { model_->append(each, all); });
  steps_[step]->split(piece, at_start, [&](std::string_view part, bool part_at_start) {
    append_piece(part, part_at_start, step + 1, cache, ids);
  });
}

std::string TokenizerPipeline::decode(std::span<const std::int64_t> ids, bool skip_specials) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= size())
      throw InputError(
          {fmt::format("token {}", id), "the token is not in the vocabulary", fmt::format("0 to {}", size() - 1), ""});
    if (!skip_specials || !is_special_[static_cast<std::size_t>(id)])
      tokens.push_back(tokens_[static_cast<std::size_t>(id)]);
  }
  std::string text;
  if (decoder_) tokens = decoder_->apply(std::move(tokens));
  for (std::size_t i = 0; i < tokens.size(); ++i) text += (decoder_ || i == 0 ? "" : " ") + tokens[i];
  return text;
}

}  // namespace gantry
