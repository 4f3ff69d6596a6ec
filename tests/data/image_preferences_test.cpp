// Samples of preferences whose prompts have images.
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

json message_of(const std::string& role, const std::vector<json>& parts) {
  return {{"role", role}, {"content", parts}};
}

json answered(const std::string& text) { return json::array({message_of("assistant", {text_part(text)})}); }

json prompt_with(const std::vector<std::string>& images) {
  std::vector<json> parts = {text_part("See: ")};
  for (const std::string& image : images) parts.push_back(image_part(image));
  return json::array({message_of("user", parts)});
}

class PreferencesWithImages : public ::testing::Test {
 protected:
  PreferencesWithImages() {
    std::filesystem::copy(kChatFolder + "../rgb.png", scratch_ / "a.png");
    std::filesystem::copy(kChatFolder + "../processors/tall.png", scratch_ / "b.png");
  }

  std::unique_ptr<Dataset> pairs(const LineRules& rules, PairForm form, const std::vector<json>& lines) const {
    return open_preference_lines({scratch_.write("pairs.jsonl", joined(lines))}, rules, form, /*held_out=*/false,
                                 "data.path");
  }
  std::unique_ptr<Dataset> judged(const LineRules& rules, const std::vector<json>& lines) const {
    return open_judged_lines({scratch_.write("judged.jsonl", joined(lines))}, rules, /*held_out=*/false, "data.path");
  }
  static std::string joined(const std::vector<json>& lines) {
    std::string text;
    for (const json& line : lines) text += line.dump() + "\n";
    return text;
  }
  LineTokens encoded(const LineRules& rules, const json& prompt, const json& answer) const {
    json messages = prompt;
    messages.insert(messages.end(), answer.begin(), answer.end());
    return LineEncoder(rules).encode(json{{"messages", messages}}.dump(), scratch_ / "pairs.jsonl:1");
  }
  static LineRules rules_of(const std::string& family) {
    LineRules rules = image_rules_of(family);
    rules.loss_on = "last";
    return rules;
  }

  ScratchFolder scratch_;
  json pair_ = {{"prompt", prompt_with({"a.png", "b.png"})},
                {"chosen", answered("Yes")},
                {"rejected", answered("Well, no")},
                {"margin", -0.5}};
};

TEST_F(PreferencesWithImages, HaveTheImagesOfBothTexts) {
  for (const std::string& family : kChatFamilies) {
    const LineRules rules = rules_of(family);
    const LineTokens chosen = encoded(rules, pair_["prompt"], pair_["chosen"]);
    const LineTokens rejected = encoded(rules, pair_["prompt"], pair_["rejected"]);
    const auto data = pairs(rules, PairForm::kFullTexts, {pair_});
    EXPECT_THAT(data->summary(), HasSubstr(fmt::format("1 pairs of completions with {} tokens",
                                                       chosen.tokens.size() + rejected.tokens.size())));
    EXPECT_THAT(data->summary(), HasSubstr("; 4 images"));
    const TensorDict sample = sample_of_chats(*data, 0);
    const TensorDict chat = sample_of_chats(
        *opened_chats(rules, scratch_, json{{"messages", {pair_["prompt"][0], pair_["chosen"][0]}}}.dump()), 0);
    const torch::Tensor twice = torch::cat({chat.at("pixel_values"), chat.at("pixel_values")});
    EXPECT_TRUE(torch::equal(sample.at("pixel_values"), twice)) << family;
    const auto* ids = sample.at("input_ids").const_data_ptr<std::int64_t>();
    const std::vector<std::int64_t> first(ids, ids + chosen.places()),
        second(ids + chosen.places(), ids + chosen.places() + rejected.places());
    EXPECT_EQ(first, std::vector<std::int64_t>(chosen.tokens.begin(), chosen.tokens.end() - 1));
    EXPECT_EQ(second, std::vector<std::int64_t>(rejected.tokens.begin(), rejected.tokens.end() - 1));
    // The labels of the chosen text are all of its tokens, less the first one and those of images.
    std::int64_t of_images = 0;
    for (const LineImage& image : chosen.images) of_images += image.second - image.first;
    const auto counted = [&](const char* name) {
      return (sample.at(name).narrow(0, 0, chosen.places()) != kNotCounted).sum().item<std::int64_t>();
    };
    EXPECT_EQ(counted("labels") + counted("prompt_labels"), chosen.places() - of_images) << family;
    EXPECT_EQ(counted("labels"), chosen.trained_tokens()) << family;
  }
}

