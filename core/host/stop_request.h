// Requests to stop the job. A process stores its own request (from a signal) and those of other processes (from the
// control plane). The training loop checks them.
#pragma once

namespace gantry {

// Records a request of this process. Returns true the first time. Safe in a signal handler.
bool request_stop();
// Records a request of another process.
void hear_stop();

bool stop_requested_here();
bool stop_requested();  // from this or another process
void forget_stop();

}  // namespace gantry
