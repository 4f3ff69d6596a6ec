// Where the hub of a job's control plane is to be found, and the secret that it expects: who knows it belongs to the
// job.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace gantry {

using JobToken = std::array<std::uint8_t, 16>;

// 128 random bits of the kernel's. ResourceError if it has none to give.
JobToken random_job_token();

// Takes the same time wherever the two differ, so that timing tells a guesser nothing.
bool same_job_token(const JobToken& a, const JobToken& b);

// The job's launcher carries it to the ranks: MPI's first message, or the environment of `gantry launch`, which only
// their user can read.
struct Rendezvous {
  static constexpr const char* kVariable = "GANTRY_LAUNCH";
  std::string address;
  int port = 0;
  JobToken token{};
};

// "0123...ef 4242 10.0.0.1": the token's digits, the port, the address.
std::string encode_meeting(const Rendezvous& meeting);
std::optional<Rendezvous> decode_meeting(const std::string& text);

}  // namespace gantry
