// Thread ranks over the NCCL backend on the fake device.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "fake_device.h"
#include "fake_nccl.h"
#include "gantry/comm/launch.h"
#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/comm/nccl/nccl_device.h"
#include "gantry/comm/stage_link.h"
#include "gantry/core/error.h"
#include "ranks.h"

namespace gantry::testing {

struct OnFake {
  torch::DeviceType device = torch::kCPU;
  bool messages = true;  // neighbours get communicators for them
};

// Runs `body` with a group of all ranks and gives the launch's exit code and what was printed.
inline std::pair<int, std::string> outcome_on_fake(int ranks, double timeout,
                                                   const std::function<void(World&, ProcessGroup&)>& body,
                                                   const OnFake& on = {}) {
  install_fake_device(on.device);
  Config config = layout_config({.tensor = ranks});
  config.comm.timeout_seconds = timeout;
  config.comm.recorder = 0;  // the error is the only line
  config.comm.backend = "local";
  ::testing::internal::CaptureStderr();
  const int code = launch(config, [&](World& host) {
    NcclOptions options;
    options.device = torch::Device(on.device);
    options.timeout_seconds = timeout;
    options.describe_rank = [&host](int rank) { return host.mesh().describe_rank(rank); };
    options.carries_messages = [&](const std::string&) { return on.messages; };
    NcclBackend backend(host.backend(), options);
    World world(backend, host.config(), host.mesh());
    std::vector<int> everyone;
    for (int rank = 0; rank < ranks; ++rank) everyone.push_back(rank);
    const auto group = backend.make_group("tp", everyone);
    body(world, *group);
    group->barrier().wait();
  });
  return {code, ::testing::internal::GetCapturedStderr()};
}

}  // namespace gantry::testing
