// Counter-based random numbers: element i of a stream depends on (key, i) alone, so any rank can draw any slice of a
// tensor. Philox4x32-10: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gantry {

struct PhiloxKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // from a name and further numbers, by philox_stream
};

std::uint64_t philox_stream(std::string_view name, std::uint64_t number = 0);

// Four 32-bit words for block `counter` of the key's stream; element i of a tensor uses word i % 4 of block i / 4.
std::array<std::uint32_t, 4> philox(PhiloxKey key, std::uint64_t counter);

// out[k] = word first + k of the stream, where block b has the words 4 b to 4 b + 3.
void philox_words(PhiloxKey key, std::uint64_t first, std::int64_t count, std::uint32_t* out);

// out[k] = uniform in [0, 1) for elements first .. first + count - 1 (24 random bits; the same for every dtype).
void philox_uniform(PhiloxKey key, std::uint64_t first, std::int64_t count, float* out);
// The same with 53 random bits.
void philox_uniform(PhiloxKey key, std::uint64_t first, std::int64_t count, double* out);
// Standard normal by Box-Muller, from the element's own counter: element i does not depend on where a slice begins.
void philox_normal(PhiloxKey key, std::uint64_t first, std::int64_t count, double* out);

}  // namespace gantry
