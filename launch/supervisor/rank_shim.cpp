#include "gantry/launch/supervisor/rank_shim.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/core/steady_seconds.h"
#include "gantry/core/this_host.h"
#include "gantry/launch/supervisor/connection.h"
#include "gantry/launch/supervisor/rank_end.h"

namespace gantry::launcher {
namespace {

constexpr int kFarewellMilliseconds = 3000;  // until the launch must have taken the last report
constexpr int kAliveMilliseconds = 1000;     // between signs of life

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) sigaddset(&set, number);
  return set;
}

struct Pipe {
  Descriptor read, write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw ResourceError({"launch", std::string("no pipe: ").append(std::strerror(errno)), "", ""});
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// In the child: becomes the program. Returns only where it can't, with errno.
void become(const std::vector<std::string>& words, int out, int err, pid_t shim) {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != shim) ::_exit(1);  // it died before the line above
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::unsetenv(Rendezvous::kVariable);
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
}

// The program, its two streams, and how it ended.
class Program {
 public:
  explicit Program(const std::vector<std::string>& words) {
    Pipe out = make_pipe(), err = make_pipe();
    const pid_t shim = ::getpid();
    process_ = ::fork();
    if (process_ == 0) {
      become(words, out.write.get(), err.write.get(), shim);
      ::dprintf(STDERR_FILENO, "error: %s: can't be run: %s; expected a program\n", words[0].c_str(),
                std::strerror(errno));
      ::_exit(UsageError::kExitCode);
    }
    streams_[0] = std::move(out.read);
    streams_[1] = std::move(err.read);
    for (const auto& stream : streams_) ::fcntl(stream.get(), F_SETFL, O_NONBLOCK);
  }

  pid_t process() const { return process_; }
  const Descriptor& stream(int i) const { return streams_[static_cast<std::size_t>(i)]; }
  void signal(int number) const {
    if (!ended_) ::kill(process_, number);
  }
  bool ended() const { return ended_; }
  RankEnd end(bool told) const {
    RankEnd end{.kind = WIFEXITED(status_) ? RankEnd::Kind::kExit : RankEnd::Kind::kSignal};
    end.number = WIFEXITED(status_) ? WEXITSTATUS(status_) : WTERMSIG(status_);
    end.told = told;
    return end;
  }

  // After SIGCHLD: looks what became of it, and of those that it left behind, which are this process's children now.
  // Tells of a stop (its signal) and of going on (0).
  template <class Told>
  void reap(const Told& tell_stopped) {
    int status = 0;
    for (pid_t child; (child = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
      if (child != process_) continue;
      if (WIFSTOPPED(status)) {
        tell_stopped(WSTOPSIG(status));
      } else if (WIFCONTINUED(status)) {
        tell_stopped(0);
      } else {
        status_ = status;
        ended_ = true;
      }
    }
  }

  // What a stream has now, sent home; closes it at its end.
  void forward(int i, Connection& launch) {
    std::array<char, 65536> block;
    auto& stream = streams_[static_cast<std::size_t>(i)];
    while (stream) {
      const ssize_t got = ::read(stream.get(), block.data(), block.size());
      if (got > 0) {
        launch.send({i == 0 ? FrameKind::kOutput : FrameKind::kErrors, {block.data(), static_cast<std::size_t>(got)}});
      } else if (got == 0 || errno != EINTR) {
        if (got == 0 || errno != EAGAIN) stream.close();
        return;
      }
    }
  }

 private:
  pid_t process_ = -1;
  std::array<Descriptor, 2> streams_;  // stdout, stderr
  int status_ = 0;
  bool ended_ = false;
};

// What the program started and left running.
void end_descendants() {
  for (int round = 0; round < 100; ++round) {
    std::ifstream children(fmt::format("/proc/self/task/{}/children", ::getpid()));
    pid_t child = 0;
    bool any = false;
    while (children >> child) any = ::kill(child, SIGKILL) == 0 || any;
    if (!any) return;
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
  }
}

// What Open MPI's daemon removes, unless it was killed: this rank's file in /dev/shm, whose others have mapped it by
// now.
void remove_shared_memory() {
  const char* job = std::getenv("OMPI_MCA_ess_base_jobid");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!job || !rank) return;
  const std::string end = fmt::format(".{}.{:x}.{}", ::getuid(), std::strtoul(job, nullptr, 10), rank);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("vader_segment.") && name.ends_with(end)) std::filesystem::remove(entry.path(), ignored);
  }
}

