// The arrows between folders run one way.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>

namespace {

namespace fs = std::filesystem;
using Folders = std::set<std::string>;

const Folders kAll = {"core",     "tensors",    "comm", "nn",      "models",  "policies",
                      "schedule", "checkpoint", "data", "plugins", "booster", "cli"};

Folders without(Folders folders, const Folders& taken) {
  for (const auto& name : taken) folders.erase(name);
  return folders;
}

const std::map<std::string, Folders> kAllowed = {
    {"core", {"core"}},
    {"tensors", {"core", "tensors"}},
    {"comm", {"core", "tensors", "comm"}},
    {"nn", {"core", "tensors", "comm", "nn"}},
    {"models", {"core", "tensors", "comm", "nn", "models"}},
    {"data", {"core", "tensors", "comm", "data"}},
    {"checkpoint", {"core", "tensors", "comm", "models", "checkpoint"}},
    {"policies", {"core", "tensors", "comm", "nn", "models", "policies"}},
    {"schedule", {"core", "schedule"}},
    {"plugins", without(kAll, {"booster", "cli"})},
    {"booster", without(kAll, {"cli"})},
    {"cli", kAll},
};

// The part of comm/ that is built without LibTorch.
bool is_recorder(const fs::path& path) { return path.string().find("/comm/recorder/") != std::string::npos; }

// The part of checkpoint/ that is built without LibTorch.
bool is_format(const fs::path& path) { return path.string().find("/checkpoint/format/") != std::string::npos; }

// The part of comm/ that is built without LibTorch and knows no backend.
bool is_control(const fs::path& path) { return path.string().find("/comm/control/") != std::string::npos; }

// The files of data/ that are built without LibTorch.
bool is_text(const fs::path& path) {
  static const std::regex kText("data/((bert_text|word_piece|squad)[a-z_]*|(tokenizers|corpus)/[a-z0-9_]*)\\.(h|cpp)$");
  return std::regex_search(path.string(), kText);
}

TEST(IncludeArrows, RunOneWay) {
  const std::regex include("#include\\s+[\"<]gantry/([a-z_]+)/");
  const std::regex include_of_control("#include\\s+[\"<](gantry/(core|comm/control)/|(?!gantry/|mpi|torch))");
  int files = 0;
  for (const auto& [folder, allowed] : kAllowed)
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(GANTRY_SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp") continue;
      ++files;
      Folders here = allowed;
      if (folder == "schedule" && entry.path().filename().string().starts_with("executor"))
        here.insert({"comm", "tensors"});
      if (is_text(entry.path())) here = {"core", "data"};
      if (is_format(entry.path())) here = {"core", "checkpoint"};
      if (is_recorder(entry.path())) here = {"core", "comm"};
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        std::smatch match;
        if (std::regex_search(line, match, include))
          EXPECT_TRUE(here.contains(match[1])) << entry.path() << " -> " << match[1];
        const bool plain = folder == "core" || (folder == "schedule" && !here.contains("tensors")) ||
                           is_text(entry.path()) || is_format(entry.path()) || is_control(entry.path()) ||
                           is_recorder(entry.path());
        if (is_control(entry.path()) && line.starts_with("#include"))
          EXPECT_TRUE(std::regex_search(line, include_of_control)) << entry.path() << ": " << line;
        if (plain) EXPECT_EQ(line.find("#include <torch"), std::string::npos) << entry.path();
      }
    }
  EXPECT_GT(files, 100);
}

}  // namespace
