// The wish that the job stop. A process remembers its own, made by a signal, and what the control plane tells of the
// others'. Whoever runs steps asks for it.
#pragma once

namespace gantry {

// This process's own wish. True the first time. Safe in a signal handler.
bool request_stop();
// Another process's wish.
void hear_stop();

bool stop_requested_here();
bool stop_requested();  // here or elsewhere
void forget_stop();

}  // namespace gantry
