// data.bos and data.eos: the same special tokens around lines, files, choices and prompts.
#include "gantry/data/tokenizers/text_ends.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/data/choices.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/line_encoder.h"
#include "gantry/generation/prompt_text.h"
#include "program.h"

namespace gantry::testing {
namespace {

// Llama 2: <s> is 1 and precedes each text, </s> is 2. T5: </s> is 1 and follows each text.
const std::string kLlama = GANTRY_SOURCE_DIR "/tests/golden/tokenizers/kinds/llama2_model";
const std::string kT5 = GANTRY_SOURCE_DIR "/tests/golden/tokenizers/kinds/t5";

std::vector<std::int64_t> plain(const std::string& tokenizer, const std::string& text) {
  return load_tokenizer(tokenizer)->encode(text);
}

std::vector<std::int64_t> joined(std::initializer_list<std::vector<std::int64_t>> parts) {
  std::vector<std::int64_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<std::int64_t> line(const std::string& tokenizer, const std::string& text, const TextEnds& ends) {
  const LineEncoder encoder(
      {.tokenizer = tokenizer, .sequence_length = 64, .vocabulary = 1 << 20, .ends = ends, .loss_on = "completions"});
  const auto tokens = encoder.encode(text, "line").tokens;
  return {tokens.begin(), tokens.end()};
}

TEST(TextEnds, SurroundLines) {
  const auto text = plain(kLlama, "a b"), more = plain(kLlama, "c");
  const std::string one = R"({"text": "a b"})";
  EXPECT_EQ(line(kLlama, one, {}), joined({{1}, text, {2}}));
  EXPECT_EQ(line(kLlama, one, {"never", "never"}), text);
  EXPECT_EQ(line(kLlama, one, {"always", "always"}), joined({{1}, text, {2}}));
  EXPECT_EQ(line(kLlama, R"({"prompt": "a b", "completion": "c"})", {}), joined({{1}, text, more, {2}}));
  EXPECT_EQ(line(kT5, one, {}), joined({plain(kT5, "a b"), {1}}));
}

TEST(TextEnds, AreNotDoubled) {
  const std::string written = R"({"text": "<s>a</s>"})";
  EXPECT_EQ(line(kLlama, written, {"always", "always"}), plain(kLlama, "<s>a</s>"));
  EXPECT_EQ(plain(kLlama, "<s>a</s>").front(), 1);
  EXPECT_EQ(plain(kLlama, "<s>a</s>").back(), 2);
}

TEST(TextEnds, SurroundFiles) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("a.txt", "a b"), second = scratch.write("b.txt", "c");
  const auto row = [&](const TextEnds& ends, std::int64_t tokens) {
    const auto data = open_encoded_text({file, second}, {kLlama, ends}, tokens - 1, 1 << 20, "place");
    std::vector<std::int64_t> read(static_cast<std::size_t>(tokens));
    data->read(0, read.data());
    return read;
  };
  const auto text = plain(kLlama, "a b"), more = plain(kLlama, "c");
  const auto ended = joined({{1}, text, {2}, {1}, more, {2}}), bare = joined({text, more});
  EXPECT_EQ(row({}, static_cast<std::int64_t>(ended.size())), ended);
  EXPECT_EQ(row({"never", "never"}, static_cast<std::int64_t>(bare.size())), bare);
}

TEST(TextEnds, SurroundPromptsAsTheTokenizerDoes) {
  EXPECT_EQ(PromptText(kLlama).encode("a b"), joined({{1}, plain(kLlama, "a b")}));
  EXPECT_EQ(PromptText(kLlama, {"never", "auto"}).encode("a b"), plain(kLlama, "a b"));
  EXPECT_EQ(PromptText(kT5).encode("a b"), joined({plain(kT5, "a b"), {1}}));
}

// The begin token precedes the context, and is not scored.
TEST(TextEnds, PrecedeTheContextOfChoices) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("q.jsonl", R"({"context": "a", "choices": ["b", "c"], "answer": 0})");
  const auto input = [&](const TextEnds& ends) {
    const ChoiceSamples samples(file, kLlama, ends, 8, 1 << 20);
    std::vector<std::int64_t> numbers(16);
    samples.read(0, numbers.data());
    return std::pair(numbers.front(), std::count_if(numbers.begin() + 8, numbers.end(), [](auto n) { return n >= 0; }));
  };
  EXPECT_EQ(input({}).first, 1);
  EXPECT_NE(input({"never", "auto"}).first, 1);
  EXPECT_EQ(input({}).second, input({"never", "auto"}).second);
}

TEST(TextEnds, ThatATokenizerLacksAreRefused) {
  EXPECT_THROW(line("bytes", R"({"text": "a b"})", {"always", "auto"}), InputError);
  EXPECT_THROW(line("bytes", R"({"text": "a b"})", {"auto", "always"}), InputError);
  EXPECT_EQ(line("bytes", R"({"text": "ab"})", {}), (std::vector<std::int64_t>{'a', 'b'}));
}

}  // namespace
}  // namespace gantry::testing
