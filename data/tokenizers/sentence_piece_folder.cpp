// Converts SentencePiece's *.model in a directory without tokenizer.json to the tokenizer.json that Hugging
// Face creates from it.
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/base/base64.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/tokenizer_files.h"
#include "gantry/data/tokenizers/vocabulary.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kBlank = "\u2581";
constexpr std::int64_t kMostExtraIds = 100'000;

// One field of a message in Protocol Buffers' encoding.
struct ProtoField {
  std::uint64_t number = 0;
  std::uint64_t value = 0;  // value of a varint
  std::string_view bytes;   // bytes of a text or message, or of a fixed number (4 bytes of a float)
};

class ProtoReader {
 public:
  ProtoReader(std::string_view bytes, const std::string& place) : left_(bytes), place_(place) {}

  bool next(ProtoField& field) {
    if (left_.empty()) return false;
    const std::uint64_t key = varint();
    field = {.number = key >> 3};
    switch (key & 7) {
      case 0:
        field.value = varint();
        return true;
      case 1:
        field.bytes = take(8);
        return true;
      case 2:
        field.bytes = take(varint());
        return true;
      case 5:
        field.bytes = take(4);
        return true;
      default:
        refuse();
    }
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }
  std::string_view take(std::uint64_t count) {
    if (count > left_.size()) refuse();
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  [[noreturn]] void refuse() const {
    throw InputError({place_, "the file is truncated or damaged", "a SentencePiece model", "download it again"});
  }

  std::string_view left_;
  const std::string& place_;
};

// The parts of ModelProto (sentencepiece_model.proto) that are used.
struct SentenceModel {
  enum Kind { kUnigram = 1, kBpe = 2 };
  enum Type { kUnknown = 2, kControl = 3, kUserDefined = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    std::uint64_t type = 1;
  };
  std::vector<Piece> pieces;
  std::uint64_t kind = kUnigram;
  std::uint64_t unknown = 0;
  bool falls_back_to_bytes = false, has_prefix = true;
  std::string table;  // precompiled_charsmap
};

SentenceModel::Piece parse_piece(std::string_view bytes, const std::string& place) {
  SentenceModel::Piece piece;
  ProtoReader reader(bytes, place);
  for (ProtoField field; reader.next(field);) {
    if (field.number == 1) piece.text = valid_utf8(field.bytes);
    if (field.number == 2 && field.bytes.size() == 4) std::memcpy(&piece.score, field.bytes.data(), 4);
    if (field.number == 3) piece.type = field.value;
  }
  return piece;
}

SentenceModel parse_sentence_model(std::string_view bytes, const std::string& place) {
  SentenceModel model;
  ProtoReader reader(bytes, place);
  for (ProtoField field; reader.next(field);) {
    if (field.number == 1) model.pieces.push_back(parse_piece(field.bytes, place));
    if (field.number != 2 && field.number != 3) continue;
    ProtoReader inner(field.bytes, place);
    for (ProtoField part; inner.next(part);) {
      const bool is_trainer = field.number == 2;
      if (is_trainer && part.number == 3) model.kind = part.value;
      if (is_trainer && part.number == 35) model.falls_back_to_bytes = part.value != 0;
      if (is_trainer && part.number == 40) model.unknown = part.value;
      if (!is_trainer && part.number == 2) model.table = part.bytes;
      if (!is_trainer && part.number == 3) model.has_prefix = part.value != 0;
    }
  }
  return model;
}

// Returns the merges: every split of a piece into two other pieces. They are ordered by the piece, then by
// the position of the split.
json merges_of(const SentenceModel& model, const json& ids) {
  json merges = json::array();
  for (const auto& piece : model.pieces)
    for (std::size_t split = piece.text.empty() ? 0 : utf8_length(piece.text[0]); split < piece.text.size();
         split += utf8_length(piece.text[split])) {
      const std::string left = piece.text.substr(0, split), right = piece.text.substr(split);
      if (ids.contains(left) && ids.contains(right)) merges.push_back({left, right});
    }
  return merges;
}

json bpe_of(const SentenceModel& model, const std::string& prefix) {
  json ids = json::object();
  for (std::size_t id = 0; id < model.pieces.size(); ++id) ids[model.pieces[id].text] = id;
  json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kBlank}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (prefix != "never") decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  json bpe = {
      {"type", "BPE"}, {"fuse_unk", true}, {"byte_fallback", true}, {"vocab", ids}, {"merges", merges_of(model, ids)}};
  if (!model.falls_back_to_bytes && model.unknown < model.pieces.size())
    bpe["unk_token"] = model.pieces[model.unknown].text;
  return {
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", kBlank}, {"prepend_scheme", prefix}, {"split", false}}},
      {"decoder", {{"type", "Sequence"}, {"decoders", std::move(decoders)}}},
      {"model", std::move(bpe)}};
}

