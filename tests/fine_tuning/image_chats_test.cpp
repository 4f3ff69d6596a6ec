// Training on chats with images. Every layout has the numbers of one rank in float64, also if a replica or a microbatch
// has no image. Packed chats have the numbers of chats in separate samples.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/recipe.h"
#include "gantry/booster/show_sample.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/gather.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kImagesOfChats = GANTRY_SOURCE_DIR "/tests/golden/images/";
constexpr std::int64_t kChatsOfStep = 6, kImagesOfStep = 4;

json question_about(const std::vector<std::string>& images, const std::string& answer) {
  json parts = {{{"type", "text"}, {"text", "Look: "}}};
  for (const std::string& image : images) parts.push_back({{"type", "image"}, {"path", kImagesOfChats + image}});
  const json said = {{{"type", "text"}, {"text", answer}}};
  return {{"messages", {{{"role", "user"}, {"content", parts}}, {{"role", "assistant"}, {"content", said}}}}};
}

// A sample has one line, because two do not fit. The last three have no image, so that a replica and a microbatch have
// none.
std::string chats_with_images() {
  const std::string blank = "nothing at all, as the frame is still empty";
  std::string lines;
  for (const json& line :
       {question_about({"rgb.png"}, "a card with some colours on it, and a hole"),
        question_about({"processors/tall.png", "processors/wide.png"}, "a door and a band"),
        question_about({"grey.png"}, "fog over a field, and then some more fog"), question_about({}, blank + " today"),
        question_about({}, "there is " + blank), question_about({}, blank + ", says the guard")})
    lines += line.dump() + "\n";
  return lines;
}

struct Split {
  Layout layout = {};
  int microbatches = 1;
  int zero = 0;
  std::string recompute = "none";
  bool sequence_parallel = false;

  std::string in_words() const {
    return fmt::format("tp {} pp {} dp {} m {} zero {} recompute {} sp {}", layout.tensor, layout.pipeline, layout.data,
                       microbatches, zero, recompute, sequence_parallel);
  }
};

class ImageChats : public ::testing::TestWithParam<std::string> {
 protected:
  Config config(const Layout& layout = {}) const {
    Config made = layout_config(layout);
    const std::string folder = kImagesOfChats + "chats/" + GetParam();
    made.model.policy = GetParam();
    json keys = json::parse(read_file(folder + "/config.json"));
    keys.erase("model_type");
    made.model.config_json = keys.dump();
    made.precision = "float64";
    made.data = {};
    made.data.format = "jsonl";
    made.data.path = scratch_.write("chats.jsonl", chats_with_images());
    made.data.tokenizer = folder;
    made.data.sequence_length = 100;
    made.data.batch_size = kChatsOfStep;
    made.data.shuffle = false;
    made.data.cache = "never";
    made.optimizer.lr = 1e-2;
    made.train.seed = 7;
    return resolve_model(std::move(made));
  }

  Config split_config(const Split& split) const {
    Config made = config(split.layout);
    made.schedule.microbatches = split.microbatches;
    made.parallel.zero = split.zero;
    made.schedule.recompute = split.recompute;
    made.parallel.sequence_parallel = split.sequence_parallel;
    return made;
  }

  CaseResult trained(const Config& config) const {
    CaseResult result;
    const int code = start_ranks()(config, [&](World& world) {
      auto* plugin = new HybridParallelPlugin(world, config);
      Booster booster{std::unique_ptr<Plugin>(plugin)};
      auto model = build_model(config);
      auto boosted =
          booster.boost(model, build_optimizer(config, *model), build_criterion(config), build_loader(config));
      boosted.model->train();
      CaseResult mine;
      for (int step = 0; step < 2; ++step) {
        const StepResult called = booster.execute_pipeline(boosted.loader->next(), boosted, {.broadcast_loss = true});
        mine.losses.push_back(*called.loss);
        EXPECT_EQ(called.images, kImagesOfStep);
        mine.added.emplace_back();
        mine.loads.emplace_back();
        mine.norms.push_back(boosted.optimizer->grad_norm());
        boosted.optimizer->gradients().complete();
        mine.gradients = gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                                        [&](std::size_t i) { return boosted.optimizer->gradients().gradient(i); });
        boosted.optimizer->step();
        boosted.optimizer->zero_grad();
      }
      boosted.optimizer->wait();
      mine.weights = gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                                    [&](std::size_t i) { return boosted.model->stage_module().parameters[i].tensor; });
      if (world.is_main()) result = std::move(mine);
    });
    EXPECT_EQ(code, 0);
    return result;
  }

  ScratchFolder scratch_;
};
INSTANTIATE_TEST_SUITE_P(Families, ImageChats, ::testing::Values("gemma3", "llava", "mistral3", "qwen2_5_vl"),
                         [](const auto& info) { return info.param; });

