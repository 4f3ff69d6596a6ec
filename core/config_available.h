// Values that the configuration knows and this version can't do yet: refused by name, in one place.
#pragma once

#include "gantry/core/config.h"
#include "gantry/core/config_reader.h"

namespace gantry {

void report_unavailable(const Config& config, const YAML::Node& document, ConfigFaults& faults);

}  // namespace gantry
