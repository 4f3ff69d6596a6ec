// Data sets with random samples (crops or masks), which differ in every pass over the data.
#pragma once

#include <cstdint>

#include "gantry/data/dataset.h"

namespace gantry {

class DrawnDataset : public Dataset {
 public:
  // Reads sample `index` like read_numbers(). `place`: the position of the sample in the run's endless
  // sequence of samples, from 0. The random choices depend on it, so they are the same in every layout and
  // after a resume, and different in each pass.
  virtual void read_at(std::int64_t index, std::int64_t place, const NumberRow& row) const = 0;
  // Reads the sample as in an unshuffled first pass, in which `place` is the index.
  void read_numbers(std::int64_t index, const NumberRow& row) const override { read_at(index, index, row); }
};

}  // namespace gantry
