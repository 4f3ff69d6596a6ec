// A thread takes one channel of a sample. Neighbouring threads take neighbouring channels.
#include <cuda_runtime.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "gantry/tensors/kernels/cuda/recurrence_launches.h"

namespace gantry::kernels {
namespace {

constexpr int kLruThreads = 32;  // few, so that the blocks are spread over the device

template <class T, class A>
__global__ void lru_kernel(LruInputs<T, A> of, A* states) {
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * kLruThreads + threadIdx.x, sample = blockIdx.y;
  if (channel >= of.channels) return;
  const A scale = of.scale[channel];
  A state = of.initial[sample * of.channels + channel];
#pragma unroll 4
  for (std::int64_t token = 0; token < of.tokens; ++token) {
    const std::int64_t at = of.row(sample, token) + channel;
    const LruToken<A> made = lru_token(static_cast<A>(of.input_gate[at]), static_cast<A>(of.recurrent_gate[at]), scale);
    state = lru_state(made, state, static_cast<A>(of.x[at]), of.starts_at(sample, token) ? A(0) : A(1));
    states[at] = state;
  }
}

template <class T, class A>
__global__ void lru_backward_kernel(LruInputs<T, A> of, LruGradients<A> to) {
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * kLruThreads + threadIdx.x, sample = blockIdx.y;
  if (channel >= of.channels) return;
  const std::int64_t of_sample = sample * of.channels + channel;
  const A scale = of.scale[channel];
  A of_state = 0, of_scale = 0;
#pragma unroll 2
  for (std::int64_t token = of.tokens - 1; token >= 0; --token) {
    const std::int64_t at = of.row(sample, token) + channel;
    const LruToken<A> made = lru_token(static_cast<A>(of.input_gate[at]), static_cast<A>(of.recurrent_gate[at]), scale);
    const A before = token > 0 ? to.states[at - of.channels] : of.initial[of_sample];
    const LruTerms<A> terms = lru_terms(made, of_state + to.out[at], before, static_cast<A>(of.x[at]), scale,
                                        of.starts_at(sample, token) ? A(0) : A(1));
    of_state = terms.before;
    of_scale += terms.scale;
    to.x[at] = terms.x;
    to.input_gate[at] = terms.input_gate;
    to.recurrent_gate[at] = terms.recurrent_gate;
  }
  to.scale[of_sample] = of_scale;
  to.initial[of_sample] = of_state;
}

template <class T, class A>
dim3 lru_blocks(const LruInputs<T, A>& of) {
  return dim3(static_cast<unsigned>((of.channels + kLruThreads - 1) / kLruThreads), static_cast<unsigned>(of.samples));
}

const char* error_of_lru() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

template <class T, class A>
const char* launch_rg_lru(const LruInputs<T, A>& of, A* states, void* stream) {
  lru_kernel<<<lru_blocks(of), kLruThreads, 0, static_cast<cudaStream_t>(stream)>>>(of, states);
  return error_of_lru();
}

template <class T, class A>
const char* launch_rg_lru_backward(const LruInputs<T, A>& of, const LruGradients<A>& to, void* stream) {
  lru_backward_kernel<<<lru_blocks(of), kLruThreads, 0, static_cast<cudaStream_t>(stream)>>>(of, to);
  return error_of_lru();
}

template const char* launch_rg_lru(const LruInputs<float, float>&, float*, void*);
template const char* launch_rg_lru(const LruInputs<double, double>&, double*, void*);
template const char* launch_rg_lru(const LruInputs<c10::BFloat16, float>&, float*, void*);
template const char* launch_rg_lru(const LruInputs<c10::Half, float>&, float*, void*);
template const char* launch_rg_lru_backward(const LruInputs<float, float>&, const LruGradients<float>&, void*);
template const char* launch_rg_lru_backward(const LruInputs<double, double>&, const LruGradients<double>&, void*);
template const char* launch_rg_lru_backward(const LruInputs<c10::BFloat16, float>&, const LruGradients<float>&, void*);
template const char* launch_rg_lru_backward(const LruInputs<c10::Half, float>&, const LruGradients<float>&, void*);

}  // namespace gantry::kernels
