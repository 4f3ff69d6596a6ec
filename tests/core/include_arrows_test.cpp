// Includes between the top-level directories go in one direction only, and public headers include no private
// ones.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Folders = std::set<std::string>;

// The directories, lowest first. A directory may include itself and the directories before it in this list.
const std::vector<std::string> kFolders = {"core",      "schedule",   "tensors", "comm",       "diagnosis",
                                           "profiling", "launch",     "nn",      "models",     "policies",
                                           "pipeline",  "checkpoint", "data",    "optimizers", "planner",
                                           "plugins",   "generation", "booster", "trainer",    "cli"};

// Stricter rules for some directories: in addition to themselves, they may include only these.
const std::map<std::string, Folders> kNarrower = {
    {"schedule", {"core"}},
    {"tensors", {"core"}},
    {"comm", {"core", "tensors"}},
    {"diagnosis", {"core", "comm"}},
    {"profiling", {"core", "schedule", "tensors", "comm"}},
    {"launch", {"core", "tensors", "comm", "diagnosis", "profiling"}},
    {"nn", {"core", "schedule", "tensors", "comm"}},
    {"models", {"core", "schedule", "tensors", "comm", "nn"}},
    {"planner", {"core", "schedule", "nn", "models", "checkpoint"}},
    {"policies", {"core", "schedule", "tensors", "comm", "nn", "models"}},
    {"pipeline", {"core", "schedule", "tensors", "comm"}},
    {"checkpoint", {"core", "tensors", "comm", "models", "policies"}},
    {"data", {"core", "tensors", "comm", "checkpoint"}},
    {"optimizers", {"core", "tensors", "comm", "nn"}},
};

Folders allowed_in(const std::string& folder) {
  Folders allowed = {folder};
  if (const auto narrower = kNarrower.find(folder); narrower != kNarrower.end()) {
    allowed.insert(narrower->second.begin(), narrower->second.end());
    return allowed;
  }
  for (const auto& lower : kFolders) {
    if (lower == folder) break;
    allowed.insert(lower);
  }
  return allowed;
}

const fs::path kRoot(GANTRY_SOURCE_DIR), kPublic = kRoot / "include/gantry";

// Returns the public headers of a directory, and the headers and sources in the directory itself.
std::vector<fs::path> files_of(const std::string& room) {
  std::vector<fs::path> files;
  for (const fs::path& folder : {kPublic / room, kRoot / room}) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.path().extension() == ".h" || entry.path().extension() == ".cpp") files.push_back(entry.path());
  }
  return files;
}

// The umbrella header for users includes directories above its own.
bool is_umbrella(const fs::path& path) { return path.string().ends_with("/booster/gantry.h"); }

// The parts of trainer/ that are built without LibTorch.
bool is_report(const fs::path& path) { return path.string().find("/trainer/report/") != std::string::npos; }
bool is_status(const fs::path& path) { return path.string().find("/trainer/status/") != std::string::npos; }

// The code that runs ranks as processes, built without LibTorch.
bool is_supervisor(const fs::path& path) { return path.string().find("/launch/supervisor/") != std::string::npos; }

// The input of flight recorders, built without LibTorch.
bool is_operation(const fs::path& path) { return path.string().find("/comm/operation.") != std::string::npos; }

// The part of checkpoint/ that is built without LibTorch.
bool is_format(const fs::path& path) { return path.string().find("/checkpoint/format/") != std::string::npos; }

// The part of comm/ that is built without LibTorch and does not include the backends.
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
  for (const std::string& folder : kFolders)
    for (const fs::path& path : files_of(folder)) {
      ++files;
      if (is_umbrella(path)) continue;
      Folders here = allowed_in(folder);
      if (is_text(path)) here = {"core", "data"};
      if (is_format(path)) here = {"core", "checkpoint"};
      if (is_operation(path)) here = {"core", "comm"};
      if (is_report(path)) here = {"core", "checkpoint", "planner", "trainer"};
      if (is_status(path)) here = {"core", "comm", "trainer"};
      if (is_supervisor(path)) here = {"core", "comm", "launch"};
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        std::smatch match;
        if (std::regex_search(line, match, include)) EXPECT_TRUE(here.contains(match[1])) << path << " -> " << match[1];
        const bool plain = folder == "core" || folder == "schedule" || folder == "diagnosis" || folder == "planner" ||
                           is_text(path) || is_format(path) || is_control(path) || is_operation(path) ||
                           is_report(path) || is_status(path) || is_supervisor(path);
        if (is_control(path) && line.starts_with("#include"))
          EXPECT_TRUE(std::regex_search(line, include_of_control)) << path << ": " << line;
        if (plain) EXPECT_EQ(line.find("#include <torch"), std::string::npos) << path;
      }
    }
  EXPECT_GT(files, 100);
}

// The private headers of core/: a subdirectory includes itself and those before it.
TEST(IncludeArrows, RunOneWayInsideOfCore) {
  const std::vector<std::string> folders = {"base", "io", "host", "sharding", "config"};
  const std::regex include("#include \"gantry/core/([a-z_]+)/");
  int includes = 0;
  Folders lower;
  for (const std::string& folder : folders) {
    lower.insert(folder);
    for (const auto& entry : fs::directory_iterator(kRoot / "core" / folder)) {
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        std::smatch match;
        if (!std::regex_search(line, match, include)) continue;
        ++includes;
        EXPECT_TRUE(lower.contains(match[1])) << entry.path() << " -> " << match[1];
      }
    }
  }
  EXPECT_GT(includes, 50);
}

// Public headers include only public headers, because an installation has no others.
TEST(PublicHeaders, IncludePublicOnesAlone) {
  const std::regex include("#include \"gantry/([a-z_/0-9]+\\.h)\"");
  int includes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kPublic)) {
    if (!entry.is_regular_file()) continue;
    EXPECT_FALSE(fs::exists(kRoot / fs::relative(entry.path(), kPublic))) << entry.path() << " is there twice";
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      ++includes;
      EXPECT_TRUE(fs::exists(kPublic / match[1].str()))
          << entry.path() << " includes " << match[1] << ", which is private: declare what is named, or move that too";
    }
  }
  EXPECT_GT(includes, 100);
}

}  // namespace
