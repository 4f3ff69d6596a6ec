// Compares attention kernels, called on one block of keys at a time, with plain attention over all keys in
// float64.
#pragma once

#include <cmath>
#include <gtest/gtest.h>

#include "gantry/nn/attention_kernels.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {

// Six queries attend to the six keys before them and, causally, to their own six. Each KV head serves two
// query heads.
inline void expect_blocks_as_plain(torch::Device device, torch::ScalarType type, double tolerance) {
  constexpr std::int64_t kTokens = 6, kSize = 8;
  constexpr double kScale = 0.3;
  const auto wave = [](std::int64_t heads, std::int64_t tokens, double step) {
    const torch::Tensor values = torch::sin(torch::arange(2 * heads * tokens * kSize, torch::kFloat64) * step);
    return values.view({2, heads, tokens, kSize}).requires_grad_();
  };
  const torch::Tensor query = wave(4, kTokens, 0.7), key = wave(2, 2 * kTokens, 1.3), value = wave(2, 2 * kTokens, 0.9);
  const torch::Tensor gradient = wave(4, kTokens, 1.9).detach();
  const torch::Tensor seen = torch::ones({kTokens, 2 * kTokens}, torch::kBool).tril(kTokens);
  const torch::Tensor scores = at::matmul(query * kScale, key.repeat_interleave(2, 1).transpose(-2, -1));
  const torch::Tensor expected =
      at::matmul(scores.masked_fill(~seen, -INFINITY).softmax(-1), value.repeat_interleave(2, 1));
  expected.backward(gradient);

  const nn::ByKeyHead by({0, 4, 4}, {0, 2, 2});
  const auto block = [&](std::int64_t first, bool causal) {
    const auto part = [&](const torch::Tensor& of) { return of.detach().narrow(2, first, kTokens).to(device, type); };
    return nn::KernelCall{query.detach().to(device, type), part(key), part(value), by, kScale, causal};
  };
  const nn::KernelCall calls[] = {block(0, false), block(kTokens, true)};
  nn::AttentionSums sums[2], full;
  for (int i = 0; i < 2; ++i) {
    const auto choice = nn::choose_kernel(calls[i]);
    ASSERT_NE(choice.kernel, nn::KernelChoice::Kernel::kPlain) << device << " " << type;
    sums[i] = nn::kernel_forward(choice, calls[i]);
  }
  full.lse = at::logaddexp(sums[0].lse, sums[1].lse);
  for (const auto& [out, lse] : sums) {
    const torch::Tensor share = out.to(lse.scalar_type()) * (lse - full.lse).exp().unsqueeze(-1);
    full.out = full.out.defined() ? full.out + share : share;
  }
  const auto close = [&](const torch::Tensor& one, const torch::Tensor& other) {
    ASSERT_EQ(one.sizes(), other.sizes());
    EXPECT_LE((one.to(torch::kCPU, torch::kFloat64) - other).abs().max().item<double>(), tolerance) << type;
  };
  close(full.out, expected.detach());
  torch::Tensor of_query;
  for (int i = 0; i < 2; ++i) {
    const auto made = nn::kernel_backward(nn::choose_kernel(calls[i]), calls[i], full, gradient.to(device));
    of_query = i == 0 ? made.query : of_query + made.query;
    close(made.key, key.grad().narrow(2, i * kTokens, kTokens));
    close(made.value, value.grad().narrow(2, i * kTokens, kTokens));
  }
  close(of_query, query.grad());
}

}  // namespace gantry::testing
