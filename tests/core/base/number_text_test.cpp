#include "gantry/core/base/number_text.h"

#include <gtest/gtest.h>

namespace gantry {
namespace {

TEST(NumberText, CountsInSingularAndPlural) {
  EXPECT_EQ(quantity(0, "host"), "0 hosts");
  EXPECT_EQ(quantity(1, "host"), "1 host");
  EXPECT_EQ(quantity(2, "host"), "2 hosts");
  EXPECT_EQ(quantity(2, "microbatch"), "2 microbatches");
}

TEST(NumberText, GivesBytesThreeDigitsAndAUnit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(589'512), "576 KiB");
  EXPECT_EQ(bytes_text(1024.0 * 1024 * 1024 * 79.5), "79.5 GiB");
  EXPECT_EQ(bytes_text(1023.6), "1 KiB");
  EXPECT_EQ(bytes_text(1024.0 * 999.8), "0.976 MiB");
  EXPECT_EQ(bytes_text(1e16), "9095 TiB");
}

}  // namespace
}  // namespace gantry
