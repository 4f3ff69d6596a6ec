// `gantry generate --image`, --messages and `gantry chat --images`: tokens of transformers for prompts with image
// files, and errors.
#include <algorithm>
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

class ImageTalk : public ::testing::Test {
 protected:
  static json question(const std::vector<std::string>& images, const std::string& text) {
    json parts = json::array();
    for (const std::string& image : images) parts.push_back({{"type", "image"}, {"path", kImageFiles + image}});
    parts.push_back({{"type", "text"}, {"text", text}});
    return {{"role", "user"}, {"content", parts}};
  }
  static Outcome talk(const std::string& input, const std::string& flags) {
    return run_program("printf '%s' '" + input + "' | " + gantry_program() +
                       " chat --max-new-tokens 4 --set comm.threads_per_rank=1 " + flags);
  }
  std::string answer_to(const json& messages) const {
    const Outcome run = run_program(gantry_program() + " generate --max-new-tokens 4 --json --model " + model_ +
                                    " --messages " + scratch_.write("chat.json", messages.dump()));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return json::parse(run.out)["text"];
  }

  ScratchFolder scratch_;
  std::string model_ = kImageFiles + "chats/qwen2_5_vl";
};

TEST_F(ImageTalk, RemembersTheImagesOfEachMessage) {
  json messages = json::array({question({"rgb.png"}, "What is this?")});
  const std::string first = answer_to(messages);
  messages.push_back({{"role", "assistant"}, {"content", json::array({{{"type", "text"}, {"text", first}}})}});
  messages.push_back(question({"processors/tall.png", "processors/wide.png"}, "And these?"));
  const std::string second = answer_to(messages), alone = answer_to(json::array({question({}, "And these?")}));
  ASSERT_NE(second, alone);
  const std::string input = "/image " + kImageFiles + "rgb.png \nWhat is this?\n/image " + kImageFiles +
                            "processors/tall.png\n/image  " + kImageFiles + "processors/wide.png\nAnd these?\n/image " +
                            kImageFiles + "rgb.png\n/reset\nAnd these?";
  for (const char* layout : {"", " --set parallel.tensor=2", " --set parallel.pipeline=2"}) {
    const Outcome run = talk(input, "--images --model " + model_ + layout);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.out, first + "\n" + second + "\n" + alone + "\n") << layout;
  }
}

TEST_F(ImageTalk, GoesOnAfterALineThatCannotBeRead) {
  const std::string missing = scratch_ / "no.png", answer = answer_to(json::array({question({}, "Who?")})) + "\n";
  const std::string input =
      "/image\n/image " + missing + "\n/image " + scratch_.write("text.png", "text") + "\nA <|image_pad|>\nWho?\n";
  const Outcome run = talk(input, "--images --set parallel.pipeline=2 --model " + model_);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, answer);
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 4) << run.err;
  EXPECT_THAT(run.err, HasSubstr("error: /image: the line has no path; expected /image PATH\n"));
  EXPECT_THAT(run.err, HasSubstr("error: " + missing + ": "));
  EXPECT_THAT(run.err, HasSubstr("text.png: "));
  EXPECT_THAT(run.err, HasSubstr("error: the chat: messages[0] has the mark of an image (<|image_pad|>) in a text"));
  const Outcome text = talk("/image " + missing + "\nWho?\n", "--model " + model_);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.out, answer);
  EXPECT_THAT(text.err, HasSubstr("error: /image: the chat reads text only; expected a chat with images; start it with "
                                  "--images\n"));
}

TEST_F(ImageTalk, NeedsAnImageEncoderAndACache) {
  const Outcome text =
      talk("Who?\n", "--images --tokenizer " + model_ + " --model " + GANTRY_SOURCE_DIR + "/tests/golden/llama");
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_EQ(text.out, "");
  EXPECT_THAT(text.err, HasSubstr("--images: the model "));
  EXPECT_THAT(text.err, HasSubstr("has no image encoder; expected a gemma3, llava, mistral3 or qwen2_5_vl model"));
  const Outcome sharded = talk("Who?\n",
                               "--images --set parallel.tensor=2 --set parallel.sequence_parallel=true "
                               "--model " +
                                   model_);
  EXPECT_EQ(sharded.out, "");
  EXPECT_THAT(sharded.err, HasSubstr("parallel.sequence_parallel: chats with images do not support it; expected "
                                     "false; remove the key, or --images"));
}

}  // namespace
}  // namespace gantry::testing
