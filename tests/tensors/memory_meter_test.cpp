#include "gantry/tensors/memory_meter.h"

#include <gtest/gtest.h>
#include <thread>

#include <c10/core/Allocator.h>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::int64_t kMegabyte = 1 << 20;

TEST(MemoryMeter, CountsWhatThisThreadHolds) {
  const MemoryMeter meter;
  EXPECT_EQ(meter.bytes(), 0);
  torch::Tensor kept = torch::empty({kMegabyte}, torch::kUInt8);
  {
    const torch::Tensor passing = torch::empty({2 * kMegabyte}, torch::kUInt8);
    EXPECT_EQ(meter.bytes(), 3 * kMegabyte);
  }
  EXPECT_EQ(meter.bytes(), kMegabyte);
  EXPECT_EQ(meter.peak_bytes(), 3 * kMegabyte);
}

TEST(MemoryMeter, ResetStartsThePeakFromWhatIsHeld) {
  MemoryMeter meter;
  torch::Tensor kept = torch::empty({kMegabyte}, torch::kUInt8);
  { const torch::Tensor passing = torch::empty({kMegabyte}, torch::kUInt8); }
  meter.reset_peak();
  EXPECT_EQ(meter.peak_bytes(), kMegabyte);
}

TEST(MemoryMeter, AnotherThreadsMemoryIsItsOwnAndFreeingIsTakenOffTheAllocators) {
  const MemoryMeter mine;
  torch::Tensor handed_over;
  std::int64_t theirs = 0;
  std::thread([&] {
    const MemoryMeter meter;
    handed_over = torch::empty({kMegabyte}, torch::kUInt8);
    theirs = meter.bytes();
  }).join();
  EXPECT_EQ(theirs, kMegabyte);
  EXPECT_EQ(mine.bytes(), 0);
  handed_over.reset();
  EXPECT_EQ(mine.bytes(), 0);
}

// A thread in the background, such as the one that watches NCCL.
TEST(MemoryMeter, WhatAThreadWithoutAMeterFreesIsSubtracted) {
  const MemoryMeter meter;
  torch::Tensor freed_elsewhere = torch::empty({kMegabyte}, torch::kUInt8);
  std::thread([&] {
    const FreesCounted frees;
    freed_elsewhere.reset();
    const torch::Tensor theirs = torch::empty({kMegabyte}, torch::kUInt8);
    EXPECT_EQ(meter.bytes(), 0);
  }).join();
  EXPECT_EQ(meter.bytes(), 0);
}

// LibTorch's allocators give the address of freed memory again.
TEST(MemoryMeter, AnAddressThatIsUsedAgainIsCountedOnce) {
  const MemoryMeter meter;
  const auto report = [](void* block, std::int64_t bytes) {
    c10::reportMemoryUsageToProfiler(block, bytes, 0, 0, c10::Device(c10::kCPU));
  };
  int block = 0;
  report(&block, 100);
  report(&block, 60);  // a thread that nobody counts for has freed the first one
  EXPECT_EQ(meter.bytes(), 60);
  report(&block, -60);
  EXPECT_EQ(meter.bytes(), 0);
}

}  // namespace
}  // namespace gantry
