// The selection of rows that tests of many layouts run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "grid.h"
#include "program.h"

namespace gantry::testing {
namespace {

TEST(GridRows, HaveEachPairOfValues) {
  const std::vector<std::size_t> sizes = {4, 1, 3, 2, 2};
  const std::vector<GridRow> rows = grid_rows(sizes);
  for (std::size_t a = 0; a < sizes.size(); ++a)
    for (std::size_t b = a + 1; b < sizes.size(); ++b) {
      std::set<std::pair<std::size_t, std::size_t>> pairs;
      for (const GridRow& row : rows) {
        ASSERT_LT(row.at(a), sizes[a]);
        ASSERT_LT(row.at(b), sizes[b]);
        pairs.emplace(row[a], row[b]);
      }
      EXPECT_EQ(pairs.size(), sizes[a] * sizes[b]) << "axes " << a << " and " << b;
    }
  if (!is_long_form()) EXPECT_LT(rows.size(), 16U);
}

TEST(TurnOf, SharesAListAmongCases) {
  const std::vector<int> list = {0, 1, 2, 3, 4, 5, 6};
  std::multiset<int> all;
  for (std::size_t index = 4; index < 7; ++index)
    for (const int element : turn_of(index, 3, list)) all.insert(element);
  EXPECT_THAT(all, ::testing::ElementsAreArray(
                       is_long_form() ? std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6}
                                      : list));
}

}  // namespace
}  // namespace gantry::testing
