// Operators of our own on pretended devices: the dispatcher finds them as it does on a device that is there, and what
// they give is the CPU's.
#include <gtest/gtest.h>

#include <torch/torch.h>

#include "gantry/nn/cross_entropy.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/random_context.h"
#include "pretend_device.h"

namespace gantry::testing {
namespace {

class KernelsOnDevice : public ::testing::TestWithParam<KernelTiming> {
 protected:
  void SetUp() override {
    set_kernel_timing(GetParam(), 200);
    reset_device_counts();
  }
  void TearDown() override { set_kernel_timing(KernelTiming::kAtOnce); }

  // Nothing came from the host, and the host waited for nothing.
  static void expect_drawn_there() {
    const DeviceCounts counts = device_counts(1);
    EXPECT_GT(counts.kernels, 0);
    EXPECT_EQ(counts.bytes_to_device, 0);
    EXPECT_EQ(counts.host_reads, 0);
  }

  const torch::Device device_ = pretend_device(1);
  const c10::DeviceGuard on_device_{device_};
};

TEST_P(KernelsOnDevice, DropoutMasksAreDrawnThere) {
  const RandomContext context{.seed = 3, .step = 4};
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
    const torch::Tensor like = torch::empty({3, 5, 8}, type);
    const auto mask_like = [&](const torch::Tensor& tensor) {
      return dropout_mask(tensor, 0.25, "layer", context, {2, 5, 0}, {8, 20, 8});
    };
    const torch::Tensor there = torch::empty({3, 5, 8}, torch::dtype(type).device(device_));
    reset_device_counts();
    const torch::Tensor mask = mask_like(there);
    expect_drawn_there();
    EXPECT_TRUE(torch::equal(mask.cpu(), mask_like(like)));
  }
}

TEST_P(KernelsOnDevice, InitialWeightsAreDrawnThere) {
  const auto made = [](torch::Device device, const std::function<void(torch::Tensor&)>& initialise) {
    torch::Tensor tensor;
    {
      const DeferredInit deferred;
      tensor = torch::empty({12, 6}, torch::kFloat32).requires_grad_();
      const torch::NoGradGuard no_grad;
      initialise(tensor);
    }
    shard_tensor(tensor, shard(1, 6, 2), 1);
    materialize(tensor, "w", 5, device);
    EXPECT_TRUE(tensor.requires_grad());
    return tensor.detach();
  };
  const std::vector<std::function<void(torch::Tensor&)>> ways = {
      [](torch::Tensor& t) { t.normal_(0, 0.02); },
      [](torch::Tensor& t) { torch::nn::init::kaiming_uniform_(t, std::sqrt(5)); },
      [](torch::Tensor& t) { t.normal_().mul_(0.5).add_(3); },
      [](torch::Tensor& t) { t.fill_(1); },
  };
  for (const auto& way : ways) {
    reset_device_counts();
    const torch::Tensor there = made(device_, way);
    expect_drawn_there();
    EXPECT_TRUE(there.device() == device_);
    EXPECT_TRUE(torch::equal(there.cpu(), made(torch::kCPU, way)));
  }
}

// Gradient and sum of a loss over rows of which some do not count, with padding columns.
std::vector<torch::Tensor> loss_on(torch::Device device, torch::ScalarType type) {
  torch::Tensor logits = (torch::arange(4 * 3 * 11, torch::kFloat32).sin() * 4).view({4, 3, 11}).to(type);
  logits = logits.to(device).requires_grad_();
  const torch::Tensor labels = torch::tensor({0, 5, -100, 9, 3, 3, 1, -100, 8, 7, 2, 9}, torch::kInt64).view({4, 3});
  const Loss loss =
      nn::cross_entropy(logits, labels.to(device), {.label_smoothing = 0.1, .z_loss = 1e-3, .vocabulary = 10});
  loss.sum.backward();
  return {loss.sum.detach(), logits.grad()};
}

TEST_P(KernelsOnDevice, CrossEntropyIsTheCpus) {
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
    const auto there = loss_on(device_, type), here = loss_on(torch::kCPU, type);
    for (std::size_t i = 0; i < here.size(); ++i)
      EXPECT_TRUE(torch::equal(there[i].cpu(), here[i])) << i << " " << type;
  }
}

// What reads other elements of the tensor is made on the host and copied.
TEST_P(KernelsOnDevice, WeightsThatNeedTheWholeTensorAreTheSame) {
  const auto made = [](torch::Device device) {
    torch::Tensor tensor;
    {
      const DeferredInit deferred;
      tensor = torch::empty({12, 6});
      tensor.normal_();
      tensor[3].zero_();
    }
    materialize(tensor, "w", 5, device);
    return tensor;
  };
  EXPECT_TRUE(torch::equal(made(device_).cpu(), made(torch::kCPU)));
}

INSTANTIATE_TEST_SUITE_P(Timings, KernelsOnDevice, ::testing::Values(KernelTiming::kAtOnce, KernelTiming::kLate));

}  // namespace
}  // namespace gantry::testing
