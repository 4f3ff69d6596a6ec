// Measures operations that are limited by memory: copies, element-wise operations of layers, and the optimizer.
#include <algorithm>
#include <functional>

#include "gantry/booster/measure_rates.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/cross_entropy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Returns the bytes per second of a copy.
double copy_rate(World& world, ProcessGroup& ranks) {
  constexpr std::int64_t kEntries = std::int64_t{8} << 20;  // above any cache
  const torch::Tensor from = torch::ones({kEntries}, torch::TensorOptions().device(world.device()));
  torch::Tensor to = torch::empty_like(from);
  return 2 * 4.0 * kEntries / seconds_of(world, ranks, [&] { to.copy_(from); });
}

constexpr std::int64_t kFeatures = 512;

// Returns the bytes per second of an operation on activations, forward and backward. A chain of layers with new
// tensors, kept until the backward, is larger than any cache. `passes`: the number of times that the planner
// counts the bytes of a tensor for forward and backward.
double operation_rate(
    World& world, ProcessGroup& ranks, int passes,
    const std::function<torch::Tensor(const torch::Tensor& input, const torch::Tensor& weight)>& one) {
  constexpr int kLayers = 16;
  const std::int64_t rows = world.device().is_cpu() ? 1024 : 16384;
  const torch::AutoGradMode with_gradients(true);
  const auto options = torch::TensorOptions().device(world.device());
  const torch::Tensor start = torch::rand({rows, kFeatures}, options).requires_grad_(true),
                      weight = torch::ones({kFeatures}, options).requires_grad_(true),
                      gradient = torch::ones({rows, kFeatures}, options);
  const double seconds = seconds_of(world, ranks, [&] {
    std::vector<torch::Tensor> made = {start};
    for (int layer = 0; layer < kLayers; ++layer) made.push_back(one(made.back(), weight));
    torch::autograd::grad({made.back()}, {start, weight}, {gradient}, std::nullopt, false, /*allow_unused=*/true);
  });
  return kLayers * passes * 4.0 * static_cast<double>(rows * kFeatures) / seconds;
}

// Returns the bytes per second of the loss: four passes over the logits in the forward, and three in the backward.
double loss_rate(World& world, ProcessGroup& ranks) {
  constexpr std::int64_t kRows = 1024, kWords = 2048;
  constexpr int kPasses = 7;
  const torch::AutoGradMode with_gradients(true);
  const auto options = torch::TensorOptions().device(world.device());
  const torch::Tensor logits = torch::rand({kRows, kWords}, options).requires_grad_(true),
                      labels = torch::zeros({kRows}, options.dtype(torch::kInt64));
  const double seconds =
      seconds_of(world, ranks, [&] { torch::autograd::grad({nn::cross_entropy(logits, labels).sum}, {logits}); });
  return kPasses * 4.0 * kRows * kWords / seconds;
}

// Returns the bytes per second of AdamW: gradient norm, step, and zeroed gradients for the next step. The bytes are
// those of the planner: gradient and state are read and written, and the value is written.
double optimizer_rate(World& world, ProcessGroup& ranks) {
  constexpr std::int64_t kEntries = (std::int64_t{25} << 20) / 4;  // a bucket of gradients
  constexpr double kBytes = 2 * 4 + 2 * 8 + 4;
  const auto options = torch::TensorOptions().device(world.device());
  std::vector<torch::Tensor> value = {torch::zeros({kEntries}, options)}, gradient = {torch::ones({kEntries}, options)},
                             mean = {torch::zeros({kEntries}, options)}, square = {torch::zeros({kEntries}, options)},
                             none, steps = {torch::ones({}, options)};
  const double seconds = seconds_of(world, ranks, [&] {
    at::linalg_vector_norm(gradient.front());
    at::_fused_adamw_(value, gradient, mean, square, none, steps, /*lr=*/1e-3, /*beta1=*/0.9, /*beta2=*/0.999,
                      /*weight_decay=*/0.01, /*eps=*/1e-8, /*amsgrad=*/false, /*maximize=*/false);
    gradient.front() = torch::zeros({kEntries}, options);
  });
  return kBytes * kEntries / seconds;
}

}  // namespace

void measure_memory(World& world, ProcessGroup& ranks, planner::Device& device) {
  std::map<std::string, double> rates;
  const auto measured = [&](int passes, const auto& one) { return operation_rate(world, ranks, passes, one); };
  rates["layer_norm"] = measured(5, [](const torch::Tensor& input, const torch::Tensor& weight) {
    return torch::layer_norm(input, {kFeatures}, weight);
  });
  rates["rms_norm"] = measured(5, [](const torch::Tensor& input, const torch::Tensor& weight) {
    return at::rms_norm(input, {kFeatures}, weight, 1e-6);
  });
  for (const char* name : {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"})
    rates[name] =
        measured(5, [name](const torch::Tensor& input, const torch::Tensor&) { return nn::activate(input, name); });
  rates["loss"] = loss_rate(world, ranks);
  const torch::Tensor other =
      torch::ones({world.device().is_cpu() ? 1024 : 16384, kFeatures}, torch::TensorOptions().device(world.device()));
  // Its backward passes the gradient through.
  const double plain =
      measured(3, [&other](const torch::Tensor& input, const torch::Tensor&) { return input + other; });
  const double optimizer = optimizer_rate(world, ranks);
  double fastest = std::max({copy_rate(world, ranks), plain, optimizer});
  for (const auto& [name, rate] : rates) fastest = std::max(fastest, rate);
  device.memory_bytes_per_second = fastest;
  device.memory_efficiency = plain / fastest;
  device.optimizer_efficiency = optimizer / fastest;
  for (const auto& [name, rate] : rates) device.operation_efficiency[name] = rate / fastest;
}

}  // namespace gantry
