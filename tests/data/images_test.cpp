// Images: files, sizes, crops and normalised values compared with those of Pillow and torchvision, and
// directories of images.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>
#include <sstream>

#include "gantry/data/data_loader.h"
#include "gantry/data/images/image_file.h"
#include "gantry/data/images/image_folder.h"
#include "gantry/data/images/transform.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kPictures = GANTRY_SOURCE_DIR "/tests/golden/images";

std::uint64_t fnv(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t value = 0xCBF29CE484222325;
  for (const std::uint8_t byte : bytes) value = (value ^ byte) * 0x100000001B3;
  return value;
}

// The pixels of each file and of each resized crop are identical to Pillow's, without a tolerance.
TEST(Images, HaveTheBytesOfPillow) {
  std::ifstream table(kPictures + "/expected.tsv");
  const Image picture = read_image(kPictures + "/rgb.png");
  int files = 0, sizes = 0;
  for (std::string name; table >> name;) {
    if (name != "resize") {
      int width = 0, height = 0;
      std::uint64_t expected = 0;
      table >> width >> height >> expected;
      const Image image = read_image(kPictures + "/" + name);
      EXPECT_EQ(std::pair(image.width, image.height), std::pair(width, height)) << name;
      EXPECT_EQ(fnv(image.pixels), expected) << name;
      ++files;
      continue;
    }
    int left, top, right, bottom, width, height, filter;
    std::uint64_t expected = 0;
    table >> left >> top >> right >> bottom >> width >> height >> filter >> expected;
    const Image made = resize_part(picture, {left, top, right - left, bottom - top}, width, height,
                                   filter == 2 ? ImageFilter::kBilinear : ImageFilter::kBicubic);
    EXPECT_EQ(fnv(made.pixels), expected) << left << " " << width << "x" << height << " " << filter;
    ++sizes;
  }
  EXPECT_EQ(files, 11);
  EXPECT_EQ(sizes, 6);
}

std::vector<float> numbers_of(const Image& view, const ImageSettings& settings) {
  std::vector<float> numbers(view.pixels.size());
  write_normalised(view, settings, numbers.data());
  return numbers;
}

double sum_of(const std::vector<float>& numbers) { return std::accumulate(numbers.begin(), numbers.end(), 0.0); }

// Expected values: torchvision's Resize(16), CenterCrop(12), ToTensor and Normalize, computed with Pillow and
// numpy in float32, and Resize((12, 12)) with bicubic sums. Tolerances for rounding: 1e-6 for one value, 1e-4
// for the sum of 432 values.
TEST(Images, AreNormalisedAsTorchvisionDoes) {
  ImageSettings settings{
      .size = 12, .shorter_side = 16, .mean = {0.485, 0.456, 0.406}, .deviation = {0.229, 0.224, 0.225}};
  const Image picture = read_image(kPictures + "/rgb.png");
  const auto centre = numbers_of(evaluation_view(picture, settings), settings);
  const auto at = [&](int colour, int y, int x) {
    return centre[static_cast<std::size_t>((colour * 12 + y) * 12 + x)];
  };
  EXPECT_NEAR(at(0, 0, 0), -0.8677968978881836, 1e-6);
  EXPECT_NEAR(at(0, 5, 7), 0.7419300079345703, 1e-6);
  EXPECT_NEAR(at(1, 11, 11), 0.4852942228317261, 1e-6);
  EXPECT_NEAR(at(1, 3, 2), 1.168067216873169, 1e-6);
  EXPECT_NEAR(at(2, 0, 11), -0.044095780700445175, 1e-6);
  EXPECT_NEAR(at(2, 6, 6), 0.8622223734855652, 1e-6);
  EXPECT_NEAR(sum_of(centre), 194.93961419723928, 1e-4);
  settings = {.size = 12, .filter = ImageFilter::kBicubic};
  const auto full = numbers_of(evaluation_view(picture, settings), settings);
  EXPECT_NEAR(sum_of(full), -21.309795260429382, 1e-4);
  EXPECT_NEAR(full[(12 + 4) * 12 + 9], -0.11372548341751099, 1e-6);
}

