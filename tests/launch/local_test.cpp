// Copies of a program and their rank threads in a wrong environment.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/launch/launch.h"
#include "gantry/launch/torchrun.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

int overflow_stack(int depth) {
  volatile char room[4096] = {};
  room[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : overflow_stack(depth + 1) + room[0];
}

TEST(LaunchLocal, AStackThatOverflowsNamesItsRank) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer says it in its own words";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Config config = layout_config({.tensor = 2});
        config.comm.recorder = 0;
        launch(config, [](World& world) {
          if (world.rank() == 1) std::exit(overflow_stack(0));
          for (;;) ::pause();
        });
      },
      ::testing::KilledBySignal(SIGSEGV), "error: rank 1 \\(pp 0, dp 0, tp 1\\): ended by SIGSEGV");
}

// Listens at an abstract place as another user, and never says a word.
pid_t start_silent_program(const std::string& name) {
  int ready[2] = {-1, -1};
  if (::pipe(ready) != 0) return -1;
  const pid_t child = ::fork();
  if (child != 0) {
    char byte = 0;
    ::close(ready[1]);
    const bool listens = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    return listens ? child : -1;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::setuid(65534) != 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener, 8) != 0 || ::write(ready[1], "!", 1) != 1)
    ::_exit(1);
  for (;;) ::pause();
}

TEST(LaunchLocal, AnotherProgramInPlaceOfTorchrunsFirstCopyIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user too";
  const std::string port = std::to_string(::getpid());
  ::setenv("MASTER_PORT", port.c_str(), 1);
  ::setenv("TORCHELASTIC_RUN_ID", "other", 1);
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
  const pid_t other = start_silent_program(fmt::format("gantry-{}-{}-other--0", ::getuid(), port));
  ASSERT_GT(other, 0);
  std::string error;
  try {
    run_in_first_copy({2, /*is_first=*/false}, [] { return 0; });
  } catch (const PeerError& failure) {
    error = failure.what();
  }
  EXPECT_NE(error.find("a process of another user listens at the address of the copy with RANK 0"), std::string::npos)
      << error;
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

}  // namespace
}  // namespace gantry::testing
