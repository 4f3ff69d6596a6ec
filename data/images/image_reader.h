// Images in prompts and chats: their text, and their numbers for models that read images and text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gantry/data/images/image_processor.h"

namespace gantry {

// The text of an image: `begin`, rows of `token` with `row_end` between them, and `end`.
struct ImageMarks {
  std::string mark;  // stands for the image in prompts and in the text that a chat template makes
  std::string begin, token, row_end, end;
};

// The properties of a model that its images depend on.
struct ImageFormat {
  PatchSizes sizes;
  ImageMarks marks;
  std::int64_t token = 0;     // the id of marks.token, which a feature of the image encoder replaces
  std::int64_t features = 0;  // ProcessorKind::kSquare: number of tokens of an image
};

// A text in which the tokens of images replace the marks.
struct ImageText {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> images;  // [begin, end) of each image in `text`
};

// May be used by several threads at once.
class ImageReader {
 public:
  // `folder`: see read_image_processor(), which throws for it.
  ImageReader(ImageFormat format, const std::string& folder);

  const ImageFormat& format() const { return format_; }
  // Throws InputError for a file that is not read, and for sides that the processor rejects.
  ProcessedImage read(const std::filesystem::path& file) const;
  // The number of tokens `format().token` of an image.
  std::int64_t tokens_of(const ImageSize& size) const;

  std::size_t marks_in(const std::string& text) const;
  // Replaces the marks, of which there is one for each size, as Hugging Face's processors do.
  ImageText expanded(const std::string& text, std::span<const ImageSize> sizes) const;

  // Everything that changes the tokens of an image, as text.
  std::string key() const;

 private:
  struct Grid {
    std::int64_t rows = 1, columns = 1;
  };
  Grid grid_of(const ImageSize& size) const;
  std::string text_of(const ImageSize& size) const;

  ImageFormat format_;
  ImageProcessor processor_;
};

}  // namespace gantry
