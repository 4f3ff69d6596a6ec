// Generation from prompts with images: transformers' greedy tokens in every layout, and options that need no images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string image_folder(const std::string& name) { return golden_model("families/" + name); }

Config image_config(const std::string& name) {
  Config config;
  config.model.path = image_folder(name);
  config.model.config_json = extra_keys(config.model.path);
  return config;
}

// Prompts of unequal length with images, in the order of Hugging Face's processors.
GenerationJob image_job(const std::string& name) {
  const json generated = json::parse(read_file(image_folder(name) + "/generate.json"));
  GenerationJob job{.name = name, .prompts = {}, .options = {.max_new_tokens = 12}};
  for (const auto& prompt : generated["prompt"]) job.prompts.push_back(prompt.get<TokenIds>());
  const TensorDict inputs = read_safetensors(image_folder(name) + "/inputs.safetensors");
  for (const char* entry : {"pixel_values", "image_sizes", "image_grid_thw"})
    if (inputs.contains(entry)) job.options.images.set(entry, inputs.at(entry));
  return job;
}

std::vector<TokenIds> expected_tokens(const std::string& name) {
  return json::parse(read_file(image_folder(name) + "/generate.json"))["tokens"].get<std::vector<TokenIds>>();
}

class GenerateImages : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, GenerateImages,
                         ::testing::Values("gemma3_image", "mistral3_image", "qwen2_5_vl_image"),
                         [](const auto& info) { return info.param; });

TEST_P(GenerateImages, GreedyTokensInEveryLayout) {
  for (const Layout& layout :
       {Layout{}, Layout{.tensor = 2}, Layout{.pipeline = 2}, Layout{.pipeline = 2, .data = 2, .tensor = 2}})
    EXPECT_EQ(tokens_of(generate_in(layout, image_config(GetParam()), {image_job(GetParam())}).at(0)),
              expected_tokens(GetParam()))
        << describe(layout);
}

// The beams of a prompt share its images.
TEST_P(GenerateImages, BeamsDoNotDependOnTheLayout) {
  GenerationJob job = image_job(GetParam());
  job.options.num_beams = 3;
  const auto run = [&](const Layout& layout) {
    return tokens_of(generate_in(layout, image_config(GetParam()), {job}).at(0));
  };
  const auto one = run({});
  EXPECT_NE(one, expected_tokens(GetParam()));
  EXPECT_EQ(run({.pipeline = 2}), one);
}

TEST(GenerateImagesErrors, NameTheOption) {
  const auto refusal = [](Config config, const std::function<void(GenerationJob&)>& change) {
    GenerationJob job = image_job("mistral3_image");
    change(job);
    return thrown_by([&] {
      const Config resolved = resolve_model(std::move(config));
      const auto model = build_model(resolved);
      generate(*model, job.prompts, job.options);
    });
  };
  Config text = image_config("mistral3_image");
  text.model.config_json = "{}";
  EXPECT_THAT(refusal(text, [](GenerationJob&) {}), HasSubstr("images: the model reads text only; expected a model"));
  const Config config = image_config("mistral3_image");
  EXPECT_THAT(refusal(config, [](GenerationJob& job) { job.options.use_cache = false; }),
              HasSubstr("use_cache: the value is false, but the prompts have images"));
  EXPECT_THAT(refusal(config, [](GenerationJob& job) { job.prompts.pop_back(); }),
              HasSubstr("pixel_values: there are 4 images with 15 features, which differ from the 11 image tokens"));
  EXPECT_THAT(refusal(config, [](GenerationJob& job) { job.options.images.take("image_sizes"); }),
              HasSubstr("image_sizes: the batch has pixel_values, but no sizes"));
}

TEST(GenerateImagesErrors, SequenceParallelismHasNoCache) {
  Config config = image_config("mistral3_image");
  config.parallel.tensor = 2;
  config.parallel.sequence_parallel = true;
  config = resolve_model(std::move(config));
  const GenerationJob job = image_job("mistral3_image");
  const int code = start_ranks()(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto boosted = booster.boost(build_model(config), nullptr, cross_entropy());
    EXPECT_THAT(thrown_by([&] { generate(boosted, *plugin, job.prompts, job.options); }),
                HasSubstr("parallel.sequence_parallel: the prompts have images, but there is no cache"));
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace gantry::testing
