#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <unistd.h>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/booster/measure_rates.h"
#include "gantry/core/base/steady_seconds.h"
#include "gantry/planner/calibration.h"
#include "gantry/tensors/device_memory.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr int kRounds = 9;
constexpr double kRoundSeconds =
    0.02;  // several quick calls form a round, so that a round is longer than the resolution of the clock
// Larger matrix multiplications are not measured after a series of this length.
constexpr double kLongestSeries = 0.15;

void await_device(const torch::Device& device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type())
      .synchronizeDevice(device.has_index() ? device.index() : c10::DeviceIndex{0});
}

struct NamedType {
  const char* name;
  torch::ScalarType type;
};
constexpr std::array<NamedType, 4> kPrecisions = {NamedType{"float32", torch::kFloat32},
                                                  {"float64", torch::kFloat64},
                                                  {"bfloat16", torch::kBFloat16},
                                                  {"float16", torch::kFloat16}};

constexpr double kOperandBytes = 32.0 * 1024 * 1024;  // in total, so that no cache has an operand when it is used again

// Returns the number of layers in a series of products. `last`: the measured time of the next smaller size. Few layers
// are sufficient for slow products, such as those of a CPU without bfloat16: caches do not matter there.
int layers_of_series(std::int64_t size, torch::ScalarType type, const std::vector<planner::ProductTime>& last) {
  const double bytes = 4.0 * static_cast<double>(size * size) * static_cast<double>(c10::elementSize(type));
  double layers = std::min(kOperandBytes / bytes, 64.0);
  if (!last.empty()) {
    const double expected = last.back().seconds * 2.0 * std::pow(static_cast<double>(size), 3) / last.back().flops;
    layers = std::min(layers, kLongestSeries / (3 * expected));
  }
  return static_cast<int>(std::max(layers, 2.0));
}

// Measures the three matrix multiplications of linear layers, in the form of nn/linear_function.cpp. Returns the mean
// time of one. It uses several layers and keeps their outputs until the backward, because in training operands come
// from memory, and new tensors from the system.
std::vector<planner::ProductTime> product_times(World& world, ProcessGroup& ranks, torch::ScalarType type) {
  const auto options = torch::TensorOptions().dtype(type).device(world.device());
  std::vector<std::int64_t> sizes = {64, 128, 256, 384, 512, 768, 1024};
  if (!world.device().is_cpu()) sizes.insert(sizes.end(), {2048, 4096, 8192});
  std::vector<planner::ProductTime> times;
  for (const std::int64_t size : sizes) {
    const int layers = layers_of_series(size, type, times);
    std::vector<torch::Tensor> weights, gradients;
    for (int layer = 0; layer < layers; ++layer) {
      weights.push_back(torch::full({size, size}, 1.0 / static_cast<double>(size), options));
      gradients.push_back(torch::zeros({size, size}, options));
    }
    const torch::Tensor start = torch::ones({size, size}, options);
    const double seconds = seconds_of(world, ranks, [&] {
      std::vector<torch::Tensor> rows = {start};
      for (int layer = 0; layer < layers; ++layer) rows.push_back(at::mm(rows.back(), weights[layer].t()));
      torch::Tensor back = rows.back();
      for (int layer = layers - 1; layer >= 0; --layer) {
        const torch::Tensor given = std::exchange(back, at::mm(back, weights[layer]));
        gradients[layer].addmm_(given.t(), rows[layer]);
        rows.pop_back();
      }
    });
    times.push_back({2.0 * static_cast<double>(size * size * size), seconds / (3 * layers)});
    if (times.size() > 1 && seconds > kLongestSeries) break;  // the same on all ranks
  }
  return times;
}

