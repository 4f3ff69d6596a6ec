#include "gantry/plugins/sequence_parts.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/token_entries.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

constexpr const char* kMask = "attention_mask";
constexpr const char* kDocuments = "document_ids";

// A tensor that states the shape of an entry, and so the number of its tokens, without the values.
torch::Tensor shape_of(const torch::Tensor& entry) {
  return torch::empty(entry.sizes(), entry.options().device(torch::kMeta));
}

torch::Tensor index_of(const std::vector<std::int64_t>& places, const torch::Tensor& like) {
  return torch::tensor(places, torch::TensorOptions(torch::kInt64).device(like.device()));
}

// The tokens at these places of an entry, which is on the meta device if this rank has not read it.
torch::Tensor selected(const torch::Tensor& entry, const std::vector<std::int64_t>& places) {
  if (!entry.is_meta()) return entry.index_select(1, index_of(places, entry));
  std::vector<std::int64_t> shape = entry.sizes().vec();
  shape[1] = static_cast<std::int64_t>(places.size());
  return torch::empty(shape, entry.options());
}

// Splits each set into runs of `count` consecutive ranks.
std::vector<std::vector<int>> in_runs(const std::vector<std::vector<int>>& sets, int count) {
  std::vector<std::vector<int>> runs;
  for (const auto& ranks : sets)
    for (auto first = ranks.begin(); first != ranks.end(); first += count) runs.emplace_back(first, first + count);
  return runs;
}

// Splits each set into groups of ranks that are `stride` places apart.
std::vector<std::vector<int>> in_strides(const std::vector<std::vector<int>>& sets, int stride) {
  std::vector<std::vector<int>> found;
  for (const auto& ranks : sets)
    for (int first = 0; first < stride; ++first) {
      found.emplace_back();
      for (std::size_t i = first; i < ranks.size(); i += stride) found.back().push_back(ranks[i]);
    }
  return found;
}

// The number of adjacent ranks of a sequence that are on one host, at least, everywhere in the job.
// Collective over the world.
int ranks_of_host(const ProcessGroupMesh& mesh) {
  ProcessGroup& sharing = mesh[axis::kContext];
  const auto name = static_cast<std::int64_t>(std::hash<std::string>()(host_name()));
  const auto hosts = all_gather_numbers(sharing, name);
  std::int64_t fewest = sharing.size(), run = 0;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    ++run;
    if (rank + 1 < hosts.size() && hosts[rank] == hosts[rank + 1]) continue;
    fewest = std::min(fewest, std::exchange(run, 0));
  }
  return static_cast<int>(all_reduce_number(mesh.world_group(), static_cast<double>(fewest), ReduceOp::kMin));
}

ContextPlace place_of(const ContextOptions& options, const ProcessGroupMesh& mesh) {
  if (options.method) return {};
  return {.tokens = options.tokens, .ranks_of_host = ranks_of_host(mesh)};
}

}  // namespace

SequenceParts::SequenceParts(ContextChoice choice, ContextSplit split, const ProcessGroupMesh& mesh,
                             torch::Device device)
    : choice_(std::move(choice)),
      split_(std::move(split)),
      causal_(!split_.streams || split_.streams({}).back().causal),
      group_(&mesh[axis::kContext]),
      device_(device) {
  if (choice_.method != ContextMethod::kUlyssesRing) return;
  const auto sharing = mesh.mesh().groups({axis::kContext});
  exchanging_ = mesh.make_group(axis::kContext, in_runs(sharing, choice_.exchanging));
  ring_ = mesh.make_group(axis::kContext, in_strides(sharing, choice_.exchanging));
}

