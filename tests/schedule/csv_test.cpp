#include <cstdio>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/validate.h"
#include "random_schedule.h"

namespace gantry::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string csv_error(const std::string& text) {
  try {
    from_csv(text, "my.csv");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Csv, ARowIsARankAndItsStagesAreThoseItNames) {
  const Schedule schedule = from_csv("0F0,,0F1,3F0,3F1\n1F0,2F0,1F1,2F1\n", "v");
  EXPECT_EQ(schedule.ranks(), 2);
  EXPECT_EQ(schedule.stages(), 4);
  EXPECT_EQ(schedule.microbatches, 2);
  EXPECT_THAT(schedule.stages_of_rank, ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
  EXPECT_EQ(schedule.actions[0].size(), 4u);
  EXPECT_EQ(schedule.name, "v");
  EXPECT_EQ(schedule.rank_of(3), 0);
  EXPECT_EQ(schedule.rank_of(4), -1);
  validate(schedule);
}

TEST(Csv, LineEndsOfOtherSystemsAndBlankLastLinesAreRead) {
  const Schedule expected = from_csv("0F0,0B0\n1F0,1B0", "x");
  EXPECT_EQ(from_csv("0F0,0B0\r\n1F0,1B0\r\n", "x"), expected);
  EXPECT_EQ(from_csv("0F0,0B0\n1F0,1B0\n\n  \n", "x"), expected);
}

TEST(Csv, RandomSchedulesReadBackComputeOnlyAndLowered) {
  testing::RandomSchedule random(7);
  for (int i = 0; i < 300; ++i) {
    const Schedule schedule = random.make(4, 3, 5);
    EXPECT_EQ(from_csv(to_csv(schedule), "random"), schedule);
    const Schedule lowered = lower(schedule);
    EXPECT_EQ(from_csv(to_csv(lowered), "random"), lowered);
  }
}

TEST(Csv, PairsAreWrittenAsPyTorchDoes) {
  const std::string text = "0F0,0F1,1F0,(1F1;1B0)OVERLAP_F_B,0B0,1B1,0B1\n";
  EXPECT_EQ(to_csv(from_csv(text, "pair")), text);
  validate(from_csv(text, "pair"));
}

TEST(Csv, FaultsNameLineAndCell) {
  EXPECT_THAT(csv_error("0F0,0B0\n1F0,1Q0\n"), HasSubstr("my.csv: line 2, cell 2: '1Q0'"));
  EXPECT_THAT(csv_error(""), HasSubstr("my.csv: the schedule is empty"));
  EXPECT_THAT(csv_error("\n\n"), HasSubstr("empty"));
  EXPECT_THAT(csv_error("0F0\n,,\n1F0\n"), HasSubstr("line 2: the row has no action"));
  EXPECT_THAT(csv_error(std::string((64u << 20) + 1, ',')), HasSubstr("bytes"));
}

TEST(Csv, FilesAreReadAndUnreadableOnesAreInputErrors) {
  const std::string path = ::testing::TempDir() + "gantry_csv_test.csv";
  std::ofstream(path) << "0F0,0B0\n";
  EXPECT_EQ(load_csv(path).actions[0].size(), 2u);
  std::remove(path.c_str());
  EXPECT_THROW(load_csv(path), InputError);
  EXPECT_THROW(load_csv(::testing::TempDir()), InputError);
}

TEST(Schedule, ForwardOnlyKeepsTheForwardsAlone) {
  const Schedule schedule = from_csv("0F0,0F1,1F0,(1F1;1B0)OVERLAP_F_B,0B0,1B1,0B1\n", "pair");
  EXPECT_EQ(to_csv(forward_only(schedule)), "0F0,0F1,1F0,1F1\n");
  EXPECT_EQ(to_csv(forward_only(lower(generate("1f1b", 2, 2)))), "0F0,0F1\n1F0,1F1\n");
}

TEST(Schedule, ComputeOnlyUndoesLowering) {
  const Schedule schedule = generate("1f1b", 3, 4);
  EXPECT_FALSE(is_lowered(schedule));
  EXPECT_TRUE(is_lowered(lower(schedule)));
  EXPECT_EQ(compute_only(lower(schedule)), schedule);
}

}  // namespace
}  // namespace gantry::schedule
