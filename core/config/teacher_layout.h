// The layout of the teacher of a distillation, train.objective.teacher_parallel, and its requirements for other keys.
#pragma once

#include <optional>

#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/core/mesh.h"

namespace gantry {

// The reason why the teacher cannot have its layout in a run of this configuration, with the conflicting key in
// `where`; absent if it can, or if it has the student's. The number of ranks is compared if parallel.data states it.
std::optional<ErrorText> fault_of_teacher(const Config& config);

// The mesh of the teacher over the ranks of a run; absent if it has the student's. Throws ConfigError if the sizes of
// its axes do not divide the ranks.
std::optional<Mesh> teacher_mesh(const Config& config, int ranks);

}  // namespace gantry
