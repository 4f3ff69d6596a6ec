// LibTorch's kernels of attention: the one place that decides which of them computes what is asked, or plain products,
// and that calls them with the log-sum-exp.
#pragma once

#include <cstdint>

#include "gantry/nn/attention.h"
#include "gantry/nn/attention_scores.h"

namespace gantry::nn {

// No kernel computes it: masks of dropout by name, caps, slopes and biases.
bool needs_plain_products(const AttentionOptions& options, bool drops);

// An attention of which queries see all keys or, `causal`, those up to the diagonal of equally many.
struct KernelCall {
  torch::Tensor query, key, value;  // [samples, heads, tokens, size], of which key heads may be shared
  const ByKeyHead& by;
  double scale;
  bool causal = false;
};

struct KernelChoice {
  // kOfDevice: what a device that LibTorch does not know by itself brings along.
  enum class Kernel { kPlain, kFlashOfCpu, kFlash, kEfficient, kOfDevice };
  Kernel kernel = Kernel::kPlain;
  bool grouped = false;  // it takes a shared key head once
};
// By shapes, dtype and device, as scaled_dot_product_attention chooses; kPlain where it has none.
KernelChoice choose_kernel(const KernelCall& call);

// Of some keys, or of all of them: out [samples, heads, tokens, value size], log-sum-exp [samples, heads, tokens], -inf
// where a query has seen no key.
struct AttentionSums {
  torch::Tensor out, lse;
};
struct AttentionGradients {
  torch::Tensor query, key, value;  // of their shapes, in float32 or wider
};
// By a choice that is not kPlain. Out has the query's dtype.
AttentionSums kernel_forward(const KernelChoice& choice, const KernelCall& call);
// `full`: of all keys, those of other calls too. `gradient`: of the full output.
AttentionGradients kernel_backward(const KernelChoice& choice, const KernelCall& call, const AttentionSums& full,
                                   const torch::Tensor& gradient);

}  // namespace gantry::nn
