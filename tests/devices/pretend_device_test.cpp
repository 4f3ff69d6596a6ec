// The fake device itself: its results are those of the CPU, and it detects every fault for which it was made.
#include "pretend_device.h"

#include <chrono>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include <torch/nn/utils/clip_grad.h>

#include "cpu_view.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const c10::impl::DeviceGuardImplInterface& guard() { return *c10::impl::getDeviceGuardImpl(kPretendType); }

torch::Tensor on_device(const torch::Tensor& tensor, int device = 0) { return tensor.to(pretend_device(device)); }

// Kernels begin late during its lifetime.
class Late {
 public:
  Late() { set_kernel_timing(KernelTiming::kLate, 300); }
  ~Late() {
    for (int device = 0; device < 2; ++device) guard().synchronizeDevice(static_cast<c10::DeviceIndex>(device));
    set_kernel_timing(KernelTiming::kAtOnce);
  }
};

struct SmallModel : torch::nn::Module {
  SmallModel() {
    torch::manual_seed(3);
    table = register_module("table", torch::nn::Embedding(11, 8));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
    middle = register_module("middle", torch::nn::Linear(8, 8));
    head = register_module("head", torch::nn::Linear(8, 11));
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor hidden = norm(table(tokens)).unsqueeze(1);
    hidden = at::scaled_dot_product_attention(hidden, hidden, hidden, {}, 0.0, /*is_causal=*/true).squeeze(1);
    return head(torch::gelu(middle(hidden)));
  }
  torch::nn::Embedding table = nullptr;
  torch::nn::LayerNorm norm = nullptr;
  torch::nn::Linear middle = nullptr, head = nullptr;
};

// Returns the losses of four AdamW steps.
std::vector<double> losses_on(torch::Device device) {
  const c10::OptionalDeviceGuard on_device(device.is_cpu() ? std::nullopt : std::optional(device));
  SmallModel model;
  model.to(device);
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.05));
  const torch::Tensor tokens = torch::arange(12).remainder(11).view({2, 6}).to(device);
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(model.forward(tokens).flatten(0, 1), tokens.flatten());
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST(PretendDevice, TrainsToTheCpusBits) { EXPECT_EQ(losses_on(torch::kCPU), losses_on(pretend_device(0))); }

TEST(PretendDevice, TrainsToTheCpusBitsWithLateKernels) {
  const std::vector<double> expected = losses_on(torch::kCPU);
  const Late late;
  EXPECT_EQ(expected, losses_on(pretend_device(1)));
}

// Returns the output and the gradients of an operator on a device, for inputs of these shapes.
std::vector<torch::Tensor> results_on(torch::Device device, const std::vector<std::vector<std::int64_t>>& shapes,
                                      const std::function<torch::Tensor(std::vector<torch::Tensor>&)>& apply,
                                      torch::ScalarType type) {
  std::vector<torch::Tensor> inputs, results;
  std::uint64_t seed = 5;
  for (const auto& shape : shapes) {
    torch::manual_seed(seed++);
    inputs.push_back(torch::randn(shape, torch::kFloat64).to(type).to(device).requires_grad_());
  }
  const torch::Tensor out = apply(inputs);
  const torch::Tensor weights =
      torch::arange(out.numel()).to(torch::kFloat64).sin().view(out.sizes()).to(out.device(), type);
  (out * weights).sum().backward();
  results.push_back(out.detach().cpu());
  for (const auto& input : inputs)
    if (input.grad().defined()) results.push_back(input.grad().cpu());
  return results;
}

