// What rank 0 prints of a run before its first step and after its last one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/booster/booster.h"
#include "gantry/comm/world.h"
#include "gantry/trainer/callbacks.h"
#include "gantry/trainer/held_out_record.h"

namespace gantry {

// The data, the layout and the schedule. `fresh`: parameters that begin with initial weights beside loaded ones.
// `example`: describe_first_sample(), or "".
void print_beginning(World& world, const Config& config, Booster& booster, const Boosted& boosted,
                     const std::vector<std::string>& fresh, const std::string& example);

// The folders of what was written, after the report is made. `peaks`: bytes of tensors by rank, none where no step
// ran. `gap`: as write_run_report() gives it.
void print_ending(const World& world, const Config& config, const RunEnd& end, const std::vector<std::int64_t>& peaks,
                  const std::string& gap, const HeldOutRecord& record);

}  // namespace gantry
