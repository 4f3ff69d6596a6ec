#include "gantry/data/tokenizers/byte_pair_tokenizer.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/utf8.h"
#include "gantry/data/tokenizers/byte_level.h"

namespace gantry {

struct BytePairTokenizer::Worker {
  TextSplit::ScratchPointer split = TextSplit::make_scratch();
  PieceCache cache;
};

namespace {

BytePair make_pairs(const BytePairModel& model) {
  std::array<std::int32_t, 256> bytes;
  bytes.fill(BytePair::kNone);
  TokenTable whole;
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    const auto spelled = spelled_bytes(model.tokens[id]);
    if (!spelled || spelled->empty()) continue;
    if (spelled->size() == 1) bytes[static_cast<unsigned char>((*spelled)[0])] = static_cast<std::int32_t>(id);
    if (model.ignore_merges) whole.emplace(*spelled, static_cast<std::int32_t>(id));
  }
  return {bytes, model.merges, std::move(whole)};
}

}  // namespace

BytePairTokenizer::BytePairTokenizer(const BytePairModel& model)
    : special_(model.special), added_(model.added, model.normalizer), pairs_(make_pairs(model)) {
  for (const auto& token : model.tokens) bytes_.push_back(bytes_of_token(token));
  for (const auto& token : model.added) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= bytes_.size()) bytes_.resize(id + 1);
    bytes_[id] = bytes_of_token(token.is_normalized && model.normalizer ? model.normalizer->apply(token.content)
                                                                        : token.content);
  }
  for (const auto& [pattern, add_prefix_space] : model.steps)
    steps_.push_back({pattern.empty() ? nullptr : std::make_unique<TextSplit>(pattern), add_prefix_space});
}

BytePairTokenizer::~BytePairTokenizer() = default;

void BytePairTokenizer::append(std::string_view text, TokenIds& ids) const {
  std::unique_ptr<Worker> worker;
  if (const std::lock_guard lock(mutex_); !idle_.empty()) {
    worker = std::move(idle_.back());
    idle_.pop_back();
  }
  if (!worker) worker = std::make_unique<Worker>();
  if (valid_utf8_prefix(text) == text.size())
    append_valid(text, *worker, ids);
  else
    append_valid(valid_utf8(text), *worker, ids);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(worker));
}

void BytePairTokenizer::append_valid(std::string_view text, Worker& worker, TokenIds& ids) const {
  added_.split(text, [&](const TextPart& part) {
    if (part.id == TextPart::kText)
      append_part(part.text, 0, worker, ids);
    else
      ids.push_back(part.id);
  });
}

void BytePairTokenizer::append_part(std::string_view part, std::size_t step, Worker& worker, TokenIds& ids) const {
  if (step == steps_.size()) return pairs_.append(part, &worker.cache, ids);
  const std::string with_space =
      steps_[step].add_prefix_space && !part.starts_with(' ') ? fmt::format(" {}", part) : "";
  if (!with_space.empty()) part = with_space;
  if (!steps_[step].split) return append_part(part, step + 1, worker, ids);
  steps_[step].split->split(part, *worker.split,
                            [&](std::string_view each) { append_part(each, step + 1, worker, ids); });
}

std::string BytePairTokenizer::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= size())
      throw InputError(
          {fmt::format("token {}", id), "the token is not in the vocabulary", fmt::format("0 to {}", size() - 1), ""});
    text += bytes_[static_cast<std::size_t>(id)];
  }
  return text;
}

}  // namespace gantry
