// Lines of chats with images: the tokens and numbers of transformers (tests/golden/images/make_chats.py), tokens
// without a loss, and lines that cannot be used.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/data/json_lines.h"
#include "gantry/data/sample_dataset.h"
#include "gantry/generation/chat_prompts.h"
#include "gantry/generation/image_format.h"
#include "gantry/generation/prompt_images.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kChatFolder = GANTRY_SOURCE_DIR "/tests/golden/images/chats/";
const std::vector<std::string> kChatFamilies = {"gemma3", "llava", "mistral3", "qwen2_5_vl"};
constexpr int kFirstSpecial = 256;  // tokens below it are bytes

json golden_ids(const std::string& family) { return json::parse(read_file(kChatFolder + family + "/ids.json")); }

std::shared_ptr<const ImageReader> chat_images(const std::string& family) {
  json keys = json::parse(read_file(kChatFolder + family + "/config.json"));
  keys["image_encoder"] = true;
  return std::make_shared<const ImageReader>(image_format_of(*models::described_decoder(keys)->vision),
                                             kChatFolder + family);
}

LineRules image_rules_of(const std::string& family, std::int64_t length = 200) {
  return {
      .tokenizer = kChatFolder + family, .sequence_length = length, .vocabulary = 264, .images = chat_images(family)};
}

std::string conversation() { return read_file(kChatFolder + "conversation.json"); }

LineTokens encoded_chat(const LineRules& rules, const std::string& line) {
  return LineEncoder(rules).encode(line, kChatFolder + "chats.jsonl:7");
}

std::string refused_chat(const LineRules& rules, const json& line) {
  return thrown_by<BadLine>([&] { encoded_chat(rules, line.dump()); });
}

