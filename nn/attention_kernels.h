// LibTorch's kernels of attention. Only this file chooses between them and plain products, and calls them
// with the log-sum-exp.
#pragma once

#include <cstdint>

#include "gantry/nn/attention.h"
#include "gantry/nn/attention_scores.h"

namespace gantry::nn {

// True if no kernel supports the options: dropout with named masks, soft caps, ALiBi slopes and biases.
bool needs_plain_products(const AttentionOptions& options, bool drops);

// An attention in which queries see all keys or, if `causal`, the keys up to the diagonal. A causal one has
// as many keys as queries.
struct KernelCall {
  torch::Tensor query, key, value;  // [samples, heads, tokens, size]; several query heads may share a KV head
  const ByKeyHead& by;
  double scale;
  bool causal = false;
};

struct KernelChoice {
  // kOfDevice: the kernel of a device backend outside of LibTorch.
  enum class Kernel { kPlain, kFlashOfCpu, kFlash, kEfficient, kOfDevice };
  Kernel kernel = Kernel::kPlain;
  bool grouped = false;  // the kernel takes a shared KV head once
};
// Chooses by shapes, dtype and device, like scaled_dot_product_attention. kPlain if there is no kernel.
KernelChoice choose_kernel(const KernelCall& call);

// Results for some keys, or for all of them: out [samples, heads, tokens, value size], and log-sum-exp
// [samples, heads, tokens], which is -inf for a query that has seen no key.
struct AttentionSums {
  torch::Tensor out, lse;
};
struct AttentionGradients {
  torch::Tensor query, key, value;  // in the shapes of the inputs, float32 or wider
};
// Calls the kernel of a choice other than kPlain. `out` has the query's dtype.
AttentionSums kernel_forward(const KernelChoice& choice, const KernelCall& call);
// `full`: the results for all keys, including those of other calls. `gradient`: the gradient of the full
// output.
AttentionGradients kernel_backward(const KernelChoice& choice, const KernelCall& call, const AttentionSums& full,
                                   const torch::Tensor& gradient);

}  // namespace gantry::nn
