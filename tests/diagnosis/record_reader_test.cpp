// Records as files: written records are read back unchanged, and invalid files are rejected.
#include "gantry/diagnosis/record_reader.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "hand_made_records.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

RankRecord sample() {
  HandMadeJob made(3);
  made.rank(1).failure = true;
  made.rank(1).reason = "rank 0 waited \"1 s\"";
  made.rank(1).state = RankState::kFailed;
  made.rank(1).error = "x";
  made.rank(1).ended_ns = 3;
  made.rank(1).forgotten = 40;
  made.call(1, Kind::kAllReduce);
  made.call(1, Kind::kBarrier, State::kWaiting);
  made.message(1, Kind::kSend, 2, {Tag::Kind::kBackward, 3, 4, 5}, State::kFailed);
  made.message(1, Kind::kReceive, 0, {Tag::Kind::kUser, -1, 0, 0}, State::kPosted).sequence = Operation::kNotCounted;
  return made.rank(1);
}

std::string refusal(const std::string& text) {
  try {
    parse_record(text, "rank-00001.json");
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("rank-00001.json: ", 0), 0u) << error.what();
    return error.what();
  }
  return "taken";
}

TEST(RecordFile, ReadsBackAsItWas) {
  const std::string text = to_text(sample());
  const RankRecord read = parse_record(text, "f");
  EXPECT_EQ(to_text(read), text);
  EXPECT_EQ(read.identity.name, "rank 1");
  EXPECT_EQ(read.reason, "rank 0 waited \"1 s\"");
  ASSERT_EQ(read.operations.size(), 4u);
  EXPECT_EQ(read.operations[0].number, 40u);
  EXPECT_EQ(read.operations[2].tag, (Tag{Tag::Kind::kBackward, 3, 4, 5}));
  EXPECT_EQ(read.operations[3].tag.stage, -1);
  EXPECT_EQ(read.operations[3].sequence, Operation::kNotCounted);
  EXPECT_TRUE(Json::parse(text).contains("clock"));
}

TEST(RecordFile, AnyTruncationIsRejected) {
  const std::string text = to_text(sample());
  for (std::size_t length = 0; length + 2 < text.size(); ++length)
    ASSERT_NE(refusal(text.substr(0, length)), "taken") << length;
}

TEST(RecordFile, ControlCharactersAreBlanks) {
  RankRecord record = sample();
  record.identity.name = "rank\x1b[31m 1\n";
  record.groups[0].label = "tp\r";
  const RankRecord read = parse_record(to_text(record), "f");
  EXPECT_EQ(read.identity.name, "rank [31m 1 ");
  EXPECT_EQ(read.groups[0].label, "tp ");
}

TEST(RecordFile, TextThatIsNoUtf8IsWrittenAllTheSame) {
  RankRecord record = sample();
  record.groups[0].label = "tp\xff";
  EXPECT_NO_THROW(parse_record(to_text(record), "f"));
}

struct Damage {
  const char* where;  // a JSON pointer
  Json value;
  const char* said;
};

