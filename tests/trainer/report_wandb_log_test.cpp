// The file of a Weights & Biases run: the framing of its records, read by a reader that shares nothing with the writer,
// and files that end in the middle of a record.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/trainer/report/checksums.h"
#include "gantry/trainer/report/protobuf.h"
#include "gantry/trainer/report/wandb_log.h"
#include "program.h"
#include "wandb_reader.h"

namespace gantry::testing {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;

std::vector<std::string> records_read(const std::string& path, std::int64_t* end = nullptr) {
  std::vector<std::string> records;
  const auto stop = read_wandb_log(path, [&](const WandbLogRecord& record) {
    records.emplace_back(record.bytes);
    return true;
  });
  if (end) *end = stop;
  return records;
}

std::vector<std::string> write_log(const std::string& path, const std::vector<std::size_t>& sizes) {
  std::vector<std::string> records;
  WandbLog log(path, 0);
  for (const std::size_t size : sizes) {
    records.push_back(some_letters(static_cast<int>(size), 5 + static_cast<int>(records.size())));
    log.append(records.back());
  }
  return records;
}

TEST(Crc32, HasTheValueOfItsSpecification) {
  EXPECT_EQ(crc32_ieee("123456789"), 0xcbf43926u);
  EXPECT_EQ(crc32_ieee(""), 0u);
}

TEST(Protobuf, FieldsAreThoseOfTheWireFormat) {
  // The examples of https://protobuf.dev/programming-guides/encoding.
  EXPECT_EQ(varint_field(1, 150), "\x08\x96\x01"s);
  EXPECT_EQ(bytes_field(2, "testing"), "\x12\x07testing"s);
  const std::string message = varint_field(1, ~0ull) + float_field(20, 1.5F) + double_field(3, 2) + bytes_field(4, "b");
  const auto fields = fields_of(message);
  ASSERT_EQ(fields.size(), 4u);
  EXPECT_EQ(fields[0].value, ~0ull);
  EXPECT_EQ(fields[1].number, 20);
  EXPECT_EQ(fields[1].value, 0x3fc00000u);
  EXPECT_EQ(fields[2].value, 0x4000000000000000u);
  EXPECT_EQ(field_of(message, 4).bytes, "b");
  EXPECT_EQ(field_of(message, 5).number, 0);
  for (std::size_t size = 0; size < message.size(); ++size) EXPECT_LT(fields_of(message.substr(0, size)).size(), 4u);
}

TEST(WandbLog, RecordsCrossBlocks) {
  const ScratchFolder scratch;
  const std::string path = scratch / "run.wandb";
  // The file has 7 bytes of header, so the first block ends 32,761 bytes after it. Each list ends near a block.
  const std::vector<std::vector<std::size_t>> cases = {{32754, 5}, {32753, 5},        {32747, 5}, {32746, 0, 5},
                                                       {32755, 1}, {100000, 3, 0, 1}, {0, 32740}, {32748, 70000}};
  for (const auto& sizes : cases) {
    const auto records = write_log(path, sizes);
    EXPECT_EQ(wandb_records(read_file(path)), records);
    EXPECT_EQ(records_read(path), records);
  }
  std::vector<std::size_t> lengths;
  write_log(path, {32754, 40000});
  wandb_records(read_file(path), &lengths);
  EXPECT_THAT(lengths, ElementsAre(32754, 32761, 7239));
}

TEST(WandbLog, ReadsAndContinuesAFileThatEndsInARecord) {
  const ScratchFolder scratch;
  const std::string path = scratch / "run.wandb";
  auto records = write_log(path, {10, 40000, 20});
  const std::string file = read_file(path);
  for (const std::size_t lost : {1u, 26u, 27u, 5000u}) {
    scratch.write("run.wandb", file.substr(0, file.size() - lost));
    const std::size_t left = lost > 27 ? 1 : 2;
    std::int64_t end = 0;
    EXPECT_EQ(records_read(path, &end),
              std::vector(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(left)))
        << lost;
    WandbLog(path, end).append("a new record");
    const auto continued = wandb_records(read_file(path));
    ASSERT_EQ(continued.size(), left + 1);
    EXPECT_EQ(continued.back(), "a new record");
  }
  std::string damaged = file;
  damaged[60] ^= 1;
  scratch.write("run.wandb", damaged);
  EXPECT_EQ(records_read(path).size(), 1u);
  scratch.write("run.wandb", "another file");
  std::int64_t end = -1;
  EXPECT_TRUE(records_read(path, &end).empty());
  EXPECT_EQ(end, 0);
  EXPECT_THROW(WandbLog(scratch / "no/such/folder.wandb", 0), ResourceError);
}

}  // namespace
}  // namespace gantry::testing
