// Warnings are printed and passed to the listeners that exist.
#include "gantry/core/base/warning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;

TEST(Warning, IsPrintedAndPassedToEachListener) {
  std::vector<std::string> first, second;
  ::testing::internal::CaptureStderr();
  const WarningListener one([&](const std::string& line) { first.push_back(line); });
  {
    const WarningListener other([&](const std::string& line) { second.push_back(line); });
    print_warning("the disk is slow");
  }
  print_warning("rank 1 is late");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: the disk is slow\nwarning: rank 1 is late\n");
  EXPECT_THAT(first, ElementsAre("the disk is slow", "rank 1 is late"));
  EXPECT_THAT(second, ElementsAre("the disk is slow"));
}

}  // namespace
}  // namespace gantry::testing
