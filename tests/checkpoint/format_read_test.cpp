// Hashes a file and reads parts of it in one pass.
#include <gtest/gtest.h>
#include <numeric>

#include "gantry/checkpoint/format/checked_read.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/core/error.h"
#include "program.h"

namespace gantry::testing {
namespace {

constexpr std::size_t kSize = (std::size_t{3} << 20) + 12345;  // several pieces; the last one is shorter

std::string content() {
  std::string bytes(kSize, '\0');
  for (std::size_t i = 0; i < kSize; ++i) bytes[i] = static_cast<char>((i * i) >> 7);
  return bytes;
}

TEST(CheckedRead, PartsGoWhereTheyAreWanted) {
  const ScratchFolder scratch;
  const std::string bytes = content();
  scratch.write("f", bytes);
  std::vector<unsigned char> first(100), large(2'000'000), last(45), none(1, 7);
  // Parts out of order, an empty part, and a part at the end of the file.
  read_checked(
      scratch.path(), "f", {hash_of(bytes), kSize},
      {{kSize - 45, 45, last.data()}, {500, 100, first.data()}, {600, 0, none.data()}, {600, 2'000'000, large.data()}});
  const auto same = [&](const std::vector<unsigned char>& part, std::size_t begin) {
    return std::equal(part.begin(), part.end(), reinterpret_cast<const unsigned char*>(bytes.data()) + begin);
  };
  EXPECT_TRUE(same(first, 500));
  EXPECT_TRUE(same(large, 600));
  EXPECT_TRUE(same(last, kSize - 45));
  EXPECT_EQ(none[0], 7);
}

TEST(CheckedRead, DamageOutsideOfTheWantedPartsIsFoundToo) {
  const ScratchFolder scratch;
  std::string bytes = content();
  const ManifestFile expected{hash_of(bytes), kSize};
  for (const std::size_t at : {std::size_t{0}, std::size_t{550}, kSize / 2, kSize - 1}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    scratch.write("f", damaged);
    std::vector<unsigned char> part(100);
    EXPECT_THROW(read_checked(scratch.path(), "f", expected, {{500, 100, part.data()}}), CheckpointError) << at;
  }
  scratch.write("f", bytes.substr(0, kSize - 1));
  EXPECT_THROW(read_checked(scratch.path(), "f", expected, {}), CheckpointError);
  EXPECT_THROW(read_checked(scratch.path(), "nothing", expected, {}), CheckpointError);
}

}  // namespace
}  // namespace gantry::testing
