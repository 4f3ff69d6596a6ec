// Data sets whose samples are drawn anew each time that they are given out.
#pragma once

#include <cstdint>

#include "gantry/data/dataset.h"

namespace gantry {

class DrawnDataset : public Dataset {
 public:
  // As read_numbers, of the sample that stands at `place` of the row of samples, from 0, which has no end: what is
  // drawn by it is the same in every layout and after resuming, and another one in each pass.
  virtual void read_at(std::int64_t index, std::int64_t place, const NumberRow& row) const = 0;
  // As at the place of the index: its first pass in order.
  void read_numbers(std::int64_t index, const NumberRow& row) const override { read_at(index, index, row); }
};

}  // namespace gantry
