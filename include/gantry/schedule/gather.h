// When a stage whose parameters are sharded over replicas (ZeRO 3) has them in full.
#pragma once

namespace gantry::schedule {

enum class Gather {
  kStep,        // a stage is gathered before its first use and released after its last one
  kWindow,      // the stage in use and the next one are gathered: gathers run ahead of their use
  kMicrobatch,  // gathered for each computation and released after it
  kAround,      // all stages before the first action and until after the last, in a fixed order: for replicas with
                // different rows, because their numbers of microbatches differ
};

}  // namespace gantry::schedule
