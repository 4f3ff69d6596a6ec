// Profiles of chosen steps, as traces and tables.
#include "gantry/profiling/profiler.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"

namespace gantry::testing {
namespace {

std::size_t products_in(const Profile& profile, const std::string& shapes) {
  return static_cast<std::size_t>(
      std::count_if(profile.operators.begin(), profile.operators.end(),
                    [&](const auto& one) { return one.name == "aten::mm" && one.shapes == shapes; }));
}

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

TEST(Profiler, FinishGivesWhatACycleUnderWayHasSeen) {
  for (const int steps : {1, 2, 3, 4, 5}) {
    std::vector<std::pair<int, std::size_t>> seen;  // steps and products, by cycle
    Profiler profiler({.warmup = 1, .active = 2, .repeat = 0}, [&](const Profile& profile) {
      seen.emplace_back(profile.steps, products_in(profile, "[2, 3], [3, 4]"));
    });
    for (int step = 0; step < steps; ++step) {
      torch::mm(torch::ones({2, 3}), torch::ones({3, 4}));
      profiler.step();
    }
    profiler.finish();
    std::vector<std::pair<int, std::size_t>> expected;
    if (steps == 2) expected = {{1, 1}};
    if (steps >= 3) expected = {{2, 2}};
    if (steps == 5) expected.emplace_back(1, 1);
    EXPECT_EQ(seen, expected) << steps;
  }
}

TEST(Profiler, SeesItsOwnThreadAlone) {
  Profile seen;
  Profiler profiler({.active = 1}, [&](const Profile& profile) { seen = profile; });
  std::thread([] { torch::mm(torch::ones({2, 2}), torch::ones({2, 2})); }).join();
  profiler.step();
  for (const auto& one : seen.operators) EXPECT_NE(one.name, "aten::mm");
}

// Rank threads share what LibTorch has one of a process: each gets its own operators, backwards too, cycle for cycle.
TEST(Profiler, ThreadsThatMeetSeeTheirOwnOperators) {
  constexpr int kThreads = 3, kCycles = 4;
  std::barrier meeting(kThreads);
  std::array<std::vector<Profile>, kThreads> seen;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kThreads; ++rank)
    threads.emplace_back([&, rank] {
      Profiler profiler(
          {.active = 1, .repeat = kCycles}, [&](const Profile& profile) { seen[rank].push_back(profile); },
          [&] { meeting.arrive_and_wait(); });
      for (int cycle = 0; cycle < kCycles; ++cycle) {
        const torch::Tensor weight = torch::ones({3, 4}, torch::requires_grad());
        for (int call = 0; call <= rank; ++call) torch::mm(torch::ones({5 + rank, 3}), weight).sum().backward();
        profiler.step();
      }
    });
  for (auto& thread : threads) thread.join();
  for (int rank = 0; rank < kThreads; ++rank) {
    ASSERT_EQ(seen[rank].size(), static_cast<std::size_t>(kCycles));
    for (const auto& profile : seen[rank])
      for (int other = 0; other < kThreads; ++other) {
        const std::size_t calls = other == rank ? rank + 1 : 0;
        EXPECT_EQ(products_in(profile, fmt::format("[{}, 3], [3, 4]", 5 + other)), calls);
        EXPECT_EQ(products_in(profile, fmt::format("[3, {}], [{}, 4]", 5 + other, 5 + other)), calls);
      }
  }
}

TEST(Profiler, OneThatGivesUpLeavesTheNextOnesUnharmed) {
  std::barrier meeting(2);
  std::thread other([&] {
    Profiler profiler({.active = 2}, {}, [&] { meeting.arrive_and_wait(); });
    torch::mm(torch::ones({2, 2}), torch::ones({2, 2}));
  });
  {
    Profiler profiler({.active = 2}, {}, [&] { meeting.arrive_and_wait(); });
    other.join();
    torch::mm(torch::ones({2, 2}), torch::ones({2, 2}));
    profiler.step();
  }
  EXPECT_THROW(Profiler({.active = 1}, {}, [] { throw std::runtime_error("nobody comes"); }), std::runtime_error);
  Profile seen;
  Profiler profiler({.active = 1}, [&](const Profile& profile) { seen = profile; });
  torch::mm(torch::ones({2, 3}), torch::ones({3, 4}));
  profiler.step();
  EXPECT_EQ(products_in(seen, "[2, 3], [3, 4]"), 1u);
}

TEST(Profiler, RefusesThreadsThatDoNotMeetAndOtherProfilers) {
  {
    const Profiler alone({.active = 1}, [](const Profile&) {});
    std::thread([] { EXPECT_THROW(Profiler({.active = 1}, {}), UsageError); }).join();
    std::thread([] { EXPECT_THROW(Profiler({.active = 1}, {}, [] {}), UsageError); }).join();
  }
  using namespace torch::profiler::impl;
  const ProfilerConfig config(ProfilerState::KINETO);
  torch::autograd::profiler::prepareProfiler(config, {ActivityType::CPU});
  torch::autograd::profiler::enableProfiler(config, {ActivityType::CPU});
  EXPECT_THROW(Profiler({.active = 1}, {}), UsageError);
  EXPECT_THROW(Profiler({.warmup = 1, .active = 1}, {}), UsageError);
  torch::autograd::profiler::disableProfiler();
  EXPECT_NO_THROW(Profiler({.active = 1}, {}));
}

TEST(Profiler, OperatorsLieWhereTheClockSaysAndWithinWhatCalledThem) {
  Profile seen;
  Profiler profiler({.active = 1}, [&](const Profile& profile) { seen = profile; });
  const double before = steady_seconds();
  torch::linear(torch::ones({64, 64}), torch::ones({64, 64}), torch::ones({64}));
  const double after = steady_seconds();
  profiler.step();
  constexpr double kClocks = 1e-4;  // between Kineto's and ours
  const ProfiledOperator* outer = nullptr;
  for (const auto& one : seen.operators) {
    EXPECT_GE(one.start, before - kClocks);
    EXPECT_LE(one.end, after + kClocks);
    if (one.depth == 0) outer = &one;
    ASSERT_NE(outer, nullptr);
    EXPECT_TRUE(one.start >= outer->start && one.end <= outer->end) << one.name;
  }
  EXPECT_EQ(outer->name, "aten::linear");
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

Profile with_kernels() {
  return {
      0,
      {{"aten::linear", "[2, 3]", 0, 1.0, 1.5}, {"aten::addmm", "[2, 3]", 1, 1.1, 1.2}, {"aten::relu", "", 0, 2, 2.9}},
      {{"gemm", 0, 7, 1.3, 1.9, 1}, {"elementwise", 0, 7, 2.1, 2.2, 2}, {"copy", 1, 7, 2.2, 2.3, 2}}};
}

TEST(Profile, KernelsAreOnAThreadAStreamAndKnowTheirOperator) {
  const auto events = nlohmann::json::parse("[" + chrome_events(with_kernels(), 3, 1, 1.0) + "]");
  std::map<std::string, nlohmann::json> by_name;
  std::map<int, std::string> threads;
  for (const auto& event : events) {
    if (event["ph"] == "M")
      threads[event["tid"]] = event["args"]["name"];
    else
      by_name[event["name"]] = event;
  }
  EXPECT_EQ(threads, (std::map<int, std::string>{{2, "GPU 0 stream 7"}, {3, "GPU 1 stream 7"}}));
  EXPECT_EQ(by_name["gemm"]["tid"], 2);
  EXPECT_EQ(by_name["elementwise"]["tid"], 2);
  EXPECT_EQ(by_name["copy"]["tid"], 3);
  EXPECT_EQ(by_name["gemm"]["args"]["operator"], "aten::addmm");
  EXPECT_NEAR(by_name["gemm"]["ts"].get<double>(), 0.3e6, 1e-3);
  EXPECT_NEAR(by_name["gemm"]["dur"].get<double>(), 0.6e6, 1e-3);
}

TEST(Profile, TableIsByKernelsTimeWhereThereAreKernels) {
  const auto costs = costliest_operators(with_kernels(), 2);
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].name, "aten::addmm");
  EXPECT_NEAR(costs[0].device, 0.6, 1e-9);
  EXPECT_EQ(costs[1].name, "aten::relu");
  EXPECT_NEAR(costs[1].device, 0.2, 1e-9);
  EXPECT_NE(operator_table(with_kernels(), 3).find("device ms"), std::string::npos);
  EXPECT_NE(operator_table(with_kernels(), 3).find("600.000"), std::string::npos);
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
