#include "background.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace gantry::testing {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point in_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void redirect(int to, const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(file, to);
}

}  // namespace

Background::Background(const std::string& command) {
  const std::string line = "exec " + command, out = scratch_ / "out", err = scratch_ / "err";
  process_ = ::fork();
  if (process_ != 0) return;
  redirect(STDOUT_FILENO, out);
  redirect(STDERR_FILENO, err);
  ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  ::_exit(127);
}

Background::~Background() {
  if (process_ <= 0 || has_ended()) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, &status_, 0);
}

bool Background::has_ended() {
  if (!ended_) ended_ = ::waitpid(process_, &status_, WNOHANG) == process_;
  return ended_;
}

void Background::signal(int number) const {
  if (!ended_) ::kill(process_, number);
}

bool Background::wait_until(const std::function<bool()>& condition, double seconds) {
  for (const auto end = in_seconds(seconds); Clock::now() < end;) {
    if (condition()) return true;
    if (has_ended()) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

Outcome Background::wait(double seconds) {
  const bool over = wait_until([this] { return has_ended(); }, seconds);
  const int code = !over ? 124 : WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  return {code, read_file(scratch_ / "out"), err()};
}

}  // namespace gantry::testing
