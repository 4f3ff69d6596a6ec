// Reads the sections of a configuration about data and training. Internal to core/.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gantry/core/config/config_reader.h"

namespace gantry {

struct Config;
struct DataConfig;
struct EvaluationPrompt;

// Reads lora. Without a path, keys that are not set have PEFT's defaults.
void read_lora(ConfigFaults& faults, ConfigSection& root, Config& config);

// Reads a list of `count` numbers above `above`; if `ascends`, in ascending order.
void read_numbers(ConfigSection& section, const std::string& key, std::size_t count, double above, bool ascends,
                  const std::string& expected, std::vector<double>& values);

// Reads data.
void read_data(ConfigFaults& faults, ConfigSection section, DataConfig& data);
// Reads evaluation.prompts.
void read_prompts(ConfigFaults& faults, ConfigSection& section, std::vector<EvaluationPrompt>& prompts);

// Reads data, optimizer, lr_schedule, precision, loss_scale, train, evaluation, checkpoint and comm.
void read_training(ConfigFaults& faults, ConfigSection& root, Config& config);

}  // namespace gantry
