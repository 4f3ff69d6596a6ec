// The samples of a run with preferences.
#pragma once

#include <string>

#include "gantry/core/config.h"
#include "gantry/data/data_loader.h"

namespace gantry {

// Samples of `data` for train.objective. `key`: the key that names the files. Throws ConfigError if data or model do
// not fit the objective, without opening a file.
SampleSource preference_samples(const Config& config, DataConfig data, const std::string& key);

}  // namespace gantry