json unigram_of(const SentenceModel& model) {
  json vocabulary = json::array();
  for (const auto& piece : model.pieces) vocabulary.push_back({piece.text, piece.score});
  const json metaspace = {
      {"type", "Metaspace"}, {"replacement", kBlank}, {"prepend_scheme", model.has_prefix ? "always" : "never"}};
  return {{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}}},
          {"decoder", metaspace},
          {"model",
           {{"type", "Unigram"},
            {"unk_id", model.unknown},
            {"byte_fallback", model.falls_back_to_bytes},
            {"vocab", std::move(vocabulary)}}}};
}

// Rejects tokenizer classes whose ids differ from those of the model's pieces.
void refuse_other_classes(const JsonView& settings) {
  const auto name = settings.find("tokenizer_class");
  if (!name) return;
  for (const char* other : {"XLMRoberta", "Camembert", "MBart", "Nllb", "Albert", "XLNet", "Barthez", "RemBert",
                            "DebertaV2", "Pegasus", "BigBird", "M2M100", "Marian", "Speech2Text", "FNet", "Reformer"})
    if (name->text().starts_with(other))
      name->refuse("a class that reads the SentencePiece model like Llama or T5",
                   "save the tokenizer with transformers, which writes a tokenizer.json");
}

// Returns the post-processor that adds Llama's begin token before a text, or T5's end token after it.
json surrounded_by(std::optional<std::int64_t> before, std::optional<std::int64_t> after) {
  if (!before && !after) return nullptr;
  const json token = {{"SpecialToken", {{"id", "special"}}}}, text = {{"Sequence", {{"id", "A"}}}};
  return {{"type", "TemplateProcessing"},
          {"single", before ? json{token, text} : json{text, token}},
          {"special_tokens", {{"special", {{"ids", {before ? *before : *after}}}}}}};
}

json added_token(const std::string& content, std::size_t id) {
  return {{"id", id}, {"content", content}, {"special", true}, {"normalized", false}};
}

// Returns the added tokens: control symbols, user-defined pieces, the unknown token, and the tokens that the
// files next to the model add. `config`: tokenizer_config.json.
json added_of(const SentenceModel& model, const JsonView& config, const fs::path& folder) {
  json added = json::array();
  const auto is_added = [&](const std::string& content) {
    return std::ranges::any_of(added, [&](const json& token) { return token["content"] == content; });
  };
  for (std::size_t id = 0; id < model.pieces.size(); ++id)
    if (const auto type = model.pieces[id].type; type >= SentenceModel::kUnknown && type <= SentenceModel::kUserDefined)
      added.push_back(added_token(model.pieces[id].text, id));
  if (const auto extra = config.find("extra_ids")) {  // T5's <extra_id_0> is the last token
    const std::int64_t count = extra->count(kMostExtraIds);
    std::size_t id = model.pieces.size();
    for (std::int64_t i = count - 1; i >= 0; --i)
      if (const std::string content = fmt::format("<extra_id_{}>", i); !is_added(content))
        added.push_back(added_token(content, id++));
  }
  if (const fs::path path = folder / "added_tokens.json"; path_exists(path)) {
    const json file = read_json_file(path, kMostTokenizerBytes);
    for (const auto& [content, id] : JsonView(file, path.string()).object().items())
      if (!is_added(content))
        added.push_back(
            added_token(content, static_cast<std::size_t>(JsonView(id, fmt::format("{}: '{}'", path.string(), content))
                                                              .count(token_id_limit(2 * model.pieces.size())))));
  }
  return added;
}

}  // namespace

ConvertedTokenizer convert_sentence_piece(const fs::path& path, const SpecialTokenIds& special) {
  const std::string bytes = read_bytes(path, kMostTokenizerBytes), place = path.string();
  const SentenceModel model = parse_sentence_model(bytes, place);
  const fs::path folder = path.parent_path(), config_path = folder / "tokenizer_config.json";
  const json config = path_exists(config_path) ? read_json_file(config_path, kMostTokenizerBytes) : json::object();
  const JsonView settings(config, config_path.string());
  refuse_other_classes(settings);
  if (model.kind != SentenceModel::kBpe && model.kind != SentenceModel::kUnigram)
    throw InputError({place, fmt::format("the model type is {}", model.kind), "1 (Unigram) or 2 (BPE)",
                      "use a model of one of these types"});
  const bool has_prefix = model.has_prefix && settings.flag_or("add_prefix_space", true);
  const std::string prefix = !has_prefix ? "never" : settings.flag_or("legacy", false) ? "always" : "first";
  const bool is_pairs = model.kind == SentenceModel::kBpe;
  json made = is_pairs ? bpe_of(model, prefix) : unigram_of(model);
  if (!model.table.empty())
    made["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(model.table)}};
  made["added_tokens"] = added_of(model, settings, folder);
  made["post_processor"] = is_pairs ? surrounded_by(special.begin, {}) : surrounded_by({}, special.end);
  return {std::move(made), path, special, /*follows_flags=*/is_pairs};
}

}  // namespace gantry
