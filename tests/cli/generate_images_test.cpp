// `gantry generate --image`: tokens of transformers for prompts with image files, and errors.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const std::string kImageFiles = GANTRY_SOURCE_DIR "/tests/golden/images/";

// A model of tests/golden/families with the processor and the tokenizer of tests/golden/images.
void make_image_model(const ScratchFolder& scratch, const std::string& name) {
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(GANTRY_SOURCE_DIR "/tests/golden/families/" + name + "_image/" + file, scratch / file);
  for (const char* file : {"preprocessor_config.json", "tokenizer.json"})
    fs::copy_file(kImageFiles + "processors/" + name + "/" + file, scratch / file);
}

struct ImagePrompt {
  std::string prompt, images;
};

Outcome describe_images(const ScratchFolder& scratch, const ImagePrompt& what, const std::string& flags = "") {
  return run_program(gantry_program() + " generate --model " + scratch.path() +
                     " --max-new-tokens 8 --json --prompt '" + what.prompt + "'" + what.images + flags);
}

ImagePrompt image_prompt(const json& generated) {
  ImagePrompt prompt{generated["prompt"], ""};
  for (const auto& image : generated["images"]) prompt.images += " --image " + kImageFiles + image.get<std::string>();
  return prompt;
}

json generated_tokens(const std::string& name) {
  return json::parse(read_file(kImageFiles + "processors/" + name + "/generate.json"));
}

TEST(GenerateCommand, ImagesHaveTheTokensOfTransformers) {
  for (const auto& [name, layout] : {std::pair("gemma3", ""),
                                     {"mistral3", " --set parallel.pipeline=2"},
                                     {"qwen2_5_vl", " --set parallel.tensor=2"}}) {
    const ScratchFolder scratch;
    make_image_model(scratch, name);
    const json expected = generated_tokens(name);
    const Outcome run = describe_images(scratch, image_prompt(expected), layout);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const json line = json::parse(run.out);
    EXPECT_EQ(line["prompt_tokens"], expected["prompt_tokens"]) << name;
    EXPECT_EQ(line["tokens"], expected["tokens"]) << name;
    EXPECT_THAT(line["text"].get<std::string>(), ::testing::Not(HasSubstr("w5 ")));  // without the prompt
  }
}

TEST(GenerateCommand, ErrorsOfImagesNameTheFlag) {
  const ScratchFolder scratch;
  make_image_model(scratch, "mistral3");
  const std::string image = " --image " + kImageFiles + "rgb.png";
  const auto refusal = [&](const ImagePrompt& prompt) {
    const Outcome run = describe_images(scratch, prompt);
    EXPECT_NE(run.exit_code, 0);
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    return run.err;
  };
  EXPECT_THAT(refusal({"w1 [IMG] [IMG]", image}), HasSubstr("--image: the prompts have more than 1 marks of images"));
  EXPECT_THAT(refusal({"w1", image}), HasSubstr("there is 1 image, but the prompts have 0 marks of images ([IMG])"));
  EXPECT_THAT(refusal({"w1 [IMG]", " --image " + scratch.write("broken.png", "text")}), HasSubstr("broken.png"));
  fs::remove(scratch / "preprocessor_config.json");
  EXPECT_THAT(refusal({"w1 [IMG]", image}), HasSubstr("it has neither preprocessor_config.json nor"));
  const Outcome text = run_program(gantry_program() + " generate --prompt w1 --model " + GANTRY_SOURCE_DIR +
                                   "/tests/golden/llama --tokenizer bytes" + image);
  EXPECT_THAT(text.err, HasSubstr("has no image encoder; expected a gemma3, llava, mistral3 or qwen2_5_vl model"));
}

// The messages are those of tests/golden/images/chats/ids.json, without the last answer.
TEST(GenerateCommand, MessagesHaveImages) {
  const ScratchFolder scratch;
  const std::string folder = kImageFiles + "chats/";
  json messages = json::parse(read_file(folder + "conversation.json"))["messages"];
  messages.erase(3);
  for (json& message : messages)
    for (json& part : message["content"])
      if (part["type"] == "image") part["path"] = fs::path(part["path"].get<std::string>()).filename().string();
  for (const char* image : {"rgb.png", "processors/tall.png", "processors/wide.png"})
    fs::copy(kImageFiles + image, scratch.path());
  const std::string chat = scratch.write("chat.json", messages.dump());
  const auto answered = [&](const std::string& model, const std::string& flags) {
    return run_program(gantry_program() + " generate --max-new-tokens 4 --json --model " + model + flags);
  };
  const Outcome run = answered(folder + "qwen2_5_vl", " --set parallel.pipeline=2 --messages " + chat);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out)["prompt_tokens"], json::parse(read_file(folder + "qwen2_5_vl/ids.json"))["prompt"]);
  fs::remove(scratch / "wide.png");
  const Outcome missing = answered(folder + "qwen2_5_vl", " --messages " + chat);
  EXPECT_EQ(missing.exit_code, 4);
  EXPECT_THAT(missing.err, HasSubstr("chat.json: an image cannot be read: "));
  EXPECT_THAT(missing.err, HasSubstr("wide.png: No such file or directory"));
  const Outcome text = answered(GANTRY_SOURCE_DIR "/tests/golden/llama", " --tokenizer bytes --messages " + chat);
  EXPECT_THAT(text.err, HasSubstr("--messages: the model "));
  EXPECT_THAT(text.err, HasSubstr("has no image encoder; expected a gemma3, llava, mistral3 or qwen2_5_vl model"));
}

}  // namespace
}  // namespace gantry::testing
