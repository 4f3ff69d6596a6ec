// The sections of a configuration that say what is trained on, and how. Internal to core/.
#pragma once

#include "gantry/core/config_reader.h"

namespace gantry {

struct Config;

// Reads data, optimizer, lr_schedule, precision, loss_scale, train, evaluation, checkpoint and comm.
void read_training(ConfigFaults& faults, ConfigSection& root, Config& config);

}  // namespace gantry
