#include "gantry/profiling/memory_meter.h"

#include <gtest/gtest.h>
#include <thread>

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

}  // namespace
}  // namespace gantry
