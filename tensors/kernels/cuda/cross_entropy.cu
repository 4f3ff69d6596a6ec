// One block of threads for each row of logits. Partial results of a row are combined pairwise, so the results
// of two runs are bitwise identical.
#include <cuda_runtime.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "gantry/tensors/kernels/cross_entropy_row.h"
#include "gantry/tensors/kernels/cuda/launches.h"
#include "gantry/tensors/kernels/cuda/pack.h"

namespace gantry::kernels {
namespace {

constexpr int kThreads = 512;

// Combines the values of the threads pairwise in shared memory. All threads get the result.
template <class A, class Combine>
__device__ A over_block(A value, A* shared, Combine combine) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  const A result = shared[0];
  __syncthreads();
  return result;
}

template <class T>
__device__ const T* row_of(const Rows& rows, std::int64_t row) {
  return static_cast<const T*>(rows.logits) + row * rows.row_stride;
}

template <class T, class A>
__global__ void row_maximum_kernel(A* out, Rows rows) {
  __shared__ A shared[kThreads];
  const A mine = row_maximum<A>(row_of<T>(rows, blockIdx.x), rows.width, threadIdx.x, kThreads);
  const A all = over_block(mine, shared, [](A a, A b) { return larger(a, b); });
  if (threadIdx.x == 0) out[blockIdx.x] = all;
}

template <class T, class A>
__global__ void row_sums_kernel(A* out, Rows rows, const A* largest, const std::int64_t* labels) {
  __shared__ A shared[kThreads];
  const std::int64_t row = blockIdx.x;
  const RowSums<A> mine =
      row_sums<A>(row_of<T>(rows, row), rows.width, threadIdx.x, kThreads, largest[row], labels[row]);
  const auto add = [](A a, A b) { return a + b; };
  const A exponentials = over_block(mine.exponentials, shared, add);
  const A label = over_block(mine.label, shared, add);
  const A all = over_block(mine.all, shared, add);
  if (threadIdx.x != 0) return;
  out[row] = exponentials;
  out[rows.rows + row] = label;
  out[2 * rows.rows + row] = all;
}

// Takes kCount columns at a time, and the remaining ones singly.
template <class T, class A, int kCount>
__global__ void loss_gradient_kernel(T* out, Rows rows, GradientTerms terms) {
  const std::int64_t row = blockIdx.x;
  const auto number_of = [row](const void* numbers) { return static_cast<const A*>(numbers)[row]; };
  RowGradient<A> of_row;
  of_row.largest = number_of(terms.largest);
  of_row.total = number_of(terms.total);
  of_row.weight = terms.weight ? number_of(terms.weight) : A(1);
  of_row.of_label = static_cast<A>(terms.of_label);
  of_row.of_all = static_cast<A>(terms.of_all);
  of_row.scale = number_of(terms.scale);
  of_row.label = terms.labels[row];
  const T* logits = row_of<T>(rows, row);
  T* gradient = out + row * terms.out_stride;
  const std::int64_t packed = rows.width / kCount * kCount;
  for (std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * kCount; column < packed;
       column += kThreads * kCount) {
    const auto few = read_pack<T, kCount>(logits + column);
    Pack<T, kCount> made;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      made.of[i] = static_cast<T>(gradient_of(static_cast<A>(few.of[i]), column + i, of_row));
    write_pack<T, kCount>(gradient + column, made);
  }
  for (std::int64_t column = packed + threadIdx.x; column < rows.columns; column += kThreads)
    gradient[column] = column < rows.width ? static_cast<T>(gradient_of(static_cast<A>(logits[column]), column, of_row))
                                           : static_cast<T>(0.0F);
}

// Calls `launch` with values of two types: the type of the elements, and the type of the arithmetic.
template <class Launch>
const char* by_type(Element type, const Launch& launch) {
  switch (type) {
    case Element::kFloat32:
      launch(float{}, float{});
      break;
    case Element::kFloat64:
      launch(double{}, double{});
      break;
    case Element::kFloat16:
      launch(c10::Half{}, float{});
      break;
    case Element::kBFloat16:
      launch(c10::BFloat16{}, float{});
      break;
  }
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* launch_row_maximum(void* out, const Rows& rows, void* stream) {
  return by_type(rows.type, [&]<class T, class A>(T, A) {
    row_maximum_kernel<T, A><<<rows.rows, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<A*>(out), rows);
  });
}

const char* launch_row_sums(void* out, const Rows& rows, const void* largest, const std::int64_t* labels,
                            void* stream) {
  return by_type(rows.type, [&]<class T, class A>(T, A) {
    row_sums_kernel<T, A><<<rows.rows, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<A*>(out), rows, static_cast<const A*>(largest), labels);
  });
}

const char* launch_loss_gradient(void* out, const Rows& rows, const GradientTerms& terms, void* stream) {
  return by_type(rows.type, [&]<class T, class A>(T, A) {
    constexpr int kCount = kPackElements<T>;
    const bool in_packs = begins_with_pack(out) && begins_with_pack(rows.logits) && rows.row_stride % kCount == 0 &&
                          terms.out_stride % kCount == 0;
    const auto kernel = in_packs ? loss_gradient_kernel<T, A, kCount> : loss_gradient_kernel<T, A, 1>;
    kernel<<<rows.rows, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<T*>(out), rows, terms);
  });
}

}  // namespace gantry::kernels
