#include "gantry/launch/job_start.h"

#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <netdb.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "gantry/core/error.h"
#include "gantry/core/host/addresses.h"
#include "gantry/core/host/this_host.h"
#include "gantry/launch/foreign_launcher.h"
#include "gantry/launch/process_job.h"

namespace gantry {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::vector<std::uint8_t> store_bytes(const std::string& text) { return {text.begin(), text.end()}; }

// The store through which torchrun's processes find each other. Rank 0 serves it if torchrun's agent does
// not, until all ranks are connected.
c10::intrusive_ptr<c10d::TCPStore> open_store(const JobStart& start, double timeout_seconds) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launcher_number("MASTER_PORT"));
  options.isServer = start.rank == 0 && variable("TORCHELASTIC_USE_AGENT_STORE") != "True";
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_seconds * 1000));
  return c10::make_intrusive<c10d::TCPStore>(variable("MASTER_ADDR"), options);
}

// Returns a different key for each job that the processes run, in the same order in all of them.
std::string meeting_key() {
  static int jobs = 0;
  return fmt::format("gantry/{}/{}/{}", variable("TORCHELASTIC_RUN_ID"), variable("TORCHELASTIC_RESTART_COUNT"),
                     jobs++);
}

// Returns MASTER_ADDR if it is an address of this host, otherwise "".
std::string own_master_address() {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::string own;
  if (::getaddrinfo(variable("MASTER_ADDR").c_str(), nullptr, &hints, &found) != 0) return own;
  for (const addrinfo* one = found; one && own.empty(); one = one->ai_next) {
    char text[INET_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ai_addr)->sin_addr, text, sizeof(text));
    own = address_among(text);
  }
  ::freeaddrinfo(found);
  return own;
}

// Returns the address for rank 0's hub: in the network that comm.interface names, or MASTER_ADDR.
std::string hub_address(const JobStart& start, const CommConfig& config) {
  const bool one_host = launcher_number("LOCAL_WORLD_SIZE") == start.ranks;
  if (config.interface.empty() && !one_host)
    if (const std::string own = own_master_address(); !own.empty()) return own;
  return control_address(config.interface, one_host);
}

std::unique_ptr<ControlPlane> meet_by_store(const JobStart& start, const CommConfig& config,
                                            const ControlOptions& options, const ControlEvents& events) {
  const std::string key = meeting_key();
  try {
    const auto store = open_store(start, config.timeout_seconds);
    std::unique_ptr<ControlPlane> plane;
    if (start.rank == 0) {
      plane = ControlPlane::host(options, events, hub_address(start, config));
      store->set(key, store_bytes(encode_meeting(plane->meeting())));
    } else {
      const auto bytes = store->get(key);
      const auto meeting = decode_meeting({bytes.begin(), bytes.end()});
      plane = ControlPlane::join(options, events, meeting.value_or(Rendezvous{}));
    }
    plane->rendezvous();
    return plane;
  } catch (const c10::Error& error) {
    const std::string words = error.what_without_backtrace();
    throw PeerError({"launch",
                     fmt::format("the ranks cannot meet at MASTER_ADDR {} and MASTER_PORT {}: {}",
                                 variable("MASTER_ADDR"), variable("MASTER_PORT"), words.substr(0, words.find('\n'))),
                     "rank 0's host and a free port there, the same on all ranks", "set both, or use torchrun"});
  }
}

}  // namespace

std::optional<JobStart> find_job_start() {
  JobStart start{launcher_number(JobStart::kRankVariable), launcher_number(JobStart::kRanksVariable), true};
  start.joins = launcher_number(JobStart::kJoinsVariable) > 0;
  if (start.rank >= 0 && start.ranks > start.rank && launch_meeting()) return start;
  start = {launcher_number("RANK"), launcher_number("WORLD_SIZE"), false};
  const bool has_place = !variable("MASTER_ADDR").empty() && launcher_number("MASTER_PORT") > 0;
  if (start.rank >= 0 && start.ranks > start.rank && has_place) return start;
  return std::nullopt;
}

std::unique_ptr<ControlPlane> meet_as_started(const JobStart& start, const CommConfig& config, ControlOptions options,
                                              const ControlEvents& events) {
  if (!start.by_launch) return meet_by_store(start, config, options, events);
  options.hub = HubPlace::launch;
  options.joins = start.joins;
  auto plane = ControlPlane::join(options, events, launch_meeting().value_or(Rendezvous{}));
  plane->rendezvous();
  return plane;
}

}  // namespace gantry
