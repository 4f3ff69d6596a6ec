#include "gantry/tensors/random_context.h"

#include <numeric>

#include "gantry/tensors/kernels/draw.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/philox.h"

namespace gantry {
torch::Tensor dropout_mask(const torch::Tensor& like, double p, const std::string& name, const RandomContext& context,
                           const std::vector<std::int64_t>& offset, const std::vector<std::int64_t>& global) {
  const torch::NoGradGuard no_grad;
  torch::Tensor mask = torch::empty(like.sizes(), like.options().requires_grad(false));
  std::vector<std::int64_t> stride(mask.dim(), 1);
  for (std::int64_t dim = mask.dim() - 1; dim > 0; --dim) stride[dim - 1] = stride[dim] * global[dim];
  const std::int64_t first = std::inner_product(offset.begin(), offset.end(), stride.begin(), std::int64_t{0});
  kernels::draw(mask,
                {.law = kernels::Law::kMask,
                 .a = p,
                 .b = 1 / (1 - p),
                 .seed = context.seed,
                 .stream = philox_stream(name, context.step)},
                first, stride);
  return mask;
}

}  // namespace gantry
