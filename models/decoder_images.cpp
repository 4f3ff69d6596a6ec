// The image encoder of a decoder: its layers as layers of the pipeline, and its features in place of image tokens.
#include <memory>

#include "gantry/core/error.h"
#include "gantry/models/decoder.h"
#include "gantry/models/vision/image_encoder.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr int kTowerList = 0;

// Without the types of tokens the image tokens would attend causally, which no model was trained with.
void check_token_types(const TensorDict& batch, const VisionSpec& vision) {
  if (!vision.both_directions || batch.contains("token_type_ids")) return;
  throw InputError({"token_type_ids", "the batch has pixel_values, but no types of its tokens",
                    "[samples, tokens], 1 for the tokens of an image, and 0 for text",
                    "add the token_type_ids of the model's processor"});
}

}  // namespace

TensorDict DecoderImpl::run_tower(const StageContext& stage, TensorDict input) {
  TensorDict state = std::move(input);
  if (stage.is_first()) {
    const TensorDict& batch = stage.batch();
    // A continued text has had its images with the prompt.
    const bool runs = batch.contains("pixel_values") || torch::GradMode::is_enabled();
    state = {{kImagePatches, runs ? encoder_->embed(batch) : torch::Tensor()}};
  }
  if (!state.contains(kImagePatches) || !state.at(kImagePatches).defined() || stage.layers(kTowerList).empty())
    return state;
  const auto run =
      std::make_shared<const ImageEncoder::Layer>(encoder_->layers(state.at(kImagePatches), stage.batch()));
  const auto parts_of = [run](int index) {
    return LayerParts{{"", [run, index](const torch::Tensor& patches) { return (*run)(index, patches); }}};
  };
  Forward known = forward_now();
  known.observer = nullptr;  // observers expect the samples of a batch, not images
  const ForwardScope scope(known);
  return stage.run_layers(std::move(state), parts_of, kTowerList);
}

torch::Tensor DecoderImpl::with_images(const torch::Tensor& hidden, const torch::Tensor& input_ids,
                                       const torch::Tensor& patches, const TensorDict& batch) {
  const torch::Tensor features = encoder_->features(patches, batch, input_ids.size(0));
  torch::Tensor is_image = input_ids == spec.vision->image_token;
  if (patches.size(0) == 0) {
    is_image = torch::zeros_like(is_image);
  } else {
    check_token_types(batch, *spec.vision);
    if (const torch::Tensor known = on_host(input_ids); known.defined() && known.numel() > 0)
      encoder_->check_tokens(known, patches, batch);
  }
  // Row k of a sample is the feature of its k-th image token, and row 0 stands for text.
  const torch::Tensor rows = torch::constant_pad_nd(features, {0, 0, 1, 0});
  const torch::Tensor index = (is_image.cumsum(1) * is_image).unsqueeze(-1).expand({-1, -1, rows.size(2)});
  return torch::where(image_rows_(is_image.unsqueeze(-1)), image_rows_(rows.gather(1, index)), hidden);
}

}  // namespace gantry::models
