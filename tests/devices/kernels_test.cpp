// Gantry's own operators on fake devices. The dispatcher finds them as on a real device, and their results
// are those of the CPU.
#include <gtest/gtest.h>

#include <torch/library.h>

#include "gantry/comm/device_sum.h"
#include "gantry/nn/cross_entropy.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/linear_function.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/kernels/add_rows.h"
#include "gantry/tensors/libtorch.h"
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

  // Checks that no data came from the host, and that the host waited for no result.
  static void expect_computed_there() {
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
    expect_computed_there();
    EXPECT_TRUE(torch::equal(mask.cpu(), mask_like(like)));
  }
}

// The tokens are not copied to the host. As with CUDA's assertions, the error appears when the device does
// the work.
TEST_P(KernelsOnDevice, TokensAndLabelsOfTheDeviceAreCheckedThere) {
  const auto waits = [&](const std::function<void()>& call) {
    call();
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  };
  nn::Embedding table(7, 4);
  table->to(device_);
  const torch::Tensor logits = torch::zeros({3, 7}, device_);
  const auto numbers = [&](std::int64_t last) {
    return torch::tensor(std::vector<std::int64_t>{0, 6, last}).to(device_);
  };
  EXPECT_NO_THROW(waits([&] { table->forward(numbers(3)); }));
  EXPECT_NO_THROW(waits([&] { nn::cross_entropy(logits, numbers(-100), {}); }));
  EXPECT_THROW(waits([&] { table->forward(numbers(7)); }), std::exception);
  EXPECT_THROW(waits([&] { nn::cross_entropy(logits, numbers(7), {}); }), std::exception);
  EXPECT_THROW(waits([&] { nn::cross_entropy(logits, numbers(-1), {}); }), std::exception);
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
    expect_computed_there();
    EXPECT_TRUE(there.device() == device_);
    EXPECT_TRUE(torch::equal(there.cpu(), made(torch::kCPU, way)));
  }
}

// Returns the sum and the gradient of a loss with ignored rows and with padding columns.
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

// The output, the gradients of the input, the weight and the bias are computed in two parts (tensors/aligned_rows.h).
TEST_P(KernelsOnDevice, ProductsOfOddSizesAreTheCpus) {
  constexpr std::int64_t kOutputs = 4099;
  const torch::Tensor input = (torch::arange(6 * 16, torch::kFloat32) * 0.37).sin().view({2, 3, 16});
  const torch::Tensor weight = (torch::arange(kOutputs * 16, torch::kFloat32) * 0.73).cos().view({kOutputs, 16}) / 8;
  const torch::Tensor bias = (torch::arange(kOutputs, torch::kFloat32) * 0.11).sin();
  std::vector<torch::Tensor> made[2];
  for (const torch::Device device : {torch::Device(torch::kCPU), device_}) {
    const auto leaf = [&](const torch::Tensor& tensor) {
      return tensor.to(device, torch::kBFloat16).detach().requires_grad_();
    };
    const torch::Tensor rows = leaf(input), matrix = leaf(weight), added = leaf(bias);
    const torch::Tensor outputs = nn::linear(rows, {{matrix, added}}, {}).front();
    (outputs * outputs.detach()).sum().backward();
    made[device.is_cpu() ? 0 : 1] = {outputs.detach(), rows.grad(), matrix.grad(), added.grad()};
  }
  for (std::size_t i = 0; i < made[0].size(); ++i)
    EXPECT_TRUE(torch::allclose(made[1][i].cpu(), made[0][i], 2e-2, 2e-2)) << i;
}

// A vocabulary of 7 words: a contiguous row of logits has 14 or 28 bytes.
TEST_P(KernelsOnDevice, RowsOfLogitsAndOfTheirGradientsBeginAtMultiplesOf16Bytes) {
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    torch::manual_seed(5);
    const torch::Tensor input = torch::randn({2, 3, 4}, type), weight = torch::randn({7, 4}, type);
    const torch::Tensor labels = torch::arange(6).view({2, 3});
    std::vector<torch::Tensor> gradients, outputs;
    for (const torch::Device device : {torch::Device(torch::kCPU), device_}) {
      const torch::Tensor rows = input.to(device), matrix = weight.to(device).detach().requires_grad_();
      torch::Tensor logits = nn::linear(rows, {{matrix, {}}}, {}).front();
      logits.register_hook([&](const torch::Tensor& gradient) { gradients.push_back(gradient); });
      nn::cross_entropy(logits, labels.to(device)).sum.backward();
      outputs.push_back(logits.detach());
      outputs.push_back(matrix.grad());
    }
    const std::int64_t row = 16 / static_cast<std::int64_t>(input.element_size()) * (type == torch::kFloat32 ? 2 : 1);
    EXPECT_EQ(outputs[0].stride(-2), 7);
    EXPECT_EQ(outputs[2].stride(-2), row);
    EXPECT_EQ(gradients[1].stride(-2), row);
    EXPECT_TRUE(torch::allclose(outputs[2].cpu(), outputs[0]));
    EXPECT_TRUE(torch::allclose(outputs[3].cpu(), outputs[1]));
  }
}

