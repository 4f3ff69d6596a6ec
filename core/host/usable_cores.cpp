#include "gantry/core/host/usable_cores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <sched.h>
#include <sstream>
#include <thread>

namespace gantry {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

bool names_cpu(const std::string& controllers) {
  const auto names = split(controllers, ',');
  return std::find(names.begin(), names.end(), "cpu") != names.end();
}

// The mount point of the hierarchy with the CPU controller, and the group that is mounted there.
struct Mount {
  std::string root, place;
};

// Parses a line of mountinfo: "36 35 98:0 /root /place options... - type source super-options".
std::optional<Mount> find_mount(const std::string& mounts, bool second_version) {
  for (const auto& line : split(mounts, '\n')) {
    const auto words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const std::string& type = *(dash + 1);
    if (second_version ? type == "cgroup2" : type == "cgroup" && names_cpu(*(dash + 3)))
      return Mount{words[3], words[4]};
  }
  return std::nullopt;
}

// "200000 100000" or "max 100000".
std::optional<double> quota_of_two(const std::string& text) {
  std::istringstream stream(text);
  double quota = 0, period = 0;
  if (!(stream >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> quota_in(const std::string& folder, bool second_version,
                               const std::function<std::string(const std::string& path)>& read) {
  if (second_version) return quota_of_two(read(folder + "/cpu.max"));
  return quota_of_two(read(folder + "/cpu.cfs_quota_us") + " " + read(folder + "/cpu.cfs_period_us"));
}

// The path of `group` below the mount; the mount point itself for a group outside it, as in a container.
std::string group_below(const Mount& mount, const std::string& group) {
  if (mount.root == "/") return group == "/" ? "" : group;
  if (group.compare(0, mount.root.size(), mount.root) != 0) return "";
  const std::string below = group.substr(mount.root.size());
  return below.empty() || below[0] == '/' ? below : "";
}

std::string whole_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : "";
}

}  // namespace

std::optional<double> cpu_quota(const std::string& cgroups, const std::string& mounts,
                                const std::function<std::string(const std::string& path)>& read) {
  std::optional<double> least;
  for (const auto& line : split(cgroups, '\n')) {
    // "0::/group" of version 2, "4:cpu,cpuacct:/group" of version 1.
    const auto first = line.find(':'), second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !names_cpu(controllers)) continue;
    const auto mount = find_mount(mounts, controllers.empty());
    if (!mount) continue;
    std::string group = group_below(*mount, line.substr(second + 1));
    if (group.find("/..") != std::string::npos) group.clear();  // groups outside the container
    while (true) {
      if (const auto quota = quota_in(mount->place + group, controllers.empty(), read))
        least = std::min(*quota, least.value_or(std::numeric_limits<double>::infinity()));
      if (group.empty()) break;
      const auto last = group.rfind('/');
      group.erase(last == std::string::npos ? 0 : last);
    }
  }
  return least;
}

CpuSet bound_cpus() {
  std::array<unsigned long, CpuSet().size() / (8 * sizeof(unsigned long))> words{};
  CpuSet cpus;
  if (::sched_getaffinity(0, sizeof(words), reinterpret_cast<cpu_set_t*>(words.data())) == 0)
    for (std::size_t cpu = 0; cpu < cpus.size(); ++cpu)
      cpus[cpu] = (words[cpu / (8 * sizeof(unsigned long))] >> (cpu % (8 * sizeof(unsigned long))) & 1) != 0;
  if (cpus.none())  // the kernel does not have this file
    for (unsigned cpu = 0; cpu < std::max(1u, std::thread::hardware_concurrency()); ++cpu) cpus.set(cpu);
  return cpus;
}

CpuClaim own_cpu_claim() {
  const std::string cgroup = whole_text("/proc/self/cgroup");
  return {bound_cpus(), cpu_quota(cgroup, whole_text("/proc/self/mountinfo"), whole_text).value_or(0),
          std::hash<std::string>()(cgroup)};
}

double share_of_cores(const CpuClaim& mine, const std::vector<CpuClaim>& all) {
  double share = 0;
  for (std::size_t cpu = 0; cpu < mine.cpus.size(); ++cpu)
    if (mine.cpus[cpu])
      share += 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(
                         1, std::count_if(all.begin(), all.end(), [&](const CpuClaim& one) { return one.cpus[cpu]; })));
  if (mine.quota <= 0) return share;
  const auto sharers =
      std::count_if(all.begin(), all.end(), [&](const CpuClaim& one) { return one.cgroup == mine.cgroup; });
  return std::min(share, std::ceil(mine.quota) / static_cast<double>(std::max<std::ptrdiff_t>(1, sharers)));
}

int usable_cores() {
  const CpuClaim claim = own_cpu_claim();
  return std::max(1, static_cast<int>(share_of_cores(claim, {claim}) + 1e-6));
}

}  // namespace gantry
