#include "gantry/plugins/sequence_parts.h"

#include <fmt/format.h>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/core/planted.h"
#include "gantry/nn/attention.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

constexpr const char* kMask = "attention_mask";
constexpr const char* kDocuments = "document_ids";

torch::Tensor index_of(const std::vector<std::int64_t>& places, const torch::Tensor& like) {
  return torch::tensor(places, torch::TensorOptions(torch::kInt64).device(like.device()));
}

// Tokens at these places, of an entry that this rank may not have read.
torch::Tensor selected(const torch::Tensor& entry, const std::vector<std::int64_t>& places) {
  if (!entry.is_meta()) return entry.index_select(1, index_of(places, entry));
  std::vector<std::int64_t> shape = entry.sizes().vec();
  shape[1] = static_cast<std::int64_t>(places.size());
  return torch::empty(shape, entry.options());
}

// Of each set so many ranks in a row.
std::vector<std::vector<int>> in_runs(const std::vector<std::vector<int>>& sets, int count) {
  std::vector<std::vector<int>> runs;
  for (const auto& ranks : sets)
    for (auto first = ranks.begin(); first != ranks.end(); first += count) runs.emplace_back(first, first + count);
  return runs;
}

// And those that are as far from each other.
std::vector<std::vector<int>> in_strides(const std::vector<std::vector<int>>& sets, int stride) {
  std::vector<std::vector<int>> found;
  for (const auto& ranks : sets)
    for (int first = 0; first < stride; ++first) {
      found.emplace_back();
      for (std::size_t i = first; i < ranks.size(); i += stride) found.back().push_back(ranks[i]);
    }
  return found;
}

}  // namespace

SequenceParts::SequenceParts(ContextChoice choice, Criterion criterion, const ProcessGroupMesh& mesh,
                             torch::Device device)
    : choice_(std::move(choice)),
      given_(std::move(criterion)),
      criterion_(given_ ? given_.of_aligned() : Criterion()),
      group_(&mesh[axis::kContext]),
      device_(device) {
  if (choice_.method != ContextMethod::kUlyssesRing) return;
  const auto sharing = mesh.mesh().groups({axis::kContext});
  exchanging_ = mesh.make_group(axis::kContext, in_runs(sharing, choice_.exchanging));
  ring_ = mesh.make_group(axis::kContext, in_strides(sharing, choice_.exchanging));
}

std::optional<SequenceParts> SequenceParts::of(const Config& config, const Policy& policy,
                                               const torch::nn::Module& model, const Criterion& criterion,
                                               const ProcessGroupMesh& mesh, torch::Device device) {
  const auto& parallel = config.parallel;
  if (parallel.context == 1) return std::nullopt;
  const auto heads = policy.context_heads(model);
  if (!heads)
    throw ConfigError({"parallel.context",
                       fmt::format("is {}, and {} computes whole sequences", parallel.context, policy.name()),
                       "1, or a model whose policy states context_heads", "use a decoder, or take the key out"});
  if (criterion && !criterion.is_over_tokens())
    throw ConfigError({"parallel.context",
                       fmt::format("is {}, and the criterion may look at whole sequences", parallel.context),
                       "gantry::cross_entropy or gantry::causal_cross_entropy, which are sums over tokens",
                       "pass one of them to boost, or take the key out"});
  return SequenceParts(choose_context(parallel, *heads), criterion, mesh, device);
}

std::int64_t SequenceParts::tokens_here(const Batch& batch) const {
  return cut_of(batch.tokens_per_sample).size(group_->rank());
}

Batch SequenceParts::cut(Batch batch) const {
  const std::int64_t tokens = batch.tokens_per_sample;
  const auto sizes =
      batch.tensors.contains("input_ids") ? batch.tensors.at("input_ids").sizes().vec() : std::vector<std::int64_t>();
  if (sizes.size() != 2 || sizes[1] != tokens)
    throw InputError({"batch", describe(batch.tensors) + " with parallel.context",
                      fmt::format("input_ids [samples, {} tokens]", tokens), "give whole sequences to every rank"});
  if (tokens < group_->size())
    throw InputError({"input_ids",
                      fmt::format("{} tokens per sample over {} ranks of parallel.context", tokens, group_->size()),
                      "a token for each rank", "use longer samples or a smaller parallel.context"});
  const bool aligns_late = planted("labels-shifted-after-the-cut");
  if (given_ && !aligns_late) batch.tensors = given_.aligned(batch.tensors);
  for (const char* name : {kMask, kDocuments})
    if (batch.tensors.contains(name)) batch.whole.set(name, batch.tensors.at(name));
  const auto places = cut_of(tokens).places(group_->rank());
  TensorDict parts;
  for (const auto& [name, tensor] : batch.tensors)
    parts.set(name, tensor.dim() > 1 && tensor.size(1) == tokens ? selected(tensor, places) : tensor);
  batch.tensors = given_ && aligns_late ? given_.aligned(parts) : parts;
  batch.ahead = nullptr;  // copies of whole sequences
  return batch;
}

std::shared_ptr<const nn::SequencePart> SequenceParts::part_of(const Batch& microbatch) const {
  return part_of(microbatch.tokens_per_sample, nn::kept_tokens(microbatch.whole.get(kMask)),
                 microbatch.whole.get(kDocuments));
}

std::shared_ptr<const nn::SequencePart> SequenceParts::part_of(std::int64_t tokens, torch::Tensor keep,
                                                               torch::Tensor documents) const {
  auto part = std::make_shared<nn::SequencePart>();
  part->cut = cut_of(tokens);
  part->method = choice_.method;
  part->group = group_;
  part->exchanging = exchanging_ ? exchanging_.get() : group_;
  part->keep = std::move(keep);
  part->documents = std::move(documents);
  if (ring_) {
    auto together = std::make_shared<nn::SequencePart>(*part);
    together->cut = {part->cut.tokens, ring_->size(), part->cut.layout};
    together->group = ring_.get();
    part->together = std::move(together);
  }
  auto places = part->cut.places(group_->rank());
  if (planted("local-positions"))
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int64_t>(i);
  part->positions = torch::tensor(places, torch::kInt64).unsqueeze(0).to(device_);
  if (part->documents.defined() && !part->documents.is_meta())
    part->in_documents = nn::positions_in(part->documents).index_select(1, part->positions.view({-1}));
  return part;
}

torch::Tensor SequenceParts::join(const torch::Tensor& part, std::int64_t tokens) const {
  const SequenceCut cut = cut_of(tokens);
  if (part.dim() < 2 || part.size(1) != cut.size(group_->rank()))
    throw ConfigError({"parallel.context", "an output is " + describe(part),
                       "[samples, tokens, ...] of this rank's tokens", "return outputs of tokens alone"});
  return nn::join_parts(part, *group_, cut);
}

}  // namespace gantry
