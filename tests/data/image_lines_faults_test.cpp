// Lines of chats with images that cannot be used, and images that change.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/data/judged_lines.h"
#include "gantry/data/preference_lines.h"
#include "gantry/tensors/libtorch.h"
#include "image_chats_rig.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(ImageLineFaults, AreNamed) {
  const LineRules rules = image_rules_of("llava");
  const auto refusal = [&](const std::vector<json>& parts, const json& images = nullptr) {
    json line = chat_about(parts);
    line["images"] = images;
    const std::string text = refused_chat(rules, line);
    EXPECT_THAT(text, ::testing::StartsWith(kChatFolder + "chats.jsonl:7: ")) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text;
  };
  EXPECT_THAT(refusal({image_part("../missing.png")}),
              HasSubstr("missing.png: No such file or directory; correct the line"));
  EXPECT_THAT(refusal({image_part("conversation.json")}), HasSubstr("the first bytes are not those of a JPEG or PNG"));
  EXPECT_THAT(refusal({image_part("https://a.example/b.png")}),
              HasSubstr("messages[0] has the image 'https://a.example/b.png', but images are read from local files"));
  EXPECT_THAT(refusal({image_part("data:image/png;base64,AAAA")}), HasSubstr("are read from local files only"));
  EXPECT_THAT(refusal({{{"type", "image"}, {"path", 3}}}),
              HasSubstr("messages[0] has the image 3, which is not the path"));
  const std::string wide = "https://a.example/" + std::string(61, 'b');
  EXPECT_THAT(refusal({image_part(wide + "é.png")}), HasSubstr("has the image '" + wide + "', but images"));
  EXPECT_THAT(refusal({{{"type", "image"}}}),
              HasSubstr("the number of files in 'images' is 0, but the number of image parts without a file is 1"));
  EXPECT_THAT(refusal({{{"type", "image"}}}, {"../rgb.png", "../rgb.png"}), HasSubstr("files in 'images' is 2, but"));
  EXPECT_THAT(refusal({{{"type", "image"}}}, "../rgb.png"), HasSubstr("'images' is not a list"));
  EXPECT_THAT(refusal({{{"type", "video"}, {"path", "a.mp4"}}}),
              HasSubstr("messages[0] has content that is neither a string nor a list of texts and images"));
  EXPECT_THAT(refusal({text_part("<image>"), image_part("../rgb.png")}),
              HasSubstr("messages[0] has the mark of an image (<image>) in a text"));
  for (const json& line : {json{{"text", "a"}, {"images", {"../rgb.png"}}},
                           json{{"prompt", "a"}, {"completion", "b"}, {"images", {"../rgb.png"}}}})
    EXPECT_THAT(refused_chat(rules, line), HasSubstr("has images, but no messages"));
  EXPECT_THAT(refused_chat(image_rules_of("gemma3"), chat_about({text_part("<image_soft_token>")})),
              HasSubstr("the number of image tokens (263) is 1, but the images of the line have 0"));
}

// The template can render such messages, so the line names the files and not the template.
TEST(ImageLineFaults, WrongFilesExpectFiles) {
  const LineRules rules = image_rules_of("llava");
  const json part = {{"type", "image"}};
  const auto refusal = [&](const std::vector<json>& parts, const json& images) {
    json line = chat_about(parts);
    line["images"] = images;
    const std::string text = refused_chat(rules, line);
    EXPECT_THAT(text, ::testing::EndsWith("; expected a file for each image part, in the part itself or in 'images'; "
                                          "correct the line, or set data.bad_lines: skip"));
    return text;
  };
  EXPECT_THAT(refusal({part, part}, {"../rgb.png"}),
              HasSubstr("files in 'images' is 1, but the number of image parts without a file is 2;"));
  EXPECT_THAT(refusal({part}, {"../rgb.png", "../rgb.png"}),
              HasSubstr("files in 'images' is 2, but the number of image parts without a file is 1;"));
  EXPECT_THAT(refusal({part}, nullptr),
              HasSubstr("files in 'images' is 0, but the number of image parts without a file is 1;"));
  EXPECT_THAT(refusal({image_part("https://a.example/b.png")}, nullptr), HasSubstr("read from local files only;"));
}

