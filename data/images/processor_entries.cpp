#include "gantry/data/images/processor_entries.h"

#include <algorithm>
#include <vector>

#include "gantry/data/images/image.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using Shape = std::vector<std::int64_t>;

torch::Tensor pixels_of(const ProcessedImage& image) {
  return torch::tensor(image.numbers, torch::kFloat32).view({1, kColours, image.size.height, image.size.width});
}

// Stacks tensors along dimension 0. The others are as long as in the largest tensor, with zeros at their ends.
torch::Tensor padded_together(const std::vector<torch::Tensor>& parts) {
  Shape largest = parts.front().sizes().vec();
  largest[0] = 0;
  for (const torch::Tensor& part : parts) {
    largest[0] += part.size(0);
    for (std::size_t i = 1; i < largest.size(); ++i)
      largest[i] = std::max(largest[i], part.size(static_cast<std::int64_t>(i)));
  }
  torch::Tensor all = torch::zeros(largest, parts.front().options());
  std::int64_t first = 0;
  for (const torch::Tensor& part : parts) {
    torch::Tensor place = all.narrow(0, first, part.size(0));
    for (std::int64_t i = 1; i < part.dim(); ++i) place = place.narrow(i, 0, part.size(i));
    place.copy_(part);
    first += part.size(0);
  }
  return all;
}

torch::Tensor padded_pixels(std::span<const ProcessedImage> images, const ImageSize& least) {
  std::vector<torch::Tensor> parts = {torch::zeros({0, kColours, least.height, least.width})};
  for (const ProcessedImage& image : images) parts.push_back(pixels_of(image));
  return padded_together(parts);
}

TensorDict patch_entries(std::span<const ProcessedImage> images, const PatchSizes& sizes) {
  const std::int64_t numbers = kColours * sizes.frames * sizes.patch * sizes.patch;
  std::vector<torch::Tensor> patches = {torch::zeros({0, numbers})};
  torch::Tensor grids = torch::ones({static_cast<std::int64_t>(images.size()), 3}, torch::kInt64);
  for (std::size_t i = 0; i < images.size(); ++i) {
    patches.push_back(torch::tensor(images[i].numbers, torch::kFloat32).view({-1, numbers}));
    grids[static_cast<std::int64_t>(i)][1] = images[i].size.height / sizes.patch;
    grids[static_cast<std::int64_t>(i)][2] = images[i].size.width / sizes.patch;
  }
  return {{"pixel_values", torch::cat(patches)}, {"image_grid_thw", grids}};
}

}  // namespace

TensorDict processor_entries(std::span<const ProcessedImage> images, const PatchSizes& sizes) {
  if (sizes.kind == ProcessorKind::kGrid) return patch_entries(images, sizes);
  if (sizes.kind == ProcessorKind::kSquare) return {{"pixel_values", padded_pixels(images, {sizes.size, sizes.size})}};
  torch::Tensor of_images = torch::zeros({static_cast<std::int64_t>(images.size()), 2}, torch::kInt64);
  for (std::size_t i = 0; i < images.size(); ++i) {
    of_images[static_cast<std::int64_t>(i)][0] = images[i].size.height;
    of_images[static_cast<std::int64_t>(i)][1] = images[i].size.width;
  }
  return {{"pixel_values", padded_pixels(images, {sizes.side(), sizes.side()})}, {"image_sizes", of_images}};
}

TensorDict joined_entries(std::span<const TensorDict> parts) {
  TensorDict joined;
  for (const auto& [name, first] : parts.front()) {
    std::vector<torch::Tensor> tensors;
    for (const TensorDict& part : parts) tensors.push_back(part.at(name));
    joined.set(name, padded_together(tensors));
  }
  return joined;
}

}  // namespace gantry
