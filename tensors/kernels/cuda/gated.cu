// A thread takes several adjacent columns of a row at a time.
#include <algorithm>
#include <cuda_runtime.h>
#include <initializer_list>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "gantry/tensors/kernels/cuda/launches.h"
#include "gantry/tensors/kernels/cuda/pack.h"

namespace gantry::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 20;  // a thread takes several packs of larger matrices

// Calls body(row, first column) for each pack of this thread.
template <int kCount, class Body>
__device__ void for_each_pack(std::int64_t rows, std::int64_t columns, Body body) {
  const std::int64_t packs = columns / kCount, all = rows * packs,
                     step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < all; i += step) {
    const std::int64_t row = rows == 1 ? 0 : i / packs;
    body(row, (i - row * packs) * kCount);
  }
}

template <GateFunction kFunction, class A, int kCount, class T>
__global__ void gated_kernel(T* out, std::int64_t out_stride, const T* gate, const T* values, GatedOperands from) {
  for_each_pack<kCount>(from.rows, from.columns, [&](std::int64_t row, std::int64_t column) {
    const auto gates = read_pack<T, kCount>(gate + row * from.gate_stride + column);
    const auto factors = read_pack<T, kCount>(values + row * from.values_stride + column);
    Pack<T, kCount> made;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      made.of[i] =
          static_cast<T>(gate_at<kFunction, A>(static_cast<A>(gates.of[i])).value * static_cast<A>(factors.of[i]));
    write_pack<T, kCount>(out + row * out_stride + column, made);
  });
}

template <GateFunction kFunction, class A, int kCount, class T>
__global__ void backward_kernel(T* of_gate, T* of_values, const T* gradient, const T* gate, const T* values,
                                GatedGradients to, GatedOperands from) {
  for_each_pack<kCount>(from.rows, from.columns, [&](std::int64_t row, std::int64_t column) {
    const auto gradients = read_pack<T, kCount>(gradient + row * to.out_stride + column);
    const auto gates = read_pack<T, kCount>(gate + row * from.gate_stride + column);
    const auto factors = read_pack<T, kCount>(values + row * from.values_stride + column);
    Pack<T, kCount> gates_made, values_made;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const A of_product = static_cast<A>(gradients.of[i]);
      const GateNumbers<A> numbers = gate_at<kFunction, A>(static_cast<A>(gates.of[i]));
      gates_made.of[i] = static_cast<T>(of_product * static_cast<A>(factors.of[i]) * numbers.slope);
      values_made.of[i] = static_cast<T>(of_product * numbers.value);
    }
    write_pack<T, kCount>(of_gate + row * to.gate_stride + column, gates_made);
    write_pack<T, kCount>(of_values + row * to.values_stride + column, values_made);
  });
}

bool begin_with_packs(std::initializer_list<const void*> all) {
  return std::all_of(all.begin(), all.end(), begins_with_pack);
}

bool are_multiples(std::initializer_list<std::int64_t> all, int of) {
  return std::all_of(all.begin(), all.end(), [&](std::int64_t each) { return each % of == 0; });
}

unsigned blocks_of(const GatedOperands& from, int count) {
  const std::int64_t threads = from.rows * (from.columns / count);
  return static_cast<unsigned>(std::min((threads + kThreads - 1) / kThreads, kMostBlocks));
}

template <GateFunction kFunction, class A, int kCount, class T>
void forward(T* out, std::int64_t out_stride, const GatedOperands& from, cudaStream_t stream) {
  gated_kernel<kFunction, A, kCount><<<blocks_of(from, kCount), kThreads, 0, stream>>>(
      out, out_stride, static_cast<const T*>(from.gate), static_cast<const T*>(from.values), from);
}

template <GateFunction kFunction, class A, int kCount, class T>
void backward(T* of_gate, const GatedGradients& to, const GatedOperands& from, cudaStream_t stream) {
  backward_kernel<kFunction, A, kCount><<<blocks_of(from, kCount), kThreads, 0, stream>>>(
      of_gate, static_cast<T*>(to.values), static_cast<const T*>(to.out), static_cast<const T*>(from.gate),
      static_cast<const T*>(from.values), to, from);
}

template <class Call>
void by_function(GateFunction function, Call call) {
  switch (function) {
    case GateFunction::kSilu:
      return call.template operator()<GateFunction::kSilu>();
    case GateFunction::kGelu:
      return call.template operator()<GateFunction::kGelu>();
    case GateFunction::kTanhGelu:
      return call.template operator()<GateFunction::kTanhGelu>();
  }
}

// Calls call<type of the arithmetic, type of the elements>().
template <class Call>
const char* by_type(Element type, Call call) {
  switch (type) {
    case Element::kFloat32:
      call.template operator()<float, float>();
      break;
    case Element::kFloat64:
      call.template operator()<double, double>();
      break;
    case Element::kFloat16:
      call.template operator()<float, c10::Half>();
      break;
    case Element::kBFloat16:
      call.template operator()<float, c10::BFloat16>();
      break;
  }
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* launch_gated(void* out, std::int64_t out_stride, const GatedOperands& from, GateFunction function,
                         void* stream) {
  return by_type(from.type, [&]<class A, class T>() {
    constexpr int kCount = kPackElements<T>;
    const bool in_packs = begin_with_packs({out, from.gate, from.values}) &&
                          are_multiples({from.columns, out_stride, from.gate_stride, from.values_stride}, kCount);
    by_function(function, [&]<GateFunction kFunction>() {
      const auto on = static_cast<cudaStream_t>(stream);
      in_packs ? forward<kFunction, A, kCount>(static_cast<T*>(out), out_stride, from, on)
               : forward<kFunction, A, 1>(static_cast<T*>(out), out_stride, from, on);
    });
  });
}

const char* launch_gated_backward(const GatedGradients& gradients, const GatedOperands& from, GateFunction function,
                                  void* stream) {
  return by_type(from.type, [&]<class A, class T>() {
    constexpr int kCount = kPackElements<T>;
    const bool in_packs = begin_with_packs({gradients.gate, gradients.values, gradients.out, from.gate, from.values}) &&
                          are_multiples({from.columns, gradients.gate_stride, gradients.values_stride,
                                         gradients.out_stride, from.gate_stride, from.values_stride},
                                        kCount);
    by_function(function, [&]<GateFunction kFunction>() {
      const auto on = static_cast<cudaStream_t>(stream);
      T* const of_gate = static_cast<T*>(gradients.gate);
      in_packs ? backward<kFunction, A, kCount>(of_gate, gradients, from, on)
               : backward<kFunction, A, 1>(of_gate, gradients, from, on);
    });
  });
}

}  // namespace gantry::kernels
