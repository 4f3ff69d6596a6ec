// Runs with train.objective on prompts with images: every layout has the numbers of one rank in float64, and a pair has
// the log-probabilities of its chats.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "grid.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::string kPictures = GANTRY_SOURCE_DIR "/tests/golden/images/";

Json said(const std::string& role, const std::string& text, const std::vector<std::string>& images = {}) {
  Json parts = Json::array({{{"type", "text"}, {"text", text}}});
  for (const std::string& image : images) parts.push_back({{"type", "image"}, {"path", kPictures + image}});
  return Json::array({{{"role", role}, {"content", parts}}});
}

struct AskedAbout {
  std::vector<std::string> images;
  std::string good, bad;
};

// The last three have no image, so that a replica and a microbatch have none.
const std::vector<AskedAbout> kAsked = {{{"rgb.png"}, "a card with colours", "a hole"},
                                        {{"processors/tall.png", "processors/wide.png"}, "a door and a band", "a band"},
                                        {{"grey.png"}, "fog", "fog over a field"},
                                        {{}, "nothing", "nothing at all"},
                                        {{}, "an empty frame", "a frame"},
                                        {{}, "none", "no frame"}};

std::string image_pairs() {
  std::string lines;
  for (const auto& [images, good, bad] : kAsked)
    lines += Json{{"prompt", said("user", "Look: ", images)},
                  {"chosen", said("assistant", good)},
                  {"rejected", said("assistant", bad)}}
                 .dump() +
             "\n";
  return lines;
}

std::string judged_images() {
  std::string lines;
  for (std::size_t i = 0; i < kAsked.size(); ++i)
    lines += Json{{"prompt", said("user", "Look: ", kAsked[i].images)},
                  {"completion", said("assistant", i % 2 == 0 ? kAsked[i].good : kAsked[i].bad)},
                  {"label", i % 2 == 0}}
                 .dump() +
             "\n";
  return lines;
}

class ImagePreferences : public ::testing::Test {
 protected:
  Outcome run(const std::string& family, const Json& objective, const std::string& lines,
              const Json& more = Json::object()) const {
    std::filesystem::remove_all(scratch_ / "out");
    const std::string folder = kPictures + "chats/" + family;
    Json keys = Json::parse(read_file(folder + "/config.json"));
    keys.erase("model_type");
    Json config = {{"model", {{"policy", family}, {"config", keys}}},
                   {"precision", "float64"},
                   {"data",
                    {{"format", "jsonl"},
                     {"path", scratch_.write("lines.jsonl", lines)},
                     {"tokenizer", folder},
                     {"sequence_length", 240},
                     {"batch_size", 6},
                     {"cache", "never"},
                     {"shuffle", false}}},
                   {"optimizer", {{"lr", 0.01}}},
                   {"train", {{"steps", 3}, {"objective", objective}}},
                   {"comm", {{"threads_per_rank", 1}}},
                   {"output", scratch_ / "out"}};
    if (objective.is_null()) config["train"].erase("objective");
    config.merge_patch(more);
    return run_program(gantry_program() + " train " + scratch_.write("run.yaml", config.dump()), 120);
  }

