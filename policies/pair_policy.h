// The common part of the policies of models with an encoder and a decoder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gantry/models/encoder_decoder.h"
#include "gantry/policies/policy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

// The tokens of the decoder per sample; 0 if the batch does not have them.
inline std::int64_t decoder_length(const TensorDict& batch) {
  for (const char* name : {"decoder_input_ids", "labels"})
    if (const torch::Tensor ids = batch.get(name); ids.defined() && ids.dim() == 2) return ids.size(1);
  return 0;
}

inline TokenStream encoder_stream(const TensorDict& batch) {
  const torch::Tensor text = batch.get("input_ids");
  return {.tokens = text.defined() && text.dim() == 2 ? text.size(1) : 0, .entries = {"input_ids", "attention_mask"}};
}

inline TokenStream decoder_stream(const TensorDict& batch) {
  return {.prefix = "decoder_",
          .tokens = decoder_length(batch),
          .causal = true,
          .entries = {"decoder_input_ids", "decoder_attention_mask", "labels"}};
}

template <class Model>
class PairPolicy : public PolicyFor<Model> {
 protected:
  // The common part of a split; `encoder`: the stream of the encoder.
  static ModelSplit pair_split(const Model& model, std::int64_t heads,
                               std::function<TokenStream(const TensorDict&)> encoder = encoder_stream) {
    ModelSplit split{.continuation = {.is_cached = true, .start_token = model.config.decoder_start_token_id}};
    split.batch = {.tokens_per_sample = decoder_length,
                   .between = {"attention_mask", "decoder_input_ids", "decoder_attention_mask", "labels"}};
    split.context = {.heads = {static_cast<int>(heads), static_cast<int>(heads)}};
    split.context->streams = [encoder = std::move(encoder)](const TensorDict& batch) -> std::vector<TokenStream> {
      return {encoder(batch), decoder_stream(batch)};
    };
    split.context->complete = [start = model.config.decoder_start_token_id,
                               padding = model.config.pad_token_id](TensorDict batch) {
      batch.set("decoder_input_ids", models::decoder_tokens(batch, start, padding));
      return batch;
    };
    return split;
  }
};

// The common part of the policies of BART and Whisper.
template <class Model>
class StacksPolicy : public PairPolicy<Model> {
 protected:
  static std::int64_t fewest_heads(const Model& model) {
    return std::min(model.config.encoder_attention_heads, model.config.decoder_attention_heads);
  }
  // Adds the projections of all layers.
  static void add_layers(const Model& model, ShardPlan& plan) {
    const auto add_attention = [&](const std::string& path, std::int64_t heads) {
      const std::int64_t unit = model.config.d_model / heads;
      for (const char* part : {".q_proj", ".k_proj", ".v_proj"}) plan.push_back({path + part, Column{.unit = unit}});
      plan.push_back({path + ".out_proj", Row{.unit = unit}});
    };
    add_attention("encoder.layers.*.self_attn", model.config.encoder_attention_heads);
    add_attention("decoder.layers.*.self_attn", model.config.decoder_attention_heads);
    add_attention("decoder.layers.*.encoder_attn", model.config.decoder_attention_heads);
    for (const std::string layer : {"encoder.layers.*", "decoder.layers.*"}) {
      plan.push_back({layer + ".fc1", Column{}});
      plan.push_back({layer + ".fc2", Row{}});
    }
  }
};

}  // namespace gantry
