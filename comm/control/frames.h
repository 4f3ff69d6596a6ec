// What travels between the control planes of a job's ranks.
//
// A frame is a head of 12 bytes and a payload of at most kMostPayload bytes. Numbers are little-endian:
//   bytes 0-3   "GCP1"
//   byte  4     the kind
//   bytes 5-7   zero
//   bytes 8-11  the payload's length
// Payloads, by kind:
//   hello    16 bytes job token, u32 rank, u32 ranks of the job     a rank's first frame to rank 0
//   begin    empty                                                  all ranks have come
//   beat     empty                                                  a sign of life
//   failure  u32 rank, u32 exit code, text (the cause)              the job ends because of this rank
//   done     empty                                                  this rank's work is done
//   end      empty                                                  every rank's work is done
//   ask      empty                                                  to rank 0: whose work is not done?
//   late     u32 a rank, one or more                                rank 0's answer
//   left     u32 a rank, one or more                                from rank 0: their work is done, while others' is
//   not
//   stop     empty                                                  a rank was asked to stop
// Whatever reads a frame refuses what is not exactly this, before it reserves memory for a payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "gantry/comm/control/job_token.h"

namespace gantry {

inline constexpr std::size_t kFrameHeadBytes = 12;
inline constexpr std::size_t kMostPayload = 4096;

enum class FrameKind : std::uint8_t { hello = 1, begin, beat, failure, done, end, ask, late, left, stop };

// Not a frame; what() says why.
struct FrameError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct FrameHead {
  FrameKind kind = FrameKind::beat;
  std::size_t payload_bytes = 0;
};

struct Hello {
  JobToken token{};
  int rank = 0;
  int ranks = 0;
};

// Why a job ends: the rank that failed or was lost, the exit code, and one line that names it.
struct JobFailure {
  int rank = 0;
  int exit_code = 1;
  std::string cause;
};

std::string encode_frame(FrameKind kind, std::string_view payload = {});  // head and payload
std::string encode_hello(const Hello& hello);
std::string encode_failure(const JobFailure& failure);  // a cause that is too long is cut
// A late or a left, of the first kMostPayload / 4 ranks.
std::string encode_ranks(FrameKind kind, const std::set<int>& ranks);

// FrameError for other bytes than a frame's head, an unknown kind, and a length that the kind can't have.
FrameHead decode_head(std::span<const char, kFrameHeadBytes> head);
// Of a payload whose length its head promised. FrameError for a rank that is none of a job's.
Hello decode_hello(std::string_view payload);
JobFailure decode_failure(std::string_view payload, int ranks);
std::set<int> decode_ranks(std::string_view payload, int ranks);

}  // namespace gantry
