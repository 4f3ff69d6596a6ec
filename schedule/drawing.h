// Functions that all diagrams of a simulation share.
#pragma once

#include <string>

#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

// "F0", or "2F0" if a rank has several stages and the number alone would be ambiguous.
std::string label_of(const Action& action, bool with_stage);
bool has_several_stages_a_rank(const Simulation& simulation);
// "forward", "backward", "input gradient", "weight gradient", "gather of parameters", ...
std::string describe(ActionKind kind);
std::vector<ActionKind> kinds_drawn(const Simulation& simulation);  // in the order of ActionKind
double last_end(const Simulation& simulation);
bool has_extra_lane(const Simulation& simulation);       // any extra action
double shortest_duration(const Simulation& simulation);  // above zero; 0 if there is no action
std::string number(double value);                        // at most six digits: "33", "0.25"
std::string figures(const Simulation& simulation);       // "4 ranks, makespan 33, bubble 27.3%"

}  // namespace gantry::schedule
