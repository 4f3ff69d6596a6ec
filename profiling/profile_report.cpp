// Writes a profile as a trace file and as a table.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "gantry/profiling/profiler.h"

namespace gantry {
namespace {

constexpr double kMilliseconds = 1e3, kMegabyte = 1e6;
constexpr std::size_t kNameWidth = 44;

// The time of an operator without the operators within it.
struct Own {
  double seconds = 0;
  std::int64_t memory = 0;
};

// The list is ordered by start, and depths define the nesting: calls `enter` with the index of each operator and the
// indices of the operators around it, outermost first.
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

std::vector<double> kernel_seconds(const Profile& profile) {
  std::vector<double> seconds(profile.operators.size());
  for (const auto& kernel : profile.kernels) seconds[kernel.operator_at] += kernel.end - kernel.start;
  return seconds;
}

std::vector<OperatorCost> costs_of(const Profile& profile) {
  const auto own = own_costs(profile.operators);
  const auto device = kernel_seconds(profile);
  std::map<std::string, OperatorCost> by_name;
  std::map<std::string, double> longest;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& one = profile.operators[i];
    const double length = one.end - one.start;
    OperatorCost& cost = by_name[one.name];
    ++cost.calls;
    cost.own += own[i].seconds;
    cost.total += length;
    cost.device += device[i];
    cost.memory += own[i].memory;
    if (double& most = longest[one.name]; length > most) most = length, cost.shapes = one.shapes;
  }
  std::vector<OperatorCost> sorted;
  for (auto& [name, cost] : by_name) {
    cost.name = name;
    sorted.push_back(std::move(cost));
  }
  const auto cost = profile.kernels.empty() ? &OperatorCost::own : &OperatorCost::device;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const OperatorCost& a, const OperatorCost& b) { return a.*cost > b.*cost; });
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

std::string shortened(const std::string& name, std::size_t length) {
  return name.size() <= length ? name : fmt::format("{}...", std::string_view(name).substr(0, length - 3));
}

}  // namespace

std::vector<OperatorCost> costliest_operators(const Profile& profile, int rows) {
  auto costs = costs_of(profile);
  if (static_cast<int>(costs.size()) > rows) costs.resize(rows);
  return costs;
}

std::string operator_table(const Profile& profile, int rows) {
  const auto costs = costs_of(profile);
  const bool device = !profile.kernels.empty();
  double all = 0;
  for (const auto& cost : costs) all += cost.own;
  const auto line = [&](const auto& name, const auto& kernels, const auto&... rest) {
    return fmt::format("{:<{}} {}{}\n", name, kNameWidth, device ? fmt::format("{:>10} ", kernels) : "",
                       fmt::format("{:>10} {:>6} {:>10} {:>7} {:>10}  {}", rest...));
  };
  const auto number = [](double value, int digits = 3) { return fmt::format("{:.{}f}", value, digits); };
  std::string table = line("operator", "device ms", "own ms", "own %", "total ms", "calls", "memory MB", "shapes");
  for (std::size_t i = 0; i < costs.size() && static_cast<int>(i) < rows; ++i) {
    const auto& cost = costs[i];
    table +=
        line(shortened(cost.name, kNameWidth), number(cost.device * kMilliseconds), number(cost.own * kMilliseconds),
             number(all > 0 ? 100 * cost.own / all : 0, 1), number(cost.total * kMilliseconds), cost.calls,
             number(static_cast<double>(cost.memory) / kMegabyte), cost.shapes);
  }
  return table;
}

std::string chrome_events(const Profile& profile, int id, int thread, double origin) {
  std::string events;
  const auto add = [&](nlohmann::json event, int on, double start) {
    event.update({{"pid", id}, {"tid", on}, {"ts", (start - origin) * kMicroseconds}});
    events += (events.empty() ? "" : ",\n") + event.dump();
  };
  walk(profile.operators, [&](std::size_t i, const std::vector<std::size_t>& around) {
    add(event_of(profile.operators, i, around), thread, profile.operators[i].start);
  });
  std::map<std::pair<int, std::int64_t>, int> streams;
  for (const auto& kernel : profile.kernels) {
    const int next = thread + 1 + static_cast<int>(streams.size());
    const auto [stream, first] = streams.try_emplace({kernel.device, kernel.stream}, next);
    if (first)
      add({{"name", "thread_name"},
           {"ph", "M"},
           {"args", {{"name", fmt::format("GPU {} stream {}", kernel.device, kernel.stream)}}}},
          next, origin);
    add({{"name", kernel.name},
         {"cat", "kernel"},
         {"ph", "X"},
         {"dur", (kernel.end - kernel.start) * kMicroseconds},
         {"args", {{"operator", profile.operators[kernel.operator_at].name}}}},
        stream->second, kernel.start);
  }
  return events;
}

std::string chrome_trace(const std::vector<std::string>& events) {
  std::string listed;
  for (const auto& each : events)
    if (!each.empty()) listed += (listed.empty() ? "" : ",\n") + each;
  return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + listed + "\n]}\n";
}

std::string chrome_trace(const Profile& profile, const std::string& process, int id) {
  const nlohmann::json name = {{"name", "process_name"}, {"ph", "M"}, {"pid", id}, {"args", {{"name", process}}}};
  return chrome_trace({name.dump(), chrome_events(profile, id, 0, 0)});
}

}  // namespace gantry
