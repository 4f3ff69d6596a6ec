// The images of the prompts of `gantry generate`.
#pragma once

#include <string>
#include <vector>

#include "gantry/data/images/image_processor.h"
#include "gantry/models/described/vision_spec.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::cli {

class PromptImages {
 public:
  // Reads the files, in the order in which the prompts refer to them, and prepares them by the processor in `folder`.
  // Throws InputError for files that are not read, and like read_image_processor().
  PromptImages(const std::vector<std::string>& files, const models::VisionSpec& vision, const std::string& folder);

  // Returns the prompt with the tokens of the next images in place of its marks (<start_of_image>, <image>,
  // <|image_pad|> or [IMG]), as Hugging Face's processor writes them. Throws UsageError if there are more marks than
  // images.
  std::string expanded(const std::string& prompt);
  // Returns the entries of the images for GenerationOptions::images. Throws UsageError if the prompts had fewer marks.
  TensorDict entries() const;

 private:
  // The text of an image: `begin`, rows of `token` with `row_end` between them, and `end`.
  struct Marks {
    std::string mark, begin, token, row_end, end;
  };
  static Marks marks_of(const models::VisionSpec& vision);
  std::string text_of(const ImageSize& size) const;

  const models::VisionSpec vision_;
  const Marks marks_;
  ImageProcessor processor_;
  std::vector<ProcessedImage> images_;
  std::size_t used_ = 0;
};

}  // namespace gantry::cli
