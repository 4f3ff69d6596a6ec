#include "gantry/data/corpus/line_file.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include "gantry/core/error.h"
#include "program.h"

namespace gantry::testing {
namespace {

std::string gzip(const std::string& text) {
  std::string bytes(text.size() + 1000, '\0');
  z_stream stream{};
  ::deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  ::deflateEnd(&stream);
  return bytes;
}

std::string zstandard(const std::string& text) {
  std::string bytes(::ZSTD_compressBound(text.size()), '\0');
  bytes.resize(::ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), 1));
  return bytes;
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  LineFile file(path);
  std::vector<std::string> lines;
  for (std::string line; file.next(line);) {
    lines.push_back(line);
    EXPECT_EQ(file.number(), static_cast<std::int64_t>(lines.size()));
  }
  EXPECT_EQ(file.consumed(), static_cast<std::int64_t>(std::filesystem::file_size(path)));
  return lines;
}

TEST(LineFile, ReadsTheSameLinesFromAllKindsOfFiles) {
  const ScratchFolder scratch;
  const std::string big(3 << 20, 'x');  // several pieces
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("one\n\ntwo\r\nlast"), "a\n" + big + "\nb\n"}) {
    const auto plain = lines_of(scratch.write("lines.jsonl", text));
    EXPECT_EQ(lines_of(scratch.write("lines.jsonl.gz", gzip(text))), plain);
    EXPECT_EQ(lines_of(scratch.write("lines.jsonl.zst", zstandard(text))), plain);
  }
  EXPECT_EQ(lines_of(scratch.write("two", "one\n\ntwo\r\nlast")),
            (std::vector<std::string>{"one", "", "two\r", "last"}));
}

TEST(LineFile, ReadsFilesThatWereJoined) {
  const ScratchFolder scratch;
  const std::vector<std::string> expected = {"one", "two", "three"};
  EXPECT_EQ(lines_of(scratch.write("lines.gz", gzip("one\ntw") + gzip("o\nthree\n"))), expected);
  EXPECT_EQ(lines_of(scratch.write("lines.zst", zstandard("one\ntw") + zstandard("o\nthree\n"))), expected);
}

TEST(LineFile, RefusesDamagedFilesByName) {
  const ScratchFolder scratch;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i * 7919 % 1000003) + "\n";
  for (const auto& [name, bytes] : {std::pair{"lines.jsonl.gz", gzip(text)}, {"lines.jsonl.zst", zstandard(text)}})
    for (const std::string& damaged : {bytes.substr(0, bytes.size() / 2), std::string("not compressed\n")}) try {
        lines_of(scratch.write(name, damaged));
        ADD_FAILURE() << name << " was read";
      } catch (const InputError& error) {
        const std::string said = error.what();
        EXPECT_NE(said.find(name), std::string::npos) << said;
        EXPECT_NE(said.find("cannot be decompressed"), std::string::npos) << said;
      }
}

// tests/golden/parquet/make.py wrote the file.
TEST(LineFile, ReadsTheRowsOfParquetFiles) {
  const std::string path = GANTRY_SOURCE_DIR "/tests/golden/parquet/rows.parquet";
#ifdef GANTRY_WITH_ARROW
  const std::vector<std::string> expected = {
      R"({"messages":[{"role":"user","content":"one?"},{"role":"assistant","content":"zwei \u00e4"}],"n":1,"x":0.5})",
      R"({"text":"a text\nof two lines","n":-2,"flag":true})", R"({"messages":[],"n":3,"kind":"b"})"};
  std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), expected.size());
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(nlohmann::ordered_json::parse(lines[i]), nlohmann::ordered_json::parse(expected[i])) << lines[i];
  const ScratchFolder scratch;
  EXPECT_THROW(lines_of(scratch.write("rows.parquet", "no rows")), InputError);
#else
  try {
    LineFile file(path);
    ADD_FAILURE() << "it was read";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("GANTRY_WITH_ARROW=ON"), std::string::npos) << error.what();
  }
#endif
}

TEST(LineFile, KnowsTheNamesOfJsonLines) {
  for (const char* name : {"a.jsonl", "b/a.jsonl.gz", "a.jsonl.zst", "a.parquet"})
    EXPECT_TRUE(is_json_lines_file(name)) << name;
  for (const char* name : {"a.json", "a.txt.gz", "jsonl", "a.jsonl.bz2"})
    EXPECT_FALSE(is_json_lines_file(name)) << name;
}

}  // namespace
}  // namespace gantry::testing