TEST(RecordFile, WhatCantBeIsRefusedByName) {
  const Json sound = Json::parse(to_text(sample()));
  const Damage damages[] = {
      {"/format", "something", "the file is not a record of a rank"},
      {"/version", 2, "the file has version 2, but this program reads 1"},
      {"/rank", 3, "the file is from rank 3 of 3 ranks"},
      {"/rank", -1, "'rank' is not a whole number"},
      {"/ranks", 1u << 30, "'ranks' is not a whole number from 0 to 1048576"},
      {"/name", 7, "'name' is not a string"},
      {"/state", "asleep", "'state' has an unknown value"},
      {"/failure", 1, "neither true nor false"},
      {"/timeout_seconds", -1, "'timeout_seconds'"},
      {"/written_ns", 1.5, "'written_ns' is not a whole number"},
      {"/forgotten", 41, "operation 40 is at the place of operation 41"},
      {"/groups", Json::object(), "'groups' is not a list"},
      {"/groups/0/ranks", {0, 0, 1}, "the ranks of a group are not ascending"},
      {"/groups/0/ranks", {0, 1, 3}, "ascending numbers from 0 to 2"},
      {"/groups/0/ranks", {0, 2}, "a group without rank 1"},
      {"/operations/0/group", 1, "a group that is not listed"},
      {"/operations/0/kind", "all_reduce_twice", "'kind' has an unknown value"},
      {"/operations/0/number", 39, "operation 39 is at the place of operation 40"},
      {"/operations/0/finished_ns", 1, "times that do not fit its state"},
      {"/operations/1/finished_ns", 99 * HandMadeJob::kSecond, "times that do not fit its state"},
      {"/operations/0/posted_ns", HandMadeJob::kWritten + 1, "'posted_ns' is not a whole number from 0 to"},
      {"/operations/0/shape", {-1}, "an invalid shape"},
      {"/operations/0/shape", 4, "'shape' is not a list"},
      {"/operations/2/peer", 5, "a peer that is not in its group"},
      {"/operations/2/tag", 5, "the key 'kind' is missing"},
      {"/operations/2/tag/stage", 1ull << 40, "not a number of 32 bits"},
  };
  for (const auto& [where, value, said] : damages) {
    Json damaged = sound;
    damaged[Json::json_pointer(where)] = value;
    EXPECT_THAT(refusal(damaged.dump()), HasSubstr(said)) << where;
  }
  for (const char* key : {"format", "version", "rank", "job", "written_ns", "groups", "operations", "forgotten"}) {
    Json damaged = sound;
    damaged.erase(key);
    EXPECT_NE(refusal(damaged.dump()), "taken") << key;
  }
  EXPECT_THAT(refusal(std::string(100, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal("<html>"), HasSubstr("an HTML page"));
}

TEST(RecordFolder, ReadsEveryRankOfTheLastJob) {
  const ScratchFolder scratch;
  HandMadeJob made(3);
  for (const auto& [rank, record] : made.job.records)
    if (rank != 1) scratch.write(file_name(rank), to_text(record));
  RankRecord stale = made.rank(1);
  stale.identity.job = "an earlier job";
  stale.written_utc_ns -= 1;
  scratch.write(file_name(1), to_text(stale));
  const JobRecords job = read_folder(scratch.path());
  EXPECT_EQ(job.ranks, 3);
  EXPECT_EQ(job.records.size(), 2u);
  EXPECT_FALSE(job.records.contains(1));
  EXPECT_EQ(job.other_jobs, 1);
}

TEST(RecordFolder, TakesTheRunsOutputToo) {
  const ScratchFolder scratch;
  HandMadeJob made(1);
  std::filesystem::create_directory(scratch / "recorder");
  scratch.write("recorder/" + file_name(0), to_text(made.rank(0)));
  EXPECT_EQ(read_folder(scratch.path()).records.size(), 1u);
}

std::string folder_refusal(const ScratchFolder& scratch) {
  try {
    read_folder(scratch.path());
  } catch (const InputError& error) {
    return error.what();
  }
  return "taken";
}

TEST(RecordFolder, RefusesWhatIsNone) {
  {
    const ScratchFolder scratch;
    EXPECT_THAT(folder_refusal(scratch), HasSubstr("there is no file rank-*.json"));
    scratch.write("rank-00000.json", "");
    EXPECT_THAT(folder_refusal(scratch), HasSubstr("rank-00000.json: the text is not JSON"));
  }
  {
    const ScratchFolder scratch;
    HandMadeJob made(2);
    scratch.write(file_name(0), to_text(made.rank(1)));
    EXPECT_THAT(folder_refusal(scratch), HasSubstr("the file is from rank 1; expected the name rank-00001.json"));
  }
  {
    const ScratchFolder scratch;
    HandMadeJob made(2);
    scratch.write(file_name(0), to_text(made.rank(0)));
    made.rank(1).identity.ranks = 5;
    scratch.write(file_name(1), to_text(made.rank(1)));
    EXPECT_THAT(folder_refusal(scratch), HasSubstr("the file is from a job of "));
  }
}

}  // namespace
}  // namespace gantry::testing
