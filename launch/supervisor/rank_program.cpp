#include "gantry/launch/supervisor/rank_program.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/launch/supervisor/exec_words.h"

namespace gantry::launcher {
namespace {

struct Pipe {
  Descriptor read, write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw ResourceError({"launch", std::string("creating a pipe failed: ").append(std::strerror(errno)), "",
                         "raise the limit of open files (ulimit -n)"});
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Called in the child process: replaces it by the program. Returns only on failure, with errno set.
void become(const std::vector<std::string>& words, int out, int err, pid_t shim) {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != shim) ::_exit(1);  // the shim ended before the call of prctl()
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  exec_words(words);
}

}  // namespace

RankProgram::RankProgram(const std::vector<std::string>& words) {
  Pipe out = make_pipe(), err = make_pipe();
  const pid_t shim = ::getpid();
  process_ = ::fork();
  if (process_ == 0) {
    become(words, out.write.get(), err.write.get(), shim);
    ::dprintf(STDERR_FILENO, "error: %s: the program cannot be run: %s; expected an executable file\n",
              words[0].c_str(), std::strerror(errno));
    ::_exit(UsageError::kExitCode);
  }
  streams_[0] = std::move(out.read);
  streams_[1] = std::move(err.read);
  for (const auto& stream : streams_) ::fcntl(stream.get(), F_SETFL, O_NONBLOCK);
}

void RankProgram::signal(int number) const {
  if (!ended_) ::kill(process_, number);
}

RankEnd RankProgram::end(bool notified) const {
  RankEnd end{.kind = WIFEXITED(status_) ? RankEnd::Kind::kExit : RankEnd::Kind::kSignal};
  end.number = WIFEXITED(status_) ? WEXITSTATUS(status_) : WTERMSIG(status_);
  end.notified = notified;
  return end;
}

void RankProgram::reap(const std::function<void(int)>& tell_stopped) {
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

}  // namespace gantry::launcher
