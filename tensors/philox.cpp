#include "gantry/tensors/philox.h"

#include <algorithm>

#include "gantry/tensors/kernels/host_loops.h"
#include "gantry/tensors/kernels/philox_block.h"

namespace gantry {
namespace {

constexpr int kLanes = 16;  // blocks made together, so that the compiler vectorises over them

// The counter's upper half is the stream, its lower half the block; the key is the seed.
struct Lanes {
  std::uint32_t word[4][kLanes];
};

__attribute__((always_inline)) inline void philox_lanes(PhiloxKey key, std::uint64_t first_block, Lanes& out) {
  std::uint32_t a[kLanes], b[kLanes], c[kLanes], d[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const std::uint64_t block = first_block + i;
    a[i] = static_cast<std::uint32_t>(block);
    b[i] = static_cast<std::uint32_t>(block >> 32);
    c[i] = static_cast<std::uint32_t>(key.stream);
    d[i] = static_cast<std::uint32_t>(key.stream >> 32);
  }
  std::uint32_t key0 = static_cast<std::uint32_t>(key.seed), key1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < kernels::kPhiloxRounds; ++round) {
    for (int i = 0; i < kLanes; ++i) kernels::philox_round(a[i], b[i], c[i], d[i], key0, key1);
    key0 += kernels::kPhiloxWeyl0;
    key1 += kernels::kPhiloxWeyl1;
  }
  std::copy(a, a + kLanes, out.word[0]);
  std::copy(b, b + kLanes, out.word[1]);
  std::copy(c, c + kLanes, out.word[2]);
  std::copy(d, d + kLanes, out.word[3]);
}

// Words first .. first + count - 1 of the stream, in pieces: take(words, n, position).
template <class Take>
__attribute__((always_inline)) inline void for_each_word(PhiloxKey key, std::uint64_t first, std::int64_t count,
                                                         Take take) {
  constexpr std::int64_t kPerPiece = std::int64_t{4} * kLanes;
  std::uint32_t words[kPerPiece];
  Lanes lanes;
  for (std::int64_t done = 0; done < count;) {
    const std::uint64_t position = first + done;
    const std::int64_t skip = static_cast<std::int64_t>(position % 4);
    philox_lanes(key, position / 4, lanes);
    for (int i = 0; i < kLanes; ++i)
      for (int j = 0; j < 4; ++j) words[4 * i + j] = lanes.word[j][i];
    const std::int64_t usable = std::min(kPerPiece - skip, count - done);
    take(words + skip, usable, done);
    done += usable;
  }
}

}  // namespace

std::uint64_t philox_stream(std::string_view name, std::uint64_t number) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, then the finaliser of MurmurHash3 so that all bits matter
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash ^= number * 0x9E3779B97F4A7C15;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
  return hash ^ (hash >> 33);
}

std::array<std::uint32_t, 4> philox(PhiloxKey key, std::uint64_t counter) {
  const kernels::PhiloxBlock block = kernels::philox_block(key.seed, key.stream, counter);
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

GANTRY_HOST_LOOPS void philox_words(PhiloxKey key, std::uint64_t first, std::int64_t count, std::uint32_t* out) {
  for_each_word(key, first, count, [out](const std::uint32_t* words, std::int64_t n, std::int64_t at) {
    std::copy(words, words + n, out + at);
  });
}

void philox_uniform(PhiloxKey key, std::uint64_t first, std::int64_t count, float* out) {
  for_each_word(key, first, count, [out](const std::uint32_t* words, std::int64_t n, std::int64_t at) {
    for (std::int64_t i = 0; i < n; ++i) out[at + i] = static_cast<float>(words[i] >> 8) * 0x1p-24f;
  });
}

// Element i takes two words of its own.
void philox_uniform(PhiloxKey key, std::uint64_t first, std::int64_t count, double* out) {
  for_each_word(key, 2 * first, 2 * count, [out](const std::uint32_t* words, std::int64_t n, std::int64_t at) {
    for (std::int64_t i = 0; i < n; i += 2) out[(at + i) / 2] = kernels::unit_of(words[i], words[i + 1]);
  });
}

// Element i takes a block of its own: two uniforms of 53 bits.
void philox_normal(PhiloxKey key, std::uint64_t first, std::int64_t count, double* out) {
  for_each_word(key, 4 * first, 4 * count, [out](const std::uint32_t* words, std::int64_t n, std::int64_t at) {
    for (std::int64_t i = 0; i < n; i += 4) out[(at + i) / 4] = kernels::normal_of(words + i);
  });
}

}  // namespace gantry