// The template writes no images, so a mark in a text would be mistaken for the place of an image.
TEST(ImageLineFaults, AMarkInATextIsNoImage) {
  const ScratchFolder scratch;
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy(kChatFolder + "llava/" + file, scratch / file);
  scratch.write("chat_template.jinja",
                "{% for m in messages %}{% for p in m.content | selectattr('type', 'equalto', 'text') %}{{ p.text }}"
                "{% endfor %}{% endfor %}");
  LineRules rules = image_rules_of("llava");
  rules.tokenizer = scratch.path();
  EXPECT_THAT(refused_chat(rules, chat_about({text_part("<image>"), image_part("../rgb.png")})),
              HasSubstr("messages[0] has the mark of an image (<image>) in a text"));
  EXPECT_THAT(refused_chat(rules, chat_about({text_part("Well"), image_part("../rgb.png")})),
              HasSubstr("the number of marks of images (<image>) in the text of the chat template is 0, but the number "
                        "of images in the messages is 1"));
}

// No kind of line is trained without its images, also with data.bad_lines: skip.
TEST(ImageLineFaults, ARunOfTextsReadsNoImages) {
  const ScratchFolder scratch;
  LineRules rules = image_rules_of("llava");
  rules.images = nullptr;
  rules.bad_lines = "skip";
  const json images = {"a.png"}, parts = {text_part("See"), image_part("a.png")};
  const json question = {{{"role", "user"}, {"content", parts}}};
  const auto answer = [](const char* text) { return json{{{"role", "assistant"}, {"content", {text_part(text)}}}}; };
  const auto refusal = [&](const json& line, const auto& open) {
    const std::string path = scratch.write("lines.jsonl", line.dump());
    EXPECT_THAT(thrown_by([&] { open(path); }), HasSubstr("lines.jsonl:1: the line has images, but this run reads "
                                                          "text only; expected a model with its image encoder"))
        << line;
  };
  for (const json& line : {chat_about({image_part("a.png")}), json{{"text", "a"}, {"images", images}},
                           json{{"prompt", "a"}, {"completion", "b"}, {"images", images}}})
    refusal(line, [&](const std::string& path) { open_json_lines({path}, rules, "data.path"); });
  for (const json& line : {json{{"prompt", "a"}, {"chosen", "b"}, {"rejected", "c"}, {"images", images}},
                           json{{"prompt", question}, {"chosen", answer("b")}, {"rejected", answer("c")}}})
    refusal(line, [&](const std::string& path) {
      open_preference_lines({path}, rules, PairForm::kCompletions, /*held_out=*/false, "data.path", no_progress);
    });
  for (const json& line : {json{{"prompt", "a"}, {"completion", "b"}, {"label", true}, {"images", images}},
                           json{{"prompt", question}, {"completion", answer("b")}, {"label", true}}})
    refusal(line, [&](const std::string& path) {
      open_judged_lines({path}, rules, /*held_out=*/false, "data.path", no_progress);
    });
}

// The first image has tokens 5 to 14 of a line, and a line of length n has n + 1 tokens, of which the last is a label.
TEST(ImageLineFaults, NoImageIsCutInTwo) {
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

TEST(ImageLineFaults, SkippedLinesAreCounted) {
  const ScratchFolder scratch;
  LineRules rules = image_rules_of("mistral3");
  rules.bad_lines = "skip";
  const std::string lines =
      chat_about({image_part("missing.png")}).dump() + "\n" + chat_about({text_part("Well")}).dump();
  EXPECT_THAT(opened_chats(rules, scratch, lines)->summary(), HasSubstr("1 skipped, the first: "));
  rules.bad_lines = "stop";
  EXPECT_THAT(thrown_by([&] { opened_chats(rules, scratch, lines); }), HasSubstr("chats.jsonl:1: an image cannot be"));
}

// Small files with images are encoded once, until an image changes.
TEST(ImageLineFaults, AStoredEncodingIsThatOfTheImages) {
  const ScratchFolder scratch, cache;
  LineRules rules = image_rules_of("mistral3");
  rules.bad_lines = "skip";
  rules.encoding.cache = cache.path();
  const std::string lines = chat_about({image_part("a.png")}).dump() + "\n" + chat_about({text_part("Well")}).dump();
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
  opened_chats(rules, scratch, chat_about({text_part("Well")}).dump());
  EXPECT_EQ(stored(), 2);  // a small file without images
}

TEST(ImageLineFaults, AnImageThatHasChangedIsNamed) {
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
