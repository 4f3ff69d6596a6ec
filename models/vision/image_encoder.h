// The image encoder of a decoder: the features that replace image tokens.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/models/described/vision_spec.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

// The entry that stages with layers of the tower exchange.
inline constexpr const char* kImagePatches = "patches";

// The layers of the tower are layers of the pipeline: embed() is on the first stage, layers() on the stages of the
// tower, and features() on the stage of the decoder's first layer. Only embed() reads pixel_values.
class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;
  // Returns the patches before the first layer, [images or samples, ..., tower's hidden]. Without images in the batch
  // there are none of them, [0, ...]: parameters then have gradients of 0, and all replicas reduce the same gradients.
  // Throws InputError for images that the encoder cannot read.
  virtual torch::Tensor embed(const TensorDict& batch) = 0;
  using Layer = std::function<torch::Tensor(int index, const torch::Tensor& patches)>;
  // Returns the layers for the patches of this batch. Each returns a tensor of the same shape.
  virtual Layer layers(const torch::Tensor& patches, const TensorDict& batch) = 0;
  // Returns the features of the images of each sample one after the other, [samples, features, width of the decoder],
  // from the patches after the last layer. Samples with fewer features are padded at the end.
  virtual torch::Tensor features(const torch::Tensor& patches, const TensorDict& batch, std::int64_t samples) = 0;
  // Throws InputError if a sample has other numbers of image tokens than its images. `input_ids`: on the host.
  virtual void check_tokens(const torch::Tensor& input_ids, const torch::Tensor& patches,
                            const TensorDict& batch) const = 0;
};

// Registers the modules of the encoder below `root`. `hidden`: the width of the decoder.
std::shared_ptr<ImageEncoder> make_image_encoder(torch::nn::Module& root, const VisionSpec& spec, std::int64_t hidden,
                                                 double initializer_range);

// Returns the numbers of an entry that describes images, on the host.
torch::Tensor host_numbers(const torch::Tensor& entry);

// Throws InputError if a sample of input_ids [samples, tokens] has not one token `image_token` for each of its
// features. `input_ids`: on the host.
void check_feature_counts(const torch::Tensor& input_ids, std::int64_t image_token,
                          const std::vector<std::int64_t>& features);

// Returns the number of each token's image, from 1: int64 [samples, tokens]; 0: a token of text. `types`:
// token_type_ids, where 1 stands for a token of an image. Adjacent tokens are of one image.
torch::Tensor numbered_images(const torch::Tensor& types);

}  // namespace gantry::models
