#include "gantry/nn/attention_kernels.h"

#include <limits>
#include <tuple>

#include <ATen/SDPBackend.h>

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using Kernel = KernelChoice::Kernel;

Kernel kernel_of(const KernelCall& call, const torch::Tensor& key, const torch::Tensor& value, bool grouped) {
  const auto backend = static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(call.query, key, value, std::nullopt, 0.0, call.causal, call.scale, grouped));
  switch (backend) {
    case at::SDPBackend::flash_attention:
      return call.query.is_cpu() ? Kernel::kFlashOfCpu : Kernel::kFlash;
    case at::SDPBackend::cudnn_attention:  // flash computes the same
      return Kernel::kFlash;
    case at::SDPBackend::efficient_attention:
      return Kernel::kEfficient;
    case at::SDPBackend::overrideable:
      return Kernel::kOfDevice;
    default:
      return Kernel::kPlain;
  }
}

// The keys or values in the form that the kernel takes: shared KV heads are repeated unless it supports them.
torch::Tensor as_taken(const torch::Tensor& keys, const KernelChoice& choice, const KernelCall& call) {
  return choice.grouped ? keys : call.by.repeated(keys);
}

// The efficient kernel pads rows of log-sum-exps to a multiple of this.
constexpr std::int64_t kEfficientRows = 32;

torch::Tensor padded_lse(const torch::Tensor& lse) {
  const std::int64_t more = (kEfficientRows - lse.size(2) % kEfficientRows) % kEfficientRows;
  return at::constant_pad_nd(lse, {0, more}, std::numeric_limits<double>::infinity()).contiguous();
}

using Three = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;

// `none`: the state of dropout's random numbers, which is empty without dropout.
Three gradients_of(Kernel kernel, const KernelCall& call, const torch::Tensor& key, const torch::Tensor& value,
                   const AttentionSums& full, const torch::Tensor& gradient) {
  const torch::Tensor& query = call.query;
  const torch::Tensor out = full.out.to(query.scalar_type());
  if (kernel == Kernel::kFlashOfCpu)
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, query, key, value, out, full.lse, 0.0,
                                                                    call.causal, std::nullopt, call.scale);
  const torch::Tensor none = at::empty({0}, query.options().dtype(torch::kInt64));
  if (kernel == Kernel::kFlash)
    return at::_scaled_dot_product_flash_attention_backward(gradient, query, key, value, out, full.lse.contiguous(), {},
                                                            {}, query.size(2), key.size(2), 0.0, call.causal, none,
                                                            none, call.scale);
  if (kernel == Kernel::kEfficient) {
    const auto [of_query, of_key, of_value, of_bias] = at::_scaled_dot_product_efficient_attention_backward(
        gradient, query, key, value, {}, out, padded_lse(full.lse), none, none, 0.0, {true, true, true, false},
        call.causal, call.scale);
    return {of_query, of_key, of_value};
  }
  const auto [of_query, of_key, of_value, of_bias] = at::_scaled_dot_product_fused_attention_overrideable_backward(
      gradient, query, key, value, {}, {true, true, true, false}, out, full.lse, {}, {}, query.size(2), key.size(2),
      0.0, call.causal, none, none, call.scale);
  return {of_query, of_key, of_value};
}

}  // namespace

bool needs_plain_products(const AttentionOptions& options, bool drops) {
  return drops || options.soft_cap > 0 || options.slopes.defined() || options.bias.defined();
}

KernelChoice choose_kernel(const KernelCall& call) {
  const auto &query = call.query, &key = call.key, &value = call.value;
  // With unequal numbers of queries and keys, the corner in which LibTorch's diagonal starts depends on the
  // device.
  if (query.size(3) != value.size(3) || (call.causal && query.size(2) != key.size(2))) return {};
  if (call.by.is_grouped())
    if (const Kernel kernel = kernel_of(call, key, value, true); kernel != Kernel::kPlain) return {kernel, true};
  // Only the shapes matter for the choice, so nothing is copied yet.
  const auto as_of_heads = [&](const torch::Tensor& of_keys) {
    return of_keys.narrow(1, 0, 1).expand({-1, query.size(1), -1, -1});
  };
  const bool repeats = query.size(1) != key.size(1);
  return {repeats ? kernel_of(call, as_of_heads(key), as_of_heads(value), false) : kernel_of(call, key, value, false)};
}

AttentionSums kernel_forward(const KernelChoice& choice, const KernelCall& call) {
  const torch::Tensor& query = call.query;
  const torch::Tensor key = as_taken(call.key, choice, call), value = as_taken(call.value, choice, call);
  if (choice.kernel == Kernel::kFlashOfCpu) {
    const auto [out, lse] =
        at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, call.causal, std::nullopt, call.scale);
    return {out, lse};
  }
  if (choice.kernel == Kernel::kFlash) {
    const auto made = at::_scaled_dot_product_flash_attention(query, key, value, 0.0, call.causal,
                                                              /*return_debug_mask=*/false, call.scale);
    return {std::get<0>(made), std::get<1>(made)};
  }
  if (choice.kernel == Kernel::kEfficient) {
    const auto made = at::_scaled_dot_product_efficient_attention(
        query, key, value, std::nullopt, /*compute_log_sumexp=*/true, 0.0, call.causal, call.scale);
    return {std::get<0>(made), std::get<1>(made).narrow(2, 0, query.size(2))};
  }
  const auto made = at::_scaled_dot_product_fused_attention_overrideable(
      query, key, value, std::nullopt, 0.0, call.causal, /*return_debug_mask=*/false, call.scale);
  return {std::get<0>(made), std::get<1>(made)};
}

AttentionGradients kernel_backward(const KernelChoice& choice, const KernelCall& call, const AttentionSums& full,
                                   const torch::Tensor& gradient) {
  const auto wide = at::promote_types(call.query.scalar_type(), torch::kFloat32);
  const auto [of_query, of_key, of_value] =
      gradients_of(choice.kernel, call, as_taken(call.key, choice, call), as_taken(call.value, choice, call), full,
                   gradient.to(call.query.scalar_type()));
  const auto of_keys = [&](const torch::Tensor& each) {
    return choice.grouped ? each.to(wide) : call.by.summed(each.to(wide));
  };
  return {of_query.to(wide), of_keys(of_key), of_keys(of_value)};
}

}  // namespace gantry::nn