TEST(PretendDevice, OperatorsOfTheModelsHaveTheCpusBits) {
  using Inputs = std::vector<torch::Tensor>&;
  struct Case {
    const char* name;
    std::vector<std::vector<std::int64_t>> shapes;
    std::function<torch::Tensor(Inputs)> apply;
  };
  const std::vector<std::int64_t> one{16}, heads{2, 4, 6, 8};
  const std::vector<Case> cases{
      {"linear", {{3, 5, 16}, {7, 16}, {7}}, [](Inputs i) { return at::linear(i[0], i[1], i[2]); }},
      {"layer_norm", {{3, 5, 16}, one, one}, [](Inputs i) { return at::layer_norm(i[0], {16}, i[1], i[2]); }},
      {"rms_norm", {{3, 5, 16}, one}, [](Inputs i) { return at::rms_norm(i[0], {16}, i[1], 1e-5); }},
      {"silu", {{3, 16}, {3, 16}}, [](Inputs i) { return at::silu(i[0]) * i[1]; }},
      {"gelu", {{3, 16}}, [](Inputs i) { return at::gelu(i[0], "tanh"); }},
      {"softmax", {{3, 16}}, [](Inputs i) { return i[0].softmax(-1); }},
      {"log_softmax", {{3, 16}}, [](Inputs i) { return i[0].log_softmax(-1); }},
      {"logsumexp", {{3, 16}}, [](Inputs i) { return i[0].logsumexp(-1); }},
      {"mean", {{3, 16}}, [](Inputs i) { return i[0].pow(2).mean(-1); }},
      {"cat",
       {{3, 16}, {2, 16}},
       [](Inputs i) {
         return at::cat({i[0], i[1]}).chunk(2, 1)[1].contiguous();
       }},
      {"embedding",
       {{11, 4}},
       [](Inputs i) {
         return at::embedding(i[0], torch::tensor({1, 3, 1, 10}).to(i[0].device()));
       }},
      {"causal attention",
       {heads, heads, heads},
       [](Inputs i) { return at::scaled_dot_product_attention(i[0], i[1], i[2], {}, 0.0, true); }},
      {"masked attention",
       {heads, heads, heads, {1, 1, 6, 6}},
       [](Inputs i) { return at::scaled_dot_product_attention(i[0], i[1], i[2], i[3].detach()); }},
      {"cross entropy",
       {{4, 9}},
       [](Inputs i) {
         return at::cross_entropy_loss(i[0], torch::tensor({1, -100, 8, 0}).to(i[0].device())).reshape({1});
       }},
  };
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16})
    for (const Case& one : cases) {
      const auto expected = results_on(torch::kCPU, one.shapes, one.apply, type);
      const auto actual = results_on(pretend_device(0), one.shapes, one.apply, type);
      ASSERT_EQ(expected.size(), actual.size()) << one.name;
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(torch::equal(expected[i], actual[i]))
            << one.name << " in " << type << ", " << (i == 0 ? "its output" : "a gradient");
    }
}

TEST(PretendDevice, TheHostThatTouchesItsMemoryEndsWithTheStack) {
  const torch::Tensor tensor = on_device(torch::ones({4}));
  EXPECT_EXIT(std::printf("%f", tensor.data_ptr<float>()[0]), ::testing::ExitedWithCode(86),
              "the host touched memory of pretended device 0.*aten::");
  EXPECT_EXIT(torch::from_blob(tensor.data_ptr(), {4}).sum(), ::testing::ExitedWithCode(86), "pretended device 0");
}

TEST(PretendDevice, ViewsAndChangesInPlaceShareMemory) {
  torch::Tensor tensor = on_device(torch::zeros({2, 3}));
  tensor.select(0, 1).add_(2);
  tensor.t().select(0, 0).fill_(5);
  tensor.view({6}).narrow(0, 5, 1).copy_(torch::full({1}, 7.0F));
  EXPECT_TRUE(torch::equal(tensor.cpu(), torch::tensor({{5.0F, 0.0F, 0.0F}, {5.0F, 2.0F, 7.0F}})));
}

TEST(PretendDevice, RefusesWhatCudaRefuses) {
  const torch::Tensor here = on_device(torch::ones({3})), there = on_device(torch::ones({3}), 1);
  EXPECT_THROW(here + there, c10::Error);
  EXPECT_THROW(here + torch::ones({3}), c10::Error);
  EXPECT_EQ((here + torch::tensor(1.0F)).sum().item<float>(), 6.0F);  // a scalar on the CPU is allowed
}

TEST(PretendDevice, CountsWhatWaitsForIt) {
  const torch::Tensor numbers = on_device(torch::ones({3}));
  reset_device_counts();
  const torch::Tensor sum = (numbers * 2).sum();
  EXPECT_EQ(device_counts(0).host_reads, 0);
  EXPECT_EQ(sum.item<float>(), 6.0F);
  EXPECT_EQ(device_counts(0).host_reads, 1);
  torch::Tensor pinned = torch::empty({3}, torch::TensorOptions().pinned_memory(true).device(torch::kCPU));
  pinned.fill_(4.0F).to(pretend_device(0), /*non_blocking=*/true);
  EXPECT_EQ(device_counts(0).pageable_copies, 0);
  on_device(torch::ones({3}));
  EXPECT_EQ(device_counts(0).pageable_copies, 1);
  EXPECT_EQ(device_counts(0).bytes_to_device, 24);
  EXPECT_EQ(device_counts(0).host_reads, 1);
}

TEST(PretendDevice, FreedMemoryIsSpoiled) {
  torch::Tensor first = on_device(torch::ones({64}));
  const void* memory = first.data_ptr();
  first = torch::Tensor();
  const torch::Tensor second = torch::empty({64}, torch::TensorOptions().device(pretend_device(0)));
  ASSERT_EQ(second.data_ptr(), memory);
  EXPECT_TRUE(second.isnan().all().item<bool>());
}

// A result that the CPU kernel has resized is copied after the remaining work of the stream, here the filling
// of freed memory.
TEST(PretendDevice, ResizedResultsComeAfterWhatTheStreamHolds) {
  torch::Tensor grown = torch::empty({0}, torch::TensorOptions().device(pretend_device(0)));
  torch::Tensor freed = on_device(torch::ones({64}));
  CpuView view;
  view.of(grown).resize_({64}).fill_(7);
  std::promise<void> gate;
  pretend_stream(0, 0).submit([opened = gate.get_future().share()] { opened.wait(); });
  freed = torch::Tensor();
  auto opening = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that a missing wait shows
    gate.set_value();
  });
  view.follow_resized();
  opening.get();
  guard().synchronizeDevice(0);
  EXPECT_EQ(grown.mean().item<float>(), 7.0F);
}

