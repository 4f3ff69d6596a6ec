// Connections to a job's hub from other programs and from many clients at once, in addition to the job's own
// ranks.
#include <gtest/gtest.h>
#include <random>

#include "control_job.h"
#include "gantry/core/error.h"
#include "raw_socket.h"

namespace gantry::testing {
namespace {

// Other programs connect and send various bytes. Each of them causes one warning, and the job is not
// affected.
TEST(Reception, OtherConnectionsAreDroppedAndHarmNothing) {
  Reports reports, member_reports;
  ControlOptions options = options_of(0, 2, reports);
  options.handshake_seconds = 0.5;
  const auto hub = ControlPlane::host(options, reports.events(), "127.0.0.1");
  const int port = hub->meeting().port;
  const JobToken& token = hub->meeting().token;
  JobToken wrong = token;
  wrong[15] ^= 1;
  std::mt19937 random(3);
  std::string garbage(5000, '\0');
  for (char& byte : garbage) byte = static_cast<char>(random());
  std::string oversized = encode_frame(FrameKind::failure);
  oversized.replace(8, 4, "\xff\xff\xff\x7f");
  const std::vector<std::pair<std::string, std::string>> others = {
      {garbage, "it does not begin with the magic bytes"},
      {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it does not begin with the magic bytes"},
      {oversized, "a payload of 2147483647 bytes"},
      {hello_of(token, 1, 2).substr(0, 30), "the process did not identify itself within 0.5 s"},
      {"", "the process did not identify itself within 0.5 s"},
      {hello_of(wrong, 1, 2), "its token belongs to another job"},
      {encode_failure({1, 1, "a lie"}), "the first frame is not a hello frame"},
      {hello_of(token, 0, 2), "rank 0 is already connected"},
      {hello_of(token, 1, 3), "its job has 3 ranks, not 2"},
  };
  std::size_t warned = 0;
  for (const auto& [bytes, why] : others) {
    const RawSocket other = RawSocket::connect(port);
    other.send(bytes);
    EXPECT_TRUE(other.closes()) << why;
    const auto warnings = reports.warnings(++warned);
    ASSERT_EQ(warnings.size(), warned) << why;
    EXPECT_NE(warnings.back().find("dropped a connection from 127.0.0.1:"), std::string::npos) << warnings.back();
    EXPECT_NE(warnings.back().find(why), std::string::npos) << warnings.back();
  }
  const auto member = ControlPlane::join(options_of(1, 2, member_reports), member_reports.events(), hub->meeting());
  hub->rendezvous();
  member->rendezvous();
  EXPECT_FALSE(RawSocket::connect(port).connected());  // no further rank is expected
  auto left = std::async(std::launch::async, [&] { member->leave(); });
  hub->leave();
  left.get();
  EXPECT_TRUE(member_reports.silent());
}

// More silent connections than rank 0 accepts at a time. A rank tries again until one of them is dropped.
TEST(Reception, ACrowdOfSilentConnectionsKeepsNoRankOut) {
  constexpr int kCrowd = 64 + 2 + 1;
  Reports reports, member_reports;
  ControlOptions options = options_of(0, 2, reports);
  options.handshake_seconds = 1;
  const auto hub = ControlPlane::host(options, reports.events(), "127.0.0.1");
  std::vector<RawSocket> crowd;
  for (int i = 0; i < kCrowd; ++i) crowd.push_back(RawSocket::connect(hub->meeting().port));
  EXPECT_TRUE(crowd.front().closes(500)) << "there is room for more";
  const auto member = ControlPlane::join(options_of(1, 2, member_reports), member_reports.events(), hub->meeting());
  hub->rendezvous();
  member->rendezvous();
  auto left = std::async(std::launch::async, [&] { member->leave(); });
  hub->leave();
  left.get();
  EXPECT_TRUE(member_reports.silent());
  EXPECT_FALSE(reports.warnings(1).empty());
}

TEST(Reception, ASecondHelloOfARankIsRefused) {
  Reports reports, member_reports;
  const auto hub = ControlPlane::host(options_of(0, 3, reports), reports.events(), "127.0.0.1");
  const std::string hello = hello_of(hub->meeting().token, 1, 3);
  const RawSocket first = RawSocket::connect(hub->meeting().port);
  first.send(hello);
  first.receive(kFrameHeadBytes);  // the first heartbeat: the rank was accepted
  const RawSocket second = RawSocket::connect(hub->meeting().port);
  second.send(hello);
  EXPECT_TRUE(second.closes());
  EXPECT_NE(reports.warnings(1).at(0).find("rank 1 is already connected"), std::string::npos);
}

TEST(Reception, AnAddressThatIsNotThisHostsIsRefused) {
  Reports reports;
  EXPECT_THROW(ControlPlane::host(options_of(0, 2, reports), reports.events(), "192.0.2.1"), ResourceError);
}

}  // namespace
}  // namespace gantry::testing