class Shim {
 public:
  Shim(Connection launch, const std::vector<std::string>& words) : launch_(std::move(launch)), program_(words) {
    const sigset_t set = watched_signals();
    launch_.send({FrameKind::kBegun, std::to_string(program_.process())});
    signals_ = Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  RankEnd run() {
    while (!program_.ended()) {
      std::array<pollfd, 4> ready{{{signals_.get(), POLLIN, 0},
                                   {launch_.is_open() ? launch_.get() : -1, POLLIN, 0},
                                   {program_.stream(0).get(), POLLIN, 0},
                                   {program_.stream(1).get(), POLLIN, 0}}};
      if (::poll(ready.data(), ready.size(), kAliveMilliseconds) < 0 && errno != EINTR) break;
      say_alive();
      if (ready[0].revents != 0) take_signals();
      if (ready[1].revents != 0) take_orders();
      for (const int i : {0, 1})
        if (ready[2 + static_cast<std::size_t>(i)].revents != 0) program_.forward(i, launch_);
    }
    for (const int i : {0, 1}) program_.forward(i, launch_);
    end_descendants();
    remove_shared_memory();
    const RankEnd end = program_.end(told_);
    say_farewell(end);
    return end;
  }

 private:
  // mpirun signals the whole process group, so the program has it already; what counts is that it was told.
  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT || info.ssi_signo == SIGHUP) be_told();
      if (info.ssi_signo != SIGCHLD) continue;
      program_.reap([this](int signal) { launch_.send({FrameKind::kStopped, std::to_string(signal)}); });
    }
  }

  // A shim that was stopped itself says nothing of its program: the launch hears it by the silence.
  void say_alive() {
    const double now = steady_seconds();
    if (now - alive_at_ < 1e-3 * kAliveMilliseconds) return;
    alive_at_ = now;
    launch_.send({FrameKind::kAlive, ""});
  }

  // Said at once: if the program does not end soon, mpirun kills this process too.
  void be_told() {
    if (!told_) launch_.send({FrameKind::kTold, ""});
    told_ = true;
  }

  // A launch that is gone takes its ranks with it.
  void take_orders() {
    for (const Frame& frame : launch_.receive()) {
      if (frame.kind == FrameKind::kSignal) program_.signal(std::atoi(frame.bytes.c_str()));
      if (frame.kind == FrameKind::kKill) end_now();
    }
    if (!launch_.is_open()) end_now();
  }

  void end_now() {
    told_ = told_ || !program_.ended();
    program_.signal(SIGKILL);
  }

  // The report must be there before mpirun learns of the end from this process's.
  void say_farewell(const RankEnd& end) {
    if (!launch_.is_open()) return;
    launch_.send({FrameKind::kEnd, encode_end(end)});
    ::shutdown(launch_.get(), SHUT_WR);
    pollfd gone{launch_.get(), POLLIN, 0};
    while (launch_.is_open() && ::poll(&gone, 1, kFarewellMilliseconds) == 1) launch_.receive();
  }

  Connection launch_;
  Program program_;
  Descriptor signals_;
  bool told_ = false;
  double alive_at_ = 0;
};

std::vector<std::string> take_command(Connection& launch) {
  pollfd ready{launch.get(), POLLIN, 0};
  while (launch.is_open() && ::poll(&ready, 1, 30000) == 1)
    for (const Frame& frame : launch.receive())
      if (frame.kind == FrameKind::kCommand) return decode_words(frame.bytes);
  throw PeerError({"launch", "gives this rank no program", "", ""});
}

}  // namespace

int run_rank_shim() {
  const char* variable = std::getenv(Rendezvous::kVariable);
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const auto rendezvous = variable ? decode_rendezvous(variable) : std::nullopt;
  if (!rendezvous || !rank)
    throw UsageError({"gantry launch-rank", "is run by `gantry launch` only", "", "see gantry launch --help"});
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Descriptor socket = connect_to_launch(*rendezvous);
  if (!socket)
    throw PeerError({fmt::format("rank {} on {}", rank, host_name()),
                     fmt::format("can't reach the launch at {} on port {}", rendezvous->address, rendezvous->port),
                     "a way through between the hosts", "choose its network by --interface, its port by --port"});
  Connection launch(std::move(socket));
  launch.send({FrameKind::kHello, encode_hello({rendezvous->token, std::atoi(rank), ::getpid(), host_name()})});
  const auto words = take_command(launch);
  const RankEnd end = Shim(std::move(launch), words).run();
  if (end.kind == RankEnd::Kind::kSignal) return PeerError::kExitCode;
  return end.number == StopRequested::kExitCode ? 0 : end.number;
}

}  // namespace gantry::launcher