// Returns the operations per second of causal attention, forward and backward. Like in the planner, only the causal
// half counts. The heads are adjacent in memory.
double attention_rate(World& world, ProcessGroup& ranks) {
  constexpr std::int64_t kHeads = 8, kTokens = 512, kSize = 64;
  const torch::AutoGradMode with_gradients(true);
  const auto options = torch::TensorOptions().device(world.device());
  std::vector<torch::Tensor> inputs;
  for (int each = 0; each < 3; ++each)
    inputs.push_back(torch::ones({1, kTokens, kHeads, kSize}, options).requires_grad_(true));
  const torch::Tensor gradient = torch::ones({1, kHeads, kTokens, kSize}, options);
  const double seconds = seconds_of(world, ranks, [&] {
    const torch::Tensor made = at::scaled_dot_product_attention(inputs[0].transpose(1, 2), inputs[1].transpose(1, 2),
                                                                inputs[2].transpose(1, 2), std::nullopt, 0.0,
                                                                /*is_causal=*/true);
    torch::autograd::grad({made}, inputs, {gradient});
  });
  return 3.5 * 2.0 * kHeads * kTokens * kTokens * kSize / seconds;
}

// Returns the time to start an operation, measured on tiny tensors, as the mean of forward and backward.
double operation_seconds(World& world, ProcessGroup& ranks) {
  constexpr int kChain = 64;
  const torch::AutoGradMode with_gradients(true);
  const torch::Tensor start = torch::ones({8}, torch::TensorOptions().device(world.device()).requires_grad(true));
  const double seconds = seconds_of(world, ranks, [&] {
    torch::Tensor last = start;
    for (int each = 0; each < kChain; ++each) last = last * 1.5;
    last.sum().backward();
  });
  return seconds / (2 * kChain);
}

double memory_bytes(World& world, int ranks_of_host) {
  if (const auto bytes = device_memory_bytes(world.device())) return static_cast<double>(*bytes);
  const double all = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  return all / ranks_of_host;
}

}  // namespace

double seconds_of(World& world, ProcessGroup& ranks, const std::function<void()>& call) {
  const auto round = [&](int calls) {
    ranks.barrier().wait();
    const double start = steady_seconds();
    for (int each = 0; each < calls; ++each) call();
    await_device(world.device());
    return (steady_seconds() - start) / calls;
  };
  round(1);  // warm-up
  const double once = all_reduce_number(ranks, round(1), ReduceOp::kMax);
  const int calls = static_cast<int>(std::clamp(kRoundSeconds / std::max(once, 1e-9), 1.0, 1000.0));
  std::vector<double> seconds;
  for (int each = 0; each < (once > kRoundSeconds ? 3 : kRounds); ++each) seconds.push_back(round(calls));
  std::ranges::sort(seconds);
  return all_reduce_number(ranks, seconds[seconds.size() / 2], ReduceOp::kMax);
}

planner::Device measure_device(World& world, ProcessGroupMesh& mesh, int ranks_of_host,
                               const MeasureProgress& progress) {
  ProcessGroup& ranks = mesh.world_group();
  const torch::NoGradGuard no_gradients;
  planner::Device device;
  device.memory_bytes = memory_bytes(world, ranks_of_host);
  int done = 0;
  for (const auto& [name, type] : kPrecisions) {
    progress(done++, kDeviceMeasurements);
    if (type == torch::kFloat16 && world.device().is_cpu()) continue;  // CPUs emulate float16
    const planner::FittedProducts fitted = planner::fit_products(product_times(world, ranks, type));
    device.matrix_flops[name] = fitted.peak;
    if (type != torch::kFloat32) continue;  // the efficiency of float32 is used for all types
    device.matrix_efficiency = fitted.efficiency;
    device.matrix_half_flops = fitted.half_flops;
  }
  progress(done++, kDeviceMeasurements);
  device.attention_efficiency = std::min(1.0, attention_rate(world, ranks) / device.matrix_flops["float32"]);
  progress(done++, kDeviceMeasurements);
  measure_memory(world, ranks, device);
  device.operation_seconds = operation_seconds(world, ranks);
  return device;
}

}  // namespace gantry
