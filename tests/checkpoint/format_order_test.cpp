// The order of file system calls in a save. Files are synced before they get their names, and the manifest
// comes last. An older checkpoint is removed only after the name of the newer one is on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "gantry/checkpoint/format/checkpoint_folder.h"
#include "program.h"
#include "tiny_checkpoint.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::StartsWith;

// Records every successful call, with paths relative to `root`. Consecutive writes to a file count as one.
class RecordingFiles final : public FileSystem {
 public:
  explicit RecordingFiles(std::string root) : root_(std::move(root)) {}

  std::vector<std::string> calls;

  int create(const std::string& path) override {
    const int file = FileSystem::create(path);
    paths_[file] = path;
    return note("create", path, file);
  }
  ssize_t write(int file, const void* data, std::size_t bytes) override {
    const ssize_t written = FileSystem::write(file, data, bytes);
    const std::string call = "write " + relative(paths_.at(file));
    if (written > 0 && calls.back() != call) calls.push_back(call);
    return written;
  }
  int sync(int file) override { return note("sync", paths_.at(file), FileSystem::sync(file)); }
  int close(int file) override { return note("close", paths_.at(file), FileSystem::close(file)); }
  int sync_folder(const std::string& path) override { return note("sync", path, FileSystem::sync_folder(path)); }
  int rename(const std::string& from, const std::string& to) override {
    return note("rename", relative(from) + " to " + relative(to), FileSystem::rename(from, to));
  }
  int unlink(const std::string& path) override { return note("unlink", path, FileSystem::unlink(path)); }
  int make_folder(const std::string& path) override { return note("make", path, FileSystem::make_folder(path)); }
  int remove_folder(const std::string& path) override { return note("remove", path, FileSystem::remove_folder(path)); }

 private:
  std::string relative(const std::string& path) const {
    if (path == root_) return ".";
    return path.starts_with(root_ + "/") ? path.substr(root_.size() + 1) : path;
  }
  int note(const std::string& call, const std::string& path, int result) {
    if (result >= 0) calls.push_back(call + " " + relative(path));
    return result;
  }

  std::string root_;
  std::map<int, std::string> paths_;  // open file -> path
};

void save_step(const std::string& directory, std::int64_t step, FileSystem& files) {
  CheckpointFolder folder(directory, files);
  folder.begin(step, 1000);
  for (int rank = 0; rank < kTinyRanks; ++rank)
    write_part(folder.partial(step), write_tiny_rank(folder.partial(step), rank, 0, files), files);
  folder.commit({.step = step}, kTinyRanks, {.newest = 1, .stays = {}});
}

// Appends the calls that create, write, sync and close a file.
void expect_file(std::vector<std::string>& calls, const std::string& name) {
  for (const char* call : {"create ", "write ", "sync ", "close "}) calls.push_back(call + name);
}

TEST(Order, FilesAndFoldersAreSyncedBeforeTheyAreReliedOn) {
  const ScratchFolder scratch;
  save_step(scratch.path(), 2, system_files());
  RecordingFiles files(scratch.path());
  save_step(scratch.path(), 4, files);

  const std::string partial = ".step-000004.partial";
  std::vector<std::string> expected{"make " + partial, "sync ."};
  for (int rank = 0; rank < kTinyRanks; ++rank) {
    const std::string file = partial + "/" + rank_file_name(rank), part = file + ".part";
    expect_file(expected, file);
    expect_file(expected, part + ".partial");
    expected.push_back("rename " + part + ".partial to " + part);
  }
  for (int rank = 0; rank < kTinyRanks; ++rank)
    expected.push_back("unlink " + partial + "/" + rank_file_name(rank) + ".part");
  expect_file(expected, partial + "/manifest.json");
  expected.push_back("sync " + partial);
  expected.push_back("rename " + partial + " to step-000004");
  expected.push_back("sync .");
  expect_file(expected, "latest.partial");
  expected.push_back("rename latest.partial to latest");
  expected.push_back("sync .");
  expected.push_back("rename step-000002 to .step-000002.removed");
  expected.push_back("sync .");

  ASSERT_GT(files.calls.size(), expected.size());
  const auto end = files.calls.begin() + static_cast<std::ptrdiff_t>(expected.size());
  EXPECT_THAT(std::vector<std::string>(files.calls.begin(), end), ElementsAreArray(expected));
  std::for_each(end, files.calls.end() - 1, [](const std::string& call) {
    EXPECT_THAT(call, StartsWith("unlink .step-000002.removed/")) << "the older one's own files, and nothing else";
  });
  EXPECT_EQ(files.calls.back(), "remove .step-000002.removed");
}

}  // namespace
}  // namespace gantry::testing
