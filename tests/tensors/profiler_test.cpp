// Profiles of chosen steps, as traces and tables.
#include "gantry/tensors/profiler.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <thread>

#include <ATen/record_function.h>
#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/tensors/memory_meter.h"

namespace gantry::testing {
namespace {

TEST(Profiler, KeepsTheActiveStepsOfEachCycle) {
  std::vector<std::size_t> products;
  Profiler profiler({.wait = 1, .warmup = 1, .active = 3, .repeat = 2}, [&](const Profile& profile) {
    EXPECT_EQ(profile.cycle, static_cast<int>(products.size()));
    std::size_t count = 0;
    for (const auto& one : profile.operators) {
      EXPECT_LE(one.start, one.end);
      count += one.name == "aten::mm";
    }
    products.push_back(count);
  });
  for (int step = 0; step < 14; ++step) {
    torch::mm(torch::ones({2, 3}), torch::ones({3, 4}));
    profiler.step();
  }
  EXPECT_EQ(products, (std::vector<std::size_t>{3, 3}));
}

TEST(Profiler, SeesItsOwnThreadAlone) {
  Profile seen;
  Profiler profiler({.active = 1}, [&](const Profile& profile) { seen = profile; });
  std::thread([] { torch::mm(torch::ones({2, 2}), torch::ones({2, 2})); }).join();
  profiler.step();
  for (const auto& one : seen.operators) EXPECT_NE(one.name, "aten::mm");
}

void wait_within(int levels) {
  RECORD_FUNCTION("gantry::wait", std::vector<c10::IValue>{});
  if (levels > 1) wait_within(levels - 1);
}

TEST(Profiler, AWaitWithinAWaitIsOneWait) {
  Profile seen;
  Profiler profiler({.active = 1}, [&](const Profile& profile) { seen = profile; });
  wait_within(3);
  wait_within(1);
  profiler.step();
  EXPECT_EQ(std::count_if(seen.operators.begin(), seen.operators.end(),
                          [](const auto& one) { return one.name == "gantry::wait" && one.depth == 0; }),
            2);
  EXPECT_EQ(seen.operators.size(), 2u);
}

TEST(Profiler, RefusesSchedulesWithoutActiveStepsAndSecondOnes) {
  EXPECT_THROW(Profiler({.active = 0}, {}), UsageError);
  EXPECT_THROW(Profiler({.wait = -1}, {}), UsageError);
  const Profiler first({.active = 1}, [](const Profile&) {});
  EXPECT_THROW(Profiler({.active = 1}, {}), UsageError);
}

TEST(Profile, TraceHasEveryOperatorWithItsShapes) {
  const Profile profile{0, {{"aten::linear", "[2, 3]", 0, 1.0, 1.5}, {"gantry::all_reduce", "[2]", 1, 1.1, 1.2}}};
  const auto trace = nlohmann::json::parse(chrome_trace(profile, "rank 1", 1));
  ASSERT_EQ(trace["traceEvents"].size(), 3u);
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "rank 1");
  EXPECT_EQ(trace["traceEvents"][1]["args"]["shapes"], "[2, 3]");
  EXPECT_DOUBLE_EQ(trace["traceEvents"][1]["dur"].get<double>(), 0.5e6);
  EXPECT_EQ(trace["traceEvents"][2]["cat"], "communication");
}

TEST(Profiler, CountsWhatAnOperatorLeavesAllocated) {
  const MemoryMeter meter;
  Profile seen;
  Profiler profiler({.active = 1}, [&](const Profile& profile) { seen = profile; });
  const torch::Tensor kept = torch::mm(torch::ones({4, 8}), torch::ones({8, 16}));
  profiler.step();
  const auto found = std::find_if(seen.operators.begin(), seen.operators.end(),
                                  [](const ProfiledOperator& one) { return one.name == "aten::mm"; });
  ASSERT_NE(found, seen.operators.end());
  EXPECT_EQ(found->memory, 4 * 16 * 4);
  EXPECT_EQ(found->bytes, (4 * 8 + 8 * 16) * 4);
  const auto costs = costliest_operators(seen, 100);
  EXPECT_TRUE(std::any_of(costs.begin(), costs.end(), [](const OperatorCost& cost) {
    return cost.name == "aten::mm" && cost.calls == 1 && cost.memory == 4 * 16 * 4;
  }));
}

TEST(Profile, TableCountsOwnTimeWithoutInnerOperators) {
  const Profile profile{0, {{"outer", "", 0, 0.0, 1.0}, {"inner", "", 1, 0.1, 0.8}, {"inner", "", 0, 2.0, 2.1}}};
  const std::string table = operator_table(profile, 10);
  EXPECT_LT(table.find("inner"), table.find("outer"));  // 0.8 s of its own against 0.3
  EXPECT_NE(table.find("300.000"), std::string::npos) << table;
  EXPECT_NE(table.find("800.000"), std::string::npos) << table;
  EXPECT_EQ(operator_table(profile, 1).find("outer"), std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
