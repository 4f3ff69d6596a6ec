// Optimizers with less state than AdamW: Adafactor, AdamW in 8 bits, and AdamW with averages in bfloat16.
#include <cmath>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/core/slice.h"
#include "gantry/optimizers/adafactor.h"
#include "gantry/optimizers/adamw_8bit.h"
#include "gantry/optimizers/adamw_bf16.h"
#include "gantry/optimizers/fused_adamw.h"
#include "gantry/optimizers/random_rounding.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

template <class Options>
std::vector<torch::optim::OptimizerParamGroup> group_of(const torch::Tensor& parameter, const Options& options) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{parameter}, std::make_unique<Options>(options));
  return groups;
}

torch::Tensor gradient_of_step(int step, const Shape& shape) {
  const std::int64_t elements = elements_of(shape);
  return torch::cos(torch::arange(elements, torch::kFloat64) * (0.3 + step)).view(shape) * (step + 1);
}

double largest_difference(const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(Adafactor, StepsMatricesByAveragesOfRowsAndColumns) {
  torch::Tensor matrix = torch::linspace(-1, 1, 12, torch::kFloat64).view({3, 4}).clone().requires_grad_();
  torch::Tensor expected = matrix.detach().clone(), rows = torch::zeros({3}, torch::kFloat64),
                columns = torch::zeros({4}, torch::kFloat64);
  Adafactor optimizer(group_of(matrix, AdafactorOptions(0.1).weight_decay(0.5)));
  for (int step = 1; step <= 3; ++step) {
    const torch::Tensor gradient = gradient_of_step(step, {3, 4});
    matrix.mutable_grad() = gradient.clone();
    optimizer.step();
    const double decay = 1 - std::pow(step, -0.8);
    rows = decay * rows + (1 - decay) * gradient.square().mean(1);
    columns = decay * columns + (1 - decay) * gradient.square().mean(0);
    const torch::Tensor estimate = torch::outer(rows, columns) / rows.mean();
    torch::Tensor change = gradient / estimate.sqrt();
    change = change / std::max(1.0, change.square().mean().sqrt().item<double>());
    expected = expected * (1 - 0.1 * 0.5) - 0.1 * change;
    EXPECT_LE(largest_difference(matrix, expected), 1e-12) << step;
  }
  EXPECT_EQ(optimizer.steps_taken(matrix), 3);
}

TEST(Adafactor, StepsVectorsByTheirSquares) {
  torch::Tensor vector = torch::linspace(-1, 1, 5, torch::kFloat64).requires_grad_();
  torch::Tensor expected = vector.detach().clone(), squares = torch::zeros({5}, torch::kFloat64);
  Adafactor optimizer(group_of(vector, AdafactorOptions(0.1)));
  for (int step = 1; step <= 2; ++step) {
    const torch::Tensor gradient = gradient_of_step(step, {5});
    vector.mutable_grad() = gradient.clone();
    optimizer.step();
    const double decay = 1 - std::pow(step, -0.8);
    squares = decay * squares + (1 - decay) * gradient.square();
    torch::Tensor change = gradient / squares.sqrt();
    change = change / std::max(1.0, change.square().mean().sqrt().item<double>());
    expected = expected - 0.1 * change;
    EXPECT_LE(largest_difference(vector, expected), 1e-12) << step;
  }
}

TEST(Adafactor, EachMatrixOfAStackStepsByItself) {
  const torch::Tensor start = torch::linspace(-1, 1, 24, torch::kFloat64).view({2, 3, 4});
  torch::Tensor stack = start.clone().requires_grad_(), second = start[1].clone().requires_grad_();
  Adafactor of_stack(group_of(stack, AdafactorOptions(0.1))), of_second(group_of(second, AdafactorOptions(0.1)));
  for (int step = 1; step <= 2; ++step) {
    const torch::Tensor gradient = gradient_of_step(step, {2, 3, 4});
    stack.mutable_grad() = gradient.clone();
    second.mutable_grad() = gradient[1].clone();
    of_stack.step();
    of_second.step();
  }
  EXPECT_LE(largest_difference(stack[1], second), 1e-14);
}

// The first step sees no encoded averages. Later ones differ by the rounding of codes.
TEST(AdamW8bit, IsNearAdamW) {
  const torch::Tensor start = torch::linspace(-1, 1, 3 * 300, torch::kFloat64).view({3, 300});
  torch::Tensor coded = start.clone().requires_grad_(), full = start.clone().requires_grad_();
  AdamW8bit eight(group_of(coded, AdamW8bitOptions(0.01).weight_decay(0.1)));
  FusedAdamW adamw({full}, torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  for (int step = 0; step < 20; ++step) {
    coded.mutable_grad() = gradient_of_step(step, {3, 300});
    full.mutable_grad() = coded.grad().clone();
    eight.step();
    adamw.step();
    if (step == 0) EXPECT_LE(largest_difference(coded, full), 1e-12);
  }
  const double moved = largest_difference(full, start), apart = largest_difference(coded, full);
  EXPECT_GT(apart, 0);
  EXPECT_LE(apart, 0.1 * moved);
}

TEST(AdamW8bit, AveragesOfACheckpointGiveTheSameCodes) {
  torch::Tensor kept = torch::linspace(-1, 1, 2 * 260, torch::kFloat32).view({2, 260}).clone().requires_grad_();
  AdamW8bit first(group_of(kept, AdamW8bitOptions(0.01)));
  const auto step = [&](AdamW8bit& optimizer, torch::Tensor& parameter, int number) {
    parameter.mutable_grad() = gradient_of_step(number, {2, 260}).to(torch::kFloat32);
    optimizer.step();
  };
  for (int number = 0; number < 3; ++number) step(first, kept, number);
  torch::Tensor loaded = kept.detach().clone().requires_grad_();
  AdamW8bit second(group_of(loaded, AdamW8bitOptions(0.01)));
  const NamedTensors saved = optimizer_tensors(first, kept), into = optimizer_tensors(second, loaded);
  ASSERT_EQ(saved.size(), into.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    torch::Tensor target = into[i].second;
    target.copy_(saved[i].second);
  }
  set_optimizer_steps(second, loaded, 3);
  for (int number = 3; number < 6; ++number) {
    step(first, kept, number);
    step(second, loaded, number);
    EXPECT_TRUE(torch::equal(kept, loaded)) << number;
  }
}

TEST(RandomRounding, KeepsTheMean) {
  constexpr std::int64_t kValues = 20000;
  const torch::Tensor hashes = element_hashes(gradient_of_step(1, {kValues}), torch::linspace(-1, 1, kValues), 7);
  for (const double share : {0.0, 0.1, 0.5, 0.9})
    for (const double unit : {1.0, -1.0, 1e-20}) {
      // Numbers of bfloat16 from 1 to 2 have a distance of 2^-7.
      const double value = unit * (1 + (3 + share) / 128);
      const torch::Tensor values = torch::full({kValues}, value, torch::kFloat32);
      const torch::Tensor rounded = randomly_rounded(values, hashes).to(torch::kFloat64);
      EXPECT_NEAR((rounded.mean().item<double>() / unit - 1) * 128 - 3, share, 0.03) << value;
      EXPECT_LE((rounded - value).abs().max().item<double>(), std::abs(unit) / 128);
    }
}

TEST(RandomRounding, NumbersOfBfloat16AreUnchanged) {
  const torch::Tensor numbers =
      torch::cat({gradient_of_step(2, {1000}), torch::tensor({0.0, -0.0, 1e38, HUGE_VAL, -HUGE_VAL}, torch::kFloat64)})
          .to(torch::kBFloat16);
  const torch::Tensor hashes = element_hashes(numbers, torch::linspace(-1, 1, numbers.numel()), 3);
  for (const auto type : {torch::kBFloat16, torch::kFloat32, torch::kFloat64})
    EXPECT_TRUE(torch::equal(randomly_rounded(numbers.to(type), hashes), numbers));
}

// Constant gradients: the second average rises towards 1 in ever smaller steps. Rounded to the nearest number, it would
// stop at 0.33, where a step is half of the distance to the next number.
TEST(AdamWBf16, AveragesReachTheirLimit) {
  torch::Tensor parameter = torch::linspace(-1, 1, 2000).requires_grad_();
  AdamWBf16 optimizer({parameter}, torch::optim::AdamWOptions(0.0));
  for (int step = 0; step < 3000; ++step) {
    parameter.mutable_grad() = 1 + 0.01 * gradient_of_step(step % 7, {2000}).to(torch::kFloat32) / 7;
    optimizer.step();
  }
  const double expected = 1 - std::pow(0.999, 3000);
  const torch::Tensor squares = optimizer.state_tensors(parameter)[1].second;
  EXPECT_EQ(squares.scalar_type(), torch::kBFloat16);
  EXPECT_NEAR(squares.to(torch::kFloat64).mean().item<double>(), expected, 0.01);
}

TEST(AdamWBf16, IsNearAdamW) {
  const torch::Tensor start = torch::linspace(-1, 1, 900, torch::kFloat64).view({3, 300});
  torch::Tensor rounded = start.clone().requires_grad_(), full = start.clone().requires_grad_();
  AdamWBf16 optimizer({rounded}, torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  FusedAdamW adamw({full}, torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  for (int step = 0; step < 20; ++step) {
    rounded.mutable_grad() = gradient_of_step(step, {3, 300});
    full.mutable_grad() = rounded.grad().clone();
    optimizer.step();
    adamw.step();
    if (step == 0) EXPECT_LE(largest_difference(rounded, full), 1e-12);
  }
  const double moved = largest_difference(full, start), apart = largest_difference(rounded, full);
  EXPECT_GT(apart, 0);
  EXPECT_LE(apart, 0.05 * moved);
}

TEST(AdamWBf16, StepsParametersInBfloat16) {
  const torch::Tensor start = torch::linspace(-1, 1, 300).to(torch::kBFloat16);
  torch::Tensor low = start.clone().requires_grad_(), full = start.to(torch::kFloat32).requires_grad_();
  AdamWBf16 of_low({low}, torch::optim::AdamWOptions(0.1)), of_full({full}, torch::optim::AdamWOptions(0.1));
  for (int step = 0; step < 5; ++step) {
    full.mutable_grad() = gradient_of_step(step, {300}).to(torch::kFloat32);
    low.mutable_grad() = full.grad().to(torch::kBFloat16);
    of_low.step();
    of_full.step();
  }
  EXPECT_EQ(of_low.state_tensors(low)[0].second.scalar_type(), torch::kBFloat16);
  EXPECT_LE(largest_difference(low.to(torch::kFloat32), full),
            0.1 * largest_difference(full, start.to(torch::kFloat32)));
}

// Shards have the bits of the full parameter, and so has a run that continues from the saved state.
TEST(AdamWBf16, PartsAndResumedRunsHaveTheSameBits) {
  torch::Tensor full = torch::linspace(-1, 1, 700).requires_grad_();
  torch::Tensor head = full.detach().narrow(0, 0, 300).clone().requires_grad_(),
                rest = full.detach().narrow(0, 300, 400).clone().requires_grad_();
  AdamWBf16 of_full({full}), of_parts({head, rest});
  const auto step = [](AdamWBf16& optimizer, torch::Tensor& parameter, int number, std::int64_t begin) {
    parameter.mutable_grad() =
        gradient_of_step(number, {700}).to(torch::kFloat32).narrow(0, begin, parameter.numel()).clone();
    optimizer.step();
    parameter.mutable_grad().reset();
  };
  for (int number = 0; number < 4; ++number) {
    step(of_full, full, number, 0);
    step(of_parts, head, number, 0);
    step(of_parts, rest, number, 300);
  }
  EXPECT_TRUE(torch::equal(full, torch::cat({head, rest})));

  torch::Tensor resumed = full.detach().clone().requires_grad_();
  AdamWBf16 second({resumed});
  for (std::size_t i = 0; i < 2; ++i)
    torch::Tensor(optimizer_tensors(second, resumed)[i].second).copy_(optimizer_tensors(of_full, full)[i].second);
  set_optimizer_steps(second, resumed, *optimizer_steps(of_full, full));
  for (int number = 4; number < 8; ++number) {
    step(of_full, full, number, 0);
    step(second, resumed, number, 0);
    EXPECT_TRUE(torch::equal(full, resumed)) << number;
  }
}

TEST(SmallState, RefusesOptionsOfAnotherClass) {
  const torch::Tensor parameter = torch::ones({2, 2});
  EXPECT_THROW(Adafactor(group_of(parameter, AdamW8bitOptions(0.1))), UsageError);
  EXPECT_THROW(AdamW8bit(group_of(parameter, torch::optim::SGDOptions(0.1))), UsageError);
  EXPECT_THROW(AdamWBf16({parameter}, torch::optim::AdamWOptions(0.1).amsgrad(true)), UsageError);
}

}  // namespace
}  // namespace gantry::testing
