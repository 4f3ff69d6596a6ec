#include "gantry/launch/supervisor/rank_starter.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <set>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/launch/job_start.h"
#include "gantry/launch/supervisor/exec_words.h"
#include "gantry/launch/supervisor/rank_shim.h"

namespace gantry::launcher {
namespace {

constexpr const char* kThisHost = "localhost";

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

[[noreturn]] void become(const std::vector<std::string>& words) {
  exec_words(words);
  std::fprintf(stderr, "%s: the program cannot be run: %s\n", words[0].c_str(), std::strerror(errno));
  ::_exit(UsageError::kExitCode);
}

// Called in the child process: replaces it by the shell on that host, which gets the variables of the rank
// over stdin.
[[noreturn]] void become_remote(const std::string& host, const std::string& shim,
                                const std::vector<std::string>& exported) {
  std::string variables;  // each value ends with a zero byte, because it may contain newlines
  for (const auto& name : exported)
    if (const char* value = std::getenv(name.c_str())) (variables += name + "=" + value) += '\0';
  int ends[2];
  const pid_t writer = ::pipe(ends) == 0 ? ::fork() : -1;
  if (writer < 0) {
    std::fprintf(stderr, "error: launch: sending variables to %s failed: %s\n", host.c_str(), std::strerror(errno));
    ::_exit(ResourceError::kExitCode);
  }
  if (writer == 0) {  // ends when all data are read
    ::close(ends[0]);
    const bool written = ::write(ends[1], variables.data(), variables.size()) == static_cast<ssize_t>(variables.size());
    ::_exit(written ? 0 : 1);
  }
  ::dup2(ends[0], STDIN_FILENO);
  ::close(ends[0]);
  ::close(ends[1]);
  const std::string command = fmt::format("cd {} && exec {} {} {}", quoted(std::filesystem::current_path().string()),
                                          quoted(shim), kRankShimCommand, kVariablesFromStdin);
  if (const char* agent = std::getenv("GANTRY_REMOTE_SHELL")) become({agent, host, command});
  become({"ssh", "-o", "BatchMode=yes", host, command});
}

// Returns the host of each rank: the hosts' slots in order.
std::vector<std::string> places_of(int ranks, const std::string& hosts) {
  std::vector<std::string> places;
  if (hosts != kThisHost)
    for (const Host& host : parse_hosts(hosts))
      for (int slot = 0; slot < host.slots; ++slot) places.push_back(is_this_host(host) ? kThisHost : host.name);
  places.resize(static_cast<std::size_t>(ranks), kThisHost);
  return places;
}

// The ranks to start: all, unless kOnlyRanksVariable lists some.
std::set<int> ranks_to_start(int ranks) {
  std::set<int> wanted;
  if (const char* only = std::getenv(kOnlyRanksVariable)) {
    std::istringstream list(only);
    for (std::string one; std::getline(list, one, ',');) wanted.insert(std::atoi(one.c_str()));
  } else {
    for (int rank = 0; rank < ranks; ++rank) wanted.insert(rank);
  }
  return wanted;
}

}  // namespace

std::vector<std::string> starter_command(const LaunchOptions& options, const std::string& gantry,
                                         const std::vector<std::string>& exported) {
  std::string hosts;
  for (const auto& host : options.hosts)
    hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", host.name, host.slots);
  std::vector<std::string> command = {gantry, kRankStarterCommand, std::to_string(options.ranks),
                                      hosts.empty() ? kThisHost : hosts};
  command.insert(command.end(), exported.begin(), exported.end());
  return command;
}

int run_rank_starter(const std::vector<std::string>& words) {
  const int ranks = words.size() < 2 ? 0 : std::atoi(words[0].c_str());
  if (ranks < 1)
    throw UsageError(
        {"gantry launch-ranks", "this command is only for `gantry launch`", "", "see gantry launch --help"});
  const std::string shim = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::vector<std::string> places = places_of(ranks, words[1]);
  std::vector<std::string> exported(words.begin() + 2, words.end());
  for (std::string& name : exported) {
    const auto equals = name.find('=');
    if (equals == std::string::npos) continue;
    ::setenv(name.substr(0, equals).c_str(), name.c_str() + equals + 1, 1);
    name.resize(equals);
  }
  exported.insert(exported.end(), {JobStart::kRankVariable, JobStart::kRanksVariable, JobStart::kJoinsVariable});
  ::setenv(JobStart::kRanksVariable, std::to_string(ranks).c_str(), 1);
  const pid_t starter = ::getpid();
  for (const int rank : ranks_to_start(ranks)) {
    const pid_t child = ::fork();
    if (child < 0)
      throw ResourceError({"launch", std::string("starting a process failed: ").append(std::strerror(errno)), "",
                           "raise the limit of processes (ulimit -u)"});
    if (child > 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != starter) ::_exit(1);
    ::setenv(JobStart::kRankVariable, std::to_string(rank).c_str(), 1);
    const std::string& place = places[static_cast<std::size_t>(rank)];
    if (place != kThisHost) become_remote(place, shim, exported);
    become({shim, kRankShimCommand});
  }
  int status = 0, code = 0;
  while (::waitpid(-1, &status, 0) > 0)
    code = std::max(code, WIFEXITED(status) ? WEXITSTATUS(status) : PeerError::kExitCode);
  return code;
}

void read_variables() {
  for (std::string one; std::getline(std::cin, one, '\0');)
    if (const auto equals = one.find('='); equals != std::string::npos)
      ::setenv(one.substr(0, equals).c_str(), one.c_str() + equals + 1, 1);
}

}  // namespace gantry::launcher
