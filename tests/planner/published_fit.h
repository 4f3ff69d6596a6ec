// Fits the constants of a cluster to published steps, for cross-validation of the fit over the rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "published_rows.h"

namespace gantry::planner::published {

// A constant of a cluster, and its physical limits.
struct Constant {
  const char* name;
  double& (*of)(Cluster&);
  double least, most;
};

// The fitted constants of vtrain_a100. The others are the vendor's, or those of a table of collectives.
inline const std::vector<Constant>& vtrain_constants() {
  static const std::vector<Constant> all = {
      {"matrix_efficiency", [](Cluster& of) -> double& { return of.device.matrix_efficiency; }, 0.3, 0.95},
      {"memory_efficiency", [](Cluster& of) -> double& { return of.device.memory_efficiency; }, 0.2, 0.95},
      {"operation_seconds", [](Cluster& of) -> double& { return of.device.operation_seconds; }, 1e-6, 200e-6},
      {"within.call_seconds", [](Cluster& of) -> double& { return of.within.call_seconds; }, 1e-6, 200e-6},
      {"between.bytes_per_second", [](Cluster& of) -> double& { return of.between.bytes_per_second; }, 1e9, 25e9}};
  return all;
}

inline double seconds_on(const Row& row, const Cluster& cluster) {
  return estimate(row.workload, row.layout, part_of(cluster, row.cluster.ranks())).step_seconds;
}

inline double mean_error(const std::vector<Row>& rows, const Cluster& cluster) {
  double sum = 0;
  for (const Row& row : rows) sum += std::abs(seconds_on(row, cluster) / row.measured - 1);
  return sum / static_cast<double>(rows.size());
}

// Rows of one kind. All kinds have the same weight, independent of their number of rows.
using Kinds = std::vector<std::vector<Row>>;

inline double mean_error(const Kinds& kinds, const Cluster& cluster) {
  double sum = 0;
  for (const auto& rows : kinds) sum += mean_error(rows, cluster);
  return sum / static_cast<double>(kinds.size());
}

// Minimises the mean error by coordinate descent: multiplies or divides each constant by a factor that shrinks to 1%.
inline Cluster fitted(Cluster cluster, const std::vector<Constant>& constants, const Kinds& kinds) {
  double least = mean_error(kinds, cluster);
  for (double factor = 1.3; factor > 1.01;) {
    bool is_better = false;
    for (const Constant& constant : constants)
      for (const double by : {factor, 1 / factor}) {
        Cluster other = cluster;
        double& value = constant.of(other);
        value = std::clamp(value * by, constant.least, constant.most);
        const double error = mean_error(kinds, other);
        if (error >= least * (1 - 1e-4)) continue;
        least = error, cluster = other, is_better = true;
        break;
      }
    if (!is_better) factor = std::sqrt(factor);
  }
  return cluster;
}

// The share of the most sensitive row in the sensitivities of all rows to a constant. Above a half, this row alone
// determines the constant: the mean error is minimal if the rows on both sides have equal weight.
inline double largest_share(const Constant& constant, const Cluster& cluster, const Kinds& kinds) {
  constexpr double kStep = 1.05;
  Cluster more = cluster;
  constant.of(more) *= kStep;
  double sum = 0, most = 0;
  for (const auto& rows : kinds)
    for (const Row& row : rows) {
      const double one =
          std::abs(std::log(seconds_on(row, more) / seconds_on(row, cluster))) / static_cast<double>(rows.size());
      sum += one, most = std::max(most, one);
    }
  return sum > 0 ? most / sum : 1;
}

// vTrain's rows in one of four random quarters, or all others.
inline Kinds vtrain_quarter(std::uint32_t quarter, bool within) {
  Kinds kinds;
  for (const char* name : {"clusters", "one_node"}) {
    std::vector<Row>& rows = kinds.emplace_back();
    std::uint32_t number = 0;
    for (Row& row : vtrain_rows(name))
      if ((quarter_of(number++) == quarter) == within) rows.push_back(std::move(row));
  }
  return kinds;
}

}  // namespace gantry::planner::published
