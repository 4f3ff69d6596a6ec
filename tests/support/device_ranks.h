// Ranks with a pretended device each, over the NCCL backend on the fake NCCL.
#pragma once

#include "fake_nccl.h"
#include "gantry/comm/world.h"
#include "pretend_device.h"
#include "ranks.h"

namespace gantry::testing {

struct OnDevices {
  // The groups whose neighbours get communicators for messages; empty: as launch() has it.
  std::function<bool(const std::string& label)> carries_messages = {};
  // Ranks are the processes of the job that this one was started in, in place of threads.
  bool processes = false;
};

// What launch() does in a build with NCCL and with devices, recorder and all: runs `body` on every rank of the
// configuration, and gives the exit code. Records go to the configuration's output.
int launch_on_devices(const Config& config, const std::function<void(World&)>& body, const OnDevices& on = {});

}  // namespace gantry::testing
