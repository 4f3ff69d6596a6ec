// The folder of a run's files, made ready for this run.
#pragma once

#include <cstdint>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/config.h"

namespace gantry {

// Makes config.output, if there is one, and writes config.yaml there. What an earlier run has left keeps names of its
// own (report/earlier_run.h), which rank 0 prints; a run that goes on after `done` steps keeps the lines up to there.
// True where the last of those steps has an evaluation to come. ResourceError. Collective over the world.
bool open_output(const Config& config, std::int64_t done, const ProcessGroupMesh& mesh);

}  // namespace gantry
