#include "gantry/models/vision/pixtral_images.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/vision/image_ranges.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr const char* kSizes = "image_sizes";
constexpr const char* kProcessor = "prepare the images with the model's processor";

torch::Tensor read_sizes(const TensorDict& batch) {
  if (!batch.contains(kSizes))
    throw InputError({kSizes, "the batch has pixel_values, but no sizes of its images",
                      "[samples, images, 2]: height and width of each image in pixels",
                      "add the entry of the model's processor"});
  return host_numbers(batch.at(kSizes));
}

std::int64_t side_of_square(const VisionSpec& spec) { return spec.patch * spec.pixtral->merge; }

// Height and width of an image in squares of patches.
struct ImageSquares {
  std::int64_t rows = 0, columns = 0;
};

ImageSquares squares_of(const torch::Tensor& size, const VisionSpec& spec) {
  const std::int64_t side = side_of_square(spec);
  const auto height = size[0].item<std::int64_t>(), width = size[1].item<std::int64_t>();
  if (height < 0 || width < 0 || height % side != 0 || width % side != 0 || (height == 0) != (width == 0))
    throw InputError({kSizes, fmt::format("an image has {} x {} pixels", height, width),
                      fmt::format("sides that are multiples of {}: patch_size x spatial_merge_size", side),
                      kProcessor});
  return {height / side, width / side};
}

// The patches and squares of a batch that belong to images, and not to padding.
struct SizedLayout {
  torch::Tensor groups;                // int64 [images, patches]: 1; 0: padding; undefined: there is no padding
  torch::Tensor squares;               // int64 [samples, features]: squares among those of a sample's images
  std::vector<std::int64_t> features;  // number of squares of each sample
};

// `rows`, `columns`: squares of the padded images.
SizedLayout lay_out_sizes(const torch::Tensor& sizes, std::int64_t rows, std::int64_t columns, const VisionSpec& spec) {
  const std::int64_t samples = sizes.size(0), images = sizes.size(1), merge = spec.pixtral->merge;
  torch::Tensor groups = torch::zeros({samples * images, rows * merge, columns * merge}, torch::kInt64);
  std::vector<std::vector<std::int64_t>> squares(samples);
  bool has_padding = false;
  for (std::int64_t image = 0; image < samples * images; ++image) {
    const ImageSquares size = squares_of(sizes[image / images][image % images], spec);
    if (size.rows > rows || size.columns > columns)
      throw InputError({kSizes,
                        fmt::format("an image has {} x {} squares of patches, but pixel_values have {} x {}", size.rows,
                                    size.columns, rows, columns),
                        "sizes within pixel_values", kProcessor});
    has_padding = has_padding || size.rows < rows || size.columns < columns;
    groups[image].narrow(0, 0, size.rows * merge).narrow(1, 0, size.columns * merge).fill_(1);
    for (std::int64_t row = 0; row < size.rows; ++row)
      for (std::int64_t column = 0; column < size.columns; ++column)
        squares[image / images].push_back((image % images * rows + row) * columns + column);
  }
  SizedLayout layout;
  std::size_t most = 0;
  for (const auto& of_sample : squares) {
    layout.features.push_back(static_cast<std::int64_t>(of_sample.size()));
    most = std::max(most, of_sample.size());
  }
  layout.squares = torch::zeros({samples, static_cast<std::int64_t>(most)}, torch::kInt64);
  for (std::int64_t sample = 0; sample < samples; ++sample)
    layout.squares[sample].narrow(0, 0, layout.features[sample]).copy_(torch::tensor(squares[sample], torch::kInt64));
  if (has_padding) layout.groups = groups.flatten(1);
  return layout;
}

struct SizedImages {
  torch::Tensor pixels;  // [samples, images, channels, height, width]
  torch::Tensor sizes;   // [samples, images, 2], on the host
};

// The layout of a batch with these patches [images, rows, columns, hidden] of `samples` samples.
SizedLayout layout_of(const torch::Tensor& patches, const TensorDict& batch, std::int64_t samples,
                      const VisionSpec& spec) {
  const std::int64_t merge = spec.pixtral->merge, images = patches.size(0) / samples;
  const torch::Tensor sizes =
      images > 0 ? read_sizes(batch).reshape({samples, images, 2}) : torch::zeros({samples, 0, 2}, torch::kInt64);
  return lay_out_sizes(sizes, patches.size(1) / merge, patches.size(2) / merge, spec);
}

