#include "gantry/models/vision/grid_layout.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/error.h"
#include "gantry/models/vision/image_ranges.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

struct ImageGrid {
  std::int64_t frames = 0, height = 0, width = 0;  // in patches
  std::int64_t patches() const { return frames * height * width; }
};

ImageGrid grid_at(const torch::Tensor& row) {
  return {row[0].item<std::int64_t>(), row[1].item<std::int64_t>(), row[2].item<std::int64_t>()};
}

// Writes the places of the patches of one sample.
class SampleLayout {
 public:
  SampleLayout(GridLayout& layout, std::int64_t sample, const VisionSpec& spec)
      : places_(layout.places.accessor<std::int64_t, 3>()[sample]),
        frames_(layout.frames.accessor<std::int64_t, 2>()[sample]),
        windows_(layout.windows.accessor<std::int64_t, 2>()[sample]),
        merge_(spec.grid_tower->merge),
        window_(std::max<std::int64_t>(1, spec.grid_tower->window / spec.patch / spec.grid_tower->merge)) {}

  void add(const ImageGrid& image) {
    for (std::int64_t frame = 0; frame < image.frames; ++frame) add_frame(image);
  }

 private:
  void add_frame(const ImageGrid& image) {
    ++frame_;
    const std::int64_t rows = image.height / merge_, columns = image.width / merge_;
    const std::int64_t across = (columns + window_ - 1) / window_, down = (rows + window_ - 1) / window_;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        add_square(row, column, first_window_ + row / window_ * across + column / window_);
    first_window_ += across * down;
  }

  void add_square(std::int64_t row, std::int64_t column, std::int64_t window) {
    for (std::int64_t i = 0; i < merge_; ++i)
      for (std::int64_t j = 0; j < merge_; ++j, ++patch_) {
        places_[patch_][0] = row * merge_ + i;
        places_[patch_][1] = column * merge_ + j;
        frames_[patch_] = frame_;
        windows_[patch_] = window;
      }
  }

  at::TensorAccessor<std::int64_t, 2> places_;
  at::TensorAccessor<std::int64_t, 1> frames_, windows_;
  std::int64_t merge_, window_, patch_ = 0, frame_ = 0, first_window_ = 1;
};

void check_shape(const torch::Tensor& grids) {
  if ((grids.dim() == 2 || grids.dim() == 3) && grids.size(-1) == 3) return;
  throw InputError({"image_grid_thw", fmt::format("it has the shape [{}]", fmt::join(grids.sizes(), ", ")),
                    "frames, height and width of each image: [..., 3]",
                    "prepare the images with the model's processor"});
}

void check_grid(const ImageGrid& image, const VisionSpec& spec) {
  const std::int64_t merge = spec.grid_tower->merge;
  const bool is_positive = image.frames >= 0 && image.height >= 0 && image.width >= 0;
  if (is_positive && image.height % merge == 0 && image.width % merge == 0) return;
  throw InputError({"image_grid_thw",
                    fmt::format("an image has {} x {} patches in {} frames", image.height, image.width, image.frames),
                    fmt::format("sides that are positive multiples of spatial_merge_size {}", merge),
                    "prepare the images with the model's processor"});
}

// The tokens of a sample. Entries that the batch does not have are undefined.
struct SampleTokens {
  torch::Tensor ids, keep, documents;

  bool is_kept(std::int64_t place) const { return !keep.defined() || keep[place].item<std::int64_t>() != 0; }
  bool starts_document(std::int64_t place) const {
    return place > 0 && documents.defined() &&
           documents[place].item<std::int64_t>() != documents[place - 1].item<std::int64_t>();
  }
};

// The positions of the tokens of a text with images: an image has rows and columns of its own, and the text after it
// continues after its longer side.
void set_positions(const torch::Tensor& positions, const SampleTokens& sample, const std::vector<ImageGrid>& images,
                   const VisionSpec& spec) {
  auto of = positions.accessor<std::int64_t, 2>();  // [3, tokens]
  const auto token = sample.ids.accessor<std::int64_t, 1>();
  const std::int64_t merge = spec.grid_tower->merge, tokens = sample.ids.size(0);
  std::int64_t next = 0;
  std::size_t image = 0;
  for (std::int64_t place = 0; place < tokens; ++place) {
    if (sample.starts_document(place)) next = 0;
    if (!sample.is_kept(place)) {
      for (int row = 0; row < 3; ++row) of[row][place] = 1;
      continue;
    }
    if (token[place] != spec.image_token || image == images.size()) {
      for (int row = 0; row < 3; ++row) of[row][place] = next;
      ++next;
      continue;
    }
    const ImageGrid& grid = images[image++];
    const std::int64_t rows = grid.height / merge, columns = grid.width / merge, count = grid.frames * rows * columns;
    for (std::int64_t i = 0; i < count && place + i < tokens; ++i) {
      of[0][place + i] = next;
      of[1][place + i] = next + i / columns % rows;
      of[2][place + i] = next + i % columns;
    }
    next += std::max({std::int64_t{1}, rows, columns});
    place += count - 1;
  }
}

}  // namespace