// A crop depends only on the seed and the position, and is within torchvision's bounds.
TEST(Images, CropsAreDrawnWithinTheirBounds) {
  double area = 0;
  int flips = 0;
  std::set<std::pair<int, int>> corners;
  constexpr int kDraws = 2000;
  for (int place = 0; place < kDraws; ++place) {
    const ImageBox box = drawn_crop(400, 300, {}, 7, place);
    ASSERT_TRUE(box.left >= 0 && box.top >= 0 && box.left + box.width <= 400 && box.top + box.height <= 300);
    const double part = box.width * box.height / 120000.0, ratio = static_cast<double>(box.width) / box.height;
    EXPECT_TRUE(part > 0.078 && part <= 1 && ratio > 0.74 && ratio < 1.35) << part << " " << ratio;
    area += part / kDraws;
    flips += drawn_flip(0.5, 7, place);
    corners.insert({box.left, box.top});
  }
  EXPECT_NEAR(area, 0.434, 0.02);  // the mean of 20000 crops of torchvision: large crops fit less often
  EXPECT_NEAR(flips, kDraws / 2, 100);
  EXPECT_GT(corners.size(), 1500u);
  EXPECT_EQ(drawn_crop(400, 300, {}, 7, 5).left, drawn_crop(400, 300, {}, 7, 5).left);
  // No crop fits into a line of pixels, so the crop is the centre with an allowed ratio.
  const ImageBox line = drawn_crop(1000, 3, {}, 7, 0);
  EXPECT_EQ(std::tuple(line.left, line.top, line.width, line.height), std::tuple(498, 0, 4, 3));
}

// Bounds that differ from torchvision's, as set by data.crop_scale, data.crop_ratio and data.flip.
TEST(Images, CropsAndFlipsKeepToWhatIsAsked) {
  const ImageSettings narrow{.crop_scale = {0.25, 0.36}, .crop_ratio = {0.5, 0.5}};
  int flips = 0;
  for (int place = 0; place < 1000; ++place) {
    const ImageBox box = drawn_crop(1000, 1000, narrow, 7, place);
    const double part = box.width * box.height / 1e6;
    EXPECT_TRUE(part > 0.248 && part < 0.362) << part;
    EXPECT_NEAR(static_cast<double>(box.width) / box.height, 0.5, 0.002);
    EXPECT_FALSE(drawn_flip(0, 7, place));
    flips += drawn_flip(0.2, 7, place);
  }
  EXPECT_NEAR(flips, 200, 40);
  // No crop is within these bounds, so the crop is the centre, with a height of one pixel.
  const ImageBox line = drawn_crop(4, 3, {.crop_ratio = {1e6, 1e7}}, 7, 0);
  EXPECT_EQ(std::tuple(line.left, line.top, line.width, line.height), std::tuple(0, 1, 4, 1));
}

TEST(Images, TrainingViewsAreTheCentreWhereNoneIsDrawn) {
  const Image picture = read_image(kPictures + "/rgb.png");
  const ImageSettings settings{.size = 8, .shorter_side = 10, .draws_crop = false, .flip = 0};
  for (int place = 0; place < 4; ++place)
    EXPECT_EQ(training_view(picture, settings, 3, place).pixels, evaluation_view(picture, settings).pixels);
}

TEST(Images, TrainingViewsAreTheCropMirroredAsDrawn) {
  const Image picture = read_image(kPictures + "/rgb.png");
  const ImageSettings settings{.size = 8};
  std::set<bool> seen;
  for (int place = 0; place < 8; ++place) {
    Image expected = resize_part(picture, drawn_crop(37, 23, settings, 3, place), 8, 8, settings.filter);
    seen.insert(drawn_flip(0.5, 3, place));
    if (drawn_flip(0.5, 3, place))
      for (int y = 0; y < 8; ++y)
        for (int x = 0; x < 4; ++x)
          for (int colour = 0; colour < kColours; ++colour)
            std::swap(expected.row(y)[x * kColours + colour], expected.row(y)[(7 - x) * kColours + colour]);
    EXPECT_EQ(training_view(picture, settings, 3, place).pixels, expected.pixels) << place;
  }
  EXPECT_EQ(seen.size(), 2u);
}