json image_part(const std::string& file) { return {{"type", "image"}, {"path", file}}; }
json text_part(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

// A question with these parts, and an answer.
json chat_about(const std::vector<json>& parts) {
  return {{"messages",
           {{{"role", "user"}, {"content", parts}},
            {{"role", "assistant"}, {"content", json::array({text_part("Yes")})}}}}};
}

TEST(ImageLines, HaveTheTokensOfTransformers) {
  for (const std::string& family : kChatFamilies) {
    const LineTokens line = encoded_chat(image_rules_of(family), conversation());
    const json expected = golden_ids(family);
    EXPECT_EQ(json(line.tokens), expected["full"]) << family;
    json prompt = json::parse(conversation());
    prompt["messages"].erase(3);
    PromptImages images(chat_images(family));
    const ChatPrompts chats(kChatFolder + family, "", "");
    EXPECT_EQ(json(chats.encode(nlohmann::ordered_json::parse(prompt.dump()), kChatFolder + "chats.json", &images)),
              expected["prompt"])
        << family;
    const TensorDict entries = read_safetensors(kChatFolder + family + "/expected.safetensors");
    EXPECT_EQ(images.entries().size(), entries.size());
    for (const auto& [name, tensor] : images.entries())
      EXPECT_LE((tensor - entries.at(name)).abs().max().item<double>(), 1e-6) << family << " " << name;
  }
}

std::unique_ptr<Dataset> opened_chats(const LineRules& rules, const ScratchFolder& scratch, const std::string& lines) {
  return open_json_lines({scratch.write("chats.jsonl", lines)}, rules, "data.path");
}

TensorDict sample_of_chats(const Dataset& data, std::int64_t index) {
  return dynamic_cast<const SampleDataset&>(data).sample(index);
}

// The images of the documents of a sample, one after the other; a sample may have none.
TEST(ImageLines, SamplesHaveTheirImages) {
  const std::string rgb = "card.png";
  for (const std::string& family : kChatFamilies) {
    const ScratchFolder scratch;
    std::filesystem::copy(kChatFolder + "../rgb.png", scratch / rgb);
    json first = json::parse(conversation());
    for (json& message : first["messages"])
      for (json& part : message["content"])
        if (part.contains("path")) part["path"] = kChatFolder + part["path"].get<std::string>();
    const json text = chat_about({text_part("Is it late?")}), one = chat_about({image_part(rgb)});
    const auto length = static_cast<std::int64_t>(golden_ids(family)["full"].size()) - 1;
    const std::string lines =
        first.dump() + "\n" + text.dump() + "\n" + one.dump() + "\n" + first.dump() + "\n" + text.dump();
    const auto data = opened_chats(image_rules_of(family, length), scratch, lines);
    EXPECT_THAT(data->summary(), HasSubstr("5 lines")) << family;
    EXPECT_THAT(data->summary(), HasSubstr("7 images")) << family;
    ASSERT_EQ(data->size(), 4) << data->summary();
    const TensorDict entries = read_safetensors(kChatFolder + family + "/expected.safetensors");
    const TensorDict full = sample_of_chats(*data, 0), pair = sample_of_chats(*data, 1),
                     none = sample_of_chats(*data, 3);
    for (const auto& [name, tensor] : entries) {
      ASSERT_EQ(full.at(name).sizes(), tensor.sizes()) << family << " " << name;
      EXPECT_LE((full.at(name) - tensor).abs().max().item<double>(), 1e-6) << family << " " << name;
      EXPECT_EQ(none.at(name).size(0), 0);
      EXPECT_EQ(none.at(name).dim(), tensor.dim());
    }
    EXPECT_EQ(pair.at("document_ids")[0].item<std::int64_t>(), 0);
    const torch::Tensor of_one = pair.at("pixel_values"), of_full = full.at("pixel_values");
    EXPECT_EQ(of_one.size(0), family == "qwen2_5_vl" ? 32 : 1) << family;
    torch::Tensor same = of_full.narrow(0, 0, of_one.size(0));
    for (std::int64_t i = 1; i < of_one.dim(); ++i) same = same.narrow(i, 0, of_one.size(i));
    EXPECT_TRUE(torch::equal(of_one, same)) << family;
  }
}

TEST(ImageLines, TheLossLeavesImagesOut) {
  for (const std::string& family : kChatFamilies)
    for (const char* loss_on : {"completions", "all"}) {
      LineRules rules = image_rules_of(family);
      rules.loss_on = loss_on;
      const LineTokens line = encoded_chat(rules, conversation());
      ASSERT_EQ(line.images.size(), 3U);
      EXPECT_EQ(line.images[1].file, "../processors/tall.png");
      std::string trained;
      for (const auto& [first, second] : line.trained)
        for (std::int64_t i = first; i < second; ++i) {
          for (const LineImage& image : line.images) EXPECT_TRUE(i < image.first || i >= image.second) << family;
          EXPECT_NE(line.tokens[static_cast<std::size_t>(i)], rules.images->format().token);
          if (line.tokens[static_cast<std::size_t>(i)] >= kFirstSpecial) trained += "|";
        }
      std::int64_t of_images = 0;
      for (const LineImage& image : line.images) of_images += image.second - image.first;
      if (std::string(loss_on) == "all")
        EXPECT_EQ(line.trained_tokens(), static_cast<std::int64_t>(line.tokens.size()) - of_images - 1) << family;
      else
        EXPECT_EQ(trained, "||") << family;  // the ends of both answers
    }
}

// Only the texts of an answer with an image are trained.
TEST(ImageLines, AnAnswerMayHaveAnImage) {
  json line = chat_about({text_part("Draw a card")});
  line["messages"][1]["content"] = {text_part("See "), image_part("../rgb.png"), text_part(" there")};
  const LineTokens made = encoded_chat(image_rules_of("qwen2_5_vl"), line.dump());
  ASSERT_EQ(made.images.size(), 1U);
  ASSERT_EQ(made.trained.size(), 2U);
  EXPECT_EQ(made.trained[0].second, made.images[0].first);
  EXPECT_EQ(made.trained[1].first, made.images[0].second);
  EXPECT_EQ(made.trained[0].second - made.trained[0].first, 5);  // "See " and <|vision_start|>
  EXPECT_EQ(made.trained[1].second - made.trained[1].first, 8);  // <|vision_end|>, " there" and <|im_end|>
}

// A list of files (TRL), parts with members that are null (data sets), and OpenAI's parts.
TEST(ImageLines, FormsOfImagesAreEqual) {
  const LineRules rules = image_rules_of("qwen2_5_vl");
  const json expected = chat_about({text_part("See"), image_part("../rgb.png")});
  const json tokens = encoded_chat(rules, expected.dump()).tokens;
  const auto encoded = [&](const std::vector<json>& parts, const json& images = nullptr) {
    json line = chat_about(parts);
    line["images"] = images;
    return json(encoded_chat(rules, line.dump()).tokens);
  };
  EXPECT_EQ(encoded({text_part("See"), {{"type", "image"}}}, {"../rgb.png"}), tokens);
  EXPECT_EQ(encoded({{{"type", "text"}, {"text", "See"}, {"image", nullptr}, {"index", nullptr}},
                     {{"type", "image"}, {"text", nullptr}, {"index", 0}}},
                    {"../rgb.png"}),
            tokens);
  EXPECT_EQ(encoded({text_part("See"), {{"type", "image"}, {"image", "../rgb.png"}}}), tokens);
  EXPECT_EQ(encoded({text_part("See"), {{"type", "image_url"}, {"image_url", {{"url", "../rgb.png"}}}}}), tokens);
}

TEST(ImageLines, BadLinesAreNamed) {
  const LineRules rules = image_rules_of("llava");
  const auto refusal = [&](const std::vector<json>& parts, const json& images = nullptr) {
    json line = chat_about(parts);
    line["images"] = images;
    const std::string text = refused_chat(rules, line);
    EXPECT_THAT(text, ::testing::StartsWith(kChatFolder + "chats.jsonl:7: ")) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text;
  };
  EXPECT_THAT(refusal({image_part("../missing.png")}), HasSubstr("missing.png: No such file or directory"));
  EXPECT_THAT(refusal({image_part("conversation.json")}), HasSubstr("the first bytes are not those of a JPEG or PNG"));
  EXPECT_THAT(refusal({image_part("https://a.example/b.png")}),
              HasSubstr("messages[0] has the image 'https://a.example/b.png', but images are read from local files"));
  EXPECT_THAT(refusal({image_part("data:image/png;base64,AAAA")}), HasSubstr("are read from local files only"));
  EXPECT_THAT(refusal({{{"type", "image"}, {"path", 3}}}),
              HasSubstr("messages[0] has the image 3, which is not the path"));
  EXPECT_THAT(refusal({{{"type", "image"}}}),
              HasSubstr("the number of files in 'images' is 0, but the number of image parts without a file is 1"));
  EXPECT_THAT(refusal({{{"type", "image"}}}, {"../rgb.png", "../rgb.png"}), HasSubstr("files in 'images' is 2, but"));
  EXPECT_THAT(refusal({{{"type", "image"}}}, "../rgb.png"), HasSubstr("'images' is not a list"));
  EXPECT_THAT(refusal({{{"type", "video"}, {"path", "a.mp4"}}}),
              HasSubstr("messages[0] has content that is neither a string nor a list of texts and images"));
  EXPECT_THAT(
      refusal({text_part("<image>"), image_part("../rgb.png")}),
      HasSubstr("the number of marks of images (<image>) in the text of the chat template is 2, but the number of im"));
  EXPECT_THAT(refused_chat(rules, {{"text", "a"}, {"images", {"../rgb.png"}}}),
              HasSubstr("has images, but no messages"));
  EXPECT_THAT(refused_chat(image_rules_of("gemma3"), chat_about({text_part("<image_soft_token>")})),
              HasSubstr("the number of image tokens (263) is 1, but the images of the line have 0"));
  LineRules text_only = rules;
  text_only.images = nullptr;
  EXPECT_THAT(
      refused_chat(text_only, chat_about({image_part("../rgb.png")})),
      HasSubstr("the messages have images, but this run reads text only; expected a model with an image encoder"));
}

// The first image has tokens 5 to 14 of a line, and a line of length n has n + 1 tokens, of which the last is a label.
TEST(ImageLines, NoImageIsCutInTwo) {
  const json line = chat_about({image_part("../rgb.png"), text_part("What?"), image_part("../grey.png")});
  const LineTokens full = encoded_chat(image_rules_of("qwen2_5_vl"), line.dump());
  ASSERT_EQ(full.images.size(), 2U);
  const std::int64_t end_of_first = full.images[0].second, begin_of_second = full.images[1].first;
  const auto cut_to = [&](std::int64_t tokens) {
    LineRules rules = image_rules_of("qwen2_5_vl", tokens - 1);
    rules.bad_lines = "cut";
    rules.loss_on = "all";
    return encoded_chat(rules, line.dump());
  };
  EXPECT_THAT(thrown_by<BadLine>([&] { cut_to(end_of_first); }),
              HasSubstr(fmt::format("the line, with {} tokens, ends within the image '../rgb.png'", end_of_first)));
  EXPECT_THAT(thrown_by<BadLine>([&] { cut_to(end_of_first - 2); }), HasSubstr("ends within the image '../rgb.png'"));
  EXPECT_EQ(cut_to(end_of_first + 1).images.size(), 1U);
  EXPECT_EQ(cut_to(begin_of_second).images.size(), 1U);
  EXPECT_THAT(thrown_by<BadLine>([&] { cut_to(begin_of_second + 1); }),
              HasSubstr("ends within the image '../grey.png'"));
  EXPECT_THAT(refused_chat(image_rules_of("qwen2_5_vl", 20), line), HasSubstr("more than data.sequence_length 20 + 1"));
}

TEST(ImageLines, SkippedLinesAreCounted) {
  const ScratchFolder scratch;
  LineRules rules = image_rules_of("mistral3");
  rules.bad_lines = "skip";
  const std::string lines =
      chat_about({image_part("missing.png")}).dump() + "\n" + chat_about({text_part("Well")}).dump();
  EXPECT_THAT(opened_chats(rules, scratch, lines)->summary(), HasSubstr("1 skipped, the first: "));
  rules.bad_lines = "stop";
  EXPECT_THAT(thrown_by([&] { opened_chats(rules, scratch, lines); }), HasSubstr("chats.jsonl:1: an image cannot be"));
}

// Files of 1 MiB and more are encoded once, until an image changes.
TEST(ImageLines, AStoredEncodingIsThatOfTheImages) {
  const ScratchFolder scratch, cache;
  LineRules rules = image_rules_of("mistral3");
  rules.bad_lines = "skip";
  rules.encoding.cache = cache.path();
  json line = chat_about({image_part("a.png")});
  line["ignored"] = std::string(1 << 20, 'x');
  const std::string lines = line.dump() + "\n" + chat_about({text_part("Well")}).dump();
  const auto images = [&] {
    const auto data = opened_chats(rules, scratch, lines);
    return sample_of_chats(*data, 0).at("image_sizes").size(0);
  };
  const auto stored = [&] {
    return std::distance(std::filesystem::directory_iterator(cache.path()), std::filesystem::directory_iterator());
  };
  EXPECT_EQ(images(), 0);  // the first line has no file
  EXPECT_EQ(stored(), 1);
  std::filesystem::copy(kChatFolder + "../rgb.png", scratch / "a.png");
  EXPECT_EQ(images(), 1);
  EXPECT_EQ(images(), 1);
  EXPECT_EQ(stored(), 2);
}

TEST(ImageLines, AnImageThatHasChangedIsNamed) {
  const ScratchFolder scratch;
  std::filesystem::copy(kChatFolder + "../rgb.png", scratch / "a.png");
  const auto data = opened_chats(image_rules_of("mistral3"), scratch, chat_about({image_part("a.png")}).dump());
  sample_of_chats(*data, 0);
  std::filesystem::copy(kChatFolder + "../processors/wide.png", scratch / "a.png",
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(thrown_by([&] { sample_of_chats(*data, 0); }),
              HasSubstr("chats.jsonl:1: the image 'a.png' has another size than when the line was encoded"));
}

}  // namespace
}  // namespace gantry::testing
