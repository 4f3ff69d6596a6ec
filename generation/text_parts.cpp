#include "gantry/generation/text_parts.h"

#include <algorithm>

#include "gantry/nn/attention.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::generation {

TextParts::TextParts(const SequenceParts& parts, std::int64_t prompt, bool reads_encoder)
    : parts_(parts), shard_(parts.shard_of(prompt)) {
  const auto sizes = shard_.sizes();
  is_sharded_ = !reads_encoder && std::all_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size > 0; });
}

int TextParts::rank_of_last() const {
  int rank = 0;
  while (is_sharded_ && shard_.places(rank).back() + 1 < shard_.tokens) ++rank;
  return rank;
}

torch::Tensor TextParts::own_of(const torch::Tensor& prompts) const {
  return prompts.index_select(
      1, torch::tensor(shard_.places(parts_.group().rank()), prompts.options().dtype(torch::kInt64)));
}

std::vector<std::int64_t> TextParts::kept_of(std::int64_t tokens) const {
  const int rank = parts_.group().rank(), ranks = parts_.group().size();
  std::vector<std::int64_t> kept;
  for (std::int64_t place = 0; place < tokens; ++place)
    if (place % ranks == rank) kept.push_back(place);
  return kept;
}

std::shared_ptr<const nn::SequencePart> TextParts::of_prompts(const torch::Tensor& keep) const {
  return parts_.part_of(shard_.tokens, keep, {});
}

std::shared_ptr<const nn::SequencePart> TextParts::of_new(std::int64_t first, std::int64_t end,
                                                          const torch::Tensor& keep) const {
  auto cached = std::make_shared<nn::CachedTokens>();
  cached->first = first;
  cached->places = kept_of(end);
  std::vector<std::int64_t> kept;
  for (const std::int64_t place : cached->places)
    if (place >= first) kept.push_back(place - first);
  const torch::Device device = parts_.device();
  cached->kept = torch::tensor(kept, torch::kInt64).to(device);
  cached->columns = torch::tensor(cached->places, torch::kInt64).to(device);
  if (keep.defined()) cached->keep = keep.index_select(1, cached->columns);
  auto part = std::make_shared<nn::SequencePart>();
  part->shard = {end, parts_.group().size()};
  part->group = &parts_.group();
  part->keep = keep;
  part->cached = std::move(cached);
  if (read_) {
    part->prefix = "decoder_";
    part->streams = {read_, std::make_shared<nn::SequencePart>(*part)};
  }
  return part;
}

void TextParts::set_read(const TensorDict& entries) { read_ = parts_.part_of_read(entries); }

void TextParts::set_mask_of_read(const torch::Tensor& mask) {
  auto part = std::make_shared<nn::SequencePart>(*read_);
  part->keep = nn::kept_tokens(mask);
  read_ = std::move(part);
}

}  // namespace gantry::generation
