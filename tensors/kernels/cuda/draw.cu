#include <algorithm>
#include <cuda_runtime.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "gantry/tensors/kernels/cuda/launches.h"

namespace gantry::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPerThread = 4;  // the number of mask elements whose words are in one block

template <class T>
__global__ void draw_kernel(T* out, Box box, std::int64_t elements, Drawn drawn) {
  const std::int64_t begin = kPerThread * (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x);
  PhiloxBlock block{};
  std::uint64_t number = ~std::uint64_t{0};  // the index of `block`
  for (std::int64_t i = begin; i < begin + kPerThread && i < elements; ++i) {
    const Place place = place_in(box, i);
    if (drawn.law != Law::kMask) {
      out[place.in_memory] = static_cast<T>(draw_element(drawn, place.in_full));
      continue;
    }
    if (number != place.in_full / 4) {
      number = place.in_full / 4;
      block = mask_block(drawn, place.in_full);
    }
    out[place.in_memory] = static_cast<T>(mask_of(drawn, block.word[place.in_full % 4]));
  }
}

template <class T>
const char* launch(void* out, const Box& box, std::int64_t elements, const Drawn& drawn, void* stream) {
  const std::int64_t per_block = kThreads * kPerThread;
  const auto blocks = static_cast<unsigned>((elements + per_block - 1) / per_block);
  draw_kernel<T>
      <<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<T*>(out), box, elements, drawn);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* launch_draw(void* out, Element type, const Box& box, std::int64_t elements, const Drawn& drawn,
                        void* stream) {
  switch (type) {
    case Element::kFloat32:
      return launch<float>(out, box, elements, drawn, stream);
    case Element::kFloat64:
      return launch<double>(out, box, elements, drawn, stream);
    case Element::kFloat16:
      return launch<c10::Half>(out, box, elements, drawn, stream);
    case Element::kBFloat16:
      return launch<c10::BFloat16>(out, box, elements, drawn, stream);
  }
  return "there is no kernel for this element type";
}

}  // namespace gantry::kernels
