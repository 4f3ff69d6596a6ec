#include "gantry/policies/whisper.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

ShardPlan WhisperPolicy::shard_plan(const models::WhisperImpl& model) const {
  ShardPlan plan = {{"encoder.conv1", FullSequence{}},  // audio is read on every rank, and sharded after its embedding
                    {"encoder.conv2", FullSequence{}},
                    {"encoder.embed_positions", FullSequence{}},
                    {"encoder.dropout", FullSequence{}},
                    {"encoder.enter", PrepareInput{.from = Replicate{}, .to = Shard{1}}},
                    {"encoder.layer_norm", SequenceParallel{}},
                    {"decoder.embed_tokens", Vocab{}},
                    {"decoder.embed_positions", SequenceParallel{.dim = -1}},
                    {"decoder.dropout", SequenceParallel{}},
                    {"decoder.layer_norm", SequenceParallel{}},
                    {"proj_out", Column{}}};
  add_layers(model, plan);
  for (const char* layer : {"encoder.layers.*", "decoder.layers.*"})
    plan.push_back({layer, SequenceParallel{}});  // norms, dropouts
  return plan;
}

StageLayout WhisperPolicy::stage_layout(const models::WhisperImpl&) const {
  return {.first = {"encoder.conv1", "encoder.conv2", "encoder.embed_positions", "encoder.dropout", "encoder.enter"},
          .repeated = {{"encoder.layers", {}},
                       {"decoder.layers",
                        {"encoder.layer_norm", "decoder.embed_tokens", "decoder.embed_positions", "decoder.dropout"}}},
          .last = {"decoder.layer_norm", "proj_out"}};
}

SharedParameters WhisperPolicy::shared_parameters(const models::WhisperImpl& model) const {
  if (!model.config.tie_word_embeddings) return {};
  return {{"decoder.embed_tokens.weight", "proj_out.weight"}};
}

std::vector<SplitOutput> WhisperPolicy::split_outputs(const models::WhisperImpl&) const {
  return {{"logits", "proj_out"}};
}

Continuation WhisperPolicy::continuation(const models::WhisperImpl& model) const {
  return {.is_cached = true,
          .positions = model.config.max_target_positions,
          .start_token = model.config.decoder_start_token_id};
}

// Audio is sharded after its convolutions.
std::vector<TokenStream> WhisperPolicy::token_streams(const torch::nn::Module& model, const TensorDict& batch) const {
  const auto& config = dynamic_cast<const models::WhisperImpl&>(model).config;
  return {{.tokens = config.max_source_positions, .entries = {}}, decoder_stream(batch)};
}

}  // namespace gantry