class ImageFolders : public ::testing::Test {
 protected:
  void put(const std::string& file, const std::string& as) {
    fs::create_directories(fs::path(scratch_ / as).parent_path());
    fs::copy_file(kPictures + "/" + file, scratch_ / as);
  }
  // Writes two classes with two and three images.
  void fill() {
    put("rgb.png", "set/ant/b.png");
    put("grey.jpg", "set/ant/a/x.JPG");
    put("cmyk.jpg", "set/bee/3.jpeg");
    put("alpha.png", "set/bee/2.png");
    put("palette.png", "set/bee/1.png");
    scratch_.write("set/bee/notes.txt", "passed over");
    scratch_.write("set/README", "passed over");
  }
  SampleSource source(bool trains, std::int64_t labels = 2) const {
    const DataConfig config{.format = "images", .path = scratch_ / "set"};
    return image_source(config, {.settings = {.size = 6}, .trains = trains, .seed = 3, .labels = labels}, "data.path");
  }
  std::string refusal() const {
    try {
      source(true).open(no_progress);
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  }
  ScratchFolder scratch_;
};

TEST_F(ImageFolders, LabelsAreTheNamesInOrder) {
  fill();
  const Loader loader(source(false), {.shuffle = false});
  ASSERT_EQ(loader.samples(), 5);
  EXPECT_THAT(loader.summaries(), ::testing::ElementsAre(HasSubstr("5 images of 2 classes")));
  const Batch batch = loader.batch(0, 5);
  EXPECT_TRUE(torch::equal(batch.tensors.at("labels"), torch::tensor({0, 0, 1, 1, 1})));
  const torch::Tensor& pixels = batch.tensors.at("pixel_values");
  ASSERT_EQ(pixels.sizes(), (std::vector<std::int64_t>{5, 3, 6, 6}));
  const char* files[] = {"grey.jpg", "rgb.png", "palette.png", "alpha.png", "cmyk.jpg"};
  for (int i = 0; i < 5; ++i) {
    const ImageSettings settings{.size = 6};
    const auto numbers = numbers_of(evaluation_view(read_image(kPictures + "/" + files[i]), settings), settings);
    EXPECT_TRUE(torch::equal(pixels[i].flatten(), torch::tensor(numbers))) << files[i];
  }
}

// The batches of three replicas, concatenated, and the batches after a restart are the same as those of one
// replica. Each epoch has different crops.
TEST_F(ImageFolders, BatchesAreTheSameInEveryLayoutAndAfterAStop) {
  fill();
  const auto batches = [&](int replicas, std::int64_t position, int steps) {
    std::vector<DataLoader> loaders;
    for (int replica = 0; replica < replicas; ++replica) {
      loaders.emplace_back(source(true), DataLoaderOptions{.global_batch = 5, .seed = 3, .prefetch = replica});
      loaders.back().distribute(replicas, replica);
      loaders.back().seek(position);
    }
    std::vector<torch::Tensor> all;
    for (int step = 0; step < steps; ++step)
      for (auto& loader : loaders) all.push_back(loader.next().tensors.at("pixel_values"));
    return torch::cat(all);
  };
  const torch::Tensor one = batches(1, 0, 3);
  EXPECT_TRUE(torch::equal(batches(3, 0, 3), one));
  EXPECT_TRUE(torch::equal(batches(2, 5, 2), one.narrow(0, 5, 10)));
  for (int i = 0; i < 5; ++i)
    for (int other = 5; other < 15; ++other) EXPECT_FALSE(torch::equal(one[i], one[other]));
}

TEST_F(ImageFolders, FaultsAreOneLineWithTheFile) {
  EXPECT_THAT(refusal(),
              HasSubstr("is not a directory; expected a directory with a subdirectory of images for each class"));
  fs::create_directories(scratch_ / "set");
  EXPECT_THAT(refusal(), HasSubstr("has no subdirectories"));
  fs::create_directories(scratch_ / "set/empty");
  EXPECT_THAT(refusal(), HasSubstr("set/empty: the directory has no images"));
  fs::remove(scratch_ / "set/empty");
  fill();
  EXPECT_EQ(refusal(), "none");
  EXPECT_THROW(source(true, 1).open(no_progress), InputError);
  scratch_.write("set/ant/c.webp", "x");
  EXPECT_THAT(refusal(), HasSubstr("set/ant/c.webp: the file name does not have the extension of a JPEG or PNG image"));
}

// Reading a truncated or damaged file gives either an image or an error of one line.
TEST_F(ImageFolders, BrokenFilesAreOneLine) {
  const auto outcome = [&](const std::string& bytes) -> std::string {
    try {
      read_image(scratch_.write("broken", bytes));
    } catch (const InputError& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find('\n'), std::string::npos);
      EXPECT_EQ(text.rfind(scratch_ / "broken: ", 0), 0u) << text;
      return text;
    }
    return "none";
  };
  for (const char* name : {"rgb.jpg", "progressive.jpg", "cmyk.jpg", "rgb.png", "palette.png"}) {
    const std::string full = read_file(kPictures + "/" + name);
    EXPECT_EQ(outcome(full), "none");
    for (std::size_t length = 0; length + 20 < full.size(); length += 7)
      EXPECT_NE(outcome(full.substr(0, length)), "none") << length;
    for (std::size_t at = 0; at < full.size(); at += 5) {
      std::string damaged = full;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x5A);
      outcome(damaged);
    }
  }
  EXPECT_THAT(outcome("these are no pixels"), HasSubstr("the first bytes are not those of a JPEG or PNG image"));
  std::string huge = read_file(kPictures + "/rgb.jpg");
  const std::size_t size = huge.find("\xFF\xC0") + 5;
  huge.replace(size, 4, "\xFF\xDC\xFF\xDC");
  EXPECT_THAT(outcome(huge), HasSubstr("65500 x 65500 = 4290250000 pixels are more than 178956970"));
}