GridLayout lay_out_grids(const torch::Tensor& given, std::int64_t patches, const VisionSpec& spec) {
  check_shape(given);
  const torch::Tensor grids = given.dim() == 2 ? given.unsqueeze(1) : given;
  const std::int64_t samples = grids.size(0), merge = spec.grid_tower->merge;
  GridLayout layout{.places = torch::zeros({samples, patches, 2}, torch::kInt64),
                    .frames = torch::zeros({samples, patches}, torch::kInt64),
                    .windows = torch::zeros({samples, patches}, torch::kInt64),
                    .features = {}};
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    SampleLayout of_sample(layout, sample, spec);
    std::int64_t count = 0;
    for (std::int64_t image = 0; image < grids.size(1); ++image) {
      const ImageGrid grid = grid_at(grids[sample][image]);
      check_grid(grid, spec);
      count += grid.patches();
      if (count > patches)
        throw InputError(
            {"pixel_values",
             fmt::format("sample {} has {} patches, but image_grid_thw has {} or more", sample, patches, count),
             "the patches of all images of a sample", "prepare both with the model's processor"});
      of_sample.add(grid);
    }
    layout.features.push_back(count / (merge * merge));
  }
  return layout;
}

torch::Tensor grid_positions(const TensorDict& batch, const torch::Tensor& given, const VisionSpec& spec) {
  check_shape(given);
  const torch::Tensor grids = given.dim() == 2 ? given.unsqueeze(1) : given;
  const torch::Tensor ids = batch.at("input_ids"), mask = batch.get("attention_mask"),
                      documents = batch.get("document_ids");
  const auto row_of = [](const torch::Tensor& entry, std::int64_t row) { return entry.defined() ? entry[row] : entry; };
  torch::Tensor positions = torch::zeros({3, ids.size(0), ids.size(1)}, torch::kInt64);
  for (std::int64_t sample = 0; sample < ids.size(0); ++sample) {
    std::vector<ImageGrid> images;
    for (std::int64_t image = 0; image < grids.size(1); ++image)
      if (const ImageGrid grid = grid_at(grids[sample][image]); grid.patches() > 0) images.push_back(grid);
    set_positions(positions.select(1, sample), {ids[sample], row_of(mask, sample), row_of(documents, sample)}, images,
                  spec);
  }
  return positions;
}

TensorDict grids_by_sample(TensorDict batch, const VisionSpec& spec) {
  const torch::Tensor pixels = batch.get("pixel_values"), grids = batch.get("image_grid_thw");
  if (!pixels.defined() || !grids.defined() || pixels.dim() != 2) return batch;
  check_shape(grids);
  if (grids.dim() != 2)
    throw InputError({"image_grid_thw", "it has samples, but pixel_values are [patches, numbers of a patch]",
                      "[images, 3]", "give both entries the samples first, or neither"});
  const torch::Tensor ids = batch.at("input_ids");  // no reference: set() may move the entries
  const std::int64_t merge = spec.grid_tower->merge;
  std::vector<ImageGrid> images;
  std::vector<std::int64_t> features;
  std::int64_t all_patches = 0;
  for (std::int64_t image = 0; image < grids.size(0); ++image) {
    images.push_back(grid_at(grids[image]));
    check_grid(images.back(), spec);
    features.push_back(images.back().patches() / (merge * merge));
    all_patches += images.back().patches();
  }
  if (all_patches != pixels.size(0))
    throw InputError({"pixel_values",
                      fmt::format("there are {} patches, but {} in image_grid_thw", pixels.size(0), all_patches),
                      "the patches of all images", "prepare both with the model's processor"});
  const std::vector<ImageRange> ranges = image_ranges(ids, spec.image_token, features);
  std::vector<ImageRange> patches;
  std::int64_t patch = 0;
  for (const auto& [first, count] : ranges) {
    patches.push_back({patch, 0});
    for (std::int64_t image = first; image < first + count; ++image) patches.back().count += images[image].patches();
    patch += patches.back().count;
  }
  const torch::Tensor sizes = padded_by_sample(grids, ranges);
  if (!batch.contains("position_ids")) batch.set("position_ids", grid_positions(batch, sizes, spec));
  batch.set("pixel_values", padded_by_sample(pixels, patches));
  batch.set("image_grid_thw", sizes);
  return batch;
}

}  // namespace gantry::models
