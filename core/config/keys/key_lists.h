// The keys of each group of sections, in the order of docs/configuration.md. Internal to core/config.
#pragma once

#include <vector>

#include "gantry/core/config/config_keys.h"

namespace gantry {

std::vector<ConfigKey> model_keys();      // the model: model and lora
std::vector<ConfigKey> layout_keys();     // the layout over ranks: parallel, experts and schedule
std::vector<ConfigKey> data_keys();       // data
std::vector<ConfigKey> optimizer_keys();  // the optimizer, its rates and the precision
std::vector<ConfigKey> train_keys();      // evaluation and training
std::vector<ConfigKey> run_keys();  // the run: checkpoints, output, profiles, communication, elastic jobs and libraries

}  // namespace gantry
