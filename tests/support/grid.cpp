#include "grid.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <numeric>
#include <set>
#include <string>

#include "program.h"

namespace gantry::testing {
namespace {

using Pair = std::array<std::size_t, 4>;  // two axes and their values

std::vector<Pair> pairs_of(const GridRow& row) {
  std::vector<Pair> pairs;
  for (std::size_t a = 0; a < row.size(); ++a)
    for (std::size_t b = a + 1; b < row.size(); ++b) pairs.push_back({a, b, row[a], row[b]});
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

std::vector<GridRow> grid_rows(const std::vector<std::size_t>& sizes) {
  const std::vector<GridRow> all = full_grid(sizes);
  if (is_long_form() || sizes.size() < 2) return all;
  std::set<Pair> open;
  for (const GridRow& row : all)
    for (const Pair& pair : pairs_of(row)) open.insert(pair);
  std::vector<GridRow> rows;
  while (!open.empty()) {
    const auto gain = [&](const GridRow& row) {
      const auto pairs = pairs_of(row);
      return std::ranges::count_if(pairs, [&](const Pair& pair) { return open.contains(pair); });
    };
    rows.push_back(*std::ranges::max_element(all, {}, gain));
    for (const Pair& pair : pairs_of(rows.back())) open.erase(pair);
  }
  return rows;
}

std::size_t next_turn() {
  static std::string name;
  static std::size_t turn = 0;
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  const std::string current = std::string(test.test_suite_name()) + "." + test.name();
  if (current != name) {
    name = current;
    turn = std::accumulate(current.begin(), current.end(), std::size_t{0});
  }
  return turn++;
}

bool is_turn(std::size_t element, std::size_t index, std::size_t cases) {
  return is_long_form() || element % cases == index % cases;
}

}  // namespace gantry::testing
