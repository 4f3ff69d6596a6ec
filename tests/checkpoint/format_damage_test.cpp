// Random damage to any file of a checkpoint is detected, by verify and by the checks before a load.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/core/error.h"
#include "program.h"
#include "tiny_checkpoint.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kDamages = 10'000;

// The checks of a run before it loads a checkpoint. Returns true if they fail.
bool loading_refuses(const std::string& folder) {
  if (!completeness_fault(folder).empty()) return true;
  try {
    const Manifest manifest = read_manifest(folder);
    for (const auto& [name, file] : manifest.files) check_file_hash(folder, name, file);
  } catch (const CheckpointError&) {
    return true;
  }
  return false;
}

TEST(Damage, EveryFlippedBitAndEveryTruncationIsFound) {
  const ScratchFolder scratch;
  const std::string folder = save_tiny(scratch / "c", 7);
  ASSERT_TRUE(verify_checkpoint(folder).faults.empty());
  ASSERT_FALSE(loading_refuses(folder));
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files.emplace_back(entry.path().string(), read_file(entry.path().string()));
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), kTinyRanks + 1u);
  std::mt19937_64 random(20261121);
  for (int round = 0; round < kDamages && !HasFailure(); ++round) {
    const auto& [path, bytes] = files[random() % files.size()];
    std::string damaged = bytes;
    const std::size_t at = random() % bytes.size();
    const bool truncated = random() % 4 == 0;
    if (truncated)
      damaged.resize(at);
    else
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    std::ofstream(path, std::ios::binary) << damaged;
    const auto report = verify_checkpoint(folder);
    EXPECT_FALSE(report.faults.empty()) << path << (truncated ? " cut" : " flipped") << " at byte " << at;
    EXPECT_TRUE(loading_refuses(folder)) << path << (truncated ? " cut" : " flipped") << " at byte " << at;
    std::ofstream(path, std::ios::binary) << bytes;
  }
  EXPECT_TRUE(verify_checkpoint(folder).faults.empty()) << "as it was";
}

}  // namespace
}  // namespace gantry::testing
