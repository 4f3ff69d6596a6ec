#include "gantry/nn/gather_samples.h"

#include <numeric>

#include "gantry/nn/autograd_collectives.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

GatherSamplesImpl::Gathered GatherSamplesImpl::forward(const torch::Tensor& own) const {
  if (!replicas_ || replicas_->size() == 1) return {own, 0};
  const Sizes sizes = all_gather_numbers(*replicas_, own.size(0));
  return {gather_to_group(own.contiguous(), *replicas_, 0, sizes),
          std::accumulate(sizes.begin(), sizes.begin() + replicas_->rank(), std::int64_t{0})};
}

}  // namespace gantry::nn