std::optional<SequenceParts> SequenceParts::of(const ContextOptions& options, const ModelSplit& split,
                                               const std::string& policy, const ProcessGroupMesh& mesh,
                                               torch::Device device) {
  const int ranks = mesh.mesh().ranks_of_sequence();
  if (ranks == 1) return std::nullopt;
  if (!split.context) {
    const std::string reason =
        split.without_context.empty() ? policy + " only supports full sequences" : split.without_context;
    throw ConfigError({"parallel.context", fmt::format("the value is {}, but {}", ranks, reason),
                       "1, or a model whose policy states ModelSplit::context",
                       split.without_context.empty()
                           ? "remove parallel.context"
                           : "remove parallel.context, or use parallel.tensor with sequence_parallel instead"});
  }
  const int tensor = mesh.size(axis::kTensor);
  const std::string objection = split.context->objection ? split.context->objection(ranks, tensor) : "";
  if (!objection.empty())
    throw ConfigError({"parallel.context", fmt::format("the value is {}, but {}", ranks, objection),
                       "a number of ranks that every layer supports",
                       "set a smaller parallel.context or parallel.tensor"});
  const ContextRequest request{.ranks = ranks, .tensor = tensor, .method = options.method, .ulysses = options.ulysses};
  return SequenceParts(choose_context(request, split.context->heads, place_of(options, mesh)), *split.context, mesh,
                       device);
}

void SequenceParts::require(const Criterion& criterion) const {
  if (!criterion || split_.gathers_outputs || criterion.accepts_parts()) return;
  throw ConfigError({"parallel.context",
                     fmt::format("the value is {}, but the criterion may need full sequences", group_->size()),
                     "gantry::cross_entropy or gantry::causal_cross_entropy, which are sums over tokens",
                     "use one of them as the criterion, or remove parallel.context"});
}

std::vector<TokenStream> SequenceParts::streams_of(const TensorDict& batch, std::int64_t tokens_per_sample) const {
  if (split_.streams) return split_.streams(batch);
  return {{.tokens = tokens_per_sample, .causal = true, .entries = {"input_ids"}}};
}

SequenceShard SequenceParts::shard_of(const TokenStream& stream) const {
  return choice_.split(stream.tokens, group_->size(), stream.causal);
}

std::vector<SequenceShard> SequenceParts::shards_of(const TensorDict& batch, std::int64_t tokens_per_sample) const {
  std::vector<SequenceShard> shards;
  for (const TokenStream& stream : streams_of(batch, tokens_per_sample)) shards.push_back(shard_of(stream));
  return shards;
}

std::int64_t SequenceParts::tokens_here(const Batch& batch) const {
  return shard_of(batch.tokens_per_sample).size(group_->rank());
}

Batch SequenceParts::shard(Batch batch, const Criterion& criterion) const {
  if (split_.complete) batch.tensors = split_.complete(std::move(batch.tensors));
  const auto streams = streams_of(batch.tensors, batch.tokens_per_sample);
  const auto ids = batch.tensors.get("input_ids");
  if (!split_.streams && (!ids.defined() || ids.dim() != 2 || ids.size(1) != batch.tokens_per_sample))
    throw InputError({"batch", "the entries are " + describe(batch.tensors) + ", but parallel.context needs input_ids",
                      fmt::format("input_ids [samples, {} tokens]", batch.tokens_per_sample),
                      "pass full sequences to every rank"});
  for (const TokenStream& stream : streams)
    if (stream.tokens < group_->size())
      throw InputError({stream.entries.empty() ? "batch" : stream.entries.front(),
                        fmt::format("there are {} tokens per sample for {} ranks of parallel.context", stream.tokens,
                                    group_->size()),
                        "at least one token for each rank", "use longer samples or a smaller parallel.context"});
  if (criterion && !split_.gathers_outputs) batch.tensors = criterion.aligned(batch.tensors);
  TensorDict parts = batch.tensors;
  // With one stream whose outputs belong to its tokens, every entry with this number of tokens belongs to the
  // stream.
  const bool by_size = streams.size() == 1 && !split_.gathers_outputs;
  for (const TokenStream& stream : streams) {
    nn::check_token_entries(batch.tensors, stream.prefix);
    for (const char* name : {kMask, kDocuments})
      if (const auto entry = batch.tensors.get(stream.prefix + name); entry.defined())
        batch.full.set(stream.prefix + name, entry);
    const auto places = shard_of(stream).places(group_->rank());
    for (const auto& [name, tensor] : batch.tensors) {
      const bool listed = std::ranges::find(stream.entries, name) != stream.entries.end();
      if (!(listed || by_size) || tensor.dim() < 2 || tensor.size(1) != stream.tokens) continue;
      parts.set(name, selected(tensor, places));
      if (split_.streams && listed && name == stream.entries.front()) batch.full.set(name, shape_of(tensor));
    }
  }
  batch.tensors = std::move(parts);
  batch.ahead = nullptr;  // its copies are full sequences
  return batch;
}

