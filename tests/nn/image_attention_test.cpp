// Attention of the tokens of images, also within a window and after cached tokens, compared with a dense mask.
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "gantry/nn/attention.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

// Two samples, of which each has an image that is longer than the windows of the tests.
struct TokensOfImages {
  std::vector<std::vector<std::int64_t>> images = {{0, 1, 1, 1, 1, 1, 1, 0, 2, 2, 2, 0},
                                                   {3, 3, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4}};
  std::int64_t heads = 2, tokens = 12, size = 4;

  torch::Tensor wave(std::int64_t of_heads, double speed) const {
    const torch::Tensor all = torch::sin(torch::arange(2 * of_heads * tokens * size, torch::kFloat64) * speed);
    return all.view({2, of_heads, tokens, size});
  }
  torch::Tensor query() const { return wave(heads, 0.7); }
  torch::Tensor key() const { return wave(1, 1.3); }
  torch::Tensor value() const { return wave(1, 2.1); }

  nn::AttentionOptions options(std::int64_t window, std::int64_t last) const {
    torch::Tensor numbers = torch::empty({2, last}, torch::kInt64);
    for (std::int64_t sample = 0; sample < 2; ++sample)
      numbers[sample] = torch::tensor(images[static_cast<std::size_t>(sample)]).narrow(0, 0, last);
    nn::AttentionOptions options{.causal = true, .window = window};
    options.images = numbers;
    return options;
  }
  // bool [samples, 1, tokens, tokens]: the key is in the window, and not after the query unless it is of its image.
  torch::Tensor seen(std::int64_t window) const {
    torch::Tensor all = torch::zeros({2, 1, tokens, tokens}, torch::kBool);
    for (std::int64_t sample = 0; sample < 2; ++sample) {
      const auto& of = images[static_cast<std::size_t>(sample)];
      for (std::int64_t i = 0; i < tokens; ++i)
        for (std::int64_t j = 0; j < tokens; ++j) {
          const auto own = of[static_cast<std::size_t>(i)], other = of[static_cast<std::size_t>(j)];
          all[sample][0][i][j] = (window == 0 || j > i - window) && (j <= i || (own > 0 && own == other));
        }
    }
    return all;
  }
  // The results of all tokens.
  torch::Tensor expected(std::int64_t window) const {
    const torch::Tensor scores = at::matmul(query(), key().transpose(-2, -1)) / std::sqrt(static_cast<double>(size));
    return at::matmul(scores.masked_fill(~seen(window), -INFINITY).softmax(-1), value());
  }
  torch::Tensor attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                          const nn::AttentionOptions& options) const {
    return nn::attention(q, k, v, {0, heads, heads}, {0, 1, 1}, options, nn::DropoutImpl(0));
  }
};

constexpr std::int64_t kWindows[] = {0, 1, 3, 4, 7, 11, 12, 20};

TEST(ImageAttention, IsThatOfADenseMask) {
  const TokensOfImages is;
  for (const std::int64_t window : kWindows) {
    nn::AttentionOptions options = is.options(window, is.tokens);
    const torch::Tensor expected = is.expected(window);
    EXPECT_TRUE(torch::allclose(is.attention(is.query(), is.key(), is.value(), options), expected, 1e-12, 1e-13))
        << window;
    options.soft_cap = 1e6;  // plain products; the cap changes no score by more than rounding
    EXPECT_TRUE(torch::allclose(is.attention(is.query(), is.key(), is.value(), options), expected, 1e-9, 1e-9))
        << window;
  }
}

// The last tokens alone, also from the middle of an image on.
TEST(ImageAttention, FewerQueriesThanKeysHaveTheSameRows) {
  const TokensOfImages is;
  for (const std::int64_t window : kWindows)
    for (const std::int64_t queries : {11, 8, 5, 1}) {
      const torch::Tensor last = is.query().narrow(2, is.tokens - queries, queries);
      const torch::Tensor got = is.attention(last, is.key(), is.value(), is.options(window, is.tokens));
      EXPECT_TRUE(torch::allclose(got, is.expected(window).narrow(2, is.tokens - queries, queries), 1e-12, 1e-13))
          << window << " " << queries;
    }
}

// Each image is within the tokens of one call.
TEST(ImageAttention, CachedKeysHaveTheSameRows) {
  TokensOfImages is;
  is.images = {{0, 1, 1, 1, 0, 2, 2, 2, 2, 2, 2, 0}, {3, 3, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4}};
  const torch::NoGradGuard no_gradients;
  for (const std::int64_t window : kWindows) {
    nn::KeyValueCache cache;
    std::vector<torch::Tensor> made;
    std::int64_t first = 0;
    for (const std::int64_t count : {5, 7}) {
      const auto part = [&](const torch::Tensor& of) { return of.narrow(2, first, count); };
      nn::AttentionOptions options = is.options(window, first + count);
      options.cache = &cache;
      made.push_back(is.attention(part(is.query()), part(is.key()), part(is.value()), options));
      first += count;
    }
    EXPECT_TRUE(torch::allclose(torch::cat(made, 2), is.expected(window), 1e-12, 1e-13)) << window;
  }
}

}  // namespace
}  // namespace gantry::testing