SizedImages read_images(const TensorDict& batch, const VisionSpec& spec) {
  SizedImages images{batch.at("pixel_values"), read_sizes(batch)};
  if (images.pixels.dim() == 4) images.pixels = images.pixels.unsqueeze(1);
  if (images.sizes.dim() == 2) images.sizes = images.sizes.unsqueeze(1);
  const torch::Tensor &pixels = images.pixels, &sizes = images.sizes;
  const std::int64_t side = side_of_square(spec);
  const auto is_side = [&](std::int64_t size) { return size >= side && size % side == 0; };
  if (pixels.dim() != 5 || pixels.size(2) != spec.channels || !is_side(pixels.size(3)) || !is_side(pixels.size(4)))
    throw InputError(
        {"pixel_values", "the tensor is " + describe(batch.at("pixel_values")),
         fmt::format("[samples, images, {}, height, width] with sides that are multiples of {}", spec.channels, side),
         kProcessor});
  if (!at::isIntegralType(sizes.scalar_type(), /*includeBool=*/false) || sizes.dim() != 3 || sizes.size(2) != 2 ||
      sizes.size(0) != pixels.size(0) || sizes.size(1) != pixels.size(1))
    throw InputError(
        {kSizes, "the tensor is " + describe(batch.at(kSizes)),
         fmt::format("integers [{}, {}, 2]: height and width of each image", pixels.size(0), pixels.size(1)),
         kProcessor});
  return images;
}

}  // namespace

PixtralImages::PixtralImages(torch::nn::Module& root, const VisionSpec& spec, std::int64_t hidden,
                             double initializer_range)
    : spec_(spec) {
  tower_ = root.register_module(kVisionTower, PixtralTower(spec, initializer_range));
  projector_ = root.register_module(kImageProjector, PatchProjector(spec, hidden));
}

torch::Tensor PixtralImages::embed(const TensorDict& batch) {
  if (batch.contains("pixel_values")) return tower_->embed(read_images(batch, spec_).pixels.flatten(0, 1));
  const std::int64_t side = side_of_square(spec_);
  const torch::Device device = tower_->parameters().front().device();
  return tower_->embed(
      torch::zeros({0, spec_.channels, side, side}, torch::TensorOptions(torch::kFloat32).device(device)));
}

ImageEncoder::Layer PixtralImages::layers(const torch::Tensor& patches, const TensorDict& batch) {
  const torch::Tensor groups = layout_of(patches, batch, batch.at("input_ids").size(0), spec_).groups;
  return tower_->layers(patches, groups.defined() ? groups.to(patches.device()) : groups);
}

torch::Tensor PixtralImages::features(const torch::Tensor& patches, const TensorDict& batch, std::int64_t samples) {
  const SizedLayout layout = layout_of(patches, batch, samples, spec_);
  const torch::Tensor made = projector_(patches);
  const torch::Tensor by_sample = made.reshape({samples, patches.size(0) / samples * made.size(1), made.size(2)});
  return by_sample.gather(1, layout.squares.to(made.device()).unsqueeze(-1).expand({-1, -1, made.size(2)}));
}

void PixtralImages::check_tokens(const torch::Tensor& input_ids, const torch::Tensor& patches,
                                 const TensorDict& batch) const {
  check_feature_counts(input_ids, spec_.image_token, layout_of(patches, batch, input_ids.size(0), spec_).features);
}

TensorDict sized_images_by_sample(TensorDict batch, const VisionSpec& spec) {
  const torch::Tensor pixels = batch.get("pixel_values");
  if (!pixels.defined() || pixels.dim() != 4) return batch;
  const torch::Tensor sizes = read_sizes(batch);
  if (sizes.dim() != 2 || sizes.size(1) != 2 || sizes.size(0) != pixels.size(0))
    throw InputError({kSizes, "the tensor is " + describe(sizes), fmt::format("[{}, 2]", pixels.size(0)), kProcessor});
  std::vector<std::int64_t> features;
  for (std::int64_t image = 0; image < sizes.size(0); ++image) {
    const ImageSquares squares = squares_of(sizes[image], spec);
    features.push_back(squares.rows * squares.columns);
  }
  const auto ranges = image_ranges(batch.at("input_ids"), spec.image_token, features);
  batch.set("pixel_values", padded_by_sample(pixels, ranges));
  batch.set(kSizes, padded_by_sample(sizes, ranges));
  return batch;
}

}  // namespace gantry::models
