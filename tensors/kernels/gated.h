// The product of activated gates and values, f(gate) * values, in one pass over the memory, and its gradients in
// another. Nothing but the gates and the values is kept for the backward.
//
// They are operators of LibTorch's dispatcher (gantry::gated_, gantry::gated_backward_), with kernels for CUDA; other
// devices compute them by LibTorch's activations.
#pragma once

#include "gantry/tensors/kernels/gated_element.h"
#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// gate, values [rows, columns] of one floating-point type, with adjacent columns -> the same shape, contiguous. On CUDA
// half precisions are computed in float32 and rounded once. No graph is made.
torch::Tensor gated(const torch::Tensor& gate, const torch::Tensor& values, GateFunction function);

// Writes the gradients of both, from the product's. All are [rows, columns] with adjacent columns.
void gated_backward(torch::Tensor& of_gate, torch::Tensor& of_values, const torch::Tensor& gradient,
                    const torch::Tensor& gate, const torch::Tensor& values, GateFunction function);

}  // namespace gantry::kernels
