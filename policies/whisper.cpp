#include "gantry/policies/whisper.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

ModelSplit WhisperPolicy::split(const models::WhisperImpl& model) const {
  // Audio is sharded after its convolutions.
  ModelSplit split = pair_split(model, fewest_heads(model), [tokens = model.config.max_source_positions](const auto&) {
    return TokenStream{.tokens = tokens, .entries = {}};
  });
  ShardPlan& plan = split.shards;
  plan = {{"encoder.conv1", FullSequence{}},  // audio is read on every rank, and sharded after its embedding
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
  split.stages = {
      .first = {"encoder.conv1", "encoder.conv2", "encoder.embed_positions", "encoder.dropout", "encoder.enter"},
      .repeated = {{"encoder.layers", {}},
                   {"decoder.layers",
                    {"encoder.layer_norm", "decoder.embed_tokens", "decoder.embed_positions", "decoder.dropout"}}},
      .last = {"decoder.layer_norm", "proj_out"}};
  split.split_outputs = {{"logits", "proj_out"}};
  split.continuation.positions = model.config.max_target_positions;
  split.batch.between = {"decoder_input_ids", "decoder_attention_mask", "labels"};
  return split;
}

SharedParameters WhisperPolicy::shared_parameters(const models::WhisperImpl& model) const {
  if (!model.config.tie_word_embeddings) return {};
  return {{"decoder.embed_tokens.weight", "proj_out.weight"}};
}

}  // namespace gantry
