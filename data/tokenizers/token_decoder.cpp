#include "gantry/data/tokenizers/token_decoder.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "gantry/core/base/utf8.h"
#include "gantry/data/tokenizers/byte_level.h"
#include "gantry/data/tokenizers/normalizer.h"

namespace gantry {
namespace {

using Texts = std::vector<std::string>;

class DecodeStep final : public TokenDecoder {
 public:
  using Body = std::function<Texts(Texts)>;
  explicit DecodeStep(Body body) : body_(std::move(body)) {}
  Texts apply(Texts tokens) const override { return body_(std::move(tokens)); }

 private:
  Body body_;
};

std::unique_ptr<TokenDecoder> decoder_of(DecodeStep::Body body) {
  return std::make_unique<DecodeStep>(std::move(body));
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Removes the space before punctuation and before the ends of contractions.
void clean_up(std::string& text) {
  constexpr std::pair<const char*, const char*> kForms[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kForms) replace_all(text, from, to);
}

std::unique_ptr<TokenDecoder> read_word_piece(const JsonView& view) {
  const auto prefix_view = view.find("prefix");
  const std::string prefix = prefix_view ? prefix_view->text() : "##";
  const bool cleans_up = view.flag_or("cleanup", true);
  return decoder_of([prefix, cleans_up](Texts tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) tokens[i] = tokens[i].starts_with(prefix) ? tokens[i].substr(prefix.size()) : " " + tokens[i];
      if (cleans_up) clean_up(tokens[i]);
    }
    return tokens;
  });
}

std::unique_ptr<TokenDecoder> read_metaspace_decoder(const JsonView& view) {
  const auto blank_view = view.find("replacement"), scheme = view.find("prepend_scheme");
  const std::string blank = blank_view ? blank_view->text() : "\u2581";
  if (blank.empty()) blank_view->refuse("a character");
  const bool has_prefix = scheme ? scheme->text() != "never" : view.flag_or("add_prefix_space", true);
  return decoder_of([blank, has_prefix](Texts tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], blank, i == 0 && has_prefix ? "" : " ");
    return tokens;
  });
}

// Returns the text of a key. Throws InputError if it is empty.
std::string mark_or(const JsonView& view, const char* key, const std::string& otherwise) {
  const std::string mark = view.text_or(key, otherwise);
  if (mark.empty()) view.at(key).refuse("a text");
  return mark;
}

// The suffix marks the end of a word. It becomes a space; at the end of the text it is removed.
std::unique_ptr<TokenDecoder> read_pair_decoder(const JsonView& view) {
  return decoder_of([suffix = mark_or(view, "suffix", "</w>")](Texts tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
    return tokens;
  });
}

// Joins repeated tokens. Padding separates equal tokens that are not joined (connectionist temporal
// classification).
std::unique_ptr<TokenDecoder> read_ctc(const JsonView& view) {
  const std::string padding = mark_or(view, "pad_token", "<pad>");
  const std::string delimiter = mark_or(view, "word_delimiter_token", "|");
  return decoder_of([padding, delimiter, cleans_up = view.flag_or("cleanup", true)](Texts tokens) {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (auto& token : tokens) {
      replace_all(token, padding, "");
      if (!cleans_up) continue;
      clean_up(token);
      replace_all(token, delimiter, " ");
    }
    return tokens;
  });
}

Texts join_spelled_bytes(const Texts& tokens) {
  std::string bytes;
  for (const auto& token : tokens) bytes += bytes_of_token(token);
  return {bytes};
}

// Converts tokens such as <0x41> to bytes. Adjacent bytes become one text.
Texts join_bytes(Texts tokens) {
  Texts joined;
  bool was_byte = false;
  for (auto& token : tokens) {
    unsigned byte = 0;
    bool is_byte = token.size() == 6 && token.starts_with("<0x") && token[5] == '>';
    if (is_byte) {
      const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
      is_byte = error == std::errc() && end == token.data() + 5;
    }
    if (is_byte && was_byte)
      joined.back() += static_cast<char>(byte);
    else
      joined.push_back(is_byte ? std::string(1, static_cast<char>(byte)) : std::move(token));
    was_byte = is_byte;
  }
  return joined;
}

Texts fuse(const Texts& tokens) {
  std::string whole;
  for (const auto& token : tokens) whole += token;
  return {whole};
}

std::unique_ptr<TokenDecoder> read_strip(const JsonView& view) {
  const std::string content = view.at("content").text();
  if (content.empty()) view.at("content").refuse("a character");
  constexpr std::int64_t kMost = 1 << 20;
  const auto start = view.at("start").count(kMost), stop = view.at("stop").count(kMost);
  return decoder_of([content, start, stop](Texts tokens) {
    for (auto& token : tokens) {
      for (std::int64_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
      for (std::int64_t i = 0; i < stop && token.ends_with(content); ++i) token.resize(token.size() - content.size());
    }
    return tokens;
  });
}

std::unique_ptr<TokenDecoder> read_replace_decoder(const JsonView& view) {
  const auto replace = read_normalizer(view);  // the same keys
  const bool needs_utf8 = view.at("pattern").find("Regex").has_value();
  return decoder_of([replace, needs_utf8](Texts tokens) {
    for (auto& token : tokens) token = replace->apply(needs_utf8 ? valid_utf8(token) : token);
    return tokens;
  });
}

std::unique_ptr<TokenDecoder> read_decoder_sequence(const JsonView& view) {
  const auto steps = std::make_shared<std::vector<std::unique_ptr<TokenDecoder>>>();
  const JsonView list = view.at("decoders");
  for (std::size_t i = 0; i < list.list().size(); ++i) steps->push_back(read_decoder(list.element(i)));
  return decoder_of([steps](Texts tokens) {
    for (const auto& step : *steps) tokens = step->apply(std::move(tokens));
    return tokens;
  });
}

}  // namespace

std::unique_ptr<TokenDecoder> read_decoder(const JsonView& view) {
  const JsonView type_view = view.at("type");
  const std::string& type = type_view.text();
  if (type == "Sequence") return read_decoder_sequence(view);
  if (type == "Metaspace") return read_metaspace_decoder(view);
  if (type == "WordPiece") return read_word_piece(view);
  if (type == "Replace") return read_replace_decoder(view);
  if (type == "ByteFallback") return decoder_of(join_bytes);
  if (type == "Fuse") return decoder_of(fuse);
  if (type == "ByteLevel") return decoder_of(join_spelled_bytes);
  if (type == "BPEDecoder") return read_pair_decoder(view);
  if (type == "CTC") return read_ctc(view);
  if (type == "Strip") return read_strip(view);
  type_view.refuse("BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, Replace, Sequence, Strip or WordPiece",
                   "use a tokenizer with one of these");
}

std::unique_ptr<TokenDecoder> make_joining_decoder() {
  return decoder_of([](Texts tokens) { return tokens; });
}

}  // namespace gantry
