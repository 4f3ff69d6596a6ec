// Models that read images and text: every layout trains as one rank in float64, also where a replica or a microbatch
// has no image.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "case_batch.h"
#include "gantry/booster/recipe.h"
#include "gantry/models/decoder.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

ModelCase picture_case(const std::string& family) {
  return {.family = family, .layers = 3, .key_heads = 2, .vocabulary = 53, .tokens = 11, .batches = {6, 5}};
}

std::vector<Parallelism> picture_layouts() {
  return {{.layout = {}, .microbatches = 3},
          {.layout = {.tensor = 2}},
          {.layout = {.tensor = 3}, .recompute = "selective"},
          {.layout = {.tensor = 2}, .microbatches = 2, .sequence_parallel = true},
          {.layout = {.tensor = 3}, .sequence_parallel = true, .recompute = "full"},
          {.layout = {.pipeline = 2}, .microbatches = 3, .recompute = "parts"},
          {.layout = {.pipeline = 3}, .schedule = "zb_h1", .microbatches = 3},
          {.layout = {.data = 2}, .microbatches = 2},
          {.layout = {.data = 2}, .zero = 1},
          {.layout = {.data = 2}, .microbatches = 2, .zero = 2},
          {.layout = {.data = 2}, .microbatches = 2, .recompute = "full", .zero = 3},
          {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .microbatches = 2, .sequence_parallel = true, .zero = 1},
          {.layout = {.pipeline = 2}, .schedule = "interleaved_1f1b", .microbatches = 2, .chunks = 1},
          {.layout = {.data = 2}, .accumulation = 2}};
}

TEST(ImageTextGrid, Gemma3) { expect_layouts_equal(picture_case("gemma3"), picture_layouts()); }

TEST(ImageTextGrid, Llava) { expect_layouts_equal(picture_case("llava"), picture_layouts()); }

TEST(ImageTextGrid, Mistral3) { expect_layouts_equal(picture_case("mistral3"), picture_layouts()); }

TEST(ImageTextGrid, Qwen25) { expect_layouts_equal(picture_case("qwen2_5_vl"), picture_layouts()); }

// Five layers of the tower and the decoder.
std::vector<Parallelism> tower_layouts() {
  return {
      {.layout = {.pipeline = 2}, .microbatches = 3, .layers = "Et|ttttL"},
      {.layout = {.pipeline = 2}, .schedule = "gpipe", .microbatches = 3, .layers = "Ett|tttL"},
      {.layout = {.pipeline = 2}, .microbatches = 2, .layers = "E|tttttL"},
      {.layout = {.pipeline = 5}, .microbatches = 2},
      {.layout = {.pipeline = 2}, .schedule = "interleaved_1f1b", .microbatches = 2, .chunks = 2},
      {.layout = {.pipeline = 2}, .schedule = "zb_v", .microbatches = 4, .chunks = 2, .recompute = "full"},
      {.layout = {.pipeline = 2, .tensor = 2},
       .schedule = "interleaved_1f1b",
       .microbatches = 2,
       .sequence_parallel = true,
       .chunks = 2},
      {.layout = {.pipeline = 3, .data = 2}, .microbatches = 2, .recompute = "selective", .zero = 1},
      {.layout = {.pipeline = 2, .data = 2}, .microbatches = 3, .recompute = "full", .zero = 3, .layers = "Et|ttttL"},
      {.layout = {.pipeline = 2}, .microbatches = 2, .layers = "balanced"},
      {.layout = {.pipeline = 3}, .microbatches = 2, .accumulation = 2}};
}

TEST(ImageTextGrid, TowersOverStages) {
  for (const char* family : {"gemma3", "llava", "mistral3", "qwen2_5_vl"}) {
    SCOPED_TRACE(family);
    ModelCase what = picture_case(family);
    what.layers = family == std::string("llava") ? 4 : 3;  // only one of the tower's two layers is used
    expect_layouts_equal(what, tower_layouts());
  }
}

// A microbatch or a replica without images has tower stages without patches.
TEST(ImageTextGrid, StepsOfTextOnly) {
  for (const char* family : {"gemma3", "mistral3", "qwen2_5_vl"}) {
    SCOPED_TRACE(family);
    ModelCase what = picture_case(family);
    what.batches = {1, 6};
    expect_layouts_equal(what, {{.layout = {.pipeline = 5}}, {.layout = {.pipeline = 2}, .layers = "Et|ttttL"}});
  }
}

TEST(ImageTextGrid, PaddedSamples) {
  for (const char* family : {"gemma3", "llava", "mistral3", "qwen2_5_vl"}) {
    ModelCase what = picture_case(family);
    what.padded = true;
    expect_layouts_equal(what, {{.layout = {.tensor = 2}, .sequence_parallel = true}, {.layout = {.pipeline = 2}}});
  }
}

std::shared_ptr<models::DecoderImpl> picture_model(const ModelCase& what, bool has_encoder) {
  json keys = json::parse(config_keys(what));
  keys["image_encoder"] = has_encoder;
  auto model = std::dynamic_pointer_cast<models::DecoderImpl>(models::families().at(what.family).build(keys));
  set_dtype(*model, torch::kFloat64);
  model->eval();
  return model;
}

