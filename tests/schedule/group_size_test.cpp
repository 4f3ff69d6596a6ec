// interleaved_1f1b with a group size, compared with Megatron-LM's order.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "gantry/core/error.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"

namespace gantry::schedule {
namespace {

using ::testing::HasSubstr;

std::string group_row(const std::vector<Action>& row) {
  std::string text;
  for (const auto& action : row) text += (text.empty() ? "" : " ") + to_string(action);
  return text;
}

std::string group_size_error(const std::string& name, int ranks, int microbatches, int chunks, int group_size) {
  try {
    generate(name, ranks, microbatches, chunks, {.group_size = group_size});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

// The expected rows are made by hand from Megatron-LM's rules: 2 (p - rank - 1) + (v - 1) group forwards
// ahead, groups through all chunks.
TEST(GroupSize, OrdersAreMegatrons) {
  const Schedule even = generate("interleaved_1f1b", 2, 8, 2, {.group_size = 4});
  EXPECT_EQ(group_row(even.actions[0]),
            "0F0 0F1 0F2 0F3 2F0 2F1 2F2 2B0 2F3 2B1 0F4 2B2 0F5 2B3 0F6 0B0 0F7 0B1 2F4 0B2 2F5 0B3 2F6 2B4 2F7 2B5 "
            "2B6 2B7 0B4 0B5 0B6 0B7");
  EXPECT_EQ(group_row(even.actions[1]),
            "1F0 1F1 1F2 1F3 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 1F4 1B0 1F5 1B1 1F6 1B2 1F7 1B3 3F4 3B4 3F5 3B5 3F6 3B6 "
            "3F7 3B7 1B4 1B5 1B6 1B7");
  // The last group has three microbatches, at least as many as there are ranks.
  const Schedule uneven = generate("interleaved_1f1b", 2, 7, 2, {.group_size = 4});
  EXPECT_EQ(group_row(uneven.actions[1]),
            "1F0 1F1 1F2 1F3 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 1F4 1B0 1F5 1B1 1F6 1B2 3F4 1B3 3F5 3B4 3F6 3B5 3B6 "
            "1B4 1B5 1B6");
}

TEST(GroupSize, IsTheNumberOfRanksByDefault) {
  for (const int microbatches : {4, 7, 8, 12})
    EXPECT_EQ(generate("interleaved_1f1b", 4, microbatches, 2),
              generate("interleaved_1f1b", 4, microbatches, 2, {.group_size = 4}));
}

TEST(GroupSize, EverySizeIsValidAndGroupsStayTogether) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (int chunks = 1; chunks <= 4; ++chunks)
      for (int group = ranks; group <= ranks + 4; ++group)
        for (int microbatches = 1; microbatches <= 14; ++microbatches) {
          SCOPED_TRACE(::testing::Message() << ranks << " " << chunks << " " << group << " " << microbatches);
          const Schedule schedule = generate("interleaved_1f1b", ranks, microbatches, chunks, {.group_size = group});
          ASSERT_NO_THROW(validate(lower(schedule)));
          // The forwards of a stage are in the order of the microbatches, and those of a group precede the next group.
          std::map<int, int> next;
          int groups = 0;
          for (const auto& action : schedule.actions[0])
            if (action.kind == ActionKind::kForward) {
              ASSERT_EQ(action.microbatch, next[action.stage]++);
              ASSERT_GE(action.microbatch / group, groups);
              groups = action.microbatch / group;
            }
        }
}

TEST(GroupSize, WhereItMakesNoSenseItIsRefused) {
  EXPECT_THAT(group_size_error("interleaved_1f1b", 4, 8, 2, 3),
              HasSubstr("a group size of 3 microbatches; expected at least the 4 ranks"));
  EXPECT_THAT(group_size_error("interleaved_1f1b", 4, 8, 2, -4), HasSubstr("at least 1"));
  EXPECT_THAT(group_size_error("1f1b", 4, 8, 1, 4), HasSubstr("the schedule has no group size"));
  EXPECT_EQ(group_size_error("interleaved_1f1b", 4, 3, 2, 1000), "accepted");
}

}  // namespace
}  // namespace gantry::schedule
