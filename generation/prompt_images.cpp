#include "gantry/generation/prompt_images.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "gantry/core/error.h"
#include "gantry/data/images/processor_entries.h"

namespace gantry {

void PromptImages::read(const std::vector<std::string>& files) {
  for (const std::string& file : files) images_.push_back(reader_->read(file));
}

std::string PromptImages::expanded(const std::string& prompt) {
  const std::size_t first = used_;
  used_ += reader_->marks_in(prompt);
  if (used_ > images_.size())
    throw UsageError({"--image",
                      fmt::format("the prompts have more than {} marks of images ({})", images_.size(),
                                  reader_->format().marks.mark),
                      "an image for each mark", "add --image FILE"});
  std::vector<ImageSize> sizes;
  for (std::size_t i = first; i < used_; ++i) sizes.push_back(images_[i].size);
  return reader_->expanded(prompt, sizes).text;
}

void PromptImages::add(std::vector<ProcessedImage> images) {
  used_ += images.size();
  std::move(images.begin(), images.end(), std::back_inserter(images_));
}

TensorDict PromptImages::entries() const {
  const std::string& mark = reader_->format().marks.mark;
  if (used_ < images_.size())
    throw UsageError(
        {"--image",
         fmt::format("there {} {} image{}, but the prompts have {} marks of images ({})",
                     images_.size() == 1 ? "is" : "are", images_.size(), images_.size() == 1 ? "" : "s", used_, mark),
         "a mark for each image", "write " + mark + " at the places of the images"});
  return processor_entries(images_, reader_->format().sizes);
}

}  // namespace gantry
