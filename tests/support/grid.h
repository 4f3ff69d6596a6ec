// Selects the rows of a grid that a test runs: a few, the same on every machine, or all with GANTRY_LONG=1.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gantry::testing {

// An index for each axis.
using GridRow = std::vector<std::size_t>;

// True if the value of an axis has an effect in a row. A schedule, for example, has none with a single stage.
using HasEffect = std::function<bool(const GridRow& row, std::size_t axis)>;

// Rows of a grid. `sizes`: the number of values of each axis, at least 1. For each pair of values of two axes there is
// a row in which both have an effect, if that is possible. Under GANTRY_LONG=1 all rows of the grid.
std::vector<GridRow> grid_rows(const std::vector<std::size_t>& sizes, const HasEffect& has_effect = {});

// Several cases share one list: case `index` takes every `cases`-th element, beginning with its own. Together they take
// all elements. Under GANTRY_LONG=1 each case takes all.
bool is_turn(std::size_t element, std::size_t index, std::size_t cases);

template <class T>
std::vector<T> turn_of(std::size_t index, std::size_t cases, const std::vector<T>& list) {
  std::vector<T> mine;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (is_turn(i, index, cases)) mine.push_back(list[i]);
  return mine;
}

// Returns a number that increases by one with each call with this name in a test. The first number depends on
// the name of the test, so it is the same in every run.
std::size_t next_turn(const std::string& name);

}  // namespace gantry::testing
