#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <unistd.h>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include "gantry/cli/engine/measure_rates.h"
#include "gantry/core/steady_seconds.h"
#include "gantry/planner/fitted_rates.h"

namespace gantry::cli {
namespace {

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 0.02;  // of quick calls several, so that a round is seen above the clock
constexpr double kLongestCall = 0.25;   // larger products are left out after one of these

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

std::vector<planner::ProductTime> product_times(World& world, ProcessGroup& ranks, torch::ScalarType type) {
  const auto options = torch::TensorOptions().dtype(type).device(world.device());
  const std::int64_t largest = world.device().is_cpu() ? 1024 : 8192;
  std::vector<planner::ProductTime> times;
  for (std::int64_t size = 32; size <= largest; size *= 2) {
    const torch::Tensor a = torch::ones({size, size}, options), b = torch::ones({size, size}, options);
    torch::Tensor c = torch::empty({size, size}, options);
    const double seconds = seconds_of(world, ranks, [&] { at::mm_out(c, a, b); });
    times.push_back({2.0 * static_cast<double>(size * size * size), seconds});
    if (seconds > kLongestCall) break;  // of all ranks alike
  }
  return times;
}

// Of the causal half, as planner/operations.cpp counts it.
double attention_rate(World& world, ProcessGroup& ranks) {
  constexpr std::int64_t kHeads = 8, kTokens = 512, kSize = 64;
  const auto options = torch::TensorOptions().device(world.device());
  const torch::Tensor query = torch::ones({1, kHeads, kTokens, kSize}, options);
  const double seconds = seconds_of(world, ranks, [&] {
    at::scaled_dot_product_attention(query, query, query, std::nullopt, 0.0, /*is_causal=*/true);
  });
  return 2.0 * kHeads * kTokens * kTokens * kSize / seconds;
}

// Bytes a second of a copy, and of what layers do between products.
struct MemoryRates {
  double copy = 0, elementwise = 0;
};
MemoryRates memory_rates(World& world, ProcessGroup& ranks) {
  constexpr std::int64_t kEntries = std::int64_t{8} << 20;  // above any cache
  const auto options = torch::TensorOptions().device(world.device());
  const torch::Tensor a = torch::ones({kEntries}, options), b = torch::ones({kEntries}, options);
  torch::Tensor c = torch::empty({kEntries}, options);
  const double bytes = 4.0 * kEntries;
  const double copy = seconds_of(world, ranks, [&] { c.copy_(a); });
  const double sum = seconds_of(world, ranks, [&] { at::add_out(c, a, b); });
  const double gelu = seconds_of(world, ranks, [&] { at::gelu_out(c, a); });
  return {2 * bytes / copy, 5 * bytes / (sum + gelu)};
}

// Of an operation on next to nothing with its gradient: what starting both takes.
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
  if (!world.device().is_cpu()) {
    const auto device = world.device();
    auto* allocator = c10::getDeviceAllocator(device.type());
    return static_cast<double>(
        allocator->getMemoryInfo(device.has_index() ? device.index() : c10::DeviceIndex{0}).second);
  }
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
  round(1);  // warms up
  const double once = all_reduce_number(ranks, round(1), ReduceOp::kMax);
  const int calls = static_cast<int>(std::clamp(kRoundSeconds / std::max(once, 1e-9), 1.0, 1000.0));
  std::vector<double> seconds;
  for (int each = 0; each < (once > kRoundSeconds ? 5 : kRounds); ++each) seconds.push_back(round(calls));
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
    if (type == torch::kFloat16 && world.device().is_cpu()) continue;  // whose products CPUs emulate
    const planner::FittedProducts fitted = planner::fit_products(product_times(world, ranks, type));
    device.matrix_flops[name] = fitted.peak;
    if (type != torch::kFloat32) continue;  // one share for all types: that of the default one
    device.matrix_efficiency = fitted.efficiency;
    device.matrix_half_flops = fitted.half_flops;
  }
  progress(done++, kDeviceMeasurements);
  device.attention_efficiency = std::min(1.0, attention_rate(world, ranks) / device.matrix_flops["float32"]);
  progress(done++, kDeviceMeasurements);
  const MemoryRates rates = memory_rates(world, ranks);
  device.memory_bytes_per_second = rates.copy;
  device.memory_efficiency = std::min(1.0, rates.elementwise / rates.copy);
  device.operation_seconds = operation_seconds(world, ranks);
  return device;
}

}  // namespace gantry::cli
