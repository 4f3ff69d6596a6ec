// Foreign connections to a launch do not prevent ranks with its token from connecting.
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "background.h"
#include "gantry/comm/control/frames.h"
#include "raw_socket.h"

namespace gantry::testing {
namespace {

int free_port() { return RawListener().port(); }

std::string launch(int port, const std::string& flags, const std::string& script) {
  return fmt::format("{} launch --port {} {} -- sh -c '{}'", gantry_program(), port, flags, script);
}

// The hello message of a job with two ranks.
std::string hello_of(const JobToken& token) {
  return encode_hello({.token = token, .peer = Peer::shim, .rank = 0, .ranks = 2, .process = 1, .host = "other"});
}

// The head of a hello whose payload it says is so long.
std::string hello_of_length(const char (&length)[5]) { return encode_frame(FrameKind::hello).replace(8, 4, length, 4); }

// Waits for the port to be open.
RawSocket first_to_connect(Background& run, int port) {
  std::optional<RawSocket> socket;
  EXPECT_TRUE(run.wait_until([&] { return socket.emplace(RawSocket::connect(port)).connected(); })) << run.err();
  return std::move(*socket);
}

TEST(PendingConnections, AreDroppedWhileAJobRunsAndHarmNothing) {
  const ScratchFolder scratch;
  const int port = free_port();
  Background run(
      launch(port, "-n 2", "echo ready >&2; while [ ! -e " + (scratch / "end") + " ]; do sleep 0.05; done; echo done"));
  ASSERT_TRUE(run.wait_until([&] {
    const std::string said = run.err();
    return said.find("[0] ready") != std::string::npos && said.find("[1] ready") != std::string::npos;
  })) << run.err();

  const std::string wrong_token = hello_of(random_job_token());
  const std::vector<std::pair<const char*, std::string>> dropped = {
      {"a wrong token", wrong_token},
      {"no token", encode_frame(FrameKind::hello)},
      {"a frame before any hello", encode_frame(FrameKind::report, "exit 0")},
      {"many frames", std::string(1 << 20, '\0')},
      {"a hello that is too long", hello_of_length("\x88\x13\0\0")},
      {"a length beyond all bounds", hello_of_length("\xff\xff\xff\xff")},
      {"a browser", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"garbage", std::string("\x13\x37\xba\xdc\x0f\xfe", 6) + std::string(8 << 20, '\x5a')},
  };
  for (const auto& [name, bytes] : dropped) {
    const RawSocket other = RawSocket::connect(port);
    ASSERT_TRUE(other.connected()) << name;
    other.send(bytes);
    EXPECT_TRUE(other.closes(5000)) << name;
  }
  for (std::size_t incomplete = 0; incomplete < wrong_token.size(); incomplete += 9)
    RawSocket::connect(port).send(wrong_token.substr(0, incomplete));  // and gone
  const RawSocket incomplete = RawSocket::connect(port);
  incomplete.send(wrong_token.substr(0, 20));  // and stays
  EXPECT_FALSE(incomplete.closes(200));
  std::vector<RawSocket> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(RawSocket::connect(port));
  EXPECT_TRUE(crowd.front().closes(3000)) << "too many are heard at a time";
  EXPECT_FALSE(crowd.back().closes(200));

  std::ofstream(scratch / "end") << "now";
  const Outcome ended = run.wait(30);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("[0] done"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("[1] done"), std::string::npos) << ended.out;
}

TEST(PendingConnections, ACrowdThatWasThereFirstKeepsNoRankOut) {
  const int port = free_port();
  Background run(launch(port, "-n 2", "echo done"));
  std::vector<RawSocket> crowd;
  crowd.push_back(first_to_connect(run, port));
  for (int i = 0; i < 300; ++i) crowd.push_back(RawSocket::connect(port));
  const Outcome ended = run.wait(60);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(ended.out == "[0] done\n[1] done\n" || ended.out == "[1] done\n[0] done\n") << ended.out;
}

TEST(PendingConnections, FindItOnTheChosenInterfaceAlone) {
  for (const char* hosts : {"-n 1", "--hosts $(hostname):1"}) {
    const int port = free_port();
    const std::string listening = fmt::format(":{:04X} 00000000:0000 0A", port);
    const Outcome run = run_program(
        launch(port, std::string(hosts) + " --interface lo", "grep \"" + listening + "\" /proc/net/tcp"), 60);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_NE(run.out.find(" 0100007F" + listening), std::string::npos) << hosts << "\n" << run.out;
  }
}

}  // namespace
}  // namespace gantry::testing
