#include "gantry/policies/vit.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

ModelSplit VitPolicy::split(const models::VitImpl& model) const {
  const std::int64_t head = model.config.hidden_size / model.config.num_attention_heads;
  ModelSplit split;
  split.shards = {
      {"embeddings", FullSequence{}},  // patches are computed on every rank, and sharded after the embedding
      {"enter", PrepareInput{.from = Replicate{}, .to = Shard{1}}},
      {"layers.*.attention.query", Column{.unit = head}},
      {"layers.*.attention.key", Column{.unit = head}},
      {"layers.*.attention.value", Column{.unit = head}},
      {"layers.*.attention.output", Row{.unit = head}},
      {"layers.*.intermediate", Column{}},
      {"layers.*.output", Row{}},
      {"layers.*", SequenceParallel{}},
      {"layernorm", SequenceParallel{}},
      {"full_sequence", PrepareInput{.from = Shard{1}, .to = Replicate{}}},
      {"classifier", FullSequence{}}};
  split.stages = {
      .first = {"embeddings", "enter"}, .repeated = "layers", .last = {"layernorm", "full_sequence", "classifier"}};
  split.work = weights_of_layers(split.stages, model);
  split.work->last = 0;  // the classifier reads only the first token
  const int heads = static_cast<int>(model.config.num_attention_heads);
  split.context = {.heads = {heads, heads}, .gathers_outputs = true};
  // Patches are sharded after their embedding, with the class token, which the classifier reads.
  split.context->streams = [tokens = model.config.tokens()](const TensorDict&) -> std::vector<TokenStream> {
    return {{.tokens = tokens, .entries = {}}};
  };
  split.continuation = {.is_possible = false};
  // A sample has one label; the model knows the patches of its images.
  split.batch = {.tokens_per_sample = [](const TensorDict&) { return 1; }, .between = {}};
  return split;
}

}  // namespace gantry
