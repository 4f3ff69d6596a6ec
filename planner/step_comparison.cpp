#include "gantry/planner/step_comparison.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"

namespace gantry::planner {
namespace {

double most(const std::vector<double>& values) { return values.empty() ? 0 : *std::ranges::max_element(values); }

constexpr const char* kMemory = "memory";

}  // namespace

std::vector<std::pair<const char*, double>> parts_of(const Seconds& seconds) {
  return {{"compute", seconds.compute},    {"tensor", seconds.tensor},     {"context", seconds.context},
          {"expert", seconds.expert},      {"pipeline", seconds.pipeline}, {"data", seconds.data},
          {"optimizer", seconds.optimizer}};
}

StepFacts facts_of(const Estimate& estimate) {
  StepFacts facts{.seconds = estimate.seconds, .memory_bytes = {}};
  for (const Memory& rank : estimate.memory) facts.memory_bytes.push_back(rank.sum());
  return facts;
}

std::vector<Gap> gaps(const StepFacts& predicted, const StepFacts& measured) {
  std::vector<Gap> all;
  const auto add = [&](const char* part, double expected, double was, double whole) {
    if (expected > 0 || was > 0) all.push_back({part, expected, was, whole > 0 ? std::abs(was - expected) / whole : 0});
  };
  const auto expected = parts_of(predicted.seconds), was = parts_of(measured.seconds);
  for (std::size_t i = 0; i < was.size(); ++i)
    add(was[i].first, expected[i].second, was[i].second, measured.seconds.sum());
  add(kMemory, most(predicted.memory_bytes), most(measured.memory_bytes), most(measured.memory_bytes));
  std::ranges::stable_sort(all, std::greater{}, &Gap::share);
  return all;
}

std::string describe(const Gap& gap) {
  if (gap.part == kMemory)
    return fmt::format("{}: {:.4g} MB predicted, {:.4g} MB measured", gap.part, gap.predicted / 1e6,
                       gap.measured / 1e6);
  return fmt::format("{}: {:.4g} s predicted, {:.4g} s measured", gap.part, gap.predicted, gap.measured);
}

nlohmann::ordered_json to_json(const StepFacts& facts) {
  nlohmann::ordered_json seconds = nlohmann::ordered_json::object();
  for (const auto& [name, value] : parts_of(facts.seconds)) seconds[name] = value;
  return {{"step_seconds", facts.seconds.sum()}, {"seconds", std::move(seconds)}, {"memory_bytes", facts.memory_bytes}};
}

Seconds seconds_of_json(const nlohmann::json& facts, const std::string& where) {
  const auto seconds = facts.is_object() ? facts.value("seconds", nlohmann::json()) : nlohmann::json();
  const auto part = [&](const char* name) {
    const auto value = seconds.is_object() ? seconds.value(name, nlohmann::json()) : nlohmann::json();
    if (!value.is_number() || value.get<double>() < 0)
      throw InputError({where, std::string("has no seconds of ") + name, "what `gantry train` writes at a run's end",
                        "train some steps with this version"});
    return value.get<double>();
  };
  return {part("compute"),  part("tensor"), part("context"),  part("expert"),
          part("pipeline"), part("data"),   part("optimizer")};
}

}  // namespace gantry::planner
