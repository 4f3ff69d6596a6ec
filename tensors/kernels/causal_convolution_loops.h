// The loops of a causal convolution on the host. T is float, double, at::BFloat16 or at::Half, and A double for double,
// else float. Different pieces and samples may run at the same time.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "gantry/tensors/kernels/causal_convolution_element.h"

namespace gantry::kernels {

// out: [samples, tokens, channels].
void convolve_piece(const ConvolutionInputs<float, float>& of, float* out, std::int64_t sample, std::int64_t piece);
void convolve_piece(const ConvolutionInputs<double, double>& of, double* out, std::int64_t sample, std::int64_t piece);
void convolve_piece(const ConvolutionInputs<c10::BFloat16, float>& of, c10::BFloat16* out, std::int64_t sample,
                    std::int64_t piece);
void convolve_piece(const ConvolutionInputs<c10::Half, float>& of, c10::Half* out, std::int64_t sample,
                    std::int64_t piece);

void convolve_piece_backward(const ConvolutionInputs<float, float>& of, const ConvolutionGradients<float, float>& to,
                             std::int64_t sample, std::int64_t piece);
void convolve_piece_backward(const ConvolutionInputs<double, double>& of,
                             const ConvolutionGradients<double, double>& to, std::int64_t sample, std::int64_t piece);
void convolve_piece_backward(const ConvolutionInputs<c10::BFloat16, float>& of,
                             const ConvolutionGradients<c10::BFloat16, float>& to, std::int64_t sample,
                             std::int64_t piece);
void convolve_piece_backward(const ConvolutionInputs<c10::Half, float>& of,
                             const ConvolutionGradients<c10::Half, float>& to, std::int64_t sample, std::int64_t piece);

}  // namespace gantry::kernels
