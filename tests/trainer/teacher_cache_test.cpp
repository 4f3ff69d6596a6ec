// The file of stored log-probabilities: complete or absent, and damage is found.
#include "gantry/trainer/teacher_cache.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../checkpoint/faulty_files.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

TeacherCacheForm small_form(bool is_double = false) {
  return {.key = "0123456789abcdef0123456789abcdef", .samples = 5, .tokens = 3, .k = 2, .is_double = is_double};
}

torch::Tensor numbers_of_samples(const TeacherCacheForm& form) {
  const std::int64_t all = form.samples * form.tokens * 2 * form.k;
  return torch::arange(all, torch::kInt64).view({form.samples, form.tokens, 2 * form.k}).to(form.type());
}

void write_cache(const std::string& folder, const TeacherCacheForm& form, FileSystem& files = system_files()) {
  TeacherCacheWriter writer(folder, form, files);
  const torch::Tensor all = numbers_of_samples(form);
  writer.add(all.narrow(0, 0, 3));
  writer.add(all.narrow(0, 3, 2));
  writer.commit();
}

void expect_numbers(const std::string& folder, const TeacherCacheForm& form) {
  const TeacherCache cache(folder, form);
  torch::Tensor row = torch::empty({form.tokens, 2 * form.k}, form.type());
  for (const std::int64_t sample : {4, 0, 2}) {
    cache.read(sample, row);
    EXPECT_TRUE(row.equal(numbers_of_samples(form)[sample]));
  }
}

std::string refusal_of(const std::string& folder, const TeacherCacheForm& form) {
  return thrown_by<InputError>([&] {
    const TeacherCache cache(folder, form);
    torch::Tensor row = torch::empty({form.tokens, 2 * form.k}, form.type());
    for (std::int64_t sample = 0; sample < form.samples; ++sample) cache.read(sample, row);
  });
}

TEST(TeacherCache, ReadsWhatWasWritten) {
  const ScratchFolder scratch;
  for (const bool is_double : {false, true}) {
    const std::string folder = scratch / (is_double ? "deep/double" : "float");
    write_cache(folder, small_form(is_double));
    expect_numbers(folder, small_form(is_double));
  }
}

TEST(TeacherCache, LeavesOtherFilesAlone) {
  const ScratchFolder scratch;
  for (const char* name : {"notes.txt", "notes.partial", "0123.top_2"}) scratch.write(name, "mine");
  scratch.write("0123.top_2.partial", "of a run that ended");
  TeacherCacheForm other = small_form();
  other.k = 3;
  write_cache(scratch.path(), small_form());
  write_cache(scratch.path(), other);
  expect_numbers(scratch.path(), small_form());
  expect_numbers(scratch.path(), other);
  for (const char* name : {"notes.txt", "notes.partial", "0123.top_2"}) EXPECT_EQ(read_file(scratch / name), "mine");
  EXPECT_FALSE(std::filesystem::exists(scratch / "0123.top_2.partial"));
}

TEST(TeacherCache, FindsDamage) {
  const ScratchFolder scratch;
  const TeacherCacheForm form = small_form();
  const std::string path = teacher_cache_path(scratch.path(), form);
  write_cache(scratch.path(), form);
  const std::string whole = read_file(path);
  const auto damaged = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return refusal_of(scratch.path(), form);
  };
  EXPECT_EQ(damaged(whole), "no error");
  EXPECT_EQ(damaged(whole.substr(0, whole.size() - 1)),
            path +
                ": the file has 4495 bytes, but 5 samples have 4496; expected a file of stored log-probabilities as "
                "the run that computed them has written it; delete the file; the next run computes the "
                "log-probabilities again");
  EXPECT_THAT(damaged(whole + "x"), HasSubstr("the file has 4497 bytes"));
  EXPECT_THAT(damaged("a foreign file"), HasSubstr(path + ": the file has another header"));
  std::string flipped = whole;
  flipped[4096 + 2 * 80 + 7] ^= 1;
  EXPECT_THAT(damaged(flipped), HasSubstr("the numbers of sample 3 are damaged"));
  std::string other_form = whole;
  other_form[other_form.find("\"samples\":5") + 10] = '6';
  EXPECT_THAT(damaged(other_form), HasSubstr("another header"));
}

TEST(TeacherCache, IsAbsentUnlessAllSamplesWereAdded) {
  const ScratchFolder scratch;
  const TeacherCacheForm form = small_form();
  {
    TeacherCacheWriter writer(scratch.path(), form);
    writer.add(numbers_of_samples(form).narrow(0, 0, 4));
    EXPECT_THROW(writer.commit(), InternalError);
    EXPECT_THROW(writer.add(torch::zeros({1, 3, 5}, torch::kInt32)), InternalError);
  }
  EXPECT_FALSE(std::filesystem::exists(teacher_cache_path(scratch.path(), form)));
}

// At every call to the system: the next writer completes the file, and a reader sees all of it or none.
TEST(TeacherCache, IsCompleteOrAbsentAfterTheProcessWasKilled) {
  const TeacherCacheForm form = small_form();
  int killed = 0;
  for (int at = 0;; ++at) {
    const ScratchFolder scratch;
    const std::string folder = scratch / "cache", path = teacher_cache_path(folder, form);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      FaultyFiles files;
      files.fault = FaultyFiles::Fault::kKill;
      files.at = at;
      write_cache(folder, form, files);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (std::filesystem::exists(path)) expect_numbers(folder, form);
    if (WIFEXITED(status)) break;
    ++killed;
    if (!std::filesystem::exists(path)) write_cache(folder, form);
    expect_numbers(folder, form);
    EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  }
  EXPECT_GT(killed, 8);
}

TEST(TeacherCache, HasOneWriterAtATime) {
  const ScratchFolder scratch;
  const TeacherCacheForm form = small_form();
  const TeacherCacheWriter writer(scratch.path(), form);
  EXPECT_THAT(thrown_by<ResourceError>([&] { write_cache(scratch.path(), form); }),
              HasSubstr(scratch.path() + ": another run is storing log-probabilities in the directory"));
}

TEST(TeacherCache, SaysWhenTheDiskIsFull) {
  const ScratchFolder scratch;
  FaultyFiles files;
  files.fault = FaultyFiles::Fault::kFail;
  files.at = 3;
  EXPECT_THAT(thrown_by<ResourceError>([&] { write_cache(scratch / "cache", small_form(), files); }),
              HasSubstr("the file cannot be written: No space left on device"));
}

}  // namespace
}  // namespace gantry::testing
