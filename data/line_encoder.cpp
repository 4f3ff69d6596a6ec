#include "gantry/data/line_encoder.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/core/config/chat_template_names.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/data/chat_template.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/line_images.h"

namespace gantry {
namespace {

using OrderedLine = nlohmann::ordered_json;  // chat templates need the members in their order

constexpr const char* kExpected = "an object with text, with prompt and completion, or with messages";

OrderedLine parsed_line(const std::string& line, const std::string& where) {
  OrderedLine object;
  if (const auto fault = parse_strict(line, object); !fault.empty()) throw BadLine({where, fault, kExpected, ""});
  if (!object.is_object()) throw BadLine({where, "the line is not a JSON object", kExpected, ""});
  const bool has_pair = object.contains("prompt") && object.contains("completion");
  const int kinds = (has_pair ? 1 : 0) + (object.contains("text") ? 1 : 0) + (object.contains("messages") ? 1 : 0);
  if (kinds != 1)
    throw BadLine(
        {where,
         kinds == 0 ? "the object has none of the three forms" : "the object has more than one of the three forms",
         kExpected, ""});
  return object;
}

std::string text_of(const OrderedLine& object, const char* key, const std::string& where) {
  if (!object[key].is_string()) throw BadLine({where, fmt::format("'{}' is not a string", key), "a string", ""});
  return object[key].get<std::string>();
}

using ByteRanges = std::vector<std::pair<std::size_t, std::size_t>>;

// Encodes a text, and finds its tokens in ranges of its bytes.
std::vector<std::pair<std::int64_t, std::int64_t>> token_ranges(const Tokenizer& tokenizer, const std::string& text,
                                                                const ByteRanges& ranges, TokenIds& ids) {
  std::vector<std::size_t> places;
  for (const auto& [begin, end] : ranges) places.insert(places.end(), {begin, end});
  std::ranges::sort(places);
  ids.clear();
  const auto counts = tokenizer.append_and_count(text, places, ids);
  const auto count_at = [&](std::size_t place) {
    return static_cast<std::int64_t>(
        counts[static_cast<std::size_t>(std::ranges::lower_bound(places, place) - places.begin())]);
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  for (const auto& [begin, end] : ranges) found.emplace_back(count_at(begin), count_at(end));
  return found;
}

}  // namespace

std::int64_t LineTokens::trained_tokens() const {
  std::int64_t count = 0;
  for (const auto& [first, second] : trained)
    count += std::max<std::int64_t>(0, second - std::max<std::int64_t>(1, first));
  return count;
}

LineRules line_rules(const DataConfig& data, std::int64_t vocabulary) {
  return {.tokenizer = choose_text_tokenizer(data.tokenizer, "", vocabulary),
          .sequence_length = data.sequence_length,
          .target_length = data.target_length,
          .vocabulary = vocabulary,
          .chat_template = data.chat_template,
          .template_kwargs = data.template_kwargs,
          .now = data.started > 0 ? static_cast<std::time_t>(data.started) : std::time(nullptr),
          .ends = {data.bos, data.eos},
          .loss_on = data.loss_on,
          .bad_lines = data.bad_lines,
          .encoding = encoding_resources(data)};
}

LineRowsInput rows_input(const char* kind, const LinePaths& paths, const LineRules& rules) {
  const nlohmann::json text = {kind,
                               rules.tokenizer,
                               rules.sequence_length,
                               rules.text_length,
                               rules.target_length,
                               rules.vocabulary,
                               rules.chat_template,
                               rules.template_kwargs,
                               rules.ends.bos,
                               rules.ends.eos,
                               rules.loss_on,
                               rules.bad_lines,
                               time_in_chats(rules.tokenizer, rules.chat_template, rules.now),
                               image_key(rules.images.get(), paths)};
  EncodingInput input{.files = paths, .tokenizer = rules.tokenizer, .rules = text.dump()};
  if (rules.images) input.state = [paths](const OpenProgress& progress) { return image_state(paths, progress); };
  return {.input = std::move(input), .stops_at_bad_line = rules.bad_lines == "stop", .resources = rules.encoding};
}

void append_tokens(const LineTokens& line, std::int64_t document, bool is_pair, std::vector<SampleToken>& tokens) {
  std::int64_t start = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(line.tokens.size()); ++i) {
    const auto holds = [i](std::int64_t first, std::int64_t second) { return first <= i && i < second; };
    const auto part =
        std::ranges::find_if(line.parts, [&](const auto& each) { return holds(each.first, each.second); });
    const bool counts =
        std::ranges::any_of(line.trained, [&](const auto& each) { return holds(each.first, each.second); });
    if (is_pair && i == line.trained.front().first) start = i;
    const bool is_first = i == 0 && !is_pair;
    tokens.push_back({.id = line.tokens[static_cast<std::size_t>(i)],
                      .document = document,
                      .position = i - start,
                      .is_trained = counts && !is_first,
                      .why = counts && is_first         ? "first token of the document"
                             : part == line.parts.end() ? "special token"
                                                        : part->name});
  }
}

LineEncoder::LineEncoder(LineRules rules)
    : rules_(std::move(rules)),
      tokenizer_(load_tokenizer(rules_.tokenizer)),
      ends_(ends_of_training_text(*tokenizer_, rules_.ends)),
      chat_(open_chat(rules_.tokenizer, rules_.chat_template, rules_.template_kwargs, rules_.now)) {}

std::string LineEncoder::chat_template() const { return chat_ ? chat_->file() : ""; }

std::string LineEncoder::split_marks() const {
  if (rules_.chat_template.empty()) return "";
  std::vector<std::string> split;
  for (const auto& mark : chat_marks(rules_.chat_template))
    if (mark.starts_with('<'))
      if (const auto tokens = tokenizer_->encode(mark).size(); tokens > 1)
        split.push_back(fmt::format("{} is {} tokens", mark, tokens));
  return fmt::format("{}", fmt::join(split, ", "));
}

LineTokens LineEncoder::encode(const std::string& line, const std::string& where, bool for_display) const {
  const OrderedLine object = parsed_line(line, where);
  require_images_read(rules_, object, where);
  if (rules_.target_length > 0) return encode_pair(object, where);
  LineTokens made;
  const TokenIds ids = object.contains("messages") ? encode_messages(object, where, for_display, made)
                                                   : encode_text(object, where, made);
  if (rules_.loss_on == "all") made.trained = {{0, static_cast<std::int64_t>(ids.size())}};
  keep_images_untrained(made);
  require_known(ids, where);
  made.tokens.assign(ids.begin(), ids.end());
  fit(made, where);
  return made;
}

// A text, or a prompt and its completion, which is trained on.
TokenIds LineEncoder::encode_text(const OrderedLine& object, const std::string& where, LineTokens& made) const {
  const bool is_pair = !object.contains("text");
  TokenIds ids = tokenizer_->encode(text_of(object, is_pair ? "prompt" : "text", where));
  surround(ids, {ends_.before, {}});
  const auto before = static_cast<std::int64_t>(ends_.before.size()), after = static_cast<std::int64_t>(ids.size());
  made.parts = {{std::min(before, after), after, is_pair ? "prompt" : "text"}};
  const auto first = is_pair ? after : 0;
  if (is_pair) {
    const std::string completion = text_of(object, "completion", where);
    if (completion.empty()) throw BadLine({where, "the completion is empty", "text to train on", "remove the line"});
    tokenizer_->append(completion, ids);
    made.parts.push_back({first, static_cast<std::int64_t>(ids.size()), "completion"});
  }
  surround(ids, {{}, ends_.after});
  made.trained = {{first, static_cast<std::int64_t>(ids.size())}};
  return ids;
}

void LineEncoder::require_known(const TokenIds& ids, const std::string& where) const {
  const std::int64_t of_images = rules_.images ? rules_.images->format().token : -1;
  for (const auto id : ids)
    if (id >= rules_.vocabulary && id != of_images)
      throw InputError({where,
                        fmt::format("token {} of the tokenizer {} is outside the model's vocabulary of {}", id,
                                    rules_.tokenizer, rules_.vocabulary),
                        fmt::format("0 to {}", rules_.vocabulary - 1), "check that data.tokenizer is the model's own"});
}

LineTokens LineEncoder::encode_pair(const OrderedLine& object, const std::string& where) const {
  if (!object.contains("prompt"))
    throw BadLine({where, "the object has no prompt", "an object with prompt and completion", ""});
  LineTokens made;
  for (const char* side : {"prompt", "completion"}) {
    const TokenIds ids = encode_side(object, side, where, made);
    require_known(ids, where);
    const auto first = static_cast<std::int64_t>(made.tokens.size());
    made.tokens.insert(made.tokens.end(), ids.begin(), ids.end());
    made.trained = {{first, static_cast<std::int64_t>(made.tokens.size())}};
    made.parts.push_back({first, made.trained.front().second, side});
  }
  return made;
}

// A truncated text keeps its special tokens, as with the tokenizers of Hugging Face.
TokenIds LineEncoder::encode_side(const OrderedLine& object, const char* side, const std::string& where,
                                  LineTokens& made) const {
  const bool is_prompt = std::string_view(side) == "prompt";
  const std::int64_t room = is_prompt ? rules_.sequence_length : rules_.target_length;
  TokenIds ids = tokenizer_->encode(text_of(object, side, where));
  if (ids.empty()) throw BadLine({where, fmt::format("the {} is empty", side), "text", "remove the line"});
  TokenIds full = ids;
  surround(full, ends_);
  const auto tokens = static_cast<std::int64_t>(full.size()), excess = tokens - room;
  if (excess > 0) {
    const char* key = is_prompt ? "data.sequence_length" : "data.target_length";
    if (rules_.bad_lines != "cut")
      throw BadLine({where, fmt::format("the {} has {} tokens, more than {} {}", side, tokens, key, room),
                     "a shorter one", fmt::format("raise {}, or set data.bad_lines to skip or cut", key)});
    ids.resize(static_cast<std::size_t>(std::max<std::int64_t>(0, static_cast<std::int64_t>(ids.size()) - excess)));
    surround(ids, ends_);
    made.was_truncated = true;
    return ids;
  }
  return full;
}

// A part of the assistant begins with the first token that the text up to there does not determine.
TokenIds LineEncoder::encode_messages(const OrderedLine& line, const std::string& where, bool for_display,
                                      LineTokens& made) const {
  if (!chat_)
    throw InputError(
        {where, "there is no template for its messages in the tokenizer's directory or in data.chat_template",
         fmt::format("one of {}", fmt::join(chat_template_names(), ", ")),
         "set data.chat_template to the template that this model was trained with, or write prompt and completion"});
  ChatResult rendered = chat_->write(line, rules_.loss_on);
  ChatText& chat = rendered.chat;
  if (!rendered.expected.empty())
    throw BadLine({where, rendered.fault, rendered.expected, "correct the line, or set data.bad_lines: skip"});
  if (!rendered.fault.empty())
    throw BadLine({where, rendered.fault, "messages that the chat template " + chat_template() + " can render",
                   rules_.chat_template.empty() ? "change them, or write prompt and completion"
                                                : "change them, or data.chat_template"});
  if (rules_.images) made.images = images_of_line(*rules_.images, where, line["messages"], chat);
  made.is_chat = true;
  TokenIds ids;
  const auto parts_of = [&](const ByteRanges& ranges) { return token_ranges(*tokenizer_, chat.text, ranges, ids); };
  if (!made.images.empty()) set_places(parts_of(chat.image_texts), made);
  made.trained = parts_of(chat.said);
  for (const auto& [first, second] : made.trained) made.parts.push_back({first, second, "answer"});
  if (for_display)
    for (const auto& [first, second] : parts_of(chat.not_trained))
      made.parts.push_back({first, second, "answer without a loss"});
  made.parts.push_back({0, static_cast<std::int64_t>(ids.size()),
                        rules_.loss_on == "all" ? "message or template" : "prompt or template"});
  surround_chat(ids, chat.lacks_end, made);
  return ids;
}

// By data.bos and data.eos: auto adds only the end token of an answer that the template leaves without an end.
void LineEncoder::surround_chat(TokenIds& ids, bool lacks_end, LineTokens& made) const {
  const std::size_t before = ids.size();
  if (rules_.ends.bos == "always") surround(ids, {ends_.before, {}});
  const auto moved = static_cast<std::int64_t>(ids.size() - before);
  for (auto& [first, second] : made.trained) first += moved, second += moved;
  for (auto& part : made.parts) part.first += moved, part.second += moved;
  for (auto& image : made.images) image.first += moved, image.second += moved;
  const bool adds_end = rules_.ends.eos == "always" || (rules_.ends.eos == "auto" && lacks_end);
  if (!adds_end) return;
  surround(ids, {{}, ends_.after});
  if (lacks_end && !made.trained.empty()) made.trained.back().second = static_cast<std::int64_t>(ids.size());
}

void LineEncoder::fit(LineTokens& made, const std::string& where) const {
  const std::int64_t room = rules_.sequence_length;
  const std::size_t tokens = made.tokens.size();
  if (made.places() > room && rules_.bad_lines != "cut")
    throw BadLine(
        {where,
         fmt::format("the document has {} tokens, more than data.sequence_length {} + 1 = {}", tokens, room, room + 1),
         "a document that fits into a sample",
         "raise data.sequence_length, shorten it, or set data.bad_lines to skip or cut"});
  if (made.places() > room) {
    made.tokens.resize(static_cast<std::size_t>(room + 1));
    made.was_truncated = true;
    for (auto& [first, second] : made.trained) second = std::min(second, room + 1);
    std::erase_if(made.trained, [](const auto& range) { return range.first >= range.second; });
  }
  if (rules_.images) fit_images(*rules_.images, where, made);
  if (made.trained_tokens() == 0)
    throw UntrainedLine(
        {where,
         made.was_truncated
             ? fmt::format("the document has {} tokens, but the loss covers none of the first {}", tokens, room + 1)
             : fmt::format("the document has {} tokens, but the loss covers none of them", tokens),
         "at least two tokens, with one in the completion", "remove the line"});
}

}  // namespace gantry
