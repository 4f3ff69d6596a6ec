#include "gantry/data/squad_dataset.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/data/squad.h"

namespace gantry {
namespace {

constexpr std::int64_t kStrides = 3;  // strides per sequence

// One window without padding. All windows of a file stay in memory, so they are compact.
struct Window {
  std::vector<std::int32_t> ids;
  std::int32_t second_begin = 0;  // first token of the context
  std::int32_t start = 0, end = 0;
};

class SquadDataset final : public Dataset {
 public:
  SquadDataset(std::vector<Window> windows, std::int64_t sequence_length, std::int64_t padding)
      : windows_(std::move(windows)), length_(sequence_length), padding_(padding) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(windows_.size()); }
  std::int64_t sequence_length() const override { return length_; }
  std::vector<SampleEntry> entries() const override { return answer_span_entries(length_); }

  void read(std::int64_t index, std::int64_t* numbers) const override {
    const Window& window = windows_[static_cast<std::size_t>(index)];
    const auto tokens = static_cast<std::int64_t>(window.ids.size());
    std::int64_t *ids = numbers, *types = ids + length_, *mask = types + length_, *answer = mask + length_;
    for (std::int64_t i = 0; i < length_; ++i) {
      const bool there = i < tokens;
      ids[i] = there ? window.ids[static_cast<std::size_t>(i)] : padding_;
      types[i] = there && i >= window.second_begin;
      mask[i] = there;
    }
    answer[0] = window.start;
    answer[1] = window.end;
  }

 private:
  std::vector<Window> windows_;
  std::int64_t length_, padding_;
};

void require_answered(const std::string& path, const SquadExample& example) {
  if (example.answers.empty() && !example.is_impossible)
    throw InputError({path, fmt::format("question {} has no answer", example.id),
                      "an answer, or \"is_impossible\": true", "train on a file with answers"});
}

// Called for the questions of one paragraph at a time, because features have far more data than a sample
// needs.
void append_windows(const SquadData& part, const WordPiece& tokenizer, const EncodeOptions& options,
                    std::vector<Window>& windows) {
  for (const auto& feature : make_squad_features(part, tokenizer, options)) {
    const Encoding& encoding = feature.encoding;
    windows.push_back({.ids = {encoding.ids.begin(), encoding.ids.end()},
                       .second_begin = static_cast<std::int32_t>(encoding.second_begin),
                       .start = static_cast<std::int32_t>(feature.start_position),
                       .end = static_cast<std::int32_t>(feature.end_position)});
  }
}

}  // namespace

std::vector<SampleEntry> answer_span_entries(std::int64_t sequence_length) {
  const std::int64_t s = sequence_length;
  return {{"input_ids", 0, s},
          {"token_type_ids", s, s},
          {"attention_mask", 2 * s, s},
          {"start_positions", 3 * s},
          {"end_positions", 3 * s + 1}};
}

std::unique_ptr<Dataset> open_squad_dataset(const std::string& path, const std::string& tokenizer_path,
                                            std::int64_t sequence_length, std::int64_t vocabulary_size) {
  const WordPiece tokenizer = WordPiece::load(tokenizer_path);
  if (tokenizer.size() > vocabulary_size)
    throw InputError({tokenizer_path,
                      fmt::format("the tokenizer has {} tokens, but the model's vocabulary is {}", tokenizer.size(),
                                  vocabulary_size),
                      fmt::format("at most {}", vocabulary_size), "use the model's own tokenizer"});
  const EncodeOptions options{.max_length = sequence_length, .stride = sequence_length / kStrides, .pad = false};
  std::vector<Window> windows;
  SquadData paragraph;
  const auto append = [&] {
    try {
      append_windows(paragraph, tokenizer, options, windows);
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: {}", path, error.what()));
    }
  };
  read_squad(path, [&](SquadExample example) {
    require_answered(path, example);
    if (!paragraph.examples.empty() && paragraph.examples.front().context != example.context) {
      append();
      paragraph.examples.clear();
    }
    paragraph.examples.push_back(std::move(example));
  });
  append();
  return std::make_unique<SquadDataset>(std::move(windows), sequence_length, tokenizer.padding_id());
}

}  // namespace gantry
