// A thread takes one column of a row of the table. Neighbouring threads take neighbouring columns, which are
// adjacent in memory.
#include <algorithm>
#include <cuda_runtime.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "gantry/tensors/kernels/cuda/launches.h"

namespace gantry::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocksOfColumns = 65535;  // CUDA's limit for the second dimension

template <class A, class T, class R>
__global__ void add_rows_kernel(T* table, const R* rows, SortedRows sorted) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kThreads;
  for (std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x; column < sorted.columns;
       column += step)
    add_segment<A>(table, rows, sorted, blockIdx.x, column);
}

template <class A, class T, class R>
const char* launch(void* table, const void* rows, const SortedRows& sorted, void* stream) {
  const std::int64_t of_columns = std::min((sorted.columns + kThreads - 1) / kThreads, kMostBlocksOfColumns);
  const dim3 blocks(static_cast<unsigned>(sorted.count), static_cast<unsigned>(of_columns));
  add_rows_kernel<A><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<T*>(table),
                                                                                 static_cast<const R*>(rows), sorted);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* launch_add_rows(void* table, Element type, const void* rows, Element rows_type, const SortedRows& sorted,
                            void* stream) {
  if (type == Element::kFloat32 && rows_type == Element::kBFloat16)
    return launch<float, float, c10::BFloat16>(table, rows, sorted, stream);
  if (type == Element::kFloat32 && rows_type == Element::kFloat16)
    return launch<float, float, c10::Half>(table, rows, sorted, stream);
  if (type != rows_type) return "the types of the rows and of the table differ";
  switch (type) {
    case Element::kFloat32:
      return launch<float, float, float>(table, rows, sorted, stream);
    case Element::kFloat64:
      return launch<double, double, double>(table, rows, sorted, stream);
    case Element::kFloat16:
      return launch<float, c10::Half, c10::Half>(table, rows, sorted, stream);
    case Element::kBFloat16:
      return launch<float, c10::BFloat16, c10::BFloat16>(table, rows, sorted, stream);
  }
  return "there is no kernel for this element type";
}

}  // namespace gantry::kernels
