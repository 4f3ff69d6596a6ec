// Gantry's operators on a device. Random numbers, row additions and reductions over ranks are bitwise
// identical to the CPU's, and other results are close. Repeated calls are bitwise identical. Also checks
// attention kernels of LibTorch.
#include <gtest/gtest.h>

#include "attention_blocks.h"
#include "checked_device.h"
#include "gantry/comm/device_sum.h"
#include "gantry/nn/cross_entropy.h"
#include "gantry/nn/linear_function.h"
#include "gantry/nn/mixers/causal_convolution.h"
#include "gantry/nn/mixers/kimi_delta.h"
#include "gantry/nn/mixers/rg_lru.h"
#include "gantry/nn/mixers/selective_scan.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/kernels/add_rows.h"
#include "gantry/tensors/kernels/draw.h"
#include "gantry/tensors/kernels/gated.h"
#include "gantry/tensors/kernels/rotate.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/sent_ahead.h"

namespace gantry::testing {
namespace {

torch::Device checked_device() { return is_rehearsal() ? torch::Device(torch::kCPU) : torch::Device(torch::kCUDA, 0); }

TEST(DeviceKernels, RandomNumbersHaveTheCpusBits) {
  using kernels::Law;
  const std::vector<kernels::Drawn> laws = {{Law::kNormal, 0, 0.02, 3, 4},
                                            {Law::kUniform, -2, 5, 3, 4},
                                            {Law::kBernoulli, 0.3, 0, ~0ull, 1ull << 63},
                                            {Law::kMask, 0.25, 1 / 0.75, 3, 4}};
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16})
    for (const auto& drawn : laws) {
      torch::Tensor here = torch::zeros({1000, 1001}, type), there = here.to(checked_device());
      // A part of a matrix with twice as many rows: the middle columns of its lower half.
      for (torch::Tensor* all : {&here, &there})
        kernels::draw(all->narrow(1, 3, 990), drawn, 1000 * 1001 + 3, {1001, 1});
      EXPECT_TRUE(torch::equal(there.cpu(), here)) << "law " << static_cast<int>(drawn.law) << " " << type;
    }
}

std::vector<torch::Tensor> loss_on(torch::Device device, torch::ScalarType type) {
  torch::Tensor logits = (torch::arange(300 * 5003, torch::kFloat64) * 0.37).sin().mul_(6).view({300, 5003});
  logits = logits.to(device, type).requires_grad_();
  torch::Tensor labels = torch::arange(300, torch::kInt64) * 16;
  labels.narrow(0, 10, 5).fill_(-100);
  const Loss loss =
      nn::cross_entropy(logits, labels.to(device), {.label_smoothing = 0.1, .z_loss = 1e-3, .vocabulary = 5000});
  loss.sum.backward();
  return {loss.sum.detach().cpu(), logits.grad().cpu()};
}

TEST(DeviceKernels, CrossEntropyIsTheCpus) {
  for (const auto& [type, near] :
       {std::pair{torch::kFloat64, 1e-11}, std::pair{torch::kFloat32, 1e-4}, std::pair{torch::kBFloat16, 1e-2}}) {
    const auto here = loss_on(torch::kCPU, type), there = loss_on(checked_device(), type);
    const auto again = loss_on(checked_device(), type);
    for (std::size_t i = 0; i < here.size(); ++i) {
      EXPECT_TRUE(torch::allclose(there[i], here[i], near, near)) << i << " " << type;
      EXPECT_TRUE(torch::equal(there[i], again[i])) << i << " " << type;
    }
  }
}

TEST(DeviceKernels, RowsAreAddedWithTheCpusBits) {
  const torch::Tensor index = (torch::arange(5000, torch::kInt64) * 7919) % 300;
  for (const auto& [of_table, of_rows] :
       {std::pair{torch::kFloat64, torch::kFloat64}, std::pair{torch::kFloat32, torch::kFloat32},
        std::pair{torch::kFloat32, torch::kBFloat16}, std::pair{torch::kBFloat16, torch::kBFloat16},
        std::pair{torch::kFloat16, torch::kFloat16}}) {
    const torch::Tensor rows = (torch::arange(5000 * 301, torch::kFloat64) * 0.7).sin().view({5000, 301}).to(of_rows);
    torch::Tensor here = torch::ones({311, 301}, of_table), there = here.to(checked_device()).clone();
    kernels::add_rows(here, index, rows);
    kernels::add_rows(there, index.to(checked_device()), rows.to(checked_device()));
    EXPECT_TRUE(torch::equal(there.cpu(), here)) << of_table << " " << of_rows;
  }
}