TEST_P(KernelsOnDevice, RowsAreAddedThereInTheirOrder) {
  const torch::Tensor index = (torch::arange(64, torch::kInt64) * 37) % 7;
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
    const torch::Tensor rows = (torch::arange(64 * 6, torch::kFloat64) * 0.7).sin().view({64, 6}).to(type);
    torch::Tensor here = torch::zeros({9, 6}, type == torch::kBFloat16 ? torch::kFloat32 : type);
    const torch::Tensor index_there = index.to(device_), rows_there = rows.to(device_);
    torch::Tensor there = torch::zeros({9, 6}, here.options().device(device_));
    reset_device_counts();
    kernels::add_rows(there, index_there, rows_there);
    expect_computed_there();
    kernels::add_rows(here, index, rows);
    EXPECT_TRUE(torch::equal(there.cpu(), here)) << type;
  }
}

TEST_P(KernelsOnDevice, SumsOverRanksAreTakenThere) {
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kInt64}) {
    std::vector<torch::Tensor> here, there;
    for (int rank = 0; rank < 5; ++rank) {
      here.push_back(((torch::arange(333, torch::kFloat64) * (0.7 + rank)).sin() * 10).to(type));
      there.push_back(here.back().to(device_));
    }
    reset_device_counts();
    reduce_by_rank(there[3], there, ReduceOp::kSum);
    expect_computed_there();
    reduce_by_rank(here[3], here, ReduceOp::kSum);
    EXPECT_TRUE(torch::equal(there[3].cpu(), here[3])) << type;
  }
}

// Replaces CUDA's matrix multiplication of half precisions with a float32 result.
int products = 0;
at::Tensor& float_product(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, at::ScalarType,
                          const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  ++products;
  return out.copy_(at::addmm(self, a.to(at::kFloat), b.to(at::kFloat), beta, alpha));
}

TEST_P(KernelsOnDevice, WeightGradientsAreSummedInFloat32WhereTheDeviceCan) {
  const torch::Tensor input = (torch::arange(40 * 8, torch::kFloat32) * 0.3).sin().view({40, 8}).to(torch::kBFloat16);
  const torch::Tensor start = torch::linspace(-1, 1, 6 * 8).view({6, 8});
  const auto gradient_on = [&](torch::Device device) {
    torch::Tensor weight = torch::ones({6, 8}, torch::dtype(torch::kBFloat16).device(device)).requires_grad_();
    weight.mutable_grad() = start.to(device, /*non_blocking=*/false, /*copy=*/true);
    nn::linear(input.to(device), {{weight, {}}}, {}).front().square().sum().backward();
    return weight.grad().cpu();
  };
  const torch::Tensor rounded = gradient_on(device_);
  EXPECT_TRUE(torch::equal(rounded, gradient_on(torch::kCPU)));

  products = 0;
  torch::Library products_of_device(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  products_of_device.impl("addmm.dtype_out", &float_product);
  const torch::Tensor summed = gradient_on(device_);
  EXPECT_EQ(products, 1);
  const torch::Tensor outputs = nn::linear(input, {{torch::ones({6, 8}, torch::kBFloat16), {}}}, {}).front();
  const torch::Tensor expected = start + (2 * outputs).t().to(torch::kFloat32).matmul(input.to(torch::kFloat32));
  EXPECT_LE((summed - expected).abs().max().item<float>(), 1e-4);
  EXPECT_GT((rounded - expected).abs().max().item<float>(), 1e-2);
}

// An initialisation that reads other elements of the tensor runs on the host, and its result is copied.
TEST_P(KernelsOnDevice, WeightsThatNeedTheFullTensorAreTheSame) {
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
