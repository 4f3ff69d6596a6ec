// Whisper's generated text compared with transformers: greedy and beams, with forced, suppressed and stop
// tokens, with caches and from full sequences, in many layouts. Also rejected calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kWhisperCase = GANTRY_SOURCE_DIR "/tests/golden/families/whisper";

TensorDict sounds() {
  return {{"input_features", read_safetensors(kWhisperCase + "/inputs.safetensors").at("input_features")}};
}

// The cases of transformers, and families/whisper/generate.json,
// whose sequences begin with the start token alone.
std::vector<GenerationJob> whisper_jobs(bool is_cached, std::vector<json>& tokens) {
  std::vector<GenerationJob> jobs = {{.name = "families",
                                      .prompts = {},
                                      .options = {.max_new_tokens = 12, .encoder = sounds(), .use_cache = is_cached}}};
  tokens = {json::parse(read_file(kWhisperCase + "/generate.json"))["tokens"]};
  for (const auto& item : json::parse(read_file(GANTRY_SOURCE_DIR "/tests/golden/generation/whisper_forced.json"))) {
    const json& given = item["options"];
    GenerationJob job = jobs.front();
    const auto list = [&](const char* key) { return given.value(key, std::vector<std::int64_t>()); };
    job.name = item["name"];
    job.options.max_new_tokens = given["max_new_tokens"].get<std::int64_t>();
    job.options.begin_tokens = item["begin"].get<std::vector<std::int64_t>>();
    job.options.suppress_tokens = list("suppress_tokens");
    job.options.begin_suppress_tokens = list("begin_suppress_tokens");
    job.options.stop_tokens = list("eos_token_id");
    job.options.num_beams = given.value("num_beams", 1);
    job.options.num_return_sequences = given.value("num_return_sequences", 1);
    jobs.push_back(job);
    tokens.push_back(item["tokens"]);
  }
  return jobs;
}

TEST(WhisperGeneration, HasTheTokensOfTransformers) {
  for (const bool is_cached : {true, false}) {
    std::vector<json> expected;
    const auto jobs = whisper_jobs(is_cached, expected);
    ASSERT_EQ(jobs.size(), 5u);
    for (const Layout& layout : {Layout{}, Layout{.tensor = 3}, Layout{.pipeline = 2, .tensor = 2},
                                 Layout{.pipeline = 4}, Layout{.pipeline = 2, .data = 2}}) {
      const auto got = generate_in(layout, kWhisperCase, jobs);
      ASSERT_EQ(got.size(), jobs.size());
      for (std::size_t i = 0; i < jobs.size(); ++i)
        EXPECT_EQ(json(tokens_of(got[i])), expected[i]) << jobs[i].name << " " << describe(layout) << is_cached;
    }
  }
}

// Sequences with prompts of unequal lengths get the same tokens together as each one alone.
TEST(WhisperGeneration, PromptsOfUnequalLengthsGoOnAlone) {
  const std::vector<TokenIds> prompts = {{2}, {2, 5, 9}, {2, 11}, {2, 7, 8, 9}};
  const TensorDict all = sounds();
  const auto job = [&](std::vector<TokenIds> given, const torch::Tensor& features) {
    return GenerationJob{.name = "prompts",
                         .prompts = std::move(given),
                         .options = {.max_new_tokens = 6, .encoder = {{"input_features", features}}}};
  };
  const torch::Tensor features = all.at("input_features");
  const auto together = tokens_of(generate_in({.pipeline = 2}, kWhisperCase, {job(prompts, features)}).at(0));
  ASSERT_EQ(together.size(), 4u);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto row = features.narrow(0, static_cast<std::int64_t>(i), 1);
    EXPECT_EQ(tokens_of(generate_in({}, kWhisperCase, {job({prompts[i]}, row)}).at(0)).at(0), together[i]) << i;
  }
}

GenerationOptions defaults_of(const std::string& keys) {
  const ScratchFolder scratch;
  scratch.write("generation_config.json", keys);
  return generation_defaults(scratch.path());
}

std::string refusal_of_defaults(const std::string& keys) {
  try {
    defaults_of(keys);
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

TEST(WhisperGeneration, BeginsAsItsFilesSay) {
  const std::string tables =
      R"("lang_to_id": {"<|en|>": 9, "<|de|>": 10}, "task_to_id": {"transcribe": 20, "translate": 21},
         "no_timestamps_token_id": 30)";
  using Tokens = std::vector<std::int64_t>;
  EXPECT_EQ(defaults_of(R"({"forced_decoder_ids": [[1, 4], [2, 5]]})").begin_tokens, (Tokens{4, 5}));
  EXPECT_EQ(defaults_of(R"({"language": "de", )" + tables + "}").begin_tokens, (Tokens{10, 20, 30}));
  EXPECT_EQ(defaults_of(R"({"language": "<|en|>", "task": "translate", )" + tables + "}").begin_tokens,
            (Tokens{9, 21, 30}));
  EXPECT_EQ(defaults_of("{" + tables + "}").begin_tokens, (Tokens{-1, 30}));
  EXPECT_EQ(defaults_of(R"({"forced_decoder_ids": [[1, null], [2, 20]], )" + tables + "}").begin_tokens,
            (Tokens{-1, 20, 30}));
  EXPECT_EQ(defaults_of(R"({"no_timestamps_token_id": 30})").begin_tokens, (Tokens{30}));
  const GenerationOptions options = defaults_of(R"({"suppress_tokens": [1, 2], "begin_suppress_tokens": [3]})");
  EXPECT_EQ(options.suppress_tokens, (Tokens{1, 2}));
  EXPECT_EQ(options.begin_suppress_tokens, (Tokens{3}));
  EXPECT_THAT(refusal_of_defaults(R"({"language": "xx", )" + tables + "}"),
              HasSubstr("'<|xx|>' is not in lang_to_id; expected a name of lang_to_id"));
  EXPECT_THAT(refusal_of_defaults(R"({"forced_decoder_ids": [[2, 4]]})"), HasSubstr("from 1 on without a gap"));
}

std::string refusal_of_texts(const GenerationOptions& options, const std::vector<TokenIds>& prompts,
                             const std::string& folder = kWhisperCase) {
  Config config;
  config.model.path = folder;
  config = resolve_model(std::move(config));
  try {
    generate(*build_model(config), prompts, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(WhisperGeneration, WrongCallsAreOneLine) {
  const GenerationOptions rows{.max_new_tokens = 2, .encoder = sounds()};
  GenerationOptions unknown = rows, text;
  unknown.begin_tokens = {-1};
  EXPECT_THAT(refusal_of_texts(unknown, {}),
              HasSubstr("the language is not set, and there are no languages for its detection"));
  EXPECT_THAT(refusal_of_texts(rows, {{2}}),
              HasSubstr("but the number of prompts is 1; expected a row for each prompt"));
  EXPECT_THAT(refusal_of_texts(text, {{2}}), HasSubstr("Whisper's encoder reads audio features"));
  EXPECT_THAT(refusal_of_texts(rows, {{2}}, GANTRY_SOURCE_DIR "/tests/golden/families/mistral"),
              HasSubstr("expected a model with an encoder and a decoder"));
}

}  // namespace
}  // namespace gantry::testing
