// The lines that rank 0 prints before a run's first step and after its last one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/booster/booster.h"
#include "gantry/comm/world.h"
#include "gantry/trainer/callbacks.h"
#include "gantry/trainer/held_out_record.h"

namespace gantry {

// Prints the data, the layout and the schedule. `fresh`: parameters that have initial weights, although the
// model was loaded. `example`: the text of describe_first_sample(), or "".
void print_beginning(World& world, const Config& config, Booster& booster, const Boosted& boosted,
                     const std::vector<std::string>& fresh, const std::string& example);

// Writes the report's page, and prints the paths of the written files. `peaks`: peak bytes of tensors by
// rank; empty if no step ran. `gap`: the result of write_run_report().
void print_ending(const World& world, const Config& config, const RunEnd& end, const std::vector<std::int64_t>& peaks,
                  const std::string& gap, const HeldOutRecord& record);

}  // namespace gantry
