// The flight record of one rank: its groups, its last operations and its state. Plain values for the recorder, the
// writer, the reader and the diagnosis; without LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/comm/operation.h"

namespace gantry::recorder {

using Kind = OperationKind;
using State = OperationState;

struct Operation {
  static constexpr std::int64_t kNotCounted = -1;

  std::uint64_t number = 0;  // number among all operations of the rank, from 0
  int group = 0;             // index in RankRecord::groups
  Kind kind = Kind::kBarrier;
  // Collective: its number in the group, from 0. Message: its number among those with this tag to (or from) this peer;
  // kNotCounted if the rank has used more different tags than are counted.
  std::int64_t sequence = 0;
  int peer = -1;                    // world rank: the other side of a message, or the root of a broadcast; -1 for none
  Tag tag;                          // tag of a message
  std::string reduction;            // "sum", "max", "min"; "" for none
  std::string dtype;                // "float32"; "" for no tensor, or an absent one
  std::vector<std::int64_t> shape;  // shape of the full tensor if a collective gathers or scatters one
  State state = State::kPosted;
  std::int64_t posted_ns = 0;
  std::int64_t finished_ns = 0;  // end (done, failed or refused); 0 before
};

// A group that this rank has started to create.
struct Group {
  std::string label;
  std::vector<int> ranks;  // world ranks, ascending
  int instance = 0;   // index among the rank's groups with these ranks, from 0: identifies the group on all members
  bool made = false;  // the creation has completed on this rank
  std::int64_t collectives = 0;  // number of collectives that the rank has called
};

enum class RankState : std::uint8_t { kRunning, kEnded, kFailed };
const char* name_of(RankState state);

// The identity of a rank.
struct Identity {
  std::string job;  // the same for all ranks of one job, different for the next job
  int rank = 0;
  int ranks = 1;
  std::string name;  // "rank 3 (pp 1, dp 0, tp 1)"
  std::string host;
  int process = 0;
  std::string backend;
  double timeout_seconds = 0;
};

// All times are nanoseconds of CLOCK_MONOTONIC (since the host's start): the same clock for every process of a host.
struct RankRecord {
  Identity identity;
  RankState state = RankState::kRunning;
  std::string error;          // reason of the failure
  std::int64_t ended_ns = 0;  // when the rank's program ended or failed; 0 before
  // The last time at which the process did not run for a second or more, because it or its host was suspended. 0 for
  // never.
  std::int64_t stopped_from_ns = 0, stopped_until_ns = 0;
  bool failure = false;  // written because the job failed; otherwise on request
  std::string reason;    // the error, or the origin of the request
  std::int64_t written_ns = 0;
  std::int64_t written_utc_ns = 0;  // the same moment since 1970: relates the clocks of several hosts
  std::uint64_t forgotten = 0;      // number of operations before the first one in the list
  std::vector<Group> groups;
  std::vector<Operation> operations;  // by number
};

// "float32 [4, 2]"; "nothing" for an absent tensor or none.
std::string describe_tensor(const Operation& operation);
// "all_reduce 17 of group 'tp'", "forward of stage 0, microbatch 3, entry 0".
std::string describe(const Operation& operation, const Group& group);

// Writes a record as a file: one JSON object per rank, described in docs/design/communication.md.
constexpr const char* kFormat = "gantry flight recorder";
constexpr int kFormatVersion = 1;
std::string file_name(int rank);  // "rank-00003.json"
std::string to_text(const RankRecord& record);

}  // namespace gantry::recorder
