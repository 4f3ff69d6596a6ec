// The way in which one call of execute_pipeline() runs its batch.
#pragma once

#include <optional>

#include "gantry/schedule/gather.h"

namespace gantry {

struct CallPlan {
  enum class Scattering { kNone, kAfterEachBackward, kAfterTheStep };

  bool trains = false;
  bool syncs = false;    // reduces the gradients at its end
  bool joins = false;    // adds its gradients to those of earlier calls
  bool adds = false;     // `joins`, or later calls add gradients to its own
  bool is_full = false;  // one microbatch is the full global batch of the step
  int microbatches = 0;
  Scattering scattering = Scattering::kNone;
  std::optional<schedule::Gather> gather;  // if parameters are sharded
};

}  // namespace gantry
