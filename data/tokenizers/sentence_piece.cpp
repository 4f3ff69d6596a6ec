#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/library_tokenizers.h"

namespace gantry {
namespace {

constexpr std::uintmax_t kMostModelBytes = 512u << 20;  // the largest published ones have about 5 MB

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(const std::filesystem::path& path) {
    const auto status = processor_.LoadFromSerializedProto(read_bytes(path, kMostModelBytes));
    if (!status.ok())
      throw InputError({path.string(), fmt::format("the file is not a SentencePiece model: {}", status.message()), "",
                        "download it again"});
    const auto known = [](int id) { return id < 0 ? std::nullopt : std::optional<std::int64_t>(id); };
    special_ = {known(processor_.bos_id()), known(processor_.eos_id()), known(processor_.pad_id()),
                known(processor_.unk_id())};
  }

  std::string kind() const override { return "SentencePiece"; }
  std::int64_t size() const override { return processor_.GetPieceSize(); }
  SpecialTokenIds special() const override { return special_; }

  void append(std::string_view text, TokenIds& ids) const override {
    const bool is_valid = valid_utf8_prefix(text) == text.size();
    const std::string replaced = is_valid ? "" : valid_utf8(text);
    std::vector<int> pieces;
    check(processor_.Encode(is_valid ? text : replaced, &pieces));
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

  using Tokenizer::decode;
  std::string decode(std::span<const std::int64_t> ids, bool skip_specials) const override {
    std::vector<int> pieces;
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= size())
        throw InputError({fmt::format("token {}", id), "the token is not in the vocabulary",
                          fmt::format("0 to {}", size() - 1), ""});
      const int piece = static_cast<int>(id);
      if (!skip_specials || (!processor_.IsControl(piece) && !processor_.IsUnknown(piece))) pieces.push_back(piece);
    }
    std::string text;
    check(processor_.Decode(pieces, &text));
    return text;
  }

 private:
  static void check(const sentencepiece::util::Status& status) {
    if (!status.ok()) throw InputError({"SentencePiece", status.ToString(), "", ""});
  }

  sentencepiece::SentencePieceProcessor processor_;
  SpecialTokenIds special_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentence_piece(const std::filesystem::path& path) {
  return std::make_unique<SentencePiece>(path);
}

}  // namespace gantry
