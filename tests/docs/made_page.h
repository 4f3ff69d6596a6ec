// Generated pages and files: a test compares the file in the repository with the text that is generated now. With
// GANTRY_WRITE_PAGES=1 (./dev pages) it writes the file.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "program.h"

namespace gantry::testing {

// `name` is relative to the root of the repository.
inline void expect_file(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(GANTRY_SOURCE_DIR) / name;
  if (std::getenv("GANTRY_WRITE_PAGES")) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  const std::string present = read_file(path.string());
  const auto at = std::mismatch(present.begin(), present.end(), text.begin(), text.end());
  EXPECT_TRUE(present == text) << name << " is not up to date: run ./dev pages\n  file: "
                               << std::string(at.first, present.end()).substr(0, 120)
                               << "\n  now:  " << std::string(at.second, text.end()).substr(0, 120);
}

// `name` is below docs/.
inline void expect_page(const std::string& name, const std::string& text) { expect_file("docs/" + name, text); }

}  // namespace gantry::testing