struct OperatorInputs {
  std::vector<torch::Tensor> tensors;  // with gradients
  torch::Tensor documents;
};

// The same numbers on each device. Documents have 19 tokens, and in the second row the first one began
// earlier.
OperatorInputs operator_inputs(const std::vector<std::vector<std::int64_t>>& shapes, torch::ScalarType type,
                               torch::Device device) {
  OperatorInputs made;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::int64_t count = torch::empty(shapes[i], torch::kMeta).numel();
    const torch::Tensor numbers = (torch::arange(count, torch::kFloat64) * (0.7 + 0.1 * static_cast<double>(i))).sin();
    made.tensors.push_back(numbers.view(shapes[i]).to(device, type).requires_grad_());
  }
  const torch::Tensor places = torch::arange(shapes[0][1]).unsqueeze(0) + torch::tensor({{0}, {4}});
  made.documents = torch::floor_divide(places, 19).to(device);
  return made;
}

// Returns the results and the gradients of their weighted sum, on the host.
std::vector<torch::Tensor> with_gradients(std::vector<torch::Tensor> results, const OperatorInputs& of) {
  torch::Tensor loss = torch::zeros({}, results[0].options().dtype(torch::kFloat32));
  for (const torch::Tensor& result : results) {
    const torch::Tensor weights = torch::arange(result.numel(), torch::kFloat32).mul(0.3).sin().view(result.sizes());
    loss = loss + (result * weights.to(result.device())).sum();
  }
  for (const torch::Tensor& gradient : torch::autograd::grad({loss}, of.tensors)) results.push_back(gradient);
  for (torch::Tensor& result : results) result = result.detach().cpu();
  return results;
}

using ResultsOn = std::function<std::vector<torch::Tensor>(torch::Device, torch::ScalarType)>;

void expect_as_on_cpu(const ResultsOn& results_on) {
  for (const auto& [type, near] :
       {std::pair{torch::kFloat64, 1e-10}, std::pair{torch::kFloat32, 1e-4}, std::pair{torch::kBFloat16, 2e-2}}) {
    const auto here = results_on(torch::kCPU, type), there = results_on(checked_device(), type);
    const auto again = results_on(checked_device(), type);
    for (std::size_t i = 0; i < here.size(); ++i) {
      const double off = (there[i] - here[i]).to(torch::kFloat64).abs().max().item<double>();
      EXPECT_LE(off, near * std::max(1.0, here[i].abs().max().item<double>())) << i << " " << type;
      EXPECT_TRUE(torch::equal(there[i], again[i])) << i << " " << type;
    }
  }
}

// Numbers of channels and states that are not multiples of a block.
TEST(DeviceKernels, SelectiveScanIsTheCpus) {
  expect_as_on_cpu([](torch::Device device, torch::ScalarType type) {
    const OperatorInputs of = operator_inputs(
        {{2, 150, 70}, {2, 150, 70}, {70, 20}, {2, 150, 20}, {2, 150, 20}, {70}, {2, 70, 20}}, type, device);
    const auto& [x, dt, a, b, c, d, state] = std::tie(of.tensors[0], of.tensors[1], of.tensors[2], of.tensors[3],
                                                      of.tensors[4], of.tensors[5], of.tensors[6]);
    const auto made = nn::selective_scan({x, torch::softplus(dt), -torch::exp(a), b, c, d}, state, of.documents);
    return with_gradients({made.out, made.state}, of);
  });
}

TEST(DeviceKernels, CausalConvolutionIsTheCpus) {
  expect_as_on_cpu([](torch::Device device, torch::ScalarType type) {
    const OperatorInputs of = operator_inputs({{2, 150, 70}, {70, 4}, {70}, {2, 70, 3}}, type, device);
    const auto made = nn::causal_convolution(
        of.tensors[0], {.weight = of.tensors[1], .bias = of.tensors[2], .silu = true}, of.tensors[3], of.documents);
    return with_gradients({made.out, made.state}, of);
  });
}

TEST(DeviceKernels, KimiDeltaAttentionIsTheCpus) {
  expect_as_on_cpu([](torch::Device device, torch::ScalarType type) {
    const OperatorInputs of = operator_inputs(
        {{2, 150, 3, 24}, {2, 150, 3, 24}, {2, 150, 3, 40}, {2, 150, 3, 24}, {2, 150, 3}, {2, 3, 24, 40}}, type,
        device);
    const auto made = nn::kimi_delta({.query = of.tensors[0],
                                      .key = of.tensors[1],
                                      .value = of.tensors[2],
                                      .decay = -torch::softplus(of.tensors[3]),
                                      .beta = torch::sigmoid(of.tensors[4])},
                                     of.tensors[5], of.documents);
    return with_gradients({made.out, made.state}, of);
  });
}

