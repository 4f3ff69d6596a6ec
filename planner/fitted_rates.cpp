#include "gantry/planner/fitted_rates.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "gantry/core/error.h"

namespace gantry::planner {
namespace {

constexpr double kSingular = 1e-12;  // of a pivot, beside the column's own size

// Gauss with pivots; nothing where columns depend on each other.
std::optional<std::vector<double>> solve(std::vector<std::vector<double>> matrix, std::vector<double> right) {
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

// The best coefficients of some of the columns, each scaled to a length of 1, so that pivots compare.
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
  auto found = solve(std::move(matrix), std::move(right));
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

// The optimum has some columns at 0 and is the plain optimum of the others: with few columns all sets are tried.
std::vector<double> fit_non_negative(const std::vector<Observation>& all) {
  if (all.empty()) throw UsageError({"fit_non_negative", "was given no times", "at least one", ""});
  const std::size_t columns = all.front().terms.size();
  std::vector<double> best(columns, 0);
  double least = squared_error(all, best);
  for (std::size_t set = 1; set < (std::size_t{1} << columns); ++set) {
    std::vector<std::size_t> of;
    for (std::size_t column = 0; column < columns; ++column)
      if ((set >> column & 1) != 0) of.push_back(column);
    const auto found = fit_columns(all, of);
    if (!found || std::ranges::any_of(*found, [](double each) { return each < 0; })) continue;
    std::vector<double> whole(columns, 0);
    for (std::size_t i = 0; i < of.size(); ++i) whole[of[i]] = (*found)[i];
    if (const double error = squared_error(all, whole); error < least * (1 - 1e-9)) least = error, best = whole;
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
  if (least >= most) throw UsageError({"fit_products", "was given products of one size", "at least two sizes", ""});
  const auto found = fit_non_negative(all);
  FittedProducts fitted{.peak = peak};
  if (found[0] == 0) return fitted;  // the times don't grow with the sizes
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
  // A link whose bytes cost nothing that could be seen is as fast as the fastest call.
  return {
      .bytes_per_second = found[2] > 0 ? 1 / found[2] : fastest, .latency_seconds = found[1], .call_seconds = found[0]};
}

}  // namespace gantry::planner
