// Errors about devices and drivers that cannot be used: one line each, made from given values, without a
// device.
#include "gantry/comm/device_fitness.h"

#include <gmock/gmock.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

const CudaBuild kBuild{.cuda = 13000, .architectures = {80, 90}};

std::string line_of(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ResourceError::kExitCode);
    return error.what();
  }
  return "";
}

TEST(DeviceFitness, AnOldDriverIsSaidWithBothVersions) {
  EXPECT_EQ(line_of([] { check_driver("nccl", {.version = 12080}, kBuild); }),
            "comm.backend: nccl cannot be used, because the NVIDIA driver only supports CUDA 12.8; expected a driver "
            "for CUDA 13 or newer, like this build's LibTorch; update the NVIDIA driver, or build with a LibTorch for "
            "the driver's CUDA");
  // A LibTorch for a newer minor version of CUDA works with a driver for an older minor version.
  EXPECT_EQ(line_of([] { check_driver("nccl", {.version = 13000}, {.cuda = 13020}); }), "");
  EXPECT_EQ(line_of([] { check_driver("nccl", {.version = 13010}, kBuild); }), "");
}

TEST(DeviceFitness, ADriverThatFailedIsQuoted) {
  EXPECT_EQ(line_of([] { check_driver("nccl", {.version = 13000, .error = "unknown error"}, kBuild); }),
            "comm.backend: nccl cannot be used, because the NVIDIA driver reports: unknown error; expected a working "
            "driver; check whether nvidia-smi runs and whether this process may open /dev/nvidia*");
}

// The code that assigns devices to ranks reports a missing driver or a build for the CPU.
TEST(DeviceFitness, NoDriverOrABuildForTheCpuIsLeftToOthers) {
  EXPECT_EQ(line_of([] { check_driver("nccl", {}, kBuild); }), "");
  EXPECT_EQ(line_of([] { check_driver("nccl", {.version = 11000}, {}); }), "");
}

TEST(DeviceFitness, ADeviceOlderThanTheKernelsIsNamed) {
  EXPECT_EQ(
      line_of([] { check_device("nccl", {.ordinal = 1, .name = "Tesla V100", .capability = 70}, kBuild); }),
      "comm.backend: nccl cannot be used, because CUDA device 1 (Tesla V100) has compute capability 7.0; expected 8.0 "
      "or newer, like this build's kernels; build with -DGANTRY_CUDA_ARCHITECTURES=70, or use comm.backend local");
  for (const int capability : {80, 86, 90, 120})
    EXPECT_EQ(line_of([=] { check_device("nccl", {.name = "a", .capability = capability}, kBuild); }), "");
  EXPECT_EQ(line_of([] { check_device("nccl", {.name = "a", .capability = 70}, {.cuda = 13000}); }), "");
}

TEST(DeviceFitness, ABusyDeviceSaysWhoMayUseIt) {
  CudaDevice device{.ordinal = 0, .name = "NVIDIA H200", .capability = 90, .exclusive = true};
  device.refused = "CUDA error: CUDA-capable device(s) is/are busy or unavailable";
  EXPECT_EQ(line_of([&] { check_device("ipc", device, kBuild); }),
            "comm.backend: ipc cannot be used, because CUDA device 0 (NVIDIA H200) is unavailable: CUDA error: "
            "CUDA-capable device(s) is/are "
            "busy or unavailable; expected a device that this process may use; end the process that uses it "
            "(nvidia-smi lists them), or allow several processes: nvidia-smi -c DEFAULT");
  device.exclusive = false;
  EXPECT_THAT(line_of([&] { check_device("ipc", device, kBuild); }), ::testing::HasSubstr("CUDA_VISIBLE_DEVICES"));
}

}  // namespace
}  // namespace gantry
