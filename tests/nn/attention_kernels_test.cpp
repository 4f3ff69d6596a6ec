// LibTorch's attention kernels: the choice of the kernel
// for a block, and that blocks add up to the full result.
#include "gantry/nn/attention_kernels.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "attention_blocks.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"

namespace gantry::testing {
namespace {

using Kernel = nn::KernelChoice::Kernel;

TEST(AttentionKernels, BlocksAddUpToPlainProductsForwardAndBackward) {
  expect_blocks_as_plain(torch::kCPU, torch::kFloat64, 1e-13);
  expect_blocks_as_plain(torch::kCPU, torch::kFloat32, 1e-5);
  expect_blocks_as_plain(torch::kCPU, torch::kBFloat16, 5e-2);
}

nn::KernelChoice choice_of(std::int64_t queries, std::int64_t keys, std::int64_t value_size, bool causal,
                           const nn::ByKeyHead& by) {
  const auto some = [](std::int64_t heads, std::int64_t tokens, std::int64_t size) {
    return torch::ones({1, heads, tokens, size}, torch::kFloat64);
  };
  return nn::choose_kernel({some(4, queries, 8), some(2, keys, 8), some(2, keys, value_size), by, 1.0, causal});
}

TEST(AttentionKernels, AreChosenByWhatIsAsked) {
  const nn::ByKeyHead shared({0, 4, 4}, {0, 2, 2});
  const auto full = choice_of(3, 5, 8, false, shared);
  EXPECT_EQ(full.kernel, Kernel::kFlashOfCpu);
  EXPECT_TRUE(full.grouped);  // no KV head is copied
  // Heads 1 to 4 of 6, with three per KV head: a part of the heads of two KV heads.
  const auto apart = choice_of(3, 5, 8, false, nn::ByKeyHead({1, 4, 6}, {0, 2, 2}));
  EXPECT_EQ(apart.kernel, Kernel::kFlashOfCpu);
  EXPECT_FALSE(apart.grouped);
  EXPECT_EQ(choice_of(3, 5, 6, false, shared).kernel, Kernel::kPlain);  // value heads of another size
  EXPECT_EQ(choice_of(3, 5, 8, true, shared).kernel, Kernel::kPlain);   // no diagonal
  EXPECT_EQ(choice_of(3, 3, 8, true, shared).kernel, Kernel::kFlashOfCpu);

  EXPECT_FALSE(nn::needs_plain_products({.causal = true, .window = 3}, false));
  EXPECT_TRUE(nn::needs_plain_products({}, true));
  EXPECT_TRUE(nn::needs_plain_products({.soft_cap = 2}, false));
  for (torch::Tensor nn::AttentionOptions::*part : {&nn::AttentionOptions::slopes, &nn::AttentionOptions::bias}) {
    nn::AttentionOptions options;
    options.*part = torch::ones({4});
    EXPECT_TRUE(nn::needs_plain_products(options, false));
  }
}

// Values of latent attention are narrower than queries.
struct NarrowerValues {
  std::int64_t heads = 3, tokens = 8, size = 12, value = 8;