// Without images the model is its text decoder, whatever the token types are.
TEST(ImageText, BatchesOfTextHaveTheLogitsOfTheDecoder) {
  for (const char* family : {"gemma3", "llava", "mistral3", "qwen2_5_vl"}) {
    const ModelCase what = picture_case(family);
    const auto model = picture_model(what, true), decoder = picture_model(what, false);
    const auto parameters = model->named_parameters();
    const torch::NoGradGuard no_grad;
    for (auto& item : decoder->named_parameters()) item.value().copy_(parameters[item.key()]);
    const torch::Tensor ids = torch::arange(22).view({2, 11});
    const torch::Tensor with =
        model->forward({{"input_ids", ids}, {"token_type_ids", torch::zeros_like(ids)}}).at("logits");
    const torch::Tensor without = decoder->forward({{"input_ids", ids}}).at("logits");
    EXPECT_LE((with - without).abs().max().item<double>(), 1e-12) << family;
  }
}

// In full and in window layers, and not across images.
TEST(ImageText, TokensOfAnImageSeeEachOther) {
  const ModelCase what = picture_case("gemma3");
  const auto model = picture_model(what, true);
  TensorDict batch = full_batch(what, 0);
  batch.take("labels");
  const torch::Tensor before = model->forward(batch).at("logits").detach();
  torch::Tensor pixels = batch.at("pixel_values").clone();
  pixels[1][0].add_(1);  // the first image of sample 1, which is tokens 1 to 4
  batch.set("pixel_values", pixels);
  const torch::Tensor changed = (model->forward(batch).at("logits") - before).abs().amax(-1) > 1e-12;
  EXPECT_FALSE(changed[1][0].item<bool>());
  EXPECT_TRUE(changed[1].narrow(0, 1, 10).all().item<bool>());
  EXPECT_FALSE(changed[0].any().item<bool>());
}

TEST(ImageText, RefusesWhatItCannotRead) {
  const ModelCase what = picture_case("gemma3");
  const auto model = picture_model(what, true);
  const TensorDict batch = full_batch(what, 0);
  const auto refusal = [&](const char* entry, const torch::Tensor& tensor) {
    TensorDict changed = batch;
    changed.set(entry, tensor);
    return thrown_by([&] { model->forward(changed); });
  };
  EXPECT_THAT(refusal("pixel_values", torch::zeros({6, 2, 2, 7, 7})), HasSubstr("[samples, images, 2, 8, 8]"));
  EXPECT_THAT(refusal("pixel_values", torch::zeros({6, 2, 8, 8})),
              HasSubstr("sample 1 has 8 image tokens (52), but pixel_values has 1 images of 4 tokens"));
  TensorDict untyped = batch;
  untyped.take("token_type_ids");
  EXPECT_THAT(thrown_by([&] { model->forward(untyped); }), HasSubstr("token_type_ids"));
  const auto refused_keys = [&](json further) {
    Config config;
    config.model.policy = "gemma3";
    json keys = json::parse(config_keys(what));
    config.model.config_json = keys.dump();
    if (further.contains("quantize")) config.model.quantize = "nf4";
    config.train.device_graphs = further.contains("graphs");
    return thrown_by([&] { resolve_model(config); });
  };
  EXPECT_THAT(refused_keys({{"graphs", true}}), HasSubstr("train.device_graphs: CUDA graphs are configured"));
  EXPECT_THAT(refused_keys({{"quantize", "nf4"}}), HasSubstr("model.quantize: the value is nf4"));
}

// Pixels outside of an image have no influence, and each image is encoded alone.
TEST(ImageText, ImagesOfUnequalSizesArePadded) {
  const ModelCase what = picture_case("mistral3");
  const auto model = picture_model(what, true);
  TensorDict batch = full_batch(what, 0);
  batch.take("labels");
  const auto logits_with = [&](const char* entry, const torch::Tensor& tensor) {
    TensorDict changed = batch;
    changed.set(entry, tensor);
    return model->forward(changed).at("logits").detach();
  };
  const torch::Tensor pixels = batch.at("pixel_values"), before = logits_with("pixel_values", pixels);
  torch::Tensor outside = pixels.clone();
  outside.select(1, 0).narrow(2, 4, 4).add_(1);  // the first image of a sample has 4 rows
  EXPECT_TRUE(torch::equal(logits_with("pixel_values", outside), before));
  torch::Tensor second = pixels.clone();
  second[1][1].add_(1);  // tokens 9 and 10
  const torch::Tensor changed = (logits_with("pixel_values", second) - before).abs().amax(-1) > 1e-12;
  EXPECT_FALSE(changed[1].narrow(0, 0, 9).any().item<bool>());
  EXPECT_TRUE(changed[1].narrow(0, 9, 2).all().item<bool>());
  const auto refusal = [&](const char* entry, const torch::Tensor& tensor) {
    return thrown_by([&] { logits_with(entry, tensor); });
  };
  const torch::Tensor sizes = batch.at("image_sizes");
  EXPECT_THAT(refusal("image_sizes", sizes + 1),
              HasSubstr("an image has 5 x 9 pixels; expected sides that are multipl"));
  EXPECT_THAT(refusal("image_sizes", sizes * 2), HasSubstr("2 x 4 squares of patches, but pixel_values have 2 x 2"));
  EXPECT_THAT(refusal("image_sizes", sizes * 0), HasSubstr("sample 0 has 2 image tokens (52), but its images have 0"));
  EXPECT_THAT(refusal("image_sizes", sizes.narrow(1, 0, 1)), HasSubstr("[6, 2, 2]: height and width of each image"));
  EXPECT_THAT(refusal("pixel_values", pixels.narrow(3, 0, 6)), HasSubstr("with sides that are multiples of 4"));
  TensorDict unsized = batch;
  unsized.take("image_sizes");
  EXPECT_THAT(thrown_by([&] { model->forward(unsized); }), HasSubstr("image_sizes: the batch has pixel_values"));
}

}  // namespace
}  // namespace gantry::testing
