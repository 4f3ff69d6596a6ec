// The image encoder of a decoder: the features that replace image tokens.
#pragma once

#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/models/described/vision_spec.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;
  // Returns the features of the images of each sample one after the other, [samples, features, width of the decoder];
  // samples with fewer features are padded at the end. Without images in the batch it runs on none of them: parameters
  // then have gradients of 0, and all replicas reduce the same gradients. Throws InputError for images that the encoder
  // cannot read.
  virtual torch::Tensor features(const TensorDict& batch, std::int64_t samples) = 0;
  // Throws InputError if a sample has other numbers of image tokens than its images. `input_ids`: on the host.
  virtual void check_tokens(const torch::Tensor& input_ids, const TensorDict& batch) const = 0;
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
