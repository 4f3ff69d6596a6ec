#include "gantry/data/encoding_cache.h"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "gantry/core/error.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCachedBytes = 1 << 20;

// Writes rows 0, 1, ... with as many tokens as their number, and counts the calls.
struct CountedRows {
  int calls = 0;
  std::int32_t first_token = 5;

  void operator()(EncodedRowsWriter& rows) {
    ++calls;
    for (std::int32_t i = 0; i < 4; ++i)
      rows.add(std::vector<std::int32_t>(static_cast<std::size_t>(i), first_token + i), std::vector<TokenRange>{{0, i}},
               {.file = 0, .line = 10 + i, .flags = i});
    rows.finish("a note");
  }
};

void expect_rows(const EncodedRows& rows, std::int32_t first_token = 5) {
  ASSERT_TRUE(rows.is_sound());
  ASSERT_EQ(rows.size(), 4);
  EXPECT_EQ(rows.note(), "a note");
  for (std::int32_t i = 0; i < 4; ++i) {
    const EncodedRow row = rows.row(static_cast<std::size_t>(i));
    EXPECT_EQ(std::vector(row.tokens.begin(), row.tokens.end()),
              std::vector<std::int32_t>(static_cast<std::size_t>(i), first_token + i));
    EXPECT_EQ(std::vector(row.ranges.begin(), row.ranges.end()), (std::vector<TokenRange>{{0, i}}));
    EXPECT_EQ(row.facts.line, 10 + i);
    EXPECT_EQ(row.facts.flags, i);
  }
}

class EncodingCache : public ::testing::Test {
 protected:
  EncodingInput input(char byte = 'x', const std::string& rules = "") const {
    return {.files = {scratch.write(std::string("data-") + byte, std::string(kCachedBytes, byte))},
            .tokenizer = "bytes",
            .rules = rules};
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(folder))
      for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
    return found;
  }
  auto open(const EncodingInput& what) { return encoded_rows(folder, what, no_progress, std::ref(encode)); }

  ScratchFolder scratch;
  std::string folder = scratch / "cache/data";
  CountedRows encode;
};

TEST_F(EncodingCache, EncodesOnceAndOnlyOnce) {
  for (int time = 0; time < 3; ++time) expect_rows(*open(input()));
  EXPECT_EQ(encode.calls, 1);
  ASSERT_EQ(files().size(), 1);
  EXPECT_EQ(files().front().extension(), ".rows");
}

TEST_F(EncodingCache, TheContentDecidesAndNotTheName) {
  expect_rows(*open(input('x')));
  const fs::path copy = scratch.write("copy", std::string(kCachedBytes, 'x'));
  expect_rows(*open({.files = {copy}, .tokenizer = "bytes", .rules = ""}));
  EXPECT_EQ(encode.calls, 1);
  open(input('y'));
  open(input('x', "other rules"));
  EXPECT_EQ(encode.calls, 3);
  scratch.write("copy", std::string(kCachedBytes, 'z'));
  open({.files = {copy}, .tokenizer = "bytes", .rules = ""});
  EXPECT_EQ(encode.calls, 4);
}

TEST_F(EncodingCache, TheFilesOfTheTokenizerDecide) {
  fs::create_directories(scratch / "model");
  EncodingInput what = input();
  what.tokenizer = scratch / "model";
  scratch.write("model/tokenizer.json", "{}");
  scratch.write("model/model.safetensors", "weights");
  open(what);
  scratch.write("model/model.safetensors", "other weights");
  open(what);
  EXPECT_EQ(encode.calls, 1);
  scratch.write("model/chat_template.jinja", "a template");
  open(what);
  EXPECT_EQ(encode.calls, 2);
}

TEST_F(EncodingCache, DamagedFilesAreEncodedAgain) {
  open(input());
  const std::string path = files().front();
  const auto size = fs::file_size(path);
  for (const std::uintmax_t left : {std::uintmax_t{0}, size / 2, size - 1, size}) {
    fs::resize_file(path, left);
    if (left == size) {  // the first token is another one
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.put('\7');
    }
    expect_rows(*open(input()));
  }
  EXPECT_EQ(encode.calls, 5);
}

TEST_F(EncodingCache, FewDataAndNoDirectoryStayInMemory) {
  const fs::path small = scratch.write("small", "text");
  expect_rows(*open({.files = {small}, .tokenizer = "bytes", .rules = ""}));
  EXPECT_TRUE(files().empty());
  expect_rows(*encoded_rows("", input(), no_progress, std::ref(encode)));
  EXPECT_TRUE(files().empty());
  const std::string not_a_folder = scratch.write("file", "");
  expect_rows(*encoded_rows(not_a_folder + "/cache", input(), no_progress, std::ref(encode)));
}

TEST_F(EncodingCache, RanksOfAProcessShareRowsInMemory) {
  const fs::path small = scratch.write("small", "text");
  const EncodingInput what{.files = {small}, .tokenizer = "bytes", .rules = "shared"};
  const auto one = open(what), other = open(what);
  EXPECT_EQ(one, other);
  EXPECT_EQ(encode.calls, 1);
}

TEST_F(EncodingCache, AFailureLeavesNothingBehind) {
  const auto fail = [](EncodedRowsWriter& rows) {
    rows.add(std::vector<std::int32_t>{1}, {}, {});
    throw InputError("bad line");
  };
  EXPECT_THROW(encoded_rows(folder, input(), no_progress, fail), InputError);
  EXPECT_TRUE(files().empty());
  expect_rows(*open(input()));
}

// A second process waits for the first one, and maps its file.
TEST_F(EncodingCache, OneProcessEncodesForAll) {
  const EncodingInput what = input();
  const std::string begun = scratch / "begun", calls = scratch / "calls";
  const auto slow = [&](EncodedRowsWriter& rows) {
    std::ofstream(calls, std::ios::app) << "x";
    std::ofstream(begun) << "";
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CountedRows()(rows);
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto rows = encoded_rows(folder, what, no_progress, slow);
      ::_exit(rows->is_sound() && rows->size() == 4 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(fs::file_size(calls), 1);
}

TEST_F(EncodingCache, PartsOfProcessesThatWereKilledAreRemoved) {
  open(input());
  const std::string path = files().front();
  fs::remove(path);
  std::ofstream(path + ".99999.partial") << "part";
  expect_rows(*open(input()));
  EXPECT_EQ(files(), std::vector<fs::path>{path});
}

}  // namespace
}  // namespace gantry::testing
