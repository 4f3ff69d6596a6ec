// Reads the sections of a configuration about data and training. Internal to core/.
#pragma once

#include "gantry/core/config/config_reader.h"

namespace gantry {

struct Config;

// Reads lora. Without a path, keys that are not set have PEFT's defaults.
void read_lora(ConfigFaults& faults, ConfigSection& root, Config& config);

// Reads data, optimizer, lr_schedule, precision, loss_scale, train, evaluation, checkpoint and comm.
void read_training(ConfigFaults& faults, ConfigSection& root, Config& config);

}  // namespace gantry
