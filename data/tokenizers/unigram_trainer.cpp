#include "gantry/data/tokenizers/unigram_trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr double kNeverInText = -1000;   // log probability of pieces that a text may spell, such as <0x41>
constexpr int kMostLineBytes = 1 << 20;  // longer lines are left out

class TextLines final : public sentencepiece::SentenceIterator {
 public:
  explicit TextLines(const std::function<bool(std::string&)>& next_line) : next_line_(next_line) { Next(); }
  bool done() const override { return is_done_; }
  void Next() override { is_done_ = !next_line_(line_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<bool(std::string&)>& next_line_;
  std::string line_;
  bool is_done_ = false;
};

void require_trained(const sentencepiece::util::Status& status) {
  if (!status.ok())
    throw InputError({"the Unigram tokenizer", fmt::format("SentencePiece cannot train it: {}", status.message()), "",
                      "change --vocab-size, or add text"});
}

}  // namespace

TrainedPieces train_pieces(const std::function<bool(std::string& line)>& next_line, std::int64_t vocabulary_size,
                           const std::vector<std::string>& specials, int threads) {
  TextLines lines(next_line);
  std::string model;
  require_trained(sentencepiece::SentencePieceTrainer::Train(
      std::unordered_map<std::string, std::string>{{"model_type", "unigram"},
                                                   {"vocab_size", fmt::format("{}", vocabulary_size)},
                                                   {"byte_fallback", "true"},
                                                   {"normalization_rule_name", "identity"},
                                                   {"remove_extra_whitespaces", "false"},
                                                   {"character_coverage", "0.9995"},
                                                   {"control_symbols", fmt::format("{}", fmt::join(specials, ","))},
                                                   {"bos_id", "-1"},
                                                   {"eos_id", "-1"},
                                                   {"max_sentence_length", fmt::format("{}", kMostLineBytes)},
                                                   {"num_threads", fmt::format("{}", threads)},
                                                   {"minloglevel", "2"}},
      &lines, &model));
  sentencepiece::SentencePieceProcessor processor;
  require_trained(processor.LoadFromSerializedProto(model));
  TrainedPieces made{.pieces = {}, .unknown = processor.unk_id()};
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    const bool is_text = !processor.IsByte(id) && !processor.IsControl(id) && !processor.IsUnknown(id);
    made.pieces.emplace_back(processor.IdToPiece(id), is_text ? processor.GetScore(id) : kNeverInText);
  }
  return made;
}

}  // namespace gantry