TensorDict SequenceParts::own_read(TensorDict batch) const {
  const TokenStream stream = streams_of(batch, 0).front();
  const auto places = shard_of(stream).places(group_->rank());
  for (const std::string& name : stream.entries)
    if (const auto entry = batch.get(name); entry.defined()) batch.set(name, selected(entry, places));
  return batch;
}

std::shared_ptr<const nn::SequencePart> SequenceParts::part_of_read(const TensorDict& batch) const {
  return part(streams_of(batch, 0).front(), batch);
}

std::shared_ptr<const nn::SequencePart> SequenceParts::part_of(const Batch& microbatch) const {
  const TensorDict& full = microbatch.full;
  std::vector<std::shared_ptr<const nn::SequencePart>> parts;
  for (const TokenStream& stream : streams_of(full, microbatch.tokens_per_sample)) parts.push_back(part(stream, full));
  if (parts.size() == 1) return parts.front();
  auto of_all = std::make_shared<nn::SequencePart>(*parts.back());
  of_all->streams = std::move(parts);
  return of_all;
}

std::shared_ptr<const nn::SequencePart> SequenceParts::part_of(std::int64_t tokens, torch::Tensor keep,
                                                               torch::Tensor documents) const {
  return part(shard_of(tokens), std::move(keep), std::move(documents));
}

std::shared_ptr<nn::SequencePart> SequenceParts::part(const TokenStream& stream, const TensorDict& full) const {
  auto made = part(shard_of(stream), nn::kept_tokens(full.get(stream.prefix + kMask), stream.prefix + kMask),
                   full.get(stream.prefix + kDocuments));
  made->prefix = stream.prefix;
  return made;
}

std::shared_ptr<nn::SequencePart> SequenceParts::part(const SequenceShard& shard, torch::Tensor keep,
                                                      torch::Tensor documents) const {
  auto part = std::make_shared<nn::SequencePart>();
  part->shard = shard;
  part->method = choice_.method;
  part->group = group_;
  part->exchanging = exchanging_ ? exchanging_.get() : group_;
  part->keep = std::move(keep);
  part->documents = std::move(documents);
  if (ring_) {
    auto together = std::make_shared<nn::SequencePart>(*part);
    together->shard = {part->shard.tokens, ring_->size(), part->shard.layout};
    together->group = ring_.get();
    part->together = std::move(together);
  }
  auto places = part->shard.places(group_->rank());
  part->positions = torch::tensor(places, torch::kInt64).unsqueeze(0).to(device_);
  if (part->documents.defined() && !part->documents.is_meta())
    part->in_documents = nn::positions_in(part->documents).index_select(1, part->positions.view({-1}));
  return part;
}

torch::Tensor SequenceParts::join(const torch::Tensor& part, std::int64_t tokens) const {
  if (split_.gathers_outputs) return part;
  const SequenceShard shard = shard_of(tokens);
  if (part.dim() < 2 || part.size(1) != shard.size(group_->rank()))
    throw ConfigError({"parallel.context", "an output is " + describe(part),
                       "[samples, tokens, ...] of this rank's tokens",
                       "return only outputs with a dimension of tokens"});
  return nn::join_parts(part, *group_, shard);
}

}  // namespace gantry
