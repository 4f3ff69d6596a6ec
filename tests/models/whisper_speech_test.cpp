// Whisper's detected languages and its time stamps, compared with transformers' generate() with the same
// generation_config.json. Also requests that the file does not support.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/generation/time_stamps.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kSpeechModel = GANTRY_SOURCE_DIR "/tests/golden/families/whisper";

GenerationOptions speech_options(const std::string& keys, const SpeechChoice& asked = {}) {
  const ScratchFolder scratch;
  scratch.write("generation_config.json", keys);
  return generation_defaults(scratch.path(), asked);
}

struct SpeechCase {
  GenerationJob job;
  json begin, tokens;  // per sequence, from transformers
};

std::vector<SpeechCase> speech_cases(bool is_cached) {
  std::vector<SpeechCase> cases;
  for (const auto& item : json::parse(read_file(GANTRY_SOURCE_DIR "/tests/golden/generation/whisper_speech.json"))) {
    GenerationOptions options = speech_options(item["keys"].dump());
    options.encoder = {{"input_features", read_safetensors(kSpeechModel + "/inputs.safetensors").at("input_features")}};
    options.use_cache = is_cached;
    cases.push_back({{.name = item["name"], .prompts = {}, .options = options}, item["begin"], item["tokens"]});
  }
  return cases;
}

// The language with which transformers' sequence begins; empty if it has none.
std::string expected_language(const SpeechCase& one, std::size_t text) {
  for (const auto& [name, token] : one.job.options.languages)
    if (one.begin[text].size() > 1 && one.begin[text][1] == token) return name;
  return "";
}

TEST(WhisperSpeech, HasTheTokensOfTransformers) {
  std::set<std::string> languages;
  for (const bool is_cached : {true, false}) {
    const auto cases = speech_cases(is_cached);
    ASSERT_GE(cases.size(), 5u);
    std::vector<GenerationJob> jobs;
    for (const auto& one : cases) jobs.push_back(one.job);
    for (const Layout& layout : {Layout{}, Layout{.tensor = 3}, Layout{.pipeline = 4}, Layout{.context = 2},
                                 Layout{.pipeline = 2, .data = 2, .tensor = 2}}) {
      const auto got = generate_in(layout, kSpeechModel, jobs);
      ASSERT_EQ(got.size(), jobs.size());
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        const std::string label = jobs[i].name + " " + describe(layout) + (is_cached ? "" : " without caches");
        EXPECT_EQ(json(tokens_of(got[i])), cases[i].tokens) << label;
        for (std::size_t text = 0; text < got[i].size(); ++text) {
          EXPECT_EQ(got[i][text].language, expected_language(cases[i], text)) << label;
          languages.insert(got[i][text].language);
        }
      }
    }
  }
  EXPECT_GE(languages.size(), 3u) << "the texts have two languages, or none was detected";
}

constexpr const char* kTables =
    R"("lang_to_id": {"<|en|>": 9, "<|de|>": 10}, "task_to_id": {"transcribe": 20, "translate": 21},
       "no_timestamps_token_id": 30, "eos_token_id": 25)";

std::string keys_with_tables(const std::string& keys = "") {
  return "{" + keys + (keys.empty() ? "" : ", ") + kTables + "}";
}

TEST(WhisperSpeech, AChoiceTakesThePlaceOfTheFiles) {
  using Tokens = std::vector<std::int64_t>;
  GenerationOptions got = speech_options(keys_with_tables(), {.time_stamps = true});
  EXPECT_EQ(got.begin_tokens, Tokens{kUnknownToken});
  EXPECT_EQ(got.languages, (std::map<std::string, std::int64_t>{{"<|en|>", 9}, {"<|de|>", 10}}));
  ASSERT_TRUE(got.time_stamps.has_value());
  EXPECT_EQ(std::tuple(got.time_stamps->first, got.time_stamps->text_end, got.time_stamps->most_initial.has_value()),
            std::tuple(31, 25, false));
  got = speech_options(keys_with_tables(R"("language": "en", "return_timestamps": true,
                                           "max_initial_timestamp_index": 50)"),
                       {.language = "de", .task = "translate"});
  EXPECT_EQ(got.begin_tokens, (Tokens{10, 21}));
  EXPECT_TRUE(got.languages.empty());
  EXPECT_EQ(got.time_stamps.value().most_initial, 50);
  got = speech_options(keys_with_tables(R"("return_timestamps": true)"), {.language = "en", .time_stamps = false});
  EXPECT_EQ(got.begin_tokens, (Tokens{9, 20, 30}));
  EXPECT_FALSE(got.time_stamps.has_value());
  // With time stamps, a final "no times" is removed from the forced
  // tokens. A file without languages gets no language token.
  EXPECT_EQ(speech_options(R"({"forced_decoder_ids": [[1, 4], [2, 30]], "no_timestamps_token_id": 30,
                              "eos_token_id": 25, "return_timestamps": true})")
                .begin_tokens,
            Tokens{4});
  EXPECT_EQ(speech_options(R"({"forced_decoder_ids": [[1, null], [2, 20]]})").begin_tokens, Tokens{20});
}

TEST(WhisperSpeech, WhatTheFileDoesNotHaveIsOneLine) {
  const auto refusal = [](const std::string& keys, const SpeechChoice& asked) -> std::string {
    try {
      speech_options(keys, asked);
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(refusal("{}", {.language = "en"}),
              HasSubstr("the file has no lang_to_id, which is needed to find '<|en|>'"));
  EXPECT_THAT(refusal(keys_with_tables(), {.language = "ed"}), HasSubstr("did you mean '<|e"));
  EXPECT_THAT(refusal(keys_with_tables(), {.task = "sing"}), HasSubstr("'sing' is not in task_to_id"));
  EXPECT_THAT(refusal(keys_with_tables(R"("is_multilingual": false)"), {.language = "en"}),
              HasSubstr("is_multilingual: the value is false, but a language or a task is set"));
  EXPECT_THAT(refusal("{}", {.time_stamps = true}), HasSubstr("time stamps need no_timestamps_token_id"));
  EXPECT_THAT(refusal(R"({"no_timestamps_token_id": 30})", {.time_stamps = true}),
              HasSubstr("time stamps need one stop token, but there are 0; expected one eos_token_id"));
  EXPECT_THAT(
      refusal(R"({"return_token_timestamps": true, "no_speech_threshold": 0})", {}),
      HasSubstr("the file sets no_speech_threshold: 0, return_token_timestamps: true, which Gantry does not support"));
  const ScratchFolder scratch;
  try {
    generation_defaults(scratch.path(), {.task = "translate"});
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("the directory has no generation_config.json, which lists the tokens of languages"));
  }
}

}  // namespace
}  // namespace gantry::testing