// Some writers leave out the mark of the end, which are the last two bytes. All pixels precede it, unless a file has
// several scans, of which one may be missing.
TEST_F(ImageFolders, AJpegWithoutItsEndHasItsPixels) {
  const auto read_first = [&](const std::string& file, std::size_t missing) {
    const std::string full = read_file(kPictures + "/" + file);
    return read_image(scratch_.write("short.jpg", full.substr(0, full.size() - missing)));
  };
  const auto refusal = [&](const std::string& file, std::size_t missing) {
    return thrown_by([&] { read_first(file, missing); });
  };
  for (const char* file : {"rgb.jpg", "grey.jpg", "cmyk.jpg"}) {
    EXPECT_EQ(read_first(file, 2).pixels, read_image(kPictures + "/" + file).pixels) << file;
    for (std::size_t missing = 10; missing < 250; missing += 20)
      EXPECT_THAT(refusal(file, missing), HasSubstr("JPEG image cannot be decoded: Premature end")) << file << missing;
  }
  EXPECT_THAT(refusal("progressive.jpg", 2), HasSubstr("JPEG image cannot be decoded: Premature end"));
  // rgb.jpg with arithmetic codes (jpegtran -arithmetic), whose decoder reads zeros after the end without a word.
  for (const std::size_t missing : {2, 10, 300})
    EXPECT_THAT(refusal("arithmetic/rgb.jpg", missing), HasSubstr("JPEG image cannot be decoded"));
}

// If the shorter side of a line of pixels were resized to 224, the image would take gigabytes.
TEST(Images, LinesAreNotMadePictures) {
  const Image line(65536, 1);
  EXPECT_EQ(resize_fault(line, {.size = 224, .shorter_side = 224}),
            "65536 x 1 pixels become 14680064 x 224 = 3288334336 when the shorter side is resized");
  EXPECT_EQ(resize_fault(line, {.size = 224, .shorter_side = 0}), "");
  EXPECT_EQ(resize_fault(Image(500, 300), {.size = 224, .shorter_side = 256}), "");
  EXPECT_EQ(size_fault(65537, 1), "a side of 65537 pixels is longer than 65536");
}

