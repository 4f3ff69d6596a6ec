#include "gantry/core/host/stop_request.h"

#include <atomic>

namespace gantry {
namespace {

std::atomic<bool> own_stop{false}, heard_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // written by signal handlers

}  // namespace

bool request_stop() { return !own_stop.exchange(true); }

void hear_stop() { heard_stop = true; }

bool stop_requested_here() { return own_stop; }

bool stop_requested() { return own_stop || heard_stop; }

void forget_stop() { own_stop = heard_stop = false; }

}  // namespace gantry
