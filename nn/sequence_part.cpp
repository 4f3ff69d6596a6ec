#include "gantry/nn/sequence_part.h"

#include <algorithm>

#include <torch/torch.h>

namespace gantry::nn {

std::vector<std::int64_t> SequencePart::sizes_of_exchanging() const {
  const auto sizes = cut.sizes();
  const auto first = sizes.begin() + (group->rank() - exchanging->rank());
  return {first, first + exchanging->size()};
}

torch::Tensor join_parts(const torch::Tensor& entry, ProcessGroup& group, const SequenceCut& cut) {
  const torch::Tensor all = all_gather_along(group, entry, 1, cut.sizes());
  return all.index_select(1, torch::tensor(cut.inverse(), torch::TensorOptions(torch::kInt64).device(all.device())));
}

torch::Tensor positions_in(const torch::Tensor& documents) {
  const torch::Tensor places = torch::arange(documents.size(1), documents.options().dtype(torch::kInt64));
  const torch::Tensor begins =
      torch::cat({torch::ones_like(documents.narrow(1, 0, 1), torch::kBool),
                  documents.narrow(1, 1, documents.size(1) - 1) != documents.narrow(1, 0, documents.size(1) - 1)},
                 1);
  return places - std::get<0>((places * begins).cummax(1));
}

torch::Tensor dropout_mask_of_part(const torch::Tensor& like, double p, const std::string& name,
                                   const RandomContext& context, std::vector<std::int64_t> offset,
                                   std::vector<std::int64_t> global, std::int64_t dim, const SequencePart& part,
                                   std::int64_t begin) {
  global[dim] = part.cut.tokens;
  std::vector<torch::Tensor> masks;
  std::int64_t place = 0;  // of the run, in `like`
  for (const Range& run : runs_within(part.runs(), {begin, begin + like.size(dim)})) {
    offset[dim] = run.begin;
    masks.push_back(dropout_mask(like.narrow(dim, place, run.size()), p, name, context, offset, global));
    place += run.size();
  }
  return masks.empty() ? torch::empty_like(like) : torch::cat(masks, dim);
}

}  // namespace gantry::nn
