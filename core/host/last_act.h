// The work of a process between a failure's error line and the end of the process: a training run writes its report.
#pragma once

#include <functional>
#include <string>

namespace gantry {

// Limit of the act's time, after which the process ends without it.
inline constexpr double kLastActSeconds = 10;

// Sets the act of this process, from any thread; an empty one for none. Its argument is the error line.
void set_last_act(std::function<void(const std::string& error)> act);

// Runs the act, once: it is forgotten then. Returns at the end of the act, also if another thread has started it, or
// after kLastActSeconds. Exceptions of the act are dropped: they would hide the failure.
void run_last_act(const std::string& error);

}  // namespace gantry
