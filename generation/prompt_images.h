// The images of prompts, in the order of their tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/data/images/image_reader.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class PromptImages {
 public:
  explicit PromptImages(std::shared_ptr<const ImageReader> reader) : reader_(std::move(reader)) {}

  const ImageReader& reader() const { return *reader_; }
  // Reads the files of --image, in the order in which prompts refer to them. Throws InputError for files that are not
  // read.
  void read(const std::vector<std::string>& files);
  // Returns the prompt with the tokens of the next images in place of its marks. Throws UsageError if there are more
  // marks than images.
  std::string expanded(const std::string& prompt);
  // Adds images whose tokens are in a prompt.
  void add(std::vector<ProcessedImage> images);

  bool empty() const { return images_.empty(); }
  // Returns the entries of the images for GenerationOptions::images. Throws UsageError if the prompts had fewer marks.
  TensorDict entries() const;

 private:
  std::shared_ptr<const ImageReader> reader_;
  std::vector<ProcessedImage> images_;
  std::size_t used_ = 0;  // images whose tokens are in a prompt
};

}  // namespace gantry