// Keys of `data` replace the processor's settings one by one. Sizes must match the model and each other.
TEST_F(ImageFolders, KeysTakeThePlaceOfTheProcessors) {
  const auto asked = [&](const std::string& keys, int size = 224) {
    const Config config =
        Config::parse("model: {policy: vit}\ndata: {format: images, path: " + scratch_.path() + ", " + keys + "}\n");
    return image_settings_of(config.data, "", size);
  };
  ImageSettings got = asked("prefetch: 2", 32);  // no file, no key
  EXPECT_EQ(std::tuple(got.size, got.shorter_side, got.filter, got.mean[0], got.draws_crop, got.flip),
            std::tuple(32, 32, ImageFilter::kBilinear, 0.5, true, 0.5));
  scratch_.write("preprocessor_config.json",
                 R"({"size": {"shortest_edge": 256}, "do_center_crop": true, "crop_size": 224, "resample": 3,
                     "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]})");
  got = asked("std: [1, 2, 3]");
  EXPECT_EQ(std::tuple(got.size, got.shorter_side, got.filter, got.mean[2], got.deviation[2]),
            std::tuple(224, 256, ImageFilter::kBicubic, 0.3, 3.0));
  got = asked("image_size: 384, resize: 400, interpolation: bilinear, mean: [-1, 0, 1]", 384);
  EXPECT_EQ(std::tuple(got.size, got.shorter_side, got.filter, got.mean[0], got.deviation[2]),
            std::tuple(384, 400, ImageFilter::kBilinear, -1.0, 0.6));
  got = asked("resize: 0, crop: center, flip: 0.25");
  EXPECT_EQ(std::tuple(got.shorter_side, got.draws_crop, got.flip), std::tuple(0, false, 0.25));
  got = asked("crop_scale: [0.5, 1], crop_ratio: [1, 1]");
  EXPECT_EQ(std::pair(got.crop_scale[0], got.crop_ratio[1]), std::pair(0.5, 1.0));
  const std::tuple<const char*, int, const char*> faults[] = {
      {"image_size: 384", 224,
       "data.image_size: 384 x 384 pixels do not fit the model, which reads 224 x 224; expected 224"},
      {"prefetch: 2", 384,
       "data.format: images of 224 x 224 pixels from preprocessor_config.json do not fit the model, which reads"},
      {"image_size: 384", 384,
       "data.resize: 256 pixels on the shorter side from preprocessor_config.json are too few to crop 384"},
      {"resize: 200", 224, "data.resize: 200 pixels on the shorter side are too few to crop 224; expected at least"}};
  for (const auto& [keys, size, said] : faults) {
    try {
      asked(keys, size);
      ADD_FAILURE() << keys;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(said));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST_F(ImageFolders, SettingsAreThoseOfTheProcessor) {
  EXPECT_FALSE(read_image_settings(scratch_.path()));
  const auto read = [&](const std::string& text) {
    scratch_.write("preprocessor_config.json", text);
    return *read_image_settings(scratch_.path());
  };
  ImageSettings got = read(R"({"size": {"height": 224, "width": 224}, "resample": 3, "image_mean": [0.1, 0.2, 0.3],
                              "image_std": [0.4, 0.5, 0.6], "rescale_factor": 0.01, "do_resize": true})");
  EXPECT_EQ(std::tuple(got.size, got.shorter_side, got.filter, got.scale),
            std::tuple(224, 0, ImageFilter::kBicubic, 0.01));
  EXPECT_EQ(got.mean[2], 0.3);
  EXPECT_EQ(got.deviation[0], 0.4);
  got = read(R"({"size": {"shortest_edge": 256}, "do_center_crop": true, "crop_size": 224, "do_normalize": false,
                "do_rescale": false})");
  EXPECT_EQ(std::tuple(got.size, got.shorter_side, got.scale, got.mean[0], got.deviation[0]),
            std::tuple(224, 256, 1.0, 0.0, 1.0));
  EXPECT_EQ(read(R"({"size": 32})").size, 32);
  // The class of the processor decides between sides and squares, and gives missing keys their values.
  got = read(R"({"image_processor_type": "CLIPImageProcessor", "size": 32, "crop_size": 24})");
  EXPECT_EQ(std::tuple(got.size, got.shorter_side, got.filter, got.mean[0], got.deviation[2]),
            std::tuple(24, 32, ImageFilter::kBicubic, 0.48145466, 0.27577711));
  got = read(R"({"image_processor_type": "SiglipImageProcessor", "size": 32})");
  EXPECT_EQ(std::tuple(got.size, got.shorter_side, got.filter, got.mean[0]),
            std::tuple(32, 0, ImageFilter::kBicubic, 0.5));
  got = read(R"({"image_processor_type": "ViTImageProcessor", "size": 32})");
  EXPECT_EQ(std::tuple(got.size, got.shorter_side, got.filter, got.mean[0]),
            std::tuple(32, 0, ImageFilter::kBilinear, 0.5));
  const std::pair<const char*, const char*> faults[] = {
      {"{}", "'size' is missing"},
      {R"({"size": 8, "resample": 1})", "'resample' is 1"},
      {R"({"size": {"height": 8, "width": 9}})", "'size' is"},
      {R"({"size": 8, "image_std": [1, 1, 0]})", "'image_std' is"},
      {R"({"size": 8, "do_pad": true})", "'do_pad' is true"},
      {R"({"size": 8, "do_resize": 3})", "expected true or false"},
      {R"({"size": 8, "do_center_crop": true, "crop_size": 9})", "expected at most the size 8"},
      {"[]", "is not a JSON object"}};
  for (const auto& [text, said] : faults) {
    try {
      read(text);
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(said));
    }
  }
}

}  // namespace
}  // namespace gantry::testing
