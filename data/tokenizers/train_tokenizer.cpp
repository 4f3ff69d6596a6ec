#include "gantry/data/tokenizers/train_tokenizer.h"

#include <algorithm>
#include <fmt/format.h>
#include <mutex>
#include <nlohmann/json.hpp>

#include "gantry/core/base/parallel_for.h"
#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/byte_level.h"
#include "gantry/data/tokenizers/pair_trainer.h"
#include "gantry/data/tokenizers/piece_step.h"
#include "gantry/data/tokenizers/unigram_trainer.h"

namespace gantry {
namespace {

using OrderedFile = nlohmann::ordered_json;

OrderedFile byte_level_part() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
}

OrderedFile metaspace_part() {
  return {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}, {"split", true}};
}

// The pieces into which the tokenizer will split the text, in the spelling of bytes.
WordCounts count_words(DocumentReader& reader, int threads, TokenizerTrainingSummary& summary) {
  const nlohmann::json step = byte_level_part();
  const auto steps = read_piece_steps(JsonView(step, "pre_tokenizer"), /*spells_bytes=*/true);
  WordCounts words;
  std::mutex mutex;
  for (auto documents = reader.next_batch(); !documents.empty(); documents = reader.next_batch()) {
    parallel_for(documents.size(), static_cast<std::size_t>(threads), [&](std::size_t i) {
      WordCounts found;
      const std::string text = valid_utf8(documents[i]);
      if (!text.empty())
        steps.front()->split(text, true, [&](std::string_view word, bool) { ++found[std::string(word)]; });
      const std::lock_guard lock(mutex);
      for (const auto& [word, count] : found) words[word] += count;
    });
    summary.documents += static_cast<std::int64_t>(documents.size());
  }
  return words;
}

OrderedFile train_pairs_file(DocumentReader& reader, const TokenizerTraining& training,
                             TokenizerTrainingSummary& summary) {
  const WordCounts words = count_words(reader, training.threads, summary);
  if (words.empty()) return nullptr;
  const auto& spellings = byte_spellings();
  const TrainedPairs trained = train_pairs(words, {.vocabulary_size = training.vocabulary_size,
                                                   .min_frequency = training.min_frequency,
                                                   .specials = training.specials,
                                                   .alphabet = {spellings.begin(), spellings.end()}});
  OrderedFile vocabulary = OrderedFile::object(), merges = OrderedFile::array();
  for (const auto& token : trained.tokens) vocabulary.push_back({token, vocabulary.size()});
  for (const auto& [first, second] : trained.merges) merges.push_back({first, second});
  summary.tokens = static_cast<std::int64_t>(trained.tokens.size());
  return {{"normalizer", nullptr},
          {"pre_tokenizer", byte_level_part()},
          {"post_processor", byte_level_part()},
          {"decoder", byte_level_part()},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", std::move(vocabulary)},
            {"merges", std::move(merges)}}}};
}

// The lines of all documents.
class DocumentLines {
 public:
  DocumentLines(DocumentReader& reader, std::int64_t& documents) : reader_(reader), documents_(documents) {}

  bool next(std::string& line) {
    while (at_ >= text_.size()) {
      if (!reader_.next(text_)) return false;
      text_ = valid_utf8(text_);
      ++documents_;
      at_ = 0;
    }
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    line = text_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
  }

 private:
  DocumentReader& reader_;
  std::int64_t& documents_;
  std::string text_;
  std::size_t at_ = 0;
};

OrderedFile train_unigram_file(DocumentReader& reader, const TokenizerTraining& training,
                               TokenizerTrainingSummary& summary) {
  if (reader.bytes() == 0) return nullptr;  // the library's error would quote its source
  DocumentLines lines(reader, summary.documents);
  const TrainedPieces trained = train_pieces([&](std::string& line) { return lines.next(line); },
                                             training.vocabulary_size, training.specials, training.threads);
  OrderedFile vocabulary = OrderedFile::array();
  for (const auto& [piece, score] : trained.pieces) vocabulary.push_back({piece, score});
  summary.tokens = static_cast<std::int64_t>(trained.pieces.size());
  return {
      {"normalizer", nullptr},
      {"pre_tokenizer", metaspace_part()},
      {"post_processor", nullptr},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {OrderedFile{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
          OrderedFile{{"type", "ByteFallback"}}, OrderedFile{{"type", "Fuse"}},
          OrderedFile{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "Unigram"}, {"unk_id", trained.unknown}, {"vocab", std::move(vocabulary)}, {"byte_fallback", true}}}};
}

// The members in the order in which Hugging Face's tokenizers writes them.
OrderedFile full_file(const OrderedFile& parts, const std::vector<std::string>& specials) {
  OrderedFile added = OrderedFile::array();
  const bool is_unigram = parts["model"]["type"] == "Unigram";
  const auto add = [&](const std::string& token, std::size_t id) {
    added.push_back({{"id", id},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  };
  if (is_unigram) add("<unk>", parts["model"]["unk_id"]);
  for (std::size_t i = 0; i < specials.size(); ++i) add(specials[i], i + (is_unigram ? 1 : 0));
  OrderedFile file = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", added}};
  for (const auto& [name, value] : parts.items()) file[name] = value;
  return file;
}

OrderedFile settings_file(const TokenizerTraining& training) {
  OrderedFile file = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (!training.specials.empty()) file["eos_token"] = training.specials.front();
  if (training.model == TokenizerModel::kUnigram) file["unk_token"] = "<unk>";
  return file;
}

void require_vocabulary_size(const TokenizerTraining& training) {
  constexpr std::int64_t kByteTokens = 256;
  const auto least = kByteTokens + static_cast<std::int64_t>(training.specials.size()) +
                     (training.model == TokenizerModel::kUnigram ? 1 : 0);
  if (training.vocabulary_size <= least)
    throw UsageError({"--vocab-size", fmt::format("{} leaves no token for text", training.vocabulary_size),
                      fmt::format("more than {}: the bytes and the special tokens", least), ""});
}

}  // namespace

TokenizerTrainingSummary train_tokenizer(const TokenizerTraining& training) {
  require_vocabulary_size(training);
  const std::string path = training.folder + "/tokenizer.json";
  if (path_exists(path))
    throw InputError({path, "the file exists", "a directory without a tokenizer", "choose another directory"});
  const double started = steady_seconds();
  DocumentReader reader(training.files, training.documents);
  TokenizerTrainingSummary summary{.bytes = reader.bytes()};
  const OrderedFile parts = training.model == TokenizerModel::kPairs ? train_pairs_file(reader, training, summary)
                                                                     : train_unigram_file(reader, training, summary);
  if (parts.is_null())
    throw InputError({training.files.front(), fmt::format("the {} files contain no text", training.files.size()),
                      "text", "check the files"});
  make_folders(training.folder);
  write_text_durably(training.folder + "/tokenizer_config.json", settings_file(training).dump(2) + "\n");
  write_text_durably(path, full_file(parts, training.specials).dump(2) + "\n");
  summary.seconds = steady_seconds() - started;
  return summary;
}

}  // namespace gantry
