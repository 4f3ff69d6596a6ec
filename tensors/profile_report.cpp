// A profile as a trace file and as a table.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "gantry/tensors/profiler.h"

namespace gantry {
namespace {

constexpr double kMicroseconds = 1e6, kMilliseconds = 1e3, kMegabyte = 1e6;

// What an operator took itself, without what ran within it.
struct Own {
  double seconds = 0;
  std::int64_t memory = 0;
};

// The list is in order of start, depths say who is within: calls `enter` with each operator's place and the places of
// those around it, outermost first.
template <class Enter>
void walk(const std::vector<ProfiledOperator>& operators, const Enter& enter) {
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < operators.size(); ++i) {
    while (!open.empty() && operators[open.back()].depth >= operators[i].depth) open.pop_back();
    enter(i, open);
    open.push_back(i);
  }
}

std::vector<Own> own_costs(const std::vector<ProfiledOperator>& operators) {
  std::vector<Own> own(operators.size());
  walk(operators, [&](std::size_t i, const std::vector<std::size_t>& around) {
    const double length = operators[i].end - operators[i].start;
    own[i].seconds += length;
    own[i].memory += operators[i].memory;
    if (around.empty()) return;
    own[around.back()].seconds -= length;
    own[around.back()].memory -= operators[i].memory;
  });
  return own;
}

std::vector<OperatorCost> costs_of(const Profile& profile) {
  const auto own = own_costs(profile.operators);
  std::map<std::string, OperatorCost> by_name;
  std::map<std::string, double> longest;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& one = profile.operators[i];
    const double length = one.end - one.start;
    OperatorCost& cost = by_name[one.name];
    ++cost.calls;
    cost.own += own[i].seconds;
    cost.total += length;
    cost.memory += own[i].memory;
    if (double& most = longest[one.name]; length > most) most = length, cost.shapes = one.shapes;
  }
  std::vector<OperatorCost> sorted;
  for (auto& [name, cost] : by_name) {
    cost.name = name;
    sorted.push_back(std::move(cost));
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const OperatorCost& a, const OperatorCost& b) { return a.own > b.own; });
  return sorted;
}

nlohmann::json event_of(const std::vector<ProfiledOperator>& operators, std::size_t place,
                        const std::vector<std::size_t>& around) {
  const auto& one = operators[place];
  std::string within;
  for (const auto outer : around) within += (within.empty() ? "" : " > ") + operators[outer].name;
  return {{"name", one.name},
          {"cat", one.name.starts_with("gantry::") ? "communication" : "operator"},
          {"ph", "X"},
          {"dur", (one.end - one.start) * kMicroseconds},
          {"args", {{"shapes", one.shapes}, {"bytes", one.bytes}, {"memory", one.memory}, {"within", within}}}};
}

}  // namespace

std::vector<OperatorCost> costliest_operators(const Profile& profile, int rows) {
  auto costs = costs_of(profile);
  if (static_cast<int>(costs.size()) > rows) costs.resize(rows);
  return costs;
}

std::string operator_table(const Profile& profile, int rows) {
  const auto costs = costs_of(profile);
  double all = 0;
  for (const auto& cost : costs) all += cost.own;
  std::string table = fmt::format("{:<44} {:>10} {:>6} {:>10} {:>7} {:>10}  {}\n", "operator", "own ms", "own %",
                                  "total ms", "calls", "memory MB", "shapes");
  for (std::size_t i = 0; i < costs.size() && static_cast<int>(i) < rows; ++i) {
    const auto& cost = costs[i];
    table += fmt::format("{:<44} {:>10.3f} {:>6.1f} {:>10.3f} {:>7} {:>10.3f}  {}\n", cost.name,
                         cost.own * kMilliseconds, all > 0 ? 100 * cost.own / all : 0, cost.total * kMilliseconds,
                         cost.calls, static_cast<double>(cost.memory) / kMegabyte, cost.shapes);
  }
  return table;
}

std::string chrome_events(const Profile& profile, int id, int thread, double origin) {
  std::string events;
  walk(profile.operators, [&](std::size_t i, const std::vector<std::size_t>& around) {
    auto event = event_of(profile.operators, i, around);
    event.update({{"pid", id}, {"tid", thread}, {"ts", (profile.operators[i].start - origin) * kMicroseconds}});
    events += (i > 0 ? ",\n" : "") + event.dump();
  });
  return events;
}

std::string chrome_trace(const Profile& profile, const std::string& process, int id) {
  const nlohmann::json name = {{"name", "process_name"}, {"ph", "M"}, {"pid", id}, {"args", {{"name", process}}}};
  const std::string events = chrome_events(profile, id, 0, 0);
  return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + name.dump() + (events.empty() ? "" : ",\n") + events +
         "\n]}\n";
}

}  // namespace gantry
