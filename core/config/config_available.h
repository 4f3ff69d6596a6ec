// Values that the configuration can express but this version does not support. They are all rejected here, with an
// error that names the value.
#pragma once

#include "gantry/core/config.h"
#include "gantry/core/config/config_reader.h"

namespace gantry {

void report_unavailable(const Config& config, const YAML::Node& document, ConfigFaults& faults);

}  // namespace gantry
