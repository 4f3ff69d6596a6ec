// Files, pipes and directories that are opened for reading.
#include "gantry/core/io/readable_file.h"

#include <gtest/gtest.h>
#include <iterator>

#include "program.h"

namespace gantry::testing {
namespace {

TEST(ReadableFile, IsAFileOrADevice) {
  const ScratchFolder scratch;
  std::ifstream file = open_for_reading(scratch.write("f", "text"));
  ASSERT_TRUE(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "text");
  EXPECT_TRUE(open_for_reading("/dev/null"));
}

TEST(ReadableFile, IsNoDirectory) {
  const ScratchFolder scratch;
  EXPECT_FALSE(open_for_reading(scratch.path()));
  EXPECT_FALSE(open_for_reading(scratch / "missing"));
}

}  // namespace
}  // namespace gantry::testing
