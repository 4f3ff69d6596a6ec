#include "gantry/cli/engine/prompt_images.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/data/images/image_file.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::cli {
namespace {

PatchSizes patch_sizes(const models::VisionSpec& vision) {
  if (vision.grid_tower)
    return {.kind = ProcessorKind::kGrid,
            .patch = vision.patch,
            .merge = vision.grid_tower->merge,
            .frames = vision.grid_tower->frames};
  if (vision.pixtral) return {.kind = ProcessorKind::kPixtral, .patch = vision.patch, .merge = vision.pixtral->merge};
  return {.size = vision.image_size, .patch = vision.patch};
}

std::string repeated(const std::string& text, std::int64_t count) {
  std::string all;
  for (std::int64_t i = 0; i < count; ++i) all += text;
  return all;
}

torch::Tensor pixels_of(const ProcessedImage& image) {
  return torch::tensor(image.numbers, torch::kFloat32).view({kColours, image.size.height, image.size.width});
}

// Each image fills the upper left part.
torch::Tensor padded(const std::vector<ProcessedImage>& images) {
  std::int64_t height = 0, width = 0;
  for (const ProcessedImage& image : images) {
    height = std::max(height, image.size.height);
    width = std::max(width, image.size.width);
  }
  torch::Tensor all = torch::zeros({static_cast<std::int64_t>(images.size()), kColours, height, width});
  for (std::size_t i = 0; i < images.size(); ++i)
    all[static_cast<std::int64_t>(i)]
        .narrow(1, 0, images[i].size.height)
        .narrow(2, 0, images[i].size.width)
        .copy_(pixels_of(images[i]));
  return all;
}

TensorDict in_patches(const std::vector<ProcessedImage>& images, const PatchSizes& sizes) {
  std::vector<torch::Tensor> patches;
  torch::Tensor grids = torch::ones({static_cast<std::int64_t>(images.size()), 3}, torch::kInt64);
  for (std::size_t i = 0; i < images.size(); ++i) {
    const ImageSize& size = images[i].size;
    patches.push_back(torch::tensor(images[i].numbers, torch::kFloat32)
                          .view({-1, kColours * sizes.frames * sizes.patch * sizes.patch}));
    grids[static_cast<std::int64_t>(i)][1] = size.height / sizes.patch;
    grids[static_cast<std::int64_t>(i)][2] = size.width / sizes.patch;
  }
  return {{"pixel_values", torch::cat(patches)}, {"image_grid_thw", grids}};
}

}  // namespace

PromptImages::Marks PromptImages::marks_of(const models::VisionSpec& vision) {
  if (vision.grid_tower) return {.mark = "<|image_pad|>", .token = "<|image_pad|>"};
  if (vision.pixtral) return {.mark = "[IMG]", .token = "[IMG]", .row_end = "[IMG_BREAK]", .end = "[IMG_END]"};
  if (vision.projector == models::VisionSpec::Projector::kMlp) return {.mark = "<image>", .token = "<image>"};
  return {.mark = "<start_of_image>",
          .begin = "\n\n<start_of_image>",
          .token = "<image_soft_token>",
          .end = "<end_of_image>\n\n"};
}

PromptImages::PromptImages(const std::vector<std::string>& files, const models::VisionSpec& vision,
                           const std::string& folder)
    : vision_(vision), marks_(marks_of(vision)), processor_(read_image_processor(folder, patch_sizes(vision))) {
  for (const std::string& file : files) images_.push_back(process_image(read_image(file), processor_, file));
}

std::string PromptImages::text_of(const ImageSize& size) const {
  std::int64_t rows = 1, columns = vision_.features();
  if (processor_.sizes.kind != ProcessorKind::kSquare) {
    rows = size.height / processor_.sizes.side();
    columns = size.width / processor_.sizes.side();
  }
  std::string text = marks_.begin;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (row > 0) text += marks_.row_end;
    text += repeated(marks_.token, columns);
  }
  return text + marks_.end;
}

std::string PromptImages::expanded(const std::string& prompt) {
  std::string text;
  std::size_t begin = 0;
  for (std::size_t at = 0; (at = prompt.find(marks_.mark, begin)) != std::string::npos;
       begin = at + marks_.mark.size()) {
    text += prompt.substr(begin, at - begin);
    if (used_ == images_.size())
      throw UsageError({"--image",
                        fmt::format("the prompts have more than {} marks of images ({})", images_.size(), marks_.mark),
                        "an image for each mark", "add --image FILE"});
    text += text_of(images_[used_++].size);
  }
  return text + prompt.substr(begin);
}

TensorDict PromptImages::entries() const {
  if (used_ < images_.size())
    throw UsageError({"--image",
                      fmt::format("there {} {} image{}, but the prompts have {} marks of images ({})",
                                  images_.size() == 1 ? "is" : "are", images_.size(), images_.size() == 1 ? "" : "s",
                                  used_, marks_.mark),
                      "a mark for each image", "write " + marks_.mark + " at the places of the images"});
  switch (processor_.sizes.kind) {
    case ProcessorKind::kGrid:
      return in_patches(images_, processor_.sizes);
    case ProcessorKind::kSquare:
      return {{"pixel_values", padded(images_)}};
    case ProcessorKind::kPixtral:
      break;
  }
  torch::Tensor sizes = torch::zeros({static_cast<std::int64_t>(images_.size()), 2}, torch::kInt64);
  for (std::size_t i = 0; i < images_.size(); ++i) {
    sizes[static_cast<std::int64_t>(i)][0] = images_[i].size.height;
    sizes[static_cast<std::int64_t>(i)][1] = images_[i].size.width;
  }
  return {{"pixel_values", padded(images_)}, {"image_sizes", sizes}};
}

}  // namespace gantry::cli
