// Which rows of a grid a test runs: few, chosen the same on every machine, and all of them under GANTRY_LONG=1.
#pragma once

#include <cstddef>
#include <vector>

namespace gantry::testing {

// An index for each axis.
using GridRow = std::vector<std::size_t>;

// Rows of the grid whose axes have that many values, such that each pair of values of two axes is in one of them. Under
// GANTRY_LONG=1 every row. Axes are at least one value long.
std::vector<GridRow> grid_rows(const std::vector<std::size_t>& sizes);

// Of several cases that run one list, case `index` takes every `cases`-th element, beginning with its own; together
// they take all. Under GANTRY_LONG=1 each takes all.
bool is_turn(std::size_t element, std::size_t index, std::size_t cases);

template <class T>
std::vector<T> turn_of(std::size_t index, std::size_t cases, const std::vector<T>& list) {
  std::vector<T> mine;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (is_turn(i, index, cases)) mine.push_back(list[i]);
  return mine;
}

// Grows by one with each call in a test, and begins in each with a number of its name's: the same in every run.
std::size_t next_turn();

}  // namespace gantry::testing
