#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "gantry/core/error.h"
#include "gantry/schedule/schedule.h"

namespace gantry::schedule {
namespace {

constexpr std::size_t kMaxBytes = 64u << 20;

// The parts between separators; n separators make n + 1 parts.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find(separator, begin)) != std::string::npos; begin = end + 1)
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<Action> parse_row(const std::string& line, const std::string& where) {
  std::vector<Action> row;
  const auto cells = split(line, ',');
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto parsed = parse_cell(cells[i], where + ", cell " + std::to_string(i + 1));
    row.insert(row.end(), parsed.begin(), parsed.end());
  }
  if (row.empty())
    throw ConfigError({where, "the row has no action", "a row for each rank, and at least one stage on each rank", ""});
  return row;
}

std::vector<int> stages_named_by(const std::vector<Action>& row) {
  std::set<int> stages;
  for (const auto& action : row) stages.insert(action.stage);
  return {stages.begin(), stages.end()};
}

}  // namespace

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (const auto& row : schedule.actions) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      if (row[i].overlaps_next && i + 1 < row.size()) {
        text += "(" + to_string(row[i]) + ";" + to_string(row[i + 1]) + ")OVERLAP_F_B";
        ++i;
      } else {
        text += to_string(row[i]);
      }
    }
    text += '\n';
  }
  return text;
}

Schedule from_csv(const std::string& text, const std::string& name) {
  if (text.size() > kMaxBytes)
    throw ConfigError({name, "the schedule has " + std::to_string(text.size()) + " bytes",
                       "at most " + std::to_string(kMaxBytes), ""});
  auto lines = split(text, '\n');
  while (!lines.empty() && lines.back().find_first_not_of(" \t\r") == std::string::npos) lines.pop_back();
  if (lines.empty()) throw ConfigError({name, "the schedule is empty", "a row of actions for each rank", ""});
  Schedule schedule;
  schedule.name = name;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto row = parse_row(lines[i], name + ": line " + std::to_string(i + 1));
    for (const auto& action : row) schedule.microbatches = std::max(schedule.microbatches, action.microbatch + 1);
    schedule.stages_of_rank.push_back(stages_named_by(row));
    schedule.actions.push_back(std::move(row));
  }
  return schedule;
}

Schedule load_csv(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  // One byte over the limit shows from_csv that there is more, without reading the full file.
  if (file) {
    text.resize(kMaxBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad() || (text.empty() && !file.eof()))
    throw InputError({path, "the schedule file cannot be read", "a CSV file with a row of actions for each rank", ""});
  return from_csv(text, path);
}

}  // namespace gantry::schedule