  std::vector<Json> metrics(const Outcome& run) const {
    EXPECT_EQ(run.exit_code, 0) << run.err;
    std::vector<Json> all;
    std::istringstream lines(read_file(scratch_ / "out/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }

  void expect_equal_in_layouts(const std::string& family, const Json& objective, const std::string& lines) const {
    const std::vector<Json> expected = metrics(run(family, objective, lines));
    ASSERT_EQ(expected.size(), 3U);
    ASSERT_GT(expected[2].at("grad_norm"), 0);
    const std::vector<Json> layouts = {
        Json{{"parallel", {{"tensor", 2}}}}, Json{{"parallel", {{"data", 2}}}},
        Json{{"parallel", {{"pipeline", 2}}}, {"schedule", {{"microbatches", 2}}}},
        Json{{"parallel", {{"data", 2}, {"zero", 3}}}, {"schedule", {{"microbatches", 3}}}}};
    for (const Json& layout : turn_of(next_turn("layouts"), 2, layouts)) {
      const std::string label = family + " " + objective.dump() + " " + layout.dump();
      const std::vector<Json> found = metrics(run(family, objective, lines, layout));
      ASSERT_EQ(found.size(), expected.size()) << label;
      for (std::size_t i = 0; i < found.size(); ++i)
        for (const char* key : {"loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/margins", "kl"}) {
          ASSERT_EQ(found[i].contains(key), expected[i].contains(key)) << label << key;
          if (found[i].contains(key))
            EXPECT_NEAR(found[i][key].get<double>(), expected[i][key].get<double>(), 1e-10) << label << key << i;
        }
    }
  }

  ScratchFolder scratch_;
};

TEST_F(ImagePreferences, TrainTheSameInEveryLayout) {
  for (const char* family : {"gemma3", "llava", "mistral3", "qwen2_5_vl"})
    expect_equal_in_layouts(family, {{"name", "dpo"}, {"beta", 0.3}}, image_pairs());
}

TEST_F(ImagePreferences, TrainTheSameWithEveryObjective) {
  for (const char* family : {"gemma3", "qwen2_5_vl"}) {
    expect_equal_in_layouts(family, {{"name", "simpo"}}, image_pairs());
    expect_equal_in_layouts(family, {{"name", "orpo"}}, image_pairs());
    expect_equal_in_layouts(family, {{"name", "kto"}}, judged_images());
  }
}

// The rewards of simpo are means over the tokens of a completion, and so is the loss of a chat.
TEST_F(ImagePreferences, OfAPairAreThoseOfItsChats) {
  const auto& [images, good, bad] = kAsked[1];
  const Json prompt = said("user", "Look: ", images), one = {{"data", {{"batch_size", 1}}}, {"train", {{"steps", 1}}}};
  const Json pair = {{"prompt", prompt}, {"chosen", said("assistant", good)}, {"rejected", said("assistant", bad)}};
  for (const char* family : {"gemma3", "llava", "mistral3", "qwen2_5_vl"}) {
    const auto loss_of = [&](const std::string& answer) {
      const Json messages = {prompt[0], said("assistant", answer)[0]};
      return metrics(run(family, nullptr, Json{{"messages", messages}}.dump(), one)).front().at("loss").get<double>();
    };
    const Json step = metrics(run(family, {{"name", "simpo"}, {"beta", 1}, {"gamma", 0}}, pair.dump(), one)).front();
    EXPECT_NEAR(step.at("rewards/chosen").get<double>(), -loss_of(good), 1e-10) << family;
    EXPECT_NEAR(step.at("rewards/rejected").get<double>(), -loss_of(bad), 1e-10) << family;
  }
}

// The completion of the line before is the own one, so the divergence of kto is the mean of the rewards.
TEST_F(ImagePreferences, OtherCompletionsHaveTheImagesOfTheirPrompt) {
  std::string lines;
  for (const AskedAbout& asked : kAsked)
    lines += Json{{"prompt", said("user", "Look: ", asked.images)},
                  {"completion", said("assistant", "a door and a band")},
                  {"label", true}}
                 .dump() +
             "\n";
  for (const char* family : {"gemma3", "llava", "mistral3", "qwen2_5_vl"}) {
    const std::vector<Json> steps = metrics(run(family, {{"name", "kto"}, {"beta", 0.5}}, lines));
    ASSERT_EQ(steps.size(), 3U);
    EXPECT_GT(steps[2].at("kl").get<double>(), 0) << family;
    EXPECT_NEAR(0.5 * steps[2].at("kl").get<double>(), steps[2].at("rewards/chosen").get<double>(), 1e-10) << family;
  }
}

TEST_F(ImagePreferences, BadImagesAreNamedByFileAndLine) {
  const auto refusal = [&](const Json& prompt, const Json& chosen, const Json& more = Json::object()) {
    const Json line = {{"prompt", prompt}, {"chosen", chosen}, {"rejected", said("assistant", "no")}};
    const Outcome failed = run("qwen2_5_vl", {{"name", "dpo"}}, image_pairs() + line.dump() + "\n", more);
    EXPECT_NE(failed.exit_code, 0);
    return failed.err;
  };
  const Json yes = said("assistant", "yes");
  EXPECT_THAT(refusal(said("user", "Look: ", {"missing.png"}), yes),
              HasSubstr("lines.jsonl:7: an image cannot be read: " + kPictures + "missing.png: No such file"));
  EXPECT_THAT(refusal(said("user", "Look: ", {"chats/conversation.json"}), yes),
              HasSubstr("lines.jsonl:7: an image cannot be read: "));
  EXPECT_THAT(refusal(said("user", "Look: ", {"rgb.png"}), said("assistant", "yes", {"rgb.png"})),
              HasSubstr("lines.jsonl:7: 'chosen' has an image in its completion, the last message; expected images in "
                        "the messages before; correct the line, or set data.bad_lines: skip"));
  EXPECT_THAT(refusal(said("user", "Look: ", {"rgb.png"}), yes, {{"model", {{"config", {{"image_encoder", false}}}}}}),
              HasSubstr("lines.jsonl:1: the line has images, but this run reads text only"));
  const Json missing = {
      {"prompt", said("user", "Look: ", {"missing.png"})}, {"chosen", yes}, {"rejected", said("assistant", "no")}};
  const Outcome skipped =
      run("qwen2_5_vl", {{"name", "dpo"}}, image_pairs() + missing.dump() + "\n", {{"data", {{"bad_lines", "skip"}}}});
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_THAT(skipped.out, HasSubstr("; 8 images; 1 skipped, the first: "));
}

}  // namespace
}  // namespace gantry::testing
