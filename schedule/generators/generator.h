// The interface of a file in this directory: a published schedule as a pure function, with its name and its bounds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

struct PipelineSizes {
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1;
};

struct Generator {
  std::string name;
  int default_chunks = 1;
  int max_chunks = 1;
  bool takes_memory_limit = false;
  bool takes_group_size = false;
  // Returns the compute-only form. The sizes are within bounds: ranks, microbatches >= 1, 1 <= chunks <= max_chunks.
  std::function<Schedule(const PipelineSizes&, const GeneratorOptions&)> make;
};

// All generators, in the order of registry.cpp.
const std::vector<Generator>& generators();

// Assigns stages to ranks in turn: chunk c of rank r is stage c * ranks + r. Rows are empty.
Schedule empty_schedule(const std::string& name, const PipelineSizes& sizes);

}  // namespace gantry::schedule
