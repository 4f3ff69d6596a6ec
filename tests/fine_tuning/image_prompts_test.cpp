// Images in evaluation.prompts: the answers of `gantry generate --messages` in every layout, and errors.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kPromptImages = GANTRY_SOURCE_DIR "/tests/golden/images/";

json chat_with_images(const std::vector<std::string>& images, const std::string& text) {
  json parts = json::array();
  for (const std::string& image : images) parts.push_back({{"type", "image"}, {"path", image}});
  parts.push_back({{"type", "text"}, {"text", text}});
  return {{{"role", "user"}, {"content", parts}}};
}

class ImagePrompts : public ::testing::Test {
 protected:
  // `of_data`: the images of the training data, which make the run load the image encoder.
  Outcome evaluated(const json& prompts, const std::string& sets = "",
                    const std::vector<std::string>& of_data = {kPromptImages + "rgb.png"}) const {
    std::filesystem::remove_all(scratch_ / "out");
    json messages = chat_with_images(of_data, "Is it?");
    messages.push_back({{"role", "assistant"}, {"content", json::array({{{"type", "text"}, {"text", "Yes"}}})}});
    const std::string data = scratch_.write("chats.jsonl", json{{"messages", messages}}.dump() + "\n");
    const json config = {{"model", {{"path", kPromptImages + "chats/qwen2_5_vl"}}},
                         {"data", {{"format", "jsonl"}, {"path", data}, {"sequence_length", 64}, {"batch_size", 1}}},
                         {"precision", "float64"},
                         {"evaluation", {{"path", data}, {"only", true}, {"prompts", prompts}, {"prompt_tokens", 6}}},
                         {"comm", {{"threads_per_rank", 1}}},
                         {"output", scratch_ / "out"}};
    return run_program(gantry_program() + " train " + scratch_.write("run.yaml", config.dump()) + sets);
  }

  std::vector<std::string> samples_of(const json& prompts, const std::string& sets = "") const {
    const Outcome run = evaluated(prompts, sets);
    EXPECT_EQ(run.exit_code, 0) << sets << run.err;
    std::vector<std::string> texts;
    std::istringstream lines(read_file(scratch_ / "out/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      for (const json& sample : json::parse(line).value("samples", json::array())) texts.push_back(sample["text"]);
    return texts;
  }

  ScratchFolder scratch_;
};

TEST_F(ImagePrompts, AreAnsweredLikeMessagesInEveryLayout) {
  const json prompts = {
      chat_with_images({kPromptImages + "rgb.png"}, "What is this?"),
      chat_with_images({kPromptImages + "processors/tall.png", kPromptImages + "processors/wide.png"}, "Compare"),
      chat_with_images({}, "Who are you?")};
  std::string questions;
  for (const json& prompt : prompts) questions += prompt.dump() + "\n";
  const Outcome generated =
      run_program(gantry_program() + " generate --json --max-new-tokens 6 --set precision=float64 --messages " +
                  scratch_.write("questions.jsonl", questions) + " --model " + kPromptImages + "chats/qwen2_5_vl");
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  std::vector<std::string> expected;
  std::istringstream lines(generated.out);
  for (std::string line; std::getline(lines, line);) expected.push_back(json::parse(line)["text"]);
  ASSERT_EQ(expected.size(), 3U);
  for (const char* layout : {"", " --set parallel.tensor=2", " --set parallel.pipeline=2", " --set parallel.data=2",
                             " --set parallel.pipeline=2 --set parallel.tensor=2"}) {
    const bool has_replicas = std::string(layout).ends_with("data=2");
    EXPECT_EQ(samples_of(prompts, layout + std::string(has_replicas ? " --set data.batch_size=2" : "")), expected)
        << layout;
  }
  EXPECT_EQ(samples_of(prompts, " --set evaluation.only=false --set train.steps=1 --set optimizer.lr=1.0e-300"),
            expected);
}

TEST_F(ImagePrompts, ThatCannotBeReadAreErrorsBeforeTheFirstStep) {
  const auto refusal = [&](const std::string& image, const std::string& sets = "") {
    const Outcome run = evaluated({"first", chat_with_images({image}, "What?")}, sets);
    EXPECT_NE(run.exit_code, 0);
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "out/metrics.jsonl"));
    return run.err;
  };
  const std::string image = kPromptImages + "rgb.png", missing = scratch_ / "no.png";
  EXPECT_THAT(refusal(missing),
              HasSubstr("evaluation.prompts[1]: an image cannot be read: " + missing + ": No such file"));
  EXPECT_THAT(refusal(scratch_.write("text.png", "text")), HasSubstr("evaluation.prompts[1]: an image cannot be read"));
  EXPECT_THAT(refusal(image, " --set parallel.tensor=2 --set parallel.sequence_parallel=true"),
              HasSubstr("evaluation.prompts[1]: the prompt has images, which generation does not support with "
                        "parallel.sequence_parallel; expected texts; remove the images, or"));
}

TEST_F(ImagePrompts, AreChats) {
  EXPECT_THAT(evaluated({"a <|image_pad|>", chat_with_images({kPromptImages + "rgb.png"}, "What?")}).err,
              HasSubstr("evaluation.prompts[0]: the text has the mark of an image (<|image_pad|>), but a text has no "
                        "images; expected a list of messages with image parts; remove the mark, or write messages"));
}

TEST_F(ImagePrompts, NeedTheImageEncoder) {
  const json prompts = {chat_with_images({kPromptImages + "rgb.png"}, "What?")};
  EXPECT_THAT(evaluated(prompts, "", /*of_data=*/{}).err,
              HasSubstr("evaluation.prompts[0]: the prompt has images, but this run reads text only; expected a model "
                        "with its image encoder; set model.config: {image_encoder: true}"));
  EXPECT_EQ(evaluated(prompts, " --set model.config.image_encoder=true", /*of_data=*/{}).exit_code, 0);
}

}  // namespace
}  // namespace gantry::testing