TEST_P(ImageChats, TrainTheSameInEveryLayout) {
  const CaseResult expected = trained(config());
  ASSERT_EQ(expected.losses.size(), 2U);
  double of_encoder = 0;
  for (const auto& [name, tensor] : expected.gradients)
    if (name.find("vision") != std::string::npos || name.find("visual") != std::string::npos)
      of_encoder = std::max(of_encoder, tensor.abs().max().item<double>());
  EXPECT_GT(of_encoder, 0);
  for (const Split& split :
       {Split{{.tensor = 2}, 1}, Split{{.pipeline = 2}, 2}, Split{{.data = 2}, 1}, Split{{.data = 2}, 3},
        Split{{.data = 3}, 2}, Split{{.data = 3}, 1, /*zero=*/3}, Split{{.data = 3}, 2, 0, "full"},
        Split{{.tensor = 2}, 1, 0, "none", /*sequence_parallel=*/true}}) {
    expect_equal(expected, trained(split_config(split)), 1e-10, fmt::format("{} {}", GetParam(), split.in_words()));
    if (HasFailure()) return;
  }
}

// The second step has no image.
TEST_P(ImageChats, StepsMayHaveNoImage) {
  const auto half = [&](const Split& split) {
    Config made = split_config(split);
    made.data.batch_size = kChatsOfStep / 2;
    return made;
  };
  const TensorDict second = build_loader(half({}))->batch(1).tensors;
  EXPECT_EQ(second.at("pixel_values").numel(), 0);
  const CaseResult expected = trained(half({}));
  for (const Split& split :
       {Split{{.tensor = 2}}, Split{{.data = 3}}, Split{{.data = 3}, 1, /*zero=*/3}, Split{{.data = 3}, 1, 0, "full"},
        Split{{.tensor = 2}, 1, 0, "none", /*sequence_parallel=*/true}})
    expect_equal(expected, trained(half(split)), 1e-10, fmt::format("{} {}", GetParam(), split.in_words()));
}

TEST_P(ImageChats, PackedChatsDoNotSeeEachOther) {
  Config packed = config();
  packed.data.sequence_length = 500;
  packed.data.batch_size = 1;
  ASSERT_EQ(build_loader(config())->samples(), kChatsOfStep);
  ASSERT_EQ(build_loader(packed)->samples(), 1);
  const CaseResult alone = trained(config()), together = trained(packed);
  EXPECT_NEAR(alone.losses[0], together.losses[0], 1e-10);
  EXPECT_NEAR(alone.losses[1], together.losses[1], 1e-10);
}

TEST(ImageChatPositions, StartAgainInEachDocument) {
  const ScratchFolder scratch;
  Config config;
  config.model.policy = "qwen2_5_vl";
  config.data.format = "jsonl";
  config.data.tokenizer = config.model.path = kImagesOfChats + "chats/qwen2_5_vl";
  config.data.path = scratch.write("chats.jsonl", chats_with_images());
  config.data.sequence_length = 250;
  config.data.batch_size = 1;
  config.data.shuffle = false;
  config.data.cache = "never";
  const TensorDict batch = build_loader(resolve_model(std::move(config)))->next().tensors;
  const torch::Tensor documents = batch.at("document_ids")[0], positions = batch.at("position_ids")[0];
  ASSERT_EQ(positions.sizes(), torch::IntArrayRef({250, 3}));
  const torch::Tensor starts = documents.diff() != 0;
  EXPECT_GT(starts.sum().item<std::int64_t>(), 2);
  EXPECT_FALSE(positions.narrow(0, 1, 249).index({starts}).any().item<bool>());
}

Config config_of_chats(const std::string& path, const std::string& keys = "{}",
                       const std::vector<DataSourceConfig>& sources = {}) {
  Config config;
  config.model.path = kImagesOfChats + "chats/qwen2_5_vl";
  config.model.config_json = keys;
  config.data.format = "jsonl";
  config.data.path = path;
  config.data.sources = sources;
  config.data.cache = "never";
  return resolve_model(std::move(config));
}

