// Batches that are sent to the device before their step, on a separate stream.
#include "gantry/tensors/sent_ahead.h"

#include <gmock/gmock.h>

#include <c10/core/CachingDeviceAllocator.h>

#include "gantry/data/data_loader.h"
#include "gantry/data/tensor_dataset.h"
#include "gantry/tensors/libtorch.h"
#include "pretend_device.h"

namespace gantry::testing {
namespace {

class SentAhead : public ::testing::TestWithParam<KernelTiming> {
 protected:
  void SetUp() override {
    set_kernel_timing(GetParam(), 300);
    reset_device_counts();
  }
  void TearDown() override { set_kernel_timing(KernelTiming::kAtOnce); }

  const torch::Device device_ = pretend_device(1);
  const c10::DeviceGuard on_device_{device_};
};

std::int64_t held_bytes() {
  return c10::getDeviceAllocator(kPretendType)->getDeviceStats(1).allocated_bytes[0].current;
}

TEST_P(SentAhead, ATensorIsTakenOnceAndNobodyWaits) {
  const torch::Tensor numbers = torch::arange(12).view({3, 4}), columns = numbers.narrow(1, 1, 2);
  const auto ahead = AheadSender(device_).send({{"numbers", numbers}, {"columns", columns}});
  const torch::Tensor there = ahead->take(numbers, device_), narrow = ahead->take(columns, device_);
  const torch::Tensor sum = there.narrow(1, 1, 2) + narrow;
  EXPECT_EQ(device_counts(1).host_reads, 0);
  EXPECT_EQ(device_counts(1).pageable_copies, 0);
  EXPECT_TRUE(torch::equal(sum.cpu(), 2 * columns));
  EXPECT_FALSE(ahead->take(numbers, device_).defined());
}

TEST_P(SentAhead, AnotherTensorAndAnotherDeviceGetNone) {
  const torch::Tensor numbers = torch::zeros({4});
  const auto ahead = AheadSender(device_).send({{"numbers", numbers}});
  EXPECT_FALSE(ahead->take(numbers.clone(), device_).defined());
  EXPECT_FALSE(ahead->take(numbers, pretend_device(2)).defined());
}

TEST_P(SentAhead, WhatWasChangedSinceIsNotTaken) {
  const torch::Tensor numbers = torch::zeros({4});
  const auto ahead = AheadSender(device_).send({{"numbers", numbers}});
  numbers.add_(1);
  EXPECT_FALSE(ahead->take(numbers, device_).defined());
}

TEST_P(SentAhead, CopiesThatNobodyTookAreFreed) {
  const std::int64_t before = held_bytes();
  auto ahead = AheadSender(device_).send({{"x", torch::zeros({1000})}});
  EXPECT_GT(held_bytes(), before);
  ahead.reset();
  EXPECT_EQ(held_bytes(), before);
}

TEST_P(SentAhead, TheCpuAndDevicesTensorsStay) {
  const torch::Tensor here = torch::zeros({4}), there = here.to(device_);
  EXPECT_EQ(AheadSender(torch::kCPU).send({{"x", here}}), nullptr);
  EXPECT_FALSE(AheadSender(device_).send({{"x", there}})->take(there, device_).defined());
}

TEST_P(SentAhead, ALoaderSendsWhatItPreparesAhead) {
  TensorDict samples;
  samples.set("x", torch::arange(24, torch::kFloat32).view({8, 3}));
  DataLoader loader(std::make_shared<TensorDataset>(samples), {.global_batch = 2, .shuffle = false, .prefetch = 2});
  loader.distribute(1, 0);
  loader.send_ahead_to(device_);
  for (int step = 0; step < 3; ++step) {
    const Batch batch = loader.next();
    const torch::Tensor& here = batch.tensors.at("x");
    const torch::Tensor there = batch.ahead->take(here, device_);
    ASSERT_TRUE(there.defined());
    EXPECT_TRUE(torch::equal((there + 1).cpu(), here + 1));
  }
}

TEST(SentAheadFaults, AWaitThatIsLeftOutIsFound) {
  const c10::DeviceGuard on_device(pretend_device(1));
  set_device_faults({.drops_wait = 1});
  const torch::Tensor numbers = torch::arange(12);
  const auto ahead = AheadSender(pretend_device(1)).send({{"numbers", numbers}});
  const torch::Tensor sum = ahead->take(numbers, pretend_device(1)) + 1;
  set_device_faults({});
  const auto races = take_races();
  ASSERT_FALSE(races.empty());
  EXPECT_THAT(races.front(), ::testing::HasSubstr("no event wait between"));
}

INSTANTIATE_TEST_SUITE_P(Timings, SentAhead, ::testing::Values(KernelTiming::kAtOnce, KernelTiming::kLate));

}  // namespace
}  // namespace gantry::testing
