// The project's Markdown pages, for the tests that compare them with the program.
#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "program.h"

namespace gantry::testing {

inline const std::filesystem::path kRoot(GANTRY_SOURCE_DIR);

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

struct Block {
  std::string language;  // after the fence; "" for none and for indented text
  std::string text;
  int line;
};

struct Document {
  std::filesystem::path path;
  std::vector<std::string> prose;  // all lines; those in blocks are empty
  std::vector<Block> blocks;
};

inline Document read_document(const std::filesystem::path& path) {
  Document document{.path = path, .prose = {}, .blocks = {}};
  std::istringstream lines(read_file(path.string()));
  bool fenced = false, indented = false;
  for (std::string line; std::getline(lines, line);) {
    const bool fence = line.starts_with("```");
    const bool deep =
        !fenced && line.starts_with("    ") && (indented || document.prose.empty() || document.prose.back().empty());
    if ((fence && !fenced) || (deep && !indented))
      document.blocks.push_back({fence ? line.substr(3) : "", "", static_cast<int>(document.prose.size()) + 1});
    if ((fenced && !fence) || deep) document.blocks.back().text += line.substr(deep ? 4 : 0) + "\n";
    document.prose.push_back(fence || fenced || deep ? "" : line);
    fenced = fenced != fence;
    indented = deep;
  }
  EXPECT_FALSE(fenced) << path << " has a ``` that nothing closes";
  return document;
}

// The pages in the root, in docs/ and its directories, in bench/ and in tests/golden/.
inline std::vector<Document> documents() {
  std::vector<Document> all;
  const std::filesystem::path root(GANTRY_SOURCE_DIR);
  for (const auto& folder : {root, root / "docs", root / "docs" / "tutorials", root / "docs" / "design", root / "bench",
                             root / "tests" / "golden"})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".md") all.push_back(read_document(entry.path()));
  return all;
}

inline std::string place(const Document& document, std::size_t line) {
  return std::filesystem::relative(document.path, GANTRY_SOURCE_DIR).string() + ":" + std::to_string(line);
}

}  // namespace gantry::testing
