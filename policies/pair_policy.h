// The common part of the policies of models with an encoder and a decoder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gantry/models/encoder_decoder.h"
#include "gantry/policies/policy.h"
#include "gantry/policies/token_streams.h"
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
class PairPolicy : public PolicyFor<Model>, public SharesStreams {
 public:
  std::int64_t tokens_per_sample(const TensorDict& batch) const override { return decoder_length(batch); }
  std::vector<TokenStream> token_streams(const torch::nn::Module&, const TensorDict& batch) const override {
    return {encoder_stream(batch), decoder_stream(batch)};
  }
  TensorDict completed(const torch::nn::Module& model, TensorDict batch) const override {
    const auto& config = dynamic_cast<const Model&>(model).config;
    batch.set("decoder_input_ids", models::decoder_tokens(batch, config.decoder_start_token_id, config.pad_token_id));
    return batch;
  }
  std::vector<std::string> entries_between() const override {
    return {"attention_mask", "decoder_input_ids", "decoder_attention_mask", "labels"};
  }
};

// The common part of the policies of BART and Whisper.
template <class Model>
class StacksPolicy : public PairPolicy<Model> {
 public:
  std::optional<AttentionHeads> context_heads(const Model& model) const override {
    const int heads =
        static_cast<int>(std::min(model.config.encoder_attention_heads, model.config.decoder_attention_heads));
    return AttentionHeads{heads, heads};
  }

 protected:
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
