#include "gantry/tensors/random_context.h"

#include <torch/torch.h>

#include "gantry/tensors/philox.h"

namespace gantry {
namespace {

// mask[k] = scale where word >= threshold, else 0.
template <class T>
void fill_mask(PhiloxKey key, std::uint64_t first, std::int64_t count, std::uint32_t threshold, T scale, T* mask) {
  constexpr std::int64_t kPiece = 4096;
  std::uint32_t words[kPiece];
  for (std::int64_t done = 0; done < count; done += kPiece) {
    const std::int64_t n = std::min(kPiece, count - done);
    philox_words(key, first + done, n, words);
    for (std::int64_t i = 0; i < n; ++i) mask[done + i] = words[i] >= threshold ? scale : T(0);
  }
}

}  // namespace

torch::Tensor dropout_mask(const torch::Tensor& like, double p, const std::string& name, const RandomContext& context,
                           const std::vector<std::int64_t>& offset, const std::vector<std::int64_t>& global) {
  const torch::NoGradGuard no_grad;
  const PhiloxKey key{context.seed, philox_stream(name, context.step)};
  // Drawn on the CPU, so that a device's mask is the same; the host goes on while it travels.
  torch::Tensor mask =
      torch::empty(like.sizes(), torch::dtype(like.scalar_type()).device(torch::kCPU).pinned_memory(like.is_cuda()));
  if (mask.numel() == 0) return mask.to(like.device());
  const auto threshold = static_cast<std::uint32_t>(p * 4294967295.0);
  // Trailing dims that are whole form runs that are contiguous in the global tensor too.
  const std::int64_t dims = mask.dim();
  std::int64_t run = 1, whole = dims;
  while (whole > 0) {
    run *= mask.size(--whole);
    if (whole > 0 && (mask.size(whole) != global[whole])) break;
  }
  std::vector<std::int64_t> stride(dims, 1);
  for (std::int64_t dim = dims - 1; dim > 0; --dim) stride[dim - 1] = stride[dim] * global[dim];

  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, mask.scalar_type(), "dropout_mask", [&] {
    auto* out = mask.data_ptr<scalar_t>();
    const auto scale = static_cast<scalar_t>(1 / (1 - p));
    std::vector<std::int64_t> index(whole, 0);
    for (std::int64_t done = 0; done < mask.numel(); done += run) {
      std::uint64_t first = 0;
      for (std::int64_t dim = 0; dim < dims; ++dim)
        first += (offset[dim] + (dim < whole ? index[dim] : 0)) * stride[dim];
      fill_mask(key, first, run, threshold, scale, out + done);
      for (std::int64_t dim = whole; dim-- > 0;) {
        if (++index[dim] < mask.size(dim)) break;
        index[dim] = 0;
      }
    }
  });
  return mask.to(like.device(), /*non_blocking=*/like.is_cuda());  // pinned memory waits for its copy by itself
}

}  // namespace gantry
