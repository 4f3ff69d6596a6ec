// Prepares the output directory of a run.
#pragma once

#include <cstdint>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/config.h"

namespace gantry {

// Creates config.output, unless it is empty, and writes config.yaml there. Files of an earlier run are renamed
// (report/earlier_run.h), and rank 0 prints the new names. A run that resumes after `done` steps keeps their metrics.
// Returns true if the evaluation of step `done` is still missing. Throws ResourceError. Collective over the world.
bool open_output(const Config& config, std::int64_t done, const ProcessGroupMesh& mesh);

}  // namespace gantry
