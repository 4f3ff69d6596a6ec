// The images that models of images and text read, as Hugging Face's processors of Gemma 3, LLaVA, Qwen2-VL and Pixtral
// prepare them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/data/images/image.h"
#include "gantry/data/images/image_settings.h"

namespace gantry {

enum class ProcessorKind {
  kSquare,   // one size, resized, or cropped at the centre after the shorter side was resized (Gemma 3, LLaVA)
  kGrid,     // sides and number of pixels within limits, as patches in squares (Qwen2-VL)
  kPixtral,  // the longer side within a limit
};

// The sizes that the model fixes.
struct PatchSizes {
  ProcessorKind kind = ProcessorKind::kSquare;
  std::int64_t size = 224;  // kSquare
  bool is_clip = false;     // kSquare: missing keys have the values of CLIP's processor
  std::int64_t patch = 14, merge = 2;
  std::int64_t frames = 2;                             // kGrid: number of times that a patch has the pixels
  std::int64_t side() const { return patch * merge; }  // sides of images are multiples of it, except with kSquare
};

struct ImageProcessor {
  PatchSizes sizes;
  ImageSettings settings;                                   // kSquare; of the others the filter and the colours
  std::int64_t least_pixels = 3136, most_pixels = 1003520;  // kGrid
  std::int64_t longest_edge = 1024;                         // kPixtral
};

// True if the directory has the configuration of an image processor.
bool has_image_processor(const std::string& folder);

// The processor of `folder`: the image_processor of processor_config.json, or else preprocessor_config.json. Throws
// InputError with the file and the key for settings that are not supported or do not fit the model.
ImageProcessor read_image_processor(const std::string& folder, const PatchSizes& sizes);

struct ImageSize {
  std::int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

// The size of an image of that size after the processor. `name`: the file, for errors. Throws InputError for sides with
// a ratio that the processor rejects.
ImageSize processed_size(const ImageSize& size, const ImageProcessor& processor, const std::string& name);

// An image of `size` with normalized numbers: [colours, height, width], with kGrid [patches, colours * frames * patch *
// patch], ordered by squares of merge x merge patches.
struct ProcessedImage {
  ImageSize size;
  std::vector<float> numbers;
};
ProcessedImage process_image(const Image& image, const ImageProcessor& processor, const std::string& name);

}  // namespace gantry
