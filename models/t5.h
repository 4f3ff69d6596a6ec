// T5 (Raffel et al., arXiv 1910.10683), v1.0 and v1.1, mT5 and umT5, for one device, on layers that a policy can shard:
// an encoder and a decoder, which are two lists of layers. Parameter names are Hugging Face's. Only
// relative_attention_bias is registered at "encoder." and "decoder.", because all layers of a stack share it; in umT5
// each layer has its own.
#pragma once

#include <optional>

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/relative_bias.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

// Attention of a layer of either stack, to its own tokens or to the encoder's.
class T5Attention {
 public:
  T5Attention(torch::nn::Module& layer, const std::string& path, const T5Config& config);
  // `read`: the tokens with the keys and values; undefined: those in the cache. `bias`: null for none.
  // [B, S, H], [B, T, H] -> [B, S, H].
  torch::Tensor operator()(const torch::Tensor& hidden, const torch::Tensor& read, nn::AttentionOptions options,
                           const RelativeBias& bias);

 private:
  std::int64_t heads_, size_;
  nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, output_{nullptr};
  nn::Dropout dropout_{nullptr}, output_dropout_{nullptr};
};

// A layer of the encoder, in parts "attention" and "mlp", or of the decoder, with "cross" between them.
class T5LayerImpl : public torch::nn::Module {
 public:
  T5LayerImpl(const T5Config& config, bool is_decoder);
  // Returns the parts for a state with "hidden" [B, S, H] and, in a decoder, "encoded" [B, T, H]. `self`:
  // options of the attention to the layer's own tokens. `cross`: to the encoder's tokens. With caches, `self`
  // has the cache of the own tokens, and `cross` that of the encoder's tokens. The first forward fills the
  // latter from "encoded".
  LayerParts parts(const nn::AttentionOptions& self, const nn::AttentionOptions& cross, const RelativeBias& bias);

 private:
  torch::Tensor mlp(const torch::Tensor& input);

  std::string activation_;
  T5Attention self_;
  std::optional<T5Attention> cross_;
  RelativeBias bias_{nullptr};      // null: the stack's
  std::vector<nn::RmsNorm> norms_;  // before each part
  nn::Linear gate_{nullptr}, up_{nullptr}, down_{nullptr};
  nn::Dropout inner_dropout_{nullptr}, mlp_dropout_{nullptr};
};
TORCH_MODULE(T5Layer);

// The encoder or the decoder, without the shared embedding.
class T5StackImpl : public torch::nn::Module {
 public:
  T5StackImpl(const T5Config& config, bool is_decoder);
  torch::nn::ModuleList block;
  RelativeBias relative_attention_bias{nullptr};  // null: each layer has its own
  nn::Embedding embed_tokens{nullptr};            // null: the shared one
  nn::RmsNorm final_layer_norm{nullptr};
  nn::Dropout dropout{nullptr}, last_dropout{nullptr};  // after the embedding, and after the final norm
};
TORCH_MODULE(T5Stack);

class T5Impl : public torch::nn::Module {
 public:
  explicit T5Impl(const T5Config& config);

  // Runs the full model: {input_ids int64 [B, T]; optional: attention_mask [B, T], decoder_attention_mask
  // [B, S]; decoder_input_ids [B, S], or labels that these follow from} -> {logits [B, S, V]}.
  TensorDict forward(const TensorDict& inputs);
  // Runs one stage. Stages exchange {hidden} of the encoder, or {hidden, encoded} of the decoder. If caches
  // know the encoder's output, there are no input_ids, and stages before the decoder exchange {hidden}
  // without tokens. Throws InputError for positions and documents.
  TensorDict stage_forward(const StageContext& stage, TensorDict input);

  const T5Config config;

 private:
  TensorDict run(const StageContext& stage, TensorDict state, int list);
  // The embedding of a stack.
  nn::Embedding& table_of(T5Stack& stack);
  TensorDict begin(const StageContext& stage, const TensorDict& input);
  // `encoder_hidden`: undefined if the caches have its keys and values.
  TensorDict begin_decoder(const StageContext& stage, const torch::Tensor& encoder_hidden);

  nn::Embedding shared_{nullptr};
  T5Stack encoder_{nullptr}, decoder_{nullptr};
  nn::Linear head_{nullptr};
};
TORCH_MODULE(T5);

}  // namespace gantry::models
