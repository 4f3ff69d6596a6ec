// Hand-made records of a job. Each call takes a tenth of a second, and every file is written at second 100.
#pragma once

#include <string>
#include <vector>

#include "gantry/diagnosis/diagnosis.h"
#include "gantry/diagnosis/record_reader.h"

namespace gantry::testing {

using namespace gantry::recorder;

class HandMadeJob {
 public:
  static constexpr std::int64_t kSecond = 1'000'000'000;
  static constexpr std::int64_t kWritten = 100 * kSecond;

  // All ranks have made group 0, named 'all', which contains all of them.
  explicit HandMadeJob(int ranks) {
    job.ranks = ranks;
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
    for (int rank = 0; rank < ranks; ++rank) {
      RankRecord record;
      record.identity = {.job = "a job",
                         .rank = rank,
                         .ranks = ranks,
                         .name = "rank " + std::to_string(rank),
                         .host = "here",
                         .process = 100 + rank,
                         .backend = "local",
                         .timeout_seconds = 60};
      record.written_ns = kWritten;
      record.written_utc_ns = 7 * kWritten;
      record.groups.push_back({"all", all, 0, true, 0});
      job.records.emplace(rank, std::move(record));
    }
  }

  RankRecord& rank(int rank) { return job.records.at(rank); }

  // Returns the index of the group.
  int group(int of_rank, const std::string& label, const std::vector<int>& ranks) {
    rank(of_rank).groups.push_back({label, ranks, 0, true, 0});
    return static_cast<int>(rank(of_rank).groups.size()) - 1;
  }

  Operation& call(int of_rank, Kind kind, State state = State::kDone, int group = 0) {
    RankRecord& record = rank(of_rank);
    Operation operation{.number = record.forgotten + record.operations.size(), .group = group, .kind = kind};
    operation.dtype = "float32";
    operation.shape = {4};
    if (kind == Kind::kAllReduce) operation.reduction = "sum";
    if (kind == Kind::kBroadcast) operation.peer = 0;
    if (!is_message(kind)) operation.sequence = record.groups[group].collectives++;
    operation.posted_ns = (10 + static_cast<std::int64_t>(operation.number)) * kSecond;
    operation.state = state;
    if (state != State::kPosted && state != State::kWaiting) operation.finished_ns = operation.posted_ns + kSecond / 10;
    record.operations.push_back(operation);
    return record.operations.back();
  }
  Operation& make_group(int of_rank, int group, State state) {
    Operation& operation = call(of_rank, Kind::kMakeGroup, state, group);
    rank(of_rank).groups[group].collectives = 0;
    rank(of_rank).groups[group].made = state == State::kDone;
    operation.dtype.clear();
    operation.shape.clear();
    operation.sequence = 0;
    return operation;
  }
  Operation& message(int of_rank, Kind kind, int peer, const Tag& tag, State state = State::kDone) {
    Operation& operation = call(of_rank, kind, state);
    operation.peer = peer;
    operation.tag = tag;
    operation.sequence = 0;
    for (const auto& other : rank(of_rank).operations)
      if (&other != &operation && other.kind == kind && other.peer == peer && other.tag == tag) ++operation.sequence;
    return operation;
  }

  // Lets every blocked rank time out.
  void fail() {
    for (auto& [rank, record] : job.records) {
      record.failure = true;
      for (auto& operation : record.operations)
        if (operation.state == State::kWaiting) operation.state = State::kFailed, operation.finished_ns = 90 * kSecond;
    }
  }

  JobRecords job;
};

// Waits of at least five seconds count as stuck.
constexpr double kStuckAfter = 5;
inline Diagnosis diagnose(const HandMadeJob& made) { return recorder::diagnose(made.job, kStuckAfter); }

inline Tag forward(int stage, int microbatch) { return {Tag::Kind::kForward, stage, microbatch, 0}; }

}  // namespace gantry::testing
