// The address of the hub of a job's control plane, and the token with which a peer proves that it belongs to
// the job.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace gantry {

using JobToken = std::array<std::uint8_t, 16>;

// Returns 128 random bits of the kernel. Throws ResourceError if the kernel has none.
JobToken random_job_token();

// The comparison takes constant time, so that its duration does not help an attacker to guess the token.
bool same_job_token(const JobToken& a, const JobToken& b);

// The launcher passes it to the ranks: in MPI's first message, or in the environment of `gantry launch`,
// which only the user who started the job can read.
struct Rendezvous {
  static constexpr const char* kVariable = "GANTRY_LAUNCH";
  std::string address;
  int port = 0;
  JobToken token{};
};

// Encodes the token's hexadecimal digits, the port and the address: "0123...ef 4242 10.0.0.1".
std::string encode_meeting(const Rendezvous& meeting);
std::optional<Rendezvous> decode_meeting(const std::string& text);

}  // namespace gantry
