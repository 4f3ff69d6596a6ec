// docs/configuration.md has a section for each part of the YAML: a heading that names the part in backticks, text, an
// example, and a table of its keys. The tables are generated from the keys of the reader (core/config/config_keys.h);
// headings, text and examples are written in the page.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>

#include "documents.h"
#include "gantry/core/config.h"
#include "gantry/core/config/config_keys.h"
#include "made_page.h"

namespace gantry::testing {
namespace {

const std::filesystem::path kPage = kRoot / "docs/configuration.md";

// "optimizer" of "optimizer.groups[].lr".
std::string part_of(const ConfigKey& key) { return std::string(key.path).substr(0, std::string(key.path).find('.')); }

// The parts that a heading names: optimizer and lr_schedule of "## `optimizer` and `lr_schedule`".
std::vector<std::string> parts_in(const std::string& heading) {
  static const std::regex code("`([a-z_]+)`");
  std::vector<std::string> parts;
  for (std::sregex_iterator match(heading.begin(), heading.end(), code), end; match != end; ++match)
    parts.push_back((*match)[1]);
  return parts;
}

// The last column is left out if every key of the table always has an effect.
std::string key_table(const std::vector<std::string>& parts) {
  std::vector<ConfigKey> keys;
  for (const auto& key : config_keys())
    if (std::find(parts.begin(), parts.end(), part_of(key)) != parts.end()) keys.push_back(key);
  const bool has_conditions = std::any_of(keys.begin(), keys.end(), [](const auto& key) { return key.context; });
  std::string table = has_conditions ? "| key | default | meaning | requires |\n|---|---|---|---|\n"
                                     : "| key | default | meaning |\n|---|---|---|\n";
  for (const auto& key : keys) {
    const std::string initial = key.initial;
    table += fmt::format("| `{}` |{} | {} |", key.path, initial.empty() ? "" : " " + initial, key.meaning);
    if (has_conditions) table += fmt::format("{} |", key.context ? " " + std::string(key.context->needs) : "");
    table += "\n";
  }
  return table;
}

TEST(ConfigurationPage, HasATableOfTheKeysOfEachPart) {
  std::string page;
  std::vector<std::string> parts;
  std::multiset<std::string> listed;
  bool has_table = false;
  for (const auto& line : lines_of(read_file(kPage.string()))) {
    if (line.starts_with("## ")) {
      parts = parts_in(line);
      has_table = false;
    }
    if (!line.starts_with("|") || parts.empty()) {
      page += line + "\n";
    } else if (!has_table) {
      page += key_table(parts);
      listed.insert(parts.begin(), parts.end());
      has_table = true;
    }
  }
  for (const auto& key : config_keys())
    EXPECT_EQ(listed.count(part_of(key)), 1u)
        << "docs/configuration.md needs one section with a table for `" << part_of(key) << "`";
  expect_page("configuration.md", page);
}

// The examples also pass `gantry config` (documents_test.cpp).
TEST(ConfigurationPage, HasAnExampleOfEachPart) {
  const Document page = read_document(kPage);
  std::map<std::string, int> examples;
  std::vector<std::string> parts;
  std::size_t block = 0;
  for (std::size_t i = 0; i < page.prose.size(); ++i) {
    if (page.prose[i].starts_with("## ")) parts = parts_in(page.prose[i]);
    for (; block < page.blocks.size() && page.blocks[block].line <= static_cast<int>(i) + 1; ++block) {
      const Block& example = page.blocks[block];
      if (example.language != "yaml") continue;
      const bool has_model = example.text.starts_with("model:") || example.text.find("\nmodel:") != std::string::npos;
      EXPECT_NO_THROW(Config::parse((has_model ? "" : "model: {policy: gpt2}\n") + example.text))
          << place(page, example.line);
      for (const auto& part : parts)
        examples[part] +=
            example.text.starts_with(part + ":") || example.text.find("\n" + part + ":") != std::string::npos;
    }
  }
  for (const auto& key : config_keys())
    EXPECT_GT(examples[part_of(key)], 0) << "docs/configuration.md: the section of `" << part_of(key)
                                         << "` has no example of it";
}

}  // namespace
}  // namespace gantry::testing
