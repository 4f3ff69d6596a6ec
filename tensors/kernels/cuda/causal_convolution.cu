// A thread takes one channel of a piece of tokens. Neighbouring threads take neighbouring channels.
#include <cuda_runtime.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "gantry/tensors/kernels/cuda/recurrence_launches.h"

namespace gantry::kernels {
namespace {

constexpr int kThreadsOfChannels = 128;

template <class T, class A>
__device__ std::int64_t channel_of_thread(const ConvolutionInputs<T, A>&) {
  return static_cast<std::int64_t>(blockIdx.x) * kThreadsOfChannels + threadIdx.x;
}

template <class T, class A>
__global__ void convolution_kernel(ConvolutionInputs<T, A> of, T* out) {
  const std::int64_t channel = channel_of_thread(of), sample = blockIdx.z, begin = blockIdx.y * of.piece;
  if (channel >= of.channels) return;
  for (std::int64_t token = begin; token < begin + of.piece && token < of.tokens; ++token) {
    const A sum = convolution_sum(of, sample, token, channel);
    out[(sample * of.tokens + token) * of.channels + channel] = static_cast<T>(of.silu ? silu(sum) : sum);
  }
}

// Adds the terms of a token to the gradients of its piece. Tokens after the piece add to those of its last tokens.
template <class T, class A>
__device__ void add_gradients(const ConvolutionInputs<T, A>& of, const ConvolutionGradients<T, A>& to, A slope,
                              std::int64_t token, std::int64_t channel, A* of_taps) {
  const std::int64_t sample = blockIdx.z, begin = blockIdx.y * of.piece, end = begin + of.piece;
  const std::int64_t earlier = of.earlier(sample, token), past = of.taps - 1;
  const auto of_token = [&](std::int64_t which) { return (sample * of.tokens + which) * of.channels + channel; };
  if (token < end) to.x[of_token(token)] = slope * of.tap(0)[channel];
  for (std::int64_t back = 0; back <= earlier; ++back) {
    const std::int64_t from = token - back;
    const A term = slope * of.tap(back)[channel];
    if (token < end) of_taps[(past - back) * of.channels] += slope * static_cast<A>(of.row(sample, from)[channel]);
    if (back > 0 && from >= begin && from < end) to.x[of_token(from)] += term;
    if (from < 0 && begin == 0) to.past[(sample * past + past + from) * of.channels + channel] += term;
  }
}

template <class T, class A>
__global__ void convolution_backward_kernel(ConvolutionInputs<T, A> of, ConvolutionGradients<T, A> to) {
  const std::int64_t channel = channel_of_thread(of), sample = blockIdx.z, begin = blockIdx.y * of.piece;
  if (channel >= of.channels) return;
  const std::int64_t row = sample * of.pieces() + blockIdx.y, past = of.taps - 1;
  A* const of_taps = to.weight + row * of.taps * of.channels + channel;
  for (std::int64_t tap = 0; tap < of.taps; ++tap) of_taps[tap * of.channels] = 0;
  for (std::int64_t token = 0; begin == 0 && token < past; ++token)
    to.past[(sample * past + token) * of.channels + channel] = 0;
  A of_bias = 0;
  for (std::int64_t token = begin; token < begin + of.piece + past && token < of.tokens; ++token) {
    A slope = static_cast<A>(to.out[(sample * of.tokens + token) * of.channels + channel]);
    if (of.silu) slope *= silu_slope(convolution_sum(of, sample, token, channel));
    if (token < begin + of.piece) of_bias += slope;
    add_gradients(of, to, slope, token, channel, of_taps);
  }
  to.bias[row * of.channels + channel] = of_bias;
}

template <class T, class A>
dim3 blocks_of_channels(const ConvolutionInputs<T, A>& of) {
  return dim3(static_cast<unsigned>((of.channels + kThreadsOfChannels - 1) / kThreadsOfChannels),
              static_cast<unsigned>(of.pieces()), static_cast<unsigned>(of.samples));
}

const char* error_of_convolution() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

template <class T, class A>
const char* launch_causal_convolution(const ConvolutionInputs<T, A>& of, T* out, void* stream) {
  convolution_kernel<<<blocks_of_channels(of), kThreadsOfChannels, 0, static_cast<cudaStream_t>(stream)>>>(of, out);
  return error_of_convolution();
}

template <class T, class A>
const char* launch_causal_convolution_backward(const ConvolutionInputs<T, A>& of, const ConvolutionGradients<T, A>& to,
                                               void* stream) {
  convolution_backward_kernel<<<blocks_of_channels(of), kThreadsOfChannels, 0, static_cast<cudaStream_t>(stream)>>>(of,
                                                                                                                    to);
  return error_of_convolution();
}

template const char* launch_causal_convolution(const ConvolutionInputs<float, float>&, float*, void*);
template const char* launch_causal_convolution(const ConvolutionInputs<double, double>&, double*, void*);
template const char* launch_causal_convolution(const ConvolutionInputs<c10::BFloat16, float>&, c10::BFloat16*, void*);
template const char* launch_causal_convolution(const ConvolutionInputs<c10::Half, float>&, c10::Half*, void*);
template const char* launch_causal_convolution_backward(const ConvolutionInputs<float, float>&,
                                                        const ConvolutionGradients<float, float>&, void*);
template const char* launch_causal_convolution_backward(const ConvolutionInputs<double, double>&,
                                                        const ConvolutionGradients<double, double>&, void*);
template const char* launch_causal_convolution_backward(const ConvolutionInputs<c10::BFloat16, float>&,
                                                        const ConvolutionGradients<c10::BFloat16, float>&, void*);
template const char* launch_causal_convolution_backward(const ConvolutionInputs<c10::Half, float>&,
                                                        const ConvolutionGradients<c10::Half, float>&, void*);

}  // namespace gantry::kernels
