// TensorBoard's event files: the framing and the bytes of
// an event, compared with values from their specifications.
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/trainer/report/checksums.h"
#include "gantry/trainer/report/event_file.h"
#include "program.h"

namespace gantry::testing {
namespace {

using namespace std::string_literals;

template <class Number>
Number number_at(const std::string& bytes, std::size_t place) {
  Number number;
  std::memcpy(&number, bytes.data() + place, sizeof number);
  return number;
}

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

// The payloads of the records. Fails if a checksum is wrong or bytes are left.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  std::size_t at = 0;
  while (at + 16 <= file.size()) {
    const auto length = number_at<std::uint64_t>(file, at);
    EXPECT_EQ(unmasked(number_at<std::uint32_t>(file, at + 8)), crc32c(file.substr(at, 8)));
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(unmasked(number_at<std::uint32_t>(file, at + 12 + length)), crc32c(records.back()));
    at += 16 + length;
  }
  EXPECT_EQ(at, file.size());
  return records;
}

// RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, GivesTheValuesOfItsSpecification) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Events, AreFieldsOfProtocolBuffers) {
  // wall_time (1, fixed64) 1.5; step (2, varint) 300; summary (5) {value (1) {tag (1) "a", simple_value (2, fixed32)
  // 2}}
  EXPECT_EQ(scalar_event(1.5, 300, {{"a", 2.0}}),
            "\x09\0\0\0\0\0\0\xf8\x3f"s + "\x10\xac\x02"s + "\x2a\x0a\x0a\x08\x0a\x01\x61\x15\0\0\0\x40"s);
}

TEST(EventFile, IsRecordsOfVersionSessionAndScalars) {
  const ScratchFolder scratch;
  {
    EventFile file(scratch / "deep/folder", 5);
    file.write(5, {{"train/loss", 2.5}, {"train/lr", 1e-4}});
    file.write(6, {{"train/loss", std::numeric_limits<double>::quiet_NaN()}});
  }
  const auto entry = *std::filesystem::directory_iterator(scratch / "deep/folder");
  EXPECT_EQ(entry.path().filename().string().rfind("events.out.tfevents.", 0), 0u);
  const auto records = records_of(read_file(entry.path()));
  ASSERT_EQ(records.size(), 4u);
  EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
  EXPECT_EQ(records[1].substr(9), "\x10\x05\x3a\x02\x08\x01"s);  // step 5: a session starts
  EXPECT_NE(records[2].find("train/lr"), std::string::npos);
}

TEST(EventFile, SaysWhereItCantBeWritten) { EXPECT_THROW(EventFile("/proc/none", 0), ResourceError); }

}  // namespace
}  // namespace gantry::testing
