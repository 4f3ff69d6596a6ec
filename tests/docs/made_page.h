// Pages that are made: a test compares what there is with what it would be made of now; GANTRY_WRITE_PAGES=1
// (./dev pages) writes it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "program.h"

namespace gantry::testing {

// `name` is below docs/.
inline void expect_page(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(GANTRY_SOURCE_DIR) / "docs" / name;
  if (std::getenv("GANTRY_WRITE_PAGES")) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  const std::string there = read_file(path.string());
  const auto at = std::mismatch(there.begin(), there.end(), text.begin(), text.end());
  EXPECT_TRUE(there == text) << "docs/" << name << " is not up to date: run ./dev pages\n  there: "
                             << std::string(at.first, there.end()).substr(0, 120)
                             << "\n  now:   " << std::string(at.second, text.end()).substr(0, 120);
}

}  // namespace gantry::testing
