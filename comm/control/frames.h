// The frames between the processes of a job: between ranks, and between a launch and the shims of its ranks.
//
// A frame is a head of 12 bytes and a payload. Numbers are u32, little-endian:
//   bytes 0-3   "GCP1"
//   byte  4     the kind
//   bytes 5-7   zero
//   bytes 8-11  the payload's length
// Payloads, by kind:
//   hello    16 bytes job token, kind of peer (Peer), rank, ranks of the job, process, host name
//                                                        the first frame of a connection
//   beat     empty                                       a heartbeat
// between a rank and the hub of its job's control plane:
//   begin    empty                                       from the hub: all ranks have connected
//   failure  rank, exit code, text (the cause)           the job ends because of this rank
//   done     empty                                       this rank's work is done
//   end      empty                                       from the hub: every rank's work is done
//   ask      empty                                       to the hub: which ranks are late?
//   late     a rank, one or more                         the answer
//   left     a rank, one or more                         from the hub: these ranks are done, others not
//   stop     empty                                       a rank was asked to stop
//   record   empty                                       to the hub, then to the others: write your flight record
//   share    rank, generation, text                      to the hub, then to all when all have sent one
// in an elastic job (membership.h):
//   elastic  least replicas, rejoin, heartbeat (ms), replica of each rank   to the hub: its policy
//   regroup  generation, its ranks                       from the hub: these ranks form the job now
//   waiting  empty                                       from the hub: a replica waits to join
//   grow     empty                                       to the hub: admit the waiting replicas
//   lost     generation, rank                            to the hub: no connection with this rank
// between a launch and a shim:
//   command  text, a zero byte after each word           to the shim, once: the program and its arguments
//   begun    process                                     the program runs
//   output   text                                        from the program's stdout
//   errors   text                                        from the program's stderr
//   signal   a signal's number                           to the shim, for the program
//   kill     empty                                       to the shim: end the program at once
//   pause    empty                                       to the shim: stop reading the program's output
//   resume   empty                                       to the shim: read it again
//   stopped  a signal's number                           the program is stopped by it; 0: it runs again
//   notified empty                                       mpirun has requested the end of this rank
//   report   text                                        how the program ended; the shim's last frame
// A reader rejects every other sequence of bytes, before it allocates memory for the payload.
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
inline constexpr std::size_t kMostPayload = 4096;     // in frames between ranks, and in a hello
inline constexpr std::size_t kMostOutput = 64 << 10;  // in output and errors frames
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
  resume,
  record
};

// Thrown if bytes are not a valid frame. Its message is the reason.
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

// The reason why a job ends: the rank that failed or was lost, the exit code, and one line that names the
// rank.
struct JobFailure {
  int rank = 0;
  int exit_code = 1;
  std::string cause;
};

std::string encode_frame(FrameKind kind, std::string_view payload = {});  // head and payload
std::string encode_hello(const Hello& hello);
std::string encode_failure(const JobFailure& failure);  // a long cause is truncated
std::string encode_number(FrameKind kind, int number);
// Encodes a `late` or `left` frame with the first kMostPayload / 4 ranks.
std::string encode_ranks(FrameKind kind, const std::set<int>& ranks);
// A rank's text for gather(), at most kMostPayload - 8 bytes.
struct Share {
  int rank = 0;
  int generation = 0;
  std::string bytes;
};
std::string encode_share(const Share& share);
// Encode an `elastic` frame for at most kMostPayload / 4 - 3 ranks, and a `regroup` frame for at most
// kMostPayload / 4 - 1 ranks.
std::string encode_policy(const ElasticPolicy& policy);
std::string encode_members(const JobMembers& members);
std::string encode_lost(int generation, int rank);
// Throws UsageError if the words do not fit into a frame.
std::string encode_command(const std::vector<std::string>& words);

// Throws FrameError if the bytes are not the head of a frame, the kind is unknown, or the kind cannot have
// this length.
FrameHead decode_head(std::span<const char, kFrameHeadBytes> head);
// These decode a payload whose length matches its head. They throw FrameError if a rank is not a rank of the
// job.
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
