// Axes are data: only one header contains their names.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <string>

namespace {

namespace fs = std::filesystem;

// Returns the line without its comment.
std::string without_comment(const std::string& line) { return line.substr(0, line.find("//")); }

TEST(AxisNames, StandInOnePlace) {
  const std::set<std::string> known = {"include/gantry/core/axis.h"};
  const std::set<std::string> folders = {"include",    "core",    "schedule",   "tensors", "comm",       "diagnosis",
                                         "profiling",  "launch",  "nn",         "models",  "policies",   "pipeline",
                                         "checkpoint", "data",    "optimizers", "plugins", "generation", "planner",
                                         "booster",    "trainer", "cli"};
  const std::regex name("\"(pp|dp|cp|tp|ep|edp)\"");
  const fs::path root = GANTRY_SOURCE_DIR;
  int files = 0;
  for (const auto& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = fs::relative(entry.path(), root).string();
      if ((entry.path().extension() != ".h" && entry.path().extension() != ".cpp") || known.contains(path)) continue;
      ++files;
      std::ifstream file(entry.path());
      int number = 1;
      for (std::string line; std::getline(file, line); ++number)
        EXPECT_FALSE(std::regex_search(without_comment(line), name))
            << path << ":" << number << " names an axis; core/axis.h has the names, and the mesh their roles";
    }
  EXPECT_GT(files, 400);
}

}  // namespace
