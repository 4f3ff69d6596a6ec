// A batch, and the place of the loader after it.
#pragma once

#include "gantry/data/sample_stream.h"
#include "gantry/tensors/batch.h"

namespace gantry {

struct LoadedBatch {
  Batch batch;
  LoaderPlace after;
};

}  // namespace gantry
