// The sections of a configuration that say what is trained on, and how. Internal to core/.
#pragma once

#include "gantry/core/config_reader.h"

namespace gantry {

struct Config;

// Reads lora: what of an adapter is stated; without a path the rest is as PEFT has it.
void read_lora(ConfigFaults& faults, ConfigSection& root, Config& config);

// Reads data, optimizer, lr_schedule, precision, loss_scale, train, evaluation, checkpoint and comm.
void read_training(ConfigFaults& faults, ConfigSection& root, Config& config);

}  // namespace gantry
