// Matrix multiplications of experts, grouped or one by one: the choice, and that both give the same numbers.
#include "gantry/nn/grouped_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/nn/grouped_linear.h"
#include "gantry/tensors/libtorch.h"
#include "sines.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nn::GroupedProducts;
using ::testing::HasSubstr;

TEST(GroupedProducts, GoAtOnceWhereLibTorchHasAKernel) {
  const nn::GroupedOperands chosen{.device = torch::kCUDA, .type = torch::kBFloat16, .in = 64, .out = 24};
  EXPECT_EQ(nn::choose_products(chosen), GroupedProducts::kAtOnce);
  std::vector<nn::GroupedOperands> others(7, chosen);
  others[0].device = torch::kCPU;
  others[1].device = torch::kPrivateUse1;
  others[2].type = torch::kFloat;
  others[3].type = torch::kDouble;
  others[4].in = 63;
  others[5].out = 12;  // 24 bytes
  others[6].aligned = false;
  for (std::size_t i = 0; i < others.size(); ++i)
    EXPECT_EQ(nn::choose_products(others[i]), GroupedProducts::kByExpert) << i;
}

TEST(GroupedProducts, AreRefusedAtOnceByName) {
  const auto refusal = [](torch::ScalarType type, std::int64_t in) -> std::string {
    return thrown_by<InternalError>([&] {
      nn::grouped_linear(torch::ones({3, in}, type), {torch::ones({2, 8, in}, type), {}}, {1, 2},
                         GroupedProducts::kAtOnce);
    });
  };
  EXPECT_THAT(refusal(torch::kDouble, 8),
              HasSubstr("multiply Double matrices of 8 by 8; expected bfloat16, float16 or float32"));
  EXPECT_THAT(refusal(torch::kFloat, 6), HasSubstr("multiply Float matrices of 6 by 8"));
  EXPECT_EQ(refusal(torch::kFloat, 8), "no error");
}

struct ProductCase {
  std::vector<std::int64_t> counts;
  bool input_is_first = false, bias = false, leaf = true;
};

struct ProductOutcome {
  torch::Tensor output, input, weight, bias;  // the last three: also their gradients
};

torch::Tensor product_wave(const std::vector<std::int64_t>& shape, double step) {
  return sines(shape, step).to(torch::kFloat);
}

// Runs twice, so that gradients accumulate as for two microbatches.
ProductOutcome products_of(const ProductCase& how, GroupedProducts products) {
  constexpr std::int64_t kIn = 8, kOut = 12;
  const auto experts = static_cast<std::int64_t>(how.counts.size());
  std::int64_t rows = 0;
  for (const auto count : how.counts) rows += count;
  const torch::Tensor input = product_wave({rows, kIn}, 1.3).requires_grad_();
  const torch::Tensor weight = product_wave(how.input_is_first ? std::vector<std::int64_t>{experts, kIn, kOut}
                                                               : std::vector<std::int64_t>{experts, kOut, kIn},
                                            0.7)
                                   .requires_grad_();
  const torch::Tensor bias = product_wave({experts, kOut}, 0.3).requires_grad_();
  ProductOutcome outcome;
  for (int time = 0; time < 2; ++time) {
    const torch::Tensor used = how.leaf ? weight : weight * 1;
    outcome.output =
        nn::grouped_linear(input, {used, how.bias ? bias : torch::Tensor(), how.input_is_first}, how.counts, products);
    (outcome.output * product_wave({rows, kOut}, 0.9)).sum().backward();
  }
  outcome.input = input.grad();
  outcome.weight = weight.grad();
  outcome.bias = bias.grad();
  return outcome;
}

void expect_near(const torch::Tensor& one, const torch::Tensor& other, const char* what) {
  ASSERT_EQ(one.defined(), other.defined()) << what;
  if (!one.defined() || one.numel() == 0) return;
  ASSERT_EQ(one.sizes(), other.sizes()) << what;
  EXPECT_LE((one - other).abs().max().item<double>(), 1e-6 * std::max(1.0, other.abs().max().item<double>())) << what;
}

TEST(GroupedProducts, AtOnceAreThoseOneByOne) {
  for (const std::vector<std::int64_t>& counts :
       {std::vector<std::int64_t>{3, 0, 5, 2}, {0, 10, 0}, {7, 0, 0}, {0, 0, 1}, {0, 0, 0}, {4}})
    for (const bool input_is_first : {false, true})
      for (const bool bias : {false, true})
        for (const bool leaf : {false, true}) {
          SCOPED_TRACE(::testing::PrintToString(counts) + (input_is_first ? " input first" : "") +
                       (bias ? " bias" : "") + (leaf ? " leaf" : ""));
          const ProductCase how{counts, input_is_first, bias, leaf};
          const ProductOutcome one = products_of(how, GroupedProducts::kByExpert),
                               other = products_of(how, GroupedProducts::kAtOnce);
          expect_near(other.output, one.output, "output");
          expect_near(other.input, one.input, "input");
          expect_near(other.weight, one.weight, "weight");
          expect_near(other.bias, one.bias, "bias");
          for (std::size_t expert = 0; expert < counts.size(); ++expert)
            if (counts[expert] == 0)
              EXPECT_EQ(other.weight[static_cast<std::int64_t>(expert)].abs().max().item<double>(), 0) << expert;
        }
}

// Gradients of a wider type accumulate products of bfloat16.
TEST(GroupedProducts, AddIntoWiderGradients) {
  const torch::Tensor a = product_wave({6, 8}, 1.3).to(torch::kBFloat16),
                      b = product_wave({6, 16}, 0.7).to(a.options());
  torch::Tensor sums[2];
  for (const auto how : {GroupedProducts::kByExpert, GroupedProducts::kAtOnce}) {
    torch::Tensor& into = sums[how == GroupedProducts::kAtOnce] = torch::ones({3, 8, 16});
    nn::add_rows_by_rows(into, a, b, nn::expert_rows({2, 0, 4}, how, torch::kCPU));
  }
  EXPECT_LE((sums[0] - sums[1]).abs().max().item<double>(), 1e-6);
  EXPECT_TRUE(sums[1][1].eq(1).all().item<bool>());
}

}  // namespace
}  // namespace gantry::testing
