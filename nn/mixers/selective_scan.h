// The selective scan of Mamba (Gu, Dao: Mamba: Linear-Time Sequence Modeling with Selective State Spaces, arXiv
// 2312.00752).
#pragma once

#include "gantry/nn/mixers/chunks.h"

namespace gantry::nn {

struct SelectiveScanInputs {
  torch::Tensor x;     // [samples, tokens, channels], after convolution and activation
  torch::Tensor dt;    // [samples, tokens, channels], above 0: after bias and softplus
  torch::Tensor a;     // [channels, state], below 0: -exp(A_log)
  torch::Tensor b, c;  // [samples, tokens, state]
  torch::Tensor d;     // [channels]: factor of the skip connection; undefined: none
};

// S_t = e^{dt_t a} * S_{t-1} + (dt_t x_t) b_t^T, elementwise [channels, state], and out_t = S_t c_t + d x_t; the
// result's out is [samples, tokens, channels]. `state`: [samples, channels, state size], undefined: zeros. `documents`:
// int [samples, tokens]; a token that differs from the one before begins a document with a state of zero, and the first
// document continues `state`; undefined: one document. Computes in float32 or wider, see kernels::selective_scan(). The
// forward keeps the states of every 32nd token, and the backward scans the tokens between again.
RecurrenceResult selective_scan(const SelectiveScanInputs& inputs, const torch::Tensor& state = {},
                                const torch::Tensor& documents = {});
// The same for inputs of one token.
RecurrenceResult selective_scan_step(const SelectiveScanInputs& inputs, const torch::Tensor& state = {});

}  // namespace gantry::nn
