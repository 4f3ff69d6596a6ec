// Thread ranks over the NCCL backend on fake devices, one device per rank.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "device_ranks.h"
#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/comm/nccl/nccl_device.h"
#include "gantry/comm/observed_backend.h"
#include "gantry/core/error.h"
#include "gantry/diagnosis/diagnosis.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/backends.h"
#include "gantry/pipeline/stage_link.h"

namespace gantry::testing {

// Options for tensors on the device of the calling rank.
inline torch::TensorOptions here(torch::ScalarType type = torch::kFloat32) {
  return torch::dtype(type).device(c10::impl::getDeviceGuardImpl(kPretendType)->getDevice());
}

inline TensorSpec spec_here(std::vector<std::int64_t> shape) {
  return {std::move(shape), torch::kFloat32, here().device()};
}

// Runs `body` with a group of all ranks. Returns the exit code of the launch and the text on stderr.
inline std::pair<int, std::string> outcome_on_fake(const Config& config,
                                                   const std::function<void(World&, ProcessGroup&)>& body,
                                                   bool messages = true) {
  ::testing::internal::CaptureStderr();
  const int code = launch_on_devices(config,
                                     [&](World& world) {
                                       std::vector<int> everyone;
                                       for (int rank = 0; rank < world.size(); ++rank) everyone.push_back(rank);
                                       const auto group = world.backend().make_group("tp", everyone);
                                       body(world, *group);
                                       group->barrier().wait();
                                     },
                                     {.carries_messages = [messages](const std::string&) { return messages; }});
  return {code, ::testing::internal::GetCapturedStderr()};
}

// The same without a recorder, so that an error is the only line on stderr.
inline std::pair<int, std::string> outcome_on_fake(int ranks, double timeout,
                                                   const std::function<void(World&, ProcessGroup&)>& body,
                                                   bool messages = true) {
  Config config = layout_config({.tensor = ranks});
  config.comm.timeout_seconds = timeout;
  config.comm.recorder = 0;
  return outcome_on_fake(config, body, messages);
}

}  // namespace gantry::testing
