// A program on a pseudo terminal.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <poll.h>
#include <pty.h>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace gantry::testing {

class Terminal {
 public:
  // Starts a shell command line; killed at this object's end.
  Terminal(const std::string& command, unsigned short columns) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = ::forkpty(&file_, nullptr, nullptr, &size);
    if (child_ < 0) std::abort();
    if (child_ == 0) {
      ::execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~Terminal() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(file_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void resize(unsigned short columns) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(file_, TIOCSWINSZ, &size);
  }
  // Until `text` was printed. False after 60 s or at the program's end.
  bool wait_for(const std::string& text) {
    while (printed_.find(text) == std::string::npos)
      if (!read_more()) return false;
    return true;
  }
  // Types keys on the terminal; "\003" is Ctrl-C.
  void type(const std::string& keys) const {
    if (::write(file_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) std::abort();
  }
  bool runs() const {
    siginfo_t state{};
    return ::waitid(P_PID, static_cast<id_t>(child_), &state, WEXITED | WNOHANG | WNOWAIT) == 0 && state.si_pid == 0;
  }
  // Until the program ends; its exit code, -1 after a signal.
  int finish() {
    while (read_more()) continue;
    int status = 0;
    ::waitpid(std::exchange(child_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string& printed() const { return printed_; }

 private:
  bool read_more() {
    const auto left = deadline_ - std::chrono::steady_clock::now();
    pollfd ready{file_, POLLIN, 0};
    const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
    if (::poll(&ready, 1, static_cast<int>(std::max<long>(wait, 0))) <= 0) return false;
    char bytes[4096];
    const ssize_t got = ::read(file_, bytes, sizeof(bytes));  // EIO once the program has ended
    if (got <= 0) return false;
    printed_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }

  int file_ = -1;
  pid_t child_ = -1;
  std::string printed_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::now() + std::chrono::seconds(60);
};

// Every line that was on the screen, those that others were written over too.
inline std::vector<std::string> lines_drawn(const std::string& printed) {
  constexpr std::string_view kErase = "\033[K";
  std::vector<std::string> lines(1);
  for (std::size_t at = 0; at < printed.size(); ++at) {
    if (std::string_view(printed).substr(at).starts_with(kErase))
      at += kErase.size() - 1;
    else if (printed[at] == '\r' || printed[at] == '\n')
      lines.emplace_back();
    else
      lines.back() += printed[at];
  }
  std::erase(lines, "");
  return lines;
}

}  // namespace gantry::testing
