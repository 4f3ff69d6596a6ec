#include "gantry/planner/calibration.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gantry/core/error.h"

namespace gantry::planner {
namespace {

double largest(const std::vector<double>& values) { return values.empty() ? 0 : *std::ranges::max_element(values); }

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
  const auto add = [&](const char* part, double expected, double was, double total) {
    if (expected > 0 || was > 0) all.push_back({part, expected, was, total > 0 ? std::abs(was - expected) / total : 0});
  };
  const auto expected = parts_of(predicted.seconds), was = parts_of(measured.seconds);
  for (std::size_t i = 0; i < was.size(); ++i)
    add(was[i].first, expected[i].second, was[i].second, measured.seconds.sum());
  add(kMemory, largest(predicted.memory_bytes), largest(measured.memory_bytes), largest(measured.memory_bytes));
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
      throw InputError({where, std::string("there are no seconds for ") + name,
                        "the measurements that `gantry train` writes at the end of a run",
                        "train some steps with this version"});
    return value.get<double>();
  };
  return {part("compute"),  part("tensor"), part("context"),  part("expert"),
          part("pipeline"), part("data"),   part("optimizer")};
}

namespace {

constexpr double kMostFactor = 1e4;  // largest factor of link times, and its inverse the smallest
constexpr int kBisections = 50;

double collective_seconds(const Seconds& seconds) {
  return seconds.tensor + seconds.context + seconds.expert + seconds.data;
}

// The geometric mean of measured / estimated over the steps that have the part.
class MeanFactor {
 public:
  void add(double measured, double estimated) {
    if (measured <= 0 || estimated <= 0) return;
    sum_ += std::log(measured / estimated);
    ++count_;
  }
  double value() const { return count_ > 0 ? std::exp(sum_ / count_) : 1; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

}  // namespace

// Peaks stay unchanged; efficiencies follow the measured steps. An efficiency above 1 raises the peak instead.
void slow_device(Device& device, double factor) {
  const auto slow_share = [&](double& share) {
    share /= factor;
    const double above = std::max(1.0, share);
    share /= above;
    return above;
  };
  const double peak = slow_share(device.matrix_efficiency);
  for (auto& [precision, flops] : device.matrix_flops) flops *= peak;
  device.attention_efficiency /= factor * peak;
  if (device.attention_efficiency > 1) device.attention_efficiency = 1;
  const double memory = slow_share(device.memory_efficiency);
  for (auto& [name, share] : device.operation_efficiency) share = std::min(1.0, share / (factor * memory));
  device.memory_bytes_per_second *= memory;
  device.optimizer_efficiency = std::min(1.0, device.optimizer_efficiency / (factor * memory));
  device.operation_seconds *= factor;
}

void slow_link(Link& link, double factor) {
  link.bytes_per_second /= factor;
  link.latency_seconds *= factor;
  link.call_seconds *= factor;
}

Calibration calibrate(const Cluster& cluster, const std::vector<MeasuredStep>& steps) {
  if (steps.empty()) throw UsageError({"calibrate", "there are no measured steps", "at least one step", ""});
  Calibration result{.cluster = cluster};
  const auto estimated = [](const Cluster& on, const MeasuredStep& step) {
    return estimate(step.workload, step.layout, with_ranks(on, step.layout.ranks(), /*grows=*/true)).seconds;
  };
  // Computation does not depend on links, and is proportional to the times of devices.
  MeanFactor device;
  for (const MeasuredStep& step : steps) device.add(step.seconds.compute, estimated(cluster, step).compute);
  result.device = device.value();
  slow_device(result.cluster.device, result.device);
  result.cluster.step_seconds = 0;
  double besides = 0;
  for (const MeasuredStep& step : steps) besides += step.seconds.optimizer - estimated(result.cluster, step).optimizer;
  result.cluster.step_seconds = std::max(0.0, besides / static_cast<double>(steps.size()));
  // Reductions overlap with computation, so their time is not proportional to the times of links, but it grows with
  // them.
  const auto with_links = [&](double factor) {
    Cluster slowed = result.cluster;
    slow_link(slowed.within, factor);
    slow_link(slowed.between, factor);
    return slowed;
  };
  const auto remaining = [&](double factor) {
    MeanFactor links;
    for (const MeasuredStep& step : steps)
      links.add(collective_seconds(step.seconds), collective_seconds(estimated(with_links(factor), step)));
    return links.value();
  };
  if (remaining(1) == 1) return result;
  double low = 1 / kMostFactor, high = kMostFactor;
  for (int round = 0; round < kBisections; ++round) {
    const double middle = std::sqrt(low * high);
    (remaining(middle) > 1 ? low : high) = middle;
  }
  result.links = std::sqrt(low * high);
  result.cluster = with_links(result.links);
  return result;
}

namespace {

constexpr double kSingular = 1e-12;  // smallest pivot, relative to the column

// Gaussian elimination with pivots; empty if columns are linearly dependent.
std::optional<std::vector<double>> solve_linear(std::vector<std::vector<double>> matrix, std::vector<double> right) {
  const std::size_t size = right.size();
  for (std::size_t column = 0; column < size; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < size; ++row)
      if (std::abs(matrix[row][column]) > std::abs(matrix[pivot][column])) pivot = row;
    if (std::abs(matrix[pivot][column]) < kSingular) return std::nullopt;
    std::swap(matrix[pivot], matrix[column]);
    std::swap(right[pivot], right[column]);
    for (std::size_t row = 0; row < size; ++row) {
      if (row == column) continue;
      const double factor = matrix[row][column] / matrix[column][column];
      for (std::size_t each = column; each < size; ++each) matrix[row][each] -= factor * matrix[column][each];
      right[row] -= factor * right[column];
    }
  }
  for (std::size_t row = 0; row < size; ++row) right[row] /= matrix[row][row];
  return right;
}

// Least squares for some of the columns. They are scaled to length 1, so that pivots are comparable.
std::optional<std::vector<double>> fit_columns(const std::vector<Observation>& all,
                                               const std::vector<std::size_t>& of) {
  std::vector<double> lengths(of.size(), 0);
  for (const Observation& one : all)
    for (std::size_t i = 0; i < of.size(); ++i) lengths[i] += std::pow(one.terms[of[i]] / one.target, 2);
  for (double& length : lengths) {
    length = std::sqrt(length);
    if (length == 0) return std::nullopt;
  }
  std::vector<std::vector<double>> matrix(of.size(), std::vector<double>(of.size(), 0));
  std::vector<double> right(of.size(), 0);
  for (const Observation& one : all)
    for (std::size_t i = 0; i < of.size(); ++i) {
      const double mine = one.terms[of[i]] / one.target / lengths[i];
      right[i] += mine;
      for (std::size_t j = 0; j < of.size(); ++j) matrix[i][j] += mine * one.terms[of[j]] / one.target / lengths[j];
    }
  auto found = solve_linear(std::move(matrix), std::move(right));
  if (!found) return std::nullopt;
  for (std::size_t i = 0; i < of.size(); ++i) (*found)[i] /= lengths[i];
  return found;
}

double squared_error(const std::vector<Observation>& all, const std::vector<double>& coefficients) {
  double sum = 0;
  for (const Observation& one : all) {
    double made = 0;
    for (std::size_t i = 0; i < coefficients.size(); ++i) made += coefficients[i] * one.terms[i];
    sum += std::pow(made / one.target - 1, 2);
  }
  return sum;
}

}  // namespace

// The optimum has some columns at 0 and is the unconstrained optimum of the others. There are few columns, so all
// subsets are tried.
std::vector<double> fit_non_negative(const std::vector<Observation>& all) {
  if (all.empty()) throw UsageError({"fit_non_negative", "there are no times", "at least one time", ""});
  const std::size_t columns = all.front().terms.size();
  std::vector<double> best(columns, 0);
  double least = squared_error(all, best);
  for (std::size_t set = 1; set < (std::size_t{1} << columns); ++set) {
    std::vector<std::size_t> of;
    for (std::size_t column = 0; column < columns; ++column)
      if ((set >> column & 1) != 0) of.push_back(column);
    const auto found = fit_columns(all, of);
    if (!found || std::ranges::any_of(*found, [](double each) { return each < 0; })) continue;
    std::vector<double> full(columns, 0);
    for (std::size_t i = 0; i < of.size(); ++i) full[of[i]] = (*found)[i];
    if (const double error = squared_error(all, full); error < least * (1 - 1e-9)) least = error, best = full;
  }
  return best;
}

FittedProducts fit_products(const std::vector<ProductTime>& times) {
  std::vector<Observation> all;
  double peak = 0, least = 1e300, most = 0;
  for (const ProductTime& each : times) {
    all.push_back({{each.flops, 1}, each.seconds});
    peak = std::max(peak, each.flops / each.seconds);
    least = std::min(least, each.flops);
    most = std::max(most, each.flops);
  }
  if (least >= most) throw UsageError({"fit_products", "all products have the same size", "at least two sizes", ""});
  const auto found = fit_non_negative(all);
  FittedProducts fitted{.peak = peak};
  if (found[0] == 0) return fitted;  // the times do not grow with the sizes
  fitted.peak = std::max(peak, 1 / found[0]);
  fitted.efficiency = 1 / (found[0] * fitted.peak);
  fitted.half_flops = found[1] / found[0];
  return fitted;
}

Link fit_link(const std::vector<CollectiveTime>& times) {
  std::vector<Observation> all;
  double fastest = 0;
  for (const CollectiveTime& each : times) {
    const double steps = static_cast<double>(each.rounds) * (each.ranks - 1), sent = steps * each.bytes / each.ranks;
    all.push_back({{1, steps, sent}, each.seconds});
    fastest = std::max(fastest, sent / each.seconds);
  }
  const auto found = fit_non_negative(all);
  // If the bytes have no measurable cost, the link has the rate of the fastest call.
  return {
      .bytes_per_second = found[2] > 0 ? 1 / found[2] : fastest, .latency_seconds = found[1], .call_seconds = found[0]};
}

}  // namespace gantry::planner
