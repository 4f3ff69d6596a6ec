// `gantry doctor DIR`: the sentence first, then the ranks; the same as JSON; damaged files by exit code 4.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../diagnosis/hand_made_records.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Outcome doctor(const std::string& arguments) { return run_program(gantry_program() + " doctor " + arguments); }

void write_job(const ScratchFolder& scratch, const HandMadeJob& made) {
  for (const auto& [rank, record] : made.job.records) scratch.write(file_name(rank), to_text(record));
}

HandMadeJob stuck_job() {
  HandMadeJob made(2);
  for (int i = 0; i < 8; ++i)
    for (int rank = 0; rank < 2; ++rank) made.call(rank, Kind::kBroadcast);
  made.call(1, Kind::kAllReduce, State::kWaiting);
  return made;
}

TEST(Doctor, SaysItInOneSentenceAndShowsTheLastOperations) {
  const ScratchFolder scratch;
  write_job(scratch, stuck_job());
  const Outcome run = doctor(scratch.path());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out,
              StartsWith("rank 1 has waited 82.0 s for rank 0 to join all_reduce 8 of group 'all' (float32 [4]), "
                         "which is outside communication; its last call, broadcast 7"));
  EXPECT_THAT(run.out, HasSubstr("\nrank 0: running, process 100 on here (local), 8 operations\n"));
  EXPECT_THAT(run.out,
              HasSubstr("    82.000 s ago  waiting   82.000000 s  all_reduce 8 of group 'all' (float32 [4])\n"));
  EXPECT_THAT(run.out, HasSubstr("broadcast 4 of"));
  EXPECT_EQ(run.out.find("broadcast 2 of"), std::string::npos) << "only the last few";
}

TEST(Doctor, AsJson) {
  const ScratchFolder scratch;
  write_job(scratch, stuck_job());
  const Outcome run = doctor(scratch.path() + " --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto all = nlohmann::json::parse(run.out);
  EXPECT_EQ(all["finding"], "not_reached");
  EXPECT_THAT(all["sentence"].get<std::string>(), StartsWith("rank 1 has waited"));
  EXPECT_EQ(all["waits"][0]["rank"], 1);
  EXPECT_EQ(all["waits"][0]["waits_for"], nlohmann::json::array({0}));
  ASSERT_EQ(all["ranks"].size(), 2u);
  EXPECT_EQ(all["ranks"][1]["operations"].size(), 9u);
}

TEST(Doctor, HowLongAWaitMayLastIsTheCallersToSay) {
  const ScratchFolder scratch;
  write_job(scratch, stuck_job());
  EXPECT_THAT(doctor(scratch.path() + " --stuck-after 100").out,
              StartsWith("nothing is stuck: the longest wait is that"));
  EXPECT_EQ(doctor(scratch.path() + " --stuck-after=-1").exit_code, 2);
}

TEST(Doctor, DamagedFilesAreExitCode4) {
  const ScratchFolder scratch;
  write_job(scratch, stuck_job());
  const std::string text = read_file(scratch / file_name(1));
  scratch.write(file_name(1), text.substr(0, text.size() / 2));
  const Outcome run = doctor(scratch.path());
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("rank-00001.json: the text is not JSON"));
  EXPECT_EQ(doctor(scratch / "nothing").exit_code, 4);
}

TEST(Doctor, WithoutAFolderItIsAboutTheMachine) {
  const Outcome run = doctor("");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.out, HasSubstr("backends: "));
  const auto machine = nlohmann::json::parse(doctor("--json").out);
  EXPECT_EQ(run.out.find(fmt::format("gantry {}\n", machine["version"].get<std::string>())), 0u) << machine;
  EXPECT_GT(machine["cores"], 0);
}

TEST(Doctor, SaysWhetherThisBuildHasNcclAndHowToGetIt) {
  const std::string said = doctor("").out;
  const auto line = said.substr(said.find("backends: "));
  EXPECT_THAT(line, StartsWith("backends: local (threads)"));
#ifdef GANTRY_BUILT_WITH_NCCL
  EXPECT_THAT(line, ::testing::ContainsRegex(", nccl \\(NCCL [0-9]+\\.[0-9]+"));
#else
  EXPECT_THAT(line,
              HasSubstr(", no nccl (its headers were not there when it was built: ./dev setup --nccl brings them)"));
#endif
}

}  // namespace
}  // namespace gantry::testing
