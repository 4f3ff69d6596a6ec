// The shim of a rank, with a launch that this test plays.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <thread>

#include "background.h"
#include "gantry/comm/control/frames.h"
#include "raw_socket.h"

namespace gantry::testing {
namespace {

constexpr std::size_t kOutputBytes = 1 << 19;

// A rank that ends with `command`, the connection of its shim, which has sent its hello, and the bytes after it.
struct PlayedLaunch {
  explicit PlayedLaunch(const std::string& command)
      : run(fmt::format("env {}='{}' GANTRY_RANK=0 GANTRY_RANKS=1 {} launch-rank", Rendezvous::kVariable,
                        encode_meeting({"127.0.0.1", listener.port(), token}), gantry_program())),
        shim(listener.accept()) {
    const std::string head = shim.receive(kFrameHeadBytes);
    if (head.size() < kFrameHeadBytes) return;
    shim.receive(decode_head(std::span<const char, kFrameHeadBytes>(head)).payload_bytes);
    shim.send(encode_command({"sh", "-c", command}));
  }

  const JobToken token = random_job_token();
  const RawListener listener;
  Background run;
  RawSocket shim;
};

struct Received {
  std::size_t output_bytes = 0;
  std::string report;  // the payload of the shim's last frame
};

Received parse(std::string_view bytes) {
  Received all;
  while (bytes.size() >= kFrameHeadBytes) {
    const FrameHead head = decode_head(std::span<const char, kFrameHeadBytes>(bytes.data(), kFrameHeadBytes));
    const std::string_view payload = bytes.substr(kFrameHeadBytes, head.payload_bytes);
    bytes.remove_prefix(std::min(bytes.size(), kFrameHeadBytes + head.payload_bytes));
    if (head.kind == FrameKind::output) all.output_bytes += payload.size();
    if (head.kind == FrameKind::report) all.report = payload;
  }
  return all;
}

// A launch resumes a shim that has sent its report already: if the shim closed its connection then, the kernel would
// drop the output that the launch has not read.
TEST(RankShim, KeepsItsConnectionUntilTheLaunchHasReadTheReport) {
  const ScratchFolder scratch;
  const std::string done = scratch / "done";
  PlayedLaunch launch(fmt::format("head -c {} /dev/zero; touch {}", kOutputBytes, done));
  ASSERT_TRUE(launch.run.wait_until([&] { return std::filesystem::exists(done); })) << launch.run.err();
  // Pauses in which a shim with this fault closes its connection, and then receives one frame more.
  for (int resumes = 0; resumes < 3; ++resumes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    launch.shim.send(encode_frame(FrameKind::resume));
  }
  const Received received = parse(launch.shim.receive_all());
  EXPECT_EQ(received.output_bytes, kOutputBytes);
  EXPECT_EQ(received.report, "exit 0");
  launch.shim.close();
  EXPECT_EQ(launch.run.wait().exit_code, 0) << launch.run.err();
}

}  // namespace
}  // namespace gantry::testing