TEST(DeviceKernels, GatedRecurrenceIsTheCpus) {
  expect_as_on_cpu([](torch::Device device, torch::ScalarType type) {
    const OperatorInputs of = operator_inputs({{2, 150, 70}, {2, 150, 70}, {2, 150, 70}, {70}, {2, 70}}, type, device);
    const torch::Tensor starts = torch::constant_pad_nd(of.documents.diff(1, 1), {1, 0}).ne(0);
    const auto made = nn::rg_lru({.x = of.tensors[0],
                                  .input_gate = of.tensors[1],
                                  .recurrent_gate = of.tensors[2],
                                  .rate = of.tensors[3],
                                  .starts = starts},
                                 of.tensors[4]);
    return with_gradients({made.out, made.state}, of);
  });
}

// Also with more terms than one launch adds.
TEST(DeviceKernels, SumsOverRanksHaveTheCpusBits) {
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16, torch::kInt64,
                          torch::kInt32, torch::kUInt8})
    for (const int ranks : {2, 5, 70})
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
        std::vector<torch::Tensor> here, there;
        for (int rank = 0; rank < ranks; ++rank) {
          const torch::Tensor term = (torch::arange(30001, torch::kFloat64) * (0.7 + 0.1 * rank)).sin().abs() * 100;
          here.push_back(term.to(type));
          there.push_back(here.back().to(checked_device()).clone());
        }
        reduce_by_rank(here[1], here, op);
        reduce_by_rank(there[1], there, op);
        EXPECT_TRUE(torch::equal(there[1].cpu(), here[1])) << type << " " << ranks << " " << name_of(op);
      }
}

double largest_difference(const torch::Tensor& there, const torch::Tensor& here) {
  const torch::Tensor expected = here.to(torch::kFloat64);
  return (there.cpu().to(torch::kFloat64) - expected).abs().max().item<double>() / expected.abs().max().item<double>();
}

double tolerance_of(torch::ScalarType type) {
  if (type == torch::kFloat64) return 1e-13;
  if (type == torch::kFloat32) return 2e-6;
  return type == torch::kBFloat16 ? 1e-2 : 2e-3;
}

torch::Tensor waves(const std::vector<std::int64_t>& shape, double step, torch::ScalarType type) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return (torch::arange(count, torch::kFloat64) * step).sin().mul_(3).view(shape).to(type);
}

// Heads of a projection. One size is a multiple of 16 bytes in every type, the other is not. Features after
// the rotated pairs are copied.
TEST(DeviceKernels, RotationsAreTheCpus) {
  using kernels::PairOrder, kernels::Turn;
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16})
    for (const auto& [size, pairs] : {std::pair<std::int64_t, std::int64_t>{64, 32}, {64, 16}, {14, 5}})
      for (const bool by_sample : {false, true})
        for (const PairOrder order : {PairOrder::kHalves, PairOrder::kAdjacent}) {
          const torch::Tensor here = waves({2, 37, 5, size}, 0.7, type).transpose(1, 2);
          const torch::Tensor there = waves({2, 37, 5, size}, 0.7, type).to(checked_device()).transpose(1, 2);
          const torch::Tensor angles =
              by_sample ? waves({2, 1, 37, pairs}, 1.3, torch::kFloat64) : waves({37, pairs}, 1.3, torch::kFloat64);
          const torch::Tensor cosine = angles.cos().to(type), sine = angles.sin().to(type);
          const auto on = [&](const torch::Tensor& tensor) { return tensor.to(checked_device()); };
          for (const Turn turn : {Turn::kForward, Turn::kBack})
            EXPECT_LE(largest_difference(kernels::rotate(there, on(cosine), on(sine), order, turn),
                                         kernels::rotate(here, cosine, sine, order, turn)),
                      tolerance_of(type))
                << type << " size " << size << " pairs " << pairs;
        }
}

