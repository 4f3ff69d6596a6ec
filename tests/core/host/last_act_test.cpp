// The function that runs after the error line of a failure and before the end of the process.
#include "gantry/core/host/last_act.h"

#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace gantry {
namespace {

TEST(LastAct, RunsOnceAndAllCallersWaitForIt) {
  std::atomic<int> ended{0};
  set_last_act([&](const std::string& error) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(error, "rank 1: out of memory");
    ++ended;
  });
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&] {
      run_last_act("rank 1: out of memory");
      EXPECT_EQ(ended, 1);
    });
  for (auto& caller : callers) caller.join();
  run_last_act("another failure");
  EXPECT_EQ(ended, 1);
}

TEST(LastAct, MayThrow) {
  set_last_act([](const std::string&) { throw std::runtime_error("the disk is full"); });
  run_last_act("the failure that counts");
}

TEST(LastAct, OfAnEndedRunIsForgotten) {
  bool ran = false;
  set_last_act([&](const std::string&) { ran = true; });
  set_last_act({});
  run_last_act("a later failure");
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace gantry
