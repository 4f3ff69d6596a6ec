// Thread ranks over the NCCL backend on the fake device.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "fake_device.h"
#include "fake_nccl.h"
#include "gantry/comm/backends.h"
#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/comm/nccl/nccl_device.h"
#include "gantry/comm/observed_backend.h"
#include "gantry/comm/recorder/flight_recorder.h"
#include "gantry/core/error.h"
#include "gantry/diagnosis/diagnosis.h"
#include "gantry/pipeline/stage_link.h"
#include "ranks.h"

namespace gantry::testing {

struct OnFake {
  torch::DeviceType device = torch::kCPU;
  bool messages = true;  // neighbours get communicators for them
};

// What launch() does in a build with NCCL and with devices, recorder and all: runs `body` on every rank of the
// configuration, and gives the exit code. Records go to the configuration's output.
inline int launch_on_fake(const Config& config, const std::function<void(World&)>& body, const OnFake& on = {}) {
  install_fake_device(on.device);
  const int ranks = config.ranks();
  const Mesh mesh = Mesh::hybrid(ranks, config.parallel.pipeline, config.parallel.data, config.parallel.tensor,
                                 config.parallel.order);
  const recorder::RecordedJob recorded({.folder = config.output + "/recorder",
                                        .ranks = ranks,
                                        .entries = config.comm.recorder,
                                        .sentence_of = recorder::sentence_of});
  return launch_local(config, mesh, [&](World& host) {
    NcclOptions options;
    options.device = torch::Device(on.device);
    options.waits = {config.comm.timeout_seconds, config.comm.lost_after_seconds};
    options.describe_rank = [&host](int rank) { return host.mesh().describe_rank(rank); };
    options.carries_messages = [&](const std::string&) { return on.messages; };
    NcclBackend backend(host.backend(), options);
    World world(backend, host.config(), host.mesh());
    run_recorded(world, body);
  });
}

// Runs `body` with a group of all ranks and gives the launch's exit code and what was printed.
inline std::pair<int, std::string> outcome_on_fake(const Config& config,
                                                   const std::function<void(World&, ProcessGroup&)>& body,
                                                   const OnFake& on = {}) {
  ::testing::internal::CaptureStderr();
  const int code = launch_on_fake(
      config,
      [&](World& world) {
        std::vector<int> everyone;
        for (int rank = 0; rank < world.size(); ++rank) everyone.push_back(rank);
        const auto group = world.backend().make_group("tp", everyone);
        body(world, *group);
        group->barrier().wait();
      },
      on);
  return {code, ::testing::internal::GetCapturedStderr()};
}

// The same without a recorder: the error is the only line.
inline std::pair<int, std::string> outcome_on_fake(int ranks, double timeout,
                                                   const std::function<void(World&, ProcessGroup&)>& body,
                                                   const OnFake& on = {}) {
  Config config = layout_config({.tensor = ranks});
  config.comm.timeout_seconds = timeout;
  config.comm.recorder = 0;
  return outcome_on_fake(config, body, on);
}

}  // namespace gantry::testing
