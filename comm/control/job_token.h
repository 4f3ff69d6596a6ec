// The secret of a job: who knows it belongs to it.
#pragma once

#include <array>
#include <cstdint>

namespace gantry {

using JobToken = std::array<std::uint8_t, 16>;

// 128 random bits of the kernel's. ResourceError if it has none to give.
JobToken random_job_token();

// Takes the same time wherever the two differ, so that timing tells a guesser nothing.
bool same_job_token(const JobToken& a, const JobToken& b);

}  // namespace gantry
