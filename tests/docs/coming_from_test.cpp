// The right-hand column of docs/coming_from.md has only existing names: keys of the configuration, checked
// with the program, and names that the public headers declare.
#include <filesystem>
#include <fmt/format.h>
#include <regex>
#include <set>

#include "documents.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

struct Cell {
  std::string text, where;
};

// The code in the last cells of the page's tables, in its prose, and in its blocks.
std::vector<Cell> our_code() {
  const Document page = read_document(fs::path(GANTRY_SOURCE_DIR) / "docs/coming_from.md");
  const std::regex code("`([^`]+)`");
  std::vector<Cell> cells;
  bool is_ours = false;  // PyTorch's schedules have a table with another header
  for (std::size_t i = 0; i < page.prose.size(); ++i) {
    const std::string& line = page.prose[i];
    if (line.starts_with("| ") && (i == 0 || page.prose[i - 1].empty())) is_ours = line.ends_with("| Gantry |");
    std::string text = line;
    if (line.starts_with("| ")) text = line.substr(std::regex_replace(line, std::regex(R"(\\\|)"), "xx").find(" |", 2));
    for (std::sregex_iterator match(text.begin(), text.end(), code), end; match != end; ++match)
      if (is_ours || !line.starts_with("| ")) cells.push_back({(*match)[1], place(page, i + 1)});
  }
  for (const auto& block : page.blocks) cells.push_back({block.text, place(page, block.line)});
  return cells;
}

const std::set<std::string>& sections() {
  static const std::set<std::string> all = {"model",      "lora",        "parallel",   "schedule",   "data",
                                            "optimizer",  "lr_schedule", "loss_scale", "evaluation", "train",
                                            "checkpoint", "comm",        "profile"};
  return all;
}

// The dotted keys in a text: schedule.chunks, and parallel.tensor and parallel.pipeline of
// parallel: {tensor, pipeline: 2}.
std::set<std::string> keys_in(const std::string& text) {
  std::set<std::string> keys;
  const std::regex dotted("\\b([a-z_]+)\\.([a-z_]+)\\b"), mapping("\\b([a-z_]+): \\{([^{}]*)\\}"),
      name("(?:^|, )([a-z_]+)");
  for (std::sregex_iterator match(text.begin(), text.end(), dotted), end; match != end; ++match)
    if (sections().contains((*match)[1]) && text.find("->") == std::string::npos &&
        text[static_cast<std::size_t>(match->position() + match->length())] != '(')
      keys.insert(match->str());
  for (std::sregex_iterator match(text.begin(), text.end(), mapping), end; match != end; ++match) {
    const std::string inner = (*match)[2];
    for (std::sregex_iterator each(inner.begin(), inner.end(), name); each != end; ++each)
      if (sections().contains((*match)[1])) keys.insert((*match)[1].str() + "." + (*each)[1].str());
  }
  return keys;
}

bool is_key(const std::string& key) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("c.yaml", "model: {policy: gpt2}\n");
  const Outcome run = run_program(fmt::format("{} config {} --set {}=0", gantry_program(), file, key));
  EXPECT_TRUE(run.exit_code == 0 || run.exit_code == 3 || run.exit_code == 4) << run.err;  // 4: no file '0'
  return run.err.find("unknown key") == std::string::npos;
}

TEST(ComingFrom, KeysAreOfTheConfiguration) {
  std::set<std::string> keys;
  for (const auto& cell : our_code())
    for (const auto& key : keys_in(cell.text)) {
      keys.insert(key);
      EXPECT_TRUE(is_key(key)) << cell.where << ": " << key;
    }
  EXPECT_GT(keys.size(), 20u);
  EXPECT_FALSE(is_key("schedule.chunk"));
}

// True if a public header declares the name.
bool is_public(const std::string& name) {
  static const std::string headers = [] {
    std::string all;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(GANTRY_SOURCE_DIR) / "include/gantry"))
      if (entry.path().extension() == ".h") all += read_file(entry.path().string());
    return std::regex_replace(all, std::regex("//[^\n]*"), "");
  }();
  return std::regex_search(headers, std::regex("\\b" + name + "\\b"));
}

TEST(ComingFrom, NamesAreInThePublicHeaders) {
  // gantry::initialize, Column{...}, save_parallelized(...), booster.boost: and names that are alone in their code.
  const std::regex patterns[] = {std::regex("gantry::([A-Za-z_]+)"), std::regex("\\b([A-Za-z_]+)[({]"),
                                 std::regex("(?:\\.|->)([a-z_]+)\\("), std::regex("^([A-Za-z_]+)$")};
  const std::set<std::string> not_ours = {
      "num_beams", "parallel",    "wte",    "int",     "for",    "auto", "if",       "parse", "front",
      "printf",    "static_cast", "return", "PROGRAM", "mpirun", "srun", "megatron", "m"};
  std::set<std::string> names;
  for (const auto& cell : our_code()) {
    if (!keys_in(cell.text).empty() || cell.text.starts_with("Schedule") || cell.text.starts_with("gantry ")) continue;
    for (const auto& pattern : patterns)
      for (std::sregex_iterator match(cell.text.begin(), cell.text.end(), pattern), end; match != end; ++match)
        if (const std::string name = (*match)[1]; !not_ours.contains(name)) {
          names.insert(name);
          EXPECT_TRUE(is_public(name)) << cell.where << ": " << name << " in " << cell.text;
        }
  }
  EXPECT_GT(names.size(), 30u);
  EXPECT_FALSE(is_public("shard_plam"));
}

}  // namespace
}  // namespace gantry::testing
