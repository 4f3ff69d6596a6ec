#include "gantry/core/base/parallel_for.h"

#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>
#include <vector>

namespace gantry {
namespace {

TEST(ParallelFor, CallsEachNumberOnce) {
  for (const std::size_t threads : {0, 1, 3, 20}) {
    std::vector<std::atomic<int>> calls(10);
    parallel_for(calls.size(), threads, [&](std::size_t i) { ++calls[i]; });
    for (const auto& count : calls) EXPECT_EQ(count, 1);
  }
  parallel_for(0, 2, [](std::size_t) { FAIL(); });
}

TEST(ParallelFor, ThrowsTheExceptionOfTheSmallestNumber) {
  const auto fail = [](std::size_t i) { throw std::runtime_error(std::to_string(i)); };
  for (const std::size_t threads : {1, 4}) try {
      parallel_for(8, threads, fail);
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "0");
    }
}

}  // namespace
}  // namespace gantry
