// A process that ends without the exit functions of its libraries.
#include "gantry/core/host/process_end.h"

#include <cstdio>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iostream>

namespace gantry::testing {
namespace {

void print_earlier() { std::fputs("earlier\n", stderr); }
void print_later() { std::fputs("later\n", stderr); }

TEST(ProcessEnd, RunsTheExitFunctionsOfTheProgramAlone) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers report at the end of a process";
#endif
  const auto end = [] {
    std::atexit(print_earlier);
    skip_library_destructors();
    std::atexit(print_later);
    std::exit(3);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(3), ::testing::Not(::testing::HasSubstr("earlier")));
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(3), "later");
}

}  // namespace
}  // namespace gantry::testing
