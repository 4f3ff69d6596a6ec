// A profile as a trace file and as a table.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "gantry/tensors/profiler.h"

namespace gantry {
namespace {

constexpr double kMicroseconds = 1e6, kMilliseconds = 1e3;

struct Row {
  std::string name, shapes;
  int calls = 0;
  double own = 0, total = 0, longest = 0;
};

// Each operator's time without that of the operators it ran: the list is in order of start, depths say who is within.
std::vector<double> own_times(const std::vector<ProfiledOperator>& operators) {
  std::vector<double> own;
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const double length = operators[i].end - operators[i].start;
    own.push_back(length);
    while (!open.empty() && operators[open.back()].depth >= operators[i].depth) open.pop_back();
    if (!open.empty()) own[open.back()] -= length;
    open.push_back(i);
  }
  return own;
}

}  // namespace

std::string chrome_trace(const Profile& profile, const std::string& process, int id) {
  auto events = nlohmann::json::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", id}, {"args", {{"name", process}}}});
  for (const auto& one : profile.operators)
    events.push_back({{"name", one.name},
                      {"cat", one.name.starts_with("gantry::") ? "communication" : "operator"},
                      {"ph", "X"},
                      {"pid", id},
                      {"tid", 0},
                      {"ts", one.start * kMicroseconds},
                      {"dur", (one.end - one.start) * kMicroseconds},
                      {"args", {{"shapes", one.shapes}}}});
  return nlohmann::json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

std::string operator_table(const Profile& profile, int rows) {
  const auto own = own_times(profile.operators);
  std::map<std::string, Row> by_name;
  double all = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& one = profile.operators[i];
    Row& row = by_name[one.name];
    row.name = one.name;
    ++row.calls;
    row.own += own[i];
    row.total += one.end - one.start;
    all += own[i];
    if (one.end - one.start > row.longest) row.longest = one.end - one.start, row.shapes = one.shapes;
  }
  std::vector<Row> sorted;
  for (auto& [name, row] : by_name) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.own > b.own; });
  if (static_cast<int>(sorted.size()) > rows) sorted.resize(rows);
  std::string table = fmt::format("{:<44} {:>7} {:>10} {:>6} {:>10}  {}\n", "operator", "calls", "own ms", "own %",
                                  "total ms", "shapes");
  for (const auto& row : sorted)
    table +=
        fmt::format("{:<44} {:>7} {:>10.3f} {:>6.1f} {:>10.3f}  {}\n", row.name, row.calls, row.own * kMilliseconds,
                    all > 0 ? 100 * row.own / all : 0, row.total * kMilliseconds, row.shapes);
  return table;
}

}  // namespace gantry
