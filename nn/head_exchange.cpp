#include "gantry/nn/head_exchange.h"

#include "gantry/nn/sequence_part.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

// The blocks that `heads` read, of which each is read by `served` heads, by index among the blocks of the held heads.
Range blocks_read(const HeadRange& held, const Range& heads, std::int64_t served) {
  const std::int64_t first = held.first / served;
  return {(held.first + heads.begin) / served - first, (held.first + heads.end - 1) / served - first + 1};
}

}  // namespace

HeadExchange::HeadExchange(const TokenContext& tokens, const HeadRange& held)
    : part_(tokens.sequence), tokens_(tokens), held_(held), heads_(held) {
  if (!part_) return;
  heads_of_rank_ = partition(held.count, 1, part_->group->size());
  const Range mine = heads_of_rank_[part_->group->rank()];
  heads_ = {held.first + mine.begin, mine.size(), held.total};
  tokens_.keep = part_->keep;
  tokens_.documents = part_->documents;
  tokens_.positions = torch::Tensor();
  tokens_.sequence = nullptr;
}

std::vector<Range> HeadExchange::features_of(int rank, const HeadBlockList& blocks) const {
  std::vector<Range> ranges;
  std::int64_t first = 0;
  for (const HeadBlocks& each : blocks) {
    const Range read = blocks_read(held_, heads_of_rank_[rank], each.served);
    ranges.push_back({first + read.begin * each.size, first + read.end * each.size});
    first += blocks_read(held_, {0, held_.count}, each.served).end * each.size;
  }
  return ranges;
}

std::shared_ptr<const SequenceExchange> HeadExchange::exchange_of(const HeadBlockList& blocks) const {
  auto made = std::make_shared<SequenceExchange>();
  made->group = part_->group;
  for (int rank = 0; rank < part_->group->size(); ++rank) {
    made->tokens.push_back(part_->shard.runs(rank));
    made->heads.push_back(features_of(rank, blocks));
  }
  for (const HeadBlocks& each : blocks) made->size += blocks_read(held_, {0, held_.count}, each.served).end * each.size;
  return made;
}

std::vector<torch::Tensor> HeadExchange::to_heads(const std::vector<torch::Tensor>& features,
                                                  const HeadBlockList& blocks) const {
  if (!part_) return features;
  const torch::Tensor joined = features.size() == 1 ? features.front() : torch::cat(features, 2);
  const auto mine = features_of(part_->group->rank(), blocks);
  const torch::Tensor made = part_->cached ? elements_of(joined, 2, mine) : nn::to_heads(joined, exchange_of(blocks));
  std::vector<std::int64_t> widths;
  for (const Range& range : mine) widths.push_back(range.size());
  return made.split_with_sizes(widths, 2);
}

torch::Tensor HeadExchange::to_tokens(const torch::Tensor& features, std::int64_t size) const {
  if (!part_) return features;
  if (!part_->cached) return nn::to_tokens(features, exchange_of({{size}}));
  Sizes widths;
  for (const Range& range : heads_of_rank_) widths.push_back(range.size() * size);
  return all_gather_along(*part_->group, features, 2, widths);
}

torch::Tensor HeadExchange::own(const torch::Tensor& parameter, const HeadBlockList& blocks) const {
  if (!part_ || !parameter.defined()) return parameter;
  return elements_of(parameter, 0, features_of(part_->group->rank(), blocks));
}

}  // namespace gantry::nn