// Separate matrices, the halves of one matrix, and rows that are not a multiple of 16 bytes.
TEST(DeviceKernels, GatesAreTheCpus) {
  using kernels::GateFunction;
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16})
    for (const std::int64_t columns : {64, 37})
      for (const bool halves : {false, true})
        for (const GateFunction function : {GateFunction::kSilu, GateFunction::kGelu, GateFunction::kTanhGelu}) {
          std::vector<torch::Tensor> made[2];
          for (const bool is_there : {false, true}) {
            const auto on = [&](const torch::Tensor& tensor) {
              return is_there ? tensor.to(checked_device()) : tensor;
            };
            const torch::Tensor both = on(waves({301, 2 * columns}, 0.7, type));
            const auto part = [&](std::int64_t which) {
              const torch::Tensor columns_of = both.narrow(1, which * columns, columns);
              return halves ? columns_of : columns_of.contiguous();
            };
            const torch::Tensor gate = part(0), values = part(1), gradient = on(waves({301, columns}, 0.3, type));
            torch::Tensor of_both = torch::zeros_like(both);
            torch::Tensor of_gate = of_both.narrow(1, 0, columns), of_values = of_both.narrow(1, columns, columns);
            if (!halves) of_gate = torch::zeros_like(gate), of_values = torch::zeros_like(values);
            kernels::gated_backward(of_gate, of_values, gradient, gate, values, function);
            made[is_there ? 1 : 0] = {kernels::gated(gate, values, function), of_gate, of_values};
          }
          for (int i = 0; i < 3; ++i)
            EXPECT_LE(largest_difference(made[1][i], made[0][i]), 3 * tolerance_of(type))
                << type << " columns " << columns << " result " << i;
        }
}

// With an odd vocabulary size, the matrix multiplication has two parts.
TEST(DeviceKernels, ProductsOfOddSizesAreTheCpus) {
  std::vector<torch::Tensor> made[2];
  for (const bool is_there : {false, true}) {
    const auto leaf = [&](const torch::Tensor& tensor) {
      return (is_there ? tensor.to(checked_device()) : tensor).detach().requires_grad_();
    };
    const torch::Tensor rows = leaf(waves({33, 64}, 0.37, torch::kBFloat16));
    const torch::Tensor weight = leaf(waves({4099, 64}, 0.73, torch::kBFloat16) / 16);
    const torch::Tensor outputs = nn::linear(rows, {{weight, {}}}, {}).front();
    (outputs * outputs.detach()).sum().backward();
    made[is_there ? 1 : 0] = {outputs.detach(), rows.grad(), weight.grad()};
  }
  for (std::size_t i = 0; i < made[0].size(); ++i) EXPECT_LE(largest_difference(made[1][i], made[0][i]), 2e-2) << i;
}

// Adds products of half-precision matrices to float32. A device that supports this does not round the
// product.
TEST(DeviceKernels, ProductsAreAddedToFloat32) {
  for (const auto& [type, near] : {std::pair{torch::kBFloat16, 2e-2}, std::pair{torch::kFloat16, 2e-3}}) {
    const torch::Tensor a = (torch::arange(300 * 64, torch::kFloat32) * 0.37).sin().view({300, 64}).to(type);
    const torch::Tensor b = (torch::arange(300 * 48, torch::kFloat32) * 0.73).cos().view({300, 48}).to(type);
    torch::Tensor sum = torch::ones({64, 48}, checked_device());
    nn::add_product(sum, a.to(checked_device()).t(), b.to(checked_device()));
    const torch::Tensor expected = 1 + a.to(torch::kFloat64).t().matmul(b.to(torch::kFloat64));
    const double off = (sum.cpu() - expected).abs().max().item<double>() / expected.abs().max().item<double>();
    EXPECT_LE(off, is_rehearsal() ? near : 1e-4) << type;
  }
}

// The kernels of ring attention's blocks: flash in half precision, the efficient kernel in float32.
TEST(DeviceKernels, BlocksOfAttentionAddUp) {
  expect_blocks_as_plain(checked_device(), torch::kFloat32, 1e-4);
  expect_blocks_as_plain(checked_device(), torch::kBFloat16, 5e-2);
  expect_blocks_as_plain(checked_device(), torch::kFloat16, 5e-3);
}

TEST(DeviceKernels, WhatIsSentAheadArrives) {
  const AheadSender sender(checked_device());
  for (int round = 0; round < 20; ++round) {
    const torch::Tensor here = torch::arange(1 << 16) + round;
    const auto ahead = sender.send({{"here", here}});
    ASSERT_EQ(ahead == nullptr, is_rehearsal());
    if (ahead) EXPECT_TRUE(torch::equal((ahead->take(here, checked_device()) + 1).cpu(), here + 1));
  }
}

}  // namespace
}  // namespace gantry::testing
