// The table of docs/configuration.md is made of the list of keys that the reader checks by (core/config_keys.h).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sstream>

#include "gantry/core/config_keys.h"
#include "made_page.h"

namespace gantry::testing {
namespace {

std::string key_table() {
  std::string table = "| key | default | meaning | has an effect with |\n|---|---|---|---|\n";
  for (const auto& key : config_keys()) {
    const std::string initial = key.initial;
    table += fmt::format("| `{}` |{} | {} |{} |\n", key.path, initial.empty() ? "" : " " + initial, key.meaning,
                         key.context ? " " + std::string(key.context->needs) : "");
  }
  return table;
}

TEST(ConfigurationPage, HasEveryKeyOfTheReader) {
  const std::filesystem::path path = std::filesystem::path(GANTRY_SOURCE_DIR) / "docs/configuration.md";
  std::istringstream lines(read_file(path.string()));
  std::string page;
  bool has_table = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|")) {
      page += line + "\n";
    } else if (!has_table) {
      page += key_table();
      has_table = true;
    }
  }
  EXPECT_TRUE(has_table);
  expect_page("configuration.md", page);
}

}  // namespace
}  // namespace gantry::testing