// One stream writes a tensor and another stream reads it, with or without a wait for an event in between.
class TwoStreams : public ::testing::Test {
 protected:
  torch::Tensor read_elsewhere(const torch::Tensor& tensor, bool waits) {
    c10::Event event(kPretendType);
    event.record(guard().getStream(pretend_device(0)));
    const c10::Stream other = guard().getStreamFromGlobalPool(pretend_device(0));
    const c10::StreamGuard on_other(other);
    if (waits) event.block(other);
    return tensor * 2;
  }
};

TEST_F(TwoStreams, AnEventThatIsNotWaitedForIsARace) {
  torch::Tensor tensor = on_device(torch::ones({8}));
  tensor.add_(1);
  const torch::Tensor unordered = read_elsewhere(tensor, false);
  const std::vector<std::string> races = take_races();
  ASSERT_EQ(races.size(), 1U) << races.back();
  EXPECT_THAT(races[0], HasSubstr("reads in aten::mul"));
  EXPECT_THAT(races[0], HasSubstr("stream 0 writes in aten::add"));
  EXPECT_THAT(races[0], HasSubstr("no event wait between"));
  guard().synchronizeDevice(0);
}

TEST_F(TwoStreams, AnEventThatIsWaitedForIsNone) {
  torch::Tensor tensor = on_device(torch::ones({8}));
  tensor.add_(1);
  const torch::Tensor twice = read_elsewhere(tensor, true);
  guard().synchronizeDevice(0);
  EXPECT_THAT(take_races(), IsEmpty());
  EXPECT_EQ(twice.cpu()[0].item<float>(), 4.0F);
}

TEST_F(TwoStreams, DisjointPartsOfOneStorageAreNone) {
  torch::Tensor full = on_device(torch::zeros({8}));
  guard().synchronizeDevice(0);
  torch::Tensor first = full.narrow(0, 0, 4), second = full.narrow(0, 4, 4);
  {
    const c10::StreamGuard on_other(guard().getStreamFromGlobalPool(pretend_device(0)));
    first.add_(1);
  }
  second.add_(1);
  EXPECT_THAT(take_races(), IsEmpty());
  guard().synchronizeDevice(0);
}

TEST_F(TwoStreams, MemoryThatIsFreedInUseHasToBeRecorded) {
  const c10::Stream other = guard().getStreamFromGlobalPool(pretend_device(0));
  for (const bool records : {false, true}) {
    torch::Tensor tensor = on_device(torch::ones({8}));
    guard().synchronizeDevice(0);
    torch::Tensor twice;
    {
      const c10::StreamGuard on_other(other);
      twice = tensor * 2;
    }
    if (records) tensor.record_stream(other);
    tensor = torch::Tensor();
    const std::vector<std::string> races = take_races();
    EXPECT_EQ(races.size(), records ? 0U : 1U);
    if (!records) EXPECT_THAT(races.at(0), HasSubstr("neither waited for nor recorded"));
    guard().synchronizeDevice(0);
  }
}

TEST(PretendDevice, ALateKernelShowsAMissingWaitInTheNumbers) {
  const Late late;
  torch::Tensor tensor = on_device(torch::zeros({16}));
  guard().synchronizeDevice(0);
  const c10::Stream other = guard().getStreamFromGlobalPool(pretend_device(0));
  std::promise<void> gate;
  pretend_stream(0, 0).submit([opened = gate.get_future().share()] { opened.wait(); });
  tensor.add_(1);
  c10::Event event(kPretendType);
  event.record(guard().getStream(pretend_device(0)));
  torch::Tensor early, right;
  {
    const c10::StreamGuard on_other(other);
    early = tensor.clone();
    guard().synchronizeStream(other);
    event.block(other);
    right = tensor.clone();
  }
  gate.set_value();
  guard().synchronizeDevice(0);
  EXPECT_EQ(take_races().size(), 1U);
  EXPECT_EQ(early.mean().item<float>(), 0.0F);
  EXPECT_EQ(right.mean().item<float>(), 1.0F);
}

TEST(PretendDevice, GeneratorsGiveTheSameNumbersForTheSameSeed) {
  const auto draw = [] {
    auto generator = at::globalContext().defaultGenerator(pretend_device(2));
    generator.set_current_seed(7);
    return torch::randn({5}, torch::TensorOptions().device(pretend_device(2))).cpu();
  };
  const c10::DeviceGuard here(pretend_device(2));
  EXPECT_TRUE(torch::equal(draw(), draw()));
}

}  // namespace
}  // namespace gantry::testing
