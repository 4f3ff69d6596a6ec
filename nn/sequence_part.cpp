#include "gantry/nn/sequence_part.h"

#include <algorithm>

#include "gantry/nn/autograd_collectives.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

std::vector<std::int64_t> SequencePart::sizes_of_exchanging() const {
  const auto sizes = shard.sizes();
  const auto first = sizes.begin() + (group->rank() - exchanging->rank());
  return {first, first + exchanging->size()};
}

torch::Tensor join_parts(const torch::Tensor& entry, ProcessGroup& group, const SequenceShard& shard) {
  const torch::Tensor all = all_gather_along(group, entry, 1, shard.sizes());
  return all.index_select(1, torch::tensor(shard.inverse(), torch::TensorOptions(torch::kInt64).device(all.device())));
}

torch::Tensor joined(const torch::Tensor& hidden, const SequencePart& part) {
  const torch::Tensor all = gather_to_group(hidden, *part.group, 1, part.shard.sizes());
  return all.index_select(
      1, torch::tensor(part.shard.inverse(), torch::TensorOptions(torch::kInt64).device(all.device())));
}

// In every layout, it is the first token of the first rank.
torch::Tensor first_token(const torch::Tensor& hidden, const SequencePart& part) {
  Sizes sizes(part.group->size(), 0);
  sizes.front() = 1;
  return gather_to_group(hidden.narrow(1, 0, sizes[part.group->rank()]), *part.group, 1, sizes);
}

torch::Tensor own_tokens(const torch::Tensor& hidden, const std::shared_ptr<const SequencePart>& part) {
  return part ? hidden.index_select(1, part->positions.view({-1})) : hidden;
}

std::shared_ptr<const SequencePart> reading(const std::shared_ptr<const SequencePart>& part,
                                            const std::shared_ptr<const SequencePart>& of) {
  if (!part) return nullptr;
  auto made = std::make_shared<SequencePart>(*part);
  made->keep = of->keep;
  made->documents = of->documents;
  made->read = of;
  made->together = reading(part->together, of->together);
  return made;
}

torch::Tensor positions_in(const torch::Tensor& documents) {
  const torch::Tensor places = torch::arange(documents.size(1), documents.options().dtype(torch::kInt64));
  const torch::Tensor begins =
      torch::cat({torch::ones_like(documents.narrow(1, 0, 1), torch::kBool),
                  documents.narrow(1, 1, documents.size(1) - 1) != documents.narrow(1, 0, documents.size(1) - 1)},
                 1);
  return places - std::get<0>((places * begins).cummax(1));
}

torch::Tensor run_by_run(const torch::Tensor& like, std::int64_t dim, const SequencePart& part, std::int64_t begin,
                         const std::function<torch::Tensor(const torch::Tensor& piece, std::int64_t place)>& make) {
  std::vector<torch::Tensor> made;
  std::int64_t done = 0;  // tokens of `like`
  for (const Range& run : runs_within(part.runs(), {begin, begin + like.size(dim)})) {
    made.push_back(make(like.narrow(dim, done, run.size()), run.begin));
    done += run.size();
  }
  return made.empty() ? torch::empty_like(like) : torch::cat(made, dim);
}

torch::Tensor dropout_mask_of_part(const torch::Tensor& like, double p, const std::string& name,
                                   const RandomContext& context, std::vector<std::int64_t> offset,
                                   std::vector<std::int64_t> global, std::int64_t dim, const SequencePart& part,
                                   std::int64_t begin) {
  global[dim] = part.shard.tokens;
  return run_by_run(like, dim, part, begin, [&](const torch::Tensor& piece, std::int64_t place) {
    offset[dim] = place;
    return dropout_mask(piece, p, name, context, offset, global);
  });
}

}  // namespace gantry::nn
