#include "gantry/tensors/memory_meter.h"

#include <gtest/gtest.h>
#include <thread>

#include <c10/core/Allocator.h>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::int64_t kMegabyte = 1 << 20;

// Reports a block as an allocator does; negative bytes: it is freed.
void report(void* block, std::int64_t bytes, c10::DeviceType device) {
  c10::reportMemoryUsageToProfiler(block, bytes, 0, 0, c10::Device(device, device == c10::kCPU ? -1 : 0));
}

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
  const MemoryMeter meter(c10::kCUDA);
  int block = 0, theirs = 0;
  report(&block, 100, c10::kCUDA);
  std::thread([&] {
    const FreesCounted frees;
    report(&block, -100, c10::kCUDA);
    report(&theirs, 70, c10::kCUDA);
  }).join();
  EXPECT_EQ(meter.bytes(), 0);
}

// LibTorch's allocators reuse the address of freed memory.
TEST(MemoryMeter, AnAddressThatIsUsedAgainIsCountedOnce) {
  const MemoryMeter meter;
  int block = 0;
  report(&block, 100, c10::kCPU);
  report(&block, 60, c10::kCPU);  // a thread without a meter has freed the first one
  EXPECT_EQ(meter.bytes(), 60);
  report(&block, -60, c10::kCPU);
  EXPECT_EQ(meter.bytes(), 0);
}

}  // namespace
}  // namespace gantry
