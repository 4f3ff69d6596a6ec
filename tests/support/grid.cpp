#include "grid.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "program.h"

namespace gantry::testing {
namespace {

using Pair = std::array<std::size_t, 4>;  // two axes and their values

std::vector<Pair> pairs_of(const GridRow& row, const HasEffect& has_effect) {
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < row.size(); ++axis)
    if (!has_effect || has_effect(row, axis)) axes.push_back(axis);
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < axes.size(); ++i)
    for (std::size_t k = i + 1; k < axes.size(); ++k) pairs.push_back({axes[i], axes[k], row[axes[i]], row[axes[k]]});
  return pairs;
}

std::vector<GridRow> full_grid(const std::vector<std::size_t>& sizes) {
  std::vector<GridRow> all = {{}};
  for (const std::size_t size : sizes) {
    std::vector<GridRow> longer;
    for (const GridRow& row : all)
      for (std::size_t value = 0; value < size; ++value) {
        longer.push_back(row);
        longer.back().push_back(value);
      }
    all = std::move(longer);
  }
  return all;
}

}  // namespace

std::vector<GridRow> grid_rows(const std::vector<std::size_t>& sizes, const HasEffect& has_effect) {
  const std::vector<GridRow> all = full_grid(sizes);
  if (is_long_form() || sizes.size() < 2) return all;
  std::set<Pair> open;
  for (const GridRow& row : all)
    for (const Pair& pair : pairs_of(row, has_effect)) open.insert(pair);
  std::vector<GridRow> rows;
  while (!open.empty()) {
    const auto gain = [&](const GridRow& row) {
      const auto pairs = pairs_of(row, has_effect);
      return std::ranges::count_if(pairs, [&](const Pair& pair) { return open.contains(pair); });
    };
    rows.push_back(*std::ranges::max_element(all, {}, gain));
    for (const Pair& pair : pairs_of(rows.back(), has_effect)) open.erase(pair);
  }
  return rows;
}

std::size_t next_turn(const std::string& name) {
  static std::string last;
  static std::map<std::string, std::size_t> turns;
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  const std::string current = std::string(test.test_suite_name()) + "." + test.name();
  if (current != last) turns.clear();
  last = current;
  const std::size_t first = std::accumulate(current.begin(), current.end(), std::size_t{0});
  return turns.try_emplace(name, first).first->second++;
}

bool is_turn(std::size_t element, std::size_t index, std::size_t cases) {
  return is_long_form() || element % cases == index % cases;
}

}  // namespace gantry::testing
