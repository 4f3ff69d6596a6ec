// A data set whose samples are tensors of any length.
#pragma once

#include "gantry/data/dataset.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Derive a data set from it if the lengths of its samples differ. Its loader needs DataLoaderOptions::collate.
class SampleDataset : public Dataset {
 public:
  // Returns the tensors of a sample. Called from any thread.
  virtual TensorDict sample(std::int64_t index) const = 0;
};

}  // namespace gantry
