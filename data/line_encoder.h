// Encodes lines of JSON training data as tokens.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/data/chat_folder.h"
#include "gantry/data/dataset.h"
#include "gantry/data/images/image_reader.h"
#include "gantry/data/line_rows.h"
#include "gantry/data/tokenizers/text_ends.h"

namespace gantry {

// The reason why a run does not read images, as parts of an error message.
struct NoImages {
  std::string reason = "this run reads text only";
  std::string expected = "a model with its image encoder";
  std::string remedy = "set model.config: {image_encoder: true} for a model that has one, or remove the images";
};

// Settings for reading lines.
struct LineRules {
  std::string tokenizer;  // argument of load_tokenizer()
  std::int64_t sequence_length = 0;
  std::int64_t text_length = 0;  // maximum number of tokens of each text of a preference; 0: no limit of its own
  // Above 0, lines are pairs: an encoder reads the prompt of at most sequence_length tokens, and a decoder is
  // trained on the completion of at most target_length tokens.
  std::int64_t target_length = 0;
  std::int64_t vocabulary = 0;
  std::string chat_template;             // its name; empty: the template in the tokenizer's directory
  std::string template_kwargs;           // see data.template_kwargs: a JSON object; empty: none
  std::time_t now = std::time(nullptr);  // result of strftime_now() in chat templates
  TextEnds ends;
  std::string loss_on = "completions";
  std::string bad_lines = "stop";  // see data.bad_lines
  EncodingResources encoding = {};
  std::shared_ptr<const ImageReader> images = {};  // null: images are rejected, for the reason in no_images
  NoImages no_images = {};
};

// Returns the files together with all settings on which their rows depend. `kind`: the form of the rows.
LineRowsInput rows_input(const char* kind, const LinePaths& paths, const LineRules& rules);

// Tokens [first, second) of a line, and their kind: "prompt", "completion", "answer", ...
struct LinePart {
  std::int64_t first = 0, second = 0;
  const char* name = "";
};

// An image of a line. Its tokens, with those of its marks, are [first, second) of the line.
struct LineImage {
  std::string file;  // relative to the directory of the line's file
  ImageSize size;    // after the processor
  std::int64_t first = 0, second = 0;
};

// Returns the rules of a configuration. Throws ConfigError without data.tokenizer, unless the vocabulary is
// the 256 bytes.
LineRules line_rules(const DataConfig& data, std::int64_t vocabulary);

// The tokens of one line. For a pair, the tokens of the prompt and then those of the completion, which are trained on,
// each between the special tokens of a text.
struct LineTokens {
  std::vector<std::int32_t> tokens;
  // Tokens that are trained on, as ranges [first, second) in order. The first token of the line is never
  // trained on.
  std::vector<std::pair<std::int64_t, std::int64_t>> trained;
  std::vector<LinePart> parts;    // the first part that has a token counts; tokens in no part are special
  std::vector<LineImage> images;  // in order; their tokens are never trained
  bool was_truncated = false, is_chat = false;

  std::int64_t places() const { return static_cast<std::int64_t>(tokens.size()) - 1; }  // in a sample
  std::int64_t trained_tokens() const;
};

// Appends the tokens of a line as a document to show to users. `is_pair`: prompt and completion have separate
// positions.
void append_tokens(const LineTokens& line, std::int64_t document, bool is_pair, std::vector<SampleToken>& tokens);

// Thread-safe.
class LineEncoder {
 public:
  // Throws InputError for a tokenizer that cannot be read, and for a chat template that contradicts the
  // template in the tokenizer's directory.
  explicit LineEncoder(LineRules rules);

  // Encodes a line. `where`: file and line, for errors. `for_display`: `parts` also separates untrained
  // answers from prompts, which takes longer. Throws BadLine for a line that cannot be used under the rules.
  // Throws InputError for messages if there is no chat template or it cannot be read, for a token outside the
  // vocabulary, and for images if rules.images is null.
  LineTokens encode(const std::string& line, const std::string& where, bool for_display = false) const;

  std::string chat_template() const;  // name or file of the chat template; "" if there is none
  // Describes the marks of a built-in chat template that are not single tokens of the tokenizer; "" if there
  // are none.
  std::string split_marks() const;

 private:
  void surround_chat(TokenIds& ids, bool lacks_end, LineTokens& made) const;
  TokenIds encode_text(const nlohmann::ordered_json& object, const std::string& where, LineTokens& made) const;
  TokenIds encode_messages(const nlohmann::ordered_json& line, const std::string& where, bool for_display,
                           LineTokens& made) const;
  LineTokens encode_pair(const nlohmann::ordered_json& object, const std::string& where) const;
  // One side of a pair between the special tokens of a text.
  TokenIds encode_side(const nlohmann::ordered_json& object, const char* side, const std::string& where,
                       LineTokens& made) const;
  void require_known(const TokenIds& ids, const std::string& where) const;
  // Truncates long lines if the rules allow it, and rejects lines without trained tokens.
  void fit(LineTokens& made, const std::string& where) const;

  LineRules rules_;
  std::unique_ptr<Tokenizer> tokenizer_;
  SurroundingTokens ends_;
  std::optional<FolderChat> chat_;  // uses the template of the rules, or of the tokenizer's directory
};

}  // namespace gantry
