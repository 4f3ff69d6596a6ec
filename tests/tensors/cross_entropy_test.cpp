// The passes of the cross entropy. The CPU computes them by blocks of rows without a copy of the logits, with
// the results of a device's threads.
#include "gantry/tensors/kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include "gantry/tensors/kernels/cross_entropy_row.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"

namespace gantry::kernels {
namespace {

constexpr std::int64_t kRows = 7, kColumns = 130, kWidth = 128;  // two columns of padding
constexpr int kThreads = 32;

torch::Tensor logits_of(torch::ScalarType type) {
  return (torch::arange(kRows * kColumns, torch::kFloat64) * 0.7).sin().mul_(5).view({kRows, kColumns}).to(type);
}

const torch::Tensor kLabels = torch::tensor({0, 127, -1, 5, 64, -1, 3}, torch::kInt64);

// Computes a row with threads that each take every kThreads-th column, like a device.
template <class T, class A>
void expect_as_threads(torch::ScalarType type, double near) {
  const torch::Tensor logits = logits_of(type);
  const torch::Tensor largest = row_maximum(logits, kWidth), sums = row_sums(logits, kWidth, largest, kLabels, true);
  LossGradient terms{.width = kWidth, .largest = largest, .total = sums[0], .labels = kLabels};
  terms.weight = torch::arange(kRows, largest.scalar_type()) + 1;
  terms.scale = torch::tensor({1, 2, 0, 1, 1, 1, 3}, largest.scalar_type());
  terms.of_label = 0.9;
  terms.of_all = 0.1 / kWidth;
  const torch::Tensor gradient = loss_gradient(logits, terms);
  EXPECT_EQ(gradient.scalar_type(), type);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const T* const begin = logits.const_data_ptr<T>() + row * kColumns;
    const auto label = kLabels[row].item<std::int64_t>();
    A found = row_maximum<A>(begin, kWidth, 0, kThreads);
    for (int thread = 1; thread < kThreads; ++thread)
      found = larger(found, row_maximum<A>(begin, kWidth, thread, kThreads));
    EXPECT_EQ(found, largest[row].item<A>());
    RowSums<A> all;
    for (int thread = 0; thread < kThreads; ++thread) {
      const RowSums<A> part = row_sums<A>(begin, kWidth, thread, kThreads, found, label);
      all = {all.exponentials + part.exponentials, all.label + part.label, all.all + part.all};
    }
    EXPECT_NEAR(all.exponentials, sums[0][row].item<A>(), near);
    EXPECT_EQ(all.label, sums[1][row].item<A>());
    EXPECT_NEAR(all.all, sums[2][row].item<A>(), 1e3 * near);
    const RowGradient<A> of_row{found,  sums[0][row].item<A>(), terms.weight[row].item<A>(),
                                A(0.9), A(0.1 / kWidth),        terms.scale[row].item<A>(),
                                label};
    for (std::int64_t column = 0; column < kWidth; ++column)
      EXPECT_NEAR(gradient_of(static_cast<A>(begin[column]), column, of_row), gradient[row][column].item<A>(),
                  type == torch::kBFloat16 ? 0.02 : near);
    EXPECT_EQ(gradient[row].narrow(0, kWidth, kColumns - kWidth).abs().max().item<A>(), 0);
  }
}

TEST(CrossEntropyKernels, TheCpusAreWhatADevicesThreadsGive) {
  expect_as_threads<double, double>(torch::kFloat64, 1e-13);
  expect_as_threads<float, float>(torch::kFloat32, 2e-5);
  expect_as_threads<c10::BFloat16, float>(torch::kBFloat16, 2e-5);
}

TEST(CrossEntropyKernels, ANanStays) {
  torch::Tensor logits = logits_of(torch::kFloat32);
  logits[1][70] = std::nan("");
  EXPECT_TRUE(std::isnan(row_maximum(logits, kWidth)[1].item<float>()));
  const float* const row = logits.const_data_ptr<float>() + kColumns;
  EXPECT_TRUE(std::isnan(larger(row_maximum<float>(row, kWidth, 6, 64), 1.0F)));
  EXPECT_TRUE(std::isnan(larger(1.0F, row_maximum<float>(row, kWidth, 6, 64))));
}

TEST(CrossEntropyKernels, NoColumnsOfARankCountNothing) {
  const torch::Tensor logits = logits_of(torch::kFloat32), largest = row_maximum(logits, 0);
  EXPECT_TRUE((largest == -std::numeric_limits<float>::infinity()).all().item<bool>());
  EXPECT_TRUE((row_sums(logits, 0, torch::zeros({kRows}), kLabels.clamp_max(-1), true) == 0).all().item<bool>());
}

// The logits have 16 MB in bfloat16. A copy in float32 would have 32 MB.
TEST(CrossEntropyKernels, HoldNoCopyOfTheLogits) {
  const torch::Tensor logits = torch::zeros({1000, 8000}, torch::kBFloat16);
  const torch::Tensor labels = torch::zeros({1000}, torch::kInt64);
  const MemoryMeter meter;
  const torch::Tensor largest = row_maximum(logits, 8000), sums = row_sums(logits, 8000, largest, labels, false);
  EXPECT_LT(meter.peak_bytes(), 8 << 20);
  const torch::Tensor gradient = loss_gradient(
      logits, {.width = 8000, .largest = largest, .total = sums[0], .labels = labels, .scale = torch::ones({1000})});
  EXPECT_LT(meter.peak_bytes(), static_cast<std::int64_t>(gradient.nbytes()) + (8 << 20));
}

}  // namespace
}  // namespace gantry::kernels
