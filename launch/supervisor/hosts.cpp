#include "gantry/launch/supervisor/hosts.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fstream>
#include <numeric>
#include <optional>
#include <sstream>

#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"

namespace gantry::launcher {
namespace {

constexpr int kMostSlots = 4096;

std::optional<int> slots_in(const std::string& text) {
  int slots = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (fault != std::errc() || end != text.data() + text.size() || slots < 1 || slots > kMostSlots) return std::nullopt;
  return slots;
}

// A leading '-' would make it a flag of mpirun.
bool is_host_name(const std::string& name) {
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '.' || c == '_';
  });
}

bool has_host(const std::vector<Host>& hosts, const std::string& name) {
  return std::any_of(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == name; });
}

Host host_of_line(const std::string& line, const std::string& where) {
  std::istringstream words(line);
  Host host;
  words >> host.name;
  if (!is_host_name(host.name))
    throw InputError({where, fmt::format("'{}' is not a host name", host.name), "NAME [slots=N]", ""});
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const auto count = equals == std::string::npos ? std::nullopt : slots_in(word.substr(equals + 1));
    if ((key != "slots" && key != "max_slots" && key != "max-slots") || !count)
      throw InputError({where, fmt::format("'{}' is neither slots=N nor max_slots=N", word), "NAME [slots=N]", ""});
    if (key == "slots") host.slots = *count;
  }
  return host;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& text) {
  std::vector<Host> hosts;
  std::istringstream entries(text + ",");
  for (std::string entry; std::getline(entries, entry, ',');) {
    const auto colon = entry.find(':');
    const auto slots = colon == std::string::npos ? std::optional(1) : slots_in(entry.substr(colon + 1));
    const Host host{entry.substr(0, colon), slots.value_or(0)};
    if (!is_host_name(host.name) || !slots)
      throw UsageError({"--hosts " + text, fmt::format("'{}' is not a host with a number of ranks", entry),
                        fmt::format("NAME:RANKS with 1 to {} ranks", kMostSlots), "write it like --hosts a:2,b:2"});
    if (has_host(hosts, host.name))
      throw UsageError(
          {"--hosts " + text, fmt::format("host '{}' is listed twice", host.name), "", "add up its ranks"});
    hosts.push_back(host);
  }
  return hosts;
}

std::vector<Host> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw InputError({path, "the host file cannot be read", "a file with one host per line", "check the path"});
  std::vector<Host> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    const Host host = host_of_line(line, where);
    if (has_host(hosts, host.name))
      throw InputError({where, fmt::format("host '{}' is listed twice", host.name), "", "add up its slots"});
    hosts.push_back(host);
  }
  if (hosts.empty()) throw InputError({path, "the file lists no hosts", "one host per line", ""});
  return hosts;
}

bool is_this_host(const Host& host) {
  const std::string own = host_name();
  return host.name == own || host.name == own.substr(0, own.find('.')) || host.name == "localhost" ||
         host.name == "127.0.0.1";
}

int total_slots(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, const Host& host) { return sum + host.slots; });
}

}  // namespace gantry::launcher
