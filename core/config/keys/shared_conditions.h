// Conditions that keys of several sections share. Internal to core/config/keys.
#pragma once

#include <string>

#include "gantry/core/config/config_keys.h"

namespace gantry {

inline bool is_float16(const Config& c) { return c.precision == "float16"; }
inline bool saves(const Config& c) { return !c.checkpoint.path.empty(); }
inline std::string with_precision(const Config& c) { return "with precision " + c.precision; }
inline const KeyContext kDevices = {
    "comm.backend auto or nccl, on GPUs",
    [](const Config& c) { return c.comm.backend == "auto" || c.comm.backend == "nccl"; },
    [](const Config& c) { return "with comm.backend " + c.comm.backend; }};

}  // namespace gantry
