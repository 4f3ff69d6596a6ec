// Processors of models of images and text, compared with transformers (tests/golden/images/make_processors.py).
#include "gantry/data/images/image_processor.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/data/images/image_file.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kImagesOfProcessors = GANTRY_SOURCE_DIR "/tests/golden/images/";
const std::vector<std::string> kProcessed = {"rgb.png", "grey.png", "processors/tall.png", "processors/wide.png"};

std::string processor_of(const std::string& name) { return kImagesOfProcessors + "processors/" + name; }

std::vector<ProcessedImage> processed(const std::string& name, const PatchSizes& sizes) {
  const ImageProcessor processor = read_image_processor(processor_of(name), sizes);
  std::vector<ProcessedImage> images;
  for (const std::string& file : kProcessed)
    images.push_back(process_image(read_image(kImagesOfProcessors + file), processor, file));
  return images;
}

torch::Tensor numbers_of(const ProcessedImage& image) { return torch::tensor(image.numbers, torch::kFloat32); }

void expect_pixels(const ProcessedImage& image, const torch::Tensor& expected, const std::string& name) {
  ASSERT_EQ(static_cast<std::int64_t>(image.numbers.size()), expected.numel()) << name;
  EXPECT_LE((numbers_of(image) - expected.flatten()).abs().max().item<double>(), 1e-6) << name;
}

TEST(ImageProcessors, HaveThePixelsOfTransformers) {
  for (const auto& [name, size] : {std::pair("gemma3", 16), {"llava", 12}}) {
    const torch::Tensor expected = read_safetensors(processor_of(name) + "/expected.safetensors").at("pixel_values");
    const auto images = processed(name, {.size = size});
    for (std::size_t i = 0; i < images.size(); ++i)
      expect_pixels(images[i], expected[static_cast<std::int64_t>(i)], name + kProcessed[i]);
  }
}

TEST(ImageProcessors, HaveTheSizesOfPixtral) {
  const TensorDict expected = read_safetensors(processor_of("mistral3") + "/expected.safetensors");
  const auto images = processed("mistral3", {.kind = ProcessorKind::kPixtral, .patch = 4, .merge = 2});
  for (std::size_t i = 0; i < images.size(); ++i) {
    const auto image = static_cast<std::int64_t>(i);
    const auto [height, width] = images[i].size;
    ASSERT_EQ((std::vector<std::int64_t>{height, width}),
              std::vector<std::int64_t>({expected.at("image_sizes")[image][0].item<std::int64_t>(),
                                         expected.at("image_sizes")[image][1].item<std::int64_t>()}));
    const torch::Tensor own = expected.at("pixel_values")[image].narrow(1, 0, height).narrow(2, 0, width);
    expect_pixels(images[i], own, kProcessed[i]);
  }
}

TEST(ImageProcessors, HaveThePatchesOfQwen2Vl) {
  const TensorDict expected = read_safetensors(processor_of("qwen2_5_vl") + "/expected.safetensors");
  const auto images = processed("qwen2_5_vl", {.kind = ProcessorKind::kGrid, .patch = 4, .merge = 2, .frames = 2});
  std::int64_t first = 0;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const torch::Tensor grid = expected.at("image_grid_thw")[static_cast<std::int64_t>(i)];
    EXPECT_EQ(images[i].size.height, 4 * grid[1].item<std::int64_t>());
    EXPECT_EQ(images[i].size.width, 4 * grid[2].item<std::int64_t>());
    const auto count = grid.prod().item<std::int64_t>();
    expect_pixels(images[i], expected.at("pixel_values").narrow(0, first, count), kProcessed[i]);
    first += count;
  }
}

// Halves are rounded to even numbers of squares, and small images grow.
TEST(ImageProcessors, RoundSizesAsPythonDoes) {
  ImageProcessor processor{.sizes = {.kind = ProcessorKind::kGrid, .patch = 14, .merge = 2}, .settings = {}};
  const auto size = [&](std::int64_t height, std::int64_t width) {
    return processed_size({height, width}, processor, "image");
  };
  EXPECT_EQ(size(70, 98), (ImageSize{56, 112}));  // 2.5 and 3.5 squares
  EXPECT_EQ(size(10, 15), (ImageSize{56, 84}));
  EXPECT_EQ(size(3000, 1000), (ImageSize{1708, 560}));
  EXPECT_THAT(
      thrown_by([&] { size(2010, 10); }),
      HasSubstr("image: the image has 10 x 2010 pixels, and the longer side is more than 200 times the shorter one; "
                "expected a smaller ratio"));
}

