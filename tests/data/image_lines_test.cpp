// Lines of chats with images: the tokens and numbers of transformers (tests/golden/images/make_chats.py), and tokens
// without a loss.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/generation/chat_prompts.h"
#include "gantry/generation/prompt_images.h"
#include "gantry/tensors/libtorch.h"
#include "image_chats_rig.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kFirstSpecial = 256;  // tokens below it are bytes

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

// The {% generation %} blocks of a template like LLaVA's are the assistant's parts.
TEST(ImageLines, GenerationBlocksMoveWithTheImages) {
  const ScratchFolder scratch;
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy(kChatFolder + "llava/" + file, scratch / file);
  scratch.write("chat_template.jinja",
                "{% for m in messages %}{{ m.role | upper }}: {% for p in m.content | selectattr('type', 'equalto', "
                "'image') %}<image>\n{% endfor %}{% for p in m.content | selectattr('type', 'equalto', 'text') %}"
                "{% if m.role == 'assistant' %}{% generation %}{{ p.text }} {% endgeneration %}{% else %}{{ p.text }} "
                "{% endif %}{% endfor %}{% endfor %}");
  LineRules rules = image_rules_of("llava");
  rules.tokenizer = scratch.path();
  const LineTokens line = encoded_chat(rules, conversation());
  ASSERT_EQ(line.trained.size(), 2U);
  const auto text_of = [&](const auto& range) {
    return load_tokenizer(scratch.path())
        ->decode(TokenIds(line.tokens.begin() + range.first, line.tokens.begin() + range.second));
  };
  EXPECT_EQ(text_of(line.trained[0]), "A card. ");
  EXPECT_EQ(text_of(line.trained[1]), "A door and a band. ");
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

}  // namespace
}  // namespace gantry::testing
