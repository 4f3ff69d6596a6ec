// Connecting the ranks over TCP: connections of other processes, failed attempts, and limits.
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "gantry/comm/tcp/join_ranks.h"
#include "gantry/core/error.h"
#include "raw_socket.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

constexpr JobToken kToken{1, 2, 3};

// The hello message that ranks send.
struct Hello {
  JobToken token = kToken;
  std::int32_t from = 0, to = 0;

  std::string bytes() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
};

// The address that ranks gather.
struct Address {
  char address[64] = "127.0.0.1";
  std::int32_t port = 0;

  std::string bytes() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
};

int port_of(const std::string& bytes) {
  Address address;
  std::memcpy(&address, bytes.data(), sizeof(address));
  return address.port;
}

TcpOptions rank_of_two(int rank) {
  return {.rank = rank,
          .size = 2,
          .address = "127.0.0.1",
          .token = kToken,
          .timeout_seconds = 60,
          .describe_rank = [](int one) { return fmt::format("rank {}", one); },
          .gather = {}};
}

void close_all(const std::vector<int>& sockets) {
  for (const int one : sockets)
    if (one >= 0) ::close(one);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Joins rank 0 with a rank 1 that connects after 100 connections of other processes. Returns the warnings.
std::string join_after_a_crowd(const std::function<void()>& then) {
  std::vector<RawSocket> others;
  TcpOptions options = rank_of_two(0);
  options.gather = [&](const std::string& mine, const std::string&) -> std::vector<std::string> {
    for (int i = 0; i < 101; ++i) others.push_back(RawSocket::connect(port_of(mine)));
    EXPECT_TRUE(others.back().send(Hello{.from = 1, .to = 0}.bytes()));
    then();
    return {mine, mine};
  };
  ::testing::internal::CaptureStderr();
  const std::vector<int> sockets = join_ranks(options);
  EXPECT_GE(sockets.at(1), 0);
  close_all(sockets);
  return ::testing::internal::GetCapturedStderr();
}

TEST(TcpJoin, ACrowdOfOtherProcessesKeepsNoRankOut) {
  const std::string warnings = join_after_a_crowd([] {});
  EXPECT_EQ(count(warnings, "too many connections arrived after it"), 20) << warnings;
  EXPECT_EQ(count(warnings, "further such connections are dropped silently"), 1) << warnings;
}

TEST(TcpJoin, WithoutDescriptorsTheOldestOfOtherProcessesIsDropped) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const std::string warnings = join_after_a_crowd([&] {
    const int next = ::dup(0);  // the lowest free descriptor after the other connections
    ::close(next);
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(next) + 5;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_GE(count(warnings, "too many connections arrived after it"), 20) << warnings;
}

TEST(TcpJoin, AFailedAttemptIsRepeated) {
  const RawListener listener;
  std::thread rank_0([&] {
    listener.accept().close();
    const RawSocket second = listener.accept();
    EXPECT_EQ(second.receive(sizeof(Hello)), (Hello{.from = 1, .to = 0}.bytes()));
    second.send(Hello{.from = 0, .to = 1}.bytes());
  });
  TcpOptions options = rank_of_two(1);
  options.gather = [&](const std::string& mine, const std::string&) -> std::vector<std::string> {
    return {Address{.port = listener.port()}.bytes(), mine};
  };
  const std::vector<int> sockets = join_ranks(options);
  rank_0.join();
  EXPECT_GE(sockets.at(0), 0);
  close_all(sockets);
}

TEST(TcpJoin, TheErrorSaysWhyARankCannotBeReached) {
  const int port = RawListener().port();  // the port is closed again
  TcpOptions options = rank_of_two(1);
  options.timeout_seconds = 0;
  options.gather = [&](const std::string& mine, const std::string&) -> std::vector<std::string> {
    return {Address{.port = port}.bytes(), mine};
  };
  const std::string error = thrown_by([&] { join_ranks(options); });
  EXPECT_NE(error.find(fmt::format("for a connection with rank 0 at 127.0.0.1:{} (Connection refused)", port)),
            std::string::npos)
      << error;
}

TEST(TcpJoin, ALowLimitOfOpenFilesIsRaised) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = 50;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  TcpOptions options = rank_of_two(0);
  options.timeout_seconds = 0;
  options.gather = [](const std::string& mine, const std::string&) -> std::vector<std::string> { return {mine, mine}; };
  EXPECT_NE(thrown_by([&] { join_ranks(options); }).find("for a connection with rank 1"), std::string::npos);
  rlimit after{};
  ::getrlimit(RLIMIT_NOFILE, &after);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(after.rlim_cur, 66u);
}

}  // namespace
}  // namespace gantry::testing