TEST(ImageProcessors, ErrorsNameTheKey) {
  const ScratchFolder scratch;
  const auto refusal = [&](const json& keys, const PatchSizes& sizes) {
    scratch.write("preprocessor_config.json", keys.dump());
    return thrown_by([&] { read_image_processor(scratch.path(), sizes); });
  };
  const json square = {{"size", {{"height", 16}, {"width", 16}}}};
  EXPECT_THAT(refusal(square, {.size = 24}),
              HasSubstr("'size' is {\"height\":16,\"width\":16}; expected 24, the image_size"));
  EXPECT_THAT(refusal({{"size", 16}, {"do_pan_and_scan", true}}, {.size = 16}), HasSubstr("'do_pan_and_scan' is true"));
  const PatchSizes pixtral{.kind = ProcessorKind::kPixtral};
  EXPECT_THAT(refusal({{"size", 16}}, pixtral), HasSubstr("'size' is 16; expected {longest_edge}"));
  EXPECT_THAT(refusal({{"do_resize", false}}, pixtral), HasSubstr("'do_resize' is false"));
  const PatchSizes grid{.kind = ProcessorKind::kGrid};
  EXPECT_THAT(refusal({{"min_pixels", 0}}, grid), HasSubstr("'min_pixels' is 0; expected an integer from 1 to"));
  const ScratchFolder empty;
  EXPECT_THAT(thrown_by([&] { read_image_processor(empty.path(), grid); }),
              HasSubstr("it has neither preprocessor_config.json nor processor_config.json"));
  empty.write("processor_config.json", R"({"image_processor": {"min_pixels": 784}, "processor_class": "any"})");
  EXPECT_EQ(read_image_processor(empty.path(), grid).least_pixels, 784);
}

// The values of CLIP's processor in transformers, which LLaVA's shares.
TEST(ImageProcessors, MissingKeysAreThoseOfClip) {
  const ScratchFolder scratch;
  const auto settings_of = [&](const json& keys, bool is_clip = true) {
    scratch.write("preprocessor_config.json", keys.dump());
    return read_image_processor(scratch.path(), {.size = 12, .is_clip = is_clip}).settings;
  };
  for (const json& size : {json(15), json{{"shortest_edge", 15}}}) {
    const ImageSettings clip = settings_of({{"size", size}, {"crop_size", 12}});
    EXPECT_EQ(std::tuple(clip.size, clip.shorter_side, clip.filter), std::tuple(12, 15, ImageFilter::kBicubic));
    EXPECT_EQ(clip.mean, (std::array{0.48145466, 0.4578275, 0.40821073}));
    EXPECT_EQ(clip.deviation, (std::array{0.26862954, 0.26130258, 0.27577711}));
  }
  // The class that the file names precedes that of the model.
  for (const bool is_clip : {false, true}) {
    ImageSettings named = settings_of({{"image_processor_type", "ViTImageProcessor"}, {"size", 12}}, is_clip);
    EXPECT_EQ(std::tuple(named.size, named.shorter_side, named.filter, named.mean[0], named.deviation[0]),
              std::tuple(12, 0, ImageFilter::kBilinear, 0.5, 0.5));
    named = settings_of({{"image_processor_type", "SiglipImageProcessor"}, {"size", 12}}, is_clip);
    EXPECT_EQ(std::tuple(named.shorter_side, named.filter, named.mean[0]), std::tuple(0, ImageFilter::kBicubic, 0.5));
    for (const char* type : {"CLIPImageProcessor", "CLIPImageProcessorFast", "LlavaImageProcessor"}) {
      named = settings_of({{"image_processor_type", type}, {"size", 12}, {"crop_size", 12}}, is_clip);
      EXPECT_EQ(std::tuple(named.shorter_side, named.filter, named.mean[0]),
                std::tuple(12, ImageFilter::kBicubic, 0.48145466))
          << type;
    }
  }
}

// The keys that tests/golden/images/processors/llava states are the values of CLIP, so a file without them, and with
// the shorter side as a number, has the same pixels.
TEST(ImageProcessors, MissingKeysHaveThePixelsOfTransformers) {
  const ScratchFolder scratch;
  scratch.write("preprocessor_config.json", R"({"size": 15, "crop_size": 12})");
  const ImageProcessor processor = read_image_processor(scratch.path(), {.size = 12, .is_clip = true});
  const torch::Tensor expected = read_safetensors(processor_of("llava") + "/expected.safetensors").at("pixel_values");
  for (std::size_t i = 0; i < kProcessed.size(); ++i)
    expect_pixels(process_image(read_image(kImagesOfProcessors + kProcessed[i]), processor, kProcessed[i]),
                  expected[static_cast<std::int64_t>(i)], kProcessed[i]);
}

TEST(ImageProcessors, ProcessorConfigPrecedes) {
  const ScratchFolder scratch;
  const auto mean = [&] { return read_image_processor(scratch.path(), {.size = 16}).settings.mean[0]; };
  scratch.write("preprocessor_config.json", R"({"size": 16, "image_mean": [0.5, 0.5, 0.5]})");
  EXPECT_EQ(mean(), 0.5);
  for (const char* without : {R"({"processor_class": "any"})", R"({"image_processor": null})"}) {
    scratch.write("processor_config.json", without);
    EXPECT_EQ(mean(), 0.5) << without;
  }
  scratch.write("processor_config.json", R"({"image_processor": {"size": 16, "image_mean": [0.1, 0.1, 0.1]}})");
  EXPECT_EQ(mean(), 0.1);
}

}  // namespace
}  // namespace gantry::testing
