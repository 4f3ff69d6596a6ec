// The kernels of recurrences for CUDA, called by the host's compiler. They run on `stream`, a cudaStream_t, of the
// current device, and return CUDA's text for an error, or null.
#pragma once

#include "gantry/tensors/kernels/causal_convolution_element.h"
#include "gantry/tensors/kernels/channel_scores_element.h"
#include "gantry/tensors/kernels/rg_lru_element.h"
#include "gantry/tensors/kernels/selective_scan_element.h"

namespace gantry::kernels {

const char* launch_selective_scan(const ScanInputs<float>& of, const ScanResults<float>& to, void* stream);
const char* launch_selective_scan(const ScanInputs<double>& of, const ScanResults<double>& to, void* stream);
// Groups of channels in the gradients of b and c have kScanBlock channels.
const char* launch_selective_scan_backward(const ScanInputs<float>& of, const ScanGradients<float>& to, void* stream);
const char* launch_selective_scan_backward(const ScanInputs<double>& of, const ScanGradients<double>& to, void* stream);

// T: float, double, c10::BFloat16 or c10::Half, with sums in double for double, else in float. At most 65,535 pieces
// and samples.
template <class T, class A>
const char* launch_causal_convolution(const ConvolutionInputs<T, A>& of, T* out, void* stream);
template <class T, class A>
const char* launch_causal_convolution_backward(const ConvolutionInputs<T, A>& of, const ConvolutionGradients<T, A>& to,
                                               void* stream);

template <class T, class A>
const char* launch_rg_lru(const LruInputs<T, A>& of, A* states, void* stream);
template <class T, class A>
const char* launch_rg_lru_backward(const LruInputs<T, A>& of, const LruGradients<A>& to, void* stream);

// A: float or double.
template <class A>
const char* launch_channel_scores(const ScoredTokens<A>& of, const ChannelScores<A>& to, void* stream);
template <class A>
const char* launch_channel_scores_backward(const ScoredTokens<A>& of, const ScoredGradients<A>& to, void* stream);

}  // namespace gantry::kernels
