// How many cores this process may use: fewer than the machine has under taskset, cpusets of Slurm or Kubernetes,
// `mpirun --bind-to core`, and CPU quotas of containers.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gantry {

// The fewest of those that it is bound to and those that its cgroups' quotas are worth, rounded up; at least 1.
int usable_cores();

// By the system's numbers. As many as any x86 or Arm kernel knows.
using CpuSet = std::bitset<8192>;
CpuSet bound_cpus();  // of the calling thread

// A process of a host, as its neighbours need to know it.
struct CpuClaim {
  CpuSet cpus;
  double quota = 0;          // of its cgroups, in cores; 0: none
  std::uint64_t cgroup = 0;  // a number for them: processes with the same one share the quota
};
CpuClaim own_cpu_claim();
// What `mine` gets of the host when all claims, its own among them, are served alike: of each core that several are
// bound to a part, and of a quota that several share a part.
double share_of_cores(const CpuClaim& mine, const std::vector<CpuClaim>& all);

// The least CPU quota, in cores, of the cgroup that `cgroups` (/proc/self/cgroup) names and of those above it, version
// 1 or 2, where `mounts` (/proc/self/mountinfo) says that they are mounted; none without one. `read` gives a file's
// text, "" where there is none.
std::optional<double> cpu_quota(const std::string& cgroups, const std::string& mounts,
                                const std::function<std::string(const std::string& path)>& read);

}  // namespace gantry
