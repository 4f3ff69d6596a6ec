#include "gantry/schedule/action.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"

namespace gantry::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string cell_error(const std::string& cell) {
  try {
    parse_cell(cell, "file.csv: line 2, cell 5");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Action, EveryKindReadsBackWhatItWrites) {
  for (const auto kind :
       {ActionKind::kForward, ActionKind::kBackward, ActionKind::kInputGradient, ActionKind::kWeightGradient,
        ActionKind::kSendForward, ActionKind::kRecvForward, ActionKind::kSendBackward, ActionKind::kRecvBackward})
    for (const auto& [stage, microbatch] : {std::pair(0, 0), std::pair(10, 7), std::pair(999'999, 999'999)}) {
      const Action action{kind, stage, microbatch};
      EXPECT_THAT(parse_cell(to_string(action), "here"), ElementsAre(action));
    }
}

TEST(Action, ExtrasAreOfAStage) {
  for (const auto kind : {ActionKind::kUnshard, ActionKind::kReshard, ActionKind::kReduceGradient}) {
    const Action action{kind, 12, kNoMicrobatch};
    EXPECT_TRUE(action.is_extra() && !action.is_compute() && !action.is_message());
    EXPECT_THAT(parse_cell(to_string(action), "here"), ElementsAre(action));
  }
  EXPECT_EQ(to_string(Action{ActionKind::kReduceGradient, 3, kNoMicrobatch}), "3REDUCE_GRAD");
}

TEST(Action, TextIsThatOfPyTorch) {
  EXPECT_EQ(to_string(Action{ActionKind::kForward, 2, 0}), "2F0");
  EXPECT_EQ(to_string(Action{ActionKind::kInputGradient, 3, 5}), "3I5");
  EXPECT_EQ(to_string(Action{ActionKind::kRecvBackward, 12, 34}), "12RECV_B34");
}

TEST(Action, EmptyAndSpacedCellsAreIdleTime) {
  EXPECT_THAT(parse_cell("", "here"), IsEmpty());
  EXPECT_THAT(parse_cell("  \t \r", "here"), IsEmpty());
  EXPECT_THAT(parse_cell(" 2F0\r", "here"), ElementsAre(Action{ActionKind::kForward, 2, 0}));
}

TEST(Action, OverlappedPairIsTwoActionsThatHangTogether) {
  EXPECT_THAT(parse_cell("(0F7;7B3)OVERLAP_F_B", "here"),
              ElementsAre(Action{ActionKind::kForward, 0, 7, true}, Action{ActionKind::kBackward, 7, 3}));
  EXPECT_THAT(parse_cell("( 0F7 ; 7I3 )OVERLAP_F_B", "here"),
              ElementsAre(Action{ActionKind::kForward, 0, 7, true}, Action{ActionKind::kInputGradient, 7, 3}));
}

class HostileCell : public ::testing::TestWithParam<std::string> {};

TEST_P(HostileCell, IsRefusedWithItsPlace) {
  const std::string message = cell_error(GetParam());
  EXPECT_THAT(message, HasSubstr("file.csv: line 2, cell 5: "));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(message.size(), 300u);
}

INSTANTIATE_TEST_SUITE_P(
    Cells, HostileCell,
    ::testing::Values("2F0x", "2F0 1", "2 F0", "2F 0", "F0", "2F", "2", "20", "F", "-1F0", "+1F0", "2F-1", "2f0", "2b0",
                      "2recv_f0", "2X0", "2SEND0", "2SEND_X0", "02F0", "2F00", "1000000F0", "2F1000000",
                      "99999999999999999999F0", "2F99999999999999999999", "0x2F0", "2F0.0", "2F0F1", "2FB0", "2BW0",
                      "0UNSHARD0", "0RESHARD1", "UNSHARD", "0unshard", "(0UNSHARD;0B0)OVERLAP_F_B", "\"2F0\"",
                      "2F0;2B0", "(0F7;7B3)", "(0F7;7B3)overlap_f_b", "(0F7;7B3)OVERLAP_F_Bx", "(0F7,7B3)OVERLAP_F_B",
                      "(0F7)OVERLAP_F_B", "()OVERLAP_F_B", "(;)OVERLAP_F_B", "(0F7;7B3;1F1)OVERLAP_F_B",
                      "(7B3;0F7)OVERLAP_F_B", "(0F7;1F7)OVERLAP_F_B", "(0F7;7W3)OVERLAP_F_B",
                      "(0F7;7SEND_B3)OVERLAP_F_B", "((0F7;7B3)OVERLAP_F_B;7B3)OVERLAP_F_B", "(0F7;7B3",
                      "0F7;7B3)OVERLAP_F_B", ")(", "(", std::string("2F0\0", 4), std::string("2F\0001", 4), "2F0\n2F1",
                      "\xEF\xBB\xBF"
                      "2F0",
                      "\xD9\xA2"
                      "F0",
                      std::string(100'000, '9'), std::string(100'000, '('), std::string(100'000, 'F')));

TEST(Action, ErrorsSayWhatWouldHaveBeenRight) {
  EXPECT_EQ(
      cell_error("2f0"),
      "file.csv: line 2, cell 5: '2f0' is not an action; expected stage, F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, "
      "OFFLOAD or RELOAD, microbatch, as in 2F0; or stage, UNSHARD, RESHARD, REDUCE_GRAD, OFFLOAD or RELOAD; "
      "write it in capital letters");
  EXPECT_THAT(cell_error("2BW0"), HasSubstr("write B and I"));
  EXPECT_THAT(cell_error("0REDUCE_GRAD1"), HasSubstr("write it without a microbatch"));
  EXPECT_THAT(cell_error("2F1000000"), HasSubstr("at most 999999"));
}

}  // namespace
}  // namespace gantry::schedule
