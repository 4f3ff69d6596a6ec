// Ranks with one pretended device each. They use the NCCL backend with the fake NCCL.
#pragma once

#include "fake_nccl.h"
#include "gantry/comm/world.h"
#include "pretend_device.h"
#include "ranks.h"

namespace gantry::testing {

struct OnDevices {
  // True for groups whose neighbours get communicators for messages. Empty: the choice of launch().
  std::function<bool(const std::string& label)> carries_messages = {};
  // The ranks are the processes of the current job instead of threads.
  bool processes = false;
};

// Works like launch() in a build with NCCL and with devices: runs `body` on every rank of the configuration
// and returns the exit code. The flight recorder writes below config.output.
int launch_on_devices(const Config& config, const std::function<void(World&)>& body, const OnDevices& on = {});

}  // namespace gantry::testing
