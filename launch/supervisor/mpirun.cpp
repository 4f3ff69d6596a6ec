#include "gantry/launch/supervisor/mpirun.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"
#include "gantry/launch/supervisor/exec_words.h"
#include "gantry/launch/supervisor/rank_shim.h"

namespace gantry::launcher {
namespace {

// Called in the child process: replaces it by mpirun.
[[noreturn]] void become(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables,
                         int output, pid_t launch) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != launch) ::_exit(1);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  exec_words(command);
  std::fprintf(stderr, "%s: the program cannot be run: %s\n", command[0].c_str(), std::strerror(errno));
  ::_exit(127);
}

// Removes the session directory of Open MPI 4 on this host, which an mpirun that was killed leaves behind.
void remove_session(pid_t mpirun) {
  const char* folder = nullptr;
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"})
    if (!folder) folder = std::getenv(name);
  std::error_code ignored;
  std::filesystem::remove_all(
      fmt::format("{}/ompi.{}.{}/pid.{}", folder ? folder : "/tmp", host_name(), ::geteuid(), mpirun), ignored);
}

}  // namespace

std::string find_mpirun() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = folder + "/mpirun";
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  throw UsageError(
      {"gantry launch", "there is no mpirun on PATH", "the mpirun of Open MPI",
       "install openmpi-bin, use --backend tcp, or run the ranks as threads of one process with `gantry train`"});
}

bool has_batch_system() {
  for (const char* name : {"SLURM_JOB_ID", "PBS_NODEFILE", "LSB_HOSTS", "OMPI_MCA_orte_default_hostfile"})
    if (std::getenv(name)) return true;
  return false;
}

bool may_have_several_hosts(const LaunchOptions& options) {
  if (!options.hosts.empty()) return !std::all_of(options.hosts.begin(), options.hosts.end(), is_this_host);
  if (options.tcp) return false;  // without mpirun, the hosts of a batch system are not used
  const char* slurm_hosts = std::getenv("SLURM_JOB_NUM_NODES");
  return has_batch_system() && !(slurm_hosts && std::string(slurm_hosts) == "1");
}

std::vector<std::string> mpirun_command(const LaunchOptions& options, const std::string& mpirun,
                                        const std::string& shim, int cores, bool as_root,
                                        const std::vector<std::string>& exported) {
  std::vector<std::string> command = {mpirun, "-n", std::to_string(options.ranks)};
  const auto add = [&](std::initializer_list<std::string> words) { command.insert(command.end(), words); };
  if (as_root) add({"--allow-run-as-root"});
  // A rank's threads use the cores that Gantry assigns to it, not the single core to which mpirun would bind
  // it.
  add({"--bind-to", "none"});
  if (!options.hosts.empty()) {
    std::vector<std::string> hosts;
    for (const auto& host : options.hosts) hosts.push_back(fmt::format("{}:{}", host.name, host.slots));
    add({"--host", fmt::format("{}", fmt::join(hosts, ","))});
  } else if (!has_batch_system()) {
    // Communication through shared memory only: no rank listens on a network.
    if (!std::getenv("OMPI_MCA_btl")) add({"--mca", "btl", "vader,self"});
    add({"--use-hwthread-cpus"});
    if (options.ranks > cores) add({"--oversubscribe"});
  }
  if (!options.interface.empty())
    for (const char* key : {"oob_tcp_if_include", "btl_tcp_if_include"}) add({"--mca", key, options.interface});
  for (const auto& name : exported) add({"-x", name});
  add({shim, kRankShimCommand});
  return command;
}

Mpirun::Mpirun(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw ResourceError({"launch", std::string("creating a pipe failed: ").append(std::strerror(errno)), "",
                         "raise the limit of open files (ulimit -n)"});
  const Descriptor write(ends[1]);
  output_ = Descriptor(ends[0]);
  const pid_t launch = ::getpid();
  process_ = ::fork();
  if (process_ == 0) become(command, variables, write.get(), launch);
  if (process_ < 0)
    throw ResourceError({"launch", std::string("starting a process failed: ").append(std::strerror(errno)), "",
                         "raise the limit of processes (ulimit -u)"});
  ::setpgid(process_, process_);
  ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);
}

Mpirun::~Mpirun() {
  if (!poll_end()) {
    kill_group();
    ::waitpid(process_, nullptr, 0);
  }
  remove_session(process_);
}

std::string Mpirun::read_output() {
  std::string text;
  std::array<char, 4096> block;
  while (output_) {
    const ssize_t got = ::read(output_.get(), block.data(), block.size());
    if (got > 0) {
      text.append(block.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      if (got == 0 || errno != EAGAIN) output_.close();
      break;
    }
  }
  return text;
}

void Mpirun::signal(int number) const {
  if (!end_) ::kill(process_, number);
}

void Mpirun::kill_group() const { ::kill(-process_, SIGKILL); }

std::optional<int> Mpirun::poll_end() {
  int status = 0;
  if (!end_ && ::waitpid(process_, &status, WNOHANG) == process_)
    end_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return end_;
}

}  // namespace gantry::launcher
