#include "gantry/nn/attention_chunks.h"

#include "gantry/nn/forward.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

// The number of each token's chunk: int64 [samples or 1, tokens]. A document begins a chunk, and so does the first
// token that is kept.
torch::Tensor number_chunks(const torch::Tensor& keep, const torch::Tensor& documents, std::int64_t chunk,
                            std::int64_t tokens, const torch::Device& device) {
  torch::Tensor places;
  if (documents.defined()) {
    places = positions_in(documents);
  } else {
    places = torch::arange(tokens, torch::TensorOptions(torch::kInt64).device(device)).unsqueeze(0);
    if (keep.defined()) places = places - (keep.cumsum(1) == 0).sum(1, /*keepdim=*/true);
  }
  return (places.remainder(chunk) == 0).cumsum(1);
}

// The same, once for all layers of a forward.
torch::Tensor chunks_of(const torch::Tensor& keep, const torch::Tensor& documents, std::int64_t chunk,
                        std::int64_t tokens, const torch::Device& device) {
  const auto make = [&] { return number_chunks(keep, documents, chunk, tokens, device); };
  const auto& stage = forward_now().stage;
  if (!stage) return make();
  return stage->masks().get(
      {AttentionMasks::Kind::kChunks, keep, documents, /*causal=*/true, chunk, tokens, tokens, torch::kInt64}, make);
}

}  // namespace

AttentionOptions within_chunks(const AttentionOptions& options, const torch::Tensor& query) {
  if (options.chunk == 0) return options;
  AttentionOptions made = options;
  if (options.sequence) {
    auto part = std::make_shared<SequencePart>(*options.sequence);
    part->documents = chunks_of(part->keep, part->documents, options.chunk, part->shard.tokens, query.device());
    if (part->together) {
      auto together = std::make_shared<SequencePart>(*part->together);
      together->documents = part->documents;
      part->together = together;
    }
    made.sequence = part;
    return made;
  }
  const std::int64_t tokens = query.size(2) + (options.cache ? options.cache->tokens() : 0);
  made.documents = chunks_of(options.keep, options.documents, options.chunk, tokens, query.device());
  return made;
}

}  // namespace gantry::nn
