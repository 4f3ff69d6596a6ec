// The operators of tensors/kernels for tensors of CUDA's devices, built where there is CUDA's compiler.
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/tensors/kernels/cuda/launches.h"
#include "gantry/tensors/kernels/draw.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::kernels {
namespace {

Element element_of(const at::Tensor& tensor, const char* what) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Element::kFloat32;
    case at::kDouble:
      return Element::kFloat64;
    case at::kHalf:
      return Element::kFloat16;
    case at::kBFloat16:
      return Element::kBFloat16;
    default:
      throw UsageError({what, "of " + dtype_name(tensor.scalar_type()) + " tensors", "a floating type", "convert it"});
  }
}

// This thread's stream of the device, as CUDA has it.
void* stream_of(const at::Tensor& tensor) {
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  return guard.getStreamNativeHandle(guard.getStream(tensor.device()));
}

void check(const char* error, const char* what) {
  if (error)
    throw ResourceError({what, std::string("CUDA says: ") + error, "a kernel for this device",
                         "see docs/gpu.md for the devices that Gantry is built for"});
}

at::Tensor& draw_on_cuda(at::Tensor& out, at::IntArrayRef in_whole, std::int64_t first, std::int64_t law, double a,
                         double b, std::int64_t seed, std::int64_t stream) {
  const c10::DeviceGuard on_device(out.device());
  const Drawn drawn{static_cast<Law>(law), a, b, static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(stream)};
  check(launch_draw(out.data_ptr(), element_of(out, "random numbers"), box_of(out, first, in_whole), out.numel(), drawn,
                    stream_of(out)),
        "random numbers");
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(gantry, CUDA, library) { library.impl("draw_", &draw_on_cuda); }

}  // namespace gantry::kernels