  torch::Tensor wave(std::int64_t features, double speed) const {
    const torch::Tensor all = torch::sin(torch::arange(heads * tokens * features, torch::kFloat64) * speed);
    return all.view({1, heads, tokens, features}).requires_grad_();
  }
  std::vector<torch::Tensor> inputs() const { return {wave(size, 0.7), wave(size, 1.3), wave(value, 2.1)}; }
  torch::Tensor attention(const std::vector<torch::Tensor>& of, const nn::AttentionOptions& options) const {
    return nn::attention(of[0], of[1], of[2], {0, heads, heads}, {0, heads, heads}, options, nn::DropoutImpl(0));
  }
  // `unseen`: bool [tokens, tokens].
  torch::Tensor products(const std::vector<torch::Tensor>& of, const torch::Tensor& unseen) const {
    const torch::Tensor scores = at::matmul(of[0], of[1].transpose(-2, -1)) / std::sqrt(size);
    return at::matmul(scores.masked_fill(unseen, std::numeric_limits<double>::lowest()).softmax(-1), of[2]);
  }
  void expect_equal(const nn::AttentionOptions& options, const torch::Tensor& unseen) const {
    const auto of = inputs();
    const torch::Tensor got = attention(of, options), want = products(of, unseen);
    EXPECT_TRUE(torch::allclose(got, want, 1e-12, 1e-13));
    const torch::Tensor gradient = torch::cos(wave(value, 0.3)).detach();
    const auto of_got = torch::autograd::grad({got}, of, {gradient});
    const auto of_want = torch::autograd::grad({want}, of, {gradient});
    for (std::size_t i = 0; i < of.size(); ++i) EXPECT_TRUE(torch::allclose(of_got[i], of_want[i], 1e-12, 1e-12)) << i;
  }
};

TEST(AttentionKernels, NarrowerValuesStoreNoScores) {
  const NarrowerValues is{.tokens = 256};
  const auto of = is.inputs();
  const MemoryMeter meter;
  const torch::Tensor out = is.attention(of, {.causal = true});
  EXPECT_LT(meter.bytes(), static_cast<std::int64_t>(sizeof(double)) * is.heads * is.tokens * is.tokens / 2);
  is.expect_equal({.causal = true}, torch::ones({is.tokens, is.tokens}, torch::kBool).triu(1));
}

// The first queries see no key. Their output is the mean
// of all values, without gradients of queries and keys.
TEST(AttentionKernels, QueriesAfterNoKeyHaveTheGradientsOfProducts) {
  for (const std::int64_t value : {NarrowerValues().value, NarrowerValues().size}) {
    const NarrowerValues is{.value = value};
    const torch::Tensor padding = torch::arange(is.tokens) < 3;
    is.expect_equal({.causal = true, .keep = ~padding.unsqueeze(0)},
                    torch::ones({is.tokens, is.tokens}, torch::kBool).triu(1) | padding.unsqueeze(0));
  }
}

// Also a part of the heads that share a KV head. Their gradients are added up.
TEST(AttentionKernels, SharedKeyHeadsGiveTheProductsOfCopies) {
  const auto wave = [](std::int64_t heads, std::int64_t rows, std::int64_t columns) {
    return torch::sin(torch::arange(2 * heads * rows * columns, torch::kFloat64)).view({2, heads, rows, columns});
  };
  for (const auto& [heads, key_heads] : {std::pair<nn::HeadRange, nn::HeadRange>{{0, 6, 6}, {0, 2, 2}},
                                         {{3, 3, 6}, {1, 1, 2}},
                                         {{1, 4, 6}, {0, 2, 2}},
                                         {{2, 2, 6}, {2, 2, 6}}}) {
    const nn::ByKeyHead by(heads, key_heads);
    const torch::Tensor queries = wave(heads.count, 3, 5), keys = wave(key_heads.count, 5, 4),
                        scores = wave(heads.count, 3, 4);
    std::vector<torch::Tensor> copied, sums(key_heads.count);
    for (std::int64_t head = 0; head < heads.count; ++head) {
      const std::int64_t key = (heads.first + head) / (heads.total / key_heads.total) - key_heads.first;
      copied.push_back(at::matmul(queries.select(1, head), keys.select(1, key)));
      const torch::Tensor turned = at::matmul(scores.select(1, head).transpose(-2, -1), queries.select(1, head));
      sums[key] = sums[key].defined() ? sums[key] + turned : turned;
    }
    EXPECT_TRUE(torch::allclose(by.product(queries, keys), torch::stack(copied, 1), 1e-13, 1e-13));
    EXPECT_TRUE(torch::allclose(by.turned_product(scores, queries), torch::stack(sums, 1), 1e-13, 1e-13));
  }
}

}  // namespace
}  // namespace gantry::testing