// The first lines of the sources decide, unless the key is set.
TEST(ImageChatModel, HasItsEncoderIfAFirstLineHasAnImage) {
  const ScratchFolder scratch;
  const std::string image = question_about({"rgb.png"}, "a card").dump(), text = question_about({}, "none").dump();
  const auto has_encoder = [](const Config& config) {
    return json::parse(config.model.config_json).value("image_encoder", false);
  };
  const std::string first = scratch.write("first.jsonl", image + "\n" + text),
                    second = scratch.write("second.jsonl", text + "\n" + image);
  EXPECT_TRUE(has_encoder(config_of_chats(first)));
  EXPECT_FALSE(has_encoder(config_of_chats(first, R"({"image_encoder": false})")));
  EXPECT_FALSE(has_encoder(config_of_chats(second)));
  EXPECT_TRUE(has_encoder(config_of_chats(second, R"({"image_encoder": true})")));
  EXPECT_FALSE(has_encoder(config_of_chats(scratch / "missing.jsonl")));
  EXPECT_TRUE(has_encoder(config_of_chats("", "{}", {{second, 1}, {first, 1}})));
  EXPECT_FALSE(has_encoder(config_of_chats("", "{}", {{second, 1}})));
  Config skips = config_of_chats(second);
  skips.data.bad_lines = "skip";
  EXPECT_THAT(thrown_by([&] { build_loader(skips)->next(); }),
              HasSubstr("second.jsonl:2: the line has images, but this run reads text only; expected a model"));
}

TEST(ImageChatModel, NeedsTheConfigurationOfItsProcessor) {
  const ScratchFolder scratch;
  for (const auto& entry : std::filesystem::directory_iterator(kImagesOfChats + "chats/qwen2_5_vl"))
    if (entry.path().filename() != "preprocessor_config.json")
      std::filesystem::copy(entry.path(), scratch / entry.path().filename().string());
  const auto loaded = [&](const json& line) {
    Config config = config_of_chats(scratch.write("chats.jsonl", line.dump()), R"({"image_encoder": true})");
    config.model.path = config.data.tokenizer = scratch.path();
    config.data.bad_lines = "skip";
    config.data.sequence_length = 100;
    config.data.batch_size = 1;
    return build_loader(config)->next().tensors;
  };
  EXPECT_THAT(thrown_by([&] { loaded(question_about({"rgb.png"}, "a card")); }),
              HasSubstr("chats.jsonl:1: the line has images, but neither model.path '" + scratch.path() + "' nor"));
  EXPECT_GT(loaded(question_about({}, "no card")).at("input_ids").numel(), 0);
}

TEST(ImageChatModel, HasItsEncoderIfAFirstPreferenceHasAnImage) {
  const ScratchFolder scratch;
  const json asked = question_about({"rgb.png"}, "a card")["messages"], text = question_about({}, "a door")["messages"];
  const auto loaded = [&](const json& line) {
    Config config = config_of_chats(scratch.write("pairs.jsonl", line.dump()));
    EXPECT_TRUE(json::parse(config.model.config_json).value("image_encoder", false));
    config.train.objective.name = "dpo";
    config.data.sequence_length = 200;
    config.data.batch_size = 1;
    return build_loader(config)->next().tensors;
  };
  const json pair = {{"prompt", {asked[0]}}, {"chosen", {asked[1]}}, {"rejected", {text[1]}}};
  EXPECT_EQ(loaded(pair).at("image_grid_thw").size(1), 2);
  json whole = {{"chosen", asked}, {"rejected", asked}};
  whole["rejected"][1] = text[1];
  EXPECT_EQ(loaded(whole).at("image_grid_thw").size(1), 2);
  const json texts = {{"prompt", "What?"}, {"chosen", "a card"}, {"rejected", "a door"}, {"images", {"rgb.png"}}};
  Config config = config_of_chats(scratch.write("pairs.jsonl", texts.dump()), R"({"image_encoder": true})");
  config.train.objective.name = "dpo";
  EXPECT_THAT(thrown_by([&] { build_loader(config)->next(); }),
              HasSubstr("pairs.jsonl:1: the line has images, but no messages; expected messages"));
}

TEST(ImageChatModel, ShowsTokensOfImagesWithoutALoss) {
  const ScratchFolder scratch;
  const std::string path = scratch.write("chats.jsonl", question_about({"rgb.png"}, "a card").dump());
  const Config config = config_of_chats(path);
  for (const ShownSample& shown : {show_sample(config, path, 1), show_line(config, path, 1)}) {
    std::int64_t images = 0;
    for (std::size_t i = 0; i < shown.tokens.size(); ++i) {
      EXPECT_EQ(shown.tokens[i].why == "image", shown.texts[i] == "<|image_pad|>");
      if (shown.tokens[i].why == "image") EXPECT_FALSE(shown.tokens[i].is_trained);
      images += shown.tokens[i].why == "image" ? 1 : 0;
    }
    EXPECT_EQ(images, 8);
  }
}

}  // namespace
}  // namespace gantry::testing