TEST_F(PreferencesWithImages, MayHaveAMargin) {
  const json text = {{"prompt", prompt_with({})}, {"chosen", answered("a")}, {"rejected", answered("b")}};
  const auto data = pairs(rules_of("mistral3"), PairForm::kScores, {pair_, text});
  EXPECT_EQ(sample_of_chats(*data, 0).at("margins").item<float>(), -0.5F);
  EXPECT_EQ(sample_of_chats(*data, 0).at("image_sizes").size(0), 4);
  EXPECT_EQ(sample_of_chats(*data, 1).at("margins").item<float>(), 0);
  EXPECT_EQ(sample_of_chats(*data, 1).at("image_sizes").size(0), 0);
}

TEST_F(PreferencesWithImages, MayBeWholeChatsOrListTheirFiles) {
  const LineRules rules = rules_of("qwen2_5_vl");
  const auto ids_of = [&](const json& line) {
    return sample_of_chats(*pairs(rules, PairForm::kCompletions, {line}), 0).at("input_ids");
  };
  const torch::Tensor expected = ids_of(pair_);
  json whole = pair_;
  for (const char* key : {"chosen", "rejected"}) whole[key].insert(whole[key].begin(), pair_["prompt"][0]);
  whole.erase("prompt");
  EXPECT_TRUE(torch::equal(ids_of(whole), expected));
  json listed = pair_;
  for (json& part : listed["prompt"][0]["content"]) part.erase("path");
  listed["images"] = {"a.png", "b.png"};
  EXPECT_TRUE(torch::equal(ids_of(listed), expected));
}

TEST_F(PreferencesWithImages, OfJudgedCompletionsAreThoseOfTheirPrompt) {
  const LineRules rules = rules_of("qwen2_5_vl");
  const auto line = [&](const std::vector<std::string>& images, const std::string& text, bool label) {
    return json{{"prompt", prompt_with(images)}, {"completion", answered(text)}, {"label", label}};
  };
  const auto data = judged(
      rules, {line({"a.png"}, "Yes", true), line({"b.png", "a.png"}, "Well, no", false), line({}, "None", true)});
  EXPECT_THAT(data->summary(), HasSubstr("; 3 images"));
  std::vector<std::int64_t> images, desirable;
  for (std::int64_t i = 0; i < 3; ++i) {
    const TensorDict sample = sample_of_chats(*data, i);
    images.push_back(sample.at("image_grid_thw").size(0));
    desirable.push_back(sample.at("desirable").item<std::int64_t>());
    const std::int64_t token = rules.images->format().token;
    EXPECT_TRUE(torch::equal(sample.at("input_ids") == token, sample.at("kl_input_ids") == token));
  }
  EXPECT_EQ(images, (std::vector<std::int64_t>{1, 2, 0}));
  EXPECT_EQ(desirable, (std::vector<std::int64_t>{1, 0, 1}));
  EXPECT_EQ(data->label_of(1), "undesirable");
  EXPECT_EQ(data->label_of(0), "desirable");
}

TEST_F(PreferencesWithImages, HaveNoImagesInCompletions) {
  const json with_image = json::array({message_of("assistant", {text_part("Yes"), image_part("a.png")})});
  const auto refusal = [&](const std::function<void()>& open) { return thrown_by<BadLine>(open); };
  json pair = pair_;
  pair["rejected"] = with_image;
  EXPECT_THAT(refusal([&] { pairs(rules_of("gemma3"), PairForm::kCompletions, {pair}); }),
              HasSubstr("pairs.jsonl:1: 'rejected' has an image in its completion, the last message; expected images "
                        "in the messages before; correct the line, or set data.bad_lines: skip"));
  const json line = {{"prompt", prompt_with({})}, {"completion", with_image}, {"label", true}};
  EXPECT_THAT(refusal([&] {
                judged(rules_of("gemma3"), {line, line});
              }),
              HasSubstr("judged.jsonl:1: 'completion' has an image in its completion, the last message"));
}

// A stored encoding is used until an image changes.
TEST_F(PreferencesWithImages, AreEncodedAgainAfterAChange) {
  const ScratchFolder cache;
  LineRules rules = rules_of("mistral3");
  rules.encoding.cache = cache.path();
  const auto ids = [&] { return sample_of_chats(*pairs(rules, PairForm::kCompletions, {pair_}), 0).at("input_ids"); };
  const auto stored = [&] {
    return std::distance(std::filesystem::directory_iterator(cache.path()), std::filesystem::directory_iterator());
  };
  const torch::Tensor before = ids();
  EXPECT_TRUE(torch::equal(ids(), before));
  EXPECT_EQ(stored(), 1);
  std::filesystem::copy(kChatFolder + "../processors/wide.png", scratch_ / "b.png",
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_FALSE(torch::equal(ids(), before));
  EXPECT_EQ(stored(), 2);
}

}  // namespace
}  // namespace gantry::testing
