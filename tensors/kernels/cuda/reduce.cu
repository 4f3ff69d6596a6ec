// A thread takes one element of all terms at a time. Neighbouring threads take neighbouring elements.
#include <algorithm>
#include <cuda_runtime.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "gantry/tensors/kernels/cuda/launches.h"

namespace gantry::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;  // a thread takes several elements of larger tensors

template <Reduction kHow, class A, class T, class Out>
__global__ void reduce_kernel(Out* out, Terms terms, const A* before, std::int64_t elements) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements; i += step)
    out[i] = static_cast<Out>(reduce_element<kHow, A, T>(terms, before, i));
}

// Each launch reduces at most Terms::kMost terms. All launches except the last one write `running`, which the
// next one reads.
template <Reduction kHow, class A, class T>
void launch(const Reduced& what, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min((what.elements + kThreads - 1) / kThreads, kMostBlocks));
  const A* before = nullptr;
  for (int begin = 0; begin < what.count; begin += Terms::kMost) {
    Terms terms;
    terms.count = std::min(what.count - begin, Terms::kMost);
    std::copy(what.terms + begin, what.terms + begin + terms.count, terms.memory);
    if (begin + terms.count < what.count)
      reduce_kernel<kHow, A, T>
          <<<blocks, kThreads, 0, stream>>>(static_cast<A*>(what.running), terms, before, what.elements);
    else
      reduce_kernel<kHow, A, T>
          <<<blocks, kThreads, 0, stream>>>(static_cast<T*>(what.out), terms, before, what.elements);
    before = static_cast<const A*>(what.running);
  }
}

template <class A, class T>
const char* by_reduction(const Reduced& what, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  switch (what.how) {
    case Reduction::kSum:
      launch<Reduction::kSum, A, T>(what, on);
      break;
    case Reduction::kMax:
      launch<Reduction::kMax, A, T>(what, on);
      break;
    case Reduction::kMin:
      launch<Reduction::kMin, A, T>(what, on);
      break;
  }
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* launch_reduce(const Reduced& what, void* stream) {
  switch (what.type) {
    case ReducedType::kFloat32:
      return by_reduction<float, float>(what, stream);
    case ReducedType::kFloat64:
      return by_reduction<double, double>(what, stream);
    case ReducedType::kFloat16:
      return by_reduction<float, c10::Half>(what, stream);
    case ReducedType::kBFloat16:
      return by_reduction<float, c10::BFloat16>(what, stream);
    case ReducedType::kInt64:
      return by_reduction<std::int64_t, std::int64_t>(what, stream);
    case ReducedType::kInt32:
      return by_reduction<std::int32_t, std::int32_t>(what, stream);
    case ReducedType::kUInt8:
      return by_reduction<std::uint8_t, std::uint8_t>(what, stream);
  }
  return "there is no kernel for this element type";
}

}  // namespace gantry::kernels
