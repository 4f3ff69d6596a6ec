// What travels between the processes of a job: from rank to rank, and between a launch and the shims of its ranks.
//
// A frame is a head of 12 bytes and a payload. Numbers are u32, little-endian:
//   bytes 0-3   "GCP1"
//   byte  4     the kind
//   bytes 5-7   zero
//   bytes 8-11  the payload's length
// Payloads, by kind:
//   hello    16 bytes job token, who it is (a Peer), rank, ranks of the job, process, host's name
//                                                                   the first frame of whoever connects
//   beat     empty                                                  a sign of life
// between a rank and the hub of its job's control plane:
//   begin    empty                                                  from the hub: all ranks have come
//   failure  rank, exit code, text (the cause)                      the job ends because of this rank
//   done     empty                                                  this rank's work is done
//   end      empty                                                  from the hub: every rank's work is done
//   ask      empty                                                  to the hub: who has not come, or is not done?
//   late     a rank, one or more                                    its answer
//   left     a rank, one or more                                    from the hub: their work is done, others' is not
//   stop     empty                                                  a rank was asked to stop
//   share    rank, generation, text                                 to the hub, then to all when all have sent one
// in an elastic job (membership.h):
//   elastic  least replicas, rejoin, heartbeat (ms), replica of each rank   to the hub: its policy
//   regroup  generation, its ranks                                  from the hub: these ranks form the job now
//   waiting  empty                                                  from the hub: a replica waits to join
//   grow     empty                                                  to the hub: take in the replicas that wait
//   lost     generation, rank                                       to the hub: no connection with this rank
// between a launch and a shim:
//   command  text, a zero byte after each word                      to the shim, once: the program and its arguments
//   begun    process                                                the program runs
//   output   text                                                   of the program's stdout,
//   errors   text                                                      and of its stderr
//   signal   a signal's number                                      to the shim, for the program
//   kill     empty                                                  to the shim: end the program at once
//   pause    empty                                                  to the shim: stop reading the program's output
//   resume   empty                                                  to the shim: read it again
//   stopped  a signal's number                                      it made the program stand still; 0: it goes on
//   told     empty                                                  mpirun has requested the end of this rank
//   report   text                                                   how the program ended; the shim's last
// Whatever reads a frame refuses what is not exactly this, before it reserves memory for a payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gantry/comm/control/membership.h"
#include "gantry/comm/control/rendezvous.h"

namespace gantry {

inline constexpr std::size_t kFrameHeadBytes = 12;
inline constexpr std::size_t kMostPayload = 4096;     // of a frame between ranks, and of a hello
inline constexpr std::size_t kMostOutput = 64 << 10;  // of output and errors
inline constexpr std::size_t kMostCommand = 1 << 20;

enum class FrameKind : std::uint8_t {
  hello = 1,
  begin,
  beat,
  failure,
  done,
  end,
  ask,
  late,
  left,
  stop,
  command,
  begun,
  output,
  errors,
  signal,
  kill,
  stopped,
  notified,
  report,
  share,
  elastic,
  regroup,
  waiting,
  grow,
  lost,
  pause,
  resume
};

// Not a frame; what() says why.
struct FrameError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct FrameHead {
  FrameKind kind = FrameKind::beat;
  std::size_t payload_bytes = 0;
};

struct Frame {
  FrameKind kind = FrameKind::beat;
  std::string payload;
};

enum class Peer : std::uint8_t { rank = 1, shim };

struct Hello {
  JobToken token{};
  Peer peer = Peer::rank;
  int rank = 0;
  int ranks = 0;
  int process = 0;
  std::string host;
};

// Why a job ends: the rank that failed or was lost, the exit code, and one line that names it.
struct JobFailure {
  int rank = 0;
  int exit_code = 1;
  std::string cause;
};

std::string encode_frame(FrameKind kind, std::string_view payload = {});  // head and payload
std::string encode_hello(const Hello& hello);
std::string encode_failure(const JobFailure& failure);  // a long cause is truncated
std::string encode_number(FrameKind kind, int number);
// A late or a left, of the first kMostPayload / 4 ranks.
std::string encode_ranks(FrameKind kind, const std::set<int>& ranks);
// The text of a rank for gather(), of at most kMostPayload - 8 bytes.
struct Share {
  int rank = 0;
  int generation = 0;
  std::string bytes;
};
std::string encode_share(const Share& share);
// An elastic, of a job of at most kMostPayload / 4 - 3 ranks; a regroup of at most kMostPayload / 4 - 1.
std::string encode_policy(const ElasticPolicy& policy);
std::string encode_members(const JobMembers& members);
std::string encode_lost(int generation, int rank);
// UsageError where the words are longer than a frame.
std::string encode_command(const std::vector<std::string>& words);

// FrameError for other bytes than a frame's head, an unknown kind, and a length that the kind can't have.
FrameHead decode_head(std::span<const char, kFrameHeadBytes> head);
// Of a payload whose length its head promised. FrameError for a rank that is none of a job's.
Hello decode_hello(std::string_view payload);
JobFailure decode_failure(std::string_view payload, int ranks);
int decode_number(std::string_view payload);
std::set<int> decode_ranks(std::string_view payload, int ranks);
Share decode_share(std::string_view payload, int ranks);
ElasticPolicy decode_policy(std::string_view payload, int ranks);
JobMembers decode_members(std::string_view payload, int ranks);
std::pair<int, int> decode_lost(std::string_view payload, int ranks);
std::vector<std::string> decode_command(std::string_view payload);

}  // namespace gantry
